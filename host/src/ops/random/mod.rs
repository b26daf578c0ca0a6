//! Random numbers and operators based on them, reproducible everywhere: an element's number follows from [`Philox`] and the
//! element's index.

pub mod dropout;
pub mod fill;
mod generator;
pub mod random_normal;
pub mod random_uniform;
pub mod sample;

pub use dropout::{dropout, dropout_backward, dropout_backward_into, dropout_into};
pub use fill::{fill, fill_into};
pub use generator::Generator;
pub use random_normal::{random_normal, random_normal_into};
pub use random_uniform::{random_uniform, random_uniform_into};
pub use sample::{Sampling, sample, sample_into};

use gpu_kernels::ops::random::quad;

use super::model::{ParamInfo, Params};
use crate::runtime::error::Result;

/// A sequence of random words. Element i of a tensor, counted over all its rows without padding, takes word i.
///
/// Word i is word i mod 4 of Philox4x32-10 for the counter (i / 4, `offset`) and the key `seed`. Equal indices of equal
/// sequences have equal words, on every device, whatever the element type and the strides; sequences with another seed or
/// another offset are independent. A program chooses one seed and counts offsets: one for every operation that needs words of
/// its own.
///
/// Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Philox {
    /// The key.
    pub seed: u64,
    /// The upper half of the counter.
    pub offset: u64,
}

impl Philox {
    /// The sequence with offset 0.
    pub const fn new(seed: u64) -> Self {
        Self { seed, offset: 0 }
    }

    /// The same seed at another offset.
    pub const fn at(self, offset: u64) -> Self {
        Self { offset, ..self }
    }

    /// The sequence that the parameters describe.
    fn of(params: &Params) -> Result<Self> {
        // Two's complement, so that every 64-bit seed can be given.
        Ok(Self { seed: params.i64("seed")? as u64, offset: params.i64("offset")? as u64 })
    }

    /// Words 4·`number` to 4·`number` + 3.
    fn words(self, number: usize) -> [u32; 4] {
        quad(self.seed, self.offset, number as u64)
    }
}

const SEED: ParamInfo = ParamInfo::int("seed", 0, "the key of the random numbers");
const OFFSET: ParamInfo = ParamInfo::int("offset", 0, "which sequence of the seed's");
