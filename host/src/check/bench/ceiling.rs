//! What a device can do at most: measured for memory, computed for arithmetic.

use super::prepared::{WARM_UP, time};
use super::{Row, plain};
use crate::check::random;
use crate::ops::model::InputSpec;
use crate::runtime::device::Device;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::tensor::Tensor;

/// What other libraries' rows copy; less where memory is short.
const COPY_BYTES: usize = 1 << 30;

/// The rates that rows are compared with.
#[derive(Clone, Debug)]
pub struct Ceilings {
    /// Bytes read and written by a device-to-device copy, in GB/s.
    pub copy_gbps: f64,
    /// That copy as a row.
    pub copy: Row,
}

impl Ceilings {
    /// Measures on `device`.
    pub fn measure(device: &Device) -> Result<Self> {
        let stream = device.stream()?;
        let copied = COPY_BYTES.min(device.info().memory_bytes as usize / 8);
        let n = copied / size_of::<f32>();
        let values = random::tensor(&InputSpec::normal("x", DType::F32, [n]), 0)?.to_vec::<f32>()?;
        let from = Tensor::from_slice(&stream, [n], &values)?;
        let mut to = Tensor::<f32>::uninit(&stream, [n])?;
        let mut copy = || to.view_mut().copy_from(&stream, from.view());
        for _ in 0..WARM_UP {
            copy()?;
        }
        stream.synchronize()?;
        let (ms, min_ms) = time(&stream, copy)?;
        let bytes = 2 * (n * size_of::<f32>()) as u64;
        let gbps = bytes as f64 / ms / 1e6;
        let name = if copied == COPY_BYTES { "1GiB".to_owned() } else { format!("{}MiB", copied >> 20) };
        let copy = Row { bytes, gbps: Some(gbps), ..plain("ceiling.copy", &name, ms, min_ms) };
        Ok(Self { copy_gbps: gbps, copy })
    }
}

/// Bytes a second that a copy reads and writes, of 1 GiB or what there is room for.
pub fn copy_rate(device: &Device) -> Result<f64> {
    let stream = device.stream()?;
    let n = COPY_BYTES.min(device.info().memory_bytes as usize / 8) / size_of::<f32>();
    let from = Tensor::filled(&stream, [n], 0.5f32)?;
    let mut to = Tensor::<f32>::uninit(&stream, [n])?;
    let mut copy = || to.view_mut().copy_from(&stream, from.view());
    for _ in 0..WARM_UP {
        copy()?;
    }
    let (ms, _) = time(&stream, copy)?;
    Ok((2 * n * size_of::<f32>()) as f64 / ms * 1e3)
}
