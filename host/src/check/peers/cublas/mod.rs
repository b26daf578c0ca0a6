//! cuBLAS as a peer of the products. It is loaded at run time if present; nothing is linked against it.
//!
//! # Mapping
//! It is called as PyTorch calls it: `cublasGemmEx`, or `cublasGemmStridedBatchedEx` for batches, with the default math mode,
//! the library's own choice of a kernel, sums in f32, and the workspace that PyTorch gives it on Hopper. Operands are read in
//! place, as described in [`column_major`](super::column_major).
//!
//! # Numerics
//! The default math mode may round intermediate results. With β = 1 and a 16-bit C, results of cuBLAS 13.1 on an H200 deviate
//! as if the product had been rounded before C was added: where the two nearly cancel, by up to 47 times the tolerance of
//! `gemm`. The results that `verify` shows for a peer are therefore not part of its verdict.

mod library;

use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::{null_mut, without_provenance, without_provenance_mut};
use std::sync::{Mutex, PoisonError};

pub(super) use library::Library;

use super::column_major::{ColumnMajor, MatrixLayout};
use super::products::{Accuracy, Product};
use crate::dispatch;
use crate::ops::model::{Arguments, OpInfo, Operator, Params};
use crate::runtime::device::Device;
use crate::runtime::dtype::DType;
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;

/// The peer name of its rows.
pub(super) const NAME: &str = "cublas";

/// The workspace that PyTorch gives it on Hopper. With less, some of its kernels are not available.
const WORKSPACE_BYTES: usize = 32 << 20;

/// cuBLAS, ready on a device.
pub struct Cublas {
    library: &'static Library,
    /// The stream with which the handle is created and destroyed.
    home: Stream,
    state: Mutex<State>,
}

struct State {
    handle: library::Handle,
    workspace: Tensor<u8>,
}

// SAFETY: a handle may be used from any thread, by one at a time.
unsafe impl Send for State {}

impl Cublas {
    /// Loads the library if it is not loaded yet, and creates a handle on `device`.
    ///
    /// # Errors
    /// [`Error::BackendUnavailable`] if the library is missing or the device is simulated, and errors of the library.
    pub fn open(device: &Device) -> Result<Self> {
        let home = device.stream()?;
        let simulated = || Error::BackendUnavailable {
            backend: NAME.to_owned(),
            reason: "it needs a GPU, and this one is simulated".to_owned(),
        };
        home.lend(|_| Ok(()))?.ok_or_else(simulated)?;
        let library = Library::get()?;
        let workspace = Tensor::uninit(&home, [WORKSPACE_BYTES])?;
        let mut handle = null_mut();
        // SAFETY: the device's context is current, the pointer is to a live handle.
        home.lend(|_| unsafe { library.cublasCreate_v2(&mut handle) })?;
        Ok(Self { library, home, state: Mutex::new(State { handle, workspace }) })
    }

    /// The peer name of its rows.
    pub fn name(&self) -> &'static str {
        NAME
    }

    /// Its name and version.
    pub fn version(&self) -> String {
        self.library.version()
    }

    /// Queues the product that `op` computes from these arguments.
    ///
    /// # Errors
    /// [`Error::Layout`] for layouts that the library cannot take, and errors of the library.
    pub fn launch(&self, stream: &Stream, op: &dyn Operator, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let (info, product) = (op.info(), Product::of(op)?);
        if args.has("scale") {
            return Err(Error::layout(NAME, "scale", "lies on the device: factors are taken from the host"));
        }
        let [alpha, beta] = product.factors(params)?;
        let (a, b) = (Placed::read(info, stream, args, "a")?, Placed::read(info, stream, args, "b")?);
        let c = Placed::written(info, stream, args, "c")?;
        let of_b = if product.b_has_columns { b.layout.t() } else { b.layout };
        let batch = [a.batch, b.batch, c.batch].into_iter().flatten().next().unwrap_or(1);
        let asked =
            ColumnMajor::new(a.layout, of_b, c.layout, batch).map_err(|(name, why)| Error::layout(NAME, name, why))?;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { handle, workspace } = &mut *state;
        let scratch = workspace.view_mut().ptr_mut(stream)?.addr();
        let queued = stream.lend(|raw| {
            // SAFETY: handle and stream are alive. The workspace is of that size, and all that uses it comes after one another.
            unsafe {
                self.library.cublasSetStream_v2(*handle, raw)?;
                self.library.cublasSetWorkspace_v2(*handle, at_mut(scratch), WORKSPACE_BYTES)?;
            }
            // SAFETY: the tensors are live, hold these sizes at these distances, and c is borrowed mutably.
            unsafe { self.ask(*handle, &asked, [&b, &a, &c], product.accuracy, [alpha, beta]) }
        })?;
        queued.ok_or_else(|| Error::layout(NAME, "c", "is not on a GPU"))
    }

    /// # Safety
    /// The handle is alive, and the first operand, second operand and result match the request.
    unsafe fn ask(
        &self,
        handle: library::Handle,
        asked: &ColumnMajor,
        [first, second, result]: [&Placed; 3],
        accuracy: Accuracy,
        [alpha, beta]: [f32; 2],
    ) -> Result<()> {
        const DEFAULT_ALGORITHM: c_int = -1;
        let ColumnMajor { sizes: [m, n, k], first: x, second: y, result: z, batch } = *asked;
        let [of_x, of_y, of_z] = [first, second, result].map(|placed| data_type(placed.dtype));
        let [of_x, of_y, of_z] = [of_x?, of_y?, of_z?];
        let (turn_x, turn_y) = (x.transposed.into(), y.transposed.into());
        let (alpha, beta): (*const f32, *const f32) = (&alpha, &beta);
        let (compute, algorithm) = (compute_type(accuracy), DEFAULT_ALGORITHM);
        // SAFETY: the caller's promise; both factors are read before the call returns.
        unsafe {
            if batch == 1 {
                return self.library.cublasGemmEx(
                    handle,
                    turn_x,
                    turn_y,
                    m,
                    n,
                    k,
                    alpha.cast(),
                    at(first.address),
                    of_x,
                    x.leading,
                    at(second.address),
                    of_y,
                    y.leading,
                    beta.cast(),
                    at_mut(result.address),
                    of_z,
                    z.leading,
                    compute,
                    algorithm,
                );
            }
            self.library.cublasGemmStridedBatchedEx(
                handle,
                turn_x,
                turn_y,
                m,
                n,
                k,
                alpha.cast(),
                at(first.address),
                of_x,
                x.leading,
                x.step,
                at(second.address),
                of_y,
                y.leading,
                y.step,
                beta.cast(),
                at_mut(result.address),
                of_z,
                z.leading,
                z.step,
                batch,
                compute,
                algorithm,
            )
        }
    }
}

impl Drop for Cublas {
    fn drop(&mut self) {
        let handle = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).handle;
        // An error has nowhere to go; a fault shows again at the next call.
        // SAFETY: the handle is ours, its device's context is current, and it is not used again.
        let _ = self.home.lend(|_| unsafe { self.library.cublasDestroy_v2(handle) });
    }
}

impl fmt::Debug for Cublas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cublas").field("home", &self.home).finish_non_exhaustive()
    }
}

/// A tensor of a launch.
struct Placed {
    address: u64,
    dtype: DType,
    layout: MatrixLayout,
    batch: Option<usize>,
}

impl Placed {
    fn read(info: &'static OpInfo, stream: &Stream, args: &Arguments<'_>, name: &'static str) -> Result<Self> {
        let dtype = args.dtype(name)?;
        dispatch!(info, dtype, float => |T| {
            let view = args.input::<T>(name)?;
            Self::new(info, name, dtype, view.ptr(stream)?.addr(), view.shape(), view.strides())
        })
    }

    fn written(info: &'static OpInfo, stream: &Stream, args: &mut Arguments<'_>, name: &'static str) -> Result<Self> {
        let dtype = args.dtype(name)?;
        dispatch!(info, dtype, float => |T| {
            let mut view = args.output::<T>(name)?;
            Self::new(info, name, dtype, view.ptr_mut(stream)?.addr(), view.shape(), view.strides())
        })
    }

    fn new(
        info: &'static OpInfo,
        name: &'static str,
        dtype: DType,
        address: u64,
        shape: &[usize],
        strides: &[usize],
    ) -> Result<Self> {
        let wanted = "[rows, columns] or [batch, rows, columns]";
        let layout = MatrixLayout::of(shape, strides).ok_or_else(|| info.shape_error(name, shape, wanted))?;
        Ok(Self { address, dtype, layout, batch: (shape.len() > 2).then(|| shape[0]) })
    }
}

fn at(address: u64) -> *const c_void {
    without_provenance(address as usize)
}

fn at_mut(address: u64) -> *mut c_void {
    without_provenance_mut(address as usize)
}

/// `cudaDataType_t`.
fn data_type(dtype: DType) -> Result<c_int> {
    match dtype {
        DType::F32 => Ok(0),
        DType::F16 => Ok(2),
        DType::BF16 => Ok(14),
        _ => Err(Error::dtype(NAME, "a", dtype, "float32, float16 or bfloat16")),
    }
}

/// `cublasComputeType_t`.
fn compute_type(accuracy: Accuracy) -> c_int {
    match accuracy {
        Accuracy::F32 => 68,
        Accuracy::Tf32 => 77,
    }
}
