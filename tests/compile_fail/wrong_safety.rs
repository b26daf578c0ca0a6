//! A launch is unsafe.

use cuda_std::float::Element;
use cuda_std::{f16, kernel};
use cuda_std::launch::{DevicePtr, DevicePtrMut};
use warpsmith::{Result, Stream};

/// # Safety
/// `x` and `y` hold `n` elements.
#[kernel(dtypes(T: f32, f16), block = 128)]
unsafe fn scale<T: Element>(x: *const T, y: *mut T, factor: f32, n: u64) {
    let _ = (x, y, factor, n);
}

fn launch(stream: &Stream, x: DevicePtr<f32>, y: DevicePtrMut<f32>) -> Result<()> {
    stream.launch::<Scale<f32>>(1, (x, y, 2.0, 1))
}

fn main() {
    let _ = launch;
}
