//! Checked problems in the form that the kernels take.

use cuda_std::launch::DevicePtr;
use gpu_kernels::ops::attention as gk;

use super::{Attention, checked_scale, checked_softcap};
use crate::ops::elementwise::grid;
use crate::ops::model::{Arguments, Bound, OpInfo, Params};
use crate::runtime::dtype::{DType, Dtype};
use crate::runtime::error::{Error, Result};
use crate::runtime::profile;
use crate::runtime::stream::Stream;
use crate::runtime::view::View;

/// The maximum number of tokens of a sequence: positions and their differences are counted in 32 bits.
const MAX_TOKENS: usize = 1 << 28;
/// The greatest d.
pub(super) const MAX_D: usize = 256;

/// Sizes that match each other, and the tensors that describe the sequences.
pub(super) struct Checked<'a> {
    pub(super) sizes: gk::Problem,
    options: Attention<'a>,
    /// The number of sequences, of batches in memory, and of tokens of Q and K.
    sequences: usize,
    batch: usize,
    tokens: [usize; 2],
    heads: usize,
    kv_heads: usize,
}

/// The addresses of the tensors that describe the sequences, null where absent.
pub(super) struct Bounds {
    pub(super) cu_q: DevicePtr<i32>,
    pub(super) cu_k: DevicePtr<i32>,
    pub(super) key_lengths: DevicePtr<i32>,
    pub(super) slopes: DevicePtr<f32>,
    pub(super) sinks: DevicePtr<f32>,
}

impl<'a> Checked<'a> {
    /// Checks the arguments. The strides of `o` are 0 here: the caller sets them.
    pub(super) fn new<T: Dtype>(
        info: &'static OpInfo,
        stream: &Stream,
        [q, k, v]: [View<'_, T>; 3],
        options: &Attention<'a>,
    ) -> Result<Self> {
        let Attention { key_lengths, slopes, sinks, .. } = options;
        stream.require_devices(
            info.name,
            &[("q", &q), ("k", &k), ("v", &v), ("key_lengths", key_lengths), ("slopes", slopes), ("sinks", sinks)],
        )?;
        if let Some([cu_q, cu_k]) = &options.packed {
            stream.require_devices(info.name, &[("cu_q", cu_q), ("cu_k", cu_k)])?;
        }
        let [batch, heads, q_len, d] = q.dims(info.name, "q")?;
        let [_, kv_heads, k_len, _] = k.dims(info.name, "k")?;
        if d > MAX_D {
            return Err(info.shape_error("q", q.shape(), format!("at most {MAX_D} elements of d")));
        }
        if (heads == 0) != (kv_heads == 0) || !heads.is_multiple_of(kv_heads.max(1)) {
            return Err(info.shape_error("k", k.shape(), format!("a number of heads that divides the {heads} of `q`")));
        }
        k.require_shape(info.name, "k", &[batch, kv_heads, k_len, d])?;
        v.require_shape(info.name, "v", k.shape())?;
        for (name, view) in [("q", &q), ("k", &k), ("v", &v)] {
            view.require_inner_contiguous(info.name, name)?;
        }
        for (name, what, count) in
            [("q", "tokens", q_len), ("k", "tokens", k_len), ("q", "batches × heads", batch * heads)]
        {
            if count > MAX_TOKENS {
                return Err(Error::too_large(
                    info.name,
                    name,
                    format!("{count} {what}, at most {MAX_TOKENS} are supported"),
                ));
            }
        }
        let scale = checked_scale(info, options.scale, d)?;
        let softcap = checked_softcap(info, options.softcap)?;
        let sequences = check_sequences(info, options, batch, heads)?;
        // A window that reaches beyond all tokens is clamped.
        let reach = |keys: Option<usize>| keys.unwrap_or(usize::MAX).min(q_len + k_len) as i32;
        let strides = |view: &View<'_, T>| [view.strides()[0], view.strides()[1], view.strides()[2]].map(|s| s as u64);
        let sizes = gk::Problem {
            q: strides(&q),
            k: strides(&k),
            v: strides(&v),
            o: [0; 3],
            batch: sequences as u32,
            heads: heads as u32,
            group: heads.checked_div(kv_heads).unwrap_or(1) as u32,
            q_len: q_len as u32,
            k_len: k_len as u32,
            d: d as u32,
            scale,
            softcap,
            left: reach(options.left),
            right: reach(options.right),
        };
        Ok(Self { sizes, options: *options, sequences, batch, tokens: [q_len, k_len], heads, kv_heads })
    }

    /// Blocks for tiles of `rows` queries: the maximum that the sequences can need, however the tokens are split among them.
    pub(super) fn query_blocks(&self, info: &OpInfo, rows: u32) -> Result<Option<u32>> {
        self.blocks(info, "q", self.tokens[0], self.heads, rows as usize)
    }

    /// Blocks for tiles of `rows` keys.
    pub(super) fn key_blocks(&self, info: &OpInfo, rows: u32) -> Result<Option<u32>> {
        self.blocks(info, "k", self.tokens[1], self.kv_heads, rows as usize)
    }

    fn blocks(
        &self,
        info: &OpInfo,
        arg: &'static str,
        tokens: usize,
        heads: usize,
        rows: usize,
    ) -> Result<Option<u32>> {
        let tiles = match self.options.packed {
            Some(_) => tokens.div_ceil(rows) + self.sequences.min(tokens),
            None => tokens.div_ceil(rows),
        };
        let tiles = if tokens == 0 { 0 } else { tiles };
        grid(info, arg, self.batch * heads * tiles, 1)
    }

    /// Notes this number of products of queries and keys as the work of the next launch: half of each if later keys are not seen.
    pub(super) fn note_work(&self, dtype: DType, products: u64) {
        let Self { sizes, options, sequences, batch, tokens: [q_len, k_len], .. } = self;
        // Packed sequences are assumed to have equal lengths, and each sees its own keys.
        // Saturating: keys may be one row, broadcast.
        let tokens = |each: usize| each.saturating_mul(*batch) as u64;
        let pairs = tokens(*q_len).saturating_mul(tokens(*k_len)) / (*sequences).max(1) as u64;
        let each = pairs.saturating_mul(u64::from(sizes.heads) * u64::from(sizes.d));
        let bound = if dtype == DType::F32 { Bound::Fp32 } else { Bound::Tensor(dtype) };
        let causal = options.right == Some(0);
        profile::work(bound, each.saturating_mul(2 * products) / if causal { 2 } else { 1 });
    }

    /// Whether results must be bitwise the same every time.
    pub(super) fn deterministic(&self) -> bool {
        self.options.deterministic
    }

    /// Whether some of the keys in memory are padding.
    pub(super) fn padded(&self) -> bool {
        self.options.key_lengths.is_some()
    }

    /// Whether scores are changed by more than their factor.
    pub(super) fn biased(&self) -> bool {
        self.sizes.softcap > 0.0 || self.options.slopes.is_some()
    }

    /// The sinks, if heads have any.
    pub(super) fn sinks(&self) -> Option<View<'a, f32>> {
        self.options.sinks
    }

    /// The number of sequences in memory: packed ones count as one.
    pub(super) fn batch(&self) -> usize {
        self.batch
    }

    /// Whether sequences of different lengths follow each other.
    pub(super) fn packed(&self) -> bool {
        self.options.packed.is_some()
    }

    pub(super) fn bounds(&self, stream: &Stream) -> Result<Bounds> {
        let pointer = |view: Option<View<'_, i32>>| view.map_or(Ok(DevicePtr::null()), |view| view.ptr(stream));
        let of_heads = |view: Option<View<'_, f32>>| view.map_or(Ok(DevicePtr::null()), |view| view.ptr(stream));
        Ok(Bounds {
            cu_q: pointer(self.options.packed.map(|[cu_q, _]| cu_q))?,
            cu_k: pointer(self.options.packed.map(|[_, cu_k]| cu_k))?,
            key_lengths: pointer(self.options.key_lengths)?,
            slopes: of_heads(self.options.slopes)?,
            sinks: of_heads(self.options.sinks)?,
        })
    }
}

/// The number of sequences.
fn check_sequences(info: &OpInfo, options: &Attention<'_>, batch: usize, heads: usize) -> Result<usize> {
    for (name, of_heads) in [("slopes", &options.slopes), ("sinks", &options.sinks)] {
        if let Some(numbers) = of_heads {
            numbers.require_shape(info.name, name, &[heads])?;
            numbers.require_contiguous(info.name, name)?;
        }
    }
    if let Some(lengths) = &options.key_lengths {
        lengths.require_shape(info.name, "key_lengths", &[batch])?;
        lengths.require_contiguous(info.name, "key_lengths")?;
    }
    let Some([cu_q, cu_k]) = &options.packed else { return Ok(batch) };
    if options.key_lengths.is_some() {
        return Err(info.param_error("key_lengths", "lengths of packed sequences", "one of `key_lengths` and `cu_k`"));
    }
    if batch != 1 {
        return Err(info.param_error("cu_q", format!("{batch} batches of packed sequences"), "a single batch"));
    }
    let [ends] = cu_q.dims(info.name, "cu_q")?;
    cu_k.require_shape(info.name, "cu_k", cu_q.shape())?;
    cu_q.require_contiguous(info.name, "cu_q")?;
    cu_k.require_contiguous(info.name, "cu_k")?;
    if !(2..=MAX_TOKENS).contains(&ends) {
        return Err(info.shape_error("cu_q", cu_q.shape(), "one number more than there are sequences"));
    }
    Ok(ends - 1)
}

/// The options that the parameters and optional tensors of a launch describe.
pub(super) fn options<'a>(args: &Arguments<'a>, params: &Params) -> Result<Attention<'a>> {
    let reach = |name| params.i64(name).map(|keys| usize::try_from(keys).ok());
    let positive = |name| params.f32(name).map(|value| (value != 0.0).then_some(value));
    let packed = match (args.optional_input("cu_q")?, args.optional_input("cu_k")?) {
        (Some(cu_q), Some(cu_k)) => Some([cu_q, cu_k]),
        (None, None) => None,
        _ => return Err(params.info().param_error("cu_q", "one of `cu_q` and `cu_k`", "both or none")),
    };
    let right = reach("right")?;
    Ok(Attention {
        left: reach("left")?,
        right: if params.bool("causal")? { Some(0) } else { right },
        scale: positive("scale")?,
        softcap: positive("softcap")?,
        key_lengths: args.optional_input("key_lengths")?,
        packed,
        slopes: args.optional_input("slopes")?,
        sinks: args.optional_input("sinks")?,
        deterministic: false,
    })
}
