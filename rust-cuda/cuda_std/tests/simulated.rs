//! Runs kernels of the fixture in the simulator and compares them with the same functions on the CPU.
//!
//! Without a device toolchain the tests say so and pass; `cargo xtask test` fetches one first.

mod fixture;

use std::sync::OnceLock;

use cuda_builder::{Arch, BuildOutput};
use cuda_std::{bf16, f16, math};
use warpsim::{Finding, Gpu, Kernel, Kind, L4, Launch, Module, Options};

fn build() -> Option<&'static BuildOutput> {
    static BUILT: OnceLock<Option<BuildOutput>> = OnceLock::new();
    let archs = [Arch::Sm80, Arch::Sm90a];
    BUILT.get_or_init(|| fixture::build("smoke", &archs, &fixture::scratch("simulated"))).as_ref()
}

fn kernel(symbol: &str) -> Option<Kernel> {
    let ptx = fixture::ptx(&build()?.manifest, Arch::Sm80, symbol, &fixture::scratch("simulated"));
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
const FUNCTIONS: [(&str, Function); 21] = [
    ("exp10", |x, _| math::exp10(x)),
    ("log10", |x, _| math::log10(x)),
    ("cbrt", |x, _| math::cbrt(x)),
    ("sin", |x, _| math::sin(x)),
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

/// Launches `grid_sum` of `x` and says what every block has found, or the first of the findings.
fn grid_sum(kernel: &Kernel, x: &[u32], blocks: u32, cooperative: bool) -> Result<Vec<u32>, Box<Finding>> {
    let mut gpu = Gpu::new();
    let given = gpu.alloc_with(&bytes(x, u32::to_le_bytes), "x");
    let (parts, y) = (gpu.alloc(4 * blocks as usize, "parts"), gpu.alloc(4 * blocks as usize, "y"));
    let n = x.len() as u32;
    let args: [&[u8]; 4] = [&given.to_le_bytes(), &parts.to_le_bytes(), &y.to_le_bytes(), &n.to_le_bytes()];
    let launch = Launch { grid: [blocks, 1, 1], block: [32, 1, 1], cooperative, args: &args, ..Launch::default() };
    let options = Options { device: Some(L4), ..Options::default() };
    let report = gpu.launch(kernel, &launch, &options).map_err(|fault| fault.finding)?;
    assert!(report.clean());
    let found = [y, parts].map(|at| gpu.read_vec(at, 4 * blocks as usize).expect("it is there"));
    Ok(found.concat().chunks(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

#[test]
fn all_blocks_of_a_grid_meet() {
    let Some(kernel) = kernel("grid_sum") else { return };
    let entry = build().and_then(|built| built.manifest.get(Arch::Sm80, "grid_sum")).expect("it is built");
    assert!(entry.cooperative);
    let x: Vec<u32> = (0..5000).map(|i| i * 7 % 1009).collect();
    let sum: u32 = x.iter().sum();
    for blocks in [1, 2, 57] {
        let found = grid_sum(&kernel, &x, blocks, true).unwrap_or_else(|finding| panic!("{finding}"));
        let (sums, doubled) = found.split_at(blocks as usize);
        assert!(sums.iter().all(|y| *y == sum) && doubled.iter().all(|y| *y == 2 * sum), "{blocks} blocks: {found:?}");
    }
    let refused = grid_sum(&kernel, &x, 58 * 24 + 1, true).unwrap_err();
    assert!(refused.message.contains("too many blocks in a cooperative launch"), "{refused}");
    let trapped = grid_sum(&kernel, &x, 2, false).unwrap_err();
    assert!(trapped.kind == Kind::Trap && trapped.message.contains("a cooperative launch alone has"), "{trapped}");
}

#[test]
fn a_barrier_of_one_s_own_does_not_hang() {
    let Some(kernel) = kernel("own_barrier") else { return };
    // The device has room for 1392 of them: those wait for the others, which wait for their places.
    let mut gpu = Gpu::new();
    let count = gpu.alloc_with(&[0; 4], "count");
    let args: [&[u8]; 1] = [&count.to_le_bytes()];
    let launch = Launch { grid: [1500, 1, 1], block: [32, 1, 1], args: &args, ..Launch::default() };
    let fault = gpu.launch(&kernel, &launch, &Options { device: Some(L4), ..Options::default() }).unwrap_err();
    let finding = &fault.finding;
    assert!(
        finding.kind == Kind::Deadlock && finding.message.contains("which a cooperative launch sees to"),
        "{finding}"
    );
}

/// Both values of each pair, as the exact results round, of every number of the type with a few others.
fn pairs_of<T: Copy>(symbol: &str, to: fn(T) -> f64, from: fn(f64) -> T, bits: fn(T) -> u16, of_bits: fn(u16) -> T) {
    let Some(kernel) = kernel(symbol) else { return };
    let words = |step: u16| (0..64u16).map(move |i| i.wrapping_mul(step).wrapping_add(0x3c00)).collect::<Vec<_>>();
    let mut greatest = 0;
    for (x, y) in (0..200u16).map(|i| (words(i.wrapping_mul(331) + 1), words(i * 57 + 5))) {
        let mut gpu = Gpu::new();
        let (a, b) =
            (gpu.alloc_with(&bytes(&x, u16::to_le_bytes), "x"), gpu.alloc_with(&bytes(&y, u16::to_le_bytes), "y"));
        let z = gpu.alloc(26 * 128, "z");
        let args: [&[u8]; 3] = [&a.to_le_bytes(), &b.to_le_bytes(), &z.to_le_bytes()];
        let launch = Launch { block: [32, 1, 1], args: &args, ..Launch::default() };
        assert!(gpu.launch(&kernel, &launch, &Options::default()).unwrap_or_else(|fault| panic!("{fault}")).clean());
        let found = gpu.read_vec(z, 26 * 128).expect("it is there");
        let found: Vec<u16> = found.chunks(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
        for i in 0..64 {
            let value = |word: u16| to(of_bits(word));
            let (a, b, first) = (value(x[i]), value(y[i]), value(x[i & !1]));
            let (nan, fused) = (a.is_nan() || b.is_nan(), sum(a * b, first));
            let expected = [
                sum(a, b),
                sum(a, -b),
                a * b,
                -a,
                a.abs(),
                fused,
                a.max(b),
                a.min(b),
                if nan { f64::NAN } else { a.max(b) },
                if nan { f64::NAN } else { a.min(b) },
                if i % 2 == 0 { value(y[i + 1]) } else { value(x[i - 1]) },
                f64::from(a as f32 * 0.3),
                value(y[i ^ 1]),
                value(x[i ^ 2]),
                value(x[i ^ 1]),
                if fused.is_nan() { fused } else { fused.max(0.0) },
                if a > b { a } else { b },
            ];
            let less = |i: usize| value(x[i]) < value(y[i]);
            let (both, either) = (less(i) && less(i ^ 1), less(i) || less(i ^ 1));
            let masks = [a == b, a != b, a < b, a <= b, a > b, a >= b, a.is_nan(), both, either];
            for (row, held) in (expected.len()..).zip(masks) {
                let found = found[64 * row + i];
                assert_eq!(found, if held { 0xffff } else { 0 }, "{symbol}, row {row}, {a:e} and {b:e}");
            }
            for (row, expected) in expected.into_iter().enumerate() {
                let (found, expected) = (found[64 * row + i], bits(from(expected)));
                let both_nan = value(found).is_nan() && value(expected).is_nan();
                // Zeros of either sign are the least of zeros.
                let both_zero = value(found) == 0.0 && value(expected) == 0.0 && [6, 7, 8, 9, 15].contains(&row);
                assert!(
                    found == expected || both_nan || both_zero,
                    "{symbol}, row {row}, {a:e} and {b:e}: {found:#x}, not {expected:#x}"
                );
                greatest = greatest.max(found & 0x7fff);
            }
        }
    }
    assert!(greatest > 0x7c00, "infinities and NaN are among them");
}

#[test]
fn pairs_are_rounded_as_numbers_are() {
    pairs_of::<f16>("pairs_f16", f16::to_f64, |x| f16::from_f32(to_odd(x)), f16::to_bits, f16::from_bits);
    pairs_of::<bf16>("pairs_bf16", bf16::to_f64, |x| bf16::from_f32(to_odd(x)), bf16::to_bits, bf16::from_bits);
}

/// a + b, to an odd last bit where it is inexact: 16 bits are then rounded to as from the exact sum.
fn sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let rest = sum - a;
    let lost = (a - (sum - rest)) + (b - rest);
    if lost == 0.0 || !lost.is_finite() || sum.to_bits() & 1 == 1 {
        return sum;
    }
    f64::from_bits(if (lost > 0.0) == (sum > 0.0) { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// An `f32` that rounds to a narrower float as x does: what is inexact gets an odd last bit.
fn to_odd(x: f64) -> f32 {
    let nearest = x as f32;
    let back = f64::from(nearest);
    if back == x || !x.is_finite() || !nearest.is_finite() || nearest.to_bits() & 1 == 1 {
        return nearest;
    }
    f32::from_bits(if back.abs() < x.abs() { nearest.to_bits() + 1 } else { nearest.to_bits() - 1 })
}

/// A crate of functions for whoever has no standard library is good enough for a kernel, as it is.
#[test]
fn libm_compiles_for_the_device() {
    let Some(kernel) = kernel("libm_math") else { return };
    let x: Vec<f64> = (1..=320).map(|i| f64::from(i) * 0.037).collect();
    let y: Vec<f64> = (1..=320).map(|i| f64::from(i * 7 % 31) - 15.3).collect();
    let functions: [fn(f64, f64) -> f64; 5] = [|x, _| x.sin(), |x, _| x.exp(), |x, _| x.ln(), f64::powf, f64::atan2];
    let mut gpu = Gpu::new();
    let [a, b] = [&x, &y].map(|values| gpu.alloc_with(&bytes(values, f64::to_le_bytes), "x or y"));
    let results = gpu.alloc(8 * 320 * 6, "results");
    let args: [&[u8]; 4] = [&a.to_le_bytes(), &b.to_le_bytes(), &results.to_le_bytes(), &320u32.to_le_bytes()];
    let launch = Launch { grid: [10, 1, 1], block: [32, 1, 1], args: &args, ..Launch::default() };
    assert!(gpu.launch(&kernel, &launch, &Options::default()).unwrap_or_else(|fault| panic!("{fault}")).clean());
    let found = gpu.read_vec(results, 8 * 320 * 6).expect("they are there");
    let found: Vec<f64> = found.chunks(8).map(|b| f64::from_le_bytes(b.try_into().expect("8 bytes"))).collect();
    for (row, (function, found)) in functions.iter().zip(found.chunks(320)).enumerate() {
        for ((x, y), found) in x.iter().zip(&y).zip(found) {
            let exact = function(*x, *y);
            assert!(
                (found - exact).abs() <= exact.abs() * 4.0 * f64::EPSILON,
                "row {row} of {x} and {y}: {found:e}, not {exact:e}"
            );
        }
    }
    // erfc(1), to as many digits as there are: x is 1 nowhere, but 0.999 and 1.036 enclose it.
    let erfc = &found[5 * 320..];
    assert!(erfc[26] > 0.157_299_207_050_285_13 && erfc[27] < 0.157_299_207_050_285_13, "{:?}", &erfc[26..28]);
}
