//! Times several contenders in turns, so that none of them has the best of the clock.
//!
//! A GPU at its power limit lowers its clock while it works: of equal kernels that are timed one after the other, the first
//! looks faster than the last, for products by up to a tenth. Here each contender gets a part of its launches in every round,
//! and its samples from all rounds are merged. Rounds alternate in direction, which evens out the clock drop within one, and
//! each pair of rounds begins with another contender, so that none is always first or last.

use std::time::Duration;

use crate::runtime::error::{Error, Result};

/// The number of rounds. In each, every contender gets a tenth of its launches.
pub(super) const ROUNDS: usize = 10;

/// How long all contenders together keep the device busy before the first round. The clock drops most at the beginning, and a
/// minimum time comes from a single turn, so the first contenders would have the lowest minima. Something that is timed alone
/// does not need this.
const SETTLE: Duration = Duration::from_millis(50);

/// Launches contenders, which are numbered.
pub(super) trait Contest {
    /// Launches a contender a few times, and then for about as long as `busy`. Returns how many of its launches are to be timed.
    fn warm_up(&mut self, which: usize, busy: Duration) -> Result<usize>;

    /// Milliseconds of each of this number of launches, without a warm-up: as another contender's code is in the caches, the
    /// first launch takes microseconds longer. Where launches are short, it is one of many, and a median does not show it.
    fn turn(&mut self, which: usize, launches: usize) -> Result<Vec<f64>>;
}

/// The results.
pub(super) struct Turns {
    /// The milliseconds of each contender, in ascending order. Empty if it failed, or had no turn before a kernel failed.
    times: Vec<Vec<f64>>,
    /// The contenders that failed, in the order of their failures.
    pub failed: Vec<(usize, Error)>,
}

impl Turns {
    /// Median and least milliseconds.
    pub(super) fn median_and_least(&self, which: usize) -> Option<(f64, f64)> {
        let times = &self.times[which];
        Some((*times.get(times.len() / 2)?, times[0]))
    }
}

/// Times `count` contenders. One that fails is dropped; a failed kernel ends the contest, since its device can run
/// nothing any more.
pub(super) fn in_turns(contest: &mut impl Contest, count: usize) -> Turns {
    let mut turns = Turns { times: vec![Vec::new(); count], failed: Vec::new() };
    let mut runs = vec![0; count];
    let busy = if count > 1 { SETTLE / count as u32 } else { Duration::ZERO };
    let warm_up = (0..count).map(|which| (which, None));
    let rounds = (0..ROUNDS).flat_map(|round| order(count, round).map(move |which| (which, Some(round))));
    for (which, round) in warm_up.chain(rounds) {
        let done = match round {
            None => contest.warm_up(which, busy).map(|launches| runs[which] = launches),
            Some(_) if runs[which] == 0 => continue,
            Some(round) => {
                let launches = runs[which] * (round + 1) / ROUNDS - runs[which] * round / ROUNDS;
                contest.turn(which, launches).map(|times| turns.times[which].extend(times))
            }
        };
        if let Err(error) = done {
            let ends = matches!(error, Error::KernelFault { .. });
            runs[which] = 0;
            turns.times[which].clear();
            turns.failed.push((which, error));
            if ends {
                break;
            }
        }
    }
    turns.times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    turns
}

/// The order of the contenders in a round.
fn order(count: usize, round: usize) -> impl Iterator<Item = usize> {
    let turn = move |at: usize| if round.is_multiple_of(2) { at } else { count - 1 - at };
    (0..count).map(move |at| (turn(at) + round / 2) % count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device whose clock falls by a tenth as it works, at a rate.
    struct Falling {
        /// The milliseconds of a launch of each kernel at the highest clock, and how many launches are timed.
        kernels: Vec<(f64, usize)>,
        /// The milliseconds in which the clock completes most of its drop.
        within: f64,
        now: f64,
        /// Which contender had how many launches, in order.
        log: Vec<(usize, usize)>,
        fails: Option<(usize, fn() -> Error)>,
    }

    impl Falling {
        fn new(kernels: &[(f64, usize)], within: f64) -> Self {
            Self { kernels: kernels.to_vec(), within, now: 0.0, log: Vec::new(), fails: None }
        }

        fn launch(&mut self, which: usize) -> f64 {
            let clock = 0.9 + 0.1 * (-self.now / self.within).exp();
            let took = self.kernels[which].0 / clock;
            self.now += took;
            took
        }

        /// Medians and least times of all.
        fn times(&mut self) -> Vec<(f64, f64)> {
            let turns = in_turns(self, self.kernels.len());
            (0..self.kernels.len()).map(|which| turns.median_and_least(which).unwrap()).collect()
        }
    }

    impl Contest for Falling {
        fn warm_up(&mut self, which: usize, busy: Duration) -> Result<usize> {
            let until = self.now + 1e3 * busy.as_secs_f64();
            while self.now < until {
                self.launch(which);
            }
            Ok(self.kernels[which].1)
        }

        fn turn(&mut self, which: usize, launches: usize) -> Result<Vec<f64>> {
            if let Some((_, error)) = self.fails.filter(|fails| fails.0 == which && self.log.len() > 3) {
                return Err(error());
            }
            self.log.push((which, launches));
            Ok((0..launches).map(|_| self.launch(which)).collect())
        }
    }

    /// How far the maximum is above the minimum, as a fraction of the latter.
    fn apart(times: impl Iterator<Item = f64> + Clone) -> f64 {
        times.clone().fold(0.0, f64::max) / times.fold(f64::INFINITY, f64::min) - 1.0
    }

    /// How far medians are apart of kernels that are timed one after the other.
    fn one_after_the_other(device: &mut Falling) -> f64 {
        let medians = (0..device.kernels.len()).map(|which| {
            let times = device.turn(which, device.kernels[which].1).unwrap();
            times[times.len() / 2]
        });
        apart(medians.collect::<Vec<_>>().into_iter())
    }

    #[test]
    fn equal_kernels_are_equal_while_the_clock_falls() {
        for (kernel, count) in [((0.17, 200), 2), ((0.17, 200), 5), ((1.5, 100), 3), ((12.0, 13), 3), ((0.02, 200), 8)]
        {
            for within in [10.0, 30.0, 100.0, 300.0, 1000.0] {
                let times = Falling::new(&vec![kernel; count], within).times();
                let (medians, least) = (apart(times.iter().map(|t| t.0)), apart(times.iter().map(|t| t.1)));
                assert!(medians < 0.005, "{kernel:?} {count} {within}: medians are {medians} apart");
                assert!(least < 0.02, "{kernel:?} {count} {within}: least times are {least} apart");
            }
        }
        for (count, within) in [(3, 30.0), (5, 100.0)] {
            let apart = one_after_the_other(&mut Falling::new(&vec![(0.17, 200); count], within));
            assert!(apart > 0.03, "the clock does not fall: {count} {within} {apart}");
        }
    }

    #[test]
    fn all_launches_are_timed_in_rounds_that_go_forth_and_back() {
        let mut device = Falling::new(&[(1.0, 200), (10.0, 13), (1.0, 10)], 1.0);
        device.times();
        let of = |which: usize| device.log.iter().filter(move |turn| turn.0 == which).map(|turn| turn.1);
        assert_eq!([0, 1, 2].map(|which| of(which).sum::<usize>()), [200, 13, 10]);
        assert_eq!([0, 1, 2].map(|which| of(which).count()), [ROUNDS; 3]);
        let order: Vec<_> = device.log.iter().map(|turn| turn.0).collect();
        assert_eq!(order[..12], [0, 1, 2, 2, 1, 0, 1, 2, 0, 0, 2, 1]);
    }

    #[test]
    fn who_fails_is_out_and_a_failed_kernel_ends_all() {
        let three = || Falling::new(&[(1.0, 200); 3], 1.0);
        let refused = || Error::param("turn", "which", 1, "another");
        let mut device = Falling { fails: Some((1, refused)), ..three() };
        let turns = in_turns(&mut device, 3);
        assert_eq!(turns.failed.iter().map(|failed| failed.0).collect::<Vec<_>>(), [1]);
        assert_eq!([0, 1, 2].map(|which| turns.times[which].len()), [200, 0, 200]);
        let fault = || Error::KernelFault { kernels: vec!["kernel"], code: 700, name: "illegal address".to_owned() };
        let mut device = Falling { fails: Some((1, fault)), ..three() };
        let turns = in_turns(&mut device, 3);
        assert_eq!((turns.failed.len(), turns.failed[0].0), (1, 1));
        assert_eq!([0, 1, 2].map(|which| turns.times[which].len()), [20, 0, 40]);
    }
}
