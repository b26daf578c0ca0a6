//! Running a case on a device and judging what it wrote.

use super::compare::Comparison;
use super::placement::Placement;
use super::{AUTO, Expected, Filter, Job, Row, host_inputs};
use crate::ops::model::params::Params;
use crate::ops::model::{InputSpec, Operator, TensorMeta, Tolerance};
use crate::runtime::any::{AnyTensor, AnyView, AnyViewMut};
use crate::runtime::device::Device;
use crate::runtime::error::{Error, Result};
use crate::runtime::host_tensor::HostTensor;
use crate::runtime::stream::Stream;

/// What came of one case.
pub(super) struct Checked {
    /// A row for each variant.
    pub(super) rows: Vec<Row>,
    /// A kernel failed: this process cannot use the device again.
    pub(super) lost_device: bool,
}

/// Why nothing runs after a kernel of `job` failed.
pub(super) fn lost(job: &Job) -> String {
    format!("a kernel failed in {job}, and this process has lost the device")
}

/// Runs every variant of `job` that the filter lets through on `device`; a row each.
pub(super) fn check(device: &Device, job: &Job, filter: &Filter) -> Checked {
    let mut checked = Checked { rows: Vec::new(), lost_device: false };
    let too_large = too_large(device, job);
    // Made for the first variant that runs, shared by all.
    let mut prepared = None;
    for (variant, able) in variants(device, job, filter) {
        let mut row = Row::new(job, variant);
        if checked.lost_device {
            row.skip(&format!("not run: {}", lost(job)));
        } else if let Some(why) = &too_large {
            row.skip(why);
        } else if !able {
            row.skip("this variant cannot run the case on this device");
        } else {
            let prepared = prepared.get_or_insert_with(|| Prepared::new(device, job, filter.seed));
            let result = prepared.as_ref().map_err(Clone::clone).and_then(|p| p.run(job, variant, filter, &mut row));
            if let Err(error) = result {
                checked.lost_device = matches!(error, Error::KernelFault { .. });
                row.fail(&error);
            }
        }
        checked.rows.push(row);
    }
    checked
}

/// What the operator picks itself (`None`), then its variants, each with whether it can run the case here. One that cannot is there
/// only if the filter names it.
fn variants(device: &Device, job: &Job, filter: &Filter) -> Vec<(Option<&'static str>, bool)> {
    let named = job.op.info().variants.iter().map(|v| v.name);
    let named = named.map(|name| (Some(name), job.op.supports(name, device.info(), &job.case)));
    let all = std::iter::once((None, true)).chain(named);
    match filter.variant.as_deref() {
        Some(wanted) => all.filter(|(name, _)| name.unwrap_or(AUTO) == wanted).collect(),
        None => all.filter(|(_, able)| *able).collect(),
    }
}

/// Why a large case cannot run here, if it cannot.
fn too_large(device: &Device, job: &Job) -> Option<String> {
    if device.simulator().is_some() && !job.case.is_simulated() {
        return Some("takes too long in the simulator".to_owned());
    }
    if !job.case.huge {
        return None;
    }
    let bytes = job.op.cost(&job.case).map(|c| c.bytes).unwrap_or(u64::MAX);
    let memory = device.info().memory_bytes;
    if bytes > memory / 10 * 9 {
        return Some(format!("needs {} MiB of device memory, there are {}", bytes >> 20, memory >> 20));
    }
    let host = available_memory()?;
    // Everything twice: inputs with and without guards around them, outputs of the run and of its repetition.
    let needed = bytes.saturating_mul(2);
    (needed > host).then(|| format!("needs {} MiB of host memory, {} are free", needed >> 20, host >> 20))
}

fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib << 10)
}

/// A tensor inside a poisoned allocation on the device.
struct Placed {
    name: String,
    place: Placement,
    tensor: AnyTensor,
}

impl Placed {
    fn new(stream: &Stream, place: Placement, meta: &TensorMeta, bytes: Vec<u8>) -> Result<Self> {
        let image = HostTensor::new(meta.dtype, [place.elements()], bytes)?;
        let tensor = AnyTensor::from_host(stream, &image)?;
        tensor.set_name(&meta.name);
        // To a checker of reads, what lies around an input was never written.
        place.gaps().try_for_each(|gap| tensor.forget(stream, gap))?;
        Ok(Self { name: meta.name.clone(), tensor, place })
    }

    fn view(&self) -> Result<AnyView<'_>> {
        self.tensor.strided(self.place.start(), self.place.shape(), &self.place.strides())
    }

    fn view_mut(&mut self) -> Result<AnyViewMut<'_>> {
        self.tensor.strided_mut(self.place.start(), self.place.shape(), &self.place.strides())
    }
}

/// A case's inputs, on both sides, and what the outputs should be.
struct Prepared {
    stream: Stream,
    host: Vec<HostTensor>,
    inputs: Vec<Placed>,
    outputs: Vec<TensorMeta>,
    expected: Vec<Expected>,
    tolerance: Tolerance,
}

impl Prepared {
    fn new(device: &Device, job: &Job, seed: u64) -> Result<Self> {
        let stream = device.stream()?;
        let host = host_inputs(job, seed)?;
        let metas: Vec<_> = job.op.inputs(&job.case)?.iter().map(InputSpec::meta).collect();
        let inputs = host.iter().zip(&metas).map(|(tensor, meta)| {
            let place = Placement::new(meta, job.case.layout);
            let bytes = place.filled(tensor.bytes());
            Placed::new(&stream, place, meta, bytes)
        });
        let inputs = inputs.collect::<Result<_>>()?;
        let outputs = job.op.outputs(&metas, &job.case.params)?;
        let expected = Expected::all(job, &host, &outputs, seed)?;
        Ok(Self { stream, host, inputs, outputs, expected, tolerance: job.op.tolerance(&job.case)? })
    }

    fn run(&self, job: &Job, variant: Option<&'static str>, filter: &Filter, row: &mut Row) -> Result<()> {
        let mut params = job.case.params.clone();
        if let Some(name) = variant {
            params = params.with_variant(name)?;
        }
        let mut outputs = self.poisoned_outputs(job)?;
        self.launch(job.op, &mut outputs, &params)?;
        let images = self.download(&outputs)?;
        self.judge(&outputs, &images, row)?;
        if !job.is_large() {
            self.check_inputs(row)?;
        }
        if filter.repeat {
            let mut again = self.poisoned_outputs(job)?;
            self.launch(job.op, &mut again, &params)?;
            if self.download(&again)? != images {
                row.problem("a second run gave other bits".to_owned());
            }
        }
        // What a simulation takes says nothing.
        if self.stream.device().simulator().is_none() {
            row.ms = Some(self.time(job.op, &mut outputs, &params)?);
        }
        Ok(())
    }

    fn poisoned_outputs(&self, job: &Job) -> Result<Vec<Placed>> {
        let place = |meta: &TensorMeta| {
            let place = Placement::new(meta, job.case.layout);
            let tensor = place.poisoned_on(&self.stream)?;
            tensor.set_name(&meta.name);
            tensor.forget(&self.stream, 0..place.elements())?;
            Ok(Placed { name: meta.name.clone(), tensor, place })
        };
        self.outputs.iter().map(place).collect()
    }

    fn launch(&self, op: &dyn Operator, outputs: &mut [Placed], params: &Params) -> Result<()> {
        let inputs = self.inputs.iter().map(Placed::view).collect::<Result<Vec<_>>>()?;
        let mut outputs = outputs.iter_mut().map(Placed::view_mut).collect::<Result<Vec<_>>>()?;
        op.launch(&self.stream, &inputs, &mut outputs, params)
    }

    /// Milliseconds of one launch, its kernel being loaded by now.
    fn time(&self, op: &dyn Operator, outputs: &mut [Placed], params: &Params) -> Result<f64> {
        let start = self.stream.record()?;
        self.launch(op, outputs, params)?;
        let end = self.stream.record()?;
        end.synchronize()?;
        Ok(f64::from(start.elapsed_ms(&end)?))
    }

    fn download(&self, placed: &[Placed]) -> Result<Vec<HostTensor>> {
        placed.iter().map(|p| p.tensor.to_host(&self.stream)).collect()
    }

    fn judge(&self, outputs: &[Placed], images: &[HostTensor], row: &mut Row) -> Result<()> {
        let mut all = Comparison::default();
        for (((output, image), expected), meta) in outputs.iter().zip(images).zip(&self.expected).zip(&self.outputs) {
            let place = &output.place;
            if let Some(index) = place.unwritten(image.bytes()) {
                row.problem(format!("{}: element {index} was not written", meta.name));
            }
            if let Some(at) = place.damage(image.bytes()) {
                row.problem(format!("{}: written outside the tensor, {at} elements from its start", meta.name));
            }
            let found = expected.compare(place, image, &self.tolerance)?;
            if let Some(worst) = found.worst {
                row.problem(format!(
                    "{}: {} of {} values are wrong, the worst at {}: {} where the reference has {}",
                    meta.name, found.wrong, found.elements, worst.index, worst.got, worst.want
                ));
            }
            all = all.merge(found);
        }
        row.judged(&all, &self.tolerance, self.outputs.iter().filter_map(TensorMeta::elements).sum());
        Ok(())
    }

    /// Nothing that was passed to be read has changed, nor anything around it.
    fn check_inputs(&self, row: &mut Row) -> Result<()> {
        for (placed, host) in self.inputs.iter().zip(&self.host) {
            if placed.tensor.to_host(&self.stream)?.bytes() != placed.place.filled(host.bytes()) {
                row.problem(format!("{}: an input was written to", placed.name));
            }
        }
        Ok(())
    }
}
