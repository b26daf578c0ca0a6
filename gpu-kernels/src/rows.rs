//! What row operators share: who works on a row, a row held in registers, and reductions over it.
//!
//! A team is a warp or a block; its threads hold a row as 16-byte packs, pack t + i · threads in register i of thread t, so
//! that memory is read once. Reductions are reproducible: each thread in order, then a butterfly over the warp, then over the
//! warps in order. A block's reduction costs one barrier, because each of a kernel's reductions has a slot of shared memory of its
//! own, and every warp sums all partial results itself.

use core::array;

use cuda_std::float::Element;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{thread, warp};

/// Rows a block of warps works on.
pub const WARP_ROWS: u32 = 8;
/// The most threads of a block that shares a row.
pub const MAX_THREADS: u32 = 512;

/// A block's partial results: a value a warp for each of the kernel's `N` reductions.
#[repr(C)]
pub struct Partials<const N: usize>([[f32; 32]; N]);

/// The threads that share a row.
pub(crate) trait Team: Copy {
    /// This thread's number among them.
    fn rank() -> usize;

    /// How many they are.
    fn size() -> usize;

    /// `combine` over all of them, in every thread; `identity` is what stands for nobody. Each of a kernel's reductions of a
    /// block has a `slot` of its own, below the `N` of its [`Partials`].
    unsafe fn reduce(value: f32, identity: f32, slot: u32, combine: impl Fn(f32, f32) -> f32) -> f32;

    /// The sum over all of them.
    #[inline(always)]
    unsafe fn sum(value: f32, slot: u32) -> f32 {
        Self::reduce(value, 0.0, slot, |a, b| a + b)
    }
}

/// A warp a row.
#[derive(Clone, Copy)]
pub(crate) struct Warp;

impl Team for Warp {
    #[inline(always)]
    fn rank() -> usize {
        warp::lane_id() as usize
    }

    #[inline(always)]
    fn size() -> usize {
        32
    }

    #[inline(always)]
    unsafe fn reduce(value: f32, _: f32, _: u32, combine: impl Fn(f32, f32) -> f32) -> f32 {
        warp::reduce(value, combine)
    }
}

/// A block a row. Its size is a multiple of 32, and the kernel's shared memory is [`Partials`].
#[derive(Clone, Copy)]
pub(crate) struct Block;

impl Team for Block {
    #[inline(always)]
    fn rank() -> usize {
        thread::thread_idx_x() as usize
    }

    #[inline(always)]
    fn size() -> usize {
        thread::block_dim_x() as usize
    }

    #[inline(always)]
    unsafe fn reduce(value: f32, identity: f32, slot: u32, combine: impl Fn(f32, f32) -> f32) -> f32 {
        let partials: SharedPtr<f32> = shared::dynamic::<f32>().add(32 * slot);
        let value = warp::reduce(value, &combine);
        if warp::lane_id() == 0 {
            partials.add(warp::warp_id()).write(value);
        }
        thread::sync_threads();
        // Every warp combines the partial results of all, so no second barrier is needed.
        let lane = warp::lane_id();
        warp::reduce(if lane < thread::block_dim_x() / 32 { partials.add(lane).read() } else { identity }, combine)
    }
}

/// A row, or one that all rows share, in the registers of a team: up to `V` packs of `N` elements a thread.
#[derive(Clone, Copy)]
pub(crate) struct Row<T, const V: usize, const N: usize> {
    packs: [Pack<T, N>; V],
    d: usize,
}

impl<T: Element, const V: usize, const N: usize> Row<T, V, N> {
    /// Where pack `i` of this thread starts.
    #[inline(always)]
    fn at<G: Team>(i: usize) -> usize {
        (G::rank() + i * G::size()) * N
    }

    /// Reads the row of `d` elements, `N` of which divide it, at a multiple of 16 bytes; zeros beyond its end.
    #[inline(always)]
    pub(crate) unsafe fn load<G: Team>(x: *const T, d: usize) -> Self {
        Self::load_by::<G>(d, |at| Pack::load_nc_no_allocate(x.add(at)))
    }

    /// [`load`](Self::load) for what every row needs: it leaves the cache last.
    #[inline(always)]
    pub(crate) unsafe fn load_shared<G: Team>(x: *const T, d: usize) -> Self {
        Self::load_by::<G>(d, |at| Pack::load_nc_evict_last(x.add(at)))
    }

    #[inline(always)]
    fn load_by<G: Team>(d: usize, load: impl Fn(usize) -> Pack<T, N>) -> Self {
        let zero = Pack::<T, N>::from_f32([0.0; N]);
        let packs = array::from_fn(|i| if Self::at::<G>(i) < d { load(Self::at::<G>(i)) } else { zero });
        Self { packs, d }
    }

    /// Folds this thread's elements, and the zeros beyond the end.
    #[inline(always)]
    pub(crate) fn fold(&self, first: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
        self.packs.iter().fold(first, |sum, pack| pack.to_f32().into_iter().fold(sum, &f))
    }

    /// Writes f(x) of every element to `y`. The elements are converted again, so that the row stays packed till here.
    #[inline(always)]
    #[allow(dead_code, reason = "for operators without a weight")]
    pub(crate) unsafe fn store_map<G: Team>(self, y: *mut T, f: impl Fn(f32) -> f32) {
        self.store_zip::<G>(self, y, |x, _| f(x));
    }

    /// Writes f(x, other) of every element to `y`. The elements are converted again, so that the row stays packed till here.
    #[inline(always)]
    pub(crate) unsafe fn store_zip<G: Team>(self, other: Self, y: *mut T, f: impl Fn(f32, f32) -> f32) {
        for i in 0..V {
            if Self::at::<G>(i) < self.d {
                let (x, other) = (self.packs[i].forget().to_f32(), other.packs[i].to_f32());
                Pack::<T, N>::from_f32(array::from_fn(|e| f(x[e], other[e]))).store_streaming(y.add(Self::at::<G>(i)));
            }
        }
    }
}
