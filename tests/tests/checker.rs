//! The checker on an operator that copies, with faults planted into it: each has to be found, on a GPU or, where there is
//! none, on the stand-in for its driver.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

use warpsmith::check::verify::{self, Filter, Job, Row, Status};
use warpsmith::ops::model::params::{ParamInfo, Params};
use warpsmith::ops::model::reference;
use warpsmith::ops::model::{
    ArgInfo, Case, CaseClass, Cost, Distribution, InputSpec, OpInfo, Operator, TensorMeta, Tolerance, VariantInfo,
};
use warpsmith::{AnyView, AnyViewMut, BackendKind, DType, Device, HostTensor, Result, Stream};

const CHILD: &str = "WARPSMITH_CHECKER_CHILD";
const N: usize = 10_000;

const FAULTS: [&str; 10] = [
    "none",
    "nothing written",
    "last missing",
    "write before",
    "write after",
    "write input",
    "nan",
    "one wrong",
    "varies",
    // The last, because no test of the others can come after it.
    "trap",
];

/// y = x, with a fault.
struct Copy;

static INFO: OpInfo = OpInfo {
    name: "copy",
    bench_name: "copy",
    summary: "a copy with faults",
    math: "y = x",
    inputs: &[ArgInfo::new("x", "one dimension")],
    outputs: &[ArgInfo::new("y", "the shape of x")],
    params: &[ParamInfo::choice("fault", "none", &FAULTS, "what goes wrong")],
    dtypes: &[DType::F32],
    kernels: &[],
    variants: &[VariantInfo { name: "other", doc: "the same again" }],
};

impl Operator for Copy {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        vec![Case::odd(&INFO, DType::F32, [("n", N)]).offset(1)]
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [n] = case.dims(["n"])?;
        Ok(vec![InputSpec::new("x", case.dtype, [n], Distribution::Uniform { low: 1.0, high: 2.0 })])
    }

    fn outputs(&self, inputs: &[TensorMeta], _: &Params) -> Result<Vec<TensorMeta>> {
        let [x] = INFO.metas(inputs)?;
        x.has_dtype()?;
        Ok(vec![INFO.output(0, x.dtype(), x.shape())])
    }

    fn launch(
        &self,
        stream: &Stream,
        inputs: &[AnyView<'_>],
        outputs: &mut [AnyViewMut<'_>],
        params: &Params,
    ) -> Result<()> {
        static RUNS: AtomicU8 = AtomicU8::new(0);
        let ([x], [mut y]) = (INFO.args(inputs)?, INFO.args_mut(outputs)?);
        let (x, mut y) = (x.typed::<f32>()?, y.typed::<f32>()?);
        let (first_in, first_out) = (x.ptr(stream).addr(), y.ptr_mut(stream).addr());
        let element = |i: usize| first_out + (4 * i) as u64;
        match params.choice("fault")? {
            "nothing written" => return Ok(()),
            "trap" => return trap(),
            "last missing" => return y.slice(0..N - 1)?.copy_from(stream, x.slice(0..N - 1)?),
            "nan" => return y.fill(stream, f32::NAN),
            _ => y.copy_from(stream, x)?,
        }
        match params.choice("fault")? {
            "write before" => poke(stream, first_out - 1, 0),
            "write after" => poke(stream, element(N), 0),
            "write input" => poke(stream, first_in, 0),
            // 1 to 2 becomes 256 or more.
            "one wrong" => poke(stream, element(N / 2) + 3, 0x43),
            // The last byte of the fraction: well within the tolerance.
            "varies" => poke(stream, element(7), RUNS.fetch_add(1, Ordering::Relaxed)),
            _ => Ok(()),
        }
    }

    fn reference(&self, inputs: &[HostTensor], _: &Params, _: usize, rows: &[usize]) -> Result<Vec<f64>> {
        Ok(reference::elementwise(&inputs[0], rows, |x| x))
    }

    fn tolerance(&self, _: &Case) -> Result<Tolerance> {
        Ok(Tolerance::new(0.0, 1e-4, "enough for the faults that only vary"))
    }

    fn cost(&self, _: &Case) -> Result<Cost> {
        Ok(Cost::memory((8 * N) as u64))
    }
}

/// Writes a byte of device memory behind the library's back.
fn poke(stream: &Stream, address: u64, value: u8) -> Result<()> {
    stream.synchronize()?;
    let driver = libcuda_loader::driver().expect("a device is open");
    // SAFETY: the checker's allocations reach well beyond what the operator is given.
    let codes = unsafe {
        let set = (driver.cuMemsetD8Async)(address, value, 1, std::ptr::null_mut());
        [set, (driver.cuStreamSynchronize)(std::ptr::null_mut())]
    };
    assert_eq!(codes, [0, 0]);
    Ok(())
}

/// What the stand-in takes for a kernel's access to an address that is none. A GPU's driver would refuse it.
fn trap() -> Result<()> {
    let driver = libcuda_loader::driver().expect("a device is open");
    // SAFETY: there is no memory in the stand-in at this address, and it knows.
    unsafe { (driver.cuMemsetD8Async)(16, 0, 1, std::ptr::null_mut()) };
    Ok(())
}

fn job(fault: &'static str) -> Job {
    let case = Copy.cases().remove(0);
    let params = Params::new(&INFO).with_text(&format!("fault={fault}")).expect("a declared fault");
    Job { op: &Copy, case: Case { params, class: CaseClass::Odd, ..case } }
}

fn check(device: &Device, fault: &'static str) -> Row {
    let filter = Filter { repeat: true, variant: Some(verify::AUTO.to_owned()), ..Filter::default() };
    let mut rows = verify::on_device(device, &job(fault), &filter);
    assert_eq!(rows.len(), 1);
    rows.remove(0)
}

#[test]
fn planted_faults_are_found() {
    with_device("planted_faults_are_found", |device| {
        let sound = check(device, "none");
        assert_eq!((sound.status, sound.checked, sound.max_err), (Status::Pass, N, Some(0.0)), "{sound:?}");
        for (fault, says) in FAULTS[1..FAULTS.len() - 1].iter().zip([
            "y: element 0 was not written",
            "y: element 9999 was not written",
            "y: written outside the tensor, -1 elements from its start",
            "y: written outside the tensor, 10000 elements from its start",
            "x: an input was written to",
            "y: 10000 of 10000 values are wrong, the worst at 0: NaN",
            "y: 1 of 10000 values are wrong, the worst at 5000",
            "a second run gave other bits",
        ]) {
            let row = check(device, fault);
            let detail = row.detail.as_deref().unwrap_or_default();
            assert_eq!(row.status, Status::Fail, "{fault}: {row:?}");
            assert!(detail.contains(says), "{fault}: {detail}");
        }
    });
}

#[test]
fn nothing_runs_after_a_kernel_that_failed() {
    with_stand_in("nothing_runs_after_a_kernel_that_failed", |device| {
        let jobs = ["none", "trap", "none", "none"].map(job);
        let mut turns = 0;
        let run = verify::all(device, &jobs, &Filter::default(), |_| turns += 1);
        assert_eq!(turns, 2);
        let why = format!("not run: a kernel failed in {}, and this process has lost the device", jobs[1]);
        let statuses: Vec<_> = run.rows.iter().map(|row| (row.variant, row.status)).collect();
        let wanted = [Status::Pass, Status::Pass, Status::Fail, Status::Skipped];
        assert_eq!(statuses, ["auto", "other", "auto", "other"].into_iter().zip(wanted).collect::<Vec<_>>());
        let details: Vec<_> = run.rows.iter().filter_map(|row| row.detail.as_deref()).collect();
        assert!(details[0].starts_with("a kernel failed on the device") && details[1] == why, "{details:?}");
        let not_run = run.not_run.expect("two cases have had no turn");
        assert_eq!((not_run.cases, not_run.why), (vec![jobs[2].to_string(), jobs[3].to_string()], why));
    });
}

/// Runs `body` with the device that is there, or in a child process with the stand-in.
fn with_device(name: &str, body: impl FnOnce(&Device)) {
    match Device::open_backend(BackendKind::Cuda) {
        Ok(device) => body(&device),
        Err(error) if error.is_environment() => with_stand_in(name, body),
        Err(error) => panic!("{error}"),
    }
}

/// Runs `body` in a child process with the stand-in: `name` is the test's, which comes here again.
fn with_stand_in(name: &str, body: impl FnOnce(&Device)) {
    if std::env::var_os(CHILD).is_some() {
        return body(&Device::open().expect("the stand-in opens"));
    }
    let folder = tempfile::tempdir().expect("a folder for the stand-in");
    let Some(library) = stand_in(folder.path()) else { return };
    let program = std::env::current_exe().expect("the test has a path");
    let mut child = Command::new(program);
    child.args(["--exact", name]).env(CHILD, "1").env(libcuda_loader::LIBRARY_VARIABLE, library);
    let output = child.output().expect("the child starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Compiles the stand-in; `None`, with a line, where there is no compiler.
fn stand_in(folder: &Path) -> Option<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../host/tests/fake_driver/libcuda.rs");
    let library = folder.join("libcuda-fake.so");
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--edition", "2024", "-O", "-A", "warnings", "-o"]).arg(&library).arg(source);
    match rustc.output() {
        Ok(output) if output.status.success() => Some(library),
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => {
            eprintln!("skipped: rustc cannot be run: {error}");
            None
        }
    }
}
