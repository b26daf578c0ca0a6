//! The origins of uninitialised and undefined values, and the findings that report them.

use super::cx::Cx;
use super::shared;
use super::state::*;
use crate::report::{Earlier, Kind};

/// The reason why a value is undefined. A register that its own lane never wrote needs no mark.
#[derive(Clone, Copy)]
pub enum Origin {
    /// A read of local memory that the lane had not written.
    Local,
    /// A shuffle from a lane that did not take part in it.
    Absent,
    /// A read of shared memory that was never written.
    Shared,
    Global,
    /// An integer divided by zero.
    Division,
    /// A matrix product with an operand register that its lane never wrote.
    Product,
}

const ORIGINS: usize = 6;

/// Where an undefined value first appeared.
#[derive(Clone, Copy)]
pub struct First {
    pub func: u32,
    pub pc: u32,
    pub lane: usize,
    /// For a read: the address.
    pub at: u64,
}

impl First {
    pub fn new(s: &Split, lane: usize, at: u64) -> Self {
        First { func: s.func, pc: s.pc, lane, at }
    }
}

/// By origin: the lanes that have had such a value, and the first place where one appeared.
#[derive(Clone, Copy, Default)]
pub struct Origins {
    lanes: [u32; ORIGINS],
    first: [Option<First>; ORIGINS],
}

impl Origins {
    pub fn add(&mut self, origin: Origin, lane: usize, first: First) {
        self.lanes[origin as usize] |= 1 << lane;
        self.first[origin as usize].get_or_insert(first);
    }

    pub fn lanes(&self, origin: Origin) -> u32 {
        self.lanes[origin as usize]
    }

    pub fn first(&self, origin: Origin) -> Option<First> {
        self.first[origin as usize]
    }

    /// Lanes that have had an undefined value of any origin.
    pub fn any(&self) -> u32 {
        self.lanes.iter().fold(0, |all, lanes| all | lanes)
    }

    /// A lane has received what the lanes in `from` held `before`.
    pub fn pass(&mut self, before: &Origins, from: u32, lane: usize) {
        for (mine, theirs) in self.lanes.iter_mut().zip(before.lanes) {
            *mine |= u32::from(theirs & from != 0) << lane;
        }
    }

    /// Where the first value of this origin appeared, if one of these lanes has had one.
    fn of(&self, origin: Origin, bad: u32) -> Option<First> {
        self.first(origin).filter(|_| bad & self.lanes(origin) != 0)
    }
}

/// Reports that `what` depends on an undefined value in the lanes of `bad`.
pub fn report(cx: &mut Cx<'_>, w: &Warp, s: &Split, bad: u32, what: &str) {
    if bad == 0 {
        return;
    }
    let origins = &w.origins;
    let lane = bad.trailing_zeros();
    if let Some(first) = origins.of(Origin::Division, bad) {
        let lane = (bad & origins.lanes(Origin::Division)).trailing_zeros();
        return cx.report(w, s, lane, Kind::DivisionByZero, None, None, |cx| {
            let at = cx.place(first.func, first.pc);
            format!("{what} depends in lanes {bad:#010x} on a division by zero, first at {at}")
        });
    }
    if bad & !origins.lanes(Origin::Absent) == 0 {
        return cx.report(w, s, lane, Kind::UninitialisedRegister, None, None, |_| {
            format!(
                "{what} depends in lanes {bad:#010x} on what a shuffle took from lanes that were not there: let it read lanes that \
                 come to it and are in its mask"
            )
        });
    }
    if let Some(first) = origins.of(Origin::Shared, bad) {
        let (kind, earlier) = (Kind::UninitialisedShared, earlier(cx, w, first));
        return cx.report(w, s, lane, kind, Some(first.at), Some(earlier), |cx| {
            let (off, name) = (first.at, shared::describe(cx, first.at as usize));
            format!(
                "{what} depends in lanes {bad:#010x} on shared memory that nobody wrote, first read at {off:#x}{name}"
            )
        });
    }
    if let Some(first) = origins.of(Origin::Global, bad) {
        let (kind, earlier) = (Kind::UninitialisedGlobal, earlier(cx, w, first));
        return cx.report(w, s, lane, kind, Some(first.at), Some(earlier), |cx| {
            let place = cx.mem.describe(first.at);
            format!("{what} depends in lanes {bad:#010x} on global memory that nobody wrote, first on {place}")
        });
    }
    let local = bad & !origins.lanes(Origin::Local) == 0;
    if let (false, Some(first)) = (local, origins.of(Origin::Product, bad)) {
        let (kind, earlier) = (Kind::UninitialisedRegister, earlier(cx, w, first));
        return cx.report(w, s, lane, kind, None, Some(earlier), |_| {
            format!(
                "{what} depends in lanes {bad:#010x} on a product of matrices with a register that nobody wrote: give it a value on \
                 every way that leads to the product"
            )
        });
    }
    let (kind, of) = match local {
        true => (Kind::UninitialisedLocal, "local memory"),
        false => (Kind::UninitialisedRegister, "a register"),
    };
    cx.report(w, s, lane, kind, None, None, |_| {
        format!(
            "{what} depends on {of} that lanes {bad:#010x} never wrote: give it a value on every way that leads here"
        )
    });
}

fn earlier(cx: &Cx<'_>, w: &Warp, first: First) -> Earlier {
    let [x, y, z] = cx.thread(w.id, first.lane as u32);
    Earlier { place: cx.place(first.func, first.pc), who: format!("thread ({x},{y},{z})"), write: false }
}
