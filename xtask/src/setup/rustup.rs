//! The device toolchain from rustup: two components of the pinned toolchain.

use std::{
    env,
    net::{TcpStream, ToSocketAddrs as _},
    path::Path,
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};

use super::{process, step};

const SERVER: &str = "static.rust-lang.org:443";

/// Adds Rust's sources and LLVM's tools to the toolchain that is active in `root`.
pub(super) fn add_components(root: &Path) -> Result<()> {
    ensure!(process::exists("rustup"), "rustup is not installed");
    // rustup tries for minutes when its server does not answer.
    if !through_another_way() {
        reachable().context("its server does not answer")?;
    }
    step("rustup component add rust-src llvm-tools", || {
        let mut command = Command::new("rustup");
        command.args(["component", "add", "rust-src", "llvm-tools"]).current_dir(root);
        process::output(&mut command, Duration::from_secs(180)).map(drop)
    })
}

/// Whether downloads go through a proxy or a mirror, of which a connection to the server says nothing.
fn through_another_way() -> bool {
    ["RUSTUP_DIST_SERVER", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
        .into_iter()
        .any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()))
}

fn reachable() -> Result<()> {
    let address = SERVER.to_socket_addrs()?.next().context("it has no address")?;
    TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    Ok(())
}
