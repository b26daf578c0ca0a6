//! Tensor maps: the description of a tensor in global memory that bulk tensor copies use.
//!
//! The layout of the 128 bytes is this simulator's own; a real driver's descriptor is opaque and is not understood.

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

/// The permutation of a tile's 16-byte chunks in shared memory (swizzle).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Swizzle {
    /// No swizzle.
    None,
    /// Within 32 bytes.
    B32,
    /// Within 64 bytes.
    B64,
    /// Within 128 bytes.
    B128,
}

impl Swizzle {
    /// Bytes of one row of the pattern.
    pub fn span(self) -> usize {
        [usize::MAX, 32, 64, 128][self as usize]
    }

    /// The swizzled offset of the byte whose unswizzled shared-memory offset is `off`.
    #[inline(always)]
    pub fn apply(self, off: usize) -> usize {
        self.apply_from(off, 0)
    }

    /// Like `apply`, for a pattern that starts this many 128-byte rows after a multiple of 1024.
    #[inline(always)]
    pub(crate) fn apply_from(self, off: usize, rows: usize) -> usize {
        let mask = [0, 1, 3, 7][self as usize];
        off ^ (((off >> 7).wrapping_sub(rows) & mask) << 4)
    }
}

/// The NaN that the hardware fills with: measured for f16 and f32, and assumed to be alike for the others.
pub(crate) const OOB_NAN: u16 = 0x7ff7;

/// A tensor, innermost dimension first, and the box that a copy transfers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorMap {
    /// Element type.
    pub data_type: DataType,
    /// Global address of the first element.
    pub address: u64,
    /// Number of elements in each dimension.
    pub dims: Vec<u64>,
    /// Stride in bytes of each dimension except the first.
    pub strides: Vec<u64>,
    /// Number of elements of a tile in each dimension; for an im2col map, channels and pixels.
    pub tile: Vec<u32>,
    /// Swizzle of a tile in shared memory.
    pub swizzle: Swizzle,
    /// Elements outside the tensor read as NaN instead of zero.
    pub nan_fill: bool,
    /// The im2col parameters, if copies transfer pixels instead of tiles.
    pub im2col: Option<Im2col>,
}

/// Magic number that identifies the 128 bytes as a map.
pub(crate) const MAGIC: u16 = 0x4d32;

/// Offsets of the fields in the 128 bytes. As in hardware, the first 64 bytes describe a tiled map, and kernels copy no more.
pub(crate) mod field {
    /// 16 bits.
    pub const MAGIC: usize = 0;
    /// 8 bits, as are the others up to the address.
    pub const RANK: usize = 2;
    pub const TYPE: usize = 3;
    pub const SWIZZLE: usize = 4;
    pub const FILL: usize = 5;
    pub const INTERLEAVE: usize = 6;
    /// 1: im2col.
    pub const MODE: usize = 7;
    /// 64 bits.
    pub const ADDRESS: usize = 8;
    /// 32 bits each; 0 means 2^32.
    pub const DIMS: usize = 16;
    /// 32 bits each, in units of 16 bytes.
    pub const STRIDES: usize = 36;
    /// 16 bits each: the sizes of a tile, or channels and pixels.
    pub const TILE: usize = 52;
    /// 16 bits each; 0 is 1.
    pub const STEPS: usize = 64;
    /// 16 bits, a copy of the field in the first half: it shows that the steps belong to this map and are not what lay there
    /// before the first half was copied.
    pub const MARK: usize = 74;
    /// For im2col: 16 bits for each coordinate of the lower and the upper corner.
    pub const CORNERS: usize = 84;
    /// The strides again, 64 bits each, in bytes: these hold larger strides than the fields above.
    pub const WHOLE_STRIDES: usize = 96;
}

impl TensorMap {
    /// Describes a tensor, and checks the hardware's requirements on it.
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

    /// Returns what is wrong with the start of a copy. On an H200, an illegal-instruction error was observed for every start
    /// along the innermost dimension that is not a multiple of 16 bytes, and for stores and reductions, but not loads, that start
    /// before the tensor. They may extend past its end.
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

    /// The 128 bytes that a kernel takes as a parameter.
    pub fn encode(&self) -> [u8; 128] {
        let mut out = [0u8; 128];
        let mut put = |at: usize, v: u64, n: usize| out[at..at + n].copy_from_slice(&v.to_le_bytes()[..n]);
        put(field::MAGIC, MAGIC.into(), 2);
        put(field::MARK, MAGIC.into(), 2);
        put(field::RANK, self.dims.len() as u64, 1);
        put(field::TYPE, self.data_type as u64, 1);
        put(field::SWIZZLE, self.swizzle as u64, 1);
        put(field::FILL, self.nan_fill.into(), 1);
        put(field::ADDRESS, self.address, 8);
        for (k, t) in self.tile.iter().enumerate() {
            put(field::TILE + 2 * k, (*t).into(), 2);
            put(field::DIMS + 4 * k, self.dims[k], 4);
        }
        for (k, v) in self.strides.iter().enumerate() {
            put(field::STRIDES + 4 * k, v / 16, 4);
            put(field::WHOLE_STRIDES + 8 * k, *v, 8);
        }
        if let Some(i) = &self.im2col {
            put(field::MODE, 1, 1);
            for (k, (lower, upper)) in i.lower.iter().zip(&i.upper).enumerate() {
                put(field::CORNERS + 4 * k, (*lower as u32 & 0xffff | (*upper as u32) << 16).into(), 4);
                put(field::STEPS + 2 * (1 + k), i.steps.get(k).copied().unwrap_or(1).into(), 2);
            }
        }
        out
    }

    /// Decodes the 128 bytes.
    pub fn decode(b: &[u8; 128]) -> Option<Self> {
        Self::parse(b).ok()
    }

    /// Decodes the 128 bytes, which a kernel may have written, or returns what is wrong with them.
    pub(crate) fn parse(b: &[u8; 128]) -> Result<Self, String> {
        let at = |k: usize, n: usize| b[k..k + n].iter().rev().fold(0u64, |v, x| v << 8 | u64::from(*x));
        let rank = at(field::RANK, 1) as usize;
        if at(field::MAGIC, 2) != u64::from(MAGIC) {
            return Err("no tensor map was written there".into());
        }
        if !(1..=5).contains(&rank) {
            return Err(format!("it has {rank} dimensions"));
        }
        let swizzles = [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128];
        let Some(swizzle) = swizzles.get(at(field::SWIZZLE, 1) as usize) else {
            return Err(format!("the swizzle mode {} is not supported", at(field::SWIZZLE, 1)));
        };
        let Some(ty) = TYPES.get(at(field::TYPE, 1) as usize) else {
            return Err(format!("the element type {} is not supported", at(field::TYPE, 1)));
        };
        let nan_fill = at(field::FILL, 1) != 0;
        if nan_fill && !matches!(ty, DataType::F16 | DataType::BF16 | DataType::F32 | DataType::TF32 | DataType::F64) {
            return Err(format!("it fills integers ({ty:?}) with NaN"));
        }
        if at(field::INTERLEAVE, 1) != 0 {
            return Err("interleaved layouts are not supported".into());
        }
        let im2col = at(field::MODE, 1) == 1;
        let marked = at(field::MARK, 2) == u64::from(MAGIC);
        let step = |k: usize| if marked { at(field::STEPS + 2 * k, 2).max(1) as u32 } else { 1 };
        if (0..rank).any(|k| step(k) != 1) && !im2col {
            return Err("element strides other than 1 are not supported".into());
        }
        let dims: Vec<_> = (0..rank).map(|k| (at(field::DIMS + 4 * k, 4) as u32).wrapping_sub(1)).collect();
        let dims: Vec<_> = dims.into_iter().map(|last| u64::from(last) + 1).collect();
        let stride = |k: usize| {
            let (units, whole) = (at(field::STRIDES + 4 * k, 4), at(field::WHOLE_STRIDES + 8 * k, 8));
            // The second half of a map may be anything if only the first half was copied.
            if (whole / 16) as u32 == units as u32 { whole } else { 16 * units }
        };
        let strides: Vec<_> = (0..rank - 1).map(stride).collect();
        let tile: Vec<_> = (0..rank).map(|k| at(field::TILE + 2 * k, 2) as u32).collect();
        let address = at(field::ADDRESS, 8);
        if im2col {
            let corner = |k: usize| at(field::CORNERS + 4 * k, 4) as u32;
            let spatial = 0..rank.saturating_sub(2);
            let pixels = Im2col {
                lower: spatial.clone().map(|k| i32::from(corner(k) as i16)).collect(),
                upper: spatial.clone().map(|k| i32::from((corner(k) >> 16) as i16)).collect(),
                steps: spatial.map(|k| step(1 + k)).collect(),
                channels: tile[0],
                pixels: tile.get(1).copied().unwrap_or(0),
            };
            let mut t = Self::im2col(*ty, address, &dims, &strides, pixels, *swizzle)?;
            t.nan_fill = nan_fill;
            return Ok(t);
        }
        let mut t = Self::tiled(*ty, address, &dims, &strides, &tile, *swizzle)?;
        t.nan_fill = nan_fill;
        Ok(t)
    }

    pub(crate) fn fill_with_nan(out: &mut [u8]) {
        out.chunks_exact_mut(2).for_each(|x| x.copy_from_slice(&OOB_NAN.to_le_bytes()));
    }

    /// Size of a tile in bytes.
    pub fn tile_bytes(&self) -> usize {
        self.tile.iter().map(|t| *t as usize).product::<usize>() * self.data_type.bytes()
    }
}
