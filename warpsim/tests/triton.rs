//! What Triton makes of `triton/simple.py`: reductions, scans, conversions, atomics, locks.

use crate::common::*;
use warpsim::{Gpu, Kind, Options, Report, bf16_bits, bf16_value, f16_bits, f16_value};

/// Runs both architectures' kernel under every option: allocates, launches, and looks at the result.
fn every(name: &str, test: impl Fn(&triton::Kernel, &mut Gpu, &Options)) {
    for arch in [80, 90] {
        each(&format!("{name}_{arch}"), &test);
    }
}

fn each(name: &str, test: impl Fn(&triton::Kernel, &mut Gpu, &Options)) {
    let Some(kernel) = triton::kernel(name) else { return };
    for o in all_options() {
        println!("{name} {o:?}");
        test(&kernel, &mut Gpu::new(), &o);
    }
}

fn close(got: &[f32], want: impl IntoIterator<Item = f64>, tolerance: f64) {
    let mut n = 0;
    for (g, w) in got.iter().zip(want) {
        let d = (f64::from(*g) - w).abs();
        assert!(d <= tolerance * w.abs().max(1.0), "[{n}]: {g}, not {w}");
        n += 1;
    }
    assert_eq!(n, got.len());
}

#[test]
fn element_wise() {
    let n = 3000;
    let (x, y) = (noise(n, 1), noise(n, 2));
    every("add", |k, g, o| {
        let (dx, dy, out) = (g.alloc_with(&bytes(&x), "x"), g.alloc_with(&bytes(&y), "y"), g.alloc(4 * n, "out"));
        k.run(g, [3, 1, 1], &args![dx, dy, out, 3000i32], o);
        close(&read(g, out, n), x.iter().zip(&y).map(|(a, b)| f64::from(a + b)), 0.0);
    });
}

#[test]
fn softmax() {
    let (rows, cols, stride) = (3, 784, 800);
    let x: Vec<f32> = noise(rows * stride, 3).iter().map(|v| v * 9.0).collect();
    every("softmax", |k, g, o| {
        let (d, out) = (g.alloc_with(&bytes(&x), "x"), g.alloc(4 * x.len(), "out"));
        k.run(g, [3, 1, 1], &args![d, out, stride as i32, cols as i32], o);
        for r in 0..rows {
            let row: Vec<f64> = x[r * stride..][..cols].iter().map(|v| f64::from(*v).exp()).collect();
            let sum: f64 = row.iter().sum();
            close(&read(g, out + 4 * (r * stride) as u64, cols), row.iter().map(|v| v / sum), 1e-6);
        }
    });
}

#[test]
fn layer_norm() {
    let (rows, cols) = (3, 592);
    let x: Vec<u16> = noise(rows * cols, 4).iter().map(|v| f16_bits(f64::from(v * 3.0 + 1.0))).collect();
    let (w, b) = (noise(cols, 5), noise(cols, 6));
    every("layer_norm", |k, g, o| {
        let (d, out) = (g.alloc_with(&bytes(&x), "x"), g.alloc(2 * x.len(), "out"));
        let (dw, db) = (g.alloc_with(&bytes(&w), "w"), g.alloc_with(&bytes(&b), "b"));
        k.run(g, [3, 1, 1], &args![d, out, dw, db, cols as i32, 1e-5f32], o);
        for r in 0..rows {
            let row: Vec<f64> = x[r * cols..][..cols].iter().map(|v| f16_value(*v)).collect();
            let mean = row.iter().sum::<f64>() / cols as f64;
            let scale = 1.0 / (row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / cols as f64 + 1e-5).sqrt();
            let want = row.iter().zip(&w).zip(&b).map(|((v, w), b)| (v - mean) * scale * f64::from(*w) + f64::from(*b));
            let got: Vec<f32> =
                read::<u16>(g, out + 2 * (r * cols) as u64, cols).iter().map(|v| f16_value(*v) as f32).collect();
            close(&got, want, 2e-3);
        }
    });
}

#[test]
fn functions() {
    let n = 512;
    let x: Vec<f32> = noise(n, 7).iter().map(|v| v * 4.0).collect();
    every("math", |k, g, o| {
        let (d, out) = (g.alloc_with(&bytes(&x), "x"), g.alloc(4 * 8 * n, "out"));
        k.run(g, [2, 1, 1], &args![d, out, n as i32], o);
        let f: [fn(f64) -> f64; 8] = [
            f64::sin,
            |v| 1.0 / (1.0 + (-v).exp()),
            f64::tanh,
            erf,
            |v| v.abs().log2() + v.exp2(),
            |v| 1.0 / v.abs().sqrt() + v.floor() - v.ceil(),
            |v| v.abs().powf(1.7) + v.atan2(f64::from(0.3f32)),
            |v| f16_value(f16_bits(v)) + bf16_value(bf16_bits(v)),
        ];
        for (i, f) in f.iter().enumerate() {
            close(&read(g, out + 4 * (i * n) as u64, n), x.iter().map(|v| f(f64::from(*v))), 2e-6);
        }
    });
}

/// The error function's series.
fn erf(x: f64) -> f64 {
    let (mut sum, mut term) = (x, x);
    for n in 1..120 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * std::f64::consts::FRAC_2_SQRT_PI
}

#[test]
fn eight_bit_floats() {
    // Values in between the formats' own, so that rounding shows; all in range.
    let x: Vec<f32> = noise(512, 8).iter().enumerate().map(|(i, v)| v * [0.002, 0.1, 3.0, 200.0][i % 4]).collect();
    for (name, value) in [("fp8_e4m3", e4m3 as fn(u8) -> f64), ("fp8_e5m2", e5m2), ("fp8_e5m2_80", e5m2)] {
        each(name, |k, g, o| {
            let (d, out, back) = (g.alloc_with(&bytes(&x), "x"), g.alloc(512, "out"), g.alloc(2048, "back"));
            k.run(g, [1, 1, 1], &args![d, out, back, 512i32], o);
            let codes = read::<u8>(g, out, 512);
            close(&read(g, back, 512), codes.iter().map(|c| value(*c)), 0.0);
            for (c, v) in codes.iter().zip(&x) {
                let error = |c: u8| (value(c) - f64::from(*v)).abs();
                let best = (0..=255).map(error).filter(|e| !e.is_nan()).fold(f64::MAX, f64::min);
                assert_eq!(error(*c), best, "{v} became {}", value(*c));
            }
        });
    }
}

#[test]
fn integers() {
    let n = 512;
    let make = |seed| noise(n, seed).iter().map(|v| (v * 2e9) as i32 >> (v.to_bits() % 24)).collect::<Vec<i32>>();
    let (x, y): (Vec<i32>, Vec<i32>) = (make(9), make(10).iter().map(|v| v | 1).collect());
    every("integers", |k, g, o| {
        let (dx, dy, out) = (g.alloc_with(&bytes(&x), "x"), g.alloc_with(&bytes(&y), "y"), g.alloc(24 * n, "out"));
        k.run(g, [2, 1, 1], &args![dx, dy, out, n as i32], o);
        let out = read::<i32>(g, out, 6 * n);
        for (i, (&a, &b)) in x.iter().zip(&y).enumerate() {
            let want = [
                a.wrapping_div(b),
                a.wrapping_rem(b),
                ((u64::from(a as u32) * u64::from(b as u32)) >> 32) as i32,
                if a > b { a << (b & 7) } else { a >> (b & 15) },
                a.wrapping_add(b - 1).wrapping_div(b) ^ a.wrapping_mul(b),
                a.min(b) | a.max(b) & !a,
            ];
            for (j, w) in want.iter().enumerate() {
                assert_eq!(out[j * n + i], *w, "{j}: {a} {b}");
            }
        }
    });
}

#[test]
fn random_numbers() {
    // Philox 4×32-10 with the offset as the first counter word.
    let philox = |seed: u32, c: u32| {
        let (mut c, mut k) = ([c, 0, 0, 0], [seed, 0u32]);
        for _ in 0..10 {
            let (a, b) = (u64::from(c[0]) * 0xd251_1f53, u64::from(c[2]) * 0xcd9e_8d57);
            c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
            k = [k[0].wrapping_add(0x9e37_79b9), k[1].wrapping_add(0xbb67_ae85)];
        }
        c[0]
    };
    every("random", |k, g, o| {
        let out = g.alloc(2048, "out");
        k.run(g, [2, 1, 1], &args![out, 4711i32], o);
        let want: Vec<u32> = (0..512).map(|i| philox(4711, i)).collect();
        assert_eq!(read::<u32>(g, out, 512), want);
    });
}

#[test]
fn scans() {
    let x: Vec<f32> = noise(2048, 11).iter().map(|v| (v * 64.0).round()).collect();
    every("cumsum", |k, g, o| {
        let (d, out) = (g.alloc_with(&bytes(&x), "x"), g.alloc(16384, "out"));
        k.run(g, [1, 1, 1], &args![d, out], o);
        let out = read::<f32>(g, out, 4096);
        for (r, c) in (0..32).flat_map(|r| (0..64).map(move |c| (r, c))) {
            assert_eq!(out[r * 64 + c], (0..=c).map(|c| x[r * 64 + c]).sum::<f32>());
            assert_eq!(out[2048 + r * 64 + c], (r..32).map(|r| x[r * 64 + c]).sum::<f32>());
        }
    });
    let (a, b) = (noise(512, 12), noise(512, 13));
    every("recurrence", |k, g, o| {
        let (da, db, out) = (g.alloc_with(&bytes(&a), "a"), g.alloc_with(&bytes(&b), "b"), g.alloc(2048, "out"));
        k.run(g, [1, 1, 1], &args![da, db, out], o);
        let want = a.iter().zip(&b).scan(0.0, |h, (a, b)| {
            *h = *h * f64::from(*a) + f64::from(*b);
            Some(*h)
        });
        close(&read(g, out, 512), want, 1e-5);
    });
}

#[test]
fn extremes_and_sorting() {
    let x = noise(3 * 512, 14);
    every("arg_extremes", |k, g, o| {
        let (d, v, i) = (g.alloc_with(&bytes(&x), "x"), g.alloc(12, "value"), g.alloc(24, "index"));
        k.run(g, [3, 1, 1], &args![d, v, i], o);
        let (v, i) = (read::<f32>(g, v, 3), read::<i32>(g, i, 6));
        for (r, row) in x.chunks(512).enumerate() {
            let (max, min) = row.iter().fold((f32::MIN, f32::MAX), |(a, b), v| (a.max(*v), b.min(*v)));
            assert_eq!((v[r], row[i[2 * r] as usize], row[i[2 * r + 1] as usize]), (max, max, min));
        }
    });
    let x: Vec<i32> = noise(512, 15).iter().map(|v| (v * 1e9) as i32).collect();
    every("sort", |k, g, o| {
        let (d, out) = (g.alloc_with(&bytes(&x), "x"), g.alloc(2048, "out"));
        k.run(g, [2, 1, 1], &args![d, out], o);
        for (got, part) in read::<i32>(g, out, 512).chunks(256).zip(x.chunks(256)) {
            let mut want = part.to_vec();
            want.sort_unstable();
            assert_eq!(got, want);
        }
    });
}

#[test]
fn histogram() {
    let x: Vec<i32> = (0..2000).map(|i| i * i % 61).collect();
    every("histogram", |k, g, o| {
        let (d, out) = (g.alloc_with(&bytes(&x), "x"), g.alloc_with(&[0; 256], "out"));
        k.run(g, [4, 1, 1], &args![d, out, 2000i32], o);
        let want: Vec<i32> = (0..64).map(|b| x.iter().filter(|v| **v == b).count() as i32).collect();
        assert_eq!(read::<i32>(g, out, 64), want);
    });
}

#[test]
fn moving_data() {
    let (rows, cols) = (80, 144);
    let x = noise(rows * cols, 16);
    every("transpose", |k, g, o| {
        let (d, out) = (g.alloc_with(&bytes(&x), "x"), g.alloc(4 * x.len(), "out"));
        k.run(g, [2, 3, 1], &args![d, out, rows as i32, cols as i32], o);
        close(&read(g, out, x.len()), (0..x.len()).map(|i| f64::from(x[i % rows * cols + i / rows])), 0.0);
    });
    let index: Vec<i32> = (0..2048).map(|i| i * 37 % 64).collect();
    every("gather", |k, g, o| {
        let (d, i) = (g.alloc_with(&bytes(&x[..2048]), "x"), g.alloc_with(&bytes(&index), "index"));
        let out = g.alloc(8192, "out");
        k.run(g, [1, 1, 1], &args![d, i, out], o);
        close(&read(g, out, 2048), (0..2048).map(|i| f64::from(x[index[i] as usize * 32 + i % 32])), 0.0);
    });
}

#[test]
fn atomics() {
    let n = 1000;
    let x: Vec<f32> = noise(n, 17).iter().map(|v| (v * 16.0).round() / 4.0).collect();
    every("atomics", |k, g, o| {
        let mut start = vec![0f32; 20];
        (start[1], start[2]) = (f32::MIN, f32::MAX);
        let (d, f) = (g.alloc_with(&bytes(&x), "x"), g.alloc_with(&bytes(&start), "f"));
        let (h, i) = (g.alloc_with(&[0; 32], "h"), g.alloc_with(&[0; 12], "i"));
        k.run(g, [4, 1, 1], &args![d, f, h, i, n as i32], o);
        let f = read::<f32>(g, f, 20);
        // The programs' maxima and minima include the zeros of the tail.
        assert_eq!(
            f[..3],
            [x.iter().sum(), x.iter().copied().fold(0.0, f32::max), x.iter().copied().fold(0.0, f32::min)]
        );
        let h = read::<u16>(g, h, 16);
        for k in 0..16 {
            let want: f32 = x.iter().skip(k).step_by(16).sum();
            assert_eq!((f[4 + k], f16_value(h[k]) as f32), (want, want));
        }
        assert_eq!(read::<i32>(g, i, 3), [1 | 2 | 3 | 4, 3, 7]);
    });
}

#[test]
fn half_atomics() {
    let x: Vec<u16> = (0..256).map(|i| bf16_bits(f64::from(i % 8))).collect();
    every("half_atomics", |k, g, o| {
        let (d, out) = (g.alloc_with(&bytes(&x), "x"), g.alloc_with(&[0; 512], "out"));
        k.run(g, [1, 1, 1], &args![d, out, 256i32], o);
        for (i, v) in read::<u16>(g, out, 256).iter().enumerate() {
            let pair = if i < 128 { (2 * i % 8) + (2 * i + 1) % 8 } else { 0 };
            assert_eq!(bf16_value(*v), (i % 8 + pair) as f64, "{i}");
        }
    });
}

#[test]
fn blocks_that_wait_for_each_other() {
    let x: Vec<f32> = noise(2304, 18).iter().map(|v| (v * 64.0).round()).collect();
    every("last_block", |k, g, o| {
        let (d, part) = (g.alloc_with(&bytes(&x), "x"), g.alloc(64, "part"));
        let (count, out) = (g.alloc_with(&[0; 4], "count"), g.alloc(4, "out"));
        k.run(g, [9, 1, 1], &args![d, part, count, out, x.len() as i32], o);
        assert_eq!(read::<f32>(g, out, 1)[0], x.iter().sum::<f32>());
    });
    every("locked", |k, g, o| {
        let (d, out, lock) = (g.alloc_with(&bytes(&x), "x"), g.alloc(1024, "out"), g.alloc_with(&[0; 8], "lock"));
        k.run(g, [9, 1, 1], &args![d, out, lock, 256i32], o);
        let want = (0..256).map(|c| x.iter().skip(c).step_by(256).map(|v| f64::from(*v)).sum());
        close(&read(g, out, 256), want, 0.0);
    });
    let x: Vec<i32> = (0..1536).map(|i| i * 7919 % 100).collect();
    every("chained_scan", |k, g, o| {
        let (d, out) = (g.alloc_with(&bytes(&x), "x"), g.alloc(4 * x.len(), "out"));
        let (flags, sums) = (g.alloc_with(&[0; 24], "flags"), g.alloc(24, "sums"));
        k.run(g, [6, 1, 1], &args![d, out, flags, sums], o);
        let want: Vec<i32> = x
            .iter()
            .scan(0, |s, v| {
                *s += v;
                Some(*s)
            })
            .collect();
        assert_eq!(read::<i32>(g, out, x.len()), want);
    });
}

#[test]
fn printing_and_asserting() {
    let x: Vec<f32> = (0..32).map(|i| i as f32 + 0.5).collect();
    every("printing", |k, g, o| {
        let d = g.alloc_with(&bytes(&x), "x");
        let said =
            |r: Report| r.output.lines().map(|l| l.rsplit(' ').next().unwrap().parse().unwrap()).collect::<Vec<f32>>();
        assert_eq!(said(k.run(g, [1, 1, 1], &args![d], o)), x);
    });
    every("asserting", |k, g, o| {
        let mut x: Vec<i32> = (0..128).map(|i| i % 100).collect();
        let d = g.alloc_with(&bytes(&x), "x");
        k.run(g, [1, 1, 1], &args![d], o);
        assert_eq!(read::<i32>(g, d, 128), x.iter().map(|v| v + 1).collect::<Vec<_>>());
        x[77] = 100;
        g.write(d, &bytes(&x)).unwrap();
        let fault = k.launch(g, [1, 1, 1], &args![d], o).unwrap_err();
        assert_eq!(fault.finding.kind, Kind::Assert);
        assert!(fault.finding.message.contains("too large") && fault.finding.thread == [77, 0, 0], "{fault}");
    });
}
