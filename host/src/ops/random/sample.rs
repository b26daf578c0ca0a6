//! Random sampling of tokens from rows of logits.

use gpu_kernels::ops::random::sample::cluster::{SampleCluster, part};
use gpu_kernels::ops::random::sample::{self as gk, OCTAVE, weight};
use gpu_kernels::ops::reduce::{key, top_k::candidate};
use gpu_kernels::rows::CLUSTER;

use super::{OFFSET, Philox, SEED};
use crate::dispatch;
use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::ops::rows;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// The tokens that [`sample`] keeps, and their weights. By default it keeps all, with the weights of softmax.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The divisor of logits: 0 always selects the best token, and 1 leaves the logits unchanged.
    pub temperature: f32,
    /// The number of best tokens to keep; `None` keeps all.
    pub top_k: Option<u32>,
    /// The probability mass to keep (nucleus sampling): the fewest best tokens whose probabilities add up to it. Above 0, up to
    /// 1, which keeps all.
    pub top_p: f32,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: None, top_p: 1.0 }
    }
}

/// The least packs of a row that a cluster shares, and where nothing is drawn.
const CLUSTER_FROM: [u32; 2] = [2048, 8192];

/// The form of a [`Sampling`] that the kernel takes.
#[derive(Clone, Copy)]
struct Rule {
    scale: f32,
    k: u32,
    /// In units of 2⁻³².
    share: u64,
}

impl Sampling {
    fn rule(self) -> Result<Rule> {
        let Self { temperature, top_k, top_p } = self;
        if !(0.0..=f32::MAX).contains(&temperature) {
            return Err(INFO.param_error("temperature", temperature, "a finite number, 0 or more"));
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(INFO.param_error("top_p", top_p, "from above 0 to 1"));
        }
        if top_k == Some(0) {
            return Err(INFO.param_error("top_k", 0, "1 or more"));
        }
        let scale = (std::f64::consts::LOG2_E * f64::from(OCTAVE) / f64::from(temperature)) as f32;
        let k = if temperature == 0.0 { 1 } else { top_k.unwrap_or(u32::MAX) };
        Ok(Rule { scale, k, share: (f64::from(top_p) * f64::powi(2.0, 32)).round().max(1.0) as u64 })
    }

    fn of(params: &Params) -> Result<Self> {
        let top_k = params.i64("top_k")?;
        let few = u32::try_from(top_k)
            .map_err(|_| INFO.param_error("top_k", top_k, "from 0, which keeps all, to 2^32 - 1"))?;
        Ok(Self {
            temperature: params.f32("temperature")?,
            top_k: (few > 0).then_some(few),
            top_p: params.f32("top_p")?,
        })
    }
}

/// Draws a token for every row of `logits`: token i with probability softmax(logits / temperature)ᵢ among those that `sampling`
/// keeps.
///
/// Both [`top_k`](Sampling::top_k) and [`top_p`](Sampling::top_p) refer to the probabilities of all tokens; a token is kept if
/// it passes both, and the best one always is. Of equal logits the first counts as the better. A token with a logit of −∞ is
/// never drawn, nor, practically, one that is less than 2⁻³⁰ times as probable as the best. Equal calls give equal tokens on
/// every device; use another [`offset`](Philox::at) for each step. A row that contains NaN, or only −∞, gives the token −1.
///
/// `logits` is `[rows, vocabulary]`, or has more dimensions; the elements of a row are contiguous, and rows may be padded. The
/// result is a new tensor of the outer dimensions; the work is queued on `stream`.
///
/// # Errors
/// [`Error::InvalidParam`](crate::Error::InvalidParam) unless temperature is finite and not negative, top_k at least 1 and 0 < top_p ≤ 1,
/// [`Error::Shape`](crate::Error::Shape) if `logits` has fewer than two dimensions, no columns or 2³¹ or more of them,
/// [`Error::Layout`](crate::Error::Layout) if rows are not contiguous and equally far apart,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
///
/// # Example
/// ```
/// # use warpsmith::{Device, Tensor, ops::{self, Philox, Sampling}};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let logits = Tensor::from_slice(&stream, [1, 4], &[2.0f32, f32::NEG_INFINITY, 2.0, -1.0])?;
/// let sampling = Sampling { temperature: 0.7, top_p: 0.9, ..Sampling::default() };
/// let token = ops::sample(&stream, &logits, sampling, Philox::new(42))?.to_vec(&stream)?;
/// assert!([0, 2].contains(&token[0]));
/// # Ok(())
/// # }
/// ```
pub fn sample<'a, T: Float>(
    stream: &Stream,
    logits: impl Into<View<'a, T>>,
    sampling: Sampling,
    random: Philox,
) -> Result<Tensor<i32>> {
    let logits = logits.into();
    let outer = &logits.shape()[..logits.shape().len().saturating_sub(1)];
    let mut tokens = Tensor::result(stream, outer)?;
    sample_into(stream, logits, sampling, random, &mut tokens)?;
    Ok(tokens)
}

/// [`sample`] into `tokens`, which is contiguous and has the outer dimensions of `logits`.
///
/// # Errors
/// Same as [`sample`].
pub fn sample_into<'a, T: Float>(
    stream: &Stream,
    logits: impl Into<View<'a, T>>,
    sampling: Sampling,
    random: Philox,
    tokens: impl Into<ViewMut<'a, i32>>,
) -> Result<()> {
    let (logits, mut tokens) = (logits.into(), tokens.into());
    stream.require_devices(INFO.name, &[("logits", &logits), ("tokens", &tokens)])?;
    let Rule { scale, k, share } = sampling.rule()?;
    let outer = outer(logits.shape())?;
    tokens.require_shape(INFO.name, "tokens", outer)?;
    tokens.require_contiguous(INFO.name, "tokens")?;
    let stride = logits.require_row_stride(INFO.name, "logits")? as u64;
    let (rows, d) = (logits.rows(), logits.cols());
    let part = clustered(stream, &logits, k);
    let blocks = if part.is_some() { rows.saturating_mul(CLUSTER as usize) } else { rows };
    let Some(grid) = grid(&INFO, "logits", blocks, 1)? else { return Ok(()) };
    let (x, y) = (logits.ptr(stream)?, tokens.ptr_mut(stream)?);
    let d = d as u32;
    let args = (x, y, d, stride, scale, k, share, random.seed, random.offset);
    // SAFETY: the tensors are live; every row holds d elements at its stride, of which there are 1 to 2³¹ − 1, and tokens has an element
    // for each and is borrowed mutably. Blocks have room for parts of these sizes.
    unsafe {
        match part {
            None => {
                let args = (x, y, rows as u64, d, stride, scale, k, share, random.seed, random.offset);
                stream.launch::<gk::Sample<T>>(grid, args)
            }
            Some(..=2048) => stream.launch::<SampleCluster<T, 2048>>(grid, args),
            Some(..=4096) => stream.launch::<SampleCluster<T, 4096>>(grid, args),
            Some(_) => stream.launch::<SampleCluster<T, 8192>>(grid, args),
        }
    }
}

/// The packs of a block's part of a row of `logits`, if it is a cluster that shares a row.
fn clustered<T: Float>(stream: &Stream, logits: &View<'_, T>, k: u32) -> Option<u32> {
    let (d, lanes) = (logits.cols(), gpu_kernels::lanes::<T>());
    let fits = stream.device().supports_hopper() && logits.rows_aligned(16) && d.is_multiple_of(lanes);
    let least = CLUSTER_FROM[usize::from(k == 1)];
    let packs = u32::try_from(d / lanes).ok().filter(|packs| fits && *packs >= least)?;
    Some(part(packs)).filter(|part| *part <= 8192)
}

/// The outer dimensions of logits. If there are rows, their token indices must fit in an i32.
fn outer(logits: &[usize]) -> Result<&[usize]> {
    rows::require(&INFO, "logits", logits)?;
    if reference::row_count(logits) > 0 && !(1..=i32::MAX as usize).contains(&reference::row_len(logits)) {
        return Err(INFO.shape_error("logits", logits, "1 to 2^31 - 1 columns"));
    }
    Ok(&logits[..logits.len() - 1])
}

/// The operator's entry in the registry.
pub struct Sample;

static INFO: OpInfo = OpInfo {
    name: "sample",
    bench_name: "random.sample",
    summary: "token of rows of logits, at random: temperature, the k best, the nucleus",
    math: "y = i with probability e^(x[i] / temperature) / Σ e^(x / temperature), over the tokens that are kept",
    args: &[
        ArgInfo::input("logits", "[rows, vocabulary] or more dimensions, rows may be padded"),
        ArgInfo::output("tokens", "the outer dimensions of logits, contiguous").of(&[DType::I32]),
    ],
    params: &[
        ParamInfo::float("temperature", 1.0, "what logits are divided by; 0 takes the best token"),
        ParamInfo::int("top_k", 0, "how many tokens are kept, the best; 0 keeps all"),
        ParamInfo::float("top_p", 1.0, "the share of the probability that is kept, from above 0 to 1"),
        SEED,
        OFFSET,
    ],
    dtypes: DType::FLOATS,
    kernels: &[gk::SAMPLE, gk::cluster::SAMPLE_CLUSTER],
    variants: &[],
};

/// The token of row `r`, from the same integers as on the device and the definition of the operator: all tokens ranked, some
/// kept, and draws until one is accepted.
fn token(x: &[f64], r: usize, rule: Rule, random: Philox) -> i32 {
    let x: Vec<f32> = x.iter().map(|x| *x as f32).collect();
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if max == f32::NEG_INFINITY || x.iter().any(|x| x.is_nan()) {
        return -1;
    }
    let weights: Vec<u64> = x.iter().map(|x| weight(*x, max, rule.scale).into()).collect();
    let limit = |total: u64| ((u128::from(total) * u128::from(rule.share)) >> 32).max(1);
    let limit = limit(weights.iter().sum());
    let mut ranked: Vec<usize> = (0..x.len()).collect();
    ranked.sort_by_key(|i| std::cmp::Reverse(candidate(key(x[*i]), *i as u32)));
    // The number of better tokens, in order, that a draw may give.
    let mut left = ranked.len();
    for draw in 0.. {
        let mut places = ranked[..left].to_vec();
        places.sort_unstable();
        let total: u64 = places.iter().map(|i| weights[*i]).sum();
        let [low, high, ..] = random.words(r + (draw << 32));
        let word = u64::from(low) | u64::from(high) << 32;
        let drawn = ((u128::from(word) * u128::from(total)) >> 64) as u64;
        let mut sum = 0;
        let used_up = |i: &&usize| {
            sum += weights[**i];
            sum > drawn
        };
        let Some(&token) = places.iter().find(used_up) else { break };
        left = ranked.iter().position(|i| *i == token).unwrap_or(0);
        let better: u64 = ranked[..left].iter().map(|i| weights[*i]).sum();
        if (left as u64) < u64::from(rule.k) && u128::from(better) < limit {
            return token as i32;
        }
    }
    -1
}

impl Operator for Sample {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let dims = |rows, d| [("rows", rows), ("d", d)];
        let of = |rows, name: &str| Case::production(&INFO, name, DType::BF16, dims(rows, 128_256));
        let production = |name: &str| of(128, name);
        let mut cases = vec![
            production("rows=128 d=128256"),
            production("rows=128 d=128256 top_p=0.9").param("top_p", 0.9),
            production("rows=128 d=128256 top_k=50 top_p=0.9").param("top_k", 50).param("top_p", 0.9),
            of(1, "rows=1 d=128256 top_p=0.9").param("top_p", 0.9),
            of(16, "rows=16 d=128256 top_p=0.9").param("top_p", 0.9),
            production("rows=128 d=128256 greedy").param("temperature", 0.0),
        ];
        let few = Values::Integers { low: -2, high: 2 };
        for &dtype in INFO.dtypes {
            cases.extend([
                Case::odd(&INFO, dtype, dims(5, 1000)),
                Case::odd(&INFO, dtype, dims(3, 5003)).param("top_p", 0.5),
                Case::odd(&INFO, dtype, dims(3, 3000)).param("top_k", 20).param("temperature", 1.5),
                Case::odd(&INFO, dtype, dims(3, 2500)).param("top_k", 40).param("top_p", 0.3).param("temperature", 0.7),
                Case::odd(&INFO, dtype, dims(3, 1003))
                    .arrange("logits", Arrangement::DENSE.row_pad(5))
                    .param("top_p", 0.9),
                Case::odd(&INFO, dtype, dims(2, 2048)).offset(1).param("top_k", 5),
                Case::odd(&INFO, dtype, dims(5, 1500)).values("logits", few).param("temperature", 0.0),
                Case::odd(&INFO, dtype, dims(5, 1500)).values("logits", few).param("top_k", 3).param("seed", -7),
                Case::tiny(&INFO, dtype, dims(1, 1)),
                Case::tiny(&INFO, dtype, dims(33, 7)).param("offset", 1i64 << 40),
                Case::tiny(&INFO, dtype, dims(2, 64)).values("logits", Values::Constant(f64::NEG_INFINITY)),
                Case::empty(&INFO, dtype, dims(0, 64)),
                Case::boundary(&INFO, dtype, dims(1, 1024)).param("top_p", 1e-6),
                Case::boundary(&INFO, dtype, dims(1, 1025)).param("temperature", 1e6),
                Case::boundary(&INFO, dtype, dims(40, 5)).fill(Values::Specials),
                Case::boundary(&INFO, dtype, dims(40, 5)).fill(Values::Specials).param("temperature", 0.0),
            ]);
        }
        for &dtype in INFO.dtypes {
            let packs = |packs: usize| packs * 16 / dtype.size();
            let few = Values::Integers { low: -9, high: 9 };
            cases.extend([
                Case::odd(&INFO, dtype, dims(2, packs(5001))),
                Case::odd(&INFO, dtype, dims(3, packs(2051))).param("top_p", 0.9),
                Case::odd(&INFO, dtype, dims(2, packs(6000))).values("logits", few).param("top_k", 300),
                Case::odd(&INFO, dtype, dims(2, packs(8200))).values("logits", few).param("temperature", 0.0),
                Case::boundary(&INFO, dtype, dims(1, packs(16_384))).param("top_k", 50).param("top_p", 0.9),
                Case::boundary(&INFO, dtype, dims(1, packs(16_385))).param("top_p", 0.9),
                Case::boundary(&INFO, dtype, dims(1, packs(32_769))).param("top_k", 9),
                Case::boundary(&INFO, dtype, dims(1, packs(65_536))),
                Case::boundary(&INFO, dtype, dims(1, packs(16_386))).param("temperature", 0.0),
                Case::boundary(&INFO, dtype, dims(1, packs(32_770))).param("temperature", 0.0),
                Case::boundary(&INFO, dtype, dims(2, packs(2048)))
                    .values("logits", Values::Constant(f64::NEG_INFINITY)),
                Case::boundary(&INFO, dtype, dims(2, packs(2049))).fill(Values::Specials),
            ]);
        }
        // Chunks of more tokens than the least.
        cases.push(Case::boundary(&INFO, DType::BF16, dims(1, (1 << 20) + 9)));
        cases
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [rows, d] = case.dims(["rows", "d"])?;
        let values = Values::Normal { std: 3.0 };
        Ok(vec![InputSpec::new("logits", case.dtype, [rows, d], values).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        Sampling::of(params)?.rule()?;
        Ok(vec![TensorMeta::new("tokens", DType::I32, outer(inputs.get("logits")?.shape())?)])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, params: &Params) -> Result<()> {
        let (sampling, random) = (Sampling::of(params)?, Philox::of(params)?);
        dispatch!(INFO, args.dtype("logits")?, float => |T| {
            sample_into::<T>(stream, args.input("logits")?, sampling, random, args.output("tokens")?)
        })
    }

    fn reference(&self, inputs: &Tensors<'_>, params: &Params, _: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let logits = inputs.get("logits")?;
        let (rule, random) = (Sampling::of(params)?.rule()?, Philox::of(params)?);
        Ok(rows.iter().map(|r| f64::from(token(&reference::row(logits, *r), *r, rule, random))).collect())
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        // Weights are integers that the device and the host compute alike.
        Ok(Tolerance::EXACT)
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [rows, d] = case.dims(["rows", "d"])?;
        Ok(Cost::memory((rows * (d * case.dtype.size() + size_of::<i32>())) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The frequency of each token of a row in this number of draws.
    fn frequencies<const N: usize>(x: [f64; N], sampling: Sampling) -> [f64; N] {
        const DRAWS: usize = 40_000;
        let rule = sampling.rule().unwrap();
        let mut counts = [0.0; N];
        for r in 0..DRAWS {
            counts[token(&x, r, rule, Philox::new(1)) as usize] += 1.0 / DRAWS as f64;
        }
        counts
    }

    #[test]
    fn tokens_come_as_often_as_they_are_probable() {
        let x = [1.0, 0.0, 2.0, -1.0, 2.0, f64::NEG_INFINITY];
        let softmax = |temperature: f64, kept: &[usize]| {
            let of = |i: usize| if kept.contains(&i) { (x[i] / temperature).exp() } else { 0.0 };
            let total: f64 = (0..x.len()).map(of).sum();
            std::array::from_fn::<f64, 6, _>(|i| of(i) / total)
        };
        let plain = Sampling::default();
        let all = [0, 1, 2, 3, 4];
        // Of all: 0.14, 0.05, 0.38, 0.02, 0.38.
        let cases = [
            (plain, softmax(1.0, &all)),
            (Sampling { temperature: 2.0, ..plain }, softmax(2.0, &all)),
            (Sampling { top_k: Some(3), ..plain }, softmax(1.0, &[0, 2, 4])),
            (Sampling { top_k: Some(1), ..plain }, softmax(1.0, &[2])),
            (Sampling { top_p: 0.8, ..plain }, softmax(1.0, &[0, 2, 4])),
            (Sampling { top_p: 0.5, ..plain }, softmax(1.0, &[2, 4])),
            (Sampling { top_k: Some(4), top_p: 0.3, ..plain }, softmax(1.0, &[2])),
            (Sampling { temperature: 0.0, ..plain }, softmax(1.0, &[2])),
        ];
        for (sampling, expected) in cases {
            let found = frequencies(x, sampling);
            // Six standard deviations of a frequency near one half.
            let near =
                found.iter().zip(expected).all(|(found, p)| (found - p).abs() < 0.015 && (p > 0.0 || *found == 0.0));
            assert!(near, "{sampling:?}: {found:?}, not {expected:?}");
        }
    }

    #[test]
    fn rules_that_are_none_are_refused() {
        let plain = Sampling::default();
        for sampling in [
            Sampling { temperature: -1.0, ..plain },
            Sampling { temperature: f32::INFINITY, ..plain },
            Sampling { temperature: f32::NAN, ..plain },
            Sampling { top_k: Some(0), ..plain },
            Sampling { top_p: 0.0, ..plain },
            Sampling { top_p: 1.1, ..plain },
            Sampling { top_p: f32::NAN, ..plain },
        ] {
            assert!(sampling.rule().is_err_and(|error| error.to_string().starts_with("sample")), "{sampling:?}");
        }
    }
}
