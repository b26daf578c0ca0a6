//! The cases and the reference of forward and backward.

use super::super::rope::{MORE, RopePairs, Rotation, Turns, require_half};
use super::QkNorm;
use crate::ops::model::*;
use crate::runtime::dtype::{DType, Float};
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;

/// Sizes of a case: tokens, heads of queries and of keys, pairs that are rotated, and elements of a head.
pub(in crate::ops::layout) fn sizes(case: &Case) -> Result<[usize; 5]> {
    case.dims(["tokens", "heads", "kv_heads", "half", "d"])
}

/// The cases of a direction, of which `q_out` and `k_out` are written.
pub(in crate::ops::layout) fn cases(info: &'static OpInfo, q_out: &'static str, k_out: &'static str) -> Vec<Case> {
    let dims = |tokens, heads, kv_heads, half, d| {
        [("tokens", tokens), ("heads", heads), ("kv_heads", kv_heads), ("half", half), ("d", d)]
    };
    let name = "tokens=16384 heads=32 kv_heads=8 d=128 halves bfloat16";
    let mut cases = vec![Case::production(info, name, DType::BF16, dims(16384, 32, 8, 64, 128))];
    for &dtype in info.dtypes {
        let lanes = 16 / dtype.size();
        let pads = |case: Case| {
            [("q", 16), ("k", 8), (q_out, 24), (k_out, 32)]
                .into_iter()
                .fold(case, |case, (name, pad)| case.arrange(name, Arrangement::DENSE.row_pad(pad)))
        };
        let strangers = |dims: [(&'static str, usize); 5]| {
            let nowhere = Values::Constant(-1.0);
            Case::boundary(info, dtype, dims).fill(Values::Specials).values("positions", nowhere)
        };
        for interleaved in [false, true] {
            cases.extend(
                [
                    // Heads without a second one, and a last warp in part.
                    pads(Case::odd(info, dtype, dims(67, 3, 2, 4 * lanes, 8 * lanes))),
                    // Packs that stay beside those that turn, and lanes without either.
                    Case::odd(info, dtype, dims(5, 3, 1, 2 * lanes, 5 * lanes)).param("eps", 0.25),
                    Case::odd(info, dtype, dims(7, 2, 3, 5, 13)),
                ]
                .map(|case| case.param("interleaved", interleaved)),
            );
        }
        cases.extend([
            // Several visits a team of the simulated device, on either side.
            Case::odd(info, dtype, dims(70, 1, 1, 32 * lanes, 64 * lanes)),
            Case::tiny(info, dtype, dims(1, 1, 1, 1, 2)),
            Case::empty(info, dtype, dims(2, 1, 1, 0, 4)),
            Case::empty(info, dtype, dims(0, 2, 1, 8, 16)),
            Case::empty(info, dtype, dims(2, 0, 1, 8, 16)),
            Case::empty(info, dtype, dims(2, 1, 0, 8, 16)),
            Case::boundary(info, dtype, dims(24, 1, 1, 8, 24)).values("positions", Values::Hostile { bound: 29 }),
            // What has no position may hold anything: packed, with and without elements that stay, and element by element.
            strangers(dims(3, 2, 1, lanes, 2 * lanes)),
            strangers(dims(3, 2, 1, lanes, 3 * lanes)),
            strangers(dims(2, 1, 2, 3, 7)),
            // A warp's last team has no head, and is not to divide by the root of 0.
            Case::boundary(info, dtype, dims(1, 1, 1, lanes, 2 * lanes)).param("eps", 0.0),
            // As many items as a warp has lanes, and one more.
            Case::boundary(info, dtype, dims(2, 1, 1, 32 * lanes, 64 * lanes)),
            Case::boundary(info, dtype, dims(2, 1, 1, 32 * lanes, 65 * lanes)),
            Case::boundary(info, dtype, dims(3, 2, 1, lanes, 2 * lanes))
                .arrange("k_weight", Arrangement::DENSE.offset(1)),
            Case::boundary(info, dtype, dims(3, 2, 2, lanes, 2 * lanes))
                .arrange("k", Arrangement::DENSE.order(&[1, 0, 2])),
        ]);
    }
    cases
}

/// The inputs of forward and backward.
pub(in crate::ops::layout) fn inputs(case: &Case) -> Result<Vec<InputSpec>> {
    let [tokens, heads, kv_heads, half, d] = sizes(case)?;
    let table = [tokens + MORE, half];
    let angles = Values::Uniform { low: -1.0, high: 1.0 };
    let positions = Values::Integers { low: 0, high: (tokens + MORE - 1) as i64 };
    // Heads of a root mean square near 1, however short: the formula divides by it.
    let x = Values::Uniform { low: 0.25, high: 2.0 };
    Ok(vec![
        InputSpec::new("q", case.dtype, [tokens, heads, d], x),
        InputSpec::new("k", case.dtype, [tokens, kv_heads, d], x),
        InputSpec::normal("q_weight", case.dtype, [d]),
        InputSpec::normal("k_weight", case.dtype, [d]),
        InputSpec::new("cos", DType::F32, table, angles),
        InputSpec::new("sin", DType::F32, table, angles),
        InputSpec::new("positions", DType::I32, [tokens], positions),
    ])
}

/// Checks that the inputs of forward and backward match each other.
pub(in crate::ops::layout) fn require(info: &OpInfo, inputs: &Metas<'_>, params: &Params) -> Result<()> {
    let (q, cos) = (inputs.get("q")?, inputs.get("cos")?);
    let [tokens, _, d] = q.dims()?;
    let [_, kv_heads, _] = inputs.get("k")?.dims()?;
    inputs.get("k")?.has_shape(&[tokens, kv_heads, d])?;
    inputs.get("q_weight")?.has_shape(&[d])?;
    inputs.get("k_weight")?.has_shape(&[d])?;
    let [_, half] = cos.dims()?;
    require_half(info, cos.shape(), half, d)?;
    inputs.get("sin")?.has_shape(cos.shape())?;
    inputs.get("positions")?.has_shape(&[tokens])?;
    params.f32("eps").map(|_| ())
}

/// The weights and the rotation.
pub(in crate::ops::layout) fn options<'a, T: Float>(
    args: &Arguments<'a>,
    params: &Params,
) -> Result<(QkNorm<'a, T>, Rotation<'a>)> {
    let pairs = if params.bool("interleaved")? { RopePairs::Neighbours } else { RopePairs::Halves };
    let (q_weight, k_weight) = (args.input("q_weight")?, args.input("k_weight")?);
    let (cos, sin, positions) = (args.input("cos")?, args.input("sin")?, args.input("positions")?);
    Ok((QkNorm { q_weight, k_weight, eps: params.f32("eps")? }, Rotation { cos, sin, positions, pairs }))
}

/// Bytes of `moves` reads and writes of queries and keys.
pub(in crate::ops::layout) fn cost(case: &Case, moves: usize) -> Result<Cost> {
    let [tokens, heads, kv_heads, half, d] = sizes(case)?;
    let tables = tokens * (8 * half + 4);
    Ok(Cost::memory((moves * tokens * (heads + kv_heads) * d * case.dtype.size() + tables) as u64))
}

/// The formula for queries or keys, in f64.
pub(in crate::ops::layout) struct Side<'a> {
    pub(in crate::ops::layout) x: &'a HostTensor,
    weight: Vec<f64>,
    turns: Turns<'a>,
    heads: usize,
    eps: f64,
}

impl<'a> Side<'a> {
    pub(in crate::ops::layout) fn of(inputs: &'a Tensors<'_>, params: &Params, is_q: bool) -> Result<Self> {
        let (x, weight) = if is_q { ("q", "q_weight") } else { ("k", "k_weight") };
        let (x, weight) = (inputs.get(x)?, inputs.get(weight)?.to_f64());
        let turns = Turns::of(inputs, params)?;
        Ok(Self { x, weight, turns, heads: x.shape()[1], eps: f64::from(params.f32("eps")?) })
    }

    fn scale(&self, x: &[f64]) -> f64 {
        1.0 / (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64 + self.eps).sqrt()
    }

    /// A head, normalised and rotated.
    pub(in crate::ops::layout) fn forward(&self, row: usize) -> Vec<f64> {
        let x = reference::row(self.x, row);
        let scale = self.scale(&x);
        let z = x.iter().zip(&self.weight).map(|(x, weight)| x * scale * weight).collect();
        self.turns.turn(z, row / self.heads, 1.0)
    }

    /// The gradient of a head, and what it adds to the weight's.
    pub(in crate::ops::layout) fn backward(&self, dy: &HostTensor, row: usize) -> [Vec<f64>; 2] {
        let (x, token) = (reference::row(self.x, row), row / self.heads);
        let (scale, d) = (self.scale(&x), x.len());
        if self.turns.row(token).is_none() {
            return [vec![0.0; d], vec![0.0; d]];
        }
        let dz = self.turns.turn(reference::row(dy, row), token, -1.0);
        let mean = (0..d).map(|c| dz[c] * self.weight[c] * x[c]).sum::<f64>() / d as f64;
        let dx = (0..d).map(|c| scale * (dz[c] * self.weight[c] - x[c] * scale * scale * mean)).collect();
        [dx, (0..d).map(|c| dz[c] * x[c] * scale).collect()]
    }
}
