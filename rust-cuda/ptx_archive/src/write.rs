//! Writing an archive.

use std::collections::HashMap;

use crate::codec::{self, Field, Place};
use crate::{Archive, Kernel, MAGIC, part::Part};

/// Writes an archive of `kernels`, each with its PTX. `sources` is kept beside them: a hash of what they were built from. Modules that `old` has
/// the same are taken from there, which saves the time to compress them.
pub fn write(sources: &str, kernels: &[(Kernel, &str)], old: Option<&Archive>) -> Vec<u8> {
    let mut sorted: Vec<_> = kernels.iter().collect();
    sorted.sort_by(|a, b| a.0.key().cmp(&b.0.key()));
    let (mut code, mut places, mut parts) = (Vec::new(), Vec::new(), Vec::new());
    for module in sorted.chunk_by(|a, b| a.0.module == b.0.module) {
        let mut text = String::new();
        let mut written = HashMap::new();
        for (_, ptx) in module {
            let (head, body) = ptx.split_at(head_length(ptx));
            let offset = *written.entry(body).or_insert_with(|| {
                text += body;
                codec::length(text.len() - body.len())
            });
            let (part, length) = (codec::length(parts.len()), codec::length(body.len()));
            places.push(Place { head: head.to_owned(), part, offset, length });
        }
        let part = Part::of(text.as_bytes());
        let known = old.and_then(|old| old.compressed(part, text.as_bytes()));
        parts.push(part.put_text(text.as_bytes(), known, &mut code));
    }
    let mut index = Vec::new();
    sources.to_owned().put(&mut index);
    codec::length(sorted.len()).put(&mut index);
    sorted.iter().for_each(|(kernel, _)| kernel.put(&mut index));
    places.put(&mut index);
    parts.put(&mut index);
    let mut out = MAGIC.to_vec();
    let mut compressed = Vec::new();
    Part::of(&index).put_text(&index, None, &mut compressed).put(&mut out);
    out.extend(compressed);
    out.extend(code);
    out
}

impl Archive {
    /// The bytes of the part with that text, if there is one.
    fn compressed(&self, part: Part, text: &[u8]) -> Option<&[u8]> {
        let alike = |other: &Part| (other.length, other.check) == (part.length, part.check);
        let index = self.parts.iter().position(|(part, _)| alike(part))?;
        let code = self.parts[index].0.compressed(self.data.get(self.code..)?)?;
        (self.part(index)? == text).then_some(code)
    }
}

/// The length of a module's first lines: version, target and address size.
fn head_length(ptx: &str) -> usize {
    let Some(at) = ptx.find("\n.address_size") else { return 0 };
    ptx[at + 1..].find('\n').map_or(0, |end| at + 1 + end + 1)
}
