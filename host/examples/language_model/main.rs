//! A small language model of Llama's form, made of the library's operators: it learns a text, this file unless another is named, and then writes on.
//!
//! ```console
//! $ cargo run --release -p warpsmith --example language_model [FILE [STEPS]]
//! ```
//!
//! On a GPU a step takes milliseconds; without one the simulator runs the same kernels, some seconds a step.
//!
//! Weights, gradients and moments lie in one tensor each, so that a step of AdamW is one launch. The forward keeps what the backward needs; the
//! logits never exist as a whole, nor do attention's scores. What writes has a KV cache, and no token leaves the device before the text is done.

mod model;
mod train;
mod write;

use warpsmith::ops::Sampling;
use warpsmith::{Device, Result};

use crate::model::{BATCH, Model, TOKENS};

fn tokens_of(text: &str) -> Vec<i32> {
    text.bytes().map(|byte| if byte.is_ascii() { i32::from(byte) } else { 0 }).collect()
}

/// Pieces of the text for one step, [`TOKENS`] tokens and the one behind them each.
fn pieces(text: &[i32], step: usize) -> Vec<i32> {
    let last = text.len() - TOKENS - 1;
    (0..BATCH)
        .flat_map(|i| {
            // Steps of the golden ratio spread evenly, however many there are.
            let share = ((step * BATCH + i) as f64 * 0.618_033_988_749_895).fract();
            let at = (share * last as f64) as usize;
            text[at..at + TOKENS + 1].iter().copied()
        })
        .collect()
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let text = match args.next() {
        Some(path) => std::fs::read_to_string(&path).unwrap_or_else(|error| exit(&format!("{path}: {error}"))),
        None => include_str!("main.rs").to_owned(),
    };
    let steps =
        args.next().map_or(100, |steps| steps.parse().unwrap_or_else(|error| exit(&format!("{steps}: {error}"))));
    let text = tokens_of(&text);
    if text.len() <= TOKENS + 1 {
        exit(&format!("the text has {} bytes, and more than {} are needed", text.len(), TOKENS + 1));
    }

    let device = Device::open()?;
    let mut model = Model::new(device.stream()?)?;
    println!("{} weights, on {device}", model.master.len());
    for step in 0..steps {
        let loss = model.train(&pieces(&text, step))?;
        if step % 10 == 0 || step + 1 == steps {
            println!("step {step}: {loss:.3} nats a token");
        }
    }
    let sampling = Sampling { temperature: 0.8, top_k: Some(20), ..Sampling::default() };
    let written = model.write(&text[..8], 128, sampling)?;
    println!("{}", written.iter().map(|&id| char::from(id as u8)).collect::<String>());
    Ok(())
}

fn exit(why: &str) -> ! {
    eprintln!("language_model: {why}");
    std::process::exit(2)
}

#[cfg(test)]
mod tests {
    use warpsmith::Tensor;

    use super::*;
    use crate::model::VOCABULARY;

    fn model() -> Result<Model> {
        Model::new(Device::open()?.stream()?)
    }

    #[test]
    fn losses_fall() -> Result<()> {
        let mut model = model()?;
        let text = tokens_of(&"a rose is ".repeat(40));
        let losses = (0..8).map(|step| model.train(&pieces(&text, step))).collect::<Result<Vec<_>>>()?;
        // Nothing is known at first, and of these letters there are six.
        assert!((losses[0] - (VOCABULARY as f32).ln()).abs() < 0.3, "{losses:?}");
        assert!(losses[7] < 2.5, "{losses:?}");
        Ok(())
    }

    /// Token after token, through caches and decoding, the model gives what it gives for all tokens at once.
    #[test]
    fn writing_agrees_with_training() -> Result<()> {
        let model = model()?;
        let stream = &model.stream;
        let text = tokens_of(&"abcdefghijklmnopqrstuvwxyz ".repeat(10));
        let ids = &text[..BATCH * TOKENS];
        let (x, _) = model.forward(&Tensor::from_slice(stream, [ids.len()], ids)?, &model.positions()?)?;
        let together = model.logits(&x)?.to_f32(stream)?;
        let mut caches = model.caches(16)?;
        for (position, together) in (0..16).zip(together.chunks(VOCABULARY)) {
            let id = Tensor::from_slice(stream, [1], &ids[position..position + 1])?;
            let alone = model.next(&id, position, &mut caches)?.to_f32(stream)?;
            let apart = together.iter().zip(&alone).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            // Logits are below 4, and rounded to 8 bits on a dozen occasions.
            assert!(apart < 0.06, "position {position}: {apart}");
        }
        Ok(())
    }
}
