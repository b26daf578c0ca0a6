//! Checks of a call's arguments.

use gpu_kernels::ops::attention::decode::simple;

use super::scaled;
use super::tokens::Tokens;
use crate::ops::kv_cache::CacheShape;
use crate::ops::model::OpInfo;
use crate::runtime::dtype::Dtype;
use crate::runtime::error::{Error, Result};
use crate::runtime::view::{View, ViewMut};

/// The maximum positions per sequence, and the maximum queries of all heads: both are counted in 32 bits.
const MAX_TOKENS: usize = 1 << 28;

/// Checks that the queries fit the cache and the tensors that belong to it.
pub(super) fn tensors<T, C: Dtype>(
    info: &OpInfo,
    q: View<'_, T>,
    tokens: &Tokens<'_, C>,
    lengths: View<'_, i32>,
    page_table: Option<View<'_, i32>>,
) -> Result<CacheShape> {
    let op = info.name;
    let [batch, q_len, heads, d] = q.dims(op, "q")?;
    let [k_cache, v_cache] = tokens.caches();
    let [_, _, kv_heads, _] = k_cache.dims(op, "k_cache")?;
    if d > simple::MAX_D as usize {
        return Err(info.shape_error("q", q.shape(), format!("at most {} elements of d", simple::MAX_D)));
    }
    if (heads == 0) != (kv_heads == 0) || !heads.is_multiple_of(kv_heads.max(1)) {
        let wanted = format!("a number of heads that divides the {heads} of `q`");
        return Err(info.shape_error("k_cache", k_cache.shape(), wanted));
    }
    q.require_inner_contiguous(op, "q")?;
    let cache = CacheShape::check(
        info,
        [batch, kv_heads, d],
        [k_cache, v_cache],
        (tokens.lengths_name(), lengths),
        page_table,
    )?;
    let scales = tokens.scales();
    if scaled(C::DTYPE) != scales.is_some() {
        let found = if scales.is_some() { "scales" } else { "no scales" };
        let wanted = "scales for a cache of 8-bit elements, and for no other";
        return Err(info.param_error("scales", format!("{found} of a cache of {}", C::DTYPE), wanted));
    }
    if let Some(scales) = scales {
        cache.require_scales(info, scales)?;
    }
    for (name, view) in ["k", "v"].into_iter().zip(tokens.appended().iter().flatten()) {
        view.require_shape(op, name, &[batch, q_len, kv_heads, d])?;
        view.require_inner_contiguous(op, name)?;
    }
    Ok(cache)
}

/// Checks that sinks and results fit the queries.
pub(super) fn results<T>(
    info: &OpInfo,
    q: View<'_, T>,
    sinks: Option<View<'_, f32>>,
    o: &ViewMut<'_, T>,
    lse: &ViewMut<'_, f32>,
) -> Result<()> {
    let op = info.name;
    let [batch, q_len, heads, _] = q.dims(op, "q")?;
    if let Some(sinks) = sinks {
        sinks.require_shape(op, "sinks", &[heads])?;
        sinks.require_contiguous(op, "sinks")?;
    }
    o.require_shape(op, "o", q.shape())?;
    o.require_inner_contiguous(op, "o")?;
    lse.require_shape(op, "lse", &[batch, heads, q_len])?;
    lse.require_contiguous(op, "lse")
}

/// Checks that everything counted in 32 bits fits in 32 bits.
pub(super) fn sizes<T>(info: &OpInfo, q: View<'_, T>, cache: CacheShape) -> Result<()> {
    let [batch, q_len, heads, _]: [usize; 4] = q.dims(info.name, "q")?;
    let queries = batch.saturating_mul(heads).saturating_mul(q_len);
    for (name, what, count) in [
        ("k_cache", "positions a sequence", cache.capacity()),
        ("k_cache", "pages", cache.pages),
        ("q", "batches × heads × queries", queries),
    ] {
        if count > MAX_TOKENS {
            let reason = format!("{count} {what}, at most {MAX_TOKENS} are supported");
            return Err(Error::too_large(info.name, name, reason));
        }
    }
    Ok(())
}
