//! Planted mistakes of scope and of strength: who a fence or an atomic is for, what volatile does not promise, copies that
//! are in flight together.

use crate::common::all_options;
use crate::zoo_order::{check, found, kernel};
use warpsim::{Kind, Options};

/// Both warps of a block write; their block takes a ticket; the last block reads what all wrote.
const TICKET: &str = "mov.u32 %r6, %ctaid.x; shl.b32 %r7, %r6, 8; add.u32 %r7, %r7, %r2; cvt.u64.u32 %rd3, %r7; add.u64 %rd3, %rd3, %rd2;\n\
                      st.global.u32 [%rd3+64], %r6;\n/*here*/\n/*here*/\n@%p1 atom.global.inc.u32 %r8, [%rd2], 1; @!%p1 mov.u32 %r8, 0;\n\
                      setp.eq.u32 %p3, %r8, 1;\n@!%p3 bra DONE;\nld.global.u32 %r10, [%rd2+64]; ld.global.u32 %r10, [%rd2+192];\n\
                      ld.global.u32 %r10, [%rd2+320]; ld.global.u32 %r10, [%rd2+448];\nDONE:";

#[test]
fn fences_before_a_barrier_count_for_the_thread_that_signals() {
    for fence in ["membar.gl;", "fence.acq_rel.gpu;", "fence.sc.sys;"] {
        check((1, 2, 64), &[Kind::GlobalRace], TICKET, &[fence, "bar.sync 0;"]);
    }
    // After the barrier, one thread's fence is everybody's.
    let swapped = ["bar.sync 0;", "@%p1 membar.gl;"];
    check((1, 2, 64), &[Kind::GlobalRace], TICKET, &swapped);
}

#[test]
fn a_fence_for_the_block_does_not_reach_another() {
    let body = TICKET.replace("/*here*/\n/*here*/", "fence.acq_rel./*here*/cta; bar.sync 0;");
    let mend = |text: &str, to: &str| kernel(1, &text.replace("/*here*/cta", to));
    for o in all_options() {
        for to in ["gpu", "sys"] {
            assert_eq!(found(&mend(&body, to), 2, 64, &o), []);
        }
        for to in ["cta", "cluster"] {
            let bad = found(&mend(&body, to), 2, 64, &o);
            assert!(bad.iter().any(|f| f.kind == Kind::GlobalRace && f.message.contains(".gpu scope")), "{bad:?}");
        }
    }
}

#[test]
fn an_atomic_for_the_block_races_with_another_block() {
    let body = |scope: &str| kernel(1, &format!("red.relaxed.{scope}.global.add.u32 [%rd2], 1;"));
    let of_cluster = kernel(2, "red.relaxed.cluster.global.add.u32 [%rd2], 1;");
    for o in all_options() {
        // Without clusters, each block is one.
        assert_eq!(found(&of_cluster, 2, 64, &o), []);
        assert_eq!(found(&body("cluster"), 1, 64, &o), []);
        assert!(found(&body("cluster"), 2, 64, &o)[0].message.contains("give them .gpu scope"));
        assert_eq!(found(&body("gpu"), 2, 64, &o), []);
        assert_eq!(found(&body("cta"), 1, 64, &o), []);
        let bad = found(&body("cta"), 2, 64, &o);
        assert!(bad[0].kind == Kind::GlobalRace && bad[0].message.contains("give them .gpu scope"), "{bad:?}");
    }
}

#[test]
fn an_atomic_for_the_cluster_races_with_another_cluster() {
    let poll = "mov.u32 %r7, %ctaid.x; or.b32 %r8, %r7, %r1; setp.eq.u32 %p3, %r8, 0; @%p3 st.relaxed.SCOPE.global.u32 [%rd2], 1;\nW: ld.relaxed.gpu.global.u32 %r6, [%rd2]; setp.eq.u32 %p2, %r6, 0; @%p2 bra W;";
    for body in [
        "red.relaxed.SCOPE.global.add.u32 [%rd2], 1;",
        "atom.acq_rel.SCOPE.global.max.u32 %r6, [%rd2], %r1;",
        "@%p1 atom.relaxed.SCOPE.global.exch.b128 %q, [%rd2], %q;",
        poll,
    ] {
        let body = if body.contains("b128") {
            format!(".reg .b128 %q; mov.b128 %q, {{%rd2, %rd2}};\n{body}")
        } else {
            body.into()
        };
        let text = |scope: &str| kernel(2, &body.replace("SCOPE", scope));
        for o in all_options() {
            // Two blocks are one cluster, four are two.
            assert_eq!(found(&text("cluster"), 2, 64, &o), [], "{body}");
            assert_eq!(found(&text("gpu"), 4, 64, &o), [], "{body}");
            let bad = found(&text("cluster"), 4, 64, &o);
            let hit = bad.iter().find(|f| f.kind == Kind::GlobalRace).unwrap_or_else(|| panic!("{body}: {bad:?}"));
            assert!(hit.message.contains("strong for their own cluster only: give them .gpu scope"), "{hit}");
        }
    }
}

#[test]
fn an_atomic_for_the_block_races_in_distributed_shared_memory() {
    // Both blocks of a cluster come to the first one's word.
    const CLUSTER: &str = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;";
    let body = |access: &str| {
        let start = "@%p1 st.shared.u32 [%r3], 0; mov.u32 %r6, 0; mapa.shared::cluster.u32 %r7, %r3, %r6; setp.eq.u32 %p3, %r5, 0;";
        kernel(2, &format!("{start}\n{CLUSTER}\n{access}\n{CLUSTER}"))
    };
    for o in all_options() {
        for access in [
            "red.relaxed.SCOPE.shared::cluster.add.u32 [%r7], 1;",
            "@%p1 st.relaxed.SCOPE.shared::cluster.u32 [%r7], %r5;",
            "@%p3 red.relaxed.SCOPE.shared.add.u32 [%r3], 1; @!%p3 red.shared::cluster.add.u32 [%r7], 1;",
        ] {
            let bad = found(&body(&access.replace("SCOPE", "cta")), 2, 32, &o);
            let hit = bad.iter().find(|f| f.kind == Kind::SharedRace).unwrap_or_else(|| panic!("{access}: {bad:?}"));
            assert!(hit.message.contains("give them .cluster scope"), "{hit}");
            for scope in ["cluster", "gpu", "sys"] {
                assert_eq!(found(&body(&access.replace("SCOPE", scope)), 2, 32, &o), [], "{access} {scope}");
            }
        }
        // Threads of one block may use it wherever the word is.
        for access in
            ["red.relaxed.cta.shared.add.u32 [%r3], 1;", "@!%p3 red.relaxed.cta.shared::cluster.add.u32 [%r7], 1;"]
        {
            assert_eq!(found(&body(access), 2, 64, &o), [], "{access}");
        }
    }
}

#[test]
fn a_race_with_several_lanes_names_one_that_took_part() {
    let body = "@!%p1 ld.shared.u32 %r6, [%r3]; @%p1 st.shared.u32 [%r3], 7;";
    for o in all_options() {
        let bad = found(&kernel(1, body), 1, 32, &o);
        let hit = bad.iter().find(|f| f.kind == Kind::SharedRace).unwrap();
        assert!(hit.to_string().contains("earlier read by thread (1,0,0) or others of its warp"), "{hit}");
        let bad = found(&kernel(1, &body.replace("shared", "global").replace("%r3", "%rd2")), 1, 32, &o);
        let hit = bad.iter().find(|f| f.kind == Kind::GlobalRace).unwrap();
        assert!(hit.to_string().contains("earlier read by thread (1,0,0) or others of its warp"), "{hit}");
    }
}

/// Warp 0 writes and sets a flag; warp 1 polls it and reads.
fn flag(fence: &str, set: &str, poll: &str, space: &str) -> String {
    let (data, flag) = if space == "shared" { ("%r3", "%r4") } else { ("%rd2", "%rd3") };
    format!(
        "@%p1 st.shared.u32 [%r4], 0; add.u64 %rd3, %rd2, 1024; bar.sync 0; setp.eq.u32 %p3, %r1, 32;\n\
         @!%p1 bra READ;\nst.{space}.u32 [{data}], 7;\n{fence}\nst.{set}.{space}.u32 [{flag}], 1;\nbra DONE;\n\
         READ: @!%p3 bra DONE;\nW: ld.{poll}.{space}.u32 %r6, [{flag}]; setp.eq.u32 %p4, %r6, 0; @%p4 bra W;\n\
         ld.{space}.u32 %r7, [{data}];\nDONE:"
    )
}

/// A warp fences together, and one lane of it signals for the others: they have to meet first.
#[test]
fn a_lane_signals_for_lanes_that_it_has_met() {
    let body = "@%p1 st.shared.u32 [%r3+1024], 0; add.u32 %r6, %r3, %r2; bar.sync 0; setp.ge.u32 %p2, %r1, 32; setp.ge.u32 %p4, %r1, 16;\n\
                @%p2 bra READ;\nst.shared.u32 [%r6], %r1;\nfence.acq_rel.cta;\n/*apart*/\n/*here*/\n\
                @%p1 st.relaxed.cta.shared.u32 [%r3+1024], 1;\nbra DONE;\n\
                READ: setp.ge.u32 %p4, %r1, 48; @%p4 bra DONE;\nW: ld.relaxed.cta.shared.u32 %r7, [%r3+1024]; setp.eq.u32 %p3, %r7, 0; @%p3 bra W;\n\
                fence.acq_rel.cta; ld.shared.u32 %r8, [%r6+-128];\nDONE:";
    check((1, 1, 64), &[Kind::SharedRace], body, &["bar.warp.sync -1;"]);
    // Half of the warp goes elsewhere.
    let body = body.replace("/*apart*/", "@%p4 bra DONE;");
    check((1, 1, 64), &[Kind::SharedRace], &body, &["bar.warp.sync 0xffff;"]);
}

#[test]
fn a_flag_publishes_what_was_fenced_for_its_reader() {
    for (space, kind) in [("shared", Kind::SharedRace), ("global", Kind::GlobalRace)] {
        for o in all_options() {
            for (fence, set, poll) in [
                ("membar.cta;", "volatile", "volatile"),
                ("membar.gl;", "volatile", "volatile"),
                ("fence.acq_rel.cta;", "relaxed.cta", "acquire.cta"),
                ("", "release.cta", "acquire.cta"),
                ("", "release.gpu", "acquire.cta"),
            ] {
                let clean = found(&kernel(1, &flag(fence, set, poll, space)), 1, 64, &o);
                assert_eq!(clean, [], "{fence} {set} {poll}");
            }
            for (set, poll) in [("volatile", "volatile"), ("relaxed.gpu", "acquire.gpu")] {
                let bad = found(&kernel(1, &flag("", set, poll, space)), 1, 64, &o);
                assert!(bad.iter().any(|f| f.kind == kind), "{set} {poll}: {bad:?}");
            }
        }
    }
}

#[test]
fn an_address_in_another_block_is_for_the_cluster() {
    let cluster = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;";
    let body = |space: &str, access: &str| {
        format!(
            "add.u32 %r6, %r3, %r2; st.shared.u32 [%r6], %r1; {cluster}\nxor.b32 %r7, %r5, 1; mapa.shared::cluster.u32 %r8, %r6, %r7; \
             {}\n{cluster}",
            access.replace("SPACE", space)
        )
    };
    for access in ["ld.SPACE.u32 %r9, [%r8];", "atom.SPACE.add.u32 %r9, [%r8], 1;", "st.SPACE.u32 [%r8], %r1;"] {
        for o in all_options() {
            assert_eq!(found(&kernel(2, &body("shared::cluster", access)), 2, 32, &o), []);
            for own in ["shared", "shared::cta"] {
                let bad = found(&kernel(2, &body(own, access)), 2, 32, &o);
                assert!(bad[0].message.contains("is in the block of rank"), "{}", bad[0]);
            }
        }
    }
}

#[test]
fn lanes_are_not_ordered_by_volatile_memory() {
    // The last steps of a reduction.
    let step = |n: u32| {
        format!(
            "ld.volatile.shared.u32 %r7, [%r6+{n}]; add.u32 %r8, %r8, %r7;\n/*here*/\nst.volatile.shared.u32 [%r6], %r8;\n/*here*/\n"
        )
    };
    let body = format!(
        "add.u32 %r6, %r3, %r2; mov.u32 %r8, %r1; st.volatile.shared.u32 [%r6], %r8; st.volatile.shared.u32 [%r6+128], 0;\n/*here*/\n{}{}",
        step(64),
        step(32)
    );
    check((1, 1, 32), &[Kind::SharedRace], &body, &["bar.warp.sync -1;"; 4]);
    let bad = found(&kernel(1, &body), 1, 32, &all_options()[0]);
    assert!(bad[0].message.contains("volatile orders nothing between the lanes"), "{}", bad[0]);
    // Before sm_70 the lanes of a warp went in step.
    let old = kernel(1, &body).replace("sm_90a", "sm_60").replace("mov.u32 %r5, %cluster_ctarank;", "");
    assert_eq!(found(&old, 1, 32, &all_options()[0]), []);
    // Volatile counters of different warps are as they were.
    let polled = "ld.volatile.global.u32 %r6, [%rd2]; @%p1 st.volatile.global.u32 [%rd2], 1;";
    assert_eq!(found(&kernel(1, &polled.replace("%r6, [%rd2];", "%r6, [%rd2+4];")), 1, 64, &all_options()[0]), []);
}

const COPY: &str = "cp.async.ca.shared.global [%r6], [%rd3], 4; cp.async.commit_group;";

#[test]
fn copies_in_flight_together_go_to_different_places() {
    let body = format!(
        "cvt.u64.u32 %rd3, %r2; add.u64 %rd3, %rd1, %rd3; add.u32 %r6, %r3, %r2;\n{COPY}\n/*here*/\n{COPY} cp.async.wait_all;"
    );
    check((1, 1, 32), &[Kind::AsyncRace], &body, &["cp.async.wait_group 0;"]);
    // A group's slot is the ring's next: three in flight need three slots.
    let ring = |slots: u32| {
        format!(
            "cvt.u64.u32 %rd3, %r2; add.u64 %rd3, %rd1, %rd3; mov.u32 %r10, 0;\n\
             L: rem.u32 %r11, %r10, {slots}; shl.b32 %r11, %r11, 8; add.u32 %r6, %r3, %r11; add.u32 %r6, %r6, %r2;\n{COPY}\n\
             add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 3; @%p2 bra L;\ncp.async.wait_group 2; bar.sync 0;\n\
             xor.b32 %r12, %r2, 128; add.u32 %r12, %r12, %r3; ld.shared.u32 %r13, [%r12]; cp.async.wait_all;"
        )
    };
    for o in all_options() {
        assert_eq!(found(&kernel(1, &ring(3)), 1, 64, &o), []);
        assert!(found(&kernel(1, &ring(2)), 1, 64, &o).iter().any(|f| f.kind == Kind::AsyncRace));
    }
    // Lanes that copy the same word to the same place.
    let same = "cp.async.ca.shared.global [%r3], [%rd1], 4; cp.async.wait_all;";
    for o in all_options() {
        assert_eq!(found(&kernel(1, same), 1, 32, &o), []);
    }
}

#[test]
fn bulk_copies_in_flight_together_go_to_different_places() {
    let copy = |at: u32| {
        format!("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3+{at}], [%rd1], 128, [%r4];\n")
    };
    let body = |second| {
        format!(
            "@%p1 mbarrier.init.shared.b64 [%r4], 1; bar.sync 0; @!%p1 bra WAIT;\nmbarrier.arrive.expect_tx.shared.b64 _, [%r4], 256;\n\
             {}{}WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0; @!%p2 bra WAIT;",
            copy(0),
            copy(second)
        )
    };
    for o in all_options() {
        assert_eq!(found(&kernel(1, &body(128)), 1, 32, &o), []);
        assert!(found(&kernel(1, &body(112)), 1, 32, &o).iter().any(|f| f.kind == Kind::AsyncRace));
    }
}

#[test]
fn a_relaxed_read_is_fenced_before_what_it_announces_is_read() {
    for (space, kind) in [("shared", Kind::SharedRace), ("global", Kind::GlobalRace)] {
        let polled = |scope: &str, mend: &str| {
            let text = flag("fence.acq_rel.gpu;", "relaxed.gpu", &format!("relaxed.{scope}"), space);
            kernel(1, &text.replace("@%p4 bra W;\n", &format!("@%p4 bra W;\n{mend}\n")))
        };
        for o in all_options() {
            for scope in ["cta", "gpu"] {
                for mend in ["fence.acq_rel.cta;", "fence.sc.gpu;", "membar.gl;"] {
                    assert_eq!(found(&polled(scope, mend), 1, 64, &o), [], "{scope} {mend}");
                }
                let bad = found(&polled(scope, ""), 1, 64, &o);
                assert!(bad.iter().any(|f| f.kind == kind && f.message.contains("was read relaxed")), "{bad:?}");
            }
        }
    }
}

#[test]
fn a_relaxed_read_of_another_blocks_flag_is_fenced() {
    // Block 0 sets the flag; a thread of block 1 polls, and others go on with it.
    let body = "mov.u32 %r6, %ctaid.x; setp.eq.u32 %p3, %r6, 0; @!%p3 bra READ; @!%p1 bra DONE;\n\
                st.global.u32 [%rd2], 7; st.release.gpu.global.u32 [%rd2+1024], 1; bra DONE;\nREAD: @!%p1 bra JOIN;\n\
                W: ld.relaxed.gpu.global.u32 %r7, [%rd2+1024]; setp.eq.u32 %p4, %r7, 0; @%p4 bra W;\n/*here*/\nJOIN: bar.warp.sync -1;\n\
                /*join*/ld.global.u32 %r8, [%rd2];\nDONE:";
    for mend in ["fence.acq_rel.gpu;", "fence.acq_rel.sys;", "bar.sync 1, 32;"] {
        let here = if mend.starts_with("bar") { "" } else { mend };
        let join = if here.is_empty() { "bar.sync 0; " } else { "" };
        let clean = body.replace("/*here*/", here).replace("/*join*/", join);
        for o in all_options() {
            assert_eq!(found(&kernel(1, &clean), 2, 32, &o), [], "{mend}");
        }
    }
    check((1, 2, 32), &[Kind::GlobalRace], body, &["fence.acq_rel.gpu;"]);
    for o in all_options() {
        // A fence for the block alone does not do.
        let bad = found(&kernel(1, &body.replace("/*here*/", "fence.acq_rel.cta;")), 2, 32, &o);
        assert!(bad[0].kind == Kind::GlobalRace && bad[0].message.contains("was read relaxed"), "{bad:?}");
    }
}

#[test]
fn a_wait_on_an_mbarrier_acquires_and_its_result_is_used() {
    let wait = "mbarrier.try_wait.parity.ACQUIRE.cta.shared.b64 %p2, [%r4], 0;";
    let body = |wait: &str| {
        kernel(
            1,
            &format!(
                "add.u32 %r6, %r3, %r2; xor.b32 %r7, %r6, 128; @%p1 mbarrier.init.shared.b64 [%r4], 64; bar.sync 0;\n\
                 st.shared.u32 [%r6], %r1; mbarrier.arrive.shared.b64 _, [%r4];\nW: {wait}\nld.shared.u32 %r8, [%r7];"
            ),
        )
    };
    let polled = format!("{wait} @!%p2 bra W;");
    for o in all_options() {
        assert_eq!(found(&body(&polled.replace("ACQUIRE", "acquire")), 1, 64, &o), []);
        for wait in [polled.replace("ACQUIRE", "relaxed"), wait.replace("ACQUIRE", "acquire")] {
            let bad = found(&body(&wait), 1, 64, &o);
            let named = |f: &warpsim::Finding| f.message.contains("the wait on the mbarrier between them");
            assert!(bad.iter().any(|f| f.kind == Kind::SharedRace && named(f)), "{wait}: {bad:?}");
        }
    }
}

/// The first lanes are elsewhere. Those that read a word are no aligned group of lanes, and neither are all that are left.
#[test]
fn what_some_lanes_read_is_not_taken_for_their_neighbours() {
    for (first, mask) in [(1, "0xfffffffe"), (13, "0xffffe000")] {
        for (space, own, base) in [("shared", "%r6", "%r3"), ("global", "%rd4", "%rd2")] {
            let own_and_next =
                format!("setp.ne.u32 %p3, %r1, 31; ld.{space}.u32 %r7, [{own}]; @%p3 ld.{space}.u32 %r8, [{own}+4];");
            for read in [own_and_next, format!("ld.{space}.u32 %r7, [{base}+80];")] {
                let body = format!(
                    "cvt.u64.u32 %rd4, %r2; add.u64 %rd4, %rd4, %rd2; add.u32 %r6, %r3, %r2;\n\
                     setp.lt.u32 %p2, %r1, {first}; @%p2 bra END; st.{space}.u32 [{own}], %r1; bar.warp.sync {mask};\n\
                     {read}\n/*here*/\nst.{space}.u32 [{own}], 77;\nEND:"
                );
                check((1, 1, 32), &[Kind::SharedRace, Kind::GlobalRace], &body, &[&format!("bar.warp.sync {mask};")]);
            }
        }
    }
}

#[test]
fn what_is_read_as_constant_is_not_written() {
    let shared = "xor.b32 %r6, %r2, 128; cvt.u64.u32 %rd4, %r6; add.u64 %rd4, %rd4, %rd2; cvt.u64.u32 %rd3, %r2; add.u64 %rd3, %rd3, %rd2;";
    let found = |body: &str, blocks, o: &Options| found(&kernel(1, &format!("{shared}{body}")), blocks, 64, o);
    for o in all_options() {
        for (body, blocks) in [
            // By another thread, however they are ordered, and by the same.
            ("st.global.u32 [%rd3], %r1; fence.acq_rel.gpu; bar.sync 0; ld.global.nc.u32 %r7, [%rd4];", 1),
            ("st.global.u32 [%rd3], %r1; ld.global.nc.u32 %r7, [%rd3];", 1),
            ("ld.global.nc.L1::no_allocate.u32 %r7, [%rd3]; bar.sync 0; st.global.u32 [%rd4], %r1;", 1),
            ("@%p1 red.global.add.u32 [%rd2], 1; bar.sync 0; ldu.global.u32 %r7, [%rd2];", 1),
            ("ld.global.nc.u32 %r7, [%rd2]; bar.sync 0; @%p1 red.global.add.u32 [%rd2], 1;", 2),
        ] {
            let bad = found(body, blocks, &o);
            assert!(
                bad.iter().any(|f| f.kind == Kind::GlobalRace && f.message.contains("ld.global.nc is")),
                "{body} {bad:?}"
            );
        }
        // A thread that works in place has what it read, and others' words are others'.
        for body in [
            "ld.global.nc.u32 %r7, [%rd3]; add.u32 %r7, %r7, 1; st.global.u32 [%rd3], %r7;",
            "ld.global.nc.u32 %r7, [%rd4+1024]; st.global.u32 [%rd3], %r7; bar.sync 0; ld.global.u32 %r7, [%rd4];",
        ] {
            assert_eq!(found(body, 1, &o), [], "{body}");
        }
    }
}

#[test]
fn strong_accesses_are_of_one_size() {
    for o in all_options() {
        for (first, second, same) in [
            (
                "st.relaxed.gpu.global.u64 [%rd2], %rd1;",
                "ld.relaxed.gpu.global.u32 %r7, [%rd2+4];",
                "ld.relaxed.gpu.global.u64 %rd3, [%rd2];",
            ),
            (
                "red.global.add.u32 [%rd2], 1;",
                "ld.volatile.global.u8 %r7, [%rd2];",
                "ld.volatile.global.u32 %r7, [%rd2];",
            ),
            (
                "red.global.add.u32 [%rd2], 1;",
                "red.global.add.u64 [%rd2], 1;",
                "atom.global.cas.b32 %r7, [%rd2], 1, 2;",
            ),
            (
                "st.relaxed.gpu.global.v2.u32 [%rd2], {%r1, %r1};",
                "ld.relaxed.gpu.global.u64 %rd3, [%rd2];",
                "ld.relaxed.gpu.global.u32 %r7, [%rd2+4];",
            ),
        ] {
            let body = |second: &str| {
                kernel(
                    1,
                    &format!(
                        "mov.u32 %r6, %ctaid.x; setp.eq.u32 %p2, %r6, 0; @!%p1 bra DONE; @%p2 {first}\n@!%p2 {second}\nDONE:"
                    ),
                )
            };
            assert_eq!(found(&body(same), 2, 32, &o), [], "{first} {same}");
            let bad = found(&body(second), 2, 32, &o);
            assert!(
                bad.iter().any(|f| f.kind == Kind::GlobalRace && f.message.contains("of different sizes")),
                "{first} {second} {bad:?}"
            );
        }
    }
}
