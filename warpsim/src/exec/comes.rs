//! Stores by several host threads to one place at once: whether they are of the same value.

use std::time::{Duration, Instant};

use super::cx::Cx;
use super::global_check::Touch;
use super::mem_ops::{lanes, register_value};
use super::state::*;
use crate::check::global::{GStamp, far};
use crate::check::held::Value;
use crate::ir::{Access, Inst};
use crate::report::Kind;

/// How long to wait for the value of a store whose stamp is there: its thread may have lost its core in between, of which there may be fewer
/// than threads that want one.
const AT_MOST: Duration = Duration::from_millis(100);
/// How long at a time. Asleep, not yielding, so that the core is free for that thread.
const AT_A_TIME: Duration = Duration::from_micros(100);

/// What lanes of a store have not stored yet.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    pub inst: &'a Inst,
    pub access: Access,
    pub addr: &'a [u64; 32],
    pub lanes: u32,
}

impl Values<'_> {
    fn of(&self, cx: &Cx<'_>, w: &Warp, s: &Split, lane: usize) -> Value {
        let (mut value, n) = (Value::default(), usize::from(self.access.bytes));
        let list = &cx.prog.funcs[s.func as usize].lists[self.inst.ext as usize..][..usize::from(self.access.count)];
        for (bytes, r) in value.chunks_exact_mut(n).zip(list) {
            bytes.copy_from_slice(&register_value(w, *r, lane).to_le_bytes()[..n]);
        }
        value
    }

    /// Whether a lane's store would leave memory unchanged.
    pub fn is_there(&self, cx: &Cx<'_>, w: &Warp, s: &Split, t: Touch) -> bool {
        let (mut now, n) = (Value::default(), t.bytes as usize);
        cx.mem.read(t.addr, &mut now[..n]).is_ok() && now == self.of(cx, w, s, t.lane)
    }
}

/// Whether a value that another host thread is about to store turns out to be the `same`: its stamp shows first. That thread may wait for this one's
/// values at the same time, here or where it comes to sooner than this one: then each sees what the other is about to store.
pub fn comes(
    cx: &Cx<'_>,
    cl: &Cluster,
    w: &Warp,
    s: &Split,
    t: Touch,
    old: GStamp,
    same: impl Fn() -> bool,
    values: Option<&Values<'_>>,
) -> bool {
    let Some(shadow) = cx.global_shadow else { return false };
    let here = |b: &Block| far(b.linear, 0) == far(old.block(), 0);
    if !shadow.several || cl.blocks.iter().any(here) || cx.reported(Kind::GlobalRace, s) {
        return false;
    }
    let me = far(cl.blocks[w.block].linear, w.id);
    if let Some(values) = values {
        shadow.held.show(me, lanes(values.lanes).map(|lane| (values.addr[lane], values.of(cx, w, s, lane))));
    }
    let is_held = || values.is_some_and(|values| shadow.held.has(old.far(), t.addr, values.of(cx, w, s, t.lane)));
    let start = Instant::now();
    let mut comes = is_held();
    while !comes && start.elapsed() < AT_MOST {
        std::thread::sleep(AT_A_TIME);
        comes = same() || is_held();
    }
    shadow.held.take_back(me);
    comes
}
