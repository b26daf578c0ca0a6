//! Bank conflicts.

use gpu_kernels::ops::layout::transpose::{Conflicted, Padded, Placement, Swizzled, TILE};

use super::plan::Plan;
use super::quantity::{CONFLICTS, WAVEFRONTS};
use super::run::{Run, variant};
use super::{Lesson, text};
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

pub(super) static LESSON: Lesson = Lesson {
    name: "bank-conflicts",
    title: "a transpose through shared memory, with its columns in one bank, padded and swizzled",
    claim: [
        "Shared memory has 32 banks of 4 bytes and serves one address of each at a time: a column of a tile 32 wide is 32 turns.",
        "One word of padding a row, or an exclusive-or of row and column, spreads the column over all banks: one turn.",
    ],
    plan,
};

const BANKS: u32 = 32;
/// Rows and columns of the matrices that are counted.
const COUNTED: usize = 64;
/// And that are timed.
const TIMED: usize = 8192;

/// The wavefronts that a warp needs to read a column of a tile: the maximum number of its elements in one bank.
fn turns<S: Placement>(column: u32) -> usize {
    let mut banks = [0; BANKS as usize];
    for row in 0..TILE {
        banks[((row * S::PITCH + S::column(row, column)) % BANKS) as usize] += 1;
    }
    banks.into_iter().max().unwrap_or(0)
}

fn run<S: Placement>(info: &DeviceInfo, name: &str) -> Result<Run> {
    let of = |side| variant("transpose", name, DType::F32, [("batch", 1), ("rows", side), ("columns", side)]);
    // A warp reads whole columns.
    let tiles = (COUNTED / TILE as usize).pow(2);
    let turns: usize = (0..TILE).map(turns::<S>).sum();
    let least = tiles * TILE as usize;
    let bytes = 2 * TIMED * TIMED * size_of::<f32>();
    Ok(Run::new(name)
        .count(of(COUNTED)?)
        .expect(&WAVEFRONTS, tiles * turns)
        .expect(&CONFLICTS, tiles * turns - least)
        .time(of(TIMED)?)
        .at_least(info.peak_bandwidth().map(|rate| bytes as f64 / rate)))
}

fn plan(info: &DeviceInfo) -> Result<Plan> {
    let plan = Plan::new(|results| {
        // One load per warp.
        let loads = (COUNTED * COUNTED / TILE as usize) as f64;
        let turns = |label: &str| Ok(text::times(results.count(label, &WAVEFRONTS)?, loads));
        let faster = |bad: f64, good: f64| format!("the whole transpose {} times as fast", text::times(bad, good));
        Ok(format!(
            "A warp's load of a column takes {} turns of shared memory as it comes, {} padded and {} swizzled{}.",
            turns("conflicted")?,
            turns("padded")?,
            turns("swizzled")?,
            results.timed("conflicted", "swizzled", faster)
        ))
    });
    Ok(plan.runs([
        run::<Conflicted>(info, "conflicted")?,
        run::<Padded>(info, "padded")?,
        run::<Swizzled>(info, "swizzled")?,
    ]))
}
