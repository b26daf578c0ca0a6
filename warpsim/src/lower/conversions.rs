//! Which conversions exist, and with which modifiers: what ptxas refuses is refused here too.

use crate::exec::cvt::{Conv, Cv};
use crate::num::Rnd;

/// How a conversion may round: the mode that it was given, if any, and whether that is to an integral number.
type Round = Option<(Rnd, bool)>;

const MISSING: &str = "a rounding mode is missing";
const ROUNDS: &str = "not defined with this rounding mode";
const TYPES: &str = "not defined for these types";

/// Why a conversion of one number does not exist.
pub fn refused(c: &Conv, round: Round) -> Option<&'static str> {
    use Cv::*;
    let (to, from) = (c.to, c.from);
    let any = |t: Cv| to == t || from == t;
    if from == TF32 || to == TF32 && from != F32 || any(BF16) && (to.bits() == 8 || from.bits() == 8) {
        return Some(TYPES);
    }
    // Whether it rounds to an integral number, and whether it has to round.
    let rounds = match (to.is_int(), from.is_int()) {
        (true, true) => None,
        (true, false) => Some((true, true)),
        (false, true) => Some((false, true)),
        _ if to == from => Some((true, false)),
        _ if to == TF32 || to.bits() < from.bits() => Some((false, true)),
        _ if any(BF16) => Some((false, false)),
        _ => None,
    };
    match (round, rounds) {
        (None, Some((_, true))) => return Some(MISSING),
        (Some(_), None) => return Some(ROUNDS),
        (Some((_, given)), Some((integral, _))) if given != integral => return Some(ROUNDS),
        (Some((Rnd::Rna, _)), _) if to != TF32 => return Some(ROUNDS),
        (Some((Rnd::Rm | Rnd::Rp, _)), _) if to == TF32 => return Some(ROUNDS),
        _ => {}
    }
    let fits = to.is_int()
        && from.is_int()
        && if to.signed() == from.signed() { to.bits() >= from.bits() } else { to.signed() && to.bits() > from.bits() };
    let halves = from == F32 && matches!(to, F16 | BF16) && matches!(c.rnd, Rnd::Rn | Rnd::Rz) && !c.ftz && !c.sat;
    if c.ftz && (!any(F32) || to == TF32) {
        Some("`.ftz` is for .f32")
    } else if c.sat && fits {
        Some("`.sat` has no effect: the result can hold every value")
    } else if c.sat && (any(BF16) || to == TF32) {
        Some("not defined with `.sat`")
    } else if c.relu && !halves && (to != TF32 || c.rnd == Rnd::Rna) {
        Some("not defined with `.relu`")
    } else if c.satfinite && !halves && (to != TF32 || c.rnd != Rnd::Rna) {
        Some("not defined with `.satfinite`")
    } else {
        None
    }
}

/// Why a conversion to or from a pair of numbers does not exist.
pub fn pair_refused(c: &Conv, round: Round, from_pair: bool) -> Option<&'static str> {
    use Cv::*;
    let narrow = matches!(c.to, E4M3 | E5M2);
    let defined = match (from_pair, c.from) {
        (false, F32) => true,
        (true, F16) => narrow,
        (true, E4M3 | E5M2) => c.to == F16,
        _ => false,
    };
    match round {
        _ if !defined => Some(TYPES),
        None => Some(MISSING),
        Some((Rnd::Rn, false)) => None,
        Some((Rnd::Rz, false)) if !narrow && !from_pair => None,
        _ => Some(ROUNDS),
    }
    .or((c.ftz || c.sat).then_some("not defined with `.ftz` or `.sat`"))
    .or((narrow && !c.satfinite).then_some("needs `.satfinite`"))
    .or((from_pair && !narrow && c.satfinite).then_some("not defined with `.satfinite`"))
}
