//! The maximum rates of a device: measured for memory, computed for arithmetic.

use super::prepared::{WARM_UP, time};
use super::{Row, plain};
use crate::check::random;
use crate::ops::model::InputSpec;
use crate::runtime::device::Device;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;

/// The size of the copies in the rows of other libraries; reduced if memory is short.
const COPY_BYTES: usize = 1 << 30;
/// The smallest copy that is timed.
const LEAST_BYTES: usize = 1 << 19;

/// The rates that rows are compared with.
#[derive(Clone, Debug)]
pub struct Ceilings {
    /// Bytes read and written by a device-to-device copy, in GB/s.
    pub copy_gbps: f64,
    /// That copy as a row.
    pub copy: Row,
    /// Bytes and milliseconds of this copy and of smaller ones, smallest first. In small copies, start-up and tail matter as well.
    pub copies: Vec<(u64, f64)>,
}

impl Ceilings {
    /// Measures on `device`.
    pub fn measure(device: &Device) -> Result<Self> {
        let mut copier = Copier::random(device)?;
        let most = copier.len();
        let sizes = std::iter::successors(Some(LEAST_BYTES), |bytes| Some(2 * bytes));
        let sizes = sizes.map(|bytes| bytes / size_of::<f32>()).take_while(|n| *n < most);
        let mut copies: Vec<_> = sizes.map(|n| Ok((bytes_of(n), copier.time(n)?.0))).collect::<Result<_>>()?;
        let (ms, min_ms) = copier.time(most)?;
        let (bytes, copied) = (bytes_of(most), most * size_of::<f32>());
        copies.push((bytes, ms));
        let gbps = bytes as f64 / ms / 1e6;
        let name = if copied == COPY_BYTES { "1GiB".to_owned() } else { format!("{}MiB", copied >> 20) };
        let copy = Row { bytes, gbps: Some(gbps), ..plain("ceiling.copy", &name, ms, min_ms) };
        Ok(Self { copy_gbps: gbps, copy, copies })
    }

    /// Milliseconds of a copy that reads and writes this number of bytes: interpolated linearly between the measured copies,
    /// and beyond the largest at its rate.
    pub fn copy_ms(&self, bytes: u64) -> Option<f64> {
        let after = self.copies.partition_point(|(size, _)| *size < bytes);
        let Some(&(more, slower)) = self.copies.get(after) else {
            return (self.copy_gbps > 0.0).then(|| bytes as f64 / self.copy_gbps / 1e6);
        };
        let Some(&(less, faster)) = after.checked_sub(1).and_then(|before| self.copies.get(before)) else {
            return Some(slower);
        };
        Some(faster + (slower - faster) * (bytes - less) as f64 / (more - less) as f64)
    }
}

/// The bytes per second that a copy of 1 GiB, or of as much as fits, reads and writes.
pub fn copy_rate(device: &Device) -> Result<f64> {
    let stream = device.stream()?;
    let from = Tensor::filled(&stream, [room(device)], 0.5f32)?;
    let mut copier = Copier::of(stream, from)?;
    let n = copier.len();
    Ok(bytes_of(n) as f64 / copier.time(n)?.0 * 1e3)
}

/// The bytes that a copy of `n` values reads and writes.
fn bytes_of(n: usize) -> u64 {
    2 * (n * size_of::<f32>()) as u64
}

/// The number of values of the largest copy.
fn room(device: &Device) -> usize {
    COPY_BYTES.min(device.info().memory_bytes as usize / 8) / size_of::<f32>()
}

/// The source and destination of the copies.
struct Copier {
    stream: Stream,
    from: Tensor<f32>,
    to: Tensor<f32>,
}

impl Copier {
    fn of(stream: Stream, from: Tensor<f32>) -> Result<Self> {
        let to = Tensor::uninit(&stream, [from.len()])?;
        Ok(Self { stream, from, to })
    }

    /// With random values, which no device can compress.
    fn random(device: &Device) -> Result<Self> {
        let (stream, n) = (device.stream()?, room(device));
        let values = random::tensor(&InputSpec::normal("x", DType::F32, [n]), 0)?.to_vec::<f32>()?;
        let from = Tensor::from_slice(&stream, [n], &values)?;
        Self::of(stream, from)
    }

    fn len(&self) -> usize {
        self.from.len()
    }

    /// Median and minimum milliseconds of copies of `n` values; each copies other values, so that none finds them in L2.
    fn time(&mut self, n: usize) -> Result<(f64, f64)> {
        let places = self.len() / n;
        let mut at = 0;
        let stream = self.stream.clone();
        let mut copy = || {
            let range = at * n..(at + 1) * n;
            at = (at + 1) % places;
            self.to.view_mut().slice(range.clone())?.copy_from(&self.stream, self.from.view().slice(range)?)
        };
        for _ in 0..WARM_UP {
            copy()?;
        }
        stream.synchronize()?;
        time(&stream, copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_s_time_lies_between_those_of_its_neighbours() {
        let copies = vec![(100, 1.0), (200, 1.5), (400, 2.0)];
        let ceilings = Ceilings { copy_gbps: 2e-4, copy: plain("ceiling.copy", "", 2.0, 2.0), copies };
        let times = [1, 100, 150, 200, 300, 400, 800].map(|bytes| ceilings.copy_ms(bytes).unwrap());
        assert_eq!(times, [1.0, 1.0, 1.25, 1.5, 1.75, 2.0, 4.0]);
    }
}
