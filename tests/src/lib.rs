//! What the tests share: a device if there is one, and the command with its output captured.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use warpsmith::{BackendKind, Device};

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

fn required() -> bool {
    std::env::var_os("WARPSMITH_REQUIRE_DEVICE").is_some()
}

/// How a run of the command ended.
pub struct Output {
    /// Exit code.
    pub code: u8,
    /// Standard output.
    pub out: String,
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
    let (out, err) = (Captured::default(), Captured::default());
    let code = warpsmith::cli::run(std::iter::once(&"warpsmith").chain(args), out.clone(), err.clone());
    Output { code, out: out.text(), err: err.text() }
}

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
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
