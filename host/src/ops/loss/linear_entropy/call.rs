//! Checks of a call's arguments, and its launches.

use cuda_std::float::Half;

use super::Entropy;
use crate::ops::loss::batch::finite;
use crate::ops::loss::entropy;
use crate::ops::loss::linear::{Chunks, Gradients, Layer, Linear};
use crate::ops::model::OpInfo;
use crate::runtime::dtype::Float;
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// A linear layer whose arguments fit together.
pub(super) struct Call<'a, T> {
    info: &'static OpInfo,
    layer: Layer<'a, T>,
    options: Linear<Entropy>,
}

impl<'a, T: Float + Half> Call<'a, T> {
    pub(super) fn new(
        info: &'static OpInfo,
        hidden: View<'a, T>,
        weight: View<'a, T>,
        options: &Linear<Entropy>,
    ) -> Result<Self> {
        let layer = Layer::new(info, ["hidden", "weight"], hidden, weight)?;
        let Entropy { temperature, factor } = options.loss;
        // An option that is out of range is an error without rows too.
        entropy::scale(info, temperature)?;
        finite(info, "factor", factor)?;
        Ok(Self { info, layer, options: *options })
    }

    /// A new tensor for the entropies.
    pub(super) fn uninit(&self, stream: &Stream) -> Result<Tensor<f32>> {
        Tensor::result(stream, [self.layer.rows])
    }

    /// The entropies, and the derivatives of Σ dentropy · entropy, times the factor.
    pub(super) fn launch(
        self,
        stream: &Stream,
        mut entropies: ViewMut<'_, f32>,
        gradients: Option<(View<'_, f32>, Gradients<'_, T>)>,
    ) -> Result<()> {
        let Self { info, layer, options } = self;
        let Entropy { temperature, factor } = options.loss;
        entropies.require_shape(info.name, "entropies", &[layer.rows])?;
        entropies.require_contiguous(info.name, "entropies")?;
        let (dentropies, gradients) = gradients.unzip();
        stream.require_devices(info.name, &[("entropies", &entropies), ("dentropies", &dentropies)])?;
        if let Some(dentropies) = &dentropies {
            dentropies.require_shape(info.name, "dentropies", &[layer.rows])?;
            dentropies.require_contiguous(info.name, "dentropies")?;
        }
        let chunks = Chunks { memory: options.memory, accumulate: options.accumulate, factor: factor.into() };
        layer.by_chunks(stream, chunks, gradients, |rows, logits| {
            let dentropies = dentropies.map(|dentropies| dentropies.slice(rows.clone())).transpose()?;
            let call = entropy::Call::new(info, logits.into(), temperature)?;
            call.launch(
                stream,
                Some(entropies.reborrow().slice(rows)?),
                dentropies.map(|dentropies| (dentropies, None)),
            )
        })
    }
}
