//! Checks of a call's arguments, and its launches.

use cuda_std::launch::{DevicePtr, DevicePtrMut};
use gpu_kernels::ops::loss::kl_divergence::{self as gk, Terms, ring};
use gpu_kernels::rows;

use super::KlDivergence;
use crate::ops::loss::batch::{RowResults, limited};
use crate::ops::loss::logits::{Logits, require_classes};
use crate::ops::model::OpInfo;
use crate::ops::rows::{Rows, Team, launch_rows};
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// A call whose arguments fit together.
pub(in crate::ops::loss) struct Call<'a, T> {
    info: &'static OpInfo,
    student: Logits<'a, T>,
    teacher: View<'a, T>,
    options: KlDivergence<'a>,
    rows: Rows,
    count: u32,
    classes: u32,
    strides: [u64; 2],
    terms: Terms,
}

/// What the rows are multiplied by, and where their losses go; null where there is nothing.
struct Beside {
    dlosses: DevicePtr<f32>,
    share: DevicePtr<f32>,
    losses: DevicePtrMut<f32>,
}

impl<'a, T: Float> Call<'a, T> {
    pub(in crate::ops::loss) fn new(
        info: &'static OpInfo,
        student: Logits<'a, T>,
        teacher: View<'a, T>,
        options: &KlDivergence<'a>,
    ) -> Result<Self> {
        let shape = student.shape().to_vec();
        require_classes(info, "student", &shape)?;
        let (outer, classes) = (&shape[..shape.len() - 1], shape[shape.len() - 1]);
        let count = outer.iter().product::<usize>();
        teacher.require_shape(info.name, "teacher", &shape)?;
        let strides = [student.row_stride(info, "student")?, teacher.require_row_stride(info.name, "teacher")? as u64];
        if let Some(targets) = &options.targets {
            targets.require_shape(info.name, "targets", outer)?;
            targets.require_contiguous(info.name, "targets")?;
        }
        Ok(Self {
            info,
            rows: Rows::new("student", count, classes, student.is_aligned()).and(&teacher),
            student,
            teacher,
            options: *options,
            count: limited(info, "student", "rows", count)?,
            classes: limited(info, "student", "classes", classes)?,
            strides,
            terms: options.terms(info)?,
        })
    }

    /// The losses, and the derivative of their sum or mean, into `gradient` or in place of logits that are replaced.
    pub(super) fn launch(self, stream: &Stream, out: RowResults<'_>, gradient: Option<ViewMut<'_, T>>) -> Result<()> {
        let RowResults { mut per_row, total, bad, .. } = out;
        let (shape, name) = (self.student.shape(), self.info.name);
        let Self { student, teacher, options, .. } = &self;
        stream.require_devices(name, &[("student", student), ("teacher", teacher), ("targets", &options.targets)])?;
        stream.require_devices(name, &[("losses", &per_row), ("total", &total), ("gradient", &gradient)])?;
        per_row.require_shape(name, "losses", &shape[..shape.len() - 1])?;
        per_row.require_contiguous(name, "losses")?;
        total.require_shape(name, "total", &[1])?;
        let batch = self.options.batch(self.options.targets, self.count, self.classes);
        let share = batch.weigh(stream, bad)?;
        let factor = batch.factor_of(stream, &share)?;
        let beside = Beside { dlosses: DevicePtr::null(), share: factor, losses: per_row.ptr_mut(stream)? };
        self.launch_rows(stream, gradient, beside)?;
        batch.total(stream, &share, per_row.as_view(), total)
    }

    /// The losses of rows that are a part of a batch; if the student's logits are to be replaced, with the derivatives of those losses, times
    /// `dlosses`.
    pub(in crate::ops::loss) fn launch_part(
        self,
        stream: &Stream,
        mut per_row: ViewMut<'_, f32>,
        dlosses: Option<View<'_, f32>>,
    ) -> Result<()> {
        let dlosses = dlosses.map_or(Ok(DevicePtr::null()), |dlosses| dlosses.ptr(stream))?;
        let beside = Beside { dlosses, share: DevicePtr::null(), losses: per_row.ptr_mut(stream)? };
        self.launch_rows(stream, None, beside)
    }

    /// The derivative of the rows' losses, times `dlosses`.
    pub(super) fn launch_backward(
        self,
        stream: &Stream,
        dlosses: View<'_, f32>,
        gradient: ViewMut<'_, T>,
    ) -> Result<()> {
        let (shape, name) = (self.student.shape(), self.info.name);
        let Self { student, teacher, options, .. } = &self;
        stream.require_devices(name, &[("student", student), ("teacher", teacher), ("targets", &options.targets)])?;
        stream.require_devices(name, &[("dlosses", &dlosses), ("gradient", &gradient)])?;
        dlosses.require_shape(name, "dlosses", &shape[..shape.len() - 1])?;
        dlosses.require_contiguous(name, "dlosses")?;
        let beside = Beside { dlosses: dlosses.ptr(stream)?, share: DevicePtr::null(), losses: DevicePtrMut::null() };
        self.launch_rows(stream, Some(gradient), beside)
    }

    fn launch_rows(mut self, stream: &Stream, gradient: Option<ViewMut<'_, T>>, beside: Beside) -> Result<()> {
        let Beside { dlosses, share, losses } = beside;
        let [stride, teacher_stride] = self.strides;
        let used_once =
            self.terms.kind != gk::JENSEN_SHANNON && gradient.is_none() && matches!(self.student, Logits::Read(_));
        let (student, (gradient, g_stride)) =
            self.student.pointers(self.info, stream, stride, &mut self.rows, gradient)?;
        let teacher = self.teacher.ptr(stream)?;
        // Rows that are used once need no cluster to hold them.
        let plan = if used_once {
            self.rows.plan::<T>(self.info)
        } else {
            self.rows.plan_clustered::<T>(self.info, stream.device())
        };
        let Some(plan) = plan? else { return Ok(()) };
        let targets = self.options.targets.map_or(Ok(DevicePtr::null()), |targets| targets.ptr(stream))?;
        let ((from, from_stride), (to, to_stride)) = match self.terms.kind {
            gk::BY_FROM => ((student, stride), (teacher, teacher_stride)),
            _ => ((teacher, teacher_stride), (student, stride)),
        };
        if used_once && plan.team == Team::Stream {
            let args = (from, to, targets, losses, from_stride, to_stride, self.terms, plan.rows, plan.d);
            // SAFETY: the tensors are live; every row holds d elements at its stride, and what there is one of a row has as many elements.
            return unsafe {
                stream.launch_with::<gk::KlDivergenceLoss<T, rows::Streamed<2>>>(plan.grid, plan.block, args)
            };
        }
        let strides = (from_stride, to_stride, g_stride);
        let args = (
            from, to, targets, dlosses, share, losses, gradient, strides.0, strides.1, strides.2, self.terms,
            plan.rows, plan.d,
        );
        let packs = (plan.d as usize).div_ceil(gpu_kernels::lanes::<T>());
        let fits = plan.team == Team::Cluster && ring::holds(packs);
        if fits && gradient.addr() != 0 && self.terms.kind != gk::JENSEN_SHANNON {
            let clusters = stream.device().clusters_at_once::<ring::KlDivergenceRing<T>>()?;
            let grid = plan.rows.min(clusters.into()) as u32 * rows::CLUSTER;
            // SAFETY: as below; a cluster's rows are aligned packs.
            return unsafe { stream.launch::<ring::KlDivergenceRing<T>>(grid, args) };
        }
        // SAFETY: the tensors are live; every row holds d elements at its stride, what there is one of a row has as many elements, and
        // what is written is borrowed mutably: the gradient in place of the student's rows or apart. The plan names a team that holds such
        // rows.
        unsafe { launch_rows!(stream, plan, gk::KlDivergence / KlDivergenceCluster, T, args) }
    }
}
