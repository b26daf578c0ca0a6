//! `mma.sync`: fragment layouts written down from the PTX ISA's tables, results against plain loops.
#![allow(clippy::precedence)]

use crate::common::*;
use warpsim::{Gpu, Options, bf16_bits, bf16_value, f16_bits, f16_value};

/// Where element `i` of a lane's fragment lies: (row, column).
type Place = fn(usize, usize) -> (usize, usize);

struct Case {
    name: &'static str,
    op: &'static str,
    mnk: [usize; 3],
    /// Elements a register in A and B.
    per: usize,
    encode: fn(f32) -> u32,
    value: fn(u32) -> f64,
    a: Place,
    b: Place,
    int: bool,
}

fn c_place(lane: usize, i: usize) -> (usize, usize) {
    (lane / 4 + if i >= 2 { 8 } else { 0 }, lane % 4 * 2 + (i & 1))
}

fn a16(l: usize, i: usize) -> (usize, usize) {
    (l / 4 + if matches!(i, 2 | 3 | 6 | 7) { 8 } else { 0 }, l % 4 * 2 + (i & 1) + if i >= 4 { 8 } else { 0 })
}
fn b16(l: usize, i: usize) -> (usize, usize) {
    (l % 4 * 2 + (i & 1) + if i >= 2 { 8 } else { 0 }, l / 4)
}
fn a8(l: usize, i: usize) -> (usize, usize) {
    (l / 4 + if i % 8 >= 4 { 8 } else { 0 }, l % 4 * 4 + (i & 3) + if i >= 8 { 16 } else { 0 })
}
fn b8(l: usize, i: usize) -> (usize, usize) {
    (l % 4 * 4 + (i & 3) + if i >= 4 { 16 } else { 0 }, l / 4)
}
fn a32(l: usize, i: usize) -> (usize, usize) {
    (l / 4 + if i & 1 == 1 { 8 } else { 0 }, l % 4 + if i >= 2 { 4 } else { 0 })
}
fn b32(l: usize, i: usize) -> (usize, usize) {
    (l % 4 + 4 * i, l / 4)
}

/// e4m3 from the definition: sign, 4 exponent bits with bias 7, 3 mantissa bits.
fn e4m3(bits: u32) -> f64 {
    let (e, m) = ((bits >> 3 & 15) as i32, f64::from(bits & 7));
    let v = if e == 0 { m / 8.0 * 2f64.powi(-6) } else { (1.0 + m / 8.0) * 2f64.powi(e - 7) };
    if bits & 128 != 0 { -v } else { v }
}

fn cases() -> Vec<Case> {
    let f16 = |v: f32| u32::from(f16_bits(v.into()));
    let bf16 = |v: f32| u32::from(bf16_bits(v.into()));
    let tf32 = |v: f32| v.to_bits() & !0x1fff;
    let s8 = |v: f32| (v * 127.0) as i8 as u8 as u32;
    let fp8 = |v: f32| (v.abs() * 100.0) as u32 & 0x7f & !8 | u32::from(v < 0.0) << 7;
    vec![
        Case {
            name: "f16 k16",
            op: "m16n8k16.row.col.f32.f16.f16.f32",
            mnk: [16, 8, 16],
            per: 2,
            encode: f16,
            value: |b| f16_value(b as u16),
            a: a16,
            b: b16,
            int: false,
        },
        Case {
            name: "f16 k8",
            op: "m16n8k8.row.col.f32.f16.f16.f32",
            mnk: [16, 8, 8],
            per: 2,
            encode: f16,
            value: |b| f16_value(b as u16),
            a: a16,
            b: b16,
            int: false,
        },
        Case {
            name: "bf16 k16",
            op: "m16n8k16.row.col.f32.bf16.bf16.f32",
            mnk: [16, 8, 16],
            per: 2,
            encode: bf16,
            value: |b| bf16_value(b as u16),
            a: a16,
            b: b16,
            int: false,
        },
        Case {
            name: "tf32 k8",
            op: "m16n8k8.row.col.f32.tf32.tf32.f32",
            mnk: [16, 8, 8],
            per: 1,
            encode: tf32,
            value: |b| f32::from_bits(b).into(),
            a: a32,
            b: b32,
            int: false,
        },
        Case {
            name: "tf32 k4",
            op: "m16n8k4.row.col.f32.tf32.tf32.f32",
            mnk: [16, 8, 4],
            per: 1,
            encode: tf32,
            value: |b| f32::from_bits(b).into(),
            a: a32,
            b: b32,
            int: false,
        },
        Case {
            name: "e4m3 k32",
            op: "m16n8k32.row.col.f32.e4m3.e4m3.f32",
            mnk: [16, 8, 32],
            per: 4,
            encode: fp8,
            value: e4m3,
            a: a8,
            b: b8,
            int: false,
        },
        Case {
            name: "s8 k32",
            op: "m16n8k32.row.col.s32.s8.s8.s32",
            mnk: [16, 8, 32],
            per: 4,
            encode: s8,
            value: |b| f64::from(b as i8),
            a: a8,
            b: b8,
            int: true,
        },
        Case {
            name: "s8 k16",
            op: "m16n8k16.row.col.satfinite.s32.s8.s8.s32",
            mnk: [16, 8, 16],
            per: 4,
            encode: s8,
            value: |b| f64::from(b as i8),
            a: a8,
            b: b8,
            int: true,
        },
    ]
}

#[test]
fn fragments_and_products() {
    for c in cases() {
        let [m, n, k] = c.mnk;
        let (na, nb) = (m * k / 32 / c.per, n * k / 32 / c.per);
        let list = |base: usize, n: usize| (base..base + n).map(|r| format!("%r{r}")).collect::<Vec<_>>().join(",");
        let loads: String =
            (0..na + nb + 4).map(|r| format!("ld.global.b32 %r{}, [%rd3+{}];\n", 10 + r, 128 * r)).collect();
        let text = format!(
            ".version 8.4\n.target sm_89\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u64 q)\n{{\n.reg .b32 %r<64>; .reg .b64 %rd<9>;\n\
             ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; mov.u32 %r1, %laneid; mul.wide.u32 %rd4, %r1, 4; add.u64 %rd3, %rd1, %rd4;\n{loads}\
             mma.sync.aligned.{} {{%r2,%r3,%r4,%r5}}, {{{}}}, {{{}}}, {{{}}};\nadd.u64 %rd3, %rd2, %rd4;\n\
             st.global.b32 [%rd3], %r2; st.global.b32 [%rd3+128], %r3; st.global.b32 [%rd3+256], %r4; st.global.b32 [%rd3+384], %r5;\nret;\n}}",
            c.op,
            list(10, na),
            list(10 + na, nb),
            list(10 + na + nb, 4)
        );
        let a: Vec<u32> = noise(m * k, 1).into_iter().map(c.encode).collect();
        let b: Vec<u32> = noise(k * n, 2).into_iter().map(c.encode).collect();
        let start: Vec<f32> = noise(m * n, 3).iter().map(|v| (v * 100.0).round()).collect();
        // One row of 32 words a register.
        let mut words = vec![0u32; 32 * (na + nb + 4)];
        for lane in 0..32 {
            for i in 0..na * c.per {
                let (row, col) = (c.a)(lane, i);
                words[i / c.per * 32 + lane] |= a[row * k + col] << (32 / c.per * (i % c.per)) as u32 % 32;
            }
            for i in 0..nb * c.per {
                let (row, col) = (c.b)(lane, i);
                words[(na + i / c.per) * 32 + lane] |= b[row * n + col] << (32 / c.per * (i % c.per)) as u32 % 32;
            }
            for i in 0..4 {
                let (row, col) = c_place(lane, i);
                let v = start[row * n + col];
                words[(na + nb + i) * 32 + lane] = if c.int { v as i32 as u32 } else { v.to_bits() };
            }
        }
        let mut g = Gpu::new();
        let (p, q) = (g.alloc_with(&bytes(&words), "fragments"), g.alloc(512, "d"));
        run(&mut g, &text, "k", 1, 32, 0, &[&p.to_le_bytes(), &q.to_le_bytes()], &all_options()[0]);
        let out = read::<u32>(&g, q, 128);
        for lane in 0..32 {
            for i in 0..4 {
                let (row, col) = c_place(lane, i);
                let sum: f64 = (0..k).map(|x| (c.value)(a[row * k + x]) * (c.value)(b[x * n + col])).sum();
                let want = f64::from(start[row * n + col]) + sum;
                let got = out[i * 32 + lane];
                let got = if c.int { f64::from(got as i32) } else { f64::from(f32::from_bits(got)) };
                let tol = if c.int { 0.0 } else { 1e-5 * want.abs().max(1.0) };
                assert!((got - want).abs() <= tol, "{} ({row},{col}): {got} {want}", c.name);
            }
        }
    }
}

/// C += A·B of 8 × 4 and 4 × 8 doubles: A by rows, B by columns, C by rows, one behind the other.
#[test]
fn doubles() {
    let module = |body: &str| {
        format!(
            ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{
             .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f64 %d<9>;
             ld.param.u64 %rd1, [p]; mov.u32 %r1, %laneid; mul.wide.u32 %rd2, %r1, 8; add.u64 %rd2, %rd1, %rd2; add.u64 %rd3, %rd1, 256;
             mul.wide.u32 %rd4, %r1, 16; add.u64 %rd4, %rd1, %rd4; add.u64 %rd5, %rd1, 512;\n{body}\nret; }}"
        )
    };
    let mma = "ld.global.f64 %d1, [%rd2]; ld.global.f64 %d2, [%rd2+256]; ld.global.v2.f64 {%d3, %d4}, [%rd4+512];
               mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d3, %d4}, {%d1}, {%d2}, {%d3, %d4}; st.global.v2.f64 [%rd4+512], {%d3, %d4};";
    let wmma = "wmma.load.a.sync.aligned.row.m8n8k4.global.f64 {%d1}, [%rd1], 4; wmma.load.b.sync.aligned.col.m8n8k4.global.f64 {%d2}, [%rd3], 4;
                wmma.load.c.sync.aligned.row.m8n8k4.global.f64 {%d3, %d4}, [%rd5], 8;
                wmma.mma.sync.aligned.row.col.m8n8k4.rn.f64.f64.f64.f64 {%d3, %d4}, {%d1}, {%d2}, {%d3, %d4};
                wmma.store.d.sync.aligned.row.m8n8k4.global.f64 [%rd5], {%d3, %d4}, 8;";
    let data: Vec<f64> = (0..128).map(|i| f64::from(i * 37 % 101) + 2f64.powi(-40)).collect();
    let (a, b, c) = (&data[..32], &data[32..64], &data[64..]);
    let sum = |k: usize| (0..4).fold(c[k], |sum, x| a[k / 8 * 4 + x].mul_add(b[k % 8 * 4 + x], sum));
    let want: Vec<u64> = (0..64).map(|k| sum(k).to_bits()).collect();
    for body in [mma, wmma] {
        for options in all_options() {
            let mut g = Gpu::new();
            let p = g.alloc_with(&bytes(&data.iter().map(|v| v.to_bits()).collect::<Vec<_>>()), "matrices");
            let report = run(&mut g, &module(body), "k", 1, 32, 0, &[&p.to_le_bytes()], &options);
            assert!(report.clean(), "{:?}", report.findings);
            assert_eq!(read::<u64>(&g, p + 512, 64), want, "{body}");
        }
    }
}

#[test]
fn ldmatrix_stmatrix_movmatrix() {
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u64 q)\n{
        .reg .b32 %r<40>; .reg .b64 %rd<9>; .shared .align 16 .b8 in[512]; .shared .align 16 .b8 out[1536];
        ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; mov.u32 %r1, %laneid; mul.wide.u32 %rd4, %r1, 16; add.u64 %rd3, %rd1, %rd4;
        ld.global.v4.b32 {%r2,%r3,%r4,%r5}, [%rd3]; shl.b32 %r6, %r1, 4; mov.u32 %r7, in; add.u32 %r7, %r7, %r6; mov.u32 %r8, out; add.u32 %r8, %r8, %r6;
        st.shared.v4.b32 [%r7], {%r2,%r3,%r4,%r5}; bar.warp.sync -1;
        ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10,%r11,%r12,%r13}, [%r7];
        stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r8], {%r10,%r11,%r12,%r13};
        ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r14,%r15,%r16,%r17}, [%r7];
        stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r8+512], {%r14,%r15,%r16,%r17};
        movmatrix.sync.aligned.m8n8.trans.b16 %r10, %r10; movmatrix.sync.aligned.m8n8.trans.b16 %r11, %r11;
        movmatrix.sync.aligned.m8n8.trans.b16 %r12, %r12; movmatrix.sync.aligned.m8n8.trans.b16 %r13, %r13;
        stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r8+1024], {%r10,%r11,%r12,%r13}; bar.warp.sync -1;
        add.u64 %rd5, %rd2, %rd4;
        ld.shared.v4.b32 {%r2,%r3,%r4,%r5}, [%r8]; st.global.v4.b32 [%rd5], {%r2,%r3,%r4,%r5};
        ld.shared.v4.b32 {%r2,%r3,%r4,%r5}, [%r8+512]; st.global.v4.b32 [%rd5+512], {%r2,%r3,%r4,%r5};
        ld.shared.v4.b32 {%r2,%r3,%r4,%r5}, [%r8+1024]; st.global.v4.b32 [%rd5+1024], {%r2,%r3,%r4,%r5};
        ret; }";
    let data: Vec<u16> = (0..256).collect();
    let mut g = Gpu::new();
    let (p, q) = (g.alloc_with(&bytes(&data), "in"), g.alloc(1536, "out"));
    run(&mut g, text, "k", 1, 32, 0, &[&p.to_le_bytes(), &q.to_le_bytes()], &all_options()[1]);
    let out = read::<u16>(&g, q, 768);
    let transposed: Vec<u16> = (0..256u16).map(|i| i / 64 * 64 + i % 8 * 8 + i / 8 % 8).collect();
    assert_eq!(out[..256], data, "there and back");
    assert_eq!(out[256..512], transposed, "transposed on the way in");
    assert_eq!(out[512..], data, "transposed twice");
}

#[test]
fn sm80_fragment_holds_two_neighbours() {
    // The low half of register 0 of lane 5 is row 1, columns 2 and 3 (lane 5: group 1, thread 1).
    assert_eq!((a16(5, 0), a16(5, 1)), ((1, 2), (1, 3)));
    let _ = Options::default();
}
