//! Checks of a `wgmma` when it is issued: bounds, races, and uninitialised inputs.

use super::cx::Cx;
use super::shared_check::{self, first_hole};
use super::state::*;
use super::undefined_matrix::Taints;
use super::wgmma::{WgOp, along, bytes, held, warp_rows};
use super::wgmma_desc::{Desc, pieces};
use crate::check::race::{Alike, Stamp};
use crate::report::{Earlier, Fault, Kind};

/// What a warp has issued so far.
#[derive(Clone, Copy, Default)]
pub struct Issued {
    count: u64,
    /// Depends on the texts of the instructions and on their order: compilers may have copied one into both sides of a branch.
    sum: u64,
    /// The number of the last one.
    last: u32,
}

impl Issued {
    pub fn add(&mut self, cx: &Cx<'_>, s: &Split) {
        let text = cx.prog.funcs[s.func as usize].origins[s.pc as usize].text;
        let sum = self.sum.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(u64::from(text) + 1);
        *self = Issued { count: self.count + 1, sum, last: cx.number(s) };
    }
}

/// A block has ended: checks that the warps of each warpgroup have issued the same.
pub fn ended(cx: &mut Cx<'_>, cl: &Cluster, w: &Warp, s: &Split, lane: u32) {
    let all: Vec<Issued> = cl.blocks[w.block].warps.iter().map(|o| o.as_deref().unwrap_or(w).wg_issued).collect();
    for (group, of) in all.chunks(4).enumerate() {
        let Some(k) = of.iter().position(|o| (o.count, o.sum) != (of[0].count, of[0].sum)) else { continue };
        let (less, more) = if of[k].count < of[0].count { (k, 0) } else { (0, k) };
        let (warp, other) = (4 * group + more, 4 * group + less);
        let earlier = Earlier { place: cx.place_of(of[more].last), who: format!("warp {warp}"), write: false };
        cx.report(w, s, lane, Kind::BarrierMisuse, None, Some(earlier), |_| {
            let (has, not) = (of[more].count, of[less].count);
            format!(
                "warp {warp} has issued {has} wgmma and warp {other} {not}, or others: all four warps of a warpgroup have to issue \
                 the same"
            )
        });
    }
}

fn tiles(op: &WgOp, w: &Warp, mut f: impl FnMut(usize)) {
    let (n, k) = (usize::from(op.info.n), along(&op.info));
    if let Some(a) = &op.a {
        pieces(a, warp_rows(w), 16, held(&op.info), bytes(op.info.a), |_, _, at| f(at));
    }
    pieces(&op.b, 0, n, k, bytes(op.info.b), |_, _, at| f(at));
}

/// Checks bounds and races; returns whether all shared memory that it reads was written.
pub fn check(cx: &mut Cx<'_>, cl: &mut Cluster, w: &Warp, s: &Split, op: &WgOp) -> Result<bool, Fault> {
    let len = cl.blocks[w.block].shared.len();
    let (mut worst, mut places) = (None, vec![0u64; len / 16 / 64 + 1]);
    tiles(op, w, |at| match at + 16 > len {
        true => worst = Some(at),
        false => places[at / 16 / 64] |= 1 << (at / 16 % 64),
    });
    if let Some(at) = worst {
        return cx.fault(
            w,
            s,
            0,
            Kind::OutOfBounds,
            format!("a matrix descriptor reaches shared address {at:#x} of {len} bytes"),
            Some(at as u64),
        );
    }
    if !cx.opts.checks.init && !cx.opts.checks.race {
        return Ok(true);
    }
    let (mut alike, mut known) = (Alike::default(), true);
    let agent = cl.clocks.as_mut().map(|clocks| clocks.warpgroup_agent(w.block, w.id / 4));
    for (at, n) in shared_check::runs(&places) {
        let Cluster { blocks, clocks, .. } = cl;
        let blk = &mut blocks[w.block];
        known &= !cx.opts.checks.init || shared_check::marked(&blk.shared_init, at, n);
        if let (Some(shadow), Some(c), Some(agent)) = (&mut blk.shadow, clocks, agent) {
            let me = Stamp::new(agent, 0, w.wg_committed + 1, cx.number(s), Stamp::PROXY);
            if let Some(conflict) = shadow.access_part(c, w.party(!0), me, at, n, false, &mut alike) {
                shared_check::report(cx, w, s, 0, conflict, false, at);
            }
        }
    }
    Ok(known)
}

/// The undefined inputs in the tiles that a multiplication reads.
pub fn unwritten(cl: &Cluster, w: &Warp, op: &WgOp) -> Taints {
    let blk = &cl.blocks[w.block];
    let info = &op.info;
    let (mut rows, mut columns, mut first) = ([false; 16], vec![false; info.n.into()], None);
    if let Some(a) = &op.a {
        lines(blk, a, warp_rows(w), held(info), bytes(info.a), &mut rows, &mut first);
    }
    lines(blk, &op.b, 0, along(info), bytes(info.b), &mut columns, &mut first);
    first.map_or_else(Taints::default, |hole| Taints::in_memory(blk, &rows, &columns, hole))
}

/// Which rows of a tile, starting at row `from`, have unwritten bytes, and the first of these bytes.
fn lines(blk: &Block, d: &Desc, from: usize, k: usize, bytes: usize, bad: &mut [bool], first: &mut Option<usize>) {
    pieces(d, from, bad.len(), k, bytes, |line, piece, at| {
        let Some(hole) = first_hole(&blk.shared_init, at, 16) else { return };
        first.get_or_insert(hole);
        if !d.transposed {
            bad[line] = true;
            return;
        }
        for (e, bad) in bad[piece * 16 / bytes..][..16 / bytes].iter_mut().enumerate() {
            *bad |= first_hole(&blk.shared_init, at + e * bytes, bytes).is_some();
        }
    });
}
