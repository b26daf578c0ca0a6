//! Finds and loads cuBLAS, and declares the functions that are called, under their own names.

use std::ffi::{OsString, c_int, c_longlong, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::Library as Loaded;

use crate::runtime::error::{Error, Result};

/// Names the folder to load the library from, where the linker does not find it.
const FOLDER_VARIABLE: &str = "WARPSMITH_CUBLAS";

/// The library's file names, newest first.
const NAMES: [&str; 3] = ["libcublas.so.13", "libcublas.so.12", "libcublas.so"];
/// The folder to search besides the linker's own search path.
const TOOLKIT: &str = "/usr/local/cuda/lib64";

/// A handle of the library.
pub(super) type Handle = *mut c_void;
type Status = u32;

macro_rules! functions {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        /// The loaded library.
        #[allow(non_snake_case, reason = "the library's names")]
        pub(in crate::check::peers) struct Library {
            /// The library that cuBLAS is built on, which that of some distributions would not find beside itself.
            _loaded: (Loaded, Option<Loaded>),
            path: PathBuf,
            $($name: unsafe extern "C" fn($($arg: $ty),*) -> Status,)*
        }

        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the library's names")]
        impl Library {
            fn new(loaded: Loaded, below: Option<Loaded>, path: PathBuf) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the signatures are those of cublas_api.h; the library is kept for as long as they are.
                    $($name: *unsafe { loaded.get(concat!(stringify!($name), "\0").as_bytes()) }?,)*
                    _loaded: (loaded, below),
                    path,
                })
            }

            $(
                /// # Safety
                /// As the library's documentation has it.
                pub(super) unsafe fn $name(&self, $($arg: $ty),*) -> Result<()> {
                    // SAFETY: passed on.
                    check(stringify!($name), unsafe { (self.$name)($($arg),*) })
                }
            )*
        }
    };
}

functions! {
    cublasCreate_v2(handle: *mut Handle);
    cublasDestroy_v2(handle: Handle);
    cublasSetStream_v2(handle: Handle, stream: *mut c_void);
    cublasSetWorkspace_v2(handle: Handle, workspace: *mut c_void, bytes: usize);
    cublasGetProperty(property: c_int, value: *mut c_int);
    cublasGemmEx(
        handle: Handle,
        transa: c_int,
        transb: c_int,
        m: c_int,
        n: c_int,
        k: c_int,
        alpha: *const c_void,
        a: *const c_void,
        atype: c_int,
        lda: c_int,
        b: *const c_void,
        btype: c_int,
        ldb: c_int,
        beta: *const c_void,
        c: *mut c_void,
        ctype: c_int,
        ldc: c_int,
        compute: c_int,
        algo: c_int,
    );
    cublasGemmStridedBatchedEx(
        handle: Handle,
        transa: c_int,
        transb: c_int,
        m: c_int,
        n: c_int,
        k: c_int,
        alpha: *const c_void,
        a: *const c_void,
        atype: c_int,
        lda: c_int,
        stridea: c_longlong,
        b: *const c_void,
        btype: c_int,
        ldb: c_int,
        strideb: c_longlong,
        beta: *const c_void,
        c: *mut c_void,
        ctype: c_int,
        ldc: c_int,
        stridec: c_longlong,
        batch: c_int,
        compute: c_int,
        algo: c_int,
    );
}

impl Library {
    /// The library, loaded at the first call and kept for the life of the process.
    pub(in crate::check::peers) fn get() -> Result<&'static Self> {
        static LIBRARY: OnceLock<Result<Library>> = OnceLock::new();
        let folder = || std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty());
        LIBRARY.get_or_init(|| load(folder())).as_ref().map_err(Clone::clone)
    }

    /// Its path.
    pub(in crate::check::peers) fn path(&self) -> &Path {
        &self.path
    }

    /// Its name and version.
    pub(in crate::check::peers) fn version(&self) -> String {
        let mut version = [0; 3];
        for (property, value) in (0..).zip(&mut version) {
            // SAFETY: the pointer is to a live integer.
            let _ = unsafe { self.cublasGetProperty(property, value) };
        }
        format!("cuBLAS {}.{}.{}", version[0], version[1], version[2])
    }
}

/// Loads it from that folder, or from the linker's search path.
fn load(folder: Option<OsString>) -> Result<Library> {
    let folders: Vec<PathBuf> = match &folder {
        Some(folder) => vec![folder.into()],
        // A bare name is looked up by the linker.
        None => vec![PathBuf::new(), TOOLKIT.into()],
    };
    let mut damaged = None;
    for (folder, name) in folders.iter().flat_map(|folder| NAMES.map(|name| (folder, name))) {
        match open(folder, name) {
            Ok(library) => return Ok(library),
            Err(error) if folder.join(name).exists() => damaged = damaged.or(Some(error)),
            Err(_) => {}
        }
    }
    let place = folder.map_or("where the linker looks".into(), |folder| format!("in {}", folder.display()));
    let why = damaged.map_or_else(|| format!("no {} {place}", NAMES[0]), |error| error.to_string());
    let reason = format!("{why}; {FOLDER_VARIABLE} names its folder");
    Err(Error::BackendUnavailable { backend: super::NAME.to_owned(), reason })
}

fn open(folder: &Path, name: &str) -> Result<Library, libloading::Error> {
    let path = folder.join(name);
    let below = folder.join(name.replacen("cublas", "cublasLt", 1));
    // SAFETY: loading the libraries runs their initialisers, which is what they are asked for.
    let (below, loaded) = unsafe { (Loaded::new(below).ok(), Loaded::new(&path)?) };
    Library::new(loaded, below, path)
}

fn check(function: &'static str, status: Status) -> Result<()> {
    let name = match status {
        0 => return Ok(()),
        1 => "NOT_INITIALIZED",
        3 => "ALLOC_FAILED",
        7 => "INVALID_VALUE",
        8 => "ARCH_MISMATCH",
        11 => "MAPPING_ERROR",
        13 => "EXECUTION_FAILED",
        14 => "INTERNAL_ERROR",
        15 => "NOT_SUPPORTED",
        16 => "LICENSE_ERROR",
        _ => "of a newer version",
    };
    let call = function.strip_suffix("_v2").unwrap_or(function);
    Err(Error::Driver { call, code: status, name: format!("CUBLAS_STATUS_{name}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_errors_with_their_function() {
        assert_eq!(check("cublasGemmEx", 0), Ok(()));
        let said = |function, status| check(function, status).unwrap_err().to_string();
        assert_eq!(said("cublasGemmEx", 15), "cublasGemmEx failed: CUBLAS_STATUS_NOT_SUPPORTED (15)");
        assert!(said("cublasCreate_v2", 99).starts_with("cublasCreate failed"));
    }

    #[test]
    fn what_is_not_there_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let why = || load(Some(folder.path().into())).err().unwrap();
        assert!(why().is_environment() && why().to_string().contains("no libcublas.so.13 in"), "{}", why());
        std::fs::write(folder.path().join("libcublas.so.12"), "not a library").unwrap();
        assert!(
            why().to_string().contains("libcublas.so.12") && why().to_string().contains(FOLDER_VARIABLE),
            "{}",
            why()
        );
    }
}
