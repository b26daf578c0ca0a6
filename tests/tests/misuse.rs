//! Calls that are wrong at run time: each is an error that says what was wrong, and harms nothing.

use warpsmith::check::Job;
use warpsmith::check::registry::{self, OPERATORS};
use warpsmith::check::verify::{self, Filter, Status};
use warpsmith::ops::model::{self, Arguments, CaseClass, InputSpec, Operator, Params, Role, TensorMeta};
use warpsmith::ops::{
    AdamW, Attention, Causal, CrossEntropy, Decoding, Dpo, Grpo, KlDivergence, KvCache, Linear, Normalisation, Philox,
    RopePairs, Rotation, Sampling, SoftmaxMask,
};
use warpsmith::{AnyTensor, DType, Device, Error, Stream, Tensor, f16, ops, sim};
use warpsmith_tests::device;

fn tiny(op: &'static dyn Operator) -> Job {
    let case = op.cases().into_iter().find(|c| c.class == CaseClass::Tiny).expect("every operator has a tiny case");
    Job { op, case }
}

fn metas(job: &Job) -> Vec<TensorMeta> {
    job.op.inputs(&job.case).unwrap().iter().map(InputSpec::meta).collect()
}

#[test]
fn a_wrong_number_of_inputs_is_named() {
    for job in OPERATORS.iter().map(|op| tiny(*op)) {
        let params = Params::new(job.op.info());
        let all = metas(&job);
        let more = [all.clone(), all.clone()].concat();
        for inputs in [&all[1..], &more[..], &[]] {
            let error = model::outputs(job.op, inputs, &params).unwrap_err().to_string();
            let name = job.op.info().name;
            assert!(error.starts_with(name) && error.contains("input"), "{error}");
        }
    }
}

#[test]
fn a_dtype_that_is_not_offered_is_named() {
    for job in OPERATORS.iter().map(|op| tiny(*op)) {
        let info = job.op.info();
        for dtype in DType::ALL.iter().filter(|d| !info.dtypes.contains(d) && info.args[0].dtypes.is_empty()) {
            let mut inputs = metas(&job);
            inputs[0].dtype = *dtype;
            let error = model::outputs(job.op, &inputs, &Params::new(info)).unwrap_err();
            assert!(matches!(error, Error::DType { .. }), "{error}");
            let text = error.to_string();
            assert!(text.starts_with(info.name) && text.contains(dtype.name()), "{text}");
        }
    }
}

/// Launches the operator's tiny case with its outputs changed, but for those that it also reads.
fn launch(stream: &Stream, job: &Job, change: impl Fn(&mut TensorMeta)) -> warpsmith::Result<()> {
    launch_at(stream, job, change, |_| stream)
}

/// The same with each tensor where `place` says.
fn launch_at<'s>(
    stream: &Stream,
    job: &Job,
    change: impl Fn(&mut TensorMeta),
    place: impl Fn(&str) -> &'s Stream,
) -> warpsmith::Result<()> {
    let zeros = |m: &TensorMeta| AnyTensor::zeros(place(&m.name), m.dtype, &m.shape);
    let read = metas(job);
    let mut written = model::outputs(job.op, &read, &job.case.params)?;
    written.iter_mut().filter(|output| read.iter().all(|input| input.name != output.name)).for_each(change);
    let inputs: Vec<_> = read.iter().map(zeros).collect::<Result<_, _>>()?;
    let mut outputs: Vec<_> = written.iter().map(zeros).collect::<Result<_, _>>()?;
    let mut args = Arguments::new(job.op.info());
    // What is read and written is among the outputs.
    let only_read = |(meta, _): &(&TensorMeta, &AnyTensor)| written.iter().all(|output| output.name != meta.name);
    let mut only_read = read.iter().zip(&inputs).filter(only_read);
    only_read.try_for_each(|(meta, tensor)| args.read(&meta.name, tensor.view()))?;
    written.iter().zip(&mut outputs).try_for_each(|(meta, tensor)| args.write(&meta.name, tensor.view_mut()))?;
    model::launch(job.op, stream, &mut args, &job.case.params)?;
    stream.synchronize()
}

#[test]
fn outputs_that_do_not_fit_are_refused() {
    let Some(device) = device() else { return };
    let stream = device.stream().unwrap();
    for job in OPERATORS.iter().map(|op| tiny(*op)) {
        launch(&stream, &job, |_| {}).unwrap();
        if job.op.info().outputs().all(|arg| arg.role == Role::InOut) {
            continue;
        }
        let changes: [fn(&mut TensorMeta); 4] = [
            |m| *m.shape.last_mut().unwrap() += 1,
            |m| m.shape.iter_mut().for_each(|d| *d = 0),
            |m| m.shape.insert(0, 2),
            |m| m.dtype = if m.dtype == DType::U8 { DType::I64 } else { DType::U8 },
        ];
        for change in changes {
            let error = launch(&stream, &job, change).expect_err(job.op.info().name);
            assert!(matches!(error, Error::Shape { .. } | Error::DType { .. }), "{error}");
            assert!(names(&job).any(|name| error.to_string().starts_with(name)), "{error}");
        }
    }
    works(&device);
}

/// What errors may call the operator: a formula of a user's own goes by its name, as do its kernels.
fn names(job: &Job) -> impl Iterator<Item = &'static str> {
    let info = job.op.info();
    let formulas = info.instances().filter_map(|kernel| Some(kernel.symbol.split_once("_f32")?.0));
    formulas.chain([info.name])
}

#[test]
fn arguments_on_another_device_are_named() {
    let (here, there) = (sim::unshared().unwrap(), sim::unshared().unwrap());
    let (stream, other) = (here.stream().unwrap(), there.stream().unwrap());
    for op in OPERATORS.iter().copied() {
        // Without elements, too.
        let cases = op.cases().into_iter().filter(|case| matches!(case.class, CaseClass::Tiny | CaseClass::Empty));
        for job in cases.map(|case| Job { op, case }) {
            let mut args = metas(&job);
            args.extend(model::outputs(op, &args, &job.case.params).unwrap());
            for wrong in &args {
                let place = |name: &str| if name == wrong.name { &other } else { &stream };
                let error = launch_at(&stream, &job, |_| {}, place).expect_err(&job.case.name);
                assert!(error.to_string().contains("is on another sim:0 (warpsim"), "{error}");
                let Error::DeviceMismatch { op, arg, .. } = error else { panic!("{}: {error}", job.case.name) };
                let known = names(&job).any(|name| op.starts_with(name)) && arg == wrong.name;
                assert!(known, "{} {}: {op}: `{arg}`", job.case.name, wrong.name);
            }
        }
    }
    works(&here);
}

#[test]
fn zero_points_that_do_not_fit_are_named() {
    let Some(device) = device() else { return };
    let stream = device.stream().unwrap();
    // Three rows of 130 integers, so two groups each.
    let bytes = |shape: [usize; 2]| Tensor::<u8>::zeros(&stream, shape).unwrap();
    let (q, scales) = (bytes([3, 65]), Tensor::<f32>::zeros(&stream, [3, 2]).unwrap());
    let x = Tensor::<f16>::zeros(&stream, [3, 130]).unwrap();
    let (few, wide) = (bytes([3, 1]), bytes([2, 3]));
    let gemm = |zeros| said(ops::gemm_w4a16(&stream, &x, &q, &scales, Some(zeros)).map(drop));
    assert_eq!(gemm(few.view()), "gemm_w4a16: `zeros` has shape [3, 1], expected [3, 2]");
    assert_eq!(
        gemm(wide.view().t()),
        "gemm_w4a16: `zeros` has strides [1, 3] for shape [3, 2]: it has to be contiguous"
    );
    let widen = |zeros, d| said(ops::dequantize_int4::<f16>(&stream, &q, &scales, Some(zeros), d).map(drop));
    assert_eq!(widen(few.view(), 130), "dequantize_int4: `zeros` has shape [3, 1], expected [3, 2]");
    assert_eq!(widen(few.view(), 131), "dequantize_int4: `q` has shape [3, 65], expected [3, 66]");
    let (mut q, mut scales, mut few) = (bytes([3, 65]), Tensor::zeros(&stream, [3, 2]).unwrap(), few);
    let error = said(ops::quantize_int4_into(&stream, &x, &mut q, &mut scales, Some(few.view_mut())));
    assert_eq!(error, "quantize_int4: `zeros` has shape [3, 1], expected [3, 2]");
    works(&device);
}

fn said<T>(result: warpsmith::Result<T>) -> String {
    result.map(drop).unwrap_err().to_string()
}

#[test]
fn losses_say_what_is_wrong_with_what() {
    let Some(device) = device() else { return };
    let stream = device.stream().unwrap();
    let floats = |shape: &[usize]| Tensor::<f32>::zeros(&stream, shape).unwrap();
    let ints = |values: &[i32]| Tensor::from_slice(&stream, [values.len()], values).unwrap();
    let logits = floats(&[3, 4]);

    let entropy = |temperature| said(ops::entropy(&stream, &logits, temperature));
    let wanted = "expected a finite number above zero with a reciprocal below 2^127";
    assert_eq!(entropy(-0.1), format!("entropy: parameter `temperature` = -0.1: {wanted}"));
    assert_eq!(entropy(1e-40), format!("entropy: parameter `temperature` = {}: {wanted}", 1e-40f32));
    let kl = |options: KlDivergence<'_>| said(ops::kl_divergence(&stream, &logits, &logits, &options));
    assert_eq!(
        kl(KlDivergence::forward().temperature(0.0)),
        format!("kl_divergence: parameter `temperature` = 0: {wanted}")
    );
    assert_eq!(
        kl(KlDivergence::jensen_shannon(1.1)),
        "kl_divergence: parameter `beta` = 1.1: expected a finite number from 0 to 1"
    );
    let error = said(ops::kl_divergence(&stream, &logits, &floats(&[3, 5]), &KlDivergence::forward()));
    assert_eq!(error, "kl_divergence: `teacher` has shape [3, 5], expected [3, 4]");
    let targets = ints(&[0, 4, -100]);
    let losses = ops::kl_divergence(&stream, &logits, &logits, &KlDivergence::forward().targets(&targets)).unwrap();
    let error = said(losses.value(&stream));
    assert_eq!(error, "kl_divergence: parameter `targets[1]` = 4: expected a class below 4 or -100, which is ignored");

    // Out of range without rows too.
    let [hidden, weight] = [[0, 8], [4, 8]].map(|shape| Tensor::<f16>::zeros(&stream, shape).unwrap());
    let options = Linear::new(CrossEntropy::mean().label_smoothing(1.1));
    assert_eq!(
        said(ops::linear_cross_entropy(&stream, &hidden, &weight, &ints(&[]), &options)),
        "linear_cross_entropy: parameter `label_smoothing` = 1.1: expected a finite number from 0 to 1"
    );

    let (log_probs, pair) = (floats(&[4]), ints(&[0, 2, 4]));
    let dpo = |offsets: &Tensor<i32>, options| said(ops::dpo(&stream, &log_probs, offsets, &options));
    assert_eq!(
        dpo(&ints(&[0, 4]), Dpo::new(0.1)),
        "dpo: `offsets` has shape [2], expected [2 pairs + 1], not 1 sequences"
    );
    assert_eq!(
        dpo(&ints(&[0]), Dpo::new(0.1)),
        "dpo: `offsets` has shape [1], expected [sequences + 1] with a sequence or more of the 4 tokens"
    );
    assert_eq!(dpo(&pair, Dpo::new(-0.1)), "dpo: parameter `beta` = -0.1: expected a finite number above zero");
    let wrong = ops::dpo(&stream, &log_probs, &ints(&[0, 3, 5]), &Dpo::new(0.1)).unwrap().0;
    assert_eq!(
        said(wrong.check(&stream)),
        "dpo: parameter `offsets[2]` = 5: expected offsets that rise from 0 to 4, the number of tokens"
    );

    let (tokens, advantages) = (ints(&[1; 4]), floats(&[2]));
    let grpo = |options: Grpo<'_>| said(ops::grpo(&stream, &log_probs, &tokens, &advantages, &pair, &options));
    assert_eq!(
        grpo(Grpo::new().penalty(f32::NAN, &log_probs)),
        "grpo: parameter `beta` = NaN: expected a finite number"
    );
    assert_eq!(
        grpo(Grpo::new().normalisation(Normalisation::Constant(0.0))),
        format!("grpo: parameter `divisor` = 0: {wanted}")
    );
    assert_eq!(
        grpo(Grpo::new().clip(1.1, 0.2)),
        "grpo: parameter `clip_low` = 1.1: expected a finite number from 0 to 1"
    );
    works(&device);
}

#[test]
fn errors_go_by_the_name_that_was_called() {
    let Some(device) = device() else { return };
    let stream = device.stream().unwrap();
    let x = Tensor::<f32>::zeros(&stream, [6, 4]).unwrap();
    assert_eq!(
        said(ops::softmax(&stream, &x, -0.1)),
        "softmax: parameter `scale` = -0.1: expected a positive number below 2^127"
    );
    let strides = "`x` has strides [1, 4] for shape [4, 6]: its rows have to be contiguous and equally far apart";
    assert_eq!(said(ops::relu(&stream, x.view().t())), format!("relu: {strides}"));
    assert_eq!(said(ops::softmax(&stream, x.view().t(), 1.0)), format!("softmax: {strides}"));
    // Exponents to the base 2 would be infinite.
    let (large, wanted) = (2f32.powi(127), "below 2^127");
    let error = said(ops::log_softmax(&stream, &x, large));
    assert_eq!(error, format!("log_softmax: parameter `scale` = {large}: expected a positive number {wanted}"));
    let heads = Tensor::<f16>::zeros(&stream, [1, 1, 2, 8]).unwrap();
    let error = said(ops::attention(&stream, &heads, &heads, &heads, &Attention::full().scale(large)));
    assert_eq!(error, format!("attention: parameter `scale` = {large}: expected a number above zero and {wanted}"));
    assert!(said(ops::entropy(&stream, &x, 3e-39)).ends_with(wanted));
    let even = |y: Tensor<f32>| y.to_vec(&stream).unwrap().iter().all(|y| *y == 0.25);
    assert!(even(ops::softmax(&stream, &x, large.next_down()).unwrap()));
    let masked = |mask| said(ops::softmax_masked(&stream, &x, mask, 1.0));
    let (causal, lengths) = (Some(Causal { q_len: 0, offset: 0 }), Tensor::<i32>::zeros(&stream, [4]).unwrap());
    let error = masked(SoftmaxMask { causal, ..SoftmaxMask::default() });
    assert_eq!(error, "softmax_masked: parameter `q_len` = 0: expected at least 1");
    let error = masked(SoftmaxMask { key_lengths: Some(lengths.view()), ..SoftmaxMask::default() });
    let wanted = "expected a number of lengths that divides the 6 rows";
    assert_eq!(error, format!("softmax_masked: `key_lengths` has shape [4], {wanted}"));

    // Of an argument, and not of the result that has its shape from it.
    let (table, positions) =
        (Tensor::<f32>::zeros(&stream, [4, 2]).unwrap(), Tensor::<i32>::zeros(&stream, [6]).unwrap());
    let (cos, positions) = (table.view(), positions.view());
    let rotation = Rotation { cos, sin: cos, positions, pairs: RopePairs::Halves };
    assert_eq!(said(ops::rope(&stream, &x, &rotation)), "rope: `x` has shape [6, 4], expected 3 dimensions");
    let error = said(ops::rope_backward(&stream, &x, &rotation));
    assert_eq!(error, "rope_backward: `dy` has shape [6, 4], expected 3 dimensions");

    let random = Philox::new(1);
    let error = said(ops::random_uniform::<f32>(&stream, [2], 0.1..f32::INFINITY, random));
    assert_eq!(error, "random_uniform: parameter `range` = 0.1..inf: expected finite ends, finitely far apart");
    let error = said(ops::random_uniform::<f32>(&stream, [2], f32::MIN..f32::MAX, random));
    assert!(error.contains("`range` = -3.4028235e38..3.4028235e38"), "{error}");
    let error = said(ops::dropout(&stream, &x, 1.1, random));
    assert_eq!(error, "dropout: parameter `p` = 1.1: expected from 0 to below 1");
    let error = said(ops::sample(&stream, &x, Sampling { top_p: 1.1, ..Sampling::default() }, random));
    assert_eq!(error, "sample: parameter `top_p` = 1.1: expected from above 0 to 1");
    // From an f32, and from an f64.
    let mut of_step = [(); 3].map(|()| Tensor::<f32>::zeros(&stream, [6, 4]).unwrap());
    let [params, m, v] = &mut of_step;
    let mut adamw = |options| said(ops::adamw(&stream, &mut *params, &x, &mut *m, &mut *v, None, &options));
    let wanted = "expected from 0 to below 1";
    let error = adamw(AdamW { beta1: f64::from(1.1f32), ..AdamW::default() });
    assert_eq!(error, format!("adamw: parameter `beta1` = 1.1: {wanted}"));
    let error = adamw(AdamW { beta2: 1.1, ..AdamW::default() });
    assert_eq!(error, format!("adamw: parameter `beta2` = 1.1: {wanted}"));
    let error = adamw(AdamW { lr: 1e39, ..AdamW::default() });
    let wanted = "expected a rate that f32 can hold, also over 1 - beta1^step";
    assert!(error.starts_with("adamw: parameter `lr` = 1") && error.ends_with(wanted), "{error}");
    let error = adamw(AdamW { lr: 0.5, weight_decay: 1e39, ..AdamW::default() });
    let wanted = "expected a share that f32 can hold times `lr` = 0.5";
    assert!(error.starts_with("adamw: parameter `weight_decay` = 1") && error.ends_with(wanted), "{error}");
    let wide = Tensor::<f32>::zeros(&stream, [4, 5]).unwrap();
    let error = said(ops::matmul_int8(&stream, &x, &wide));
    assert_eq!(error, "matmul_int8: `b` has shape [4, 5], expected [4, 4]");
    let error = said(ops::matmul_int8(&stream, x.view().t(), &wide));
    assert!(error.starts_with("matmul_int8: `b` has shape"), "{error}");
    let error = said(ops::matmul_int8(&stream, x.view().t(), x.view().t()));
    assert!(error.starts_with("matmul_int8: `a` has strides [1, 4] for shape [4, 6]: "), "{error}");
    assert_eq!(said(ops::top_k(&stream, &x, 257)), "top_k: parameter `k` = 257: expected at most 256");
    assert_eq!(
        said(ops::top_k(&stream, &x, 5)),
        "top_k: `x` has shape [6, 4], expected 5, which is k, to 2^31 - 1 columns"
    );
    works(&device);
}

#[test]
fn variants_that_do_not_take_a_problem_go_by_their_names() {
    let Some(device) = device() else { return };
    let stream = device.stream().unwrap();
    let mut refused = 0;
    for op in OPERATORS.iter().copied() {
        for variant in op.info().variants {
            // Beside the tiny case some of odd sizes that the variant does not claim.
            let odd = op.cases().into_iter().filter(|case| {
                case.class == CaseClass::Odd && case.params.is_default() && !(variant.applies)(device.info(), case)
            });
            for case in odd.take(4).chain([tiny(op).case]) {
                let mut job = Job { op, case };
                job.case.params = job.case.params.clone().with_variant(variant.name).unwrap();
                let Err(Error::InvalidParam { op: named, param, found, .. }) = launch(&stream, &job, |_| {}) else {
                    continue;
                };
                let expected = (op.info().name, "variant", variant.name);
                assert_eq!((named.as_str(), param.as_str(), found.as_str()), expected, "{}", job.case.name);
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
    works(&device);
}

#[test]
fn a_variant_of_two_launches_is_refused_before_either() {
    let Some(device) = device() else { return };
    let stream = device.stream().unwrap();
    let op = registry::find("gemm_grouped_backward").unwrap();
    let of_rows = Tensor::<f16>::zeros(&stream, [4, 8]).unwrap();
    let weight = Tensor::<f16>::zeros(&stream, [1, 8, 8]).unwrap();
    let offsets = Tensor::from_slice(&stream, [2], &[0, 4]).unwrap();
    // TMA takes all that the gradient of the weights needs, and no rows 24 bytes apart.
    let mut memory = Tensor::<f16>::zeros(&stream, [4 * 12]).unwrap();
    let mut dweight = Tensor::from_slice(&stream, [1, 8, 8], &[7.0f32; 64]).unwrap();
    let mut args = Arguments::new(op.info());
    for (name, view) in [("x", of_rows.view()), ("weight", weight.view()), ("dy", of_rows.view())] {
        args.read(name, view).unwrap();
    }
    args.read("offsets", offsets.view()).unwrap();
    args.write("dx", memory.view_mut().strided(0, [4, 8], &[12, 1]).unwrap()).unwrap();
    args.write("dweight", dweight.view_mut()).unwrap();
    let params = Params::new(op.info()).with_variant("hopper").unwrap();
    let error = model::launch(op, &stream, &mut args, &params).unwrap_err().to_string();
    assert!(error.starts_with("gemm_grouped_backward: parameter `variant` = hopper: "), "{error}");
    assert_eq!(dweight.to_vec(&stream).unwrap(), [7.0; 64]);
}

#[test]
fn nothing_is_too_large_where_there_is_nothing() {
    let Some(device) = device() else { return };
    let stream = device.stream().unwrap();
    let floats = |shape: &[usize]| Tensor::<f16>::zeros(&stream, shape).unwrap();
    // Products of sizes that have a tensor without elements each.
    let (new, lengths) = (floats(&[0, 1, 1, 8]), Tensor::<i32>::zeros(&stream, [0]).unwrap());
    let mut caches = [floats(&[16, 16, 1, 8]), floats(&[16, 16, 1, 8])];
    let table = Tensor::<i32>::zeros(&stream, [0, 1 << 60]).unwrap();
    let [k, v] = &mut caches;
    ops::append_kv_paged(&stream, &new, &new, &lengths, &table, k, v).unwrap();
    let many = 1 << 17;
    let cache = floats(&[0, 4, many, 8]);
    let cache = KvCache { k: cache.view(), v: cache.view(), scales: None, lengths: lengths.view(), page_table: None };
    for shape in [[0, many, many, 8], [0, 1, many, 8]] {
        let o = ops::attention_decode(&stream, &floats(&shape), &cache, &Decoding::default()).unwrap();
        assert!(o.is_empty());
    }
    // Strides that bytes cannot count.
    let x = Tensor::<i64>::zeros(&stream, [2, 0, many, 1 << 44]).unwrap();
    assert!(ops::permute_heads(&stream, &x).unwrap().is_empty());
    works(&device);
}

/// The first operator still computes what it should.
fn works(device: &Device) {
    let rows = verify::on_device(device, &tiny(OPERATORS[0]), &Filter::default());
    assert!(rows.iter().all(|row| row.status == Status::Pass), "{rows:?}");
}

#[test]
fn errors_cross_threads_and_boxes() {
    fn check<T: std::error::Error + Send + Sync + Clone + 'static>() {}
    check::<Error>();
}
