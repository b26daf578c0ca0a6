//! Tiling, and the ladder of an f32 product.

use gpu_kernels::ops::gemm::sgemm as gk;
use gpu_kernels::ops::gemm::sgemm::ladder;

use super::plan::Plan;
use super::quantity::{LOADED, LOADED_BY_WARPS, WAVEFRONTS, WAVEFRONTS_OF_PTX};
use super::run::{Run, variant};
use super::text::Facts;
use super::{Lesson, text};
use crate::check::bench::Timing;
use crate::ops::model::Bound;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

pub(super) static LESSON: Lesson = Lesson {
    name: "sgemm",
    title: "a matrix product in ten steps: tiles, shared memory, registers",
    claim: [
        "A product uses every value n times. A tile of T × T kept on the chip reads global memory 2/T times a multiply-add instead of twice.",
        "A thread's t × t results do the same for shared memory: 2/t reads a multiply-add, and wide reads without bank conflicts even fewer turns.",
    ],
    plan,
};

/// Rows, columns and depth that are counted, and that are timed.
const COUNTED: [usize; 3] = [128, 128, 16];
const TIMED: [usize; 3] = [4096, 4096, 4096];
const WARP: usize = 32;
/// Rows of results of a warp in v0.
const NAIVE_ROWS: usize = ladder::v0_naive::TILE as usize;
/// Multiply-adds of each thread over which reads of shared memory are counted: what it does for one k from v6 on, and half of that in the end.
const GROUP: usize = 64;

/// A step: its variant, the side of the tile whose values global memory is read for, and what a thread reads from shared memory for
/// [`GROUP`] multiply-adds: how often of A and of B, and the turns that each takes a warp.
struct Step {
    name: &'static str,
    tile: usize,
    a: [usize; 2],
    b: [usize; 2],
}

impl Step {
    const fn new(name: &'static str, tile: u32, a: [usize; 2], b: [usize; 2]) -> Self {
        Self { name, tile: tile as usize, a, b }
    }

    /// The operator's own kernel for every GPU is no step.
    fn part(&self, [m, n, k]: [usize; 3]) -> Result<Timing> {
        let name = if self.name == OWN { "staged" } else { self.name };
        variant("sgemm", name, DType::F32, [("m", m), ("n", n), ("k", k)])
    }

    /// Bytes that multiply-adds ask global memory for.
    fn loaded(&self, [m, n, k]: [usize; 3]) -> usize {
        2 * m * n * k / self.tile * size_of::<f32>()
    }

    /// The same, with what threads of a warp share counted once. In v0 a warp is as many rows of results as a block has, and some columns: it
    /// shares a value of A along each row and one of B along each column. In all others each thread loads values of its own.
    fn loaded_by_warps(&self, sizes @ [m, n, k]: [usize; 3]) -> usize {
        match self.tile {
            1 => m * n * k / WARP * (NAIVE_ROWS + WARP / NAIVE_ROWS) * size_of::<f32>(),
            _ => self.loaded(sizes),
        }
    }

    /// Turns of shared memory for a warp's [`GROUP`] multiply-adds.
    fn turns(&self) -> usize {
        self.a[0] * self.a[1] + self.b[0] * self.b[1]
    }
}

const OWN: &str = "sgemm";

/// Distinct values of 4 bytes are one turn, of 16 bytes one for each eight, two of which may be had at once where 16 lanes share them.
/// In v5 neighbours' columns of B start in two banks alone: two of a warp's 32 reads of 16 bytes are answered at a time.
const STEPS: [Step; 11] = [
    Step::new("v0", 1, [0, 0], [0, 0]),
    Step::new("v1", ladder::v1_strips::TILE, [GROUP, 1], [GROUP, 1]),
    Step::new("v2", ladder::v2_window::TILE, [GROUP, 1], [GROUP, 1]),
    Step::new("v3", ladder::v3_strided::TILE, [GROUP / 4, 1], [GROUP / 4, 1]),
    Step::new("v4", ladder::v4_vectorised::TILE, [GROUP / 4, 1], [GROUP / 4, 1]),
    Step::new("v5", ladder::v5_conflicts::TILE, [GROUP / 16, 2], [GROUP / 16, WARP / 2]),
    Step::new("v6", ladder::v6_outer_product::TILE, [GROUP / 8, 1], [GROUP / 8, 1]),
    Step::new("v7", ladder::v7_wide_columns::TILE, [GROUP / 8, 1], [GROUP / 32, 4]),
    Step::new("v8", ladder::v8_transposed::TILE, [GROUP / 32, 2], [GROUP / 32, 4]),
    Step::new("v9", ladder::v9_double_buffered::TILE, [GROUP / 32, 2], [GROUP / 32, 4]),
    Step::new(OWN, gk::BLOCK_M, [GROUP / 64, 2], [GROUP / 32, 4]),
];

fn run(info: &DeviceInfo, step: &Step) -> Result<Run> {
    let multiply_adds = |sizes: [usize; 3]| sizes.into_iter().product::<usize>();
    // ptxas joins the window's neighbouring loads, which stand in PTX one by one.
    let turns = if step.name == "v2" { &WAVEFRONTS_OF_PTX } else { &WAVEFRONTS };
    Ok(Run::new(step.name)
        .count(step.part(COUNTED)?)
        .expect(&LOADED, step.loaded(COUNTED))
        .expect(&LOADED_BY_WARPS, step.loaded_by_warps(COUNTED))
        .expect(turns, multiply_adds(COUNTED) / WARP / GROUP * step.turns())
        .time(step.part(TIMED)?)
        .at_least(info.peak_flops(Bound::Fp32).map(|rate| 2.0 * multiply_adds(TIMED) as f64 / rate)))
}

fn plan(info: &DeviceInfo) -> Result<Plan> {
    let plan = Plan::new(|results| {
        let [first, last] = ["v0", OWN];
        let loaded = |label: &str| results.count(label, &LOADED);
        let turns = |label: &str| results.count(label, &WAVEFRONTS);
        let faster = |first: f64, last: f64| format!("{} times as fast", text::times(first, last));
        Ok(format!(
            "From the first step to the last, global memory is asked for {} times less, and shared memory takes {} times fewer turns than in v1{}.",
            text::times(loaded(first)?, loaded(last)?),
            text::times(turns("v1")?, turns(last)?),
            results.timed(first, last, faster)
        ))
    });
    let row = |step: &Step| {
        let intensity = 2.0 * COUNTED.iter().product::<usize>() as f64 / step.loaded(COUNTED) as f64;
        vec![step.name.to_owned(), step.tile.to_string(), text::digits(intensity), step.turns().to_string()]
    };
    let facts = Facts {
        title: "Each step's operations for a byte that it asks for, and its turns of shared memory".to_owned(),
        headings: vec!["step", ">tile", ">operations a byte", ">turns for 64 multiply-adds of a warp"],
        rows: STEPS.iter().map(row).collect(),
    };
    let runs = STEPS.iter().map(|step| run(info, step)).collect::<Result<Vec<_>>>()?;
    Ok(plan.facts(facts).runs(runs))
}
