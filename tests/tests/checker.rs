//! The checker on an operator that copies, with faults planted into it: each has to be found, on a GPU or, where there is
//! none, on the stand-in for its driver.

#[path = "../../rust-cuda/cust/tests/fake_driver/harness.rs"]
mod fake;

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use cust::context::CurrentContext;
use cust::memory::{DevicePointer, memset_d8};
use warpsmith::check::Job;
use warpsmith::check::verify::{self, Filter, Row, Status};
use warpsmith::ops::model::*;
use warpsmith::{BackendKind, DType, Device, Result, Stream};

const FAKE_DRIVER: &str = "../rust-cuda/cust/tests/fake_driver/libcuda.rs";
const N: usize = 10_000;

/// What the third output always is.
const SCALE: f32 = 0.25;

const FAULTS: [&str; 12] = [
    "none",
    "nothing written",
    "last missing",
    "write before",
    "write after",
    "write input",
    "nan",
    "one wrong",
    "varies",
    "sign missing",
    "scale doubled",
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
    args: &[
        ArgInfo::input("x", "one dimension"),
        ArgInfo::output("y", "the shape of x"),
        ArgInfo::output("signs", "the shape of x").of(&[DType::I8]),
        ArgInfo::output("scale", "one value"),
    ],
    params: &[ParamInfo::choice("fault", "none", &FAULTS, "what goes wrong")],
    dtypes: &[DType::F32],
    kernels: &[],
    variants: &[Variant { name: "other", doc: "the same again", applies: |_, _| true, launch }],
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
        Ok(vec![InputSpec::new("x", case.dtype, [n], Values::Uniform { low: 1.0, high: 2.0 })])
    }

    fn outputs(&self, inputs: &Metas<'_>, _: &Params) -> Result<Vec<TensorMeta>> {
        let x = inputs.get("x")?;
        let (y, signs) = (TensorMeta::new("y", x.dtype(), x.shape()), TensorMeta::new("signs", DType::I8, x.shape()));
        Ok(vec![y, signs, TensorMeta::new("scale", x.dtype(), [1])])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        launch(stream, args, params)
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        Ok(match output {
            "y" => reference::elementwise(inputs.get("x")?, rows, |x| x),
            "signs" => reference::elementwise(inputs.get("x")?, rows, f64::signum),
            _ => vec![SCALE.into(); rows.len()],
        })
    }

    fn tolerance(&self, _: &Case, output: &str) -> Result<Tolerance> {
        Ok(match output {
            "y" => Tolerance::new(0.0, 1e-4, "enough for the faults that only vary"),
            "scale" => Tolerance::EXACT,
            // All that is planted into the signs is what nobody wrote, which no tolerance hides.
            _ => Tolerance::new(1e9, 0.0, "not what is tested"),
        })
    }

    fn cost(&self, _: &Case) -> Result<Cost> {
        Ok(Cost::memory((9 * N) as u64))
    }
}

fn launch(stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
    static RUNS: AtomicU8 = AtomicU8::new(0);
    let (x, mut y) = (args.input::<f32>("x")?, args.output::<f32>("y")?);
    let (mut signs, mut scale) = (args.output::<i8>("signs")?, args.output::<f32>("scale")?);
    scale.fill(stream, if params.choice("fault")? == "scale doubled" { 2.0 * SCALE } else { SCALE })?;
    let (first_in, first_out) = (x.ptr(stream)?.addr(), y.ptr_mut(stream)?.addr());
    let element = |i: usize| first_out + (4 * i) as u64;
    match params.choice("fault")? {
        "sign missing" => signs.reborrow().slice(0..N - 1)?.fill(stream, 1)?,
        _ => signs.fill(stream, 1)?,
    }
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

/// Writes a byte of device memory behind the library's back.
fn poke(stream: &Stream, address: u64, value: u8) -> Result<()> {
    stream.synchronize()?;
    // SAFETY: the checker's allocations reach well beyond what the operator is given.
    let set = unsafe { memset_d8(DevicePointer::from_raw(address), value, 1) };
    set.and_then(|()| CurrentContext::synchronize()).expect("a device is open");
    Ok(())
}

/// What the stand-in takes for a kernel's access to an address that is none. A GPU's driver would refuse it.
fn trap() -> Result<()> {
    // SAFETY: there is no memory in the stand-in at this address, and it knows.
    let _ = unsafe { memset_d8(DevicePointer::from_raw(16), 0, 1) };
    Ok(())
}

fn job(fault: &'static str) -> Job {
    let mut case = Copy.cases().remove(0);
    case.params = Params::new(&INFO).with_text(&format!("fault={fault}")).expect("a declared fault");
    Job { op: &Copy, case }
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
        assert_eq!((sound.status, sound.checked, sound.max_err), (Status::Pass, 2 * N + 1, Some(0.0)), "{sound:?}");
        for (fault, says) in FAULTS[1..FAULTS.len() - 1].iter().zip([
            "y: element 0 was not written",
            "y: element 9999 was not written",
            "y: written outside the tensor, -1 elements from its start",
            "y: written outside the tensor, 10000 elements from its start",
            "x: an input was written to",
            "y: 10000 of 10000 values are wrong, the worst at 0: NaN",
            "y: 1 of 10000 values are wrong, the worst at 5000",
            "y: a second run gave other bits",
            "signs: element 9999 was not written",
            "scale: 1 of 1 values are wrong, the worst at 0: 0.5 where the reference has 0.25",
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
        let turns = AtomicUsize::new(0);
        let run = verify::all(device, &jobs, &Filter::default(), 1, |_| _ = turns.fetch_add(1, Ordering::Relaxed));
        assert_eq!(turns.into_inner(), 2);
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

#[test]
fn cases_at_once_give_what_one_after_the_other_gives() {
    with_device("cases_at_once_give_what_one_after_the_other_gives", |device| {
        let jobs = ["none", "write after", "none", "scale doubled", "nan", "none", "one wrong", "none"].map(job);
        let results = |at_once| {
            let run = verify::all(device, &jobs, &Filter::default(), at_once, |_| ());
            assert!(run.not_run.is_none());
            run.rows.into_iter().map(|row| (row.case, row.variant, row.status, row.detail)).collect::<Vec<_>>()
        };
        assert_eq!(results(4), results(1));
    });
}

#[test]
fn of_cases_at_once_those_are_named_that_may_have_failed() {
    with_stand_in("of_cases_at_once_those_are_named_that_may_have_failed", |device| {
        let jobs: Vec<_> = ["none"; 40].into_iter().chain(["trap"]).chain(["none"; 200]).map(job).collect();
        let run = verify::all(device, &jobs, &Filter::default(), 2, |_| ());
        let not_run = run.not_run.expect("most cases have had no turn");
        assert!(not_run.why.contains(&jobs[40].to_string()), "{}", not_run.why);
        assert!(not_run.cases.len() > 150 && run.rows.iter().any(|row| row.status == Status::Fail));
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
    fake::with_driver(name, &[], || body(&Device::open().expect("the stand-in opens")));
}
