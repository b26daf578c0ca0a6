//! Checks of a call's arguments, and its launches.

use cuda_std::float::Half;

use crate::ops::gemm::Scalar;
use crate::ops::loss::batch::RowResults;
use crate::ops::loss::kl_divergence::{self, KlDivergence};
use crate::ops::loss::linear::{Chunks, Gradients, Layer, Linear};
use crate::ops::model::OpInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The layers of a student and of its teacher.
pub(super) struct Call<'a, 'o, T> {
    info: &'static OpInfo,
    student: Layer<'a, T>,
    teacher: Layer<'a, T>,
    options: &'o Linear<KlDivergence<'o>>,
}

impl<'a, 'o, T: Float + Half> Call<'a, 'o, T> {
    pub(super) fn new(
        info: &'static OpInfo,
        [[hidden, weight], [teacher_hidden, teacher_weight]]: [[View<'a, T>; 2]; 2],
        options: &'o Linear<KlDivergence<'o>>,
    ) -> Result<Self> {
        let student = Layer::new(info, ["hidden", "weight"], hidden, weight)?;
        let teacher = Layer::new(info, ["teacher_hidden", "teacher_weight"], teacher_hidden, teacher_weight)?;
        teacher_hidden.require_shape(info.name, "teacher_hidden", &[student.rows, teacher_hidden.cols()])?;
        teacher_weight.require_shape(info.name, "teacher_weight", &[student.classes, teacher_weight.cols()])?;
        if let Some(targets) = &options.loss.targets {
            targets.require_shape(info.name, "targets", &[student.rows])?;
            targets.require_contiguous(info.name, "targets")?;
        }
        // An option that is out of range is an error without rows too.
        options.loss.terms(info)?;
        Ok(Self { info, student, teacher, options })
    }

    /// That of the logits.
    pub(super) fn shape(&self) -> [usize; 2] {
        [self.student.rows, self.student.classes]
    }

    /// The losses, and the derivatives of their mean or sum.
    pub(super) fn launch(
        self,
        stream: &Stream,
        out: RowResults<'_>,
        gradients: Option<Gradients<'_, T>>,
    ) -> Result<()> {
        let RowResults { mut per_row, total, bad, .. } = out;
        stream.require_devices(
            self.info.name,
            &[("targets", &self.options.loss.targets), ("losses", &per_row), ("total", &total)],
        )?;
        let [rows, classes] = self.shape();
        per_row.require_shape(self.info.name, "losses", &[rows])?;
        per_row.require_contiguous(self.info.name, "losses")?;
        total.require_shape(self.info.name, "total", &[1])?;
        let loss = &self.options.loss;
        let batch = loss.batch(loss.targets, rows as u32, classes as u32);
        let share = batch.weigh(stream, bad)?;
        let factor = if loss.is_mean { Scalar::from(&share) } else { Scalar::from(1.0) };
        self.chunks(stream, per_row.reborrow(), None, gradients, factor)?;
        batch.total(stream, &share, per_row.as_view(), total)
    }

    /// The derivatives of Σ dloss · loss.
    pub(super) fn launch_backward(
        self,
        stream: &Stream,
        dlosses: View<'_, f32>,
        gradients: Gradients<'_, T>,
    ) -> Result<()> {
        let rows = self.student.rows;
        stream.require_devices(self.info.name, &[("targets", &self.options.loss.targets), ("dlosses", &dlosses)])?;
        dlosses.require_shape(self.info.name, "dlosses", &[rows])?;
        dlosses.require_contiguous(self.info.name, "dlosses")?;
        let mut unused = Tensor::result(stream, [rows])?;
        self.chunks(stream, unused.view_mut(), Some(dlosses), Some(gradients), 1.0.into())
    }

    fn chunks(
        &self,
        stream: &Stream,
        mut per_row: ViewMut<'_, f32>,
        dlosses: Option<View<'_, f32>>,
        gradients: Option<Gradients<'_, T>>,
        factor: Scalar<'_>,
    ) -> Result<()> {
        let Self { info, student, teacher, options } = self;
        teacher.require_device(stream)?;
        // Both layers' logits are as large.
        let memory = options.memory / 2;
        let mut buffer = teacher.buffer(stream, memory)?;
        let has_gradients = gradients.is_some();
        let chunks = Chunks { memory, accumulate: options.accumulate, factor };
        student.by_chunks(stream, chunks, gradients, |rows, logits| {
            let of_teacher = teacher.logits(stream, rows.clone(), &mut buffer)?;
            let dlosses = dlosses.map(|dlosses| dlosses.slice(rows.clone())).transpose()?;
            let targets = options.loss.targets.map(|targets| targets.slice(rows.clone())).transpose()?;
            let of_student = if has_gradients { logits.into() } else { logits.as_view().into() };
            let of_chunk = KlDivergence { targets, ..options.loss };
            let call = kl_divergence::Call::new(info, of_student, of_teacher.as_view(), &of_chunk)?;
            call.launch_part(stream, per_row.reborrow().slice(rows)?, dlosses)
        })
    }
}
