//! Products of 8-bit elements in the registry.

use gpu_kernels::ops::gemm::gemm::hopper;

use super::super::operand::{fits_hopper, store_of_case};
use super::super::product::Path;
use crate::ops::model::*;
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// The type of the result.
pub(in super::super) const C_TYPE: ParamInfo =
    ParamInfo::choice("to", "bfloat16", &["float32", "float16", "bfloat16"], "the type of c");
/// The type of the left operand, where there is a choice.
pub(in super::super) const A_TYPE: ParamInfo =
    ParamInfo::choice("from", "float8_e4m3fn", &["float8_e4m3fn", "float8_e5m2"], "the type of a");

/// The two paths of an operator, launched with `$run`, and further variants.
macro_rules! variants {
    ($run:expr $(, $more:expr)*) => {
        &[
            Variant {
                name: "hopper",
                doc: "TMA and wgmma, compute capability 9.0: what is picked where rows of a and b are at multiples of 16 bytes",
                applies: ScaledProduct::fits_hopper,
                launch: |stream, args, _| ($run)(stream, args, Path::Hopper),
            },
            Variant {
                name: "mma",
                doc: "cp.async and mma.sync, compute capability 8.0 and above: what is picked elsewhere",
                applies: |_, _| true,
                launch: |stream, args, _| ($run)(stream, args, Path::Mma),
            },
            $($more,)*
        ]
    };
}
pub(in super::super) use variants;

/// What the first of the next says.
pub(in super::super) const OF_PIECES: &str = "sums by tiles of 256 columns and these rows with a and b swapped, of pieces along k if there are few, and a launch that adds them: what is picked for few rows and for rows that fill these better, or one of the next";

/// What the first of those with swapped operands says.
pub(in super::super) const OF_SWAPPED: &str = "tiles of 256 columns and these rows with a and b swapped, if rows of c too are at multiples of 16 bytes: what is picked for rows that fill these better, or one of the next";

/// The variant that computes sums by tiles of so many rows, launched with `$run`.
macro_rules! pieces {
    ($run:expr, $name:literal, $rows:literal, $doc:expr) => {
        Variant {
            name: $name,
            doc: $doc,
            applies: ScaledProduct::fits_hopper,
            launch: |stream, args, _| ($run)(stream, args, Some(How::Pieces($rows))),
        }
    };
}
pub(in super::super) use pieces;

/// What the first of those of pairs of blocks says.
pub(in super::super) const OF_NARROW: &str = "pairs of blocks that share 128 columns and have half of these rows each, with a and b swapped, if rows of c too are at multiples of 16 bytes: what is picked where the tiles above leave multiprocessors empty, or one of the next";

/// The variant that computes all by such tiles with operands swapped, launched with `$run`.
macro_rules! swapped {
    ($run:expr, $name:literal, $tiles:ident($rows:literal), $doc:expr) => {
        Variant {
            name: $name,
            doc: $doc,
            applies: ScaledProduct::fits_swapped,
            launch: |stream, args, _| {
                ($run)(stream, args, Some(How::Tiled(crate::ops::gemm::cost::Tiles::$tiles($rows))))
            },
        }
    };
}
pub(in super::super) use swapped;

/// The variants of an operator with scales for rows, launched with `$run`.
macro_rules! variants_by_rows {
    ($run:path) => {
        variants!(
            |stream, args, path| $run(stream, args, Some(How::Fused(path))),
            swapped!($run, "swapped_208", Swapped(208), crate::ops::gemm::scaled::OF_SWAPPED),
            swapped!($run, "swapped_192", Swapped(192), "the same by 192 rows"),
            swapped!($run, "swapped_160", Swapped(160), "the same by 160 rows"),
            swapped!($run, "swapped_128", Swapped(128), "the same by 128 rows"),
            swapped!($run, "swapped_96", Swapped(96), "the same by 96 rows"),
            swapped!($run, "swapped_64", Swapped(64), "the same by 64 rows"),
            swapped!($run, "narrow_224", Narrow(224), crate::ops::gemm::scaled::OF_NARROW),
            swapped!($run, "narrow_160", Narrow(160), "the same by 160 rows"),
            swapped!($run, "narrow_128", Narrow(128), "the same by 128 rows"),
            swapped!($run, "narrow_64", Narrow(64), "the same by 64 rows"),
            pieces!(
                $run,
                "pieces_208",
                208,
                "sums by tiles of 256 columns and 208 rows with a and b swapped, of pieces along k if there are few, and a launch that adds and scales them: what is picked for few rows, or one of the next"
            ),
            pieces!($run, "pieces_128", 128, "the same by 128 rows"),
            pieces!($run, "pieces_64", 64, "the same by 64 rows")
        )
    };
}
pub(in super::super) use variants_by_rows;

/// The unit that has a scale of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Scaling {
    /// Each row of an operand, or the whole operand.
    Rows,
    /// Each block: this number of elements along k, of one row of `a` or of as many rows of `b`.
    Blocks(usize),
    /// Each group of this number of elements along k in a row of either operand; the scales are powers of two.
    Powers(usize),
}

impl Scaling {
    /// The type of the scales.
    const fn dtype(self) -> DType {
        match self {
            Self::Powers(_) => DType::F8E8M0,
            _ => DType::F32,
        }
    }

    /// The number of rows of `b` that share a scale.
    const fn rows(self) -> usize {
        match self {
            Self::Blocks(of) => of,
            _ => 1,
        }
    }

    /// The number of elements along k, of `k`, that share a scale.
    const fn depth(self, k: usize) -> usize {
        match self {
            Self::Rows => k,
            Self::Blocks(of) | Self::Powers(of) => of,
        }
    }
}

/// A product of 8-bit elements in the registry.
pub struct ScaledProduct {
    pub(in super::super) info: &'static OpInfo,
    pub(in super::super) scaling: Scaling,
    /// The type of `b`, whose tensor-core rate is that of the operator.
    pub(in super::super) b: DType,
    /// m, n and k.
    pub(in super::super) production: &'static [(usize, usize, usize)],
    pub(in super::super) launch: fn(&Stream, &mut Arguments<'_>, Path) -> Result<()>,
}

/// The type of the result that a case or a call asks for.
fn target(params: &Params) -> Result<DType> {
    params.choice("to")?.parse()
}

impl ScaledProduct {
    /// Whether the Hopper path can run a case.
    pub(in super::super) fn fits_hopper(device: &DeviceInfo, case: &Case) -> bool {
        // All types that this path takes have one byte.
        fits_hopper(device, case, DType::I8, ["a", "b"], ["m", "n", "k"])
    }

    /// Whether it can run the case with operands swapped, by tiles of C that TMA stores.
    pub(in super::super) fn fits_swapped(device: &DeviceInfo, case: &Case) -> bool {
        let (Ok([m, n]), Ok(to)) = (case.dims(["m", "n"]), target(&case.params)) else { return false };
        Self::fits_hopper(device, case) && store_of_case(case, "c", to, &[m, n], 0.0) != hopper::DIRECT
    }

    fn takes_e5m2(&self) -> bool {
        self.info.params.iter().any(|param| param.name == A_TYPE.name)
    }

    /// The type of `a`.
    fn a(&self, params: &Params) -> Result<DType> {
        if self.takes_e5m2() { params.choice(A_TYPE.name)?.parse() } else { Ok(self.b) }
    }

    /// The shapes of the scales; `scales` is the number that `a` has if scales are per row.
    fn scales(&self, [m, n, k]: [usize; 3], scales: usize) -> [Vec<usize>; 2] {
        match self.scaling {
            Scaling::Rows => [vec![scales], vec![if scales == 1 && m > 1 { 1 } else { n }]],
            Scaling::Blocks(of) | Scaling::Powers(of) => {
                [vec![m, k.div_ceil(of)], vec![n.div_ceil(self.scaling.rows()), k.div_ceil(of)]]
            }
        }
    }

    /// The index of the scale of a row in a group; `shape` is the shape of the scales.
    fn place(&self, shape: &[usize], row: usize, group: usize, rows_each: usize) -> usize {
        match (self.scaling, shape) {
            (Scaling::Rows, [1]) => 0,
            (Scaling::Rows, _) => row,
            (_, shape) => row / rows_each * shape[1] + group,
        }
    }
}

/// Ones and zeros, whose sums of groups are exact.
const EXACT: Values = Values::Bernoulli { p: 0.5 };

impl ScaledProduct {
    /// Scales far from one, on both paths, where all else is exact.
    fn far_scales(&self) -> impl Iterator<Item = Case> {
        let (info, greatest) = (self.info, 2f64.powi(127));
        let up_to = |high: f64| Values::Uniform { low: 0.0, high };
        let pairs = [
            (Values::Constant(greatest), Values::Constant(1.0 / greatest)),
            (Values::Constant(1.0 / greatest), up_to(greatest)),
            (Values::Constant(greatest), up_to(2f64.powi(-20))),
            // Large scales among others in a word, and subnormal results.
            (up_to(2f64.powi(66)), up_to(2f64.powi(-66))),
            (Values::Constant(1.0 / greatest), Values::Constant(2f64.powi(-9))),
            (Values::Specials, up_to(1.0)),
            (up_to(1.0), Values::Specials),
        ];
        (0..).zip(pairs).flat_map(move |(i, (of_a, of_b))| {
            // Rows at multiples of 16 bytes, and rows that are not.
            [(24 + i, 40, 176), (7 + i, 9, 75)].map(|(m, n, k)| {
                let case = Case::boundary(info, DType::F32, [("m", m), ("n", n), ("k", k), ("scales", m)]);
                let case = case.values("a", EXACT).values("b", EXACT);
                case.values("a_scales", of_a).values("b_scales", of_b)
            })
        })
    }
}

impl Operator for ScaledProduct {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let info = self.info;
        // Scales of `a`: one for each row, or one.
        let dims = |m, n, k, scales| [("m", m), ("n", n), ("k", k), ("scales", scales)];
        let production = |&(m, n, k): &(usize, usize, usize)| {
            Case::production(info, format!("m={m} n={n} k={k} bf16"), DType::BF16, dims(m, n, k, m))
        };
        let mut cases: Vec<_> = self.production.iter().map(production).collect();
        let to = |case: Case| {
            let name = case.dtype.name();
            case.param("to", ParamValue::Choice(name))
        };
        for &dtype in info.dtypes {
            cases.extend(
                [
                    Case::odd(info, dtype, dims(136, 144, 272, 136)),
                    Case::odd(info, dtype, dims(133, 35, 203, 1)),
                    Case::odd(info, dtype, dims(21, 19, 150, 21)).arrange("a", Arrangement::DENSE.row_pad(10)),
                    Case::odd(info, dtype, dims(21, 19, 150, 1))
                        .arrange("a", Arrangement::DENSE.row_pad(10))
                        .arrange("b", Arrangement::DENSE.row_pad(26))
                        .arrange("c", Arrangement::DENSE.row_pad(3)),
                    Case::odd(info, dtype, dims(40, 24, 64, 40)).offset(1),
                    Case::tiny(info, dtype, dims(1, 1, 1, 1)),
                    Case::empty(info, dtype, dims(0, 8, 8, 1)),
                    Case::empty(info, dtype, dims(8, 0, 8, 8)),
                    Case::empty(info, dtype, dims(8, 12, 0, 8)),
                    Case::boundary(info, dtype, dims(128, 128, 64, 128)),
                    Case::boundary(info, dtype, dims(1, 136, 80, 1)),
                ]
                .map(to),
            );
            if self.b == DType::I8 {
                let least = Case::boundary(info, dtype, dims(16, 8, 4096, 1)).fill(Values::Constant(-128.0));
                cases.push(to(least.values("a_scales", SCALES).values("b_scales", SCALES)));
            } else {
                cases.push(to(Case::boundary(info, dtype, dims(24, 16, 144, 24)).values("a", Values::Specials)));
            }
            if self.takes_e5m2() {
                let e5m2 = |case: Case| to(case.param(A_TYPE.name, ParamValue::Choice("float8_e5m2")));
                cases.push(e5m2(Case::odd(info, dtype, dims(72, 40, 208, 72))));
                cases.push(e5m2(Case::odd(info, dtype, dims(20, 24, 39, 20))));
            }
        }
        // All of k is a quarter of a stage.
        let short = Case::odd(info, DType::F32, dims(72, 40, 32, 72));
        if self.takes_e5m2() {
            cases.push(to(short.clone().param(A_TYPE.name, ParamValue::Choice("float8_e5m2"))));
        }
        cases.push(to(short));
        // Blocks of the Hopper path that take several tiles, with more stages than the ring has.
        let several = Case::odd(info, DType::F32, dims(304, 520, 912, 304));
        if self.takes_e5m2() {
            cases.push(to(several.clone().param(A_TYPE.name, ParamValue::Choice("float8_e5m2"))));
        }
        cases.push(to(several));
        if let Scaling::Powers(_) = self.scaling {
            // Scales of a stage loaded as words, to the end of the last row's k and short of it.
            let words = Case::odd(info, DType::F32, dims(200, 140, 1008, 200));
            cases.push(to(words));
            cases.extend(self.far_scales().map(to));
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [m, n, k, scales] = case.dims(["m", "n", "k", "scales"])?;
        let a = self.a(&case.params)?;
        let values = match a {
            DType::I8 => Values::Integers { low: -128, high: 127 },
            _ => Values::NORMAL,
        };
        let [of_a, of_b] = self.scales([m, n, k], scales);
        let specs = [
            InputSpec::new("a", a, [m, k], values),
            InputSpec::new("a_scales", self.scaling.dtype(), of_a, SCALES),
            InputSpec::new("b", self.b, [n, k], values),
            InputSpec::new("b_scales", self.scaling.dtype(), of_b, SCALES),
        ];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let (a, b) = (inputs.get("a")?, inputs.get("b")?);
        let [m, k] = a.dims()?;
        let [n, _] = b.dims()?;
        b.has_shape(&[n, k])?;
        let [of_a, of_b] = self.scales([m, n, k], m);
        for (name, shape) in [("a_scales", of_a), ("b_scales", of_b)] {
            let scales = inputs.get(name)?;
            if self.scaling != Scaling::Rows || scales.shape() != [1] {
                scales.has_shape(&shape)?;
            }
        }
        Ok(vec![TensorMeta::new("c", target(params)?, [m, n])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        (self.launch)(stream, args, Path::Fastest)
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (a, b) = (inputs.get("a")?, inputs.get("b")?);
        let scales = [inputs.get("a_scales")?, inputs.get("b_scales")?];
        let [a_scales, b_scales] = scales.map(|scales| scales.to_f64());
        let [of_a, of_b] = scales.map(|scales| scales.shape());
        let n = b.shape()[0];
        let b_rows: Vec<_> = (0..n).map(|j| reference::row(b, j)).collect();
        Ok(reference::by_row(rows, |i| {
            let a = reference::row(a, i);
            let dot = |(j, b): (usize, &Vec<f64>)| {
                let group = |g: usize, of: usize| {
                    let columns = g * of..((g + 1) * of).min(a.len());
                    let sum = reference::dot(&a[columns.clone()], &b[columns]);
                    let scale = |scales: &[f64], shape, row, each| scales[self.place(shape, row, g, each)];
                    sum * scale(&a_scales, of_a, i, 1) * scale(&b_scales, of_b, j, self.scaling.rows())
                };
                let depth = self.scaling.depth(a.len()).max(1);
                (0..a.len().div_ceil(depth)).map(|g| group(g, depth)).sum()
            };
            b_rows.iter().enumerate().map(dot).collect()
        }))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let to = target(&case.params)?;
        let relative = 3.0 * roundoff(DType::F32);
        if self.b == DType::I8 {
            let why = "the sum rounded to f32, two products, and one rounding to storage";
            return Ok(Tolerance::rounded(to, 0.0, relative, why));
        }
        let [k] = case.dims(["k"])?;
        if case.values_of("a") == Some(EXACT) {
            let relative = (k as f64 / 32.0).ceil() * roundoff(DType::F32);
            return Ok(Tolerance::new(1e-45, relative, "a rounding in f32 each group, of sums without cancellation"));
        }
        // The tensor core sums 32 products at a time, each aligned to the greatest addend and cut 13 bits below it, always
        // towards zero, so the errors of steps add up; f32 takes over from there. Sums have a size of √k, times the greatest
        // scales.
        let depth = k.min(self.scaling.depth(k));
        let steps = (depth as f64 / 32.0).max(1.0);
        let size = match case.values_of("a") {
            // One element may be the greatest value of e4m3.
            Some(Values::Specials) => 448.0,
            _ => (depth.max(16) as f64).sqrt(),
        };
        let groups = (k as f64 / depth.max(1) as f64).sqrt().max(1.0);
        let abs = groups * steps * 4.0 * size * 2f64.powi(-13) * GREATEST_SCALE * GREATEST_SCALE;
        let why = "one rounding, and sums of size √k cut to 13 bits every 32 products";
        Ok(Tolerance::rounded(to, abs, relative, why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [m, n, k, scales] = case.dims(["m", "n", "k", "scales"])?;
        let of_scales: usize = self.scales([m, n, k], scales).iter().map(|shape| shape.iter().product::<usize>()).sum();
        let bytes = m * k + n * k + self.scaling.dtype().size() * of_scales + m * n * target(&case.params)?.size();
        Ok(Cost::compute(bytes as u64, 2 * (m * n * k) as u64, Bound::Tensor(self.b)))
    }
}

const GREATEST_SCALE: f64 = 1.0 / 128.0;
/// The values of scales.
const SCALES: Values = Values::Uniform { low: 0.0, high: GREATEST_SCALE };
