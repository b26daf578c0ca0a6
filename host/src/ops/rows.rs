//! Shared by row operators: the team that processes a row, their launch and their cases.

use cuda_std::launch::Dim3;
use gpu_kernels::rows::{CLUSTER, MAX_THREADS, WARPS};

use super::elementwise::grid;
use super::model::{Arrangement, Case, OpInfo};
use crate::runtime::device::Device;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::view::{View, ViewMut};

/// The team that processes a row, with the names of [`gpu_kernels::rows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Team {
    Lanes,
    Warp,
    Block2,
    Block8,
    Cluster,
    Stream,
}

impl Team {
    /// The number of rows that a block processes at once.
    const fn of_block(self) -> usize {
        match self {
            Self::Lanes => 4 * WARPS as usize,
            Self::Warp => WARPS as usize,
            _ => 1,
        }
    }
}

/// Fails unless the shape has rows, that is, two dimensions or more.
pub(super) fn require(info: &OpInfo, arg: &'static str, shape: &[usize]) -> Result<()> {
    if shape.len() < 2 {
        return Err(info.shape_error(arg, shape, "two dimensions or more"));
    }
    Ok(())
}

/// The launch of a row operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowPlan {
    pub(super) team: Team,
    pub(super) grid: u32,
    pub(super) block: Dim3,
    pub(super) rows: u64,
    pub(super) d: u64,
}

/// The launch of an operator that sums over rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PersistentPlan {
    pub(super) plan: RowPlan,
    /// The number of rows of partial results.
    pub(super) partials: usize,
}

/// The maximum number of packs per thread in the built-in operators.
const PACKS: usize = 8;

/// Threads per multiprocessor of a persistent grid: more would only write more partial results.
const PERSISTENT_THREADS: u32 = 512;

/// The rows that an operator processes: those of its first argument, and the layout of the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    arg: &'static str,
    rows: usize,
    d: usize,
    aligned: bool,
    /// From this number of packs per row on, threads hold many packs instead of two.
    wide: usize,
}

/// [`Rows::wide`] of most operators. From here on, few threads with many loads in flight each are as fast or faster: more
/// blocks are resident at once, and fewer threads wait for each other.
const WIDE: usize = 513;

impl Rows {
    /// The rows of `x`, which has two dimensions or more.
    pub(super) fn of<T>(info: &OpInfo, arg: &'static str, x: &View<'_, T>) -> Result<Self> {
        require(info, arg, x.shape())?;
        Ok(Self { arg, rows: x.rows(), d: x.cols(), aligned: x.rows_aligned(16), wide: WIDE })
    }

    /// `rows` rows of `d` elements, each at a multiple of 16 bytes if `aligned`.
    pub(super) fn new(arg: &'static str, rows: usize, d: usize, aligned: bool) -> Self {
        Self { arg, rows, d, aligned, wide: WIDE }
    }

    /// For a kernel whose threads hold many packs from rows of `wide` packs on.
    pub(super) fn wide_from(self, wide: usize) -> Self {
        Self { wide, ..self }
    }

    /// Adds another operand that is read in packs.
    pub(super) fn and<T>(self, x: &View<'_, T>) -> Self {
        Self { aligned: self.aligned && x.rows_aligned(16), ..self }
    }

    /// Adds an operand that is written in packs.
    pub(super) fn and_mut<T>(self, y: &ViewMut<'_, T>) -> Self {
        Self { aligned: self.aligned && y.rows_aligned(16), ..self }
    }

    /// The smallest team that holds a row; `None` if there is nothing to do.
    pub(super) fn plan<T>(self, info: &OpInfo) -> Result<Option<RowPlan>> {
        self.plan_by::<T>(info, PACKS, false)
    }

    /// The same for operators that have kernels for clusters, which the device may have.
    pub(super) fn plan_clustered<T>(self, info: &OpInfo, device: &Device) -> Result<Option<RowPlan>> {
        self.plan_by::<T>(info, PACKS, device.supports_hopper())
    }

    /// A grid of as many threads as hide the memory latency, for operators that sum over rows: each team processes rows in
    /// turn, and its sums take a row of partial results. `None` if there is nothing to do.
    pub(super) fn plan_persistent<T>(self, device: &Device) -> Option<PersistentPlan> {
        let Self { rows, d, .. } = self;
        if rows == 0 || d == 0 {
            return None;
        }
        let (team, threads) = match self.wide_from(usize::MAX).team::<T>(PACKS, false) {
            // A row's sums take a register per element: beside those of more packs per thread there is no room for anything else.
            (Team::Warp, _) => (Team::Block2, self.threads::<T>(2)),
            (Team::Block8, _) => (Team::Stream, MAX_THREADS),
            found => found,
        };
        let blocks = device.info().multiprocessors as usize * (PERSISTENT_THREADS / threads).clamp(1, 16) as usize;
        // Not more blocks than needed for the same number of turns.
        let of_grid = rows.div_ceil(team.of_block());
        let grid = of_grid.div_ceil(of_grid.div_ceil(blocks));
        let partials = match team {
            Team::Lanes => rows.div_ceil(4).min(grid * WARPS as usize),
            _ => grid,
        };
        let plan = RowPlan { team, grid: grid as u32, block: Dim3::from(threads), rows: rows as u64, d: d as u64 };
        Some(PersistentPlan { plan, partials })
    }

    /// The same for kernels whose threads hold up to `packs` packs, with clusters or without.
    pub(super) fn plan_by<T>(self, info: &OpInfo, packs: usize, clusters: bool) -> Result<Option<RowPlan>> {
        let Self { arg, rows, d, .. } = self;
        let (team, threads) = self.team::<T>(packs, clusters);
        let blocks = if team == Team::Cluster { rows.saturating_mul(CLUSTER as usize) } else { rows };
        let grid = grid(info, arg, if d == 0 { 0 } else { blocks }, team.of_block())?;
        Ok(grid.map(|grid| RowPlan { team, grid, block: Dim3::from(threads), rows: rows as u64, d: d as u64 }))
    }

    /// The smallest team that holds a row, and the threads of its blocks, each with up to `packs` packs.
    fn team<T>(self, packs: usize, clusters: bool) -> (Team, u32) {
        let lanes = gpu_kernels::lanes::<T>();
        let block = MAX_THREADS as usize * packs;
        match self.d.div_ceil(lanes) {
            _ if !self.aligned || !self.d.is_multiple_of(lanes) => (Team::Stream, stream_threads(self.d)),
            0..=16 => (Team::Lanes, WARPS * 32),
            17..=128 => (Team::Warp, WARPS * 32),
            row if (self.wide..=1024).contains(&row) => (Team::Block8, self.threads::<T>(packs)),
            129..=1024 => (Team::Block2, self.threads::<T>(2)),
            row if row <= block => (Team::Block8, self.threads::<T>(packs)),
            row if clusters && row <= block * CLUSTER as usize => {
                (Team::Cluster, self.threads::<T>(packs * CLUSTER as usize))
            }
            _ => (Team::Stream, MAX_THREADS),
        }
    }

    /// Whole warps, with up to `packs` packs of the row per thread.
    fn threads<T>(self, packs: usize) -> u32 {
        self.d.div_ceil(gpu_kernels::lanes::<T>()).div_ceil(packs).next_multiple_of(32) as u32
    }
}

/// The number of threads for a row that is read element by element: at least four elements each.
fn stream_threads(d: usize) -> u32 {
    (d.div_ceil(4).next_multiple_of(32) as u32).min(MAX_THREADS)
}

/// Launches the instance of a row kernel that a plan names, its form for clusters where the operator has one, or one of a persistent
/// grid.
///
/// The arguments are those of the kernel; unsafe as [`Stream::launch`](crate::Stream::launch) is.
macro_rules! launch_rows {
    (persistent $stream:expr, $plan:expr, $module:ident::$kernel:ident, $t:ty, $args:expr) => {{
        use gpu_kernels::rows;
        use $crate::ops::rows::Team;
        let (stream, plan, args): (&$crate::Stream, _, _) = ($stream, $plan, $args);
        match plan.team {
            Team::Lanes => stream.launch::<$module::$kernel<$t, rows::Lanes<2>>>(plan.grid, args),
            Team::Block2 => stream.launch_with::<$module::$kernel<$t, rows::Block<2>>>(plan.grid, plan.block, args),
            _ => stream.launch_with::<$module::$kernel<$t, rows::Stream>>(plan.grid, plan.block, args),
        }
    }};
    ($stream:expr, $plan:expr, $module:ident::$kernel:ident $(/ $cluster:ident)?, $t:ty, $args:expr) => {{
        use gpu_kernels::rows;
        use $crate::ops::rows::Team;
        let (stream, plan, args): (&$crate::Stream, _, _) = ($stream, $plan, $args);
        match plan.team {
            Team::Lanes => stream.launch::<$module::$kernel<$t, rows::Lanes<2>>>(plan.grid, args),
            Team::Warp => stream.launch::<$module::$kernel<$t, rows::Warp<4>>>(plan.grid, args),
            Team::Block2 => stream.launch_with::<$module::$kernel<$t, rows::Block<2>>>(plan.grid, plan.block, args),
            Team::Block8 => stream.launch_with::<$module::$kernel<$t, rows::Block<8>>>(plan.grid, plan.block, args),
            $(Team::Cluster => {
                stream.launch_with::<$module::$cluster<$t, rows::Cluster<8>>>(plan.grid, plan.block, args)
            })?
            #[allow(unreachable_patterns)]
            Team::Cluster | Team::Stream => {
                stream.launch_with::<$module::$kernel<$t, rows::Stream>>(plan.grid, plan.block, args)
            }
        }
    }};
}
pub(super) use launch_rows;

/// The maximum row length, in packs, of every team of operators without clusters.
pub(super) const LIMITS: &[usize] = &[16, 128, 512, 1024, 4096];
/// The same with clusters.
pub(super) const CLUSTERED_LIMITS: &[usize] = &[16, 128, 512, 1024, 4096, 32768];

/// The shapes on which a row operator is timed, in bf16: activations of language models.
pub(super) fn production(info: &'static OpInfo) -> Vec<Case> {
    let case = |(rows, d)| {
        Case::production(info, format!("rows={rows} d={d} bfloat16"), DType::BF16, [("rows", rows), ("d", d)])
    };
    [(32768, 4096), (16384, 8192)].map(case).into()
}

/// The cases of a row operator in a type: the maximum row length of every team and the first length of the next, with different
/// row strides for all tensors except `shared` ones.
pub(super) fn cases(info: &'static OpInfo, dtype: DType, limits: &[usize], shared: &[&str]) -> Vec<Case> {
    let dims = |rows, d| [("rows", rows), ("d", d)];
    let lanes = 16 / dtype.size();
    let padded = |case: Case, pads: [usize; 4]| {
        let args = info.args.iter().filter(|arg| !shared.contains(&arg.name)).zip(pads);
        args.fold(case, |case, (arg, pad)| case.arrange(arg.name, Arrangement::DENSE.row_pad(pad)))
    };
    let mut cases = vec![
        Case::odd(info, dtype, dims(37, 1000)),
        Case::odd(info, dtype, dims(37, 203)),
        // Several packs per thread and a tail, for either element size.
        Case::odd(info, dtype, dims(2, 2501 * lanes + 3)),
        Case::odd(info, dtype, dims(5, 2048)).offset(1),
        padded(Case::odd(info, dtype, dims(61, 64)), [8, 24, 16, 40]),
        padded(Case::odd(info, dtype, dims(9, 768)), [16, 40, 8, 24]),
        padded(Case::odd(info, dtype, dims(5, 3072)), [24, 8, 40, 16]),
        padded(Case::odd(info, dtype, dims(9, 768)), [3, 5, 1, 2]),
        Case::tiny(info, dtype, dims(1, 1)),
        Case::tiny(info, dtype, dims(3, 8)),
        Case::empty(info, dtype, dims(0, 128)),
        Case::empty(info, dtype, dims(128, 0)),
    ];
    for packs in limits.iter().flat_map(|last| [*last, last + 1]) {
        cases.push(Case::boundary(info, dtype, dims(if packs > 4096 { 1 } else { 3 }, packs * lanes)));
    }
    cases
}

/// The cases of a row operator that sums over rows: those of [`cases`], and grids that take three turns, the last of them in part.
pub(super) fn persistent_cases(info: &'static OpInfo, dtype: DType, shared: &[&str]) -> Vec<Case> {
    let dims = |rows, d| [("rows", rows), ("d", d)];
    let lanes = 16 / dtype.size();
    // The last row length of every team. Long rows in one type are enough: the teams are the same.
    let limits: &[usize] = if dtype == DType::BF16 { &[16, 1024] } else { &[16] };
    let mut cases = cases(info, dtype, limits, shared);
    // Warps of which one team has a row in the last turn.
    cases.push(Case::odd(info, dtype, dims(1101, lanes)));
    if dtype == DType::BF16 {
        // Blocks of several warps, and of rows that are read again.
        cases.push(Case::odd(info, dtype, dims(19, 4160)));
        cases.push(Case::odd(info, dtype, dims(19, 2049)));
    }
    cases
}
