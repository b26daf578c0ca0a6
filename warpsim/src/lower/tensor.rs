//! Asynchronous copies, mbarriers and matrix loads.

use super::func::{Lower, R};
use super::operand::Addr;
use super::types::{Mods, Ty};
use crate::exec::alu_int as ai;
use crate::ir::*;
use crate::ptx::ast::Arg;

const N: Reg = Reg::NONE;
const U32: Ty = Ty::U(32);

impl Lower<'_, '_> {
    pub(super) fn tensor(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        match m.root {
            "cp" => self.cp(m, a),
            "mbarrier" => self.mbarrier(m, a),
            "mma" => self.mma(m, a),
            "wgmma" => self.wgmma(m, a),
            "wmma" => self.wmma(m, a),
            _ => self.matrix(m, a),
        }
    }

    /// Puts the address, including its offset, in one register.
    pub(super) fn addr_reg(&mut self, a: &Arg) -> R<Reg> {
        let Addr { base, off, .. } = self.addr(a)?;
        self.fold(base, off)
    }

    fn fold(&mut self, base: Reg, off: i64) -> R<Reg> {
        if !base.is_some() {
            return Ok(self.imm(Class::R, off as u64));
        }
        if off == 0 {
            return Ok(base);
        }
        let class = base.class();
        let (t, k) = (self.temp(class), self.imm(class, off as u64));
        self.alu_free(if class == Class::Q { ai::add64() } else { ai::add32() }, t, base, k, N, 0);
        Ok(t)
    }

    pub(super) fn shared_space(&self, m: &mut Mods<'_>) -> bool {
        m.find(|s| matches!(s, "shared" | "shared::cta" | "shared::cluster").then_some(())).is_some()
    }

    fn cp(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let reduce = m.take("reduce");
        if !m.take("async") {
            return self.fail("only `cp.async` and `cp.reduce.async` exist");
        }
        if m.take("bulk") {
            return self.bulk(m, a, reduce);
        }
        if m.take("commit_group") {
            self.emit(Inst::new(Op::CpAsyncCommit));
            return Ok(());
        }
        if m.take("wait_all") {
            self.emit(Inst::new(Op::CpAsyncWait { all: true }));
            return Ok(());
        }
        if m.take("wait_group") {
            let n = self.literal(self.arg(a, 0)?)?;
            self.emit(Inst { imm: n as i64, ..Inst::new(Op::CpAsyncWait { all: false }) });
            return Ok(());
        }
        if m.take("mbarrier") {
            m.take("arrive");
            let noinc = m.take("noinc");
            self.shared_space(m);
            self.need_ty(m)?;
            let r = self.addr_reg(self.arg(a, 0)?)?;
            self.emit(Inst { a: r, ..Inst::new(Op::CpAsyncMbar { noinc }) });
            return Ok(());
        }
        let bypass = m.take("cg");
        if !bypass && !m.take("ca") {
            return self.fail("`.ca` or `.cg` is missing");
        }
        let policy = self.cache_hints(m);
        self.shared_space(m);
        m.take("global");
        self.count(a, 3 + usize::from(policy), 4 + usize::from(policy))?;
        let bytes = self.literal(&a[2])?;
        if !matches!(bytes, 4 | 8 | 16) {
            return self.fail("the copy size must be 4, 8 or 16");
        }
        if bypass && bytes != 16 {
            return self.fail("`.cg` copies 16 bytes; copies of 4 and 8 are `.ca`");
        }
        let (d, s) = (self.addr_reg(&a[0])?, self.addr_reg(&a[1])?);
        let has_src = a.len() > 3 + usize::from(policy);
        let mut i = Inst { a: d, b: s, ..Inst::new(Op::CpAsync { bytes: bytes as u8, bypass }) };
        if has_src {
            match &a[3] {
                Arg::Name(n) if self.reg_bits(&a[3]) == 1 => {
                    // ignore-src: a true predicate means zeros.
                    let p = self.src(&Arg::Name(n.clone()), Ty::Pred)?;
                    let (zero, all, t) = (self.imm(Class::R, 0), self.imm(Class::R, bytes), self.temp(Class::R));
                    self.alu_free(ai::selp32(), t, zero, all, p, 0);
                    i.c = t;
                }
                x => i.c = self.src(x, U32)?,
            }
        }
        self.linker.note_grain(crate::ptx::ast::Space::Shared, 4);
        self.emit(i);
        Ok(())
    }

    pub(super) fn reduce_op(&self, m: &mut Mods<'_>) -> Option<AtomOp> {
        use AtomOp as A;
        m.one_of(&["add", "min", "max", "inc", "dec", "and", "or", "xor"])
            .map(|k| [A::Add, A::Min, A::Max, A::Inc, A::Dec, A::And, A::Or, A::Xor][k])
    }

    fn bulk(&mut self, m: &mut Mods<'_>, a: &[Arg], reduce: bool) -> R<()> {
        if m.take("commit_group") {
            self.emit(Inst::new(Op::BulkCommit));
            return Ok(());
        }
        if m.take("wait_group") {
            let read = m.take("read");
            let n = self.literal(self.arg(a, 0)?)?;
            self.emit(Inst { imm: n as i64, ..Inst::new(Op::BulkWait { read }) });
            return Ok(());
        }
        let prefetch = m.take("prefetch");
        let tensor = m.take("tensor");
        let rank = m.find(|s| match s {
            "1d" => Some(1u8),
            "2d" => Some(2),
            "3d" => Some(3),
            "4d" => Some(4),
            "5d" => Some(5),
            _ => None,
        });
        if prefetch {
            let im2col = m.one_of(&["tile", "im2col"]) == Some(1);
            let policy = m.take("L2::cache_hint");
            while m.find(|s| (matches!(s, "L2" | "global") || s.starts_with("L2::")).then_some(())).is_some() {}
            let Some(rank) = rank.filter(|_| tensor) else {
                self.count(a, 2 + usize::from(policy), 2 + usize::from(policy))?;
                self.emit(Inst::new(Op::Prefetch));
                return Ok(());
            };
            let operands = 1 + usize::from(im2col) + usize::from(policy);
            self.count(a, operands, operands)?;
            return self
                .tensor_copy(a, TensorCopy { way: Way::Prefetch, rank, multicast: false, reduce: None, im2col });
        }
        // The destination space comes first.
        let to_shared = m.find(|s| match s {
            "shared::cluster" | "shared::cta" => Some(true),
            "global" => Some(false),
            _ => None,
        });
        let from_shared = m.find(|s| match s {
            "shared::cluster" | "shared::cta" => Some(true),
            "global" => Some(false),
            _ => None,
        });
        let (Some(to_shared), Some(from_shared)) = (to_shared, from_shared) else {
            return self.fail("the state spaces are missing");
        };
        // Loads have im2col offsets; stores and reductions have none.
        let pixels = m.one_of(&["tile", if to_shared { "im2col" } else { "im2col_no_offs" }]) == Some(1);
        let multicast = m.take("multicast::cluster");
        let complete = ["mbarrier::complete_tx::bytes", "bulk_group"];
        let (wanted, policy) = (usize::from(!to_shared), self.cache_hints(m));
        if m.one_of(&complete) != Some(wanted) {
            return self.fail(format!("needs `.{}`", complete[wanted]));
        }
        let (sizes, offsets) = (usize::from(!tensor), usize::from(tensor && to_shared && pixels));
        let operands = 2 + sizes + offsets + usize::from(to_shared) + usize::from(multicast) + usize::from(policy);
        self.count(a, operands, operands)?;
        m.take("noftz");
        let op = if reduce { self.reduce_op(m) } else { None };
        if reduce && op.is_none() {
            return self.fail("the operation is missing");
        }
        if tensor {
            let Some(rank) = rank else { return self.fail("the number of dimensions is missing") };
            let way = if to_shared { Way::Load } else { Way::Store };
            return self.tensor_copy(a, TensorCopy { way, rank, multicast, reduce: op, im2col: pixels });
        }
        let num = if reduce {
            Some(match self.need_ty(m)? {
                Ty::U(32) | Ty::B(32) => NumTy::U32,
                Ty::S(32) => NumTy::S32,
                Ty::U(64) | Ty::B(64) => NumTy::U64,
                Ty::S(64) => NumTy::S64,
                Ty::F32 => NumTy::F32,
                Ty::F64 => NumTy::F64,
                Ty::F16 => NumTy::F16,
                Ty::BF16 => NumTy::BF16,
                _ => return self.fail("not defined for this type"),
            })
        } else {
            None
        };
        let dir = match (to_shared, from_shared) {
            (true, false) => BulkDir::GlobalToShared,
            (false, true) => BulkDir::SharedToGlobal,
            (true, true) => BulkDir::SharedToCluster,
            _ => return self.fail("global to global does not exist"),
        };
        let (d, s) = (self.addr_reg(self.arg(a, 0)?)?, self.addr_reg(self.arg(a, 1)?)?);
        let size = self.src(self.arg(a, 2)?, U32)?;
        let bar = if to_shared { self.addr_reg(self.arg(a, 3)?)? } else { N };
        let mask = if multicast { self.src(self.arg(a, 4)?, Ty::B(16))? } else { N };
        let reduce = op.zip(num);
        let mut i = Inst { a: d, b: s, c: size, ..Inst::new(Op::Bulk(Bulk { dir, multicast, reduce })) };
        self.ext(&mut i, &[], &[bar, mask]);
        self.emit(i);
        Ok(())
    }

    fn tensor_copy(&mut self, a: &[Arg], copy: TensorCopy) -> R<()> {
        let TensorCopy { way, rank, multicast, im2col, .. } = copy;
        let load = way == Way::Load;
        let smem = if way == Way::Prefetch { N } else { self.addr_reg(self.arg(a, usize::from(!load))?)? };
        let map = usize::from(load);
        let Arg::Mem(base, off, rest) = self.arg(a, map)? else {
            return self.fail("a tensor map in brackets is needed");
        };
        let base = self.addr_parts(base, *off)?;
        let in_param = base.space == Some(MemSpace::Param);
        let mut map = self.fold(base.base, base.off)?;
        if in_param {
            let w = crate::memory::window(MemSpace::Param);
            map = self.imm(Class::Q, w + base.off as u64);
        }
        let coords = match rest.as_slice() {
            [Arg::Vec(v)] => v,
            _ => return self.fail("coordinates in braces are needed"),
        };
        if coords.len() != usize::from(rank) {
            return self.fail("as many coordinates as dimensions are needed");
        }
        let bar = if load { self.addr_reg(self.arg(a, 2)?)? } else { N };
        let mask = if multicast { self.src(self.arg(a, 3 + usize::from(im2col))?, Ty::B(16))? } else { N };
        let mut uses = vec![bar, mask];
        for c in coords {
            uses.push(self.src(c, Ty::S(32))?);
        }
        if im2col && rank < 3 {
            return self.fail("an im2col copy has three to five dimensions");
        }
        if im2col && way != Way::Store {
            let offsets = match self.arg(a, if load { 3 } else { 1 })? {
                Arg::Vec(v) if v.len() == usize::from(rank) - 2 => v,
                _ => {
                    return self
                        .fail("an im2col load needs an offset for each dimension but the channels and the batch");
                }
            };
            for o in offsets {
                uses.push(self.src(o, Ty::U(16))?);
            }
        }
        let mut i = Inst { a: smem, b: map, ..Inst::new(Op::Tensor(copy)) };
        self.ext(&mut i, &[], &uses);
        self.emit(i);
        Ok(())
    }

    /// ldmatrix, stmatrix, movmatrix
    fn matrix(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        m.take("sync");
        m.take("aligned");
        if !m.take("m8n8") {
            return self.fail("only the shape m8n8 is supported");
        }
        let num = [1u8, 2, 4][m.one_of(&["x1", "x2", "x4"]).unwrap_or(0)];
        let trans = m.take("trans");
        self.shared_space(m);
        if self.need_ty(m)? != Ty::B(16) {
            return self.fail("only .b16 is supported");
        }
        self.count(a, 2, 2)?;
        if m.root == "movmatrix" {
            let x = self.src(&a[1], U32)?;
            let d = self.dst(&a[0], Class::R)?;
            self.emit(Inst { d, a: x, ..Inst::new(Op::MovMatrix) });
            return Ok(());
        }
        let load = m.root == "ldmatrix";
        let (list, addr) = if load { (&a[0], &a[1]) } else { (&a[1], &a[0]) };
        let regs = self.reg_list(list, Ty::B(32), load)?;
        if regs.len() != usize::from(num) {
            return self.fail("a vector of the wrong length");
        }
        let addr = self.addr_reg(addr)?;
        let mut i =
            Inst { a: addr, ..Inst::new(if load { Op::LdMatrix { num, trans } } else { Op::StMatrix { num, trans } }) };
        if load {
            self.ext(&mut i, &regs, &[]);
        } else {
            self.ext(&mut i, &[], &regs);
        }
        self.emit(i);
        Ok(())
    }

    /// `{a, b, …}` or one register, of these bits.
    pub(super) fn reg_list(&mut self, a: &Arg, bits: Ty, write: bool) -> R<Vec<Reg>> {
        let items = match a {
            Arg::Vec(v) => v.as_slice(),
            one => std::slice::from_ref(one),
        };
        let mut out = vec![];
        for x in items {
            out.push(if write { self.dst(x, bits)? } else { self.src(x, bits)? });
        }
        Ok(out)
    }
}
