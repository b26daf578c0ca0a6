//! The checks against the kernels themselves: every instruction that synchronises is taken out in turn, and the simulator has
//! to notice.

use warpsmith::check::mutation::{Mutation, synchronising};
use warpsmith::check::registry;
use warpsmith::check::verify::{self, Filter};
use warpsmith::{BackendKind, Device};

#[test]
fn no_synchronisation_goes_missing_unnoticed() {
    let device = Device::open_backend(BackendKind::Sim).unwrap();
    let filter = Filter::default();
    let ops = registry::select(&[]).unwrap();
    let jobs: Vec<_> = verify::plan(&ops, &filter).unwrap().into_iter().filter(|job| job.case.is_simulated()).collect();
    let mutation = Mutation::new(&device, &jobs, &filter).unwrap();
    assert!(mutation.count() > 50, "{} mutants", mutation.count());
    let mutants = mutation.run(2, |_| {}).unwrap();
    let missed: Vec<_> = mutants.iter().filter(|mutant| mutant.caught.is_none()).collect();
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn guarded_instructions_count() {
    let ptx =
        "bar.sync 0;\n\t@%p1 fence.acq_rel.gpu;\n@!%p1 bra L;\nmov.u32 %r1, 0; // fence\n wgmma.fence.sync.aligned;";
    assert_eq!(synchronising(ptx).map(|(line, _)| line).collect::<Vec<_>>(), [1, 2, 5]);
}
