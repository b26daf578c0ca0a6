//! A stand-in for `libcuda.so.1`: "device" memory is host memory, work is done when it is queued, and every call that matters is
//! logged. Compiled by the tests, configured by `FAKE_*` variables.

#![crate_type = "cdylib"]
#![allow(non_snake_case, clippy::missing_safety_doc)]

macro_rules! api {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $ty),*) -> u32 {
                crate::state::CALLS.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                unsafe { $body }
            }
        )*
    };
}

mod device;
mod memory;
mod module;
mod state;
mod stream;
