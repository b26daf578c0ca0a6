//! Random numbers and what is made of them, reproducible everywhere: which number an element gets follows from [`Philox`] and its place.

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

/// A sequence of random words, of which a tensor's element i, counted over all its rows without their padding, has number i.
///
/// Word i is word i mod 4 of Philox4x32-10 for the counter (i / 4, `offset`) and the key `seed`. Equal places of equal sequences have
/// equal words, on every device, whatever the element type and the strides; what another seed or another offset gives is independent.
/// A program takes one seed and counts offsets: one for every operation that is to have words of its own.
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

    /// The sequence that parameters name.
    fn of(params: &Params) -> Result<Self> {
        // Two's complement: every 64-bit seed has a number.
        Ok(Self { seed: params.i64("seed")? as u64, offset: params.i64("offset")? as u64 })
    }

    /// Words 4·`number` to 4·`number` + 3.
    fn words(self, number: usize) -> [u32; 4] {
        quad(self.seed, self.offset, number as u64)
    }
}

const SEED: ParamInfo = ParamInfo::int("seed", 0, "the key of the random numbers");
const OFFSET: ParamInfo = ParamInfo::int("offset", 0, "which sequence of the seed's");
