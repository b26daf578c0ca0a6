//! One compressed file with the PTX of many kernels.
//!
//! `cuda_builder` [writes](fn@write) it, the host reads it: the list of kernels at once, the code of one when it is asked for.
//! The kernels of a module are much alike and are compressed together: reading one inflates its module, once. Those that differ in their
//! architecture's name only are stored once.
//!
//! ```
//! use ptx_archive::{Arch, Archive, Kernel};
//!
//! let ptx = ".version 7.8\n.target sm_80\n.address_size 64\n\n.visible .entry nothing()\n{ ret; }\n";
//! let kernel = Kernel {
//!     symbol: "nothing".to_owned(),
//!     module: "example".to_owned(),
//!     arch: Arch::Sm80,
//!     block: [32, 1, 1],
//!     min_blocks: 0,
//!     cluster: [1, 1, 1],
//!     shared_bytes: 0,
//!     no_spills: false,
//!     programmatic: false,
//!     cooperative: false,
//!     opt_level: None,
//!     params: vec![],
//!     resources: None,
//! };
//! let bytes = ptx_archive::write("hash of the sources", &[(kernel, ptx)], None);
//! let archive = Archive::from_bytes(bytes)?;
//! assert_eq!(archive.kernels()[0].symbol, "nothing");
//! assert_eq!(archive.ptx(0)?, ptx);
//! # Ok::<(), ptx_archive::Error>(())
//! ```

mod arch;
#[cfg_attr(not(feature = "write"), allow(dead_code))] // What is read can be written.
mod codec;
mod error;
mod kernel;
mod part;
#[cfg(feature = "write")]
mod write;

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

use codec::{Field, Place};
use part::Part;

pub use arch::{Arch, cuda_of_ptx};
pub use error::Error;
pub use kernel::{Kernel, Param, ParamKind, Resources};
#[cfg(feature = "write")]
pub use write::write;

/// How an archive file starts. The last byte is the version of the format.
const MAGIC: &[u8; 8] = b"PTXA\r\n\x1a\x05";

/// The usual name of an archive file.
pub const FILE_NAME: &str = "kernels.ptxa";

/// An archive that has been opened: its list is read, its code is not.
pub struct Archive {
    data: Cow<'static, [u8]>,
    sources: String,
    kernels: Vec<Kernel>,
    places: Vec<Place>,
    parts: Vec<(Part, OnceLock<Option<Vec<u8>>>)>,
    /// Where the code starts.
    code: usize,
}

impl Archive {
    /// Opens an archive in memory.
    pub fn from_bytes(data: impl Into<Cow<'static, [u8]>>) -> Result<Archive, Error> {
        let data = data.into();
        let (magic, mut rest) = data.split_first_chunk::<8>().ok_or(Error::NotAnArchive)?;
        if magic[..7] != MAGIC[..7] {
            return Err(Error::NotAnArchive);
        }
        if magic[7] != MAGIC[7] {
            return Err(Error::Version { found: magic[7], expected: MAGIC[7] });
        }
        let corrupt = || Error::Corrupt("list of kernels");
        let index = Part::get(&mut rest).ok_or_else(corrupt)?;
        let fields = index.text(rest).ok_or_else(corrupt)?;
        let (sources, kernels, places, parts) = index_fields(&mut &*fields).ok_or_else(corrupt)?;
        let code = data.len() - rest.len() + index.compressed as usize;
        let parts = parts.into_iter().map(|part| (part, OnceLock::new())).collect();
        Ok(Archive { sources, kernels, places, parts, code, data })
    }

    /// Opens an archive file.
    pub fn open(file: &Path) -> Result<Archive, Error> {
        let mut file = File::open(file).map_err(Error::Io)?;
        let mut data = Vec::new();
        file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut data).map_err(Error::Io)?;
        // Anything else may have no end.
        if data.starts_with(&MAGIC[..7]) {
            file.read_to_end(&mut data).map_err(Error::Io)?;
        }
        Archive::from_bytes(data)
    }

    /// What its writer said of the sources it was built from: a hash.
    pub fn sources(&self) -> &str {
        &self.sources
    }

    /// The kernels, sorted by module, then symbol, then architecture.
    pub fn kernels(&self) -> &[Kernel] {
        &self.kernels
    }

    /// The PTX of the kernel at `index` of [`kernels`](Self::kernels).
    pub fn ptx(&self, index: usize) -> Result<String, Error> {
        let place = self.places.get(index).ok_or(Error::Corrupt("list of kernels"))?;
        let body = self
            .part(place.part as usize)
            .and_then(|text| text.get(place.offset as usize..)?.get(..place.length as usize))
            .and_then(|body| std::str::from_utf8(body).ok())
            .ok_or(Error::Corrupt("code of a kernel"))?;
        Ok(format!("{}{body}", place.head))
    }

    /// The text of a part, inflated when it is first asked for.
    fn part(&self, index: usize) -> Option<&[u8]> {
        let (part, text) = self.parts.get(index)?;
        text.get_or_init(|| part.text(self.data.get(self.code..)?)).as_deref()
    }
}

type Index = (String, Vec<Kernel>, Vec<Place>, Vec<Part>);

fn index_fields(from: &mut &[u8]) -> Option<Index> {
    let fields = (Field::get(from)?, Vec::<Kernel>::get(from)?, Vec::<Place>::get(from)?, Field::get(from)?);
    (fields.1.len() == fields.2.len() && fields.1.is_sorted_by_key(Kernel::key)).then_some(fields)
}

#[cfg(all(test, feature = "write"))]
mod tests;
