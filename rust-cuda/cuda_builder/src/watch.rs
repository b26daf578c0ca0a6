//! Telling cargo what a build script depends on.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::{cargo, sources::PARTS, toolchain};

/// Tells cargo what a build script depends on. Outside of a build script it prints nothing.
pub(crate) struct Watch {
    in_build_script: bool,
    /// The workspace of the crate, or the crate itself.
    workspace: PathBuf,
}

impl Watch {
    pub(crate) fn new(crate_folder: &Path) -> Watch {
        let watch = Watch {
            in_build_script: env::var_os("OUT_DIR").is_some() && env::var_os("TARGET").is_some(),
            workspace: cargo::workspace(crate_folder).to_owned(),
        };
        if watch.in_build_script {
            for name in [toolchain::ENV, "PTXAS"] {
                println!("cargo::rerun-if-env-changed={name}");
            }
        }
        watch.existing(&watch.workspace, &["Cargo.lock"]);
        watch.package(crate_folder);
        watch
    }

    pub(crate) fn path(&self, path: &Path) {
        if self.in_build_script {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }

    pub(crate) fn package(&self, folder: &Path) {
        self.existing(folder, &PARTS);
    }

    fn existing(&self, folder: &Path, names: &[&str]) {
        names.iter().map(|name| folder.join(name)).filter(|path| path.exists()).for_each(|path| self.path(&path));
    }

    /// Paths that change when a toolchain is completed: rustup's list of components, and the folder that the setup writes to.
    pub(crate) fn for_a_toolchain(&self) {
        if let Some(sysroot) = toolchain::active_sysroot(&self.workspace) {
            self.existing(&sysroot, &["lib/rustlib/components"]);
        }
        self.existing(&self.workspace, &[".toolchain"]);
    }
}
