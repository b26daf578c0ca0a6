//! Finds and loads CUPTI, and declares the functions that are called, under their own names.

use std::ffi::{CStr, OsString, c_char};
use std::fmt;
use std::path::{Path, PathBuf};

use libloading::Library;

use super::{CuptiError, FOLDER_VARIABLE};

/// The library's file names, newest first.
const NAMES: [&str; 3] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"];
/// Folders to search besides the linker's own search path.
const TOOLKIT: [&str; 2] = ["/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/lib64"];

/// Kinds of records, by cupti_activity.h.
pub(super) const DRIVER: u32 = 4;
pub(super) const CONCURRENT_KERNEL: u32 = 10;
pub(super) const EXTERNAL_CORRELATION: u32 = 39;
/// Flushes buffers that are not full as well.
pub(super) const FORCED: u32 = 1;

type Status = u32;
type Requested = unsafe extern "C" fn(buffer: *mut *mut u8, size: *mut usize, records: *mut usize);
type Completed = unsafe extern "C" fn(context: *mut (), stream: u32, buffer: *mut u8, size: usize, valid: usize);

macro_rules! functions {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {
        /// The loaded library.
        #[allow(non_snake_case, reason = "the library's names")]
        pub(super) struct Cupti {
            path: PathBuf,
            $($name: unsafe extern "C" fn($($arg: $ty),*) -> Status,)*
            cuptiGetResultString: unsafe extern "C" fn(status: Status, text: *mut *const c_char) -> Status,
            _library: Library,
        }

        #[allow(non_snake_case, reason = "the library's names")]
        impl Cupti {
            fn new(library: Library, path: PathBuf) -> Result<Self, libloading::Error> {
                // SAFETY: the signatures are those of the library's headers; it is kept for as long as they are.
                Ok(unsafe {
                    Self {
                        $($name: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)*
                        cuptiGetResultString: *library.get(b"cuptiGetResultString\0")?,
                        _library: library,
                        path,
                    }
                })
            }

            $(
                /// # Safety
                /// As the library's documentation has it.
                #[inline]
                pub(super) unsafe fn $name(&self, $($arg: $ty),*) -> Result<(), CuptiError> {
                    // SAFETY: passed on.
                    self.check(stringify!($name), unsafe { (self.$name)($($arg),*) })
                }
            )*
        }
    };
}

functions! {
    cuptiActivityRegisterCallbacks(requested: Requested, completed: Completed);
    cuptiActivityEnable(kind: u32);
    cuptiActivityDisable(kind: u32);
    cuptiActivityFlushAll(flag: u32);
    cuptiActivityGetNextRecord(buffer: *mut u8, valid: usize, record: *mut *const u8);
    cuptiActivityPushExternalCorrelationId(kind: u32, id: u64);
    cuptiActivityPopExternalCorrelationId(kind: u32, last: *mut u64);
    cuptiGetTimestamp(now: *mut u64);
}

impl Cupti {
    /// Loads the library from the folder that [`FOLDER_VARIABLE`] names, or from where the linker finds it.
    pub(super) fn load() -> Result<Self, CuptiError> {
        load(std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty()))
    }

    #[inline]
    pub(super) fn check(&self, function: &str, status: Status) -> Result<(), CuptiError> {
        if status == 0 { Ok(()) } else { Err(self.failure(function, status)) }
    }

    #[cold]
    fn failure(&self, function: &str, status: Status) -> CuptiError {
        let mut text = std::ptr::null();
        // SAFETY: the pointer is to a live pointer, which gets the address of a text of the library's.
        let known = unsafe { (self.cuptiGetResultString)(status, &mut text) } == 0 && !text.is_null();
        // SAFETY: as above.
        let name = if known { unsafe { CStr::from_ptr(text) }.to_string_lossy() } else { "unknown".into() };
        CuptiError(format!("{function} of {} failed: {name} ({status})", self.path.display()))
    }
}

impl fmt::Debug for Cupti {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cupti").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Loads it from that folder, or from the linker's search path.
fn load(folder: Option<OsString>) -> Result<Cupti, CuptiError> {
    if folder.as_deref().is_some_and(|folder| folder == "off") {
        return Err(CuptiError(format!("{FOLDER_VARIABLE} is off")));
    }
    let folders: Vec<PathBuf> = match &folder {
        Some(folder) => vec![folder.into()],
        // A bare name is looked up by the linker.
        None => std::iter::once(PathBuf::new()).chain(TOOLKIT.map(PathBuf::from)).collect(),
    };
    let mut damaged = None;
    for (folder, name) in folders.iter().flat_map(|folder| NAMES.map(|name| (folder, name))) {
        match open(folder, name) {
            Ok(cupti) => return Ok(cupti),
            Err(error) if folder.join(name).exists() => damaged = damaged.or(Some(error)),
            Err(_) => {}
        }
    }
    let place = folder.map_or("where the linker looks".into(), |folder| format!("in {}", Path::new(&folder).display()));
    let why = damaged.map_or_else(|| format!("no {} {place}", NAMES[0]), |error| error.to_string());
    Err(CuptiError(format!("{why}; {FOLDER_VARIABLE} names its folder")))
}

fn open(folder: &Path, name: &str) -> Result<Cupti, libloading::Error> {
    let path = folder.join(name);
    // SAFETY: loading the library runs its initialisers, which is what it is asked for.
    let library = unsafe { Library::new(&path) }?;
    Cupti::new(library, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_said() {
        let folder = std::env::temp_dir().join(format!("warpsmith-cupti-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let why = |folder: &Path| load(Some(folder.into())).err().unwrap().to_string();
        assert!(why(&folder).contains("no libcupti.so.13 in") && why(&folder).contains(FOLDER_VARIABLE));
        std::fs::write(folder.join("libcupti.so.12"), "not a library").unwrap();
        assert!(why(&folder).contains("libcupti.so.12"), "{}", why(&folder));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(why(Path::new("off")), "WARPSMITH_CUPTI is off");
    }
}
