//! Products of a matrix with a few vectors.

#[allow(clippy::module_inception, reason = "the family has the name of its first operator")]
pub mod gemv;
pub mod gemv_int8;

pub use gemv::{gemv, gemv_into};
pub use gemv_int8::{gemv_int8, gemv_int8_into};

use cuda_std::launch::Dim3;
use gpu_kernels::ops::gemv::{BLOCK, SMALL_ROW, STRIP, VECTORS, column_blocks, column_rows, rows_per_team, team};

use super::elementwise::grid;
use super::model::*;
use crate::runtime::device::Device;
use crate::runtime::dtype::DType;
use crate::runtime::error::{Error, Result};
use crate::runtime::host_tensor::HostTensor;
use crate::runtime::shape::Shape;

/// The vectors of `x` and of `y`, `[k]` or `[batch, k]`, in the form that a kernel takes.
fn batch_of(info: &OpInfo, arg: &'static str, shape: &Shape) -> Result<(usize, usize)> {
    match *shape.dims() {
        [k] => Ok((1, k)),
        [batch, k] => Ok((batch, k)),
        _ => Err(info.shape_error(arg, shape, "[n] or [batch, n]")),
    }
}

/// The number of vectors that share a read of the matrix, and how many times it is read.
fn readings(info: &OpInfo, batch: usize, packed: bool) -> Result<[u32; 2]> {
    let shared = if packed && batch > 1 { VECTORS } else { 1 };
    let readings = batch.div_ceil(shared);
    match u32::try_from(readings) {
        Ok(readings) if readings <= 65_535 => Ok([shared as u32, readings]),
        _ => {
            Err(Error::too_large(info.name, "x", format!("{batch} vectors, at most {} are supported", 65_535 * shared)))
        }
    }
}

/// The number of rows per block of a kernel that walks columns, for elements of these sizes in bytes,
/// of the matrix and of the vectors.
fn strip(packed: bool, shared: u32, [of_a, of_x]: [usize; 2]) -> usize {
    if packed { column_rows(shared as usize, of_a, of_x) } else { STRIP as usize }
}

/// The grid of a kernel that walks `m` rows of `n` elements, of these sizes in bytes for the matrix and the vectors, and
/// whether its teams are small.
fn rows_grid(
    info: &OpInfo,
    [m, n]: [usize; 2],
    [of_a, of_x]: [usize; 2],
    packed: bool,
    [shared, readings]: [u32; 2],
) -> Result<Option<(Dim3, bool)>> {
    let small = packed && shared == 1 && n * of_a / 16 <= SMALL_ROW;
    let rows = rows_per_team(shared as usize, of_a, of_x) * (BLOCK / team(small));
    let blocks = grid(info, "a", m, rows as usize)?;
    Ok(blocks.filter(|_| readings > 0).map(|x| (Dim3::new(x, readings, 1), small)))
}

/// The maximum number of waves of blocks of a kernel that walks columns: with more, parts get too short.
const MAX_WAVES: u32 = 4;

/// The launch of a kernel that walks columns, and of the kernel that adds its parts.
struct ColumnsPlan {
    grid: Dim3,
    /// The number of columns of a part, and the number of parts.
    part: u32,
    parts: u32,
    sums: Dim3,
}

impl ColumnsPlan {
    /// The plan for `[m, n]` in strips of `strip` rows and `batch` vectors of elements of this size in bytes, with this number
    /// of [`readings`]; `None` if there is nothing to do.
    fn new(
        info: &OpInfo,
        device: &Device,
        [m, strip, of_x]: [usize; 3],
        [n, batch, readings]: [u32; 3],
    ) -> Result<Option<Self>> {
        let items = if batch == 0 { 0 } else { m };
        let Some(strips) = grid(info, "a", items, strip)? else { return Ok(None) };
        let Some(sums) = grid(info, "y", m, BLOCK as usize)? else { return Ok(None) };
        if batch > 65_535 {
            return Err(Error::too_large(info.name, "x", format!("{batch} vectors, at most 65535 are supported")));
        }
        // As many parts as fill the device with whole waves of blocks, each long enough to keep the warps of a block busy for
        // a while.
        let shared = if readings < batch { VECTORS } else { 1 };
        let resident = column_blocks(shared, of_x) * device.info().multiprocessors;
        let waves = (1..=MAX_WAVES).map(|waves| (waves * resident, waves * resident / strips));
        let filled = |(room, parts): &(u32, u32)| u64::from(parts * strips) * 1000 / u64::from(*room);
        let parts = waves.filter(|(_, parts)| *parts > 0).rev().max_by_key(filled).map_or(1, |(_, parts)| parts);
        let parts = parts.min(n.div_ceil(64)).max(1);
        let part = n.div_ceil(parts);
        let parts = if part == 0 { 1 } else { n.div_ceil(part) };
        let (grid, sums) = (Dim3::new(strips, parts, readings), Dim3::new(sums, batch, 1));
        Ok(Some(Self { grid, part, parts, sums }))
    }
}

/// A column-major matrix.
const COLUMNS: Arrangement = Arrangement::DENSE.order(&[1, 0]);

/// The shape of `y` for that of `x` and m.
fn product_shape(x: &[usize], m: usize) -> Vec<usize> {
    if let [batch, _] = *x { vec![batch, m] } else { vec![m] }
}

/// The shape of vectors in a case.
fn vectors(batch: usize, length: usize) -> Vec<usize> {
    if batch == 1 { vec![length] } else { vec![batch, length] }
}

/// Rows of y = A·xᵀ, m rows per vector: `matrix` gives the rows of A.
fn products(x: &HostTensor, m: usize, rows: &[usize], matrix: impl Fn(usize) -> Vec<f64>) -> Vec<f64> {
    if x.shape().rank() < 2 {
        // A vector's rows are its elements.
        let x = x.to_f64();
        return rows.iter().map(|row| reference::dot(&matrix(*row), &x)).collect();
    }
    let wanted: Vec<_> = rows.iter().map(|batch| reference::row(x, *batch)).collect();
    let columns: Vec<Vec<f64>> = (0..m)
        .map(|row| {
            let a = matrix(row);
            wanted.iter().map(|x| reference::dot(&a, x)).collect()
        })
        .collect();
    (0..wanted.len()).flat_map(|b| columns.iter().map(move |column| column[b])).collect()
}

/// The tolerance of a sum of n products of normal values, one factor of which has the standard deviation `std`, in f32 and
/// rounded once to `dtype`.
fn tolerance(dtype: DType, n: usize, std: f64) -> Tolerance {
    let (n, ulp) = (n as f64, roundoff(DType::F32));
    let why =
        "one rounding to storage; n f32 roundings of a sum that grows to √n, walking at random: 6 standard deviations";
    Tolerance::rounded(dtype, 2.0 * n * std * ulp, 1.5 * n.sqrt() * ulp, why)
}
