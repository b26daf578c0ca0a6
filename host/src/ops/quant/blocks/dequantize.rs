//! Dequantization of blocks of 8-bit floats.

use cuda_std::launch::{DevicePtr, DevicePtrMut, Dim3, Kernel};

use super::Block;
use crate::ops::elementwise::{Operand, Plan, grid_of_rows};
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Dtype, Float, Float8};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// Arguments of the kernels.
type Args<T, Q, S> = (DevicePtr<Q>, DevicePtr<S>, DevicePtrMut<T>, u64, u64, u64, u64, u32, u32);

/// The grid for blocks of threads that cover so many elements of a row, or, where each column has a scale, as many of so many rows.
pub(in super::super) fn grid<const N: usize>(
    info: &OpInfo,
    plan: &Plan<N>,
    column_shift: u32,
    [elements, rows]: [usize; 2],
) -> Result<Dim3> {
    if column_shift > 0 {
        return Ok(plan.grid);
    }
    let grid = grid_of_rows(info, "q", (plan.rows as usize).div_ceil(rows), plan.d as usize, elements / rows)?;
    Ok(grid.unwrap_or(plan.grid))
}

/// Launches `K`, whose blocks of threads cover so many elements of a row, or of so many rows.
pub(in super::super) fn dequantize_into<'a, T: Float, Q: Float8, S: Dtype, K>(
    op: &Dequantization,
    per_block: [usize; 2],
    stream: &Stream,
    q: View<'a, Q>,
    scales: View<'a, S>,
    mut y: ViewMut<'a, T>,
) -> Result<()>
where
    K: Kernel<Args = Args<T, Q, S>>,
{
    let info = op.info;
    stream.require_devices(info.name, &[("q", &q), ("scales", &scales), ("y", &y)])?;
    let [rows, d]: [usize; 2] = q.dims(info.name, "q")?;
    let Some(block) = op.block(scales.shape(), rows, d) else {
        return Err(info.shape_error("scales", scales.shape(), op.wanted(rows, d)));
    };
    scales.require_contiguous(info.name, "scales")?;
    let operands = [Operand::read("q", &q), Operand::written("y", &y)];
    let Some(plan) = Plan::of(info, per_block[0], operands, block.continues(d))? else { return Ok(()) };
    let [q_stride, y_stride] = plan.strides;
    let [row_shift, column_shift] = [block.rows, block.columns].map(usize::trailing_zeros);
    let grid = grid(info, &plan, column_shift, per_block)?;
    let (q, scales, y) = (q.ptr(stream)?, scales.ptr(stream)?, y.ptr_mut(stream)?);
    let args = (q, scales, y, plan.rows, plan.d, q_stride, y_stride, row_shift, column_shift);
    // SAFETY: the tensors are live and have these rows at these strides, there is a scale for each block, and y is borrowed mutably.
    unsafe { stream.launch::<K>(grid, args) }
}

/// An operator that dequantizes blocks: the two functions, and their registry entry.
macro_rules! dequantization {
    (
        $(#[$doc:meta])*
        $name:ident, $into:ident, $entry:ident;
        kernel: $kernel:ident $kernels:ident;
        blocks: [$first:expr, $second:expr], $scale:ty, $dtype:ident, $shapes:literal, $shape_words:literal;
        example: $example:literal;
        bench: $bench:literal, $summary:literal;
    ) => {
        $(#[$doc])*
        ///
        /// `q` is `[rows, d]`, of [`f8e4m3`](struct@crate::f8e4m3) or [`f8e5m2`](struct@crate::f8e5m2);
        #[doc = concat!($shape_words, " One f32 product, rounded once.")]
        /// Rows of `q` may be padded. The result is a new dense tensor; the work is queued on `stream`.
        ///
        /// # Errors
        /// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart
        /// or the scales not contiguous, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
        ///
        /// # Example
        /// ```
        /// # use warpsmith::{Device, Tensor, f8e4m3, f8e8m0, ops};
        /// # fn main() -> warpsmith::Result<()> {
        /// let stream = Device::open()?.stream()?;
        /// let q = Tensor::from_slice(&stream, [1, 3], &[448.0, 30.0, -7.0].map(f8e4m3::from_f32))?;
        #[doc = concat!("let scales = Tensor::from_slice(&stream, [1, 1], &[", $example, "])?;")]
        #[doc = concat!("let y = ops::", stringify!($name), "::<f32, _>(&stream, &q, &scales)?;")]
        /// assert_eq!(y.to_vec(&stream)?, [224.0, 15.0, -3.5]);
        /// # Ok(())
        /// # }
        /// ```
        pub fn $name<'a, T: crate::Float, Q: crate::Float8>(
            stream: &crate::Stream,
            q: impl Into<crate::View<'a, Q>>,
            scales: impl Into<crate::View<'a, $scale>>,
        ) -> crate::Result<crate::Tensor<T>> {
            let q = q.into();
            let mut y = crate::Tensor::result(stream, q.shape())?;
            $into(stream, q, scales.into(), &mut y)?;
            Ok(y)
        }

        #[doc = concat!("[`", stringify!($name), "`] into `y`, which has the shape of `q`; its rows may be padded.")]
        ///
        /// # Errors
        #[doc = concat!("As of [`", stringify!($name), "`].")]
        pub fn $into<'a, T: crate::Float, Q: crate::Float8>(
            stream: &crate::Stream,
            q: impl Into<crate::View<'a, Q>>,
            scales: impl Into<crate::View<'a, $scale>>,
            y: impl Into<crate::ViewMut<'a, T>>,
        ) -> crate::Result<()> {
            let (q, scales, y) = (q.into(), scales.into(), y.into());
            super::blocks::dequantize_into::<T, Q, $scale, gk::$kernel<T, Q>>(&$entry, [gk::PER_BLOCK, gk::ROWS], stream, q, scales, y)
        }

        static INFO: OpInfo = OpInfo {
            name: stringify!($name),
            bench_name: $bench,
            summary: $summary,
            math: "y = q · scale of its block",
            args: &[
                ArgInfo::input("q", "[rows, d], rows may be padded").of(DType::FLOAT8S),
                ArgInfo::input("scales", $shapes).of(&[DType::$dtype]),
                ArgInfo::output("y", "[rows, d], of the type `to`, rows may be padded").of(DType::FLOATS),
            ],
            params: &[ParamInfo::choice("to", "bfloat16", &["float32", "float16", "bfloat16"], "the type of y")],
            dtypes: DType::FLOAT8S,
            kernels: &[gk::$kernels],
            variants: &[],
        };

        /// The operator's entry in the registry.
        pub static $entry: Dequantization = Dequantization {
            info: &INFO,
            blocks: [$first, $second],
            scale: DType::$dtype,
            launch: |stream, args| {
                dispatch!(INFO, args.dtype("q")?, [crate::f8e4m3, crate::f8e5m2] => |Q| {
                    dispatch!(INFO, args.dtype("y")?, float => |T| {
                        $into::<T, Q>(stream, args.input("q")?, args.input("scales")?, args.output("y")?)
                    })
                })
            },
        };
    };
}
pub(in super::super) use dequantization;

/// Dequantization of blocks of 8-bit floats.
pub struct Dequantization {
    pub(in super::super) info: &'static OpInfo,
    /// The permitted blocks.
    pub(in super::super) blocks: [Block; 2],
    /// The type of scales.
    pub(in super::super) scale: DType,
    pub(in super::super) launch: fn(&Stream, &mut Arguments<'_>) -> Result<()>,
}

impl Dequantization {
    /// The blocks that have scales of that shape. If both have, they are equivalent.
    fn block(&self, scales: &[usize], rows: usize, d: usize) -> Option<Block> {
        self.blocks.into_iter().find(|block| block.scales(rows, d) == scales)
    }

    fn wanted(&self, rows: usize, d: usize) -> String {
        let [first, second] = self.blocks.map(|block| block.scales(rows, d));
        if first == second { format!("{first:?}") } else { format!("{first:?} or {second:?}") }
    }

    /// The type of y.
    fn target(params: &Params) -> Result<DType> {
        params.choice("to")?.parse()
    }
}

impl Operator for Dequantization {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    /// The case's `height` is the number of rows of a block.
    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for block in self.blocks {
            let dims = |rows, d| [("rows", rows), ("d", d), ("height", block.rows)];
            let name = format!("16384x8192 {}x{} bfloat16", block.rows, block.columns);
            cases.push(Case::production(self.info, name, DType::F8E4M3, dims(16384, 8192)));
            for &dtype in self.info.dtypes {
                let pads = |case: Case, q, y| {
                    case.arrange("q", Arrangement::DENSE.row_pad(q)).arrange("y", Arrangement::DENSE.row_pad(y))
                };
                let all = [
                    Case::odd(self.info, dtype, dims(1, 4224)),
                    Case::odd(self.info, dtype, dims(block.rows + 2, 203)),
                    pads(Case::odd(self.info, dtype, dims(block.rows + 1, 264)), 8, 16),
                    Case::boundary(self.info, dtype, dims(3, 40)).values("q", Values::Specials),
                    Case::tiny(self.info, dtype, dims(1, 1)),
                ];
                for to in DType::FLOATS {
                    cases.extend(all.clone().map(|case| case.param("to", ParamValue::Choice(to.name()))));
                }
                cases.extend([
                    Case::odd(self.info, dtype, dims(3, 4104)),
                    Case::boundary(self.info, dtype, dims(2, 136)).offset(1),
                    Case::boundary(self.info, dtype, dims(3, 40)).values("scales", Values::Specials),
                    Case::empty(self.info, dtype, dims(0, 8)),
                    Case::empty(self.info, dtype, dims(3, 0)),
                ]);
            }
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d, height] = case.dims(["rows", "d", "height"])?;
        let [first, second] = self.blocks;
        let scales = if height == first.rows { first } else { second }.scales(rows, d);
        Ok(vec![
            InputSpec::new("q", case.dtype, [rows, d], Values::Normal { std: 64.0 }).in_case(case),
            InputSpec::new("scales", self.scale, scales, Values::Uniform { low: 0.01, high: 1.0 }).in_case(case),
        ])
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let [rows, d] = inputs.get("q")?.dims()?;
        let scales = inputs.get("scales")?;
        if self.block(scales.shape(), rows, d).is_none() {
            return Err(self.info.shape_error("scales", scales.shape(), self.wanted(rows, d)));
        }
        Ok(vec![TensorMeta::new("y", Self::target(params)?, [rows, d])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        (self.launch)(stream, args)
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (q, scales) = (inputs.get("q")?, inputs.get("scales")?);
        let d = q.shape()[1];
        let Some(block) = self.block(scales.shape(), q.shape()[0], d) else { return Ok(Vec::new()) };
        Ok(reference::by_row(rows, |r| {
            let scales = scales.range_f64(r / block.rows * scales.shape()[1]..(r / block.rows + 1) * scales.shape()[1]);
            let scales = scales.unwrap_or_default();
            reference::row(q, r).into_iter().enumerate().map(|(c, q)| q * scales[c / block.columns]).collect()
        }))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let why = "one f32 product, and one rounding to storage";
        Ok(Tolerance::rounded(Self::target(&case.params)?, 0.0, roundoff(DType::F32), why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let scales = self.inputs(case)?[1].meta().elements().unwrap_or_default() * self.scale.size();
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((rows * d * (1 + Self::target(&case.params)?.size()) + scales) as u64))
    }
}
