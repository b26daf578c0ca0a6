//! A tensor is dropped while a view of it is in use.

use warpsmith::{Result, Stream, Tensor};

fn dangling(stream: &Stream) -> Result<Vec<f32>> {
    let x = Tensor::<f32>::zeros(stream, [4])?;
    let view = x.view();
    drop(x);
    view.to_vec(stream)
}

fn main() {
    let _ = dangling;
}
