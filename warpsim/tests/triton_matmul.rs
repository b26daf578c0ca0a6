//! What Triton makes of `triton/matmul.py`: tensor cores of both generations, TMA, attention.

use crate::common::*;
use warpsim::{DataType, Gpu, Options, Swizzle, TensorMap, bf16_bits, bf16_value, f16_bits, f16_value};

fn each(name: &str, test: impl Fn(&triton::Kernel, &mut Gpu, &Options)) {
    let Some(kernel) = triton::kernel(name) else { return };
    for o in all_options() {
        println!("{name} {o:?}");
        test(&kernel, &mut Gpu::new(), &o);
    }
}

/// Eighths up to one: every element type holds them, and sums of their products are exact.
fn eighths(n: usize, seed: u64) -> Vec<i32> {
    noise(n, seed).iter().map(|v| (v * 8.0).round() as i32).collect()
}

fn encode(v: &[i32], ty: &str) -> Vec<u8> {
    let x = |v: &i32| f64::from(*v) / 8.0;
    // The 8-bit floats are the first halves of f16s, one of them with another bias.
    let e4m3 = |v: &i32| (0..=255).find(|c| e4m3(*c) == x(v)).unwrap();
    match ty {
        "f16" => v.iter().flat_map(|v| f16_bits(x(v)).to_le_bytes()).collect(),
        "bf16" => v.iter().flat_map(|v| bf16_bits(x(v)).to_le_bytes()).collect(),
        "i8" => v.iter().map(|v| *v as u8).collect(),
        "e5m2" => v.iter().map(|v| (f16_bits(x(v)) >> 8) as u8).collect(),
        "e4m3" => v.iter().map(e4m3).collect(),
        _ => v.iter().flat_map(|v| (x(v) as f32).to_le_bytes()).collect(),
    }
}

/// A (m × k) times B (k × n), in units of a 64th.
fn product(a: &[i32], b: &[i32], [m, n, k]: [usize; 3]) -> Vec<f64> {
    let dot = |r: usize, c: usize| (0..k).map(|i| a[r * k + i] * b[i * n + c]).sum::<i32>();
    (0..m * n).map(|i| f64::from(dot(i / n, i % n))).collect()
}

fn transposed(v: &[i32], rows: usize, cols: usize) -> Vec<i32> {
    (0..rows * cols).map(|i| v[i % rows * cols + i / rows]).collect()
}

/// Runs `matmul_{ty}…` with edges in every dimension.
fn matmul(name: &str, ty: &str, bt: bool, tile: [usize; 2], shape: [usize; 3]) {
    let [m, n, k] = shape;
    let (a, b) = (eighths(m * k, 1), eighths(k * n, 2));
    let want = product(&a, &b, shape);
    let b = if bt { transposed(&b, k, n) } else { b };
    each(name, |kernel, g, o| {
        let (da, db) = (g.alloc_with(&encode(&a, ty), "a"), g.alloc_with(&encode(&b, ty), "b"));
        let half = ty == "f16" || name.contains("8warps");
        let c = g.alloc(m * n * if half { 2 } else { 4 }, "c");
        let grid = [m.div_ceil(tile[0]) as u32, n.div_ceil(tile[1]) as u32, 1];
        kernel.run(g, grid, &args![da, db, c, m as i32, n as i32, k as i32], o);
        for (i, w) in want.iter().enumerate() {
            let w = w / 64.0;
            let (got, w) = match ty {
                "i8" => (f64::from(read::<i32>(g, c + 4 * i as u64, 1)[0]), w * 64.0),
                "f16" => (f16_value(read::<u16>(g, c + 2 * i as u64, 1)[0]), f16_value(f16_bits(w))),
                _ if half => (bf16_value(read::<u16>(g, c + 2 * i as u64, 1)[0]), bf16_value(bf16_bits(w))),
                _ => (f64::from(read::<f32>(g, c + 4 * i as u64, 1)[0]), w),
            };
            assert_eq!(got, w, "{name}: row {}, column {}", i / n, i % n);
        }
    });
}

macro_rules! matmuls {
    ($($test:ident $ty:literal $arches:expr;)*) => {$(#[test] fn $test() {
        let ty = stringify!($test).trim_start_matches("matmul_");
        for arch in $arches {
            for bt in [false, true] {
                let name = format!("matmul_{ty}{}_{arch}", if bt { "_t" } else { "" });
                matmul(&name, $ty, bt, [64, 64], [112, 80, 144]);
            }
        }
    })*};
}
matmuls! {
    matmul_f16 "f16" [80, 90];
    matmul_bf16 "bf16" [80, 90];
    matmul_i8 "i8" [80, 90];
    matmul_e5m2 "e5m2" [80, 90];
    matmul_e4m3 "e4m3" [90];
    matmul_tf32 "f32" [80, 90];
    matmul_tf32x3 "f32" [80, 90];
    matmul_f32 "f32" [80, 90];
}

#[test]
fn two_warpgroups() {
    matmul("matmul_8warps_90", "bf16", false, [128, 128], [144, 256, 208]);
}

#[test]
fn clusters_of_two() {
    matmul("clustered_90", "bf16", false, [128, 64], [144, 80, 208]);
}

#[test]
fn batched() {
    let (a, b) = (eighths(4096, 13), eighths(4096, 14));
    let want: Vec<f64> = (0..4).flat_map(|k| product(&a[1024 * k..], &b[1024 * k..], [32; 3])).collect();
    for arch in [80, 90] {
        each(&format!("batched_f16_{arch}"), |kernel, g, o| {
            let (da, db) = (g.alloc_with(&encode(&a, "f16"), "a"), g.alloc_with(&encode(&b, "f16"), "b"));
            let c = g.alloc(16384, "c");
            kernel.run(g, [1, 1, 1], &args![da, db, c], o);
            let got: Vec<f64> = read::<f32>(g, c, 4096).iter().map(|v| f64::from(*v) * 64.0).collect();
            assert_eq!(got, want);
        });
        let wide = |v: &[i32]| bytes(&v.iter().map(|v| f64::from(*v) / 8.0).collect::<Vec<_>>());
        each(&format!("batched_f64_{arch}"), |kernel, g, o| {
            let (da, db) = (g.alloc_with(&wide(&a), "a"), g.alloc_with(&wide(&b), "b"));
            let c = g.alloc(32768, "c");
            kernel.run(g, [1, 1, 1], &args![da, db, c], o);
            assert_eq!(read::<f64>(g, c, 4096), want.iter().map(|w| w / 64.0).collect::<Vec<_>>());
        });
    }
}

#[test]
fn split_k() {
    let shape = [64, 96, 576];
    let (a, b) = (eighths(64 * 576, 3), eighths(576 * 96, 4));
    let want = product(&a, &b, shape);
    for arch in [80, 90] {
        each(&format!("split_k_{arch}"), |kernel, g, o| {
            let (da, db) = (g.alloc_with(&encode(&a, "f16"), "a"), g.alloc_with(&encode(&b, "f16"), "b"));
            let (c, lock) = (g.alloc(4 * want.len(), "c"), g.alloc_with(&[0; 24], "lock"));
            kernel.run(g, [6, 3, 1], &args![da, db, c, lock, 64i32, 96i32, 576i32], o);
            let got: Vec<f64> = read::<f32>(g, c, want.len()).iter().map(|v| f64::from(*v) * 64.0).collect();
            assert_eq!(got, want);
            assert_eq!(read::<i32>(g, lock, 6), [0; 6]);
        });
    }
}

/// A tensor map of 16-bit floats as Triton's launcher makes it, followed by shape and strides.
fn descriptor(kernel: &triton::Kernel, nth: usize, at: u64, shape: [u64; 2], tile: [u32; 2]) -> Vec<Vec<u8>> {
    let swizzle = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128][kernel.swizzles[nth] as usize];
    let dims = [shape[1], shape[0]];
    let map = TensorMap::tiled(DataType::F16, at, &dims, &[2 * dims[0]], &[tile[1], tile[0]], swizzle).unwrap();
    let mut all = vec![map.encode().to_vec()];
    all.extend(args![shape[0] as u32, shape[1] as u32, shape[1], 1u64]);
    all
}

#[test]
fn descriptors_from_the_host() {
    let [m, n, k] = [192usize, 80, 592];
    let (a, b) = (eighths(m * k, 5), eighths(k * n, 6));
    let want = product(&a, &b, [m, n, k]);
    let b = transposed(&b, k, n);
    each("host_descriptors_90", |kernel, g, o| {
        let (da, db) = (g.alloc_with(&encode(&a, "f16"), "a"), g.alloc_with(&encode(&b, "f16"), "b"));
        let c = g.alloc(2 * m * n, "c");
        let mut args = descriptor(kernel, 0, da, [m as u64, k as u64], [64, 64]);
        args.extend(descriptor(kernel, 1, db, [n as u64, k as u64], [64, 64]));
        args.extend(descriptor(kernel, 2, c, [m as u64, n as u64], [64, 64]));
        args.extend(args![k as i32]);
        kernel.run(g, [3, 2, 1], &args, o);
        let want: Vec<u16> = want.iter().map(|w| f16_bits(w / 64.0)).collect();
        assert_eq!(read::<u16>(g, c, m * n), want);
    });
}

#[test]
fn warp_specialised() {
    device_descriptors("specialised_90", true, [144, 80, 592], [2, 2, 1]);
}

#[test]
fn descriptors_made_by_the_kernel() {
    device_descriptors("device_descriptors_90", false, [144, 264, 272], [3, 1, 1]);
}

fn device_descriptors(name: &str, bt: bool, shape: [usize; 3], grid: [u32; 3]) {
    let [m, n, k] = shape;
    let (a, b) = (eighths(m * k, 7), eighths(k * n, 8));
    let want: Vec<u16> = product(&a, &b, shape).iter().map(|w| bf16_bits(w / 64.0)).collect();
    let b = if bt { transposed(&b, k, n) } else { b };
    each(name, |kernel, g, o| {
        let (da, db) = (g.alloc_with(&encode(&a, "bf16"), "a"), g.alloc_with(&encode(&b, "bf16"), "b"));
        let c = g.alloc(2 * m * n, "c");
        kernel.run(g, grid, &args![da, db, c, m as i32, n as i32, k as i32], o);
        assert_eq!(read::<u16>(g, c, m * n), want);
    });
}

#[test]
fn reductions_by_tma() {
    let x = eighths(80 * 64, 9);
    each("descriptor_atomics_90", |kernel, g, o| {
        let (d, out) = (g.alloc_with(&encode(&x, "f32"), "x"), g.alloc_with(&[0; 4096], "out"));
        kernel.run(g, [3, 2, 1], &args![d, out, 80i32, 64i32], o);
        for (i, v) in read::<f32>(g, out, 1024).iter().enumerate() {
            // The tiles start eight rows above the tensor; rows outside it are zero.
            let rows = (0..3).map(|t| (t * 32 + i / 32).wrapping_sub(8)).filter(|r| *r < 80);
            let want: i32 = rows.map(|r| x[r * 64 + i % 32] + x[r * 64 + 32 + i % 32]).sum();
            assert_eq!(f64::from(*v), f64::from(want) / 8.0);
        }
    });
}

fn attention(name: &str, causal: bool) {
    let (heads, t, d) = (2usize, 192usize, 64usize);
    let make = |seed| noise(heads * t * d, seed).iter().map(|v| bf16_bits(f64::from(v * 2.0))).collect::<Vec<u16>>();
    let (q, k, v) = (make(10), make(11), make(12));
    let scale = 0.125;
    let mut want = vec![];
    for h in 0..heads {
        let at = |x: &[u16], r: usize, c: usize| bf16_value(x[(h * t + r) * d + c]);
        for r in 0..t {
            let seen = if causal { r + 1 } else { t };
            let p: Vec<f64> =
                (0..seen).map(|n| ((0..d).map(|c| at(&q, r, c) * at(&k, n, c)).sum::<f64>() * scale).exp()).collect();
            let sum: f64 = p.iter().sum();
            want.extend((0..d).map(|c| p.iter().enumerate().map(|(n, p)| p * at(&v, n, c)).sum::<f64>() / sum));
        }
    }
    for arch in [80, 90] {
        each(&format!("{name}_{arch}"), |kernel, g, o| {
            let [dq, dk, dv] = [(&q, "q"), (&k, "k"), (&v, "v")].map(|(x, n)| g.alloc_with(&bytes(x), n));
            let out = g.alloc(2 * q.len(), "out");
            kernel.run(g, [3, 2, 1], &args![dq, dk, dv, out, t as i32, scale as f32], o);
            for (i, (got, w)) in read::<u16>(g, out, q.len()).iter().zip(&want).enumerate() {
                assert!((bf16_value(*got) - w).abs() <= 0.01 * w.abs().max(0.5), "[{i}]: {} {w}", bf16_value(*got));
            }
        });
    }
}

#[test]
fn flash_attention() {
    attention("attention", false);
}

#[test]
fn flash_attention_causal() {
    attention("attention_causal", true);
}
