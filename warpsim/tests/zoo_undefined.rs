//! Planted uses of values that nobody made. Values that are only moved, or thrown away, harm nobody.

use crate::common::all_options;
use crate::zoo::{Bug, check, one};
use warpsim::Kind;

/// Only lane 3 has a value in %r9 and in %rd9.
const ONE: &str = "setp.eq.u32 %p1, %r1, 3; @%p1 mov.u32 %r9, 7; @%p1 mov.u64 %rd9, 7; cvt.u64.u32 %rd3, %r2; add.u64 %rd4, %rd2, %rd3; \
                   mov.u32 %r3, tile; add.u32 %r4, %r3, %r2;\n";

fn finds(kind: Kind, bad: &str, mend: (&str, &str)) {
    let bad = Box::leak(format!("{ONE}{bad}").into_boxed_str());
    check(Bug { name: "undefined", threads: 32, blocks: 1, bad, mend, kind });
}

#[test]
fn a_shuffle_carries_what_its_lanes_take() {
    // A ticket that one lane took for its warp.
    let shuffle = "shfl.sync.idx.b32 %r10, %r9, 4, 31, -1; add.u32 %r10, %r10, %r1; st.global.u32 [%rd4], %r10;";
    finds(Kind::UninitialisedRegister, shuffle, ("%r9, 4,", "%r9, 3,"));
    let pair = "mov.b64 {%r10, %r11}, %rd9; shfl.sync.idx.b32 %r10, %r10, 3, 31, -1; shfl.sync.idx.b32 %r11, %r11, 2, 31, -1;\n\
                mov.b64 %rd5, {%r10, %r11}; st.global.u64 [%rd2], %rd5;";
    finds(Kind::UninitialisedRegister, pair, ("%r11, 2,", "%r11, 3,"));
    // The lane itself is no value that travels.
    finds(Kind::UninitialisedRegister, "shfl.sync.idx.b32 %r10, %r1, %r9, 31, -1;", ("%r9, 31", "%r2, 31"));
}

#[test]
fn what_decides_has_to_be_defined() {
    let reg = Kind::UninitialisedRegister;
    finds(
        reg,
        "add.u32 %r10, %r9, 1; setp.gt.u32 %p2, %r10, 2; @%p2 bra END; mov.u32 %r11, 1; END:",
        ("%r10, 2", "%r2, 2"),
    );
    finds(
        reg,
        "and.b32 %r10, %r9, 4; add.u32 %r10, %r10, %r3; ld.shared.u32 %r11, [%r10];",
        ("ld.shared.u32 %r11, [%r10];", ""),
    );
    finds(reg, "mov.u32 %r10, %r9; st.global.u32 [%rd4], %r10;", ("[%rd4], %r10", "[%rd4], %r1"));
    finds(reg, "mov.u32 %r10, %r9; red.global.add.u32 [%rd1], %r10;", ("[%rd1], %r10", "[%rd1], %r1"));
    finds(reg, "mov.u32 %r10, %r9; vote.sync.any.pred %p3, %p4, -1;", ("%p3, %p4", "%p3, %p1"));
}

/// `ldmatrix` and `stmatrix` of one matrix take eight addresses.
#[test]
fn rows_are_named_by_the_first_lanes() {
    let body = "shl.b32 %r5, %r1, 4; add.u32 %r5, %r5, %r3; setp.lt.u32 %p2, %r1, 8; mov.u32 %r6, %r1;\n\
                @%p2 mov.u32 %r12, %r5;\nstmatrix.sync.aligned.m8n8.x1.shared.b16 [%r12], {%r6}; bar.warp.sync -1;\n\
                ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r11}, [%r12]; st.global.u32 [%rd4], %r11;";
    let late = body.replace("%r1, 8;", "%r1, 7;");
    for o in all_options() {
        assert_eq!(one(&format!("{ONE}{body}"), 32, &o), []);
        assert!(one(&format!("{ONE}{late}"), 32, &o).contains(&Kind::UninitialisedRegister));
    }
}

#[test]
fn shared_memory_remembers() {
    let body = "add.u32 %r10, %r9, 1; st.shared.u32 [%r4], %r10; bar.sync 0;\nld.shared.u32 %r11, [%r4]; st.global.u32 [%rd4], %r11;";
    finds(Kind::UninitialisedShared, body, ("ld.shared.u32 %r11, [%r4]", "ld.shared.u32 %r11, [%r3+12]"));
    let vector = "and.b32 %r5, %r2, 8; add.u32 %r5, %r5, %r4; st.shared.v2.u32 [%r3], {%r1, %r9}; bar.sync 0;\nld.shared.u32 %r11, [%r3+4]; st.global.u32 [%rd4], %r11;";
    let one_lane = vector.replace("st.shared", "@%p2 st.shared");
    let bad = format!("setp.eq.u32 %p2, %r1, 5; {one_lane}");
    finds(Kind::UninitialisedShared, &bad, ("[%r3+4]", "[%r3]"));
}

#[test]
fn what_settles_it_without_the_value_is_enough() {
    let quiet = [
        "selp.b32 %r10, %r9, %r1, %p1; st.global.u32 [%rd4], %r10;",
        "setp.gt.u32 %p2, %r9, 2; and.pred %p3, %p1, %p2; @%p3 st.global.u32 [%rd2], 1;",
        "setp.gt.u32 %p2, %r9, 2; not.pred %p4, %p1; or.pred %p3, %p2, %p4; @%p3 st.global.u32 [%rd4], 1;",
        "mov.u32 %r10, %r9; mul.lo.u32 %r11, %r10, 5; mov.b64 %rd5, {%r11, %r10};",
    ];
    for o in all_options() {
        for body in quiet {
            assert_eq!(one(&format!("{ONE}{body}"), 32, &o), [], "{body}");
        }
        let wrong = "not.pred %p4, %p1; selp.b32 %r10, %r9, %r1, %p4; st.global.u32 [%rd4], %r10;";
        assert_eq!(one(&format!("{ONE}{wrong}"), 32, &o), [Kind::UninitialisedRegister]);
    }
}

#[test]
fn unwritten_shared_memory_may_be_read_along() {
    let half = "setp.lt.u32 %p2, %r1, 14; @%p2 st.shared.u32 [%r4], %r1; bar.warp.sync -1;\n";
    let shared = Kind::UninitialisedShared;
    for (bad, mend) in [
        // A vector of which some is wanted.
        (
            "ld.shared.v4.u32 {%r5, %r6, %r7, %r8}, [%r3+48]; st.global.v2.u32 [%rd2], {%r5, %r8};",
            ("%r5, %r8}", "%r5, %r6}"),
        ),
        // What is computed, handed over and kept in between.
        (
            "ld.shared.u32 %r5, [%r4]; mad.lo.u32 %r6, %r5, 4, 1; shfl.sync.bfly.b32 %r7, %r6, 16, 31, -1; @%p1 st.global.u32 [%rd4], %r7;",
            ("%r6, 16", "%r6, 8"),
        ),
        (
            "ld.shared.u32 %r5, [%r4]; st.shared.u32 [%r4+1024], %r5;\nld.shared.u32 %r6, [%r4+1024]; setp.gt.u32 %p4, %r6, 7; @%p4 bra E; mov.u32 %r7, 1; E:",
            ("%r6, 7", "%r1, 7"),
        ),
        (
            "ld.shared.u32 %r5, [%r4]; and.b32 %r5, %r5, 4; add.u32 %r5, %r5, %r3; atom.shared.add.u32 %r6, [%r5], 1;",
            ("ld.shared.u32 %r5, [%r4]", "mov.u32 %r5, 4"),
        ),
    ] {
        let bad = Box::leak(format!("{half}{bad}").into_boxed_str());
        finds(shared, bad, mend);
    }
    let bad = format!("{ONE}{half}ld.shared.u32 %r5, [%r4];\n@!%p2 st.global.u32 [%rd4], %r5;");
    for o in all_options() {
        let found = crate::zoo_order::found(&crate::zoo::kernel(8192, &bad), 1, 32, &o);
        let says = "what it stores depends in lanes 0xffffc000 on shared memory that nobody wrote, first read at 0x38 (byte 56 of `tile`)";
        assert!(found.len() == 1 && found[0].kind == shared && found[0].message == says, "{found:?}");
        assert_eq!(found[0].earlier.as_ref().map(|e| e.place.instruction.as_str()), Some("ld.shared.u32"));
    }
}

/// A vector of global memory whose last word nobody wrote.
#[test]
fn words_of_a_vector_are_loaded_one_by_one() {
    let front = "mul.wide.u32 %rd3, %r1, 16; add.u64 %rd4, %rd2, %rd3; st.global.v2.u32 [%rd4], {%r1, %r1}; st.global.u32 [%rd4+8], %r1;\n";
    let global = Kind::UninitialisedGlobal;
    for (bad, mend) in [
        ("ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd4]; st.global.u32 [%rd4], %r8;", ("], %r8", "], %r7")),
        (
            "ld.global.v2.u64 {%rd5, %rd6}, [%rd4]; shr.u64 %rd6, %rd6, 32; cvt.u32.u64 %r8, %rd6; setp.eq.u32 %p3, %r8, 1; @%p3 bra E; E:",
            ("%rd6, 32", "%rd5, 32"),
        ),
        (
            "ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd4]; shfl.sync.bfly.b32 %r9, %r8, 1, 31, -1; st.shared.u32 [%r4], %r9;\n\
             ld.shared.u32 %r5, [%r4]; st.global.u32 [%rd4], %r5;",
            ("%r9, %r8", "%r9, %r7"),
        ),
    ] {
        let kind = if bad.contains("shfl") { Kind::UninitialisedShared } else { global };
        finds(kind, &format!("{front}{bad}"), mend);
    }
    let bad = format!("{ONE}{front}ld.global.v4.u32 {{%r5, %r6, %r7, %r8}}, [%rd4];\n@%p1 st.global.u32 [%rd4], %r8;");
    for o in all_options() {
        let b = Bug { name: "vector", threads: 32, blocks: 1, bad: "", mend: ("", ""), kind: global };
        let found = crate::zoo::launch(&crate::zoo::kernel(8192, &bad), &b, &o).unwrap();
        let says = "what it stores depends in lanes 0x00000008 on global memory that nobody wrote, first on byte 12 of `output`";
        assert!(found.len() == 1 && found[0].kind == global && found[0].message.starts_with(says), "{found:?}");
        assert_eq!(found[0].earlier.as_ref().map(|e| e.place.instruction.as_str()), Some("ld.global.v4.u32"));
    }
    // Of which nobody wrote anything, it is told at once.
    finds(global, "ld.global.v4.u32 {%r5, %r6, %r7, %r8}, [%rd2+1024];", ("%rd2+1024", "%rd1+1024"));
}

/// A word of two fields in local memory, as compilers without optimisation assign them.
#[test]
fn fields_of_a_word_are_assigned_one_by_one() {
    let fields = ".local .align 8 .b8 word[8]; mov.u64 %rd5, word; cvta.local.u64 %rd6, %rd5;\n\
                  and.b32 %r12, %r1, 15; ld.u32 %r10, [%rd6]; and.b32 %r11, %r10, -16; or.b32 %r13, %r11, %r12; st.u32 [%rd6], %r13;\n\
                  ld.u32 %r14, [%rd6]; and.b32 %r15, %r14, 255; st.global.u32 [%rd4], %r15;";
    // Into the word that it came from, and with no sum.
    let local = Kind::UninitialisedLocal;
    let bad = fields.replace("[%rd6], %r13", "[%rd6+4], %r13").replace("%r14, [%rd6]", "%r14, [%rd6+4]");
    finds(local, &bad, ("[%rd6+4]", "[%rd6]"));
    finds(local, &fields.replace("or.b32 %r13", "add.u32 %r13"), ("add.u32 %r13", "or.b32 %r13"));
    finds(local, &fields.replace("%r10, -16", "%r10, %r1"), ("%r10, %r1", "%r10, -16"));
    let cleared = "ld.local.u32 %r10, [%rd5]; and.b32 %r11, %r10, -2; st.local.u32 [%rd5], %r11;\n\
                   ld.local.u32 %r14, [%rd5]; and.b32 %r14, %r14, 255; st.global.u32 [%rd4], %r14;";
    let front = ".local .align 8 .b8 word[8]; mov.u64 %rd5, word;";
    finds(local, &format!("{front} {}", cleared.replace("-2", "%r1")), ("%r10, %r1", "%r10, -2"));
}

/// Halves of a register, bytes of a word: each is followed while it is packed, masked, moved and handed over.
#[test]
fn bytes_are_followed_one_by_one() {
    let front = ".reg .b16 %h<8>; cvt.u16.u32 %h1, %r1; @%p1 mov.u16 %h2, 7; mov.b32 %r10, {%h1, %h2};\n";
    let reg = Kind::UninitialisedRegister;
    for (body, mend) in [
        ("mov.b32 {%h3, %h4}, %r10; st.global.u16 [%rd4], %h4;", ("], %h4", "], %h3")),
        ("shr.u32 %r11, %r10, 16; st.global.u32 [%rd4], %r11;", ("%r10, 16", "%r1, 16")),
        ("and.b32 %r11, %r10, 0xfff00; st.global.u32 [%rd4], %r11;", ("0xfff00", "0xff00")),
        ("prmt.b32 %r11, %r10, 0, 0x4420; st.global.u32 [%rd4], %r11;", ("0x4420", "0x4410")),
        (
            "add.rn.f16x2 %r11, %r10, %r10; mov.b32 {%h3, %h4}, %r11; setp.eq.b16 %p3, %h4, 0; @%p3 bra E; E:",
            ("%p3, %h4", "%p3, %h3"),
        ),
        (
            "mov.b64 %rd5, {%r10, %r1}; shr.u64 %rd5, %rd5, 16; cvt.u32.u64 %r11, %rd5; st.global.u32 [%rd4], %r11;",
            ("%rd5, 16", "%rd5, 32"),
        ),
        (
            "shfl.sync.bfly.b32 %r11, %r10, 1, 31, -1; and.b32 %r11, %r11, 0xff00ff; st.global.u32 [%rd4], %r11;",
            ("0xff00ff", "0xff"),
        ),
        (
            "cvt.rn.f16x2.f32 %r11, %f9, 0f00000000; mov.b32 {%h3, %h4}, %r11; st.global.u16 [%rd4], %h4;",
            ("], %h4", "], %h3"),
        ),
        (
            "lop3.b32 %r11, %r10, 0xffff, %r1, 0xea; xor.b32 %r12, %r10, %r11; st.global.u32 [%rd4], %r12;",
            ("], %r12", "], %r11"),
        ),
    ] {
        finds(reg, &format!("{front}{body}"), mend);
    }
    // What is stored is not written, byte by byte.
    let kept = format!(
        "{front}st.shared.u32 [%r4], %r10; bar.warp.sync -1;\nld.shared.u16 %r11, [%r4+2]; st.global.u32 [%rd4], %r11;"
    );
    finds(Kind::UninitialisedShared, &kept, ("[%r4+2]", "[%r4]"));
    let local = format!(
        ".local .align 8 .b8 word[8]; {front}st.local.u32 [word], %r10; ld.local.u32 %r11, [word];\nbfe.u32 %r11, %r11, 8, 16; st.global.u32 [%rd4], %r11;"
    );
    finds(Kind::UninitialisedLocal, &local, ("8, 16;", "8, 8;"));
    // As a whole it is undefined.
    finds(reg, &format!("{front}st.global.u32 [%rd4], %r10;"), ("], %r10", "], %r1"));
}

/// What a structure leaves between its members goes where it goes.
#[test]
fn padding_is_copied_along() {
    let front = ".reg .b16 %h<4>; shl.b32 %r5, %r1, 4; add.u32 %r5, %r5, %r3; mul.wide.u32 %rd5, %r1, 16; add.u64 %rd5, %rd5, %rd2; cvt.u16.u32 %h1, %r1;\n";
    let read = "ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r5]; st.global.v4.u32 [%rd5], {%r10, %r11, %r12, %r13};\n";
    let again = "bar.warp.sync -1; ld.global.v2.u64 {%rd6, %rd7}, [%rd5]; st.shared.v2.u64 [%r5+512], {%rd6, %rd7};\n";
    let used = "ld.shared.u32 %r12, [%r5+512]; st.global.u32 [%rd5], %r12;";
    let (shared, global) = (Kind::UninitialisedShared, Kind::UninitialisedGlobal);
    for members in [
        "st.shared.v2.u32 [%r5], {%r1, %r1}; st.shared.u32 [%r5+8], %r1;",
        "st.shared.u32 [%r5], %r1; st.shared.u8 [%r5+12], %r1;",
    ] {
        let body = format!("{front}{members}{read}{again}{used}");
        finds(
            shared,
            &body.replace("[%r5+512]; st", "[%r5+525]; st").replace("ld.shared.u32 %r12", "ld.shared.u8 %r12"),
            ("+525", "+512"),
        );
        // One after the other they are values, and so is what is computed of them.
        finds(
            shared,
            &body.replace("v4.u32 [%rd5], {%r10, %r11, %r12, %r13}", "v4.u32 [%rd5], {%r13, %r10, %r11, %r12}"),
            ("{%r13, %r10, %r11, %r12}", "{%r10, %r11, %r12, %r13}"),
        );
        let sum = "add.u32 %r13, %r13, 1; st.global.v4";
        finds(shared, &body.replacen("st.global.v4", sum, 1), (sum, "st.global.v4"));
    }
    // By cp.async, and by one word.
    let copied = "st.global.u32 [%rd4], 1; cvt.u16.u32 %h1, %r1; st.global.u8 [%rd4+4], %h1;\n";
    let async_copy = format!(
        "{copied}bar.warp.sync -1; cp.async.ca.shared.global [%r5], [%rd5], 8; cp.async.wait_all;\nld.shared.u32 %r10, [%r5+4]; and.b32 %r10, %r10, 0xffff; st.global.u32 [%rd5], %r10;"
    );
    let body = format!("{front}{}", async_copy.replace("%rd4", "%rd5"));
    finds(shared, &body, ("0xffff", "0xff"));
    let word = format!(
        "{front}{copied}ld.global.u64 %rd6, [%rd5]; shr.u64 %rd6, %rd6, 32; and.b64 %rd6, %rd6, 0xffff; st.global.u64 [%rd5], %rd6;"
    );
    finds(global, &word.replace("%rd4", "%rd5"), ("0xffff", "0xff"));
}

#[test]
fn nothing_depends_on_a_division_by_zero() {
    let zero = Kind::DivisionByZero;
    for (op, width) in
        [("div.u32", 32), ("rem.s32", 32), ("div.s64", 64), ("rem.u64", 64), ("div.s16", 16), ("rem.u16", 16)]
    {
        let (from, reg) = match width {
            16 => ("cvt.u16.u32 %h1, %r1; cvt.u16.u32 %h2, 9;", "%h"),
            32 => ("mov.b32 %x1, %r1; mov.b32 %x2, 9;", "%x"),
            _ => ("cvt.u64.u32 %y1, %r1; mov.b64 %y2, 9;", "%y"),
        };
        let back = match width {
            16 => "cvt.u32.u16 %x4, %h3;",
            32 => "mov.b32 %x4, %x3;",
            _ => "cvt.u32.u64 %x4, %y3;",
        };
        let bad = format!(
            ".reg .b16 %h<4>; .reg .b32 %x<5>; .reg .b64 %y<4>;\n{from}\n{op} {reg}3, {reg}2, {reg}1; {back} st.global.u32 [%rd4], %x4;"
        );
        finds(zero, &bad, (&format!("{reg}2, {reg}1"), &format!("{reg}1, {reg}2")));
    }
    // By a shuffle, through shared memory, as a condition.
    finds(
        zero,
        "div.u32 %r10, 9, %r1; shfl.sync.idx.b32 %r10, %r10, 0, 31, -1; st.global.u32 [%rd4], %r10;",
        ("%r10, 0, 31", "%r10, 1, 31"),
    );
    finds(
        zero,
        "div.u32 %r10, 9, %r1; st.shared.u32 [%r4], %r10; bar.sync 0; ld.shared.u32 %r11, [%r3]; st.global.u32 [%rd4], %r11;",
        ("[%r3]; st", "[%r3+4]; st"),
    );
    finds(zero, "rem.u32 %r10, 9, %r1; setp.eq.u32 %p2, %r10, 0; @%p2 bra END; END:", ("%r10, 0;", "%r2, 0;"));
    // What is thrown away harms nobody.
    for quiet in [
        "setp.ne.u32 %p2, %r1, 0; div.u32 %r10, 9, %r1; @%p2 st.global.u32 [%rd4], %r10;",
        "setp.ne.u32 %p2, %r1, 0; div.u32 %r10, 9, %r1; selp.b32 %r10, %r10, 0, %p2; st.global.u32 [%rd4], %r10;",
        "setp.ne.u32 %p2, %r1, 0; mov.b32 %r10, 0; @%p2 div.u32 %r10, 9, %r1; st.global.u32 [%rd4], %r10;",
    ] {
        for o in all_options() {
            assert_eq!(one(&format!("{ONE}{quiet}"), 32, &o), [], "{quiet}");
        }
    }
}
