//! Fences and strong accesses: how threads pass on, without a barrier, what they have done.

use std::sync::Arc;

use super::cx::Cx;
use super::mem_ops::{addresses, lanes};
use super::shared;
use super::state::*;
use crate::check::clocks::{Clocks, Known, Party};
use crate::check::global::far;
use crate::check::maps::MAPS;
use crate::check::view::AHEAD;
use crate::ir::{Fence, Inst, MemSpace, Order, Scope};

pub fn fence(c: &mut Clocks, w: &mut Warp, p: Party, i: &Inst, f: Fence) {
    let polled = std::mem::replace(&mut w.polls, matches!(f, Fence::Generic(_)));
    match f {
        Fence::Generic(scope) => c.generic_fence(p, scope, polled),
        Fence::ProxyAsync { shared, global } => {
            if shared {
                c.proxy_fence(p, 0);
            }
            if global {
                c.proxy_fence(p, 1);
            }
        }
        Fence::ReleaseMaps(scope) => {
            c.generic_fence(p, scope, false);
            c.proxy_fence(p, MAPS);
        }
        Fence::AcquireMap(scope) => {
            c.generic_fence(p, scope, false);
            places(w, MemSpace::Global, &addresses(w, i), p.lanes, |p, map, _| c.acquire_map(p, map));
        }
        Fence::MbarrierInit => c.init_fence(p),
        Fence::Other => {}
    }
}

/// A warp that has only polled since its last fence does something else, which that fence does not cover.
#[cold]
pub fn acts(cl: &mut Cluster, w: &mut Warp) {
    w.polls = false;
    if let Some(c) = &mut cl.clocks {
        c.tick(w.agent);
    }
}

/// Calls `f` with each address that is accessed and the lanes that access it.
fn places(w: &Warp, space: MemSpace, addr: &[u64; 32], m: u32, mut f: impl FnMut(Party, u64, bool)) {
    let mut rest = m;
    while rest != 0 {
        let a = addr[rest.trailing_zeros() as usize];
        let here = lanes(rest).filter(|l| addr[*l] == a).fold(0, |b, l| b | 1 << l);
        rest &= !here;
        let global = space != MemSpace::Shared;
        let (block, off) = shared::split(w.block, a);
        // No allocation has an address in this range.
        let place = if global { a } else { 1 << 63 | (block as u64) << 32 | off as u64 };
        f(w.party(here), place, global);
    }
}

/// Where threads of one block leave knowledge for each other.
fn within(block: usize, place: u64) -> u64 {
    place ^ 1 << 62 ^ (block as u64) << 54
}

/// Whether a strong access of a warp publishes anything.
pub fn has_word(cl: &Cluster, w: &Warp, order: Order) -> bool {
    cl.clocks.as_ref().is_some_and(|c| order.releases() || c.has_fenced(w.agent))
}

/// Before a strong access: publishes knowledge to the threads in its scope. A release publishes everything; a relaxed access publishes what
/// was fenced before.
pub fn tell(
    cx: &Cx<'_>,
    cl: &mut Cluster,
    w: &Warp,
    space: MemSpace,
    addr: &[u64; 32],
    m: u32,
    order: Order,
    scope: Scope,
) {
    if m == 0 || !has_word(cl, w, order) {
        return;
    }
    let Cluster { blocks, clocks: Some(c), .. } = cl else { return };
    let release = order.releases();
    // All lanes often pass on the same knowledge.
    let mut shared: Option<(Arc<Known>, Arc<Known>)> = None;
    places(w, space, addr, m, |p, place, global| {
        if !release && c.has_left(p, place, scope) {
            return;
        }
        let (near, given) = shared.clone().unwrap_or_else(|| {
            if release {
                let given = Arc::new(c.release(p));
                return (given.clone(), given);
            }
            let given = Arc::new(c.release_relaxed(p, Scope::Cluster));
            // For readers in the same block, a fence at block scope is sufficient.
            let near = if cx.prog.narrow { Arc::new(c.release_relaxed(p, Scope::Block)) } else { given.clone() };
            (near, given)
        });
        if !release && c.agree(w.agent) {
            shared = Some((near.clone(), given.clone()));
        }
        if cx.prog.narrow {
            c.leave(within(w.block, place), &near);
        }
        if scope != Scope::Block {
            c.leave(place, &given);
        }
        if let (Some(g), true, Scope::Gpu) = (cx.global_shadow, global, scope) {
            let warps = blocks[0].warps.len();
            let launches = c.launches();
            let name = |agent: usize| match blocks.get(agent / warps) {
                Some(b) => Some(far(b.linear, agent % warps)),
                None => (launches == Some(agent)).then_some(AHEAD),
            };
            let known = match &given.fenced {
                _ if release => &given.seen,
                Some(fenced) => &fenced[Scope::Gpu as usize],
                None => return,
            };
            g.tell(place, |told| known.export(told, name));
        }
    });
}

/// After a strong access: acquires what other threads have published there, as far as their scope includes this thread. After a relaxed load,
/// it is acquired at the next fence.
pub fn hear(
    cx: &Cx<'_>,
    cl: &mut Cluster,
    w: &Warp,
    space: MemSpace,
    addr: &[u64; 32],
    m: u32,
    (scope, relaxed): (Scope, bool),
) {
    let Some(c) = &mut cl.clocks else { return };
    let far = cx.global_shadow.filter(|g| g.talked() && scope == Scope::Gpu);
    if far.is_none() && c.quiet() {
        return;
    }
    places(w, space, addr, m, |p, place, global| {
        if relaxed {
            if cx.prog.narrow {
                c.overhear(p, within(w.block, place), None);
            }
            if scope != Scope::Block {
                c.overhear(p, place, far.filter(|_| global).and_then(|g| g.hear(place)));
            }
            return;
        }
        if cx.prog.narrow {
            c.take(p, within(w.block, place));
        }
        if scope != Scope::Block {
            c.take(p, place);
        }
        if let (Some(g), true) = (far, global)
            && let Some(told) = g.hear(place)
        {
            c.take_far(p, place, told);
        }
    });
}
