//! Matrix products of a warp on mma.sync, with operand B from a tile in shared memory.
//!
//! The next fragments are loaded before the current ones are multiplied, so that the tensor cores work while the load
//! is in flight.

use cuda_std::float::Half;
use cuda_std::mma;
use cuda_std::shared::SharedPtr;

use crate::ops::attention::fragments;

/// `acc` += A by rows `row ..` of `tile`, transposed: 16·`MT` rows by 8·`NT` columns. `a` gives operand A of a step of 16 of d.
#[inline(always)]
pub(super) unsafe fn by_rows<T: Half, const DT: usize, const MT: usize, const NT: usize>(
    acc: &mut [[[f32; 4]; NT]; MT],
    a: impl Fn(usize) -> [[u32; 4]; MT],
    tile: SharedPtr<T>,
    row: u32,
    lane: u32,
) {
    let (steps, pairs) = (DT / 2, NT / 2);
    let b = |step: usize, j: usize| fragments::b::<T, DT>(tile, row + j as u32 * 16, step as u32, lane);
    let (mut a_now, mut b_now) = (a(0), b(0, 0));
    for step in 0..steps {
        let mut a_next = a_now;
        for j in 0..pairs {
            let mut b_next = b_now;
            if j + 1 < pairs {
                b_next = b(step, j + 1);
            } else if step + 1 < steps {
                a_next = a(step + 1);
                b_next = b(step + 1, 0);
            }
            multiply::<T, NT, MT>(acc, j, a_now, b_now);
            b_now = b_next;
        }
        a_now = a_next;
    }
}

/// `acc` += A by rows `row ..` of `tile`: 16·`MT` rows by 8·`DT` columns, over 16·`STEPS` rows. `a` gives operand A of a step.
#[inline(always)]
pub(super) unsafe fn over_rows<T: Half, const DT: usize, const MT: usize, const STEPS: usize>(
    acc: &mut [[[f32; 4]; DT]; MT],
    a: impl Fn(usize) -> [[u32; 4]; MT],
    tile: SharedPtr<T>,
    row: u32,
    lane: u32,
) {
    let pairs = DT / 2;
    let b = |step: usize, j: usize| fragments::b_transposed::<T, DT>(tile, row + step as u32 * 16, j as u32, lane);
    let mut b_now = b(0, 0);
    for step in 0..STEPS {
        let a = a(step);
        for j in 0..pairs {
            let mut b_next = b_now;
            if j + 1 < pairs {
                b_next = b(step, j + 1);
            } else if step + 1 < STEPS {
                b_next = b(step + 1, 0);
            }
            multiply::<T, DT, MT>(acc, j, a, b_now);
            b_now = b_next;
        }
    }
}

/// The two products of 8 columns, `pair` of them, that operand B has.
#[inline(always)]
pub(super) unsafe fn multiply<T: Half, const NT: usize, const MT: usize>(
    acc: &mut [[[f32; 4]; NT]; MT],
    pair: usize,
    a: [[u32; 4]; MT],
    b: [[u32; 2]; 2],
) {
    for i in 0..MT {
        mma::m16n8k16::<T>(&mut acc[i][2 * pair], a[i], b[0]);
        mma::m16n8k16::<T>(&mut acc[i][2 * pair + 1], a[i], b[1]);
    }
}
