//! Bitcode as text: `llvm-dis` of the modules that an earlier build did not have.

use std::{
    collections::HashSet,
    fs,
    hash::Hasher as _,
    path::{Path, PathBuf},
};

use crate::{Error, compile::pipe, error::Problem, frontend::hash, parallel, scratch, toolchain::Toolchain};

/// The texts of modules. Those of the last build are kept in `folder`, and no others: they are large.
pub(crate) fn all(toolchain: &Toolchain, folder: &Path, modules: &[Vec<u8>]) -> Result<Vec<String>, Error> {
    fs::create_dir_all(folder).map_err(|source| Error::File { path: folder.to_owned(), source })?;
    let text = |module: &Vec<u8>| {
        let name = hash(|hasher| {
            hasher.write(toolchain.rustc_version.as_bytes());
            hasher.write(module);
        });
        let file = folder.join(format!("{name}.ll"));
        one(toolchain, &file, module).map(|text| (file, text))
    };
    let (files, texts) =
        parallel::map(modules, text).into_iter().collect::<Result<(HashSet<PathBuf>, Vec<String>), _>>()?;
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        if !files.contains(&entry.path()) {
            // Another build may need it, which then makes it again.
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(texts)
}

fn one(toolchain: &Toolchain, file: &Path, module: &[u8]) -> Result<String, Error> {
    if let Ok(text) = fs::read_to_string(file) {
        return Ok(text);
    }
    let mut command = toolchain.llvm_tool("llvm-dis");
    command.args(["-o", "-", "-"]);
    let text = pipe("llvm-dis", command, module).map_err(|problem| match problem {
        Problem::Tool { message, .. } => Error::Bitcode(message),
        other => Error::Bitcode(other.to_string()),
    })?;
    // What cannot be kept costs time and nothing else.
    let _ = scratch::replace(file, text.as_bytes());
    Ok(text)
}
