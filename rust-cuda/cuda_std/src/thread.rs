//! Where a thread is in its grid, and synchronization of a block.

macro_rules! index {
    ($($name:ident, $intrinsic:ident, $register:literal, $doc:literal;)*) => { $(
        #[doc = concat!($doc, " PTX `", $register, "`.")]
        #[inline(always)]
        pub fn $name() -> u32 {
            #[cfg(target_arch = "nvptx64")]
            // SAFETY: reads a special register. The intrinsic, unlike assembly, tells LLVM its range.
            unsafe {
                core::arch::nvptx::$intrinsic() as u32
            }
            #[cfg(not(target_arch = "nvptx64"))]
            crate::device_only()
        }
    )* };
}

index! {
    thread_idx_x, _thread_idx_x, "%tid.x", "This thread's x index in its block.";
    thread_idx_y, _thread_idx_y, "%tid.y", "This thread's y index in its block.";
    thread_idx_z, _thread_idx_z, "%tid.z", "This thread's z index in its block.";
    block_idx_x, _block_idx_x, "%ctaid.x", "This block's x index in the grid.";
    block_idx_y, _block_idx_y, "%ctaid.y", "This block's y index in the grid.";
    block_idx_z, _block_idx_z, "%ctaid.z", "This block's z index in the grid.";
    block_dim_x, _block_dim_x, "%ntid.x", "Threads a block along x.";
    block_dim_y, _block_dim_y, "%ntid.y", "Threads a block along y.";
    block_dim_z, _block_dim_z, "%ntid.z", "Threads a block along z.";
    grid_dim_x, _grid_dim_x, "%nctaid.x", "Blocks in the grid along x.";
    grid_dim_y, _grid_dim_y, "%nctaid.y", "Blocks in the grid along y.";
    grid_dim_z, _grid_dim_z, "%nctaid.z", "Blocks in the grid along z.";
}

/// This thread's index in a one-dimensional grid, computed in 64 bits.
#[inline(always)]
pub fn index_1d() -> usize {
    block_idx_x() as usize * block_dim_x() as usize + thread_idx_x() as usize
}

/// This thread's indices in a two-dimensional grid, x first, computed in 64 bits.
#[inline(always)]
pub fn index_2d() -> [usize; 2] {
    [index_1d(), block_idx_y() as usize * block_dim_y() as usize + thread_idx_y() as usize]
}

/// This thread's indices in a three-dimensional grid, x first, computed in 64 bits.
#[inline(always)]
pub fn index_3d() -> [usize; 3] {
    let [x, y] = index_2d();
    [x, y, block_idx_z() as usize * block_dim_z() as usize + thread_idx_z() as usize]
}

/// The number of threads in a one-dimensional grid: the stride of a grid-stride loop.
#[inline(always)]
pub fn grid_size_1d() -> usize {
    grid_dim_x() as usize * block_dim_x() as usize
}

/// Waits until every thread of the block is here; their memory accesses before are visible after. PTX `bar.sync 0`.
///
/// # Safety
/// All threads of the block reach this call, the lanes of each warp together.
#[inline(always)]
pub unsafe fn sync_threads() {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::nvptx::_syncthreads();
    }
    #[cfg(not(target_arch = "nvptx64"))]
    crate::device_only()
}

macro_rules! sync_and_vote {
    ($($name:ident, $instruction:literal, $doc:literal;)*) => { $(
        #[doc = concat!("[`sync_threads`], and whether `predicate` holds in ", $doc, " of the block. PTX `", $instruction, "`.")]
        ///
        /// # Safety
        /// As for [`sync_threads`].
        #[inline(always)]
        pub unsafe fn $name(predicate: bool) -> bool {
            let result: u32;
            // SAFETY: the caller's promise.
            unsafe {
                ptx!(
                    "{{", ".reg .pred p, q;",
                    "setp.ne.u32 p, {predicate}, 0;",
                    concat!($instruction, " q, 0, p;"),
                    "selp.u32 {result}, 1, 0, q;", "}}",
                    result = out(reg32) result, predicate = in(reg32) u32::from(predicate),
                    options(nostack),
                );
            }
            result != 0
        }
    )* };
}

sync_and_vote! {
    sync_threads_or, "bar.red.or.pred", "some thread";
    sync_threads_and, "bar.red.and.pred", "every thread";
}

/// [`sync_threads`], and in how many threads of the block `predicate` holds. PTX `bar.red.popc.u32`.
///
/// # Safety
/// As for [`sync_threads`].
#[inline(always)]
pub unsafe fn sync_threads_count(predicate: bool) -> u32 {
    let result: u32;
    // SAFETY: the caller's promise.
    unsafe {
        ptx!(
            "{{", ".reg .pred p;",
            "setp.ne.u32 p, {predicate}, 0;",
            "bar.red.popc.u32 {result}, 0, p;", "}}",
            result = out(reg32) result, predicate = in(reg32) u32::from(predicate),
            options(nostack),
        );
    }
    result
}

/// The block's other fifteen barriers, for groups of warps that synchronize among themselves.
pub mod named_barrier {
    /// Waits until `threads` threads have arrived at barrier `id` (0 is [`sync_threads`](super::sync_threads)'s). PTX `bar.sync id, threads`.
    ///
    /// # Safety
    /// `id < 16`; `threads` is a multiple of 32 and the same in every participating warp; the lanes of a warp are convergent.
    #[inline(always)]
    pub unsafe fn sync(id: u32, threads: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            ptx!("bar.sync {}, {};", in(reg32) id, in(reg32) threads, options(nostack));
        }
    }

    /// Counts this warp in at barrier `id` without waiting. PTX `bar.arrive id, threads`.
    ///
    /// # Safety
    /// As for [`sync`].
    #[inline(always)]
    pub unsafe fn arrive(id: u32, threads: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            ptx!("bar.arrive {}, {};", in(reg32) id, in(reg32) threads, options(nostack));
        }
    }
}
