//! Undefined values in matrices: an element of a product is undefined if some element of its row of A, of its column of B, or of its addend
//! is undefined. Tiles at the edge of a matrix are multiplied as a whole, and the results beyond the edge are not used.

use rustc_hash::FxHashMap;

use super::cx::Cx;
use super::mem_ops::lanes;
use super::mma::place_a;
use super::origins::{First, Origin};
use super::shared_check::{first_hole, unmark};
use super::state::*;
use super::undefined::{define, keep_division, read_hole, unknown};
use super::{matrix, mma_quads, wgmma};
use crate::ir::*;

/// The undefined inputs of a row, a column or an element.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Taint {
    /// Lanes with an undefined register that belongs to it.
    lanes: u32,
    /// Whether some of its elements in shared memory are undefined.
    memory: bool,
}

impl Taint {
    fn with(self, other: Taint) -> Taint {
        Taint { lanes: self.lanes | other.lanes, memory: self.memory || other.memory }
    }
}

/// The undefined inputs of a warp's rows of A, and of the columns of B; no entries if all is defined.
#[derive(Default)]
pub struct Taints {
    rows: Vec<Taint>,
    columns: Vec<Taint>,
    /// The first unwritten byte of shared memory.
    hole: usize,
    /// Where a division by zero first affected a value in shared memory.
    divided: Option<(u32, u32)>,
}

impl Taints {
    /// Rows and columns that lie in unwritten shared memory, whose first unwritten byte is `hole`.
    pub fn in_memory(blk: &Block, rows: &[bool], columns: &[bool], hole: usize) -> Self {
        let taint = |memory: &bool| Taint { lanes: 0, memory: *memory };
        let (rows, columns) = (rows.iter().map(taint).collect(), columns.iter().map(taint).collect());
        Taints { rows, columns, hole, divided: blk.divided }
    }

    /// Adds an undefined register of a lane, which belongs to this row of A.
    fn add_row(&mut self, row: usize, l: usize) {
        add(&mut self.rows, row, l);
    }

    /// Adds an undefined register of a lane, which belongs to this column of B.
    fn add_column(&mut self, column: usize, l: usize) {
        add(&mut self.columns, column, l);
    }

    /// Adds a fragment of A, of `m` rows.
    fn add_rows(&mut self, w: &Warp, code: &Code, regs: &[Reg], m: usize) {
        for (k, r) in regs.iter().enumerate() {
            lanes(unknown(w, code, *r)).for_each(|l| self.add_row(place_a(m, 1, l, k, 0).0, l));
        }
    }

    /// Adds a fragment of B.
    fn add_columns(&mut self, w: &Warp, code: &Code, regs: &[Reg]) {
        lanes(regs.iter().fold(0, |all, r| all | unknown(w, code, *r))).for_each(|l| self.add_column(l / 4, l));
    }

    fn of(&self, (row, column): (usize, usize)) -> Taint {
        let of = |taints: &[Taint], k: usize| taints.get(k).copied().unwrap_or_default();
        of(&self.rows, row).with(of(&self.columns, column))
    }

    fn clean(&self) -> bool {
        [&self.rows, &self.columns].iter().all(|taints| taints.iter().all(|taint| *taint == Taint::default()))
    }
}

fn add(taints: &mut Vec<Taint>, k: usize, l: usize) {
    taints.resize(taints.len().max(k + 1), Taint::default());
    taints[k].lanes |= 1 << l;
}

/// `mma.sync`.
pub fn mma(cx: &Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, info: &Mma) {
    let code = &cx.prog.funcs[s.func as usize];
    let list = &code.lists[i.ext as usize..][..usize::from(i.len) - usize::from(info.sparse.is_some())];
    let (d, uses) = list.split_at(i.defs.into());
    let (m, n, k) = (usize::from(info.m), usize::from(info.n), usize::from(info.k));
    let held = if info.sparse.is_some() { k / 2 } else { k };
    let registers = |elements: usize, e: Elem| elements / 32 * e.bits() as usize / if e == Elem::F64 { 64 } else { 32 };
    let mut f = Taints::default();
    if info.quads() {
        return quads(w, s, code, info, d, uses);
    }
    let (a, uses) = uses.split_at(registers(m * held, info.a));
    let (b, c) = uses.split_at(registers(n * k, info.b));
    f.add_rows(w, code, a, m);
    f.add_columns(w, code, b);
    let own = own(w, code, c, packed(info.c));
    product(w, s, code, (d, packed(info.d)), &own, &f, wgmma::place);
}

/// `mma.sync` with four multiplications at once: each has eight rows and columns of its own.
fn quads(w: &mut Warp, s: &Split, code: &Code, info: &Mma, d: &[Reg], uses: &[Reg]) {
    let mut f = Taints::default();
    for k in 0..2 {
        for l in lanes(unknown(w, code, uses[k])) {
            mma_quads::lines(l, k, info.trans_a).for_each(|row| f.add_row(row, l));
        }
        for l in lanes(unknown(w, code, uses[2 + k])) {
            mma_quads::lines(l, k, info.trans_b).for_each(|column| f.add_column(column, l));
        }
    }
    let [from, to] = [info.c, info.d].map(|e| move |l: usize, k: usize| mma_quads::place_in_all(l, k, e == Elem::F16));
    let mut own = own(w, code, &uses[4..], packed(info.c));
    // The layout of the addend may differ from that of the results.
    if !own.is_empty() && info.c != info.d {
        let mut at = FxHashMap::default();
        own.iter().enumerate().for_each(|(k, lanes)| (0..32).for_each(|l| _ = at.insert(from(l, k), lanes[l])));
        own = (0..8).map(|k| std::array::from_fn(|l| at[&to(l, k)])).collect();
    }
    product(w, s, code, (d, packed(info.d)), &own, &f, to);
}

/// `wmma.mma`, whose fragments have the layout that [`super::wmma`] describes.
pub fn wmma(cx: &Cx<'_>, w: &mut Warp, s: &Split, [d, a, b, c]: [&[Reg]; 4], info: &Mma) {
    let code = &cx.prog.funcs[s.func as usize];
    let (m, n, k) = (usize::from(info.m), usize::from(info.n), usize::from(info.k));
    let mut f = Taints::default();
    each(w, code, a, m * k, info.a, |l, e| f.add_row(e / k, l));
    // For small elements, B is stored by columns.
    let small = info.b.bits() < 8;
    each(w, code, b, k * n, info.b, |l, e| f.add_column(if small { e / k } else { e % n }, l));
    let mut own = vec![];
    each(w, code, c, m * n, info.c, |l, e| {
        let count = m * n / 32;
        own.resize(count, [0; 32]);
        own[e % count][l] = 1 << l;
    });
    let place = |l: usize, e: usize| ((l * (m * n / 32) + e) / n, (l * (m * n / 32) + e) % n);
    product(w, s, code, (d, packed(info.d)), &own, &f, place);
}

/// Calls `f` with the lane and the place of each matrix element in an undefined register of a fragment.
fn each(w: &Warp, code: &Code, regs: &[Reg], elements: usize, e: Elem, mut f: impl FnMut(usize, usize)) {
    let (count, per) = (elements / 32, (32 / e.bits() as usize).max(1));
    for (k, r) in regs.iter().enumerate() {
        for l in lanes(unknown(w, code, *r)) {
            (per * k..count.min(per * (k + 1))).for_each(|e| f(l, l * count + e));
        }
    }
}

/// A `wgmma`, whose undefined inputs in shared memory are `f`.
pub fn wgmma(cx: &Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, info: &Mma, accumulate: bool, mut f: Taints) {
    let code = &cx.prog.funcs[s.func as usize];
    let (d, uses) = code.lists[i.ext as usize..][..i.len.into()].split_at(i.defs.into());
    let (c, uses) = uses.split_at(d.len());
    if info.a_regs {
        f.add_rows(w, code, &uses[..4], 16);
    }
    let own = own(w, code, if accumulate { c } else { &[] }, packed(info.d));
    product(w, s, code, (d, packed(info.d)), &own, &f, wgmma::place);
}

/// Number of accumulators in a register.
fn packed(e: Elem) -> usize {
    if e == Elem::F16 { 2 } else { 1 }
}

/// By accumulator and lane: the lanes whose addend is undefined. Empty if everything is defined.
fn own(w: &Warp, code: &Code, c: &[Reg], per: usize) -> Vec<[u32; 32]> {
    let added: Vec<u32> = c.iter().map(|r| unknown(w, code, *r)).collect();
    if added.iter().all(|lanes| *lanes == 0) {
        return vec![];
    }
    (0..per * c.len()).map(|e| std::array::from_fn(|l| added[e / per] & 1 << l)).collect()
}

/// Marks the undefined results of a multiplication; a register of `d` holds this many results, and `place` maps lane and accumulator to row
/// and column.
fn product(
    w: &mut Warp,
    s: &Split,
    code: &Code,
    (d, per): (&[Reg], usize),
    own: &[[u32; 32]],
    f: &Taints,
    place: impl Fn(usize, usize) -> (usize, usize),
) {
    if f.clean() && own.is_empty() {
        return define(w, code, d.iter().copied(), !0, 0);
    }
    let before = w.origins;
    let element = |l: usize, e: usize| {
        let added = Taint { lanes: own.get(e).map_or(0, |lanes| lanes[l]), memory: false };
        f.of(place(l, e)).with(added)
    };
    for (k, r) in d.iter().enumerate() {
        let mut bad = 0;
        for l in 0..32 {
            let taint = (per * k..per * (k + 1)).map(|e| element(l, e)).fold(Taint::default(), Taint::with);
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

/// `ldmatrix` of rows at these addresses, which are partly unwritten.
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

/// `stmatrix`: undefined elements count as not written.
pub fn stored(cl: &mut Cluster, w: &Warp, code: &Code, values: &[Reg], at: &[(usize, usize)], trans: bool) {
    for (r, rows) in values.iter().zip(at.chunks_exact(8)) {
        for l in lanes(unknown(w, code, *r)) {
            for (row, col) in matrix::places(l, trans) {
                let (b, off) = rows[row];
                stored_element(cl, w, l, (b, off + 2 * col), 2);
            }
        }
    }
}

/// A lane stores an undefined element.
pub fn stored_element(cl: &mut Cluster, w: &Warp, l: usize, (b, off): (usize, usize), bytes: usize) {
    unmark(&mut cl.blocks[b].shared_init, off, bytes);
    keep_division(&mut cl.blocks[b], w, l);
}

/// `movmatrix`: each lane receives halves of the registers of two other lanes.
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
