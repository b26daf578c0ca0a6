//! Rotary position embedding, and its backward.

mod exact;

use exact::sizes;
pub(super) use exact::{MORE, Turns};

use cuda_std::launch::{DevicePtr, Dim3};
use gpu_kernels::ops::layout::rope as gk;

use crate::dispatch;
use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// Which elements of a head are rotated as a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopePairs {
    /// Element j with element j + half: GPT-NeoX, Llama.
    Halves,
    /// Element 2j with element 2j + 1: GPT-J, the original.
    Neighbours,
}

/// The rotation of every token.
#[derive(Clone, Copy, Debug)]
pub struct Rotation<'a> {
    /// Cosines, `[max_position, half]`, as [`rope_table`](fn@crate::ops::rope_table) makes them.
    pub cos: View<'a, f32>,
    /// Sines, likewise.
    pub sin: View<'a, f32>,
    /// The tokens' positions, `[tokens]`.
    pub positions: View<'a, i32>,
    /// Which elements are rotated as a pair.
    pub pairs: RopePairs,
}

impl Rotation<'_> {
    /// Returns the positions and pairs of the tables, if these and the positions match the tokens and heads of `d` elements.
    pub(super) fn require(&self, info: &OpInfo, tokens: usize, d: usize) -> Result<[usize; 2]> {
        let Self { cos, sin, positions, .. } = self;
        let [table_rows, half]: [usize; 2] = cos.dims(info.name, "cos")?;
        require_half(info, cos.shape(), half, d)?;
        sin.require_shape(info.name, "sin", cos.shape())?;
        positions.require_shape(info.name, "positions", &[tokens])?;
        cos.require_contiguous(info.name, "cos")?;
        sin.require_contiguous(info.name, "sin")?;
        positions.require_contiguous(info.name, "positions")?;
        Ok([table_rows, half])
    }
}

/// Fails if tables of that shape rotate more elements than a head has.
pub(super) fn require_half(info: &OpInfo, cos: &[usize], half: usize, d: usize) -> Result<()> {
    if half > d / 2 {
        return Err(info.shape_error("cos", cos, format!("[max_position, half] with half at most {}", d / 2)));
    }
    Ok(())
}

/// Rotary position embedding: the first 2·half elements of every head of `x`, `[tokens, heads, d]`, are rotated in pairs, each by its
/// angle at the token's position.
///
/// The remaining elements are copied unchanged. The last dimension of `x` is contiguous; tokens and heads may have any strides, so
/// queries and keys may be parts of one projection. A token whose position is negative or beyond the tables gets zeros. Arithmetic is
/// in f32 and rounded once. The result is a new dense tensor; the work is queued on `stream`.
///
/// Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (arXiv:2104.09864).
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit, [`Error::Layout`] if the last dimension of `x` or a table or the positions are not
/// contiguous, [`Error::TooLarge`] beyond 2³² − 1 tokens, [`Error::OutOfMemory`].
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops::{self, RopeFrequencies, RopePairs, Rotation}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let frequencies = RopeFrequencies { half: 2, base: 10_000.0, scaling: None };
/// let (cos, sin) = ops::rope_table(&stream, &frequencies, 8)?;
/// let positions = Tensor::from_slice(&stream, [2], &[0, 3])?;
/// let (cos, sin, positions) = (cos.view(), sin.view(), positions.view());
/// let rotation = Rotation { cos, sin, positions, pairs: RopePairs::Halves };
/// let mut x = Tensor::from_slice(&stream, [2, 1, 4], &[1.0f32, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])?;
/// let y = ops::rope(&stream, &x, &rotation)?;
/// ops::rope_in_place(&stream, &mut x, &rotation)?;
/// let y = y.to_vec(&stream)?;
/// assert_eq!(y, x.to_vec(&stream)?);
/// assert_eq!(y[..4], [1.0, 0.0, 0.0, 0.0]);
/// assert!((y[4] - 3f32.cos()).abs() < 1e-6 && (y[6] - 3f32.sin()).abs() < 1e-6);
/// # Ok(())
/// # }
/// ```
pub fn rope<'a, T: Float>(stream: &Stream, x: impl Into<View<'a, T>>, rotation: &Rotation<'_>) -> Result<Tensor<T>> {
    let x = x.into();
    let mut y = Tensor::result(stream, x.shape())?;
    rope_into(stream, x, rotation, &mut y)?;
    Ok(y)
}

/// [`rope`] into `y`, which has the shape of `x` and whose last dimension is contiguous.
///
/// # Errors
/// Same as [`rope`].
pub fn rope_into<'a, T: Float>(
    stream: &Stream,
    x: impl Into<View<'a, T>>,
    rotation: &Rotation<'_>,
    y: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    turn(&FORWARD, stream, Some(x.into()), rotation, y.into())
}

/// [`rope`] of `x`, `[tokens, heads, d]`, in place.
///
/// # Errors
/// Same as [`rope`].
pub fn rope_in_place<'a, T: Float>(
    stream: &Stream,
    x: impl Into<ViewMut<'a, T>>,
    rotation: &Rotation<'_>,
) -> Result<()> {
    turn(&FORWARD, stream, None, rotation, x.into())
}

/// The gradient of [`rope`]: `dy`, `[tokens, heads, d]`, rotated back.
///
/// # Errors
/// Same as [`rope`].
pub fn rope_backward<'a, T: Float>(
    stream: &Stream,
    dy: impl Into<View<'a, T>>,
    rotation: &Rotation<'_>,
) -> Result<Tensor<T>> {
    let dy = dy.into();
    let mut dx = Tensor::result(stream, dy.shape())?;
    rope_backward_into(stream, dy, rotation, &mut dx)?;
    Ok(dx)
}

/// [`rope_backward`] into `dx`, which has the shape of `dy` and whose last dimension is contiguous.
///
/// # Errors
/// Same as [`rope`].
pub fn rope_backward_into<'a, T: Float>(
    stream: &Stream,
    dy: impl Into<View<'a, T>>,
    rotation: &Rotation<'_>,
    dx: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    turn(&BACKWARD, stream, Some(dy.into()), rotation, dx.into())
}

/// Rotates `x` or, without one, `y` in place, forwards or backwards as the operator with this description does.
fn turn<T: Float>(
    info: &'static OpInfo,
    stream: &Stream,
    x: Option<View<'_, T>>,
    rotation: &Rotation<'_>,
    mut y: ViewMut<'_, T>,
) -> Result<()> {
    let (input, output) = names(info);
    let Rotation { cos, sin, positions, pairs } = *rotation;
    let output = if x.is_some() { output } else { input };
    stream.require_devices(info.name, &[(input, &x), (output, &y), ("cos", &cos), ("sin", &sin)])?;
    positions.require_device(info.name, "positions", stream)?;
    // The tensor that the caller passed comes first: the shape of the result may be derived from it.
    let dims = x.map_or_else(|| y.dims(info.name, output), |x| x.dims(info.name, input));
    let [tokens, heads, d]: [usize; 3] = dims?;
    x.map_or(Ok(()), |x| x.require_inner_contiguous(info.name, input))?;
    y.require_shape(info.name, output, &[tokens, heads, d])?;
    y.require_inner_contiguous(info.name, output)?;
    let [table_rows, half] = rotation.require(info, tokens, d)?;

    let lanes = gpu_kernels::lanes::<T>();
    let packed = half.is_multiple_of(lanes)
        && (d - 2 * half).is_multiple_of(lanes)
        && x.is_none_or(|x| x.rows_aligned(16))
        && y.rows_aligned(16)
        && cos.rows_aligned(16)
        && sin.rows_aligned(16);
    let items = (d - half) / if packed { lanes } else { 1 };
    let all = heads.saturating_mul(items);
    let width = all.min(gk::BLOCK as usize);
    if tokens == 0 || width == 0 {
        return Ok(());
    }
    let blocks = all.div_ceil(width);
    let [Ok(count), Ok(heads), Ok(d), Ok(half), Ok(table_rows)] =
        [tokens, heads, d, half, table_rows].map(u32::try_from)
    else {
        return Err(Error::too_large(info.name, input, format!("{}: sizes are below 2^32", y.shape())));
    };
    if blocks > 65_535 {
        let reason = format!("{all} packs a token, at most {} are supported", 65_535 * gk::BLOCK);
        return Err(Error::too_large(info.name, input, reason));
    }
    let Some(tokens) = grid(info, input, tokens, gk::BLOCK as usize / width)? else { return Ok(()) };
    let strides = |strides: &[usize]| [strides[0] as u64, strides[1] as u64];
    let [y_token, y_head] = strides(y.strides());
    let [x_token, x_head] = x.map_or([y_token, y_head], |x| strides(x.strides()));
    let target = y.ptr_mut(stream)?;
    let source = x.map_or(Ok(DevicePtr::from(target)), |x| x.ptr(stream))?;
    let direction = if std::ptr::eq(info, &BACKWARD) { -1.0 } else { 1.0 };
    let interleaved = u32::from(pairs == RopePairs::Neighbours);
    let args = (
        source,
        cos.ptr(stream)?,
        sin.ptr(stream)?,
        positions.ptr(stream)?,
        target,
        count,
        heads,
        d,
        half,
        table_rows,
        width as u32,
        interleaved,
        direction,
        x_token,
        x_head,
        y_token,
        y_head,
    );
    let grid = Dim3::new(tokens, blocks as u32, 1);
    // SAFETY: the tensors are live and hold these sizes at these strides, y is borrowed mutably and a thread reads what it writes
    // before it does; packs are taken only where they are aligned and whole.
    unsafe {
        if packed {
            stream.launch::<gk::Rope<T, true>>(grid, args)
        } else {
            stream.launch::<gk::Rope<T, false>>(grid, args)
        }
    }
}

/// Names of the input and the output.
fn names(info: &'static OpInfo) -> (&'static str, &'static str) {
    (info.args[0].name, info.args[4].name)
}

/// The description of an operator that rotates forwards or backwards.
const fn facts([name, bench_name, summary, math]: [&'static str; 4], args: &'static [ArgInfo]) -> OpInfo {
    OpInfo {
        name,
        bench_name,
        summary,
        math,
        args,
        params: PARAMS,
        dtypes: DType::FLOATS,
        kernels: &[gk::ROPE],
        variants: &[],
    }
}

const PARAMS: &[ParamInfo] =
    &[ParamInfo::bool("interleaved", false, "neighbours turn together (GPT-J), not halves (GPT-NeoX, Llama)")];

static FORWARD: OpInfo = facts(
    [
        "rope",
        "rope.forward",
        "rotary position embedding",
        "(a, b) ← (a·cos θ − b·sin θ, b·cos θ + a·sin θ), θ by position and pair",
    ],
    &args("x", "y"),
);

static BACKWARD: OpInfo = facts(
    ["rope_backward", "rope.backward", "gradient of rope", "(a, b) ← (a·cos θ + b·sin θ, b·cos θ − a·sin θ)"],
    &args("dy", "dx"),
);

const fn args(input: &'static str, output: &'static str) -> [ArgInfo; 5] {
    [
        ArgInfo::input(input, "[tokens, heads, d], the last dimension contiguous"),
        ArgInfo::input("cos", "[max_position, half], contiguous").of(&[DType::F32]),
        ArgInfo::input("sin", "[max_position, half], contiguous").of(&[DType::F32]),
        ArgInfo::input("positions", "[tokens], contiguous; a position outside the tables gives zeros")
            .of(&[DType::I32]),
        ArgInfo::output(output, "the shape of the input, the last dimension contiguous"),
    ]
}

/// A rotation in the registry.
pub struct Turn {
    info: &'static OpInfo,
    gradient: Option<Gradient>,
}

/// [`rope`] in the registry.
pub static ROPE: Turn = Turn { info: &FORWARD, gradient: None };

/// [`rope_backward`] in the registry.
pub static ROPE_BACKWARD: Turn = Turn {
    info: &BACKWARD,
    gradient: Some(Gradient { forward: &ROPE, of_outputs: &[("dy", "y")], of_inputs: &[("dx", "x")] }),
};

impl Operator for Turn {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |tokens, heads, half, d| [("tokens", tokens), ("heads", heads), ("half", half), ("d", d)];
        let (input, output) = names(self.info);
        let mut cases = Vec::new();
        for interleaved in [false, true] {
            let layout = if interleaved { "interleaved" } else { "halves" };
            let name = format!("tokens=16384 heads=32 d=128 {layout} bfloat16");
            let case = Case::production(self.info, name, DType::BF16, dims(16384, 32, 64, 128));
            cases.push(case.param("interleaved", interleaved));
        }
        for &dtype in DType::FLOATS {
            let lanes = 16 / dtype.size();
            let pads = |case: Case| {
                case.arrange(input, Arrangement::DENSE.row_pad(16)).arrange(output, Arrangement::DENSE.row_pad(8))
            };
            for interleaved in [false, true] {
                cases.extend(
                    [
                        Case::odd(self.info, dtype, dims(9, 5, 4 * lanes, 8 * lanes)),
                        Case::odd(self.info, dtype, dims(5, 3, 2 * lanes, 5 * lanes)),
                        Case::odd(self.info, dtype, dims(7, 3, 5, 13)),
                        pads(Case::odd(self.info, dtype, dims(3, 2, lanes, 2 * lanes))),
                    ]
                    .map(|case| case.param("interleaved", interleaved)),
                );
            }
            cases.extend([
                Case::tiny(self.info, dtype, dims(1, 1, 1, 2)),
                Case::empty(self.info, dtype, dims(2, 1, 0, 4)),
                Case::empty(self.info, dtype, dims(0, 2, 8, 16)),
                Case::empty(self.info, dtype, dims(2, 0, 8, 16)),
                Case::boundary(self.info, dtype, dims(40, 2, 8, 24)).values("positions", Values::Hostile { bound: 45 }),
                // More packs per token than a block has threads.
                Case::boundary(self.info, dtype, dims(2, 33, 8 * lanes, 16 * lanes)),
                Case::boundary(self.info, dtype, dims(3, 4, lanes, 2 * lanes))
                    .arrange("cos", Arrangement::DENSE.offset(1)),
                Case::boundary(self.info, dtype, dims(3, 4, lanes, 2 * lanes))
                    .arrange(input, Arrangement::DENSE.order(&[1, 0, 2])),
            ]);
            // What has no position may hold anything.
            cases.extend([(lanes, 3 * lanes), (3, 7)].map(|(half, d)| {
                let case = Case::boundary(self.info, dtype, dims(3, 2, half, d)).fill(Values::Specials);
                case.values("positions", Values::Constant(-1.0))
            }));
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [tokens, heads, half, d] = sizes(case)?;
        let (input, _) = names(self.info);
        let table = [tokens + MORE, half];
        let angles = Values::Uniform { low: -1.0, high: 1.0 };
        let positions = Values::Integers { low: 0, high: (tokens + MORE - 1) as i64 };
        let specs = [
            InputSpec::normal(input, case.dtype, [tokens, heads, d]),
            InputSpec::new("cos", DType::F32, table, angles),
            InputSpec::new("sin", DType::F32, table, angles),
            InputSpec::new("positions", DType::I32, [tokens], positions),
        ];
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let (input, output) = names(self.info);
        let (x, cos) = (inputs.get(input)?, inputs.get("cos")?);
        let [tokens, _, d] = x.dims()?;
        let [_, half] = cos.dims()?;
        require_half(self.info, cos.shape(), half, d)?;
        inputs.get("sin")?.has_shape(cos.shape())?;
        inputs.get("positions")?.has_shape(&[tokens])?;
        Ok(vec![TensorMeta::new(output, x.dtype(), x.shape())])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let (input, output) = names(self.info);
        let pairs = if params.bool("interleaved")? { RopePairs::Neighbours } else { RopePairs::Halves };
        let (cos, sin) = (args.input("cos")?, args.input("sin")?);
        let rotation = Rotation { cos, sin, positions: args.input("positions")?, pairs };
        dispatch!(self.info, args.dtype(input)?, float => |T| {
            turn::<T>(self.info, stream, Some(args.input(input)?), &rotation, args.output(output)?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let (input, _) = names(self.info);
        let x = inputs.get(input)?;
        let turns = Turns::of(inputs, params)?;
        let direction = if std::ptr::eq(self.info, &BACKWARD) { -1.0 } else { 1.0 };
        let heads = x.shape()[1];
        Ok(reference::by_row(rows, |row| turns.turn(reference::row(x, row), row / heads, direction)))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let why = "storage rounding, and three f32 roundings of products below 6, which may cancel";
        Ok(Tolerance::rounded(case.dtype, 3.0 * 6.0 * roundoff(DType::F32), 0.0, why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [tokens, heads, half, d] = sizes(case)?;
        let tables = tokens * (8 * half + 4);
        Ok(Cost::memory((2 * tokens * heads * d * case.dtype.size() + tables) as u64))
    }

    fn gradient(&self) -> Option<Gradient> {
        self.gradient
    }
}
