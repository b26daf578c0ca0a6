//! Stores a consumer's part of O through shared memory, in rows of 128 bytes.

use cuda_std::float::Half;
use cuda_std::launch::TensorMap;
use cuda_std::mbarrier::Barrier;
use cuda_std::shared::SharedPtr;
use cuda_std::vector::Pack;
use cuda_std::{fence, matrix, thread, tma};

use super::work::{Cursor, Queries, Work};
use super::{BUFFERS, PANEL, WARPGROUP, WG_M};
use crate::ops::attention::Problem;

/// Where results go.
#[derive(Clone, Copy)]
pub(in crate::ops::attention) struct Output<'a, T> {
    pub map: &'a TensorMap,
    pub o: *mut T,
    pub lse: *mut f32,
}

/// A consumer's [`WG_M`] rows of a block's `queries`, with shared memory for panels of [`PANEL`] columns, `stride` elements apart.
#[derive(Clone, Copy)]
pub(in crate::ops::attention) struct Rows<T> {
    pub panels: SharedPtr<T>,
    pub stride: u32,
    /// Of the consumers.
    pub index: u32,
    pub queries: Queries,
}

/// Releases the memory of the queries before number `wave` to the producer, once the copies of thread `lane`, the
/// first, have read the results there. By this time the copies have had a while to finish, whereas a wait right after
/// issuing them would stall.
#[inline(always)]
pub(in crate::ops::attention) unsafe fn give_back(
    wave: Cursor<BUFFERS>,
    lane: u32,
    empty: impl Fn(u32) -> SharedPtr<Barrier>,
) {
    let Some(before) = wave.previous() else { return };
    let empty = empty(before.stage());
    if lane == 0 {
        tma::wait_group_read::<0>();
        empty.arrive();
    }
}

impl<T: Half> Rows<T> {
    #[inline(always)]
    const fn panel(&self, panel: u32) -> SharedPtr<T> {
        self.panels.add(panel * self.stride)
    }

    /// Stores O, of 2·`O` columns, and the logsumexps of the two rows of thread `lane`. Rows before the first token are
    /// dropped. The first thread issues the copies that read the panels.
    #[inline(always)]
    pub(in crate::ops::attention) unsafe fn store<const O: usize>(
        self,
        o: &[f32; O],
        lse: [f32; 2],
        lane: u32,
        work: Work,
        output: Output<T>,
    ) {
        let Self { index, queries, .. } = self;
        // Each of a warp's lanes points stmatrix at one row of one of four 8×8 matrices: rows 0-7 and 8-15 of two neighbouring blocks of
        // eight columns.
        let (row, right) = (lane / 32 * 16 + lane % 16, lane % 32 / 16);
        for step in 0..O / 8 {
            let (panel, pair) = (step as u32 / 4, step as u32 % 4);
            let chunk = (pair * 2 + right) ^ (row % 8);
            let matrices = [0, 2, 4, 6].map(|i| T::pack(o[8 * step + i], o[8 * step + i + 1]));
            matrix::store_x4(self.panel(panel).add(row * PANEL + chunk * 8), matrices);
        }
        let first = work.first_of(queries, index);
        let heads = u64::from(queries.batch) * u64::from(work.problem.heads) + u64::from(queries.head);
        for r in 0..2 {
            let query = first + (lane / 32 * 16 + lane % 32 / 4 + r as u32 * 8) as i32;
            if lane.is_multiple_of(4) && query >= 0 {
                *output.lse.add((heads * u64::from(work.problem.q_len) + query as u64) as usize) = lse[r];
            }
        }
        fence::proxy_async_shared();
        thread::named_barrier::sync(1 + index, WARPGROUP);
        let panels = O as u32 / 32;
        if first < 0 {
            self.store_rows(first, panels, lane, work, output);
            thread::named_barrier::sync(1 + index, WARPGROUP);
        }
        if lane == 0 && first >= 0 {
            for panel in 0..panels {
                let to = [(panel * PANEL) as i32, first, queries.head as i32, queries.batch as i32];
                tma::store_4d(output.map, to, self.panel(panel));
            }
            tma::commit_group();
        }
    }

    /// Stores the rows from query 0 on, where a tile begins before it: unlike a load, a TMA store whose box begins
    /// before the tensor is an illegal instruction.
    #[inline(always)]
    unsafe fn store_rows(self, first: i32, panels: u32, lane: u32, work: Work, output: Output<T>) {
        let Self { queries, .. } = self;
        let [.., stride] = work.problem.o;
        let to = output.o.add(Problem::at(work.problem.o, queries.batch, queries.head, 0));
        let chunks = panels * PANEL / 8;
        let mut at = lane;
        while at < WG_M * chunks {
            let (row, chunk) = (at / chunks, at % chunks);
            let query = first + row as i32;
            if query >= 0 {
                let from = self.panel(chunk / 8).add(row * PANEL + ((chunk % 8) ^ (row % 8)) * 8);
                let to = to.add((query as u64 * stride + u64::from(chunk * 8)) as usize);
                Pack::<T, 8>::load(from.as_ptr()).store(to);
            }
            at += WARPGROUP;
        }
    }
}
