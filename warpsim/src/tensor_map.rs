//! Tensor maps: what a bulk tensor copy knows of a tensor in global memory.
//!
//! The 128 bytes are this simulator's own; a real driver's descriptor is opaque and not understood.

use crate::ir::{AtomOp, NumTy};

/// Element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // The names say it.
pub enum DataType {
    U8,
    U16,
    U32,
    I32,
    U64,
    I64,
    F16,
    F32,
    F64,
    BF16,
    TF32,
}

impl DataType {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            DataType::U8 => 1,
            DataType::U16 | DataType::F16 | DataType::BF16 => 2,
            DataType::U64 | DataType::I64 | DataType::F64 => 8,
            _ => 4,
        }
    }

    pub(crate) fn number(self, op: AtomOp) -> Option<NumTy> {
        let _ = op;
        Some(match self {
            DataType::U32 => NumTy::U32,
            DataType::I32 => NumTy::S32,
            DataType::U64 => NumTy::U64,
            DataType::I64 => NumTy::S64,
            DataType::F16 => NumTy::F16,
            DataType::BF16 => NumTy::BF16,
            DataType::F32 | DataType::TF32 => NumTy::F32,
            DataType::F64 => NumTy::F64,
            _ => return None,
        })
    }
}

const TYPES: [DataType; 11] = [
    DataType::U8,
    DataType::U16,
    DataType::U32,
    DataType::I32,
    DataType::U64,
    DataType::I64,
    DataType::F16,
    DataType::F32,
    DataType::F64,
    DataType::BF16,
    DataType::TF32,
];

/// How a tile's 16-byte pieces are permuted in shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Swizzle {
    /// Not at all.
    None,
    /// Within 32 bytes.
    B32,
    /// Within 64 bytes.
    B64,
    /// Within 128 bytes.
    B128,
}

impl Swizzle {
    /// Bytes of a pattern row.
    pub fn span(self) -> usize {
        [usize::MAX, 32, 64, 128][self as usize]
    }

    /// The byte that holds what would be at shared offset `off` without swizzling.
    #[inline(always)]
    pub fn apply(self, off: usize) -> usize {
        self.apply_from(off, 0)
    }

    /// As `apply`, for a pattern that starts so many 128-byte rows behind a multiple of 1024.
    #[inline(always)]
    pub(crate) fn apply_from(self, off: usize, rows: usize) -> usize {
        let mask = [0, 1, 3, 7][self as usize];
        off ^ (((off >> 7).wrapping_sub(rows) & mask) << 4)
    }
}

/// A tiled tensor, innermost dimension first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorMap {
    /// Element type.
    pub data_type: DataType,
    /// Global address of the first element.
    pub address: u64,
    /// Elements in each dimension.
    pub dims: Vec<u64>,
    /// Bytes between neighbours in each dimension but the first.
    pub strides: Vec<u64>,
    /// Elements of a tile in each dimension.
    pub tile: Vec<u32>,
    /// How a tile lies in shared memory.
    pub swizzle: Swizzle,
    /// Elements outside the tensor read as NaN instead of zero.
    pub nan_fill: bool,
}

const MAGIC: u32 = 0x5754_4d31;

impl TensorMap {
    /// Describes a tensor, checking what the hardware requires of it.
    pub fn tiled(
        data_type: DataType,
        address: u64,
        dims: &[u64],
        strides: &[u64],
        tile: &[u32],
        swizzle: Swizzle,
    ) -> Result<Self, String> {
        let rank = dims.len();
        if !(1..=5).contains(&rank) || tile.len() != rank || strides.len() + 1 != rank {
            return Err(format!(
                "a tensor of {rank} dimensions needs {rank} tile sizes and {} strides",
                rank.saturating_sub(1)
            ));
        }
        if !address.is_multiple_of(16) {
            return Err(format!("the address {address:#x} is not a multiple of 16"));
        }
        if let Some(d) = dims.iter().find(|d| **d == 0 || **d > 1 << 32) {
            return Err(format!("a dimension of {d} elements"));
        }
        if let Some(s) = strides.iter().find(|s| **s % 16 != 0 || **s >= 1 << 40) {
            return Err(format!("a stride of {s} bytes is not a multiple of 16 below 2^40"));
        }
        if let Some(t) = tile.iter().find(|t| !(1..=256).contains(*t)) {
            return Err(format!("a tile size of {t}: 1 to 256 are possible"));
        }
        let inner = tile[0] as usize * data_type.bytes();
        if !inner.is_multiple_of(16) {
            return Err(format!("the tile's innermost row of {inner} bytes is not a multiple of 16"));
        }
        if inner > swizzle.span() {
            return Err(format!("the tile's innermost row of {inner} bytes exceeds the swizzle's {}", swizzle.span()));
        }
        Ok(TensorMap {
            data_type,
            address,
            dims: dims.to_vec(),
            strides: strides.to_vec(),
            tile: tile.to_vec(),
            swizzle,
            nan_fill: false,
        })
    }

    /// The 128 bytes that a kernel takes as its parameter.
    pub fn encode(&self) -> [u8; 128] {
        let mut out = [0u8; 128];
        out[..4].copy_from_slice(&MAGIC.to_le_bytes());
        out[4] = self.dims.len() as u8;
        out[5] = self.data_type as u8;
        out[6] = self.swizzle as u8;
        out[7] = u8::from(self.nan_fill);
        out[8..16].copy_from_slice(&self.address.to_le_bytes());
        for (k, v) in self.dims.iter().enumerate() {
            out[16 + 8 * k..24 + 8 * k].copy_from_slice(&v.to_le_bytes());
        }
        for (k, v) in self.strides.iter().enumerate() {
            out[56 + 8 * k..64 + 8 * k].copy_from_slice(&v.to_le_bytes());
        }
        for (k, v) in self.tile.iter().enumerate() {
            out[88 + 4 * k..92 + 4 * k].copy_from_slice(&v.to_le_bytes());
        }
        out
    }

    /// Reads the 128 bytes back.
    pub fn decode(b: &[u8; 128]) -> Option<Self> {
        let u64_at = |k: usize| b[k..k + 8].iter().rev().fold(0u64, |v, x| v << 8 | u64::from(*x));
        let u32_at = |k: usize| b[k..k + 4].iter().rev().fold(0u32, |v, x| v << 8 | u32::from(*x));
        let rank = usize::from(b[4]);
        if u32_at(0) != MAGIC || !(1..=5).contains(&rank) {
            return None;
        }
        let swizzle = *[Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128].get(usize::from(b[6]))?;
        let dims: Vec<_> = (0..rank).map(|k| u64_at(16 + 8 * k)).collect();
        let strides: Vec<_> = (0..rank - 1).map(|k| u64_at(56 + 8 * k)).collect();
        let tile: Vec<_> = (0..rank).map(|k| u32_at(88 + 4 * k)).collect();
        let mut t = Self::tiled(*TYPES.get(usize::from(b[5]))?, u64_at(8), &dims, &strides, &tile, swizzle).ok()?;
        t.nan_fill = b[7] != 0;
        Some(t)
    }

    /// Bytes of a tile.
    pub fn tile_bytes(&self) -> usize {
        self.tile.iter().map(|t| *t as usize).product::<usize>() * self.data_type.bytes()
    }
}
