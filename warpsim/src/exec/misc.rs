//! Frames, exits, special instructions, printing.

use std::cell::Cell;

use super::cx::Cx;
use super::shared;
use super::state::*;
use super::{barrier, cluster_barrier, coop, early_exit, mbarrier_check, mem_ops, registers, wgmma_check};
use crate::ir::*;
use crate::memory::{space_of, window};
use crate::report::{Fault, Kind};

/// Lanes exit the kernel.
pub fn exit(cx: &mut Cx<'_>, cl: &mut Cluster, w: &mut Warp, s: &Split, m: u32) -> Result<(), Fault> {
    super::async_copy::finish(cx, cl, w, s, m)?;
    let last = m == w.alive && cl.blocks[w.block].live == 1;
    early_exit::check(cx, cl, w, s, m, last);
    if last && cx.opts.checks.sync {
        mbarrier_check::ended(cx, cl, w, s, m.trailing_zeros());
        registers::ended(cx, cl, w, s, m.trailing_zeros());
        wgmma_check::ended(cx, cl, w, s, m.trailing_zeros());
    }
    w.exit(m);
    if w.done() {
        cl.blocks[w.block].live -= 1;
        if cl.blocks[w.block].live == 0 {
            coop::ended(cx, cl, w.block);
        }
    }
    cluster_barrier::settle(cl, w);
    barrier::after_exit(cx, cl, w);
    cl.events += 1;
    Ok(())
}

/// Initialises the constant slots of a function's frame for the lanes of `mask`.
pub fn enter(
    cx: &Cx<'_>,
    w: &mut Warp,
    cl_rank: u32,
    func: u32,
    bases: Bases,
    mask: u32,
) -> Result<(), (Kind, String)> {
    let code = &cx.prog.funcs[func as usize];
    let grow = |v: usize, n: u32| v + n as usize;
    let r = &mut w.regs;
    if r.r.len() < grow(bases.rb, code.nr) {
        r.r.resize(grow(bases.rb, code.nr), [0; 32]);
    }
    if r.q.len() < grow(bases.qb, code.nq) {
        r.q.resize(grow(bases.qb, code.nq), [0; 32]);
    }
    if r.p.len() < grow(bases.pb, code.np) {
        r.p.resize(grow(bases.pb, code.np), 0);
    }
    if cx.opts.checks.init {
        r.ri.resize(r.r.len(), 0);
        r.qi.resize(r.q.len(), 0);
        r.pi.resize(r.p.len(), 0);
        let frames = [(&mut r.ri, bases.rb, code.nr), (&mut r.qi, bases.qb, code.nq), (&mut r.pi, bases.pb, code.np)];
        for (written, base, n) in frames {
            written[base..base + n as usize].iter_mut().for_each(|lanes| *lanes |= mask);
        }
        for u in &code.maybe_uninit {
            match u.class() {
                Class::R => r.ri[bases.rb + u.slot()] &= !mask,
                Class::Q => r.qi[bases.qb + u.slot()] &= !mask,
                Class::P => r.pi[bases.pb + u.slot()] &= !mask,
            }
        }
    }
    let need = bases.lb + code.local_bytes as usize;
    super::stack::reserve(cx, w, need)?;
    super::stack::mark(w, bases.lb, code.local_bytes as usize, mask, false);
    w.set_bases(bases);
    code.maybe_uninit.iter().for_each(|r| w.forget_parts(*r, mask));
    for (reg, init) in &code.consts {
        let v = initial(cx, w, cl_rank, *init, bases, u64::from(code.local_bytes));
        match reg.class() {
            Class::R => w.regs.set_r(*reg, &v.map(|x| x as u32), mask),
            Class::Q => w.regs.set_q(*reg, &v, mask),
            Class::P => w.regs.set_pred(*reg, v[0] as u32, mask),
        }
    }
    Ok(())
}

fn initial(cx: &Cx<'_>, w: &Warp, rank: u32, init: Init, bases: Bases, frame: u64) -> [u64; 32] {
    let l = cx.launch;
    let all = |v: u64| [v; 32];
    let special = match init {
        Init::Imm(v) => return all(v),
        Init::Global(g, off) => return all(l.globals.get(g as usize).map_or(0, |a| a.wrapping_add(off as u64))),
        Init::DynShared(off) => return all((i64::from(l.dyn_offset) + off) as u64),
        Init::FrameEnd => return all(bases.lb as u64 + frame),
        Init::Local(off) => return all(bases.lb as u64 + u64::from(off)),
        Init::Func(place) => return all(u64::from(place) + 1),
        Init::Special(s) => s,
    };
    let lanes = |f: &dyn Fn(u32) -> u64| std::array::from_fn(|k| f(k as u32));
    let ax = |v: [u32; 3], a: u8| u64::from(v[usize::from(a) % 3]);
    let cluster = l.cluster;
    match special {
        Special::Tid(a) => lanes(&|k| ax(cx.thread(w.id, k), a)),
        Special::NTid(a) => all(ax(l.block, a)),
        Special::CtaId(a) => all(ax(w.ctaid, a)),
        Special::NCtaId(a) => all(ax(l.grid, a)),
        Special::ClusterId(a) => all(ax(w.ctaid, a) / ax(cluster, a)),
        Special::NClusterId(a) => all(ax(l.grid, a) / ax(cluster, a)),
        Special::ClusterCtaId(a) => all(ax(w.ctaid, a) % ax(cluster, a)),
        Special::ClusterNCtaId(a) => all(ax(cluster, a)),
        Special::ClusterCtaRank => all(u64::from(rank)),
        Special::ClusterNCtaRank => all(cluster.iter().map(|v| u64::from(*v)).product()),
        Special::IsExplicitCluster => all(if cluster != [1; 3] { !0 } else { 0 }),
        Special::LaneId => lanes(&u64::from),
        Special::WarpId => all(w.id as u64),
        Special::NWarpId => all(u64::from(l.threads.div_ceil(32))),
        Special::SmId => all(0),
        Special::NSmId => all(1),
        Special::GridId => all(1),
        Special::EnvReg(n) => {
            let workspace = l.grid_barrier.as_ref().map_or(0, |g| g.workspace);
            all(if n == 1 { workspace >> 32 } else { workspace & 0xffff_ffff })
        }
        Special::LaneMask(rel) => lanes(&|k| {
            let eq = 1u32 << k;
            u64::from(match rel {
                MaskRel::Eq => eq,
                MaskRel::Lt => eq - 1,
                MaskRel::Le => eq | (eq - 1),
                MaskRel::Gt => !(eq | (eq - 1)),
                MaskRel::Ge => !(eq - 1),
            })
        }),
        Special::DynamicSmem => all(u64::from(l.dynamic_shared)),
        Special::TotalSmem => all(u64::from(l.shared_bytes)),
    }
}

/// Targets of a `brx.idx`, with the lanes that take each of them.
pub fn branch_groups(
    cx: &Cx<'_>,
    w: &Warp,
    s: &Split,
    i: &Inst,
    table: &[u32],
    m: u32,
) -> Result<Vec<(u32, u32)>, Fault> {
    let idx = w.regs.r(i.a);
    let mut groups: Vec<(u32, u32)> = vec![];
    if s.mask & !m != 0 {
        groups.push((s.pc + 1, s.mask & !m));
    }
    for l in (0..32).filter(|l| m >> l & 1 == 1) {
        let Some(&t) = table.get(idx[l as usize] as usize) else {
            return cx.fault(
                w,
                s,
                l,
                Kind::IllegalInstruction,
                format!("index {} of a branch table of {}", idx[l as usize], table.len()),
                None,
            );
        };
        match groups.iter_mut().find(|g| g.0 == t) {
            Some(g) => g.1 |= 1 << l,
            None => groups.push((t, 1 << l)),
        }
    }
    Ok(groups)
}

/// A clock that counts the warp instructions of this host thread.
pub fn clock(cx: &mut Cx<'_>, w: &mut Warp, i: &Inst, hi: u8, m: u32) {
    cx.instructions += 1;
    let t = cx.instructions;
    if i.d.class() == Class::Q {
        w.regs.set_q(i.d, &[t; 32], m);
    } else {
        w.regs.set_r(i.d, &[if hi != 0 { (t >> 32) as u32 } else { t as u32 }; 32], m);
    }
}

/// Whether a `createpolicy` may apply to this part of the accesses.
pub fn is_fraction(part: f32) -> bool {
    part > 0.0 && part <= 1.0
}

/// What `createpolicy` demands of operands that are in registers.
pub fn policy(cx: &mut Cx<'_>, w: &Warp, s: &Split, i: &Inst, m: u32) {
    let wrong = |l: usize| {
        if i.a.is_some() {
            let part = f32::from_bits(w.regs.r(i.a)[l]);
            let says = || format!("a cache policy for a fraction of {part}: it has to be above 0 and at most 1");
            return (!is_fraction(part)).then(says);
        }
        let (part, whole) = (w.regs.r(i.b)[l], w.regs.r(i.c)[l]);
        let says = || {
            format!("a cache policy for {part} bytes of a range of {whole}: the first size may not exceed the second")
        };
        (part > whole).then(says)
    };
    if let Some((l, message)) = mem_ops::lanes(m).find_map(|l| Some((l, wrong(l)?))) {
        cx.report(w, s, l as u32, Kind::IllegalInstruction, None, None, |_| message);
    }
}

/// `discard`: the contents of the lanes' 128 bytes are lost.
pub fn discard(cx: &Cx<'_>, w: &Warp, s: &Split, i: &Inst, m: u32) -> Result<(), Fault> {
    let addr = mem_ops::addresses(w, i);
    for l in mem_ops::lanes(m) {
        if !addr[l].is_multiple_of(128) {
            let message = "a discard at an address that is not a multiple of 128";
            return cx.fault(w, s, l as u32, Kind::Misaligned, message, Some(addr[l]));
        }
        let al = cx.mem.get(mem_ops::locate_written(cx, w, s, l, addr[l], 128, "a discard")?);
        if cx.opts.checks.init {
            al.unmark((addr[l] - al.base) as usize, 128);
        }
    }
    Ok(())
}

/// An address in another block's shared memory: the top byte is the block's rank plus one.
pub fn mapa(cx: &Cx<'_>, cl: &Cluster, w: &mut Warp, s: &Split, i: &Inst, shared: bool, m: u32) -> Result<(), Fault> {
    let rank = *w.regs.r(i.b);
    let n = cl.blocks.len() as u32;
    for l in (0..32).filter(|l| m >> l & 1 == 1) {
        if rank[l as usize] >= n {
            return cx.fault(
                w,
                s,
                l,
                Kind::OutOfBounds,
                format!("rank {} in a cluster of {n} blocks", rank[l as usize]),
                None,
            );
        }
    }
    let map = |a: u32, r: u32| a & 0xff_ffff | (r + 1) << 24;
    if i.d.class() == Class::R {
        let a = *w.regs.r(i.a);
        let out = std::array::from_fn(|k| map(a[k], rank[k]));
        w.regs.set_r(i.d, &out, m);
    } else {
        let a = *w.regs.q(i.a);
        let base = if shared { 0 } else { window(MemSpace::Shared) };
        let out = std::array::from_fn(|k| base + u64::from(map(a[k] as u32, rank[k])));
        w.regs.set_q(i.d, &out, m);
    }
    Ok(())
}

/// Whether an address is one of a `.const` variable.
pub fn is_constant(cx: &Cx<'_>, address: u64) -> bool {
    let mut all = cx.prog.constants.iter();
    all.any(|(g, n)| cx.launch.globals.get(*g as usize).is_some_and(|at| address.wrapping_sub(*at) < *n))
}

/// isspacep
pub fn is_space(cx: &Cx<'_>, w: &mut Warp, i: &Inst, window: Window, m: u32) {
    let inside = |a: u64| match (space_of(a), window) {
        (MemSpace::Global, Window::Global) => !is_constant(cx, a),
        (MemSpace::Global, Window::Const) => is_constant(cx, a),
        (MemSpace::Shared, Window::Shared { cluster }) => {
            cluster || shared::split(w.block, a & 0xffff_ffff).0 == w.block
        }
        (MemSpace::Local, Window::Local) => true,
        // Kernel parameters have addresses in the global window.
        (MemSpace::Param, Window::Param | Window::Global) => true,
        _ => false,
    };
    let bits = w.regs.q(i.a).iter().enumerate().fold(0, |b, (l, a)| b | u32::from(inside(*a)) << l);
    w.regs.set_pred(i.d, bits, m);
}

pub fn cta_rank(cl: &Cluster, w: &mut Warp, i: &Inst, _shared: bool, m: u32) {
    let own = cl.blocks[w.block].rank;
    let a: [u32; 32] = if i.a.class() == Class::R { *w.regs.r(i.a) } else { w.regs.q(i.a).map(|v| v as u32) };
    let out = a.map(|v| (v >> 24).checked_sub(1).unwrap_or(own));
    w.regs.set_r(i.d, &out, m);
}

fn local_u64(w: &Warp, lane: usize, off: usize) -> u64 {
    let at = lane * w.local_stride + off;
    w.local.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap_or_default()))
}

fn text(cx: &Cx<'_>, addr: u64) -> Vec<u8> {
    let mut out = vec![];
    let mut b = [0u8];
    while out.len() < 4096 && cx.mem.read(addr + out.len() as u64, &mut b).is_ok() && b[0] != 0 {
        out.push(b[0]);
    }
    out
}

pub fn printf(cx: &mut Cx<'_>, cl: &mut Cluster, w: &mut Warp, s: &Split, i: &Inst, m: u32) -> Result<(), Fault> {
    let _ = cl;
    let (a, b) = (*w.regs.r(i.a), *w.regs.r(i.b));
    for l in (0..32).filter(|l| m >> l & 1 == 1) {
        let format = text(cx, local_u64(w, l, a[l] as usize));
        let args = local_u64(w, l, b[l] as usize);
        let in_local = space_of(args) == MemSpace::Local;
        let missing = Cell::new(false);
        let byte = |at: u64| -> u8 {
            if in_local {
                let off = l * w.local_stride + (args - window(MemSpace::Local) + at) as usize;
                let unwritten = !w.local_init.is_empty() && !w.local_init.get(off).is_some_and(|written| *written);
                missing.set(missing.get() || unwritten);
                w.local.get(off).copied().unwrap_or(0)
            } else {
                let mut v = [0u8];
                missing.set(missing.get() || cx.mem.read(args + at, &mut v).is_err());
                v[0]
            }
        };
        let line = super::printf::format(&format, byte, |addr| text(cx, addr));
        if missing.get() && cx.opts.checks.init {
            cx.report(w, s, l as u32, Kind::UninitialisedLocal, None, None, |_| {
                let format = String::from_utf8_lossy(&format).trim_end().to_owned();
                format!("prints an argument that nobody wrote: does `{format}` have more than it is given?")
            });
        }
        cx.output.push_str(&line);
    }
    if i.c.is_some() {
        let c = *w.regs.r(i.c);
        for l in (0..32).filter(|l| m >> l & 1 == 1) {
            let at = l * w.local_stride + c[l] as usize;
            if let Some(d) = w.local.get_mut(at..at + 4) {
                d.fill(0);
                super::stack::mark(w, c[l] as usize, 4, 1 << l, true);
            }
        }
    }
    Ok(())
}

pub fn assert_fail<T>(cx: &Cx<'_>, w: &Warp, s: &Split, i: &Inst, m: u32) -> Result<T, Fault> {
    let l = m.trailing_zeros() as usize;
    let at = |r: Reg| local_u64(w, l, w.regs.r(r)[l] as usize);
    let message = String::from_utf8_lossy(&text(cx, at(i.a))).into_owned();
    let file = String::from_utf8_lossy(&text(cx, at(i.b))).into_owned();
    let line = local_u64(w, l, w.regs.r(i.c)[l] as usize) as u32;
    cx.fault(w, s, l as u32, Kind::Assert, format!("assertion `{message}` failed at {file}:{line}"), None)
}
