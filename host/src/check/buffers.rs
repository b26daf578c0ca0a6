//! A pool of large buffers. The system hands out memory in pages that it clears one by one at their first use, which takes
//! several times as long as refilling a used buffer.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Smaller buffers are not kept.
const LARGE: usize = 1 << 20;
/// A case of two inputs and an output, run twice.
const MOST: usize = 4;

static IDLE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// A buffer of this many bytes with arbitrary contents.
pub(super) fn take(bytes: usize) -> Vec<u8> {
    let mut idle = idle();
    let fits = |buffer: &&Vec<u8>| buffer.len() >= bytes && bytes >= LARGE;
    let best = idle.iter().filter(fits).map(Vec::len).min();
    let Some(at) = best.and_then(|best| idle.iter().position(|buffer| buffer.len() == best)) else {
        drop(idle);
        return vec![0; bytes];
    };
    let mut buffer = idle.swap_remove(at);
    buffer.truncate(bytes);
    buffer
}

/// Keeps a buffer for later.
pub(super) fn give(buffer: Vec<u8>) {
    if buffer.len() < LARGE {
        return;
    }
    let mut idle = idle();
    idle.push(buffer);
    if idle.len() > MOST
        && let Some(least) = (0..idle.len()).min_by_key(|at| idle[*at].len())
    {
        idle.swap_remove(least);
    }
}

fn idle() -> MutexGuard<'static, Vec<Vec<u8>>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_that_fits_is_used_again() {
        // Sizes that no other test of this process uses.
        let (small, large) = (LARGE + 12_345, 2 * LARGE + 12_345);
        give(vec![1; large]);
        give(vec![2; small]);
        assert_eq!(take(small - 1), vec![2; small - 1]);
        assert_eq!(take(small), vec![1; small]);
        assert_eq!(take(9), [0; 9]);
    }
}
