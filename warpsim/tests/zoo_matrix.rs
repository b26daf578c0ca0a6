//! Matrices of which nobody wrote a part: rows and columns beyond the edge are multiplied along, and harm nobody until something depends on them.

use crate::common::all_options;
use crate::zoo::{Bug, kernel, launch};
use crate::zoo_order::found;
use warpsim::{Finding, Kind};

/// The planted use is found, and what it replaces is quiet.
fn finds(kind: Kind, threads: u32, body: &str, planted: &[(&str, &str)]) {
    for o in all_options() {
        let run = |body: &str| found(&kernel(16384, body), 1, threads, &o);
        let clean = run(body);
        assert!(clean.is_empty(), "{}", clean[0]);
        for (good, bad) in planted {
            let bad = body.replace(good, bad);
            assert_ne!(bad, body, "nothing planted");
            let caught = run(&bad);
            assert!(caught.iter().any(|f| f.kind == kind), "{bad}: {caught:?}");
        }
    }
}

fn first(body: &str, threads: u32) -> Finding {
    found(&kernel(16384, body), 1, threads, &all_options()[0]).swap_remove(0)
}

/// A of 16 × 16, of which 11 rows are written, by ldmatrix; lanes from 12 on have rows beyond in %f3 and %f4.
const ROWS: &str = "mov.u32 %r3, tile; shl.b32 %r4, %r1, 4; add.u32 %r4, %r3, %r4; mov.b32 %r5, 0x3f803f80; setp.lt.u32 %p1, %r1, 22;\n\
    mul.wide.u32 %rd3, %r1, 16; add.u64 %rd4, %rd2, %rd3; mov.f32 %f9, 0f00000000; setp.lt.u32 %p2, %r1, 12;\n\
    @%p1 st.shared.v4.b32 [%r4], {%r5, %r5, %r5, %r5}; bar.warp.sync -1;\n\
    and.b32 %r6, %r1, 15; shl.b32 %r6, %r6, 5; shr.u32 %r7, %r1, 4; shl.b32 %r7, %r7, 4; add.u32 %r6, %r6, %r7; add.u32 %r6, %r6, %r3;\n\
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r6];\n\
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r10, %r11, %r12, %r13}, {%r5, %r5}, {%f9, %f9, %f9, %f9};\n\
    st.global.v2.f32 [%rd4], {%f1, %f2};\n";

#[test]
fn rows_beyond_the_edge_may_be_multiplied() {
    let stores = format!("{ROWS}@%p2 st.global.v2.f32 [%rd4+8], {{%f3, %f4}};");
    finds(Kind::UninitialisedShared, 32, &stores, &[("%r1, 12", "%r1, 13"), ("@%p2 st", "st")]);
    // Twice, as attention does; kept in shared memory; what branches, and where.
    let chained = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f5, %f6, %f7, %f8}, {%r10, %r11, %r12, %r13}, {%r5, %r5}, {%f1, %f2, %f3, %f4};\n\
                   @%p2 st.global.v2.f32 [%rd4+8], {%f7, %f8};";
    let kept = "st.shared.f32 [%r4+4096], %f3; bar.warp.sync -1; ld.shared.f32 %f5, [%r4+4096]; @%p2 st.global.f32 [%rd4+8], %f5;";
    let branch = "setp.gt.f32 %p3, %f3, 0f00000000; and.pred %p3, %p2, %p3; @%p3 bra E; mov.u32 %r20, 1; E:";
    let address =
        "cvt.rzi.u32.f32 %r20, %f3; and.b32 %r20, %r20, 4; add.u32 %r20, %r20, %r3;\n@%p2 ld.shared.u32 %r21, [%r20];";
    for (rest, planted) in [
        (chained, ("@%p2 st", "st")),
        (kept, ("@%p2 st", "st")),
        (branch, ("and.pred %p3, %p2, %p3;", "")),
        (address, ("@%p2 ld", "ld")),
    ] {
        finds(Kind::UninitialisedShared, 32, &format!("{ROWS}{rest}"), &[planted]);
    }
    let f = first(&format!("{ROWS}st.global.v2.f32 [%rd4+8], {{%f3, %f4}};"), 32);
    let says = "what it stores depends in lanes 0xfffff000 on shared memory that nobody wrote, first read at 0x160 (byte 352 of `tile`)";
    assert_eq!((f.message.as_str(), f.address), (says, Some(0x160)));
    let earlier = f.earlier.unwrap();
    assert!(earlier.place.instruction.starts_with("ldmatrix") && earlier.who == "thread (12,0,0)", "{earlier:?}");
}

/// Columns of which the last two were not written, read as they lie and transposed.
#[test]
fn lanes_have_elements_of_their_own() {
    let front = "mov.u32 %r3, tile; shl.b32 %r4, %r1, 4; add.u32 %r4, %r3, %r4; setp.lt.u32 %p1, %r1, 8; and.b32 %r5, %r1, 3;\n\
                 setp.lt.u32 %p2, %r5, 3; setp.lt.u32 %p3, %r1, 24; cvt.u64.u32 %rd3, %r2; add.u64 %rd4, %rd2, %rd3;\n\
                 @%p1 st.shared.v2.b32 [%r4], {%r1, %r1}; @%p1 st.shared.b32 [%r4+8], %r1; bar.warp.sync -1;\n";
    let load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r4];";
    let turned = "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r10}, [%r4];";
    let shared = Kind::UninitialisedShared;
    let store = |guard: &str| format!("@{guard} st.global.b32 [%rd4], %r10;");
    finds(shared, 32, &format!("{front}{load}{}", store("%p2")), &[("@%p2 st", "st"), ("@%p2 st", "@%p3 st")]);
    finds(shared, 32, &format!("{front}{turned}{}", store("%p3")), &[("@%p3 st", "st"), ("@%p3 st", "@%p2 st")]);
    let moved = format!("{front}{load}movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r10;{}", store("%p3"));
    finds(shared, 32, &moved, &[("@%p3 st", "st"), ("@%p3 st", "@%p2 st")]);
    // Stored by rows, it is undefined in the same places.
    for (form, guard, other) in [("x1", "%p2", "%p3"), ("x1.trans", "%p3", "%p2")] {
        let kept = format!(
            "{front}{load}add.u32 %r6, %r4, 4096; stmatrix.sync.aligned.m8n8.{form}.shared.b16 [%r6], {{%r10}}; bar.warp.sync -1;\n\
             add.u32 %r7, %r3, %r2; ld.shared.b32 %r10, [%r7+4096]; {}",
            store(guard)
        );
        let wrong = format!("@{other} st.g");
        finds(shared, 32, &kept, &[(&format!("@{guard} st.g"), "st.g"), (&format!("@{guard} st.g"), &wrong)]);
    }
}

/// `mma` of a shape with as many registers of D, A, B and C, of which those of one operand have no value in the lanes from 28 on.
fn multiply(shape: &str, counts: [usize; 4], undefined: usize, guard: &str) -> String {
    let bits = if shape.ends_with("f64") { 64 } else { 32 };
    let mut next = 0;
    let lists = counts.map(|n| {
        next += n;
        (next - n..next).map(|k| format!("%m{k}")).collect::<Vec<_>>()
    });
    let mut text = format!(
        ".reg .b{bits} %m<32>; setp.lt.u32 %p1, %r1, 28; and.b32 %r5, %r1, 3; setp.lt.u32 %p2, %r5, 3;\n\
         mul.wide.u32 %rd3, %r1, 64; add.u64 %rd4, %rd2, %rd3;\n"
    );
    for (operand, list) in lists.iter().enumerate().skip(1) {
        let guard = if operand == undefined { "@%p1 " } else { "" };
        list.iter().for_each(|r| text += &format!("{guard}mov.b{bits} {r}, 0; "));
    }
    let [d, a, b, c] = lists.each_ref().map(|list| list.join(", "));
    let (form, metadata) = match shape.strip_prefix("sp.") {
        Some(shape) => (format!("sp.sync.aligned.{shape}"), ", %r9, 0x0"),
        None => (format!("sync.aligned.{shape}"), ""),
    };
    text += &format!("mov.b32 %r9, 0x44444444;\nmma.{form} {{{d}}}, {{{a}}}, {{{b}}}, {{{c}}}{metadata};\n");
    lists[0]
        .iter()
        .enumerate()
        .for_each(|(k, r)| text += &format!("@{guard} st.global.b{bits} [%rd4+{}], {r};\n", 8 * k));
    text
}

#[test]
fn products_depend_on_a_row_a_column_and_what_is_added() {
    let row_col = |types: &str| types.split_once('.').map(|(s, t)| format!("{s}.row.col.{t}")).unwrap();
    for (shape, counts) in [
        ("m16n8k16.f32.bf16.bf16.f32", [4, 4, 2, 4]),
        ("m16n8k16.f16.f16.f16.f16", [2, 4, 2, 2]),
        ("m16n8k8.f32.tf32.tf32.f32", [4, 4, 2, 4]),
        ("m8n8k16.s32.s8.s8.s32", [2, 1, 1, 2]),
        ("m16n8k32.s32.u8.s8.s32", [4, 4, 2, 4]),
        ("m16n8k64.s32.s4.s4.s32", [4, 4, 2, 4]),
        ("m8n8k4.f64.f64.f64.f64", [2, 1, 1, 2]),
        ("m16n8k8.f64.f64.f64.f64", [4, 4, 2, 4]),
        ("sp.m16n8k16.f32.f16.f16.f32", [4, 2, 2, 4]),
    ] {
        let shape = match shape.strip_prefix("sp.") {
            Some(rest) => format!("sp.{}", row_col(rest)),
            None => row_col(shape),
        };
        // Rows 7 and 15, column 7, and the lanes' own elements.
        for (undefined, guard) in [(1, "%p1"), (2, "%p2"), (3, "%p1")] {
            let body = multiply(&shape, counts, undefined, guard);
            finds(Kind::UninitialisedRegister, 32, &body, &[(&format!("@{guard} st"), "st")]);
        }
        finds(Kind::UninitialisedRegister, 32, &multiply(&shape, counts, 2, "%p2"), &[("@%p2 st", "@%p1 st")]);
        finds(Kind::UninitialisedRegister, 32, &multiply(&shape, counts, 3, "%p1"), &[("@%p1 st", "@%p2 st")]);
    }
    let f = first(&multiply(&row_col("m16n8k16.f32.bf16.bf16.f32"), [4, 4, 2, 4], 1, "%p2"), 32);
    let says = "what it stores depends in lanes 0x70000000 on a product of matrices with a register that nobody wrote";
    let earlier = f.earlier.as_ref().unwrap();
    assert!(f.message.starts_with(says) && earlier.place.instruction.starts_with("mma.sync"), "{f}");
    assert_eq!(earlier.who, "thread (28,0,0)");
    // What a metadata says decides.
    let wrong = multiply(&format!("sp.{}", row_col("m16n8k16.f32.f16.f16.f32")), [4, 2, 2, 4], 0, "%p1");
    finds(Kind::UninitialisedRegister, 32, &wrong, &[("mov.b32 %r9, 0x44444444;", "@%p1 mov.b32 %r9, 0x44444444;")]);
}

/// Rows of 128 bytes: 40 of A and 6 of B are written, by a thread each.
const TILES: &str = "mov.u32 %r3, tile; shl.b32 %r4, %r1, 7; add.u32 %r4, %r3, %r4; mov.b32 %r5, 0x3f803f80; mul.wide.u32 %rd3, %r1, 16; add.u64 %rd4, %rd2, %rd3;\n\
    setp.lt.u32 %p1, %r1, 40; setp.ge.u32 %p2, %r1, 64; setp.lt.and.u32 %p2, %r1, 70, %p2; or.pred %p1, %p1, %p2; mov.u32 %r6, 0;\n\
    L: @%p1 st.shared.v4.b32 [%r4], {%r5, %r5, %r5, %r5}; add.u32 %r4, %r4, 16; add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, 8; @%p3 bra L;\n\
    and.b32 %r6, %r1, 3; setp.lt.u32 %p6, %r6, 3; setp.lt.and.u32 %p4, %r1, 96, %p6; setp.lt.and.u32 %p5, %r1, 64, %p6;\n\
    mov.u64 %rd5, 0x4000004000010000; mov.u64 %rd6, 0x4000004000010200;\n";
const WHOLE: (&str, &str) = ("setp.lt.u32 %p1, %r1, 40;", "setp.lt.u32 %p1, %r1, 72;");
const END: &str = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n";
const START: &str = "fence.proxy.async; bar.sync 0; wgmma.fence.sync.aligned;\n";

#[test]
fn a_warpgroup_multiplies_rows_and_columns_beyond_the_edge() {
    let by = |form: &str, stores: &str| {
        format!("{TILES}{START}wgmma.mma_async.sync.aligned.m64n8k16.{form};\n{END}{stores}")
    };
    let edge = "@%p4 st.global.v2.f32 [%rd4], {%f1, %f2}; @%p5 st.global.v2.f32 [%rd4+8], {%f3, %f4};";
    let sums = "f32.bf16.bf16 {%f1, %f2, %f3, %f4}";
    let body = by(&format!("{sums}, %rd5, %rd6, 0, 1, 1, 0, 0"), edge);
    // Row 40, row 48, column 6.
    let planted = [("%r1, 64, %p6", "%r1, 65, %p6"), ("%r1, 96,", "%r1, 97,"), ("%r6, 3;", "%r6, 4;")];
    finds(Kind::UninitialisedShared, 128, &body, &planted);
    let f = first(&body.replace("%r1, 64, %p6", "%r1, 65, %p6"), 128);
    assert_eq!(f.address, Some(40 * 128), "{f}");
    assert!(f.earlier.unwrap().place.instruction.starts_with("wgmma.mma_async"));
    // Of f16, two to a register.
    let halves = "@%p4 st.global.b32 [%rd4], %r10; @%p5 st.global.b32 [%rd4+8], %r11;";
    let body = by("f16.f16.f16 {%r10, %r11}, %rd5, %rd6, 0, 1, 1, 0, 0", halves);
    finds(Kind::UninitialisedShared, 128, &body, &planted);
    // The sums go through a second multiplication, with all of A and B.
    let twice = format!(
        "{sums}, %rd5, %rd6, 0, 1, 1, 0, 0;\nwgmma.mma_async.sync.aligned.m64n8k16.{sums}, {{%r5, %r5, %r5, %r5}}, %rd5, 1, 1, 1, 0"
    );
    finds(Kind::UninitialisedShared, 128, &by(&twice, edge), &planted);
}

#[test]
fn a_warpgroup_reads_columns_of_transposed_tiles() {
    // Eight columns of 16 bytes, one behind the other, and 16 rows of 64 along M, each without its last two.
    let front = "mov.u32 %r3, tile; shl.b32 %r4, %r1, 4; add.u32 %r4, %r3, %r4; mov.b32 %r5, 0x3f803f80; mul.wide.u32 %rd3, %r1, 16; add.u64 %rd4, %rd2, %rd3;\n\
                 st.shared.v2.b32 [%r4], {%r5, %r5}; st.shared.b32 [%r4+8], %r5; and.b32 %r6, %r1, 31; setp.lt.u32 %p1, %r6, 24;\n\
                 and.b32 %r6, %r1, 3; setp.lt.u32 %p2, %r6, 3; and.pred %p3, %p1, %p2; mov.u64 %rd5, 0x0000001000080000;\n";
    let by = |form: &str, guard: &str| {
        format!(
            "{front}{START}wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%f1, %f2, %f3, %f4}}, {form};\n{END}\
             @{guard} st.global.v4.f32 [%rd4], {{%f1, %f2, %f3, %f4}};"
        )
    };
    let b = by("{%r5, %r5, %r5, %r5}, %rd5, 0, 1, 1, 1", "%p2");
    finds(Kind::UninitialisedShared, 128, &b, &[("@%p2 st", "st"), ("@%p2 st", "@%p1 st")]);
    let both = by("%rd5, %rd5, 0, 1, 1, 1, 1", "%p3");
    finds(Kind::UninitialisedShared, 128, &both, &[("@%p3 st", "@%p1 st"), ("@%p3 st", "@%p2 st")]);
}

#[test]
fn a_warpgroup_takes_registers() {
    let tiles = TILES.replace(WHOLE.0, WHOLE.1).replace("1, 70, %p2", "1, 72, %p2");
    let by = |front: &str, form: &str, store: &str| {
        format!(
            "{tiles}{front}{START}wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%f1, %f2, %f3, %f4}}, {form};\n{END}{store}"
        )
    };
    let all = "st.global.v4.f32 [%rd4], {%f1, %f2, %f3, %f4};";
    let register = Kind::UninitialisedRegister;
    // What was there is not added, or is.
    finds(register, 128, &by("", "{%r5, %r5, %r5, %r5}, %rd6, 0, 1, 1, 0", all), &[("%rd6, 0,", "%rd6, 1,")]);
    let scale = "setp.eq.u32 %p7, %r1, 2000;";
    let body = by(scale, "{%r5, %r5, %r5, %r5}, %rd6, %p7, 1, 1, 0", all);
    finds(register, 128, &body, &[("%r1, 2000;", "%r1, %r1;"), (scale, "")]);
    // One lane's sums, and one lane's part of rows.
    let one = "setp.ne.u32 %p7, %r1, 127; mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; @%p7 mov.f32 %f4, %f1;\n";
    let body = by(one, "{%r5, %r5, %r5, %r5}, %rd6, 1, 1, 1, 0", &format!("@%p7 {all}"));
    finds(register, 128, &body, &[("@%p7 st", "st")]);
    let part = "setp.lt.u32 %p7, %r1, 124; setp.ne.u32 %p1, %r1, 125; @%p1 mov.b32 %r7, %r5;\n";
    let store = "st.global.v2.f32 [%rd4], {%f1, %f2}; @%p7 st.global.v2.f32 [%rd4+8], {%f3, %f4};";
    let body = by(part, "{%r5, %r5, %r5, %r7}, %rd6, 0, 1, 1, 0", store);
    finds(register, 128, &body, &[("@%p7 st", "st"), ("%r5, %r5, %r5, %r7", "%r7, %r5, %r5, %r7")]);
}

/// Four multiplications at once, each of eight lanes.
#[test]
fn quads_have_rows_and_columns_of_their_own() {
    let register = Kind::UninitialisedRegister;
    let with = |types: &str, c: usize, operand: usize, guard: &str| {
        let body = multiply(&format!("m8n8k4.row.col.{types}"), [8, 2, 2, c], operand, guard);
        finds(register, 32, &body, &[(&format!("@{guard} st"), "st")]);
    };
    with("f32.f16.f16.f32", 8, 1, "%p1");
    with("f32.f16.f16.f32", 8, 3, "%p1");
    // Added as f16, it lies by rows: those of the upper lanes.
    with("f32.f16.f16.f16", 4, 3, "%p1");
    // The last four columns, of which the lower lanes have some.
    let columns = multiply("m8n8k4.row.col.f32.f16.f16.f32", [8, 2, 2, 8], 2, "%p2")
        .replace("and.b32 %r5, %r1, 3; setp.lt.u32 %p2, %r5, 3;", "and.b32 %r5, %r1, 12; setp.ne.u32 %p2, %r5, 12;");
    finds(register, 32, &columns, &[("@%p2 st", "st"), ("@%p2 st", "@%p1 st")]);
}

/// A of 16 x 16, of which 10 rows are written, and what comes of it by wmma.
#[test]
fn wmma_multiplies_rows_beyond_the_edge() {
    let planted = |kind: Kind, body: &str, bugs: &[(&str, &str)]| {
        for (good, bad) in bugs {
            crate::zoo::check(Bug {
                name: "wmma",
                threads: 32,
                blocks: 1,
                bad: &body.replace(good, bad),
                mend: (bad, good),
                kind,
            });
        }
    };
    let front = "mov.u32 %r3, tile; shl.b32 %r4, %r1, 4; add.u32 %r4, %r3, %r4; mov.b32 %r5, 0x3c003c00; setp.lt.u32 %p1, %r1, 20; mov.f32 %f9, 0f00000000;\n\
        mul.wide.u32 %rd3, %r1, 16; add.u64 %rd4, %rd2, %rd3; add.u32 %r8, %r3, %r2; cvt.u64.u32 %rd5, %r2; add.u64 %rd5, %rd2, %rd5;\n\
        @%p1 st.shared.v4.b32 [%r4], {%r5, %r5, %r5, %r5}; @%p1 st.global.v4.b32 [%rd4], {%r5, %r5, %r5, %r5}; bar.warp.sync -1;\n";
    let multiply = "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, {%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17},\n\
        {%r5, %r5, %r5, %r5, %r5, %r5, %r5, %r5}, {%f9, %f9, %f9, %f9, %f9, %f9, %f9, %f9};\n";
    let store = "{%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, 16;\n";
    let fragment = "{%r10, %r11, %r12, %r13, %r14, %r15, %r16, %r17}";
    // The last row is the tenth.
    let used = "bar.warp.sync -1; ld.shared.f32 %f10, [%r8+4544]; st.global.f32 [%rd5+2048], %f10;";
    for (space, kind) in [("shared.f16", Kind::UninitialisedShared), ("global.f16", Kind::UninitialisedGlobal)] {
        let from = if space == "shared.f16" { "%r3" } else { "%rd2" };
        let load =
            format!("{front}wmma.load.a.sync.aligned.row.m16n16k16.{space} {fragment}, [{from}], 16;\n{multiply}");
        let kept = format!("{load}wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%r3+4096], {store}{used}");
        planted(Kind::UninitialisedShared, &kept, &[("[%r8+4544]", "[%r8+4736]"), ("[%r8+4544]", "[%r8+4668]")]);
        let whole = format!("{load}wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd2+1024], {store}");
        planted(kind, &whole.replace("%r1, 20;", "%r1, 32;"), &[("%r1, 32;", "%r1, 31;")]);
        // B is undefined by its columns, and so by the rows of its transpose.
        let turned = kept.replace("wmma.load.a.sync.aligned.row", "wmma.load.b.sync.aligned.col");
        let turned = turned
            .replace("row.row", "row.col")
            .replace(&format!("{fragment},\n"), "{%r5, %r5, %r5, %r5, %r5, %r5, %r5, %r5},\n");
        let turned =
            turned.replacen("{%r5, %r5, %r5, %r5, %r5, %r5, %r5, %r5}, {%f9", &format!("{fragment}, {{%f9"), 1);
        let turned = turned.replace(
            "st.global.f32 [%rd5+2048]",
            "and.b32 %r9, %r1, 15; setp.lt.u32 %p2, %r9, 10; @%p2 st.global.f32 [%rd5+2048]",
        );
        planted(Kind::UninitialisedShared, &turned, &[("%r9, 10;", "%r9, 11;")]);
    }
    // One lane's sums.
    let own = format!(
        "{front}mov.b32 %r10, %r5; setp.lt.u32 %p2, %r1, 28; @%p2 mov.f32 %f20, %f9;\n{}wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%r3+4096], {store}{used}",
        multiply.replace("%f9}", "%f20}").replace(fragment, "{%r5, %r5, %r5, %r5, %r5, %r5, %r5, %r5}")
    );
    planted(Kind::UninitialisedShared, &own, &[("[%r8+4544]", "[%r8+4992]")]);
    let nothing = format!("{front}wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {fragment}, [%rd2+2048], 16;");
    planted(
        Kind::UninitialisedGlobal,
        &nothing.replace("+2048", "").replace("%r1, 20;", "%r1, 32;"),
        &[("[%rd2]", "[%rd2+2048]")],
    );
}

/// Two warps store the same matrix to the same place, or each its own.
#[test]
fn warps_that_store_the_same_matrix_are_quiet() {
    let lane =
        "mov.u32 %r3, tile; shr.u32 %r4, %r1, 5; and.b32 %r5, %r1, 7; shl.b32 %r5, %r5, 4; add.u32 %r5, %r3, %r5;";
    let float = "cvt.rn.f32.u32 %f1, %r4; mov.b32 %r6, %f1;";
    let eight = |r: &str| [r; 8].join(",");
    let to = |space: &str, at: &str| {
        format!("wmma.store.d.sync.aligned.row.m16n16k16.{space}.f32 [{at}], {{{}}}, 16;", eight("%f1"))
    };
    let stores = [
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r5], {%r4};".to_owned(), Kind::SharedRace),
        ("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%r5], {%r4};".to_owned(), Kind::SharedRace),
        (to("shared", "%r3"), Kind::SharedRace),
        (to("global", "%rd2"), Kind::GlobalRace),
    ];
    for o in all_options() {
        for (store, kind) in &stores {
            for (value, caught) in [("mov.u32 %r4, 7;", false), ("", true)] {
                let b = Bug { name: "same", threads: 64, blocks: 1, bad: "", mend: ("", ""), kind: *kind };
                let found = launch(&kernel(1024, &format!("{lane} {value} {float} {store}")), &b, &o).unwrap();
                assert_eq!(found.iter().any(|f| f.kind == *kind), caught, "{store} {found:?}");
                assert!(caught || found.is_empty(), "{store} {found:?}");
            }
        }
    }
}
