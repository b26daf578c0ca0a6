//! The gradient of attention.

mod call;
mod fused;
mod hopper;

use gpu_kernels::ops::attention::backward::fused::{self as fused_kernel, finish as fused_finish};
use gpu_kernels::ops::attention::backward::hopper::{self as hopper_kernel, finish, prepare};
use gpu_kernels::ops::attention::backward::mma::{dkv, dq};
use gpu_kernels::ops::attention::backward::{delta, simple, sinks};

use self::call::Call;
use super::exact::{Exact, Key, Seen, add};
use super::forward::AttentionForward;
use super::{Attention, aligned};
use crate::dispatch;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The tensors from which the gradient of [`attention`](super::attention) is computed.
#[derive(Clone, Copy, Debug)]
pub struct Saved<'a, T> {
    /// The queries, `[batch, heads, q_len, d]`.
    pub q: View<'a, T>,
    /// The keys, `[batch, kv_heads, k_len, d]`.
    pub k: View<'a, T>,
    /// The values, of the same shape as the keys.
    pub v: View<'a, T>,
    /// The result of the forward, of the same shape as the queries.
    pub o: View<'a, T>,
    /// The logsumexps of the forward, `[batch, heads, q_len]`, contiguous.
    pub lse: View<'a, f32>,
}

/// The gradients of [`attention`](super::attention) with respect to its inputs.
#[derive(Debug)]
pub struct AttentionGradients<T> {
    /// The gradient with respect to the queries, of their shape.
    pub dq: Tensor<T>,
    /// The gradient with respect to the keys, of their shape.
    pub dk: Tensor<T>,
    /// The gradient with respect to the values, of their shape.
    pub dv: Tensor<T>,
}

/// Where to write [`AttentionGradients`]: views of those shapes with any strides but contiguous d.
#[derive(Debug)]
pub struct AttentionGradientsMut<'a, T> {
    /// The gradient with respect to the queries.
    pub dq: ViewMut<'a, T>,
    /// The gradient with respect to the keys.
    pub dk: ViewMut<'a, T>,
    /// The gradient with respect to the values.
    pub dv: ViewMut<'a, T>,
}

/// The gradients of [`attention`](super::attention) with respect to its inputs, from the gradient of its result, `d_o`.
///
/// All tensors but `lse` may have any strides, with contiguous d. With grouped heads (GQA), dK and dV are the sums over the
/// group. The scores are recomputed tile by tile; beside the results, the call needs scratch memory for two numbers per query
/// and for dQ in f32. Results are reproducible except for the last bits of dQ: see [`Attention::deterministic`]. Keys past the
/// length of a padded sequence get zero gradients. The gradient of sinks comes from [`attention_backward_with_sinks_into`]. f16
/// and bf16 with d a multiple of 8 and rows at multiples of 16 bytes run on the tensor cores; everything else takes a correct
/// path that is some hundred times slower. The work is queued on `stream`.
///
/// Dao, "FlashAttention-2", arXiv:2307.08691.
///
/// # Errors
/// Same as [`attention`](super::attention).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops, ops::{Attention, Saved}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let x = Tensor::from_slice(&stream, [1, 1, 2, 4], &[0.5f32; 8])?;
/// let (o, lse) = ops::attention_with_lse(&stream, &x, &x, &x, &Attention::causal())?;
/// let saved = Saved { q: x.view(), k: x.view(), v: x.view(), o: o.view(), lse: lse.view() };
/// let gradients = ops::attention_backward(&stream, &saved, &x, &Attention::causal())?;
/// assert_eq!(gradients.dv.to_vec(&stream)?, [0.75, 0.75, 0.75, 0.75, 0.25, 0.25, 0.25, 0.25]);
/// # Ok(())
/// # }
/// ```
pub fn attention_backward<'a, T: Float>(
    stream: &Stream,
    saved: &Saved<'_, T>,
    d_o: impl Into<View<'a, T>>,
    options: &Attention<'_>,
) -> Result<AttentionGradients<T>> {
    let mut dq = Tensor::result(stream, saved.q.shape())?;
    let mut dk = Tensor::result(stream, saved.k.shape())?;
    let mut dv = Tensor::result(stream, saved.v.shape())?;
    let gradients = AttentionGradientsMut { dq: dq.view_mut(), dk: dk.view_mut(), dv: dv.view_mut() };
    attention_backward_into(stream, saved, d_o.into(), options, gradients)?;
    Ok(AttentionGradients { dq, dk, dv })
}

/// [`attention_backward`] that writes to `gradients`.
///
/// # Errors
/// Same as [`attention_backward`].
pub fn attention_backward_into<'a, T: Float>(
    stream: &Stream,
    saved: &Saved<'a, T>,
    d_o: impl Into<View<'a, T>>,
    options: &Attention<'a>,
    gradients: AttentionGradientsMut<'a, T>,
) -> Result<()> {
    let AttentionGradientsMut { dq, dk, dv } = gradients;
    Call::new(stream, *saved, d_o.into(), options, [dq, dk, dv], None)?.launch(stream)
}

/// [`attention_backward_into`] that also writes the gradients of the options' sinks to `dsinks`, `[heads]`, contiguous.
///
/// # Errors
/// Same as [`attention_backward`], and [`Error::InvalidParam`](crate::Error::InvalidParam) if there are no sinks.
pub fn attention_backward_with_sinks_into<'a, T: Float>(
    stream: &Stream,
    saved: &Saved<'a, T>,
    d_o: impl Into<View<'a, T>>,
    options: &Attention<'a>,
    gradients: AttentionGradientsMut<'a, T>,
    dsinks: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    let AttentionGradientsMut { dq, dk, dv } = gradients;
    Call::new(stream, *saved, d_o.into(), options, [dq, dk, dv], Some(dsinks.into()))?.launch(stream)
}

/// The tensors whose rows have d elements.
const TENSORS: &[&str] = &["q", "k", "v", "o", "d_o", "dq", "dk", "dv"];

/// The operator's entry in the registry.
pub struct AttentionBackward;

static INFO: OpInfo = OpInfo {
    name: "attention_backward",
    bench_name: "attn.bwd",
    summary: "gradient of attention",
    math: "dv = pᵀ·d_o, ds = p∘(d_o·vᵀ − d_o·o), dq = ds·k·scale, dk = dsᵀ·q·scale",
    args: &[
        ArgInfo::input("q", "[batch, heads, q_len, d], d contiguous"),
        ArgInfo::input("k", "[batch, kv_heads, k_len, d], d contiguous"),
        ArgInfo::input("v", "[batch, kv_heads, k_len, d], d contiguous"),
        ArgInfo::input("o", "[batch, heads, q_len, d], d contiguous"),
        ArgInfo::input("lse", "[batch, heads, q_len]").of(&[DType::F32]),
        ArgInfo::input("d_o", "[batch, heads, q_len, d], d contiguous"),
        ArgInfo::input("key_lengths", "[batch], keys of each sequence").of(&[DType::I32]).optional(),
        ArgInfo::input("cu_q", "[sequences + 1], where packed queries start").of(&[DType::I32]).optional(),
        ArgInfo::input("cu_k", "[sequences + 1], where packed keys start").of(&[DType::I32]).optional(),
        ArgInfo::input("slopes", "[heads], ALiBi's").of(&[DType::F32]).optional(),
        ArgInfo::input("sinks", "[heads], scores without values").of(&[DType::F32]).optional(),
        ArgInfo::output("dq", "[batch, heads, q_len, d], d contiguous"),
        ArgInfo::output("dk", "[batch, kv_heads, k_len, d], d contiguous"),
        ArgInfo::output("dv", "[batch, kv_heads, k_len, d], d contiguous"),
        ArgInfo::output("dsinks", "[heads], where there are sinks").of(&[DType::F32]).optional(),
    ],
    params: super::PARAMS,
    dtypes: DType::FLOATS,
    kernels: &[
        delta::ATTENTION_DELTA,
        sinks::ATTENTION_DSINKS,
        simple::ATTENTION_DQ_SIMPLE,
        simple::ATTENTION_DKV_SIMPLE,
        dq::ATTENTION_DQ_MMA,
        dkv::ATTENTION_DKV_MMA,
        fused_kernel::ATTENTION_BACKWARD_FUSED,
        fused_finish::ATTENTION_FINISH_FUSED,
        prepare::ATTENTION_PREPARE,
        hopper_kernel::ATTENTION_BACKWARD_HOPPER,
        finish::ATTENTION_FINISH,
    ],
    variants: &[
        Variant {
            name: "simple",
            doc: "a warp a query, then a warp a key, any type and alignment: the one to read first, and what is picked where no \
                  other fits",
            applies: |_, case| super::fits_simple(case),
            launch: |stream, args, params| dispatch!(INFO, args.dtype("q")?, float => |T| Call::<T>::of(stream, args, params)?.launch_simple(stream)),
        },
        Variant {
            name: "hopper",
            doc: "TMA and wgmma, compute capability 9.0, all gradients at once: what is picked for d 64 and 128 without packing, lengths, \
                  soft cap and ALiBi, unless results have to be reproducible",
            applies: |device, case| super::fits_hopper(device, case, TENSORS) && !case.has("key_lengths"),
            launch: |stream, args, params| dispatch!(INFO, args.dtype("q")?, float => |T| Call::<T>::of(stream, args, params)?.launch_hopper(stream)),
        },
        Variant {
            name: "fused",
            doc: "cp.async and mma.sync, compute capability 8.0 and above with 162 KiB of shared memory, all gradients at once: f16 and bf16 with d up to 128 \
                  and rows at multiples of 16 bytes; what is picked for these where not the above, unless results have to be reproducible or sequences are \
                  packed that are short",
            applies: |device, case| {
                fused::fits(device.shared_bytes_per_block)
                    && aligned(case, TENSORS)
                    && case.dims.get("d").is_some_and(|d| d <= 128)
            },
            launch: |stream, args, params| dispatch!(INFO, args.dtype("q")?, float => |T| Call::<T>::of(stream, args, params)?.launch_fused(stream)),
        },
        Variant {
            name: "mma",
            doc: "cp.async and mma.sync, compute capability 8.0 and above, without atomics, two kernels of seven products: f16 and bf16 with rows at \
                  multiples of 16 bytes",
            applies: |_, case| aligned(case, TENSORS),
            launch: |stream, args, params| dispatch!(INFO, args.dtype("q")?, float => |T| Call::<T>::of(stream, args, params)?.launch_mma(stream)),
        },
    ],
};

impl Operator for AttentionBackward {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = super::production(&INFO);
        cases.extend(super::small(&INFO, TENSORS));
        // Heads whose sums for dQ take the places of earlier ones: many at a time, and one.
        let later = |dtype, sizes| Case::odd(&INFO, dtype, super::dims(sizes)).only(&[]);
        cases.push(later(DType::BF16, [3, 18, 9, 20, 30, 64]).param("causal", true));
        for dtype in [DType::F16, DType::BF16] {
            cases.extend([64, 128].map(|d| later(dtype, [1, 5, 5, 70, 600, d])));
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [b, h, q, k, d] = case.dims(["b", "h", "q", "k", "d"])?;
        let mut specs = super::inputs(case)?;
        // Weights that would add to about one if these were the logsumexps of the forward: the backward is exact for any
        // logsumexps.
        let total = (k.max(1) as f64).ln();
        let lse = Values::Uniform { low: total, high: total + 1.0 };
        specs.splice(
            3..3,
            [
                InputSpec::normal("o", case.dtype, [b, h, q, d]),
                InputSpec::new("lse", DType::F32, [b, h, q], lse),
                InputSpec::normal("d_o", case.dtype, [b, h, q, d]),
            ],
        );
        Ok(specs)
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let q = super::check_metas(inputs, params)?;
        inputs.get("o")?.has_shape(q.shape())?;
        inputs.get("d_o")?.has_shape(q.shape())?;
        inputs.get("lse")?.has_shape(&q.shape()[..3])?;
        let of = |name, input: MetaArg<'_>| TensorMeta::new(name, input.dtype(), input.shape());
        let sinks = inputs.optional("sinks").map(|sinks| of("dsinks", sinks));
        let all = [of("dq", q), of("dk", inputs.get("k")?), of("dv", inputs.get("v")?)];
        Ok(all.into_iter().chain(sinks).collect())
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        dispatch!(INFO, args.dtype("q")?, float => |T| Call::<T>::of(stream, args, params)?.launch(stream))
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let exact = Exact::new(inputs, params)?;
        let (o, d_o, lse) = (inputs.get("o")?, inputs.get("d_o")?, inputs.get("lse")?.to_f64());
        let d = exact.q.shape()[3];
        // What a query with these rows of dO and O contributes to a key: its weight, and the derivative with respect to q·k.
        let term = |row: usize, (d_o, delta): &(Vec<f64>, f64), key: &Key, seen: Seen| {
            let p = (seen.score - lse[row]).exp();
            (p, p * (reference::dot(d_o, &key.value) - delta) * seen.slope * exact.scale)
        };
        let gradient = |row: usize| {
            let d_o = reference::row(d_o, row);
            let delta = reference::dot(&d_o, &reference::row(o, row));
            (d_o, delta)
        };
        if output == "dsinks" {
            let sinks = inputs.get("sinks")?.to_f64();
            let [q_len, heads] = [2, 1].map(|i: usize| exact.q.shape()[i]);
            let of = |row: &usize| match lse[*row] {
                f64::NEG_INFINITY => 0.0,
                lse => -(sinks[row / q_len % heads] - lse).exp() * gradient(*row).1,
            };
            let queries = |head: usize| (0..lse.len()).filter(move |row| row / q_len % heads == head);
            return Ok(rows.iter().map(|head| queries(*head).map(|row| of(&row)).sum()).collect());
        }
        let mut sums = vec![vec![0.0; d]; rows.len()];
        if output == "dq" {
            let gradients: Vec<_> = rows.iter().map(|row| gradient(*row)).collect();
            exact.each_seen(rows, &exact.queries(rows), |i, key, seen| {
                add(&mut sums[i], term(rows[i], &gradients[i], key, seen).1, &key.values);
            });
            return Ok(sums.concat());
        }
        let keys: Vec<_> = rows.iter().map(|row| exact.key(*row)).collect();
        for row in exact.queries_of(rows) {
            let (query, gradient) = (exact.query(row), gradient(row));
            for (sum, key) in sums.iter_mut().zip(&keys) {
                let Some(seen) = exact.score(&query, key) else { continue };
                let (p, ds) = term(row, &gradient, key, seen);
                if output == "dk" { add(sum, ds, &query.values) } else { add(sum, p, &gradient.0) }
            }
        }
        Ok(sums.concat())
    }

    fn reproducible(&self, output: &str, variant: Option<&str>) -> bool {
        // The fast paths add to dQ in the order in which blocks arrive.
        output != "dq" || !matches!(variant, None | Some("hopper" | "fused"))
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        let [b, h, kv, q, k, d] = case.dims(["b", "h", "kv", "q", "k", "d"])?;
        if output == "dsinks" {
            // Sinks are at most 1 above the smallest logsumexp, and D is within six deviations.
            let terms = (b * q) as f64 * 1f64.exp() * 6.0 * (d as f64).sqrt();
            let why = "each query's term errs by 2⁻¹⁹: its D, a sum of d products in f32, and its exponential; and so does their sum";
            return Ok(Tolerance::new(terms * f64::powi(2.0, -19), 0.0, why));
        }
        let scale = case.params.f64("scale")?;
        let scale = if scale == 0.0 { 1.0 } else { scale * (d as f64).sqrt() };
        // The weights of a query add to about one, the weights of a key to this.
        let share = if output == "dq" { 1.0 } else { ((h * q) as f64 / (kv * k).max(1) as f64).max(1.0) };
        let factor = if output == "dv" { 1.0 } else { scale };
        // f32 and its exponentials err by 2⁻¹⁸ of a weight, from scores of size 10.
        let weights = roundoff(case.dtype).max(f64::powi(2.0, -18));
        let why = "one rounding to storage; each weight's, or dS's, rounding to it, times values of up to 8";
        Ok(Tolerance::rounded(case.dtype, 8.0 * share * factor * weights, 0.0, why))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [b, h, kv, q, k, d] = case.dims(["b", "h", "kv", "q", "k", "d"])?;
        let bytes = 4 * b * (h * q + kv * k) * d * case.dtype.size() + 4 * b * h * q;
        let bound = if case.dtype == DType::F32 { Bound::Fp32 } else { Bound::Tensor(case.dtype) };
        Ok(Cost::compute(bytes as u64, super::flops(case, 10 * b * h * q * k * d)?, bound))
    }

    fn gradient(&self) -> Option<Gradient> {
        Some(Gradient {
            forward: &AttentionForward,
            of_outputs: &[("d_o", "o")],
            of_inputs: &[("dq", "q"), ("dk", "k"), ("dv", "v"), ("dsinks", "sinks")],
        })
    }
}
