//! Sequences that follow each other in one tensor of tokens.

use gpu_kernels::ops::loss::grpo::sequences as gk;

use super::batch::limited;
use crate::ops::model::OpInfo;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// The sequences of a batch, given by their offsets.
#[derive(Clone, Copy)]
pub(super) struct Sequences<'a> {
    pub(super) offsets: View<'a, i32>,
    pub(super) count: u32,
    pub(super) tokens: u32,
}

impl<'a> Sequences<'a> {
    pub(super) fn new(info: &OpInfo, offsets: View<'a, i32>, tokens: usize) -> Result<Self> {
        let [n]: [usize; 1] = offsets.dims(info.name, "offsets")?;
        let count = count(info, offsets.shape(), n, tokens)?;
        offsets.require_contiguous(info.name, "offsets")?;
        let count = limited(info, "offsets", "sequences", count)?;
        Ok(Self { offsets, count, tokens: limited(info, "offsets", "tokens", tokens)? })
    }

    /// Writes the first invalid offset to `bad`.
    pub(super) fn check(&self, stream: &Stream, bad: &mut ViewMut<'_, u32>) -> Result<()> {
        let args = (self.offsets.ptr(stream)?, bad.ptr_mut(stream)?, self.count, self.tokens);
        // SAFETY: offsets has an element more than there are sequences, and bad is borrowed mutably and has two.
        unsafe { stream.launch::<gk::CheckOffsets>(1, args) }
    }

    /// Writes the weight of a token for each sequence.
    pub(super) fn weigh(
        &self,
        stream: &Stream,
        targets: View<'_, i32>,
        (classes, ignored): (u32, i32),
        mut weights: ViewMut<'_, f32>,
    ) -> Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let pointers = (self.offsets.ptr(stream)?, targets.ptr(stream)?, weights.ptr_mut(stream)?);
        let args = (pointers.0, pointers.1, pointers.2, self.tokens, classes, ignored);
        // SAFETY: offsets, which are bounded in the kernel, has an element more than there are blocks, targets one a token, and weights, which
        // is borrowed mutably, one a block.
        unsafe { stream.launch::<gk::WeighSequences>(self.count, args) }
    }
}

/// The number of sequences that this number of offsets describes.
pub(super) fn count(info: &OpInfo, shape: &[usize], offsets: usize, tokens: usize) -> Result<usize> {
    match offsets.checked_sub(1) {
        Some(count) if count > 0 || tokens == 0 => Ok(count),
        _ if tokens == 0 => Err(info.shape_error("offsets", shape, "[sequences + 1]")),
        _ => Err(info.shape_error(
            "offsets",
            shape,
            format!("[sequences + 1] with a sequence or more of the {tokens} tokens"),
        )),
    }
}

/// Sequences in the form that references use: their tokens, or `None` if the offsets are invalid.
pub(super) fn exact(offsets: &[f64], tokens: usize) -> Option<Vec<std::ops::Range<usize>>> {
    let rises = offsets.is_sorted() && offsets.first() == Some(&0.0) && offsets.last() == Some(&(tokens as f64));
    rises.then(|| offsets.windows(2).map(|ends| ends[0] as usize..ends[1] as usize).collect())
}
