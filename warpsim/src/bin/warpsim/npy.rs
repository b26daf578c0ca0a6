//! NumPy's `.npy` files: one dimension, little endian.

const MAGIC: &[u8] = b"\x93NUMPY";

/// A file of `count` elements of a NumPy type.
pub(crate) fn write(numpy: &str, count: usize, data: &[u8]) -> Vec<u8> {
    let mut header = format!("{{'descr': '{numpy}', 'fortran_order': False, 'shape': ({count},), }}");
    // The data starts at a multiple of 64; magic, version and length take ten bytes, and the newline takes one.
    let padding = (10 + header.len() + 1).next_multiple_of(64) - (10 + header.len() + 1);
    header.extend(std::iter::repeat_n(' ', padding));
    header.push('\n');
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(data);
    out
}

/// The elements of a file, which have to be of the given type.
pub(crate) fn read<'a>(numpy: &str, file: &'a [u8]) -> Result<&'a [u8], String> {
    let rest = file.strip_prefix(MAGIC).ok_or("no .npy file")?;
    let (length, start) = match rest {
        [1, _, a, b, ..] => (usize::from(u16::from_le_bytes([*a, *b])), 4),
        [2 | 3, _, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 6),
        _ => return Err("a .npy file of an unknown version".into()),
    };
    let header = rest.get(start..start + length).ok_or("a .npy file that is cut off")?;
    let header = String::from_utf8_lossy(header);
    if !header.contains(&format!("'descr': '{numpy}'")) || !header.contains("'fortran_order': False") {
        return Err(format!("a .npy file with {}, not of {numpy} in C order", header.trim()));
    }
    Ok(&rest[start + length..])
}
