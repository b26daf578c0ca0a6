//! Bulk operations in flight and the bytes that they move.

use super::cx::Cx;
use super::state::*;
use super::{atomic, shared, shared_check};
use crate::ir::*;
use crate::tensor_map::{Swizzle, TensorMap};

/// The other side of a bulk operation: what it copies from or to, besides a block's shared memory.
#[derive(PartialEq)]
pub enum Far {
    Linear {
        addr: u64,
        bytes: usize,
    },
    Tensor {
        map: Box<TensorMap>,
        at: [i64; 5],
        /// Of an im2col copy.
        off: [i64; 3],
    },
    Peer {
        block: u32,
        off: u32,
        bytes: usize,
    },
    /// The value of a register, for `st.async`.
    Value(Vec<u8>),
}

/// A location in shared memory, and for loads the mbarrier to signal.
#[derive(Clone, Copy, PartialEq)]
pub struct Target {
    pub block: u32,
    pub off: u32,
    pub bar: (u32, u32),
}

/// A bulk operation that has been issued.
pub struct BulkOp {
    pub lane: usize,
    pub group: u32,
    pub far: Far,
    pub targets: Vec<Target>,
    pub load: bool,
    pub reduce: Option<(AtomOp, NumTy)>,
    /// The source data of a store, once it has been read.
    pub data: Option<Vec<u8>>,
    pub settled: bool,
    /// Where the operation was issued: function and program counter.
    pub from: (u32, u32),
}

impl BulkOp {
    pub fn bytes(&self) -> usize {
        match &self.far {
            Far::Linear { bytes, .. } | Far::Peer { bytes, .. } => *bytes,
            Far::Tensor { map, .. } => map.tile_bytes(),
            Far::Value(data) => data.len(),
        }
    }

    /// Calls `f` with the address and the size of each contiguous range of global memory that it accesses.
    pub fn spans(&self, mut f: impl FnMut(u64, u64)) {
        match &self.far {
            Far::Linear { addr, bytes } => f(*addr, *bytes as u64),
            Far::Tensor { map, at, off } => {
                let es = map.data_type.bytes() as u64;
                rows(map, at, off, |_, addr, lo, hi| f(addr + lo as u64 * es, (hi - lo) as u64 * es));
            }
            Far::Peer { .. } | Far::Value(_) => {}
        }
    }

    /// Whether it repeats a store that another lane has made by the same instruction.
    pub fn repeats(&self, before: &BulkOp) -> bool {
        let store = !self.load && self.reduce.is_none() && before.group == u32::MAX;
        store
            && before.lane < self.lane
            && before.from == self.from
            && before.targets == self.targets
            && before.far == self.far
    }

    pub fn swizzle(&self) -> Swizzle {
        match &self.far {
            Far::Tensor { map, .. } => map.swizzle,
            _ => Swizzle::None,
        }
    }
}

/// Calls `f(first byte in the tile, address, first and last element inside)` for each row that intersects the tensor.
pub fn rows(map: &TensorMap, at: &[i64; 5], off: &[i64; 3], mut f: impl FnMut(usize, u64, usize, usize)) {
    let n = map.dims.len();
    let es = map.data_type.bytes();
    let row_bytes = map.tile[0] as usize * es;
    let lo = (-at[0]).clamp(0, i64::from(map.tile[0])) as usize;
    let hi = (map.dims[0] as i64 - at[0]).clamp(0, i64::from(map.tile[0])) as usize;
    if lo >= hi {
        return;
    }
    let first = at[0] * es as i64;
    if let Some(i) = &map.im2col {
        return map.pixels(i, at, off, |p, addr| f(p * row_bytes, (addr + first) as u64, lo, hi));
    }
    let count: usize = map.tile[1..].iter().map(|t| *t as usize).product();
    'rows: for r in 0..count {
        let mut rest = r;
        let mut addr = map.address as i64;
        for d in 1..n {
            let t = map.tile[d] as usize;
            let c = at[d] + (rest % t) as i64;
            rest /= t;
            if c < 0 || c >= map.dims[d] as i64 {
                continue 'rows;
            }
            addr += c * map.strides[d - 1] as i64;
        }
        f(r * row_bytes, (addr + first) as u64, lo, hi);
    }
}

/// The tile as read from global memory, with the elements outside the tensor filled in.
pub fn gather(cx: &Cx<'_>, cl: &Cluster, op: &BulkOp) -> Vec<u8> {
    let mut out = vec![0u8; op.bytes()];
    match &op.far {
        Far::Linear { addr, bytes } => {
            let _ = cx.mem.read(*addr, &mut out[..*bytes]);
        }
        Far::Peer { block, off, bytes } => {
            out.copy_from_slice(&cl.blocks[*block as usize].shared[*off as usize..*off as usize + bytes])
        }
        Far::Value(data) => out.copy_from_slice(data),
        Far::Tensor { map, at, off } => {
            let es = map.data_type.bytes();
            if map.nan_fill {
                TensorMap::fill_with_nan(&mut out);
            }
            rows(map, at, off, |byte, addr, lo, hi| {
                let _ = cx.mem.read(addr + (lo * es) as u64, &mut out[byte + lo * es..byte + hi * es]);
            });
        }
    }
    out
}

pub fn write_shared(cl: &mut Cluster, t: Target, data: &[u8], swizzle: Swizzle, reduce: Option<(AtomOp, NumTy)>) {
    let blk = &mut cl.blocks[t.block as usize];
    if let Some((o, ty)) = reduce {
        let n = usize::from(ty.bytes());
        for (k, c) in data.chunks_exact(n).enumerate() {
            let at = t.off as usize + k * n;
            let v = atomic::apply(o, ty, shared::read(&blk.shared, at, n), shared::read(c, 0, n), 0);
            blk.shared[at..at + n].copy_from_slice(&v.to_le_bytes()[..n]);
        }
    } else {
        for (k, c) in data.chunks(16).enumerate() {
            let at = swizzle.apply(t.off as usize + 16 * k);
            blk.shared[at..at + c.len()].copy_from_slice(c);
        }
    }
    if !blk.shared_init.is_empty() {
        shared_check::mark(&mut blk.shared_init, t.off as usize, data.len());
    }
}

pub fn read_shared(cl: &Cluster, t: Target, bytes: usize, swizzle: Swizzle) -> Vec<u8> {
    let sh = &cl.blocks[t.block as usize].shared;
    let mut out = vec![0u8; bytes];
    for (k, c) in out.chunks_mut(16).enumerate() {
        let at = swizzle.apply(t.off as usize + 16 * k);
        let n = c.len();
        c.copy_from_slice(&sh[at..at + n]);
    }
    out
}

pub fn write_global(cx: &Cx<'_>, op: &BulkOp, data: &[u8]) {
    let put = |addr: u64, bytes: &[u8]| match op.reduce {
        None => {
            let _ = cx.mem.write(addr, bytes);
        }
        Some((o, ty)) => {
            if let Ok(k) = cx.mem.find(addr, bytes.len() as u64) {
                let al = cx.mem.get(k);
                let n = usize::from(ty.bytes());
                for (e, c) in bytes.chunks_exact(n).enumerate() {
                    atomic::reduce_global(al, (addr - al.base) as usize + e * n, o, ty, shared::read(c, 0, n));
                }
            }
        }
    };
    match &op.far {
        Far::Linear { addr, .. } => put(*addr, data),
        Far::Tensor { map, at, off } => {
            let es = map.data_type.bytes();
            rows(map, at, off, |byte, addr, lo, hi| {
                put(addr + (lo * es) as u64, &data[byte + lo * es..byte + hi * es])
            });
        }
        Far::Peer { .. } | Far::Value(_) => {}
    }
}
