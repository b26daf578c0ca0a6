//! Tile and wave quantization.

use super::plan::Plan;
use super::quantity::{BLOCKS, TENSOR_FLOPS};
use super::run::Run;
use super::text::Facts;
use super::tiling::Tiling;
use super::{Lesson, text};
use crate::ops::model::Bound;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

pub(super) static LESSON: Lesson = Lesson {
    name: "waves",
    title: "a row and a column more: 1792 against 1793, and the size where it strikes on this device",
    claim: [
        "A product is computed in whole tiles, and tiles in whole waves, each as many as the device computes at once: a tile begun is a tile paid.",
        "One row and column more than the tiles hold is a row and column of tiles; one tile more than a wave holds is a wave.",
    ],
    plan,
};

/// The depth that is timed: whole steps, so that it is the sides alone that quantize.
const DEPTH: usize = 4096;
/// The sides that are counted on every device.
const SIDES: [usize; 2] = [1792, 1793];

fn plan(info: &DeviceInfo) -> Result<Plan> {
    let tiling = Tiling::widest(info);
    let strike = tiling.strike();
    let mut sides = vec![SIDES[0], SIDES[1], strike, strike + 1];
    sides.dedup();
    let label = |side: usize| format!("{side} x {side}");
    // What is picked instead of the widest tiles, where these strike.
    let picked = Tiling::of(info, strike + 1);
    let picked = (picked.columns != tiling.columns).then_some(picked);
    let of_picked =
        move |picked: Tiling| format!("{} by {} x {}-tiles", label(strike + 1), picked.rows, picked.columns);
    let plan = Plan::new(move |results| {
        let [before, after] = [strike, strike + 1];
        let more = results.count(&label(after), &TENSOR_FLOPS)? / results.count(&label(before), &TENSOR_FLOPS)?;
        let longer = |after: f64, before: f64| format!("{} times as long", text::times(after, before));
        let mut said = format!(
            "On {} x {}-tiles, {} at once, side {after} computes {} times what {before} does, in {} waves instead of {}{}.",
            tiling.rows,
            tiling.columns,
            tiling.at_once,
            text::digits(more),
            tiling.waves(after),
            tiling.waves(before),
            results.timed(&label(after), &label(before), longer)
        );
        if let Some(picked) = picked {
            said += &format!(
                " On {} x {}-tiles it is {} of them{}.",
                picked.rows,
                picked.columns,
                picked.waves(after),
                results.timed(&of_picked(picked), &label(before), longer)
            );
        }
        Ok(said)
    });
    let of_side = |side: &usize| (*side, tiling);
    let cut: Vec<_> = sides.iter().map(of_side).chain(picked.map(|picked| (strike + 1, picked))).collect();
    let row = |(side, tiling): &(usize, Tiling)| {
        let (tiles, waves) = (tiling.tiles(*side), tiling.waves(*side));
        let useful = (side * side * DEPTH * 2) as f64 / tiling.paid(*side, DEPTH) as f64;
        let tile = format!("{} x {}", tiling.rows, tiling.columns);
        vec![side.to_string(), tile, tiles.to_string(), waves.to_string(), text::digits(100.0 * useful)]
    };
    let facts = Facts {
        title: format!("Tiles, of which {} are computed at once", tiling.at_once),
        headings: vec!["side", "tile", ">tiles", ">waves", ">% of what they could do"],
        rows: cut.iter().map(row).collect(),
    };
    let run = |(side, tiling): &(usize, Tiling)| {
        let peak = info.peak_flops(Bound::Tensor(DType::BF16));
        let label = if tiling.columns == Tiling::widest(info).columns { label(*side) } else { of_picked(*tiling) };
        Ok(Run::new(label)
            .count(tiling.part(*side, tiling.depth)?)
            .expect(&BLOCKS, tiling.grid(*side))
            .expect(&TENSOR_FLOPS, tiling.operations(*side, tiling.depth))
            .time(tiling.part(*side, DEPTH)?)
            .at_least(peak.map(|rate| tiling.paid(*side, DEPTH) as f64 / rate)))
    };
    Ok(plan.facts(facts).runs(cut.iter().map(run).collect::<Result<Vec<_>>>()?))
}
