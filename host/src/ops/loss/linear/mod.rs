//! Losses of the logits of a linear layer, in chunks of rows: the logits of all rows never exist at the same time.

mod exact;
mod tokens;

pub(super) use exact::{ExactTokens, exact_gradient, exact_logits};
pub(super) use tokens::{Tokens, memory, outputs, specs};

use std::ops::Range;

use cuda_std::float::Half;

use super::batch::limited;
use crate::ops::gemm::{Scalar, gemm_into, gemm_to_f32_into};
use crate::ops::model::OpInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// A loss of a linear layer's logits, with the memory that it may use.
///
/// ```
/// # use warpsmith::ops::{CrossEntropy, Linear};
/// let options = Linear::new(CrossEntropy::mean().z_loss(1e-4)).memory(256 << 20);
/// # let _ = options;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Linear<L> {
    pub(super) loss: L,
    pub(super) memory: usize,
    pub(super) accumulate: bool,
}

impl<L> Linear<L> {
    /// This loss, with 1 GiB of memory.
    pub fn new(loss: L) -> Self {
        Self { loss, memory: 1 << 30, accumulate: false }
    }

    /// Sets how many bytes of logits may exist at a time; at least one row always does. With less memory, the weight's gradient
    /// is accumulated more often.
    pub fn memory(self, bytes: usize) -> Self {
        Self { memory: bytes, ..self }
    }

    /// Adds the weight's gradient to the present contents of its tensor, for batches in several steps.
    pub fn accumulate(self, accumulate: bool) -> Self {
        Self { accumulate, ..self }
    }
}

/// The gradients of a linear layer.
#[derive(Debug)]
pub struct LinearGradients<T> {
    /// The gradient with respect to the hidden states, `[rows, d]`.
    pub dhidden: Tensor<T>,
    /// The gradient with respect to the weight, `[classes, d]`, in f32, as it was summed.
    pub dweight: Tensor<f32>,
}

impl<T: Float> LinearGradients<T> {
    pub(super) fn of(stream: &Stream, hidden: &View<'_, T>, weight: &View<'_, T>, accumulate: bool) -> Result<Self> {
        // There is nothing to add to.
        let dweight =
            if accumulate { Tensor::zeros(stream, weight.shape()) } else { Tensor::result(stream, weight.shape()) };
        Ok(Self { dhidden: Tensor::result(stream, hidden.shape())?, dweight: dweight? })
    }

    pub(super) fn views(&mut self) -> Gradients<'_, T> {
        Gradients { dhidden: self.dhidden.view_mut(), dweight: self.dweight.view_mut() }
    }
}

/// Where to write the gradients.
pub(super) struct Gradients<'a, T> {
    pub(super) dhidden: ViewMut<'a, T>,
    pub(super) dweight: ViewMut<'a, f32>,
}

/// The number of rows of a chunk is a multiple of the rows of a product's tile, if there are as many.
const ROWS: usize = 256;

/// A linear layer's input and weight.
#[derive(Clone, Copy)]
pub(super) struct Layer<'a, T> {
    info: &'static OpInfo,
    names: [&'static str; 2],
    hidden: View<'a, T>,
    weight: View<'a, T>,
    pub(super) rows: usize,
    pub(super) classes: usize,
}

/// How a batch is split, and how its gradients are written.
pub(super) struct Chunks<'a> {
    /// The maximum number of bytes of the layer's logits at a time.
    pub(super) memory: usize,
    /// Whether the weight's gradient is added to the present contents.
    pub(super) accumulate: bool,
    /// The factor of the gradients with respect to the logits.
    pub(super) factor: Scalar<'a>,
}

impl<'a, T: Float + Half> Layer<'a, T> {
    /// The layer of the arguments with these names.
    pub(super) fn new(
        info: &'static OpInfo,
        names: [&'static str; 2],
        hidden: View<'a, T>,
        weight: View<'a, T>,
    ) -> Result<Self> {
        let [rows, d]: [usize; 2] = hidden.dims(info.name, names[0])?;
        let [classes, _]: [usize; 2] = weight.dims(info.name, names[1])?;
        weight.require_shape(info.name, names[1], &[classes, d])?;
        if classes == 0 {
            return Err(info.shape_error(names[1], weight.shape(), "at least one class"));
        }
        limited(info, names[0], "rows", rows)?;
        limited(info, names[0], "dimensions", d)?;
        limited(info, names[1], "classes", classes)?;
        Ok(Self { info, names, hidden, weight, rows, classes })
    }

    /// Fails, naming the argument, unless it is on the stream's device.
    pub(super) fn require_device(&self, stream: &Stream) -> Result<()> {
        let [of_hidden, of_weight] = self.names;
        stream.require_devices(self.info.name, &[(of_hidden, &self.hidden), (of_weight, &self.weight)])
    }

    /// The row stride of logits, which keeps rows at multiples of 16 bytes.
    fn stride(&self) -> usize {
        self.classes.next_multiple_of(16 / size_of::<T>())
    }

    /// The number of rows of a chunk: as few chunks as the memory allows, of about the same size.
    fn chunk(&self, memory: usize) -> usize {
        let most = (memory / (self.stride() * size_of::<T>())).max(1);
        let most = if most < ROWS { most } else { most - most % ROWS };
        let rows = self.rows.div_ceil(self.rows.div_ceil(most).max(1));
        if most < ROWS { rows } else { rows.next_multiple_of(ROWS).min(self.rows) }
    }

    /// Memory for the logits of a chunk.
    pub(super) fn buffer(&self, stream: &Stream, memory: usize) -> Result<Tensor<T>> {
        let buffer = Tensor::uninit(stream, [self.chunk(memory), self.stride()]);
        buffer.map_err(|error| error.of(self.info.name, "workspace"))
    }

    /// The logits of those rows, in a [buffer](Self::buffer).
    pub(super) fn logits<'b>(
        &self,
        stream: &Stream,
        rows: Range<usize>,
        buffer: &'b mut Tensor<T>,
    ) -> Result<ViewMut<'b, T>> {
        let mut logits = buffer.view_mut().strided(0, [rows.len(), self.classes], &[self.stride(), 1])?;
        gemm_into(stream, 1.0, self.hidden.slice(rows)?, self.weight.t(), 0.0, logits.reborrow())?;
        Ok(logits)
    }

    /// Calls `loss` with the logits of one chunk of rows after the other. If gradients are requested, `loss` overwrites the
    /// logits with the gradients with respect to them.
    pub(super) fn by_chunks(
        &self,
        stream: &Stream,
        chunks: Chunks<'_>,
        mut gradients: Option<Gradients<'_, T>>,
        mut loss: impl FnMut(Range<usize>, ViewMut<'_, T>) -> Result<()>,
    ) -> Result<()> {
        let Chunks { memory, accumulate, factor } = chunks;
        self.require_device(stream)?;
        if let Some(Gradients { dhidden, dweight }) = &gradients {
            stream.require_devices(self.info.name, &[("dhidden", dhidden), ("dweight", dweight)])?;
        }
        let mut beta = 0.0;
        if let Some(gradients) = &mut gradients {
            gradients.dhidden.require_shape(self.info.name, "dhidden", self.hidden.shape())?;
            gradients.dhidden.require_inner_contiguous(self.info.name, "dhidden")?;
            gradients.dweight.require_shape(self.info.name, "dweight", self.weight.shape())?;
            gradients.dweight.require_inner_contiguous(self.info.name, "dweight")?;
            if accumulate {
                beta = 1.0;
            }
        }
        let (chunk, mut buffer) = (self.chunk(memory), self.buffer(stream, memory)?);
        if let Some(gradients) = &mut gradients
            && self.rows == 0
        {
            // The weight's gradient is still a product, over no rows.
            let g = self.logits(stream, 0..0, &mut buffer)?;
            gemm_to_f32_into(stream, factor, g.as_view().t(), self.hidden, beta, gradients.dweight.reborrow())?;
        }
        for first in (0..self.rows).step_by(chunk.max(1)) {
            let rows = first..self.rows.min(first + chunk);
            let mut logits = self.logits(stream, rows.clone(), &mut buffer)?;
            loss(rows.clone(), logits.reborrow())?;
            if let Some(Gradients { dhidden, dweight }) = &mut gradients {
                let (g, hidden) = (logits.as_view(), self.hidden.slice(rows.clone())?);
                gemm_into(stream, factor, g, self.weight, 0.0, dhidden.reborrow().slice(rows)?)?;
                gemm_to_f32_into(stream, factor, g.t(), hidden, beta, dweight.reborrow())?;
                beta = 1.0;
            }
        }
        Ok(())
    }
}
