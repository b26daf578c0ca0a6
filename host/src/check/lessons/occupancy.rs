//! Occupancy, and the latency that it hides.

use cuda_std::launch::Kernel;
use gpu_kernels::lessons::packs_in_flight::PacksInFlight;
use gpu_kernels::lessons::reverse_blocks::{self as gk, ReverseBlocks};

use super::plan::Plan;
use super::quantity::RESIDENT_WARPS;
use super::run::{Run, variant};
use super::text::Facts;
use super::{Lesson, text};
use crate::check::bench::Timing;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

pub(super) static LESSON: Lesson = Lesson {
    name: "occupancy",
    title: "few warps with a load each are slow, few warps with many loads each are not",
    claim: [
        "A warp that waits for memory costs nothing while others run: a multiprocessor hides latency with the warps that it holds.",
        "To keep memory busy, bytes in flight have to be rate times latency; few warps with a load each are too few bytes.",
    ],
    plan,
};

const WARP: u32 = 32;
/// Rows of 16 bytes that are counted.
const COUNTED: usize = 1024;
/// And that are timed: reversed, and copied, by blocks that have a longer way each.
const REVERSED: usize = 1 << 23;
const COPIED: usize = 1 << 26;
const ROW_BYTES: usize = gk::ROW * size_of::<f32>();

/// The number of blocks with this much shared memory that fit on a multiprocessor.
fn blocks(info: &DeviceInfo, shared_bytes: usize) -> u32 {
    // The part of a block's shared memory that the system reserves.
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

/// A copy by many threads with one load in flight each, or by few with several: its name, the shared memory of its blocks, and
/// the number of loads.
const COPIES: [(&str, usize, usize); 6] = [
    ("many_1", PacksInFlight::<8, 1>::SHARED_BYTES, 1),
    ("few_1", PacksInFlight::<98, 1>::SHARED_BYTES, 1),
    ("few_2", PacksInFlight::<98, 2>::SHARED_BYTES, 2),
    ("few_4", PacksInFlight::<98, 4>::SHARED_BYTES, 4),
    ("few_8", PacksInFlight::<98, 8>::SHARED_BYTES, 8),
    ("few_16", PacksInFlight::<98, 16>::SHARED_BYTES, 16),
];

/// The bytes in flight per multiprocessor.
fn in_flight(blocks: u32, loads: usize) -> usize {
    (blocks * gk::BLOCK) as usize * ROW_BYTES * loads
}

/// The latency in nanoseconds up to which this number of blocks saturates memory bandwidth.
fn covered(info: &DeviceInfo, blocks: u32, loads: usize) -> Option<f64> {
    let in_flight = in_flight(blocks, loads) as f64;
    let share = info.peak_bandwidth()? / f64::from(info.multiprocessors);
    Some(in_flight / share * 1e9)
}

/// What moves rows of 16 bytes from one tensor to another.
fn run(
    info: &DeviceInfo,
    (name, shared_bytes): (&str, usize),
    timed: usize,
    of: impl Fn(usize) -> Result<Timing>,
) -> Result<Run> {
    let warps = blocks(info, shared_bytes) * (gk::BLOCK / WARP);
    let bytes = 2 * timed * ROW_BYTES;
    Ok(Run::new(name)
        .count(of(COUNTED)?)
        .expect(&RESIDENT_WARPS, f64::from(warps))
        .time(of(timed)?)
        .at_least(info.peak_bandwidth().map(|rate| bytes as f64 / rate)))
}

fn plan(info: &DeviceInfo) -> Result<Plan> {
    let [first, .., last] = HOLDINGS;
    let [many, few] = [&first, &last].map(|holding| {
        let blocks = blocks(info, holding.shared_bytes);
        text::or_dash(covered(info, blocks, 1), " ns")
    });
    let plan = Plan::new(move |results| {
        let [first, .., last] = HOLDINGS;
        let warps = |holding: &Holding| results.count(holding.name, &RESIDENT_WARPS);
        let [spread, .., packed] = COPIES;
        let flight = |(name, _, loads): (&str, usize, usize)| -> Result<f64> {
            Ok(results.count(name, &RESIDENT_WARPS)? * loads as f64)
        };
        let faster = |spread: f64, packed: f64| format!("{} times as fast", text::times(spread, packed));
        let longer = |few: f64, many: f64| format!("{} times as long", text::times(few, many));
        Ok(format!(
            "{} warps ask for all that memory gives if it answers within {many}, {} warps only if within {few}{}. With {} loads a \
             thread these have {} times as many bytes in flight as those with one{}.",
            text::digits(warps(&first)?),
            text::digits(warps(&last)?),
            results.timed(last.name, first.name, longer),
            packed.2,
            text::times(flight(packed)?, flight(spread)?),
            results.timed(spread.0, packed.0, faster)
        ))
    });
    let holdings = HOLDINGS.iter().map(|&Holding { name, shared_bytes }| (name, shared_bytes, 1));
    let row = |(name, shared_bytes, loads): (&str, usize, usize)| {
        let blocks = blocks(info, shared_bytes);
        let in_flight = text::count(in_flight(blocks, loads) as f64);
        let latency = text::or_dash(covered(info, blocks, loads), "");
        vec![name.to_owned(), blocks.to_string(), loads.to_string(), in_flight, latency]
    };
    let facts = Facts {
        title: "What a multiprocessor has in flight, and the latency that this covers at the peak of memory".to_owned(),
        headings: vec!["kernel", ">blocks", ">loads a thread", ">bytes in flight", ">ns"],
        rows: holdings.clone().chain(COPIES).map(row).collect(),
    };
    let reversed = holdings.map(|(name, shared_bytes, _)| {
        run(info, (name, shared_bytes), REVERSED, |rows| variant("reverse_blocks", name, DType::F32, [("rows", rows)]))
    });
    let copied = COPIES.map(|(name, shared_bytes, _)| {
        run(info, (name, shared_bytes), COPIED, |packs| {
            variant("packs_in_flight", name, DType::F32, [("packs", packs)])
        })
    });
    Ok(plan.facts(facts).runs(reversed.chain(copied).collect::<Result<Vec<_>>>()?))
}
