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
