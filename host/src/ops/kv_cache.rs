//! Checks of a cache of keys and values, for operators that read or fill it.

use super::model::{Metas, OpInfo};
use crate::runtime::error::Result;
use crate::runtime::view::View;

/// The sizes of a cache with checked tensors. A contiguous cache has one page per batch entry, the only page of its sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheShape {
    pub(super) pages: usize,
    /// The number of positions of a page.
    pub(super) page_size: usize,
    /// The maximum number of pages of a sequence.
    pub(super) max_pages: usize,
    heads: usize,
}

impl CacheShape {
    /// Checks `[k_cache, v_cache]`, which must hold vectors of `d` elements for this number of heads, and lengths, under the
    /// operator's name for them, and pages for the batch.
    pub(super) fn check<T>(
        info: &OpInfo,
        [batch, heads, d]: [usize; 3],
        caches: [View<'_, T>; 2],
        (lengths_name, lengths): (&'static str, View<'_, i32>),
        page_table: Option<View<'_, i32>>,
    ) -> Result<Self> {
        let op = info.name;
        lengths.require_shape(op, lengths_name, &[batch])?;
        lengths.require_contiguous(op, lengths_name)?;
        let [rows, page_size, _, _]: [usize; 4] = caches[0].dims(op, "k_cache")?;
        let (pages, max_pages) = match &page_table {
            Some(table) => {
                let [_, max_pages]: [usize; 2] = table.dims(op, "page_table")?;
                table.require_shape(op, "page_table", &[batch, max_pages])?;
                table.require_contiguous(op, "page_table")?;
                (rows, max_pages)
            }
            None => (batch, 1),
        };
        for (name, cache) in ["k_cache", "v_cache"].into_iter().zip(caches) {
            cache.require_shape(op, name, &[pages, page_size, heads, d])?;
            cache.require_inner_contiguous(op, name)?;
        }
        Ok(Self { pages, page_size, max_pages, heads })
    }

    /// The same for tensors of which only the dtypes and shapes are known, with their scales if they have any.
    pub(super) fn check_metas(inputs: &Metas<'_>, [batch, heads, d]: [usize; 3], lengths: &str) -> Result<Self> {
        let k_cache = inputs.get("k_cache")?;
        inputs.get(lengths)?.has_shape(&[batch])?;
        let [rows, page_size, _, _] = k_cache.dims()?;
        let (pages, max_pages) = match inputs.optional("page_table") {
            Some(table) => {
                let [_, max_pages] = table.dims()?;
                table.has_shape(&[batch, max_pages])?;
                (rows, max_pages)
            }
            None => (batch, 1),
        };
        k_cache.has_shape(&[pages, page_size, heads, d])?;
        inputs.get("v_cache")?.has_shape(k_cache.shape())?;
        for scales in ["k_scales", "v_scales"].into_iter().filter_map(|name| inputs.optional(name)) {
            scales.has_shape(&[pages, page_size, heads])?;
        }
        Ok(Self { pages, page_size, max_pages, heads })
    }

    /// Checks `[k_scales, v_scales]`, which have one scale per vector.
    pub(super) fn require_scales(&self, info: &OpInfo, scales: [View<'_, f32>; 2]) -> Result<()> {
        let mut scales = ["k_scales", "v_scales"].into_iter().zip(scales);
        scales
            .try_for_each(|(name, view)| view.require_shape(info.name, name, &[self.pages, self.page_size, self.heads]))
    }

    /// The maximum number of positions of a sequence.
    pub(super) fn capacity(&self) -> usize {
        self.page_size.saturating_mul(self.max_pages)
    }
}
