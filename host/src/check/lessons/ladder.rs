//! Products of square matrices of many sizes: shows the effect of a size's divisors.
//!
//! The time of a product is predicted from the times of a few others of its path and alignment, each one wave of tiles: with
//! several depths, because the clock falls during long ones, and with fewer results. The rest is counting: waves, steps,
//! results, and bytes that are copied first.

use serde::{Deserialize, Serialize};

use super::run::part;
use super::text::{Facts, digits, or_dash};
use super::tiling::Tiling;
use crate::check::bench::{Prepared, Timing};
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
/// The power of two that divides a size, capped: larger ones change nothing.
pub(super) const ALIGNMENTS: [usize; 4] = [32, 8, 2, 1];

/// How operands reach the tensor cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Path {
    /// In packs of 16 bytes, in place.
    Whole,
    /// In packs of 16 bytes, from copies whose rows are aligned to packs.
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
        if self.path() == Path::Elements { Tiling::of_any(info) } else { Tiling::of(info, self.side) }
    }

    pub(super) fn part(self) -> Result<Timing> {
        part(OP, TYPE, [("m", self.side), ("n", self.side), ("k", self.depth)])
    }

    fn flops(self) -> f64 {
        2.0 * (self.side * self.side) as f64 * self.depth as f64
    }

    /// The operations of its tiles, with whole steps along k.
    pub(super) fn operations(self, info: &DeviceInfo) -> usize {
        let tiling = self.tiling(info);
        tiling.operations(self.side, self.depth.next_multiple_of(tiling.depth))
    }

    /// Sequential steps along k, expressed as steps of the widest tile that take the same time.
    fn steps(self, info: &DeviceInfo) -> f64 {
        let tiling = self.tiling(info);
        (tiling.waves(self.side) * self.depth.div_ceil(tiling.depth)) as f64 * tiling.step
    }

    /// Seconds to read both operands and write their copies, if there are any.
    fn copying(self, info: &DeviceInfo) -> Option<f64> {
        let bytes = if self.path() == Path::Copied { 4 * self.side * self.depth * TYPE.size() } else { 0 };
        info.peak_bandwidth().map(|rate| bytes as f64 / rate)
    }

    /// Seconds of whole waves at the peak of the tensor cores, after the copies at the peak of memory.
    pub(super) fn least(self, info: &DeviceInfo) -> Option<f64> {
        let paid = self.tiling(info).paid(self.side, self.depth) as f64;
        Some(paid / info.peak_flops(Bound::Tensor(TYPE))? + self.copying(info)?)
    }

    /// Products of the same path and alignment whose results are one wave of tiles: of several depths, and the first also with
    /// a quarter of the results.
    fn anchors(self, info: &DeviceInfo) -> (Vec<Self>, Self) {
        let (path, alignment) = (self.path(), self.alignment());
        let tiling = if path == Path::Elements { self.tiling(info) } else { Tiling::widest(info) };
        let tile = tiling.rows.max(tiling.columns);
        let wave = (1..).map(|n| n * tile).take_while(|side| tiling.tiles(*side) <= tiling.at_once).last();
        let side = wave.unwrap_or(tile);
        // Operands that are not copied must stay below the size at which copies are worth it. Copied operands
        // are then as well aligned as any other.
        let (side, depths) = match path {
            Path::Elements => (side.min(512), &[256, 512, 1024][..]),
            Path::Copied => (side, &[2048][..]),
            Path::Whole => (side, &[512, 4096, 16384, 65536][..]),
        };
        let less = if alignment == ALIGNMENTS[0] { 0 } else { alignment };
        let of = |side: usize, depth: &usize| Self { side: side - less, depth: depth - less };
        (depths.iter().map(|depth| of(side, depth)).collect(), of(side.div_ceil(2), &depths[0]))
    }
}

/// The sizes of the ladder, on a device with these numbers.
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
    /// Waves of tiles. Older files call them rounds.
    #[serde(alias = "rounds")]
    pub waves: usize,
    /// The minimum time of whole waves, in milliseconds.
    pub at_least_ms: Option<f64>,
    /// The time predicted from products of one wave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_ms: Option<f64>,
    /// The median of many runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ms: Option<f64>,
    /// The time of cuBLAS, if it is present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cublas_ms: Option<f64>,
}

impl Rung {
    /// The rate in TFLOP/s for that time.
    pub(crate) fn rate(flops: f64, ms: f64) -> f64 {
        flops / ms / 1e9
    }
}

/// The measurements of one-wave products for a path and alignment, in seconds.
struct Curve {
    key: (Path, usize),
    /// Steps along k, and the time that they take without copies.
    points: Vec<(f64, f64)>,
    /// Results of each of those products, and the time of one more.
    results: f64,
    result: f64,
}

impl Curve {
    /// Linear interpolation between the points, with extrapolation before the first and after the last.
    fn of_steps(&self, steps: f64) -> f64 {
        let upper = self.points.iter().position(|(of, _)| *of >= steps).unwrap_or(self.points.len() - 1);
        let last = upper.clamp(1, (self.points.len() - 1).max(1));
        let [(from, start), (to, end)] = [self.points[last - 1], self.points[last.min(self.points.len() - 1)]];
        if to > from { start + (end - start) * (steps - from) / (to - from) } else { start }
    }
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
            waves: product.tiling(&self.info).waves(product.side),
            at_least_ms: product.least(&self.info).map(|seconds| seconds * 1e3),
            expected_ms: None,
            ms: None,
            cublas_ms: None,
        };
        self.products.iter().map(rung).collect()
    }

    /// Times every rung on a GPU, after the products from which they are predicted. The ladder uses the rate of memory that a
    /// copy reaches.
    pub(super) fn climb(&self, gpu: &Device, rungs: &mut [Rung]) -> Result<Facts> {
        let mut curves: Vec<Curve> = Vec::new();
        for product in &self.products {
            let key = (product.path(), product.alignment());
            if curves.iter().all(|curve| curve.key != key) {
                curves.push(self.curve(gpu, *product, key, curves.first())?);
            }
        }
        let cublas = Cublas::open(gpu).ok();
        for (product, rung) in self.products.iter().zip(rungs) {
            rung.expected_ms = self.predicted(&curves, *product).map(|seconds| seconds * 1e3);
            let mut prepared = Prepared::new(gpu, &product.part()?)?;
            [rung.ms, rung.cublas_ms] = match &cublas {
                Some(peer) => prepared.time_beside(peer)?,
                None => [Some(prepared.time()?.0), None],
            };
        }
        let row = |curve: &Curve| {
            let (path, alignment) = curve.key;
            let points = curve.points.iter().map(|(steps, seconds)| format!("{steps}: {}", digits(seconds * 1e6)));
            vec![
                format!("{path:?}").to_lowercase(),
                alignment.to_string(),
                points.collect::<Vec<_>>().join(", "),
                digits(curve.result * 1e12),
            ]
        };
        Ok(Facts {
            title: "What products of one wave say of all others of their path".to_owned(),
            headings: vec!["operands", ">divisible by", "µs by steps along k", ">µs of a million results more"],
            rows: curves.iter().map(row).collect(),
        })
    }

    /// Seconds by counting: steps, results, and bytes to copy before.
    fn predicted(&self, curves: &[Curve], product: Product) -> Option<f64> {
        let of = |key| curves.iter().find(|curve| curve.key == key);
        let curve = of((product.path(), product.alignment()))?;
        let steps = product.steps(&self.info);
        let computing = match (product.path(), &curve.points[..]) {
            // Copies are computed with as what lies in packs from the beginning.
            (Path::Copied, [(first, seconds), ..]) => {
                let whole = of((Path::Whole, ALIGNMENTS[0]))?;
                seconds + whole.of_steps(steps) - whole.of_steps(*first)
            }
            _ => curve.of_steps(steps),
        };
        let more = (product.side * product.side) as f64 - curve.results;
        Some(computing + more * curve.result + product.copying(&self.info)?)
    }

    /// Times the products that others are predicted from. Steps of one point take what they do in the first curve.
    fn curve(&self, gpu: &Device, product: Product, key: (Path, usize), other: Option<&Curve>) -> Result<Curve> {
        let seconds = |anchor: &Product| {
            let (ms, _) = Prepared::new(gpu, &anchor.part()?)?.time()?;
            Ok::<_, crate::Error>(ms / 1e3 - anchor.copying(&self.info).unwrap_or(0.0))
        };
        let (anchors, small) = product.anchors(&self.info);
        let point = |anchor: &Product| Ok::<_, crate::Error>((anchor.steps(&self.info), seconds(anchor)?));
        let points = anchors.iter().map(point).collect::<Result<Vec<_>>>()?;
        let [many, few] = [anchors[0], small].map(|product| (product.side * product.side) as f64);
        let mut curve = Curve { key, points, results: many, result: 0.0 };
        let by_steps = if curve.points.len() > 1 { &curve } else { other.unwrap_or(&curve) };
        let (steps, took) = curve.points[0];
        let of_steps = by_steps.of_steps(steps) - by_steps.of_steps(small.steps(&self.info));
        curve.result = ((took - seconds(&small)? - of_steps) / (many - few)).max(0.0);
        Ok(curve)
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
                tiling.waves(product.side).to_string(),
                or_dash(seconds.map(|seconds| product.flops() / seconds), "FLOP/s"),
            ]
        };
        Facts {
            title: "Sizes near powers of two, and what whole waves at the peak leave them".to_owned(),
            headings: vec!["n", ">divisible by", "operands", ">tiles", ">waves", ">at most"],
            rows: self.products.iter().filter(near).map(row).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_lie_on_lines_between_points() {
        let curve =
            |points: &[(f64, f64)]| Curve { key: (Path::Whole, 8), points: points.into(), results: 1.0, result: 0.0 };
        let bent = curve(&[(8.0, 10.0), (64.0, 66.0), (256.0, 450.0)]);
        let found = [4.0, 8.0, 36.0, 64.0, 160.0, 512.0].map(|steps| bent.of_steps(steps));
        assert_eq!(found, [6.0, 10.0, 38.0, 66.0, 258.0, 962.0]);
        assert_eq!(curve(&[(8.0, 10.0)]).of_steps(99.0), 10.0);
    }
}
