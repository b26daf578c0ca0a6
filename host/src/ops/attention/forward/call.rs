//! A checked call, and its launches on mma.sync and on the readable kernel.

use cuda_std::float::Half;
use cuda_std::launch::{DevicePtr, DevicePtrMut, Kernel};
use gpu_kernels::ops::attention as gk;
use gpu_kernels::ops::attention::forward::{mma, simple};
use half::{bf16, f16};

use super::super::Attention;
use super::super::problem::{self, Checked};
use super::INFO;
use crate::ops::model::{Arguments, Params};
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// A call with checked arguments.
pub(super) struct Call<'a, T> {
    pub(super) inputs: [View<'a, T>; 3],
    pub(super) o: ViewMut<'a, T>,
    pub(super) lse: ViewMut<'a, f32>,
    pub(super) problem: Checked<'a>,
}

/// Arguments that every kernel of the operator takes.
type Args<T> = (
    DevicePtr<T>,
    DevicePtr<T>,
    DevicePtr<T>,
    DevicePtrMut<T>,
    DevicePtrMut<f32>,
    DevicePtr<i32>,
    DevicePtr<i32>,
    DevicePtr<i32>,
    DevicePtr<f32>,
    DevicePtr<f32>,
    gk::Problem,
);

impl<'a, T: Float> Call<'a, T> {
    pub(super) fn new(
        stream: &Stream,
        inputs: [View<'a, T>; 3],
        options: &Attention<'a>,
        o: ViewMut<'a, T>,
        lse: ViewMut<'a, f32>,
    ) -> Result<Self> {
        let mut problem = Checked::new(&INFO, stream, inputs, options)?;
        stream.require_devices(INFO.name, &[("o", &o), ("lse", &lse)])?;
        let [q, ..] = &inputs;
        o.require_shape(INFO.name, "o", q.shape())?;
        o.require_inner_contiguous(INFO.name, "o")?;
        lse.require_shape(INFO.name, "lse", &q.shape()[..3])?;
        lse.require_contiguous(INFO.name, "lse")?;
        problem.sizes.o = [o.strides()[0], o.strides()[1], o.strides()[2]].map(|stride| stride as u64);
        Ok(Self { inputs, o, lse, problem })
    }

    /// Builds the call from a launch's tensors, whose types are known only at run time.
    pub(super) fn of(stream: &Stream, args: &mut Arguments<'a>, params: &Params) -> Result<Self> {
        let options = problem::options(args, params)?;
        let inputs = [args.input("q")?, args.input("k")?, args.input("v")?];
        Self::new(stream, inputs, &options, args.output("o")?, args.output("lse")?)
    }

    pub(super) fn launch(self, stream: &Stream) -> Result<()> {
        if stream.device().supports_hopper() && self.fits_hopper() {
            self.launch_hopper(stream)
        } else if self.fits_tensor_cores() {
            self.launch_mma(stream)
        } else {
            self.launch_simple(stream)
        }
    }

    /// cp.async copies 16 bytes at a time, and the products take 16-bit floats.
    pub(super) fn fits_tensor_cores(&self) -> bool {
        let aligned = self.inputs.iter().all(|x| x.rows_aligned(16)) && self.o.rows_aligned(16);
        T::DTYPE != DType::F32 && self.problem.sizes.d.is_multiple_of(8) && self.problem.sizes.d > 0 && aligned
    }

    pub(super) fn launch_simple(self, stream: &Stream) -> Result<()> {
        self.launch_kernel::<simple::AttentionSimple<T>>(stream, simple::ROWS)
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
        let Self { inputs, o, lse, problem } = self;
        Call { inputs: inputs.map(|x| View::of(x.part)), o: ViewMut::of(o.part), lse, problem }
    }

    fn launch_kernel<K: Kernel<Args = Args<T>>>(mut self, stream: &Stream, rows: u32) -> Result<()> {
        let Some(grid) = self.problem.query_blocks(&INFO, rows)? else { return Ok(()) };
        let [q, k, v] = self.inputs;
        let bounds = self.problem.bounds(stream)?;
        let args = (
            q.ptr(stream)?,
            k.ptr(stream)?,
            v.ptr(stream)?,
            self.o.ptr_mut(stream)?,
            self.lse.ptr_mut(stream)?,
            bounds.cu_q,
            bounds.cu_k,
            bounds.key_lengths,
            bounds.slopes,
            bounds.sinks,
            self.problem.sizes,
        );
        self.problem.note_work(T::DTYPE, 2);
        // SAFETY: the tensors are live and have these sizes and strides, outputs are borrowed mutably, the kernel bounds the
        // lengths and offsets that it reads, and callers name a tensor-core kernel only where rows and d fit it.
        unsafe { stream.launch::<K>(grid, args) }
    }
}

impl<T: Float + Half> Call<'_, T> {
    fn launch_mma_of(self, stream: &Stream) -> Result<()> {
        macro_rules! launch {
            ($d:literal, $biased:literal) => {
                self.launch_kernel::<mma::AttentionMma<T, $d, $biased>>(stream, mma::block_m($d))
            };
        }
        // The smallest d that a kernel is built for; fewer of them with a bias, which few models have.
        match (self.problem.sizes.d, self.problem.biased()) {
            (..=32, false) => launch!(32, false),
            (..=64, false) => launch!(64, false),
            (..=96, false) => launch!(96, false),
            (..=128, false) => launch!(128, false),
            (..=192, false) => launch!(192, false),
            (_, false) => launch!(256, false),
            (..=64, true) => launch!(64, true),
            (..=128, true) => launch!(128, true),
            (_, true) => launch!(256, true),
        }
    }
}
