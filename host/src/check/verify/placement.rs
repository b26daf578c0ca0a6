//! Where a checked tensor lies inside its allocation: guard zones around it, padding between its rows, all poisoned.

use std::ops::Range;

use rayon::prelude::*;

use crate::ops::model::reference::row_len;
use crate::ops::model::{Layout, TensorMeta};
use crate::runtime::any::{AnyTensor, AnyViewMut};
use crate::runtime::dtype::{DType, Dtype};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// Elements before and after the tensor that nobody may touch. A multiple of 256 bytes for every dtype.
const GUARD: usize = 4096;

/// Bytes that one thread goes through at a time. A multiple of every element's size.
const BLOCK: usize = 1 << 20;

/// A tensor's place in an allocation of [`elements`](Self::elements) elements.
#[derive(Clone, Debug)]
pub(super) struct Placement {
    dtype: DType,
    shape: Vec<usize>,
    start: usize,
    /// Elements that follow each other, how many such runs there are, and from the start of one to that of the next.
    run: usize,
    runs: usize,
    pitch: usize,
}

impl Placement {
    /// The place of a tensor like `meta` in a case with that layout.
    pub(super) fn new(meta: &TensorMeta, layout: Layout) -> Self {
        let elements = meta.elements().unwrap_or(0);
        let (run, runs) = match row_len(&meta.shape) {
            _ if elements == 0 => (0, 0),
            len if meta.shape.len() >= 2 => (len, elements / len),
            _ => (elements, 1),
        };
        let pad = if meta.shape.len() >= 2 { layout.row_pad } else { 0 };
        Self { dtype: meta.dtype, shape: meta.shape.clone(), start: GUARD + layout.offset, run, runs, pitch: run + pad }
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
    pub(super) fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.shape.len()];
        let mut next = self.pitch;
        for i in (0..self.shape.len().saturating_sub(1)).rev() {
            strides[i] = next;
            next *= self.shape[i];
        }
        strides
    }

    /// The allocation on the device, with nothing in it but poison.
    pub(super) fn poisoned_on(&self, stream: &Stream) -> Result<AnyTensor> {
        let mut tensor = AnyTensor::uninit(stream, self.dtype, [self.elements()])?;
        match tensor.view_mut() {
            AnyViewMut::F32(mut view) => view.fill(stream, poison_value(self.dtype)),
            AnyViewMut::F16(mut view) => view.fill(stream, poison_value(self.dtype)),
            AnyViewMut::BF16(mut view) => view.fill(stream, poison_value(self.dtype)),
            AnyViewMut::I8(mut view) => view.fill(stream, poison_value(self.dtype)),
            AnyViewMut::U8(mut view) => view.fill(stream, poison_value(self.dtype)),
            AnyViewMut::I32(mut view) => view.fill(stream, poison_value(self.dtype)),
            AnyViewMut::U32(mut view) => view.fill(stream, poison_value(self.dtype)),
            AnyViewMut::I64(mut view) => view.fill(stream, poison_value(self.dtype)),
        }?;
        Ok(tensor)
    }

    /// The allocation's bytes with nothing in it but poison.
    fn poisoned(&self) -> Vec<u8> {
        let poison = poison(self.dtype);
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
    pub(super) fn filled(&self, values: &[u8]) -> Vec<u8> {
        let mut bytes = self.poisoned();
        let size = self.dtype.size();
        // Runs without gaps are one.
        let (run, pitch) = if self.run == self.pitch { (BLOCK, BLOCK) } else { (self.run * size, self.pitch * size) };
        if run > 0 {
            let places = bytes[self.start * size..].par_chunks_mut(pitch).zip(values.par_chunks(run));
            places.for_each(|(to, from)| to[..from.len()].copy_from_slice(from));
        }
        bytes
    }

    /// Where element `index` of the tensor is in the allocation, in elements.
    pub(super) fn position(&self, index: usize) -> usize {
        let run = self.run.max(1);
        self.start + index / run * self.pitch + index % run
    }

    /// The first element of the tensor that still is poison, as an index into the tensor. Only for float dtypes: an
    /// integer may rightly have any value.
    pub(super) fn unwritten(&self, bytes: &[u8]) -> Option<usize> {
        if !self.dtype.is_float() {
            return None;
        }
        let poison = poison(self.dtype);
        (0..self.runs).into_par_iter().find_map_first(|run| {
            let at = self.run_range(run);
            let part = &bytes[at.start * poison.len()..at.end * poison.len()];
            let blocks = part.par_chunks(BLOCK).enumerate();
            let found = blocks.find_map_first(|(i, block)| Some(i * BLOCK / poison.len() + find(block, poison)?));
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
    pub(super) fn damage(&self, bytes: &[u8]) -> Option<isize> {
        let poison = poison(self.dtype);
        self.gaps().find_map(|gap| {
            let part = &bytes[gap.start * poison.len()..gap.end * poison.len()];
            let hit = part.chunks_exact(poison.len()).position(|element| element != poison)?;
            Some((gap.start + hit).wrapping_sub(self.start) as isize)
        })
    }

    fn run_range(&self, run: usize) -> Range<usize> {
        let start = self.start + run * self.pitch;
        start..start + self.run
    }
}

/// A NaN with a payload that no arithmetic produces; a byte pattern for integers.
fn poison(dtype: DType) -> &'static [u8] {
    match dtype {
        DType::F32 => &[0xA5, 0xA5, 0xE5, 0x7F],
        DType::F16 => &[0xA5, 0x7E],
        DType::BF16 => &[0xE5, 0x7F],
        _ => &[0xA5; 8][..dtype.size()],
    }
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

fn poison_value<T: Dtype>(dtype: DType) -> T {
    bytemuck::pod_read_unaligned(poison(dtype))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(shape: &[usize], layout: Layout) -> Placement {
        Placement::new(&TensorMeta { name: "y".into(), dtype: DType::F16, shape: shape.to_vec() }, layout)
    }

    fn padded() -> Placement {
        place(&[2, 3, 5], Layout { offset: 1, row_pad: 2 })
    }

    #[test]
    fn poison_is_nan() {
        let f = |d: DType| u32::from_le_bytes(poison(d).try_into().unwrap());
        assert!(f32::from_bits(f(DType::F32)).is_nan());
        let h = |d: DType| u16::from_le_bytes(poison(d).try_into().unwrap());
        assert!(half::f16::from_bits(h(DType::F16)).is_nan() && half::bf16::from_bits(h(DType::BF16)).is_nan());
    }

    #[test]
    fn strides_and_positions_agree() {
        let p = padded();
        assert_eq!(p.strides(), [21, 7, 1]);
        assert_eq!(p.position(0), p.start());
        assert_eq!(p.position(14), p.start() + 2 * 7 + 4);
        assert_eq!(p.position(15), p.start() + 21);
        assert_eq!(place(&[0, 5], Layout::default()).elements(), 2 * GUARD);
        assert_eq!(place(&[7], Layout { offset: 0, row_pad: 9 }).elements(), 2 * GUARD + 7);
        assert!(place(&[], Layout::default()).strides().is_empty());
    }

    #[test]
    fn an_unwritten_output_is_found() {
        let p = padded();
        let mut bytes = p.filled(&[0; 60]);
        assert_eq!((p.unwritten(&bytes), p.damage(&bytes)), (None, None));
        let at = p.position(17) * 2;
        bytes[at..at + 2].copy_from_slice(poison(DType::F16));
        assert_eq!(p.unwritten(&bytes), Some(17));
        assert_eq!(p.unwritten(&p.poisoned()), Some(0));
    }

    #[test]
    fn tensors_of_many_blocks_are_filled_and_searched() {
        let n = BLOCK / 2 * 3 + 5;
        let values: Vec<u8> = (0..2 * n).map(|i| (i % 101) as u8).collect();
        for p in [place(&[n], Layout { offset: 3, row_pad: 0 }), place(&[n / 7, 7], Layout { offset: 1, row_pad: 2 })] {
            let values = &values[..p.shape().iter().product::<usize>() * 2];
            let mut bytes = p.filled(values);
            for i in (0..values.len() / 2).step_by(997) {
                assert_eq!(bytes[p.position(i) * 2..][..2], values[2 * i..][..2], "element {i}");
            }
            assert_eq!((p.unwritten(&bytes), p.damage(&bytes)), (None, None));
            let last = values.len() / 2 - 1;
            bytes[p.position(last) * 2..][..2].copy_from_slice(poison(DType::F16));
            assert_eq!(p.unwritten(&bytes), Some(last));
        }
    }

    #[test]
    fn a_write_outside_the_tensor_is_found() {
        let p = padded();
        for (element, from_start) in [
            (p.start() - 1, -1),
            (0, -(p.start() as isize)),
            (p.start() + 5, 5),
            (p.start() + 42, 42),
            (p.elements() - 1, 42 + GUARD as isize - 1),
        ] {
            let mut bytes = p.filled(&[0; 60]);
            bytes[element * 2] ^= 1;
            assert_eq!(p.damage(&bytes), Some(from_start), "element {element}");
        }
    }
}
