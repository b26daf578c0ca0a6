//! Checks of a call's arguments, and its launches.

use cuda_std::launch::{DevicePtr, DevicePtrMut};
use gpu_kernels::ops::loss::cross_entropy::{self as gk, Terms, targets as batch};

use super::CrossEntropy;
use crate::ops::model::OpInfo;
use crate::ops::rows::{self, RowPlan, Rows, launch_rows};
use crate::runtime::dtype::Float;
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// Logits that are read, or that their gradient takes the place of.
pub(in crate::ops::loss) enum Logits<'a, T> {
    Read(View<'a, T>),
    Replaced(ViewMut<'a, T>),
}

impl<'a, T> From<View<'a, T>> for Logits<'a, T> {
    fn from(view: View<'a, T>) -> Self {
        Self::Read(view)
    }
}

impl<'a, T> From<ViewMut<'a, T>> for Logits<'a, T> {
    fn from(view: ViewMut<'a, T>) -> Self {
        Self::Replaced(view)
    }
}

/// Where losses go.
pub(in crate::ops::loss) struct Results<'a> {
    pub(in crate::ops::loss) per_row: ViewMut<'a, f32>,
    pub(in crate::ops::loss) lse: ViewMut<'a, f32>,
    pub(in crate::ops::loss) total: ViewMut<'a, f32>,
    pub(in crate::ops::loss) bad: Option<ViewMut<'a, u32>>,
}

/// A call whose arguments fit together.
pub(in crate::ops::loss) struct Call<'a, 'o, T> {
    info: &'static OpInfo,
    logits: Logits<'a, T>,
    targets: View<'a, i32>,
    options: &'o CrossEntropy<'o>,
    rows: Rows,
    count: u32,
    classes: u32,
    stride: u64,
    terms: Terms,
}

/// What the gradient is written to, with its row stride.
type Rewritten<T> = (DevicePtrMut<T>, u64);

/// What a row kernel reads and writes beside the logits.
struct Beside {
    upstream: DevicePtr<f32>,
    share: DevicePtr<f32>,
    losses: DevicePtrMut<f32>,
    lse: DevicePtrMut<f32>,
}

impl<'a, 'o, T: Float> Call<'a, 'o, T> {
    pub(in crate::ops::loss) fn new(
        info: &'static OpInfo,
        logits: Logits<'a, T>,
        targets: View<'a, i32>,
        options: &'o CrossEntropy<'o>,
    ) -> Result<Self> {
        let (shape, aligned, stride) = match &logits {
            Logits::Read(x) => (x.shape().to_vec(), x.rows_aligned(16), x.require_row_stride(info.name, "logits")),
            Logits::Replaced(x) => (x.shape().to_vec(), x.rows_aligned(16), x.require_row_stride(info.name, "logits")),
        };
        rows::require(info, "logits", &shape)?;
        let (outer, classes) = (&shape[..shape.len() - 1], shape[shape.len() - 1]);
        let count = outer.iter().product::<usize>();
        require_classes(info, &shape)?;
        let stride = stride? as u64;
        targets.require_shape(info.name, "targets", outer)?;
        targets.require_contiguous(info.name, "targets")?;
        if let Some(weights) = &options.weights {
            weights.require_shape(info.name, "class_weights", &[classes])?;
            weights.require_contiguous(info.name, "class_weights")?;
        }
        let terms = Terms {
            smoothing: in_range(
                info,
                "label_smoothing",
                options.smoothing,
                |x| (0.0..1.0).contains(&x),
                "from 0 to below 1",
            )?,
            z: in_range(info, "z_loss", options.z, |x| x >= 0.0, "not negative")?,
            cap: options.softcap.map_or(Ok(0.0), |cap| in_range(info, "softcap", cap, |x| x > 0.0, "above zero"))?,
            ignored: options.ignored,
        };
        Ok(Self {
            info,
            logits,
            targets,
            options,
            rows: Rows::new("logits", count, classes, aligned),
            count: limited(info, "logits", "rows", count)?,
            classes: limited(info, "logits", "classes", classes)?,
            stride,
            terms,
        })
    }

    /// The losses, and the derivative of their sum or mean, into `gradient` or in place of logits that are replaced.
    pub(super) fn launch(mut self, stream: &Stream, out: Results<'_>, gradient: Option<ViewMut<'_, T>>) -> Result<()> {
        let Results { mut per_row, mut lse, total, bad } = out;
        let (name, outer) = (self.info.name, self.targets.shape());
        for (arg, view) in [("losses", &per_row), ("lse", &lse)] {
            view.require_shape(name, arg, outer)?;
            view.require_contiguous(name, arg)?;
        }
        total.require_shape(name, "total", &[1])?;
        let (x, gradient) = self.pointers(stream, gradient)?;
        let batch = Batch { info: self.info, targets: self.targets, options: self.options, classes: self.classes };
        let share = batch.weigh(stream, bad)?;
        let beside = Beside {
            upstream: DevicePtr::null(),
            share: batch.factor_of(stream, &share)?,
            losses: per_row.ptr_mut(stream)?,
            lse: lse.ptr_mut(stream)?,
        };
        self.launch_rows(stream, x, gradient, beside)?;
        batch.total(stream, &share, per_row.as_view(), total)
    }

    /// The losses of rows that are a part of a batch; if the logits are to be replaced, with the derivatives of those losses, times `upstream`.
    pub(in crate::ops::loss) fn launch_part(
        mut self,
        stream: &Stream,
        mut per_row: ViewMut<'_, f32>,
        mut lse: ViewMut<'_, f32>,
        upstream: Option<View<'_, f32>>,
    ) -> Result<()> {
        let (x, gradient) = self.pointers(stream, None)?;
        let beside = Beside {
            upstream: upstream.map_or(Ok(DevicePtr::null()), |upstream| upstream.ptr(stream))?,
            share: DevicePtr::null(),
            losses: per_row.ptr_mut(stream)?,
            lse: lse.ptr_mut(stream)?,
        };
        self.launch_rows(stream, x, gradient, beside)
    }

    /// The derivative of the rows' losses, times `upstream`.
    pub(super) fn launch_backward(
        mut self,
        stream: &Stream,
        upstream: View<'_, f32>,
        gradient: ViewMut<'_, T>,
    ) -> Result<()> {
        upstream.require_shape(self.info.name, "upstream", self.targets.shape())?;
        upstream.require_contiguous(self.info.name, "upstream")?;
        let (x, gradient) = self.pointers(stream, Some(gradient))?;
        let unused = stream.scratch::<f32>(2 * self.count as usize)?;
        let (losses, lse) = (unused.ptr_mut(), unused.ptr_mut().add(u64::from(self.count)));
        let beside = Beside { upstream: upstream.ptr(stream)?, share: DevicePtr::null(), losses, lse };
        self.launch_rows(stream, x, gradient, beside)
    }

    /// The addresses of the logits and of what becomes of them, null if nothing does; the latter with its row stride.
    fn pointers(&mut self, stream: &Stream, gradient: Option<ViewMut<'_, T>>) -> Result<(DevicePtr<T>, Rewritten<T>)> {
        match (&mut self.logits, gradient) {
            (Logits::Replaced(x), _) => {
                let x = x.ptr_mut(stream)?;
                Ok((x.into(), (x, self.stride)))
            }
            (Logits::Read(x), Some(mut gradient)) => {
                let stride = require_gradient(self.info, &mut self.rows, x, &gradient)?;
                Ok((x.ptr(stream)?, (gradient.ptr_mut(stream)?, stride)))
            }
            (Logits::Read(x), None) => Ok((x.ptr(stream)?, (DevicePtrMut::null(), 0))),
        }
    }

    fn launch_rows(
        &self,
        stream: &Stream,
        x: DevicePtr<T>,
        (gradient, g_stride): Rewritten<T>,
        Beside { upstream, share, losses, lse }: Beside,
    ) -> Result<()> {
        let Some(plan) = self.rows.plan_clustered::<T>(self.info, stream.device())? else { return Ok(()) };
        let RowPlan { rows, d, .. } = plan;
        let (targets, weights) = (self.targets.ptr(stream)?, self.weights(stream)?);
        let (stride, terms) = (self.stride, self.terms);
        let args = (x, targets, weights, upstream, share, losses, lse, gradient, rows, d, stride, g_stride, terms);
        let is_general = terms.smoothing > 0.0 || terms.cap > 0.0 || self.options.weights.is_some();
        // SAFETY: the tensors are live; every row holds d elements at its stride, what there is one of a row or a class has as many
        // elements, targets are bounded by d in the kernel, and what is written is borrowed mutably. The plan names a team that holds
        // such rows.
        unsafe {
            if is_general {
                launch_rows!(stream, plan, gk::CrossEntropyGeneral / CrossEntropyGeneralCluster, T, args)
            } else {
                launch_rows!(stream, plan, gk::CrossEntropy / CrossEntropyCluster, T, args)
            }
        }
    }

    fn weights(&self, stream: &Stream) -> Result<DevicePtr<f32>> {
        self.options.weights.map_or(Ok(DevicePtr::null()), |weights| weights.ptr(stream))
    }
}

/// The targets of all rows, and how their losses become one.
pub(in crate::ops::loss) struct Batch<'a, 'o> {
    pub(in crate::ops::loss) info: &'static OpInfo,
    pub(in crate::ops::loss) targets: View<'a, i32>,
    pub(in crate::ops::loss) options: &'o CrossEntropy<'o>,
    pub(in crate::ops::loss) classes: u32,
}

impl Batch<'_, '_> {
    fn rows(&self) -> Result<u32> {
        limited(self.info, "targets", "rows", self.targets.len())
    }

    /// Writes what a row's loss is multiplied by in their mean, and to `bad` the first target that is none.
    pub(in crate::ops::loss) fn weigh(&self, stream: &Stream, bad: Option<ViewMut<'_, u32>>) -> Result<Tensor<f32>> {
        let (mut share, scratch) = (Tensor::uninit(stream, [1])?, stream.scratch::<u32>(2)?);
        let bad = bad.map_or(Ok(scratch.ptr_mut()), |mut bad| bad.ptr_mut(stream))?;
        let weights = self.options.weights.map_or(Ok(DevicePtr::null()), |weights| weights.ptr(stream))?;
        let into = share.view_mut().ptr_mut(stream)?;
        let args = (self.targets.ptr(stream)?, weights, into, bad, self.rows()?, self.classes, self.options.ignored);
        // SAFETY: targets has an element a row, weights one a class, and there is room for a share, a row and a target.
        unsafe { stream.launch::<batch::WeighTargets>(1, args)? };
        Ok(share)
    }

    fn factor_of(&self, stream: &Stream, share: &Tensor<f32>) -> Result<DevicePtr<f32>> {
        if self.options.is_mean { share.view().ptr(stream) } else { Ok(DevicePtr::null()) }
    }

    /// The mean or the sum of the rows' losses.
    pub(in crate::ops::loss) fn total(
        &self,
        stream: &Stream,
        share: &Tensor<f32>,
        losses: View<'_, f32>,
        mut total: ViewMut<'_, f32>,
    ) -> Result<()> {
        let args = (losses.ptr(stream)?, self.factor_of(stream, share)?, total.ptr_mut(stream)?, self.rows()?);
        // SAFETY: losses has an element a row, and total is borrowed mutably.
        unsafe { stream.launch::<batch::TotalLoss>(1, args) }
    }
}

/// A number of rows or classes as kernels take it.
pub(in crate::ops::loss) fn limited(info: &OpInfo, arg: &'static str, what: &str, n: usize) -> Result<u32> {
    u32::try_from(n)
        .ok()
        .filter(|n| *n <= i32::MAX as u32)
        .ok_or_else(|| Error::too_large(info.name, arg, format!("{n} {what}, at most {} are supported", i32::MAX)))
}

/// An error unless rows, if there are any, have classes.
pub(super) fn require_classes(info: &OpInfo, shape: &[usize]) -> Result<()> {
    let (outer, classes) = (&shape[..shape.len() - 1], shape[shape.len() - 1]);
    if classes == 0 && !outer.contains(&0) {
        return Err(info.shape_error("logits", shape, "at least one class"));
    }
    Ok(())
}

/// The row stride of a gradient that fits the logits.
fn require_gradient<T>(info: &OpInfo, rows: &mut Rows, x: &View<'_, T>, gradient: &ViewMut<'_, T>) -> Result<u64> {
    gradient.require_shape(info.name, "gradient", x.shape())?;
    *rows = rows.and_mut(gradient);
    Ok(gradient.require_row_stride(info.name, "gradient")? as u64)
}

fn in_range(info: &OpInfo, name: &str, value: f32, fits: impl Fn(f32) -> bool, wanted: &str) -> Result<f32> {
    if value.is_finite() && fits(value) {
        return Ok(value);
    }
    Err(info.param_error(name, value, format!("a finite number {wanted}")))
}
