//! Matrix instructions that few use: the four multiplications of m8n8k4, doubles that round otherwise, elements of four bits and one.

use crate::common::*;
use warpsim::{Gpu, f16_bits, f16_value};

/// Runs one warp over what lies at `[%x1]`, which is `%x2` for a lane's words, and returns what it leaves there.
fn words(body: &str, before: &[u32]) -> Vec<u32> {
    let text = format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n\
         .reg .b32 %r<30>; .reg .b64 %x<9>; .reg .f64 %d<20>; .reg .f32 %f<9>; .shared .align 32 .b8 tile[512];\n\
         ld.param.u64 %x1, [p]; mov.u32 %r1, %laneid; mul.wide.u32 %x2, %r1, 4; add.u64 %x2, %x1, %x2;\n{body}\nret;\n}}"
    );
    let mut found = vec![];
    for o in all_options() {
        let mut g = Gpu::new();
        let p = g.alloc_with(&bytes(before), "words");
        run(&mut g, &text, "k", 1, 32, 0, &[&p.to_le_bytes()], &o);
        found.push(read::<u32>(&g, p, before.len()));
    }
    assert!(found.iter().all(|f| *f == found[0]), "{body}");
    found.remove(0)
}

fn half(words: &[u32], k: usize) -> f64 {
    f16_value((words[k / 2] >> (16 * (k % 2))) as u16)
}

/// Halves of whole numbers: sums of products are exact in any order.
fn halves(n: usize) -> Vec<u32> {
    let one = |k: usize| u32::from(f16_bits((k * 37 % 23) as f64 / 2.0 - 5.0));
    (0..n).map(|k| one(2 * k) | one(2 * k + 1) << 16).collect()
}

#[test]
fn four_multiplications_at_once() {
    // Lane l's two words of A lie at 64 · 0 + 2l, those of B behind them, then eight or four words of C, and D as many.
    for (la, lb) in [("row", "col"), ("col", "col"), ("row", "row"), ("col", "row")] {
        for (d, c) in [("f32", "f32"), ("f32", "f16"), ("f16", "f16")] {
            let regs = |t: &str, first: usize| {
                let n = if t == "f32" { 8 } else { 4 };
                (first..first + n).map(|k| format!("%r{k}")).collect::<Vec<_>>()
            };
            let (rd, rc) = (regs(d, 22), regs(c, 8));
            let load: String =
                rc.iter().enumerate().map(|(k, r)| format!("ld.global.u32 {r}, [%x2+{}];\n", 512 + 128 * k)).collect();
            let save: String =
                rd.iter().enumerate().map(|(k, r)| format!("st.global.u32 [%x2+{}], {r};\n", 1536 + 128 * k)).collect();
            let body = format!(
                "ld.global.u32 %r2, [%x2]; ld.global.u32 %r3, [%x2+128]; ld.global.u32 %r4, [%x2+256]; ld.global.u32 %r5, [%x2+384];\n{load}\
                 mma.sync.aligned.m8n8k4.{la}.{lb}.{d}.f16.f16.{c} {{{}}}, {{%r2, %r3}}, {{%r4, %r5}}, {{{}}};\n{save}",
                rd.join(", "),
                rc.join(", ")
            );
            let mut data = halves(128);
            let start = |k: usize| (k % 19) as f64 - 9.0;
            match c {
                "f32" => data.extend((0..256).map(|k| (start(k) as f32).to_bits())),
                _ => data.extend(halves(128).into_iter().chain([0; 128])),
            }
            data.extend([0; 256]);
            let got = words(&body, &data);
            // The element `i` of lane `l`, of registers that lie one behind the other.
            let of = |at: usize, l: usize, i: usize| half(&[data[at + 32 * (i / 2) + l]], i % 2);
            // The tables of the PTX ISA, from an element back to the lane and its index.
            let lane = |q: usize, x: usize| 4 * q + x % 4 + if x < 4 { 0 } else { 16 };
            let a = |q, row: usize, k: usize| match la {
                "row" => of(0, lane(q, row), k),
                _ => of(0, lane(q, k + row / 4 * 4), row % 4),
            };
            let b = |q, k: usize, col: usize| match lb {
                "col" => of(64, lane(q, col), k),
                _ => of(64, lane(q, k + col / 4 * 4), col % 4),
            };
            let wide = |l: usize, i: usize| ((l & 1) + (i & 2) + l / 16 * 4, (i & 4) + (l & 2) + (i & 1));
            let narrow = |l: usize, i: usize| (l % 4 + l / 16 * 4, i);
            let place = |t: &str, l, i| if t == "f32" { wide(l, i) } else { narrow(l, i) };
            let mut before = [[[0.0; 8]; 8]; 4];
            for (l, i) in (0..32).flat_map(|l| (0..8).map(move |i| (l, i))) {
                let (row, col) = place(c, l, i);
                before[l % 16 / 4][row][col] = match c {
                    "f32" => start(32 * i + l),
                    _ => of(128, l, i),
                };
            }
            for (l, i) in (0..32).flat_map(|l| (0..8).map(move |i| (l, i))) {
                let (q, (row, col)) = (l % 16 / 4, place(d, l, i));
                let want = (0..4).fold(before[q][row][col], |sum, k| sum + a(q, row, k) * b(q, k, col));
                let value = match d {
                    "f32" => f64::from(f32::from_bits(got[384 + 32 * i + l])),
                    _ => half(&[got[384 + 32 * (i / 2) + l]], i % 2),
                };
                assert_eq!(value, want, "{la} {lb} {d} {c}: lane {l}, element {i}");
            }
        }
    }
}

#[test]
fn doubles_round_as_they_are_told() {
    // 1 + 2⁻⁶⁰ · 2 in every element: A is 2⁻⁶⁰, B 0.5, C 1.
    for (mode, want) in [("rn", 1.0f64), ("rz", 1.0), ("rm", 1.0), ("rp", 1.0 + 4.0 * f64::EPSILON)] {
        let mma = format!(
            "mov.f64 %d1, 0d3c30000000000000; mov.f64 %d2, 0d3fe0000000000000; mov.f64 %d3, 0d3ff0000000000000;\n\
             mma.sync.aligned.m16n8k4.row.col.{mode}.f64.f64.f64.f64 {{%d4, %d5, %d6, %d7}}, {{%d1, %d1}}, {{%d2}}, {{%d3, %d3, %d3, %d3}};\n\
             @%p1 st.global.f64 [%x1], %d7;"
        );
        let wmma = format!(
            "mov.f64 %d1, 0d3c30000000000000; mov.f64 %d2, 0d3fe0000000000000; mov.f64 %d3, 0d3ff0000000000000;\n\
             wmma.mma.sync.aligned.row.col.m8n8k4.{mode}.f64.f64.f64.f64 {{%d6, %d7}}, {{%d1}}, {{%d2}}, {{%d3, %d3}};\n\
             @%p1 st.global.f64 [%x1], %d7;"
        );
        for body in [mma, wmma] {
            let got = words(&format!(".reg .pred %p1; setp.eq.u32 %p1, %r1, 9;\n{body}"), &[0, 0]);
            assert_eq!(f64::from_bits(u64::from(got[0]) | u64::from(got[1]) << 32), want, "{mode}");
        }
    }
}

#[test]
fn small_elements_in_whole_matrices() {
    let data: Vec<u32> = (0..192u32).map(|k| k.wrapping_mul(0x9e37_79b9) ^ k << 7).collect();
    // The element `k` of row `row`; rows of A and columns of B have four words each.
    let bits = |at: usize, width: usize, row: usize, k: usize| {
        data[at + 4 * row + k * width / 32] >> (k * width % 32) & ((1 << width) - 1)
    };
    let signed = |v: u32| (v << 28) as i32 >> 28;
    for (op, a, b, width, k) in [
        ("", "s4", "s4", 4, 32),
        ("", "u4", "u4", 4, 32),
        (".xor.popc", "b1", "b1", 1, 128),
        (".and.popc", "b1", "b1", 1, 128),
    ] {
        // B by way of shared memory.
        let body = format!(
            "ld.global.u32 %r2, [%x2+128]; mov.u32 %r3, tile; mad.lo.u32 %r4, %r1, 4, %r3; st.shared.u32 [%r4], %r2; bar.warp.sync -1;\n\
             wmma.load.a.sync.aligned.row.m8n8k{k}.global.{a} {{%r5}}, [%x1], {k};\n\
             wmma.load.b.sync.aligned.col.m8n8k{k}.shared.{b} {{%r6}}, [%r3];\n\
             add.u64 %x3, %x1, 256; wmma.load.c.sync.aligned.row.m8n8k{k}.global.s32 {{%r7, %r8}}, [%x3], 8;\n\
             wmma.mma{op}.sync.aligned.row.col.m8n8k{k}.s32.{a}.{b}.s32 {{%r7, %r8}}, {{%r5}}, {{%r6}}, {{%r7, %r8}};\n\
             add.u64 %x3, %x1, 512; wmma.store.d.sync.aligned.row.m8n8k{k}.global.s32 [%x3], {{%r7, %r8}}, 8;"
        );
        let got = words(&body, &data);
        for (row, col) in (0..64).map(|e| (e / 8, e % 8)) {
            let product = |x: usize| {
                let (x, y) = (bits(0, width, row, x), bits(32, width, col, x));
                match (op, a) {
                    (".xor.popc", _) => (x ^ y) as i32,
                    (_, "s4") => signed(x) * signed(y),
                    _ => (x * y) as i32,
                }
            };
            let want = (0..k).fold(data[64 + 8 * row + col], |sum, x| sum.wrapping_add_signed(product(x)));
            assert_eq!(got[128 + 8 * row + col], want, "{op} {a} row {row} column {col}");
        }
    }
}
