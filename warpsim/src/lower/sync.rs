//! Barriers, fences, warp-wide exchange, clusters.

use super::func::{Lower, R};
use super::types::{Mods, Ty, Want};
use crate::exec::alu_int as ai;
use crate::ir::*;
use crate::ptx::ast::Arg;

const N: Reg = Reg::NONE;
const U32: Ty = Ty::U(32);

impl Lower<'_, '_> {
    pub(super) fn sync(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let root = m.root;
        match root {
            "bar" if m.take("warp") => {
                if !m.take("sync") {
                    return self.fail("needs `.sync`");
                }
                self.count(a, 1, 1)?;
                let mask = self.src(&a[0], U32)?;
                self.warp(WarpOp::SyncWarp, N, N, N, N, mask);
                Ok(())
            }
            "barrier" if m.take("cluster") => {
                let Some(kind) = m.one_of(&["arrive", "wait"]) else {
                    return self.fail("`arrive` or `wait` is missing");
                };
                let arrive = kind == 0;
                let orders: &[&str] = if arrive { &["release", "relaxed"] } else { &["acquire"] };
                let relaxed = m.one_of(orders) == Some(1);
                let aligned = m.take("aligned");
                let op = if arrive { Op::ClusterArrive { relaxed, aligned } } else { Op::ClusterWait { aligned } };
                self.emit(Inst::new(op));
                Ok(())
            }
            "bar" | "barrier" => self.barrier(m, a),
            "membar" if m.take("proxy") => {
                if !m.take("alias") {
                    return self.fail("this kind of proxy fence is not supported");
                }
                self.emit(Inst::new(Op::Fence(Fence::Other)));
                Ok(())
            }
            "membar" => {
                self.count(a, 0, 0)?;
                let k = m.one_of(&["cta", "gl", "sys"]);
                let scope = if k == Some(0) { Scope::Block } else { Scope::Gpu };
                self.linker.narrow |= scope == Scope::Block;
                self.emit(Inst::new(Op::Fence(Fence::Generic(scope))));
                Ok(())
            }
            "fence" => self.fence(m, a),
            "shfl" => self.shuffle(m, a),
            "vote" => self.vote(m, a),
            "match" => {
                m.take("sync");
                let all = m.one_of(&["any", "all"]) == Some(1);
                let ty = self.need_ty(m)?;
                self.count(a, 3, 3)?;
                let x = self.src(&a[1], ty)?;
                let mask = self.src(&a[2], U32)?;
                let (d, p) = self.dst_pair(&a[0], Class::R)?;
                let wide = ty.class() == Class::Q;
                self.warp(if all { WarpOp::MatchAll(wide) } else { WarpOp::MatchAny(wide) }, d, p, x, N, mask);
                Ok(())
            }
            "redux" => {
                m.take("sync");
                let k = m.one_of(&["add", "min", "max", "and", "or", "xor"]);
                let ty = self.need_ty(m)?;
                let s = ty.signed();
                use ReduxOp as O;
                let op = match k {
                    Some(0) => O::Add,
                    Some(1) => {
                        if s {
                            O::MinS
                        } else {
                            O::MinU
                        }
                    }
                    Some(2) => {
                        if s {
                            O::MaxS
                        } else {
                            O::MaxU
                        }
                    }
                    Some(3) => O::And,
                    Some(4) => O::Or,
                    Some(5) => O::Xor,
                    _ => return self.fail("the operation is missing"),
                };
                if ty.float() {
                    return self.fail("not defined for this type");
                }
                self.count(a, 3, 3)?;
                let x = self.src(&a[1], ty)?;
                let mask = self.src(&a[2], U32)?;
                let d = self.dst(&a[0], U32)?;
                self.warp(WarpOp::Redux(op), d, N, x, N, mask);
                Ok(())
            }
            "activemask" => {
                self.need_ty(m)?;
                let d = self.dst(self.arg(a, 0)?, Ty::B(32))?;
                self.emit(Inst { d, ..Inst::new(Op::ActiveMask) });
                Ok(())
            }
            "elect" => {
                m.take("sync");
                self.count(a, 2, 2)?;
                let (d, p) = self.dst_pair(&a[0], U32)?;
                let mask = self.src(&a[1], U32)?;
                self.warp(WarpOp::Elect, d, p, N, N, mask);
                Ok(())
            }
            "nanosleep" => {
                self.need_ty(m)?;
                self.count(a, 1, 1)?;
                let a = self.src(&a[0], U32)?;
                self.emit(Inst { a, ..Inst::new(Op::Nanosleep) });
                Ok(())
            }
            "griddepcontrol" => {
                let op = match m.one_of(&["wait", "launch_dependents"]) {
                    Some(0) => Op::GridWait,
                    Some(_) => Op::GridRelease,
                    None => return self.fail("`wait` or `launch_dependents` is missing"),
                };
                self.count(a, 0, 0)?;
                self.emit(Inst::new(op));
                Ok(())
            }
            "setmaxnreg" => {
                let Some(kind) = m.one_of(&["inc", "dec"]) else { return self.fail("`.inc` or `.dec` is missing") };
                let inc = kind == 0;
                m.take("sync");
                m.take("aligned");
                self.need_ty(m)?;
                let n = self.literal(self.arg(a, 0)?)?;
                if !(24..=256).contains(&n) || n % 8 != 0 {
                    return self.fail("the register count must be a multiple of 8 from 24 to 256");
                }
                self.emit(Inst { imm: n as i64 | i64::from(inc) << 32, ..Inst::new(Op::SetMaxNReg) });
                Ok(())
            }
            _ => self.mapa(m, a),
        }
    }

    fn warp(&mut self, op: WarpOp, d: Reg, p: Reg, a: Reg, b: Reg, mask: Reg) {
        let mut i = Inst { d, a, b, ..Inst::new(Op::Warp(op)) };
        // The second result is a predicate; the membership mask is the operand `c`.
        i.c = mask;
        if p.is_some() {
            self.ext(&mut i, &[p], &[]);
        }
        self.emit(i);
    }

    /// `d|p`, `d`, or a sink.
    fn dst_pair(&mut self, a: &Arg, want: impl Want) -> R<(Reg, Reg)> {
        match a {
            Arg::Pair(d, p) => Ok((self.dst(d, want)?, self.dst(p, Class::P)?)),
            d => Ok((self.dst(d, want)?, N)),
        }
    }

    fn shuffle(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        if !m.take("sync") {
            return self.fail("only `shfl.sync` is supported");
        }
        use ShflMode::*;
        let Some(mode) = m.one_of(&["up", "down", "bfly", "idx"]).map(|k| [Up, Down, Bfly, Idx][k]) else {
            return self.fail("the mode is missing");
        };
        self.need_ty(m)?;
        self.count(a, 5, 5)?;
        let (x, b, c) = (self.src(&a[1], Ty::B(32))?, self.src(&a[2], U32)?, self.src(&a[3], U32)?);
        let mask = self.src(&a[4], U32)?;
        let (d, p) = self.dst_pair(&a[0], Ty::B(32))?;
        let mut i = Inst { d, a: x, b, c: mask, ..Inst::new(Op::Warp(WarpOp::Shfl(mode))) };
        if p.is_some() {
            self.ext(&mut i, &[p], &[c]);
        } else {
            self.ext(&mut i, &[], &[c]);
        }
        self.emit(i);
        Ok(())
    }

    fn vote(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        if !m.take("sync") {
            return self.fail("only `vote.sync` is supported");
        }
        use VoteMode::*;
        let Some(mode) = m.one_of(&["all", "any", "uni", "ballot"]).map(|k| [All, Any, Uni, Ballot][k]) else {
            return self.fail("the mode is missing");
        };
        self.need_ty(m)?;
        self.count(a, 3, 3)?;
        let p = self.src(&a[1], Ty::Pred)?;
        let mask = self.src(&a[2], U32)?;
        let d = self.dst(&a[0], if mode == Ballot { Ty::B(32) } else { Ty::Pred })?;
        self.warp(WarpOp::Vote(mode), d, N, p, N, mask);
        Ok(())
    }

    fn barrier(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        m.take("cta");
        let aligned = m.root == "bar" || m.take("aligned");
        m.take("aligned");
        let kind = m.one_of(&["sync", "arrive", "red"]);
        self.barrier_numbers(a.get(usize::from(kind == Some(2))..).unwrap_or(&[]), kind == Some(1))?;
        match kind {
            Some(0) => {
                self.count(a, 1, 2)?;
                let id = self.src(&a[0], U32)?;
                let n = if a.len() > 1 { self.src(&a[1], U32)? } else { N };
                self.emit(Inst { a: id, b: n, ..Inst::new(Op::BarSync { aligned }) });
            }
            Some(1) => {
                self.count(a, 2, 2)?;
                let (id, n) = (self.src(&a[0], U32)?, self.src(&a[1], U32)?);
                self.emit(Inst { a: id, b: n, ..Inst::new(Op::BarArrive { aligned }) });
            }
            Some(2) => {
                let Some(mode) = m.one_of(&["popc", "and", "or"]) else {
                    return self.fail("`.popc`, `.and` or `.or` is missing");
                };
                let ty = self.need_ty(m)?;
                if ty != if mode == 0 { U32 } else { Ty::Pred } {
                    return self.fail("`.popc` is for .u32, `.and` and `.or` are for .pred");
                }
                self.count(a, 3, 4)?;
                let id = self.src(&a[1], U32)?;
                let n = if a.len() == 4 { self.src(&a[2], U32)? } else { N };
                let p = self.src(&a[a.len() - 1], Ty::Pred)?;
                let d = self.dst(&a[0], if ty == Ty::Pred { Class::P } else { Class::R })?;
                let mode = [VoteMode::Ballot, VoteMode::All, VoteMode::Any][mode];
                self.emit(Inst { d, a: id, b: n, c: p, ..Inst::new(Op::BarRed(mode, aligned)) });
            }
            _ => return self.fail("`sync`, `arrive` or `red` is missing"),
        }
        Ok(())
    }

    /// A barrier's number and the number of its threads, where they are constants.
    fn barrier_numbers(&self, a: &[Arg], arrives: bool) -> R<()> {
        match a {
            [Arg::Int(id @ 16..), ..] => self.fail(format!("barrier {} does not exist: there are 0 to 15", *id as i64)),
            [_, Arg::Int(n), ..] if n % 32 != 0 || arrives && *n == 0 => {
                self.fail(format!("a barrier for {} threads: a multiple of 32 is needed", *n as i64))
            }
            _ => Ok(()),
        }
    }

    fn fence(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let mut map = None;
        let f = if m.take("mbarrier_init") {
            m.take("release");
            m.take("cluster");
            Fence::MbarrierInit
        } else if m.find(|s| matches!(s, "proxy").then_some(())).is_some() {
            let tensormap = m.find(|s| s.starts_with("tensormap").then_some(())).is_some();
            let alias = m.take("alias");
            let order = m.one_of(&["acquire", "release"]);
            if tensormap && order == Some(0) {
                self.count(a, 2, 2)?;
                map = Some(self.addr(&a[0])?);
                if self.literal(&a[1])? != 128 {
                    return self.fail("the size must be 128");
                }
            }
            let scope = self.scope(m);
            m.find(|s| s.starts_with("sync_restrict").then_some(()));
            if tensormap {
                self.linker.narrow |= scope == Scope::Block;
                if map.is_some() { Fence::AcquireMap(scope) } else { Fence::ReleaseMaps(scope) }
            } else if alias {
                Fence::Other
            } else if m.find(|s| matches!(s, "async" | "async::generic").then_some(())).is_some() {
                let space = m.one_of(&["global", "shared::cta", "shared::cluster", "shared"]);
                Fence::ProxyAsync { shared: space != Some(0), global: matches!(space, None | Some(0)) }
            } else {
                return self.fail("this kind of proxy fence is not supported");
            }
        } else {
            m.one_of(&["sc", "acq_rel", "acquire", "release"]);
            m.find(|s| s.starts_with("sync_restrict").then_some(()));
            m.find(|s| s.starts_with("shared::").then_some(()));
            let scope = self.scope(m);
            self.linker.narrow |= scope == Scope::Block;
            Fence::Generic(scope)
        };
        let (a, imm) = map.map_or((N, 0), |at| (at.base, at.off));
        self.emit(Inst { a, imm, ..Inst::new(Op::Fence(f)) });
        Ok(())
    }

    fn mapa(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        let shared = m.find(|s| s.starts_with("shared").then_some(())).is_some();
        let ty = self.need_ty(m)?;
        if m.root == "getctarank" {
            self.count(a, 2, 2)?;
            let x = self.src(&a[1], ty)?;
            let d = self.dst(&a[0], U32)?;
            self.emit(Inst { d, a: x, ..Inst::new(Op::GetCtaRank { shared }) });
            return Ok(());
        }
        self.count(a, 3, 3)?;
        let (x, rank) = (self.src(&a[1], ty)?, self.src(&a[2], U32)?);
        let d = self.dst(&a[0], ty)?;
        if shared && ty.class() == Class::Q {
            let (lo, out) = (self.temp(Class::R), self.temp(Class::R));
            self.alu_free(ai::trunc64(), lo, x, N, N, 0);
            self.emit(Inst { d: out, a: lo, b: rank, ..Inst::new(Op::Mapa { shared }) });
            self.alu(ai::zext(), d, out, N, N, 0);
            return Ok(());
        }
        self.emit(Inst { d, a: x, b: rank, ..Inst::new(Op::Mapa { shared }) });
        Ok(())
    }
}
