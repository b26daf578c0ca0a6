//! What row operators share: the team that a row gets, their launch and their cases.

use cuda_std::launch::Dim3;
use gpu_kernels::rows::{CLUSTER, MAX_THREADS, WARPS};

use super::elementwise::grid;
use super::model::{Arrangement, Case, OpInfo};
use crate::runtime::device::Device;
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::view::{View, ViewMut};

/// Who works on a row: the names of [`gpu_kernels::rows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Team {
    Lanes,
    Warp,
    Block2,
    Block8,
    Cluster,
    Stream,
}

/// An error unless the shape has rows: two dimensions or more.
pub(super) fn require(info: &OpInfo, arg: &'static str, shape: &[usize]) -> Result<()> {
    if shape.len() < 2 {
        return Err(info.shape_error(arg, shape, "two dimensions or more"));
    }
    Ok(())
}

/// How a row operator is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowPlan {
    pub(super) team: Team,
    pub(super) grid: u32,
    pub(super) block: Dim3,
    pub(super) rows: u64,
    pub(super) d: u64,
}

/// The rows that an operator works on: those of its first argument, and how the others lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    arg: &'static str,
    rows: usize,
    d: usize,
    aligned: bool,
}

impl Rows {
    /// The rows of `x`, which has two dimensions or more.
    pub(super) fn of<T>(info: &OpInfo, arg: &'static str, x: &View<'_, T>) -> Result<Self> {
        require(info, arg, x.shape())?;
        Ok(Self { arg, rows: x.rows(), d: x.cols(), aligned: x.rows_aligned(16) })
    }

    /// `rows` rows of `d` elements, each at a multiple of 16 bytes if `aligned`.
    pub(super) fn new(arg: &'static str, rows: usize, d: usize, aligned: bool) -> Self {
        Self { arg, rows, d, aligned }
    }

    /// Beside another operand that is read by packs.
    pub(super) fn and<T>(self, x: &View<'_, T>) -> Self {
        Self { aligned: self.aligned && x.rows_aligned(16), ..self }
    }

    /// Beside one that is written by packs.
    pub(super) fn and_mut<T>(self, y: &ViewMut<'_, T>) -> Self {
        Self { aligned: self.aligned && y.rows_aligned(16), ..self }
    }

    /// The smallest team that holds a row; `None` when there is nothing to do.
    pub(super) fn plan<T>(self, info: &OpInfo) -> Result<Option<RowPlan>> {
        self.plan_by::<T>(info, false)
    }

    /// The same for operators that have kernels for clusters, which the device may have.
    pub(super) fn plan_clustered<T>(self, info: &OpInfo, device: &Device) -> Result<Option<RowPlan>> {
        self.plan_by::<T>(info, device.supports_hopper())
    }

    fn plan_by<T>(self, info: &OpInfo, clusters: bool) -> Result<Option<RowPlan>> {
        let Self { arg, rows, d, aligned } = self;
        let lanes = gpu_kernels::lanes::<T>();
        let packs = d.div_ceil(lanes);
        // Whole warps, each thread with up to so many packs.
        let threads = |of: usize| packs.div_ceil(of).next_multiple_of(32) as u32;
        let (team, threads) = match packs {
            _ if !aligned || !d.is_multiple_of(lanes) => (Team::Stream, stream_threads(d)),
            0..=16 => (Team::Lanes, WARPS * 32),
            17..=128 => (Team::Warp, WARPS * 32),
            129..=1024 => (Team::Block2, threads(2)),
            1025..=4096 => (Team::Block8, threads(8)),
            4097..=32768 if clusters => (Team::Cluster, threads(8 * CLUSTER as usize)),
            _ => (Team::Stream, MAX_THREADS),
        };
        let per_block = match team {
            Team::Lanes => 4 * WARPS as usize,
            Team::Warp => WARPS as usize,
            _ => 1,
        };
        let blocks = if team == Team::Cluster { rows.saturating_mul(CLUSTER as usize) } else { rows };
        let grid = grid(info, arg, if d == 0 { 0 } else { blocks }, per_block)?;
        Ok(grid.map(|grid| RowPlan { team, grid, block: Dim3::from(threads), rows: rows as u64, d: d as u64 }))
    }
}

/// Threads for a row that is read element by element: four elements each or more.
fn stream_threads(d: usize) -> u32 {
    (d.div_ceil(4).next_multiple_of(32) as u32).min(MAX_THREADS)
}

/// Launches the instance of a row kernel that a plan names, or its form for clusters where the operator has one.
///
/// The arguments are those of the kernel; unsafe as [`Stream::launch`](crate::Stream::launch) is.
macro_rules! launch_rows {
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

/// The last row length of every team that operators without clusters have, in packs.
pub(super) const LIMITS: &[usize] = &[16, 128, 1024, 4096];
/// The same with clusters.
pub(super) const CLUSTERED_LIMITS: &[usize] = &[16, 128, 1024, 4096, 32768];

/// The cases of a row operator in a type: every team, the last row length of each and the first of the next, and rows of all tensors
/// but `shared` ones differently far apart.
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
        Case::odd(info, dtype, dims(2, 20_011)),
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
