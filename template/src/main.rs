//! A kernel of one's own: y = a · x + y.

use axpy_kernels::Axpy;
use warpsmith::launch::Kernel;
use warpsmith::{Device, Error, Result, Stream, Tensor};

/// Adds `a` times `x` to `y`.
fn axpy(stream: &Stream, a: f32, x: &Tensor<f32>, y: &mut Tensor<f32>) -> Result<()> {
    if x.shape() != y.shape() {
        return Err(Error::shape("axpy", "y", y.shape(), format!("{:?}, that of `x`", x.shape())));
    }
    let n = x.len() as u64;
    let blocks = n.div_ceil(u64::from(Axpy::<f32>::BLOCK.x)) as u32;
    let (x, mut y) = (x.view(), y.view_mut());
    // SAFETY: both hold n elements.
    unsafe { stream.launch::<Axpy<f32>>(blocks, (a, x.ptr(stream)?, y.ptr_mut(stream)?, n)) }
}

/// Two tensors of `n` elements through the kernel.
fn run(n: usize) -> Result<Vec<f32>> {
    let device = Device::open()?;
    device.add_kernels(warpsmith::include_kernels!())?;
    let stream = device.stream()?;
    let x = Tensor::from_slice(&stream, [n], &(0..n).map(|i| i as f32).collect::<Vec<_>>())?;
    let mut y = Tensor::filled(&stream, [n], 1.0)?;
    axpy(&stream, 2.0, &x, &mut y)?;
    y.to_vec(&stream)
}

fn main() -> Result<()> {
    println!("{:?}", run(10)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_element_is_computed() {
        let y = super::run(1000).unwrap();
        assert!(y.iter().enumerate().all(|(i, y)| *y == 2.0 * i as f32 + 1.0), "{y:?}");
    }
}
