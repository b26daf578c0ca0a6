//! Products of square matrices of many sizes: what a size's divisors decide.
//!
//! How long a product takes is predicted from what two others of its path and alignment took, which are one round of tiles: the line through
//! them gives what a launch costs and what a step along k does. The rest is counting: rounds, steps, and bytes that are copied before.

use serde::{Deserialize, Serialize};

use super::plan::{Facts, part};
use super::text::{digits, or_dash};
use super::tiling::Tiling;
use crate::check::bench::{Prepared, Timing, peak_flops};
use crate::check::peers::Cublas;
use crate::ops::gemm::gemm::WORTH_COPYING;
use crate::ops::model::Bound;
use crate::runtime::device::{Device, DeviceInfo};
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;

/// The operator of all of them.
const OP: &str = "gemm_bf16";
const TYPE: DType = DType::BF16;
/// Elements of a pack of 16 bytes.
const PACK: usize = 16 / TYPE.size();
/// Which power of two divides a size, at most: larger ones change nothing.
pub(super) const ALIGNMENTS: [usize; 4] = [32, 8, 2, 1];

/// How operands reach the tensor cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Path {
    /// In packs of 16 bytes, as they lie.
    Whole,
    /// The same, of copies whose rows begin at packs.
    Copied,
    /// Element by element.
    Elements,
}

/// A product of a square of results.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    side: usize,
    depth: usize,
}

impl Product {
    pub(super) fn of(side: usize) -> Self {
        Self { side, depth: side }
    }

    pub(super) fn alignment(self) -> usize {
        ALIGNMENTS.into_iter().find(|by| (self.side | self.depth).is_multiple_of(*by)).unwrap_or(1)
    }

    pub(super) fn path(self) -> Path {
        let [work, side] = WORTH_COPYING.map(|n| n as usize);
        match self.depth.is_multiple_of(PACK) {
            true => Path::Whole,
            false if self.side >= side && self.side * self.side * self.depth >= work => Path::Copied,
            false => Path::Elements,
        }
    }

    pub(super) fn tiling(self, info: &DeviceInfo) -> Tiling {
        if self.path() == Path::Elements { Tiling::of_any(info) } else { Tiling::of(info) }
    }

    pub(super) fn part(self) -> Result<Timing> {
        part(OP, TYPE, [("m", self.side), ("n", self.side), ("k", self.depth)])
    }

    fn flops(self) -> f64 {
        2.0 * (self.side * self.side) as f64 * self.depth as f64
    }

    /// Operations of its tiles, with whole steps along k.
    pub(super) fn operations(self, info: &DeviceInfo) -> usize {
        let tiling = self.tiling(info);
        tiling.operations(self.side, self.depth.next_multiple_of(tiling.depth))
    }

    /// Steps along k, one after the other.
    fn steps(self, info: &DeviceInfo) -> f64 {
        let tiling = self.tiling(info);
        (tiling.rounds(self.side) * self.depth.div_ceil(tiling.depth)) as f64
    }

    /// Seconds for reading both operands and writing their copies, where there are any.
    fn copying(self, info: &DeviceInfo) -> Option<f64> {
        let bytes = if self.path() == Path::Copied { 4 * self.side * self.depth * TYPE.size() } else { 0 };
        info.peak_bandwidth().map(|rate| bytes as f64 / rate)
    }

    /// Seconds of whole rounds at the peak of the tensor cores, behind the copies at the peak of memory.
    pub(super) fn least(self, info: &DeviceInfo) -> Option<f64> {
        let paid = self.tiling(info).paid(self.side, self.depth) as f64;
        Some(paid / peak_flops(info, Bound::Tensor(TYPE))? + self.copying(info)?)
    }

    /// Two of its path and alignment whose results are one round of tiles, or less.
    fn anchors(self, info: &DeviceInfo) -> [Self; 2] {
        let (path, alignment) = (self.path(), self.alignment());
        let tiling = self.tiling(info);
        let tile = tiling.rows.max(tiling.columns);
        let round = (1..).map(|n| n * tile).take_while(|side| tiling.tiles(*side) <= tiling.at_once).last();
        let side = round.unwrap_or(tile);
        // What is not copied has to stay below what is worth it.
        let (side, depths) = if path == Path::Elements { (side.min(512), [256, 1024]) } else { (side, [512, 4096]) };
        let less = if alignment == ALIGNMENTS[0] { 0 } else { alignment };
        depths.map(|depth| Self { side: side - less, depth: depth - less })
    }
}

/// Sizes to climb, on a device of these numbers.
#[derive(Clone, Debug)]
pub(super) struct Ladder {
    info: DeviceInfo,
    products: Vec<Product>,
}

/// A product of the ladder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rung {
    /// Its size in every direction.
    pub n: usize,
    /// The power of two that divides it, at most 32.
    pub alignment: usize,
    /// How its operands reach the tensor cores.
    pub path: Path,
    /// Useful operations.
    pub flops: f64,
    /// Rounds of tiles.
    pub rounds: usize,
    /// The least time of whole rounds, in milliseconds.
    pub at_least_ms: Option<f64>,
    /// What two others say that it takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_ms: Option<f64>,
    /// The median of many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ms: Option<f64>,
    /// cuBLAS's, where it is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cublas_ms: Option<f64>,
}

impl Rung {
    /// TFLOP/s in that time.
    pub(crate) fn rate(flops: f64, ms: f64) -> f64 {
        flops / ms / 1e9
    }
}

/// What two products of a path and alignment say, in seconds.
#[derive(Clone, Copy)]
struct Line {
    key: (Path, usize),
    fixed: f64,
    step: f64,
}

impl Ladder {
    pub(super) fn new(info: &DeviceInfo, sizes: impl IntoIterator<Item = usize>) -> Self {
        Self { info: info.clone(), products: sizes.into_iter().map(Product::of).collect() }
    }

    /// What is known before anything runs.
    pub(super) fn rungs(&self) -> Vec<Rung> {
        let rung = |product: &Product| Rung {
            n: product.side,
            alignment: product.alignment(),
            path: product.path(),
            flops: product.flops(),
            rounds: product.tiling(&self.info).rounds(product.side),
            at_least_ms: product.least(&self.info).map(|seconds| seconds * 1e3),
            expected_ms: None,
            ms: None,
            cublas_ms: None,
        };
        self.products.iter().map(rung).collect()
    }

    /// Times every rung on a GPU, behind the products that they are predicted from. The ladder has the rate of memory as a copy finds it.
    pub(super) fn climb(&self, gpu: &Device, rungs: &mut [Rung]) -> Result<Facts> {
        let mut lines: Vec<Line> = Vec::new();
        for product in &self.products {
            let key = (product.path(), product.alignment());
            if lines.iter().all(|line| line.key != key) {
                lines.push(self.line(gpu, *product, key)?);
            }
        }
        let cublas = Cublas::open(gpu).ok();
        for (product, rung) in self.products.iter().zip(rungs) {
            let line = lines.iter().find(|line| line.key == (rung.path, rung.alignment));
            let seconds = |line: &Line| {
                let computing = line.fixed + line.step * product.steps(&self.info);
                Some(computing + product.copying(&self.info)?)
            };
            rung.expected_ms = line.and_then(seconds).map(|seconds| seconds * 1e3);
            let mut prepared = Prepared::new(gpu, &product.part()?)?;
            rung.ms = Some(prepared.time()?.0);
            rung.cublas_ms = cublas.as_ref().map(|peer| prepared.time_of(peer)).transpose()?.map(|(ms, _)| ms);
        }
        let row = |line: &Line| {
            let (path, alignment) = line.key;
            let words = [format!("{path:?}").to_lowercase(), alignment.to_string()];
            [&words[..], &[line.fixed, line.step].map(|seconds| digits(seconds * 1e6))].concat()
        };
        Ok(Facts {
            title: "What two products of one round say of all others of their path".to_owned(),
            headings: vec!["operands", ">divisible by", ">µs of a launch", ">µs of a step"],
            rows: lines.iter().map(row).collect(),
        })
    }

    /// The line through two products.
    fn line(&self, gpu: &Device, product: Product, key: (Path, usize)) -> Result<Line> {
        let anchors = product.anchors(&self.info);
        let mut points = [(0.0, 0.0); 2];
        for (point, anchor) in points.iter_mut().zip(anchors) {
            let (ms, _) = Prepared::new(gpu, &anchor.part()?)?.time()?;
            *point = (anchor.steps(&self.info), ms / 1e3 - anchor.copying(&self.info).unwrap_or(0.0));
        }
        let [(first, short), (last, long)] = points;
        let step = (long - short) / (last - first);
        Ok(Line { key, fixed: short - step * first, step })
    }

    /// Rungs as a table, of sizes near powers of two.
    pub(super) fn facts(&self) -> Facts {
        let near = |product: &&Product| product.side + 8 >= product.side.next_power_of_two();
        let row = |product: &Product| {
            let (tiling, path) = (product.tiling(&self.info), product.path());
            let seconds = product.least(&self.info);
            vec![
                product.side.to_string(),
                product.alignment().to_string(),
                format!("{path:?}").to_lowercase(),
                tiling.tiles(product.side).to_string(),
                tiling.rounds(product.side).to_string(),
                or_dash(seconds.map(|seconds| product.flops() / seconds), "FLOP/s"),
            ]
        };
        Facts {
            title: "Sizes near powers of two, and what whole rounds at the peak leave them".to_owned(),
            headings: vec!["n", ">divisible by", "operands", ">tiles", ">rounds", ">at most"],
            rows: self.products.iter().filter(near).map(row).collect(),
        }
    }
}
