//! Kernels of one's own: y = a · x + y, and formulas that are fused.

use axpy_kernels::{Axpy, relu_squared, soft_cap, soften};
use warpsmith::launch::Kernel;
use warpsmith::{Device, Error, Result, Stream, Tensor, ops};

/// Adds `a` times `x` to `y`.
fn axpy(stream: &Stream, a: f32, x: &Tensor<f32>, y: &mut Tensor<f32>) -> Result<()> {
    if x.shape() != y.shape() {
        return Err(Error::shape("axpy", "y", y.shape(), format!("{:?}, that of `x`", x.shape())));
    }
    let n = x.len() as u64;
    if n == 0 {
        return Ok(());
    }
    let blocks = n.div_ceil(u64::from(Axpy::<f32>::BLOCK.x)) as u32;
    let (x, mut y) = (x.view(), y.view_mut());
    // SAFETY: both hold n elements.
    unsafe { stream.launch::<Axpy<f32>>(blocks, (a, x.ptr(stream)?, y.ptr_mut(stream)?, n)) }
}

/// A stream of a device that has the kernels.
fn stream() -> Result<Stream> {
    let device = Device::open()?;
    device.add_kernels(warpsmith::include_kernels!())?;
    device.stream()
}

/// Two tensors of `n` elements through the kernel.
fn run(n: usize) -> Result<Vec<f32>> {
    let stream = stream()?;
    let x = Tensor::from_slice(&stream, [n], &(0..n).map(|i| i as f32).collect::<Vec<_>>())?;
    let mut y = Tensor::filled(&stream, [n], 1.0)?;
    axpy(&stream, 2.0, &x, &mut y)?;
    y.to_vec(&stream)
}

/// A tensor through the formulas, a kernel each, with one row of `bias` for all rows.
fn fused(x: &[f32], bias: &[f32]) -> Result<[Vec<f32>; 3]> {
    let stream = stream()?;
    let shape = [x.len() / bias.len(), bias.len()];
    let (x, bias) = (Tensor::from_slice(&stream, shape, x)?, Tensor::from_slice(&stream, [bias.len()], bias)?);
    let squared = ops::map(&stream, &x, relu_squared)?;
    let capped = ops::zip(&stream, [x.view(), bias.view().broadcast(shape)?], soft_cap(30.0))?;
    let soft = ops::row(&stream, [&x], soften(2.0))?;
    Ok([squared.to_vec(&stream)?, capped.to_vec(&stream)?, soft.to_vec(&stream)?])
}

fn main() -> Result<()> {
    println!("{:?}", run(10)?);
    println!("{:?}", fused(&[-1.0, 2.0, 100.0, 3.0], &[0.0, 1.0])?);
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_element_is_computed() {
        let y = super::run(1000).unwrap();
        assert!(y.iter().enumerate().all(|(i, y)| *y == 2.0 * i as f32 + 1.0), "{y:?}");
    }

    #[test]
    fn formulas_are_computed() {
        let x: Vec<f32> = (0..4000).map(|i| i as f32 / 40.0 - 50.0).collect();
        let bias = [0.5, -0.5, 3.0, 0.0];
        let [squared, capped, soft] = super::fused(&x, &bias).unwrap();
        let mut expected = [0.0; 4];
        for (i, &value) in x.iter().enumerate() {
            if i % 4 == 0 {
                super::soften(2.0).values([&x[i..i + 4]], &mut expected);
            }
            assert_eq!(squared[i], super::relu_squared.value(value));
            let found = [(capped[i], super::soft_cap(30.0).value(value, bias[i % 4])), (soft[i], expected[i % 4])];
            for (found, expected) in found {
                assert!((found - expected).abs() <= 1e-5 * expected.abs(), "{value}: {found}, not {expected}");
            }
        }
    }
}
