//! A multi-layer perceptron, forward and backward, built from the operators: shows their speed when they run one after the
//! other.
//!
//! A layer is y = gelu(x·Wᵀ + b) with square W: `gemm`, `zip` for the bias, `gelu`. Its gradient takes `gelu_backward`, two
//! products for dW and dx, and one with a row of ones for db. Everything is in bf16, in tensors that are allocated once.

use std::time::Instant;

use gpu_kernels::ops::elementwise::zip::add_product;
use half::bf16;

use super::prepared::{BUDGET, MIN_RUNS, WARM_UP, samples};
use super::{Row, Spread, plain};
use crate::ops::{self, Philox};
use crate::runtime::device::Device;
use crate::runtime::error::Result;
use crate::runtime::profile;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;

/// The name on the command line.
pub const NAME: &str = "mlp";

/// The number of layers, the rows of input, and the width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Layers.
    pub layers: usize,
    /// Rows of the input.
    pub batch: usize,
    /// Columns of the input and of every layer.
    pub width: usize,
}

/// The sizes that are kept while one varies.
pub const BASE: Sizes = Sizes { layers: 4, batch: 4096, width: 4096 };
const LAYERS: [usize; 3] = [1, 2, 8];
const BATCHES: [usize; 5] = [512, 1024, 2048, 8192, 16384];
const WIDTHS: [usize; 3] = [1024, 2048, 8192];

impl Sizes {
    /// The sizes that are timed: each size varied by itself.
    pub fn all() -> Vec<Self> {
        let layers = LAYERS.map(|layers| Self { layers, ..BASE });
        let batches = BATCHES.map(|batch| Self { batch, ..BASE });
        let widths = WIDTHS.map(|width| Self { width, ..BASE });
        [&[BASE][..], &layers, &batches, &widths].concat()
    }

    /// What reports call it.
    pub fn case(&self) -> String {
        format!("layers={} batch={} width={} bf16", self.layers, self.batch, self.width)
    }

    /// The operations of the products, which are nearly all operations: forward, and backward, which needs no gradient of the
    /// input.
    fn flops(&self) -> [u64; 2] {
        let product = 2 * self.batch * self.width * self.width;
        [self.layers * product, (2 * self.layers - 1) * product].map(|n| n as u64)
    }

    /// The minimum traffic: forward, of weights, input, and what is saved for the gradients; backward, of the same read again,
    /// with the gradients of all weights.
    fn bytes(&self) -> [u64; 2] {
        let (weights, rows) = (self.layers * self.width * (self.width + 1), self.batch * self.width);
        let saved = 2 * self.layers * rows;
        [weights + rows + saved, 2 * weights + saved + rows].map(|n| (n * size_of::<bf16>()) as u64)
    }
}

/// The parameters, activations and gradients on a device.
#[derive(Debug)]
pub struct Mlp {
    sizes: Sizes,
    /// The parameters: a matrix and a row of biases per layer.
    pub weights: Vec<(Tensor<bf16>, Tensor<bf16>)>,
    /// The input, and each layer's result.
    pub activations: Vec<Tensor<bf16>>,
    /// The gradient of the result.
    pub upstream: Tensor<bf16>,
    /// Gradients of the weights.
    pub gradients: Vec<(Tensor<bf16>, Tensor<bf16>)>,
    /// The inputs of gelu.
    before: Vec<Tensor<bf16>>,
    product: Tensor<bf16>,
    ones: Tensor<bf16>,
}

impl Mlp {
    /// With random weights and input.
    pub fn new(stream: &Stream, sizes: Sizes) -> Result<Self> {
        let Sizes { layers, batch, width } = sizes;
        let mut seed = 0;
        let mut random = |shape: &[usize], std: f32| {
            seed += 1;
            ops::random_normal::<bf16>(stream, shape, 0.0, std, Philox { seed, offset: 0 })
        };
        // With such weights, the result of every layer is about as large as its input.
        let std = 1.5 / (width as f32).sqrt();
        let rows = [batch, width];
        let uninit = |shape: &[usize]| Tensor::<bf16>::uninit(stream, shape);
        let weights = (0..layers).map(|_| Ok((random(&[width, width], std)?, random(&[width], 0.1)?)));
        let weights = weights.collect::<Result<_>>()?;
        let gradients = (0..layers).map(|_| Ok((uninit(&[width, width])?, uninit(&[1, width])?)));
        let mut activations = vec![random(&rows, 1.0)?];
        for _ in 0..layers {
            activations.push(uninit(&rows)?);
        }
        Ok(Self {
            sizes,
            weights,
            activations,
            upstream: random(&rows, 1.0)?,
            gradients: gradients.collect::<Result<_>>()?,
            before: (0..layers).map(|_| uninit(&rows)).collect::<Result<_>>()?,
            product: uninit(&rows)?,
            ones: Tensor::filled(stream, [batch.max(width)], bf16::ONE)?,
        })
    }

    /// Queues all layers.
    pub fn forward(&mut self, stream: &Stream) -> Result<()> {
        let rows = [self.sizes.batch, self.sizes.width];
        let ones = self.ones.slice(0..self.sizes.width)?;
        for (layer, (weight, bias)) in self.weights.iter().enumerate() {
            let (done, rest) = self.activations.split_at_mut(layer + 1);
            scoped("product", || ops::gemm_into(stream, 1.0, &done[layer], weight.view().t(), 0.0, &mut self.product))?;
            let bias = bias.view().broadcast(rows)?;
            let inputs = [self.product.view(), bias, ones.broadcast(rows)?];
            scoped("bias", || ops::zip_into(stream, inputs, add_product(1.0), &mut self.before[layer]))?;
            scoped("gelu", || ops::gelu_into(stream, &self.before[layer], &mut rest[0]))?;
        }
        Ok(())
    }

    /// Queues the gradients of all weights, for the activations that `forward` left.
    pub fn backward(&mut self, stream: &Stream) -> Result<()> {
        let Sizes { layers, batch, width } = self.sizes;
        let ones = self.ones.slice(0..batch)?.reshape([1, batch])?;
        let mut down = Tensor::<bf16>::uninit(stream, [batch, width])?;
        for layer in (0..layers).rev() {
            let above = if layer + 1 == layers { &self.upstream } else { &down };
            let before = &self.before[layer];
            scoped("gelu backward", || ops::gelu_backward_into(stream, before, above, &mut self.product))?;
            let (weight, bias) = &mut self.gradients[layer];
            let (dy, x) = (&self.product, &self.activations[layer]);
            scoped("weight gradient", || ops::gemm_into(stream, 1.0, dy.view().t(), x, 0.0, weight))?;
            scoped("bias gradient", || ops::gemm_into(stream, 1.0, ones, dy, 0.0, bias))?;
            if layer > 0 {
                scoped("input gradient", || ops::gemm_into(stream, 1.0, dy, &self.weights[layer].0, 0.0, &mut down))?;
            }
        }
        Ok(())
    }
}

/// A part of a step, which has this name in a profile.
fn scoped(name: &'static str, queue: impl FnOnce() -> Result<()>) -> Result<()> {
    let _scope = profile::scope(name);
    queue()
}

/// Times forward and backward for one size; `peak` is that of the tensor cores, in operations per second.
pub fn rows(device: &Device, sizes: Sizes, peak: Option<f64>) -> Result<[Row; 2]> {
    let stream = device.stream()?;
    let mut mlp = Mlp::new(&stream, sizes)?;
    stream.synchronize()?;
    let (flops, bytes) = (sizes.flops(), sizes.bytes());
    let row = |direction: usize, (ms, spread): (f64, Spread)| {
        let (flops, bytes) = (flops[direction], bytes[direction]);
        let tflops = flops as f64 / ms / 1e9;
        Row {
            bytes,
            flops,
            gbps: Some(bytes as f64 / ms / 1e6),
            tflops: Some(tflops),
            pct_of_ceiling: peak.map(|peak| 100.0 * tflops * 1e12 / peak),
            pct_of_copy: None,
            spread: Some(spread),
            ..plain(["mlp.forward", "mlp.backward"][direction], &sizes.case(), ms, spread.min_ms)
        }
    };
    let ahead = row(0, timed(&stream, || mlp.forward(&stream))?);
    let back = row(1, timed(&stream, || mlp.backward(&stream))?);
    Ok([ahead, back])
}

/// The median of many runs, and their distribution.
fn timed(stream: &Stream, mut step: impl FnMut() -> Result<()>) -> Result<(f64, Spread)> {
    let clock = |step: &mut dyn FnMut() -> Result<()>| {
        let start = Instant::now();
        step()?;
        let queued = start.elapsed();
        stream.synchronize()?;
        Ok::<_, crate::Error>([queued, start.elapsed()].map(|time| time.as_secs_f64() * 1e3))
    };
    let [_, first_ms] = clock(&mut step)?;
    for _ in 0..WARM_UP {
        step()?;
    }
    stream.synchronize()?;
    let times = samples(stream, BUDGET, &mut step)?;
    let mut waited = (0..MIN_RUNS).map(|_| clock(&mut step)).collect::<Result<Vec<_>>>()?;
    waited.sort_by(|a, b| a[1].total_cmp(&b[1]));
    let [queued_ms, waited_ms] = waited[waited.len() / 2];
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    let spread =
        Spread { runs: times.len(), first_ms, min_ms: times[0], p10_ms: at(10), p90_ms: at(90), queued_ms, waited_ms };
    Ok((times[times.len() / 2], spread))
}
