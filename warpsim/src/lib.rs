//! Runs, checks and measures NVIDIA PTX without a GPU.
//!
//! `warpsim` executes the PTX text that a compiler produced, warp by warp, and reports what would go wrong on hardware:
//! out-of-bounds accesses, reads of uninitialised memory, races, misused barriers and deadlocks. It counts what a profiler can
//! count without a clock: sectors, bank conflicts, divergence, FLOPs. The PTX may come from nvcc, NVRTC or LLVM, or be written by
//! hand.
//!
//! ```
//! use warpsim::{Checks, Gpu, Launch, Module, Options};
//!
//! let module = Module::parse(
//!     r#"
//!     .version 8.0
//!     .target sm_80
//!     .address_size 64
//!     .visible .entry double(.param .u64 x)
//!     {
//!         .reg .b32 %r<3>; .reg .f32 %f<3>; .reg .b64 %rd<4>;
//!         ld.param.u64 %rd1, [x];
//!         mov.u32 %r1, %tid.x;
//!         mul.wide.u32 %rd2, %r1, 4;
//!         add.s64 %rd3, %rd1, %rd2;
//!         ld.global.f32 %f1, [%rd3];
//!         add.f32 %f2, %f1, %f1;
//!         st.global.f32 [%rd3], %f2;
//!         ret;
//!     }"#,
//! )?;
//! let kernel = module.kernel("double")?;
//! let mut gpu = Gpu::new();
//! let x = gpu.alloc_with(&[1.5f32; 64].map(f32::to_le_bytes).concat(), "x");
//! let args: [&[u8]; 1] = [&x.to_le_bytes()];
//! let launch = Launch { block: [64, 1, 1], args: &args, ..Launch::default() };
//! let options = Options { checks: Checks::ALL, ..Options::default() };
//! let report = gpu.launch(&kernel, &launch, &options)?;
//! assert!(report.clean());
//! assert_eq!(gpu.read_vec(x, 4).unwrap(), 3f32.to_le_bytes());
//!
//! // One thread too many: the launch ends with a fault that names the place, the thread and the allocation.
//! let fault = gpu.launch(&kernel, &Launch { block: [65, 1, 1], ..launch }, &options).unwrap_err();
//! assert!(fault.to_string().contains("0 bytes past the end of `x` (256 bytes)"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is modelled
//!
//! Values are computed exactly: integer arithmetic, floating point in every rounding mode with `.ftz` and `.sat`, and conversions
//! between all formats down to 8 bits. The `.approx` functions are computed more precisely than on hardware; tensor-core sums are
//! accumulated in f32, in an order that differs from the hardware's.
//!
//! The lanes of a warp execute independently and reconverge at post-dominators, which are computed over the paths that do not
//! leave the kernel. Lanes do not wait there for lanes that poll. Lanes that have exited take no part in barriers. Blocks are
//! distributed over the host's cores; the blocks of a cluster share memory. Asynchronous work (`cp.async`, bulk and tensor
//! copies, `wgmma`) is performed either at once or as late as a wait allows ([`Completion`]); a copy that arrives at an mbarrier
//! is complete for the threads that wait on that mbarrier. The blocks of a cooperative launch are all resident at once and may
//! wait for each other at the grid's barrier.
//!
//! These operations, which an H200 answers with an illegal-instruction error, are faults here too: a tensor copy whose start
//! along the innermost dimension is not a multiple of 16 bytes, a tensor store or reduction that starts before the tensor, and
//! the im2col copies that the hardware refuses.
//!
//! The happens-before order between threads is tracked for each lane: through barriers of warps, blocks and clusters, mbarriers,
//! fences, atomics and other strong accesses to one address, groups of copies and of `wgmma`, and proxy fences. [`Checks::race`]
//! reports what this order leaves unordered: accesses to shared memory and, across the whole grid, to global memory, on both
//! sides of asynchronous copies; accesses to registers that a `wgmma` still uses; tensor maps that were written and not fenced;
//! and shared memory that other blocks use when its block ends, or before its block is known to have started.
//!
//! Fences and strong accesses order only the threads of their scope, and strong accesses of different sizes order nothing. What
//! one thread has fenced is passed on by every thread that is ordered after it, so that one thread may signal for a block whose
//! threads have all fenced. What a lane has learnt of other warps becomes known to the lanes that shuffle, vote or match with it;
//! these instructions do not order the lanes with respect to each other. A thread that has seen a flag with a strong read may
//! reset the flag with a plain store. A `volatile` access is a relaxed access at system scope. Among the lanes of one warp it
//! guarantees nothing, unless the lanes have diverged and use fences, or the module's target is older than `sm_70`, where the
//! lanes of a warp run in lockstep. No thread of the same launch may write what `ld.global.nc` reads, except the thread that read
//! it.
//!
//! [`Checks::init`] tracks uninitialised contents of registers, local memory and shared memory through arithmetic, shuffles,
//! matrix products (`mma.sync`, `wmma` and `wgmma`: by rows and columns), calls and the stack. It reports an uninitialised value
//! where the value has an effect: in a branch condition, an address, or a value stored to global memory. Each byte of a register
//! is tracked separately while it is moved, packed and masked, so one half of a register may be undefined. A load of unwritten
//! global memory is reported at once, unless some of the bytes it reads were written: then the other bytes are tracked, and so
//! are unwritten bytes that `cp.async` copies. A value that is stored exactly as it was loaded (a vector as a whole) may carry
//! unwritten bytes along, because they may be padding of a structure. A function's frame starts unwritten, and so does memory
//! from `alloca`. A shuffle that reads an absent lane yields an undefined value, and so does an integer quotient or remainder
//! with a zero divisor ([`Kind::DivisionByZero`]).
//!
//! [`Checks::offsets`] tracks the values that 32-bit additions, products and shifts would have in wider registers, and reports an
//! access whose address derives from a value that did not fit in 32 bits. The result of a bit operation, a right shift or a
//! division of such a value counts as a new number: hashes may wrap around, and so may sums that return to the 32-bit range.
//!
//! Where the checkers have to choose, they prefer to miss an error over reporting a false one:
//!
//! - A volatile read and a relaxed atomic count as an acquire. `ld.relaxed` does not: it needs a fence, or a barrier, before the
//!   data that it announces is read.
//! - A compare-and-swap counts as a read, because compare-and-swap loops start from a plain read.
//! - Two strong words may serve as a message and its flag without a fence.
//! - Threads may store equal values, and copies into shared memory may write equal values. Bulk stores to global memory may not.
//! - The invalidation of an mbarrier has to be ordered after its last use by each other warp, and by any lane of that warp.
//! - Only the last writer and two readers of each location are remembered, and of atomics in global memory an earlier one that is
//!   not ordered before the last.
//! - A `wgmma` group is complete for the four warps of its warpgroup once one of them has waited for it.
//! - An mbarrier needs a fence between its initialisation and bulk copies only if the copies come from another block.
//! - A constant that is moved into a register of a `wgmma` after its fence counts as moved before the fence, because compilers
//!   emit such code.
//! - When several lanes of a warp issue the same bulk store, it is performed once, as on GPUs. So is the initialisation of an
//!   mbarrier.
//! - In a module compiled for a debugger (`nvcc -G`), and in a function that leaves the wait to its caller, each `wgmma` is
//!   complete at once, because ptxas waits after each of them.
//! - A reduction into shared memory needs no proxy fence.
//! - An arrival or a wait without a scope has the cluster's scope.
//!
//! Phases of a named barrier are separate: each phase orders the threads that took part in it, and a thread that arrives for the
//! next phase has to be ordered after them. The same holds for a thread that arrives at an mbarrier of its own block.
//!
//! A launch ends when its threads can only wait, or poll for a value that none of them will write: every polling thread has
//! returned to an earlier state, and memory has not changed in between. Blocks can wait for each other only as far as the GPU
//! holds them at once. A loop that counts iterations or reads a clock runs until it ends or reaches a limit.
//!
//! Launches run one after another. A programmatic launch ([`Launch::programmatic`]) could start before the launches ahead of it
//! have ended. What it accesses before its `griddepcontrol.wait`, or before a barrier or flag that follows such a wait, is
//! compared with the accesses of those launches, whether or not they have let it start by `launch_dependents`. What it accesses
//! later is compared with the accesses of the launches that a launch in between did not wait for.
//!
//! `malloc` and `free` use a heap in device memory ([`Gpu::with_heap`]). Accesses outside its chunks, accesses to freed chunks,
//! invalid frees and chunks that are never freed ([`Gpu::leaks`]) are found, and reported with the call that allocated the chunk.
//!
//! # What is not modelled
//!
//! Time and caches: there is no latency and no bandwidth. Prefetches and cache hints do nothing, and a wait with a time limit
//! ends with its phase, or when no other thread can go on.
//!
//! `setmaxnreg` has an effect if the number of registers at the start is known, from [`Options::registers`] or from the kernel's
//! bounds: ptxas ignores it otherwise.
//!
//! Also not modelled: textures, surfaces, Blackwell's instructions (`tcgen05` and others from `sm_100` on), `multimem`, and
//! dynamic parallelism. The system reserves no shared memory here: static variables begin at 0.
//!
//! A shared variable has its own bounds, with a guard region of 1 KiB after it. A frame and a structure are checked as a whole:
//! an index that runs from one of their arrays into the next is in bounds. PTX does not contain the information: compilers merge
//! the arrays of a function, of a structure or of dynamic shared memory into one variable, and do not record where each array
//! ends.
//!
//! A word of local or shared memory that is written back to its own location with some of its bits changed counts as written: the
//! other bits may be fields that are initialised later.
//!
//! Anything that is not supported is an error with its line, and is never silently skipped. The same holds for an instruction
//! that the module's target does not have, for a type or modifier that the instruction does not have, and for an operand register of
//! a type that ptxas does not accept (registers that hold matrices are checked for their size alone).

#![warn(missing_docs)]
// Modules are private: what is public in one is public to the others.
#![allow(unreachable_pub)]
// Executing functions take the machine's parts one by one, so that each borrows only what it needs.
#![allow(clippy::too_many_arguments)]
// Lane loops index several arrays by the same lane.
#![allow(clippy::needless_range_loop)]
// Bit fields read better without a parenthesis for every shift.
#![allow(clippy::precedence)]
// `x < y || x > y` is not `x != y` when one is NaN.
#![allow(clippy::double_comparisons, clippy::neg_cmp_op_on_partial_ord)]
// A warp is large: its box is what moves, from a pool to a block and back.
#![allow(clippy::vec_box)]

mod check;
mod directed;
mod exec;
mod heap;
mod im2col;
mod ir;
mod launch;
mod lower;
mod memory;
mod metrics;
mod names;
mod num;
mod occupancy;
mod ops;
mod ptx;
mod report;
mod tensor_map;
mod variables;
mod zeroed;

pub use heap::HEAP_BYTES;
pub use im2col::Im2col;
pub use launch::*;
pub use memory::AccessError;
pub use metrics::{Line, Metrics, Traffic};
pub use num::{bf16_bits, bf16_value, f16_bits, f16_value};
pub use occupancy::*;
pub use ptx::ParseError;
pub use report::*;
pub use tensor_map::*;
pub use zeroed::OutOfMemory;
