//! Grids that wait for themselves, as nvcc compiles them (`cuda/grid.cu`).

use crate::common::*;
use warpsim::{Fault, Gpu, Kind, Launch, Module, Options, Report};

fn cooperative(
    g: &mut Gpu,
    ptx: &str,
    kernel: &str,
    [grid, block]: [u32; 2],
    args: &[&[u8]],
    o: &Options,
) -> Result<Report, Fault> {
    let kernel = Module::parse(ptx).unwrap().kernel(kernel).unwrap();
    let l = Launch { grid: [grid, 1, 1], block: [block, 1, 1], cooperative: true, args, ..Launch::default() };
    g.launch(&kernel, &l, o)
}

#[test]
fn rounds_see_what_the_round_before_left() {
    let Some(ptx) = nvcc::ptx("grid") else { return };
    let (n, count) = (3000usize, 5usize);
    let x: Vec<i32> = (0..n as i32).map(|i| i * 31 % 1009).collect();
    for o in all_options() {
        let mut g = Gpu::new();
        let (a, b) = (g.alloc_with(&bytes(&x), "a").to_le_bytes(), g.alloc(4 * n, "b"));
        let args: [&[u8]; 4] = [&a, &b.to_le_bytes(), &(n as i32).to_le_bytes(), &(count as i32).to_le_bytes()];
        // A second launch finds the barrier at rest.
        for turn in 1..=2 {
            g.write(u64::from_le_bytes(a), &bytes(&x)).unwrap();
            let r = cooperative(&mut g, &ptx, "rounds", [100, 64], &args, &o).unwrap_or_else(|f| panic!("{f}"));
            assert_eq!(r.findings, [], "launch {turn}");
            for (i, v) in read::<i32>(&g, b, n).iter().enumerate() {
                assert_eq!(*v, x[(i + count) % n] + 10);
            }
        }
    }
}

#[test]
fn arrivals_and_waits_are_apart() {
    let Some(ptx) = nvcc::ptx("grid") else { return };
    for o in all_options() {
        let mut g = Gpu::new();
        let (part, out) = (g.alloc(64, "part"), g.alloc(64, "out"));
        let args = |last: u32| [part.to_le_bytes().to_vec(), out.to_le_bytes().to_vec(), last.to_le_bytes().to_vec()];
        let all = args(0);
        let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        let r = cooperative(&mut g, &ptx, "halves", [16, 32], &all, &o).unwrap_or_else(|f| panic!("{f}"));
        assert_eq!(r.findings, []);
        let want: Vec<i32> = (0..16).map(|b| ((b + 1) % 16) * ((b + 1) % 16) + b).collect();
        assert_eq!(read::<i32>(&g, out, 16), want);
        // The last two stay away.
        let few = args(2);
        let few: Vec<&[u8]> = few.iter().map(Vec::as_slice).collect();
        let f = cooperative(&mut g, &ptx, "halves", [16, 32], &few, &o).unwrap_err();
        assert_eq!(f.finding.kind, Kind::Deadlock);
        let says = "waits at the grid's barrier for the 1. time, and block (14,0,0) has ended after 0";
        let other = says.replace("(14", "(15");
        assert!([says, &other].iter().any(|s| f.finding.message.starts_with(*s)), "{f}");
    }
}

#[test]
fn other_launches_have_no_such_barrier() {
    let Some(ptx) = nvcc::ptx("grid") else { return };
    let mut g = Gpu::new();
    let p = g.alloc(64, "part").to_le_bytes();
    for block in [1, 32] {
        let f = try_run(&mut g, &ptx, "halves", [2, 1, 1], [block, 1, 1], 0, &[&p, &p, &[0; 4]], &all_options()[0]);
        let f = f.unwrap_err();
        assert!(f.finding.kind == Kind::Trap && f.finding.message.contains("`Launch::cooperative`"), "{f}");
    }
}

#[test]
fn the_device_has_to_hold_the_grid() {
    let Some(ptx) = nvcc::ptx("grid") else { return };
    let mut g = Gpu::new();
    let p = g.alloc(65536, "part").to_le_bytes();
    let device = Some(warpsim::L4);
    let mut launch = |blocks: u32, registers: u32| {
        let o = Options { device, registers, ..Options::default() };
        cooperative(&mut g, &ptx, "halves", [blocks, 512], &[&p, &p, &[0; 4]], &o)
    };
    assert!(launch(174, 0).is_ok());
    let f = launch(175, 0).unwrap_err();
    assert_eq!(f.finding.kind, Kind::InvalidLaunch);
    assert_eq!(
        f.finding.message,
        "too many blocks in a cooperative launch: 175, and L4 holds 174 at once, 3 of 512 threads and 0 bytes of shared memory on \
         each of 58 multiprocessors, for want of warps"
    );
    assert!(launch(58, 128).is_ok());
    let f = launch(59, 128).unwrap_err();
    assert!(f.finding.message.contains("holds 58 at once") && f.finding.message.ends_with("registers"), "{f}");
}
