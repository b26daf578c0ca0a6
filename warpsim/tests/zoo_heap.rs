//! The device's heap: `malloc` and `free`, and planted mistakes with them.

use crate::common::*;
use crate::zoo_order;
use warpsim::{Finding, Gpu, Kind, Launch, Module, Options};

/// A kernel that allocates `bytes` as %rd5 in front of its body, and may call `free` as often as `FREE(%rdN)` stands in it.
fn kernel(bytes: u32, body: &str) -> String {
    let mut text = body.to_owned();
    for n in 0..20 {
        let call = format!("{{ .param .b64 fp; st.param.b64 [fp], %rd{n};\ncall free, (fp); }}");
        text = text.replace(&format!("FREE(%rd{n})"), &call);
    }
    let take = format!(
        "{{ .param .b64 mp; .param .b64 mr; st.param.b64 [mp], {bytes};\ncall (mr), malloc, (mp); ld.param.b64 %rd5, [mr]; }}\n"
    );
    let extern_ =
        ".extern .func (.param .b64 r) malloc (.param .b64 n);\n.extern .func free (.param .b64 p);\n.visible .entry";
    zoo_order::kernel(1, &(take + &text)).replacen(".visible .entry", extern_, 1)
}

fn launch(g: &mut Gpu, text: &str, blocks: u32, threads: u32, o: &Options) -> Vec<Finding> {
    let k = Module::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}")).kernel("k").unwrap();
    let (p, q) = (g.alloc_with(&[1; 4096], "input"), g.alloc_with(&[0; 4096], "output"));
    let (p, q) = (p.to_le_bytes(), q.to_le_bytes());
    let l = Launch { grid: [blocks, 1, 1], block: [threads, 1, 1], args: &[&p, &q], ..Launch::default() };
    match g.launch(&k, &l, &Options { instruction_limit: 100_000, ..o.clone() }) {
        Ok(r) => r.findings.into_iter().chain(g.leaks()).collect(),
        Err(f) => std::iter::once(*f.finding).chain(f.also).collect(),
    }
}

fn found(body: &str, threads: u32, o: &Options) -> Vec<Finding> {
    launch(&mut Gpu::new(), &kernel(40, body), 2, threads, o)
}

/// The bad body is found with a message that says so, the good one is quiet.
fn check(kind: Kind, bad: &str, good: &str, says: &str) {
    for o in all_options() {
        assert_eq!(found(good, 64, &o), [], "the clean twin");
        let bad = found(bad, 64, &o);
        let hit = bad.iter().find(|f| f.kind == kind).unwrap_or_else(|| panic!("{kind:?} not found: {bad:?}"));
        assert!(hit.message.contains(says) && hit.place.ptx_line > 0, "{hit}");
    }
}

#[test]
fn past_the_end() {
    let body = |at: u32| format!("st.global.u32 [%rd5+{at}], %r1;\nFREE(%rd5)");
    check(Kind::OutOfBounds, &body(40), &body(36), "0 bytes past the end of the 40 bytes that thread (");
    // A vector that begins inside.
    let body = |at: u32| format!("st.v4.u32 [%rd5+{at}], {{%r1, %r1, %r1, %r1}};\nFREE(%rd5)");
    check(Kind::OutOfBounds, &body(32), &body(16), "byte 32 of the 40 bytes that thread (");
    let body = |at: u32| format!("st.u32 [%rd5+{at}], 1; atom.add.u32 %r6, [%rd5+{at}], 1;\nFREE(%rd5)");
    check(Kind::OutOfBounds, &body(44), &body(0), "allocated at PTX line");
}

#[test]
fn what_was_never_written() {
    let body = |at: u32| format!("st.u32 [%rd5], 1;\nld.u32 %r6, [%rd5+{at}];\nFREE(%rd5)");
    check(Kind::UninitialisedGlobal, &body(4), &body(0), "reads 4 bytes that nobody wrote: byte 4 of the 40 bytes");
}

#[test]
fn use_after_free() {
    let bad = "FREE(%rd5)\nst.u32 [%rd5+8], 7;";
    let good = "st.u32 [%rd5+8], 7;\nFREE(%rd5)";
    check(Kind::UseAfterFree, bad, good, "a store of 4 bytes at byte 8 of the freed 40 bytes that thread (");
    // By the neighbour, which nothing tells that it is freed.
    let body = |sync: &str| {
        format!(
            "mul.wide.u32 %rd6, %r1, 8; mov.u64 %rd7, tile; cvt.u64.u32 %rd8, %r3; add.u64 %rd8, %rd8, %rd6; st.shared.u64 [%rd8], %rd5; st.u32 [%rd5], 1;\n\
             xor.b32 %r7, %r1, 32; mul.wide.u32 %rd9, %r7, 8; cvt.u64.u32 %rd10, %r3; add.u64 %rd10, %rd10, %rd9; bar.sync 0;\n\
             ld.shared.u64 %rd11, [%rd10]; ld.u32 %r8, [%rd11];\n{sync}\nFREE(%rd5)"
        )
    };
    for o in all_options() {
        assert_eq!(found(&body("bar.sync 0;"), 64, &o), []);
        let bad = found(&body(""), 64, &o);
        assert!(bad.iter().any(|f| matches!(f.kind, Kind::UseAfterFree | Kind::GlobalRace)), "{bad:?}");
    }
}

#[test]
fn wrong_frees() {
    let says = "frees a second time the freed 40 bytes that thread (";
    check(Kind::InvalidFree, "FREE(%rd5)\nFREE(%rd5)", "FREE(%rd5)", says);
    check(
        Kind::InvalidFree,
        "add.u64 %rd6, %rd5, 8;\nFREE(%rd6)",
        "FREE(%rd5)",
        "frees byte 8 of the 40 bytes that thread (",
    );
    check(
        Kind::InvalidFree,
        "FREE(%rd1)",
        "FREE(%rd5)",
        "frees byte 0 of `input` (4096 bytes), which `malloc` did not give",
    );
    let shared = "mov.u64 %rd6, tile; cvta.shared.u64 %rd6, %rd6;\nFREE(%rd6)";
    check(Kind::InvalidFree, shared, "FREE(%rd5)", "frees shared memory, which `malloc` did not give");
    check(
        Kind::InvalidFree,
        "add.u64 %rd6, %rd5, 4000000;\nFREE(%rd6)",
        "mov.u64 %rd6, 0; FREE(%rd6) FREE(%rd5)",
        "frees ",
    );
}

#[test]
fn leaks() {
    let bad = "@%p1 bra SKIP;\nFREE(%rd5)\nSKIP:";
    check(Kind::Leak, bad, "FREE(%rd5)", "80 bytes of the heap, allocated here, were not freed");
    // The heap lives on: another launch may free what this one allocated.
    let mut g = Gpu::new();
    let o = &all_options()[0];
    let left = launch(
        &mut g,
        &kernel(24, "mul.wide.u32 %rd6, %r1, 8; add.u64 %rd6, %rd6, %rd2; st.u64 [%rd6], %rd5;"),
        1,
        32,
        o,
    );
    assert_eq!((left.len(), left[0].count, left[0].kind), (1, 32, Kind::Leak));
    assert_eq!(left[0].place.instruction, "call");
}

#[test]
fn a_full_heap_gives_null() {
    let body = "setp.eq.u64 %p2, %rd5, 0; @%p2 bra DONE;\nst.u32 [%rd5], 1;\nFREE(%rd5)\nDONE:";
    let careless = body.replacen("@%p2 bra", "@!%p2 bra NEXT; NEXT: //", 1);
    for o in all_options() {
        // Two threads' worth.
        let mut g = Gpu::with_heap(96);
        assert_eq!(launch(&mut g, &kernel(40, body), 1, 32, &o), []);
        let mut g = Gpu::with_heap(96);
        let bad = launch(&mut g, &kernel(40, &careless), 1, 32, &o);
        assert_eq!(bad[0].kind, Kind::OutOfBounds);
        let says = "a null pointer; `malloc` has returned one, because the heap holds 96 bytes (96 are in use)";
        assert!(bad[0].message.contains(says), "{}", bad[0]);
        // More than there is, and nothing at all.
        for bytes in [97, 0] {
            let none = kernel(bytes, "setp.ne.u64 %p2, %rd5, 0; @%p2 trap;");
            assert_eq!(launch(&mut Gpu::with_heap(96), &none, 1, 32, &o), []);
        }
    }
}

#[test]
fn places_are_used_again_as_if_new() {
    // In turn, each thread of each block has most of the heap: 2 · 64 · 4 rounds of it.
    let body = "mov.u32 %r10, 0;\nL: st.u32 [%rd5], %r1; FREE(%rd5)\n\
         { .param .b64 mp; .param .b64 mr; st.param.b64 [mp], 40; call (mr), malloc, (mp); ld.param.b64 %rd5, [mr]; }\n\
         add.u32 %r10, %r10, 1; setp.lt.u32 %p2, %r10, 4; @%p2 bra L;\nFREE(%rd5)";
    for o in all_options() {
        let mut g = Gpu::with_heap(48 * 128);
        assert_eq!(launch(&mut g, &kernel(40, body), 2, 64, &o), []);
        let stale = body.replacen("FREE(%rd5)", "@!%p1 ld.u32 %r6, [%rd5+4]; FREE(%rd5)", 1);
        let bad = launch(&mut g, &kernel(40, &stale), 2, 64, &o);
        assert!(bad.iter().any(|f| f.kind == Kind::UninitialisedGlobal), "{bad:?}");
    }
}

#[test]
fn lists_as_nvcc_compiles_them() {
    let Some(ptx) = nvcc::ptx("grid") else { return };
    for o in all_options() {
        let mut g = Gpu::new();
        let (heads, sums) = (g.alloc(8 * 128, "heads").to_le_bytes(), g.alloc(4 * 128, "sums"));
        run(&mut g, &ptx, "grow", 2, 64, 0, &[&heads, &5i32.to_le_bytes()], &o);
        let left = g.leaks();
        assert_eq!((left.len(), left[0].count), (1, 128 * 5 + 127), "{}", left[0]);
        assert!(left[0].place.sources().is_some_and(|s| s.contains("grid.cu:")), "{}", left[0]);
        run(&mut g, &ptx, "fell", 2, 64, 0, &[&heads, &sums.to_le_bytes()], &o);
        assert_eq!(g.leaks(), []);
        for (i, v) in (0..128).zip(read::<i32>(&g, sums, 128)) {
            assert_eq!(v, 2 * (0..5 + i % 3).map(|k| i + k).sum::<i32>());
        }
    }
}
