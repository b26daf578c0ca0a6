//! Fences and strong accesses: how threads tell each other, without a barrier, what they have done.

use super::cx::Cx;
use super::mem_ops::lanes;
use super::shared;
use super::state::*;
use crate::check::clocks::{Clocks, Party};
use crate::check::global::far;
use crate::ir::{Fence, MemSpace};

pub fn fence(c: &mut Clocks, p: Party, f: Fence) {
    match f {
        Fence::Cta | Fence::Cluster | Fence::Gpu | Fence::Sys => c.generic_fence(p),
        Fence::ProxyAsync { shared, global } => {
            if shared {
                c.proxy_fence(p, 0);
            }
            if global {
                c.proxy_fence(p, 1);
            }
        }
        Fence::MbarrierInit => c.init_fence(p),
        Fence::Other => {}
    }
}

/// Calls `f` with each address that is accessed and the lanes that do.
fn places(w: &Warp, space: MemSpace, addr: &[u64; 32], m: u32, mut f: impl FnMut(Party, u64, bool)) {
    let mut rest = m;
    while rest != 0 {
        let a = addr[rest.trailing_zeros() as usize];
        let here = lanes(rest).filter(|l| addr[*l] == a).fold(0, |b, l| b | 1 << l);
        rest &= !here;
        let global = space != MemSpace::Shared;
        let (block, off) = shared::split(w.block, a);
        // No allocation lies where these are.
        let place = if global { a } else { 1 << 63 | (block as u64) << 32 | off as u64 };
        f(w.party(here), place, global);
    }
}

/// Before a strong access: what it makes known, which is everything when it releases and else what was fenced before.
pub fn tell(cx: &Cx<'_>, cl: &mut Cluster, w: &Warp, space: MemSpace, addr: &[u64; 32], m: u32, release: bool) {
    let Cluster { blocks, clocks: Some(c), .. } = cl else { return };
    if !release && !c.has_fenced(w.agent) {
        return;
    }
    places(w, space, addr, m, |p, place, global| {
        let Some(known) = c.give(p, place, release) else { return };
        if let (Some(g), true) = (cx.global_shadow, global) {
            let warps = blocks[0].warps.len();
            let name = |agent: usize| blocks.get(agent / warps).map(|b| far(b.linear, agent % warps));
            g.tell(place, |told| known.seen.export(told, name));
        }
    });
}

/// After a strong access: what others had made known there.
pub fn hear(cx: &Cx<'_>, cl: &mut Cluster, w: &Warp, space: MemSpace, addr: &[u64; 32], m: u32) {
    let Some(c) = &mut cl.clocks else { return };
    let far = cx.global_shadow.filter(|g| g.talked());
    if far.is_none() && c.quiet() {
        return;
    }
    places(w, space, addr, m, |p, place, global| {
        c.take(p, place);
        if let (Some(g), true) = (far, global)
            && let Some(told) = g.hear(place)
        {
            c.learn_far(p, &told);
        }
    });
}
