//! Planted mistakes with copies under way: those that arrive at an mbarrier, sources that are overwritten too early, results of
//! `test_wait` that nobody looks at.

use crate::common::all_options;
use crate::zoo_order::{check, found, kernel};
use warpsim::{Completion, Gpu, Kind, Launch, Module, Options};

/// What is found, and the words that the kernel leaves in its second buffer; those of its first are all `ONES`.
fn words(body: &str, threads: u32, o: &Options) -> (Vec<warpsim::Finding>, Vec<u32>) {
    let text = kernel(1, body);
    let k = Module::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")).kernel("k").unwrap();
    let mut g = Gpu::new();
    let (p, q) = (g.alloc_with(&[1; 4096], "input"), g.alloc_with(&[0; 4096], "output"));
    let args: [&[u8]; 2] = [&p.to_le_bytes(), &q.to_le_bytes()];
    let report = g.launch(&k, &Launch { block: [threads, 1, 1], args: &args, ..Launch::default() }, o);
    (report.unwrap_or_else(|f| panic!("{f}")).findings, crate::common::read(&g, q, threads as usize))
}

const ONES: u32 = 0x0101_0101;
/// Each thread's word of the first buffer (%rd3), of the second (%rd4) and of `tile` (%r6).
const OWN: &str = "cvt.u64.u32 %rd5, %r2; add.u64 %rd3, %rd1, %rd5; add.u64 %rd4, %rd2, %rd5; add.u32 %r6, %r3, %r2;\n";
const COPY: &str = "cp.async.ca.shared.global [%r6], [%rd3], 4;";
const NOINC: &str = "cp.async.mbarrier.arrive.noinc.shared.b64 [%r4];";
const WAIT: &str = "W: mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0;\n@!%p2 bra W;\n";
/// Another warp's word of `tile` goes to the second buffer.
const READ: &str = "xor.b32 %r7, %r2, 128; add.u32 %r7, %r3, %r7; ld.shared.u32 %r8, [%r7]; st.global.u32 [%rd4], %r8;";

#[test]
fn copies_that_arrive_at_an_mbarrier_are_waited_for_there() {
    let noinc = format!("{COPY} {NOINC}");
    let plain = format!("{COPY} cp.async.mbarrier.arrive.shared.b64 [%r4]; mbarrier.arrive.shared.b64 _, [%r4];");
    let fill = "st.shared.u32 [%r6], %r1; bar.sync 0;";
    for start in [noinc, plain] {
        let body =
            format!("{OWN}@%p1 mbarrier.init.shared.b64 [%r4], 64; {fill}\n{start}\n/*here*/\nbar.sync 0;\n{READ}");
        let groups = "cp.async.commit_group; cp.async.wait_group 0;";
        // The thread may wait by its own means as well.
        for wait in [WAIT, "cp.async.wait_all;", groups, &format!("{WAIT}cp.async.wait_all;")] {
            check((1, 1, 64), &[Kind::AsyncRace], &body, &[wait]);
            for o in all_options() {
                assert_eq!(words(&body.replace("/*here*/", wait), 64, &o), (vec![], vec![ONES; 64]), "{wait}");
            }
        }
        // It shows as old data too.
        for o in all_options().into_iter().filter(|o| o.async_completion == Completion::Latest) {
            assert!(words(&body, 64, &o).1.iter().any(|word| *word != ONES));
        }
    }
}

#[test]
fn copies_arrive_for_those_who_never_arrive_themselves() {
    // The first warp copies and ends; the second waits.
    let body = format!(
        "{OWN}@%p1 mbarrier.init.shared.b64 [%r4], 32; bar.sync 0; setp.lt.u32 %p3, %r1, 32; @!%p3 bra READ;\n{COPY} {NOINC} bra DONE;\n\
         READ:\n/*here*/\n{READ}\nDONE:"
    );
    check((1, 1, 64), &[Kind::AsyncRace, Kind::UninitialisedShared], &body, &[WAIT]);
}

#[test]
fn a_plain_arrival_of_copies_leaves_the_count_as_it_is() {
    // The phase is not over before the thread arrives itself, be the copy done or not.
    let body = format!(
        "{OWN}@!%p1 bra DONE; mbarrier.init.shared.b64 [%r4], 1;\n{COPY} cp.async.mbarrier.arrive.shared.b64 [%r4]; COUNT\n\
         mbarrier.test_wait.parity.shared.b64 %p3, [%r4], 0; mbarrier.test_wait.parity.shared.b64 %p3, [%r4], 0;\n\
         mbarrier.arrive.shared.b64 %rd6, [%r4];\n{WAIT} selp.u32 %r8, 1, 2, %p3; st.global.u32 [%rd4], %r8;\nDONE:"
    );
    for o in all_options() {
        assert_eq!(words(&body.replace("COUNT", ""), 1, &o), (vec![], vec![2]));
        assert_eq!(words(&body.replace("COUNT", "cp.async.wait_all;"), 1, &o), (vec![], vec![2]));
    }
}

#[test]
fn a_later_arrival_covers_earlier_copies() {
    let body = |wait: &str| {
        format!(
            "{OWN}@%p1 mbarrier.init.shared.b64 [%r4], 64; add.u32 %r9, %r3, 1024; @%p1 mbarrier.init.shared.b64 [%r9], 64; bar.sync 0;\n\
             {COPY} {NOINC}\ncp.async.ca.shared.global [%r6+512], [%rd3], 4; cp.async.mbarrier.arrive.noinc.shared.b64 [%r9];\n\
             W: mbarrier.try_wait.parity.shared.b64 %p2, [{wait}], 0;\n@!%p2 bra W;\n{READ} ld.shared.u32 %r8, [%r7+512];"
        )
    };
    for o in all_options() {
        assert_eq!(words(&body("%r9"), 64, &o), (vec![], vec![ONES; 64]));
        // The other way round the later copy is not.
        assert!(found(&kernel(1, &body("%r4")), 1, 64, &o).iter().any(|f| f.kind == Kind::AsyncRace));
    }
}

#[test]
fn a_ring_of_copies_that_arrive_at_mbarriers() {
    // Warp 0 copies 8 tiles through 2 slots, warp 1 adds them up; `bar` and `tile + 1024 …` are full[0], full[1], empty[0], empty[1].
    let wait = |label: &str, at: &str, parity: &str| {
        format!("{label}: mbarrier.try_wait.parity.shared.b64 %p2, [{at}], {parity}; @!%p2 bra {label};")
    };
    let body = format!(
        "{OWN}add.u32 %r10, %r3, 1024; @!%p1 bra INIT;\n\
         mbarrier.init.shared.b64 [%r10], 32; mbarrier.init.shared.b64 [%r10+8], 32; mbarrier.init.shared.b64 [%r10+16], 32;\n\
         mbarrier.init.shared.b64 [%r10+24], 32;\nINIT: bar.sync 0; setp.lt.u32 %p3, %r1, 32; mov.u32 %r11, 0; mov.u32 %r8, 0;\n\
         and.b32 %r20, %r2, 127; add.u32 %r20, %r20, %r3;\n\
         L: and.b32 %r12, %r11, 1; shl.b32 %r13, %r12, 3; add.u32 %r13, %r13, %r10; shl.b32 %r14, %r12, 7; add.u32 %r14, %r14, %r20;\n\
         shr.u32 %r15, %r11, 1; and.b32 %r15, %r15, 1; xor.b32 %r16, %r15, 1; add.u32 %r17, %r13, 16; @!%p3 bra TAKE;\n\
         /*here*/\ncp.async.ca.shared.global [%r14], [%rd3], 4; cp.async.mbarrier.arrive.noinc.shared.b64 [%r13]; bra NEXT;\n\
         TAKE:\n/*here*/\nxor.b32 %r18, %r14, 4; ld.shared.u32 %r19, [%r18]; add.u32 %r8, %r8, %r19; mbarrier.arrive.shared.b64 _, [%r17];\n\
         NEXT: add.u32 %r11, %r11, 1; setp.lt.u32 %p4, %r11, 8; @%p4 bra L;\n@!%p3 st.global.u32 [%rd4], %r8;"
    );
    let mends = [wait("EMPTY", "%r17", "%r16"), wait("FULL", "%r13", "%r15")];
    check((1, 1, 64), &[Kind::AsyncRace, Kind::SharedRace, Kind::UninitialisedShared], &body, &[&mends[0], &mends[1]]);
    let clean = body.replacen("/*here*/", &mends[0], 1).replacen("/*here*/", &mends[1], 1);
    for o in all_options() {
        assert_eq!(words(&clean, 64, &o).1[32..], [8 * ONES; 32]);
    }
}

/// One thread copies 256 bytes from the first buffer.
const BULK: &str = "@%p1 mbarrier.init.shared.b64 [%r4], 1; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0; @!%p1 bra SKIP;\n\
                    mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 256;\n\
                    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 256, [%r4];\n";

#[test]
fn the_source_of_a_copy_is_not_overwritten_before_it_is_over() {
    let says = |body: &str, threads: u32| {
        for o in all_options() {
            let bad = found(&kernel(1, body), 1, threads, &o);
            let hit = bad.iter().find(|f| f.kind == Kind::AsyncRace).unwrap_or_else(|| panic!("{body}: {bad:?}"));
            assert!(hit.message.contains("while an asynchronous copy from it has not been waited for"), "{hit}");
        }
    };
    // By the thread that copies.
    let bulk = format!("{OWN}{BULK}/*here*/\n@%p1 st.global.u32 [%rd1+12], %r1;\nSKIP:\n{}", WAIT.replace("W", "V"));
    check((1, 1, 32), &[Kind::AsyncRace], &bulk, &[WAIT]);
    says(&bulk, 32);
    let copy = format!("{OWN}{COPY}\n/*here*/\nst.global.u32 [%rd3], %r1; cp.async.wait_all;");
    check((1, 1, 32), &[Kind::AsyncRace], &copy, &["cp.async.wait_all;"]);
    check((1, 1, 32), &[Kind::AsyncRace], &copy, &["cp.async.commit_group; cp.async.wait_group 0;"]);
    says(&copy, 32);
    let tracked = format!(
        "{OWN}@%p1 mbarrier.init.shared.b64 [%r4], 64; bar.sync 0;\n{COPY} {NOINC}\n/*here*/\nred.global.add.u32 [%rd3], 1;"
    );
    check((1, 1, 64), &[Kind::AsyncRace], &tracked, &[WAIT]);
    check((1, 1, 64), &[Kind::AsyncRace], &tracked, &["cp.async.wait_all;"]);
    says(&tracked, 64);
    // By others, whom a barrier orders behind the start of the copy.
    let others = format!("{OWN}{BULK}SKIP: bar.sync 0;\n/*here*/\nst.global.u32 [%rd3], %r1;");
    check((1, 1, 64), &[Kind::AsyncRace], &others, &[WAIT]);
    let others = format!(
        "{OWN}{COPY}\n/*here*/\nbar.sync 0; xor.b32 %r7, %r2, 128; cvt.u64.u32 %rd5, %r7; add.u64 %rd5, %rd1, %rd5; st.global.u32 [%rd5], %r1;"
    );
    check((1, 1, 64), &[Kind::AsyncRace], &others, &["cp.async.wait_all;"]);
}

#[test]
fn what_copies_do_not_read_may_be_written() {
    for body in [
        format!("{OWN}{BULK}@%p1 st.global.u32 [%rd1+256], %r1;\nSKIP:\n{WAIT}"),
        format!("{OWN}{COPY} st.global.u32 [%rd3+256], %r1; cp.async.wait_all;"),
        // Nothing is read where zeros are filled in.
        format!("{OWN}cp.async.ca.shared.global [%r6], [%rd3], 4, 0; st.global.u32 [%rd3], %r1; cp.async.wait_all;"),
        // An older group is over; the newer one is of another place.
        format!(
            "{OWN}{COPY} cp.async.commit_group; cp.async.ca.shared.global [%r6+1024], [%rd3+1024], 4; cp.async.commit_group;\n\
             cp.async.wait_group 1; st.global.u32 [%rd3], %r1; cp.async.wait_all;"
        ),
    ] {
        for o in all_options() {
            assert_eq!(found(&kernel(1, &body), 1, 64, &o), [], "{body}");
        }
    }
}

#[test]
fn the_source_of_a_bulk_store_is_not_overwritten_before_it_is_read() {
    for (store, end) in [
        ("cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r3], 128;", ""),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd2], [%r3], 128;", ""),
        // The thread's own reads hide nothing.
        ("cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r3], 128;", "ld.shared.u32 %r8, [%r3];"),
    ] {
        let body = format!(
            "{OWN}st.shared.u32 [%r6], %r1; fence.proxy.async.shared::cta; bar.sync 0; @!%p1 bra DONE;\n{store} cp.async.bulk.commit_group;\n\
             {end}\n/*here*/\nst.shared.u32 [%r3], 7; cp.async.bulk.wait_group 0;\nDONE:"
        );
        check((1, 1, 32), &[Kind::AsyncRace], &body, &["cp.async.bulk.wait_group.read 0;"]);
    }
}

#[test]
fn copies_that_bring_the_same_to_the_same_place() {
    // Both warps copy the same 32 words.
    let body = |from: &str, wait: &str| {
        format!(
            "{OWN}and.b32 %r7, %r2, 127; add.u32 %r6, %r3, %r7; cvt.u64.u32 %rd5, %r7; add.u64 %rd3, %rd1, %rd5; {from}\n\
             {COPY} {wait} bar.sync 0; xor.b32 %r7, %r7, 4; add.u32 %r7, %r3, %r7; ld.shared.u32 %r8, [%r7];"
        )
    };
    // The second buffer holds zeros.
    let other = "setp.ge.u32 %p3, %r1, 32; @%p3 add.u64 %rd3, %rd2, %rd5;";
    for o in all_options() {
        assert_eq!(found(&kernel(1, &body("", "cp.async.wait_all;")), 1, 64, &o), []);
        let bad = found(&kernel(1, &body(other, "cp.async.wait_all;")), 1, 64, &o);
        assert!(bad.iter().any(|f| matches!(f.kind, Kind::SharedRace | Kind::AsyncRace)), "{bad:?}");
        let bad = found(&kernel(1, &body("", "")), 1, 64, &o);
        assert!(bad.iter().any(|f| f.kind == Kind::AsyncRace), "{bad:?}");
    }
}

#[test]
fn lanes_that_store_the_same_in_bulk_store_once() {
    // Every lane of the warp, as compilers have it; with `{at}` each to a place of its own, which overlaps its neighbour's.
    let body = |at: &str, wait: &str| {
        format!(
            "{OWN}st.shared.u32 [%r6], %r1; fence.proxy.async.shared::cta; bar.warp.sync -1; {at}\n\
             cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r3], 128; cp.async.bulk.commit_group;\n{wait}"
        )
    };
    let wait = "cp.async.bulk.wait_group.read 0;";
    for o in all_options() {
        assert_eq!(found(&kernel(1, &body("", wait)), 1, 32, &o), []);
        let apart = "shl.b32 %r7, %r1, 4; cvt.u64.u32 %rd6, %r7; add.u64 %rd2, %rd2, %rd6;";
        assert!(found(&kernel(1, &body(apart, wait)), 1, 32, &o).iter().any(|f| f.kind == Kind::AsyncRace));
        assert!(found(&kernel(1, &body("", "")), 1, 32, &o).iter().any(|f| f.kind == Kind::EarlyExit));
    }
}

#[test]
fn the_result_of_a_test_has_to_be_looked_at() {
    let late = || all_options().into_iter().filter(|o| o.async_completion == Completion::Latest);
    let body = |wait: &str| format!("{OWN}{BULK}SKIP:\n{wait}\nld.shared.u32 %r8, [%r6]; st.global.u32 [%rd4], %r8;");
    let test = "mbarrier.test_wait.parity.shared.b64 %p2, [%r4], 0;";
    let once = "mbarrier.try_wait.parity.shared.b64 %p2, [%r4], 0;";
    for o in all_options() {
        let token = format!("{test} @%p2 bra E;\n{WAIT}E:");
        let polled = WAIT.replace("try", "test");
        for wait in [WAIT, &polled, &token] {
            assert_eq!(words(&body(wait), 64, &o), (vec![], vec![ONES; 64]), "{wait}");
        }
    }
    // Early as well, where nobody looks at it at all.
    for o in all_options() {
        for wait in [test, once] {
            let bad = found(&kernel(1, &body(wait)), 1, 64, &o);
            assert!(bad.iter().any(|f| f.kind == Kind::AsyncRace), "{wait}: {bad:?}");
        }
    }
    for o in late() {
        let inverted = format!("{test} @!%p2 bra E;\n{WAIT}E:");
        let bad = found(&kernel(1, &body(&inverted)), 1, 64, &o);
        assert!(bad.iter().any(|f| f.kind == Kind::AsyncRace), "{bad:?}");
    }
}

#[test]
fn a_test_that_fails_orders_nothing() {
    // One of two arrivals comes, so that the phase is never over.
    let body = |op: &str| {
        format!(
            "@%p1 mbarrier.init.shared.b64 [%r4], 2; bar.sync 0; setp.lt.u32 %p3, %r1, 32; @%p3 bra READ;\n\
             setp.eq.u32 %p4, %r1, 32; @%p4 st.shared.u32 [%r3], %r1; @%p4 mbarrier.arrive.shared.b64 _, [%r4];\n/*here*/\nbra DONE;\n\
             READ:\n/*here*/\nmbarrier.{op}.parity.shared.b64 %p2, [%r4], 0; @%p1 ld.shared.u32 %r7, [%r3];\nDONE:"
        )
    };
    let mended = |op: &str| body(op).replace("/*here*/", "bar.sync 1, 64;");
    for o in all_options() {
        for op in ["test_wait", "try_wait"] {
            assert_eq!(found(&kernel(1, &mended(op)), 1, 64, &o), []);
            let bad = found(&kernel(1, &body(op)), 1, 64, &o);
            assert!(
                bad.iter().any(|f| matches!(f.kind, Kind::SharedRace | Kind::UninitialisedShared)),
                "{op}: {bad:?}"
            );
        }
    }
}

#[test]
fn copies_follow_writes_of_another_block_through_a_fence() {
    // Block 0 writes; the block with the last ticket adds to it by a copy.
    let body = "mov.u32 %r6, %ctaid.x; setp.eq.and.u32 %p4, %r6, 0, %p1;\n@%p4 st.global.v4.u32 [%rd2+64], {%r2,%r2,%r2,%r2};\n\
                @%p1 fence.acq_rel.gpu; @%p1 atom.global.inc.u32 %r8, [%rd2], 1; @!%p1 mov.u32 %r8, 0; setp.eq.u32 %p3, %r8, 1;\n\
                @!%p3 bra DONE;\nfence.acq_rel.gpu;\n/*here*/\nst.shared.v4.u32 [%r3], {%r2,%r2,%r2,%r2}; fence.proxy.async.shared::cta;\n\
                cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd2+64], [%r3], 16; cp.async.bulk.commit_group;\n\
                cp.async.bulk.wait_group 0;\nDONE:";
    for fence in ["fence.proxy.async.global;", "fence.proxy.async;"] {
        check((1, 2, 32), &[Kind::MissingProxyFence], body, &[fence]);
    }
    // The writer may make its writes visible itself.
    let body = body.replacen("@%p1 fence.acq_rel.gpu;", "/*there*/ @%p1 fence.acq_rel.gpu;", 1).replace("/*here*/", "");
    check((1, 2, 32), &[Kind::MissingProxyFence], &body.replace("/*there*/", "/*here*/"), &["fence.proxy.async;"]);
}
