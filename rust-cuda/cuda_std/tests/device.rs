//! Runs the fixture's kernels on a GPU and compares what they compute with a computation on the CPU.
//!
//! Without a GPU the tests say so and pass. The kernels are built here, or, where there is no device toolchain, read from
//! the folder `CUDA_STD_PTX`, which an earlier run elsewhere filled (`CUDA_STD_PTX=folder cargo test --test device`).

mod fixture;

use std::{fs, path::PathBuf, sync::OnceLock};

use cuda_builder::{Arch, Manifest};
use cuda_std::{
    bf16, f16,
    launch::{Args, DevicePtr},
    math, warp,
};
use cust::{
    context::Context,
    device::{Device, DeviceAttribute},
    function::LaunchAttribute,
    memory::{CopyDestination, DeviceBuffer, DeviceCopy},
    module::Module,
    stream::{Stream, StreamFlags},
};

struct Gpu {
    _context: Context,
    arch: Arch,
    ptx: PathBuf,
}

impl Gpu {
    /// The first GPU, if there is one that the fixture is built for.
    fn open() -> Option<Self> {
        let folder = kernels()?;
        if let Err(error) = cust::init(cust::CudaFlags::empty()) {
            eprintln!("skipped: no GPU ({error})");
            return None;
        }
        let device = Device::get_device(0).expect("the driver has a device");
        let capability = device.get_attribute(DeviceAttribute::ComputeCapabilityMajor).expect("an attribute");
        let arch = if capability == 9 { Arch::Sm90a } else { Arch::Sm80 };
        let context = Context::new(device).expect("a context");
        Some(Self { _context: context, arch, ptx: folder })
    }

    fn has(&self, arch: Arch) -> bool {
        let has = self.arch == arch;
        if !has {
            eprintln!("skipped: needs {arch}");
        }
        has
    }

    /// Launches a kernel and waits for it.
    fn launch(&self, symbol: &str, grid: u32, arguments: impl Args) {
        let file = self.ptx.join("manifest.json");
        let manifest: Manifest = serde_json::from_slice(&fs::read(file).expect("a manifest")).expect("a manifest");
        let entry = manifest.get(self.arch, symbol).unwrap_or_else(|| panic!("no kernel `{symbol}`"));
        let ptx = fixture::ptx(&manifest, self.arch, symbol, &self.ptx);
        let module = Module::from_ptx(ptx, &[]).unwrap_or_else(|error| panic!("{symbol}: {error}"));
        let function = module.get_function(symbol).expect("its entry");
        let stream = Stream::new(StreamFlags::NON_BLOCKING, None).expect("a stream");
        let [x, y, z] = entry.block;
        let attributes: &[LaunchAttribute] = if entry.cooperative { &[LaunchAttribute::Cooperative] } else { &[] };
        arguments
            .with(|bytes| {
                let pointers: Vec<_> = bytes.iter().map(|bytes| bytes.as_ptr().cast_mut().cast()).collect();
                // SAFETY: the callers pass what the kernels take.
                unsafe { stream.launch_with(&function, grid, (x, y, z), entry.shared_bytes, attributes, &pointers) }
            })
            .expect("a launch");
        stream.synchronize().unwrap_or_else(|error| panic!("{symbol}: {error}"));
    }
}

fn kernels() -> Option<PathBuf> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let given = std::env::var_os("CUDA_STD_PTX").map(PathBuf::from);
        if let Some(folder) = given.as_ref().filter(|folder| folder.join("manifest.json").is_file()) {
            return Some(folder.clone());
        }
        let folder = given.unwrap_or_else(|| fixture::scratch("conformance"));
        fixture::build("smoke", &[Arch::Sm80, Arch::Sm90a], &folder)?;
        Some(folder)
    });
    folder.clone()
}

fn upload<T: DeviceCopy>(values: &[T]) -> DeviceBuffer<T> {
    DeviceBuffer::from_slice(values).expect("device memory")
}

fn download<T: DeviceCopy + Default + Clone>(buffer: &DeviceBuffer<T>) -> Vec<T> {
    let mut values = vec![T::default(); buffer.len()];
    buffer.copy_to(&mut values).expect("a copy");
    values
}

fn ptr<T: DeviceCopy>(buffer: &DeviceBuffer<T>) -> DevicePtr<T> {
    DevicePtr::from_raw(buffer.as_device_ptr().as_raw())
}

/// The error in spacings of `f32` around the exact value.
fn ulp(value: f32, exact: f64) -> f64 {
    if exact.is_nan() || value.is_nan() {
        return if exact.is_nan() && value.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if exact.abs() > f64::from(f32::MAX) * (1.0 + 2f64.powi(-25)) || value.is_infinite() {
        return if f64::from(value) == f64::from(exact as f32) { 0.0 } else { f64::INFINITY };
    }
    let exponent = if exact == 0.0 { -126.0 } else { exact.abs().log2().floor().max(-126.0) };
    (f64::from(value) - exact).abs() / (exponent - 23.0).exp2()
}

fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (x, x, 1.0);
    while term.abs() > sum.abs() * 1e-18 {
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
        n += 1.0;
    }
    sum * (-x * x).exp() * std::f64::consts::FRAC_2_SQRT_PI
}

/// By its continued fraction where 1 - erf(x) loses digits.
fn erfc(x: f64) -> f64 {
    if x < 1.5 {
        return 1.0 - erf(x);
    }
    let fraction = (1..400).rev().fold(x, |below, k| x + f64::from(k) / 2.0 / below);
    0.5 * std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() / fraction
}

/// The standard library's loses digits of a small x.
fn asinh(x: f64) -> f64 {
    let a = x.abs();
    (a + a * a / (1.0 + (1.0 + a * a).sqrt())).ln_1p().copysign(x)
}

type Exact = fn(f64) -> f64;

/// Each function of `math_functions`, its greatest error in ulp, and the inputs that bound holds for.
const FUNCTIONS: [(&str, Exact, f64, f32, f32); 52] = [
    ("exp", f64::exp, 3.0, -110.0, 100.0),
    ("exp2", f64::exp2, 3.0, -160.0, 140.0),
    ("expm1", f64::exp_m1, 4.0, -110.0, 100.0),
    ("log", f64::ln, 2.0, -1.0, f32::MAX),
    ("log2", f64::log2, 2.0, -1.0, f32::MAX),
    ("log1p", f64::ln_1p, 3.0, -1.5, f32::MAX),
    ("sigmoid", |x| 1.0 / (1.0 + (-x).exp()), 4.0, -87.0, 100.0),
    ("softplus", |x| x.max(0.0) + (-x.abs()).exp().ln_1p(), 4.0, -87.0, 100.0),
    ("tanh", f64::tanh, 3.0, f32::MIN, f32::MAX),
    ("erf", erf, 3.0, f32::MIN, f32::MAX),
    ("sin", f64::sin, 2.0, -1e15, 1e15),
    ("cos", f64::cos, 2.0, -1e15, 1e15),
    ("sqrt", f64::sqrt, 0.5, -1.0, f32::MAX),
    ("floor", f64::floor, 0.0, f32::MIN, f32::MAX),
    ("ceil", f64::ceil, 0.0, f32::MIN, f32::MAX),
    ("trunc", f64::trunc, 0.0, f32::MIN, f32::MAX),
    ("round_ties_even", f64::round_ties_even, 0.0, f32::MIN, f32::MAX),
    ("ex2_approx", f64::exp2, 3.0, -126.0, 128.0),
    ("lg2_approx", f64::log2, 4.0, 2.0, f32::MAX),
    ("rcp_approx", |x| 1.0 / x, 1.0, 1e-37, 1e37),
    ("rsqrt_approx", |x| 1.0 / x.sqrt(), 2.5, 1e-37, f32::MAX),
    ("sqrt_approx", f64::sqrt, 3.0, 1e-37, f32::MAX),
    ("sqrt_approx_ftz", f64::sqrt, 3.0, 1e-37, f32::MAX),
    ("tanh_approx", f64::tanh, 8192.0, 1e-3, 10.0),
    ("log_of_normal", f64::ln, 2.0, f32::MIN_POSITIVE, f32::MAX),
    ("exp10", |x| 10f64.powf(x), 1.0, -50.0, 40.0),
    ("log10", f64::log10, 1.0, -1.0, f32::MAX),
    ("cbrt", f64::cbrt, 1.0, f32::MIN, f32::MAX),
    ("tan", f64::tan, 3.0, -1e15, 1e15),
    ("atan", f64::atan, 2.0, f32::MIN, f32::MAX),
    ("asin", f64::asin, 2.0, -1.5, 1.5),
    ("acos", f64::acos, 2.0, -1.5, 1.5),
    ("sinh", f64::sinh, 2.0, f32::MIN, f32::MAX),
    ("cosh", f64::cosh, 2.0, f32::MIN, f32::MAX),
    ("asinh", asinh, 3.0, f32::MIN, f32::MAX),
    ("acosh", f64::acosh, 3.0, -1.0, f32::MAX),
    ("atanh", |x| (0.5 * (2.0 * x.abs() / (1.0 - x.abs())).ln_1p()).copysign(x), 3.0, -1.0, 1.0),
    ("erfc", erfc, 3.0, f32::MIN, f32::MAX),
    ("normal_cdf", |x| 0.5 * erfc(-x * std::f64::consts::FRAC_1_SQRT_2), 3.0, f32::MIN, f32::MAX),
    ("pow(x, 2.7)", |x| x.powf(f64::from(2.7f32)), 1.0, f32::MIN, f32::MAX),
    ("pow(x, -0.3)", |x| x.powf(f64::from(-0.3f32)), 1.0, f32::MIN, f32::MAX),
    ("pow(1.0001, x)", |x| f64::from(1.0001f32).powf(x), 1.0, f32::MIN, f32::MAX),
    ("powi(x, 7)", |x| x.powi(7), 1.0, f32::MIN, f32::MAX),
    ("atan2(x, -3)", |x| x.atan2(-3.0), 2.0, f32::MIN, f32::MAX),
    ("hypot(x, 0.001)", |x| x.hypot(f64::from(1.0e-3f32)), 1.5, f32::MIN, f32::MAX),
    ("sine of sin_cos_near", f64::sin, 2.0, -math::NEAR_ANGLE, math::NEAR_ANGLE),
    ("cosine of sin_cos_near", f64::cos, 2.0, -math::NEAR_ANGLE, math::NEAR_ANGLE),
    ("f16", |x| f64::from(f16::from_f32(x as f32).to_f32()), 0.0, f32::MIN, f32::MAX),
    ("bf16", |x| f64::from(bf16::from_f32(x as f32).to_f32()), 0.0, f32::MIN, f32::MAX),
    ("f16 pairs", |x| f64::from(f16::from_f32(x as f32).to_f32()), 0.0, f32::MIN, f32::MAX),
    ("bf16 pairs", |x| f64::from(bf16::from_f32(x as f32).to_f32()), 0.0, f32::MIN, f32::MAX),
    ("round_to_i32", |x| f64::from(x.round_ties_even() as i32 as f32), 0.0, f32::MIN, f32::MAX),
];

type Conversion = fn(f32) -> f32;

/// What follows them: saturating, with 0 for NaN, as Rust's conversions are.
const EXACT: [(&str, Conversion); 3] = [
    ("saturate_to_i8 of round_to_i32", |x| f32::from(x.round_ties_even() as i8)),
    ("truncate_to_u32", |x| x as u32 as f32),
    ("rem(x, 0.7)", |x| x % 0.7),
];

#[test]
fn math_is_as_accurate_as_documented() {
    let Some(gpu) = Gpu::open() else { return };
    // Every 4001st float, and special ones.
    let mut x: Vec<f32> = (0..=u32::MAX).step_by(4001).map(f32::from_bits).collect();
    x.extend([0.0, -0.0, 0.5, 1.5, 2.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
    let n = x.len() as u32;
    let input = upload(&x);
    let output = upload(&vec![f32::NAN; (FUNCTIONS.len() + EXACT.len()) * x.len()]);
    gpu.launch("math_functions", n.div_ceil(256), (ptr(&input), ptr(&output), n));
    let y = download(&output);

    let mut failures = Vec::new();
    for (row, (name, exact, bound, low, high)) in FUNCTIONS.into_iter().enumerate() {
        let mut worst = (0.0, 0.0);
        for (x, y) in x.iter().zip(&y[row * x.len()..]) {
            if (low..=high).contains(x) {
                let error = ulp(*y, exact(f64::from(*x)));
                worst = if error > worst.0 { (error, *x) } else { worst };
            }
        }
        println!("{name}: {:.3} ulp at {:e}", worst.0, worst.1);
        if worst.0 > bound {
            failures.push(format!("{name}({:e}) is {:.3} ulp off, {bound} are documented", worst.1, worst.0));
        }
    }
    for ((name, exact), y) in EXACT.into_iter().zip(y[FUNCTIONS.len() * x.len()..].chunks(x.len())) {
        for (x, y) in x.iter().zip(y) {
            assert!(*y == exact(*x) || y.is_nan() && exact(*x).is_nan(), "{name} of {x:e} is {y:e}");
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn lanes_exchange_what_is_documented() {
    let Some(gpu) = Gpu::open() else { return };
    let output = upload(&[0u32; 21 * 32]);
    gpu.launch("exchanges", 1, (ptr(&output),));
    let y = download(&output);
    let expected: [fn(u32) -> u32; 21] = [
        |lane| lane ^ 5,
        |lane| (lane + 3) % 32,
        |lane| if lane < 4 { lane } else { lane - 4 },
        |lane| if lane > 27 { lane } else { lane + 4 },
        |_| (0..32).filter(|lane| lane % 3 == 0).map(|lane| 1 << lane).sum(),
        |_| 1,
        |lane| 0xff << (lane / 8 * 8),
        |_| 31 * 16,
        |_| -9i32 as u32,
        |lane| (0..8).map(|i| lane / 8 * 8 + i).sum(),
        |_| 31 * 16,
        |_| 1,
        |_| 0x8866_4422,
        |_| 10 - 1 + 2 + 3 - 4,
        |lane| {
            let product = u64::from(lane * 0x0808_0809) * 0xd251_1f53;
            product as u32 ^ ((product >> 32) as u32).rotate_left(7)
        },
        |_| 0b1001,
        |lane| (lane + 3) % 32,
        |lane| if lane < 4 { lane } else { lane - 4 },
        |lane| if lane > 27 { lane } else { lane + 4 },
        |_| 1,
        |_| 1 + 4 * 11,
    ];
    for (row, (expected, values)) in expected.iter().zip(y.chunks(warp::SIZE as usize)).enumerate() {
        let exact: Vec<u32> = (0..32).map(expected).collect();
        assert_eq!(values, exact, "row {row}");
    }
}

/// Small integers, exact in every type; different in every place.
fn matrix(rows: usize, columns: usize, seed: usize) -> Vec<f32> {
    let value = |i: usize| ((i * 7 + i / columns * 3 + seed) * 2_654_435_761 % (1 << 32) / 8192) % 9;
    (0..rows * columns).map(|i| value(i) as f32 - 4.0).collect()
}

fn transposed(values: &[f32], columns: usize) -> Vec<f32> {
    let rows = values.len() / columns;
    (0..values.len()).map(|i| values[i % rows * columns + i / rows]).collect()
}

/// A times the transpose of B.
fn product(a: &[f32], b: &[f32], depth: usize) -> Vec<f32> {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    a.chunks(depth).flat_map(|a| b.chunks(depth).map(move |b| dot(a, b))).collect()
}

fn bits(dtype: &str, values: &[f32]) -> Vec<u16> {
    let convert = |value: &f32| match dtype {
        "f16" => f16::from_f32(*value).to_bits(),
        _ => bf16::from_f32(*value).to_bits(),
    };
    values.iter().map(convert).collect()
}

#[test]
fn all_blocks_of_a_grid_meet() {
    let Some(gpu) = Gpu::open() else { return };
    let x: Vec<u32> = (0..100_000).map(|i| i * 7 % 1009).collect();
    let sum: u32 = x.iter().sum();
    let input = upload(&x);
    // Again and again: the barrier is left as the next launch wants it.
    for blocks in [1, 2, 57, 132, 132, 132] {
        let (parts, y) = (upload(&vec![0u32; blocks]), upload(&vec![0u32; blocks]));
        gpu.launch("grid_sum", blocks as u32, (ptr(&input), ptr(&parts), ptr(&y), x.len() as u32));
        assert_eq!(download(&y), vec![sum; blocks]);
        assert_eq!(download(&parts), vec![2 * sum; blocks]);
    }
}

#[test]
fn warp_products() {
    let Some(gpu) = Gpu::open() else { return };
    let (a, b) = (matrix(16, 16, 1), matrix(8, 16, 2));
    for dtype in ["f16", "bf16"] {
        let (x, y) = (upload(&bits(dtype, &a)), upload(&bits(dtype, &b)));
        let d = upload(&[f32::NAN; 128]);
        let symbol = format!("warp_product_{dtype}");
        gpu.launch(&symbol, 1, (ptr(&x), ptr(&y), ptr(&d)));
        assert_eq!(download(&d), product(&a, &b, 16), "{dtype}");
    }
}

#[test]
fn group_products_of_either_major() {
    let Some(gpu) = Gpu::open().filter(|gpu| gpu.has(Arch::Sm90a)) else { return };
    let (a, b) = (matrix(64, 64, 1), matrix(64, 64, 2));
    for dtype in ["f16", "bf16"] {
        for (a_major, b_major) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let given = |values: &[f32], major| match major {
                0 => upload(&bits(dtype, values)),
                _ => upload(&bits(dtype, &transposed(values, 64))),
            };
            let (x, y) = (given(&a, a_major), given(&b, b_major));
            let d = upload(&[f32::NAN; 64 * 64]);
            let symbol = format!("group_product_{dtype}_a{a_major}_b{b_major}");
            gpu.launch(&symbol, 1, (ptr(&x), ptr(&y), ptr(&d)));
            assert_eq!(download(&d), product(&a, &b, 64), "{symbol}");
        }
    }
}

#[test]
fn group_products_of_other_types() {
    let Some(gpu) = Gpu::open().filter(|gpu| gpu.has(Arch::Sm90a)) else { return };
    let (a, b) = (matrix(64, 32, 1), matrix(64, 32, 2));
    let (x, y, d) = (upload(&a), upload(&b), upload(&[f32::NAN; 64 * 64]));
    gpu.launch("group_product_tf32", 1, (ptr(&x), ptr(&y), ptr(&d)));
    assert_eq!(download(&d), product(&a, &b, 32), "tf32");

    let (a, b) = (matrix(64, 128, 1), matrix(64, 128, 2));
    let bytes = |values: &[f32], byte: fn(f32) -> u8| upload(&values.iter().map(|v| byte(*v)).collect::<Vec<_>>());
    let (x, y, d) = (bytes(&a, e4m3), bytes(&b, e4m3), upload(&[f32::NAN; 64 * 64]));
    gpu.launch("group_product_e4m3", 1, (ptr(&x), ptr(&y), ptr(&d)));
    assert_eq!(download(&d), product(&a, &b, 128), "e4m3");

    let int8: fn(f32) -> u8 = |value| value as i8 as u8;
    let (x, y, d) = (bytes(&a, int8), bytes(&b, int8), upload(&[-1i32; 64 * 64]));
    gpu.launch("group_product_s8", 1, (ptr(&x), ptr(&y), ptr(&d)));
    let exact: Vec<i32> = product(&a, &b, 128).into_iter().map(|value| value as i32).collect();
    assert_eq!(download(&d), exact, "s8");
}

/// An integer of magnitude below 16 in E4M3.
fn e4m3(value: f32) -> u8 {
    let bits = value.to_bits();
    let exponent = ((bits >> 23) & 0xff) as i32 - 127 + 7;
    let magnitude = if value == 0.0 { 0 } else { (exponent << 3) | ((bits >> 20) & 7) as i32 };
    ((bits >> 31) << 7) as u8 | magnitude as u8
}

#[test]
fn eight_bit_floats() {
    let Some(gpu) = Gpu::open().filter(|gpu| gpu.has(Arch::Sm90a)) else { return };
    let mut x: Vec<f32> = (0..512).map(|i| (i % 31) as f32 - 15.0).collect();
    (x[0], x[1], x[2]) = (1e9, -1e9, 1.0625);
    let input = upload(&x);
    let (bytes, output) = (upload(&[0u16; 256]), upload(&[f32::NAN; 512]));
    gpu.launch("fp8_round_trip", 1, (ptr(&input), ptr(&bytes), ptr(&output)));
    let (bytes, y) = (download(&bytes), download(&output));
    assert_eq!(y[..3], [448.0, -448.0, 1.0], "saturated, and rounded to even");
    assert_eq!(y[3..], x[3..], "integers below 16 are exact");
    for (pair, x) in bytes.iter().zip(x.chunks(2)).skip(2) {
        assert_eq!(*pair, u16::from(e4m3(x[0])) | (u16::from(e4m3(x[1])) << 8));
    }
}

#[test]
fn blocks_of_a_cluster_pass_pages_around() {
    let Some(gpu) = Gpu::open().filter(|gpu| gpu.has(Arch::Sm90a)) else { return };
    let x: Vec<u32> = (0..512).collect();
    let (input, output) = (upload(&x), upload(&[u32::MAX; 512]));
    let count = upload(&[5, (-2000f32).to_bits(), 3f32.to_bits()]);
    gpu.launch("pass_around", 2, (ptr(&input), ptr(&output), ptr(&count)));
    let y = download(&output);
    assert_eq!((&y[..256], &y[256..]), (&x[256..], &x[..256]));
    assert_eq!(download(&count), [5 + 256, (-873f32).to_bits(), (-7f32).to_bits()]);
}
