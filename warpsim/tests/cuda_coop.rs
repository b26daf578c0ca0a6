//! Threads, blocks and clusters that work together (`cuda/coop.cu`).

use crate::common::*;
use warpsim::{Gpu, Launch, Module, Options};

fn p(a: u64) -> [u8; 8] {
    a.to_le_bytes()
}

fn ints(n: usize) -> Vec<i32> {
    (0..n as i32).map(|i| i * 7919 % 1009).collect()
}

/// Runs a kernel of `coop.cu` in one dimension, expecting neither fault nor finding.
fn launch(g: &mut Gpu, ptx: &str, kernel: &str, [grid, block, cluster]: [u32; 3], args: &[&[u8]], o: &Options) {
    let kernel = Module::parse(ptx).unwrap().kernel(kernel).unwrap_or_else(|e| panic!("{e}"));
    let l = Launch { grid: [grid, 1, 1], block: [block, 1, 1], cluster: [cluster, 1, 1], args, ..Launch::default() };
    let r = g.launch(&kernel, &l, o).unwrap_or_else(|f| panic!("{f}"));
    r.findings.iter().for_each(|f| println!("{f}"));
    assert!(r.clean());
}

#[test]
fn the_last_block_adds_up() {
    let Some(ptx) = nvcc::ptx("coop") else { return };
    let x: Vec<f32> = noise(5000, 1).iter().map(|v| (v * 64.0).round()).collect();
    let y = ints(9 * 32);
    for o in all_options() {
        let mut g = Gpu::new();
        let (d, part, out) = (g.alloc_with(&bytes(&x), "x"), g.alloc(28, "part"), g.alloc(4, "out"));
        run(&mut g, &ptx, "last_block", 7, 256, 0, &[&p(d), &p(part), &p(out), &5000i32.to_le_bytes()], &o);
        assert_eq!(read::<f32>(&g, out, 1)[0], x.iter().sum::<f32>());
        let (d, part) = (g.alloc_with(&bytes(&y), "x"), g.alloc(36, "part"));
        let (count, out) = (g.alloc_with(&[0; 4], "count"), g.alloc(4, "out"));
        run(&mut g, &ptx, "last_block_scoped", 9, 32, 0, &[&p(d), &p(part), &p(count), &p(out)], &o);
        assert_eq!(read::<i32>(&g, out, 1)[0], y.iter().sum::<i32>());
    }
}

#[test]
fn pipelines() {
    let Some(ptx) = nvcc::ptx("coop") else { return };
    let x = ints(1280);
    for o in all_options() {
        let mut g = Gpu::new();
        let (d, y) = (g.alloc_with(&bytes(&x), "x"), g.alloc(5120, "y"));
        run(&mut g, &ptx, "staged", 1, 128, 0, &[&p(d), &p(y), &10i32.to_le_bytes()], &o);
        for (i, v) in read::<i32>(&g, y, 1280).iter().enumerate() {
            assert_eq!(*v, x[i / 128 * 128 + 127 - i % 128] + i as i32 / 128);
        }
        let y = g.alloc(5120, "y");
        run(&mut g, &ptx, "split_pipeline", 1, 128, 0, &[&p(d), &p(y), &20i32.to_le_bytes()], &o);
        for (i, v) in read::<i32>(&g, y, 1280).iter().enumerate() {
            assert_eq!(*v, x[i ^ 1] * 3);
        }
        let y = g.alloc(5120, "y");
        run(&mut g, &ptx, "bulk", 5, 96, 0, &[&p(d), &p(y)], &o);
        for (i, v) in read::<i32>(&g, y, 1280).iter().enumerate() {
            assert_eq!(*v, x[i / 256 * 256 + 255 - i % 256]);
        }
    }
}

#[test]
fn clusters() {
    let Some(ptx) = nvcc::ptx("coop") else { return };
    let x: Vec<i32> = ints(3000).iter().map(|v| v % 128).collect();
    let counts: Vec<i32> = (0..128).map(|b| x.iter().filter(|v| **v == b).count() as i32).collect();
    for o in all_options() {
        let mut g = Gpu::new();
        let (d, bins) = (g.alloc_with(&bytes(&x), "x"), g.alloc_with(&[0; 512], "bins"));
        launch(&mut g, &ptx, "cluster_histogram", [4, 64, 4], &[&p(d), &p(bins), &3000i32.to_le_bytes()], &o);
        assert_eq!(read::<i32>(&g, bins, 128), counts);
        let y = g.alloc(1024, "y");
        launch(&mut g, &ptx, "cluster_scan", [8, 32, 4], &[&p(d), &p(y)], &o);
        for (i, v) in read::<i32>(&g, y, 256).iter().enumerate() {
            assert_eq!(*v, x[i / 128 * 128..=i].iter().sum::<i32>());
        }
    }
}

#[test]
fn parts_of_a_warp() {
    let Some(ptx) = nvcc::ptx("coop") else { return };
    let x = ints(64);
    for o in all_options() {
        let mut g = Gpu::new();
        let (d, y) = (g.alloc_with(&bytes(&x), "x"), g.alloc(512, "y"));
        run(&mut g, &ptx, "partitions", 1, 64, 0, &[&p(d), &p(y)], &o);
        let out = read::<i32>(&g, y, 128);
        for (i, v) in x.iter().enumerate() {
            let (warp, lane) = (&x[i / 32 * 32..][..32], i % 32);
            let same = |w: &&i32| **w % 5 == v % 5;
            let sum: i32 = warp.iter().filter(same).sum();
            let least = warp.iter().filter(|w| *w & 1 == v & 1).min().unwrap();
            assert_eq!(out[i], sum * 100 + least);
            let before: i32 = warp[..lane].iter().filter(same).sum();
            let down = warp[if lane < 30 { lane + 2 } else { lane }];
            let equal = warp.iter().enumerate().filter(|(_, w)| *w == v).fold(0, |m, (l, _)| m | 1u32 << l);
            assert_eq!(out[64 + i], before.wrapping_add(down).wrapping_add(equal as i32));
        }
    }
}

#[test]
fn decoupled_look_back() {
    let Some(ptx) = nvcc::ptx("coop") else { return };
    let module = Module::parse(&ptx).unwrap();
    let find = |part: &str| module.kernels().into_iter().find(|k| k.contains(part)).unwrap().to_owned();
    let (init, scan) = (find("DeviceScanInitKernel"), find("DeviceScanKernel"));
    // A tile fills the kernel's shared memory with the elements of 128 threads.
    let tile = module.kernel(&scan).unwrap().static_shared() as usize / 512 * 128;
    let n = 5 * tile - 100;
    let x = ints(n);
    let want: Vec<i32> = x.iter().scan(0, |s, v| Some((*s += v, *s).1)).collect();
    for o in all_options() {
        let mut g = Gpu::new();
        let (d, y) = (g.alloc_with(&bytes(&x), "x"), g.alloc(4 * n, "y"));
        let state = p(g.alloc(8 * (5 + 32), "state"));
        launch(&mut g, &ptx, &init, [1, 128, 1], &[&state, &5i32.to_le_bytes()], &o);
        let args: [&[u8]; 7] = [&p(d), &p(y), &state, &0i32.to_le_bytes(), &[0], &[0], &(n as i32).to_le_bytes()];
        launch(&mut g, &ptx, &scan, [5, 128, 1], &args, &o);
        assert_eq!(read::<i32>(&g, y, n), want);
    }
}

#[test]
fn groups_of_several_warps() {
    let Some(ptx) = nvcc::ptx("coop") else { return };
    let x = ints(128);
    for o in all_options() {
        let mut g = Gpu::new();
        let (d, y) = (g.alloc_with(&bytes(&x), "x"), g.alloc(512, "y"));
        launch(&mut g, &ptx, "wide_tiles", [1, 128, 1], &[&p(d), &p(y)], &o);
        for (i, v) in read::<i32>(&g, y, 128).iter().enumerate() {
            assert_eq!(*v, x[i / 64 * 64..][..64].iter().sum::<i32>() - x[i % 64]);
        }
    }
}
