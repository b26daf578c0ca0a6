use crate::runtime::dtype::DType;

/// What an operator does with a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads it.
    In,
    /// Writes all of it, and reads nothing that was there.
    Out,
    /// Reads it and writes all or a part of it.
    InOut,
}

/// A named tensor argument of an operator.
#[derive(Clone, Copy, Debug)]
pub struct ArgInfo {
    /// The name that errors, `run`'s tensors and the documentation use.
    pub name: &'static str,
    /// Shape and meaning, in a line.
    pub doc: &'static str,
    /// Whether it is read or written.
    pub role: Role,
    /// The element types it may have by itself; without any it has the operator's, and all such arguments the same.
    pub dtypes: &'static [DType],
    /// Whether it may be left out.
    pub optional: bool,
}

impl ArgInfo {
    /// A tensor that is read.
    pub const fn input(name: &'static str, doc: &'static str) -> Self {
        Self { name, doc, role: Role::In, dtypes: &[], optional: false }
    }

    /// A tensor that is written.
    pub const fn output(name: &'static str, doc: &'static str) -> Self {
        Self { role: Role::Out, ..Self::input(name, doc) }
    }

    /// A tensor that is read and written in place.
    pub const fn in_out(name: &'static str, doc: &'static str) -> Self {
        Self { role: Role::InOut, ..Self::input(name, doc) }
    }

    /// With element types of its own.
    pub const fn of(self, dtypes: &'static [DType]) -> Self {
        Self { dtypes, ..self }
    }

    /// One that may be left out.
    pub const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }
}
