//! What names mean: scopes, and the declarations in them.

use rustc_hash::FxHashMap;

use super::func::{Entity, Lower, R};
use super::types::Ty;
use crate::ir::*;
use crate::ptx::ast::{Name, Space, Var, type_bytes_of};

const MAX_REGS: u32 = 1 << 22;

#[derive(Default)]
pub(super) struct Scope {
    names: FxHashMap<Name, Entity>,
    /// `%r<10>`: prefix, count, first id, type.
    ranges: Vec<(Name, u32, u32, Ty)>,
}

impl Entity {
    /// Marks a place in the code: numbered registers may have its name.
    fn mark(&self) -> bool {
        matches!(self, Entity::Label(_) | Entity::Table(_) | Entity::Prototype)
    }
}

/// A name without the digits at its end, and these.
fn numbered(name: &str) -> (&str, &str) {
    name.split_at(name.len() - name.bytes().rev().take_while(u8::is_ascii_digit).count())
}

/// Whether a name is that of one of the registers `prefix<count>`; ptxas takes `%r01` for `%r1`.
fn within(name: &str, prefix: &str, count: u32) -> bool {
    let (is, tail) = numbered(name);
    is == prefix && tail.parse::<u32>().is_ok_and(|n| n < count)
}

impl<'a> Lower<'a, '_> {
    pub(super) fn declare(&mut self, name: &Name, e: Entity) -> R<()> {
        let what = match e {
            Entity::Reg(..) | Entity::Vector(_) => "register",
            _ if e.mark() => "label",
            _ => "variable",
        };
        let Some(scope) = self.scopes.last_mut() else { return Ok(()) };
        let ranges = !e.mark() && scope.ranges.iter().any(|(prefix, count, ..)| within(name, prefix, *count));
        if scope.names.insert(name.clone(), e).is_some() || ranges {
            return self.fail(format!("a second {what} `{name}`"));
        }
        Ok(())
    }

    pub(super) fn declare_reg(&mut self, t: Ty, width: u32, name: &Name, count: Option<u32>) -> R<()> {
        let class = t.class();
        let words = if t.bits() == 128 { 2 } else { 1 };
        if self.next[class as usize].saturating_add(count.unwrap_or(1).saturating_mul(width * words)) > MAX_REGS {
            return self.fail("too many registers");
        }
        match count {
            Some(n) => {
                let first = self.next[class as usize];
                self.next[class as usize] += n * words;
                let Some(s) = self.scopes.last_mut() else { return Ok(()) };
                let again = s.ranges.iter().any(|range| range.0 == *name).then(|| format!("{name}<{n}>"));
                let single =
                    s.names.iter().find(|(is, e)| !e.mark() && within(is, name, n)).map(|(is, _)| is.to_string());
                if let Some(second) = again.or(single) {
                    return self.fail(format!("a second register `{second}`"));
                }
                s.ranges.push((name.clone(), n, first, t));
            }
            None if width > 1 => {
                for (c, colour) in ["x", "y", "z", "w"].iter().zip(["r", "g", "b", "a"]).take(width as usize) {
                    let r = self.temp(class);
                    self.declare(&format!("{name}.{c}").into(), Entity::Reg(r, t))?;
                    self.declare(&format!("{name}.{colour}").into(), Entity::Reg(r, t))?;
                }
                self.vectors = true;
                self.declare(name, Entity::Vector(width))?;
            }
            None => {
                let r = self.temp(class);
                if words == 2 {
                    self.temp(class);
                }
                self.declare(name, Entity::Reg(r, t))?;
            }
        }
        Ok(())
    }

    pub(super) fn variable(&mut self, v: &'a Var) -> R<()> {
        let bytes = type_bytes_of(v) as u32;
        self.line = v.line;
        let e = match v.space {
            Space::Shared => Entity::Shared(self.linker.place_local_shared(v)),
            Space::Local | Space::Param => Entity::Frame(self.frame_alloc(bytes, v.align)?, bytes),
            _ => return self.fail(format!("`{}`: a variable of this space inside a function", v.name)),
        };
        self.declare(&v.name, e)
    }

    /// The state space of a variable in shared, global or constant memory.
    pub(super) fn space_named(&self, name: &Name) -> Option<&'static str> {
        let space = match self.lookup(name) {
            Some(Entity::Shared(_)) => Space::Shared,
            Some(_) => return None,
            None => self.linker.ast.vars[self.linker.global(name)? as usize].space,
        };
        match space {
            Space::Shared => Some("shared"),
            Space::Global => Some("global"),
            Space::Const => Some("const"),
            _ => None,
        }
    }

    /// What a name means here, innermost scope first.
    pub fn lookup(&self, name: &str) -> Option<Entity> {
        let (prefix, tail) = numbered(name);
        let index =
            if tail.is_empty() || (tail.len() > 1 && tail.starts_with('0')) { None } else { tail.parse::<u32>().ok() };
        for s in self.scopes.iter().rev() {
            if let Some(e) = s.names.get(name) {
                return Some(e.clone());
            }
            let Some(n) = index else { continue };
            for (p, count, first, ty) in &s.ranges {
                if n < *count && p.as_ref() == prefix {
                    let words = if ty.bits() == 128 { 2 } else { 1 };
                    return Some(Entity::Reg(Reg::new(ty.class(), first + n * words), *ty));
                }
            }
        }
        None
    }
}
