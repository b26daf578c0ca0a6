//! The placement of a checked tensor in its allocation: guard zones around it, padding between its rows, all poisoned.

use std::ops::Range;

use rayon::prelude::*;

use crate::ops::model::{Arrangement, TensorMeta};
use crate::runtime::any::AnyTensor;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;
use crate::runtime::stream::Stream;

/// The number of guard elements before and after the tensor. A multiple of 256 bytes for every dtype.
const GUARD: usize = 4096;

/// The number of bytes that a thread scans at a time. A multiple of every element's size.
const BLOCK: usize = 1 << 20;

/// The contents of unwritten memory. Any integer may be a valid result, so only two runs over different poison tell which
/// elements of a tensor were not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Poison {
    First,
    Second,
}

impl Poison {
    /// A NaN with a payload that no arithmetic produces; a byte pattern for integers.
    pub(super) fn bytes(self, dtype: DType) -> &'static [u8] {
        match (self, dtype) {
            (Self::First, DType::F32) => &[0xA5, 0xA5, 0xE5, 0x7F],
            (Self::First, DType::F16) => &[0xA5, 0x7E],
            (Self::First, DType::BF16) => &[0xE5, 0x7F],
            (Self::First, _) => &[0xA5; 8][..dtype.size()],
            (Self::Second, DType::F32) => &[0x5B, 0x5B, 0xDB, 0x7F],
            (Self::Second, DType::F16) => &[0x5B, 0x7F],
            (Self::Second, DType::BF16) => &[0xDB, 0x7F],
            (Self::Second, _) => &[0x5B; 8][..dtype.size()],
        }
    }
}

/// The position of a tensor in an allocation of [`elements`](Self::elements) elements.
#[derive(Clone, Debug)]
pub(super) struct Placement {
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<usize>,
    start: usize,
    /// The length of a contiguous run of elements, the number of runs, and the distance between their starts.
    run: usize,
    runs: usize,
    pitch: usize,
}

impl Placement {
    /// The placement of a tensor like `meta`, in this arrangement.
    pub(super) fn new(meta: &TensorMeta, arrangement: Arrangement) -> Self {
        let strides = arrangement.strides(&meta.shape);
        let distinct = arrangement.distinct(meta.shape.len());
        // Without elements there is none to repeat either.
        let is_empty = meta.shape.contains(&0);
        let elements: usize = distinct.iter().map(|dim| meta.shape[*dim]).product();
        let run = distinct.last().map_or(1, |inner| meta.shape[*inner]);
        let pitch = run + if meta.shape.len() >= 2 { arrangement.row_pad } else { 0 };
        let (run, runs) = if is_empty { (0, 0) } else { (run, elements / run) };
        let start = GUARD + arrangement.offset;
        Self { dtype: meta.dtype, shape: meta.shape.clone(), strides, start, run, runs, pitch }
    }

    /// Elements in the whole allocation.
    pub(super) fn elements(&self) -> usize {
        self.start + self.runs * self.pitch + GUARD
    }

    /// The tensor's first element.
    pub(super) fn start(&self) -> usize {
        self.start
    }

    /// The tensor's shape.
    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The tensor's strides, in elements.
    pub(super) fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Whether every element has a place of its own, in row-major order.
    fn is_row_major(&self) -> bool {
        let long = self.shape.iter().zip(&self.strides).filter(|(extent, _)| **extent > 1);
        let strides: Vec<_> = long.map(|(_, stride)| *stride).collect();
        strides.is_sorted_by(|a, b| a > b) && strides.last().is_none_or(|stride| *stride > 0)
    }

    /// Where the tensor's values lie in the allocation if they follow each other there, in elements.
    pub(super) fn dense(&self) -> Option<Range<usize>> {
        let is_dense = self.is_row_major() && (self.runs <= 1 || self.run == self.pitch);
        is_dense.then(|| self.start..self.start + self.runs * self.run)
    }

    /// The allocation on the device, with nothing in it but poison.
    pub(super) fn poisoned_on(&self, stream: &Stream, poison: Poison) -> Result<AnyTensor> {
        let mut tensor = AnyTensor::uninit(stream, self.dtype, [self.elements()])?;
        tensor.view_mut().fill_bytes(stream, poison.bytes(self.dtype))?;
        Ok(tensor)
    }

    /// The allocation's bytes with nothing in it but poison.
    fn poisoned(&self, poison: Poison) -> Vec<u8> {
        let poison = poison.bytes(self.dtype);
        // Every element's size divides 8, so that a pattern of 8 bytes fits all.
        let pattern: [u8; 8] = std::array::from_fn(|i| poison[i % poison.len()]);
        let mut bytes = vec![0; self.elements() * self.dtype.size()];
        bytes.par_chunks_mut(BLOCK).for_each(|block| {
            let (whole, rest) = block.as_chunks_mut::<8>();
            whole.fill(pattern);
            rest.copy_from_slice(&pattern[..rest.len()]);
        });
        bytes
    }

    /// The allocation's bytes with the tensor's values in place and poison around them.
    pub(super) fn filled(&self, values: &[u8], poison: Poison) -> Vec<u8> {
        let mut bytes = self.poisoned(poison);
        let size = self.dtype.size();
        if !self.is_row_major() {
            let mut values = values.chunks_exact(size);
            self.each_position(self.all(), |at| {
                if let Some(value) = values.next() {
                    bytes[at * size..][..size].copy_from_slice(value);
                }
            });
            return bytes;
        }
        // Runs without gaps are one.
        let (run, pitch) = if self.run == self.pitch { (BLOCK, BLOCK) } else { (self.run * size, self.pitch * size) };
        if run > 0 {
            let many = at_once(run);
            let places = bytes[self.start * size..].par_chunks_mut(many * pitch).zip(values.par_chunks(many * run));
            places.for_each(|(to, from)| {
                let runs = to.chunks_mut(pitch).zip(from.chunks(run));
                runs.for_each(|(to, from)| to[..from.len()].copy_from_slice(from));
            });
        }
        bytes
    }

    /// The values that the tensor has once [`filled`](Self::filled) with these: others where one element stands for many.
    pub(super) fn effective(&self, values: HostTensor) -> Result<HostTensor> {
        if self.is_row_major() {
            return Ok(values);
        }
        let size = self.dtype.size();
        let image = self.filled(values.bytes(), Poison::First);
        let mut bytes = Vec::with_capacity(values.len() * size);
        self.each_position(self.all(), |at| bytes.extend_from_slice(&image[at * size..][..size]));
        HostTensor::new(self.dtype, &self.shape, bytes)
    }

    /// Where element `index` of the tensor is in the allocation, in elements.
    fn position(&self, index: usize) -> usize {
        let mut rest = index;
        let mut at = self.start;
        for (extent, stride) in self.shape.iter().zip(&self.strides).rev() {
            at += rest % extent.max(&1) * stride;
            rest /= extent.max(&1);
        }
        at
    }

    /// All elements of the tensor, in row-major order.
    fn all(&self) -> Range<usize> {
        0..self.shape.iter().product()
    }

    /// Calls `f` with where each of these elements of the tensor is in the allocation, in elements.
    pub(super) fn each_position(&self, elements: Range<usize>, mut f: impl FnMut(usize)) {
        let inner = self.shape.last().map_or(1, |extent| (*extent).max(1));
        let stride = self.strides.last().map_or(0, |stride| *stride);
        let mut next = elements.start;
        while next < elements.end {
            let count = (inner - next % inner).min(elements.end - next);
            let first = self.position(next);
            (0..count).for_each(|i| f(first + i * stride));
            next += count;
        }
    }

    /// The first element, in the order of memory, that still is poison. Of a float tensor `image` is enough; of integers a second
    /// run over the second poison is needed.
    pub(super) fn unwritten(&self, image: &[u8], second: Option<&[u8]>) -> Option<usize> {
        let first = Poison::First.bytes(self.dtype);
        let second = match second {
            _ if self.dtype.is_float() => None,
            Some(second) => Some((second, Poison::Second.bytes(self.dtype))),
            None => return None,
        };
        let size = first.len();
        (0..self.runs).into_par_iter().with_min_len(at_once(self.run * size)).find_map_first(|run| {
            let at = self.run_range(run);
            let bytes = at.start * size..at.end * size;
            let blocks = image[bytes.clone()].par_chunks(BLOCK).enumerate();
            let found = blocks.find_map_first(|(i, block)| {
                let from = i * BLOCK;
                let element = match second {
                    None => find(block, first)?,
                    Some((second, poison)) => {
                        let again = &second[bytes.start + from..][..block.len()];
                        let pairs = block.chunks_exact(size).zip(again.chunks_exact(size));
                        pairs.into_iter().position(|(a, b)| a == first && b == poison)?
                    }
                };
                Some(from / size + element)
            });
            found.map(|i| run * self.run + i)
        })
    }

    /// The stretches of the allocation around and between the tensor's rows.
    pub(super) fn gaps(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let between = (0..self.runs).map(|run| {
            let at = self.run_range(run);
            at.end..at.start + self.pitch
        });
        let end = self.start + self.runs * self.pitch;
        std::iter::once(0..self.start).chain(between).chain(std::iter::once(end..self.elements()))
    }

    /// The first element outside the tensor that is no longer poison, as an offset in elements from the tensor's start.
    pub(super) fn damage(&self, bytes: &[u8], poison: Poison) -> Option<isize> {
        let poison = poison.bytes(self.dtype);
        self.gaps().find_map(|gap| {
            let part = &bytes[gap.start * poison.len()..gap.end * poison.len()];
            let hit = part.chunks_exact(poison.len()).position(|element| element != poison)?;
            Some((gap.start + hit).wrapping_sub(self.start) as isize)
        })
    }

    /// Whether the tensor's elements are the same bits in both allocations, whatever lies around them.
    pub(super) fn agree(&self, a: &[u8], b: &[u8]) -> bool {
        let size = self.dtype.size();
        (0..self.runs).into_par_iter().with_min_len(at_once(self.run * size)).all(|run| {
            let Range { start, end } = self.run_range(run);
            a[start * size..end * size] == b[start * size..end * size]
        })
    }

    fn run_range(&self, run: usize) -> Range<usize> {
        let start = self.start + run * self.pitch;
        start..start + self.run
    }
}

/// How many runs of this many bytes a thread takes at once.
fn at_once(run: usize) -> usize {
    (BLOCK / run.max(1)).max(1)
}

/// The first element that is `element`. Sizes known to the compiler make this a matter of memory bandwidth.
fn find(bytes: &[u8], element: &[u8]) -> Option<usize> {
    fn sized<const N: usize>(bytes: &[u8], element: &[u8]) -> Option<usize> {
        bytes.as_chunks::<N>().0.iter().position(|e| e == element)
    }
    match element.len() {
        2 => sized::<2>(bytes, element),
        4 => sized::<4>(bytes, element),
        n => bytes.chunks_exact(n).position(|e| e == element),
    }
}

#[cfg(test)]
mod tests;
