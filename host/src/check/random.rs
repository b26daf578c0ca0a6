//! Seeded input data for checks and benches.

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_distr::{StandardNormal, Zipf};
use rayon::prelude::*;

use super::buffers;
use crate::ops::model::{Case, InputSpec, Operator, Values};
use crate::runtime::error::Result;
use crate::runtime::host_tensor::HostTensor;
use crate::runtime::shape::Shape;

/// Past this many elements the values repeat: drawing them would take longer than the check. A prime, so that no
/// power-of-two mistake in an index lands on an equal value.
const PERIOD: usize = 16_777_213;
const CHUNK: usize = 1 << 16;

/// The values a floating-point kernel is most likely to get wrong.
const SPECIALS: [f64; 16] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    1e-45,
    -6e-8,
    1e-38,
    65504.0,
    -65504.0,
    3.3e38,
    -3.3e38,
    88.0,
    -88.0,
];

/// The inputs of a case, by name.
pub fn inputs(op: &dyn Operator, case: &Case, seed: u64) -> Result<Vec<(&'static str, HostTensor)>> {
    let specs = op.inputs(case)?.into_iter().zip(0u64..);
    specs.map(|(spec, i)| Ok((spec.name, tensor(&spec, seed.wrapping_add(i * 0x1_0000_0001))?))).collect()
}

/// A tensor as specified by `spec`; the same `seed` gives the same values on every machine.
pub fn tensor(spec: &InputSpec, seed: u64) -> Result<HostTensor> {
    let shape = Shape::new(&spec.shape)?;
    if let Some(values) = as_a_whole(spec.values, shape.elements(), seed) {
        return HostTensor::from_f64(spec.dtype, shape, &values);
    }
    let drawn = shape.elements().min(PERIOD);
    let mut values = vec![0.0; drawn];
    values.par_chunks_mut(CHUNK).enumerate().for_each(|(i, chunk)| {
        let mut rng = SmallRng::seed_from_u64(seed ^ (i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        chunk.fill_with(|| draw(spec.values, &mut rng));
    });
    let rounded = values.par_chunks(CHUNK).map(|chunk| HostTensor::from_f64(spec.dtype, [chunk.len()], chunk));
    let head = rounded.map(|chunk| chunk.map(HostTensor::into_bytes)).collect::<Result<Vec<_>>>()?.concat();
    if drawn == shape.elements() {
        return HostTensor::new(spec.dtype, shape, head);
    }
    let mut bytes = buffers::take(shape.elements() * spec.dtype.size());
    bytes.par_chunks_mut(head.len()).for_each(|chunk| chunk.copy_from_slice(&head[..chunk.len()]));
    HostTensor::new(spec.dtype, shape, bytes)
}

/// Values that depend on each other.
fn as_a_whole(values: Values, n: usize, seed: u64) -> Option<Vec<f64>> {
    let mut rng = SmallRng::seed_from_u64(seed);
    match values {
        Values::Offsets { total } => {
            let mut offsets: Vec<i64> = (0..n).map(|_| rng.random_range(0..=total.max(0))).collect();
            offsets.sort_unstable();
            if let Some(first) = offsets.first_mut() {
                *first = 0;
            }
            if let [_, .., last] = &mut offsets[..] {
                *last = total;
            }
            Some(offsets.into_iter().map(|offset| offset as f64).collect())
        }
        Values::Permutation => {
            let mut all: Vec<f64> = (0..n).map(|i| i as f64).collect();
            all.shuffle(&mut rng);
            Some(all)
        }
        _ => None,
    }
}

fn draw(values: Values, rng: &mut SmallRng) -> f64 {
    match values {
        Values::Normal { std } => std * rng.sample::<f64, _>(StandardNormal),
        Values::Uniform { low, high } => low + (high - low) * rng.random::<f64>(),
        Values::Bernoulli { p } => f64::from(u8::from(rng.random::<f64>() < p)),
        Values::Integers { low, high } => rng.random_range(low..=high.max(low)) as f64,
        Values::Zipf { count } => Zipf::new(count.max(1) as f64, 1.0).map_or(0.0, |zipf| rng.sample(zipf) - 1.0),
        Values::Hostile { bound } => match rng.random_range(0..8) {
            0 => -1.0,
            1 => bound as f64,
            // These saturate at the limits of the type.
            2 => f64::MIN,
            3 => f64::MAX,
            _ => rng.random_range(0..bound.max(1)) as f64,
        },
        Values::Specials => {
            if rng.random::<f64>() < 0.5 {
                SPECIALS[rng.random_range(0..SPECIALS.len())]
            } else {
                rng.sample(StandardNormal)
            }
        }
        Values::Constant(value) => value,
        // Drawn as a whole.
        Values::Offsets { .. } | Values::Permutation => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::dtype::DType;

    fn values(distribution: Values, n: usize, seed: u64) -> Vec<f64> {
        tensor(&InputSpec::new("x", DType::F32, [n], distribution), seed).unwrap().to_f64()
    }

    #[test]
    fn the_same_seed_gives_the_same_values_and_another_does_not() {
        let n = 3 * CHUNK + 5;
        assert_eq!(values(Values::NORMAL, n, 1), values(Values::NORMAL, n, 1));
        assert_ne!(values(Values::NORMAL, n, 1), values(Values::NORMAL, n, 2));
        let all = values(Values::NORMAL, n, 1);
        assert_ne!(all[..CHUNK], all[CHUNK..2 * CHUNK], "chunks differ");
    }

    #[test]
    fn distributions_look_as_they_should() {
        let normal = values(Values::Normal { std: 2.0 }, 100_000, 7);
        let mean = normal.iter().sum::<f64>() / 1e5;
        let variance = normal.iter().map(|v| v * v).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.05 && (variance - 4.0).abs() < 0.1, "{mean} {variance}");
        let ones: f64 = values(Values::Bernoulli { p: 0.25 }, 100_000, 7).iter().sum();
        assert!((ones - 25_000.0).abs() < 1_000.0, "{ones}");
        assert!(
            values(Values::Integers { low: -3, high: 3 }, 999, 7).iter().all(|v| v.fract() == 0.0 && v.abs() <= 3.0)
        );
        // 1 + 1/2 + 1/3 + 1/4 is 25/12.
        let zipf = values(Values::Zipf { count: 4 }, 100_000, 7);
        let most = zipf.iter().filter(|&&v| v == 0.0).count();
        assert!(most.abs_diff(48_000) < 1_000 && zipf.iter().all(|v| [0.0, 1.0, 2.0, 3.0].contains(v)), "{most}");
        let specials = values(Values::Specials, 10_000, 7);
        assert!(specials.iter().any(|v| v.is_nan()) && specials.iter().any(|v| v.is_infinite()));
    }

    #[test]
    fn indices_are_what_they_are_called() {
        let offsets =
            tensor(&InputSpec::new("x", DType::I32, [9], Values::Offsets { total: 100 }), 3).unwrap().to_f64();
        assert!(offsets.is_sorted() && offsets[0] == 0.0 && offsets[8] == 100.0, "{offsets:?}");
        let mut pages = tensor(&InputSpec::new("x", DType::I32, [99], Values::Permutation), 3).unwrap().to_f64();
        assert!(!pages.is_sorted());
        pages.sort_by(f64::total_cmp);
        assert!(pages.iter().zip(0..).all(|(page, i)| *page == f64::from(i)));
        let hostile =
            tensor(&InputSpec::new("x", DType::I32, [999], Values::Hostile { bound: 7 }), 3).unwrap().to_f64();
        for value in [-1.0, 7.0, f64::from(i32::MIN), f64::from(i32::MAX), 3.0] {
            assert!(hostile.contains(&value), "{value}");
        }
    }

    #[test]
    fn long_tensors_repeat_with_a_prime_period() {
        let spec = InputSpec::normal("x", DType::F16, [PERIOD + 3]);
        let t = tensor(&spec, 1).unwrap();
        assert_eq!(t.bytes()[..6], t.bytes()[PERIOD * 2..]);
    }
}
