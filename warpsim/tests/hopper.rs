//! sm_90: tensor copies with every swizzle, clusters, wgmma with its descriptors.
#![allow(clippy::precedence)]

use crate::common::*;
use warpsim::{DataType, Gpu, Kind, Launch, Module, Options, Report, Swizzle, TensorMap, bf16_bits, bf16_value};

const HEAD: &str = ".version 8.0\n.target sm_90a\n.address_size 64\n";

fn launch(g: &mut Gpu, text: &str, l: &Launch<'_>, o: &Options) -> Report {
    let k = Module::parse(text).unwrap_or_else(|e| panic!("{e}")).kernel("k").unwrap_or_else(|e| panic!("{e}"));
    let r = g.launch(&k, l, o).unwrap_or_else(|f| panic!("{f}"));
    assert!(r.clean(), "{}", r.findings[0]);
    r
}

/// Loads a 2-D tile, waits, and dumps shared memory to `q` as it lies there.
fn load_kernel(bytes: usize) -> String {
    format!(
        "{HEAD}.visible .entry k(.param .align 64 .b8 map[128], .param .u64 q, .param .u32 x, .param .u32 y)\n{{\n\
         .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<9>; .shared .align 1024 .b8 tile[{bytes}]; .shared .align 8 .b64 bar;\n\
         ld.param.u64 %rd1, [q]; ld.param.u32 %r1, [x]; ld.param.u32 %r2, [y]; mov.u32 %r3, %tid.x; mov.b64 %rd2, map; cvta.param.u64 %rd3, %rd2;\n\
         mov.u32 %r4, tile; mov.u32 %r5, bar; setp.eq.u32 %p1, %r3, 0;\n\
         @%p1 mbarrier.init.shared::cta.b64 [%r5], 1; @%p1 fence.mbarrier_init.release.cluster; bar.sync 0; @!%p1 bra W;\n\
         mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], {bytes};\n\
         cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r4], [%rd3, {{%r1, %r2}}], [%r5];\n\
         W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], 0; @!%p2 bra W;\n\
         shl.b32 %r6, %r3, 2;\nL: add.u32 %r7, %r4, %r6; ld.shared.u32 %r8, [%r7]; cvt.u64.u32 %rd4, %r6; add.u64 %rd4, %rd4, %rd1; st.global.u32 [%rd4], %r8;\n\
         add.u32 %r6, %r6, 256; setp.lt.u32 %p3, %r6, {bytes}; @%p3 bra L;\nret;\n}}"
    )
}

#[test]
fn tensor_loads_swizzle_and_fill_edges() {
    let (w, h) = (72usize, 40usize);
    let src: Vec<u16> = (0..(w * h) as u16).map(|v| v + 1).collect();
    for (swizzle, bits, cols) in
        [(Swizzle::None, 0, 24), (Swizzle::B32, 1, 16), (Swizzle::B64, 3, 32), (Swizzle::B128, 7, 64)]
    {
        for o in all_options() {
            for (x, y) in [(0, 0), (40, 24), (-8, -3), (64, 39), (200, 0)] {
                let mut g = Gpu::new();
                let p = g.alloc_with(&bytes(&src), "tensor");
                let n = cols * 16 * 2;
                let q = g.alloc(n, "dump");
                let map = TensorMap::tiled(
                    DataType::U16,
                    p,
                    &[w as u64, h as u64],
                    &[2 * w as u64],
                    &[cols as u32, 16],
                    swizzle,
                )
                .unwrap()
                .encode();
                let args: [&[u8]; 4] = [&map, &q.to_le_bytes(), &i32::to_le_bytes(x), &i32::to_le_bytes(y)];
                launch(&mut g, &load_kernel(n), &Launch { block: [64, 1, 1], args: &args, ..Launch::default() }, &o);
                let raw = g.read_vec(q, n).unwrap();
                for r in 0..16usize {
                    for c in 0..cols {
                        let linear = 2 * (r * cols + c);
                        let at = linear ^ (linear >> 7 & bits) << 4;
                        let (gx, gy) = (x as i64 + c as i64, y as i64 + r as i64);
                        let inside = (0..w as i64).contains(&gx) && (0..h as i64).contains(&gy);
                        let want = if inside { src[gy as usize * w + gx as usize] } else { 0 };
                        assert_eq!(
                            u16::from_le_bytes([raw[at], raw[at + 1]]),
                            want,
                            "{swizzle:?} at ({x},{y}): ({r},{c})"
                        );
                    }
                }
            }
        }
    }
}

/// Stores a 2-D tile of words, each of its own number, by `what`.
fn store_kernel(what: &str) -> String {
    format!(
        "{HEAD}.visible .entry k(.param .u64 mapp, .param .u32 x, .param .u32 y)\n{{\n.reg .pred %p<4>; .reg .b32 %r<20>; .reg .f32 %f<4>; .reg .b64 %rd<9>;\n\
         .shared .align 1024 .b8 tile[1024];\nld.param.u64 %rd1, [mapp]; ld.param.u32 %r1, [x]; ld.param.u32 %r2, [y]; mov.u32 %r3, %tid.x; mov.u32 %r4, tile;\n\
         cvt.rn.f32.u32 %f1, %r3; shl.b32 %r5, %r3, 2; add.u32 %r6, %r4, %r5; st.shared.f32 [%r6], %f1; fence.proxy.async.shared::cta; bar.sync 0;\n\
         setp.eq.u32 %p1, %r3, 0; @!%p1 bra D;\n{what} [%rd1, {{%r1, %r2}}]{};\ncp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\nD: ret;\n}}",
        if what.contains("prefetch") { "" } else { ", [%r4]" }
    )
}

const STORES: [&str; 2] = [
    "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group",
    "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group",
];

#[test]
fn tensor_stores_clip_and_reduce() {
    for o in all_options() {
        for (what, start) in [(STORES[0], false), (STORES[1], true)] {
            let mut g = Gpu::new();
            let p = g.alloc_with(&bytes(&vec![0.5f32; 20 * 12]), "tensor");
            let map = TensorMap::tiled(DataType::F32, p, &[20, 12], &[80], &[16, 16], Swizzle::None).unwrap().encode();
            let m = g.alloc_with(&map, "map");
            let args: [&[u8]; 3] = [&m.to_le_bytes(), &8u32.to_le_bytes(), &2u32.to_le_bytes()];
            launch(&mut g, &store_kernel(what), &Launch { block: [256, 1, 1], args: &args, ..Launch::default() }, &o);
            let out = read::<f32>(&g, p, 240);
            for y in 0..12usize {
                for x in 0..20usize {
                    let sum = || ((y - 2) * 16 + x - 8) as f32 + if start { 0.5 } else { 0.0 };
                    let want = if x >= 8 && y >= 2 { sum() } else { 0.5 };
                    assert_eq!(out[y * 20 + x], want, "({x},{y})");
                }
            }
        }
    }
}

/// Each of these ends a kernel on an H200, or does not.
#[test]
fn tensor_copies_start_at_packs_and_stores_inside() {
    let prefetch = "cp.async.bulk.prefetch.tensor.2d.L2.global.tile";
    let between =
        |x| format!("a tensor copy from element {x} of the innermost dimension: a multiple of 4 (16 bytes) is needed");
    let ahead = |x: i32, d: u32| {
        format!("a tensor store from {x} in dimension {d}: stores and reductions cannot start ahead of the tensor")
    };
    for o in all_options() {
        let run = |what: &str, x: i32, y: i32| {
            let kernel = Module::parse(&store_kernel(what)).unwrap().kernel("k").unwrap();
            let mut g = Gpu::new();
            let p = g.alloc_with(&bytes(&vec![0.5f32; 20 * 12]), "tensor");
            let map = TensorMap::tiled(DataType::F32, p, &[20, 12], &[80], &[16, 16], Swizzle::None).unwrap().encode();
            let m = g.alloc_with(&map, "map");
            let args: [&[u8]; 3] = [&m.to_le_bytes(), &x.to_le_bytes(), &y.to_le_bytes()];
            let launched = g.launch(&kernel, &Launch { block: [256, 1, 1], args: &args, ..Launch::default() }, &o);
            launched.err().map(|fault| (fault.finding.kind, fault.finding.message))
        };
        for what in [STORES[0], STORES[1], prefetch] {
            for (x, y) in [(16, 0), (20, 0), (400, 0), (0, 11), (0, 12), (0, 99)] {
                assert_eq!(run(what, x, y), None, "{what} from ({x}, {y})");
            }
            for x in [-1, 1, 2, 18] {
                assert_eq!(run(what, x, 0), Some((Kind::IllegalInstruction, between(x))), "{what}");
            }
            let refused = |x, d| (what != prefetch).then(|| (Kind::IllegalInstruction, ahead(x, d)));
            assert_eq!(run(what, -4, 0), refused(-4, 0), "{what}");
            assert_eq!(run(what, 4, -1), refused(-1, 1), "{what}");
            assert_eq!(run(what, 0, -16), refused(-16, 1), "{what}");
        }
    }
}

#[test]
fn clusters_share_memory_and_multicast() {
    // Each block writes its rank into its neighbour, then rank 0 multicasts 256 bytes to both.
    let text = format!(
        "{HEAD}.visible .entry k(.param .u64 p, .param .u64 q)\n.reqnctapercluster 2, 1, 1\n{{\n.reg .pred %p<4>; .reg .b32 %r<20>; .reg .b16 %h<2>; .reg .b64 %rd<9>;\n\
         .shared .align 128 .b8 tile[256]; .shared .align 8 .b64 bar; .shared .align 4 .u32 word;\n\
         ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %tid.x; setp.eq.u32 %p1, %r2, 0; mov.u32 %r3, bar; mov.u32 %r4, tile;\n\
         @%p1 mbarrier.init.shared::cta.b64 [%r3], 1; @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 256; fence.mbarrier_init.release.cluster;\n\
         mov.u32 %r5, word; xor.b32 %r6, %r1, 1; mapa.shared::cluster.u32 %r7, %r5, %r6;\n\
         barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\n\
         add.u32 %r8, %r1, 100; @%p1 st.shared::cluster.u32 [%r7], %r8; setp.eq.and.u32 %p2, %r1, 0, %p1; mov.u16 %h1, 3;\n\
         @%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r4], [%rd1], 256, [%r3], %h1;\n\
         W: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], 0; @!%p3 bra W;\n\
         barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\n\
         ld.shared.u32 %r9, [word]; shl.b32 %r10, %r2, 2; add.u32 %r11, %r4, %r10; ld.shared.u32 %r12, [%r11]; add.u32 %r12, %r12, %r9;\n\
         mov.u32 %r13, %ctaid.x; mad.lo.u32 %r14, %r13, 256, %r10; cvt.u64.u32 %rd3, %r14; add.u64 %rd3, %rd3, %rd2; st.global.u32 [%rd3], %r12;\nret;\n}}"
    );
    for o in all_options() {
        let mut g = Gpu::new();
        let data: Vec<u32> = (0..64).map(|v| v * 1000).collect();
        let (p, q) = (g.alloc_with(&bytes(&data), "in"), g.alloc(1024, "out"));
        let args: [&[u8]; 2] = [&p.to_le_bytes(), &q.to_le_bytes()];
        launch(&mut g, &text, &Launch { grid: [4, 1, 1], block: [64, 1, 1], args: &args, ..Launch::default() }, &o);
        let out = read::<u32>(&g, q, 256);
        for (i, v) in out.iter().enumerate() {
            assert_eq!(*v, data[i % 64] + 100 + (i as u32 / 64 % 2 ^ 1));
        }
    }
}

/// A warpgroup multiplies 64 × K by K × N from raw shared memory and stores its accumulators.
fn wgmma(n: usize, types: &str, a: &str, rest: &str, desc_a: u64, desc_b: u64) -> String {
    let regs: Vec<String> = (0..n / 2).map(|r| format!("%f{r}")).collect();
    let zero: String = regs.iter().map(|r| format!("mov.b32 {r}, 0;\n")).collect();
    let stores: String = (0..n / 2).map(|r| format!("st.global.b32 [%rd6+{}], %f{r};\n", 512 * r)).collect();
    format!(
        "{HEAD}.visible .entry k(.param .u64 p, .param .u64 q)\n{{\n.reg .pred %p<4>; .reg .b32 %f<128>; .reg .b32 %r<20>; .reg .b64 %rd<9>; .shared .align 1024 .b8 tile[32768];\n\
         ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, %r2; mov.u32 %r4, tile;\n\
         L: cvt.u64.u32 %rd3, %r3; add.u64 %rd3, %rd3, %rd1; ld.global.u32 %r5, [%rd3]; add.u32 %r6, %r4, %r3; st.shared.u32 [%r6], %r5;\n\
         add.u32 %r3, %r3, 512; setp.lt.u32 %p1, %r3, 32768; @%p1 bra L;\nfence.proxy.async.shared::cta; bar.sync 0;\n\
         ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%rd1]; mul.wide.u32 %rd3, %r1, 16; add.u64 %rd3, %rd3, %rd1; ld.global.v4.u32 {{%r10, %r11, %r12, %r13}}, [%rd3+24576];\n\
         mov.u64 %rd4, {desc_a}; mov.u64 %rd5, {desc_b};\n{zero}wgmma.fence.sync.aligned;\n\
         wgmma.mma_async.sync.aligned.{types} {{{}}}, {a}, %rd5, {rest};\nwgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n\
         mul.wide.u32 %rd6, %r1, 4; add.u64 %rd6, %rd6, %rd2;\n{stores}ret;\n}}",
        regs.join(", ")
    )
}

fn desc(start: usize, lbo: usize, sbo: usize, swizzle: u64) -> u64 {
    (start >> 4) as u64 | ((lbo >> 4) as u64) << 16 | ((sbo >> 4) as u64) << 32 | swizzle << 62
}

/// Accumulator `c` of thread `t`: row and column.
fn acc(t: usize, c: usize) -> (usize, usize) {
    (t / 32 * 16 + t % 32 / 4 + if c & 2 != 0 { 8 } else { 0 }, c / 4 * 8 + t % 4 * 2 + (c & 1))
}

fn run_wgmma(text: &str, smem: &[u8], n: usize, want: impl Fn(usize, usize) -> f64, int: bool) {
    for o in all_options() {
        let mut g = Gpu::new();
        let (p, q) = (g.alloc_with(smem, "tiles"), g.alloc(512 * n / 2, "acc"));
        let args: [&[u8]; 2] = [&p.to_le_bytes(), &q.to_le_bytes()];
        launch(&mut g, text, &Launch { block: [128, 1, 1], args: &args, ..Launch::default() }, &o);
        let out = read::<u32>(&g, q, 128 * n / 2);
        for t in 0..128 {
            for c in 0..n / 2 {
                let (row, col) = acc(t, c);
                let got = out[c * 128 + t];
                let got = if int { f64::from(got as i32) } else { f64::from(f32::from_bits(got)) };
                let w = want(row, col);
                assert!((got - w).abs() <= 1e-4 * w.abs().max(1.0), "({row},{col}): {got} {w}");
            }
        }
    }
}

fn put16(smem: &mut [u8], at: usize, v: f32) {
    smem[at..at + 2].copy_from_slice(&bf16_bits(v.into()).to_le_bytes());
}

fn bf(v: f32) -> f64 {
    bf16_value(bf16_bits(v.into()))
}

#[test]
fn wgmma_reads_every_layout() {
    let n = 16;
    let (a, b) = (noise(64 * 16, 1), noise(n * 16, 2));
    let want = |r: usize, c: usize| (0..16).map(|k| bf(a[r * 16 + k]) * bf(b[c * 16 + k])).sum::<f64>();
    let types = "m64n16k16.f32.bf16.bf16";
    // K-major: rows of the swizzle's width, groups of eight rows `stride` apart; without swizzle, 8 × 16-byte core matrices.
    for (code, span, bits) in [(0u64, 16usize, 0usize), (3, 32, 1), (2, 64, 3), (1, 128, 7)] {
        let mut s = vec![0u8; 32768];
        let sbo = if code == 0 { 256 } else { 8 * span };
        let at = |base: usize, row: usize, k: usize| {
            let lin = if code == 0 {
                row / 8 * sbo + k / 8 * 128 + row % 8 * 16 + k % 8 * 2
            } else {
                row / 8 * sbo + row % 8 * span + 2 * k
            };
            let x = base + lin;
            x ^ (x >> 7 & bits) << 4
        };
        for k in 0..16 {
            (0..64).for_each(|r| put16(&mut s, at(0, r, k), a[r * 16 + k]));
            (0..n).for_each(|c| put16(&mut s, at(16384, c, k), b[c * 16 + k]));
        }
        let text = wgmma(n, types, "%rd4", "1, 1, 1, 0, 0", desc(0, 128, sbo, code), desc(16384, 128, sbo, code));
        run_wgmma(&text, &s, n, want, false);
        // A from registers, negated.
        for t in 0..128 {
            for i in 0..8usize {
                let (row, k) = (
                    t / 32 * 16 + t % 32 / 4 + if i & 2 != 0 { 8 } else { 0 },
                    t % 4 * 2 + (i & 1) + if i >= 4 { 8 } else { 0 },
                );
                put16(&mut s, 24576 + 16 * t + 2 * i, a[row * 16 + k]);
            }
        }
        let text = wgmma(n, types, "{%r10, %r11, %r12, %r13}", "1, -1, 1, 0", 0, desc(16384, 128, sbo, code));
        run_wgmma(&text, &s, n, |r, c| -want(r, c), false);
    }
}

#[test]
fn wgmma_reads_transposed_tiles() {
    // M/N-major with the 128-byte swizzle: 64 elements of m or n a row, k down the rows.
    let n = 64;
    let (a, b) = (noise(64 * 16, 1), noise(n * 16, 2));
    let mut s = vec![0u8; 32768];
    let at = |base: usize, mn: usize, k: usize| {
        let x = base + k / 8 * 1024 + k % 8 * 128 + 2 * mn;
        x ^ (x >> 7 & 7) << 4
    };
    for k in 0..16 {
        (0..64).for_each(|r| put16(&mut s, at(0, r, k), a[r * 16 + k]));
        (0..n).for_each(|c| put16(&mut s, at(16384, c, k), b[c * 16 + k]));
    }
    let text = wgmma(
        n,
        "m64n64k16.f32.bf16.bf16",
        "%rd4",
        "1, 1, 1, 1, 1",
        desc(0, 4096, 1024, 1),
        desc(16384, 4096, 1024, 1),
    );
    run_wgmma(&text, &s, n, |r, c| (0..16).map(|k| bf(a[r * 16 + k]) * bf(b[c * 16 + k])).sum(), false);
}

#[test]
fn wgmma_reads_tiles_that_start_off_the_pattern() {
    // The swizzle's pattern starts with the tile, at a multiple of 128 bytes only: the base offset says so.
    let n = 16;
    let (a, b) = (noise(64 * 16, 1), noise(n * 16, 2));
    let want = |r: usize, c: usize| (0..16).map(|k| bf(a[r * 16 + k]) * bf(b[c * 16 + k])).sum::<f64>();
    let types = "m64n16k16.f32.bf16.bf16";
    for (code, span, bits) in [(3, 32, 1), (2, 64, 3), (1, 128, 7)] {
        for (row_a, row_b, skip) in [(1, 0, 0), (0, 3, span - 32), (7, 6, 0), (5, 2, span - 32)] {
            let mut s = vec![0u8; 32768];
            let (start_a, start_b) = (128 * row_a, 16384 + 128 * row_b);
            let at = |start: usize, row: usize, k: usize| {
                let lin = row * span + skip + 2 * k;
                start + (lin ^ (lin >> 7 & bits) << 4)
            };
            for k in 0..16 {
                (0..64).for_each(|r| put16(&mut s, at(start_a, r, k), a[r * 16 + k]));
                (0..n).for_each(|c| put16(&mut s, at(start_b, c, k), b[c * 16 + k]));
            }
            // A step along k moves the address and not the pattern.
            let one = |start: usize, row: usize| desc(start + skip, 16, 8 * span, code) | (row as u64) << 49;
            let text = wgmma(n, types, "%rd4", "1, 1, 1, 0, 0", one(start_a, row_a), one(start_b, row_b));
            run_wgmma(&text, &s, n, want, false);
        }
    }
}

#[test]
fn wgmma_eight_bit() {
    let n = 8;
    let (a, b): (Vec<i8>, Vec<i8>) = (
        noise(64 * 32, 1).iter().map(|v| (v * 127.0) as i8).collect(),
        noise(n * 32, 2).iter().map(|v| (v * 127.0) as i8).collect(),
    );
    let mut s = vec![0u8; 32768];
    let at = |base: usize, row: usize, k: usize| {
        let x = base + row / 8 * 256 + row % 8 * 32 + k;
        x ^ (x >> 7 & 1) << 4
    };
    for k in 0..32 {
        (0..64).for_each(|r| s[at(0, r, k)] = a[r * 32 + k] as u8);
        (0..n).for_each(|c| s[at(16384, c, k)] = b[c * 32 + k] as u8);
    }
    let text = wgmma(n, "m64n8k32.s32.s8.s8", "%rd4", "1", desc(0, 16, 256, 3), desc(16384, 16, 256, 3));
    run_wgmma(&text, &s, n, |r, c| (0..32).map(|k| f64::from(a[r * 32 + k]) * f64::from(b[c * 32 + k])).sum(), true);
}

#[test]
fn wgmma_of_single_bits() {
    let n = 8;
    let byte = |seed: u32, k: usize| ((k as u32 + seed).wrapping_mul(0x9e37_79b9) >> 13) as u8;
    let mut s = vec![0u8; 32768];
    let at = |base: usize, row: usize, k: usize| {
        let x = base + row / 8 * 256 + row % 8 * 32 + k;
        x ^ (x >> 7 & 1) << 4
    };
    for k in 0..32 {
        (0..64).for_each(|r| s[at(0, r, k)] = byte(1, r * 32 + k));
        (0..n).for_each(|c| s[at(16384, c, k)] = byte(5000, c * 32 + k));
    }
    let in_common = |r: usize, c: usize| {
        (0..32).map(|k| f64::from((byte(1, r * 32 + k) & byte(5000, c * 32 + k)).count_ones())).sum()
    };
    let text = wgmma(n, "m64n8k256.s32.b1.b1.and.popc", "%rd4", "1", desc(0, 16, 256, 3), desc(16384, 16, 256, 3));
    run_wgmma(&text, &s, n, in_common, true);
    // A's fragments: a register has 32 bits of a row.
    for (t, r) in (0..128).flat_map(|t| (0..4).map(move |r| (t, r))) {
        let (row, word) = (t / 32 * 16 + t % 32 / 4 + r % 2 * 8, t % 4 + r / 2 * 4);
        (0..4).for_each(|e| s[24576 + 16 * t + 4 * r + e] = byte(1, row * 32 + 4 * word + e));
    }
    let text = wgmma(n, "m64n8k256.s32.b1.b1.and.popc", "{%r10, %r11, %r12, %r13}", "1", 0, desc(16384, 16, 256, 3));
    run_wgmma(&text, &s, n, in_common, true);
}
