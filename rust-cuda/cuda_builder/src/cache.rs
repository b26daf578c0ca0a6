//! What earlier builds found out, a file each, under the hash of everything that decides it.

use std::{
    fs, io,
    path::Path,
    time::{Duration, SystemTime},
};

use serde::{Serialize, de::DeserializeOwned};

use crate::scratch;

/// Entries that no build has used for this long are forgotten.
const KEPT: Duration = Duration::from_secs(14 * 24 * 3600);

/// The entry in `file`, if there is a sound one.
pub(crate) fn read<T: DeserializeOwned>(file: &Path) -> Option<T> {
    let entry = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    // The time of the last use is what the cache is cleaned by.
    let _ = fs::File::open(file).and_then(|file| file.set_modified(SystemTime::now()));
    Some(entry)
}

/// Writes an entry whole or not at all: another build may be reading.
pub(crate) fn write<T: Serialize>(file: &Path, entry: &T) -> io::Result<()> {
    scratch::replace(file, &serde_json::to_vec(entry)?)
}

/// Forgets what is old.
pub(crate) fn clean(folder: &Path) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        let modified = entry.metadata().and_then(|data| data.modified());
        if modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > KEPT)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
