//! Where the keys and values of a decoding step are stored.

use crate::runtime::view::{View, ViewMut};

/// Keys and values: of a read-only cache, with its scales if it has any, or of a cache that new ones are written to.
#[allow(clippy::large_enum_variant, reason = "one a call, and gone when it is queued")]
pub(super) enum Tokens<'a, T> {
    Read([View<'a, T>; 2], Option<[View<'a, f32>; 2]>),
    Append { caches: [ViewMut<'a, T>; 2], new: [View<'a, T>; 2] },
}

/// The name of the lengths: of a cache as it is, or as it is after new keys were appended to it.
pub(super) fn lengths_name(appends: bool) -> &'static str {
    if appends { "lengths_after" } else { "lengths" }
}

impl<'a, T> Tokens<'a, T> {
    pub(super) fn lengths_name(&self) -> &'static str {
        lengths_name(self.appended().is_some())
    }

    pub(super) fn caches(&self) -> [View<'_, T>; 2] {
        match self {
            Self::Read(caches, _) => *caches,
            Self::Append { caches: [k, v], .. } => [k.as_view(), v.as_view()],
        }
    }

    pub(super) fn appended(&self) -> Option<[View<'a, T>; 2]> {
        match self {
            Self::Read(..) => None,
            Self::Append { new, .. } => Some(*new),
        }
    }

    pub(super) fn scales(&self) -> Option<[View<'a, f32>; 2]> {
        match self {
            Self::Read(_, scales) => *scales,
            Self::Append { .. } => None,
        }
    }
}
