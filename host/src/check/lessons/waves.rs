//! Tile and wave quantization.

use gpu_kernels::ops::gemm::gemm::{hopper, mma};

use super::plan::{Facts, Plan, Run, part};
use super::quantity::{BLOCKS, TENSOR_FLOPS};
use super::{Lesson, text};
use crate::check::bench::peak_flops;
use crate::ops::model::Bound;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

pub(super) static LESSON: Lesson = Lesson {
    name: "waves",
    title: "a row and a column more: 1792 against 1793, and the size where it strikes on this device",
    claim: [
        "A product is computed in whole tiles, and tiles go round the multiprocessors in whole rounds: a tile begun is a tile paid.",
        "One row and column more than the tiles hold is a row and column of tiles; one tile more than a round holds is a round.",
    ],
    plan,
};

/// The tiles that the kernel of a device computes, and how many at a time.
#[derive(Clone, Copy)]
struct Tiling {
    rows: usize,
    columns: usize,
    /// A step along k.
    depth: usize,
    /// Tiles that are computed at the same time.
    at_once: usize,
    /// Blocks that compute a tile together.
    blocks: usize,
    /// Whether blocks stay and take several tiles.
    persistent: bool,
}

impl Tiling {
    fn of(info: &DeviceInfo) -> Self {
        let multiprocessors = info.multiprocessors as usize;
        if info.compute_capability == (9, 0) {
            let blocks = hopper::CLUSTER as usize;
            let rows = blocks * hopper::BLOCK_M as usize;
            let (columns, depth) = (hopper::BLOCK_N as usize, hopper::BLOCK_K as usize);
            return Self { rows, columns, depth, at_once: multiprocessors / blocks, blocks, persistent: true };
        }
        let (rows, columns, depth) = (mma::BLOCK as usize, mma::BLOCK as usize, mma::BLOCK_K as usize);
        Self { rows, columns, depth, at_once: multiprocessors, blocks: 1, persistent: false }
    }

    fn tiles(self, side: usize) -> usize {
        side.div_ceil(self.rows) * side.div_ceil(self.columns)
    }

    fn rounds(self, side: usize) -> usize {
        self.tiles(side).div_ceil(self.at_once)
    }

    fn grid(self, side: usize) -> usize {
        let tiles = self.tiles(side);
        self.blocks * if self.persistent { tiles.min(self.at_once) } else { tiles }
    }

    /// Operations of whole tiles.
    fn operations(self, side: usize, k: usize) -> usize {
        2 * self.tiles(side) * self.rows * self.columns * k
    }

    /// Operations of whole rounds.
    fn paid(self, side: usize, k: usize) -> usize {
        2 * self.rounds(side) * self.at_once * self.rows * self.columns * k
    }

    /// Of the sides that are whole tiles, up to a few rounds, the one where the next side takes most in addition for what it is more.
    fn strike(self) -> usize {
        let step = self.rows.max(self.columns);
        let sides = (1..).map(|n| n * step).take_while(|side| self.rounds(*side) <= 4);
        let gain = |side: usize| self.rounds(side + 1) as f64 / self.rounds(side) as f64;
        sides.max_by(|a, b| gain(*a).total_cmp(&gain(*b)).then(a.cmp(b))).unwrap_or(step)
    }
}

/// The depth that is timed: whole steps, so that it is the sides alone that quantize.
const DEPTH: usize = 4096;
/// The sides that are counted on every device.
const SIDES: [usize; 2] = [1792, 1793];

fn plan(info: &DeviceInfo) -> Result<Plan> {
    let tiling = Tiling::of(info);
    let strike = tiling.strike();
    let mut sides = vec![SIDES[0], SIDES[1], strike, strike + 1];
    sides.dedup();
    let label = |side: usize| format!("{side} x {side}");
    let plan = Plan::new(move |results| {
        let [before, after] = [strike, strike + 1];
        let more = results.count(&label(after), &TENSOR_FLOPS)? / results.count(&label(before), &TENSOR_FLOPS)?;
        let longer = |after: f64, before: f64| format!("{} times as long", text::times(after, before));
        Ok(format!(
            "On {} x {}-tiles, {} at once, side {after} computes {} times what {before} does, in {} rounds instead of {}{}.",
            tiling.rows,
            tiling.columns,
            tiling.at_once,
            text::digits(more),
            tiling.rounds(after),
            tiling.rounds(before),
            results.timed(&label(after), &label(before), longer)
        ))
    });
    let row = |side: &usize| {
        let (tiles, rounds) = (tiling.tiles(*side), tiling.rounds(*side));
        let useful = (side * side * DEPTH * 2) as f64 / tiling.paid(*side, DEPTH) as f64;
        vec![side.to_string(), tiles.to_string(), rounds.to_string(), text::digits(100.0 * useful)]
    };
    let facts = Facts {
        title: format!(
            "Tiles of {} x {}, of which {} are computed at once",
            tiling.rows, tiling.columns, tiling.at_once
        ),
        headings: vec!["side", ">tiles", ">rounds", ">% of what they could do"],
        rows: sides.iter().map(row).collect(),
    };
    let run = |side: &usize| {
        let of = |k| part("gemm_bf16", DType::BF16, [("m", *side), ("n", *side), ("k", k)]);
        let peak = peak_flops(info, Bound::Tensor(DType::BF16));
        Ok(Run::new(label(*side))
            .count(of(tiling.depth)?)
            .expect(&BLOCKS, tiling.grid(*side))
            .expect(&TENSOR_FLOPS, tiling.operations(*side, tiling.depth))
            .time(of(DEPTH)?)
            .at_least(peak.map(|rate| tiling.paid(*side, DEPTH) as f64 / rate)))
    };
    Ok(plan.facts(facts).runs(sides.iter().map(run).collect::<Result<Vec<_>>>()?))
}
