//! Planted uses of values that nobody made. Values that are only moved, or thrown away, harm nobody.

use crate::common::all_options;
use crate::zoo::{Bug, check, one};
use warpsim::Kind;

/// Only lane 3 has a value in %r9 and in %rd9.
const ONE: &str = "setp.eq.u32 %p1, %r1, 3; @%p1 mov.u32 %r9, 7; @%p1 mov.u64 %rd9, 7; cvt.u64.u32 %rd3, %r2; add.u64 %rd4, %rd2, %rd3; \
                   mov.u32 %r3, tile; add.u32 %r4, %r3, %r2;\n";

fn finds(kind: Kind, bad: &str, mend: (&'static str, &'static str)) {
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

#[test]
fn shared_memory_remembers() {
    let body = "add.u32 %r10, %r9, 1; st.shared.u32 [%r4], %r10; bar.sync 0;\nld.shared.u32 %r11, [%r4];";
    finds(Kind::UninitialisedShared, body, ("ld.shared.u32 %r11, [%r4]", "ld.shared.u32 %r11, [%r3+12]"));
    let vector = "and.b32 %r5, %r2, 8; add.u32 %r5, %r5, %r4; st.shared.v2.u32 [%r3], {%r1, %r9}; bar.sync 0;\nld.shared.u32 %r11, [%r3+4];";
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
