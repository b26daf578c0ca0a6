//! Checks of a call's arguments, and its launches.

use cuda_std::launch::{DevicePtr, DevicePtrMut};
use gpu_kernels::ops::loss::cross_entropy::{self as gk, Terms};

use super::CrossEntropy;
use crate::ops::loss::batch::limited;
use crate::ops::loss::logits::{Logits, Rewritten, require_classes};
use crate::ops::model::OpInfo;
use crate::ops::rows::{RowPlan, Rows, launch_rows};
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// Where to write the losses.
pub(in crate::ops::loss) struct Results<'a> {
    pub(in crate::ops::loss) per_row: ViewMut<'a, f32>,
    pub(in crate::ops::loss) lse: ViewMut<'a, f32>,
    pub(in crate::ops::loss) total: ViewMut<'a, f32>,
    pub(in crate::ops::loss) bad: Option<ViewMut<'a, u32>>,
}

/// A call with checked arguments.
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

/// The tensors that a row kernel reads and writes beside the logits.
struct Beside {
    dlosses: DevicePtr<f32>,
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
        let shape = logits.shape().to_vec();
        require_classes(info, "logits", &shape)?;
        let (outer, classes) = (&shape[..shape.len() - 1], shape[shape.len() - 1]);
        let count = outer.iter().product::<usize>();
        let (aligned, stride) = (logits.is_aligned(), logits.row_stride(info, "logits")?);
        targets.require_shape(info.name, "targets", outer)?;
        targets.require_contiguous(info.name, "targets")?;
        let terms = options.terms(info, classes)?;
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

    /// Computes the losses, and writes the derivative of their sum or mean to `gradient` or in place of the logits.
    pub(super) fn launch(mut self, stream: &Stream, out: Results<'_>, gradient: Option<ViewMut<'_, T>>) -> Result<()> {
        let Results { mut per_row, mut lse, total, bad } = out;
        let (name, outer) = (self.info.name, self.targets.shape());
        let Self { logits, targets, options, .. } = &self;
        stream
            .require_devices(name, &[("logits", logits), ("targets", targets), ("class_weights", &options.weights)])?;
        stream.require_devices(
            name,
            &[("losses", &per_row), ("lse", &lse), ("total", &total), ("gradient", &gradient)],
        )?;
        for (arg, view) in [("losses", &per_row), ("lse", &lse)] {
            view.require_shape(name, arg, outer)?;
            view.require_contiguous(name, arg)?;
        }
        total.require_shape(name, "total", &[1])?;
        let (x, gradient) = self.pointers(stream, gradient)?;
        let batch = self.options.batch(self.targets, self.count, self.classes);
        let share = batch.weigh(stream, bad)?;
        let beside = Beside {
            dlosses: DevicePtr::null(),
            share: batch.factor_of(stream, &share)?,
            losses: per_row.ptr_mut(stream)?,
            lse: lse.ptr_mut(stream)?,
        };
        self.launch_rows(stream, x, gradient, beside)?;
        batch.total(stream, &share, per_row.as_view(), total)
    }

    /// Computes the losses of rows that are a part of a batch; if the logits are to be replaced, writes the derivatives of
    /// those losses, times `dlosses`.
    pub(in crate::ops::loss) fn launch_part(
        mut self,
        stream: &Stream,
        mut per_row: ViewMut<'_, f32>,
        mut lse: ViewMut<'_, f32>,
        dlosses: Option<View<'_, f32>>,
    ) -> Result<()> {
        let (x, gradient) = self.pointers(stream, None)?;
        let beside = Beside {
            dlosses: dlosses.map_or(Ok(DevicePtr::null()), |dlosses| dlosses.ptr(stream))?,
            share: DevicePtr::null(),
            losses: per_row.ptr_mut(stream)?,
            lse: lse.ptr_mut(stream)?,
        };
        self.launch_rows(stream, x, gradient, beside)
    }

    /// Computes the derivative of the rows' losses, times `dlosses`.
    pub(super) fn launch_backward(
        mut self,
        stream: &Stream,
        dlosses: View<'_, f32>,
        gradient: ViewMut<'_, T>,
    ) -> Result<()> {
        let Self { info, logits, targets, options, .. } = &self;
        stream.require_devices(
            info.name,
            &[("logits", logits), ("targets", targets), ("class_weights", &options.weights)],
        )?;
        stream.require_devices(info.name, &[("dlosses", &dlosses), ("gradient", &gradient)])?;
        dlosses.require_shape(self.info.name, "dlosses", self.targets.shape())?;
        dlosses.require_contiguous(self.info.name, "dlosses")?;
        let (x, gradient) = self.pointers(stream, Some(gradient))?;
        let unused = stream.workspace::<f32>(self.info.name, 2 * self.count as usize)?;
        let (losses, lse) = (unused.ptr_mut(), unused.ptr_mut().add(u64::from(self.count)));
        let beside = Beside { dlosses: dlosses.ptr(stream)?, share: DevicePtr::null(), losses, lse };
        self.launch_rows(stream, x, gradient, beside)
    }

    fn pointers(&mut self, stream: &Stream, gradient: Option<ViewMut<'_, T>>) -> Result<(DevicePtr<T>, Rewritten<T>)> {
        self.logits.pointers(self.info, stream, self.stride, &mut self.rows, gradient)
    }

    fn launch_rows(
        &self,
        stream: &Stream,
        x: DevicePtr<T>,
        (gradient, g_stride): Rewritten<T>,
        Beside { dlosses, share, losses, lse }: Beside,
    ) -> Result<()> {
        // Rows that are read once need no cluster to hold them.
        let plan = match gradient.addr() == 0 {
            true => self.rows.plan::<T>(self.info),
            false => self.rows.plan_clustered::<T>(self.info, stream.device()),
        };
        let Some(plan) = plan? else { return Ok(()) };
        let RowPlan { rows, d, .. } = plan;
        let (targets, weights) = (self.targets.ptr(stream)?, self.weights(stream)?);
        let (stride, terms) = (self.stride, self.terms);
        let args = (x, targets, weights, dlosses, share, losses, lse, gradient, rows, d, stride, g_stride, terms);
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
