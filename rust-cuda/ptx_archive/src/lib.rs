//! One compressed file with the PTX of many kernels.
//!
//! `cuda_builder` [writes](fn@write) it, the host reads it: the list of kernels at once, the code of one when it is asked for.
//! Kernels are compressed one by one, so that reading one inflates no other; those that differ in their architecture's name
//! only are stored once.
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
//!     params: vec![],
//!     resources: None,
//! };
//! let bytes = ptx_archive::write("hash of the sources", &[(kernel, ptx)]);
//! let archive = Archive::from_bytes(bytes)?;
//! assert_eq!(archive.kernels()[0].symbol, "nothing");
//! assert_eq!(archive.ptx(0)?, ptx);
//! # Ok::<(), ptx_archive::Error>(())
//! ```

mod arch;
mod codec;
mod error;
mod kernel;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use miniz_oxide::{deflate, inflate};

use codec::{Field, Place};

pub use arch::Arch;
pub use error::Error;
pub use kernel::{Kernel, Param, ParamKind, Resources};

/// How an archive file starts. The last byte is the version of the format.
const MAGIC: &[u8; 8] = b"PTXA\r\n\x1a\x01";

/// The usual name of an archive file.
pub const FILE_NAME: &str = "kernels.ptxa";

/// zlib's own best compromise: kernels are written once and read often.
const LEVEL: u8 = 9;

/// An archive that has been opened: its list is read, its code is not.
pub struct Archive {
    data: Cow<'static, [u8]>,
    sources: String,
    kernels: Vec<Kernel>,
    places: Vec<Place>,
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
        let compressed = u32::get(&mut rest).ok_or_else(corrupt)? as usize;
        let length = u32::get(&mut rest).ok_or_else(corrupt)?;
        let index = rest.get(..compressed).and_then(|index| inflate(index, length)).ok_or_else(corrupt)?;
        let (sources, kernels, places) = index_fields(&mut &index[..]).ok_or_else(corrupt)?;
        let code = data.len() - rest.len() + compressed;
        Ok(Archive { sources, kernels, places, code, data })
    }

    /// Opens an archive file.
    pub fn open(file: &Path) -> Result<Archive, Error> {
        std::fs::read(file).map_err(Error::Io).and_then(Archive::from_bytes)
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
        let code = self.data.get(self.code..).and_then(|code| code.get(place.offset as usize..));
        let body = code
            .and_then(|code| code.get(..place.compressed as usize))
            .and_then(|code| inflate(code, place.length))
            .and_then(|body| String::from_utf8(body).ok())
            .ok_or(Error::Corrupt("code of a kernel"))?;
        Ok(format!("{}{body}", place.head))
    }
}

fn index_fields(from: &mut &[u8]) -> Option<(String, Vec<Kernel>, Vec<Place>)> {
    let fields = (String::get(from)?, Vec::<Kernel>::get(from)?, Vec::<Place>::get(from)?);
    (fields.1.len() == fields.2.len() && fields.1.is_sorted_by_key(Kernel::key)).then_some(fields)
}

/// Inflates what was `length` bytes long; the checksum of the format tells whether it still is.
fn inflate(data: &[u8], length: u32) -> Option<Vec<u8>> {
    let data = inflate::decompress_to_vec_zlib_with_limit(data, length as usize).ok()?;
    (data.len() == length as usize).then_some(data)
}

/// Writes an archive of `kernels`, each with its PTX. `sources` is kept beside them: a hash of what they were built from.
pub fn write<'a>(sources: &str, kernels: &[(Kernel, &'a str)]) -> Vec<u8> {
    let mut sorted: Vec<&(Kernel, &'a str)> = kernels.iter().collect();
    sorted.sort_by(|a, b| a.0.key().cmp(&b.0.key()));
    let mut code = Vec::new();
    let mut written = HashMap::new();
    let mut places = Vec::new();
    for (_, ptx) in &sorted {
        let (head, body) = ptx.split_at(head_length(ptx));
        let (offset, compressed) = *written.entry(body).or_insert_with(|| {
            let offset = code.len();
            code.extend(deflate::compress_to_vec_zlib(body.as_bytes(), LEVEL));
            (codec::length(offset), codec::length(code.len() - offset))
        });
        places.push(Place { head: head.to_owned(), offset, compressed, length: codec::length(body.len()) });
    }
    let mut index = Vec::new();
    sources.to_owned().put(&mut index);
    codec::length(sorted.len()).put(&mut index);
    sorted.iter().for_each(|(kernel, _)| kernel.put(&mut index));
    places.put(&mut index);
    let compressed = deflate::compress_to_vec_zlib(&index, LEVEL);
    let mut out = MAGIC.to_vec();
    codec::length(compressed.len()).put(&mut out);
    codec::length(index.len()).put(&mut out);
    out.extend(compressed);
    out.extend(code);
    out
}

/// The length of a module's first lines: version, target and address size.
fn head_length(ptx: &str) -> usize {
    let Some(at) = ptx.find("\n.address_size") else { return 0 };
    ptx[at + 1..].find('\n').map_or(0, |end| at + 1 + end + 1)
}

#[cfg(test)]
mod tests;
