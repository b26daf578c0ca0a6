//! Planted bugs of kernels for Hopper that are small enough to write in PTX.

use crate::common::*;
use crate::zoo::{Bug, kernel, launch};
use warpsim::{DataType, Finding, Gpu, Kind, Launch, Module, Options, Swizzle, TensorMap};

fn found(text: &str, threads: u32, o: &Options) -> Vec<Finding> {
    let b = Bug { name: "hopper", threads, blocks: 2, bad: "", mend: ("", ""), kind: Kind::AsyncRace };
    match launch(text, &b, o) {
        Ok(findings) => findings,
        Err(fault) => std::iter::once(*fault.finding).chain(fault.also).collect(),
    }
}

#[test]
fn a_warpgroup_changes_its_registers_together() {
    let body = |warps: u32| {
        format!(
            "setp.ge.u32 %p1, %r1, 256; @%p1 bra GIVE;\nsetp.ge.u32 %p2, %r1, {warps}; @%p2 bra DONE;\n\
             setmaxnreg.inc.sync.aligned.u32 240;\nbra DONE;\nGIVE: setmaxnreg.dec.sync.aligned.u32 24;\nDONE:"
        )
    };
    for o in all_options() {
        for bounds in ["", ".maxntid 384, 1, 1\n.minnctapersm 1\n"] {
            let text = |warps| kernel(16, &body(warps)).replacen(")\n{", &format!(")\n{bounds}{{"), 1);
            assert!(found(&text(256), 384, &o).is_empty());
            let caught = found(&text(224), 384, &o);
            let says = "warp 7 has not executed the setmaxnreg of warp 4";
            assert!(caught[0].kind == Kind::BarrierMisuse && caught[0].message.contains(says), "{}", caught[0]);
        }
    }
}

#[test]
fn a_warpgroup_meets_before_it_changes_its_registers_again() {
    let body =
        |between: &str| format!("setmaxnreg.dec.sync.aligned.u32 64;\n{between}\nsetmaxnreg.dec.sync.aligned.u32 40;");
    let pairs = "setp.lt.u32 %p1, %r1, 64; @%p1 bar.sync 1, 64; @!%p1 bar.sync 2, 64;";
    for o in all_options() {
        for bounds in ["", ".maxntid 128, 1, 1\n.maxnreg 128\n"] {
            let text = |between| kernel(16, &body(between)).replacen(")\n{", &format!(")\n{bounds}{{"), 1);
            assert!(found(&text("bar.sync 0;"), 128, &o).is_empty());
            for between in ["", pairs] {
                let caught = found(&text(between), 128, &o);
                let says = "nothing orders this setmaxnreg behind the last one of warp ";
                assert!(caught[0].kind == Kind::BarrierMisuse && caught[0].message.starts_with(says), "{caught:?}");
            }
        }
    }
}

#[test]
fn who_tests_an_mbarrier_for_ever_says_what_it_lacks() {
    let body = "setp.ne.u32 %p1, %r1, 0; @%p1 bra E; mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.shared.b64 %rd3, [bar];\n\
             L: mbarrier.test_wait.shared.b64 %p2, [bar], %rd3; @!%p2 bra L; E:";
    for o in all_options() {
        let caught = found(&kernel(16, body), 32, &o);
        let says = "polls; its last test in vain was for phase parity 0 of the mbarrier at shared 0x410 of rank 0 (phase 0, 1 of 2 arrivals";
        assert!(caught[0].kind == Kind::Deadlock && caught[0].message.contains(says), "{}", caught[0]);
    }
}

/// Blocks of a cluster add to the first one's word.
fn adding(clear: &str, wait: &str, end: &str) -> String {
    let body = format!(
        "mov.u32 %r3, tile; mov.u32 %r4, bar; mov.u32 %r5, %cluster_ctarank; setp.eq.u32 %p1, %r1, 0;\n\
         @%p1 mbarrier.init.shared::cta.b64 [%r4], 1; @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 256;\n{clear}\n\
         barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\n\
         mapa.shared::cluster.u32 %r6, %r3, 0; mapa.shared::cluster.u32 %r7, %r4, 0; setp.ne.u32 %p2, %r5, 0;\n\
         red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r6], 1, [%r7];\n\
         @%p2 bra END;\n{wait}\n@%p1 ld.shared.u32 %r8, [%r3];\n@%p1 st.global.u32 [%rd2], %r8;\nEND: {end}"
    );
    kernel(16, &body).replacen(")\n{", ")\n.reqnctapercluster 2, 1, 1\n{", 1)
}

#[test]
fn reductions_into_shared_memory_are_accesses() {
    let clear = "@%p1 st.shared.u32 [%r3], 0;";
    let wait = "W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r4], 0; @!%p3 bra W;";
    let meet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;";
    for o in all_options() {
        let clean = found(&adding(clear, wait, ""), 32, &o);
        assert!(clean.is_empty(), "{}", clean[0]);
        for (text, kinds) in [
            (adding("", wait, ""), [Kind::UninitialisedShared; 2]),
            (adding(clear, "", meet), [Kind::AsyncRace, Kind::SharedRace]),
            (adding(clear, "bra END;", ""), [Kind::EarlyExit; 2]),
        ] {
            let caught = found(&text, 32, &o);
            assert!(caught.iter().any(|f| kinds.contains(&f.kind)), "{kinds:?}: {caught:?}");
        }
    }
}

#[test]
fn an_mbarrier_says_whether_bytes_are_missing_or_too_many() {
    let text = |expected: u32| {
        let body = format!(
            "mov.u32 %r3, tile; mov.u32 %r4, bar; setp.eq.u32 %p1, %r1, 0;\n@%p1 mbarrier.init.shared::cta.b64 [%r4], 1; bar.sync 0; @!%p1 bra W;\n\
             mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], {expected};\n\
             cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 256, [%r4];\n\
             W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r4], 0; @!%p2 bra W;"
        );
        kernel(256, &body)
    };
    for o in all_options() {
        assert!(found(&text(256), 32, &o).is_empty());
        let few = found(&text(128), 32, &o);
        assert!(few[0].kind == Kind::Deadlock && few[0].message.contains("128 bytes too many: copies bring more"));
        let many = found(&text(512), 32, &o);
        assert!(
            many[0].kind == Kind::Deadlock && many[0].message.contains("256 bytes missing: more bytes are expected")
        );
    }
}

#[test]
fn a_bulk_copy_says_what_is_wrong_with_its_size() {
    let text = |bytes: &str| {
        let body = format!(
            "setp.ne.u32 %p1, %r1, 0; @%p1 bra E; mbarrier.init.shared::cta.b64 [bar], 1; mov.u32 %r3, {bytes};\n\
             cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1], %r3, [bar]; E:"
        );
        kernel(256, &body)
    };
    for o in all_options() {
        for (bytes, kind, says) in [
            ("24", Kind::Misaligned, "a bulk copy of 24 bytes: a multiple of 16"),
            ("-16", Kind::OutOfBounds, "a bulk copy of 4294967280 bytes: no shared memory"),
        ] {
            let caught = found(&text(bytes), 32, &o);
            assert!(caught[0].kind == kind && caught[0].message.starts_with(says), "{}", caught[0]);
        }
    }
}

#[test]
fn vectors_are_added_to_at_a_multiple_of_their_size() {
    let run = |at: u32, form: &str| {
        let text = kernel(
            16,
            &format!("mov.b32 %r3, 0x3c003c00; mov.b32 %f1, 0f3F800000;\n{form}")
                .replace("AT", &format!("[%rd2+{at}]")),
        );
        let mut g = Gpu::new();
        let q = g.alloc_with(&[0; 64], "q");
        let module = Module::parse(&text).unwrap();
        let args: [&[u8]; 2] = [&[0; 8], &q.to_le_bytes()];
        let launch = Launch { block: [2, 1, 1], args: &args, ..Launch::default() };
        g.launch(&module.kernel("k").unwrap_or_else(|e| panic!("{e}")), &launch, &all_options()[0]).map(|r| {
            assert!(r.clean(), "{}", r.findings[0]);
            read::<u32>(&g, q + u64::from(at), 4)
        })
    };
    let four = "red.global.add.v4.f32 AT, {%f1, %f1, %f1, %f1};";
    assert_eq!(run(16, four).unwrap(), [2f32.to_bits(); 4]);
    assert_eq!(run(16, "red.global.v2.f16x2.add.noftz AT, {%r3, %r3};").unwrap(), [0x4000_4000, 0x4000_4000, 0, 0]);
    assert_eq!(run(4, "red.global.add.noftz.bf16x2 AT, %r3;").unwrap(), [0x3c80_3c80, 0, 0, 0]);
    assert_eq!(run(8, "atom.global.add.noftz.f16x2 %r4, AT, %r3;").unwrap(), [0x4000_4000, 0, 0, 0]);
    let fault = run(8, four).unwrap_err();
    assert!(fault.finding.kind == Kind::Misaligned && fault.to_string().contains("an atomic of 16 bytes"), "{fault}");
}

/// A box of 16 × 8 words over the corner of a tensor of 12 × 5, of which only those are written that lie in it.
#[test]
fn a_tensor_store_takes_what_lies_in_the_tensor() {
    let text = |rows: u32, bits: u32| {
        let body = format!(
            "mov.u32 %r3, tile; and.b32 %r4, %r1, 15; shr.u32 %r5, %r1, 4; setp.lt.u32 %p1, %r4, 12; setp.lt.and.u32 %p1, %r5, {rows}, %p1;\n\
             shr.u32 %r6, %r2, 7; and.b32 %r6, %r6, {bits}; shl.b32 %r6, %r6, 4; xor.b32 %r6, %r6, %r2; add.u32 %r6, %r6, %r3;\n\
             @%p1 st.shared.u32 [%r6], %r1; fence.proxy.async; bar.sync 0; setp.ne.u32 %p2, %r1, 0; @%p2 bra END; mov.u32 %r7, 0;\n\
             cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {{%r7, %r7}}], [%r3];\n\
             cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nEND:"
        );
        kernel(512, &body)
    };
    let run = |rows: u32, (swizzle, bits): (Swizzle, u32), o: &Options| {
        let kernel = Module::parse(&text(rows, bits)).unwrap().kernel("k").unwrap();
        let mut g = Gpu::new();
        let tensor = g.alloc_with(&[0; 240], "tensor");
        let map = TensorMap::tiled(DataType::U32, tensor, &[12, 5], &[48], &[16, 8], swizzle).unwrap().encode();
        let map = g.alloc_with(&map, "map");
        let args: [&[u8]; 2] = [&map.to_le_bytes(), &[0; 8]];
        let launch = Launch { block: [128, 1, 1], args: &args, ..Launch::default() };
        g.launch(&kernel, &launch, o).unwrap().findings
    };
    for o in all_options() {
        // The first piece of row 4 is the third of its 128 bytes, or the first.
        for (layout, hole) in [((Swizzle::None, 0), 0x100), ((Swizzle::B64, 3), 0x120)] {
            let clean = run(5, layout, &o);
            assert!(clean.is_empty(), "{}", clean[0]);
            let caught = run(4, layout, &o);
            let says = format!("stores shared memory at {hole:#x} that nobody wrote");
            assert!(caught.len() == 1 && caught[0].message.starts_with(&says), "{caught:?}");
            assert_eq!((caught[0].kind, caught[0].address), (Kind::UninitialisedShared, Some(hole)));
        }
    }
}

/// Two warps: who arrives at an mbarrier again has waited for its phase, or for somebody who has. Else an arrival may be counted in the phase before.
#[test]
fn arrivals_for_the_next_phase_come_behind_the_last() {
    let front = "mov.u32 %r20, bar; setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [%r20], 64; bar.sync 0;\n";
    let arrive = "mbarrier.arrive.shared.b64 %rd3, [%r20];\n";
    let wait = |label: &str| format!("{label}: mbarrier.try_wait.shared.b64 %p2, [%r20], %rd3; @!%p2 bra {label};\n");
    let clean =
        [wait("A"), "bar.sync 0;\n".into(), "@%p1 bra S; bra E; S: nanosleep.u32 1; E: bar.sync 1, 64;\n".into()];
    for o in all_options() {
        for between in &clean {
            assert_eq!(found(&kernel(16, &format!("{front}{arrive}{between}{arrive}{}", wait("B"))), 64, &o), []);
        }
        // In turn or not, nothing but luck keeps one warp from arriving twice before the other has once.
        let bad = format!("{front}{arrive}{arrive}{}", wait("B"));
        let caught = found(&kernel(16, &bad), 64, &o);
        assert!(caught.iter().any(|f| f.kind == Kind::BarrierMisuse), "{caught:?}");
        // Relaxed waits do not tell.
        let relaxed = bad.replace("try_wait.shared", "try_wait.relaxed.cta.shared");
        assert_eq!(found(&kernel(16, &relaxed), 64, &o), []);
        // One thread alone is behind itself, but not behind a copy.
        let alone = "mbarrier.init.shared.b64 [%r20], 1; mbarrier.arrive.shared.b64 %rd3, [%r20]; mbarrier.arrive.shared.b64 %rd3, [%r20];";
        let alone = format!("mov.u32 %r20, bar; setp.eq.u32 %p1, %r1, 0; @!%p1 bra E; {alone} E:");
        assert_eq!(found(&kernel(16, &alone), 32, &o), []);
        let copy = "mov.u32 %r3, tile; mbarrier.arrive.expect_tx.shared.b64 %rd3, [%r20], 128;\n\
                    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 128, [%r20];\n";
        let copies = |between: &str| {
            let first = copy.replace("[%r3]", "[%r3+1024]");
            format!(
                "mov.u32 %r20, bar; setp.eq.u32 %p1, %r1, 0; @!%p1 bra E; mbarrier.init.shared.b64 [%r20], 1; {first}{between}{copy}{} E:",
                wait("B")
            )
        };
        assert_eq!(found(&kernel(8192, &copies(&wait("A"))), 32, &o), []);
        let caught = found(&kernel(8192, &copies("")), 32, &o);
        assert!(caught.iter().any(|f| f.kind == Kind::BarrierMisuse), "{caught:?}");
    }
}

#[test]
fn an_mbarrier_outlives_its_use() {
    const MEET: &str = "mov.u32 %r4, bar; setp.eq.u32 %p1, %r1, 0; mov.u32 %r5, 2; @%p1 mbarrier.init.shared.b64 [%r4], 64;\n\
                        @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;\nmbarrier.arrive.shared.b64 _, [%r4];\n\
                        W: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0;\n@!%p2 bra W;\n";
    let ends = |before: &str| kernel(16, &format!("{MEET}{before}\n@%p1 mbarrier.inval.shared.b64 [%r4];"));
    // One lane counts down for its warp, whose lanes have met by a match: the last one ends the barrier.
    let counted = |order: &str| {
        let count = format!(
            "match.any.sync.b32 %r6, %r5, 0xffffffff; and.b32 %r7, %r1, 31; setp.eq.u32 %p3, %r7, 0; mov.u32 %r8, 0;\n\
             @%p3 atom.{order}.gpu.global.add.u32 %r8, [%rd1], 1; setp.eq.u32 %p1, %r8, 0x01010102;"
        );
        ends(&count)
    };
    for o in all_options() {
        for text in [ends("bar.sync 0;"), counted("acq_rel")] {
            let one = Bug { name: "inval", threads: 64, blocks: 1, bad: "", mend: ("", ""), kind: Kind::BarrierMisuse };
            assert_eq!(launch(&text, &one, &o), Ok(vec![]));
        }
        let caught = found(&ends(""), 64, &o);
        let says = "(byte 0 of `bar`) while nothing orders it behind the use of it by another thread";
        assert!(caught.iter().any(|f| f.message.contains(says)), "{caught:?}");
        let named = caught.iter().find_map(|f| f.earlier.as_ref()).unwrap();
        assert!(named.who.contains("thread (32,0,0)"), "{named:?}");
        let caught = found(&counted("relaxed"), 64, &o);
        assert!(caught.iter().any(|f| f.message.starts_with("invalidates the mbarrier")), "{caught:?}");
    }
}

#[test]
fn what_only_looks_like_an_mbarrier_is_none() {
    // The bits of a barrier for one arrival.
    let text = |op: &str| {
        let start = "mov.u32 %r4, bar; setp.eq.u32 %p1, %r1, 0; mov.b64 %rd3, 0x4000000000100001;";
        kernel(16, &format!("{start}\n@%p1 st.shared.b64 [%r4], %rd3;\n@%p1 {op};"))
    };
    for o in all_options() {
        for op in [
            "mbarrier.inval.shared.b64 [%r4]",
            "mbarrier.arrive.shared.b64 _, [%r4]",
            "mbarrier.test_wait.parity.shared.b64 %p2, [%r4], 0",
        ] {
            let caught = found(&text(op), 32, &o);
            assert!(caught[0].kind == Kind::BarrierMisuse && caught[0].message.contains("was not initialised"));
        }
    }
}

#[test]
fn cache_policies_are_for_a_part() {
    let with = |operands: &str| kernel(16, &format!("createpolicy.{operands}"));
    let register = |v: &str| {
        with("fractional.L2::evict_last.b64 %rd3, %f1;")
            .replace("createpolicy", &format!("mov.f32 %f1, {v}; createpolicy"))
    };
    let range = |v: u32| {
        with("range.L2::evict_last.b64 %rd3, [%rd1], %r3, 4096;")
            .replace("createpolicy", &format!("mov.u32 %r3, {v}; createpolicy"))
    };
    for o in all_options() {
        for text in [register("0f3F800000"), register("0f00000001"), range(4096), range(0)] {
            assert_eq!(found(&text, 32, &o), []);
        }
        for text in [register("0f00000000"), register("0fBF000000"), register("0f3F800001"), register("0f7FC00000")] {
            let caught = found(&text, 32, &o);
            assert!(caught[0].kind == Kind::IllegalInstruction && caught[0].message.contains("above 0 and at most 1"));
        }
        let caught = found(&range(4097), 32, &o);
        assert!(caught[0].message.contains("4097 bytes of a range of 4096"), "{}", caught[0]);
    }
    let wrong = Module::parse(&with("fractional.L2::evict_last.b64 %rd3, 1.5;")).unwrap().kernel("k").err().unwrap();
    assert!(wrong.to_string().contains("the fraction must be above 0 and at most 1"), "{wrong}");
}

#[test]
fn a_warpgroup_multiplies_together() {
    let body = |warps: u32| {
        format!(
            "mov.u32 %r3, tile; mov.u32 %r6, %r2;\nL: add.u32 %r7, %r3, %r6; st.shared.u32 [%r7], 0; add.u32 %r6, %r6, 512;\n\
             setp.lt.u32 %p2, %r6, 4096; @%p2 bra L;\nfence.proxy.async.shared::cta; bar.sync 0;\n\
             mov.u64 %rd4, 0x4000001000080000; mov.u64 %rd5, 0x4000001000080080; mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1;\n\
             mov.f32 %f3, %f1; mov.f32 %f4, %f1; setp.ge.u32 %p3, %r1, {warps}; @%p3 bra DONE;\nwgmma.fence.sync.aligned;\n\
             wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {{%f1,%f2,%f3,%f4}}, %rd4, %rd5, 1, 1, 1;\n\
             wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\nDONE:"
        )
    };
    for o in all_options() {
        assert_eq!(found(&kernel(8192, &body(128)), 128, &o), []);
        let caught = found(&kernel(8192, &body(96)), 128, &o);
        let says = "warp 0 has issued 1 wgmma and warp 3 0";
        assert!(caught[0].kind == Kind::BarrierMisuse && caught[0].message.contains(says), "{}", caught[0]);
    }
}
