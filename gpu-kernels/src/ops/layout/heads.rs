//! Code that the normalisation and rotation of queries' and keys' heads share, forward and backward: addresses of
//! heads, distribution of their items over lanes, and the rotation. How teams of lanes go from head to head is in
//! `visits.rs`.

use cuda_std::float::Element;
use cuda_std::launch::Fields;
use cuda_std::vector::Pack;
use cuda_std::warp;

use super::rope::{Tables, angles, places, row_of_tables, turn};

/// Threads of a block.
pub const BLOCK: u32 = 256;
/// Sizes of the tensors, and how heads are taken.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// How many tokens there are.
    pub tokens: u32,
    /// Heads of the queries of a token, and of its keys.
    pub heads: [u32; 2],
    /// Elements of a head.
    pub d: u32,
    /// Its pairs that turn.
    pub half: u32,
    /// Positions that the tables have.
    pub table_rows: u32,
    /// Lanes that share a head.
    pub width: u32,
    /// Not 0 where neighbours turn together.
    pub interleaved: u32,
    /// Blocks that visit the queries' heads: the first so many of the grid. The others visit the keys'.
    pub q_blocks: u32,
}

// SAFETY: 9 u32: no padding.
unsafe impl Fields for Sizes {}

/// Strides of tokens and heads.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Strides {
    /// Of queries.
    pub q: [u64; 2],
    /// Of keys.
    pub k: [u64; 2],
}

// SAFETY: 4 u64: no padding.
unsafe impl Fields for Strides {}

/// Where a head starts.
#[inline(always)]
pub(super) fn place(token: u32, head: u32, [of_token, of_head]: [u64; 2]) -> usize {
    (u64::from(token) * of_token + u64::from(head) * of_head) as usize
}

/// How the items of a head are spread over the lanes that share it.
#[derive(Clone, Copy)]
pub(super) struct Split {
    /// Elements of a head, and pairs that turn.
    pub(super) d: usize,
    half: usize,
    interleaved: bool,
    width: u32,
}

/// The cosines and sines of an item that turns, and whether its token has a row of the tables.
#[derive(Clone, Copy)]
pub(super) struct Angles<const V: usize> {
    pub(super) cos: [f32; V],
    pub(super) sin: [f32; V],
    pub(super) has_tables: bool,
}

impl Split {
    #[inline(always)]
    pub(super) fn of(sizes: Sizes) -> Self {
        let Sizes { d, half, width, interleaved, .. } = sizes;
        Self { d: d as usize, half: half as usize, interleaved: interleaved != 0, width }
    }

    /// The items of packs of `V` that `lane` has: one at most, except where packs are elements.
    #[inline(always)]
    pub(super) fn items<const V: usize>(&self, lane: u32) -> impl Iterator<Item = usize> + use<V> {
        let (items, lane, width) = ((self.d - self.half) / V, lane as usize, self.width as usize);
        let most = if V == 1 { usize::MAX } else { 1 };
        (0..most).map(move |i| lane + i * width).take_while(move |item| *item < items)
    }

    /// Where the packs of an item start: one where it stays.
    #[inline(always)]
    pub(super) fn places<const V: usize>(&self, item: usize) -> (usize, Option<usize>) {
        places::<V>(item, self.half, self.interleaved)
    }

    /// The packs of an item; zeros beside one that stays.
    #[inline(always)]
    pub(super) unsafe fn load<T: Element, const V: usize>(
        &self,
        item: usize,
        load: impl Fn(usize) -> Pack<T, V>,
    ) -> [Pack<T, V>; 2] {
        let (first, second) = self.places::<V>(item);
        [load(first), second.map_or(Pack::from_f32([0.0; V]), load)]
    }

    /// Rotates an item, or rotates it back if `direction` is −1.
    #[inline(always)]
    pub(super) unsafe fn angles<const V: usize>(
        &self,
        item: usize,
        tables: Option<Tables>,
        direction: f32,
    ) -> Angles<V> {
        let [cos, sin] = if self.turns::<V>(item) { angles(tables, item * V, direction) } else { [[0.0; V]; 2] };
        Angles { cos, sin, has_tables: tables.is_some() }
    }

    /// Whether an item is rotated; otherwise it passes through unchanged.
    #[inline(always)]
    pub(super) fn turns<const V: usize>(&self, item: usize) -> bool {
        item * V < self.half
    }

    /// An item of each head, rotated; zeros without tables.
    #[inline(always)]
    pub(super) fn turn<const V: usize, const H: usize>(
        &self,
        item: usize,
        heads: [[[f32; V]; 2]; H],
        angles: Angles<V>,
    ) -> [[[f32; V]; 2]; H] {
        if !angles.has_tables {
            [[[0.0; V]; 2]; H]
        } else if self.turns::<V>(item) {
            heads.map(|values| turn(values, [angles.cos, angles.sin], self.interleaved))
        } else {
            heads
        }
    }

    /// Passes the place and the values of each pack of an item on.
    #[inline(always)]
    pub(super) unsafe fn store<const V: usize>(
        &self,
        item: usize,
        [a, b]: [[f32; V]; 2],
        store: impl Fn(usize, [f32; V]),
    ) {
        let (first, second) = self.places::<V>(item);
        store(first, a);
        if let Some(second) = second {
            store(second, b);
        }
    }

    /// Sums over the lanes of a head, in each of them.
    #[inline(always)]
    pub(super) unsafe fn sums<const M: usize>(&self, values: [f32; M]) -> [f32; M] {
        let (mut sums, mut mask) = (values, self.width / 2);
        while mask > 0 {
            sums = sums.map(|sum| sum + warp::shuffle_xor(sum, mask));
            mask /= 2;
        }
        sums
    }

    /// Sums over the lanes of a warp that have the same items, in each of them.
    #[inline(always)]
    pub(super) unsafe fn sum_of_heads(&self, value: f32) -> f32 {
        let (mut sum, mut mask) = (value, self.width);
        while mask < 32 {
            sum += warp::shuffle_xor(sum, mask);
            mask *= 2;
        }
        sum
    }
}

/// The tables, and the tokens' positions in them.
pub(super) struct AllTables {
    pub(super) cos: *const f32,
    pub(super) sin: *const f32,
    pub(super) positions: *const i32,
    pub(super) rows: u32,
    pub(super) half: u32,
}

impl AllTables {
    #[inline(always)]
    pub(super) unsafe fn position(&self, token: u32) -> i32 {
        *self.positions.add(token as usize)
    }

    #[inline(always)]
    pub(super) unsafe fn row(&self, position: i32) -> Option<Tables> {
        row_of_tables((self.cos, self.sin), position, self.rows, self.half)
    }
}
