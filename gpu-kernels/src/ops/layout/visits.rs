//! How teams of lanes go from head to head on a persistent grid, forth and back: some blocks through the queries', the others through the keys'.
//!
//! A team of `width` neighbouring lanes shares a head, one item per lane: the pairs of two packs, or a pack that is not
//! rotated. It visits heads at a fixed distance: [`Team::each`]. Each lane copies its packs of the next heads, and
//! their cosines and sines, to its own part of shared memory while it works: no lane waits for others, and data in
//! flight takes no registers.

use core::array;
use core::marker::PhantomData;

use cuda_std::float::Element;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::vector::Pack;
use cuda_std::{cp_async, thread, warp};

use super::heads::{AllTables, Angles, BLOCK, Sizes, Split, place};
use crate::div_rem;

/// Visits whose packs a lane has in shared memory or on their way there.
const STAGES: u32 = 3;
/// A lane's packs of a visit: two of each input, and up to two of cosines and two of sines.
const PACKS: u32 = 8;

/// Packs of each stage, one of each lane side by side.
#[repr(C, align(16))]
pub(super) struct Staged([[[[u32; 4]; BLOCK as usize]; PACKS as usize]; STAGES as usize]);

/// What a team visits, queries' or keys': heads with two inputs and an output, at whose strides of tokens and heads they lie.
#[derive(Clone, Copy)]
pub(super) struct Heads<T> {
    pub(super) inputs: [*const T; 2],
    pub(super) strides: [[u64; 2]; 2],
    pub(super) output: *mut T,
    pub(super) output_strides: [u64; 2],
    pub(super) of_token: u32,
    /// Of all tokens.
    pub(super) all: u32,
    /// Those of a token that have the second input: the first so many.
    pub(super) with_both: u32,
}

/// A head: its token, its number there, and where its elements start in the inputs and the output.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) token: u32,
    head: u32,
    pub(super) inputs: [usize; 2],
    pub(super) output: usize,
}

impl Place {
    /// Both together; either may hold what is negative.
    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        Self {
            token: self.token.wrapping_add(other.token),
            head: self.head.wrapping_add(other.head),
            inputs: array::from_fn(|i| self.inputs[i].wrapping_add(other.inputs[i])),
            output: self.output.wrapping_add(other.output),
        }
    }
}

impl<T> Heads<T> {
    /// The head of that number, and what is between the first head and it.
    #[inline(always)]
    pub(super) unsafe fn place(&self, number: u32) -> Place {
        let (token, head) = div_rem(number, self.of_token.max(1));
        let inputs = self.strides.map(|strides| place(token, head, strides));
        Place { token, head, inputs, output: place(token, head, self.output_strides) }
    }
}

/// The step from a team's head to its next: a constant increment, without a division or a product, which would be a
/// tenth of all instructions.
#[derive(Clone, Copy)]
struct Path {
    /// What is added to a place.
    on: Place,
    /// What else where heads go over into the next token.
    wrapped: Place,
    of_token: u32,
}

impl Path {
    /// In steps of so many heads.
    #[inline(always)]
    unsafe fn of<T>(heads: &Heads<T>, step: u32) -> Self {
        let of_token = heads.of_token.max(1);
        let over = |strides| place(1, 0, strides).wrapping_sub(place(0, of_token, strides));
        let wrapped = Place {
            token: 1,
            head: of_token.wrapping_neg(),
            inputs: heads.strides.map(over),
            output: over(heads.output_strides),
        };
        Self { on: heads.place(step), wrapped, of_token }
    }

    #[inline(always)]
    fn next(&self, at: Place) -> Place {
        let next = at.plus(self.on);
        if next.head < self.of_token { next } else { next.plus(self.wrapped) }
    }
}

/// Lanes that share a head, and take turns at heads.
#[derive(Clone, Copy)]
pub(super) struct Team {
    pub(super) split: Split,
    pub(super) lane: u32,
    /// Its first head, and that of the first team of its warp.
    pub(super) first: u32,
    first_of_warp: u32,
    /// Heads of a turn of the grid.
    pub(super) step: u32,
}

impl Team {
    /// Whether this block visits the queries' heads.
    #[inline(always)]
    pub(super) fn is_of_q(sizes: Sizes) -> bool {
        thread::block_idx_x() < sizes.q_blocks
    }

    #[inline(always)]
    pub(super) unsafe fn of(sizes: Sizes) -> Self {
        let (team, lane) = div_rem(thread::thread_idx_x(), sizes.width);
        let (teams, _) = div_rem(thread::block_dim_x(), sizes.width);
        let (block, blocks) = if Self::is_of_q(sizes) {
            (thread::block_idx_x(), sizes.q_blocks)
        } else {
            (thread::block_idx_x() - sizes.q_blocks, thread::grid_dim_x() - sizes.q_blocks)
        };
        let first = block * teams + team;
        Self {
            split: Split::of(sizes),
            lane,
            first,
            first_of_warp: first - div_rem(warp::lane_id(), sizes.width).0,
            step: blocks * teams,
        }
    }

    /// How many turns there are for the team whose first head that is, of so many heads.
    #[inline(always)]
    pub(super) unsafe fn turns(&self, first: u32, all: u32) -> u32 {
        if first < all { div_rem(all - 1 - first, self.step).0 + 1 } else { 0 }
    }

    /// Takes the visitor to each of the team's heads. The lanes of a warp visit as often: where a team has no head any more, and in lanes that have no
    /// item, all values are zeros and nothing is there.
    #[inline(always)]
    pub(super) unsafe fn each<T: Element, const V: usize>(
        &self,
        heads: Heads<T>,
        tables: &AllTables,
        visitor: &mut impl Visitor<T, V>,
    ) {
        let own = self.split.items::<V>(self.lane).next();
        let item = own.unwrap_or(0);
        let (first, second) = self.split.places::<V>(item);
        let stage =
            |turn: u32| shared::dynamic::<Pack<u32, 4>>().add(turn % STAGES * PACKS * BLOCK + thread::thread_idx_x());
        let turns = self.turns(self.first, heads.all);
        let turns_of_warp = self.turns(self.first_of_warp, heads.all);
        let is_there = |turn: u32| turn < turns && own.is_some();
        let path = Path::of(&heads, self.step);
        let position = |turn: u32, at: Place| if turn < turns { tables.position(at.token) } else { -1 };
        // A turn that only another team of the warp has copies zeros; a turn that no team has copies nothing.
        let copy = |turn: u32, at: Place, position: i32| {
            let to = |pack: u32| stage(turn).add(pack * BLOCK);
            let bytes = |is_there: bool| if is_there { 16 } else { 0 };
            for input in 0..2 {
                // Nothing is read past the last head.
                let from = heads.inputs[input].wrapping_add(at.inputs[input]);
                let bytes = bytes(is_there(turn) && (input == 0 || at.head < heads.with_both));
                cp_async::copy_16_zero_fill(to(2 * input as u32), from.wrapping_add(first), bytes);
                if let Some(second) = second {
                    cp_async::copy_16_zero_fill(to(2 * input as u32 + 1), from.wrapping_add(second), bytes);
                }
            }
            if second.is_some() {
                // The angles of a token without tables are zeros.
                let row = tables.row(position);
                let (cos, sin) = row.unwrap_or((tables.cos, tables.sin));
                for quad in 0..(V / 4) as u32 {
                    let at = item * V + quad as usize * 4;
                    cp_async::copy_16_l1_zero_fill(to(4 + quad), cos.add(at), bytes(row.is_some()));
                    cp_async::copy_16_l1_zero_fill(to(6 + quad), sin.add(at), bytes(row.is_some()));
                }
            }
        };
        let fetch = |turn: u32, at: Place, position: i32| {
            if turn < turns_of_warp {
                copy(turn, at, position);
            }
            cp_async::commit();
        };
        let (mut here, mut ahead) = (heads.place(self.first), heads.place(self.first));
        // A bit of this turn and of each after it: whether the token has tables.
        let mut has_tables = 0;
        let bit = |turn: u32, position: i32| u32::from(tables.row(position).is_some()) << turn;
        for turn in 0..STAGES - 1 {
            let position = position(turn, ahead);
            has_tables |= bit(turn, position);
            fetch(turn, ahead, position);
            ahead = path.next(ahead);
        }
        let mut position_ahead = position(STAGES - 1, ahead);
        for turn in 0..turns_of_warp {
            has_tables |= bit(STAGES - 1, position_ahead);
            cp_async::wait_group::<{ STAGES - 2 }>();
            fetch(turn + STAGES - 1, ahead, position_ahead);
            ahead = path.next(ahead);
            // Of which the angles are that are copied next time.
            position_ahead = position(turn + STAGES, ahead);
            visitor.visit(Visit {
                split: &self.split,
                item,
                staged: stage(turn),
                has_tables: has_tables & 1 == 1,
                is_there: is_there(turn),
                has_both: is_there(turn) && here.head < heads.with_both,
                output: heads.output.wrapping_add(here.output),
                elements: PhantomData,
            });
            has_tables >>= 1;
            here = path.next(here);
        }
    }
}

/// The work on each head. This is not a closure: one of this size is not always inlined, and a call's arguments are in
/// local memory.
pub(super) trait Visitor<T, const V: usize> {
    /// Every lane of a warp calls this.
    unsafe fn visit(&mut self, visit: Visit<'_, T, V>);
}

/// A lane's item of a head that is visited.
pub(super) struct Visit<'a, T, const V: usize> {
    split: &'a Split,
    pub(super) item: usize,
    staged: SharedPtr<Pack<u32, 4>>,
    /// Whether there is a head, and its token has a row of the tables.
    pub(super) has_tables: bool,
    /// Whether there is a head and an item, and with both inputs.
    pub(super) is_there: bool,
    pub(super) has_both: bool,
    /// Where the head's elements start in the output.
    pub(super) output: *mut T,
    elements: PhantomData<[T; V]>,
}

impl<T: Element, const V: usize> Visit<'_, T, V> {
    #[inline(always)]
    fn turns(&self) -> bool {
        self.split.turns::<V>(self.item)
    }

    /// The packs of an input.
    #[inline(always)]
    pub(super) unsafe fn packs(&self, input: u32) -> [Pack<T, V>; 2] {
        let pack = |pack: u32| Pack::load(self.staged.add(pack * BLOCK).cast().as_ptr());
        [pack(2 * input), if self.turns() { pack(2 * input + 1) } else { Pack::from_f32([0.0; V]) }]
    }

    /// Items of the head turned, or turned back by a `direction` of −1; zeros of a token without tables.
    #[inline(always)]
    pub(super) unsafe fn turn<const H: usize>(&self, items: [[[f32; V]; 2]; H], direction: f32) -> [[[f32; V]; 2]; H] {
        let quads = |first: u32| {
            let mut values = [0.0; V];
            for quad in 0..V / 4 {
                let quad_at = self.staged.add((first + quad as u32) * BLOCK).cast::<f32>();
                values[4 * quad..][..4].copy_from_slice(&quad_at.load_x4());
            }
            values
        };
        let (cos, sin) = match self.turns() {
            true => (quads(4), quads(6).map(|sin| sin * direction)),
            false => ([0.0; V], [0.0; V]),
        };
        self.split.turn(self.item, items, Angles { cos, sin, has_tables: self.has_tables })
    }
}
