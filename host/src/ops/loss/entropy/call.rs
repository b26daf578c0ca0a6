//! Checks of a call's arguments, and its launch.

use cuda_std::launch::{DevicePtr, DevicePtrMut};
use gpu_kernels::ops::loss::entropy as gk;

use crate::ops::loss::batch::reciprocal;
use crate::ops::loss::logits::{Logits, require_classes};
use crate::ops::model::OpInfo;
use crate::ops::rows::{Rows, launch_rows};
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::view::{View, ViewMut};

/// What logits are multiplied by at that temperature.
pub(in crate::ops::loss) fn scale(info: &OpInfo, temperature: f32) -> Result<f32> {
    reciprocal(info, "temperature", temperature)
}

/// A call whose arguments fit together.
pub(in crate::ops::loss) struct Call<'a, T> {
    info: &'static OpInfo,
    logits: Logits<'a, T>,
    rows: Rows,
    stride: u64,
    scale: f32,
}

impl<'a, T: Float> Call<'a, T> {
    pub(in crate::ops::loss) fn new(info: &'static OpInfo, logits: Logits<'a, T>, temperature: f32) -> Result<Self> {
        let shape = logits.shape();
        require_classes(info, "logits", shape)?;
        let (outer, classes) = (&shape[..shape.len() - 1], shape[shape.len() - 1]);
        let rows = Rows::new("logits", outer.iter().product(), classes, logits.is_aligned());
        let stride = logits.row_stride(info, "logits")?;
        Ok(Self { info, logits, rows, stride, scale: scale(info, temperature)? })
    }

    /// The entropies, if they are wanted. With upstream gradients also the derivatives of Σ dentropy · entropy, into a view, or in place of
    /// logits that are replaced.
    pub(in crate::ops::loss) fn launch(
        mut self,
        stream: &Stream,
        entropies: Option<ViewMut<'_, f32>>,
        gradient: Option<(View<'_, f32>, Option<ViewMut<'_, T>>)>,
    ) -> Result<()> {
        let Self { info, stride, scale, mut rows, .. } = self;
        let shape = self.logits.shape().to_vec();
        let outer = &shape[..shape.len() - 1];
        let (dentropies, into) = gradient.map_or((None, None), |(dentropies, into)| (Some(dentropies), into));
        stream.require_devices(
            info.name,
            &[("logits", &self.logits), ("dentropies", &dentropies), ("entropies", &entropies), ("gradient", &into)],
        )?;
        if let Some(entropies) = &entropies {
            entropies.require_shape(info.name, "entropies", outer)?;
            entropies.require_contiguous(info.name, "entropies")?;
        }
        if let Some(dentropies) = &dentropies {
            dentropies.require_shape(info.name, "dentropies", outer)?;
            dentropies.require_contiguous(info.name, "dentropies")?;
        }
        let (logits, (gradient, g_stride)) = self.logits.pointers(info, stream, stride, &mut rows, into)?;
        let used_once = dentropies.is_none();
        let gradient = if used_once { DevicePtrMut::null() } else { gradient };
        let dentropies = dentropies.map_or(Ok(DevicePtr::null()), |dentropies| dentropies.ptr(stream))?;
        let entropies = entropies.map_or(Ok(DevicePtrMut::null()), |mut entropies| entropies.ptr_mut(stream))?;
        // Rows that are used once need no cluster to hold them.
        let plan = if used_once { rows.plan::<T>(info) } else { rows.plan_clustered::<T>(info, stream.device()) };
        let Some(plan) = plan? else { return Ok(()) };
        let args = (logits, dentropies, entropies, gradient, stride, g_stride, scale, plan.rows, plan.d);
        // SAFETY: the tensors are live; every row holds d elements at its stride, what there is one of a row has as many elements, there is a
        // gradient only with upstream ones, and what is written is borrowed mutably: the gradient in place of the logits or apart. The plan
        // names a team that holds such rows.
        unsafe { launch_rows!(stream, plan, gk::Entropy / EntropyCluster, T, args) }
    }
}
