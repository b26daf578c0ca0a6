//! Kernels for the lessons, each of which demonstrates one effect; the lessons launch them beside the operators.

pub mod branches;
pub mod gelu_by_hand;
pub mod narrow_sums;
pub mod packs_in_flight;
pub mod pointer_chase;
pub mod reverse_blocks;
pub mod strided_copy;
