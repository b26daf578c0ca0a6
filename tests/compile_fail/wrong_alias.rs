//! A tensor is read and written at once.

use warpsmith::{Result, Stream, Tensor};

fn alias(stream: &Stream) -> Result<()> {
    let mut x = Tensor::<f32>::zeros(stream, [4])?;
    let read = x.view();
    x.view_mut().copy_from(stream, read)
}

fn main() {
    let _ = alias;
}
