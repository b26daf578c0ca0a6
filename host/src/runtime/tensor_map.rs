//! TMA descriptors: how a kernel's bulk copies see a tensor in global memory.

use crate::runtime::dtype::DType;
use crate::runtime::error::{Error, Result};
use crate::runtime::shape::MAX_RANK;

/// How a box's bytes are permuted in shared memory, so that columns meet no bank conflicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Swizzle {
    /// Not at all.
    #[default]
    None,
    /// Within 32-byte rows.
    B32,
    /// Within 64-byte rows.
    B64,
    /// Within 128-byte rows.
    B128,
}

impl Swizzle {
    /// The widest box row it allows, in bytes.
    pub const fn span(self) -> Option<usize> {
        match self {
            Swizzle::None => None,
            Swizzle::B32 => Some(32),
            Swizzle::B64 => Some(64),
            Swizzle::B128 => Some(128),
        }
    }
}

/// How much of a line L2 fetches around each access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum L2Promotion {
    /// What is accessed.
    None,
    /// 64 bytes.
    B64,
    /// 128 bytes.
    #[default]
    B128,
    /// 256 bytes.
    B256,
}

/// What out-of-bounds elements of a box read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OobFill {
    /// Zero.
    #[default]
    Zero,
    /// NaN; floating-point types only.
    Nan,
}

/// A tiled tensor map. Dimensions are listed **innermost first**, as the hardware counts them.
#[derive(Debug, Clone, Copy)]
pub struct TensorMapDesc<'a> {
    /// Address of the first element, from [`View::ptr`](crate::View::ptr); a multiple of 16.
    pub address: u64,
    /// Element type.
    pub dtype: DType,
    /// Extents, innermost first; 1 to 5 of them.
    pub dims: &'a [u64],
    /// Bytes from one entry to the next of each dimension but the innermost; multiples of 16.
    pub strides_bytes: &'a [u64],
    /// Extents of the box that one copy moves, innermost first; each at most 256.
    pub box_dims: &'a [u32],
    /// Permutation in shared memory.
    pub swizzle: Swizzle,
    /// L2 fetch granularity.
    pub l2_promotion: L2Promotion,
    /// Value of out-of-bounds elements.
    pub oob_fill: OobFill,
}

impl TensorMapDesc<'_> {
    /// The hardware's rules, each with the value that breaks it.
    pub(crate) fn check(&self) -> Result<()> {
        let bad =
            |param: &str, found: String, expected: String| Err(Error::param("tensor_map", param, found, expected));
        let rank = self.dims.len();
        if !(1..=MAX_RANK).contains(&rank) {
            return bad("dims", format!("{:?}", self.dims), format!("1 to {MAX_RANK} dimensions"));
        }
        if self.strides_bytes.len() != rank - 1 {
            return bad("strides_bytes", format!("{:?}", self.strides_bytes), format!("{} strides", rank - 1));
        }
        if self.box_dims.len() != rank {
            return bad("box_dims", format!("{:?}", self.box_dims), format!("{rank} extents"));
        }
        if self.address == 0 || !self.address.is_multiple_of(16) {
            return bad("address", format!("{:#x}", self.address), "a multiple of 16".into());
        }
        if let Some(d) = self.dims.iter().find(|&&d| d == 0 || d > 1 << 32) {
            return bad("dims", d.to_string(), "1 to 2^32".into());
        }
        if let Some(s) = self.strides_bytes.iter().find(|&&s| s == 0 || s % 16 != 0 || s >= 1 << 40) {
            return bad("strides_bytes", s.to_string(), "a multiple of 16 below 2^40".into());
        }
        if let Some(b) = self.box_dims.iter().find(|&&b| b == 0 || b > 256) {
            return bad("box_dims", b.to_string(), "1 to 256".into());
        }
        let row = self.box_dims[0] as usize * self.dtype.size();
        if !row.is_multiple_of(16) {
            return bad("box_dims", format!("{row} bytes in a row"), "a multiple of 16".into());
        }
        if let Some(span) = self.swizzle.span()
            && row > span
        {
            return bad("box_dims", format!("{row} bytes in a row"), format!("at most {span} with this swizzle"));
        }
        if self.oob_fill == OobFill::Nan && !self.dtype.is_float() {
            return bad("oob_fill", "NaN".into(), format!("zero for {}", self.dtype));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tile() -> TensorMapDesc<'static> {
        TensorMapDesc {
            address: 0x7000,
            dtype: DType::BF16,
            dims: &[4096, 128],
            strides_bytes: &[8192],
            box_dims: &[64, 128],
            swizzle: Swizzle::B128,
            l2_promotion: L2Promotion::default(),
            oob_fill: OobFill::Zero,
        }
    }

    #[test]
    fn the_hardware_rules_are_checked() {
        assert_eq!(tile().check(), Ok(()));
        let broken: [TensorMapDesc<'_>; 11] = [
            TensorMapDesc { address: 0x7008, ..tile() },
            TensorMapDesc { address: 0, ..tile() },
            TensorMapDesc { dims: &[], ..tile() },
            TensorMapDesc { dims: &[4096, 0], ..tile() },
            TensorMapDesc { strides_bytes: &[], ..tile() },
            TensorMapDesc { strides_bytes: &[8190], ..tile() },
            TensorMapDesc { box_dims: &[64], ..tile() },
            TensorMapDesc { box_dims: &[64, 257], ..tile() },
            TensorMapDesc { box_dims: &[128, 64], ..tile() },
            TensorMapDesc { box_dims: &[4, 64], ..tile() },
            TensorMapDesc { dtype: DType::I8, oob_fill: OobFill::Nan, ..tile() },
        ];
        for desc in broken {
            assert!(desc.check().is_err(), "{desc:?}");
        }
    }
}
