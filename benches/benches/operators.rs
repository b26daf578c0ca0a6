//! Every operator on its production shapes, timed by the device. `warpsmith bench` times the variants that an operator does
//! not pick as well.

use std::time::Duration;

use criterion::{Criterion, Throughput};
use warpsmith::check::Selection;
use warpsmith::check::bench::{self, Prepared};
use warpsmith::check::registry::OPERATORS;
use warpsmith::check::verify::AUTO;
use warpsmith::{BackendKind, Device, Error, Result};

fn main() -> Result<()> {
    let device = match Device::open_backend(BackendKind::Cuda) {
        Ok(device) => device,
        Err(error) if error.is_environment() => {
            println!("nothing to time without a GPU: {error}");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let defaults = Criterion::default().sample_size(10).warm_up_time(Duration::from_millis(300));
    let mut criterion = defaults.measurement_time(Duration::from_secs(1)).configure_from_args();
    operators(&device, &mut criterion)?;
    criterion.final_summary();
    Ok(())
}

fn operators(device: &Device, criterion: &mut Criterion) -> Result<()> {
    for timing in bench::plan(device, OPERATORS, &Selection::default(), Some(AUTO))? {
        let job = &timing.job;
        let cost = job.op.cost(&job.case)?;
        let mut prepared = match Prepared::new(device, &timing) {
            Err(Error::OutOfMemory { .. }) => continue,
            prepared => prepared?,
        };
        let mut group = criterion.benchmark_group(job.op.info().bench_name);
        group.throughput(if cost.flops > 0 { Throughput::Elements(cost.flops) } else { Throughput::Bytes(cost.bytes) });
        let mut failed = None;
        group.bench_function(&job.case.name, |bencher| {
            bencher.iter_custom(|launches| {
                prepared.elapsed(launches).unwrap_or_else(|error| {
                    failed = Some(error);
                    Duration::from_nanos(1)
                })
            });
        });
        group.finish();
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(())
}
