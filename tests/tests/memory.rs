//! What operators take beyond what they read and write, by the allocator's counters: on a GPU at full size, in the simulator small.

use std::error::Error;
use std::sync::{Mutex, PoisonError};

use warpsmith::ops::{Attention, CrossEntropy, Entropy, Linear, LinearCrossEntropy, Saved};
use warpsmith::{Device, Stream, Tensor, bf16, ops};
use warpsmith_tests::own_device;

/// On a GPU all tests share the counters.
static ALONE: Mutex<()> = Mutex::new(());

type Outcome = Result<(), Box<dyn Error>>;

/// Small numbers in a pattern.
fn values(n: usize) -> Vec<bf16> {
    (0..n).map(|i| bf16::from_f32(((i * 7 + i / 5) % 13) as f32 / 64.0 - 0.1)).collect()
}

fn tensor<const N: usize>(stream: &Stream, shape: [usize; N]) -> warpsmith::Result<Tensor<bf16>> {
    Tensor::from_slice(stream, shape, &values(shape.iter().product()))
}

/// The most bytes that were allocated at a time during `work`, beyond what was before it.
fn peak<T>(device: &Device, stream: &Stream, work: impl FnOnce() -> warpsmith::Result<T>) -> warpsmith::Result<u64> {
    stream.synchronize()?;
    device.reset_peak()?;
    let before = device.allocated()?.0;
    let result = work()?;
    stream.synchronize()?;
    let most = device.allocated()?.1 - before;
    drop(result);
    println!("{most} bytes");
    Ok(most)
}

#[test]
fn logits_of_a_linear_loss_stay_in_their_budget() -> Outcome {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(device) = own_device() else { return Ok(()) };
    let (rows, d, classes, budget) = match device.simulator() {
        Some(_) => (64, 16, 264, 8 * 264 * 2),
        None => (8192, 4096, 128_256, 1 << 30),
    };
    let stream = device.stream()?;
    let (hidden, weight) = (tensor(&stream, [rows, d])?, tensor(&stream, [classes, d])?);
    let targets = Tensor::from_slice(&stream, [rows], &vec![1i32; rows])?;
    let options = LinearCrossEntropy::new(CrossEntropy::mean()).memory(budget);
    let gradients = (rows * d * 2 + classes * d * 4) as u64;
    let in_budget = |name: &str, most: u64| {
        let beyond = most - gradients;
        println!("{name}: {beyond} bytes beyond the gradients");
        // Beside the logits there is what the losses take, which is some words a row.
        assert!(beyond <= (budget + 64 * rows + 1024) as u64, "{name}: {beyond} bytes beyond the gradients");
        assert!(
            beyond >= (budget / 2) as u64,
            "{name}: {beyond} bytes are too few for the logits: is anything counted?"
        );
    };
    let most = peak(&device, &stream, || {
        ops::linear_cross_entropy_with_gradient(&stream, &hidden, &weight, &targets, &options)
    })?;
    in_budget("cross-entropy", most);
    let dentropies = Tensor::filled(&stream, [rows], 1.0)?;
    let options = Linear::new(Entropy::new()).memory(budget);
    let most =
        peak(&device, &stream, || ops::linear_entropy_with_gradient(&stream, &hidden, &weight, &dentropies, &options))?;
    in_budget("entropy", most);
    Ok(())
}

#[test]
fn attention_holds_no_matrix_of_scores() -> Outcome {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(device) = own_device() else { return Ok(()) };
    let (length, d) = if device.simulator().is_some() { (192, 64) } else { (16_384, 64) };
    let stream = device.stream()?;
    let shape = [1, 1, length, d];
    let [q, k, v, d_o] = [(); 4].map(|()| tensor(&stream, shape));
    let (q, k, v, d_o) = (q?, k?, v?, d_o?);
    let options = Attention::causal();
    let scores = (length * length * 2) as u64;
    let operand = (length * d * 2) as u64;
    let forward = peak(&device, &stream, || ops::attention_with_lse(&stream, &q, &k, &v, &options))?;
    assert!(forward >= operand && forward < 2 * operand && forward < scores, "{forward} bytes forward");
    let (o, lse) = ops::attention_with_lse(&stream, &q, &k, &v, &options)?;
    let saved = Saved { q: q.view(), k: k.view(), v: v.view(), o: o.view(), lse: lse.view() };
    let backward = peak(&device, &stream, || ops::attention_backward(&stream, &saved, &d_o, &options))?;
    // Three gradients, and one of them in f32 while it is summed.
    assert!(backward >= 3 * operand && backward < 7 * operand, "{backward} bytes backward, an operand has {operand}");
    Ok(())
}
