//! Runs kernels of the fixture in the simulator and compares them with the same functions on the CPU.
//!
//! Without a device toolchain the tests say so and pass; `cargo xtask test` fetches one first.

use std::{fs, path::Path, sync::OnceLock};

use cuda_builder::{Arch, BuildOutput, CudaBuilder, toolchain};
use cuda_std::math;
use warpsim::{Gpu, Kernel, Launch, Module, Options};

fn build() -> Option<&'static BuildOutput> {
    static BUILT: OnceLock<Option<BuildOutput>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        if let Err(why) = toolchain::find() {
            eprintln!("skipped: {why}");
            return None;
        }
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let built = CudaBuilder::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/smoke"))
            .arch(Arch::Sm80)
            .arch(Arch::Sm90a)
            .target_folder(scratch.join("device"))
            .copy_to(scratch.join("simulated"))
            .build();
        Some(built.unwrap_or_else(|error| panic!("{error}")))
    });
    built.as_ref()
}

fn kernel(symbol: &str) -> Option<Kernel> {
    let kernel = build()?.manifest.get(Arch::Sm80, symbol).unwrap_or_else(|| panic!("`{symbol}` is built"));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("simulated").join(kernel.file());
    let ptx = fs::read_to_string(file).expect("its file is readable");
    Some(Module::parse(&ptx).and_then(|module| module.kernel(symbol)).unwrap_or_else(|error| panic!("{error}")))
}

fn bytes<T: Copy, const N: usize>(values: &[T], bytes: fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| bytes(*value)).collect()
}

/// What only the device could spoil: a product and a sum that were fused, a comparison that lost NaN.
#[test]
fn math_is_what_it_is_on_the_host() {
    let Some(kernel) = kernel("host_math") else { return };
    let special = [0.0, -0.0, 1.0, -1.0, 0.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, f32::MAX, -3.0, 2.0];
    let spread = (0..2000u32).map(|i| f32::from_bits(i.wrapping_mul(2_654_435_761)));
    let near = (0..2000u32).map(|i| (i as f32 - 1000.0) / 97.0);
    let mut x: Vec<f32> = special.into_iter().chain(spread).chain(near).collect();
    x.resize(x.len().next_multiple_of(32), 0.0);
    // Partners: each special value meets each, once the order is turned.
    let y: Vec<f32> = (0..x.len()).map(|i| x[(i * 5 + i / special.len()) % x.len()]).collect();
    let n = x.len();

    let mut gpu = Gpu::new();
    let (a, b) = (gpu.alloc_with(&bytes(&x, f32::to_le_bytes), "x"), gpu.alloc_with(&bytes(&y, f32::to_le_bytes), "y"));
    let results = gpu.alloc(4 * n * FUNCTIONS.len(), "results");
    let args: [&[u8]; 4] = [&a.to_le_bytes(), &b.to_le_bytes(), &results.to_le_bytes(), &(n as u32).to_le_bytes()];
    let launch = Launch { grid: [n as u32 / 32, 1, 1], block: [32, 1, 1], args: &args, ..Launch::default() };
    let report = gpu.launch(&kernel, &launch, &Options::default()).unwrap_or_else(|fault| panic!("{fault}"));
    assert!(report.clean());
    let found = gpu.read_vec(results, 4 * n * FUNCTIONS.len()).expect("they are there");
    let found: Vec<f32> = found.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    for ((name, function), found) in FUNCTIONS.iter().zip(found.chunks(n)) {
        for ((x, y), found) in x.iter().zip(&y).zip(found) {
            let exact = function(*x, *y);
            let apart = (exact.to_bits() as i32).abs_diff(found.to_bits() as i32);
            assert!(
                apart <= 1 || exact.is_nan() && found.is_nan(),
                "{name} of {x:e} and {y:e}: {found:e}, not {exact:e}"
            );
        }
    }
}

type Function = fn(f32, f32) -> f32;

/// In the order of the kernel's rows.
const FUNCTIONS: [(&str, Function); 20] = [
    ("exp10", |x, _| math::exp10(x)),
    ("log10", |x, _| math::log10(x)),
    ("cbrt", |x, _| math::cbrt(x)),
    ("tan", |x, _| math::tan(x)),
    ("atan", |x, _| math::atan(x)),
    ("asin", |x, _| math::asin(x)),
    ("acos", |x, _| math::acos(x)),
    ("sinh", |x, _| math::sinh(x)),
    ("cosh", |x, _| math::cosh(x)),
    ("asinh", |x, _| math::asinh(x)),
    ("acosh", |x, _| math::acosh(x)),
    ("atanh", |x, _| math::atanh(x)),
    ("erfc", |x, _| math::erfc(x)),
    ("normal_cdf", |x, _| math::normal_cdf(x)),
    ("pow", math::pow),
    ("powi", |x, y| math::powi(x, y.to_bits() as i32 >> 20)),
    ("atan2", math::atan2),
    ("hypot", math::hypot),
    ("rem", math::rem),
    ("mul_rn", math::mul_rn),
];

#[test]
fn lanes_of_a_mask_exchange_what_is_documented() {
    let Some(kernel) = kernel("parts") else { return };
    fn after(a: u32, b: u32) -> u32 {
        let (factor, term) = ((a >> 16) * (b >> 16), (a & 0xffff) * (b >> 16) + (b & 0xffff));
        factor << 16 | term & 0xffff
    }
    let map = |lane: u32| (2 * lane + 3) << 16 | lane;
    // Each has a partner for its lanes, by two apart, and lanes 0 and 31 both or neither.
    for mask in [!0u32, 0x5555_5550, 0xa000_0005] {
        let mut gpu = Gpu::new();
        let y = gpu.alloc_with(&[0xee; 22 * 128], "y");
        let args: [&[u8]; 2] = [&y.to_le_bytes(), &mask.to_le_bytes()];
        let launch = Launch { block: [32, 1, 1], args: &args, ..Launch::default() };
        let report = gpu.launch(&kernel, &launch, &Options::default()).unwrap_or_else(|fault| panic!("{fault}"));
        assert!(report.clean(), "{mask:#x}");
        let found = gpu.read_vec(y, 22 * 128).expect("it is there");
        let found: Vec<u32> = found.chunks(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();

        let lanes: Vec<u32> = (0..32).filter(|lane| mask >> lane & 1 == 1).collect();
        let select =
            |keep: &dyn Fn(u32) -> bool| lanes.iter().filter(|l| keep(**l)).fold(0, |bits, l| bits | 1u32 << l);
        let (least, greatest) = (lanes[0], lanes[lanes.len() - 1]);
        let signed = |lane: u32| lane as i32 - 16;
        for lane in 0..32 {
            let all = (0..=lane).map(map).reduce(after);
            assert_eq!(Some(found[lane as usize]), all, "the scan of a whole warp");
            let here = |row: usize| found[32 * row + lane as usize];
            if mask >> lane & 1 == 0 {
                assert!((1..22).all(|row| here(row) == 0xeeee_eeee), "lane {lane} is not of {mask:#x}");
                continue;
            }
            let up = if lane == 31 { 0 } else { lane };
            let down = if lane == 0 { 31 } else { lane };
            let expected = [
                lanes.iter().filter(|other| **other < lane).count() as u32,
                lane ^ 2,
                least,
                up,
                down,
                lane ^ 2,
                least,
                up,
                down,
                1,
                2,
                select(&|other| other % 3 == 0),
                select(&|other| other / 8 == lane / 8),
                1,
                lanes.iter().sum(),
                least + (greatest << 8),
                lanes.iter().map(|l| signed(*l)).sum::<i32>() as u32,
                (signed(least) + (signed(greatest) << 8)) as u32,
                lanes.iter().fold(!0, |a, l| a & !l)
                    ^ lanes.iter().fold(0, |a, l| a | l)
                    ^ lanes.iter().fold(0, |a, l| a ^ (l * l)),
                lanes.iter().filter(|other| **other <= lane).map(|l| map(*l)).reduce(after).unwrap_or_default(),
                lanes.iter().map(|l| map(*l)).reduce(after).unwrap_or_default(),
            ];
            for (row, expected) in expected.into_iter().enumerate() {
                assert_eq!(here(row + 1), expected, "row {} in lane {lane} of {mask:#x}", row + 1);
            }
        }
    }
}
