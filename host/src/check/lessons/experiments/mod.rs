//! Kernels that are not part of any operator, wrapped as operators, so that the code that verifies, counts
//! and times operators works for these as well.
//!
//! They have a separate list, which keeps them out of the library.

mod branches;
mod gelu_by_hand;
mod narrow_sums;
mod packs_in_flight;
mod pointer_chase;
mod reverse_blocks;
mod rows;
mod strided_copy;

pub(super) use gelu_by_hand::OPERANDS as GELU_OPERANDS;
pub(super) use narrow_sums::{KEPT, sum};
pub(super) use pointer_chase::PLACES;

use crate::ops::model::Operator;

/// The lessons' own kernels. `verify` and `sanitize` check them with the operators, and every subcommand knows them by their names.
pub static EXPERIMENTS: &[&dyn Operator] = &[
    &branches::Branches,
    &gelu_by_hand::GeluByHand,
    &narrow_sums::NarrowSums,
    &packs_in_flight::Copies,
    &pointer_chase::PointerChase,
    &reverse_blocks::ReverseBlocks,
    &strided_copy::StridedCopy,
];
