//! Chromium without a window, which tests open pages in: where it already is, or from Debian's packages, unpacked into `.toolchain/browser`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};

use super::debian::{self, Apt};
use super::{install, process, scratch, step};

/// Names a program to use.
const VARIABLE: &str = "WARPSMITH_CHROMIUM";
const NAMES: [&str; 4] = ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"];
/// The browser, and letters to write with.
const PACKAGES: [&str; 2] = ["chromium-headless-shell", "fonts-dejavu-core"];

/// Runs it from where it was unpacked.
const START: &str = r#"#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
for folder in "$here"/usr/lib/*-linux-gnu* "$here"/usr/lib/*-linux-gnu*/pulseaudio; do
    LD_LIBRARY_PATH="$folder:${LD_LIBRARY_PATH:-}"
done
export LD_LIBRARY_PATH FONTCONFIG_FILE="$here/fonts.conf"
exec "$here/usr/lib/chromium/chromium-headless-shell" "$@"
"#;

const FONTS: &str = r#"<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <dir prefix="relative">usr/share/fonts</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir prefix="xdg">fontconfig</cachedir>
  <match target="pattern">
    <test name="family"><string>system-ui</string></test>
    <edit name="family" mode="assign" binding="strong"><string>DejaVu Sans</string></edit>
  </match>
  <match target="pattern">
    <test name="family"><string>sans-serif</string></test>
    <edit name="family" mode="assign" binding="strong"><string>DejaVu Sans</string></edit>
  </match>
</fontconfig>
"#;

/// The browser, fetched if there is none.
pub(super) fn get(root: &Path) -> Result<PathBuf> {
    if let Some(found) = find(root) {
        return Ok(found);
    }
    unpack(root)?;
    find(root).context("the unpacked browser is not where it should be")
}

fn find(root: &Path) -> Option<PathBuf> {
    if let Some(named) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return Some(named.into());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = env::split_paths(&path).collect();
    let installed = NAMES.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    installed.chain([root.join(".toolchain/browser/chromium")]).find(|program| program.is_file())
}

fn unpack(root: &Path) -> Result<()> {
    for program in ["apt-get", "dpkg-deb", "tar"] {
        ensure!(process::exists(program), "this is not a Debian system ({program} is missing)");
    }
    let downloads = root.join(".toolchain/downloads-browser");
    fs::create_dir_all(&downloads).with_context(|| format!("cannot make {}", downloads.display()))?;
    let scratch = scratch(root)?;
    let browser = scratch.path().join("browser");
    fs::create_dir_all(&browser)?;
    let (_, packages) = debian::download(&downloads, |apt: &Apt| apt.missing(&PACKAGES))?;
    step("unpacking the browser", || {
        packages.iter().try_for_each(|package| debian::extract(&downloads, package, &["./*".to_owned()], &browser))
    })?;
    let start = browser.join("chromium");
    fs::write(&start, START)?;
    fs::set_permissions(&start, fs::Permissions::from_mode(0o755))?;
    fs::write(browser.join("fonts.conf"), FONTS)?;
    let mut version = std::process::Command::new(&start);
    process::output(version.arg("--version"), debian::QUICK).context("the unpacked browser does not run")?;
    install(&browser, &root.join(".toolchain/browser"))?;
    let _ = fs::remove_dir_all(&downloads);
    Ok(())
}
