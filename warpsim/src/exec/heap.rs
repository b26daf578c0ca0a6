//! `malloc` and `free`.

use std::sync::Arc;

use super::cx::Cx;
use super::global_check::{Touch, check_race};
use super::mem_ops::lanes;
use super::state::*;
use crate::heap::{Heap, Site};
use crate::ir::Inst;
use crate::ir::MemSpace;
use crate::memory::space_of;
use crate::report::{Fault, Kind};

/// The lanes' sites, which share the place.
fn sites<'a>(cx: &'a Cx<'_>, w: &'a Warp, s: &Split) -> impl Fn(usize) -> Site + use<'a> {
    let (kernel, place): (Arc<str>, _) = (cx.prog.kernel.as_str().into(), Arc::new(cx.place(s.func, s.pc)));
    move |l| Site { kernel: kernel.clone(), place: place.clone(), block: w.ctaid, thread: cx.thread(w.id, l as u32) }
}

fn heap<'a>(cx: &Cx<'a>) -> Option<&'a Heap> {
    cx.mem.heap()
}

/// `malloc`: the size in bytes in `a`, the pointer in `d`.
pub fn malloc(cx: &Cx<'_>, w: &mut Warp, s: &Split, i: &Inst, m: u32) {
    let Some(heap) = heap(cx) else { return };
    let sizes = *w.regs.q(i.a);
    let mut out = [0u64; 32];
    let site = sites(cx, w, s);
    for l in lanes(m) {
        let Some(t) = heap.take(sizes[l], &site(l)) else { continue };
        out[l] = heap.base + t.offset;
        // Reused addresses count as never written, and accesses of their earlier users need no order.
        if let (Some(k), 1..) = (cx.mem.heap_index(), t.stale) {
            cx.mem.get(k).unmark(t.offset as usize, t.stale as usize);
            if let Some(shadow) = cx.global_shadow {
                shadow.clear(k, t.offset as usize, t.stale as usize);
            }
        }
    }
    drop(site);
    w.regs.set_q(i.d, &out, m);
}

/// `free`: the pointer in `a`.
pub fn free(cx: &mut Cx<'_>, cl: &Cluster, w: &Warp, s: &Split, i: &Inst, m: u32) -> Result<(), Fault> {
    let (Some(heap), Some(alloc)) = (heap(cx), cx.mem.heap_index()) else { return Ok(()) };
    let addr = *w.regs.q(i.a);
    for l in lanes(m).filter(|l| addr[*l] != 0) {
        let inside = cx.mem.get(alloc).contains(addr[l], 1);
        let freed = match space_of(addr[l]) {
            _ if inside => heap.give(addr[l], &sites(cx, w, s)(l)),
            MemSpace::Global => Err(format!("frees {}, which `malloc` did not give", cx.mem.describe(addr[l]))),
            space => Err(format!("frees {} memory, which `malloc` did not give", format!("{space:?}").to_lowercase())),
        };
        let bytes = match freed {
            Ok(bytes) => bytes,
            Err(message) => return cx.fault(w, s, l as u32, Kind::InvalidFree, message, Some(addr[l])),
        };
        // All accesses to the chunk have to be complete.
        let t = Touch { lane: l, alloc, addr: addr[l], bytes, write: true, marks: 0 };
        check_race(cx, cl, w, s, t, |_| false);
    }
    Ok(())
}
