//! Reads `ar` archives: rustc's libraries, whose members are bitcode for this target.

use std::{fs, path::Path};

use crate::Error;

/// The start of LLVM bitcode.
const BITCODE: &[u8] = b"BC\xC0\xDE";

/// The bitcode members of the archive at `path`.
pub(crate) fn bitcode(path: &Path) -> Result<Vec<Vec<u8>>, Error> {
    let data = fs::read(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
    let members = members(&data).ok_or_else(|| Error::Output(format!("{} is not an archive", path.display())))?;
    let bitcode = members.into_iter().filter(|member| member.starts_with(BITCODE));
    Ok(bitcode.map(<[u8]>::to_vec).collect())
}

/// The contents of the members, whatever they are called.
fn members(data: &[u8]) -> Option<Vec<&[u8]>> {
    let mut rest = data.strip_prefix(b"!<arch>\n")?;
    let mut members = Vec::new();
    while rest.len() >= 60 {
        let (header, tail) = rest.split_at(60);
        // Bytes 48 to 57 are the size in decimal, padded with spaces; members start at even offsets.
        let size: usize = std::str::from_utf8(&header[48..58]).ok()?.trim().parse().ok()?;
        members.push(tail.get(..size)?);
        rest = tail.get(size + size % 2..).unwrap_or_default();
    }
    Some(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_cut_out() {
        let mut data = b"!<arch>\n".to_vec();
        for body in ["odd", "even"] {
            data.extend(format!("{:<48}{:<10}`\n{body}", "name/", body.len()).into_bytes());
            if body.len() % 2 == 1 {
                data.push(b'\n');
            }
        }
        assert_eq!(members(&data).unwrap(), [&b"odd"[..], b"even"]);
        assert!(members(b"no archive").is_none());
    }
}
