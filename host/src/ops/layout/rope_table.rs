//! The cosines and sines of rotary position embedding.

use std::f64::consts::TAU;

use cuda_std::launch::Dim3;
use gpu_kernels::ops::layout::rope_table as gk;

use crate::ops::elementwise::grid;
use crate::ops::model::*;
use crate::runtime::dtype::DType;
use crate::runtime::error::{Error, Result};
use crate::runtime::stream::Stream;
use crate::runtime::tensor::Tensor;
use crate::runtime::view::{View, ViewMut};

/// 2⁶⁴: a full turn in fixed point.
const TURN: f64 = 18_446_744_073_709_551_616.0;

/// The scaling of Llama 3 for slow frequencies of a model that was trained on short contexts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3Scaling {
    /// The divisor of slow frequencies: 8 for Llama 3.1.
    pub factor: f64,
    /// A frequency is slow if fewer than this number of its waves fit the original context: 1.
    pub low_freq_factor: f64,
    /// A frequency is unchanged if more than this number of its waves fit: 4. Between the two limits, the division is interpolated.
    pub high_freq_factor: f64,
    /// The number of positions of the original context: 8192.
    pub original_max_position: f64,
}

/// The frequencies of a rotary position embedding: θⱼ = base^(−j/half), scaled or not.
///
/// Su et al., "RoFormer" (arXiv:2104.09864); the scaling is that of Llama 3.1's reference code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeFrequencies {
    /// The number of pairs of elements that are rotated: half of the rotary dimensions.
    pub half: usize,
    /// The slowest pair rotates by about 1/base radians per position: 10000, or 500000 for Llama 3.
    pub base: f64,
    /// The scaling of slow frequencies, if any.
    pub scaling: Option<Llama3Scaling>,
}

/// The maximum number of pairs that a launch covers: a grid's limit in its second dimension.
const MAX_HALF: usize = 65_535 * gk::BLOCK as usize;

impl RopeFrequencies {
    /// The angle in radians per position, in f64, for each of the `half` pairs.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] if `half` is 0 or beyond 16,776,960, or the base or the scaling is not positive and finite, or so small
    /// that angles are not finite.
    pub fn radians(&self) -> Result<Vec<f64>> {
        let Self { half, base, scaling } = *self;
        if !(1..=MAX_HALF).contains(&half) {
            return Err(INFO.param_error("half", half, format!("from 1 to {MAX_HALF}")));
        }
        positive("base", base)?;
        scaling.map_or(Ok(()), Llama3Scaling::check)?;
        let plain = (0..half).map(|j| base.powf(-(j as f64) / half as f64));
        let radians: Vec<f64> = plain.map(|theta| scaling.map_or(theta, |scaling| scaling.apply(theta))).collect();
        match radians.iter().all(|theta| theta.is_finite()) {
            true => Ok(radians),
            false => Err(INFO.param_error("base", base, "one that, scaled, gives finite angles")),
        }
    }

    /// The same in fixed-point turns, 2⁶⁴ to the turn, as [`rope_table_into`] takes them.
    ///
    /// # Errors
    /// Same as [`radians`](Self::radians).
    pub fn turns(&self) -> Result<Vec<i64>> {
        // Whole turns do not matter, and the cast is exact for values below one.
        let turns = |theta: f64| ((theta / TAU).rem_euclid(1.0) * TURN) as u64 as i64;
        Ok(self.radians()?.into_iter().map(turns).collect())
    }
}

fn positive(name: &'static str, value: f64) -> Result<()> {
    match value.is_finite() && value > 0.0 {
        true => Ok(()),
        false => Err(INFO.param_error(name, ParamValue::from(value), "a finite number above 0")),
    }
}

impl Llama3Scaling {
    fn check(self) -> Result<()> {
        positive("factor", self.factor)?;
        positive("low_freq_factor", self.low_freq_factor)?;
        positive("original_max_position", self.original_max_position)?;
        if self.high_freq_factor.is_finite() && self.high_freq_factor > self.low_freq_factor {
            return Ok(());
        }
        let wanted = format!("a finite number above low_freq_factor, which is {}", self.low_freq_factor);
        Err(INFO.param_error("high_freq_factor", self.high_freq_factor, wanted))
    }

    fn apply(&self, theta: f64) -> f64 {
        let waves = self.original_max_position * theta / TAU;
        let kept = (waves - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor);
        if waves < self.low_freq_factor {
            theta / self.factor
        } else if waves > self.high_freq_factor {
            theta
        } else {
            (1.0 - kept) * theta / self.factor + kept * theta
        }
    }
}

/// The cosines and sines, each `[positions, half]`, that [`rope`](fn@crate::ops::rope) reads.
///
/// Angles are exact to 2⁻³⁴ of a turn at any position, and their cosines and sines to 2 ulp of f32. No positions give empty tables. The
/// work is queued on `stream`.
///
/// # Errors
/// [`Error::InvalidParam`] as of [`RopeFrequencies::radians`], [`Error::TooLarge`] beyond 2³² − 1 positions, [`Error::OutOfMemory`].
///
/// # Example
/// ```
/// # use warpsmith::{Device, ops};
/// # fn main() -> warpsmith::Result<()> {
/// let stream = Device::open()?.stream()?;
/// let frequencies = ops::RopeFrequencies { half: 64, base: 500_000.0, scaling: None };
/// let (cos, sin) = ops::rope_table(&stream, &frequencies, 16)?;
/// assert_eq!(cos.shape().dims(), [16, 64]);
/// assert_eq!(sin.to_vec(&stream)?[0], 0.0);
/// # Ok(())
/// # }
/// ```
pub fn rope_table(
    stream: &Stream,
    frequencies: &RopeFrequencies,
    positions: usize,
) -> Result<(Tensor<f32>, Tensor<f32>)> {
    let (half, turns) = (frequencies.half, frequencies.turns()?);
    if positions > u32::MAX as usize {
        let reason = format!("{positions} positions, at most {} are supported", u32::MAX);
        return Err(Error::too_large(INFO.name, "positions", reason));
    }
    let turns = Tensor::from_slice(stream, [half], &turns)?;
    let mut cos = Tensor::result(stream, [positions, half])?;
    let mut sin = Tensor::result(stream, [positions, half])?;
    rope_table_into(stream, &turns, &mut cos, &mut sin)?;
    Ok((cos, sin))
}

/// [`rope_table`] into `cos` and `sin`, `[positions, half]` each and contiguous. `turns`, `[half]`, is the fraction of a turn
/// that each pair rotates by per position, in fixed point, 2⁶⁴ to the turn.
///
/// # Errors
/// [`Error::Shape`] if the shapes do not fit, [`Error::Layout`] if a tensor is not contiguous, [`Error::TooLarge`] beyond 2³² − 1
/// positions or 16,776,960 pairs.
pub fn rope_table_into<'a>(
    stream: &Stream,
    turns: impl Into<View<'a, i64>>,
    cos: impl Into<ViewMut<'a, f32>>,
    sin: impl Into<ViewMut<'a, f32>>,
) -> Result<()> {
    let (turns, mut cos, mut sin) = (turns.into(), cos.into(), sin.into());
    stream.require_devices(INFO.name, &[("turns", &turns), ("cos", &cos), ("sin", &sin)])?;
    let [half]: [usize; 1] = turns.dims(INFO.name, "turns")?;
    let [positions, _]: [usize; 2] = cos.dims(INFO.name, "cos")?;
    cos.require_shape(INFO.name, "cos", &[positions, half])?;
    sin.require_shape(INFO.name, "sin", &[positions, half])?;
    turns.require_contiguous(INFO.name, "turns")?;
    cos.require_contiguous(INFO.name, "cos")?;
    sin.require_contiguous(INFO.name, "sin")?;
    let aligned = turns.rows_aligned(16) && cos.rows_aligned(16) && sin.rows_aligned(16);
    let width = if aligned && half % 4 == 0 { half / 4 } else { half };
    let block = gk::BLOCK as usize;
    let (per_block, y) = if width >= block { (1, width.div_ceil(block)) } else { (block / width.max(1), 1) };
    let (Ok(rows), Ok(packs), true) = (u32::try_from(positions), u32::try_from(width), y <= 65_535) else {
        let reason = format!("{positions} positions of {half} pairs: at most {} of {MAX_HALF} are supported", u32::MAX);
        return Err(Error::too_large(INFO.name, "cos", reason));
    };
    let Some(x) = grid(&INFO, "cos", if half == 0 { 0 } else { positions }, per_block)? else { return Ok(()) };
    let args = (turns.ptr(stream)?, cos.ptr_mut(stream)?, sin.ptr_mut(stream)?, rows, packs);
    let grid = Dim3::new(x, y as u32, 1);
    // SAFETY: the tensors are live and dense and hold these packs, which are of four only where they are aligned; cos and sin are
    // borrowed mutably.
    unsafe {
        if width == half {
            stream.launch::<gk::RopeTable<1>>(grid, args)
        } else {
            stream.launch::<gk::RopeTable<4>>(grid, args)
        }
    }
}

/// The operator's entry in the registry.
pub struct RopeTable;

static INFO: OpInfo = OpInfo {
    name: "rope_table",
    bench_name: "rope.table",
    summary: "cosines and sines of rotary position embedding",
    math: "cos[p, j], sin[p, j] of 2π · p · turnsⱼ / 2⁶⁴",
    args: &[
        ArgInfo::input("turns", "[half], turns from a position to the next, 2⁶⁴ to the turn").of(&[DType::I64]),
        ArgInfo::output("cos", "[positions, half], contiguous"),
        ArgInfo::output("sin", "[positions, half], contiguous"),
    ],
    params: &[ParamInfo::int("positions", 33, "how many positions the tables have")],
    dtypes: &[DType::F32],
    kernels: &[gk::ROPE_TABLE],
    variants: &[],
};

/// The parameter, as a size.
fn positions(params: &Params) -> Result<usize> {
    let positions = params.i64("positions")?;
    usize::try_from(positions).map_err(|_| INFO.param_error("positions", positions, "zero or more"))
}

impl Operator for RopeTable {
    fn info(&self) -> &'static OpInfo {
        &INFO
    }

    fn cases(&self) -> Vec<Case> {
        let f32 = DType::F32;
        let dims = |half| [("half", half)];
        let name = "131072 positions, d=128";
        vec![
            Case::production(&INFO, name, f32, dims(64)).param("positions", 131_072),
            Case::odd(&INFO, f32, dims(13)),
            Case::odd(&INFO, f32, dims(36)).arrange("sin", Arrangement::DENSE.offset(1)),
            Case::odd(&INFO, f32, dims(64)).arrange("turns", Arrangement::DENSE.row_pad(1)),
            Case::tiny(&INFO, f32, dims(1)).param("positions", 1),
            // Angles of many turns.
            Case::boundary(&INFO, f32, dims(2)).param("positions", 4099),
            Case::boundary(&INFO, f32, dims(1024)).param("positions", 3),
            Case::boundary(&INFO, f32, dims(257)).param("positions", 3),
            Case::empty(&INFO, f32, dims(0)),
        ]
    }

    fn inputs(&self, case: &Case) -> Result<Vec<InputSpec>> {
        let [half] = case.dims(["half"])?;
        let values = Values::Integers { low: i64::MIN, high: i64::MAX };
        Ok(vec![InputSpec::new("turns", DType::I64, [half], values).in_case(case)])
    }

    fn outputs(&self, inputs: &Metas<'_>, params: &Params) -> Result<Vec<TensorMeta>> {
        let [half] = inputs.get("turns")?.dims()?;
        let shape = [positions(params)?, half];
        Ok(vec![TensorMeta::new("cos", DType::F32, shape), TensorMeta::new("sin", DType::F32, shape)])
    }

    fn launch(&self, stream: &Stream, args: &mut Arguments<'_>, _: &Params) -> Result<()> {
        rope_table_into(stream, args.input("turns")?, args.output("cos")?, args.output("sin")?)
    }

    fn reference(&self, inputs: &Tensors<'_>, _: &Params, output: &str, rows: &[usize]) -> Result<Vec<f64>> {
        let turns = inputs.get("turns")?.to_vec::<i64>()?;
        Ok(reference::by_row(rows, |position| {
            // The wrapping product modulo 2⁶⁴ drops only whole turns.
            let angle = |turns: &i64| (*turns as u64).wrapping_mul(position as u64) as f64 / TURN * TAU;
            turns.iter().map(angle).map(|angle| if output == "cos" { angle.cos() } else { angle.sin() }).collect()
        }))
    }

    fn tolerance(&self, _: &Case, _: &str) -> Result<Tolerance> {
        Ok(Tolerance::new(
            1e-14,
            7.0 * roundoff(DType::F32),
            "2 ulp of the polynomials, and three roundings of the angle by half an ulp; f64 reduces by turns to 2⁻⁵⁰ absolute",
        ))
    }

    fn cost(&self, case: &Case) -> Result<Cost> {
        let [half] = case.dims(["half"])?;
        Ok(Cost::memory((8 * half * (positions(&case.params)? + 1)) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_frequencies_are_stretched_and_fast_ones_are_not() {
        let scaling =
            Llama3Scaling { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position: 8192.0 };
        let plain = RopeFrequencies { half: 64, base: 500_000.0, scaling: None };
        let scaled = RopeFrequencies { scaling: Some(scaling), ..plain }.radians().unwrap();
        let plain = plain.radians().unwrap();
        assert_eq!(plain[0], 1.0);
        for (plain, scaled) in plain.into_iter().zip(scaled) {
            let wavelength = TAU / plain;
            let expected = match wavelength {
                w if w < 8192.0 / 4.0 => plain..=plain,
                w if w > 8192.0 => plain / 8.0..=plain / 8.0,
                _ => plain / 8.0..=plain,
            };
            assert!(expected.contains(&scaled), "{plain} becomes {scaled}");
        }
        // Waves of 3, halfway between 2 of 1 and 4: a third of the way is not stretched.
        let kept = scaling.apply(2.0 * TAU / 8192.0) / (2.0 * TAU / 8192.0);
        assert!((kept - (1.0 / 3.0 + 2.0 / 3.0 / 8.0)).abs() < 1e-12, "{kept}");
    }

    #[test]
    fn turns_are_fractions_of_a_circle() {
        let turns = RopeFrequencies { half: 2, base: 100.0, scaling: None }.turns().unwrap();
        for (turns, radians) in turns.iter().zip([1.0, 0.1]) {
            assert!((*turns as u64 as f64 / TURN * TAU - radians).abs() < 1e-15);
        }
    }
    #[test]
    fn frequencies_that_are_none_are_named() {
        let good = RopeFrequencies { half: 4, base: 10_000.0, scaling: None };
        let scaling =
            Llama3Scaling { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position: 8192.0 };
        let scaled = |scaling| RopeFrequencies { scaling: Some(scaling), ..good };
        for (frequencies, expected) in [
            (RopeFrequencies { half: 0, ..good }, "`half` = 0: expected from 1 to 16776960"),
            (
                RopeFrequencies { half: usize::MAX, ..good },
                "`half` = 18446744073709551615: expected from 1 to 16776960",
            ),
            (RopeFrequencies { base: f64::NAN, ..good }, "`base` = NaN: expected a finite number above 0"),
            (RopeFrequencies { base: f64::INFINITY, ..good }, "`base` = inf: expected a finite number above 0"),
            (RopeFrequencies { base: -0.5, ..good }, "`base` = -0.5: expected a finite number above 0"),
            (scaled(Llama3Scaling { factor: 0.0, ..scaling }), "`factor` = 0: expected a finite number above 0"),
            (
                scaled(Llama3Scaling { high_freq_factor: 1.0, ..scaling }),
                "`high_freq_factor` = 1: expected a finite number above low_freq_factor, which is 1",
            ),
        ] {
            let error = frequencies.turns().unwrap_err().to_string();
            assert_eq!(error, format!("rope_table: parameter {expected}"));
        }
        // Of the least positive number the last angle is beyond f64.
        let error = RopeFrequencies { half: 64, base: 5e-324, ..good }.radians().unwrap_err().to_string();
        assert!(error.starts_with("rope_table: parameter `base`") && error.contains("finite angles"), "{error}");
        let stream = crate::sim::unshared().unwrap().stream().unwrap();
        for positions in [1 << 32, usize::MAX] {
            let error = rope_table(&stream, &good, positions).unwrap_err().to_string();
            let expected = format!("`positions` is too large: {positions} positions, at most 4294967295 are supported");
            assert_eq!(error, format!("rope_table: {expected}"));
        }
        // As many positions as tables may have, and more than memory holds.
        let error =
            rope_table(&stream, &RopeFrequencies { half: 64, ..good }, u32::MAX as usize).unwrap_err().to_string();
        assert!(error.starts_with("rope_table: `cos`: out of device memory: 1024.0 GiB requested"), "{error}");
        assert_eq!(rope_table(&stream, &good, 0).unwrap().0.shape().dims(), [0, 4]);
    }
}
