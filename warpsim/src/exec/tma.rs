//! Bulk copies and reductions, linear and tensor: `cp.async.bulk` and its kin.

use std::mem;

use super::bulk::{BulkOp, Far, Target, gather, read_shared, write_global, write_shared};
use super::cx::Cx;
use super::global_check::{check_map, settle as settle_global};
use super::mem_ops::lanes;
use super::state::*;
use super::{bulk_check, mbarrier, shared};
use crate::ir::*;
use crate::launch::Completion;
use crate::memory::{space_of, window};
use crate::report::{Earlier, Fault, Kind};
use crate::tensor_map::TensorMap;

fn perform_load(cx: &Cx<'_>, cl: &mut Cluster, op: &BulkOp) {
    let data = gather(cx, cl, op);
    for t in &op.targets {
        write_shared(cl, *t, &data, op.swizzle(), op.reduce);
        mbarrier::complete_tx(cl, t.bar.0, t.bar.1, data.len() as u32);
    }
}

/// Performs the pending bulk copies that complete on this mbarrier.
pub fn complete_on(cx: &Cx<'_>, cl: &mut Cluster, (b, off): (u32, u32)) {
    let mut pending = mem::take(&mut cl.pending);
    for op in pending.extract_if(.., |op| op.targets.iter().any(|t| t.bar == (b, off))) {
        perform_load(cx, cl, &op);
    }
    cl.pending = pending;
}

pub fn issue(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    l: usize,
    mut op: BulkOp,
) -> Result<(), Fault> {
    // When several lanes of a warp issue the same bulk store, a GPU performs it once.
    if w.bulk.last().is_some_and(|before| op.repeats(before)) {
        return Ok(());
    }
    bulk_check::check(cx, cl, w, s, l, &op)?;
    if let Some(mx) = &mut cx.metrics
        && !matches!(op.far, Far::Value(_))
    {
        mx.bulk(op.bytes() as u64, op.load);
        op.spans(|addr, n| mx.touch(addr, n));
    }
    let now = cx.opts.async_completion == Completion::Earliest;
    match (op.load, now) {
        (true, true) => perform_load(cx, cl, &op),
        (true, false) => cl.pending.push(op),
        (false, _) => {
            if now {
                let data = read_shared(cl, op.targets[0], op.bytes(), op.swizzle());
                write_global(cx, &op, &data);
                op.data = Some(vec![]);
            }
            w.bulk.push(op);
        }
    }
    Ok(())
}

pub fn bulk(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    b: Bulk,
    m: u32,
) -> Result<(), Fault> {
    let list = &cx.prog.funcs[s.func as usize].lists[i.ext as usize..];
    let (bar, mask) = (list[0], list[1]);
    for l in lanes(m) {
        let bytes = w.regs.r(i.c)[l] as usize;
        let refused = match bytes {
            _ if !bytes.is_multiple_of(16) => Some((Kind::Misaligned, "a multiple of 16 is needed")),
            // Also what a subtraction below zero looks like.
            _ if bytes > 1 << 20 => Some((Kind::OutOfBounds, "no shared memory is that large")),
            _ => None,
        };
        if let Some((kind, why)) = refused {
            return cx.fault(w, s, l as u32, kind, format!("a bulk copy of {bytes} bytes: {why}"), None);
        }
        let wide = |r: Reg| if r.class() == Class::Q { w.regs.q(r)[l] } else { u64::from(w.regs.r(r)[l]) };
        let load = b.dir != BulkDir::SharedToGlobal;
        let (near, far) = if load { (i.a, i.b) } else { (i.b, i.a) };
        let addr = mbarrier::smem_address(cx, w, s, near, l)?;
        let (blk, off) = shared::locate(cx, cl, w, s, l, addr, bytes, 16)?;
        let far = if b.dir == BulkDir::SharedToCluster {
            let src = mbarrier::smem_address(cx, w, s, far, l)?;
            let (block, off) = shared::locate(cx, cl, w, s, l, src, bytes, 16)?;
            // The source is in `.shared::cta`, whatever the destination is.
            if block != w.block {
                return shared::elsewhere(cx, w, s, l, src, block);
            }
            Far::Peer { block: block as u32, off: off as u32, bytes }
        } else {
            let addr = wide(far);
            if addr % 16 != 0 {
                return cx.fault(
                    w,
                    s,
                    l as u32,
                    Kind::Misaligned,
                    "a bulk copy at a global address that is not a multiple of 16",
                    Some(addr),
                );
            }
            Far::Linear { addr, bytes }
        };
        let targets = targets(cx, cl, w, s, l, (blk, off), bar, if b.multicast { mask } else { Reg::NONE })?;
        issue(
            cx,
            cl,
            w,
            s,
            l,
            BulkOp {
                lane: l,
                group: u32::MAX,
                far,
                targets,
                load,
                reduce: b.reduce,
                data: None,
                settled: false,
                from: (s.func, s.pc),
            },
        )?;
    }
    Ok(())
}

/// The destinations of a load: this block, or the same offset in every block of the mask.
fn targets(
    cx: &Cx<'_>,
    cl: &Cluster,
    w: &Warp,
    s: &Split,
    l: usize,
    near: (usize, usize),
    bar: Reg,
    mask: Reg,
) -> Result<Vec<Target>, Fault> {
    let off = near.1 as u32;
    if !bar.is_some() {
        return Ok(vec![Target { block: near.0 as u32, off, bar: (0, 0) }]);
    }
    let bar = mbarrier::place(cx, cl, w, s, bar, l)?;
    if !mask.is_some() {
        return Ok(vec![Target { block: near.0 as u32, off, bar }]);
    }
    let mask = w.regs.r(mask)[l];
    if mask >> cl.blocks.len() != 0 {
        return cx.fault(
            w,
            s,
            l as u32,
            Kind::OutOfBounds,
            format!("multicast to {mask:#x} in a cluster of {}", cl.blocks.len()),
            None,
        );
    }
    Ok(lanes(mask).map(|b| Target { block: b as u32, off, bar: (b as u32, bar.1) }).collect())
}

pub fn tensor(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    s: &Split,
    i: &Inst,
    t: TensorCopy,
    m: u32,
) -> Result<(), Fault> {
    let list = &cx.prog.funcs[s.func as usize].lists[i.ext as usize..i.ext as usize + usize::from(i.len)];
    for l in lanes(m) {
        let map_addr = if i.b.class() == Class::Q { w.regs.q(i.b)[l] } else { u64::from(w.regs.r(i.b)[l]) };
        let mut raw = [0u8; 128];
        let found = if space_of(map_addr) == MemSpace::Param {
            let at = (map_addr - window(MemSpace::Param)) as usize;
            cx.launch.params.get(at..at + 128).map(|b| raw.copy_from_slice(b)).is_some()
        } else {
            cx.mem.read(map_addr, &mut raw).is_ok()
        };
        if map_addr % 64 != 0 {
            return cx.fault(
                w,
                s,
                l as u32,
                Kind::Misaligned,
                "a tensor map at an address that is not a multiple of 64",
                Some(map_addr),
            );
        }
        let map = if found { TensorMap::parse(&raw) } else { Err("no memory is there".into()) };
        let map = match map {
            Ok(map) => map,
            Err(why) => {
                let what = format!("not a tensor map: {why}");
                return cx.fault(w, s, l as u32, Kind::IllegalInstruction, what, Some(map_addr));
            }
        };
        if space_of(map_addr) != MemSpace::Param && cx.opts.checks.race {
            check_map(cx, cl, w, s, l, map_addr);
        }
        if map.dims.len() != usize::from(t.rank) {
            return cx.fault(
                w,
                s,
                l as u32,
                Kind::IllegalInstruction,
                format!("a {}-dimensional tensor map with {} coordinates", map.dims.len(), t.rank),
                None,
            );
        }
        if map.im2col.is_some() != t.im2col {
            let (is, by) = if t.im2col { ("a tiled tensor map", "im2col") } else { ("an im2col tensor map", "tile") };
            let what = format!("{is} with a copy by .{by}");
            return cx.fault(w, s, l as u32, Kind::IllegalInstruction, what, Some(map_addr));
        }
        let (mut at, mut off) = ([0i64; 5], [0i64; 3]);
        let (coordinates, offsets) = list[2..].split_at(usize::from(t.rank));
        for (d, r) in coordinates.iter().enumerate() {
            at[d] = i64::from(w.regs.r(*r)[l] as i32);
        }
        for (d, r) in offsets.iter().enumerate() {
            off[d] = i64::from(w.regs.r(*r)[l] & 0xffff);
        }
        if let Some(what) =
            map.start_wrong(&at[..coordinates.len()], t.way).or_else(|| map.im2col_wrong(&at, &off, t.way))
        {
            return cx.fault(w, s, l as u32, Kind::IllegalInstruction, what, None);
        }
        if t.way == Way::Prefetch {
            continue;
        }
        let bytes = map.tile_bytes();
        let addr = mbarrier::smem_address(cx, w, s, i.a, l)?;
        let near = shared::locate(cx, cl, w, s, l, addr, bytes, 128)?;
        let reduce = match t.reduce {
            None => None,
            Some(op) => match map.data_type.number(op) {
                Some(ty) => Some((op, ty)),
                None => {
                    return cx.fault(
                        w,
                        s,
                        l as u32,
                        Kind::IllegalInstruction,
                        "a reduction on this element type",
                        None,
                    );
                }
            },
        };
        let targets = targets(
            cx,
            cl,
            w,
            s,
            l,
            near,
            if t.way == Way::Load { list[0] } else { Reg::NONE },
            if t.multicast { list[1] } else { Reg::NONE },
        )?;
        let far = Far::Tensor { map: Box::new(map), at, off };
        issue(
            cx,
            cl,
            w,
            s,
            l,
            BulkOp {
                lane: l,
                group: u32::MAX,
                far,
                targets,
                load: t.way == Way::Load,
                reduce,
                data: None,
                settled: false,
                from: (s.func, s.pc),
            },
        )?;
    }
    Ok(())
}

pub fn commit(w: &mut Warp, m: u32) {
    for l in lanes(m) {
        w.bulk_committed[l] += 1;
        let g = w.bulk_committed[l];
        w.bulk.iter_mut().filter(|o| o.lane == l && o.group == u32::MAX).for_each(|o| o.group = g);
    }
}

/// Reads the shared-memory sources of all stores but those of the latest `keep` groups; also performs the writes unless `read`.
pub fn wait(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &mut Warp,
    _s: &Split,
    m: u32,
    keep: u32,
    read: bool,
) -> Result<(), Fault> {
    let mut ops = std::mem::take(&mut w.bulk);
    for op in &mut ops {
        let due = m >> op.lane & 1 == 1 && op.group != u32::MAX && op.group + keep <= w.bulk_committed[op.lane];
        if !due {
            continue;
        }
        if op.data.is_none() {
            op.data = Some(read_shared(cl, op.targets[0], op.bytes(), op.swizzle()));
        }
        if !op.settled {
            op.settled = true;
            settle(cl, w, op);
        }
        if !read {
            op.spans(|addr, n| {
                if let Ok(alloc) = cx.mem.find(addr, n) {
                    settle_global(cx, cl, w, op.lane, alloc, addr, n);
                }
            });
            flush(cx, op);
        }
    }
    ops.retain(|o| !o.targets.is_empty());
    w.bulk = ops;
    Ok(())
}

fn settle(cl: &mut Cluster, w: &Warp, op: &BulkOp) {
    let t = op.targets[0];
    if let (Some(shadow), Some(c)) = (&mut cl.blocks[t.block as usize].shadow, &cl.clocks) {
        shadow.settle(t.off as usize, op.bytes(), w.agent, op.lane as u8, c.now(w.agent));
    }
}

/// Writes a store's data; an operation without targets is complete then.
fn flush(cx: &Cx<'_>, op: &mut BulkOp) {
    if let Some(d) = op.data.take()
        && !d.is_empty()
    {
        write_global(cx, op, &d);
    }
    op.targets.clear();
}

/// Performs the stores that no thread waited for, when the thread exits (with late completion: with the contents of shared memory at that
/// time).
pub fn finish(cx: &mut Cx<'_>, cl: &mut Cluster, w: &mut Warp, s: &Split, m: u32) {
    let mut ops = std::mem::take(&mut w.bulk);
    for op in ops.iter_mut().filter(|o| m >> o.lane & 1 == 1) {
        if cx.opts.checks.sync && !op.settled {
            let thread = cx.thread(w.id, op.lane as u32);
            let who = format!("the bulk store of thread ({},{},{})", thread[0], thread[1], thread[2]);
            let earlier = Earlier { place: cx.place(op.from.0, op.from.1), who, write: false };
            cx.report(w, s, op.lane as u32, Kind::EarlyExit, None, Some(earlier), |_| {
                "exits while its bulk store may still read shared memory: cp.async.bulk.wait_group.read is missing"
                    .into()
            });
        }
        if op.data.is_none() {
            op.data = Some(read_shared(cl, op.targets[0], op.bytes(), op.swizzle()));
        }
        flush(cx, op);
    }
    ops.retain(|o| !o.targets.is_empty());
    w.bulk = ops;
}
