//! Operands whose rows lie between packs of 16 bytes, copied to where packs can be taken of them.

use cuda_std::float::{Element, Half};

use super::super::operand::{Major, Operand, gains_from_copies};
use super::problem::Problem;
use crate::ops::elementwise::copy_into;
use crate::runtime::dtype::Float;
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::View;

/// Multiply-adds from which on copies are worth their launches, and rows and columns from which on they are worth their traffic.
const WORTH: [u64; 2] = [1 << 28, 128];

/// Why the path does not take a problem.
const WANTED: &str =
    "operands with adjacent elements along one dimension, of which one does not lie at multiples of 16 bytes";

/// A copy of an operand that lies as it does, its rows or columns at multiples of 16 bytes; or nothing if it lies so, or has no adjacent elements.
struct Copied<T>(Option<(Tensor<T>, Major)>);

impl<T: Float> Copied<T> {
    fn of(stream: &Stream, operand: &Operand<'_, T>) -> Result<Self> {
        let Some(major) = operand.lies.adjacent().filter(|_| operand.lies.major.is_none()) else {
            return Ok(Self(None));
        };
        let from = turned(operand.rows, major);
        let mut shape = from.shape().to_vec();
        if let Some(d) = shape.last_mut() {
            *d = d.next_multiple_of(16 / size_of::<T>());
        }
        let mut copy = Tensor::uninit(stream, &shape)?;
        let strides = copy.view().strides().to_vec();
        copy_into(stream, from, copy.view_mut().strided(0, from.shape(), &strides)?)?;
        Ok(Self(Some((copy, major))))
    }

    /// The copy of that operand, or the operand itself.
    fn or<'a>(&'a self, operand: &Operand<'a, T>) -> Result<Operand<'a, T>> {
        let Self(Some((copy, major))) = self else { return Ok(Operand::new(operand.rows)) };
        let shape = turned(operand.rows, *major);
        let view = copy.view().strided(0, shape.shape(), copy.view().strides())?;
        Ok(Operand::new(turned(view, *major)))
    }
}

/// Rows along k as rows of adjacent elements, and back.
fn turned<T>(rows: View<'_, T>, major: Major) -> View<'_, T> {
    if major == Major::Mn { rows.t() } else { rows }
}

impl<'a, T: Float + Half, C: Float + Element> Problem<'a, T, C> {
    /// Whether copies would be worth it.
    pub(super) fn is_worth_padding(&self) -> bool {
        let [least, side] = WORTH;
        let [m, n, k, batch] = [self.sizes.m, self.sizes.n, self.sizes.k, self.sizes.batch].map(u64::from);
        self.fits_padded() && m.min(n) >= side && m * n >= (least / (k * batch).max(1)).max(1)
    }

    /// Whether there is something to copy, and what is copied can be taken in packs.
    fn fits_padded(&self) -> bool {
        gains_from_copies([&self.a.lies, &self.b.lies])
    }

    /// By the path for operands that lie in packs, after a copy of those that do not. Without memory for the copies it is that for any strides.
    pub(super) fn launch_padded(self, stream: &Stream) -> Result<()> {
        if !self.fits_padded() {
            return Err(self.info.param_error("variant", "padded", WANTED));
        }
        let copies = Copied::of(stream, &self.a).and_then(|a| Ok((a, Copied::of(stream, &self.b)?)));
        let (a, b) = match copies {
            Err(Error::OutOfMemory { .. }) => return self.launch_mma(stream),
            copies => copies?,
        };
        let (a, b) = (a.or(&self.a)?, b.or(&self.b)?);
        let mut sizes = self.sizes;
        (sizes.a, sizes.b) = (a.lies.strides, b.lies.strides);
        let problem = Problem { a, b, sizes, ..self };
        match problem.fits_hopper() {
            Some(_) if stream.device().supports_hopper() => problem.launch_hopper(stream),
            _ => problem.launch_mma(stream),
        }
    }
}
