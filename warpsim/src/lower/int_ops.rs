//! Bit-level and other integer instructions.

use super::func::{Lower, R};
use super::types::{Mods, Ty};
use crate::exec::{alu_int as ai, alu_rare as ar};
use crate::ir::*;
use crate::ptx::ast::Arg;

const N: Reg = Reg::NONE;

pub(super) fn lower(l: &mut Lower<'_, '_>, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
    let root = m.root;
    match root {
        "prmt" => {
            let mode = 1 + m.one_of(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]).map_or(-1, |k| k as i64);
            l.need_ty(m)?;
            return three(l, a, ai::prmt(), [Ty::B(32); 3], Ty::B(32), mode);
        }
        "shf" => {
            let left = m.one_of(&["l", "r"]) == Some(0);
            let wrap = m.one_of(&["clamp", "wrap"]) == Some(1);
            l.need_ty(m)?;
            let f = match (left, wrap) {
                (true, true) => ai::shf_l_wrap(),
                (true, false) => ai::shf_l_clamp(),
                (false, true) => ai::shf_r_wrap(),
                (false, false) => ai::shf_r_clamp(),
            };
            return three(l, a, f, [Ty::B(32); 3], Ty::B(32), 0);
        }
        "lop3" => return l.lop3(m, a),
        "fns" => return l.fns(m, a),
        "dp4a" | "dp2a" => {
            let high = root == "dp2a" && m.one_of(&["lo", "hi"]) == Some(1);
            let (x, y) = (l.need_ty(m)?, l.need_ty(m)?);
            let flags = i64::from(x.signed()) | i64::from(y.signed()) << 1 | i64::from(high) << 2;
            let f = if root == "dp4a" { ai::dp4a() } else { ai::dp2a() };
            return three(l, a, f, [Ty::U(32); 3], Ty::U(32), flags);
        }
        "bmsk" | "szext" => {
            let wrap = m.one_of(&["clamp", "wrap"]) == Some(1);
            let ty = l.need_ty(m)?;
            let f = match (root, wrap, ty.signed()) {
                ("bmsk", true, _) => ai::bmsk_wrap(),
                ("bmsk", false, _) => ai::bmsk_clamp(),
                (_, _, true) => ai::szext_s(),
                _ => ai::szext_u(),
            };
            return two(l, a, f, [ty, Ty::U(32)], ty, i64::from(wrap));
        }
        "mul24" | "mad24" => return l.mul24(m, a),
        _ => {}
    }
    let shiftamt = root == "bfind" && m.take("shiftamt");
    let ty = l.need_ty(m)?;
    if ty == Ty::Pred {
        return predicate(l, root, a);
    }
    let (bits, signed) = (ty.bits(), ty.signed());
    let u32t = Ty::U(32);
    match (root, bits) {
        ("rem", 32) => two(l, a, if signed { ai::rem_s32() } else { ai::rem_u32() }, [ty; 2], ty, 0),
        ("rem", 16) => two(l, a, if signed { ai::rem_s16() } else { ai::rem_u16() }, [ty; 2], ty, 0),
        ("rem", 64) => two(l, a, if signed { ai::rem_s64() } else { ai::rem_u64() }, [ty; 2], ty, 0),
        ("sad", 32) => three(l, a, if signed { ai::sad_s32() } else { ai::sad_u32() }, [ty; 3], ty, 0),
        ("sad", 16) => three(l, a, if signed { ar::sad_s16() } else { ar::sad_u16() }, [ty; 3], ty, 0),
        ("sad", 64) => three(l, a, if signed { ar::sad_s64() } else { ar::sad_u64() }, [ty; 3], ty, 0),
        ("popc", 32) => one(l, a, ai::popc32(), ty, u32t, 0),
        ("popc", 64) => one(l, a, ai::popc64(), ty, u32t, 0),
        ("clz", 32) => one(l, a, ai::clz32(), ty, u32t, 0),
        ("clz", 64) => one(l, a, ai::clz64(), ty, u32t, 0),
        ("brev", 32) => one(l, a, ai::brev32(), ty, ty, 0),
        ("brev", 64) => one(l, a, ai::brev64(), ty, ty, 0),
        ("bfind", 32) => one(l, a, ai::bfind32(), ty, u32t, i64::from(signed) | i64::from(shiftamt) << 1),
        ("bfind", 64) => one(l, a, ai::bfind64(), ty, u32t, i64::from(signed) | i64::from(shiftamt) << 1),
        ("bfe", 32) => three(l, a, if signed { ai::bfe_s32() } else { ai::bfe_u32() }, [ty, u32t, u32t], ty, 0),
        ("bfe", 64) => three(l, a, if signed { ai::bfe_s64() } else { ai::bfe_u64() }, [ty, u32t, u32t], ty, 0),
        ("bfi", 32 | 64) => {
            l.count(a, 5, 5)?;
            let (x, y, p, n) = (l.src(&a[1], ty)?, l.src(&a[2], ty)?, l.src(&a[3], u32t)?, l.src(&a[4], u32t)?);
            let (d, t) = (l.dst(&a[0], ty)?, l.temp(Class::R));
            l.alu_free(ai::pack_pos_len(), t, p, n, N, 0);
            l.alu(if bits == 32 { ai::bfi32() } else { ai::bfi64() }, d, x, y, t, 0);
            Ok(())
        }
        ("and", 16 | 32) => two(l, a, ai::and32(), [ty; 2], ty, 0),
        ("or", 16 | 32) => two(l, a, ai::or32(), [ty; 2], ty, 0),
        ("xor", 16 | 32) => two(l, a, ai::xor32(), [ty; 2], ty, 0),
        ("and", 64) => two(l, a, ai::and64(), [ty; 2], ty, 0),
        ("or", 64) => two(l, a, ai::or64(), [ty; 2], ty, 0),
        ("xor", 64) => two(l, a, ai::xor64(), [ty; 2], ty, 0),
        ("not", 16) => one(l, a, ai::not16(), ty, ty, 0),
        ("not", 32) => one(l, a, ai::not32(), ty, ty, 0),
        ("not", 64) => one(l, a, ai::not64(), ty, ty, 0),
        ("cnot", 16 | 32) => one(l, a, ai::cnot32(), ty, ty, 0),
        ("cnot", 64) => one(l, a, ai::cnot64(), ty, ty, 0),
        ("shl", 16) => two(l, a, ai::shl16(), [ty, u32t], ty, 0),
        ("shl", 32) => two(l, a, ai::shl32(), [ty, u32t], ty, 0),
        ("shl", 64) => two(l, a, ai::shl64(), [ty, u32t], ty, 0),
        ("shr", 16) => two(l, a, if signed { ai::shr_s16() } else { ai::shr_u16() }, [ty, u32t], ty, 0),
        ("shr", 32) => two(l, a, if signed { ai::shr_s32() } else { ai::shr_u32() }, [ty, u32t], ty, 0),
        ("shr", 64) => two(l, a, if signed { ai::shr_s64() } else { ai::shr_u64() }, [ty, u32t], ty, 0),
        _ => l.fail("not defined for this type"),
    }
}

fn predicate(l: &mut Lower<'_, '_>, root: &str, a: &[Arg]) -> R<()> {
    match root {
        "and" => two(l, a, ai::pand(), [Ty::Pred; 2], Ty::Pred, 0),
        "or" => two(l, a, ai::por(), [Ty::Pred; 2], Ty::Pred, 0),
        "xor" => two(l, a, ai::pxor(), [Ty::Pred; 2], Ty::Pred, 0),
        "not" => one(l, a, ai::pnot(), Ty::Pred, Ty::Pred, 0),
        _ => l.fail("not defined for predicates"),
    }
}

pub(super) fn one(l: &mut Lower<'_, '_>, a: &[Arg], f: LaneFn, s: Ty, d: Ty, imm: i64) -> R<()> {
    l.count(a, 2, 2)?;
    let x = l.src(&a[1], s)?;
    let d = l.dst(&a[0], d)?;
    l.alu(f, d, x, N, N, imm);
    Ok(())
}

pub(super) fn two(l: &mut Lower<'_, '_>, a: &[Arg], f: LaneFn, s: [Ty; 2], d: Ty, imm: i64) -> R<()> {
    l.count(a, 3, 3)?;
    let (x, y) = (l.src(&a[1], s[0])?, l.src(&a[2], s[1])?);
    let d = l.dst(&a[0], d)?;
    l.alu(f, d, x, y, N, imm);
    Ok(())
}

pub(super) fn three(l: &mut Lower<'_, '_>, a: &[Arg], f: LaneFn, s: [Ty; 3], d: Ty, imm: i64) -> R<()> {
    l.count(a, 4, 4)?;
    let (x, y, z) = (l.src(&a[1], s[0])?, l.src(&a[2], s[1])?, l.src(&a[3], s[2])?);
    let d = l.dst(&a[0], d)?;
    l.alu(f, d, x, y, z, imm);
    Ok(())
}
