//! Tensor-core instructions: mma.sync and wgmma.

use std::sync::Arc;

use super::func::{Lower, R};
use super::types::{Mods, Ty};
use crate::ir::*;
use crate::num::Rnd;
use crate::ptx::ast::Arg;

const N: Reg = Reg::NONE;

/// Parses a layout; returns whether it is row-major.
pub(super) fn by_rows(m: &str) -> Option<bool> {
    match m {
        "row" => Some(true),
        "col" => Some(false),
        _ => None,
    }
}

/// The shapes of `mma.sp`, identified by k.
fn sparse_k(a: Elem) -> &'static [u16] {
    match a {
        Elem::F16 | Elem::BF16 => &[16, 32],
        Elem::TF32 => &[8, 16],
        Elem::S8 | Elem::U8 => &[32, 64],
        Elem::S4 | Elem::U4 => &[64, 128],
        Elem::E4M3 | Elem::E5M2 => &[64],
        _ => &[],
    }
}

/// The registers that hold elements of this type.
pub(super) fn held_in(e: Elem) -> Ty {
    Ty::B(if e == Elem::F64 { 64 } else { 32 })
}

impl Lower<'_, '_> {
    pub(super) fn shape(&self, m: &mut Mods<'_>) -> R<[u16; 3]> {
        let s = m.find(|s| {
            let (mm, rest) = s.strip_prefix('m')?.split_once('n')?;
            let (n, k) = rest.split_once('k')?;
            Some([mm.parse().ok()?, n.parse().ok()?, k.parse().ok()?])
        });
        match s {
            Some(s) => Ok(s),
            None => self.fail("the shape is missing"),
        }
    }

    pub(super) fn elem(&self, m: &mut Mods<'_>) -> R<Elem> {
        let e = m.find(|s| {
            Some(match s {
                "f16" => Elem::F16,
                "bf16" => Elem::BF16,
                "tf32" => Elem::TF32,
                "f64" => Elem::F64,
                "s8" => Elem::S8,
                "u8" => Elem::U8,
                "s4" => Elem::S4,
                "u4" => Elem::U4,
                "b1" => Elem::B1,
                "e4m3" => Elem::E4M3,
                "e5m2" => Elem::E5M2,
                "f32" => Elem::F32,
                "s32" => Elem::S32,
                _ => return None,
            })
        });
        match e {
            Some(e) => Ok(e),
            None => self.fail("an element type is missing or not supported"),
        }
    }

    pub(super) fn mma(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let sparse = m.one_of(&["sp", "sp::ordered_metadata"]);
        m.take("sync");
        m.take("aligned");
        let [sm, sn, sk] = self.shape(m)?;
        let layout = [m.find(by_rows), m.find(by_rows)];
        let [Some(rows_a), Some(rows_b)] = layout else { return self.fail("the layouts are missing") };
        let rnd = m.rounding().map(|r| r.0);
        let sat = m.take("satfinite");
        m.take("xor");
        let and = m.take("and");
        m.take("popc");
        let (d, ea, eb, c) = (self.elem(m)?, self.elem(m)?, self.elem(m)?, self.elem(m)?);
        // Sparse A: the k of the shape is the dense one, twice the number of elements that A stores.
        let held = if sparse.is_some() { sk / 2 } else { sk };
        let ok = match ea {
            _ if sparse.is_some() => sm == 16 && sn == 8 && sparse_k(ea).contains(&sk),
            Elem::F16 if (sm, sn, sk) == (8, 8, 4) => d == Elem::F32 || c == Elem::F16,
            Elem::F16 | Elem::BF16 => matches!((sm, sn, sk), (16, 8, 8 | 16)) && d == c,
            Elem::TF32 => matches!((sm, sn, sk), (16, 8, 4 | 8)),
            Elem::F64 => matches!((sm, sn, sk), (8, 8, 4) | (16, 8, 4 | 8 | 16)),
            Elem::S8 | Elem::U8 => matches!((sm, sn, sk), (8, 8, 16) | (16, 8, 16 | 32)),
            Elem::E4M3 | Elem::E5M2 => matches!((sm, sn, sk), (16, 8, 16 | 32)),
            Elem::S4 | Elem::U4 => matches!((sm, sn, sk), (8, 8, 32) | (16, 8, 32 | 64)),
            Elem::B1 => matches!((sm, sn, sk), (8, 8, 128) | (16, 8, 128 | 256)),
            _ => false,
        };
        if !ok {
            return self.fail(format!("the shape m{sm}n{sn}k{sk} is not supported for this type"));
        }
        if rnd.is_some() && ea != Elem::F64 {
            return self.fail("a rounding mode is for f64");
        }
        let quads = ea == Elem::F16 && sk == 4;
        if !quads && (!rows_a || rows_b) {
            return self.fail("only `.row.col` is supported");
        }
        let count = if sparse.is_some() { 6 } else { 4 };
        self.count(a, count, count)?;
        let sparse = match sparse {
            Some(form) => Some(self.sparse(&a[5], ea, sk, form == 1)?),
            None => None,
        };
        let dd = self.reg_list(&a[0], held_in(d), true)?;
        let (ra, rb) = (self.reg_list(&a[1], held_in(ea), false)?, self.reg_list(&a[2], held_in(eb), false)?);
        let rc = self.reg_list(&a[3], held_in(c), false)?;
        let info = Mma {
            m: sm,
            n: sn,
            k: sk,
            a: ea,
            b: eb,
            d,
            c,
            sat,
            rnd: rnd.unwrap_or(Rnd::Rn),
            and,
            sparse,
            a_regs: true,
            neg_a: false,
            neg_b: false,
            trans_a: !rows_a,
            trans_b: quads && rows_b,
        };
        let regs = |e: Elem, count: u32| {
            (count * e.bits().max(if e == Elem::F64 { 64 } else { 1 })).div_ceil(if e == Elem::F64 { 64 } else { 32 })
                as usize
        };
        let (m32, n32, k32, held) = (u32::from(sm), u32::from(sn), u32::from(sk), u32::from(held));
        // Each lane holds its share of the elements; with four multiplications, a lane takes part in only one of them.
        let lanes = if quads { 8 } else { 32 };
        if dd.len() != regs(d, m32 * n32 / lanes)
            || ra.len() != regs(ea, m32 * held / lanes)
            || rb.len() != regs(eb, n32 * k32 / lanes)
            || rc.len() != regs(c, m32 * n32 / lanes)
        {
            return self.fail("a fragment of the wrong length");
        }
        let mut i = Inst::new(Op::Mma(Arc::new(info)));
        let mut uses: Vec<Reg> = ra.into_iter().chain(rb).chain(rc).collect();
        if info.sparse.is_some() {
            uses.push(self.src(&a[4], Ty::B(32))?);
        }
        self.ext(&mut i, &dd, &uses);
        self.emit(i);
        Ok(())
    }

    fn sparse(&mut self, selector: &Arg, a: Elem, k: u16, ordered: bool) -> R<Sparse> {
        let selector = self.literal(selector)?;
        // The lanes, in a group of four, that hold metadata.
        let lanes = k / a.sparse_chunk() / 4;
        if selector >= u64::from(4 / lanes) {
            return self.fail(format!("the sparsity selector {selector}: this shape's are below {}", 4 / lanes));
        }
        Ok(Sparse { selector: selector as u8, ordered })
    }

    pub(super) fn wgmma(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let k = m.one_of(&["fence", "commit_group", "wait_group", "mma_async"]);
        m.take("sync");
        m.take("aligned");
        match k {
            Some(0) => self.emit(Inst::new(Op::WgFence)),
            Some(1) => self.emit(Inst::new(Op::WgCommit)),
            Some(2) => {
                let n = self.literal(self.arg(a, 0)?)? as i64;
                if n < 0 {
                    return self.fail(format!("waits until {n} groups are pending"));
                }
                self.emit(Inst { imm: n, ..Inst::new(Op::WgWait) });
            }
            Some(_) => return self.wgmma_mma(m, a),
            None => return self.fail("the operation is missing"),
        }
        Ok(())
    }

    fn wgmma_mma(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let sparse = m.take("sp");
        let [sm, sn, sk] = self.shape(m)?;
        let sat = m.take("satfinite");
        let popc = m.take("and") && m.take("popc");
        let (d, ea, eb) = (self.elem(m)?, self.elem(m)?, self.elem(m)?);
        let k_ok = match ea {
            Elem::B1 if !sparse => 256,
            Elem::F16 | Elem::BF16 => 16,
            Elem::TF32 => 8,
            Elem::S8 | Elem::U8 | Elem::E4M3 | Elem::E5M2 => 32,
            _ => 0,
        };
        let k_ok = if sparse { 2 * k_ok } else { k_ok };
        if (ea == Elem::B1) != popc {
            return self.fail("single bits are multiplied by `.and.popc`, and nothing else is");
        }
        let both = |kind: &[Elem]| kind.contains(&ea) && kind.contains(&eb);
        let alike = ea == eb || both(&[Elem::S8, Elem::U8]) || both(&[Elem::E4M3, Elem::E5M2]);
        let sums: &[Elem] = match ea {
            Elem::S8 | Elem::U8 | Elem::B1 => &[Elem::S32],
            Elem::BF16 | Elem::TF32 => &[Elem::F32],
            _ => &[Elem::F16, Elem::F32],
        };
        if !alike || !sums.contains(&d) {
            return self.fail(
                "no product of these types: the last two are those of A and B, and before them is that of the sums",
            );
        }
        let n_step = if sn > 32 && matches!(ea, Elem::S8 | Elem::U8 | Elem::B1) { 16 } else { 8 };
        if sm != 64 || sk != k_ok || sn % n_step != 0 || sn == 0 || sn > 256 {
            return self.fail("the shape or type is not supported");
        }
        // The metadata and its selector follow the matrices.
        let (sparse, metadata, a) = match a {
            [d, x, y, metadata, selector, rest @ ..] if sparse => {
                let sparse = self.sparse(selector, ea, sk, false)?;
                (
                    Some(sparse),
                    Some(self.src(metadata, Ty::B(32))?),
                    [&[d.clone(), x.clone(), y.clone()], rest].concat(),
                )
            }
            _ => (None, None, a.to_vec()),
        };
        let a = &a[..];
        self.count(a, 4, 8)?;
        let dd = self.reg_list(&a[0], Ty::B(32), true)?;
        let want = usize::from(sn) / if d == Elem::F16 { 4 } else { 2 };
        if dd.len() != want {
            return self.fail(format!("{want} accumulator registers are needed"));
        }
        let a_regs = matches!(a[1], Arg::Vec(_));
        let (desc_a, frag) =
            if a_regs { (N, self.reg_list(&a[1], Ty::B(32), false)?) } else { (self.src(&a[1], Ty::B(64))?, vec![]) };
        if a_regs && frag.len() != 4 {
            return self.fail("4 registers of A are needed");
        }
        let desc_b = self.src(&a[2], Ty::B(64))?;
        let scale = match &a[3] {
            Arg::Int(v) => self.imm(Class::P, if *v != 0 { 0xffff_ffff } else { 0 }),
            p => self.src(p, Ty::Pred)?,
        };
        let imm = |l: &Self, k: usize| match a.get(k) {
            Some(x) => l.literal(x).map(|v| v as i32),
            None => Ok(0),
        };
        let (sa, sb) = (imm(self, 4)?, imm(self, 5)?);
        let (ta, tb) = if a_regs { (0, imm(self, 6)?) } else { (imm(self, 6)?, imm(self, 7)?) };
        if (ta | tb) != 0 && !matches!(ea, Elem::F16 | Elem::BF16) {
            return self.fail("only 16-bit matrices can be transposed");
        }
        let info = Mma {
            m: 64,
            n: sn,
            k: sk,
            a: ea,
            b: eb,
            d,
            c: d,
            sat,
            rnd: Rnd::Rn,
            and: false,
            sparse,
            a_regs,
            neg_a: sa == -1,
            neg_b: sb == -1,
            trans_a: ta != 0,
            trans_b: tb != 0,
        };
        let mut i = Inst { a: desc_a, b: desc_b, c: scale, ..Inst::new(Op::Wgmma(Arc::new(info))) };
        let uses: Vec<Reg> = dd.iter().copied().chain(frag).chain(metadata).collect();
        self.ext(&mut i, &dd, &uses);
        self.emit(i);
        Ok(())
    }
}
