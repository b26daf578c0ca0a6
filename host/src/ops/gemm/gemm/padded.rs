//! Operands whose rows are not aligned to packs of 16 bytes, copied so that they can be read in packs.

use cuda_std::float::{Element, Half};
use cuda_std::launch::{DevicePtr, DevicePtrMut};
use gpu_kernels::ops::gemm::gemm::pad::{GemmPad, Lines, WARPS};

use super::super::operand::{Major, Operand, OperandLayout};
use super::path::Path;
use super::problem::Problem;
use crate::ops::elementwise::grid;
use crate::ops::model::OpInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;

/// The number of multiply-adds from which on copies are worth their launches, and of rows and columns from which on they are
/// worth their traffic.
pub(crate) const WORTH: [u64; 2] = [1 << 28, 128];

/// Alignment in bytes of the lines of the copies: what TMA loads of a line then lies in one line of L2, not in parts of two.
/// 1793³ takes 36 µs instead of 41.
const LINE: u64 = 128;

/// Memory for a copy of an operand in the same order, with its rows or columns at multiples of 16 bytes.
struct Copied<T> {
    copy: Tensor<T>,
    major: Major,
    lines: Lines,
}

impl<T: Float> Copied<T> {
    /// `None` if the operand is aligned already, or has no contiguous dimension.
    fn of(stream: &Stream, operand: &Operand<'_, T>) -> Result<Option<Self>> {
        let OperandLayout { strides: [product, row, along_k], rows, k, .. } = operand.layout;
        let Some(major) = operand.layout.adjacent().filter(|_| operand.layout.major.is_none()) else {
            return Ok(None);
        };
        let (lines, length, from) = match major {
            Major::K => (rows, k, row),
            Major::Mn => (k, rows, along_k),
        };
        // A matrix that all products share is copied once.
        let matrices = if product == 0 { 1 } else { operand.rows.shape()[0] as u64 };
        let to = length.next_multiple_of(LINE / size_of::<T>() as u64);
        let lines = Lines { lines: matrices * lines, length, from, to };
        let copy = Tensor::uninit(stream, [lines.lines as usize, lines.to as usize])?;
        Ok(Some(Self { copy, major, lines }))
    }

    /// The copy as a replacement of the operand.
    fn view<'a>(&'a self, operand: &Operand<'_, T>) -> Result<Operand<'a, T>> {
        let OperandLayout { strides: [product, ..], rows, k, .. } = operand.layout;
        let (each, to) = (if self.major == Major::K { rows } else { k }, self.lines.to as usize);
        let turned = self.major == Major::Mn;
        let mut shape = operand.rows.shape().to_vec();
        let rank = shape.len();
        if turned {
            shape.swap(rank - 2, rank - 1);
        }
        let apart = if product == 0 { 0 } else { each as usize * to };
        let view = self.copy.view().strided(0, &shape, &[apart, to, 1][3 - rank..])?;
        Ok(Operand::new(if turned { view.t() } else { view }))
    }
}

/// Copies the operands that need it, in one launch.
fn copy<T: Float>(
    info: &'static OpInfo,
    stream: &Stream,
    operands: [&Operand<'_, T>; 2],
    copies: &mut [Option<Copied<T>>; 2],
) -> Result<()> {
    let mut args = [(DevicePtr::null(), DevicePtrMut::null(), Lines::default()); 2];
    for ((args, operand), copied) in args.iter_mut().zip(operands).zip(copies) {
        if let Some(Copied { copy, lines, .. }) = copied {
            *args = (operand.rows.ptr(stream)?.cast::<u16>(), copy.view_mut().ptr_mut(stream)?.cast::<u16>(), *lines);
        }
    }
    let [(from_a, to_a, a), (from_b, to_b, b)] = args;
    let Some(blocks) = grid(info, "a", (a.warps() + b.warps()) as usize, WARPS as usize)? else { return Ok(()) };
    // SAFETY: the sources are live and have these lines, elements have 16 bits, and the copies have room for lines of whole packs.
    unsafe { stream.launch::<GemmPad>(blocks, (from_a, to_a, a, from_b, to_b, b)) }
}

impl<'a, T: Float + Half, C: Float + Element> Problem<'a, T, C> {
    /// Copies misaligned operands, then takes the path for operands in packs. Without memory for the copies it takes the path
    /// for any strides.
    pub(super) fn launch_padded(self, stream: &Stream) -> Result<()> {
        let copies = Copied::of(stream, &self.a).and_then(|a| Ok([a, Copied::of(stream, &self.b)?]));
        let mut copies = match copies {
            Err(Error::OutOfMemory { .. }) => return self.launch_mma(stream),
            copies => copies?,
        };
        copy(self.info, stream, [&self.a, &self.b], &mut copies)?;
        let [a, b] = [(&copies[0], &self.a), (&copies[1], &self.b)].map(|(copied, operand)| match copied {
            Some(copied) => copied.view(operand),
            None => Ok(Operand::new(operand.rows)),
        });
        let (a, b) = (a?, b?);
        let mut sizes = self.sizes;
        (sizes.a, sizes.b) = (a.layout.strides, b.layout.strides);
        let problem = Problem { a, b, sizes, ..self };
        let facts = problem.facts();
        match facts.fits_hopper() {
            Some(_) if stream.device().supports_hopper() => problem.launch_by(stream, Path::Tiles(facts.tiles(stream))),
            _ => problem.launch_mma(stream),
        }
    }
}
