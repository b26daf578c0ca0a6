//! The product on Hopper: the weight is wgmma's left operand, from registers, and the vectors its right one, from shared memory.
//!
//! A block takes [`Plan::rows`] rows of the weight and a part of k. The blocks of a cluster share k, and so do *teams*
//! of warpgroups in a block, which take its stages in turn. TMA fills a ring of stages of [`Plan::row_bytes`] bytes of
//! each row of the weight, in its storage format, and the same elements of each vector.
//!
//! **Broadcast instead of a permutation.** A fragment has pairs of neighbours along k; with 4 bits, two pairs of
//! elements are a byte of every word of a row. The four lanes that share a row load the same words, which costs shared
//! memory at most four times the bytes of the weight, and each lane extracts its byte, or with 8-bit integers its half,
//! by the permutation that it needs anyway.

mod plan;

pub use plan::{PANEL_BYTES, Plan};

use cuda_std::cluster;
use cuda_std::float::Half;
use cuda_std::launch::TensorMap;
use cuda_std::shared::{self, SharedPtr};
use cuda_std::wgmma::{self, Accumulators, Descriptor, K_MAJOR, Registers};
use cuda_std::{fence, thread, tma, warp};

use plan::{Memory, PANEL, WARP_ROWS};

use super::widen::{Weight, ZERO};
use super::{DEPTH, Sizes, Steps, is_grouped};

/// Slices of vectors that are neighbours.
const BAND: u32 = 8;

/// The location of C, and the part of it that is this block's.
#[derive(Clone, Copy)]
struct Place<T> {
    c: *mut T,
    row0: u32,
    vector0: u32,
    sizes: Sizes,
}

impl<T: Half> Place<T> {
    #[inline(always)]
    unsafe fn store(self, row: u32, vector: u32, sum: f32, scales: *const f32, grouped: bool) {
        let (row, vector) = (self.row0 + row, self.vector0 + vector);
        if row < self.sizes.n && vector < self.sizes.m {
            let scale = if grouped { 1.0 } else { *scales.add(row as usize) };
            let to = self.c.add((u64::from(vector) * self.sizes.c + u64::from(row)) as usize);
            *to = T::from_f32(sum * scale);
        }
    }
}

/// C = A·Wᵀ of the block's rows, times `scales`. `NR` is half the vectors, a thread's sums.
///
/// # Safety
/// The maps describe live tensors of these sizes, `weight` in boxes of [`Plan::rows`] by [`Plan::row_bytes`], `vectors` of the vectors by 64, in swizzles of the widths
/// of their rows; `c` is valid at its stride, `scales` and, with `ZEROS`, `zeros` for each row of the weight and group; no size is zero; there is a
/// cluster for each tile.
#[inline(always)]
pub(in super::super) unsafe fn run<
    W: Weight,
    T: Half,
    const NR: usize,
    const SHARE: u32,
    const BLOCKS: u32,
    const ZEROS: bool,
>(
    weight: &TensorMap,
    vectors: &TensorMap,
    scales: *const f32,
    zeros: *const u8,
    c: *mut T,
    sizes: Sizes,
) where
    [f32; NR]: Accumulators,
{
    let plan = const { Plan::of(2 * NR, W::BITS, SHARE, BLOCKS) };
    let warp = warp::warp_id_uniform();
    let (team, warp) = (warp / plan.warps(), warp % plan.warps());
    let memory = Memory { at: shared::dynamic(), plan, team };
    let rank = if plan.share > 1 { cluster::rank() } else { 0 };
    if thread::thread_idx_x() == 0 {
        tma::prefetch_descriptor(weight);
        tma::prefetch_descriptor(vectors);
        for team in 0..plan.teams() {
            for stage in 0..plan.stages() {
                let memory = Memory { team, ..memory };
                memory.full(stage).init(1);
                memory.empty(stage).init(plan.warps());
            }
        }
        if plan.members() > 1 {
            if !plan.is_apart() {
                memory.read().init(plan.members() * plan.warps());
            }
            memory.complete().init(1);
            fence::mbarrier_init();
        }
    }
    // The other blocks of the cluster use only the last two barriers, and only later: this block arrives here and waits
    // before they are used.
    thread::sync_threads();
    if plan.share > 1 {
        cluster::arrive_relaxed();
    }

    let [row, slice] = tile(&sizes, plan, thread::block_idx_x() / plan.share);
    let place = Place { c, row0: row * plan.rows(), vector0: slice * plan.r, sizes };
    let member = rank * plan.teams() + team;
    let steps = Steps::of(sizes.k.div_ceil(plan.depth()), member, plan.members());
    let loads = Loads { weight, vectors, row: place.row0, vector: place.vector0 };
    let groups = Groups { scales, zeros, row0: place.row0, n: sizes.n, k: sizes.k };
    let mut sums = [0.0; NR];
    consume::<W, T, NR, ZEROS>(memory, warp, loads, groups, steps, &mut sums);

    let grouped = is_grouped(W::BITS);
    let lane = thread::thread_idx_x() % 32;
    if plan.members() == 1 {
        for i in 0..NR as u32 {
            let (row, vector) = (warp * WARP_ROWS + lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
            place.store(row, vector, sums[i as usize], scales, grouped);
        }
        return;
    }
    if plan.share > 1 {
        cluster::wait();
    }
    let eights = (sizes.m - place.vector0).min(plan.r).div_ceil(8);
    let mine = plan.part().min(plan.warps() - rank * plan.part());
    if thread::thread_idx_x() == 0 {
        memory.complete().arrive_expect_tx(plan.members() * mine * eights * 4 * 32 * 4);
    }
    if !plan.is_apart() {
        // The sums overwrite the stages.
        if lane < plan.share {
            cluster::map(memory.read(), lane).arrive();
        }
        memory.read().wait_parity_cluster(0);
    }
    let (block, warp) = (warp / plan.part(), warp % plan.part());
    let to = memory.sums(member, warp).add(lane);
    let (to, complete) = (cluster::map(to, block), cluster::map(memory.complete(), block));
    for (i, sum) in sums.iter().enumerate() {
        if (i as u32 / 4) < eights {
            to.add(i as u32 * 32).write_async(*sum, complete);
        }
    }
    // These stores complete the receiver's barrier themselves: a cluster barrier would first have to make all memory
    // operations visible.
    memory.complete().wait_parity(0);
    let mut at = thread::thread_idx_x();
    let each = plan.r / 2 * 32;
    while at < mine * each {
        let (warp, i, lane) = (at / each, at % each / 32, at % 32);
        let row = (rank * plan.part() + warp) * WARP_ROWS + lane / 4 + i / 2 % 2 * 8;
        let vector = i / 4 * 8 + lane % 4 * 2 + i % 2;
        if i / 4 < eights {
            let sum = (0..plan.members()).fold(0.0, |sum, member| sum + memory.sums(member, 0).add(at).read());
            place.store(row, vector, sum, scales, grouped);
        }
        at += plan.threads();
    }
}

/// The rows and the slice of vectors of tile `index`: blocks that run at the same time cover few of both, so that L2
/// holds what they share.
#[inline(always)]
fn tile(sizes: &Sizes, plan: Plan, index: u32) -> [u32; 2] {
    let (rows, slices) = (sizes.n.div_ceil(plan.rows()), sizes.m.div_ceil(plan.r));
    let of_band = (BAND * rows).max(1);
    let (band, index) = (index / of_band, index % of_band);
    let width = BAND.min(slices - band * BAND).max(1);
    [index / width, band * BAND + index % width]
}

/// The operands that a block loads.
#[derive(Clone, Copy)]
struct Loads<'a> {
    weight: &'a TensorMap,
    vectors: &'a TensorMap,
    row: u32,
    vector: u32,
}

impl Loads<'_> {
    /// Starts to load a stage. Run by one thread.
    #[inline(always)]
    unsafe fn start(&self, memory: Memory, step: u32, stage: u32) {
        let (plan, full) = (memory.plan, memory.full(stage));
        full.arrive_expect_tx(plan.stage_bytes());
        let byte = step * plan.row_bytes();
        tma::load_2d(memory.weight(stage), self.weight, [byte as i32, self.row as i32], full);
        for panel in 0..plan.depth() / PANEL {
            let k0 = step * plan.depth() + panel * PANEL;
            tma::load_2d(memory.vectors(stage, panel), self.vectors, [k0 as i32, self.vector as i32], full);
        }
    }
}

/// The scales and zero points of a block's rows.
#[derive(Clone, Copy)]
struct Groups {
    scales: *const f32,
    zeros: *const u8,
    row0: u32,
    n: u32,
    k: u32,
}

/// Loads and multiplies the stages of a member. Run by all warps of a team.
#[inline(always)]
unsafe fn consume<W: Weight, T: Half, const NR: usize, const ZEROS: bool>(
    memory: Memory,
    warp: u32,
    loads: Loads<'_>,
    of: Groups,
    steps: Steps,
    sums: &mut [f32; NR],
) where
    [f32; NR]: Accumulators,
{
    let plan = memory.plan;
    let grouped = is_grouped(W::BITS);
    let lane = thread::thread_idx_x() % 32;
    let row = warp * WARP_ROWS + lane / 4;
    let selector = W::selector::<T>(lane % 4);
    let swizzle = if plan.row_bytes() == 128 { row % 8 } else { row / 2 % 4 } * 16;
    let row_at = row * plan.row_bytes() + swizzle;
    // For each row, a lane reads the scales of one of four groups, four groups ahead, and passes them to the other
    // lanes.
    let each = plan.depth() / DEPTH;
    let groups = of.k.div_ceil(DEPTH);
    let rows = [0, 8].map(|below| u64::from((of.row0 + row + below).min(of.n - 1)) * u64::from(groups));
    let read = |step: u32| {
        let group = (steps.at(step + lane % 4 / each) * each + lane % 4 % each).min(groups - 1);
        rows.map(|row| {
            let at = (row + u64::from(group)) as usize;
            let scale = if grouped { *of.scales.add(at) } else { 1.0 };
            (scale, u32::from(if ZEROS { *of.zeros.add(at) } else { ZERO }))
        })
    };
    // These loads are issued before the stages' copies, so that they do not queue behind those bytes.
    let mut four = read(0);
    if warp == 0 && lane == 0 {
        for stage in 0..plan.stages().min(steps.count) {
            loads.start(memory, steps.at(stage), stage);
        }
    }
    let (mut stage, mut parity) = (0, 0);
    let mut step = 0;
    while step < steps.count {
        // Loads that are carried from one loop iteration to the next are waited for at the iteration's end, so one
        // iteration covers four groups.
        let end = (step + 4 / each).min(steps.count);
        let next = if end < steps.count { read(end) } else { four };
        let (scales, zeros) = (four.map(|(scale, _)| scale), four.map(|(_, zero)| W::offset::<T>(zero as u8)));
        let mut index = 0;
        while step < end {
            // The stage before this one is refilled once all warps are done with it.
            let again = step + plan.stages() - 1;
            if warp == 0 && step > 0 && again < steps.count {
                let (stage, parity) = if stage == 0 { (plan.stages() - 1, parity ^ 1) } else { (stage - 1, parity) };
                memory.empty(stage).wait_parity(parity);
                if lane == 0 {
                    loads.start(memory, steps.at(again), stage);
                }
            }
            memory.full(stage).wait_parity(parity);
            for part in 0..each {
                let source = (lane & !3) + index + part;
                let offsets = if ZEROS { zeros.map(|zero| warp::shuffle_idx(zero, source)) } else { zeros };
                let at = memory.weight(stage).byte_add(row_at);
                let mut a = [0; 32];
                for unit in 0..4 {
                    let from = SharedPtr::from_addr(at.addr() ^ W::chunk(part * 4 + unit as u32));
                    let (upper, lower) =
                        (W::words(from, lane % 4), W::words(from.byte_add(8 * plan.row_bytes()), lane % 4));
                    for i in 0..4 {
                        // Two products of 16 of k, each of which needs both rows and then both groups of eight columns.
                        a[unit * 8 + i * 2] = W::pair::<T>(upper[i], selector, offsets[0]);
                        a[unit * 8 + i * 2 + 1] = W::pair::<T>(lower[i], selector, offsets[1]);
                    }
                }
                let panels = [0, 1].map(|half| Descriptor::k_major_128b(memory.vectors(stage, part * 2 + half)));
                if grouped {
                    let mut products = [0.0; NR];
                    multiply::<T, NR>(&mut products, &mut a, panels, false);
                    let scales = scales.map(|scale| warp::shuffle_idx(scale, source));
                    for i in 0..NR {
                        sums[i] += scales[i / 2 % 2] * products[i];
                    }
                } else {
                    multiply::<T, NR>(sums, &mut a, panels, true);
                }
            }
            // All lanes have read their words.
            warp::sync(u32::MAX);
            if lane == 0 {
                memory.empty(stage).arrive();
            }
            index += each;
            step += 1;
            stage += 1;
            if stage == plan.stages() {
                (stage, parity) = (0, parity ^ 1);
            }
        }
        four = next;
    }
}

/// Products of 128 of k of a warpgroup's rows, and of two panels of the vectors.
#[inline(always)]
unsafe fn multiply<T: Half, const NR: usize>(
    sums: &mut [f32; NR],
    a: &mut [u32; 32],
    panels: [Descriptor; 2],
    accumulate: bool,
) where
    [f32; NR]: Accumulators,
{
    a.pin();
    wgmma::fence_for(sums);
    for step in 0..8 {
        let a = [a[4 * step], a[4 * step + 1], a[4 * step + 2], a[4 * step + 3]];
        let b = panels[step / 4].advance(step as u32 % 4 * 32);
        sums.product_a_registers::<T, K_MAJOR>(a, b, accumulate || step > 0);
    }
    wgmma::commit();
    wgmma::wait_for::<0>(sums);
}
