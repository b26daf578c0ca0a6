//! Offsets that functions pass to each other: the overflow checker's knowledge of them is passed along.

use rustc_hash::FxHashMap;

use super::mem_ops::lanes;
use super::offsets::{Narrow, Offsets, Wide, slot};
use super::state::Warp;
use crate::ir::{Class, Inst, Op, Reg};

/// The exact values of a place in local memory, where they differ from its bits.
#[derive(Default)]
struct Place {
    narrow: Narrow,
    wide: Wide,
}

/// By address.
#[derive(Default)]
pub struct Passed(FxHashMap<usize, Place>);

impl Passed {
    /// Lanes of `m` leave a frame that begins at `from`.
    fn forget(&mut self, m: u32, from: usize) {
        for (_, place) in self.0.iter_mut().filter(|(at, _)| **at >= from) {
            place.narrow.known &= !m;
            place.wide.marked &= !m;
        }
        self.0.retain(|_, place| place.narrow.known | place.wide.marked != 0);
    }

    fn copy(&mut self, m: u32, from: usize, to: usize) {
        let place = self.0.remove(&from).unwrap_or_default();
        let there = self.0.entry(to).or_default();
        there.narrow.take(&place.narrow, m);
        there.wide.take(&place.wide, m);
        self.0.insert(from, place);
    }

    /// Lanes of `m` call a function with arguments from and to these addresses.
    pub fn call(&mut self, m: u32, arguments: impl Iterator<Item = (usize, usize)>) {
        if !self.0.is_empty() {
            arguments.for_each(|(from, to)| self.copy(m, from, to));
        }
    }

    /// Lanes of `m` return from a function whose frame begins at `frame`, with results from and to these addresses.
    pub fn ret(&mut self, m: u32, frame: usize, results: impl Iterator<Item = (usize, usize)>) {
        if !self.0.is_empty() {
            results.for_each(|(from, to)| self.copy(m, from, to));
            self.forget(m, frame);
        }
    }
}

/// Register `r` is stored to, or loaded from, a place in the frame.
pub fn step(w: &mut Warp, i: &Inst, r: Reg, m: u32) {
    let Some(first) = lanes(m).next() else { return };
    // All lanes use the same place.
    let at = i64::from(w.regs.r(i.a)[first]).wrapping_add(i.imm) as usize;
    let k = slot(w, r);
    let Offsets { narrow, wide, passed: Passed(places) } = &mut w.offsets;
    let stores = matches!(i.op, Op::St(_));
    match r.class() {
        _ if stores => {
            let (narrow, wide) = match r.class() {
                Class::R => (narrow.get(k).filter(|n| n.known & m != 0), None),
                _ => (None, wide.get(k).filter(|n| n.marked & m != 0)),
            };
            if narrow.is_none() && wide.is_none() && !places.contains_key(&at) {
                return;
            }
            let place = places.entry(at).or_default();
            place.narrow.take(narrow.unwrap_or(&Narrow::default()), m);
            place.wide.take(wide.unwrap_or(&Wide::default()), m);
        }
        Class::R => {
            let none = Narrow::default();
            let from = places.get(&at).map_or(&none, |place| &place.narrow);
            if from.known & m != 0 || narrow.len() > k {
                Offsets::grown(narrow, k).take(from, m);
            }
        }
        _ => {
            let none = Wide::default();
            let from = places.get(&at).map_or(&none, |place| &place.wide);
            if from.marked & m != 0 || wide.len() > k {
                Offsets::grown(wide, k).take(from, m);
            }
        }
    }
}
