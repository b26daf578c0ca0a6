//! The formula has two inputs, the launch one.

use warpsmith::{Result, Stream, Tensor, ops};

gpu_kernels::row! {
    fn scaled([x, weight]: [f32; 2]) -> f32 {
        let greatest = max(x);
        x / greatest * weight
    }
}

fn launch(stream: &Stream, x: &Tensor<f32>) -> Result<Tensor<f32>> {
    ops::row(stream, [x], scaled)
}

fn main() {
    let _ = launch;
}
