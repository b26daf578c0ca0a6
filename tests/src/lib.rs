//! What the tests share: a device if there is one, and the command with its output captured.

#[cfg(doctest)]
mod book;

use std::cell::OnceCell;
use std::io::{self, Cursor, Write};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use warpsmith::{BackendKind, Device, sim};

/// The device: a GPU, or the simulator where there is none. With `WARPSMITH_REQUIRE_DEVICE` set there has to be a GPU. `None`, with
/// a line that says so, where `WARPSMITH_BACKEND` asks for one that is not there.
///
/// # Panics
/// If a device is there and does not open, or is required.
pub fn device() -> Option<Device> {
    let opened = match required() {
        true => Device::open_backend(BackendKind::Cuda),
        false => Device::open(),
    };
    match opened {
        Ok(device) => Some(device),
        Err(error) if error.is_environment() && !required() => {
            eprintln!("skipped without a device: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The same, but a simulator of this thread's own: a device simulates one launch at a time.
///
/// # Panics
/// As [`device`].
pub fn own_device() -> Option<Device> {
    thread_local! {
        static OWN: OnceCell<Option<Device>> = const { OnceCell::new() };
    }
    let open = || match device()? {
        shared if shared.simulator().is_none() => Some(shared),
        _ => Some(sim::unshared().expect("a simulator opens")),
    };
    OWN.with(|own| own.get_or_init(open).clone())
}

fn required() -> bool {
    std::env::var_os("WARPSMITH_REQUIRE_DEVICE").is_some()
}

/// How a run of the command ended.
pub struct Output {
    /// Exit code.
    pub code: u8,
    /// Standard output.
    pub out: String,
    /// Standard output, byte by byte.
    pub bytes: Vec<u8>,
    /// Standard error.
    pub err: String,
}

impl Output {
    /// Standard output as JSON.
    ///
    /// # Panics
    /// If it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}

/// Runs the `warpsmith` command in this process.
pub fn warpsmith(args: &[&str]) -> Output {
    warpsmith_on(Vec::new(), args)
}

/// Runs the command with something on its standard input.
pub fn warpsmith_on(input: Vec<u8>, args: &[&str]) -> Output {
    let (out, err) = (Captured::default(), Captured::default());
    let args = std::iter::once(&"warpsmith").chain(args);
    let code = warpsmith::cli::run(args, Cursor::new(input), out.clone(), err.clone());
    let bytes = out.bytes();
    Output { code, out: String::from_utf8_lossy(&bytes).into_owned(), bytes, err: err.text() }
}

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
