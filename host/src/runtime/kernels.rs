//! The kernels that a device can load, as PTX.

mod archive;
mod spec;

use std::borrow::Cow;
use std::fmt;
use std::sync::OnceLock;

use ptx_archive::Archive;
pub use ptx_archive::{Arch, Resources};

pub(crate) use spec::KernelSpec;

use crate::runtime::error::{Error, Result};
use cuda_std::launch::Instance;

/// One kernel compiled for one architecture.
#[derive(Debug, Clone, Copy)]
pub struct KernelImage {
    /// Entry point.
    pub symbol: &'static str,
    /// Rust module that declares it.
    pub module: &'static str,
    /// Architecture.
    pub arch: Arch,
    /// Where its PTX is.
    pub code: Code,
    /// Most threads of a block, per dimension.
    pub block: [u32; 3],
    /// Blocks of a cluster, per dimension.
    pub cluster: [u32; 3],
    /// Dynamic shared memory.
    pub shared_bytes: u32,
    /// Whether it waits for the launch ahead in its stream by itself.
    pub programmatic: bool,
    /// Whether its blocks wait for each other, so that all of a grid have to be on the device at once.
    pub cooperative: bool,
    /// How far the driver's compiler is to optimise it, from 0 to 3; as it likes without.
    pub opt_level: Option<u32>,
    /// Bytes of each parameter.
    pub param_sizes: &'static [usize],
}

impl KernelImage {
    /// The PTX.
    pub fn ptx(&self) -> Result<Cow<'static, str>> {
        match self.code {
            Code::Text(ptx) => Ok(ptx.into()),
            Code::Archive(archive, index) => archive.ptx(index).map(Cow::from).map_err(|error| {
                let reason = format!("{}::{} for {}: {error}", self.module, self.symbol, self.arch);
                Error::KernelArchive { reason }
            }),
        }
    }

    /// What ptxas said of it when it was compiled, if there was one.
    pub fn resources(&self) -> Option<&'static Resources> {
        match self.code {
            Code::Text(_) => None,
            Code::Archive(archive, index) => archive.kernels().get(index)?.resources.as_ref(),
        }
    }

    /// Whether it is this kernel, for whatever architecture.
    pub(crate) fn is(&self, module: &str, symbol: &str) -> bool {
        self.symbol == symbol && self.module == module
    }
}

/// Where the PTX of a kernel is.
#[derive(Clone, Copy)]
pub enum Code {
    /// Here.
    Text(&'static str),
    /// In an archive, at this index.
    Archive(&'static Archive, usize),
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Code::Text(ptx) => write!(f, "{} bytes", ptx.len()),
            Code::Archive(_, index) => write!(f, "{index} of an archive"),
        }
    }
}

/// The kernels of one archive, which is read when they are first asked for. [`include_kernels!`](crate::include_kernels) makes
/// one.
#[derive(Debug)]
pub struct Kernels {
    open: Open,
    images: OnceLock<Result<&'static [KernelImage]>>,
}

#[derive(Debug)]
enum Open {
    Bytes(&'static [u8]),
    Own,
}

static OWN: Kernels = Kernels { open: Open::Own, images: OnceLock::new() };

impl Kernels {
    /// The kernels of an archive in memory.
    pub const fn embedded(archive: &'static [u8]) -> Self {
        Self { open: Open::Bytes(archive), images: OnceLock::new() }
    }

    /// The kernels, sorted by module, then symbol, then architecture.
    pub fn images(&self) -> Result<&'static [KernelImage]> {
        let images = self.images.get_or_init(|| match self.open {
            Open::Bytes(bytes) => {
                Archive::from_bytes(bytes).map(list).map_err(|error| Error::KernelArchive { reason: error.to_string() })
            }
            Open::Own => archive::open().map(list),
        });
        images.clone()
    }
}

/// An archive's kernels. They stay for the life of the process, as the modules do that are loaded from them.
fn list(archive: Archive) -> &'static [KernelImage] {
    let archive: &'static Archive = Box::leak(Box::new(archive));
    let image = |(index, kernel): (usize, &'static ptx_archive::Kernel)| KernelImage {
        symbol: &kernel.symbol,
        module: &kernel.module,
        arch: kernel.arch,
        code: Code::Archive(archive, index),
        block: kernel.block,
        cluster: kernel.cluster,
        shared_bytes: kernel.shared_bytes,
        programmatic: kernel.programmatic,
        cooperative: kernel.cooperative,
        opt_level: kernel.opt_level,
        param_sizes: kernel.params.iter().map(|param| param.bytes as usize).collect::<Vec<_>>().leak(),
    };
    archive.kernels().iter().enumerate().map(image).collect::<Vec<_>>().leak()
}

/// This crate's own kernels, sorted by module, then symbol, then architecture.
///
/// They are read from the file that `WARPSMITH_KERNELS` names. Without that, a program that was built in Warpsmith's own
/// workspace looks for `kernels.ptxa` beside itself, or above if its folder is `tests` or `benches`, and where the build wrote
/// it; all others carry the kernels in themselves.
pub fn images() -> Result<&'static [KernelImage]> {
    OWN.images()
}

/// What says which sources this crate's own kernels were built from: a hash.
pub fn sources() -> Result<&'static str> {
    Ok(match images()?.first().map(|image| image.code) {
        Some(Code::Archive(archive, _)) => archive.sources(),
        _ => "none",
    })
}

/// The images of a kernel of this crate, for every architecture that there is any for.
pub fn images_of(kernel: &Instance) -> Result<Vec<&'static KernelImage>> {
    Ok(images()?.iter().filter(|image| image.is(kernel.module, kernel.symbol)).collect())
}

/// An error if `image` takes other parameters, blocks, clusters or shared memory than the host launches it with.
pub fn check(kernel: &Instance, image: &KernelImage) -> Result<()> {
    KernelSpec::new(kernel).check(image)
}

/// Why this build has no kernels, if it was made without.
pub fn not_built() -> Option<&'static str> {
    archive::not_built()
}

/// The kernels that a user's build script has compiled with `cuda_builder`, for
/// [`Device::add_kernels`](crate::Device::add_kernels).
///
/// ```ignore
/// // build.rs: cuda_builder::CudaBuilder::new("../my-kernels").build()?;
/// let device = warpsmith::Device::open()?;
/// device.add_kernels(warpsmith::include_kernels!())?;
/// ```
///
/// With an argument it is the archive in that file, relative to the source file: of each of two crates of kernels, for example, whose
/// builders have an `archive` each, in `OUT_DIR`.
///
/// ```ignore
/// device.add_kernels(warpsmith::include_kernels!(concat!(env!("OUT_DIR"), "/second.ptxa")))?;
/// ```
#[macro_export]
macro_rules! include_kernels {
    () => {{
        static KERNELS: $crate::kernels::Kernels =
            $crate::kernels::Kernels::embedded(include_bytes!(concat!(
                env!("OUT_DIR", "`include_kernels!` takes what a build script has compiled: the crate needs a build.rs with a `CudaBuilder`"),
                "/kernels.ptxa"
            )));
        &KERNELS
    }};
    ($($file:tt)+) => {{
        static KERNELS: $crate::kernels::Kernels = $crate::kernels::Kernels::embedded(include_bytes!($($file)+));
        &KERNELS
    }};
}

/// Whether two sets are of one archive, which a program may carry twice: each `include_kernels!` is a copy of its own.
fn of_one_archive(a: &[KernelImage], b: &[KernelImage]) -> bool {
    let archive = |set: &[KernelImage]| match set.first()?.code {
        Code::Archive(archive, _) => Some(archive),
        Code::Text(_) => None,
    };
    let (Some(a), Some(b)) = (archive(a), archive(b)) else { return false };
    // An archive that was written by hand may lack the hash of its sources, and is then not compared.
    !a.sources().is_empty() && a.sources() == b.sources() && a.kernels() == b.kernels()
}

/// `added` to `sets`, unless one of them has one of its kernels for the same architecture.
pub(crate) fn add(sets: &mut Vec<&'static [KernelImage]>, added: &'static [KernelImage]) -> Result<()> {
    if sets.iter().any(|set| std::ptr::eq(*set, added) || of_one_archive(set, added)) {
        return Ok(());
    }
    // A build without kernels of its own has none that others could duplicate.
    let own = images().unwrap_or_default();
    let mut known = sets.iter().copied().chain([own]).flatten();
    let same = |a: &KernelImage, b: &KernelImage| a.is(b.module, b.symbol) && a.arch == b.arch;
    let duplicate = known.find(|image| added.iter().any(|other| same(image, other)));
    let inside = || (1..added.len()).find(|&i| added[..i].iter().any(|other| same(&added[i], other)));
    match duplicate.or_else(|| inside().map(|i| &added[i])) {
        Some(image) => Err(Error::DuplicateKernel { module: image.module, symbol: image.symbol, arch: image.arch }),
        None => {
            sets.push(added);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests;
