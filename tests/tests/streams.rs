//! Streams cannot race in safe code: random calls on several streams, from several threads, leave what the same calls one by one
//! would. In the simulator streams run as late as their waits allow, in orders drawn from a seed; on a GPU they run as they do.
//!
//! `WARPSMITH_STRESS` is the number of calls: a few thousand if it is not set.

use std::sync::{Mutex, PoisonError};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpsmith::sim::{self, GpuModel, Settings};
use warpsmith::{Device, Event, Result, Stream, Tensor, ViewMut, ops};
use warpsmith_tests::device;

/// Tensors that all threads share, and elements of each.
const TENSORS: usize = 8;
const LEN: usize = 48;

fn calls() -> usize {
    std::env::var("WARPSMITH_STRESS").map_or(3000, |n| n.parse().expect("WARPSMITH_STRESS is a number of calls"))
}

/// A tensor, and what it has to contain.
struct Slot {
    tensor: Tensor<f32>,
    expected: Vec<f32>,
}

/// What the threads work on.
struct World {
    streams: Vec<Stream>,
    slots: Vec<Mutex<Slot>>,
}

/// A part of a tensor, and of what it has to contain.
type Piece<'a> = (ViewMut<'a, f32>, &'a mut [f32]);

impl World {
    fn new(device: &Device, streams: usize) -> Result<Self> {
        let streams = (0..streams).map(|_| device.stream()).collect::<Result<Vec<_>>>()?;
        let slot = |i: usize| {
            let tensor = Tensor::zeros(&streams[i % streams.len()], [LEN])?;
            Ok(Mutex::new(Slot { tensor, expected: vec![0.0; LEN] }))
        };
        let slots = (0..TENSORS).map(slot).collect::<Result<_>>()?;
        Ok(Self { streams, slots })
    }

    fn stream(&self, rng: &mut SmallRng) -> &Stream {
        &self.streams[rng.random_range(0..self.streams.len())]
    }

    /// One call on one or two tensors, or what it found to be wrong.
    fn step(&self, rng: &mut SmallRng, events: &mut Vec<Event>) -> Result<(), String> {
        let from = rng.random_range(0..TENSORS - 1);
        let to = rng.random_range(from + 1..TENSORS);
        // Every thread locks in this order.
        let mut first = self.slots[from].lock().unwrap_or_else(PoisonError::into_inner);
        let mut second = self.slots[to].lock().unwrap_or_else(PoisonError::into_inner);
        let (mut first, mut second) = (&mut *first, &mut *second);
        if rng.random() {
            std::mem::swap(&mut first, &mut second);
        }
        let said = |error: warpsmith::Error| error.to_string();
        match rng.random_range(0..16) {
            0 => self.check(rng, first)?,
            1 => self.replace(rng, first).map_err(said)?,
            2 => self.order(rng, events).map_err(said)?,
            3 => self.both_halves(rng, first).map_err(said)?,
            4..7 => self.set(rng, (first.tensor.view_mut(), &mut first.expected)).map_err(said)?,
            7..11 => self.copy(rng, first, second).map_err(said)?,
            _ => self.launch(rng, first, second).map_err(said)?,
        }
        Ok(())
    }

    /// Reads on any stream.
    fn check(&self, rng: &mut SmallRng, slot: &Slot) -> Result<(), String> {
        let found = slot.tensor.to_vec(self.stream(rng)).map_err(|error| error.to_string())?;
        match found.iter().zip(&slot.expected).position(|(found, expected)| found != expected) {
            Some(i) => Err(format!("element {i} is {}, not {}", found[i], slot.expected[i])),
            None => Ok(()),
        }
    }

    /// Drops the tensor, which streams still use, for a new one.
    fn replace(&self, rng: &mut SmallRng, slot: &mut Slot) -> Result<()> {
        let value = value(rng);
        slot.expected.fill(value);
        slot.tensor = match rng.random() {
            true => Tensor::filled(self.stream(rng), [LEN], value)?,
            false => Tensor::from_slice(self.stream(rng), [LEN], &slot.expected)?,
        };
        Ok(())
    }

    /// Orders streams by hand, which changes nothing.
    fn order(&self, rng: &mut SmallRng, events: &mut Vec<Event>) -> Result<()> {
        if events.len() < 4 {
            events.push(self.stream(rng).record()?);
        }
        let event = &events[rng.random_range(0..events.len())];
        match rng.random_range(0..6) {
            0 => event.synchronize(),
            1 => event.is_done().map(drop),
            2 => self.stream(rng).record_into(event),
            3 => {
                events.pop();
                Ok(())
            }
            _ => self.stream(rng).wait(event),
        }
    }

    /// Writes a piece from the host or on the device.
    fn set(&self, rng: &mut SmallRng, (mut view, expected): Piece<'_>) -> Result<()> {
        let start = rng.random_range(0..expected.len());
        let end = rng.random_range(start..=expected.len());
        let value = value(rng);
        expected[start..end].fill(value);
        let mut piece = view.reborrow().slice(start..end)?;
        match rng.random() {
            true => piece.fill(self.stream(rng), value),
            false => piece.write(self.stream(rng), &expected[start..end]),
        }
    }

    /// Writes the two halves of a tensor in turn, each on any stream.
    fn both_halves(&self, rng: &mut SmallRng, slot: &mut Slot) -> Result<()> {
        let mid = rng.random_range(1..LEN);
        let (mut head, mut tail) = slot.tensor.view_mut().split_at(mid)?;
        let (expected_head, expected_tail) = slot.expected.split_at_mut(mid);
        for _ in 0..3 {
            self.set(rng, (head.reborrow(), expected_head))?;
            self.set(rng, (tail.reborrow(), expected_tail))?;
        }
        Ok(())
    }

    /// Copies a piece of one tensor into another.
    fn copy(&self, rng: &mut SmallRng, from: &Slot, to: &mut Slot) -> Result<()> {
        let len = rng.random_range(0..=LEN);
        let (at, into) = (rng.random_range(0..=LEN - len), rng.random_range(0..=LEN - len));
        to.expected[into..into + len].copy_from_slice(&from.expected[at..at + len]);
        let mut target = to.tensor.slice_mut(into..into + len)?;
        target.copy_from(self.stream(rng), from.tensor.slice(at..at + len)?)
    }

    /// Runs a kernel from one tensor into another. Values are so large that the function is the identity, to the last bit.
    fn launch(&self, rng: &mut SmallRng, from: &Slot, to: &mut Slot) -> Result<()> {
        to.expected.copy_from_slice(&from.expected);
        if rng.random() {
            return ops::gelu_into(self.stream(rng), &from.tensor, &mut to.tensor);
        }
        to.tensor = ops::gelu(self.stream(rng), &from.tensor)?;
        Ok(())
    }
}

/// A value that no other call writes, with luck, and that gelu does not change.
fn value(rng: &mut SmallRng) -> f32 {
    rng.random_range(1 << 10..1 << 24) as f32
}

/// Makes `calls` random calls in as many threads, and compares all tensors at the end.
fn stress(device: &Device, streams: usize, threads: usize, calls: usize, seed: u64) -> Result<(), String> {
    let world = World::new(device, streams).map_err(|error| error.to_string())?;
    let body = |thread: usize| {
        let mut rng = SmallRng::seed_from_u64(seed.wrapping_mul(31).wrapping_add(thread as u64));
        let mut events = Vec::new();
        (0..calls / threads).try_for_each(|_| world.step(&mut rng, &mut events))
    };
    let settings = device.simulator().map(|simulator| Settings { seed, threads: 1, ..simulator.settings() });
    let simulated = |thread: usize| match (device.simulator(), settings) {
        (Some(simulator), Some(settings)) => simulator.with(settings, || body(thread)),
        _ => body(thread),
    };
    let mut results = match threads {
        1 => vec![simulated(0)],
        _ => std::thread::scope(|scope| {
            let all: Vec<_> = (0..threads).map(|i| scope.spawn(move || simulated(i))).collect();
            all.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
        }),
    };
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut end = |slot: &Mutex<Slot>| world.check(&mut rng, &slot.lock().unwrap_or_else(PoisonError::into_inner));
    results.extend(world.slots.iter().map(&mut end));
    results.into_iter().collect()
}

/// A simulated device of one's own: the same seed gives the same run.
fn simulated() -> Device {
    sim::open(&GpuModel::H100).expect("the simulator opens")
}

#[test]
fn streams_do_not_race_in_the_simulator() {
    for (streams, calls, seed) in [(2, calls(), 1), (3, calls() / 4, 2), (2, calls() / 4, 3)] {
        let result = stress(&simulated(), streams, 1, calls, seed);
        assert_eq!(result, Ok(()), "{streams} streams, seed {seed}");
    }
}

#[test]
fn threads_do_not_race_in_the_simulator() {
    for (streams, threads, seed) in [(3, 3, 5), (2, 4, 6)] {
        let result = stress(&simulated(), streams, threads, calls() / 4, seed);
        assert_eq!(result, Ok(()), "{streams} streams, {threads} threads, seed {seed}");
    }
}

#[test]
fn streams_do_not_race_on_the_device() {
    let Some(device) = device() else { return };
    for (streams, threads, seed) in [(2, 1, 7), (3, 3, 8)] {
        let result = stress(&device, streams, threads, calls() / 4, seed);
        assert_eq!(result, Ok(()), "{streams} streams, {threads} threads, seed {seed}");
    }
}

/// The tests above can fail: without the waits, every seed shows it.
#[test]
fn missing_waits_are_found() {
    for seed in 1..9 {
        let device = simulated();
        let result = device.simulator().expect("it is simulated").unordered(|| stress(&device, 2, 1, 1000, seed));
        let found = result.expect_err("streams that do not wait are noticed");
        eprintln!("seed {seed}: {found}");
    }
}
