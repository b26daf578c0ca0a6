//! How the archive's index is written: fields one after the other, integers little-endian, lists and text behind their length.

use crate::{Arch, Kernel, Param, ParamKind, Resources};

/// What can be written to the index and read back.
pub(crate) trait Field: Sized {
    fn put(&self, out: &mut Vec<u8>);

    /// Takes the value from the front of `from`; `None` when that does not hold one.
    fn get(from: &mut &[u8]) -> Option<Self>;
}

impl Field for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.to_le_bytes());
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        let (bytes, rest) = from.split_first_chunk()?;
        *from = rest;
        Some(u32::from_le_bytes(*bytes))
    }
}

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u32::from(*self).put(out);
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        match u32::get(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        length(self.len()).put(out);
        out.extend(self.as_bytes());
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        let length = u32::get(from)? as usize;
        let (bytes, rest) = from.split_at_checked(length)?;
        *from = rest;
        String::from_utf8(bytes.to_vec()).ok()
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        length(self.len()).put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        let length = u32::get(from)?;
        // Collected one by one: a wrong length runs out of bytes before it runs out of memory.
        (0..length).map(|_| T::get(from)).collect()
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|item| item.put(out));
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        if bool::get(from)? { T::get(from).map(Some) } else { Some(None) }
    }
}

impl Field for [u32; 3] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|item| item.put(out));
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        Some([u32::get(from)?, u32::get(from)?, u32::get(from)?])
    }
}

impl Field for Arch {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_str().to_owned().put(out);
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        Arch::from_name(&String::get(from)?)
    }
}

impl Field for ParamKind {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u32).put(out);
    }

    fn get(from: &mut &[u8]) -> Option<Self> {
        ParamKind::ALL.get(u32::get(from)? as usize).copied()
    }
}

macro_rules! record {
    ($name:ident { $($field:ident),* }) => {
        impl $crate::codec::Field for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn get(from: &mut &[u8]) -> Option<Self> {
                Some($name { $($field: $crate::codec::Field::get(from)?),* })
            }
        }
    };
}

pub(crate) use record;

record!(Param { bytes, align, kind });
record!(Resources { registers, shared_bytes, constant_bytes, barriers, stack_bytes, spill_stores, spill_loads, notes });
record!(Kernel {
    symbol,
    module,
    arch,
    block,
    min_blocks,
    cluster,
    shared_bytes,
    no_spills,
    programmatic,
    cooperative,
    opt_level,
    params,
    resources
});

/// Where an archive has the code of a kernel.
pub(crate) struct Place {
    /// The first lines, which name the architecture: the rest is often the same for several.
    pub(crate) head: String,
    /// The number of the part.
    pub(crate) part: u32,
    /// In the part's text.
    pub(crate) offset: u32,
    pub(crate) length: u32,
}

record!(Place { head, part, offset, length });

/// Archives stay far below 4 GiB; one that does not is noticed when it is read.
pub(crate) fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
