//! Both steps in the registry.

use gpu_kernels::ops::optim::adamw as gk;

use super::{AdamW, adamw, adamw_master};
use crate::dispatch;
use crate::ops::model::*;
use crate::ops::optim::clip_grad::with_norm;
use crate::ops::optim::{Clip, clip_scale};
use crate::runtime::dtype::DType;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;

/// AdamW in the registry, on parameters or on master weights.
pub struct Adamw {
    info: &'static OpInfo,
}

/// [`adamw`] in the registry.
pub static ADAMW: Adamw = Adamw { info: &IN_PLACE };

/// [`adamw_master`] in the registry.
pub static ADAMW_MASTER: Adamw = Adamw { info: &MASTER };

const MATH: &str = "m ← β₁·m + (1 − β₁)·g, v ← β₂·v + (1 − β₂)·g², w ← w·(1 − lr·weight_decay) − lr·m̂ / (√v̂ + eps)";
const GRADS: ArgInfo = ArgInfo::input("grads", "the shape of the weights, contiguous");
const M: ArgInfo = ArgInfo::in_out("m", "first moment, the shape of the weights, contiguous").of(&[DType::F32]);
const V: ArgInfo = ArgInfo::in_out("v", "second moment, the shape of the weights, contiguous").of(&[DType::F32]);
const NORM: ArgInfo =
    ArgInfo::input("norm", "[1], the norm of all gradients, to clip them").of(&[DType::F32]).optional();

const LR: ParamInfo = ParamInfo::float("lr", 1e-3, "learning rate");
const BETA1: ParamInfo = ParamInfo::float("beta1", 0.9, "decay of the first moment, from 0 to below 1");
const BETA2: ParamInfo = ParamInfo::float("beta2", 0.999, "decay of the second moment, from 0 to below 1");
const EPS: ParamInfo = ParamInfo::float("eps", 1e-8, "added to the root of the second moment");
const WEIGHT_DECAY: ParamInfo =
    ParamInfo::float("weight_decay", 1e-2, "share of a weight that a step at learning rate 1 takes away");
const STEP: ParamInfo = ParamInfo::int("step", 10, "which step this is, from 1 on");
const MAX_NORM: ParamInfo = ParamInfo::float("max_norm", 1.0, "the greatest norm that gradients may have");
const TO: ParamInfo =
    ParamInfo::choice("to", "bfloat16", &["float16", "bfloat16"], "the type of parameters whose gradients are in f32");

pub(super) static IN_PLACE: OpInfo = OpInfo {
    name: "adamw",
    bench_name: "optim.adamw",
    summary: "step of AdamW in place, with gradients clipped on the way",
    math: MATH,
    args: &[ArgInfo::in_out("params", "any shape, contiguous"), GRADS, M, V, NORM],
    params: &[LR, BETA1, BETA2, EPS, WEIGHT_DECAY, STEP, MAX_NORM],
    dtypes: DType::FLOATS,
    kernels: &[gk::ADAMW],
    variants: &[],
};

pub(super) static MASTER: OpInfo = OpInfo {
    name: "adamw_master",
    bench_name: "optim.adamw_master",
    summary: "step of AdamW on f32 master weights, which parameters in a 16-bit type become a copy of",
    args: &[
        ArgInfo::in_out("master", "any shape, contiguous").of(&[DType::F32]),
        ArgInfo::output("params", "the shape of the weights, contiguous").of(&[DType::F16, DType::BF16]),
        GRADS,
        M,
        V,
        NORM,
    ],
    params: &[LR, BETA1, BETA2, EPS, WEIGHT_DECAY, STEP, MAX_NORM, TO],
    kernels: &[gk::ADAMW_MASTER],
    ..IN_PLACE
};

impl Adamw {
    fn has_master(&self) -> bool {
        std::ptr::eq(self.info, &MASTER)
    }

    /// What parameters are that are a copy of master weights: what their gradients are, if these are in 16 bits.
    fn copy(&self, grads: DType, params: &Params) -> Result<DType> {
        if grads == DType::F32 { params.choice("to")?.parse() } else { Ok(grads) }
    }

    /// The argument that is stepped.
    fn weights(&self) -> &'static str {
        self.info.args[0].name
    }
}

fn options(params: &Params) -> Result<AdamW> {
    let step = params.i64("step")?;
    let step = u64::try_from(step).map_err(|_| params.info().param_error("step", step, "at least 1"))?;
    let [lr, beta1, beta2] = [params.f64("lr")?, params.f64("beta1")?, params.f64("beta2")?];
    Ok(AdamW { lr, beta1, beta2, eps: params.f64("eps")?, weight_decay: params.f64("weight_decay")?, step })
}

impl Operator for Adamw {
    fn info(&self) -> &'static OpInfo {
        self.info
    }

    fn cases(&self) -> Vec<Case> {
        let n = |n| [("n", n)];
        let info = self.info;
        let mut cases = Vec::new();
        for &dtype in info.dtypes {
            let name = |what| format!("n=2^27{what} {}", dtype.name());
            let alone = |case: Case| case.without("norm");
            cases.extend([
                Case::production(info, name(" clipped"), dtype, n(1 << 27)),
                alone(Case::production(info, name(""), dtype, n(1 << 27))),
                Case::odd(info, dtype, n(3 * gk::PER_BLOCK + 203)),
                Case::odd(info, dtype, n(700)).offset(1),
                alone(Case::odd(info, dtype, n(700))).arrange("v", Arrangement::DENSE.offset(2)),
                Case::odd(info, dtype, n(600)).arrange("grads", Arrangement::DENSE.offset(1)),
                // What lies behind a vector is nobody's.
                Case::odd(info, dtype, n(600)).arrange("m", Arrangement::DENSE.row_pad(8)),
                Case::tiny(info, dtype, n(1)),
                alone(Case::tiny(info, dtype, n(7))),
                Case::empty(info, dtype, n(0)),
                Case::boundary(info, dtype, n(gk::PER_BLOCK)),
                Case::boundary(info, dtype, n(gk::PER_BLOCK + 1)).param("step", 1),
                Case::boundary(info, dtype, n(600)).param("weight_decay", 0.0).param("lr", 0.5),
                Case::boundary(info, dtype, n(100)).param("beta1", 0.0).param("beta2", 0.0),
                // Weights that have never had a gradient: both moments are zero too.
                ["grads", "m", "v"]
                    .into_iter()
                    .fold(Case::boundary(info, dtype, n(9)), |case, name| case.values(name, Values::Constant(0.0))),
                // Infinite weights among others.
                Case::boundary(info, dtype, n(600)).values(self.weights(), Values::Specials),
                with_norm(Case::boundary(info, dtype, n(100)), 0.25),
                with_norm(Case::boundary(info, dtype, n(100)), f64::NAN),
            ]);
        }
        // Of the other types squares overflow in f32 on the way.
        cases.push(Case::boundary(info, DType::F16, n(600)).values("grads", Values::Specials));
        if !self.has_master() {
            return cases;
        }
        // Gradients in f32 go with parameters of both types.
        let to = |case: &Case, dtype: DType| {
            let mut to = case.clone().param("to", ParamValue::Choice(dtype.name()));
            if to.class == CaseClass::Production {
                to.name = format!("{} to {dtype}", case.name);
            }
            to
        };
        let copies = |case: Case| match case.dtype {
            DType::F32 => [DType::F16, DType::BF16].map(|dtype| to(&case, dtype)).to_vec(),
            _ => vec![case],
        };
        cases.into_iter().flat_map(copies).collect()
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [n] = case.dims(["n"])?;
        let weights = if self.has_master() { DType::F32 } else { case.dtype };
        let mut specs = vec![
            InputSpec::normal(self.weights(), weights, [n]),
            InputSpec::normal("grads", case.dtype, [n]),
            InputSpec::new("m", DType::F32, [n], Values::Normal { std: 0.1 }),
            // No step is longer than a hundred times the learning rate.
            InputSpec::new("v", DType::F32, [n], Values::Uniform { low: 0.01, high: 1.0 }),
        ];
        if case.has("norm") {
            specs.push(InputSpec::new("norm", DType::F32, [1], Values::Uniform { low: 1.5, high: 4.0 }));
        }
        Ok(specs.into_iter().map(|spec| spec.in_case(case)).collect())
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let grads = inputs.get("grads")?;
        for name in [self.weights(), "m", "v"] {
            inputs.get(name)?.has_shape(grads.shape())?;
        }
        if let Some(norm) = inputs.optional("norm") {
            norm.has_shape(&[1])?;
        }
        if !self.has_master() {
            return Ok(Vec::new());
        }
        Ok(vec![TensorMeta::new("params", self.copy(grads.dtype(), params)?, grads.shape())])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let (options, max_norm) = (options(params)?, params.f32("max_norm")?);
        let clip = args.optional_input("norm")?.map(|norm| Clip { norm, max_norm });
        let (m, v) = (args.output("m")?, args.output("v")?);
        if self.has_master() {
            return dispatch!(MASTER, args.dtype("params")?, [crate::f16, crate::bf16] => |T| {
                let (master, params) = (args.output("master")?, args.output::<T>("params")?);
                match args.dtype("grads")? {
                    DType::F32 => adamw_master(stream, master, params, args.input::<f32>("grads")?, m, v, clip, &options),
                    _ => adamw_master(stream, master, params, args.input::<T>("grads")?, m, v, clip, &options),
                }
            });
        }
        dispatch!(IN_PLACE, args.dtype("grads")?, float => |T| {
            adamw::<T>(stream, args.output("params")?, args.input("grads")?, m, v, clip, &options)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let AdamW { lr, beta1, beta2, eps, weight_decay, step } = options(params)?;
        let scale = match inputs.optional("norm") {
            Some(norm) => clip_scale(norm.to_f64()[0], params.f64("max_norm")?),
            None => 1.0,
        };
        let select = |name| Ok(reference::select(inputs.get(name)?, rows));
        let (weights, grads, m, v) = (select(self.weights())?, select("grads")?, select("m")?, select("v")?);
        let unbiased = |moment: f64, beta: f64| moment / (1.0 - beta.powf(step as f64));
        let after = |i: usize| {
            let grad = grads[i] * scale;
            let m = beta1 * m[i] + (1.0 - beta1) * grad;
            let v = beta2 * v[i] + (1.0 - beta2) * grad * grad;
            match output {
                "m" => m,
                "v" => v,
                _ => {
                    weights[i] * (1.0 - lr * weight_decay) - lr * unbiased(m, beta1) / (unbiased(v, beta2).sqrt() + eps)
                }
            }
        };
        Ok((0..grads.len()).map(after).collect())
    }

    fn tolerance(&self, case: &Case, output: &str) -> Result<Tolerance> {
        let rounded = |abs, rel, why| Ok(Tolerance::rounded(DType::F32, abs, rel, why));
        match output {
            // Of order 1 before they cancel, each rounded thrice, and the factor that clips.
            "m" => rounded(
                5e-7,
                5e-7,
                "f32 roundings of two terms of order 1, which may cancel, and of the factor that clips",
            ),
            "v" => rounded(0.0, 1.5e-6, "f32 roundings of two positive terms, and the factor that clips, squared"),
            _ => {
                let dtype = match output {
                    "master" => DType::F32,
                    _ if self.has_master() => self.copy(case.dtype, &case.params)?,
                    _ => case.dtype,
                };
                // A moment's error is that of m over its root, at most 10 times as large, and the constants' and the root's are relative.
                let step = 1e-5 * case.params.f64("lr")? * 10.0;
                let why = "three f32 roundings of the weight, 10⁻⁵ of a step of up to ten times the learning rate, and storage";
                Ok(Tolerance::rounded(dtype, step, 3e-7, why))
            }
        }
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [n] = case.dims(["n"])?;
        // Both moments, and the weights, read and written; the gradients read; the copy of master weights written.
        let weights = match self.has_master() {
            true => 2 * size_of::<f32>() + self.copy(case.dtype, &case.params)?.size(),
            false => 2 * case.dtype.size(),
        };
        Ok(Cost::memory((n * (4 * size_of::<f32>() + weights + case.dtype.size())) as u64))
    }
}
