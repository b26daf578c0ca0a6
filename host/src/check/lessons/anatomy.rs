//! The parts of a GPU.

use gpu_kernels::lessons::pointer_chase as gk;

use super::experiments::PLACES;
use super::plan::Plan;
use super::quantity::{LOADED, MOVED, MULTIPLY_ADDS, Quantity, TENSOR_FLOPS, WAVEFRONTS};
use super::run::{Run, part, with};
use super::text::{Facts, digits, or_dash};
use super::{Lesson, bus};
use crate::ops::model::{Bound, ParamValue};
use crate::runtime::device::{BackendKind, DeviceInfo};
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

pub(super) static LESSON: Lesson = Lesson {
    name: "anatomy",
    title: "what a GPU is made of, and the rates that follow",
    claim: [
        "A GPU is many multiprocessors, each with its schedulers, registers and shared memory, before one second-level cache and one memory.",
        "Widths times clocks give the peaks of arithmetic and memory, and what a byte has to be worth. How far a level is away is not written down: one thread finds out.",
    ],
    plan,
};

/// For a multiprocessor of compute capability 8 and 9: each scheduler issues an instruction of one warp per cycle.
const SCHEDULERS: u32 = 4;
const WARP: u32 = 32;

/// The bytes copied, and the side of a product, that are counted and that are timed.
const COPIED: [usize; 2] = [1 << 14, 1 << 29];
const SIDES: [usize; 2] = [256, 8192];
/// Of the product that is counted: whole steps of every kernel.
const DEPTH: usize = 64;

/// Hops that are counted and that are timed: enough that the first pass around a ring, with cold caches, does not matter.
const HOPS: [usize; 2] = [64, 1 << 17];
/// The number of places that are counted.
const COUNTED_PLACES: usize = 256;
/// The minimum cycles of a multiprocessor from an instruction to one that needs its result.
const DEPENDENT: f64 = 4.0;

/// A level of the memory hierarchy: its name, where the ring of places is stored, and their number.
struct Level {
    name: &'static str,
    place: &'static str,
    places: usize,
}

/// The levels from the nearest on. A ring fits the cache that it is named after, and not the one before: an eighth of the L2
/// cache, and four times the capacity of L2.
fn levels(info: &DeviceInfo) -> [Level; 5] {
    let [global, shared, registers] = *PLACES;
    let l2 = (info.l2_bytes as usize / (gk::LINE as usize * size_of::<u32>())).next_power_of_two();
    let level = |name, place, places| Level { name, place, places };
    [
        level("registers", registers, 1),
        level("shared memory", shared, gk::MOST_SHARED as usize),
        level("first-level cache", global, 1 << 8),
        level("second-level cache", global, l2 / 8),
        level("memory", global, l2 * 4),
    ]
}

/// A pointer chase, in which each hop waits for the one before: the latency of a level.
fn chase(info: &DeviceInfo, level: &Level) -> Result<Run> {
    let of = |n, hops: usize| -> Result<_> {
        let part = part("pointer_chase", DType::F32, [("n", n)])?;
        Ok(with(with(part, "place", ParamValue::Choice(level.place)), "steps", hops as i64))
    };
    // A single thread, and the value at the end.
    let (quantity, count): (&'static Quantity, _) = match level.name {
        "registers" => (&MULTIPLY_ADDS, HOPS[0]),
        "shared memory" => (&WAVEFRONTS, HOPS[0]),
        _ => (&LOADED, (HOPS[0] + 1) * size_of::<f32>()),
    };
    let clock = (info.clock_khz > 0).then_some(f64::from(info.clock_khz) * 1e3);
    Ok(Run::new(level.name)
        .count(of(COUNTED_PLACES.min(level.places), HOPS[0])?)
        .expect(quantity, count)
        .time(of(level.places, HOPS[1])?)
        .at_least(clock.map(|clock| HOPS[1] as f64 * DEPENDENT / clock)))
}

/// The numbers of a device.
pub fn of_device(info: &DeviceInfo) -> Facts {
    let kib = |bytes: u32| format!("{} KiB", digits(f64::from(bytes) / 1024.0));
    let clock = |khz: u32| or_dash((khz > 0).then_some(f64::from(khz) * 1e3), "Hz");
    let peak = |bound| or_dash(info.peak_flops(bound), "FLOP/s");
    let (major, minor) = info.compute_capability;
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    row("compute capability", format!("{major}.{minor}"));
    row("multiprocessors", info.multiprocessors.to_string());
    row("schedulers of a multiprocessor", SCHEDULERS.to_string());
    row("warps that it holds", (info.threads_per_multiprocessor / WARP).to_string());
    row("blocks that it holds", info.blocks_per_multiprocessor.to_string());
    row("32-bit registers of it", info.registers_per_multiprocessor.to_string());
    row("shared memory of it", kib(info.shared_bytes_per_multiprocessor));
    row("shared memory of a block", kib(info.shared_bytes_per_block));
    row("second-level cache", format!("{} MiB", digits(info.l2_bytes as f64 / f64::from(1 << 20))));
    if info.backend != BackendKind::Sim {
        row("memory", format!("{} GiB", digits(info.memory_bytes as f64 / f64::from(1 << 30))));
    }
    row("highest clock", clock(info.clock_khz));
    row("highest clock of the memory", clock(info.memory_clock_khz));
    row(
        "width of the memory bus",
        or_dash((info.memory_bus_bits > 0).then_some(f64::from(info.memory_bus_bits)), " bits"),
    );
    row("peak of memory", or_dash(info.peak_bandwidth(), "B/s"));
    row("peak of f32", peak(Bound::Fp32));
    row("peak of the tensor cores, 16 bits", peak(Bound::Tensor(DType::BF16)));
    row("peak of the tensor cores, 8 bits", peak(Bound::Tensor(DType::I8)));
    Facts { title: info.name.clone(), headings: vec!["what", ">how much"], rows }
}

/// The number of operations in the time that memory takes to move a byte.
pub(super) fn ridge(info: &DeviceInfo, bound: Bound) -> Option<f64> {
    Some(info.peak_flops(bound)? / info.peak_bandwidth()?)
}

fn plan(info: &DeviceInfo) -> Result<Plan> {
    let [f32, bf16] = [Bound::Fp32, Bound::Tensor(DType::BF16)].map(|bound| or_dash(ridge(info, bound), ""));
    let chases = levels(info).iter().map(|level| chase(info, level)).collect::<Result<Vec<_>>>()?;
    let names = levels(info).map(|level| level.name);
    let plan = Plan::new(move |results| {
        let away = names.map(|name| Some(format!("{} ns in {name}", digits(results.ms(name)? * 1e6 / HOPS[1] as f64))));
        let away = away
            .into_iter()
            .collect::<Option<Vec<_>>>()
            .map_or(String::new(), |away| format!(" A step that waits for the one before takes {}.", away.join(", ")));
        Ok(format!(
            "In the time of a byte from memory this device does {f32} operations on f32, or {bf16} of 16 bits on its tensor cores.{away}"
        ))
    });
    let copy = |n| part("copy", DType::U8, [("rows", 1), ("d", n)]);
    let product = |side, k| part("gemm_bf16", DType::BF16, [("m", side), ("n", side), ("k", k)]);
    let operations = |side: usize, k: usize| 2 * side * side * k;
    let seconds = |work: usize, rate: Option<f64>| rate.map(|rate| work as f64 / rate);
    Ok(plan
        .facts(of_device(info))
        .measured(bus::measure)
        .runs([
            Run::new("copy")
                .count(copy(COPIED[0])?)
                .expect(&MOVED, 2 * COPIED[0])
                .time(copy(COPIED[1])?)
                .at_least(seconds(2 * COPIED[1], info.peak_bandwidth())),
            Run::new("product of 16-bit matrices")
                .count(product(SIDES[0], DEPTH)?)
                .expect(&TENSOR_FLOPS, operations(SIDES[0], DEPTH))
                .time(product(SIDES[1], SIDES[1])?)
                .at_least(seconds(operations(SIDES[1], SIDES[1]), info.peak_flops(Bound::Tensor(DType::BF16)))),
        ])
        .runs(chases))
}
