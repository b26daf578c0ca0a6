//! Attention forward.

mod call;
mod hopper;
mod three_launches;

use gpu_kernels::ops::attention::forward::{hopper as hopper_kernel, mma, simple, weights};

use self::call::Call;
use super::exact::Exact;
use super::{Attention, aligned};
use crate::dispatch;
use crate::ops::gemm::with_products;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// O = softmax(Q·Kᵀ·scale)·V, without ever storing the scores in memory.
///
/// `q` is `[batch, heads, q_len, d]`, `k` and `v` are `[batch, kv_heads, k_len, d]` with kv_heads dividing heads (GQA, MQA),
/// all with any strides but contiguous d, which is at most 256. The result is `[batch, heads, q_len, d]`, dense. The result of
/// a query that sees no key is zeros; that of a query that sees a score of +∞, or whose greatest score has a magnitude of at
/// least 2²⁸·ln 2 in f16 or 2³¹·ln 2 in bf16, is NaN. An infinity or NaN in `v` may turn the results of queries into NaN even
/// if a mask hides it from them, because 0 · NaN is NaN; padding does hide it. f16 and bf16 with d a multiple of 8 and rows at
/// multiples of 16 bytes run on the tensor cores; everything else, including f32, takes a correct path that is some hundred
/// times slower. On Hopper, d of 64 and 128 take a separate path unless sequences are packed or scores have a soft cap or
/// slopes. The work is queued on `stream`.
///
/// Dao, "FlashAttention-2", arXiv:2307.08691.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) if the shapes do not fit, [`Error::Layout`](crate::Error::Layout) if d is not contiguous,
/// [`Error::InvalidParam`](crate::Error::InvalidParam) if an option is out of range, [`Error::TooLarge`](crate::Error::TooLarge) beyond
/// 2²⁸ tokens.
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, f16, ops, ops::Attention};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// // Stored [batch, tokens, heads, d], as most models do.
/// let [q, k, v] = [(); 3].map(|()| Tensor::from_slice(&stream, [1, 5, 2, 16], &[f16::ONE; 160]).unwrap());
/// let [q, k, v] = [&q, &k, &v].map(|x| x.view().permute([0, 2, 1, 3]).unwrap());
/// let o = ops::attention(&stream, q, k, v, &Attention::causal())?;
/// assert_eq!(o.shape(), &[1, 2, 5, 16]);
/// assert_eq!(o.to_vec(&stream)?, [f16::ONE; 160]);
/// # Ok(())
/// # }
/// ```
pub fn attention<'a, T: Float>(
    stream: &Stream,
    q: impl Into<View<'a, T>>,
    k: impl Into<View<'a, T>>,
    v: impl Into<View<'a, T>>,
    options: &Attention<'_>,
) -> Result<Tensor<T>> {
    Ok(attention_with_lse(stream, q, k, v, options)?.0)
}

/// [`attention`], with the logsumexp of each query's scores, `[batch, heads, q_len]`, which the backward needs: −∞ where a
/// query sees no key.
///
/// # Errors
/// Same as [`attention`].
pub fn attention_with_lse<'a, T: Float>(
    stream: &Stream,
    q: impl Into<View<'a, T>>,
    k: impl Into<View<'a, T>>,
    v: impl Into<View<'a, T>>,
    options: &Attention<'_>,
) -> Result<(Tensor<T>, Tensor<f32>)> {
    let (q, k, v) = (q.into(), k.into(), v.into());
    let [batch, heads, q_len, _] = q.dims(INFO.name, "q")?;
    let mut o = Tensor::result(stream, q.shape())?;
    let mut lse = Tensor::result(stream, [batch, heads, q_len])?;
    attention_into(stream, q, k, v, options, &mut o, &mut lse)?;
    Ok((o, lse))
}

/// [`attention_with_lse`] that writes to `o`, of the shape of `q` with any strides but contiguous d, and `lse`, contiguous.
///
/// # Errors
/// Same as [`attention`].
pub fn attention_into<'a, T: Float>(
    stream: &Stream,
    q: impl Into<View<'a, T>>,
    k: impl Into<View<'a, T>>,
    v: impl Into<View<'a, T>>,
    options: &Attention<'_>,
    o: impl Into<ViewMut<'a, T>>,
    lse: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    Call::new(stream, [q.into(), k.into(), v.into()], options, o.into(), lse.into())?.launch(stream)
}

/// The tensors whose rows have d elements.
const TENSORS: &[&str] = &["q", "k", "v", "o"];

/// The operator's entry in the registry.
pub struct AttentionForward;

pub(super) static INFO: OpInfo = OpInfo {
    name: "attention",
    bench_name: "attn.fwd",
    summary: "fused attention",
    math: "o = softmax(q·kᵀ·scale)·v",
    args: &[
        ArgInfo::input("q", "[batch, heads, q_len, d], d contiguous"),
        ArgInfo::input("k", "[batch, kv_heads, k_len, d], d contiguous"),
        ArgInfo::input("v", "[batch, kv_heads, k_len, d], d contiguous"),
        ArgInfo::input("key_lengths", "[batch], keys of each sequence").of(&[DType::I32]).optional(),
        ArgInfo::input("cu_q", "[sequences + 1], where packed queries start").of(&[DType::I32]).optional(),
        ArgInfo::input("cu_k", "[sequences + 1], where packed keys start").of(&[DType::I32]).optional(),
        ArgInfo::input("slopes", "[heads], ALiBi's").of(&[DType::F32]).optional(),
        ArgInfo::input("sinks", "[heads], scores without values").of(&[DType::F32]).optional(),
        ArgInfo::output("o", "[batch, heads, q_len, d], d contiguous"),
        ArgInfo::output("lse", "[batch, heads, q_len], logsumexp of the scores").of(&[DType::F32]),
    ],
    params: super::PARAMS,
    dtypes: DType::FLOATS,
    kernels: with_products![
        simple::ATTENTION_SIMPLE,
        mma::ATTENTION_MMA,
        hopper_kernel::ATTENTION_HOPPER,
        weights::ATTENTION_WEIGHTS,
    ],
    variants: &[
        Variant {
            name: "three-launches",
            doc: "scores and weights in memory, between two products: the baseline, never picked, f16 and bf16 of dense tensors",
            applies: |_, case| three_launches::fits_case(case, TENSORS),
            launch: |stream, args, params| dispatch!(INFO, args.dtype("q")?, float => |T| Call::<T>::of(stream, args, params)?.launch_three(stream)),
        },
        Variant {
            name: "simple",
            doc: "a warp a query, any type and alignment: the one to read first, and what is picked where no other fits",
            applies: |_, case| super::fits_simple(case),
            launch: |stream, args, params| dispatch!(INFO, args.dtype("q")?, float => |T| Call::<T>::of(stream, args, params)?.launch_simple(stream)),
        },
        Variant {
            name: "hopper",
            doc: "TMA and wgmma, compute capability 9.0: what is picked for d 64 and 128 without packing, soft cap and ALiBi",
            applies: |device, case| super::fits_hopper(device, case, TENSORS),
            launch: |stream, args, params| dispatch!(INFO, args.dtype("q")?, float => |T| Call::<T>::of(stream, args, params)?.launch_hopper(stream)),
        },
        Variant {
            name: "mma",
            doc: "cp.async and mma.sync, compute capability 8.0 and above: f16 and bf16 with rows at multiples of 16 bytes",
            applies: |_, case| aligned(case, TENSORS),
            launch: |stream, args, params| dispatch!(INFO, args.dtype("q")?, float => |T| Call::<T>::of(stream, args, params)?.launch_mma(stream)),
        },
    ],
};

impl Operator for AttentionForward {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = super::production(&INFO);
        cases.extend(super::small(&INFO, TENSORS));
        let large = Case::odd(&INFO, DType::F16, super::dims([1, 1, 1, 40, 70, 48])).only(&[]);
        cases.push(large.fill(Values::Normal { std: 8.0 }));
        // A maximum that does not change, and whose product with the scale is not exact in f32: a rounding in
        // each tile would add up.
        let level = Case::odd(&INFO, DType::BF16, super::dims([1, 1, 1, 4, 4096, 64])).only(&[]);
        cases.push(level.values("q", Values::Constant(1.6875)).values("k", Values::Constant(1.6875)));
        // Scores so large that f32 counts in tens, and scores beyond the limit: of f16, then of bf16.
        for (dtype, size, name) in [
            (DType::F16, 4096.0, "great"),
            (DType::F16, 8192.0, "huge"),
            (DType::BF16, 8192.0, "great"),
            (DType::BF16, 16384.0, "huge"),
            (DType::F32, 1e18, "great"),
            (DType::F32, 1e19, "huge"),
        ] {
            let mut case = Case::boundary(&INFO, dtype, super::dims([1, 1, 1, 10, 70, 64]));
            case.name = format!("{} {name}", case.name);
            // Finite inputs must have finite results.
            let case = match name {
                "huge" => case.only(&["sinks"]).values("sinks", Values::Constant(f64::NEG_INFINITY)),
                _ => case.only(&[]),
            };
            cases.push(case.values("q", Values::Constant(size)).values("k", Values::Constant(size)));
        }
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        super::inputs(case)
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let q = super::check_metas(inputs, params)?;
        Ok(vec![TensorMeta::new("o", q.dtype(), q.shape()), TensorMeta::new("lse", DType::F32, &q.shape()[..3])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        dispatch!(INFO, args.dtype("q")?, float => |T| Call::<T>::of(stream, args, params)?.launch(stream))
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let exact = Exact::new(inputs, params)?;
        Ok(if output == "o" { exact.output(rows) } else { exact.lse(rows) })
    }

    fn row_len(&self, output: &str, shape: &[usize]) -> usize {
        if output == "lse" { 1 } else { reference::row_len(shape) }
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        super::tolerance(case, output, case.dtype, 0.0)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [b, h, kv, q, k, d] = case.dims(["b", "h", "kv", "q", "k", "d"])?;
        let bytes = 2 * b * (h * q + kv * k) * d * case.dtype.size() + 4 * b * h * q;
        let bound = if case.dtype == DType::F32 { Bound::Fp32 } else { Bound::Tensor(case.dtype) };
        Ok(Cost::compute(bytes as u64, super::flops(case, 4 * b * h * q * k * d)?, bound))
    }
}
