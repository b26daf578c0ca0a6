//! What can be wrong with an archive.

use std::{fmt, io};

/// An archive that cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    Io(io::Error),
    /// The file is something else.
    NotAnArchive,
    /// It was written by another version of this crate.
    Version {
        /// The version of the file.
        found: u8,
        /// The version that is understood.
        expected: u8,
    },
    /// A part of it is damaged.
    Corrupt(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => write!(f, "{error}"),
            Error::NotAnArchive => f.write_str("not an archive of PTX"),
            Error::Version { found, expected } => {
                write!(f, "an archive of PTX in format {found}, where format {expected} is understood")
            }
            Error::Corrupt(what) => write!(f, "a damaged archive of PTX: its {what} cannot be read"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => Some(error),
            _ => None,
        }
    }
}
