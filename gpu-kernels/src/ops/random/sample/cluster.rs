//! Samples one token per row of logits where the shared memory of a cluster holds the row: memory is read once, however
//! many tokens are drawn.
//!
//! # Mapping
//! Eight blocks per row, each with a part of it, which one bulk copy loads. Each warp weighs a stretch of the part and
//! sends the weight to all blocks, so that each block has the weights of all stretches and can locate the stretch of a
//! random number by itself. Its threads then read the stretch's logits, 4 KB at most, again to find the token. There is
//! one cluster barrier per draw.
//!
//! # Shared memory
//! The part, of up to [`Shared`]'s `PACKS` packs; two values per warp of the cluster for the maximum, and twice three
//! words per warp for the weights, since those of one draw are written while other blocks still read those of the draw
//! before: 4 KB.
//!
//! # Cost
//! One read of the row. About 16 operations per token for the first weighing; later ones skip packs that have no better
//! token.

use core::marker::PhantomData;
use core::mem;
use core::ops::Range;

use cuda_std::float::Element;
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{cluster, kernel, math, shared_field, thread, tma, warp};

use super::draw::{Logits, Rule, Weights, pick, warp_sum};
use crate::lanes;
use crate::ops::reduce::key;
use crate::ops::reduce::top_k::{candidate, element};
use crate::rows::{CLUSTER, ClusterThreads, Threads};

/// Bytes of a pack.
const PACK: u32 = 16;
/// Threads of a block: few, so that each weighs many packs for what it does beside.
const THREADS: u32 = 256;
/// Warps of a block, and of a cluster.
const WARPS: u32 = THREADS / warp::SIZE;
const ALL_WARPS: u32 = CLUSTER * WARPS;
/// Warps whose weights a lane adds.
const EACH: u32 = ALL_WARPS / warp::SIZE;

/// The results of the warps of a cluster.
#[repr(C)]
struct Found {
    low: [u32; ALL_WARPS as usize],
    high: [u32; ALL_WARPS as usize],
    better: [u32; ALL_WARPS as usize],
}

/// What a block shares.
#[repr(C)]
struct Common {
    partials: <ClusterThreads as Threads>::Partials<2>,
    /// Weights of a draw, and of the next.
    found: [Found; 2],
    /// The weights of the tokens of the warps' stretches.
    weights: [u64; WARPS as usize],
    token: u32,
    /// Completes when the part has arrived.
    loaded: Barrier,
}

/// The same, and a part of a row.
#[repr(C)]
pub struct Shared<const PACKS: usize> {
    common: Common,
    part: [Bytes; PACKS],
}

/// A pack's.
#[repr(C, align(16))]
struct Bytes([u8; PACK as usize]);

/// Packs of each part but the last of a row of `packs`.
pub const fn part(packs: u32) -> u32 {
    packs.div_ceil(CLUSTER)
}

/// A token of a row, a cluster each; see [`sample`](super::sample).
///
/// # Safety
/// As for [`sample`](super::sample), but one cluster per row, whose rows are whole packs at multiples of 16 bytes, and
/// [`part`]s of up to `PACKS`.
#[kernel(
    dtypes(T: float),
    values(PACKS: 2048, 4096, 8192),
    block = THREADS,
    min_blocks = 8192 / PACKS as u32,
    cluster = CLUSTER,
    arch = "sm_90a",
    shared = Shared<PACKS>,
    no_spills
)]
#[allow(clippy::too_many_arguments)] // A kernel's parameters are its interface.
pub unsafe fn sample_cluster<T: Element, const PACKS: usize>(
    x: *const T,
    y: *mut i32,
    d: u32,
    x_stride: u64,
    scale: f32,
    k: u32,
    share: u64,
    seed: u64,
    offset: u64,
) {
    let shared = shared::dynamic::<Shared<0>>();
    if thread::thread_idx_x() == 0 {
        // This precedes the fence of the other barrier.
        shared_field!(shared.common.loaded).init(1);
    }
    let (row, _) = ClusterThreads::rows();
    let (x, y) = (x.add((row * x_stride) as usize), y.add(row as usize));
    let stretches = Stretches::<T>::load(x, d);
    let max = stretches.fold(f32::NEG_INFINITY, |max, pack, _| pack.iter().fold(max, |max, x| math::max_nan(max, *x)));
    let [max] = ClusterThreads::reduce([max], [f32::NEG_INFINITY], 0, |[a], [b]| [math::max_nan(a, b)]);
    let leads = ClusterThreads::rank() == 0;
    if max.is_nan() || max == f32::NEG_INFINITY {
        if leads {
            *y = -1;
        }
        return;
    }
    if k == 1 {
        // No draw is needed: the token is the first of the greatest.
        let first = stretches.fold(u32::MAX, |first, pack, at| {
            let place = |e: usize| if pack[e] == max { at + e as u32 } else { u32::MAX };
            (0..pack.len()).map(place).fold(first, u32::min)
        });
        let [first] = ClusterThreads::reduce([first], [u32::MAX], 1, |[a], [b]| [a.min(b)]);
        if leads {
            *y = first as i32;
        }
        return;
    }
    let logits = Logits { x, d, max, scale };
    let token = logits.draw(&mut Held { stretches, logits, draw: 0 }, Rule { k, share, seed, offset, row });
    if leads {
        *y = token as i32;
    }
}

/// The packs of a row by warps.
#[derive(Clone, Copy)]
struct Stretches<T> {
    element: PhantomData<T>,
    /// Of the row.
    packs: u32,
    /// Of a part.
    part: u32,
    /// Of a stretch.
    stretch: u32,
}

impl<T: Element> Stretches<T> {
    /// Brings this block's part of the row `x` of `d` elements.
    #[inline(always)]
    unsafe fn load(x: *const T, d: u32) -> Self {
        let packs = d / lanes::<T>() as u32;
        let part = part(packs);
        let stretches = Self { element: PhantomData, packs, part, stretch: part.div_ceil(WARPS) };
        let shared = shared::dynamic::<Shared<0>>();
        let loaded = shared_field!(shared.common.loaded);
        // The barrier is there.
        thread::sync_threads();
        if thread::thread_idx_x() == 0 {
            let start = part * cluster::rank();
            let bytes = part.min(packs.saturating_sub(start)) * PACK;
            loaded.arrive_expect_tx(bytes);
            if bytes > 0 {
                let from = x.add(start as usize * lanes::<T>());
                tma::load_bytes(shared_field!(shared.part), from, bytes, loaded);
            }
        }
        loaded.wait_parity(0);
        stretches
    }

    /// The packs of stretch `number` of the row.
    #[inline(always)]
    fn range(&self, number: u32) -> Range<u32> {
        let (block, warp) = (number / WARPS, number % WARPS);
        let part = block * self.part;
        let end = self.packs.min(part + self.part);
        let start = part + warp * self.stretch;
        start.min(end)..(start + self.stretch).min(end)
    }

    /// The number of this warp's stretch.
    #[inline(always)]
    fn own(&self) -> u32 {
        cluster::rank() * WARPS + warp::warp_id()
    }

    /// Folds the packs that this thread has of its warp's stretch, with the place of each one's first element.
    #[inline(always)]
    unsafe fn fold<A>(&self, first: A, f: impl Fn(A, &[f32], u32) -> A) -> A {
        match lanes::<T>() {
            4 => self.fold_by::<A, 4>(first, f),
            _ => self.fold_by::<A, 8>(first, f),
        }
    }

    #[inline(always)]
    unsafe fn fold_by<A, const N: usize>(&self, first: A, f: impl Fn(A, &[f32], u32) -> A) -> A {
        let shared = shared::dynamic::<Shared<0>>();
        let memory: SharedPtr<f32> = shared_field!(shared.part).cast();
        let Range { start, end } = self.range(self.own());
        let part = cluster::rank() * self.part;
        let (mut folded, mut pack) = (first, start + warp::lane_id());
        while pack < end {
            let words = memory.add((pack - part) * (PACK / 4)).load_x4();
            let elements: [f32; N] = mem::transmute_copy::<_, Pack<T, N>>(&words).to_f32();
            folded = f(folded, &elements, pack * N as u32);
            pack += warp::SIZE;
        }
        folded
    }
}

/// A row that is drawn from.
struct Held<T> {
    stretches: Stretches<T>,
    logits: Logits<T>,
    draw: u32,
}

impl<T: Element> Held<T> {
    /// What the warps found of this draw.
    #[inline(always)]
    fn found(&self) -> SharedPtr<Found> {
        let shared = shared::dynamic::<Shared<0>>();
        shared_field!(shared.common.found).at(self.draw % 2)
    }

    /// What the stretch of a warp weighs.
    #[inline(always)]
    unsafe fn weight_of(&self, number: u32) -> u64 {
        let found = self.found();
        let (low, high) = (shared_field!(found.low).at(number).read(), shared_field!(found.high).at(number).read());
        u64::from(low) | u64::from(high) << 32
    }
}

impl<T: Element> Weights for Held<T> {
    #[inline(always)]
    unsafe fn weigh(&mut self, worst: u64) -> (u64, u32) {
        self.draw += 1;
        let logits = self.logits;
        let (weight, better) = if worst == 0 {
            let of = |x: &f32| u64::from(logits.weight(*x));
            (self.stretches.fold(0, |sum, pack, _| sum + pack.iter().map(of).sum::<u64>()), 0)
        } else {
            let least = element(worst);
            self.stretches.fold((0, 0), |found, pack, at| {
                // Few packs have a token that is better than one already drawn.
                if pack.iter().all(|x| *x < least) {
                    return found;
                }
                (0..pack.len()).fold(found, |(sum, better), e| {
                    let is_better = candidate(key(pack[e]), at + e as u32) > worst;
                    if is_better { (sum + u64::from(logits.weight(pack[e])), better + 1) } else { (sum, better) }
                })
            })
        };
        let (weight, better) = (warp_sum(weight), warp::redux_add_u32(better));
        let (found, lane, own) = (self.found(), warp::lane_id(), self.stretches.own());
        if lane < CLUSTER {
            let tell = |to: SharedPtr<[u32; ALL_WARPS as usize]>, word| cluster::map(to.at(own), lane).write(word);
            tell(shared_field!(found.low), weight as u32);
            tell(shared_field!(found.high), (weight >> 32) as u32);
            tell(shared_field!(found.better), better);
        }
        cluster::sync();
        let (mut weight, mut better) = (0, 0);
        for i in 0..EACH {
            let number = lane + i * warp::SIZE;
            weight += self.weight_of(number);
            better += shared_field!(found.better).at(number).read();
        }
        (warp_sum(weight), warp::redux_add_u32(better))
    }

    #[inline(always)]
    unsafe fn find(&mut self, left: u64, worst: u64) -> u32 {
        let Self { logits, stretches, .. } = *self;
        let lane = warp::lane_id();
        let mut weight = 0;
        for i in 0..EACH {
            weight += self.weight_of(lane * EACH + i);
        }
        let (group, left) = pick(weight, left);
        let (stretch, left) = pick(if lane < EACH { self.weight_of(group * EACH + lane) } else { 0 }, left);
        let Range { start, end } = stretches.range(group * EACH + stretch);
        let (start, end) = (start * lanes::<T>() as u32, end * lanes::<T>() as u32);
        // The block's threads have a part each of its tokens.
        let each = (end - start).div_ceil(THREADS);
        let first = start + thread::thread_idx_x() * each;
        let of = |i: u32| {
            let place = first + i;
            if place < end && logits.candidate(place) > worst {
                u64::from(logits.weight((*logits.x.add(place as usize)).to_f32()))
            } else {
                0
            }
        };
        let weight = (0..each).map(of).sum();
        let shared = shared::dynamic::<Shared<0>>();
        let (weights, token) = (shared_field!(shared.common.weights), shared_field!(shared.common.token));
        let of_warp = warp_sum(weight);
        if lane == 0 {
            weights.at(warp::warp_id()).write(of_warp);
        }
        thread::sync_threads();
        let (found, left) = pick(if lane < WARPS { weights.at(lane).read() } else { 0 }, left);
        if found == warp::warp_id() {
            let (found, left) = pick(weight, left);
            if lane == found {
                let (mut sum, mut i) = (0, 0);
                while i < each - 1 {
                    sum += of(i);
                    if sum > left {
                        break;
                    }
                    i += 1;
                }
                token.write(first + i);
            }
        }
        thread::sync_threads();
        token.read().min(logits.d - 1)
    }
}
