//! Normalisation of rows.

pub mod rms_norm;

pub use rms_norm::{rms_norm, rms_norm_into};

use gpu_kernels::rows::WARP_ROWS;

use super::model::{Arrangement, Case, OpInfo};
use crate::runtime::dtype::DType;

/// Which kernel a row length gets, and how many threads share a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RowPlan {
    /// A warp a row, so many packs a thread.
    Warp1,
    Warp4,
    /// A block of so many threads a row.
    Block2(u32),
    Block4(u32),
    Block8(u32),
    /// Rows of any length and alignment.
    Any,
}

impl RowPlan {
    /// For rows of `d` elements: the fewest registers that keep a row on chip, in whole warps. `aligned` says that rows start at
    /// multiples of 16 bytes.
    pub(super) fn new<T>(d: usize, aligned: bool) -> Self {
        let lanes = gpu_kernels::lanes::<T>();
        let packs = d / lanes;
        let threads = |v: usize| packs.div_ceil(v).next_multiple_of(32) as u32;
        match packs {
            _ if !aligned || !d.is_multiple_of(lanes) => Self::Any,
            0..=32 => Self::Warp1,
            33..=128 => Self::Warp4,
            129..=1024 => Self::Block2(threads(2)),
            1025..=2048 => Self::Block4(threads(4)),
            2049..=4096 => Self::Block8(threads(8)),
            _ => Self::Any,
        }
    }

    pub(super) fn rows_per_block(self) -> usize {
        match self {
            Self::Warp1 | Self::Warp4 => WARP_ROWS as usize,
            _ => 1,
        }
    }
}

/// The cases of a row operator in a type: every kernel of the plan, and rows of `padded` tensors differently far apart.
pub(super) fn cases(info: &'static OpInfo, dtype: DType, padded: [&'static str; 2]) -> Vec<Case> {
    let dims = |rows, d| [("rows", rows), ("d", d)];
    let lanes = 16 / dtype.size();
    let [x, y] = padded;
    let pads =
        |case: Case, a, b| case.arrange(x, Arrangement::DENSE.row_pad(a)).arrange(y, Arrangement::DENSE.row_pad(b));
    let mut cases = vec![
        Case::odd(info, dtype, dims(37, 1000)),
        Case::odd(info, dtype, dims(37, 1003)),
        Case::odd(info, dtype, dims(5, 70_001)),
        Case::odd(info, dtype, dims(9, 2048)).offset(1),
        pads(Case::odd(info, dtype, dims(9, 768)), 16, 40),
        pads(Case::odd(info, dtype, dims(9, 3072)), 24, 8),
        pads(Case::odd(info, dtype, dims(9, 768)), 3, 5),
        Case::tiny(info, dtype, dims(1, 1)),
        Case::tiny(info, dtype, dims(3, 8)),
        Case::empty(info, dtype, dims(0, 128)),
        Case::empty(info, dtype, dims(128, 0)),
    ];
    // The last row length of every kernel and the first of the next.
    for packs in [32, 33, 128, 129, 1024, 1025, 2048, 2049, 4096, 4097] {
        cases.push(Case::boundary(info, dtype, dims(3, packs * lanes)));
    }
    cases
}
