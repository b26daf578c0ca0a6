//! What else CUDA C++ has (`cuda/misc.cu`).

use crate::common::*;
use warpsim::{Gpu, Kind, bf16_bits, bf16_value, f16_bits, f16_value};

fn p(a: u64) -> [u8; 8] {
    a.to_le_bytes()
}

fn ints(n: usize, seed: u64) -> Vec<i32> {
    noise(n, seed).iter().map(|v| (v * 2e9) as i32).collect()
}

#[test]
fn memory_of_every_kind() {
    let Some(ptx) = nvcc::ptx("misc") else { return };
    let x: Vec<i32> = ints(64, 1).iter().map(|v| v.rem_euclid(1 << 20)).collect();
    let f = noise(64, 2);
    let o = &all_options()[3];
    let mut g = Gpu::new();
    let (d, y) = (g.alloc_with(&bytes(&x), "x"), g.alloc(256, "y"));
    run(&mut g, &ptx, "local_arrays", 1, 64, 0, &[&p(d), &p(y)], o);
    let reversed = |mut v: i32| {
        let mut s = 0;
        while v != 0 {
            (s, v) = (s * 8 + v % 8, v / 8);
        }
        s
    };
    assert_eq!(read::<i32>(&g, y, 64), x.iter().map(|v| reversed(*v)).collect::<Vec<_>>());
    let d = g.alloc_with(&bytes(&f), "f");
    let mut params = bytes(&[0.5f32, 1.5, 2.5, 3.5, 4.5]);
    params.extend([7u8, 0, 0, 0]);
    params.extend(p(d));
    params.extend(0.25f64.to_le_bytes());
    let y = g.alloc(256, "y");
    run(&mut g, &ptx, "structures", 1, 64, 0, &[&params, &p(y)], o);
    for (i, v) in read::<f32>(&g, y, 64).iter().enumerate() {
        let want = f[i].mul_add((0.5 + (i % 5) as f32) * (1 << (i % 4)) as f32, 7.25);
        assert!((v - want).abs() < 1e-5, "{v} {want}");
    }
}

#[test]
fn functions_through_pointers() {
    let Some(ptx) = nvcc::ptx("misc") else { return };
    let x = ints(64, 3);
    for o in all_options() {
        for which in [0i32, 1] {
            let mut g = Gpu::new();
            let (d, y) = (g.alloc_with(&bytes(&x), "x"), g.alloc(256, "y"));
            run(&mut g, &ptx, "pointers", 1, 64, 0, &[&p(d), &p(y), &which.to_le_bytes()], &o);
            let op = if which == 0 { i32::wrapping_add } else { i32::wrapping_mul };
            let want: Vec<i32> = (0..64).map(|i| op(x[i], i as i32)).collect();
            assert_eq!(read::<i32>(&g, y, 64), want);
        }
    }
}

#[test]
fn packed_integers() {
    let Some(ptx) = nvcc::ptx("misc") else { return };
    let (a, b) = (ints(64, 5), ints(64, 6));
    let mut g = Gpu::new();
    let (pa, pb, y) = (g.alloc_with(&bytes(&a), "a"), g.alloc_with(&bytes(&b), "b"), g.alloc(6 * 256, "y"));
    run(&mut g, &ptx, "dots", 1, 64, 0, &[&p(pa), &p(pb), &p(y)], &all_options()[0]);
    let out = read::<i32>(&g, y, 384);
    for (i, (&a, &b)) in a.iter().zip(&b).enumerate() {
        let (x, y) = (a.to_le_bytes(), b.to_le_bytes());
        let signed: i32 = (0..4).map(|k| i32::from(x[k] as i8) * i32::from(y[k] as i8)).sum();
        let unsigned: i32 = (0..4).map(|k| i32::from(x[k]) * i32::from(y[k])).sum();
        let half = |k: usize| i32::from((a >> (16 * k)) as i16);
        let low = half(0) * i32::from(y[0] as i8) + half(1) * i32::from(y[1] as i8);
        let uhalf = |k: usize| ((a as u32 >> (16 * k)) & 0xffff) as i32;
        let high = uhalf(0) * i32::from(y[2]) + uhalf(1) * i32::from(y[3]);
        let add: [u8; 4] = std::array::from_fn(|k| x[k].wrapping_add(y[k]));
        let above: [u8; 4] = std::array::from_fn(|k| if x[k] > y[k] { 0xff } else { 0 });
        let sums = a.wrapping_add(b).max(3).wrapping_add(a.min(b).min(i as i32));
        let packed = i32::from_le_bytes(add) ^ i32::from_le_bytes(above);
        let want = [signed + 5, unsigned + 5, low + 7, high + 7, packed, sums];
        for (k, w) in want.iter().enumerate() {
            assert_eq!(out[64 * k + i], *w, "{k}: {a:#x} {b:#x}");
        }
    }
}

#[test]
fn packed_floats() {
    let Some(ptx) = nvcc::ptx("misc") else { return };
    let n = 64;
    let make =
        |seed, bits: fn(f64) -> u16| noise(2 * n, seed).iter().map(|v| bits(f64::from(*v) * 3.0)).collect::<Vec<u16>>();
    let (a, b, c) = (make(7, f16_bits), make(8, f16_bits), make(9, bf16_bits));
    let mut g = Gpu::new();
    let (pa, pb, y) = (g.alloc_with(&bytes(&a), "a"), g.alloc_with(&bytes(&b), "b"), g.alloc(24 * n, "y"));
    let (pc, q) = (g.alloc_with(&bytes(&c), "p"), g.alloc(8 * n, "q"));
    run(&mut g, &ptx, "packed", 1, 64, 0, &[&p(pa), &p(pb), &p(y), &p(pc), &p(q)], &all_options()[0]);
    let (out, q) = (read::<u16>(&g, y, 12 * n), read::<u16>(&g, q, 4 * n));
    let nearest = |v: f64| (0..=255).map(e4m3).min_by(|x, y| (x - v).abs().total_cmp(&(y - v).abs())).unwrap();
    for i in 0..2 * n {
        let (u, v, w) = (f16_value(a[i]), f16_value(b[i]), bf16_value(c[i]));
        let other = i ^ 1;
        let both = f16_value(a[i & !1]) > f16_value(b[i & !1]) && f16_value(a[i | 1]) > f16_value(b[i | 1]);
        let want = [
            (u * v + u).max(0.0),
            f16_value(f16_bits(v.abs().sqrt())).max(-u),
            u / v,
            if i & 1 == 1 || both { 1.0 } else { 0.0 },
            if f16_value(a[other]) > f16_value(b[other]) { 1.0 } else { 0.0 },
            nearest(u),
        ];
        for (k, x) in want.iter().enumerate() {
            let got = f16_value(out[2 * n * k + i]);
            let close = (got - f16_value(f16_bits(*x))).abs() <= if k == 2 { x.abs() / 1000.0 } else { 0.0 };
            assert!(close, "{k}: {got} {x} of {u} {v}");
        }
        assert_eq!(q[i], bf16_bits(w * w + 0.5));
        let exp = bf16_value(q[2 * n + i]);
        assert!((exp - w.min(w.exp())).abs() <= w.abs().max(1e-3) / 100.0, "{exp} {w}");
    }
}

#[test]
fn printing_and_asserting() {
    let Some(ptx) = nvcc::ptx("misc") else { return };
    let mut g = Gpu::new();
    let name = g.alloc_with(b"warp\0", "name");
    let o = &all_options()[0];
    let r = run(&mut g, &ptx, "says", 1, 2, 0, &[&p(name)], o);
    let line = "warp q 4000000000 -5000000000 ff 0003.142 1.000000e+10";
    assert_eq!(r.output.lines().filter(|l| l.starts_with(line) && l.ends_with('%')).count(), 2, "{}", r.output);
    let fault = try_run(&mut g, &ptx, "says", [1, 1, 1], [64, 1, 1], 0, &[&p(name)], o).unwrap_err();
    assert_eq!((fault.finding.kind, fault.finding.thread), (Kind::Assert, [32, 0, 0]));
    assert!(fault.finding.message.contains("too many"), "{fault}");
}

#[test]
fn warp_algorithms() {
    let Some(ptx) = nvcc::ptx("misc") else { return };
    let x: Vec<i32> = ints(64, 10).iter().map(|v| v >> 4).collect();
    for o in all_options() {
        let mut g = Gpu::new();
        let d = g.alloc_with(&bytes(&x), "x");
        run(&mut g, &ptx, "warps", 1, 64, 0, &[&p(d)], &o);
        for (i, v) in read::<i32>(&g, d, 64).iter().enumerate() {
            let before = x[i / 32 * 32..i].iter().fold(-1_000_000, |m, v| *v.max(&m));
            // Sums run to the next head or the end of 16 lanes.
            let end = (i + 1..64).find(|k| k % 5 == 0 || k % 16 == 0).unwrap_or(64);
            let sum = if i % 5 == 0 || i % 16 == 0 { x[i..end].iter().sum() } else { 0 };
            assert_eq!(*v, before ^ sum, "{i}");
        }
    }
}

#[test]
fn inline_assembly() {
    let Some(ptx) = nvcc::ptx("misc") else { return };
    let x: Vec<u32> = (0..64).map(|i| i * 5).collect();
    let mut g = Gpu::new();
    let (d, y) = (g.alloc_with(&bytes(&x), "x"), g.alloc(256, "y"));
    run(&mut g, &ptx, "inlined", 1, 64, 0, &[&p(d), &p(y)], &all_options()[2]);
    let want: Vec<u32> =
        x.iter().enumerate().map(|(i, a)| if *a > 100 { a / 2 } else { 1 } + a * (i as u32 % 32) + 7).collect();
    assert_eq!(read::<u32>(&g, y, 64), want);
}

#[test]
fn quotients_of_128_bits() {
    let Some(ptx) = nvcc::ptx("misc") else { return };
    // Divisors of one to four words.
    let numbers: Vec<[u128; 2]> = (0..32u32)
        .map(|i| {
            let a = (u128::from(i) + 3).pow(7).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            [a, (a.rotate_left(53) ^ 0x0123_4567_89ab_cdef) >> (i * 4 % 124) | 1]
        })
        .chain([[100, 7], [5, 3], [u128::MAX, 1], [u128::MAX, u128::MAX], [1, u128::MAX]])
        .collect();
    let words = |v: &[[u128; 2]]| v.iter().flatten().flat_map(|n| [(n >> 64) as u64, *n as u64]).collect::<Vec<_>>();
    let want: Vec<[u128; 2]> = numbers.iter().map(|[a, b]| [a / b, a % b]).collect();
    let n = numbers.len() as u32;
    let mut g = Gpu::new();
    let (x, y) = (g.alloc_with(&bytes(&words(&numbers)), "x"), g.alloc(n as usize * 32, "y"));
    run(&mut g, &ptx, "wide", 1, n, 0, &[&p(x), &p(y)], &all_options()[0]);
    assert_eq!(read::<u64>(&g, y, 4 * n as usize), words(&want));
}
