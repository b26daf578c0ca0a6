//! Gradient of the normalisation and rotary position embedding of queries and keys.

use gpu_kernels::columns::COLUMN_SUMS;
use gpu_kernels::ops::layout::qk_norm_rope::{BLOCK, Strides};
use gpu_kernels::ops::layout::qk_norm_rope_backward as gk;

use super::qk_norm_rope::{Heads, PARAMS, QkNorm, QkNormRope, exact, of_heads};
use super::rope::Rotation;
use crate::dispatch;
use crate::ops::model::*;
use crate::ops::norm::columns;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The gradients of [`qk_norm_rope`](fn@crate::ops::qk_norm_rope) with respect to its inputs.
#[derive(Debug)]
pub struct QkNormRopeGradients<T> {
    /// The gradient with respect to the queries, of their shape.
    pub dq: Tensor<T>,
    /// The gradient with respect to the keys, of their shape.
    pub dk: Tensor<T>,
    /// The gradient with respect to the weight of the queries' norm, `[d]`.
    pub dq_weight: Tensor<T>,
    /// The gradient with respect to the weight of the keys' norm, `[d]`.
    pub dk_weight: Tensor<T>,
}

/// Where to write [`QkNormRopeGradients`].
#[derive(Debug)]
pub struct QkNormRopeGradientsMut<'a, T> {
    /// The gradient with respect to the queries, of their shape, with a contiguous last dimension.
    pub dq: ViewMut<'a, T>,
    /// The gradient with respect to the keys, of their shape, with a contiguous last dimension.
    pub dk: ViewMut<'a, T>,
    /// The gradient with respect to the weight of the queries' norm, `[d]`, contiguous.
    pub dq_weight: ViewMut<'a, T>,
    /// The gradient with respect to the weight of the keys' norm, `[d]`, contiguous.
    pub dk_weight: ViewMut<'a, T>,
}

/// The gradients of [`qk_norm_rope`](fn@crate::ops::qk_norm_rope).
///
/// `q` and `k` are the inputs of the forward, `dq_out` and `dk_out` the gradients of its results, of the same shapes and with
/// contiguous last dimensions. The normalised values are recomputed. The gradients of the weights are sums over the heads of
/// all tokens, in f32 in an order that depends only on the device and the shape. A token whose position lies outside the tables
/// has no gradient. The results are new dense tensors; the work is queued on `stream`.
///
/// # Errors
/// Same as [`qk_norm_rope`](fn@crate::ops::qk_norm_rope).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops::{self, QkNorm, RopePairs, Rotation}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let (cos, sin) = (Tensor::from_slice(&stream, [1, 1], &[1.0])?, Tensor::from_slice(&stream, [1, 1], &[0.0])?);
/// let positions = Tensor::from_slice(&stream, [1], &[0])?;
/// let weight = Tensor::from_slice(&stream, [2], &[1.0f32, 1.0])?;
/// let norm = QkNorm { q_weight: weight.view(), k_weight: weight.view(), eps: 0.0 };
/// let (cos, sin, positions) = (cos.view(), sin.view(), positions.view());
/// let rotation = Rotation { cos, sin, positions, pairs: RopePairs::Neighbours };
/// let x = Tensor::from_slice(&stream, [1, 1, 2], &[-1.0f32, 1.0])?;
/// let dy = Tensor::from_slice(&stream, [1, 1, 2], &[1.0f32, 1.0])?;
/// let gradients = ops::qk_norm_rope_backward(&stream, &x, &x, &norm, &dy, &dy, &rotation)?;
/// assert_eq!(gradients.dq.to_vec(&stream)?, [1.0, 1.0]);
/// assert_eq!(gradients.dk.to_vec(&stream)?, [1.0, 1.0]);
/// assert_eq!(gradients.dq_weight.to_vec(&stream)?, [-1.0, 1.0]);
/// # Ok(())
/// # }
/// ```
pub fn qk_norm_rope_backward<'a, T: Float>(
    stream: &Stream,
    q: impl Into<View<'a, T>>,
    k: impl Into<View<'a, T>>,
    norm: &QkNorm<'_, T>,
    dq_out: impl Into<View<'a, T>>,
    dk_out: impl Into<View<'a, T>>,
    rotation: &Rotation<'_>,
) -> Result<QkNormRopeGradients<T>> {
    let (q, k) = (q.into(), k.into());
    let (mut dq, mut dk) = (Tensor::result(stream, q.shape())?, Tensor::result(stream, k.shape())?);
    let mut dq_weight = Tensor::result(stream, norm.q_weight.shape())?;
    let mut dk_weight = Tensor::result(stream, norm.k_weight.shape())?;
    let gradients = QkNormRopeGradientsMut {
        dq: dq.view_mut(),
        dk: dk.view_mut(),
        dq_weight: dq_weight.view_mut(),
        dk_weight: dk_weight.view_mut(),
    };
    backward(stream, [q, k], norm, [dq_out.into(), dk_out.into()], rotation, gradients)?;
    Ok(QkNormRopeGradients { dq, dk, dq_weight, dk_weight })
}

/// [`qk_norm_rope_backward`] into `gradients`.
///
/// # Errors
/// Same as [`qk_norm_rope_backward`].
#[allow(clippy::too_many_arguments)] // What was normalised, and how, and what there is of gradients.
pub fn qk_norm_rope_backward_into<'a, T: Float>(
    stream: &Stream,
    q: impl Into<View<'a, T>>,
    k: impl Into<View<'a, T>>,
    norm: &QkNorm<'_, T>,
    dq_out: impl Into<View<'a, T>>,
    dk_out: impl Into<View<'a, T>>,
    rotation: &Rotation<'_>,
    gradients: QkNormRopeGradientsMut<'a, T>,
) -> Result<()> {
    let dy = [dq_out.into(), dk_out.into()];
    backward(stream, [q.into(), k.into()], norm, dy, rotation, gradients)
}

/// Threads per multiprocessor: more would only write more partial results.
const THREADS: u32 = 512;

fn backward<T: Float>(
    stream: &Stream,
    [q, k]: [View<'_, T>; 2],
    norm: &QkNorm<'_, T>,
    [q_dy, k_dy]: [View<'_, T>; 2],
    rotation: &Rotation<'_>,
    gradients: QkNormRopeGradientsMut<'_, T>,
) -> Result<()> {
    let QkNormRopeGradientsMut { mut dq, mut dk, mut dq_weight, mut dk_weight } = gradients;
    let op = INFO.name;
    let (QkNorm { q_weight, k_weight, .. }, Rotation { cos, sin, positions, .. }) = (norm, rotation);
    stream.require_devices(
        op,
        &[
            ("q", &q),
            ("k", &k),
            ("q_weight", &q_weight),
            ("k_weight", &k_weight),
            ("dq_out", &q_dy),
            ("dk_out", &k_dy),
            ("cos", &cos),
            ("sin", &sin),
            ("positions", &positions),
            ("dq", &dq),
            ("dk", &dk),
            ("dq_weight", &dq_weight),
            ("dk_weight", &dk_weight),
        ],
    )?;
    let heads = Heads::of(&INFO, [q, k], norm, rotation)?;
    for (name, dy, shape) in [("dq_out", q_dy, q.shape()), ("dk_out", k_dy, k.shape())] {
        dy.require_shape(op, name, shape)?;
        dy.require_inner_contiguous(op, name)?;
    }
    for (name, dx, shape) in [("dq", &dq, q.shape()), ("dk", &dk, k.shape())] {
        dx.require_shape(op, name, shape)?;
        dx.require_inner_contiguous(op, name)?;
    }
    for (name, dweight) in [("dq_weight", &dq_weight), ("dk_weight", &dk_weight)] {
        dweight.require_shape(op, name, &[heads.d])?;
        dweight.require_contiguous(op, name)?;
    }
    let aligned = [q_dy, k_dy].iter().all(|dy| dy.rows_aligned(16)) && dq.rows_aligned(16) && dk.rows_aligned(16);
    let mut plan = heads.plan(aligned, gpu_kernels::lanes::<T>());
    // Element by element, a block is a single warp, with its sums in memory.
    let block = if plan.packed { BLOCK } else { 32 };
    let blocks = heads.blocks(&mut plan, block, 1, stream.device().info().multiprocessors * (THREADS / block))?;
    let partials = stream.workspace::<f32>(op, 2 * blocks as usize * heads.d)?;
    if blocks > 0 {
        let strides = |q: &[usize], k: &[usize]| Strides { q: of_heads(q), k: of_heads(k) };
        let strides = gk::AllStrides {
            x: strides(q.strides(), k.strides()),
            dy: strides(q_dy.strides(), k_dy.strides()),
            dx: strides(dq.strides(), dk.strides()),
        };
        let args = (
            q.ptr(stream)?,
            k.ptr(stream)?,
            q_weight.ptr(stream)?,
            k_weight.ptr(stream)?,
            q_dy.ptr(stream)?,
            k_dy.ptr(stream)?,
            cos.ptr(stream)?,
            sin.ptr(stream)?,
            positions.ptr(stream)?,
            dq.ptr_mut(stream)?,
            dk.ptr_mut(stream)?,
            partials.ptr_mut(),
            plan.sizes,
            strides,
            norm.eps,
        );
        // SAFETY: the tensors are live and hold these sizes at these strides, the outputs are borrowed mutably, and the scratch holds a
        // row of either side for each block; packs are taken only where they are aligned, whole and an item a lane.
        unsafe {
            if plan.packed {
                stream.launch::<gk::QkNormRopeBackward<T, true>>(blocks, args)?;
            } else {
                stream.launch_with::<gk::QkNormRopeBackward<T, false>>(blocks, block, args)?;
            }
        }
    }
    let weights = [Some(dq_weight.ptr_mut(stream)?), Some(dk_weight.ptr_mut(stream)?)];
    columns::sum(&INFO, stream, &partials, weights, blocks as usize, heads.d)
}

/// The operator's entry in the registry.
pub struct QkNormRopeBackward;

static INFO: OpInfo = OpInfo {
    name: "qk_norm_rope_backward",
    bench_name: "rope.qk_norm_backward",
    summary: "gradient of qk_norm_rope",
    math: "dz = rope⁻¹(dy), dx = s · (dz · weight − x · s² · mean(dz · weight · x)), dweight = Σ dz · x · s",
    args: &[
        ArgInfo::input("q", "[tokens, heads, d], the last dimension contiguous"),
        ArgInfo::input("k", "[tokens, kv_heads, d], the last dimension contiguous"),
        ArgInfo::input("q_weight", "[d], contiguous"),
        ArgInfo::input("k_weight", "[d], contiguous"),
        ArgInfo::input("cos", "[max_position, half], contiguous").of(&[DType::F32]),
        ArgInfo::input("sin", "[max_position, half], contiguous").of(&[DType::F32]),
        ArgInfo::input("positions", "[tokens], contiguous; a position outside the tables has no gradient")
            .of(&[DType::I32]),
        ArgInfo::input("dq_out", "the shape of q, the last dimension contiguous"),
        ArgInfo::input("dk_out", "the shape of k, the last dimension contiguous"),
        ArgInfo::output("dq", "the shape of q, the last dimension contiguous"),
        ArgInfo::output("dk", "the shape of k, the last dimension contiguous"),
        ArgInfo::output("dq_weight", "[d], contiguous"),
        ArgInfo::output("dk_weight", "[d], contiguous"),
    ],
    params: PARAMS,
    dtypes: DType::FLOATS,
    kernels: &[gk::QK_NORM_ROPE_BACKWARD, COLUMN_SUMS],
    variants: &[],
};

impl Operator for QkNormRopeBackward {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        exact::cases(&INFO, "dq", "dk")
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let mut specs = exact::inputs(case)?;
        let [tokens, heads, kv_heads, _, d] = exact::sizes(case)?;
        specs.push(InputSpec::normal("dq_out", case.dtype, [tokens, heads, d]));
        specs.push(InputSpec::normal("dk_out", case.dtype, [tokens, kv_heads, d]));
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        exact::require(&INFO, inputs, params)?;
        let (q, k) = (inputs.get("q")?, inputs.get("k")?);
        inputs.get("dq_out")?.has_shape(q.shape())?;
        inputs.get("dk_out")?.has_shape(k.shape())?;
        let [_, _, d] = q.dims()?;
        Ok(vec![
            TensorMeta::new("dq", q.dtype(), q.shape()),
            TensorMeta::new("dk", k.dtype(), k.shape()),
            TensorMeta::new("dq_weight", q.dtype(), [d]),
            TensorMeta::new("dk_weight", q.dtype(), [d]),
        ])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        dispatch!(INFO, args.dtype("q")?, float => |T| {
            let (norm, rotation) = exact::options::<T>(args, params)?;
            let (x, dy) = ([args.input("q")?, args.input("k")?], [args.input("dq_out")?, args.input("dk_out")?]);
            let gradients = QkNormRopeGradientsMut {
                dq: args.output("dq")?,
                dk: args.output("dk")?,
                dq_weight: args.output("dq_weight")?,
                dk_weight: args.output("dk_weight")?,
            };
            backward(stream, x, &norm, dy, &rotation, gradients)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let is_q = output.starts_with("dq");
        let side = exact::Side::of(inputs, params, is_q)?;
        let dy = inputs.get(if is_q { "dq_out" } else { "dk_out" })?;
        if !output.ends_with("_weight") {
            return Ok(reference::by_row(rows, |row| side.backward(dy, row)[0].clone()));
        }
        let mut sums = vec![0.0; side.x.shape()[2]];
        for row in 0..reference::row_count(side.x.shape()) {
            let [_, shares] = side.backward(dy, row);
            sums.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share);
        }
        Ok(rows.iter().map(|c| sums[*c]).collect())
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        let [tokens, heads, kv_heads, _, d] = exact::sizes(case)?;
        let statistics = (d as f64).sqrt() * roundoff(DType::F32) + 1e-6;
        if !output.ends_with("_weight") {
            let why =
                "one rounding to storage; 2⁻²⁰ and √d·2⁻²⁴ of terms up to 200, two of which turn, and which may cancel";
            return Ok(Tolerance::rounded(case.dtype, 200.0 * statistics, statistics, why));
        }
        // As the gradient of a weight without a turn, whose terms have one product where these have two.
        let rows = (tokens * if output.starts_with("dq") { heads } else { kv_heads }) as f64;
        let error = rows * roundoff(DType::F32) + rows.sqrt() * statistics;
        let why = "one rounding to storage; √rows times, 2⁻²⁴ of a sum of order 20·√rows; √rows times, 2⁻²⁰ and √d·2⁻²⁴ of a term of order 20";
        Ok(Tolerance::rounded(case.dtype, 20.0 * error, 1e-6, why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        exact::cost(case, 3)
    }

    fn gradient(&self) -> Option<Gradient> {
        Some(Gradient {
            forward: &QkNormRope,
            of_outputs: &[("dq_out", "q_out"), ("dk_out", "k_out")],
            of_inputs: &[("dq", "q"), ("dk", "k"), ("dq_weight", "q_weight"), ("dk_weight", "k_weight")],
        })
    }
}
