//! Operators that move, look up or rotate elements.

pub mod append_kv;
pub mod append_kv_quantized;
pub mod attention_mask;
pub mod embedding;
pub mod embedding_backward;
pub mod permute_heads;
pub mod qk_norm_rope;
pub mod qk_norm_rope_backward;
pub mod repeat_kv;
pub mod rope;
pub mod rope_table;
pub mod transpose;

pub use append_kv::{append_kv, append_kv_paged};
pub use append_kv_quantized::{QuantizedCacheMut, QuantizedElement, append_kv_quantized};
pub use attention_mask::{AttentionMask, attention_mask, attention_mask_into};
pub use embedding::{embedding, embedding_into};
pub use embedding_backward::{embedding_backward, embedding_backward_into};
pub use permute_heads::{permute_heads, permute_heads_into};
pub use qk_norm_rope::{QkNorm, qk_norm_rope, qk_norm_rope_in_place, qk_norm_rope_into};
pub use qk_norm_rope_backward::{
    QkNormRopeGradients, QkNormRopeGradientsMut, qk_norm_rope_backward, qk_norm_rope_backward_into,
};
pub use repeat_kv::{repeat_kv, repeat_kv_into};
pub use rope::{RopePairs, Rotation, rope, rope_backward, rope_backward_into, rope_in_place, rope_into};
pub use rope_table::{Llama3Scaling, RopeFrequencies, rope_table, rope_table_into};
pub use transpose::{transpose, transpose_into};

use cuda_std::launch::Dim3;
use gpu_kernels::ops::layout::{BLOCK, PACKS, runs_per_block};

use super::model::OpInfo;
use crate::runtime::error::{Error, Result};

/// How runs of contiguous elements are moved: in packs of 16 bytes, or one element at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Runs {
    pub(super) count: u32,
    /// The number of packs of a run.
    pub(super) width: u32,
    pub(super) grid: Dim3,
    pub(super) packed: bool,
    size: usize,
}

impl Runs {
    /// The plan for `count` runs of `d` elements of `size` bytes; `aligned` tells whether all are at multiples of 16 bytes.
    /// `None` if there is nothing to do.
    pub(super) fn new(
        info: &OpInfo,
        arg: &'static str,
        [count, d]: [usize; 2],
        size: usize,
        aligned: bool,
    ) -> Result<Option<Self>> {
        if count == 0 || d == 0 {
            return Ok(None);
        }
        let packed = aligned && (d * size).is_multiple_of(16);
        let width = if packed { d * size / 16 } else { d };
        let most = (PACKS * BLOCK) as usize * 65_535;
        let (Ok(count), true) = (u32::try_from(count), width <= most) else {
            let reason = format!("{count} runs of {d} elements: at most {} of {most} packs are supported", u32::MAX);
            return Err(Error::too_large(info.name, arg, reason));
        };
        let width = width as u32;
        let per_block = runs_per_block(width);
        let y = if per_block == 1 { width.div_ceil(PACKS * BLOCK) } else { 1 };
        let x = count.div_ceil(per_block);
        if x as usize > super::elementwise::MAX_BLOCKS {
            let reason = format!("{count} runs need {x} blocks, a grid has at most {}", super::elementwise::MAX_BLOCKS);
            return Err(Error::too_large(info.name, arg, reason));
        }
        Ok(Some(Self { count, width, grid: Dim3::new(x, y, 1), packed, size }))
    }

    /// Converts a distance in elements to one in words of the kernel.
    pub(super) fn words(&self, stride: usize) -> u64 {
        (if self.packed { stride * self.size / 4 } else { stride }) as u64
    }
}

/// Runs a block with the kernel that moves runs of elements of this size: a word type and the number of words of a pack, four
/// words of 4 bytes where the runs are packed.
macro_rules! by_word {
    ($runs:expr, $size:expr, [$($bytes:literal: $word:ty),+] => |$W:ident, $V:ident| $launch:expr) => {
        match ($runs.packed, $size) {
            $((false, $bytes) => {
                type $W = $word;
                const $V: usize = 1;
                $launch
            })+
            _ => {
                type $W = u32;
                const $V: usize = 4;
                $launch
            }
        }
    };
}
pub(super) use by_word;
