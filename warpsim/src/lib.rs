//! Runs, checks and measures NVIDIA PTX without a GPU.
//!
//! `warpsim` executes the PTX text that a compiler made, warp by warp, and says what would go wrong on hardware: accesses
//! out of bounds, reads of memory that nobody wrote, races, misused barriers, deadlocks. It counts what a profiler counts
//! that needs no clock: sectors, bank conflicts, divergence, FLOPs. Any PTX will do, from nvcc, NVRTC, LLVM or by hand.
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
//! // One thread too many: the launch ends with a fault that names place, thread and allocation.
//! let fault = gpu.launch(&kernel, &Launch { block: [65, 1, 1], ..launch }, &options).unwrap_err();
//! assert!(fault.to_string().contains("0 bytes past the end of `x` (256 bytes)"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is modelled
//!
//! Values, exactly: integer arithmetic, floating point in every rounding mode with `.ftz` and `.sat`, conversions between
//! all formats down to 8 bits. The `.approx` functions are computed more precisely than the hardware does; tensor-core
//! sums are f32 in an order of their own. Warps run with independent lanes that reconverge at post-dominators, of the
//! ways that do not leave the kernel, and do not wait there for lanes that poll; lanes that left take no part in barriers. Blocks run over the host's cores; clusters
//! share memory. Asynchronous work (`cp.async`, bulk and tensor copies, `wgmma`) happens at
//! once or as late as a wait allows ([`Completion`]); what arrives at an mbarrier is over for those who wait there. The blocks of a cooperative launch are all there at once, and may wait for
//! each other at the grid's barrier.
//!
//! What an H200 answers with an illegal instruction is a fault here too: a tensor copy that starts between multiples of 16 bytes of the innermost dimension, a
//! store or reduction that starts ahead of the tensor, and what im2col copies may not.
//!
//! Order between threads is followed lane by lane: through barriers of warps, blocks and clusters, mbarriers, fences,
//! atomics and other strong accesses to one address, groups of copies and of `wgmma`, and proxy fences. [`Checks::race`]
//! reports what it leaves unordered: accesses to shared memory and, across the whole grid, to global memory, on both sides
//! of asynchronous copies; registers that `wgmma` works on; tensor maps that were written and not fenced; shared memory that others use when its
//! block ends, or before anything says that it has started. Fences and
//! strong accesses order the threads of their scope, and strong accesses of different sizes none. What a thread fenced is passed on by whoever comes after it, so that one
//! thread may signal for a block whose threads have all fenced. What a lane has learnt of other warps, the lanes know that shuffle, vote or match with it;
//! of each other they learn nothing by that. Whoever has seen a flag by a strong read may take it down by a plain store. `volatile` is relaxed at system scope; among the lanes of a
//! warp it promises nothing, unless they are apart and fence, or the module's target is one before `sm_70`, whose lanes go in step. What `ld.global.nc` reads may be written by nobody in the same launch, but by the thread that read it.
//!
//! [`Checks::init`] follows what registers, local and shared memory hold that nobody wrote, through arithmetic, shuffles, products of matrices
//! (`mma.sync`, `wmma` and `wgmma`: by rows and columns), calls and the stack, and reports it where it decides something: a branch, an address, what is
//! stored in global memory. Each byte of a register is followed by itself while it is moved, packed and masked: one half of it may be undefined.
//! A load from global memory is reported at once, but for one of which somebody wrote some bytes: the others are
//! followed, and so are those that `cp.async` copies. What is stored as it was loaded, a vector as a whole, takes along what nobody wrote of it, which may be
//! padding of a structure. A function's frame begins unwritten,
//! and so does what `alloca` gives. What a shuffle takes from a lane that is not there counts as such a value, and so does a quotient or a
//! remainder of integers divided by zero ([`Kind::DivisionByZero`]).
//!
//! [`Checks::offsets`] follows what 32-bit additions, products and shifts would give in wider registers, and reports an access whose
//! address comes from one that 32 bits did not hold. What bit operations, shifts to the right and divisions make of such a number
//! is a new one: hashes may wrap around, and so may sums that come back.
//!
//! Where it has to choose it is quiet: a volatile read and a relaxed atomic count as an acquire (`ld.relaxed` needs a fence, or a
//! barrier, before what it announces is read) and a compare-and-swap as a read (loops start from a plain one); two strong
//! words pass for a message and its flag without a fence; threads may store equal values, and copies bring them; of each place the last writer and two readers are
//! remembered; a `wgmma` group is over for its four warps once one has waited; an mbarrier needs a fence between its
//! initialisation and bulk copies only when these come from another block; a constant that is moved into a register of `wgmma` behind its
//! fence counts as moved before it, as compilers have it; lanes of a warp that name the same in a bulk store
//! store it once, as GPUs do; of a module for a debugger (`nvcc -G`), and of a function that leaves the wait to its caller,
//! each `wgmma` is over at once, as ptxas has it; a reduction into shared memory needs no proxy fence;
//! an arrival or a wait without a scope counts as one for the cluster. Phases of a named barrier are apart: each orders those who came to it, and whoever
//! comes to the next has to be behind them; so has who arrives at an mbarrier of its own block.
//!
//! A launch ends when its threads can only wait, or poll for what none of them will write: when each is where it was before, and nothing has
//! changed in between. Blocks wait for each other as far as the GPU holds them at once. A loop that
//! counts, or looks at a clock, goes on until it ends or comes to a limit.
//!
//! Launches run one after another. One that is programmatic ([`Launch::programmatic`]) could start before those ahead have ended: what it accesses
//! before its `griddepcontrol.wait`, or a barrier or flag behind one, is compared with what they accessed, whether or not they have let it start by
//! `launch_dependents`; so is what comes after it, with those that a launch between did not wait for.
//!
//! `malloc` and `free` take from a heap of the device ([`Gpu::with_heap`]). Accesses outside its chunks, to freed ones, wrong
//! frees and what is left in the end ([`Gpu::leaks`]) are found, and named by the call that allocated them.
//!
//! # What is not
//!
//! Time and caches: no latency, no bandwidth; prefetches and cache hints do nothing, and a wait with a time limit
//! ends with its phase, or when no other thread can go on. Textures, surfaces, what came with
//! Blackwell (`tcgen05` and other instructions from `sm_100` on), `multimem`, dynamic parallelism. The system reserves no shared memory here: static variables begin at 0.
//! A shared variable has bounds of its own, with a kilobyte of nobody's behind it; a frame and a structure have bounds as a whole: an index
//! that runs from one of their arrays into the next is in bounds. PTX does not tell: compilers make one variable of a function's arrays, and one of a
//! structure's or of dynamic shared memory, and where one ends in it stands nowhere.
//! A word of local or shared memory that is written back where it came from with some of its bits changed counts as written: the others may be fields that
//! are yet to come. What is not supported is an error with its line, never
//! silently skipped; so is an instruction that the module's target does not have, and a register of a type that ptxas does not take there (of matrices
//! it is asked for the size alone).

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
