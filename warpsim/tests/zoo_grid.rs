//! Planted mistakes at the barrier of the whole grid, which a cooperative launch has.

use crate::common::all_options;
use crate::zoo_order::kernel;
use warpsim::{Finding, Gpu, Kind, Launch, Module, Options};

/// `grid.sync()`: the address of the barrier is %rd10 + 4.
const SYNC: &str = "mov.u32 %r20, %envreg2; mov.u32 %r21, %envreg1; mov.b64 %rd10, {%r20, %r21}; setp.eq.u64 %p6, %rd10, 0;\n@%p6 trap;\n\
     barrier.sync 0; @!%p1 bra S;\nmov.u32 %r22, %ctaid.x; mov.u32 %r23, %nctaid.x; setp.eq.u32 %p5, %r22, 0;\n\
     sub.u32 %r24, 0x80000001, %r23; selp.b32 %r24, %r24, 1, %p5; atom.add.release.gpu.u32 %r25, [%rd10+4], %r24;\n\
     W: ld.acquire.gpu.u32 %r26, [%rd10+4]; xor.b32 %r26, %r26, %r25; setp.gt.s32 %p5, %r26, -1; @%p5 bra W;\n\
     S: barrier.sync 0;";

/// Each block writes its words, and reads the next block's.
fn exchange(sync: &str) -> String {
    let body = "mov.u32 %r6, %ctaid.x; /*leave*/ mov.u32 %r7, %nctaid.x; shl.b32 %r8, %r6, 8; add.u32 %r8, %r8, %r2; cvt.u64.u32 %rd3, %r8;\n\
         add.u64 %rd3, %rd2, %rd3; st.global.u32 [%rd3], %r6;\n/*sync*/\n\
         add.u32 %r9, %r6, 1; rem.u32 %r9, %r9, %r7; shl.b32 %r9, %r9, 8; add.u32 %r9, %r9, %r2; cvt.u64.u32 %rd4, %r9;\n\
         add.u64 %rd4, %rd2, %rd4; ld.global.u32 %r10, [%rd4];";
    kernel(1, &body.replace("/*sync*/", sync))
}

fn found(text: &str, cooperative: bool, o: &Options) -> Vec<Finding> {
    let k = Module::parse(text).unwrap().kernel("k").unwrap();
    let mut g = Gpu::new();
    let (p, q) = (g.alloc_with(&[1; 4096], "input"), g.alloc_with(&[0; 4096], "output"));
    let (p, q) = (p.to_le_bytes(), q.to_le_bytes());
    let l = Launch { grid: [8, 1, 1], block: [64, 1, 1], cooperative, args: &[&p, &q], ..Launch::default() };
    // A block may poll for as long as the thread that runs the other is not scheduled.
    match g.launch(&k, &l, &Options { instruction_limit: 50_000_000, ..o.clone() }) {
        Ok(r) => r.findings,
        Err(f) => std::iter::once(*f.finding).chain(f.also).collect(),
    }
}

#[test]
fn a_missing_barrier_of_the_grid() {
    for o in all_options() {
        assert_eq!(found(&exchange(SYNC), true, &o), []);
        for bad in ["", "barrier.sync 0;"] {
            let bad = found(&exchange(bad), true, &o);
            assert!(bad.iter().any(|f| f.kind == Kind::GlobalRace && f.place.ptx_line > 0), "{bad:?}");
        }
        // An arrival that releases nothing.
        let relaxed = SYNC.replace("atom.add.release", "atom.add.relaxed");
        let bad = found(&exchange(&relaxed), true, &o);
        assert!(bad.iter().any(|f| f.kind == Kind::GlobalRace), "{bad:?}");
        // Of one block's threads, the barrier in front of the arrival makes it speak for all.
        let early = SYNC.replacen("barrier.sync 0; @!%p1", "@!%p1", 1);
        let bad = found(&exchange(&early), true, &o);
        assert!(bad.iter().any(|f| f.kind == Kind::GlobalRace), "{bad:?}");
    }
}

#[test]
fn a_launch_that_is_not_cooperative() {
    for o in all_options() {
        let bad = found(&exchange(SYNC), false, &o);
        assert!(bad[0].kind == Kind::Trap && bad[0].message.contains("`--cooperative`"), "{}", bad[0]);
        // Without the test for a null pointer.
        let bad = found(&exchange(&SYNC.replace("@%p6 trap;", "")), false, &o);
        assert!(bad[0].kind == Kind::OutOfBounds && bad[0].message.contains("`--cooperative`"), "{}", bad[0]);
        // Other kernels' traps are their own.
        let bad = found(&exchange("trap;"), false, &o);
        assert_eq!((bad[0].kind, bad[0].message.as_str()), (Kind::Trap, "the kernel trapped"));
    }
}

#[test]
fn a_block_that_does_not_come() {
    let leave = "setp.eq.u32 %p4, %r6, 5; @%p4 exit;";
    for o in all_options() {
        let bad = found(&exchange(SYNC).replace("/*leave*/", leave), true, &o);
        let first = &bad[0];
        assert!(first.kind == Kind::Deadlock && first.message.contains("block (5,0,0) has ended after 0"), "{first}");
        assert_eq!(first.place.instruction, "ld.acquire.gpu.u32");
    }
}
