//! ptxas from NVIDIA's wheel on PyPI.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result};

use super::{install, process, scratch, step};

const WHEEL: &str = "nvidia-cuda-nvcc==13.0.*";

/// Unpacks ptxas into `.toolchain/cuda/bin`.
pub(super) fn download(root: &Path) -> Result<()> {
    let python = ["python3", "python"]
        .into_iter()
        .find(|name| process::exists(name))
        .context("it comes from PyPI, and there is no Python here; or install CUDA and set PTXAS")?;
    let scratch = scratch(root)?;
    let wheels = scratch.path().join("wheels");
    step("downloading ptxas from PyPI", || {
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest"])
            .arg(&wheels)
            .arg(WHEEL);
        process::output(&mut pip, Duration::from_secs(600))
    })?;
    let wheel = fs::read_dir(&wheels)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .context("pip downloaded no wheel")?;
    let cuda = scratch.path().join("cuda");
    fs::create_dir_all(cuda.join("bin"))?;
    step("unpacking ptxas", || {
        // A wheel is a zip file, and Python can read those everywhere.
        let unpacked = scratch.path().join("unpacked");
        let mut unzip = Command::new(python);
        unzip.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked);
        process::output(&mut unzip, Duration::from_secs(120))?;
        let ptxas = find(&unpacked).context("the wheel has no ptxas")?;
        let target = cuda.join("bin/ptxas");
        fs::rename(ptxas, &target)?;
        make_executable(&target)
    })?;
    install(&cuda, &root.join(".toolchain/cuda"))
}

/// The file `ptxas` somewhere under `folder`.
fn find(folder: &Path) -> Option<std::path::PathBuf> {
    let entries = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let here = files.into_iter().find(|path| path.file_name().is_some_and(|name| name == "ptxas"));
    here.or_else(|| folders.iter().find_map(|folder| find(folder)))
}

#[cfg(unix)]
fn make_executable(file: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(fs::set_permissions(file, fs::Permissions::from_mode(0o755))?)
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> Result<()> {
    Ok(())
}
