//! Tensor maps: what a bulk tensor copy knows of a tensor in global memory.
//!
//! The 128 bytes are this simulator's own; a real driver's descriptor is opaque and not understood.

use crate::im2col::Im2col;
use crate::ir::{AtomOp, NumTy, Way};

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

/// A tensor, innermost dimension first, and what a copy takes of it.
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
    /// Elements of a tile in each dimension; of an im2col map channels and pixels.
    pub tile: Vec<u32>,
    /// How a tile lies in shared memory.
    pub swizzle: Swizzle,
    /// Elements outside the tensor read as NaN instead of zero.
    pub nan_fill: bool,
    /// Copies take pixels, not tiles.
    pub im2col: Option<Im2col>,
}

/// Marks the 128 bytes as a map.
pub(crate) const MAGIC: u32 = 0x5754_4d32;

/// Where the fields lie in the 128 bytes. All are 32 bits wide but the address and the strides.
pub(crate) mod field {
    pub const MAGIC: usize = 0;
    pub const RANK: usize = 4;
    pub const ADDRESS: usize = 8;
    pub const TYPE: usize = 16;
    pub const SWIZZLE: usize = 20;
    pub const STRIDES: usize = 24;
    pub const DIMS: usize = 56;
    pub const TILE: usize = 76;
    pub const STEPS: usize = 96;
    pub const FILL: usize = 116;
    pub const INTERLEAVE: usize = 120;
    /// 1: im2col, whose corners lie where the outer sizes of a tile would be, 16 bits each.
    pub const MODE: usize = 124;
}

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
            im2col: None,
        })
    }

    /// What is wrong with where a copy starts. An H200 was seen to refuse, with an illegal instruction, any that starts between multiples of 16 bytes of
    /// the innermost dimension, and stores and reductions, but not loads, that start ahead of the tensor. They may reach out of it behind its end.
    pub(crate) fn start_wrong(&self, at: &[i64], way: Way) -> Option<String> {
        let (first, each) = (at[0], 16 / self.data_type.bytes() as i64);
        if first % each != 0 {
            return Some(format!(
                "a tensor copy from element {first} of the innermost dimension: a multiple of {each} (16 bytes) is needed"
            ));
        }
        let d = at.iter().position(|c| *c < 0).filter(|_| way == Way::Store && self.im2col.is_none())?;
        Some(format!(
            "a tensor store from {} in dimension {d}: stores and reductions cannot start ahead of the tensor",
            at[d]
        ))
    }

    /// The 128 bytes that a kernel takes as its parameter.
    pub fn encode(&self) -> [u8; 128] {
        let mut out = [0u8; 128];
        let mut put = |at: usize, v: u32| out[at..at + 4].copy_from_slice(&v.to_le_bytes());
        put(field::MAGIC, MAGIC);
        put(field::RANK, self.dims.len() as u32);
        put(field::TYPE, self.data_type as u32);
        put(field::SWIZZLE, self.swizzle as u32);
        put(field::FILL, u32::from(self.nan_fill));
        for (k, t) in self.tile.iter().enumerate() {
            put(field::TILE + 4 * k, *t);
            put(field::STEPS + 4 * k, 1);
            // As in hardware 32 bits, of which 0 means 2^32.
            put(field::DIMS + 4 * k, self.dims[k] as u32);
        }
        if let Some(i) = &self.im2col {
            put(field::MODE, 1);
            for (k, (lower, upper)) in i.lower.iter().zip(&i.upper).enumerate() {
                put(field::TILE + 4 * (2 + k), *lower as u32 & 0xffff | (*upper as u32) << 16);
                put(field::STEPS + 4 * (1 + k), i.steps.get(k).copied().unwrap_or(1));
            }
        }
        out[field::ADDRESS..field::ADDRESS + 8].copy_from_slice(&self.address.to_le_bytes());
        for (k, v) in self.strides.iter().enumerate() {
            out[field::STRIDES + 8 * k..field::STRIDES + 8 * k + 8].copy_from_slice(&v.to_le_bytes());
        }
        out
    }

    /// Reads the 128 bytes back.
    pub fn decode(b: &[u8; 128]) -> Option<Self> {
        Self::parse(b).ok()
    }

    /// Reads the 128 bytes, which a kernel may have written, or says what is wrong with them.
    pub(crate) fn parse(b: &[u8; 128]) -> Result<Self, String> {
        let u64_at = |k: usize| b[k..k + 8].iter().rev().fold(0u64, |v, x| v << 8 | u64::from(*x));
        let u32_at = |k: usize| b[k..k + 4].iter().rev().fold(0u32, |v, x| v << 8 | u32::from(*x));
        let rank = u32_at(field::RANK) as usize;
        if u32_at(field::MAGIC) != MAGIC {
            return Err("no tensor map was written there".into());
        }
        if !(1..=5).contains(&rank) {
            return Err(format!("it has {rank} dimensions"));
        }
        let swizzles = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];
        let Some(swizzle) = swizzles.get(u32_at(field::SWIZZLE) as usize) else {
            return Err(format!("the swizzle mode {} is not supported", u32_at(field::SWIZZLE)));
        };
        let Some(ty) = TYPES.get(u32_at(field::TYPE) as usize) else {
            return Err(format!("the element type {} is not supported", u32_at(field::TYPE)));
        };
        let nan_fill = u32_at(field::FILL) != 0;
        if nan_fill && !matches!(ty, DataType::F16 | DataType::BF16 | DataType::F32 | DataType::TF32 | DataType::F64) {
            return Err(format!("it fills integers ({ty:?}) with NaN"));
        }
        if u32_at(field::INTERLEAVE) != 0 {
            return Err("interleaved layouts are not supported".into());
        }
        let im2col = u32_at(field::MODE) == 1;
        if (0..rank).any(|k| u32_at(field::STEPS + 4 * k) != 1) && !im2col {
            return Err("element strides other than 1 are not supported".into());
        }
        let dims: Vec<_> = (0..rank).map(|k| u64::from(u32_at(field::DIMS + 4 * k).wrapping_sub(1)) + 1).collect();
        let strides: Vec<_> = (0..rank - 1).map(|k| u64_at(field::STRIDES + 8 * k)).collect();
        let tile: Vec<_> = (0..rank).map(|k| u32_at(field::TILE + 4 * k)).collect();
        if im2col {
            let corner = |k: usize| u32_at(field::TILE + 4 * (2 + k));
            let spatial = 0..rank.saturating_sub(2);
            let pixels = Im2col {
                lower: spatial.clone().map(|k| i32::from(corner(k) as i16)).collect(),
                upper: spatial.clone().map(|k| i32::from((corner(k) >> 16) as i16)).collect(),
                steps: spatial.map(|k| u32_at(field::STEPS + 4 * (1 + k))).collect(),
                channels: tile[0],
                pixels: u32_at(field::TILE + 4),
            };
            let mut t = Self::im2col(*ty, u64_at(field::ADDRESS), &dims, &strides, pixels, *swizzle)?;
            t.nan_fill = nan_fill;
            return Ok(t);
        }
        let mut t = Self::tiled(*ty, u64_at(field::ADDRESS), &dims, &strides, &tile, *swizzle)?;
        t.nan_fill = nan_fill;
        Ok(t)
    }

    /// The NaN that hardware fills with: f16 and f32 were seen, and the others are taken to be alike.
    pub(crate) fn fill_with_nan(out: &mut [u8]) {
        out.chunks_exact_mut(2).for_each(|x| x.copy_from_slice(&[0xf7, 0x7f]));
    }

    /// Bytes of a tile.
    pub fn tile_bytes(&self) -> usize {
        self.tile.iter().map(|t| *t as usize).product::<usize>() * self.data_type.bytes()
    }
}
