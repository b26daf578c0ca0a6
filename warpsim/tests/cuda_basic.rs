//! Ordinary CUDA C++ kernels, compiled by nvcc (`cuda/basic.cu`), against values computed here.
#![allow(clippy::precedence)]

use crate::common::*;
use warpsim::{Gpu, Options};

fn p(a: u64) -> [u8; 8] {
    a.to_le_bytes()
}

#[test]
fn sgemm() {
    let Some(ptx) = nvcc::ptx("basic") else { return };
    let (m, n, k) = (256usize, 128usize, 32usize);
    let (a, b) = (noise(m * k, 1), noise(k * n, 2));
    for o in all_options() {
        let mut g = Gpu::new();
        let (pa, pb, pc) = (g.alloc_with(&bytes(&a), "A"), g.alloc_with(&bytes(&b), "B"), g.alloc(4 * m * n, "C"));
        let args: [&[u8]; 6] =
            [&p(pa), &p(pb), &p(pc), &(m as u32).to_le_bytes(), &(n as u32).to_le_bytes(), &(k as u32).to_le_bytes()];
        let r = try_run(&mut g, &ptx, "sgemm", [1, 2, 1], [256, 1, 1], 0, &args, &o).unwrap();
        assert!(r.clean(), "{}", r.findings[0]);
        let c: Vec<f32> = read(&g, pc, m * n);
        for i in 0..m {
            for j in 0..n {
                let want = (0..k).fold(0f32, |s, x| a[i * k + x].mul_add(b[x * n + j], s));
                assert_eq!(c[i * n + j], want, "({i},{j})");
            }
        }
    }
}

#[test]
fn recursion() {
    let Some(ptx) = nvcc::ptx("basic") else { return };
    let x = noise(64, 3);
    let mut g = Gpu::new();
    let d = g.alloc_with(&bytes(&x), "x");
    run(&mut g, &ptx, "recurse", 1, 64, 0, &[&p(d)], &all_options()[0]);
    fn f(x: f32, n: usize) -> f32 {
        if n == 0 { x } else { f(x * 1.5, n - 1) + 1.0 }
    }
    let want: Vec<f32> = x.iter().enumerate().map(|(i, v)| f(*v, i % 5)).collect();
    assert_eq!(read::<f32>(&g, d, 64), want);
}

#[test]
fn printf() {
    let Some(ptx) = nvcc::ptx("basic") else { return };
    let r = run(&mut Gpu::new(), &ptx, "hello", 1, 64, 0, &[&2u32.to_le_bytes()], &Options::default());
    assert_eq!(r.output, "hi 0  0.00 there\nhi 1  0.50 there\n");
}

#[test]
fn switch() {
    let Some(ptx) = nvcc::ptx("basic") else { return };
    let sel: Vec<i32> = (0..64).map(|i| i % 8).collect();
    let x = noise(64, 4);
    let mut g = Gpu::new();
    let (o, q) = (g.alloc_with(&bytes(&sel), "o"), g.alloc_with(&bytes(&x), "p"));
    run(&mut g, &ptx, "switcher", 1, 64, 0, &[&p(o), &p(q)], &all_options()[1]);
    let (oi, of) = (read::<i32>(&g, o, 64), read::<f32>(&g, q, 64));
    for t in 0..64usize {
        match t % 8 {
            0 => assert_eq!(oi[t], 5),
            1 => assert_eq!(oi[t], t as i32 * 7),
            2 => assert!((of[t] - x[t].sin()).abs() < 1e-6),
            3 => assert!((of[t] / x[t].exp() - 1.0).abs() < 1e-6),
            4 => assert_eq!(of[t], x[t] / 3.1),
            5 => assert_eq!(oi[t], 5 / (t as i32 + 1)),
            6 => assert_eq!(oi[t], t.count_ones() as i32),
            _ => assert_eq!((oi[t], of[t]), (7, x[t])),
        }
    }
}

#[test]
fn reduction() {
    let Some(ptx) = nvcc::ptx("basic") else { return };
    let x = noise(5000, 5);
    for o in all_options() {
        let mut g = Gpu::new();
        let (d, s) = (g.alloc_with(&bytes(&x), "x"), g.alloc_with(&[0; 4], "out"));
        run(&mut g, &ptx, "reduce", 3, 256, 0, &[&p(d), &p(s), &5000u32.to_le_bytes()], &o);
        let want: f64 = x.iter().map(|v| f64::from(*v)).sum();
        assert!((f64::from(read::<f32>(&g, s, 1)[0]) - want).abs() < 1e-3);
    }
}

#[test]
fn scans() {
    let Some(ptx) = nvcc::ptx("basic") else { return };
    let x: Vec<i32> = (0..1024).map(|i| i * 7 % 13).collect();
    let want: Vec<i32> = x
        .iter()
        .scan(0, |s, v| {
            *s += v;
            Some(*s)
        })
        .collect();
    for o in all_options() {
        let mut g = Gpu::new();
        let (d, y) = (g.alloc_with(&bytes(&x), "x"), g.alloc(4096, "y"));
        run(&mut g, &ptx, "scan", 1, 1024, 4096, &[&p(d), &p(y), &1000u32.to_le_bytes()], &o);
        assert_eq!(read::<i32>(&g, y, 1000), want[..1000]);
        let (f, s) = (g.alloc_with(&[0; 64], "flag"), g.alloc(64, "sum"));
        run(&mut g, &ptx, "chained_scan", 16, 64, 0, &[&p(d), &p(y), &p(f), &p(s)], &o);
        assert_eq!(read::<i32>(&g, y, 1024), want);
    }
}

#[test]
fn histogram() {
    let Some(ptx) = nvcc::ptx("basic") else { return };
    let x: Vec<u8> = (0..3000u32).map(|i| (i * i % 251) as u8).collect();
    let mut want = [0u32; 256];
    x.iter().for_each(|v| want[*v as usize] += 1);
    for o in all_options() {
        let mut g = Gpu::new();
        let (d, h) = (g.alloc_with(&x, "x"), g.alloc_with(&[0; 1024], "h"));
        run(&mut g, &ptx, "histogram", 4, 128, 0, &[&p(d), &p(h), &3000u32.to_le_bytes()], &o);
        assert_eq!(read::<u32>(&g, h, 256), want);
    }
}

#[test]
fn math() {
    let Some(ptx) = nvcc::ptx("basic") else { return };
    let n = 200;
    let x: Vec<f32> = noise(n, 6).iter().map(|v| v * 8.0).collect();
    let d: Vec<f64> = noise(n, 7).iter().map(|v| f64::from(*v) * 8.0).collect();
    let mut g = Gpu::new();
    let (px, pd) = (g.alloc_with(&bytes(&x), "x"), g.alloc_with(&bytes(&d), "d"));
    let (po, pq) = (g.alloc(40 * n, "o"), g.alloc(48 * n, "od"));
    run(
        &mut g,
        &ptx,
        "math",
        1,
        224,
        0,
        &[&p(px), &p(pd), &p(po), &p(pq), &(n as u32).to_le_bytes()],
        &all_options()[0],
    );
    let (o, q) = (read::<f32>(&g, po, 10 * n), read::<f64>(&g, pq, 6 * n));
    let near = |got: f64, want: f64, tol: f64, what: &str| {
        assert!((got - want).abs() <= tol * want.abs().max(1.0), "{what}: {got} {want}")
    };
    for i in 0..n {
        let v = f64::from(x[i]);
        near(o[i].into(), v.exp(), 3e-7, "exp");
        near(o[n + i].into(), v.abs().ln(), 3e-7, "log");
        near(o[2 * n + i].into(), v.tanh(), 3e-7, "tanh");
        near(o[3 * n + i].into(), f64::from(x[i] * 100.0).sin(), 3e-7, "sin");
        near(o[4 * n + i].into(), v.abs().powf(1.7f32.into()), 1e-6, "pow");
        assert_eq!(o[5 * n + i], x[i] / 3.7);
        assert_eq!(o[6 * n + i], x[i].abs().sqrt());
        let w = d[i];
        near(q[i], w.exp(), 1e-15, "dexp");
        near(q[n + i], w.abs().ln(), 1e-15, "dlog");
        near(q[2 * n + i], (w * 100.0).sin(), 1e-15, "dsin");
        assert_eq!(q[3 * n + i], w / 3.7);
        assert_eq!(q[4 * n + i], w.abs().sqrt());
        near(q[5 * n + i], w.cbrt(), 1e-15, "cbrt");
    }
}

#[test]
fn integers() {
    let Some(ptx) = nvcc::ptx("basic") else { return };
    let n = 100usize;
    let mut s = 88172645463325252u64;
    let mut next = || {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        s as i64
    };
    let a: Vec<i64> = (0..n).map(|i| if i % 3 == 0 { next() >> 40 } else { next() }).collect();
    let b: Vec<i64> = (0..n).map(|i| if i % 2 == 0 { next() >> 35 | 1 } else { next() | 1 }).collect();
    let mut g = Gpu::new();
    let (pa, pb, po) = (g.alloc_with(&bytes(&a), "a"), g.alloc_with(&bytes(&b), "b"), g.alloc(18 * 8 * n, "o"));
    run(&mut g, &ptx, "integers", 1, 128, 0, &[&p(pa), &p(pb), &p(po), &(n as u32).to_le_bytes()], &all_options()[0]);
    let o = read::<i64>(&g, po, 18 * n);
    for i in 0..n {
        let (x, y) = (a[i], b[i]);
        let (pp, q, u, v) = (x as i32, y as i32, x as u32, y as u32);
        let get = |k: usize| o[k * n + i];
        assert_eq!(get(0), x.wrapping_div(y));
        assert_eq!(get(1), x.wrapping_rem(y));
        assert_eq!(get(2) as u64, x as u64 / y as u64);
        assert_eq!(get(3), i64::from(pp.wrapping_div(q)));
        assert_eq!(get(4), i64::from(u % v));
        assert_eq!(get(5), (i128::from(x) * i128::from(y) >> 64) as i64);
        assert_eq!(get(6), (u64::from(u) * u64::from(v) >> 32) as i64);
        assert_eq!(get(7), i64::from(pp.leading_zeros()));
        assert_eq!(get(8), x.reverse_bits());
        assert_eq!(get(9), i64::from(if x == 0 { 0 } else { x.trailing_zeros() + 1 }));
        let all = u64::from(u) | u64::from(v) << 32;
        let want = (0..4).fold(0u64, |w, k| w | (all >> (8 * (2 * k + 1)) & 255) << (8 * k));
        assert_eq!(get(10) as u64, want);
        assert_eq!(get(11), i64::from(((u64::from(v) << 32 | u64::from(u)) << (q & 31) >> 32) as u32));
        assert_eq!(get(12), i64::from(i32::from(pp as i16) * i32::from(q as i16)));
        assert_eq!(get(13), i64::from(pp as i8 >> 2));
        assert_eq!(get(14), i64::from(x.count_ones()));
        assert_eq!(get(15), x.wrapping_mul(y) >> 3);
        assert_eq!(get(16), i64::from((u & v) ^ (u | !v)));
        assert_eq!(get(17), i64::from(pp.abs_diff(q).wrapping_add(5)));
    }
}

#[test]
fn votes() {
    let Some(ptx) = nvcc::ptx("basic") else { return };
    let mut g = Gpu::new();
    let d = g.alloc(4 * 224, "o");
    run(&mut g, &ptx, "votes", 1, 32, 0, &[&p(d)], &all_options()[0]);
    let o = read::<u32>(&g, d, 224);
    for t in 0..32u32 {
        let at = |k: u32| o[(32 * k + t) as usize];
        assert_eq!(at(0), (0..32).filter(|l| l % 3 == 0).fold(0, |m, l| m | 1 << l));
        assert_eq!(at(1), 0x1111_1111 << (t % 4));
        assert_eq!(at(2), 496);
        assert_eq!(at(3), if t % 8 < 3 { t } else { t - 3 });
        assert_eq!(at(4), if t + 5 > 31 { t } else { t + 5 });
        assert_eq!(at(5), (t & 16) + t * 5 % 16);
        assert_eq!(at(6), if t & 1 == 1 { 0xaaaa_aaaa } else { 0x5555_5400 });
    }
}
