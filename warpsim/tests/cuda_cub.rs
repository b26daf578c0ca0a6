//! CUB's block algorithms (`cuda/cub.cu`).

use crate::common::*;
use warpsim::Gpu;

fn p(a: u64) -> [u8; 8] {
    a.to_le_bytes()
}

#[test]
fn radix_sort() {
    let Some(ptx) = nvcc::ptx("cub") else { return };
    let x: Vec<i32> = noise(1024, 1).iter().map(|v| (v * 1e9) as i32).collect();
    for o in all_options() {
        let mut g = Gpu::new();
        let (d, y) = (g.alloc_with(&bytes(&x), "x"), g.alloc(4096, "y"));
        run(&mut g, &ptx, "block_sort", 2, 128, 0, &[&p(d), &p(y)], &o);
        let out = read::<i32>(&g, y, 1024);
        for (got, part) in out.chunks(512).zip(x.chunks(512)) {
            let mut want = part.to_vec();
            want.sort_unstable();
            assert_eq!(got, want);
        }
    }
}

#[test]
fn scan_and_reduce() {
    let Some(ptx) = nvcc::ptx("cub") else { return };
    let x: Vec<f32> = noise(256, 2).iter().map(|v| (v * 64.0).round()).collect();
    for o in all_options() {
        let mut g = Gpu::new();
        let (d, y, t) = (g.alloc_with(&bytes(&x), "x"), g.alloc(1024, "y"), g.alloc(4, "max"));
        run(&mut g, &ptx, "block_scan", 1, 256, 0, &[&p(d), &p(y), &p(t)], &o);
        let want: Vec<f32> = x
            .iter()
            .scan(0.0, |s, v| {
                *s += v;
                Some(*s)
            })
            .collect();
        assert_eq!(read::<f32>(&g, y, 256), want);
        assert_eq!(read::<f32>(&g, t, 1)[0], x.iter().copied().fold(f32::MIN, f32::max));
    }
}

#[test]
fn histogram() {
    let Some(ptx) = nvcc::ptx("cub") else { return };
    let x: Vec<u8> = (0..512u32).map(|i| (i * i % 97) as u8).collect();
    let mut want = [0u32; 256];
    x.iter().for_each(|v| want[*v as usize] += 1);
    for o in all_options() {
        let mut g = Gpu::new();
        let (d, h) = (g.alloc_with(&x, "x"), g.alloc(1024, "h"));
        run(&mut g, &ptx, "block_histogram", 1, 128, 0, &[&p(d), &p(h)], &o);
        assert_eq!(read::<u32>(&g, h, 256), want);
    }
}
