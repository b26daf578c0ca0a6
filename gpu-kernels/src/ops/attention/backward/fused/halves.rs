//! The work of the two halves of a block on a tile.

use core::array;

use cuda_std::float::Half;
use cuda_std::math::{ex2_approx_ftz, fma};
use cuda_std::shared::SharedPtr;
use cuda_std::vector::Pack;
use cuda_std::{atomic, cp_async, matrix, thread};

use super::{Block, KEYS, MT, Place, WARP_KEYS, WARPS, chunk, products};
use crate::ops::attention::{Bias, LOG2_E, fragments};

/// Queries of a part.
const PART: u32 = 64;
/// Products of 8 of them.
const NT: usize = (PART / 8) as usize;

/// A warp's 32 keys by a part's queries: of lane l, `[i][j][0..2]` are key 16i + l/4 and queries 8j + 2(l mod 4) and the next, `[2..4]` the key 8 below.
type Square = [[[f32; 4]; NT]; MT];
/// The same values rounded, one register for each pair of queries: `[i][j][r]`, where r selects the key.
type Rounded = [[[u32; 2]; NT]; MT];

/// Operand A of 16 queries: step `step` of the rounded accumulators.
#[inline(always)]
fn operand(rounded: &Rounded, step: usize) -> [[u32; 4]; MT] {
    array::from_fn(|i| {
        let [[a, b], [c, d]] = [rounded[i][2 * step], rounded[i][2 * step + 1]];
        [a, b, c, d]
    })
}

impl<T: Half, const DT: usize> Block<'_, T, DT> {
    /// The first place of the walk.
    #[inline(always)]
    pub(super) fn start(&self) -> Place {
        Place { head: self.tile.head * self.problem.group, tile: self.first }
    }

    /// The place after this one: the walk goes over the tiles of a head, then over those of the next head that shares
    /// the keys.
    #[inline(always)]
    fn next(&self, Place { head, tile }: Place) -> Place {
        if tile + 1 == self.end { Place { head: head + 1, tile: self.first } } else { Place { head, tile: tile + 1 } }
    }

    /// The walk of a warp of half `HALF`. Returns its dV or its dK, without the factor.
    #[inline(always)]
    pub(super) unsafe fn walk<const HELD: usize, const PARTS: u32, const BIASED: bool, const HALF: u32>(
        &self,
    ) -> [[[f32; 4]; DT]; MT] {
        let own = if HALF == 0 { self.memory.k() } else { self.memory.v() };
        let row = self.warp * WARP_KEYS;
        let mut acc = [[[0.0f32; 4]; DT]; MT];
        let mut held = [[[0u32; 4]; MT]; HELD];
        let steps = (self.end - self.first) * self.problem.group;
        if HELD > 0 && steps > 0 {
            // K and V have landed; the first tile may not have.
            cp_async::wait_group::<1>();
            thread::sync_threads();
            for step in 0..HELD {
                held[step] =
                    array::from_fn(|i| fragments::a::<T, DT>(own, row + i as u32 * 16, step as u32, self.lane));
            }
        }
        let (mut now, mut before) = (self.start(), self.start());
        let mut step = 0;
        // The last turn only computes dQ of the last tile.
        while step <= steps {
            // This tile has landed, dS of the tile before is in shared memory, and all warps are done with that tile
            // and with dQ of the tile before it.
            cp_async::wait_group::<0>();
            thread::sync_threads();
            let next = self.next(now);
            if step + 1 < steps {
                self.load(step + 1, next);
            }
            if HALF == 1 && step > 0 {
                self.add_dq(step - 1, before);
            }
            if step < steps {
                for part in 0..PARTS {
                    if HALF == 0 {
                        self.sum_dv::<HELD, BIASED>(&mut acc, &held, step, now, part);
                    } else {
                        self.sum_dk::<HELD>(&mut acc, &held, step, part);
                    }
                }
            }
            if HALF == 0 && step > 0 {
                self.add_dq(step - 1, before);
            }
            (before, now) = (now, next);
            step += 1;
        }
        acc
    }

    /// `acc` += this warp's rows of `own` by the part's rows of `other`, transposed.
    #[inline(always)]
    unsafe fn product<const HELD: usize>(
        &self,
        acc: &mut Square,
        own: SharedPtr<T>,
        held: &[[[u32; 4]; MT]; HELD],
        other: SharedPtr<T>,
        part: u32,
    ) {
        let row = self.warp * WARP_KEYS;
        let a = |step: usize| {
            if HELD > 0 {
                held[step]
            } else {
                array::from_fn(|i| fragments::a::<T, DT>(own, row + i as u32 * 16, step as u32, self.lane))
            }
        };
        products::by_rows::<T, DT, MT, NT>(acc, a, other, part * PART, self.lane);
    }

    /// The position of this thread's four registers of a row in P and dS, within part `h` of 32 queries.
    #[inline(always)]
    fn own_chunk(&self, step: u32, part: u32, i: usize, r: usize, h: usize) -> SharedPtr<Pack<u32, 4>> {
        let row = self.warp * WARP_KEYS + i as u32 * 16 + r as u32 * 8 + self.lane / 4;
        let at = chunk(row, part * (PART / 8) + h as u32 * 4 + self.lane % 4, Self::QUERIES);
        self.memory.weights(step).add(at).cast()
    }

    /// `acc` += `weights` by the part's rows of `other`.
    #[inline(always)]
    unsafe fn accumulate(&self, acc: &mut [[[f32; 4]; DT]; MT], weights: &Rounded, other: SharedPtr<T>, part: u32) {
        let a = |step| operand(weights, step);
        products::over_rows::<T, DT, MT, { NT / 2 }>(acc, a, other, part * PART, self.lane);
    }

    /// The named barrier of this warp and the warp of the other half that has the same keys.
    #[inline(always)]
    fn pair(&self, part: u32) -> u32 {
        1 + part * WARPS + self.warp
    }

    /// Computes S and P of a part, passes P to the other half, and adds the part's share of dV.
    #[inline(always)]
    unsafe fn sum_dv<const HELD: usize, const BIASED: bool>(
        &self,
        acc: &mut [[[f32; 4]; DT]; MT],
        held: &[[[u32; 4]; MT]; HELD],
        step: u32,
        place: Place,
        part: u32,
    ) {
        let mut s: Square = [[[0.0; 4]; NT]; MT];
        self.product(&mut s, self.memory.k(), held, self.memory.q(step), part);
        let query = place.tile * Self::QUERIES + part * PART;
        let key = self.tile.first + self.warp * WARP_KEYS;
        // Queries past the end have zeros for scores; their weights have to be 0.
        let there = query + PART <= self.tile.sequence.q_len;
        let whole = there && self.span.sees_all(query as i32, PART as i32, key as i32, WARP_KEYS as i32);
        let bias = Bias::of(self.problem, self.slopes, &self.tile, place.head);
        let p = if whole {
            self.weights::<BIASED, false>(&s, step, part, query, key, bias)
        } else {
            self.weights::<BIASED, true>(&s, step, part, query, key, bias)
        };
        thread::named_barrier::arrive(self.pair(part), 64);
        self.accumulate(acc, &p, self.memory.d_o(step), part);
    }

    /// P of S, rounded; in shared memory multiplied with the soft cap's slope. `query` is the part's first, `key` the warp's; with `MASKED` some see some not.
    #[inline(always)]
    unsafe fn weights<const BIASED: bool, const MASKED: bool>(
        &self,
        s: &Square,
        step: u32,
        part: u32,
        query: u32,
        key: u32,
        bias: Bias,
    ) -> Rounded {
        let (lane, scale) = (self.lane, self.problem.scale);
        let mut p: Rounded = [[[0; 2]; NT]; MT];
        let mut shared = p;
        for j in 0..NT {
            let column = j as u32 * 8 + lane % 4 * 2;
            let exponents = self.memory.exponents(step).add(part * PART + column);
            let Pack(exponents) = Pack::<f32, 2>::load(exponents.as_ptr());
            for i in 0..MT {
                for r in 0..2 {
                    let key = (key + i as u32 * 16 + r as u32 * 8 + lane / 4) as i32;
                    let (mut weights, mut slopes) = ([0.0; 2], [1.0; 2]);
                    for c in 0..2 {
                        let (query, x) = ((query + column + c as u32) as i32, s[i][j][2 * r + c]);
                        let exponent = if BIASED {
                            let (capped, slope) = bias.cap(x * scale);
                            slopes[c] = slope;
                            fma(capped - bias.penalty(query, key), LOG2_E, -exponents[c])
                        } else {
                            fma(x, scale * LOG2_E, -exponents[c])
                        };
                        let seen = !MASKED || self.span.sees(query, key) && query < self.span.queries;
                        weights[c] = if seen { ex2_approx_ftz(exponent) } else { 0.0 };
                    }
                    p[i][j][r] = T::pack(weights[0], weights[1]);
                    shared[i][j][r] =
                        if BIASED { T::pack(weights[0] * slopes[0], weights[1] * slopes[1]) } else { p[i][j][r] };
                }
            }
            if j % 4 == 3 {
                for i in 0..MT {
                    for r in 0..2 {
                        let four = Pack(array::from_fn(|n| shared[i][j - 3 + n][r]));
                        self.own_chunk(step, part, i, r, j / 4).write(four);
                    }
                }
            }
        }
        p
    }

    /// Computes dP and dS of a part, and adds its share of dK.
    #[inline(always)]
    unsafe fn sum_dk<const HELD: usize>(
        &self,
        acc: &mut [[[f32; 4]; DT]; MT],
        held: &[[[u32; 4]; MT]; HELD],
        step: u32,
        part: u32,
    ) {
        let mut dp: Square = [[[0.0; 4]; NT]; MT];
        for j in 0..NT {
            let deltas = self.memory.deltas(step).add(part * PART + j as u32 * 8 + self.lane % 4 * 2);
            let Pack([left, right]) = Pack::<f32, 2>::load(deltas.as_ptr());
            for i in 0..MT {
                dp[i][j] = [-left, -right, -left, -right];
            }
        }
        self.product(&mut dp, self.memory.v(), held, self.memory.d_o(step), part);
        thread::named_barrier::sync(self.pair(part), 64);
        let mut ds: Rounded = [[[0; 2]; NT]; MT];
        for i in 0..MT {
            for r in 0..2 {
                for h in 0..NT / 4 {
                    let at = self.own_chunk(step, part, i, r, h);
                    let Pack(p) = at.read();
                    for n in 0..4 {
                        let ([left, right], j) = (T::unpack(p[n]), h * 4 + n);
                        ds[i][j][r] = T::pack(dp[i][j][2 * r] * left, dp[i][j][2 * r + 1] * right);
                    }
                    at.write(Pack(array::from_fn(|n| ds[i][h * 4 + n][r])));
                }
            }
        }
        self.accumulate(acc, &ds, self.memory.q(step), part);
    }

    /// Adds 32 positions by 32 columns of dQ of the tile at `place`, walked over in `step`, to its sum.
    #[inline(always)]
    unsafe fn add_dq(&self, step: u32, place: Place) {
        let (lane, warp, across) = (self.lane, self.half * WARPS + self.warp, DT as u32 / 4);
        let (position, pair) = (warp / across * 32, warp % across * 2);
        // Rows are keys, the inner dimension: operand A comes transposed.
        let a = |row: u32| -> [[u32; 4]; 2] {
            array::from_fn(|i| {
                let column = position / 8 + i as u32 * 2 + lane / 8 % 2;
                let at = chunk(row + lane / 16 * 8 + lane % 8, column, Self::QUERIES);
                matrix::load_x4_transposed(self.memory.weights(step).add(at))
            })
        };
        let b = |row: u32| -> [[[u32; 2]; 2]; 2] {
            array::from_fn(|j| fragments::b_transposed::<T, DT>(self.memory.k(), row, pair + j as u32, lane))
        };
        let mut acc = [[[0.0f32; 4]; 4]; 2];
        let mut next = (a(0), b(0));
        for row in (0..KEYS).step_by(16) {
            let (a_now, b_now) = next;
            if row + 16 < KEYS {
                next = (a(row + 16), b(row + 16));
            }
            for j in 0..2 {
                products::multiply::<T, 4, 2>(&mut acc, j, a_now, b_now[j]);
            }
        }
        let piece = u64::from(place.head) * u64::from(self.pieces) + u64::from(place.tile);
        let at = piece * u64::from(Self::PIECE) + u64::from(warp * 1024 + lane);
        let sums = self.sums.add(at as usize);
        for i in 0..2 {
            for j in 0..4 {
                for e in 0..4 {
                    atomic::red_add_f32_global(sums.add((i * 16 + j * 4 + e) * 32), acc[i][j][e]);
                }
            }
        }
    }
}
