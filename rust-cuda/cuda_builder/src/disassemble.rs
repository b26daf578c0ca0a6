//! Converts bitcode to text: runs `llvm-dis` on the modules that are new since earlier builds.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs,
    hash::Hasher as _,
    path::{Path, PathBuf},
};

use crate::{
    Error,
    cache::{self, hash},
    compile::{self, pipe},
    error::Problem,
    ir, parallel, scratch,
    toolchain::Toolchain,
};

/// The modules of a crate, as text in files.
pub(crate) struct Modules<'a> {
    toolchain: &'a Toolchain,
    bitcode: &'a [Vec<u8>],
    files: Vec<PathBuf>,
}

impl<'a> Modules<'a> {
    /// Disassembles new modules, and indexes their contents. Only the texts of the last build are kept in `folder`, because
    /// they are large.
    pub(crate) fn new(
        toolchain: &'a Toolchain,
        folder: &Path,
        bitcode: &'a [Vec<u8>],
    ) -> Result<(Modules<'a>, Vec<ir::Index>), Error> {
        fs::create_dir_all(folder).map_err(|source| Error::File { path: folder.to_owned(), source })?;
        let name = |module: &Vec<u8>| {
            let name = hash(|hasher| {
                hasher.write(format!("{} {}", compile::FORMAT, toolchain.rustc_version).as_bytes());
                hasher.write(module);
            });
            folder.join(format!("{name}.ll"))
        };
        let modules = Modules { toolchain, bitcode, files: bitcode.iter().map(name).collect() };
        let places: Vec<usize> = (0..bitcode.len()).collect();
        let indexes = parallel::map(&places, |&place| modules.index(place)).into_iter().collect::<Result<_, _>>()?;
        let known: HashSet<Option<&OsStr>> = modules.files.iter().map(|file| file.file_stem()).collect();
        for entry in folder.read_dir().into_iter().flatten().flatten() {
            if !known.contains(&entry.path().file_stem()) {
                // Another build that needs it will recreate it.
                let _ = fs::remove_file(entry.path());
            }
        }
        Ok((modules, indexes))
    }

    fn index(&self, place: usize) -> Result<ir::Index, Error> {
        let file = self.files[place].with_extension("json");
        if let Some(index) = cache::read(&file) {
            return Ok(index);
        }
        let index = ir::Index::of(&ir::Module::parse(&self.text(place)?));
        // A result that cannot be cached only costs time.
        let _ = cache::write(&file, &index);
        Ok(index)
    }

    /// The text of a module.
    pub(crate) fn text(&self, place: usize) -> Result<String, Error> {
        let file = &self.files[place];
        if let Ok(text) = fs::read_to_string(file) {
            return Ok(text);
        }
        let mut command = self.toolchain.llvm_tool("llvm-dis");
        command.args(["-o", "-", "-"]);
        let text = pipe("llvm-dis", command, &self.bitcode[place]).map_err(|problem| match problem {
            Problem::Tool { message, .. } => Error::Bitcode(message),
            other => Error::Bitcode(other.to_string()),
        })?;
        let _ = scratch::replace(file, text.as_bytes());
        Ok(text)
    }
}
