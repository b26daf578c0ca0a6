//! Runs a case on a device and judges its outputs.

use std::cell::OnceCell;
use std::fmt::Display;

use super::known::Known;
use super::placement::{Placement, Poison};
use super::{AUTO, Expected, Filter, Job, Row, is_large};
use crate::check::buffers;
use crate::check::peers::{self, Cublas};
use crate::ops::model::{self, Arguments, Params, Role, TensorMeta, Variant};
use crate::runtime::any::{AnyTensor, AnyView, AnyViewMut};
use crate::runtime::device::{self, Device};
use crate::runtime::error::{Error, Result};
use crate::runtime::host_tensor::HostTensor;
use crate::runtime::stream::Stream;

/// The results of one case.
pub(super) struct Checked {
    /// One row per variant.
    pub(super) rows: Vec<Row>,
    /// A kernel failed: this process cannot use the device again.
    pub(super) lost_device: bool,
    /// A variant was skipped because the device has too little memory.
    pub(super) out_of_memory: bool,
}

/// The reason why nothing runs after a kernel of `job` failed.
pub(super) fn lost(job: &impl Display) -> String {
    format!("a kernel failed in {job}, and this process has lost the device")
}

/// Runs every variant of `job` that the filter permits on `device`; one row each. `known` is filled in by the first variant
/// that runs.
pub(super) fn check(device: &Device, job: &Job, filter: &Filter, known: &OnceCell<Result<Known>>) -> Checked {
    let mut checked = Checked { rows: Vec::new(), lost_device: false, out_of_memory: false };
    let too_large = too_large(device, job);
    // Created for the first variant that runs, and shared by all.
    let mut prepared = None;
    for (by, able) in ways(device, job, filter) {
        let mut row = by.row(job);
        if checked.lost_device {
            row.skip(&format!("not run: {}", lost(job)));
        } else if let Some(why) = &too_large {
            row.skip(why);
        } else if !able {
            row.skip("this variant does not run the case on this device");
        } else {
            let prepared = prepared.get_or_insert_with(|| {
                let known = known.get_or_init(|| Known::new(job, filter.seed)).as_ref().map_err(Clone::clone)?;
                Prepared::new(device, job, known)
            });
            let result = prepared.as_ref().map_err(Clone::clone).and_then(|p| p.run(job, by, filter, &mut row));
            if let Err(error) = result {
                checked.lost_device = matches!(error, Error::KernelFault { .. });
                checked.out_of_memory |= matches!(error, Error::OutOfMemory { .. });
                match (by, &error) {
                    (By::Peer(_), Error::Layout { .. }) => row.skip(&error.to_string()),
                    _ => row.fail(&error),
                }
            }
        }
        checked.rows.push(row);
    }
    checked
}

/// The implementation that computes a case.
#[derive(Clone, Copy)]
enum By<'a> {
    /// The operator, in a variant or with its automatic choice.
    Operator(Option<&'static Variant>),
    /// Another library.
    Peer(&'a Cublas),
}

impl By<'_> {
    fn row(self, job: &Job) -> Row {
        match self {
            Self::Operator(variant) => Row::new(job, variant),
            Self::Peer(peer) => Row { variant: peer.name(), peer: true, ..Row::new(job, None) },
        }
    }
}

/// The operator's automatic choice, then its variants, each with whether it can run the case here, then a peer. A variant that
/// cannot run is included only if the filter names it.
fn ways<'a>(device: &Device, job: &Job, filter: &'a Filter) -> Vec<(By<'a>, bool)> {
    let able = |v: &Variant| job.case.is_by(v.name) && (v.applies)(device.info(), &job.case);
    let named = job.op.info().variants.iter().map(|v| (Some(v), able(v)));
    let all = std::iter::once((None, true)).chain(named);
    let kept = all.filter(|(variant, able)| match filter.variant.as_deref() {
        Some(wanted) => variant.map_or(AUTO, |v| v.name) == wanted,
        None => *able,
    });
    let peer = filter.peer.iter().filter(|_| peers::has_peer(job.op)).map(|peer| (By::Peer(peer), true));
    kept.map(|(variant, able)| (By::Operator(variant), able)).chain(peer).collect()
}

/// The reason why a large case cannot run here, if there is one.
fn too_large(device: &Device, job: &Job) -> Option<String> {
    if device.simulator().is_some() && !job.case.is_simulated() {
        return Some("takes too long in the simulator".to_owned());
    }
    if job.case.timed_only {
        return Some("its reference takes minutes: it is timed only".to_owned());
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
    name: &'static str,
    place: Placement,
    tensor: AnyTensor,
}

impl Placed {
    /// An input with these values, and this poison around them.
    fn filled(
        stream: &Stream,
        name: &'static str,
        place: Placement,
        values: &HostTensor,
        poison: Poison,
    ) -> Result<Self> {
        let mut tensor = match place.dense() {
            Some(range) => {
                let mut tensor = place.poisoned_on(stream, poison)?;
                tensor.view_mut().slice(range)?.write_bytes(stream, values.bytes())?;
                tensor
            }
            None => {
                let image = place.filled(values.bytes(), poison);
                AnyTensor::from_host(stream, &HostTensor::new(values.dtype(), [place.elements()], image)?)?
            }
        };
        tensor.set_name(name);
        // For a checker of reads, memory around an input counts as never written.
        place.gaps().try_for_each(|gap| tensor.forget(stream, gap))?;
        Ok(Self { name, tensor, place })
    }

    /// An output that contains only poison.
    fn poisoned(stream: &Stream, name: &'static str, place: Placement, poison: Poison) -> Result<Self> {
        let mut tensor = place.poisoned_on(stream, poison)?;
        tensor.set_name(name);
        tensor.forget(stream, 0..place.elements())?;
        Ok(Self { name, tensor, place })
    }

    fn view(&self) -> Result<AnyView<'_>> {
        self.tensor.strided(self.place.start(), self.place.shape(), self.place.strides())
    }

    fn view_mut(&mut self) -> Result<AnyViewMut<'_>> {
        self.tensor.strided_mut(self.place.start(), self.place.shape(), self.place.strides())
    }
}

/// A case with its inputs on the device.
struct Prepared<'a> {
    stream: Stream,
    known: &'a Known,
    inputs: Vec<Placed>,
}

impl<'a> Prepared<'a> {
    fn new(device: &Device, job: &Job, known: &'a Known) -> Result<Self> {
        let stream = device.stream()?;
        let read = known.inputs.iter().filter(|(name, _)| role(job, name) == Role::In);
        let inputs = read.map(|(name, values)| {
            let place = Placement::new(&TensorMeta::of(name, values), job.case.arrangement(name));
            Placed::filled(&stream, name, place, values, Poison::First)
        });
        let inputs = inputs.collect::<Result<_>>()?;
        Ok(Self { stream, known, inputs })
    }

    fn run(&self, job: &Job, by: By<'_>, filter: &Filter, row: &mut Row) -> Result<()> {
        let mut params = job.case.params.clone();
        if let By::Operator(Some(variant)) = by {
            params = params.with_variant(variant.name)?;
        }
        let mut outputs = self.outputs(job, Poison::First)?;
        let mut run = || {
            let (result, launched) = device::launched(|| self.launch(job, by, &mut outputs, &params));
            (launched, result.and_then(|()| self.download(&outputs)))
        };
        let ((launched, images), executed) = match self.stream.device().simulator() {
            Some(simulator) => simulator.count(run),
            None => (run(), Vec::new()),
        };
        check_launches(job, &launched, &executed, row);
        let images = images?;
        let expected = self.known.expected(job)?;
        let problems = expected.iter().filter_map(Expected::impossible);
        problems.filter(|_| self.known.finite_input).for_each(|problem| row.problem(problem));
        // Unwritten integers are detected only by a second run.
        let integers = self.known.outputs.iter().any(|output| !output.dtype.is_float());
        let again = if filter.repeat || integers { Some(self.again(job, by, &params)?) } else { None };
        let variant = match by {
            By::Operator(variant) => variant.map(|variant| variant.name),
            By::Peer(_) => None,
        };
        let reproducible = |output: &str| job.op.reproducible(output, variant);
        self.judge(expected, &outputs, &images, again.as_deref(), reproducible, row)?;
        images.into_iter().chain(again.into_iter().flatten()).for_each(|image| buffers::give(image.into_bytes()));
        if !is_large(job) {
            self.check_inputs(row)?;
        }
        // The time of a simulation is meaningless.
        if self.stream.device().simulator().is_none() {
            row.ms = Some(self.time(job, by, &mut outputs, &params)?);
        }
        Ok(())
    }

    /// The outputs of a second launch, over different poison.
    fn again(&self, job: &Job, by: By<'_>, params: &Params) -> Result<Vec<HostTensor>> {
        let mut outputs = self.outputs(job, Poison::Second)?;
        self.launch(job, by, &mut outputs, params)?;
        self.download(&outputs)
    }

    fn outputs(&self, job: &Job, poison: Poison) -> Result<Vec<Placed>> {
        let make = |arg: &'static model::ArgInfo| {
            let meta = self.known.outputs.iter().find(|meta| meta.name == arg.name)?;
            let place = Placement::new(meta, job.case.arrangement(arg.name));
            Some(match self.known.values(arg.name) {
                Some(values) => Placed::filled(&self.stream, arg.name, place, values, poison),
                None => Placed::poisoned(&self.stream, arg.name, place, poison),
            })
        };
        job.op.info().outputs().filter_map(make).collect()
    }

    fn launch(&self, job: &Job, by: By<'_>, outputs: &mut [Placed], params: &Params) -> Result<()> {
        let mut args = Arguments::new(job.op.info());
        self.inputs.iter().try_for_each(|placed| args.read(placed.name, placed.view()?))?;
        outputs.iter_mut().try_for_each(|placed| args.write(placed.name, placed.view_mut()?))?;
        match by {
            By::Operator(_) => model::launch(job.op, &self.stream, &mut args, params),
            By::Peer(peer) => peer.launch(&self.stream, job.op, &mut args, params),
        }
    }

    /// Milliseconds of one launch, after its kernel has been loaded.
    fn time(&self, job: &Job, by: By<'_>, outputs: &mut [Placed], params: &Params) -> Result<f64> {
        let start = self.stream.record()?;
        self.launch(job, by, outputs, params)?;
        let end = self.stream.record()?;
        end.synchronize()?;
        Ok(f64::from(start.elapsed_ms(&end)?))
    }

    fn download(&self, placed: &[Placed]) -> Result<Vec<HostTensor>> {
        let image = |placed: &Placed| {
            let tensor = &placed.tensor;
            let mut bytes = buffers::take(tensor.len() * tensor.dtype().size());
            tensor.read_bytes(&self.stream, &mut bytes)?;
            HostTensor::new(tensor.dtype(), tensor.shape(), bytes)
        };
        placed.iter().map(image).collect()
    }

    fn judge(
        &self,
        expected: &[Expected],
        outputs: &[Placed],
        images: &[HostTensor],
        again: Option<&[HostTensor]>,
        reproducible: impl Fn(&str) -> bool,
        row: &mut Row,
    ) -> Result<()> {
        for (i, ((output, image), expected)) in outputs.iter().zip(images).zip(expected).enumerate() {
            let (place, meta) = (&output.place, &expected.meta);
            let second = again.and_then(|images| images.get(i)).map(HostTensor::bytes);
            let fresh = self.known.values(output.name).is_none();
            if fresh && let Some(index) = place.unwritten(image.bytes(), second) {
                row.problem(format!("{}: element {index} was not written", meta.name));
            }
            if let Some(at) = place.damage(image.bytes(), Poison::First) {
                row.problem(format!("{}: written outside the tensor, {at} elements from its start", meta.name));
            }
            let found = expected.compare(place, image)?;
            if let Some(worst) = found.worst {
                row.problem(format!(
                    "{}: {} of {} values are wrong, the worst at {}: {} where the reference has {}",
                    meta.name, found.wrong, found.elements, worst.index, worst.got, worst.want
                ));
            }
            if reproducible(&meta.name) && second.is_some_and(|second| !place.agree(image.bytes(), second)) {
                row.problem(format!("{}: a second run gave other bits", meta.name));
            }
            row.judged(&found, &expected.tolerance, meta.elements().unwrap_or(0));
        }
        Ok(())
    }

    /// Checks that inputs, and the memory around them, have not changed.
    fn check_inputs(&self, row: &mut Row) -> Result<()> {
        for placed in &self.inputs {
            let Some(values) = self.known.values(placed.name) else { continue };
            if placed.tensor.to_host(&self.stream)?.bytes() != placed.place.filled(values.bytes(), Poison::First) {
                row.problem(format!("{}: an input was written to", placed.name));
            }
        }
        Ok(())
    }
}

fn role(job: &Job, name: &str) -> Role {
    job.op.info().args.iter().find(|arg| arg.name == name).map_or(Role::In, |arg| arg.role)
}

/// Checks that the operator lists the kernels that it launched: code that walks the list would miss others. Notes them, and what the
/// simulator counted of them.
fn check_launches(
    job: &Job,
    launched: &[(&'static str, &'static str)],
    executed: &[(&'static str, u64)],
    row: &mut Row,
) {
    for (module, symbol) in launched {
        if !job.op.info().instances().any(|kernel| kernel.symbol == *symbol && kernel.module == *module) {
            row.problem(format!("kernel {symbol} was launched and is not among those that the operator lists"));
        }
        if !row.kernels.contains(symbol) {
            row.kernels.push(symbol);
        }
    }
    if !executed.is_empty() {
        let of = |symbol: &&str| executed.iter().filter(|(other, _)| other == symbol).map(|(_, times)| times).sum();
        row.instructions = row.kernels.iter().map(of).collect();
    }
}
