//! What lanes execute together stays where it stands: neither copied into both sides of a branch, nor sunk into one.
//!
//! Without a device toolchain the tests say so and pass; `cargo xtask test` fetches one first.

mod fixture;

use std::sync::OnceLock;

use cuda_builder::{Arch, BuildOutput};
use warpsim::{Checks, Fault, Gpu, Launch, Module, Options};

/// How often each kernel calls its primitive.
const PLACES: usize = 6;

/// The instructions that each kernel has once for each place.
const KERNELS: [(&str, &[&str]); 39] = [
    ("block_barrier", &["bar.sync"]),
    ("block_or", &["bar.red.or.pred"]),
    ("block_and", &["bar.red.and.pred"]),
    ("block_count", &["bar.red.popc.u32"]),
    ("named_barrier", &["bar.sync"]),
    ("named_barrier_arrive", &["bar.arrive"]),
    ("warp_barrier", &["bar.warp.sync"]),
    ("cluster_barrier", &["barrier.cluster.arrive.release.aligned", "barrier.cluster.wait"]),
    ("cluster_barrier_relaxed", &["barrier.cluster.arrive.relaxed.aligned", "barrier.cluster.wait"]),
    ("shuffle_xor", &["shfl.sync.bfly"]),
    ("shuffle_idx", &["shfl.sync.idx"]),
    ("shuffle_up", &["shfl.sync.up"]),
    ("shuffle_down", &["shfl.sync.down"]),
    ("vote_all", &["vote.sync.all"]),
    ("vote_any", &["vote.sync.any"]),
    ("vote_ballot", &["vote.sync.ballot"]),
    ("match_any", &["match.any.sync"]),
    ("match_all", &["match.all.sync"]),
    ("redux", &["redux.sync"]),
    ("masked_shuffle_xor", &["shfl.sync.bfly"]),
    ("masked_shuffle_idx", &["shfl.sync.idx"]),
    ("masked_shuffle_up", &["shfl.sync.up"]),
    ("masked_shuffle_down", &["shfl.sync.down"]),
    ("masked_vote_any", &["vote.sync.any"]),
    ("masked_vote_ballot", &["vote.sync.ballot"]),
    ("masked_match_any", &["match.any.sync"]),
    ("masked_match_all", &["match.all.sync"]),
    ("masked_redux", &["redux.sync"]),
    ("active_mask", &["activemask"]),
    ("elect", &["elect.sync"]),
    ("product", &["mma.sync"]),
    ("fragment_load", &["ldmatrix.sync"]),
    ("fragment_store", &["stmatrix.sync"]),
    ("group_product", &["wgmma.fence", "wgmma.mma_async", "wgmma.commit_group", "wgmma.wait_group"]),
    ("registers", &["setmaxnreg"]),
    ("mbarrier_wait", &["mbarrier.try_wait"]),
    ("helper", &["call"]),
    ("generic_helper", &["call"]),
    ("pointer", &["call"]),
];

const THREADS: u32 = 128;

fn build() -> Option<&'static BuildOutput> {
    static BUILT: OnceLock<Option<BuildOutput>> = OnceLock::new();
    let folder = fixture::scratch("convergence");
    BUILT.get_or_init(|| fixture::build("convergence", &[Arch::Sm90a], &folder)).as_ref()
}

fn ptx(built: &BuildOutput, symbol: &str) -> String {
    fixture::ptx(&built.manifest, Arch::Sm90a, symbol, &fixture::scratch("convergence"))
}

/// How many instructions of the entry start so.
fn count(ptx: &str, instruction: &str) -> usize {
    let entry = ptx.split(".visible .entry").nth(1).and_then(|rest| rest.split("\n.func").next()).unwrap_or_default();
    entry.lines().filter(|line| line.trim_start().starts_with(instruction)).count()
}

/// Runs a kernel on values that part the lanes of every warp at every branch; returns the findings, and what each thread
/// has in its first place.
fn run(ptx: &str, symbol: &str) -> Result<(Vec<String>, Vec<u32>), Fault> {
    // All residues of a warp's lanes, in another order in each warp, and behind them what the search looks for.
    let values = (0..THREADS).map(|i| i * 37 % 64).chain([1, 6, 3]);
    let mut gpu = Gpu::new();
    let x = gpu.alloc_with(&values.flat_map(u32::to_le_bytes).collect::<Vec<_>>(), "x");
    let y = gpu.alloc_with(&vec![0; 10 * 4 * THREADS as usize], "y");
    let args: [&[u8]; 3] = [&x.to_le_bytes(), &y.to_le_bytes(), &3u32.to_le_bytes()];
    let launch = Launch { block: [THREADS, 1, 1], shared_bytes: 8192, args: &args, ..Launch::default() };
    let options = Options { checks: Checks { sync: true, ..Checks::NONE }, ..Options::default() };
    let kernel = Module::parse(ptx).and_then(|module| module.kernel(symbol)).unwrap_or_else(|error| panic!("{error}"));
    let report = gpu.launch(&kernel, &launch, &options)?;
    let bytes = gpu.read_vec(y, 4 * THREADS as usize).expect("y holds them");
    let first = bytes.chunks(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    Ok((report.findings.iter().map(ToString::to_string).collect(), first.collect()))
}

#[test]
fn primitives_stay_where_they_are() {
    let Some(built) = build() else { return };
    let mut wrong = Vec::new();
    for (symbol, instructions) in KERNELS {
        let ptx = ptx(built, symbol);
        for instruction in instructions {
            let found = count(&ptx, instruction);
            if found != PLACES {
                wrong.push(format!("{symbol} has {found} {instruction} instead of {PLACES}"));
            }
        }
        wrong.extend(run(&ptx, symbol).map_or_else(|fault| vec![fault.to_string()], |(findings, _)| findings));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn two_sides_of_a_branch_stay_two() {
    let Some(built) = build() else { return };
    let ptx = ptx(built, "two_sides");
    assert_eq!(count(&ptx, "activemask"), 2, "{ptx}");
    let (findings, lanes) = run(&ptx, "two_sides").unwrap_or_else(|fault| panic!("{fault}"));
    assert!(findings.is_empty(), "{findings:#?}");
    assert!(lanes.iter().all(|mask| [0x5555_5555, 0xaaaa_aaaa].contains(mask)), "{lanes:x?}");
}
