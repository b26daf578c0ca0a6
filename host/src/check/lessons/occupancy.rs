//! Occupancy, and the latency that it hides.

use cuda_std::launch::Kernel;
use gpu_kernels::lessons::reverse_blocks::{self as gk, ReverseBlocks};

use super::plan::{Facts, Plan, Run, variant};
use super::quantity::RESIDENT_WARPS;
use super::{Lesson, text};
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

pub(super) static LESSON: Lesson = Lesson {
    name: "occupancy",
    title: "the same kernel with more shared memory a block, so that fewer warps fit",
    claim: [
        "A warp that waits for memory costs nothing while others run: a multiprocessor hides latency with the warps that it holds.",
        "To keep memory busy, bytes in flight have to be rate times latency; few warps with a load each are too few bytes.",
    ],
    plan,
};

const WARP: u32 = 32;
/// Rows of 16 bytes that are counted.
const COUNTED: usize = 1024;
/// And that are timed.
const TIMED: usize = 1 << 23;
const ROW_BYTES: usize = gk::ROW * size_of::<f32>();

/// Blocks with that much shared memory that a multiprocessor holds.
fn blocks(info: &DeviceInfo, shared_bytes: usize) -> u32 {
    // What the system takes of a block's.
    let reserved = info.shared_bytes_per_multiprocessor.saturating_sub(info.shared_bytes_per_block);
    let by_shared = info.shared_bytes_per_multiprocessor / (shared_bytes as u32 + reserved);
    by_shared.min(info.threads_per_multiprocessor / gk::BLOCK).min(info.blocks_per_multiprocessor)
}

/// A variant of the kernel, by the shared memory of its blocks.
struct Holding {
    name: &'static str,
    shared_bytes: usize,
}

const HOLDINGS: [Holding; 4] = [
    Holding { name: "8KiB", shared_bytes: ReverseBlocks::<8>::SHARED_BYTES },
    Holding { name: "27KiB", shared_bytes: ReverseBlocks::<27>::SHARED_BYTES },
    Holding { name: "56KiB", shared_bytes: ReverseBlocks::<56>::SHARED_BYTES },
    Holding { name: "98KiB", shared_bytes: ReverseBlocks::<98>::SHARED_BYTES },
];

/// The latency in nanoseconds at which that many blocks still ask for what memory can give.
fn covered(info: &DeviceInfo, blocks: u32) -> Option<f64> {
    let in_flight = f64::from(blocks * gk::BLOCK) * ROW_BYTES as f64;
    let share = info.peak_bandwidth()? / f64::from(info.multiprocessors);
    Some(in_flight / share * 1e9)
}

fn run(info: &DeviceInfo, Holding { name, shared_bytes }: &Holding) -> Result<Run> {
    let of = |rows| variant("reverse_blocks", name, DType::F32, [("rows", rows)]);
    let warps = blocks(info, *shared_bytes) * (gk::BLOCK / WARP);
    let bytes = 2 * TIMED * ROW_BYTES;
    Ok(Run::new(*name)
        .count(of(COUNTED)?)
        .expect(&RESIDENT_WARPS, f64::from(warps))
        .time(of(TIMED)?)
        .at_least(info.peak_bandwidth().map(|rate| bytes as f64 / rate)))
}

fn plan(info: &DeviceInfo) -> Result<Plan> {
    let [first, .., last] = HOLDINGS;
    let [many, few] = [&first, &last].map(|holding| {
        let blocks = blocks(info, holding.shared_bytes);
        text::or_dash(covered(info, blocks), " ns")
    });
    let plan = Plan::new(move |results| {
        let [first, .., last] = HOLDINGS;
        let warps = |holding: &Holding| results.count(holding.name, &RESIDENT_WARPS);
        let longer = |few: f64, many: f64| format!("{} times as long", text::times(few, many));
        Ok(format!(
            "{} warps ask for all that memory gives if it answers within {many}, {} warps only if within {few}{}.",
            text::digits(warps(&first)?),
            text::digits(warps(&last)?),
            results.timed(last.name, first.name, longer)
        ))
    });
    let row = |holding: &Holding| {
        let blocks = blocks(info, holding.shared_bytes);
        let in_flight = blocks as usize * gk::BLOCK as usize * ROW_BYTES;
        let latency = text::or_dash(covered(info, blocks), "");
        vec![holding.name.to_owned(), blocks.to_string(), text::count(in_flight as f64), latency]
    };
    let facts = Facts {
        title: "What a multiprocessor has in flight, and the latency that this covers at the peak of memory".to_owned(),
        headings: vec!["shared memory a block", ">blocks", ">bytes in flight", ">ns"],
        rows: HOLDINGS.iter().map(row).collect(),
    };
    let runs = HOLDINGS.iter().map(|holding| run(info, holding)).collect::<Result<Vec<_>>>()?;
    Ok(plan.facts(facts).runs(runs))
}
