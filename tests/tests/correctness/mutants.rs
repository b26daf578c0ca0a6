//! The checks against the kernels themselves: every instruction that synchronises is taken out in turn, and the simulator has
//! to notice.

use std::cmp::Reverse;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::{Failed, Trial};
use warpsmith::check::Job;
use warpsmith::check::mutation::{Mutation, synchronising};
use warpsmith::check::registry;
use warpsmith::check::verify::{self, Filter, Row, Status};
use warpsmith::ops::model::{Case, Operator};
use warpsmith::{Device, kernels, sim};
use warpsmith_tests::device;

use crate::ROWS;

static MUTANTS: AtomicUsize = AtomicUsize::new(0);
/// How many of all operators there have to be: nine tenths of the 7101 that there were at the last count.
const LEAST: usize = 6400;

/// None where the device is no simulator, or the kernels are not there.
pub(crate) fn trials() -> Vec<Trial> {
    if device().is_none_or(|device| device.simulator().is_none()) || kernels::not_built().is_some() {
        return Vec::new();
    }
    let trial = |op: &'static dyn Operator| {
        Trial::test(format!("mutants {}", op.info().name), move || no_synchronisation_goes_missing_unnoticed(op))
    };
    // Those that take longest first, so that no thread is left with one of them at the end.
    let mut operators: Vec<_> = registry::everything().collect();
    operators.sort_by_key(|op| Reverse(op.info().instances().count()));
    let mut trials: Vec<_> = operators.into_iter().map(trial).collect();
    trials.push(Trial::test("mutants count guarded instructions", guarded_instructions_count));
    trials.push(Trial::test("a pack past the end of a row", a_pack_past_the_end_of_a_row_is_noticed));
    trials.push(Trial::test("a block that leaves too early", a_block_that_leaves_too_early_is_noticed));
    trials
}

/// Whether there were as many as there should be, after all have been tried.
pub(crate) fn enough() -> Result<(), String> {
    let mutants = MUTANTS.load(Ordering::Relaxed);
    eprintln!("{mutants} mutants");
    let simulated = device().is_some_and(|device| device.simulator().is_some());
    if !simulated || mutants >= LEAST { Ok(()) } else { Err(format!("too few mutants: {mutants}, not {LEAST}")) }
}

fn no_synchronisation_goes_missing_unnoticed(op: &'static dyn Operator) -> Result<(), Failed> {
    let device = sim::unshared()?;
    let filter = Filter::default();
    let jobs: Vec<_> =
        verify::plan("sanitize", &[op], &filter)?.into_iter().filter(|job| job.case.is_simulated()).collect();
    // A kernel that several operators launch is to be tested by one: the first whose name begins like its own, or the first.
    let lists = |op: &dyn Operator, symbol: &str| op.info().instances().any(|kernel| kernel.symbol == symbol);
    let alike = |op: &dyn Operator, symbol: &str| {
        op.info().name.split('_').next().is_some_and(|word| symbol.split('_').next() == Some(word))
    };
    let mut mutation = Mutation::new(&device, &jobs, &filter, &verified(op), |symbol| {
        if repeats(symbol) {
            return false;
        }
        let all = || registry::everything().filter(|op| lists(*op, symbol));
        let tests = all().find(|op| alike(*op, symbol)).or_else(|| all().next());
        tests.is_some_and(|tests| tests.info().name == op.info().name)
    })?;
    MUTANTS.fetch_add(mutation.count(), Ordering::Relaxed);
    let mutants = mutation.run(8, |_| {})?;
    let missed: Vec<_> = mutants.iter().filter(|mutant| mutant.caught.is_none()).collect();
    if missed.is_empty() { Ok(()) } else { Err(format!("{missed:#?}").into()) }
}

/// What the cases of an operator were given.
fn verified(op: &dyn Operator) -> Vec<Row> {
    let rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    rows.iter().filter(|row| row.op == op.info().name).cloned().collect()
}

/// Whether others stand for a kernel. How wide the tiles of a product are, how its operands lie, and what C is stored in, do not
/// depend on each other: there are kernels of every width and for both kinds of C whose operands both lie along k, and of the widest
/// tiles for operands that lie in every way. Of 8 bits there are those of every width for one type of A and of two widths for the
/// others, as there are for products with a bias, of whose tiles that are not swapped there are the widest; of fine tiles there are
/// the widest and two more. So are clusters of a weight of few bits: of three and four blocks there are those of 16 and of 96 rows.
fn repeats(symbol: &str) -> bool {
    let narrow = ["_n64", "_n128", "_n192"].iter().any(|width| symbol.ends_with(width));
    let two_widths = ["_n224_", "_n208_", "_n64_"].iter().any(|width| symbol.contains(width));
    let of_two_widths = ["gemm_fp8_swapped_f8e5m2_", "gemm_int8_swapped_", "linear_swapped_"];
    let of_two_widths = of_two_widths.iter().any(|kernel| symbol.starts_with(kernel));
    let between = ["_n224", "_n208", "_n144"].iter().any(|width| symbol.ends_with(width));
    let in_f32 = ["gemm_hopper_f16_f32_", "gemm_hopper_bf16_f32_"].iter().any(|kernel| symbol.starts_with(kernel));
    let large = ["_share3_", "_share4_"].iter().any(|share| symbol.contains(share));
    let of_few_bits = ["gemm_w8a16_cluster_", "gemm_w4a16_cluster_"].iter().any(|kernel| symbol.starts_with(kernel));
    symbol.starts_with("gemm_hopper_") && (narrow || in_f32) && !symbol.contains("_a_mn0_b_mn0_")
        || symbol.starts_with("linear_hopper_") && narrow
        || of_two_widths && !two_widths
        || of_few_bits && large && !["_r16_", "_r96_"].iter().any(|rows| symbol.contains(rows))
        || symbol.starts_with("gemm_fine_") && (between || symbol.contains("_b_mn1_"))
        || symbol.starts_with("gemm_tall_") && !symbol.ends_with("_a_mn0_b_mn0")
}

/// `column + 4 <= n`, which lets sgemm store four columns at once, with a 3 in place of the 4: in each quarter of a thread's columns
/// some case ends its rows where that is one too many.
fn a_pack_past_the_end_of_a_row_is_noticed() -> Result<(), Failed> {
    let (device, op) = (sim::unshared()?, registry::find("sgemm")?);
    let symbol = "sgemm_v1";
    let image = kernels::images()?.iter().find(|image| image.symbol == symbol);
    let original = image.ok_or("sgemm_v1 is not there")?.ptx()?;
    let compared = original.lines().filter_map(|line| line.trim().strip_prefix("setp.le.u32"));
    let sums = compared.filter_map(|operands| operands.split(", ").nth(1)).map(|sum| format!("add.s32 \t{sum}, "));
    let ends: Vec<_> = original.lines().filter(|line| sums.clone().any(|sum| line.contains(&sum))).collect();
    // A thread's results are 32 columns apart.
    let ends_at = [(", 4;", ", 3;"), (", 36;", ", 35;"), (", 68;", ", 67;"), (", 100;", ", 99;")];
    let mutants: Vec<_> = ends.iter().zip(ends_at).collect();
    if ends.len() != ends_at.len() || !mutants.iter().all(|(end, (from, _))| end.ends_with(from)) {
        return Err(format!("the comparisons have changed: {ends:#?}").into());
    }
    for (end, (from, to)) in mutants {
        if !is_noticed(&device, op, symbol, &original.replace(end, &end.replace(from, to)))? {
            return Err(format!("nobody noticed `{end}` with `{to}`").into());
        }
    }
    Ok(())
}

/// The last waits of a Hopper product's producer, for all stages to be released, done before they begin: the peer's consumers signal a block that may have left.
fn a_block_that_leaves_too_early_is_noticed() -> Result<(), Failed> {
    let (device, op) = (sim::unshared()?, registry::find("gemm_bf16")?);
    let (symbol, stages) = ("gemm_hopper_bf16_bf16_a_mn0_b_mn0_n256", 4);
    let image = kernels::images()?.iter().find(|image| image.symbol == symbol);
    let original = image.ok_or("the kernel is not there")?.ptx()?;
    let waits: Vec<_> = original.lines().filter(|line| line.starts_with("mbarrier.try_wait.parity")).collect();
    let Some((_, last)) = waits.split_at_checked(waits.len().wrapping_sub(stages)) else {
        return Err(format!("the waits have changed: {waits:#?}").into());
    };
    let mutant = last.iter().fold(original.clone().into_owned(), |ptx, wait| ptx.replace(wait, "setp.eq.u32 p, 0, 0;"));
    match is_noticed(&device, op, symbol, &mutant)? {
        true => Ok(()),
        false => Err(format!("nobody noticed that these are missing: {last:#?}").into()),
    }
}

/// Whether some case of the operator fails with this in place of a kernel.
fn is_noticed(device: &Device, op: &'static dyn Operator, symbol: &'static str, mutant: &str) -> Result<bool, Failed> {
    let filter = Filter::default();
    let fails =
        |case| verify::on_device(device, &Job { op, case }, &filter).iter().any(|row| row.status == Status::Fail);
    let cases = || op.cases().into_iter().filter(Case::is_simulated);
    Ok(device.simulator().ok_or("not a simulation")?.with_kernel(symbol, mutant, || cases().any(fails))?)
}

fn guarded_instructions_count() -> Result<(), Failed> {
    let ptx =
        "bar.sync 0;\n\t@%p1 fence.acq_rel.gpu;\n@!%p1 bra L;\nmov.u32 %r1, 0; // fence\n wgmma.fence.sync.aligned;";
    let found: Vec<_> = synchronising(ptx).map(|(line, _)| line).collect();
    if found == [1, 2, 5] { Ok(()) } else { Err(format!("{found:?}").into()) }
}
