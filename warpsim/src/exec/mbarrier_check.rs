//! Checks of mbarriers: other accesses to their bytes, visibility to copies, and what is outstanding when a block ends.

use super::cx::Cx;
use super::mbarrier::{COUNT, get, is_state};
use super::mem_ops::lanes;
use super::shared_check::Near;
use super::state::*;
use super::{shared, shared_check};
use crate::check::bar::Came;
use crate::check::race::{Stamp, together};
use crate::ir::Mbar;
use crate::report::{Earlier, Fault, Kind};

/// The initialised mbarriers of a block.
#[derive(Default)]
pub struct Live {
    /// With the number of their phase. The numbers of one barrier's phases are consecutive, and far from those of another barrier.
    places: Vec<(u32, u64)>,
    /// From the first barrier to the end of the last one.
    span: (usize, usize),
    /// The first number for the next barrier.
    next: u64,
}

/// Phases between the first phases of two barriers.
const PHASES: u64 = 1 << 24;
/// A phase's number in a token, which has no other use for the expected arrivals and bytes.
const NUMBER: u64 = (1 << 41) - 1;

impl Live {
    pub fn set(&mut self, off: u32, live: bool) {
        self.places.retain(|at| at.0 != off);
        if live {
            self.places.push((off, self.next));
            self.next += PHASES;
        }
        let ends = self.places.iter().min().zip(self.places.iter().max());
        self.span = ends.map_or((0, 0), |(first, last)| (first.0 as usize, last.0 as usize + 8));
    }

    /// Whether one was initialised here: other contents may look like one.
    pub fn has(&self, off: u32) -> bool {
        self.places.iter().any(|at| at.0 == off)
    }

    /// A phase is complete.
    pub fn advance(&mut self, off: u32) {
        if let Some(at) = self.places.iter_mut().find(|at| at.0 == off) {
            at.1 += 1;
        }
    }

    /// What an arrival returns, given the barrier's contents before it.
    pub fn token(&self, off: u32, contents: u64) -> u64 {
        let number = self.places.iter().find(|at| at.0 == off).map_or(0, |at| at.1 & NUMBER);
        contents & !(COUNT | 0x1f_ffff << 40) | number & COUNT | number >> 20 << 40
    }

    /// How many phases ago that of a token was.
    fn age(&self, off: u32, token: u64) -> u64 {
        let number = token & COUNT | (token >> 40 & 0x1f_ffff) << 20;
        self.places.iter().find(|at| at.0 == off).map_or(0, |at| at.1.wrapping_sub(number) & NUMBER)
    }

    /// A barrier that includes some of these bytes.
    fn at(&self, off: usize, n: usize) -> Option<u32> {
        self.places.iter().map(|at| at.0).find(|at| off < *at as usize + 8 && off + n > *at as usize)
    }
}

/// Lanes load or store `n` bytes of shared memory each.
#[inline(always)]
pub fn lanes_come(cx: &mut Cx<'_>, cl: &Cluster, w: &Warp, s: &Split, at: &[u32; 32], m: u32, n: usize, write: bool) {
    if cl.blocks.iter().any(|b| !b.mbarriers.places.is_empty()) {
        look(cx, cl, w, s, at, m, n, write);
    }
}

#[inline(never)]
fn look(cx: &mut Cx<'_>, cl: &Cluster, w: &Warp, s: &Split, at: &[u32; 32], m: u32, n: usize, write: bool) {
    let own = &cl.blocks[w.block].mbarriers;
    let (first, last) = at.iter().fold((u32::MAX, 0), |(first, last), at| (first.min(*at), last.max(*at)));
    // In the common case, all addresses are far from them and in their own block.
    if last < 1 << 24 && (first as usize >= own.span.1 || last as usize + n <= own.span.0) {
        return;
    }
    for l in lanes(m) {
        plain(cx, cl, w, s, Near { write, ..Near::read(l, shared::split(w.block, at[l].into()), n) });
    }
}

/// A load, a store or an atomic accesses a location in shared memory.
pub fn plain(cx: &mut Cx<'_>, cl: &Cluster, w: &Warp, s: &Split, a: Near) {
    let Some(bar) = cl.blocks[a.block].mbarriers.at(a.off, a.n).filter(|_| cx.opts.checks.sync) else { return };
    cx.report(w, s, a.who.trailing_zeros(), Kind::BarrierMisuse, Some(bar.into()), None, |cx| {
        let (verb, name) = (if a.write { "writes" } else { "reads" }, shared::describe(cx, bar as usize));
        format!("{verb} the mbarrier at {bar:#x}{name}, which is for mbarrier operations alone until mbarrier.inval")
    });
}

/// Lanes that initialise a barrier alike do so once, as they may store equal values: the first of each such lanes of `m`.
pub fn once<T: PartialEq>(m: u32, what: impl Fn(usize) -> T) -> u32 {
    lanes(m).filter(|l| !lanes(m).take_while(|k| k < l).any(|k| what(k) == what(*l))).fold(0, |first, l| first | 1 << l)
}

/// A lane arrives at an mbarrier: the arrival must be ordered after the end of the last phase, because it could be counted in that phase
/// otherwise. With relaxed waits, phases are ordered without passing knowledge on, so nothing is checked.
pub fn behind(cx: &mut Cx<'_>, cl: &mut Cluster, w: &Warp, s: &Split, l: usize, (b, off): (u32, u32)) {
    let Some(c) = cl.clocks.as_mut().filter(|_| !cx.prog.relaxed) else { return };
    let Some(came) = c.mbar_unordered(w.party(1 << l), b, off) else { return };
    let by = Stamp::new(came.agent, came.lane, came.time, came.number, 0);
    let earlier = c.is_warp(came.agent).then(|| Earlier {
        place: cx.place_of(came.number),
        who: shared_check::who(cx, by, (w.agent, l)),
        write: true,
    });
    cx.report(w, s, l as u32, Kind::BarrierMisuse, Some(off.into()), earlier, |cx| {
        let name = shared::describe(cx, off as usize);
        format!(
            "arrives at the mbarrier at {off:#x}{name} while nothing orders it behind the end of the phase before, in which it may be counted: \
             wait for that phase, or for a thread that has, before arriving for the next"
        )
    });
}

/// A lane waits for a token's phase: it must be the barrier's current or last one, because the barrier only knows whether it is even or odd.
pub fn stale(cx: &mut Cx<'_>, cl: &Cluster, w: &Warp, s: &Split, l: usize, (b, off): (u32, u32), token: u64) {
    let age = cl.blocks[b as usize].mbarriers.age(off, token);
    if !cx.opts.checks.sync || age < 2 || !is_state(token) {
        return;
    }
    cx.report(w, s, l as u32, Kind::BarrierMisuse, Some(off.into()), None, |cx| {
        let name = shared::describe(cx, off as usize);
        match age < PHASES {
            true => format!(
                "waits with a token that is {age} phases old for the mbarrier at {off:#x}{name}, which knows its current phase and the \
                 one before: wait for each phase before arriving for the next"
            ),
            false => format!("waits for the mbarrier at {off:#x}{name} with a token of another mbarrier, or from before its initialisation"),
        }
    });
}

/// Checks that an mbarrier is only ended when nobody uses it any more. A relaxed arrival is over with its phase, and orders nothing else.
pub fn outlives(cx: &mut Cx<'_>, cl: &mut Cluster, w: &Warp, s: &Split, who: u32, (b, off): (u32, u32), kind: Mbar) {
    let Some(c) = cl.clocks.as_mut().filter(|_| cx.prog.invalidates && cx.opts.checks.sync) else { return };
    match kind {
        Mbar::Init | Mbar::Arrive { relaxed: true, .. } => return,
        Mbar::Inval => {}
        _ => {
            let (agent, lane, time) = (w.agent, together(who), c.now(w.agent));
            return c.mbar_use(Came { agent, lane, time, number: cx.number(s), waits: false }, b, off);
        }
    }
    let l = who.trailing_zeros();
    let Some(used) = c.mbar_in_use(w.party(who), b, off) else { return };
    let by = Stamp::new(used.agent, used.lane, used.time, used.number, 0);
    let earlier =
        Earlier { place: cx.place_of(used.number), who: shared_check::who(cx, by, (w.agent, l as usize)), write: true };
    cx.report(w, s, l, Kind::BarrierMisuse, Some(off.into()), Some(earlier), |cx| {
        let name = shared::describe(cx, off as usize);
        format!(
            "invalidates the mbarrier at {off:#x}{name} while nothing orders it behind the use of it by another thread: put a barrier \
             of the threads that use it before"
        )
    });
}

/// A copy completes on another block's barrier: the barrier's initialisation has to be visible to it. For barriers of its own block this is
/// not required: compilers emit a block barrier after the initialisation. `generic`: it is an access of the thread itself, as `st.async` is.
pub fn check_visible(
    cx: &mut Cx<'_>,
    cl: &mut Cluster,
    w: &Warp,
    s: &Split,
    l: usize,
    (b, off): (u32, u32),
    generic: bool,
) {
    if cx.opts.checks.sync && get(cl, b, off).is_none() {
        return cx.report(w, s, l as u32, Kind::BarrierMisuse, Some(off.into()), None, |cx| {
            let name = shared::describe(cx, off as usize);
            format!("completes on an mbarrier at {off:#x}{name} that was not initialised, or was overwritten")
        });
    }
    let Some(c) = &mut cl.clocks else { return };
    let Some(init) = c.mbar(b, off).init.filter(|_| b as usize != w.block) else { return };
    let (p, (agent, lane, time)) = (w.party(1 << l), init);
    if c.init_visible(p, init) {
        return;
    }
    if generic {
        if !c.after(p, agent, lane, time) {
            cx.report(w, s, l as u32, Kind::SharedRace, Some(off.into()), None, |cx| {
                let name = shared::describe(cx, off as usize);
                format!(
                    "completes on the mbarrier at {off:#x}{name}, and nothing orders it with the initialisation: put a cluster \
                     barrier between them"
                )
            });
        }
    } else {
        cx.report(w, s, l as u32, Kind::MissingProxyFence, Some(off.into()), None, |cx| {
            let name = shared::describe(cx, off as usize);
            format!(
                "completes on the mbarrier at {off:#x}{name}, whose initialisation was not made visible to it by \
                 fence.mbarrier_init or fence.proxy.async"
            )
        });
    }
}

/// A block has ended: checks that copies onto its barriers have not delivered more bytes than were expected.
pub fn ended(cx: &mut Cx<'_>, cl: &Cluster, w: &Warp, s: &Split, lane: u32) {
    let Some(c) = &cl.clocks else { return };
    for off in c.mbarriers(w.block as u32) {
        let Some(tx) = get(cl, w.block as u32, off).map(|s| s.tx).filter(|tx| *tx < 0) else { continue };
        cx.report(w, s, lane, Kind::BarrierMisuse, Some(off.into()), None, |cx| {
            let name = shared::describe(cx, off as usize);
            format!(
                "the block ends, and copies have brought {} bytes more to the mbarrier at {off:#x}{name} than its phases expected: \
                 the phase was over before the last of them came",
                -tx
            )
        });
    }
}

/// Checks an operation with the operand `x` on an mbarrier with `tx` outstanding bytes (negative if bytes arrived early): the result must fit
/// in the barrier's count.
pub fn bytes(cx: &Cx<'_>, w: &Warp, s: &Split, l: usize, off: u32, kind: Mbar, x: u32, tx: i32) -> Result<(), Fault> {
    let after = match kind {
        Mbar::ExpectTx | Mbar::Arrive { expect: true, .. } => i64::from(tx) + i64::from(x),
        Mbar::CompleteTx => i64::from(tx) - i64::from(x),
        _ => return Ok(()),
    };
    if after.unsigned_abs() <= COUNT {
        return Ok(());
    }
    let what = format!("{after} bytes are to come to an mbarrier that counts {COUNT} at most");
    cx.fault(w, s, l as u32, Kind::BarrierMisuse, what, Some(off.into()))
}

/// Describes what a barrier is waiting for, for deadlock reports.
pub fn describe(cl: &Cluster, b: u32, off: u32) -> String {
    match get(cl, b, off) {
        Some(s) => {
            let (bytes, sign) = (s.tx.abs(), if s.tx < 0 { "too many" } else { "missing" });
            let hint = match s.pending == 0 {
                true if s.tx > 0 => ": more bytes are expected than copies bring",
                true if s.tx < 0 => ": copies bring more bytes than are expected",
                _ => "",
            };
            format!("phase {}, {} of {} arrivals missing, {bytes} bytes {sign}{hint}", s.phase, s.pending, s.expected)
        }
        None => "not initialised".into(),
    }
}
