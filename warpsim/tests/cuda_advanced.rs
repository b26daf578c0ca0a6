//! Kernels that use CUDA's own libraries (`cuda/advanced.cu`): barriers, pipelines, cooperative groups, half types, atomics.

use crate::common::*;
use warpsim::{Checks, Gpu, Options, bf16_bits, bf16_value, f16_bits, f16_value};

fn p(a: u64) -> [u8; 8] {
    a.to_le_bytes()
}

#[test]
fn warp_specialised() {
    let Some(ptx) = nvcc::ptx("advanced") else { return };
    let x = noise(96 * 7, 1);
    for o in all_options() {
        let mut g = Gpu::new();
        let (d, y) = (g.alloc_with(&bytes(&x), "x"), g.alloc(4 * x.len(), "y"));
        run(&mut g, &ptx, "specialised", 1, 128, 0, &[&p(d), &p(y), &7u32.to_le_bytes()], &o);
        assert!(read::<f32>(&g, y, x.len()).iter().zip(&x).all(|(a, b)| *a == b * 2.0));
    }
}

#[test]
fn pipelined() {
    let Some(ptx) = nvcc::ptx("advanced") else { return };
    let n = 9usize;
    let x = noise(n * 256, 2);
    for o in all_options() {
        let mut g = Gpu::new();
        let (d, y) = (g.alloc_with(&bytes(&x), "x"), g.alloc(4 * x.len(), "y"));
        run(&mut g, &ptx, "pipelined", 1, 64, 0, &[&p(d), &p(y), &(n as u32).to_le_bytes()], &o);
        let out = read::<f32>(&g, y, x.len());
        for (i, v) in out.iter().enumerate() {
            let (tile, t, c) = (i / 256, i / 4 % 64, i % 4);
            let from = x[tile * 256 + (63 - t) * 4 + c];
            // The last tile is copied with half of every vector zero-filled.
            let from = if tile == n - 1 && c >= 2 { 0.0 } else { from };
            let want = match c {
                0 => from + 1.0,
                3 => from * 3.0,
                _ => from,
            };
            assert_eq!(*v, want, "{i}");
        }
    }
}

#[test]
fn cooperative_groups() {
    let Some(ptx) = nvcc::ptx("advanced") else { return };
    let x: Vec<i32> = (0..64).map(|i| i * i % 23).collect();
    let mut g = Gpu::new();
    let (d, o) = (g.alloc_with(&bytes(&x), "x"), g.alloc(256, "o"));
    run(&mut g, &ptx, "groups", 1, 64, 0, &[&p(d), &p(o)], &all_options()[1]);
    for (i, v) in read::<i32>(&g, o, 64).iter().enumerate() {
        let tile = &x[i / 16 * 16..][..16];
        let odd = x[i / 32 * 32..][..32].iter().filter(|v| **v & 1 == 1).count() as i32;
        let sum: i32 = tile.iter().sum::<i32>() + if x[i] & 1 == 1 { odd } else { 0 };
        assert_eq!(*v, sum * 1000 + tile.iter().max().unwrap());
    }
}

#[test]
fn half_types() {
    let Some(ptx) = nvcc::ptx("advanced") else { return };
    let n = 64;
    let a: Vec<u16> = noise(n, 3).iter().map(|v| f16_bits(f64::from(*v) * 4.0)).collect();
    let b: Vec<u16> = noise(n, 4).iter().map(|v| f16_bits(f64::from(*v) * 4.0)).collect();
    let q: Vec<u16> = noise(n, 5).iter().map(|v| bf16_bits(f64::from(*v))).collect();
    let mut g = Gpu::new();
    let (pa, pb, po) = (g.alloc_with(&bytes(&a), "a"), g.alloc_with(&bytes(&b), "b"), g.alloc(16 * n, "o"));
    let (pp, pq, pe) = (g.alloc_with(&bytes(&q), "p"), g.alloc(4 * n, "q"), g.alloc(n, "e"));
    let args: [&[u8]; 7] = [&p(pa), &p(pb), &p(po), &p(pp), &p(pq), &p(pe), &(n as u32).to_le_bytes()];
    run(&mut g, &ptx, "halves", 1, 64, 0, &args, &all_options()[0]);
    let (o, r, e) = (read::<u16>(&g, po, 8 * n), read::<u16>(&g, pq, 2 * n), read::<u8>(&g, pe, n));
    for i in 0..n {
        let (x, y) = (f16_value(a[i]), f16_value(b[i]));
        let h = |k: usize| o[k * n + i];
        assert_eq!(h(0), f16_bits(x + y));
        assert_eq!(h(1), f16_bits(x * y));
        assert_eq!(h(2), f16_bits(x * y + x));
        assert_eq!(h(3), f16_bits(x.max(y)));
        assert!((f16_value(h(4)) - x / y).abs() <= 1e-3 * (x / y).abs());
        assert!((f16_value(h(5)) - x.exp()).abs() <= 2e-3 * x.exp());
        assert_eq!(h(6), f16_bits(x * x + x));
        assert_eq!(h(7), f16_bits(y * y + y));
        let (s, t) = (bf16_value(q[i]), bf16_value(q[(i + 1) % n]));
        assert_eq!(r[i], bf16_bits(s + t));
        assert_eq!(r[n + i], bf16_bits(s * s + t));
        let (mag, want) = (f64::from(e[i] & 127), x * 100.0);
        let got = if mag < 8.0 {
            mag / 8.0 * 2f64.powi(-6)
        } else {
            (1.0 + mag % 8.0 / 8.0) * 2f64.powi((mag / 8.0) as i32 - 7)
        };
        assert!((got - want.abs()).abs() <= want.abs() / 16.0 + 1e-3, "{got} {want}");
    }
}

#[test]
fn atomics() {
    let Some(ptx) = nvcc::ptx("advanced") else { return };
    for threads in [1, 2] {
        let mut g = Gpu::new();
        let z = [0u8; 64];
        let a: Vec<u64> = ["i", "u", "l", "f", "d", "h"].iter().map(|n| g.alloc_with(&z, n)).collect();
        g.write(a[0], &bytes(&[0i32, 0, 0, -1, 0, 0])).unwrap();
        let args: Vec<[u8; 8]> = a.iter().map(|v| p(*v)).collect();
        let args: Vec<&[u8]> = args.iter().map(|v| v.as_slice()).collect();
        let o = Options { checks: Checks::ALL, threads, ..Options::default() };
        run(&mut g, &ptx, "atomics", 4, 64, 0, &args, &o);
        let t: Vec<u32> = (0..256).collect();
        assert_eq!(read::<i32>(&g, a[0], 6), [255 * 128, -255, 255, 0, -1, t.iter().fold(0, |x, y| x ^ y) as i32]);
        let u = read::<u32>(&g, a[1], 4);
        assert_eq!((u[0], u[2], u[3]), (256 % 10, 7, 768));
        assert_eq!(u[1], (0..256).fold(0u32, |v, _| if v == 0 || v > 9 { 9 } else { v - 1 }));
        assert_eq!(read::<u64>(&g, a[2], 2), [(255 * 128) << 33, 255]);
        assert_eq!((read::<f32>(&g, a[3], 1)[0], read::<f64>(&g, a[4], 1)[0]), (128.0, 64.0));
        let h = read::<u16>(&g, a[5], 2);
        assert_eq!((f16_value(h[0]), f16_value(h[1])), (256.0, 512.0));
    }
}

#[test]
fn diverged_lanes_make_progress() {
    let Some(ptx) = nvcc::ptx("advanced") else { return };
    let mut g = Gpu::new();
    let (l, c) = (g.alloc_with(&[0; 4], "lock"), g.alloc_with(&[0; 4], "count"));
    let o = Options { threads: 2, instruction_limit: 10_000_000, ..Options::default() };
    run(&mut g, &ptx, "spin_lock", 4, 64, 0, &[&p(l), &p(c)], &o);
    assert_eq!(read::<u32>(&g, c, 1), [256]);
}

#[test]
fn wmma() {
    let Some(ptx) = nvcc::ptx("wmma") else { return };
    let k = 48;
    let h = |v: &[f32]| bytes(&v.iter().map(|x| f16_bits(f64::from(*x))).collect::<Vec<u16>>());
    let (a, b) = (noise(16 * k, 1), noise(16 * k, 2));
    let mut g = Gpu::new();
    let (pa, pb, pc) = (g.alloc_with(&h(&a), "a"), g.alloc_with(&h(&b), "b"), g.alloc(1024, "c"));
    let args: [&[u8]; 4] = [&p(pa), &p(pb), &p(pc), &(k as u32).to_le_bytes()];
    run(&mut g, &ptx, "wmma_gemm", 1, 32, 0, &args, &all_options()[0]);
    let r = |v: f32| f16_value(f16_bits(v.into()));
    for (i, got) in read::<f32>(&g, pc, 256).iter().enumerate() {
        let want: f64 = (0..k).map(|x| r(a[i / 16 * k + x]) * r(b[i % 16 * k + x])).sum();
        assert!((f64::from(*got) - want).abs() < 1e-4);
    }
}
