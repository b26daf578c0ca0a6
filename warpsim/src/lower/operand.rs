//! Operands: registers, immediates, symbols, special registers, addresses.

use super::arch;
use super::func::{Entity, Lower, R};
use super::types::{Ty, Want};
use crate::exec::alu_int;
use crate::ir::*;
use crate::ptx::ast::{Arg, Name, Space, Var};

/// Bytes of a block's shared memory that the system reserves.
const RESERVED: u32 = 1024;

/// An address: `base` (may be absent) plus `off`, and the space if the symbol determines it.
pub struct Addr {
    pub base: Reg,
    pub off: i64,
    pub space: Option<MemSpace>,
}

impl Lower<'_, '_> {
    pub fn arg<'x>(&self, a: &'x [Arg], n: usize) -> R<&'x Arg> {
        match a.get(n) {
            Some(x) => Ok(x),
            None => self.fail(format!("operand {} is missing", n + 1)),
        }
    }

    pub fn count(&self, a: &[Arg], min: usize, max: usize) -> R<()> {
        if a.len() < min || a.len() > max {
            return self.fail(format!("{} operands where {min} are needed", a.len()));
        }
        Ok(())
    }

    /// An integer literal.
    pub fn literal(&self, a: &Arg) -> R<u64> {
        match a {
            Arg::Int(v) => Ok(*v),
            _ => self.fail("an immediate integer is needed"),
        }
    }

    /// A register that holds the operand as `ty`.
    pub fn src(&mut self, a: &Arg, ty: Ty) -> R<Reg> {
        let class = ty.class();
        match a {
            Arg::Name(n) => match self.lookup(n) {
                Some(Entity::Reg(r, is)) => {
                    self.serves(n, is, ty)?;
                    self.fit(r, class)
                }
                None if class == Class::P && n.as_ref() == "%is_explicit_cluster" => self.special(n, class),
                _ if class == Class::P => self.fail(format!("`{n}` is not a predicate register")),
                e => self.named(e, n, 0, class),
            },
            Arg::Offset(n, off) => match self.lookup(n) {
                Some(Entity::Reg(..)) => self.fail(format!("`{n}` plus an offset is not an operand")),
                e => self.named(e, n, *off, class),
            },
            Arg::Not(n) => match self.lookup(n) {
                Some(Entity::Reg(r, Ty::Pred)) if class == Class::P => {
                    let t = self.temp(Class::P);
                    self.alu_free(alu_int::pnot(), t, r, Reg::NONE, Reg::NONE, 0);
                    Ok(t)
                }
                _ => self.fail(format!("`!{n}` is not a predicate")),
            },
            _ if class == Class::P => {
                // Predicates: one bit per lane.
                let v = self.immediate(a, Ty::B(64))?;
                Ok(self.imm(class, if v == 0 { 0 } else { !0 }))
            }
            _ => {
                let v = self.immediate(a, ty)?;
                Ok(self.imm(class, v))
            }
        }
    }

    /// Bits of an immediate as `ty`.
    pub fn immediate(&self, a: &Arg, ty: Ty) -> R<u64> {
        let keep = if ty.bits() >= 64 { !0 } else { (1u64 << ty.bits()) - 1 };
        Ok(match (a, ty) {
            (_, Ty::F16 | Ty::BF16 | Ty::F16x2 | Ty::BF16x2) => {
                return self.fail(format!("no constant is a {ty}: move its bits into a register"));
            }
            (Arg::Int(_), Ty::F32) => return self.fail("an integer is no .f32: write 1.0 or 0f3F800000"),
            (Arg::Int(_), Ty::F64) => return self.fail("an integer is no .f64: write 1.0 or 0d3FF0000000000000"),
            (Arg::Int(v), _) => *v & keep,
            (Arg::F32(v), Ty::F64) => f64::from(f32::from_bits(*v)).to_bits(),
            (Arg::F32(v), Ty::F32 | Ty::B(32)) => u64::from(*v),
            (Arg::F64(v), Ty::F32) => u64::from((f64::from_bits(*v) as f32).to_bits()),
            (Arg::F64(v), Ty::F64 | Ty::B(64)) => *v,
            (Arg::Decimal(v), Ty::F32) => u64::from((*v as f32).to_bits()),
            (Arg::Decimal(v), Ty::F64) => v.to_bits(),
            _ => return self.fail("an operand of the wrong kind"),
        })
    }

    /// The register in another class: a wider register is truncated, a narrower one is refused.
    fn fit(&mut self, r: Reg, class: Class) -> R<Reg> {
        match (r.class(), class) {
            (x, y) if x == y => Ok(r),
            (Class::Q, Class::R) => {
                let t = self.temp(Class::R);
                self.alu_free(alu_int::trunc64(), t, r, Reg::NONE, Reg::NONE, 0);
                Ok(t)
            }
            _ => self.fail("a register of the wrong size"),
        }
    }

    /// A special register, or the address of a variable or a function.
    fn named(&mut self, e: Option<Entity>, name: &Name, off: i64, class: Class) -> R<Reg> {
        if e.is_none() && (name.starts_with('%') || name.as_ref() == "WARP_SZ") {
            return self.special(name, class);
        }
        let op = &self.linker.texts[self.origin.text as usize];
        if !["mov.", "cvta.", "mapa.", "getctarank."].iter().any(|takes| op.starts_with(takes))
            || op.starts_with("cvta.to.")
        {
            return self.fail(format!("`{name}` is no register: move its address into one"));
        }
        match e {
            Some(e) => self.address_of(e, off, class),
            None => self.symbol(name, off, class),
        }
    }

    fn address_of(&mut self, e: Entity, off: i64, class: Class) -> R<Reg> {
        let init = match e {
            Entity::Frame(at, _) => Init::Local((i64::from(at) + off) as u32),
            Entity::Shared(at) => Init::Imm((i64::from(at) + off) as u64),
            Entity::KernelParam(at) => Init::Imm((i64::from(at) + off) as u64),
            _ => return self.fail("a label is not an operand here"),
        };
        Ok(self.constant(class, init))
    }

    fn symbol(&mut self, name: &Name, off: i64, class: Class) -> R<Reg> {
        if let Some(init) = self.global_init(name, off)? {
            return Ok(self.constant(class, init));
        }
        if let Some(f) = self.linker.address(name) {
            return Ok(self.constant(class, Init::Func(f)));
        }
        self.fail(format!("`{name}` is not defined"))
    }

    /// A module variable's address.
    fn global_init(&mut self, name: &Name, off: i64) -> R<Option<Init>> {
        let Some(g) = self.linker.global(name) else { return Ok(None) };
        let v = &self.linker.ast.vars[g as usize];
        Ok(Some(match v.space {
            Space::Shared if v.external || v.count.is_none() => {
                self.linker.dyn_align = self.linker.dyn_align.max(v.align);
                Init::DynShared(off)
            }
            Space::Shared => Init::Imm((i64::from(self.linker.place_shared(v)) + off) as u64),
            Space::Global | Space::Const => Init::Global(g, off),
            _ => return self.fail(format!("`{name}`: module variables of this space are not supported")),
        }))
    }

    fn special(&mut self, name: &str, class: Class) -> R<Reg> {
        let (base, axis) = match name.rsplit_once('.') {
            Some((b, "x")) => (b, 0),
            Some((b, "y")) => (b, 1),
            Some((b, "z")) => (b, 2),
            // Three-element vectors have a fourth element.
            Some((b, "w")) if b.ends_with("id") => return Ok(self.imm(class, 0)),
            _ => (name, 0),
        };
        let vector = ["tid", "ctaid", "clusterid"].iter().any(|v| {
            let at = base.trim_start_matches("%cluster_").trim_start_matches('%');
            at == *v || at.strip_prefix('n') == Some(v)
        });
        if vector == (name == base) {
            return self.fail(match vector {
                true => format!("`{name}` is a vector: name its .x, .y or .z"),
                false => format!("`{name}` is not a vector"),
            });
        }
        let op = &self.linker.texts[self.origin.text as usize];
        if name != "WARP_SZ" && !op.starts_with("mov.") && !op.starts_with("cvt.") {
            return self
                .fail(format!("special registers are operands of mov and cvt alone: move `{name}` into a register"));
        }
        if base.contains("cluster")
            && let Some(why) = arch::lacks(&self.linker.ast.target, arch::CLUSTERS)
        {
            return self.fail(format!("`{name}`: {why}"));
        }
        use MaskRel as M;
        use Special as S;
        let s = match base {
            "%tid" => S::Tid(axis),
            "%ntid" => S::NTid(axis),
            "%ctaid" => S::CtaId(axis),
            "%nctaid" => S::NCtaId(axis),
            "%clusterid" => S::ClusterId(axis),
            "%nclusterid" => S::NClusterId(axis),
            "%cluster_ctaid" => S::ClusterCtaId(axis),
            "%cluster_nctaid" => S::ClusterNCtaId(axis),
            "%cluster_ctarank" => S::ClusterCtaRank,
            "%cluster_nctarank" => S::ClusterNCtaRank,
            "%is_explicit_cluster" => S::IsExplicitCluster,
            "%laneid" => S::LaneId,
            "%warpid" => S::WarpId,
            "%nwarpid" => S::NWarpId,
            "%smid" => S::SmId,
            "%nsmid" => S::NSmId,
            "%gridid" => S::GridId,
            "%envreg1" => S::EnvReg(1),
            "%envreg2" => S::EnvReg(2),
            "%lanemask_eq" => S::LaneMask(M::Eq),
            "%lanemask_lt" => S::LaneMask(M::Lt),
            "%lanemask_le" => S::LaneMask(M::Le),
            "%lanemask_gt" => S::LaneMask(M::Gt),
            "%lanemask_ge" => S::LaneMask(M::Ge),
            "%dynamic_smem_size" => S::DynamicSmem,
            "%total_smem_size" | "%aggr_smem_size" => S::TotalSmem,
            // There are no graph launches, no OpenCL grid offsets, and no performance counters set up by a profiler.
            "%current_graph_exec" => return Ok(self.imm(class, 0)),
            counter
                if ["%pm", "%envreg"].iter().any(|is| {
                    counter.strip_prefix(is).is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()))
                }) =>
            {
                return Ok(self.imm(class, 0));
            }
            "%reserved_smem_offset_cap" => return Ok(self.imm(class, u64::from(RESERVED))),
            "%reserved_smem_offset_begin" | "%reserved_smem_offset_0" => return Ok(self.reserved(class, 0)),
            "%reserved_smem_offset_1" => return Ok(self.reserved(class, RESERVED / 2)),
            "%reserved_smem_offset_end" => return Ok(self.reserved(class, RESERVED)),
            "WARP_SZ" => return Ok(self.imm(class, 32)),
            "%clock" | "%clock_hi" | "%clock64" | "%globaltimer" | "%globaltimer_lo" | "%globaltimer_hi" => {
                let wide = matches!(base, "%clock64" | "%globaltimer");
                let t = self.temp(if wide { Class::Q } else { Class::R });
                let hi = u8::from(base.ends_with("_hi"));
                self.emit(Inst { d: t, ..Inst::new(Op::Clock(hi)) });
                return if wide == (class == Class::Q) {
                    Ok(t)
                } else {
                    self.fail("a clock register of the wrong size")
                };
            }
            _ => return self.fail(format!("`{name}` is not defined or not supported")),
        };
        if class == Class::Q && s != S::GridId {
            return self.fail(format!("`{name}` has 32 bits"));
        }
        Ok(self.constant(class, Init::Special(s)))
    }

    /// An address in the part of a block's shared memory that the system reserves: cooperative groups of several warps synchronise there.
    /// Kernels that use it get it as one of their variables.
    fn reserved(&mut self, class: Class, at: u32) -> Reg {
        let first = self.linker.place_shared(&Var::bytes(RESERVED_NAME, RESERVED));
        self.imm(class, u64::from(first + at))
    }

    /// Checks that a register may be an operand of a type, by ptxas's rules.
    fn serves(&self, name: &str, is: Ty, want: Ty) -> R<()> {
        match is.serves(want, self.wider) {
            true => Ok(()),
            false => self.fail(format!("arguments mismatch: `{name}` is declared {is}, and the operand is {want}")),
        }
    }

    /// The destination, for a type or only a class; a sink (`_`) gets an unused register.
    pub fn dst(&mut self, a: &Arg, want: impl Want) -> R<Reg> {
        match a {
            Arg::Sink => Ok(self.temp(want.class())),
            Arg::Name(n) => match self.lookup(n) {
                Some(Entity::Reg(r, is)) => {
                    if let Some(ty) = want.ty() {
                        self.serves(n, is, ty)?;
                    }
                    if r.class() == want.class() { Ok(r) } else { self.fail(format!("`{n}` has the wrong size")) }
                }
                _ => self.fail(format!("`{n}` is not a register")),
            },
            _ => self.fail("a register is needed as destination"),
        }
    }

    /// Like `dst`, but a 64-bit register may receive a narrower result: `widen` completes it.
    pub fn dst_wide(&mut self, a: &Arg, ty: Ty) -> R<(Reg, Option<Reg>)> {
        if let Arg::Name(n) = a
            && let Some(Entity::Reg(r, is)) = self.lookup(n)
            && r.class() == Class::Q
            && ty.class() == Class::R
        {
            self.serves(n, is, ty)?;
            return Ok((self.temp(Class::R), Some(r)));
        }
        Ok((self.dst(a, ty)?, None))
    }

    /// Extends a narrow result to the requested 64-bit register.
    pub fn widen(&mut self, from: Reg, to: Option<Reg>, signed: Option<u32>) {
        if let Some(to) = to {
            match signed {
                Some(bits) => self.alu(alu_int::sext64(), to, from, Reg::NONE, Reg::NONE, i64::from(bits.min(32))),
                None => self.alu(alu_int::zext(), to, from, Reg::NONE, Reg::NONE, 0),
            }
        }
    }

    /// Declared bits of a register operand; 0 if it is not a register.
    pub fn reg_bits(&self, a: &Arg) -> u32 {
        match a {
            Arg::Name(n) => match self.lookup(n) {
                Some(Entity::Reg(_, ty)) => ty.bits(),
                _ => 0,
            },
            _ => 0,
        }
    }

    /// `[…]` as an address.
    pub fn addr(&mut self, a: &Arg) -> R<Addr> {
        let Arg::Mem(base, off, rest) = a else { return self.fail("an address in brackets is needed") };
        if !rest.is_empty() {
            return self.fail("an address with coordinates is not allowed here");
        }
        self.addr_parts(base, *off)
    }

    pub fn addr_parts(&mut self, base: &Arg, off: i64) -> R<Addr> {
        match base {
            Arg::Int(v) => Ok(Addr { base: Reg::NONE, off: (*v as i64).wrapping_add(off), space: None }),
            Arg::Name(n) => match self.lookup(n) {
                Some(Entity::Reg(_, ty)) if ty.float() || ty == Ty::Pred => {
                    self.fail(format!("`{n}` is declared {ty}, and an address is an integer or bits"))
                }
                Some(Entity::Reg(r, _)) => Ok(Addr { base: r, off, space: None }),
                Some(Entity::KernelParam(at)) => {
                    Ok(Addr { base: Reg::NONE, off: i64::from(at) + off, space: Some(MemSpace::Param) })
                }
                Some(Entity::Shared(at)) => {
                    Ok(Addr { base: Reg::NONE, off: i64::from(at) + off, space: Some(MemSpace::Shared) })
                }
                Some(e @ Entity::Frame(..)) => {
                    Ok(Addr { base: self.address_of(e, 0, Class::R)?, off, space: Some(MemSpace::Local) })
                }
                Some(_) => self.fail(format!("`{n}` is not an address")),
                None => match self.global_init(n, 0)? {
                    Some(init @ Init::Global(..)) => {
                        Ok(Addr { base: self.constant(Class::Q, init), off, space: Some(MemSpace::Global) })
                    }
                    Some(init) => Ok(Addr { base: self.constant(Class::R, init), off, space: Some(MemSpace::Shared) }),
                    None => self.fail(format!("`{n}` is not defined")),
                },
            },
            _ => self.fail("an address of an unsupported form"),
        }
    }
}
