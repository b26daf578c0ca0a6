//! `cp.async`: per-thread copies from global to shared memory, in groups.

use super::cx::Cx;
use super::global_check::{Touch, check_load, check_race};
use super::mem_ops::{self, lanes};
use super::state::*;
use super::{cp_arrive, mbarrier, shared, shared_check};
use crate::check::global::GStamp;
use crate::check::race::{Cause, Conflict, IN_FLIGHT, Stamp};
use crate::ir::*;
use crate::launch::Completion;
use crate::report::{Fault, Kind};

pub use super::bulk::BulkOp;

/// The copies of one instruction, by lane.
pub struct CpEntry {
    mask: u32,
    dst: [(u32, u32); 32],
    src: [u64; 32],
    bytes: usize,
    take: [u8; 32],
    /// Lanes whose source is partly uninitialised.
    holes: u32,
    /// Group number; `u32::MAX` until the copy is committed.
    group: [u32; 32],
    done: bool,
}

impl CpEntry {
    fn piece(&self, l: usize) -> Piece {
        let CpEntry { bytes, done, .. } = *self;
        Piece {
            lane: l as u8,
            dst: self.dst[l],
            src: self.src[l],
            bytes,
            take: self.take[l],
            holes: self.holes >> l & 1 == 1,
            group: self.group[l],
            done,
        }
    }

    /// Whether this lane's copy, which no thread has waited for, reads some of these bytes.
    pub fn may_read(&self, l: usize, addr: u64, bytes: u64) -> bool {
        self.mask >> l & 1 == 1 && self.piece(l).reads(addr, bytes)
    }
}

/// The copy of one lane.
pub struct Piece {
    pub lane: u8,
    /// Block and offset.
    pub dst: (u32, u32),
    src: u64,
    pub bytes: usize,
    /// Number of bytes that are copied; the remaining ones are filled with zeros.
    take: u8,
    holes: bool,
    group: u32,
    done: bool,
}

impl Piece {
    /// Performs the copy, if it has not been performed yet.
    pub fn perform(&mut self, cx: &Cx<'_>, cl: &mut Cluster) {
        if std::mem::replace(&mut self.done, true) {
            return;
        }
        let data = self.data(cx);
        let (b, off) = (self.dst.0 as usize, self.dst.1 as usize);
        let blk = &mut cl.blocks[b];
        blk.shared[off..off + self.bytes].copy_from_slice(&data[..self.bytes]);
        if !blk.shared_init.is_empty() {
            shared_check::mark(&mut blk.shared_init, off, self.bytes);
            if self.holes {
                self.leave_holes(cx, &mut blk.shared_init);
            }
        }
    }

    /// Bytes that are uninitialised in the source become uninitialised in the destination.
    fn leave_holes(&self, cx: &Cx<'_>, init: &mut [u64]) {
        let (take, off) = (usize::from(self.take), self.dst.1 as usize);
        let Ok(al) = cx.mem.find(self.src, take as u64).map(|k| cx.mem.get(k)) else { return };
        let from = (self.src - al.base) as usize;
        (0..take).filter(|b| !al.marked(from + b, 1)).for_each(|b| shared_check::unmark(init, off + b, 1));
    }

    /// The bytes that it copies.
    fn data(&self, cx: &Cx<'_>) -> [u8; 16] {
        let mut data = [0; 16];
        // The bounds were checked when it was issued.
        let _ = cx.mem.read(self.src, &mut data[..usize::from(self.take)]);
        data
    }

    pub fn is_done(&self) -> bool {
        self.done
    }

    pub fn commit(&mut self, group: u32) {
        self.group = self.group.min(group);
    }

    /// Whether a wait for all but the latest `keep` of the given number of groups covers it; with `None`, every wait does.
    pub fn due(&self, committed: u32, keep: Option<u32>) -> bool {
        keep.is_none_or(|n| self.group != u32::MAX && self.group + n <= committed)
    }

    pub fn reads(&self, addr: u64, bytes: u64) -> bool {
        self.src < addr + bytes && addr < self.src + u64::from(self.take)
    }
}

pub fn cp_async(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    (bytes, bypass): (u8, bool),
    m: u32,
) -> Result<(), Fault> {
    let n = usize::from(bytes);
    let mut e = CpEntry {
        mask: m,
        dst: [(0, 0); 32],
        src: [0; 32],
        bytes: n,
        take: [bytes; 32],
        holes: 0,
        group: [u32::MAX; 32],
        done: false,
    };
    for l in lanes(m) {
        let addr = mbarrier::smem_address(cx, w, s, i.a, l)?;
        let (b, off) = shared::locate(cx, cl, w, s, l, addr, n, n)?;
        e.dst[l] = (b as u32, off as u32);
        e.src[l] = if i.b.class() == Class::Q { w.regs.q(i.b)[l] } else { u64::from(w.regs.r(i.b)[l]) };
        if i.c.is_some() {
            let t = w.regs.r(i.c)[l];
            if t > u32::from(bytes) {
                return cx.fault(
                    w,
                    s,
                    l as u32,
                    Kind::IllegalInstruction,
                    format!("a source size of {t} for a copy of {n}"),
                    None,
                );
            }
            e.take[l] = t as u8;
        }
        if e.take[l] > 0 {
            if !e.src[l].is_multiple_of(n as u64) {
                return cx.fault(
                    w,
                    s,
                    l as u32,
                    Kind::Misaligned,
                    format!("cp.async of {n} bytes from a misaligned address"),
                    Some(e.src[l]),
                );
            }
            let take = u64::from(e.take[l]);
            let k = mem_ops::locate(cx, w, s, l, e.src[l], take, "cp.async")?;
            if cx.opts.checks.init || cx.global_shadow.is_some() {
                let t = Touch { lane: l, alloc: k, addr: e.src[l], bytes: take, write: false, marks: GStamp::COPY };
                e.holes |= u32::from(check_load(cx, w, s, t)) << l;
                check_race(cx, cl, w, s, t, |_| false);
            }
        }
        if let (Some(shadow), Some(clocks)) = (&mut cl.blocks[b].shadow, &cl.clocks) {
            let me = Stamp::new(w.agent, l as u8, IN_FLIGHT, cx.number(s), 0);
            // Several lanes of one instruction may copy the same bytes.
            let again = |c: &Conflict| {
                let other = usize::from(c.stamp.lane());
                let twin = c.stamp.agent() == w.agent && c.stamp.pc() == me.pc() && other < l && m >> other & 1 == 1;
                twin && (e.src[other], e.take[other], e.dst[other]) == (e.src[l], e.take[l], e.dst[l])
            };
            let found = shadow.access(clocks, w.party(1 << l), me, off, n, true).filter(|c| !again(c));
            if let Some(c) = found.filter(|c| !brings_the_same(cx, cl, w, c, &e.piece(l))) {
                shared_check::report(cx, w, s, l, c, true, off);
            }
        }
    }
    // A lane that only fills with zeros reads nothing.
    let reading = (0..32).filter(|l| m >> l & 1 == 1 && e.take[*l] > 0).fold(0, |mask, l| mask | 1 << l);
    if let Some(mx) = &mut cx.metrics
        && reading != 0
    {
        if bypass {
            mx.bypass(s.func, s.pc, &e.src, reading, n as u32);
        } else {
            mx.global(s.func, s.pc, &e.src, reading, n as u32, false);
        }
    }
    if cx.opts.async_completion == Completion::Earliest {
        for l in lanes(m) {
            e.piece(l).perform(cx, cl);
        }
        e.done = true;
    }
    w.cp.push(e);
    Ok(())
}

/// Whether a copy leaves memory as another thread has written it, or as the pending copy of another warp will write it.
fn brings_the_same(cx: &Cx<'_>, cl: &Cluster, w: &Warp, c: &Conflict, mine: &Piece) -> bool {
    let (block, at, n) = (mine.dst.0 as usize, mine.dst.1 as usize, mine.bytes);
    let data = &mine.data(cx)[..n];
    if !c.write || c.cause == Cause::Proxy {
        return false;
    }
    if c.cause == Cause::Unordered {
        return data == &cl.blocks[block].shared[at..at + n];
    }
    let agent = c.stamp.agent();
    let warps = cl.blocks[w.block].warps.len();
    let other = cl.blocks.get(agent / warps).and_then(|b| b.warps[agent % warps].as_deref());
    let twin = |piece: Piece| (piece.dst, piece.bytes) == (mine.dst, n) && &piece.data(cx)[..n] == data;
    let lane = usize::from(c.stamp.lane());
    other.is_some_and(|o| o.cp.iter().any(|e| e.mask.unbounded_shr(lane as u32) & 1 == 1 && twin(e.piece(lane))))
}

pub fn commit(cl: &mut Cluster, w: &mut Warp, m: u32) {
    for l in lanes(m) {
        w.cp_committed[l] += 1;
        for e in w.cp.iter_mut().filter(|e| e.mask >> l & 1 == 1 && e.group[l] == u32::MAX) {
            e.group[l] = w.cp_committed[l];
        }
    }
    if !cl.arrivals.is_empty() {
        cp_arrive::commit(cl, w, m);
    }
}

/// Takes the copies of these lanes that no thread has waited for; the warp no longer tracks them.
pub fn take(w: &mut Warp, m: u32) -> Vec<Piece> {
    let mut pieces = vec![];
    for e in &mut w.cp {
        pieces.extend(lanes(e.mask & m).map(|l| e.piece(l)));
        e.mask &= !m;
    }
    w.cp.retain(|e| e.mask != 0);
    pieces
}

/// Completes all but the latest `keep` groups; all of them if `None`.
pub fn wait(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    _s: &Split,
    m: u32,
    keep: Option<u32>,
) -> Result<(), Fault> {
    let mut entries = std::mem::take(&mut w.cp);
    for e in &mut entries {
        for l in lanes(e.mask & m) {
            let mut piece = e.piece(l);
            if !piece.due(w.cp_committed[l], keep) {
                continue;
            }
            piece.perform(cx, cl);
            if let (Some(shadow), Some(c)) = (&mut cl.blocks[e.dst[l].0 as usize].shadow, &cl.clocks) {
                shadow.settle(e.dst[l].1 as usize, e.bytes, w.agent, l as u8, c.now(w.agent));
            }
            e.mask &= !(1 << l);
        }
    }
    entries.retain(|e| e.mask != 0);
    w.cp = entries;
    if !cl.arrivals.is_empty() {
        cp_arrive::wait(cx, cl, w, m, keep);
    }
    Ok(())
}

/// Performs the copies that no thread waited for, when the thread exits.
pub fn finish(cx: &mut Cx<'_>, cl: &mut Cluster, w: &mut Warp, s: &Split, m: u32) -> Result<(), Fault> {
    if !cl.arrivals.is_empty() {
        cp_arrive::finish(cx, cl, w, m);
    }
    if !w.cp.is_empty() {
        wait(cx, cl, w, s, m, None)?;
    }
    if !w.bulk.is_empty() {
        super::tma::finish(cx, cl, w, s, m);
    }
    Ok(())
}
