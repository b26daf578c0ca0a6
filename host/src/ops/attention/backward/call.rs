//! A checked call, and its launches on mma.sync and on the readable kernels.

use cuda_std::float::Half;
use cuda_std::launch::{DevicePtr, DevicePtrMut, Kernel};
use gpu_kernels::ops::attention as gk;
use gpu_kernels::ops::attention::backward::mma::{self, dkv, dq};
use gpu_kernels::ops::attention::backward::{delta, simple, sinks};
use half::{bf16, f16};

use super::super::Attention;
use super::super::problem::{self, Bounds, Checked};
use super::{INFO, Saved};
use crate::ops::elementwise::grid;
use crate::ops::model::{Arguments, Params};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::scratch::Scratch;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// A call with checked arguments.
pub(super) struct Call<'a, T> {
    pub(super) saved: Saved<'a, T>,
    pub(super) d_o: View<'a, T>,
    pub(super) gradients: [ViewMut<'a, T>; 3],
    pub(super) dsinks: Option<ViewMut<'a, f32>>,
    pub(super) problem: Checked<'a>,
    pub(super) strides: gk::Gradients,
}

/// The values that exist once per query.
pub(super) struct Numbers {
    /// The logsumexps in the form that the kernels' exponents take; empty if not requested.
    pub(super) exponents: Scratch<f32>,
    /// The dot products of the rows of dO and O.
    pub(super) delta: Scratch<f32>,
}

/// Arguments of the kernels that compute these values.
pub(super) type DeltaArgs<T> =
    (DevicePtr<T>, DevicePtr<T>, DevicePtr<f32>, DevicePtrMut<f32>, DevicePtrMut<f32>, u64, gk::Problem, gk::Gradients);

/// Arguments of the kernels that compute dQ.
type DqArgs<T> = (
    DevicePtr<T>,
    DevicePtr<T>,
    DevicePtr<T>,
    DevicePtr<T>,
    DevicePtr<f32>,
    DevicePtr<f32>,
    DevicePtrMut<T>,
    DevicePtr<i32>,
    DevicePtr<i32>,
    DevicePtr<i32>,
    DevicePtr<f32>,
    gk::Problem,
    gk::Gradients,
);

/// Arguments of the kernels that compute dK and dV.
type DkvArgs<T> = (
    DevicePtr<T>,
    DevicePtr<T>,
    DevicePtr<T>,
    DevicePtr<T>,
    DevicePtr<f32>,
    DevicePtr<f32>,
    DevicePtrMut<T>,
    DevicePtrMut<T>,
    DevicePtr<i32>,
    DevicePtr<i32>,
    DevicePtr<i32>,
    DevicePtr<f32>,
    gk::Problem,
    gk::Gradients,
);

impl<'a, T: Float> Call<'a, T> {
    pub(super) fn new(
        stream: &Stream,
        saved: Saved<'a, T>,
        d_o: View<'a, T>,
        options: &Attention<'a>,
        gradients: [ViewMut<'a, T>; 3],
        dsinks: Option<ViewMut<'a, f32>>,
    ) -> Result<Self> {
        let Saved { q, k, v, o, lse } = saved;
        let mut problem = Checked::new(&INFO, stream, [q, k, v], options)?;
        let [dq, dk, dv] = &gradients;
        stream.require_devices(
            INFO.name,
            &[("o", &o), ("lse", &lse), ("d_o", &d_o), ("dq", dq), ("dk", dk), ("dv", dv), ("dsinks", &dsinks)],
        )?;
        for (name, view) in [("o", &o), ("d_o", &d_o)] {
            view.require_shape(INFO.name, name, q.shape())?;
            view.require_inner_contiguous(INFO.name, name)?;
        }
        lse.require_shape(INFO.name, "lse", &q.shape()[..3])?;
        lse.require_contiguous(INFO.name, "lse")?;
        for ((name, view), of) in ["dq", "dk", "dv"].into_iter().zip(&gradients).zip([q, k, v]) {
            view.require_shape(INFO.name, name, of.shape())?;
            view.require_inner_contiguous(INFO.name, name)?;
        }
        if let Some(dsinks) = &dsinks {
            dsinks.require_shape(INFO.name, "dsinks", &[q.shape()[1]])?;
            dsinks.require_contiguous(INFO.name, "dsinks")?;
            if problem.sinks().is_none() {
                return Err(INFO.param_error("dsinks", "a gradient of sinks", "sinks among the options"));
            }
        }
        let outer = |strides: &[usize]| [strides[0], strides[1], strides[2]].map(|stride| stride as u64);
        problem.sizes.o = outer(o.strides());
        let [dq, dk, dv] = [0, 1, 2].map(|i: usize| outer(gradients[i].strides()));
        let strides = gk::Gradients { d_o: outer(d_o.strides()), dq, dk, dv };
        Ok(Self { saved, d_o, gradients, dsinks, problem, strides })
    }

    /// Builds the call from a launch's tensors, whose types are known only at run time.
    pub(super) fn of(stream: &Stream, args: &mut Arguments<'a>, params: &Params) -> Result<Self> {
        let options = problem::options(args, params)?;
        let [q, k, v, o] = [args.input("q")?, args.input("k")?, args.input("v")?, args.input("o")?];
        let saved = Saved { q, k, v, o, lse: args.input("lse")? };
        let gradients = [args.output("dq")?, args.output("dk")?, args.output("dv")?];
        let dsinks = if options.sinks.is_some() { Some(args.output("dsinks")?) } else { None };
        Self::new(stream, saved, args.input("d_o")?, &options, gradients, dsinks)
    }

    pub(super) fn launch(self, stream: &Stream) -> Result<()> {
        let any_order = !self.problem.deterministic();
        if stream.device().supports_hopper() && any_order && self.fits_hopper() {
            self.launch_hopper(stream)
        } else if any_order && self.fits_fused(stream) && self.worth_fusing() {
            self.launch_fused(stream)
        } else if self.fits_tensor_cores() {
            self.launch_mma(stream)
        } else {
            self.launch_simple(stream)
        }
    }

    /// cp.async copies 16 bytes at a time, and the products take 16-bit floats.
    pub(super) fn fits_tensor_cores(&self) -> bool {
        let Saved { q, k, v, o, .. } = &self.saved;
        let aligned = [q, k, v, o, &self.d_o].into_iter().all(|x| x.rows_aligned(16))
            && self.gradients.iter().all(|x| x.rows_aligned(16));
        T::DTYPE != DType::F32 && self.problem.sizes.d.is_multiple_of(8) && self.problem.sizes.d > 0 && aligned
    }

    pub(super) fn launch_simple(mut self, stream: &Stream) -> Result<()> {
        let Numbers { delta, .. } = self.numbers::<delta::AttentionDelta<T, 1>>(stream, false)?;
        self.launch_dsinks(stream, &delta)?;
        let numbers = [self.saved.lse.ptr(stream)?, delta.ptr_mut().into()];
        self.launch_dq::<simple::AttentionDqSimple<T>>(stream, numbers, simple::ROWS)?;
        self.launch_dkv::<simple::AttentionDkvSimple<T>>(stream, numbers, simple::ROWS)
    }

    pub(super) fn launch_mma(self, stream: &Stream) -> Result<()> {
        if !self.fits_tensor_cores() {
            let wanted = "f16 or bf16 with d a multiple of 8 and rows at multiples of 16 bytes";
            return Err(INFO.param_error("variant", "mma", wanted));
        }
        match T::DTYPE {
            DType::F16 => self.cast::<f16>().launch_mma_of(stream),
            _ => self.cast::<bf16>().launch_mma_of(stream),
        }
    }

    /// The same call with `T` renamed to `U`, which is the same type.
    pub(super) fn cast<U: Float>(self) -> Call<'a, U> {
        let Self { saved: Saved { q, k, v, o, lse }, d_o, gradients, dsinks, problem, strides } = self;
        let [q, k, v, o, d_o] = [q, k, v, o, d_o].map(|x| View::of(x.part));
        let gradients = gradients.map(|x| ViewMut::of(x.part));
        Call { saved: Saved { q, k, v, o, lse }, d_o, gradients, dsinks, problem, strides }
    }

    /// Computes the per-query values; the exponents only if `wanted`.
    pub(super) fn numbers<K>(&self, stream: &Stream, wanted: bool) -> Result<Numbers>
    where
        K: Kernel<Args = DeltaArgs<T>>,
    {
        let rows = self.saved.lse.len();
        let numbers = Numbers {
            exponents: stream.workspace(INFO.name, if wanted { rows } else { 0 })?,
            delta: stream.workspace(INFO.name, rows)?,
        };
        if let Some(grid) = grid(&INFO, "q", rows, delta::ROWS as usize)? {
            let (o, d_o, lse) = (self.saved.o.ptr(stream)?, self.d_o.ptr(stream)?, self.saved.lse.ptr(stream)?);
            let (exponents, delta) = (numbers.exponents.ptr_mut(), numbers.delta.ptr_mut());
            let args = (o, d_o, lse, exponents, delta, rows as u64, self.problem.sizes, self.strides);
            // SAFETY: the tensors are live and have these sizes and strides, and no scratch memory is null; callers name a
            // kernel that takes several elements at a time only where d and the alignment of rows are multiples of them.
            unsafe { stream.launch::<K>(grid, args)? };
        }
        Ok(numbers)
    }

    /// Computes the gradients of sinks, if they are requested.
    pub(super) fn launch_dsinks(&mut self, stream: &Stream, delta: &Scratch<f32>) -> Result<()> {
        let (Some(dsinks), Some(sinks)) = (&mut self.dsinks, self.problem.sinks()) else { return Ok(()) };
        let Some(heads) = grid(&INFO, "sinks", sinks.len(), 1)? else { return Ok(()) };
        let (lse, delta) = (self.saved.lse.ptr(stream)?, delta.ptr_mut().into());
        let batch = self.problem.batch() as u32;
        let args = (sinks.ptr(stream)?, lse, delta, dsinks.ptr_mut(stream)?, batch, self.problem.sizes);
        // SAFETY: the tensors are live and have these sizes, and the gradients are borrowed mutably.
        unsafe { stream.launch::<sinks::AttentionDsinks>(heads, args) }
    }

    fn launch_dq<K: Kernel<Args = DqArgs<T>>>(
        &mut self,
        stream: &Stream,
        [first, delta]: [DevicePtr<f32>; 2],
        rows: u32,
    ) -> Result<()> {
        let Some(grid) = self.problem.query_blocks(&INFO, rows)? else { return Ok(()) };
        let Bounds { cu_q, cu_k, key_lengths, slopes, .. } = self.problem.bounds(stream)?;
        let [q, k, v, d_o] = self.inputs(stream)?;
        let [dq, _, _] = &mut self.gradients;
        let dq = dq.ptr_mut(stream)?;
        let args = (q, k, v, d_o, first, delta, dq, cu_q, cu_k, key_lengths, slopes, self.problem.sizes, self.strides);
        // Only the product of dS and K counts: the other products, which the other kernel computes too, must not count twice.
        self.problem.note_work(T::DTYPE, 1);
        // SAFETY: the tensors are live and have these sizes and strides, outputs are borrowed mutably, the kernel bounds the
        // lengths and offsets that it reads, and callers name a tensor-core kernel only where rows and d fit it.
        unsafe { stream.launch::<K>(grid, args) }
    }

    fn launch_dkv<K: Kernel<Args = DkvArgs<T>>>(
        &mut self,
        stream: &Stream,
        [first, delta]: [DevicePtr<f32>; 2],
        rows: u32,
    ) -> Result<()> {
        let Some(grid) = self.problem.key_blocks(&INFO, rows)? else { return Ok(()) };
        let Bounds { cu_q, cu_k, key_lengths, slopes, .. } = self.problem.bounds(stream)?;
        let [q, k, v, d_o] = self.inputs(stream)?;
        let [_, dk, dv] = &mut self.gradients;
        let (dk, dv) = (dk.ptr_mut(stream)?, dv.ptr_mut(stream)?);
        let (sizes, strides) = (self.problem.sizes, self.strides);
        let args = (q, k, v, d_o, first, delta, dk, dv, cu_q, cu_k, key_lengths, slopes, sizes, strides);
        self.problem.note_work(T::DTYPE, 4);
        // SAFETY: as above.
        unsafe { stream.launch::<K>(grid, args) }
    }

    pub(super) fn inputs(&self, stream: &Stream) -> Result<[DevicePtr<T>; 4]> {
        let Saved { q, k, v, .. } = &self.saved;
        Ok([q.ptr(stream)?, k.ptr(stream)?, v.ptr(stream)?, self.d_o.ptr(stream)?])
    }
}

impl<T: Float + Half> Call<'_, T> {
    fn launch_mma_of(mut self, stream: &Stream) -> Result<()> {
        let Numbers { exponents, delta } = self.numbers::<delta::AttentionDelta<T, 8>>(stream, true)?;
        self.launch_dsinks(stream, &delta)?;
        let numbers = [exponents.ptr_mut().into(), delta.ptr_mut().into()];
        macro_rules! launch {
            ($d:literal, $biased:literal, $($which:ident),+) => {{
                self.launch_dq::<dq::AttentionDqMma<T, $d, $biased>>(stream, numbers, mma::owned($d))?;
                $(self.launch_dkv::<dkv::AttentionDkvMma<T, $d, { dkv::$which }, $biased>>(
                    stream, numbers, mma::owned($d),
                )?;)+
                Ok(())
            }};
        }
        match (self.problem.sizes.d, self.problem.biased()) {
            (..=64, false) => launch!(64, false, BOTH),
            (..=64, true) => launch!(64, true, BOTH),
            (..=128, false) => launch!(128, false, BOTH),
            (..=128, true) => launch!(128, true, BOTH),
            (_, false) => launch!(256, false, DK, DV),
            (_, true) => launch!(256, true, DK, DV),
        }
    }
}
