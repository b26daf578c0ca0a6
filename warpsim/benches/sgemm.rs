//! Warp instructions a second on a tiled fp32 GEMM, one host thread: unchecked and with every checker.
#![allow(missing_docs)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::time::Duration;
use warpsim::{Checks, Gpu, Launch, Module, Options};

#[path = "../tests/common/nvcc.rs"]
mod nvcc;

fn sgemm(c: &mut Criterion) {
    let Some(ptx) = nvcc::ptx("basic") else { return };
    let kernel = Module::parse(&ptx).unwrap().kernel("sgemm").unwrap();
    let (m, n, k) = (128usize, 256usize, 256usize);
    let mut gpu = Gpu::new();
    let ones = |n: usize| vec![0x3fu8; 4 * n];
    let (a, b, d) = (gpu.alloc_with(&ones(m * k), "A"), gpu.alloc_with(&ones(k * n), "B"), gpu.alloc(4 * m * n, "C"));
    let ptr = [a, b, d].map(u64::to_le_bytes);
    let dim = [m, n, k].map(|v| (v as u32).to_le_bytes());
    let args: [&[u8]; 6] = [&ptr[0], &ptr[1], &ptr[2], &dim[0], &dim[1], &dim[2]];
    let launch = Launch { grid: [2, 1, 1], block: [256, 1, 1], args: &args, ..Launch::default() };
    let mut group = c.benchmark_group("sgemm");
    group.sample_size(10).measurement_time(Duration::from_secs(4));
    for (name, checks) in [("unchecked", Checks::NONE), ("all checks", Checks::ALL)] {
        let options = Options { checks, threads: 1, ..Options::default() };
        let count = gpu.launch(&kernel, &launch, &options).unwrap().instructions;
        group.throughput(Throughput::Elements(count));
        group.bench_function(name, |b| b.iter(|| gpu.launch(&kernel, &launch, &options).unwrap()));
    }
    group.finish();
}

criterion_group!(benches, sgemm);
criterion_main!(benches);
