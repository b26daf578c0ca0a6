//! Block-wise quantization.

use cuda_std::launch::{DevicePtr, DevicePtrMut, Kernel};

use super::super::max_nan;
use super::{Block, least_subnormal, nearest, scale};
use crate::ops::elementwise::grid_of_rows;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Dtype, Float, Float8};
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// Launches `K`, whose blocks of threads cover `per_block` columns of a row of blocks.
pub(in super::super) fn quantize_into<'a, T: Float, Q: Float8, S: Dtype, K>(
    op: &Quantization,
    per_block: usize,
    stream: &Stream,
    x: View<'a, T>,
    mut q: ViewMut<'a, Q>,
    mut scales: ViewMut<'a, S>,
) -> Result<()>
where
    K: Kernel<Args = (DevicePtr<T>, DevicePtrMut<Q>, DevicePtrMut<S>, u64, u64, u64, u64)>,
{
    let (block, info) = (op.block, op.info);
    stream.require_devices(info.name, &[("x", &x), ("q", &q), ("scales", &scales)])?;
    let [rows, d]: [usize; 2] = x.dims(info.name, "x")?;
    q.require_shape(info.name, "q", &[rows, d])?;
    scales.require_shape(info.name, "scales", &block.scales(rows, d))?;
    scales.require_contiguous(info.name, "scales")?;
    let x_stride = x.require_row_stride(info.name, "x")? as u64;
    let q_stride = q.require_row_stride(info.name, "q")? as u64;
    let single = block.continues(d) && x.is_contiguous() && q.is_contiguous();
    let [rows, d] = if single { [1, rows * d] } else { [rows, d] };
    let Some(grid) = grid_of_rows(info, "x", rows.div_ceil(block.rows), d, per_block)? else { return Ok(()) };
    let (x, q, scales) = (x.ptr(stream)?, q.ptr_mut(stream)?, scales.ptr_mut(stream)?);
    // SAFETY: the tensors are live and hold these rows at these strides, there is a scale for each block, and q and scales are borrowed mutably.
    unsafe { stream.launch::<K>(grid, (x, q, scales, rows as u64, d as u64, x_stride, q_stride)) }
}

/// An operator that quantizes by blocks: the two functions, and their registry entry.
macro_rules! quantization {
    (
        $(#[$doc:meta])*
        $name:ident, $into:ident, $entry:ident;
        kernel: $kernel:ident $kernels:ident, $per_block:expr;
        block: [$height:literal, $width:literal], $shape:literal of $scale:ty, $dtype:ident;
        rules: $rules:literal;
        example: $example:literal;
        bench: $bench:literal, $summary:literal, $math:literal, [$($production:expr),+];
    ) => {
        $(#[$doc])*
        ///
        #[doc = $rules]
        /// `Q` is [`f8e4m3`](struct@crate::f8e4m3) or [`f8e5m2`](struct@crate::f8e5m2). Blocks at the ends of rows and columns
        /// are partial. Rows may be padded.
        #[doc = concat!("The results are new dense tensors, `[rows, d]` and `", $shape, "`; the work is queued on `stream`.")]
        ///
        /// # Errors
        /// [`Error::Shape`](crate::Error::Shape) if `x` has other than two dimensions, [`Error::Layout`](crate::Error::Layout) if its rows are
        /// not contiguous and equally far apart, [`Error::OutOfMemory`](crate::Error::OutOfMemory).
        ///
        /// # Example
        /// ```
        /// # use warpsmith::{Device, Tensor, f8e4m3, ops};
        /// # fn main() -> warpsmith::Result<()> {
        /// let stream = Device::open()?.stream()?;
        #[doc = concat!("let x = Tensor::from_slice(&stream, ", $example, ", &[448.0f32, 30.5, -7.0])?;")]
        #[doc = concat!("let (q, scales) = ops::", stringify!($name), "::<f32, f8e4m3>(&stream, &x)?;")]
        /// assert_eq!(q.to_vec(&stream)?, [448.0, 30.0, -7.0].map(f8e4m3::from_f32));
        /// assert_eq!(f32::from(scales.to_vec(&stream)?[0]), 1.0);
        /// # Ok(())
        /// # }
        /// ```
        pub fn $name<'a, T: crate::Float, Q: crate::Float8>(
            stream: &crate::Stream,
            x: impl Into<crate::View<'a, T>>,
        ) -> crate::Result<(crate::Tensor<Q>, crate::Tensor<$scale>)> {
            let x = x.into();
            let [rows, d]: [usize; 2] = x.dims(INFO.name, "x")?;
            let mut q = crate::Tensor::result(stream, [rows, d])?;
            let mut scales = crate::Tensor::result(stream, $entry.scales(rows, d))?;
            $into(stream, x, &mut q, &mut scales)?;
            Ok((q, scales))
        }

        #[doc = concat!(
            "[`", stringify!($name), "`] into `q`, `[rows, d]`, whose rows may be padded, and `scales`, `", $shape, "`, contiguous."
        )]
        ///
        /// # Errors
        #[doc = concat!("As of [`", stringify!($name), "`].")]
        pub fn $into<'a, T: crate::Float, Q: crate::Float8>(
            stream: &crate::Stream,
            x: impl Into<crate::View<'a, T>>,
            q: impl Into<crate::ViewMut<'a, Q>>,
            scales: impl Into<crate::ViewMut<'a, $scale>>,
        ) -> crate::Result<()> {
            let per_block: fn(usize) -> usize = $per_block;
            let (x, q, scales) = (x.into(), q.into(), scales.into());
            super::blocks::quantize_into::<T, Q, $scale, gk::$kernel<T, Q>>(
                &$entry,
                per_block(size_of::<T>()),
                stream,
                x,
                q,
                scales,
            )
        }

        static INFO: OpInfo = OpInfo {
            name: stringify!($name),
            bench_name: $bench,
            summary: $summary,
            math: $math,
            args: &[
                ArgInfo::input("x", "[rows, d], rows may be padded"),
                ArgInfo::output("q", "[rows, d], of the type `to`, rows may be padded").of(DType::FLOAT8S),
                ArgInfo::output("scales", concat!($shape, ", contiguous")).of(&[DType::$dtype]),
            ],
            params: &[ParamInfo::choice("to", "float8_e4m3fn", &["float8_e4m3fn", "float8_e5m2"], "the type of q")],
            dtypes: DType::FLOATS,
            kernels: &[gk::$kernels],
            variants: &[],
        };

        /// The operator's entry in the registry.
        pub static $entry: Quantization = Quantization {
            info: &INFO,
            block: Block::new($height, $width),
            scale: DType::$dtype,
            production: &[$($production),+],
            value: |x| x[0],
            error: 0.0,
            launch: |stream, args| {
                dispatch!(INFO, args.dtype("x")?, float => |T| {
                    dispatch!(INFO, args.dtype("q")?, [crate::f8e4m3, crate::f8e5m2] => |Q| {
                        $into::<T, Q>(stream, args.input("x")?, args.output("q")?, args.output("scales")?)
                    })
                })
            },
        };
    };
}
pub(in super::super) use quantization;

/// A quantization to 8-bit floats with a scale for each block.
pub struct Quantization {
    pub(in super::super) info: &'static OpInfo,
    pub(in super::super) block: Block,
    /// The type of scales.
    pub(in super::super) scale: DType,
    /// The production shapes, as rows and columns.
    pub(in super::super) production: &'static [(usize, usize)],
    /// The value that is quantized, from the inputs at an index, and its relative error.
    pub(in super::super) value: fn(&[f64]) -> f64,
    pub(in super::super) error: f64,
    pub(in super::super) launch: fn(&Stream, &mut Arguments<'_>) -> Result<()>,
}

impl Quantization {
    /// The shape of the scales of `rows` × `d` elements.
    pub(in super::super) fn scales(&self, rows: usize, d: usize) -> [usize; 2] {
        self.block.scales(rows, d)
    }

    /// The type of q.
    fn target(params: &Params) -> Result<DType> {
        params.choice("to")?.parse()
    }

    /// Whether every bit of the result is determined.
    fn is_exact(&self) -> bool {
        self.error == 0.0
    }

    /// A row of the values that are quantized, in f32.
    fn row(&self, inputs: &[&HostTensor], row: usize) -> Vec<f64> {
        if let [x] = inputs {
            return reference::row(x, row);
        }
        let rows: Vec<_> = inputs.iter().map(|x| reference::row(x, row)).collect();
        let value = |c| (self.value)(&rows.iter().map(|row| row[c]).collect::<Vec<_>>());
        (0..rows[0].len()).map(|c| f64::from(value(c) as f32)).collect()
    }

    /// The greatest magnitudes of the blocks whose first row is `first`; NaN if a block contains NaN.
    fn maxima(&self, inputs: &[&HostTensor], first: usize) -> Vec<f64> {
        let shape = inputs[0].shape();
        let mut maxima = vec![0.0f64; shape[1].div_ceil(self.block.columns)];
        for row in first..(first + self.block.rows).min(shape[0]) {
            for (c, x) in self.row(inputs, row).into_iter().enumerate() {
                let max = &mut maxima[c / self.block.columns];
                *max = max_nan(*max, x.abs());
            }
        }
        maxima
    }
}

impl Operator for Quantization {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let (info, height) = (self.info, self.block.rows);
        let production = |&(rows, d): &(usize, usize)| {
            Case::production(info, format!("{rows}x{d} bfloat16"), DType::BF16, dims(rows, d))
        };
        let mut cases: Vec<_> = self.production.iter().map(production).collect();
        for &dtype in info.dtypes {
            let pads = |case: Case, x, q| {
                let padded = |case: Case, name, pad| case.arrange(name, Arrangement::DENSE.row_pad(pad));
                let inputs = info.inputs().zip([x, x + q]);
                padded(inputs.fold(case, |case, (arg, pad)| padded(case, arg.name, pad)), "q", q)
            };
            let e5m2 = |case: Case| case.param("to", ParamValue::Choice("float8_e5m2"));
            // Rows of whole blocks of threads, and of blocks of theirs that are cut off.
            let whole = if height == 1 { dims(3, 2048) } else { dims(height, 256) };
            cases.extend([
                Case::odd(info, dtype, whole),
                e5m2(Case::odd(info, dtype, whole)),
                Case::odd(info, dtype, dims(height + 3, 203)),
                pads(Case::odd(info, dtype, dims(2 * height, 264)), 8, 16),
                e5m2(pads(Case::odd(info, dtype, dims(height + 1, 96)), 3, 5)),
                Case::tiny(info, dtype, dims(1, 1)),
                Case::tiny(info, dtype, dims(2, 40)).fill(Values::Constant(0.0)),
                Case::boundary(info, dtype, dims(height + 1, 136)).offset(1),
                Case::empty(info, dtype, dims(0, 8)),
                Case::empty(info, dtype, dims(3, 0)),
            ]);
            if self.is_exact() {
                // Few elements per block, so that some blocks have neither NaN nor an infinity.
                let sizes = if height == 128 { dims(3, 3) } else { dims(70, 3) };
                let specials = Case::boundary(info, dtype, sizes).values("x", Values::Specials);
                cases.extend([specials.clone(), e5m2(specials)]);
            }
        }
        if self.is_exact() {
            // Where scales of such blocks end.
            for magnitude in [1e-34, 1e-36, 1e-40] {
                let values = Values::Uniform { low: -magnitude, high: magnitude };
                let mut case = Case::boundary(info, DType::F32, dims(height + 1, 140)).values("x", values);
                case.name = format!("{} below {magnitude:e}", case.name);
                cases.push(case);
            }
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let shape = case.dims(["rows", "d"])?;
        Ok(self.info.inputs().map(|arg| InputSpec::normal(arg.name, case.dtype, shape).in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let [rows, d] = inputs.get(self.info.args[0].name)?.dims()?;
        for arg in self.info.inputs() {
            inputs.get(arg.name)?.has_shape(&[rows, d])?;
        }
        let q = TensorMeta::new("q", Self::target(params)?, [rows, d]);
        Ok(vec![q, TensorMeta::new("scales", self.scale, self.scales(rows, d))])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        (self.launch)(stream, args)
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let all: Vec<_> = self.info.inputs().map(|arg| inputs.get(arg.name)).collect::<Result<_>>()?;
        let to = Self::target(params)?;
        let scales = |first: usize| -> Vec<_> {
            self.maxima(&all, first).into_iter().map(|max| scale(self.scale, to, max)).collect()
        };
        if output == "scales" {
            return Ok(reference::by_row(rows, |r| scales(r * self.block.rows).into_iter().map(|(s, _)| s).collect()));
        }
        let (mut values, mut known, mut inverses) = (Vec::new(), None, Vec::new());
        for &row in rows {
            // Once for all rows of a block.
            let first = row / self.block.rows * self.block.rows;
            if known.replace(first) != Some(first) {
                inverses = scales(first).into_iter().map(|(_, inverse)| inverse).collect();
            }
            let scaled = |(c, x): (usize, f64)| f64::from(x as f32 * inverses[c / self.block.columns]);
            // An error can decide between two neighbours.
            let stored = |x: f64| if self.is_exact() { nearest(to, x) } else { x };
            values.extend(self.row(&all, row).into_iter().enumerate().map(|element| stored(scaled(element))));
        }
        Ok(values)
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        if self.is_exact() {
            return Ok(Tolerance::EXACT);
        }
        let to = Self::target(&case.params)?;
        let rounding = roundoff(DType::F32);
        Ok(match output {
            "scales" => {
                Tolerance::new(0.0, self.error + 2.0 * rounding, "the error of the greatest value, and one division")
            }
            _ => {
                let why = "one rounding, and the errors of the value and of its scale";
                Tolerance::new(least_subnormal(to) / 2.0, roundoff(to) + 2.0 * self.error + 4.0 * rounding, why)
            }
        })
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let scales: usize = self.scales(rows, d).iter().product();
        Ok(Cost::memory(
            (rows * d * (self.info.inputs().count() * case.dtype.size() + 1) + scales * self.scale.size()) as u64,
        ))
    }
}
