//! Maps a function over many values, on as many threads as there are cores.

use std::{
    panic::resume_unwind,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

/// The number of threads.
pub(crate) fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The results, in the order of the values, which are also started in this order.
pub(crate) fn map<T: Sync, R: Send>(values: &[T], function: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut results = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(value) = values.get(index) else { return results };
            results.push((index, function(value)));
        }
    };
    let mut results = thread::scope(|scope| {
        let count = threads().min(values.len());
        let workers: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, Vec<(usize, R)>>| {
            worker.join().unwrap_or_else(|panic| resume_unwind(panic))
        };
        workers.into_iter().flat_map(join).collect::<Vec<_>>()
    });
    results.sort_by_key(|&(index, _)| index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order() {
        let values: Vec<u32> = (0..1000).collect();
        assert_eq!(map(&values, |value| 2 * value), values.iter().map(|value| 2 * value).collect::<Vec<_>>());
        assert!(map(&[], |value: &u32| *value).is_empty());
    }
}
