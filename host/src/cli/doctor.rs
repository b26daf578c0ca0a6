//! `warpsmith doctor`.

use comfy_table::{Cell, Color};
use cuda_builder::{ptxas, toolchain};
use serde::Serialize;
use serde_json::json;

use super::{BackendArg, Outcome, Ui, ui};
use crate::check::registry::OPERATORS;
use crate::check::{lessons, peers};
use crate::runtime::device::{BackendKind, Device, DeviceInfo};
use crate::runtime::error::{Error, Result};
use crate::runtime::kernels;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Say what the device is made of as well, and its peaks
    #[arg(long)]
    device: bool,
    #[command(flatten)]
    backend: BackendArg,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Found {
    Ok,
    /// Something works less well without it.
    Optional,
    /// Operators cannot run without it.
    Missing,
}

#[derive(Serialize)]
struct Finding {
    what: &'static str,
    found: Found,
    detail: String,
    /// What to do about it.
    fix: Option<&'static str>,
}

pub(super) fn run(args: &Args, ui: &mut Ui) -> Result<Outcome> {
    let mut findings = device(&args.backend);
    findings.extend([kernels(), device_toolchain(), assembler(), peer()]);
    let ready = findings.iter().all(|f| f.found != Found::Missing);
    let anatomy = if args.device { args.backend.open().ok() } else { None };
    let anatomy = anatomy.map(|device| lessons::of_device(device.info()));
    ui.document(&json!({ "ready": ready, "findings": findings, "device": anatomy }));
    let cells = |f: &Finding| {
        let word = match f.found {
            Found::Ok => Cell::new("ok").fg(Color::Green),
            Found::Optional => Cell::new("optional").fg(Color::Yellow),
            Found::Missing => Cell::new("MISSING").fg(Color::Red),
        };
        vec![Cell::new(f.what), word, Cell::new(&f.detail)]
    };
    ui.table(&["what", "", "detail"], findings.iter().map(cells).collect());
    for finding in &findings {
        if let Some(fix) = finding.fix {
            ui.line(format!("{}: {fix}", finding.what));
        }
    }
    if let Some(anatomy) = &anatomy {
        ui.line("");
        ui::facts(anatomy, ui);
    }
    let verdict = if ready { "Operators can run here." } else { "Operators cannot run here." };
    ui.line(verdict);
    Ok(if ready { Outcome::Ok } else { Outcome::EnvironmentMissing })
}

fn ok(what: &'static str, detail: String) -> Finding {
    Finding { what, found: Found::Ok, detail, fix: None }
}

fn device(backend: &BackendArg) -> Vec<Finding> {
    let describe = |device: &Device| {
        let info = device.info();
        let (major, minor) = info.compute_capability;
        let archs: Vec<_> = device.archs().iter().map(|a| a.as_str()).collect();
        let memory = info.memory_bytes >> 30;
        let tuned = tuned(device);
        if device.simulator().is_some() {
            // It has no choices to follow, but may be told of a file that is none.
            return [simulated(info)].into_iter().chain(Some(tuned).filter(|tuned| tuned.found != Found::Ok)).collect();
        }
        vec![
            ok("backend", info.backend.to_string()),
            ok("driver", format!("CUDA {}", info.driver_version)),
            ok(
                "device",
                format!(
                    "{}, compute capability {major}.{minor}, {} multiprocessors, {memory} GiB; runs {}",
                    info.name,
                    info.multiprocessors,
                    archs.join(", ")
                ),
            ),
            tuned,
        ]
    };
    let error = match backend.open() {
        Ok(device) => return describe(&device),
        Err(error) => error,
    };
    let (what, fix) = match &error {
        Error::NoDriver { .. } => ("driver", "install the NVIDIA driver; the CUDA toolkit is not needed"),
        Error::NamedDriver { .. } => ("driver", "let WARPSMITH_LIBCUDA name the driver's library, or leave it unset"),
        Error::DriverTooOld { .. } => ("driver", "update the NVIDIA driver"),
        Error::NoGpu { .. } => {
            ("device", "check that `nvidia-smi` lists a GPU and that CUDA_VISIBLE_DEVICES does not hide it")
        }
        Error::UnsupportedDevice { .. } => ("device", "use a GPU of compute capability 8.0 (Ampere) or newer"),
        Error::BackendUnavailable { .. } => ("backend", "leave out --backend and WARPSMITH_BACKEND, or choose another"),
        _ => ("device", "see the error; `nvidia-smi` shows whether the driver works"),
    };
    vec![Finding { what, found: Found::Missing, detail: error.to_string(), fix: Some(fix) }]
}

fn tuned(device: &Device) -> Finding {
    let what = "tuned choices";
    let error = match device.tuned() {
        Ok(tuned) => return ok(what, tuned.len().to_string()),
        Err(error) => error,
    };
    let (found, fix) = match device.can_launch_products() {
        true => (
            Found::Optional,
            "launches follow the plan; `warpsmith tune` measures again, `warpsmith tune --clear` removes the file",
        ),
        false => (
            Found::Missing,
            "products fail; let WARPSMITH_TUNED name a file that `warpsmith tune` wrote, or be `off` or not set",
        ),
    };
    Finding { what, found, detail: error.to_string(), fix: Some(fix) }
}

/// Works, but is no GPU.
fn simulated(info: &DeviceInfo) -> Finding {
    let why = match Device::open_backend(BackendKind::Cuda) {
        Ok(_) => "chosen although there is a GPU".to_owned(),
        Err(error) => error.to_string(),
    };
    Finding {
        what: "device",
        found: Found::Optional,
        detail: format!("{}; {why}", info.name),
        fix: Some("kernels run in the simulator, checked but slow; a GPU needs the NVIDIA driver and nothing else"),
    }
}

fn kernels() -> Finding {
    let what = "kernels";
    match kernels::images() {
        Ok(images) => ok(what, format!("{}, for {} operators", images.len(), OPERATORS.len())),
        Err(error) => Finding {
            what,
            found: Found::Missing,
            detail: error.to_string(),
            fix: Some("build again, without the feature `no-kernels`"),
        },
    }
}

fn device_toolchain() -> Finding {
    let what = "device toolchain";
    match toolchain::find() {
        Ok(found) => ok(what, format!("{}: {}, LLVM tools {}", found.origin, found.rustc_version, found.llvm_major)),
        Err(error) => Finding {
            what,
            found: Found::Optional,
            detail: format!(
                "not found, needed to change kernels only: {}",
                error.to_string().lines().next().unwrap_or_default()
            ),
            fix: Some("in the repository run `cargo xtask setup`"),
        },
    }
}

fn assembler() -> Finding {
    let what = "ptxas";
    match ptxas::find() {
        Some(ptxas) => {
            let (major, minor) = ptxas.version();
            ok(what, format!("{major}.{minor} at {}", ptxas.path().display()))
        }
        None => Finding {
            what,
            found: Found::Optional,
            detail: "not found, needed to show registers and spills only".to_owned(),
            fix: Some("in the repository run `cargo xtask setup`, or set PTXAS to its path"),
        },
    }
}

fn peer() -> Finding {
    let what = "cuBLAS";
    match peers::find() {
        Ok(found) => ok(what, found),
        Err(error) => Finding {
            what,
            found: Found::Optional,
            detail: format!("not found, needed to time products beside it only: {error}"),
            fix: Some("install it, or set WARPSMITH_CUBLAS to its folder: PyTorch's packages hold it as well"),
        },
    }
}
