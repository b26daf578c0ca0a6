//! `wgmma`: each warp of a warpgroup computes its 16 rows.
//!
//! The four warps work together: a group is complete when all of them have committed it, and a wait by one of them is a wait for the reads of
//! all.

use std::sync::Arc;

use super::cx::Cx;
use super::mma::{element, fill, integer, is_int, product};
use super::run::Flow;
use super::state::*;
use super::undefined_matrix::Taints;
use super::wgmma_desc::{Desc, pieces};
use super::{sparse, undefined_matrix, warp_ops, wgmma_check, wgmma_regs};
use crate::ir::*;
use crate::launch::Completion;
use crate::num;
use crate::report::{Fault, Kind};

/// A multiplication that has been issued.
pub struct WgOp {
    pub info: Arc<Mma>,
    d: Vec<Reg>,
    bases: Bases,
    a_frag: [[u32; 32]; 4],
    /// For a sparse multiplication: see [`sparse::columns`].
    columns: Option<Vec<u8>>,
    pub a: Option<Desc>,
    pub b: Desc,
    accumulate: bool,
    group: u32,
    done: bool,
}

pub fn fence(cx: &mut Cx<'_>, cl: &Cluster, w: &mut Warp, s: &Split, m: u32) -> Result<(), Fault> {
    warp_ops::all_lanes(cx, w, s, m)?;
    if w.id / 4 * 4 + 4 > cl.blocks[w.block].warps.len() {
        return cx.fault(w, s, 0, Kind::IllegalInstruction, "wgmma in a warpgroup of fewer than four warps", None);
    }
    w.wg_regs.fence();
    Ok(())
}

pub fn issue(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    info: &Arc<Mma>,
    m: u32,
) -> Result<(), Fault> {
    warp_ops::all_lanes(cx, w, s, m)?;
    let list = &cx.prog.funcs[s.func as usize].lists[i.ext as usize..i.ext as usize + usize::from(i.len)];
    let defs = usize::from(i.defs);
    let uniform = |r: Reg| -> Option<u64> {
        let q = w.regs.q(r);
        q.iter().all(|v| *v == q[0]).then_some(q[0])
    };
    let (Some(vb), Some(va)) = (uniform(i.b), if info.a_regs { Some(0) } else { uniform(i.a) }) else {
        return cx.fault(w, s, 0, Kind::IllegalInstruction, "a matrix descriptor that differs between lanes", None);
    };
    let b = Desc::new(vb, info.trans_b);
    let a = (!info.a_regs).then(|| Desc::new(va, info.trans_a));
    let mut op = WgOp {
        info: info.clone(),
        d: list[..defs].to_vec(),
        bases: s.bases,
        a_frag: [[0; 32]; 4],
        columns: None,
        a,
        b,
        accumulate: w.regs.pred(i.c) & 1 == 1,
        group: u32::MAX,
        done: false,
    };
    if let (Some(sparse), Some(metadata)) = (info.sparse, list.last()) {
        op.columns = Some(sparse::columns(cx, w, s, info, sparse, *metadata)?);
    }
    if info.a_regs {
        for (k, r) in list[2 * defs..].iter().enumerate().take(4) {
            op.a_frag[k] = *w.regs.r(*r);
        }
    }
    w.wg_issued.add(cx, s);
    let known = wgmma_check::check(cx, cl, w, s, &op)?;
    if !known || cx.watches(w, s) {
        let taints = if known { Taints::default() } else { wgmma_check::unwritten(cl, w, &op) };
        undefined_matrix::wgmma(cx, w, s, i, info, op.accumulate, taints);
    }
    let serial = cx.prog.funcs[s.func as usize].serial;
    if cx.opts.checks.race && !serial {
        wgmma_regs::issue(cx, w, s, i, w.wg_committed + 1);
    }
    if let Some(mx) = &mut cx.metrics {
        mx.tensor_flops(2 * 16 * u64::from(info.n) * u64::from(info.k));
    }
    if serial || cx.opts.async_completion == Completion::Earliest {
        compute(cl, w, &op, &mut Factors::default());
        op.done = true;
    }
    w.wg.push_back(op);
    Ok(())
}

pub fn warp_rows(w: &Warp) -> usize {
    16 * (w.id % 4)
}

/// Number of elements along k; for single bits, number of bytes.
pub fn along(info: &Mma) -> usize {
    usize::from(info.k) / if info.a == Elem::B1 { 8 } else { 1 }
}

/// Number of elements that A stores per row: half if it is sparse.
pub fn held(info: &Mma) -> usize {
    along(info) / if info.sparse.is_some() { 2 } else { 1 }
}

pub fn bytes(e: Elem) -> usize {
    (e.bits() as usize / 8).max(1)
}

pub fn commit(cl: &mut Cluster, w: &mut Warp) {
    w.wg_committed += 1;
    let g = w.wg_committed;
    if let Some(c) = &mut cl.clocks {
        c.multiplied(w.party(w.alive), w.block, w.id / 4, g);
    }
    w.wg.iter_mut().filter(|o| o.group == u32::MAX).for_each(|o| o.group = g);
}

/// True when the whole warpgroup has committed `target` groups.
pub fn all_committed(cl: &Cluster, w: &Warp, target: u32) -> bool {
    let first = w.id / 4 * 4;
    let warps = &cl.blocks[w.block].warps;
    warps[first..(first + 4).min(warps.len())].iter().flatten().all(|o| o.done() || o.wg_committed >= target)
}

/// Completes all but the latest `keep` groups of all four warps.
pub fn wait(cl: &mut Cluster, w: &mut Warp, keep: u32) -> Flow {
    let target = w.wg_committed.saturating_sub(keep);
    if !all_committed(cl, w, target) {
        return Flow::Retry(Wait::Warpgroup { target });
    }
    let first = w.id / 4 * 4;
    let mut factors = Factors::default();
    finish(cl, w, target, &mut factors);
    for k in first..(first + 4).min(cl.blocks[w.block].warps.len()) {
        if let Some(mut o) = cl.blocks[w.block].warps[k].take() {
            finish(cl, &mut o, target, &mut factors);
            cl.blocks[w.block].warps[k] = Some(o);
        }
    }
    w.wg_regs.wait(target);
    if let Some(c) = &mut cl.clocks {
        let agent = c.warpgroup_agent(w.block, w.id / 4);
        c.learn(w.agent, agent, target);
    }
    Flow::Next
}

fn finish(cl: &Cluster, w: &mut Warp, target: u32, factors: &mut Factors) {
    while let Some(op) = w.wg.pop_front_if(|o| o.group <= target) {
        if !op.done {
            compute(cl, w, &op, factors);
        }
    }
}

/// The B matrices of multiplications that complete together, in rows of n. The four warps of a warpgroup use the same B, so it is read once.
#[derive(Default)]
struct Factors(Vec<Factor>);

struct Factor {
    desc: Desc,
    elem: Elem,
    extent: [usize; 2],
    values: Vec<f32>,
}

impl Factors {
    /// The B matrix of a multiplication. Shared memory is not written in between.
    fn of(&mut self, sh: &[u8], op: &WgOp) -> &[f32] {
        let (elem, n, k) = (op.info.b, usize::from(op.info.n), usize::from(op.info.k));
        let same = |f: &Factor| f.desc == op.b && f.elem == elem && f.extent == [n, k];
        let found = self.0.iter().position(same).unwrap_or_else(|| {
            let bytes = elem.bits() as usize / 8;
            let values = matrix(sh, &op.b, 0, [n, k], bytes, |row, col| col * n + row, |v| element(elem, v, 0));
            self.0.push(Factor { desc: op.b, elem, extent: [n, k], values });
            self.0.len() - 1
        });
        &self.0[found].values
    }
}

/// Reads a tile of `rows` × `k` elements, starting at row `first`, and puts each element at the index that `place` gives.
fn matrix<T: Copy + Default>(
    sh: &[u8],
    d: &Desc,
    first: usize,
    [rows, k]: [usize; 2],
    bytes: usize,
    place: impl Fn(usize, usize) -> usize,
    get: impl Fn(u32) -> T,
) -> Vec<T> {
    match bytes {
        1 => elements(sh, d, first, [rows, k], place, |[a]: [u8; 1]| get(a.into())),
        2 => elements(sh, d, first, [rows, k], place, |pair| get(u16::from_le_bytes(pair).into())),
        _ => elements(sh, d, first, [rows, k], place, |word| get(u32::from_le_bytes(word))),
    }
}

/// The same, for elements of `BYTES` bytes.
fn elements<T: Copy + Default, const BYTES: usize>(
    sh: &[u8],
    d: &Desc,
    first: usize,
    [rows, k]: [usize; 2],
    place: impl Fn(usize, usize) -> usize,
    get: impl Fn([u8; BYTES]) -> T,
) -> Vec<T> {
    let mut out = vec![T::default(); rows * k];
    pieces(d, first, rows, k, BYTES, |line, piece, at| {
        for (e, element) in sh[at..at + 16].as_chunks::<BYTES>().0.iter().enumerate() {
            let x = piece * (16 / BYTES) + e;
            let (row, col) = if d.transposed { (x, line) } else { (line, x) };
            if row < rows && col < k {
                out[place(row, col)] = get(*element);
            }
        }
    });
    out
}

fn compute(cl: &Cluster, w: &mut Warp, op: &WgOp, factors: &mut Factors) {
    let info = &op.info;
    let (n, k, held) = (usize::from(info.n), along(info), held(info));
    let (ba, bb) = (bytes(info.a), bytes(info.b));
    let sh = &cl.blocks[w.block].shared[..];
    let saved = (w.regs.rb, w.regs.qb, w.regs.pb);
    w.set_bases(op.bases);
    let first = warp_rows(w);
    let by_rows = |row: usize, col: usize| row * held + col;
    let fragment = |l: usize, r: usize, e: usize, per: usize| (l / 4 + 8 * (r & 1), per * (l % 4 + 4 * (r >> 1)) + e);
    if is_int(info.a) {
        let mut a = vec![0i32; 16 * held];
        // Single bits are multiplied eight at a time.
        let bits = info.a == Elem::B1;
        let of = |t: Elem| if bits { Elem::U8 } else { t };
        let (ta, tb) = (of(info.a), of(info.b));
        match &op.a {
            Some(d) => a = matrix(sh, d, first, [16, held], ba, by_rows, |v| integer(ta, v, 0)),
            None => fill(op.a_frag.iter(), 4, held, &mut a, |l, r, e| fragment(l, r, e, 4), |v, e| integer(ta, v, e)),
        }
        let b = matrix(sh, &op.b, 0, [n, k], bb, |row, col| row * k + col, |v| integer(tb, v, 0));
        for (c, r) in op.d.iter().enumerate() {
            let d = &mut w.regs.r[w.regs.rb + r.slot()];
            for (l, v) in d.iter_mut().enumerate() {
                let (row, col) = place(l, c);
                let (x, y) = (&a[row * held..][..held], &b[col * k..][..k]);
                let sum: i64 = match &op.columns {
                    None if bits => x.iter().zip(y).map(|(p, q)| i64::from((p & q).count_ones())).sum(),
                    None => x.iter().zip(y).map(|(p, q)| i64::from(p * q)).sum(),
                    Some(at) => x.iter().zip(&at[row * held..]).map(|(p, k)| i64::from(p * y[usize::from(*k)])).sum(),
                };
                let start = if op.accumulate { i64::from(*v as i32) } else { 0 };
                *v = if info.sat {
                    (start + sum).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as u32
                } else {
                    (start + sum) as u32
                };
            }
        }
    } else {
        let per = 32 / info.a.bits() as usize;
        let mut a = vec![0f32; 16 * held];
        match &op.a {
            Some(d) => a = matrix(sh, d, first, [16, held], ba, by_rows, |v| element(info.a, v, 0)),
            None => fill(
                op.a_frag.iter(),
                per,
                held,
                &mut a,
                |l, r, e| fragment(l, r, e, per),
                |v, e| element(info.a, v, e),
            ),
        }
        let b = factors.of(sh, op);
        if info.neg_a != info.neg_b {
            a.iter_mut().for_each(|x| *x = -*x);
        }
        let mut sums = vec![0f32; 16 * n];
        match &op.columns {
            None => product(&a, b, &mut sums, k, n),
            Some(at) => {
                for (row, out) in sums.chunks_exact_mut(n).enumerate() {
                    for e in row * held..(row + 1) * held {
                        let y = &b[usize::from(at[e]) * n..][..n];
                        out.iter_mut().zip(y).for_each(|(o, y)| *o += a[e] * y);
                    }
                }
            }
        }
        let half = info.d == Elem::F16;
        // The position of each lane's first accumulator; the distances to the other accumulators are the same in all lanes.
        let lanes: [usize; 32] = std::array::from_fn(|l| place(l, 0).0 * n + place(l, 0).1);
        for c in 0..n / 2 {
            let r = op.d[if half { c / 2 } else { c }];
            let sh = 16 * (c % 2);
            let sums = &sums[place(0, c).0 * n + place(0, c).1..];
            let d = &mut w.regs.r[w.regs.rb + r.slot()];
            for (v, at) in d.iter_mut().zip(lanes) {
                let old = match (op.accumulate, half) {
                    (false, _) => 0.0,
                    (true, true) => num::f16_to_f32(*v >> sh & 0xffff),
                    (true, false) => f32::from_bits(*v),
                };
                let new = old + sums[at];
                *v = if half { *v & !(0xffff << sh) | num::f32_to_f16(new) << sh } else { num::canon(new) };
            }
        }
    }
    (w.regs.rb, w.regs.qb, w.regs.pb) = saved;
}

/// Row and column of accumulator `c` in lane `l`.
pub fn place(l: usize, c: usize) -> (usize, usize) {
    (l / 4 + 8 * (c / 2 % 2), 8 * (c / 4) + 2 * (l % 4) + c % 2)
}
