//! Planted mistakes with what a multiprocessor has: registers that no warp gives back, blocks that do not fit.

use crate::common::all_options;
use crate::zoo::{Bug, kernel, launch};
use warpsim::{Gpu, H100, Kind, L4, Launch, Module, Options};

const BOUNDS: &str = ".maxntid 384, 1, 1\n.minnctapersm 1\n";

/// A producer that gives registers back, and two warpgroups that multiply.
fn specialised(bounds: &str, producer: &str, consumer: &str) -> String {
    let body = format!(
        "setp.ge.u32 %p1, %r1, 128;\n@%p1 bra CONSUMER;\nsetmaxnreg.{producer};\nbra DONE;\n\
         CONSUMER: setmaxnreg.{consumer};\nDONE:"
    );
    kernel(16, &body).replacen(")\n{", &format!(")\n{bounds}{{"), 1)
}

#[test]
fn a_block_has_the_registers_that_it_started_with() {
    let b = Bug { name: "pool", threads: 384, blocks: 2, bad: "", mend: ("", ""), kind: Kind::Deadlock };
    for o in all_options() {
        let go = |bounds: &str, producer: &str, consumer: &str| {
            let of = |s: &str| {
                let (verb, n) = s.split_once(' ').unwrap();
                format!("{verb}.sync.aligned.u32 {n}")
            };
            launch(&specialised(bounds, &of(producer), &of(consumer)), &b, &o)
        };
        // 384 threads of 168 registers: 64512 for 128 threads of 24 and 256 of 240.
        assert_eq!(go(BOUNDS, "dec 24", "inc 240"), Ok(vec![]));
        // ptxas ignores it where the least number of blocks is missing.
        assert_eq!(go(".reqntid 384\n", "dec 240", "inc 240"), Ok(vec![]));
        assert_eq!(go(".maxnreg 168\n", "dec 40", "inc 232"), Ok(vec![]));
        let stuck = go(BOUNDS, "dec 32", "inc 240").unwrap_err();
        assert_eq!(stuck.finding.kind, Kind::Deadlock);
        let says = "the block started with 64512, 168 for each thread";
        assert!(stuck.finding.message.contains(says) && stuck.finding.place.ptx_line > 0, "{stuck}");
        let wrong = go(BOUNDS, "dec 24", "dec 240").unwrap_err();
        assert_eq!(wrong.finding.kind, Kind::IllegalInstruction);
        assert!(wrong.finding.message.contains("a decrease to 240 registers by a warp that has 168"), "{wrong}");
        // Nobody starts with more than will be asked for, though 256 threads could have 255.
        let text = |more: u32| {
            specialised(
                ".reqntid 256\n.minnctapersm 1\n",
                "dec.sync.aligned.u32 40",
                &format!("inc.sync.aligned.u32 {more}"),
            )
        };
        let half = Bug { threads: 256, ..b };
        assert_eq!(launch(&text(232), &half, &o), Ok(vec![]));
        let wrong =
            launch(&text(200).replace("dec.sync.aligned.u32 40", "dec.sync.aligned.u32 240"), &half, &o).unwrap_err();
        assert!(wrong.finding.message.contains("a decrease to 240 registers by a warp that has 200"), "{wrong}");
        // Nothing tells how many there are.
        assert_eq!(go("", "dec 32", "inc 240"), Ok(vec![]));
        let told = Options { registers: 168, ..o.clone() };
        let text = specialised("", "dec.sync.aligned.u32 32", "inc.sync.aligned.u32 240");
        assert_eq!(launch(&text, &b, &told).unwrap_err().finding.kind, Kind::Deadlock);
    }
}

#[test]
fn blocks_that_do_not_fit_are_refused() {
    let run = |text: &str, threads: u32, shared_bytes: u32, o: Options| {
        let kernel = Module::parse(text).unwrap().kernel("k").unwrap();
        let args: [&[u8]; 2] = [&[0; 8], &[0; 8]];
        let launch = Launch { block: [threads, 1, 1], shared_bytes, args: &args, ..Launch::default() };
        match Gpu::new().launch(&kernel, &launch, &o) {
            Ok(_) => None,
            Err(fault) => {
                assert_eq!(fault.finding.kind, Kind::InvalidLaunch);
                Some(fault.finding.message)
            }
        }
    };
    let plain = kernel(16, "");
    let with = |registers| Options { registers, ..Options::default() };
    assert_eq!(run(&plain, 1024, 0, with(64)), None);
    let refused = run(&plain, 1024, 0, with(72));
    assert!(refused.is_some_and(|m| m.contains("1024 threads of 72 registers need 73728, a multiprocessor has 65536")));
    assert!(run(&plain, 32, 0, with(256)).is_some_and(|m| m.contains("256 registers a thread: 255 are possible")));
    let changes = kernel(16, "setmaxnreg.dec.sync.aligned.u32 24;").replacen(")\n{", ")\n.maxnreg 128\n{", 1);
    assert_eq!(run(&changes, 512, 0, with(0)), None);
    assert!(run(&changes, 1024, 0, with(0)).is_some_and(|m| m.starts_with("too many resources requested")));

    let on = |device| Options { device: Some(device), ..Options::default() };
    assert_eq!(run(&plain, 32, 120 << 10, on(H100)), None);
    assert!(run(&plain, 32, 120 << 10, on(L4)).is_some_and(|m| m.contains("at most 101376 are possible on L4")));
    assert_eq!(run(&kernel(40 << 10, "mov.u32 %r3, tile;"), 32, 0, with(0)), None);
    let large = kernel(50 << 10, "mov.u32 %r3, tile;");
    let refused = run(&large, 32, 0, with(0)).unwrap();
    assert!(refused.contains("51208 bytes of static shared memory"), "{refused}");
}
