//! Planted mistakes in the metadata of sparse matrices: pairs of places that are none.

use crate::common::all_options;
use crate::zoo::{Bug, check, kernel, launch};
use warpsim::Kind;

/// A multiplication by metadata in %r3, which is eight times `0b0100` in the clean twin: the first and the second place.
fn body(metadata: &str, form: &str, shape: &str, a: usize, b: usize) -> String {
    let list = |n: usize| vec!["%r4"; n].join(", ");
    let whole = shape.contains("s32");
    let sums = if whole { "%r10, %r11, %r12, %r13" } else { "%f1, %f2, %f3, %f4" };
    let zero: String = sums.split(", ").map(|r| format!("mov.b32 {r}, 0; ")).collect();
    format!(
        "mov.b32 %r3, {metadata}; mov.b32 %r4, 0; {zero}\n\
         mma.{form}.sync.aligned.{shape} {{{sums}}}, {{{}}}, {{{}}}, {{{sums}}}, %r3, 0x0;",
        list(a),
        list(b)
    )
}

const F16: (&str, usize, usize) = ("m16n8k16.row.col.f32.f16.f16.f32", 2, 2);
const TF32: (&str, usize, usize) = ("m16n8k8.row.col.f32.tf32.tf32.f32", 2, 2);
const S8: (&str, usize, usize) = ("m16n8k64.row.col.s32.s8.s8.s32", 4, 4);
const S4: (&str, usize, usize) = ("m16n8k64.row.col.s32.s4.s4.s32", 2, 2);
const E4M3: (&str, usize, usize) = ("m16n8k64.row.col.f32.e4m3.e4m3.f32", 4, 4);

#[test]
fn pairs_that_name_one_place_twice() {
    for (shape, a, b) in [F16, S8, S4, E4M3] {
        for form in ["sp", "sp::ordered_metadata"] {
            for bad in ["0x44444440", "0x44454444", "0xa4444444", "0x44f44444"] {
                let mend = (bad, "0x44444444");
                let bad = body(bad, form, shape, a, b);
                let kind = Kind::IllegalInstruction;
                check(Bug { name: shape, threads: 32, blocks: 1, bad: &bad, mend, kind });
            }
        }
    }
}

#[test]
fn pairs_in_the_wrong_order() {
    for (shape, a, b) in [F16, S8, S4, E4M3] {
        for bad in ["0x44444441", "0x44244444", "0xb4444444"] {
            let bad = body(bad, "sp::ordered_metadata", shape, a, b);
            // Without the promise of an order there is none to break.
            let mend = ("sp::ordered_metadata", "sp");
            let kind = Kind::IllegalInstruction;
            check(Bug { name: shape, threads: 32, blocks: 1, bad: &bad, mend, kind });
        }
    }
}

#[test]
fn halves_of_a_wide_element() {
    // Of two elements of 32 bits each, one: its low and its high half.
    for bad in ["0x44444448", "0x44944444", "0xc4444444", "0x44444404"] {
        for mended in ["0x44444444", "0xeeeeeeee"] {
            let (mend, kind) = ((bad, mended), Kind::IllegalInstruction);
            let bad = body(bad, "sp", TF32.0, TF32.1, TF32.2);
            check(Bug { name: "tf32", threads: 32, blocks: 1, bad: &bad, mend, kind });
        }
    }
}

#[test]
fn the_finding_names_the_pair() {
    let bad = body("0x44544444", "sp", F16.0, F16.1, F16.2);
    let b = Bug { name: "pair", threads: 32, blocks: 1, bad: &bad, mend: ("", ""), kind: Kind::IllegalInstruction };
    for o in all_options() {
        let f = launch(&kernel(64, &bad), &b, &o).unwrap_err();
        let says = "the sparse metadata 0b0101 (row 8, bit 20 of this lane) has to name two different places";
        assert_eq!((f.finding.message.as_str(), f.finding.thread), (says, [0; 3]));
    }
}
