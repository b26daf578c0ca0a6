//! The cache of earlier builds: one file per result, named by the hash of all its inputs.

use std::{
    fs, io,
    path::Path,
    time::{Duration, SystemTime},
};

use serde::{Serialize, de::DeserializeOwned};
use siphasher::sip128::{Hasher128 as _, SipHasher13};

use crate::scratch;

/// Entries that no build has used for this long are deleted.
const KEPT: Duration = Duration::from_secs(14 * 24 * 3600);

/// The entry in `file`, if it exists and is valid.
pub(crate) fn read<T: DeserializeOwned>(file: &Path) -> Option<T> {
    let entry = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    // Entries are deleted by the time of their last use.
    let _ = fs::File::open(file).and_then(|file| file.set_modified(SystemTime::now()));
    Some(entry)
}

/// Writes an entry atomically: another build may be reading.
pub(crate) fn write<T: Serialize>(file: &Path, entry: &T) -> io::Result<()> {
    scratch::replace(file, &serde_json::to_vec(entry)?)
}

/// Deletes old entries.
pub(crate) fn clean(folder: &Path) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|data| data.modified());
        if modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > KEPT)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// 128 bits as hexadecimal digits.
pub(crate) fn hash(write: impl FnOnce(&mut SipHasher13)) -> String {
    let mut hasher = SipHasher13::new();
    write(&mut hasher);
    format!("{:032x}", hasher.finish128().as_u128())
}
