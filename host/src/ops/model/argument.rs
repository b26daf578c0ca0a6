use crate::runtime::dtype::DType;

/// How an operator accesses a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads it.
    In,
    /// Writes all of it, without reading its previous contents.
    Out,
    /// Reads it, and writes all or part of it.
    InOut,
}

/// A named tensor argument of an operator.
#[derive(Clone, Copy, Debug)]
pub struct ArgInfo {
    /// The name in errors, in the tensors of `run` and in the documentation.
    pub name: &'static str,
    /// Shape and meaning, in one line.
    pub doc: &'static str,
    /// Whether it is read or written.
    pub role: Role,
    /// The element types of the argument, if it has types of its own; if empty, the argument has the operator's
    /// type, the same for all such arguments.
    pub dtypes: &'static [DType],
    /// Whether the argument may be omitted.
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

    /// The argument, made optional.
    pub const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }
}
