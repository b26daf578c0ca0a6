//! Several things timed in turns, so that none of them has the best of the clock.
//!
//! A GPU at its power limit lowers its clock while it works: of equal kernels that are timed one after the other, the first looks faster than
//! the last, products by up to a tenth. Here each has a part of its launches in every round, and its samples of all rounds are merged. Rounds
//! go forth and back, which evens out what the clock loses within one, and each pair of them begins with another contender, so that nobody is
//! always at an end.

use std::time::Duration;

use crate::runtime::error::{Error, Result};

/// Rounds. In each, everyone has a tenth of its launches.
pub(super) const ROUNDS: usize = 10;

/// How long the contenders keep the device busy before the first round, all of them together. The clock loses most of what it loses at the
/// beginning, and a least time is one turn's: the first ones would have the least. What is timed alone does without.
const SETTLE: Duration = Duration::from_millis(50);

/// What can launch contenders, which have numbers.
pub(super) trait Contest {
    /// Launches a contender a few times, and then for about as long as `busy`. How many launches of it are to be timed.
    fn warm_up(&mut self, which: usize, busy: Duration) -> Result<usize>;

    /// Milliseconds of each of so many launches of it, without a warm-up: that another contender's code is in the caches costs the first one
    /// microseconds. Where launches are short it is one of many, and a median does not show it.
    fn turn(&mut self, which: usize, launches: usize) -> Result<Vec<f64>>;
}

/// What came of it.
pub(super) struct Turns {
    /// Each one's milliseconds, the least first. Nothing if it failed, or had no turn before a kernel failed.
    times: Vec<Vec<f64>>,
    /// Who failed, in the order in which it happened.
    pub failed: Vec<(usize, Error)>,
}

impl Turns {
    /// Median and least milliseconds.
    pub(super) fn median_and_least(&self, which: usize) -> Option<(f64, f64)> {
        let times = &self.times[which];
        Some((*times.get(times.len() / 2)?, times[0]))
    }
}

/// Times `count` contenders. One that fails is out; a failed kernel ends all, since nothing runs on its device any more.
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

/// Who comes when in a round.
fn order(count: usize, round: usize) -> impl Iterator<Item = usize> {
    let turn = move |at: usize| if round.is_multiple_of(2) { at } else { count - 1 - at };
    (0..count).map(move |at| (turn(at) + round / 2) % count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device whose clock falls by a tenth as it works, at a rate.
    struct Falling {
        /// Milliseconds of a launch of each at the highest clock, and how many are timed.
        kernels: Vec<(f64, usize)>,
        /// Milliseconds in which the clock loses most of what it has to lose.
        within: f64,
        now: f64,
        /// Who had how many launches in which order.
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

    /// By how much the largest is above the least, as a share of that.
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
