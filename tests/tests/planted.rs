//! Mistakes in the host's half of an operator, each planted into one that is right: the checks have to find them.

use gpu_kernels::ops::elementwise::add as gk;
use warpsmith::check::Job;
use warpsmith::check::verify::{self, Filter, Status};
use warpsmith::ops::elementwise::add::ADD;
use warpsmith::ops::model::*;
use warpsmith::{Result, Stream};
use warpsmith_tests::device;

/// [`ADD`], of f32 alone, with a launch and a list of kernels of its own.
struct Planted {
    info: &'static OpInfo,
    launch: fn(&Stream, &mut Arguments<'_>) -> Result<()>,
}

impl Operator for Planted {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let f32 = |case: &Case| case.dtype == warpsmith::DType::F32 && case.class == CaseClass::Odd;
        ADD.cases().into_iter().filter(f32).collect()
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        ADD.inputs(case)
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        ADD.outputs(inputs, params)
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        (self.launch)(stream, args)
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        ADD.reference(inputs, params, output, rows)
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        ADD.tolerance(case, output)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        ADD.cost(case)
    }
}

/// Launches the kernel over rows, with the strides that `mix` makes of those of x, y and z.
fn launch(stream: &Stream, args: &mut Arguments<'_>, mix: fn([u64; 3]) -> [u64; 3]) -> Result<()> {
    let (x, y, mut z) = (args.input::<f32>("x")?, args.input::<f32>("y")?, args.output::<f32>("z")?);
    let (rows, d) = (x.rows() as u64, x.cols() as u64);
    let strides = [x.row_stride(), y.row_stride(), z.row_stride()].map(|stride| stride.expect("rows") as u64);
    let [x_stride, y_stride, z_stride] = mix(strides);
    let args = (x.ptr(stream)?, y.ptr(stream)?, z.ptr_mut(stream)?, rows, d, x_stride, y_stride, z_stride);
    let threads = <gk::Add<f32> as cuda_std::launch::Kernel>::BLOCK.x;
    let blocks = (d as u32).div_ceil(gpu_kernels::map::per_block(threads, 4, 2) as u32);
    // SAFETY: the guards around the checker's tensors are wider than the strides differ; the simulator refuses the rest.
    unsafe { stream.launch::<gk::Add<f32>>((blocks, rows as u32), args) }
}

static LISTED: OpInfo = OpInfo { kernels: &[gk::ADD], ..UNLISTED_INFO };
static UNLISTED: OpInfo = UNLISTED_INFO;
const UNLISTED_INFO: OpInfo = OpInfo {
    name: "add",
    bench_name: "ew.add",
    summary: "a sum with mistakes",
    math: "z = x + y",
    args: &[ArgInfo::input("x", ""), ArgInfo::input("y", ""), ArgInfo::output("z", "")],
    params: &[],
    dtypes: &[warpsmith::DType::F32],
    kernels: &[],
    variants: &[],
};

static RIGHT: Planted = Planted { info: &LISTED, launch: |stream, args| launch(stream, args, |strides| strides) };
static SWAPPED: Planted = Planted { info: &LISTED, launch: |stream, args| launch(stream, args, |[x, y, z]| [z, y, x]) };
static INPUTS: Planted = Planted { info: &LISTED, launch: |stream, args| launch(stream, args, |[x, y, z]| [y, x, z]) };
static MISSING: Planted = Planted { info: &UNLISTED, launch: |stream, args| launch(stream, args, |strides| strides) };

/// What the checks say of the operator's cases: whether all pass, and all that they say.
fn verdict(op: &'static Planted) -> Option<(bool, String)> {
    let device = device()?;
    let rows =
        op.cases().into_iter().flat_map(|case| verify::on_device(&device, &Job { op, case }, &Filter::default()));
    let rows: Vec<_> = rows.collect();
    let details: Vec<_> = rows.iter().filter_map(|row| row.detail.clone()).collect();
    Some((rows.iter().all(|row| row.status == Status::Pass), details.join("\n")))
}

#[test]
fn an_operator_without_mistakes_passes() {
    assert_eq!(verdict(&RIGHT).unwrap_or((true, String::new())), (true, String::new()));
}

#[test]
fn strides_that_are_swapped_are_found() {
    for op in [&SWAPPED, &INPUTS] {
        let Some((passed, says)) = verdict(op) else { return };
        assert!(!passed, "{says}");
    }
}

#[test]
fn a_kernel_that_is_not_listed_is_found() {
    let Some((passed, says)) = verdict(&MISSING) else { return };
    assert!(!passed && says.contains("kernel add_f32 was launched and is not among those"), "{says}");
}
