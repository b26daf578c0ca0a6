//! Tensors in host memory: files, references and comparisons.

use std::ops::Range;

use bytemuck::Pod;
use cuda_std::fp8::{f8e4m3, f8e5m2, f8e8m0};
use half::{bf16, f16};

use crate::runtime::dtype::{DType, Dtype, for_each_dtype};
use crate::runtime::error::{Error, Result};
use crate::runtime::shape::Shape;

/// A dense row-major tensor in host memory, its element type known at run time.
#[derive(Debug, Clone, PartialEq)]
pub struct HostTensor {
    dtype: DType,
    shape: Shape,
    bytes: Vec<u8>,
}

/// Runs `$body` with `$t` standing for the Rust type of a [`DType`].
macro_rules! define {
    ($(($variant:ident, $ty:ty, $name:literal, $doc:literal, $to:expr, $from:expr),)*) => {
        macro_rules! with_dtype {
            ($dtype:expr, $t:ident => $body:expr) => {
                match $dtype { $(DType::$variant => { type $t = $ty; $body })* }
            };
        }
    };
}
for_each_dtype!(define);

impl HostTensor {
    /// Takes elements as bytes, in the machine's byte order.
    pub fn new(dtype: DType, shape: impl AsRef<[usize]>, bytes: Vec<u8>) -> Result<Self> {
        let shape = Shape::new(shape.as_ref())?;
        let expected = shape.elements().checked_mul(dtype.size());
        if expected != Some(bytes.len()) {
            return Err(Error::shape(
                "host tensor",
                "bytes",
                &[bytes.len()],
                format!("{} elements of {dtype} for shape {shape}", shape.elements()),
            ));
        }
        Ok(Self { dtype, shape, bytes })
    }

    /// Copies elements.
    pub fn from_slice<T: Dtype>(shape: impl AsRef<[usize]>, data: &[T]) -> Result<Self> {
        let shape = shape_of(shape.as_ref(), data.len())?;
        Self::new(T::DTYPE, shape, bytemuck::cast_slice(data).to_vec())
    }

    /// Rounds each value to the nearest `dtype`.
    pub fn from_f64(dtype: DType, shape: impl AsRef<[usize]>, data: &[f64]) -> Result<Self> {
        let shape = shape_of(shape.as_ref(), data.len())?;
        let bytes = with_dtype!(dtype, T => bytes_of_values::<T>(data));
        Self::new(dtype, shape, bytes)
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Extents, slowest dimension first.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The elements as bytes, in the machine's byte order.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The elements as bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.elements()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements, if they are `T`s.
    pub fn to_vec<T: Dtype>(&self) -> Result<Vec<T>> {
        if self.dtype != T::DTYPE {
            return Err(Error::dtype("to_vec", "self", self.dtype, T::DTYPE.name()));
        }
        // Not a cast: the byte vector need not be aligned for `T`.
        Ok(self.elements::<T>(0..self.len()).collect())
    }

    /// All elements in double precision.
    pub fn to_f64(&self) -> Vec<f64> {
        self.values(0..self.len())
    }

    /// A range of the elements, in row-major order, in double precision.
    pub fn range_f64(&self, range: Range<usize>) -> Result<Vec<f64>> {
        if range.start > range.end || range.end > self.len() {
            return Err(Error::param(
                "range_f64",
                "range",
                format!("{range:?}"),
                format!("a range within 0..{}", self.len()),
            ));
        }
        Ok(self.values(range))
    }

    /// The elements at these places, in row-major order, in double precision.
    pub fn select_f64(&self, places: impl IntoIterator<Item = usize>) -> Result<Vec<f64>> {
        let outside = |at: usize| Error::param("select_f64", "place", at, format!("an index below {}", self.len()));
        with_dtype!(self.dtype, T => {
            // As in `values`.
            match bytemuck::try_cast_slice::<u8, T>(&self.bytes) {
                Ok(elements) => {
                    places.into_iter().map(|at| elements.get(at).map(|x| x.to_f64()).ok_or_else(|| outside(at))).collect()
                }
                Err(_) => {
                    places.into_iter().map(|at| self.element::<T>(at).map(Dtype::to_f64).ok_or_else(|| outside(at))).collect()
                }
            }
        })
    }

    fn element<T: Pod>(&self, at: usize) -> Option<T> {
        let from = at.checked_mul(size_of::<T>())?;
        self.bytes.get(from..from.checked_add(size_of::<T>())?).map(bytemuck::pod_read_unaligned)
    }

    fn values(&self, range: Range<usize>) -> Vec<f64> {
        with_dtype!(self.dtype, T => {
            // References do little else: five times as fast as the elements one by one, without optimisation.
            match bytemuck::try_cast_slice::<u8, T>(&self.bytes[range.start * size_of::<T>()..range.end * size_of::<T>()]) {
                Ok(elements) => elements.iter().map(|x| x.to_f64()).collect(),
                Err(_) => self.elements::<T>(range).map(Dtype::to_f64).collect(),
            }
        })
    }

    fn elements<T: Pod>(&self, range: Range<usize>) -> impl Iterator<Item = T> + '_ {
        let size = size_of::<T>();
        self.bytes[range.start * size..range.end * size].chunks_exact(size).map(bytemuck::pod_read_unaligned)
    }
}

/// The shape, of which there have to be as many values as it has elements.
fn shape_of(dims: &[usize], values: usize) -> Result<Shape> {
    let shape = Shape::new(dims)?;
    match shape.elements() == values {
        true => Ok(shape),
        false => Err(Error::shape(
            "host tensor",
            "data",
            &[values],
            format!("{} elements for shape {shape}", shape.elements()),
        )),
    }
}

fn bytes_of_values<T: Dtype>(data: &[f64]) -> Vec<u8> {
    let mut bytes = vec![0; data.len() * size_of::<T>()];
    for (bytes, &value) in bytes.chunks_exact_mut(size_of::<T>()).zip(data) {
        bytes.copy_from_slice(bytemuck::bytes_of(&T::from_f64(value)));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_round_trips_through_f64() {
        for &dtype in DType::ALL {
            let values = if dtype == DType::F8E8M0 { [0.5, 1.0, 2.0, 4.0] } else { [0.0, 1.0, 2.0, 3.0] };
            let tensor = HostTensor::from_f64(dtype, [2, 2], &values).unwrap();
            assert_eq!(tensor.bytes().len(), 4 * dtype.size());
            assert_eq!(tensor.to_f64(), values);
            assert_eq!(tensor.range_f64(1..3).unwrap(), [1.0, 2.0]);
            assert!(tensor.range_f64(3..5).is_err());
        }
    }

    #[test]
    fn sizes_and_types_are_checked() {
        let said = |tensor: Result<HostTensor>| tensor.unwrap_err().to_string();
        assert_eq!(
            said(HostTensor::new(DType::F32, [2], vec![0; 7])),
            "host tensor: `bytes` has shape [7], expected 2 elements of float32 for shape [2]"
        );
        let values = "host tensor: `data` has shape [3], expected 4 elements for shape [2, 2]";
        assert_eq!(said(HostTensor::from_slice([2, 2], &[0f32; 3])), values);
        assert_eq!(said(HostTensor::from_f64(DType::F32, [2, 2], &[0.0; 3])), values);
        let tensor = HostTensor::from_slice([2], &[1.5f32, 2.5]).unwrap();
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [1.5, 2.5]);
        assert_eq!(tensor.to_vec::<i32>().unwrap_err().to_string(), "to_vec: `self` is float32, expected int32");
    }
}
