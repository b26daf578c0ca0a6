//! Helpers shared by the tests.
#![allow(dead_code, unreachable_pub, clippy::too_many_arguments)]

pub mod lanes;
pub mod nvcc;
pub mod triton;

use warpsim::{Checks, Completion, Fault, Gpu, Launch, Module, Options, Report};

pub fn bytes<T: Copy + ToBytes>(v: &[T]) -> Vec<u8> {
    v.iter().flat_map(|x| x.to_bytes()).collect()
}

pub trait ToBytes {
    fn to_bytes(self) -> Vec<u8>;
    fn from_bytes(b: &[u8]) -> Self;
}

macro_rules! impls {
    ($($t:ty)*) => {$(impl ToBytes for $t {
        fn to_bytes(self) -> Vec<u8> { self.to_le_bytes().to_vec() }
        fn from_bytes(b: &[u8]) -> Self { Self::from_le_bytes(b.try_into().unwrap()) }
    })*};
}
impls!(u8 i8 u16 u32 i32 u64 i64 f32 f64);

/// Arguments of a launch, as bytes.
#[macro_export]
macro_rules! args {
    ($($x:expr),* $(,)?) => { [$($x.to_bytes()),*] };
}

pub fn read<T: ToBytes>(gpu: &Gpu, addr: u64, n: usize) -> Vec<T> {
    gpu.read_vec(addr, n * size_of::<T>()).unwrap().chunks_exact(size_of::<T>()).map(T::from_bytes).collect()
}

/// Every combination of completion and warp order that the tests try.
pub fn all_options() -> Vec<Options> {
    let mut v = vec![];
    for completion in [Completion::Earliest, Completion::Latest] {
        for seed in [0, 7] {
            v.push(Options {
                checks: Checks::ALL,
                seed,
                async_completion: completion,
                threads: 2,
                ..Options::default()
            });
        }
    }
    v
}

pub fn try_run(
    gpu: &mut Gpu,
    text: &str,
    kernel: &str,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    args: &[&[u8]],
    o: &Options,
) -> Result<Report, Fault> {
    let module = Module::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let kernel = module.kernel(kernel).unwrap_or_else(|e| panic!("{e}"));
    gpu.launch(&kernel, &Launch { grid, block, shared_bytes: shared, args, ..Launch::default() }, o)
}

/// Runs and expects neither fault nor finding.
pub fn run(
    gpu: &mut Gpu,
    text: &str,
    kernel: &str,
    grid: u32,
    block: u32,
    shared: u32,
    args: &[&[u8]],
    o: &Options,
) -> Report {
    let r = try_run(gpu, text, kernel, [grid, 1, 1], [block, 1, 1], shared, args, o).unwrap_or_else(|f| panic!("{f}"));
    for f in &r.findings {
        println!("{f}");
    }
    assert!(r.clean(), "{kernel}: {} findings", r.findings.len());
    r
}

/// Reproducible numbers in [-1, 1).
pub fn noise(n: usize, seed: u64) -> Vec<f32> {
    let mut s = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n)
        .map(|_| {
            s ^= s << 13;
            s ^= s >> 7;
            s ^= s << 17;
            (s >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

/// The value of an 8-bit float with 5 exponent bits.
pub fn e5m2(code: u8) -> f64 {
    warpsim::f16_value(u16::from(code) << 8)
}

/// The value of an 8-bit float with 4 exponent bits, which has no infinities.
pub fn e4m3(code: u8) -> f64 {
    let (exponent, fraction) = (i32::from(code >> 3 & 15), f64::from(code & 7) / 8.0);
    let size = match (exponent, code & 7) {
        (15, 7) => f64::NAN,
        (0, _) => fraction * 2f64.powi(-6),
        _ => (1.0 + fraction) * 2f64.powi(exponent - 7),
    };
    if code >> 7 == 1 { -size } else { size }
}
