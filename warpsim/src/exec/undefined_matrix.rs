//! Values that nobody made, in matrices: an element of a product is undefined if something is of its row of A, of its column of B, or of what
//! is added to it. Tiles at the edge of a matrix are multiplied whole, and what lies beyond it is thrown away.

use super::cx::Cx;
use super::mem_ops::lanes;
use super::mma::place_a;
use super::origins::{First, Origin};
use super::shared_check::{first_hole, unmark};
use super::state::*;
use super::undefined::{define, keep_division, read_hole, unknown};
use super::{matrix, wgmma};
use crate::ir::*;

/// What is undefined of a row, a column or an element.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Taint {
    /// Lanes with a register of it that is.
    lanes: u32,
    /// Some of the shared memory where it lies is.
    memory: bool,
}

impl Taint {
    fn with(self, other: Taint) -> Taint {
        Taint { lanes: self.lanes | other.lanes, memory: self.memory || other.memory }
    }
}

/// What is undefined of a warp's rows of A, and of the columns of B: of none when there are no entries.
#[derive(Default)]
pub struct Taints {
    rows: [Taint; 16],
    columns: Vec<Taint>,
    /// The first byte of shared memory that nobody wrote.
    hole: usize,
    /// Where something that shared memory was given had been divided by zero.
    divided: Option<(u32, u32)>,
}

impl Taints {
    /// Rows and columns that lie in shared memory nobody wrote, from its byte `hole` on.
    pub fn in_memory(blk: &Block, rows: [bool; 16], columns: &[bool], hole: usize) -> Self {
        let taint = |memory: bool| Taint { lanes: 0, memory };
        let columns = columns.iter().map(|bad| taint(*bad)).collect();
        Taints { rows: rows.map(taint), columns, hole, divided: blk.divided }
    }

    /// A fragment of A, of `m` rows.
    fn add_rows(&mut self, w: &Warp, code: &Code, regs: &[Reg], m: usize) {
        for (k, r) in regs.iter().enumerate() {
            lanes(unknown(w, code, *r)).for_each(|l| self.rows[place_a(m, 1, l, k, 0).0].lanes |= 1 << l);
        }
    }

    /// A fragment of B.
    fn add_columns(&mut self, w: &Warp, code: &Code, regs: &[Reg]) {
        for l in lanes(regs.iter().fold(0, |all, r| all | unknown(w, code, *r))) {
            self.columns.resize(8, Taint::default());
            self.columns[l / 4].lanes |= 1 << l;
        }
    }
}

/// `mma.sync`, but for that of four multiplications at once.
pub fn mma(cx: &Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, info: &Mma) {
    let code = &cx.prog.funcs[s.func as usize];
    let list = &code.lists[i.ext as usize..][..usize::from(i.len) - usize::from(info.sparse.is_some())];
    let (d, uses) = list.split_at(i.defs.into());
    let (m, n, k) = (usize::from(info.m), usize::from(info.n), usize::from(info.k));
    let held = if info.sparse.is_some() { k / 2 } else { k };
    let registers = |elements: usize, e: Elem| elements / 32 * e.bits() as usize / if e == Elem::F64 { 64 } else { 32 };
    let (a, uses) = uses.split_at(registers(m * held, info.a));
    let (b, c) = uses.split_at(registers(n * k, info.b));
    let mut f = Taints::default();
    f.add_rows(w, code, a, m);
    f.add_columns(w, code, b);
    product(w, s, code, d, c, [packed(info.d), packed(info.c)], &f);
}

/// A `wgmma` whose tiles in shared memory are as `f` says.
pub fn wgmma(cx: &Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, info: &Mma, accumulate: bool, mut f: Taints) {
    let code = &cx.prog.funcs[s.func as usize];
    let (d, uses) = code.lists[i.ext as usize..][..i.len.into()].split_at(i.defs.into());
    let (c, uses) = uses.split_at(d.len());
    if info.a_regs {
        f.add_rows(w, code, &uses[..4], 16);
    }
    product(w, s, code, d, if accumulate { c } else { &[] }, [packed(info.d); 2], &f);
}

/// Accumulators in a register.
fn packed(e: Elem) -> usize {
    if e == Elem::F16 { 2 } else { 1 }
}

/// Marks the results in `d` of a multiplication to which `c` is added.
fn product(w: &mut Warp, s: &Split, code: &Code, d: &[Reg], c: &[Reg], [per_d, per_c]: [usize; 2], f: &Taints) {
    let clean = |taints: &[Taint]| taints.iter().all(|taint| *taint == Taint::default());
    if clean(&f.rows) && clean(&f.columns) && c.iter().all(|r| unknown(w, code, *r) == 0) {
        return define(w, code, d.iter().copied(), !0, 0);
    }
    // The results may be in the same registers.
    let added: Vec<u32> = c.iter().map(|r| unknown(w, code, *r)).collect();
    let before = w.origins;
    let element = |l: usize, e: usize| {
        let (row, col) = wgmma::place(l, e);
        let own = Taint { lanes: added.get(e / per_c).map_or(0, |lanes| lanes & 1 << l), memory: false };
        f.rows[row].with(f.columns.get(col).copied().unwrap_or_default()).with(own)
    };
    for (k, r) in d.iter().enumerate() {
        let mut bad = 0;
        for l in 0..32 {
            let taint = (per_d * k..per_d * (k + 1)).map(|e| element(l, e)).fold(Taint::default(), Taint::with);
            if taint == Taint::default() {
                continue;
            }
            bad |= 1 << l;
            w.origins.pass(&before, taint.lanes, l);
            let never_written = taint.lanes & !before.any();
            if never_written != 0 {
                let first = First::new(s, never_written.trailing_zeros() as usize, 0);
                w.origins.add(Origin::Product, l, first);
            }
            if taint.memory {
                read_hole(w, s, l, f.divided, f.hole);
            }
        }
        w.follows_all |= bad != 0;
        define(w, code, std::iter::once(*r), !0, bad);
    }
}

/// `ldmatrix` of rows at these places, some of which nobody had written.
#[cold]
pub fn loaded(cl: &Cluster, w: &mut Warp, s: &Split, code: &Code, d: &[Reg], at: &[(usize, usize)], trans: bool) {
    for (r, rows) in d.iter().zip(at.chunks_exact(8)) {
        let mut bad = 0;
        for l in 0..32 {
            let hole = matrix::places(l, trans).into_iter().find_map(|(row, col)| {
                let (b, off) = rows[row];
                let blk = &cl.blocks[b];
                first_hole(&blk.shared_init, off + 2 * col, 2).map(|hole| (blk.divided, hole))
            });
            if let Some((divided, hole)) = hole {
                read_hole(w, s, l, divided, hole);
                bad |= 1 << l;
            }
        }
        define(w, code, std::iter::once(*r), !0, bad);
    }
}

/// `stmatrix`: what is undefined counts as not written.
pub fn stored(cl: &mut Cluster, w: &Warp, code: &Code, values: &[Reg], at: &[(usize, usize)], trans: bool) {
    for (r, rows) in values.iter().zip(at.chunks_exact(8)) {
        for l in lanes(unknown(w, code, *r)) {
            for (row, col) in matrix::places(l, trans) {
                let (b, off) = rows[row];
                unmark(&mut cl.blocks[b].shared_init, off + 2 * col, 2);
                keep_division(&mut cl.blocks[b], w, l);
            }
        }
    }
}

/// `movmatrix`: each lane takes halves of two others.
pub fn transposed(w: &mut Warp, code: &Code, i: &Inst) {
    let source = unknown(w, code, i.a);
    let before = w.origins;
    let mut bad = 0;
    for l in 0..32 {
        let from = matrix::places(l, true).into_iter().fold(0, |all, (row, col)| all | 1 << (4 * row + col / 2));
        if from & source != 0 {
            bad |= 1 << l;
            w.origins.pass(&before, from & source, l);
        }
    }
    w.follows_all |= bad != 0;
    define(w, code, std::iter::once(i.d), !0, bad);
}
