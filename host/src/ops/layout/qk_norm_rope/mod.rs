//! Normalisation and rotary position embedding of queries and keys.

pub(super) mod exact;

use cuda_std::launch::DevicePtr;
use gpu_kernels::ops::layout::qk_norm_rope as gk;

use super::rope::{RopePairs, Rotation};
use crate::dispatch;
use crate::ops::model::*;
use crate::ops::norm::{require_eps, require_weight};
use crate::runtime::device::DeviceInfo;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The normalisation of the heads of queries and keys.
#[derive(Clone, Copy, Debug)]
pub struct QkNorm<'a, T> {
    /// The weight of the queries' heads, `[d]`.
    pub q_weight: View<'a, T>,
    /// The weight of the keys' heads, `[d]`.
    pub k_weight: View<'a, T>,
    /// The number that is added to the mean square.
    pub eps: f32,
}

/// Applies [`rms_norm`](fn@crate::ops::rms_norm) to every head of `q`, `[tokens, heads, d]`, and of `k`,
/// `[tokens, kv_heads, d]`, then [`rope`](fn@crate::ops::rope) to both, in one launch; returns `(q, k)`.
///
/// The last dimensions of `q` and `k` are contiguous; tokens and heads may have any strides, so they may be parts of one
/// projection. Weights are contiguous. A token whose position is negative or beyond the tables gets zeros. Arithmetic is in f32
/// and rounded once: normalised values are not rounded before they are rotated. The results are new dense tensors; the work is
/// queued on `stream`.
///
/// Henry et al., "Query-Key Normalization for Transformers" (arXiv:2010.04245); Su et al., "RoFormer: Enhanced Transformer with Rotary
/// Position Embedding" (arXiv:2104.09864).
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit, [`Error::Layout`] if the last dimension of `q` or `k`, a table, a weight or the positions
/// are not contiguous, [`Error::InvalidParam`] if `eps` is negative or NaN, [`Error::TooLarge`] beyond 2³² − 1 heads of all tokens
/// together, [`Error::OutOfMemory`].
///
/// # Example
/// Two heads of queries and one of keys, of one projection: as new tensors, and in place.
/// ```
/// # use warpsmith::{Device, Tensor, ops::{self, QkNorm, RopeFrequencies, RopePairs, Rotation}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let frequencies = RopeFrequencies { half: 1, base: 10_000.0, scaling: None };
/// let (cos, sin) = ops::rope_table(&stream, &frequencies, 4)?;
/// let positions = Tensor::from_slice(&stream, [1], &[1])?;
/// let weight = Tensor::from_slice(&stream, [2], &[1.0f32, 1.0])?;
/// let norm = QkNorm { q_weight: weight.view(), k_weight: weight.view(), eps: 0.0 };
/// let (cos, sin, positions) = (cos.view(), sin.view(), positions.view());
/// let rotation = Rotation { cos, sin, positions, pairs: RopePairs::Halves };
/// let mut qkv = Tensor::from_slice(&stream, [1, 4, 2], &[3.0f32, 3.0, 0.0, 5.0, 2.0, -2.0, 7.0, 8.0])?;
/// // Heads first, to take some of them, and tokens first again.
/// let heads = qkv.view().permute([1, 0, 2])?;
/// let (q, k) = (heads.slice(0..2)?.permute([1, 0, 2])?, heads.slice(2..3)?.permute([1, 0, 2])?);
/// let (q, k) = ops::qk_norm_rope(&stream, q, k, &norm, &rotation)?;
/// let (q, k) = (q.to_vec(&stream)?, k.to_vec(&stream)?);
/// let (sin, cos) = 1f32.sin_cos();
/// assert!((q[0] - (cos - sin)).abs() < 1e-6 && (k[1] - (sin - cos)).abs() < 1e-6);
///
/// let (q_heads, kv_heads) = qkv.view_mut().permute([1, 0, 2])?.split_at(2)?;
/// let (k_heads, _) = kv_heads.split_at(1)?;
/// let (q_heads, k_heads) = (q_heads.permute([1, 0, 2])?, k_heads.permute([1, 0, 2])?);
/// ops::qk_norm_rope_in_place(&stream, q_heads, k_heads, &norm, &rotation)?;
/// assert_eq!(qkv.to_vec(&stream)?, [&q[..], &k, &[7.0, 8.0]].concat());
/// # Ok(())
/// # }
/// ```
pub fn qk_norm_rope<'a, T: Float>(
    stream: &Stream,
    q: impl Into<View<'a, T>>,
    k: impl Into<View<'a, T>>,
    norm: &QkNorm<'_, T>,
    rotation: &Rotation<'_>,
) -> Result<(Tensor<T>, Tensor<T>)> {
    let (q, k) = (q.into(), k.into());
    let (mut q_out, mut k_out) = (Tensor::result(stream, q.shape())?, Tensor::result(stream, k.shape())?);
    qk_norm_rope_into(stream, q, k, norm, rotation, &mut q_out, &mut k_out)?;
    Ok((q_out, k_out))
}

/// [`qk_norm_rope`] into `q_out` and `k_out`, which have the shapes of `q` and `k` and whose last dimensions are contiguous.
///
/// # Errors
/// Same as [`qk_norm_rope`].
pub fn qk_norm_rope_into<'a, T: Float>(
    stream: &Stream,
    q: impl Into<View<'a, T>>,
    k: impl Into<View<'a, T>>,
    norm: &QkNorm<'_, T>,
    rotation: &Rotation<'_>,
    q_out: impl Into<ViewMut<'a, T>>,
    k_out: impl Into<ViewMut<'a, T>>,
) -> Result<()> {
    forward(stream, Some([q.into(), k.into()]), norm, rotation, [q_out.into(), k_out.into()])
}

/// [`qk_norm_rope`] of `q`, `[tokens, heads, d]`, and `k`, `[tokens, kv_heads, d]`, in place.
///
/// # Errors
/// Same as [`qk_norm_rope`].
pub fn qk_norm_rope_in_place<'a, T: Float>(
    stream: &Stream,
    q: impl Into<ViewMut<'a, T>>,
    k: impl Into<ViewMut<'a, T>>,
    norm: &QkNorm<'_, T>,
    rotation: &Rotation<'_>,
) -> Result<()> {
    forward(stream, None, norm, rotation, [q.into(), k.into()])
}

/// The number of blocks per multiprocessor, each with 32 KiB in flight, two turns of four packs per thread: as many as cover
/// what memory delivers in a microsecond, of the two that fit in shared memory. An H100 needs one and loses 3% with a second
/// one; an H200 needs both.
fn blocks_at_once(info: &DeviceInfo) -> u32 {
    let of_multiprocessor = info.peak_bandwidth().map(|rate| rate * 1e-6 / f64::from(info.multiprocessors));
    if of_multiprocessor.is_some_and(|bytes| bytes <= f64::from(32 << 10)) { 1 } else { 2 }
}

/// Processes `inputs` or, if there are none, the outputs in place.
fn forward<T: Float>(
    stream: &Stream,
    inputs: Option<[View<'_, T>; 2]>,
    norm: &QkNorm<'_, T>,
    rotation: &Rotation<'_>,
    [mut q_out, mut k_out]: [ViewMut<'_, T>; 2],
) -> Result<()> {
    let (op, [q, k]) = (INFO.name, inputs.unwrap_or([q_out.as_view(), k_out.as_view()]));
    let QkNorm { q_weight, k_weight, .. } = norm;
    let Rotation { cos, sin, positions, .. } = rotation;
    stream.require_devices(
        op,
        &[
            ("q", &q),
            ("k", &k),
            ("q_weight", &q_weight),
            ("k_weight", &k_weight),
            ("cos", &cos),
            ("sin", &sin),
            ("positions", &positions),
            ("q_out", &q_out),
            ("k_out", &k_out),
        ],
    )?;
    let heads = Heads::of(&INFO, [q, k], norm, rotation)?;
    q_out.require_shape(op, "q_out", q.shape())?;
    k_out.require_shape(op, "k_out", k.shape())?;
    q_out.require_inner_contiguous(op, "q_out")?;
    k_out.require_inner_contiguous(op, "k_out")?;
    let mut plan = heads.plan(q_out.rows_aligned(16) && k_out.rows_aligned(16), gpu_kernels::lanes::<T>());
    // Element by element, as many blocks as there are threads for.
    let (per_visit, at_once) = if plan.packed { (2, blocks_at_once(stream.device().info())) } else { (1, 8) };
    let most = stream.device().info().multiprocessors * at_once;
    let blocks = heads.blocks(&mut plan, gk::BLOCK, per_visit, most)?;
    if blocks == 0 {
        return Ok(());
    }
    let y = gk::Strides { q: of_heads(q_out.strides()), k: of_heads(k_out.strides()) };
    let (q_out, k_out) = (q_out.ptr_mut(stream)?, k_out.ptr_mut(stream)?);
    let [q_in, k_in] = match inputs {
        Some([q, k]) => [q.ptr(stream)?, k.ptr(stream)?],
        None => [DevicePtr::from(q_out), DevicePtr::from(k_out)],
    };
    let args = (
        q_in,
        k_in,
        norm.q_weight.ptr(stream)?,
        norm.k_weight.ptr(stream)?,
        rotation.cos.ptr(stream)?,
        rotation.sin.ptr(stream)?,
        rotation.positions.ptr(stream)?,
        q_out,
        k_out,
        plan.sizes,
        heads.strides,
        y,
        norm.eps,
    );
    // SAFETY: the tensors are live and hold these sizes at these strides, the outputs are borrowed mutably and a thread reads what it
    // writes before it does; packs are taken only where they are aligned, whole and an item a lane.
    unsafe {
        if plan.packed {
            stream.launch::<gk::QkNormRope<T, true>>(blocks, args)
        } else {
            stream.launch::<gk::QkNormRope<T, false>>(blocks, args)
        }
    }
}

/// The last two strides before that of the elements.
pub(super) fn of_heads(strides: &[usize]) -> [u64; 2] {
    [strides[0] as u64, strides[1] as u64]
}

/// Checked queries and keys.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    info: &'static OpInfo,
    pub(super) tokens: usize,
    pub(super) heads: [usize; 2],
    pub(super) d: usize,
    half: usize,
    table_rows: usize,
    interleaved: bool,
    strides: gk::Strides,
    aligned: bool,
}

/// How the heads are distributed over threads.
pub(super) struct Plan {
    pub(super) sizes: gk::Sizes,
    pub(super) width: u32,
    pub(super) packed: bool,
}

impl Heads {
    /// Checks that all inputs match each other.
    pub(super) fn of<T: Float>(
        info: &'static OpInfo,
        [q, k]: [View<'_, T>; 2],
        norm: &QkNorm<'_, T>,
        rotation: &Rotation<'_>,
    ) -> Result<Self> {
        let op = info.name;
        let [tokens, q_heads, d]: [usize; 3] = q.dims(op, "q")?;
        let [_, kv_heads, _]: [usize; 3] = k.dims(op, "k")?;
        k.require_shape(op, "k", &[tokens, kv_heads, d])?;
        q.require_inner_contiguous(op, "q")?;
        k.require_inner_contiguous(op, "k")?;
        require_weight(info, "q_weight", &norm.q_weight, d)?;
        require_weight(info, "k_weight", &norm.k_weight, d)?;
        require_eps(info, norm.eps)?;
        let [table_rows, half] = rotation.require(info, tokens, d)?;
        let aligned = [q, k, norm.q_weight, norm.k_weight].iter().all(|x| x.rows_aligned(16))
            && rotation.cos.rows_aligned(16)
            && rotation.sin.rows_aligned(16);
        Ok(Self {
            info,
            tokens,
            heads: [q_heads, kv_heads],
            d,
            half,
            table_rows,
            interleaved: rotation.pairs == RopePairs::Neighbours,
            strides: gk::Strides { q: of_heads(q.strides()), k: of_heads(k.strides()) },
            aligned,
        })
    }

    /// The number of heads of all tokens; 0 if there are no elements.
    pub(super) fn rows(&self) -> Result<usize> {
        let Self { tokens, heads: [q, k], d, half, table_rows, .. } = *self;
        if d == 0 {
            return Ok(0);
        }
        let rows = tokens.saturating_mul(q.saturating_add(k));
        if [rows, d, half, table_rows].into_iter().any(|size| u32::try_from(size).is_err()) {
            let reason = format!("{tokens} tokens of {q} + {k} heads of {d}: sizes and all heads are below 2^32");
            return Err(Error::too_large(self.info.name, "q", reason));
        }
        Ok(rows)
    }

    /// Sets how many blocks of `threads` visit all heads, `per_visit` of a token at a time: at most `most`, divided among
    /// queries and keys in proportion.
    pub(super) fn blocks(&self, plan: &mut Plan, threads: u32, per_visit: usize, most: u32) -> Result<u32> {
        if self.rows()? == 0 {
            return Ok(0);
        }
        let [q, k] = self.heads.map(|heads| self.tokens * heads.div_ceil(per_visit));
        let teams = (threads / plan.width) as usize;
        let blocks = (q + k).div_ceil(teams).min(most as usize).max(usize::from(q > 0) + usize::from(k > 0));
        let share = (blocks * q + (q + k) / 2) / (q + k);
        plan.sizes.q_blocks = share.clamp(usize::from(q > 0), blocks - usize::from(k > 0)) as u32;
        Ok(blocks as u32)
    }

    /// The plan for packs of `lanes` elements, if the outputs are `aligned` for them as well.
    pub(super) fn plan(&self, aligned: bool, lanes: usize) -> Plan {
        let Self { tokens, heads: [q, k], d, half, table_rows, interleaved, .. } = *self;
        let items = (d - half) / lanes;
        let packed = aligned
            && self.aligned
            && half.is_multiple_of(lanes)
            && (d - 2 * half).is_multiple_of(lanes)
            && items <= 32;
        let width = if packed { items.next_power_of_two() as u32 } else { 32 };
        let interleaved = u32::from(interleaved);
        let [tokens, q, k, d, half, table_rows] = [tokens, q, k, d, half, table_rows].map(|size| size as u32);
        let sizes = gk::Sizes { tokens, heads: [q, k], d, half, table_rows, width, interleaved, q_blocks: 0 };
        Plan { sizes, width, packed }
    }
}

/// The operator's entry in the registry.
pub struct QkNormRope;

static INFO: OpInfo = OpInfo {
    name: "qk_norm_rope",
    bench_name: "rope.qk_norm",
    summary: "normalisation and rotary position embedding of queries and keys",
    math: "rope(rms_norm(x, weight)) of every head of q and k",
    args: &[
        ArgInfo::input("q", "[tokens, heads, d], the last dimension contiguous"),
        ArgInfo::input("k", "[tokens, kv_heads, d], the last dimension contiguous"),
        ArgInfo::input("q_weight", "[d], contiguous"),
        ArgInfo::input("k_weight", "[d], contiguous"),
        ArgInfo::input("cos", "[max_position, half], contiguous").of(&[DType::F32]),
        ArgInfo::input("sin", "[max_position, half], contiguous").of(&[DType::F32]),
        ArgInfo::input("positions", "[tokens], contiguous; a position outside the tables gives zeros")
            .of(&[DType::I32]),
        ArgInfo::output("q_out", "the shape of q, the last dimension contiguous"),
        ArgInfo::output("k_out", "the shape of k, the last dimension contiguous"),
    ],
    params: PARAMS,
    dtypes: DType::FLOATS,
    kernels: &[gk::QK_NORM_ROPE],
    variants: &[],
};

pub(super) const PARAMS: &[ParamInfo] = &[
    ParamInfo::bool("interleaved", false, "neighbours turn together (GPT-J), not halves (GPT-NeoX, Llama)"),
    ParamInfo::float("eps", 1e-6, "added to the mean square"),
];

impl Operator for QkNormRope {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        exact::cases(&INFO, "q_out", "k_out")
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        Ok(exact::inputs(case)?.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        exact::require(&INFO, inputs, params)?;
        let (q, k) = (inputs.get("q")?, inputs.get("k")?);
        Ok(vec![TensorMeta::new("q_out", q.dtype(), q.shape()), TensorMeta::new("k_out", k.dtype(), k.shape())])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        dispatch!(INFO, args.dtype("q")?, float => |T| {
            let (norm, rotation) = exact::options::<T>(args, params)?;
            let inputs = [args.input("q")?, args.input("k")?];
            forward(stream, Some(inputs), &norm, &rotation, [args.output("q_out")?, args.output("k_out")?])
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let side = exact::Side::of(inputs, params, output == "q_out")?;
        Ok(reference::by_row(rows, |row| side.forward(row)))
    }

    fn tolerance(&self, case: &Case, _: &str) -> Result<Tolerance> {
        let [d] = case.dims(["d"])?;
        let statistics = (d as f64).sqrt() * roundoff(DType::F32) + 1e-6;
        let why = "storage rounding; 2⁻²⁰ and √d·2⁻²⁴ of two products of order 10, which may cancel";
        Ok(Tolerance::rounded(case.dtype, 20.0 * statistics, statistics, why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        exact::cost(case, 2)
    }
}
