use std::cell::RefCell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::runtime::kernels::KernelImage;

thread_local! {
    /// What this thread has launched, while somebody asks for it.
    static LAUNCHED: RefCell<Option<Vec<(&'static str, &'static str)>>> = const { RefCell::new(None) };
}

/// Runs `body` and lists the kernels that it launches on this thread: module and symbol, in order.
pub(crate) fn launched<T>(body: impl FnOnce() -> T) -> (T, Vec<(&'static str, &'static str)>) {
    let outer = LAUNCHED.replace(Some(Vec::new()));
    let value = body();
    (value, LAUNCHED.replace(outer).unwrap_or_default())
}

/// The kernels launched last, without locks: what a fault is blamed on.
#[derive(Default)]
pub(super) struct Recent {
    ring: [AtomicPtr<KernelImage>; 8],
    next: AtomicUsize,
}

impl Recent {
    pub(super) fn push(&self, image: &'static KernelImage) {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.ring.len();
        self.ring[at].store(ptr::from_ref(image).cast_mut(), Ordering::Release);
        // Nobody asks a thread that has ended, and drops what it kept for itself.
        let _ = LAUNCHED.try_with(|list| {
            if let Some(list) = &mut *list.borrow_mut() {
                list.push((image.module, image.symbol));
            }
        });
    }

    pub(super) fn newest_first(&self) -> Vec<&'static str> {
        let next = self.next.load(Ordering::Relaxed);
        let mut symbols: Vec<&'static str> = (1..=self.ring.len())
            .filter_map(|back| {
                let at = next.wrapping_sub(back) % self.ring.len();
                // SAFETY: only `push` stores, and only pointers from `&'static`.
                unsafe { self.ring[at].load(Ordering::Acquire).as_ref() }
            })
            .map(|image: &'static KernelImage| image.symbol)
            .collect();
        symbols.dedup();
        symbols
    }
}
