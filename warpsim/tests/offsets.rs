//! Offsets that are computed in 32 bits: those that overflow are found, those that only look like it are not.

use super::common::all_options;
use super::zoo::{Bug, check, kernel, launch, one};
use warpsim::{Checks, Kind, Options};

/// Loads a word at `p` plus the 64-bit offset in %rd3.
const LOAD: &str = "add.s64 %rd4, %rd1, %rd3; ld.global.u32 %r39, [%rd4];";

/// The offset's computation, and what of it is replaced in the clean twin.
fn planted(name: &'static str, offset: &str, mend: (&'static str, &'static str)) {
    let bad = format!("{offset} {LOAD}").leak();
    check(Bug { name, threads: 32, blocks: 1, bad, mend, kind: Kind::IndexOverflow });
}

#[test]
fn a_product_that_comes_out_inside() {
    // 65536 rows of 65536 bytes are 2^32: what is left is the column.
    let offset = "mov.u32 %r3, 65536; mad.lo.u32 %r4, %r3, %r3, %r2; cvt.u64.u32 %rd3, %r4;";
    planted("i * stride", offset, ("%r3, 65536", "%r3, 32"));
}

#[test]
fn a_product_in_a_loop() {
    let offset = "mov.u32 %r3, 0; mov.u32 %r4, 0;\nL: add.u32 %r4, %r4, 0x20000000; add.u32 %r3, %r3, 1;\n\
                  setp.lt.u32 %p1, %r3, 8; @%p1 bra L;\nadd.u32 %r5, %r4, %r2; cvt.u64.u32 %rd3, %r5;";
    planted("i += stride", offset, ("0x20000000", "0x20"));
}

#[test]
fn a_product_that_turns_negative() {
    // As an unsigned number it fits: the conversion says that it is signed.
    planted("row * ld", "mul.lo.s32 %r3, %r1, 0x8000000; cvt.s64.s32 %rd3, %r3;", ("0x8000000", "0x10"));
}

#[test]
fn elements_made_bytes() {
    let offset = "add.u32 %r3, %r1, 0x40000000; shl.b32 %r4, %r3, 2; cvt.u64.u32 %rd3, %r4;";
    planted("shift", offset, ("0x40000000", "0x40"));
    let offset = "mul.lo.u32 %r3, %r1, 0x20000000; add.u32 %r4, %r3, %r1; mul.wide.u32 %rd3, %r4, 4;";
    planted("wide product of a product", offset, ("0x20000000", "0x2"));
    let offset = "mul.lo.u32 %r3, %r1, 0x20000000; mov.u64 %rd5, 0; mad.wide.u32 %rd3, %r3, 4, %rd5;";
    planted("wide sum of a product", offset, ("0x20000000", "0x4"));
}

#[test]
fn a_choice_of_offsets() {
    let offset = "shl.b32 %r3, %r1, 28; setp.gt.u32 %p1, %r1, 20; selp.b32 %r4, %r3, %r2, %p1; cvt.u64.u32 %rd3, %r4;";
    planted("select", offset, ("%r1, 28", "%r1, 5"));
    let offset = "shl.b32 %r3, %r1, 28; cvt.u64.u32 %rd5, %r3; cvt.u64.u32 %rd6, %r2; setp.gt.u32 %p1, %r1, 20;\n\
                  selp.b64 %rd3, %rd5, %rd6, %p1;";
    planted("select of wide offsets", offset, ("%r1, 28", "%r1, 5"));
}

/// A warp's first lane computes where all of them begin.
#[test]
fn by_a_shuffle() {
    let offset = "mov.u32 %r3, 0; setp.eq.u32 %p1, %r1, 3; @%p1 mul.lo.u32 %r3, %r1, 0x60000000; shfl.sync.idx.b32 %r3, %r3, 3, 31, -1;\n\
                  add.u32 %r4, %r3, %r2; sub.u32 %r4, %r4, 0x20000000; cvt.u64.u32 %rd3, %r4;";
    planted("shuffle", offset, ("%r1, 0x60000000", "0x20000000, 1"));
    // Each takes what its own source has.
    let offset = "shl.b32 %r3, %r1, 28; shfl.sync.bfly.b32 %r3, %r3, 16, 31, -1; setp.gt.u32 %p1, %r1, 15; selp.b32 %r3, 0, %r3, %p1;\n\
                  cvt.u64.u32 %rd3, %r3;";
    planted("butterfly", offset, ("0, %r3, %p1", "0, %r2, %p1"));
}

#[test]
fn in_shared_memory() {
    let bad = "mov.u32 %r3, tile; shl.b32 %r4, %r1, 30; add.u32 %r5, %r4, %r3; st.shared.u32 [%r5], %r1;";
    // The clean twin has 32 words of its own.
    let mend = ("%r1, 30", "%r1, 2");
    check(Bug { name: "shared", threads: 32, blocks: 1, bad, mend, kind: Kind::IndexOverflow });
}

#[test]
fn a_finding_says_what_overflowed_and_where() {
    let offset = "mov.u32 %r3, 65536;\nmad.lo.u32 %r4, %r3, %r3, %r2;\nadd.u32 %r5, %r4, 4;\ncvt.u64.u32 %rd3, %r5;";
    let text = kernel(16, &format!("{offset}\n{LOAD}"));
    let line = |what: &str| text.lines().position(|line| line.contains(what)).unwrap() + 1;
    let bug = Bug { name: "", threads: 1, blocks: 1, bad: "", mend: ("", ""), kind: Kind::IndexOverflow };
    let options = Options { checks: Checks { offsets: true, ..Checks::NONE }, ..Options::default() };
    let found = launch(&text, &bug, &options).unwrap();
    let place = format!("an offset of 4294967300 that became 4 in 32 bits at PTX line {} `mad.lo.u32`", line("mad.lo"));
    assert!(found[0].message.ends_with(&place), "{}", found[0]);
    assert_eq!(found[0].place.ptx_line as usize, line("ld.global"));
    assert_eq!(launch(&text, &bug, &Options { checks: Checks::NONE, ..options }).unwrap(), []);
}

/// Each stays inside `p`, and no access is at an address that overflowed.
#[test]
fn what_only_looks_like_an_overflow() {
    let quiet = [
        ("the word before", "add.s32 %r3, %r1, -1; max.s32 %r4, %r3, 0; cvt.s64.s32 %rd5, %r4; shl.b64 %rd3, %rd5, 2;"),
        ("back from below", "add.u32 %r3, %r2, -128; add.u32 %r4, %r3, 128; cvt.u64.u32 %rd3, %r4;"),
        ("a negative offset", "add.s32 %r3, %r2, -64; cvt.s64.s32 %rd5, %r3; add.s64 %rd3, %rd5, 64;"),
        ("a negative row", "add.s32 %r3, %r1, -4; mul.wide.s32 %rd5, %r3, 4; add.s64 %rd3, %rd5, 16;"),
        ("a sum that comes back", "add.u32 %r3, %r2, 0xfffffff0; sub.u32 %r4, %r3, 0xfffffff0; cvt.u64.u32 %rd3, %r4;"),
        (
            "a product that comes back",
            "mov.u32 %r5, 65536; mul.lo.u32 %r3, %r5, %r5; add.u32 %r4, %r3, %r2; mul.lo.u32 %r6, %r5, %r5;\n\
             sub.u32 %r7, %r4, %r6; cvt.u64.u32 %rd3, %r7;",
        ),
        ("a large constant", "add.u32 %r3, %r2, 3000000000; cvt.u64.u32 %rd5, %r3; sub.s64 %rd3, %rd5, 3000000000;"),
        (
            "one less than a large number",
            "not.b32 %r3, %r2; add.u32 %r4, %r3, -3; not.b32 %r5, %r4; cvt.u64.u32 %rd5, %r4; cvt.u64.u32 %rd6, %r5;\n\
             add.s64 %rd7, %rd5, %rd6; sub.s64 %rd8, %rd7, 0xffffffff; cvt.u64.u32 %rd9, %r2; add.s64 %rd3, %rd8, %rd9;",
        ),
        (
            "a hash",
            "mul.lo.u32 %r3, %r1, 0x9e3779b9; xor.b32 %r4, %r3, 0x5bd1e995; mad.lo.u32 %r5, %r4, 1664525, 1013904223;\n\
             rem.u32 %r6, %r5, 1000; mul.wide.u32 %rd3, %r6, 4;",
        ),
        ("a masked hash", "mul.lo.u32 %r3, %r1, 0x9e3779b9; and.b32 %r4, %r3, 1020; cvt.u64.u32 %rd3, %r4;"),
        ("the top of a hash", "mul.lo.u32 %r3, %r1, 0x9e3779b9; shr.u32 %r4, %r3, 24; mul.wide.u32 %rd3, %r4, 4;"),
        ("a hash wide", "mul.lo.u32 %r3, %r1, 0x9e3779b9; cvt.u64.u32 %rd5, %r3; and.b64 %rd3, %rd5, 1020;"),
        ("not an address", "mul.lo.u32 %r3, %r1, 0x9e3779b9; st.global.u32 [%rd2], 1; cvt.u64.u32 %rd3, %r2;"),
        (
            "reused",
            "mul.lo.u32 %r3, %r1, 0x9e3779b9; xor.b32 %r3, %r3, %r3; add.u32 %r3, %r3, %r2; cvt.u64.u32 %rd3, %r3;",
        ),
    ];
    for options in all_options() {
        let options = Options { checks: Checks { race: false, ..options.checks }, ..options };
        for (name, offset) in quiet {
            assert_eq!(one(&format!("{offset} {LOAD}"), 32, &options), [], "{name}");
        }
    }
}

/// Loads from x[0..1024] at the remainder in %r9, which is less than 1000.
const AT: &str = "mul.wide.u32 %rd3, %r9, 4;";

#[test]
fn remainders_of_hashes_are_new_numbers() {
    let hash = "mul.lo.u32 %r3, %r1, 0x9e3779b9;";
    let ways = [
        // As nvcc divides by a constant: by the upper half of a product, with a sum in between, and signed.
        "mul.wide.u32 %rd5, %r3, 274877907; shr.u64 %rd6, %rd5, 38; cvt.u32.u64 %r4, %rd6; mul.lo.s32 %r5, %r4, 1000; sub.s32 %r9, %r3, %r5;",
        "mul.hi.u32 %r4, %r3, 524353; sub.u32 %r5, %r3, %r4; shr.u32 %r5, %r5, 1; add.u32 %r5, %r5, %r4; shr.u32 %r6, %r5, 12;\n\
         mul.lo.u32 %r6, %r6, 8191; sub.u32 %r7, %r3, %r6; shr.u32 %r9, %r7, 4;",
        "mul.hi.s32 %r4, %r3, 274877907; shr.u32 %r5, %r4, 31; shr.s32 %r6, %r4, 6; add.s32 %r7, %r6, %r5; mul.lo.s32 %r7, %r7, 1000;\n\
         sub.s32 %r8, %r3, %r7; setp.lt.s32 %p1, %r8, 0; add.s32 %r10, %r8, 1000; selp.b32 %r9, %r10, %r8, %p1;",
        // As LLVM does, and by division.
        "mul.hi.u32 %r4, %r3, 274877907; shr.u32 %r4, %r4, 6; mad.lo.s32 %r9, %r4, -1000, %r3;",
        "mul.hi.u32 %r4, %r3, 274877907; shr.u32 %r4, %r4, 6; mul.lo.s32 %r5, %r4, -1000; add.s32 %r9, %r5, %r3;",
        "mov.u32 %r10, 1000; div.u32 %r4, %r3, %r10; mul.lo.u32 %r5, %r4, %r10; sub.u32 %r9, %r3, %r5;",
        // Of a power of two.
        "and.b32 %r4, %r3, 0xffffff00; sub.u32 %r9, %r3, %r4;",
    ];
    for options in all_options() {
        for way in ways {
            assert_eq!(one(&format!("{hash} {way} {AT} {LOAD}"), 32, &options), [], "{way}");
        }
        let next = "mad.lo.u32 %r3, %r3, 1664525, 1013904223;";
        assert_eq!(
            one(&format!("{hash} {next} {} {next} {} {AT} {LOAD}", ways[0], ways[0]), 32, &options),
            [],
            "again"
        );
        let wide = "cvt.u64.u32 %rd5, %r3; mul.hi.u64 %rd6, %rd5, 18446744073709551; mul.lo.u64 %rd6, %rd6, 1000; sub.u64 %rd7, %rd5, %rd6; \
                    shl.b64 %rd3, %rd7, 2;";
        assert_eq!(one(&format!("{hash} {wide} {LOAD}"), 32, &options), [], "in 64 bits");
    }
}

#[test]
fn differences_that_are_no_remainders() {
    // What is divided is itself an offset that wrapped.
    let offset =
        "mul.lo.u32 %r3, %r1, 0x20000000; shr.u32 %r4, %r3, 6; st.global.u32 [%rd2], %r4; mul.wide.u32 %rd3, %r3, 4;";
    planted("divided as well", offset, ("0x20000000", "0x2"));
    let offset =
        "mul.lo.u32 %r3, %r1, 0x20000000; shr.u32 %r4, %r1, 6; sub.u32 %r5, %r3, %r4; mul.wide.u32 %rd3, %r5, 4;";
    planted("less another quotient", offset, ("0x20000000", "0x2"));
}

#[test]
fn the_least_and_the_most_of_offsets() {
    let offset = "shl.b32 %r3, %r1, 28; add.u32 %r3, %r3, %r2; min.u32 %r4, %r3, 0xf0000000; and.b32 %r5, %r4, 0xfffffff; setp.gt.u32 %p1, %r1, 15;\n\
                  max.u32 %r6, %r3, %r2; selp.b32 %r7, %r6, 0, %p1; cvt.u64.u32 %rd3, %r7;";
    let over = offset.replace("%r1, 28", "%r1, 5");
    let bad = "shl.b32 %r3, %r1, 30; min.u32 %r4, %r3, 64; add.u32 %r4, %r4, 4; cvt.u64.u32 %rd3, %r4;";
    planted("min", bad, ("%r1, 30", "%r1, 2"));
    let bad = "shl.b32 %r3, %r1, 30; and.b32 %r5, %r1, 0; setp.gt.u32 %p1, %r1, 3; selp.b32 %r3, %r3, %r5, %p1; max.s32 %r4, %r3, 0;\n\
               cvt.u64.u32 %rd3, %r4;";
    planted("max", bad, ("%r1, 30", "%r1, 2"));
    for options in all_options() {
        assert_eq!(one(&format!("{over} {LOAD}"), 32, &options), []);
        // What is chosen did not overflow.
        let clamped = "add.u32 %r3, %r1, -1; min.u32 %r4, %r3, 31; shl.b32 %r5, %r4, 2; cvt.u64.u32 %rd3, %r5;";
        let positive = "mul.lo.s32 %r3, %r1, -4; max.s32 %r4, %r3, 0; cvt.u64.u32 %rd3, %r4;";
        for offset in [clamped, positive] {
            assert_eq!(one(&format!("{offset} {LOAD}"), 32, &options), [], "{offset}");
        }
    }
}

/// A kernel that calls `f` with %r3 and 4096, whose body is `callee` and result %r9, and loads at what `after` makes of it, if anything.
fn calls(callee: &str, before: &str, after: &str, options: &Options) -> Vec<warpsim::Finding> {
    let function = format!(
        ".func (.param .b32 y) f(.param .b32 a, .param .b32 b)\n{{\n.reg .b32 %r<10>; .reg .b64 %rd<5>; .reg .pred %p<2>;\n\
         ld.param.u32 %r1, [a]; ld.param.u32 %r2, [b];\n{callee}\nst.param.b32 [y], %r9;\nret;\n}}\n.visible .entry"
    );
    let body = format!(
        "{before}\n{{ .param .b32 a; st.param.b32 [a], %r3; .param .b32 b; st.param.b32 [b], 4096; .param .b32 y;\n\
         call.uni (y), f, (a, b); ld.param.b32 %r9, [y]; }}\n{after}"
    );
    let text = kernel(64, &body).replace(".visible .entry", &function);
    let bug = Bug { name: "call", threads: 32, blocks: 1, bad: "", mend: ("", ""), kind: Kind::IndexOverflow };
    launch(&text, &bug, options).unwrap_or_else(|f| panic!("{callee} {before}: {f}"))
}

#[test]
fn offsets_of_functions_and_for_functions() {
    let access = format!("cvt.u64.u32 %rd3, %r9; {LOAD}");
    let product = "mul.lo.u32 %r9, %r1, %r2;";
    for options in all_options() {
        // 2^20 times 4096 is nothing in 32 bits.
        let found = calls(product, "mov.u32 %r3, 0x100000;", &access, &options);
        assert_eq!(found.iter().map(|f| f.kind).collect::<Vec<_>>(), [Kind::IndexOverflow]);
        let says = "an offset of 4294967296 that became 0 in 32 bits at PTX line 8 `mul.lo.u32`";
        assert!(found[0].message.contains(says), "{}", found[0]);
        assert_eq!(calls(product, "mov.u32 %r3, 0;", &access, &options), []);
        // It is passed on, and to a function that accesses memory.
        let sum = "add.u32 %r9, %r1, 4;";
        let wraps = "mov.u32 %r3, 65536; mul.lo.u32 %r3, %r3, %r3;";
        let finds = |found: Vec<warpsim::Finding>| found.iter().any(|f| f.kind == Kind::IndexOverflow);
        assert!(finds(calls(sum, wraps, &access, &options)));
        assert_eq!(calls(sum, &wraps.replace("65536", "2"), &access, &options), []);
        let inside = "shl.b32 %r9, %r1, 2; setp.eq.u32 %p1, %r1, 0; @%p1 ld.shared.u32 %r4, [%r9];";
        assert!(finds(calls(inside, wraps, "", &options)));
        // A hash of one is a new number, and so is what the same place is given next.
        assert_eq!(calls("xor.b32 %r9, %r1, %r1;", wraps, &access, &options), []);
        let again = "{ .param .b32 a; st.param.b32 [a], %r2; .param .b32 b; st.param.b32 [b], 1; .param .b32 y;\ncall.uni (y), f, (a, b);\n\
                     ld.param.b32 %r9, [y]; }";
        assert_eq!(calls(sum, wraps, &format!("{again}\n{access}"), &options), []);
    }
}

/// An offset that turned negative leads below everything: that it overflowed is said right behind where it led.
#[test]
fn what_led_out_of_bounds_comes_first() {
    let body = "mov.u32 %r3, 60000; mul.lo.s32 %r4, %r3, %r3; cvt.s64.s32 %rd3, %r4; add.s64 %rd4, %rd1, %rd3;\n\
                setp.gt.u32 %p1, %r1, 7; @!%p1 mov.u32 %r5, 1; st.global.u32 [%rd2], %r5; st.global.u8 [%rd4], %r1;";
    let bug = Bug { name: "", threads: 32, blocks: 1, bad: "", mend: ("", ""), kind: Kind::OutOfBounds };
    for options in all_options() {
        let fault = launch(&kernel(16, body), &bug, &options).unwrap_err().to_string();
        assert!(
            fault.starts_with("out-of-bounds: a store of 1 byte at address ")
                && fault.contains(", before every allocation\n"),
            "{fault}"
        );
        assert!(
            fault.split("\nbefore that, ").nth(1).is_some_and(|next| next.starts_with("index-overflow: ")),
            "{fault}"
        );
    }
}
