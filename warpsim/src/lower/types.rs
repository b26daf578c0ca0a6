//! Scalar types in instructions, and the modifiers of an opcode.

use crate::ir::Class;
use crate::num::Rnd;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ty {
    Pred,
    B(u8),
    U(u8),
    S(u8),
    U16x2,
    S16x2,
    F16,
    F16x2,
    BF16,
    BF16x2,
    F32,
    F64,
    F32x2,
    TF32,
    E4M3x2,
    E5M2x2,
    E4M3,
    E5M2,
}

impl Ty {
    pub fn parse(s: &str) -> Option<Ty> {
        Some(match s {
            "pred" => Ty::Pred,
            "b8" => Ty::B(8),
            "b16" => Ty::B(16),
            "b32" => Ty::B(32),
            "b64" => Ty::B(64),
            "b128" => Ty::B(128),
            "u8" => Ty::U(8),
            "u16" => Ty::U(16),
            "u32" => Ty::U(32),
            "u64" => Ty::U(64),
            "s8" => Ty::S(8),
            "s16" => Ty::S(16),
            "s32" => Ty::S(32),
            "s64" => Ty::S(64),
            "u16x2" => Ty::U16x2,
            "s16x2" => Ty::S16x2,
            "f16" => Ty::F16,
            "f16x2" => Ty::F16x2,
            "bf16" => Ty::BF16,
            "bf16x2" => Ty::BF16x2,
            "f32" => Ty::F32,
            "f64" => Ty::F64,
            "f32x2" => Ty::F32x2,
            "tf32" => Ty::TF32,
            "e4m3x2" => Ty::E4M3x2,
            "e5m2x2" => Ty::E5M2x2,
            "e4m3" => Ty::E4M3,
            "e5m2" => Ty::E5M2,
            _ => return None,
        })
    }

    pub fn bits(self) -> u32 {
        match self {
            Ty::Pred => 1,
            Ty::B(n) | Ty::U(n) | Ty::S(n) => u32::from(n),
            Ty::F16 | Ty::BF16 | Ty::E4M3x2 | Ty::E5M2x2 => 16,
            Ty::U16x2 | Ty::S16x2 | Ty::F16x2 | Ty::BF16x2 | Ty::F32 | Ty::TF32 => 32,
            Ty::F64 | Ty::F32x2 => 64,
            Ty::E4M3 | Ty::E5M2 => 8,
        }
    }

    pub fn class(self) -> Class {
        match self.bits() {
            1 => Class::P,
            64.. => Class::Q,
            _ => Class::R,
        }
    }

    pub fn signed(self) -> bool {
        matches!(self, Ty::S(_))
    }

    /// Whether an instruction accepts a register of this type for an operand of the other type: PTX's type-checking rules, and ptxas's
    /// behaviour for f16x2 registers as integers, which PTX does not specify. `wider`: the register may be larger.
    pub fn serves(self, as_: Ty, wider: bool) -> bool {
        let fits = self.bits() == as_.bits() || wider && self.bits() > as_.bits() && self != Ty::Pred;
        let int = |t| matches!(t, Ty::U(_) | Ty::S(_));
        let kind = match (self, as_) {
            (Ty::B(_), _) | (_, Ty::B(_)) => true,
            (Ty::F16x2, _) if int(as_) || matches!(as_, Ty::U16x2 | Ty::S16x2) => true,
            _ => self == as_ || int(self) && int(as_),
        };
        fits && kind
    }

    pub fn float(self) -> bool {
        !matches!(self, Ty::Pred | Ty::B(_) | Ty::U(_) | Ty::S(_) | Ty::U16x2 | Ty::S16x2)
    }
}

impl std::fmt::Display for Ty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ty::B(n) => write!(f, ".b{n}"),
            Ty::U(n) => write!(f, ".u{n}"),
            Ty::S(n) => write!(f, ".s{n}"),
            other => write!(f, ".{}", format!("{other:?}").to_lowercase()),
        }
    }
}

/// What is known of an operand: its type, or only its register class.
pub trait Want: Copy {
    fn class(self) -> Class;
    fn ty(self) -> Option<Ty>;
}

impl Want for Class {
    fn class(self) -> Class {
        self
    }
    fn ty(self) -> Option<Ty> {
        None
    }
}

impl Want for Ty {
    fn class(self) -> Class {
        Ty::class(self)
    }
    fn ty(self) -> Option<Ty> {
        Some(self)
    }
}

/// An opcode, split at its dots. The lowering function must take every modifier.
pub struct Mods<'a> {
    pub root: &'a str,
    list: Vec<&'a str>,
    used: u64,
}

impl<'a> Mods<'a> {
    pub fn new(op: &'a str) -> Self {
        let mut parts = op.split('.');
        let root = parts.next().unwrap_or("");
        let list: Vec<_> = parts.filter(|p| !p.is_empty()).take(64).collect();
        Mods { root, list, used: 0 }
    }

    pub fn take(&mut self, m: &str) -> bool {
        for (k, x) in self.list.iter().enumerate() {
            if self.used >> k & 1 == 0 && *x == m {
                self.used |= 1 << k;
                return true;
            }
        }
        false
    }

    /// Index of the first of `names` that is present.
    pub fn one_of(&mut self, names: &[&str]) -> Option<usize> {
        names.iter().position(|n| self.take(n))
    }

    /// Whether it names only the block's own shared memory. If that is wrong for an mbarrier, the checks of mbarriers give a better message.
    pub fn own_shared(&self) -> bool {
        let has = |names: &[&str]| self.list.iter().any(|x| names.contains(x));
        self.root != "mbarrier" && has(&["shared", "shared::cta"]) && !has(&["shared::cluster"])
    }

    /// Takes the first remaining modifier that `f` accepts.
    pub fn find<T>(&mut self, f: impl Fn(&str) -> Option<T>) -> Option<T> {
        for (k, x) in self.list.iter().enumerate() {
            if self.used >> k & 1 == 0
                && let Some(v) = f(x)
            {
                self.used |= 1 << k;
                return Some(v);
            }
        }
        None
    }

    pub fn ty(&mut self) -> Option<Ty> {
        self.find(Ty::parse)
    }

    /// `.rn`, `.rni`, …: the rounding mode, and whether it rounds to an integral value.
    pub fn rounding(&mut self) -> Option<(Rnd, bool)> {
        self.find(|m| {
            Some(match m {
                "rn" => (Rnd::Rn, false),
                "rz" => (Rnd::Rz, false),
                "rm" => (Rnd::Rm, false),
                "rp" => (Rnd::Rp, false),
                "rna" => (Rnd::Rna, false),
                "rni" => (Rnd::Rn, true),
                "rzi" => (Rnd::Rz, true),
                "rmi" => (Rnd::Rm, true),
                "rpi" => (Rnd::Rp, true),
                _ => return None,
            })
        })
    }

    /// The first modifier that was not taken.
    pub fn left(&self) -> Option<&'a str> {
        self.list.iter().enumerate().find(|(k, _)| self.used >> k & 1 == 0).map(|(_, m)| *m)
    }
}
