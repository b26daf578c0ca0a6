//! Lowers one instruction: handles its guard, and selects the function that lowers it.

use super::arch;
use super::forms;
use super::func::{Entity, Lower, R};
use super::offsets;
use super::types::{Mods, Ty};
use crate::ir::Reg;
use crate::ptx::ParseError;
use crate::ptx::ast::{Arg, Inst};

impl Lower<'_, '_> {
    pub(super) fn inst(&mut self, i: &Inst) -> R<()> {
        self.line = i.line;
        self.origin.line = i.line;
        let known = self.linker.texts.len();
        self.origin.text = self.linker.text(&i.op);
        self.fresh = true;
        self.guard = match &i.guard {
            None => (Reg::NONE, false),
            Some((neg, name)) => match self.lookup(name) {
                Some(Entity::Reg(r, Ty::Pred)) => (r, *neg),
                _ => return self.fail(format!("`{name}` is not a predicate register")),
            },
        };
        // The first that is refused ends the lowering.
        if self.origin.text as usize == known
            && let Some(why) = arch::refused(&i.op, &self.linker.ast.target).or_else(|| forms::refused(&i.op))
        {
            return self.fail(format!("`{}`: {why}", i.op));
        }
        self.operands(i)?;
        let before = self.insts.len();
        let mut m = Mods::new(&i.op);
        self.wider = matches!(m.root, "ld" | "ldu" | "st" | "cvt");
        let spelled = if self.vectors { self.spelled(&i.args) } else { vec![] };
        let args = if spelled.is_empty() { &i.args } else { &spelled };
        self.dispatch(&mut m, args).map_err(|e| {
            let message = if e.message.contains('`') {
                format!("{} (in `{}`)", e.message, i.op)
            } else {
                format!("`{}`: {}", i.op, e.message)
            };
            ParseError::new(self.line, message)
        })?;
        if let Some(left) = m.left() {
            return self.fail(format!("unsupported modifier `.{left}` of `{}`", i.op));
        }
        let own = m.own_shared();
        self.insts[before..].iter_mut().for_each(|i| i.own = own);
        if let [one] = &mut self.insts[before..] {
            one.offset = offsets::kind(&i.op);
        }
        Ok(())
    }

    /// What is said of operands alike for all instructions.
    fn operands(&self, i: &Inst) -> R<()> {
        const DISCARD: [&str; 6] = ["atom.", "setp.", "elect.", "match.", "mbarrier.arrive", "lop3."];
        let sink = match i.args.first() {
            Some(Arg::Pair(a, _)) => matches!(**a, Arg::Sink),
            first => matches!(first, Some(Arg::Sink)),
        };
        if sink && !DISCARD.iter().any(|op| i.op.starts_with(op)) {
            return self.fail(format!("the result of `{}` cannot be discarded", i.op));
        }
        if i.op.contains(".L2::cache_hint")
            && i.args.last().is_none_or(|policy| !matches!(policy, Arg::Int(_)) && self.reg_bits(policy) != 64)
        {
            return self.fail(format!("`{}`: a 64-bit policy has to be the last operand", i.op));
        }
        let at_number = |a: &Arg| matches!(a, Arg::Mem(base, ..) if matches!(**base, Arg::Int(_)));
        if i.args.iter().any(at_number) && !i.op.split('.').any(|m| m == "local") {
            return self.fail(format!("`{}`: only an address in .local memory can be a number", i.op));
        }
        Ok(())
    }

    fn dispatch(&mut self, m: &mut Mods<'_>, a: &[Arg]) -> R<()> {
        match m.root {
            "mov" => self.mov(m, a),
            "add" | "sub" | "mul" | "mad" | "fma" | "div" | "min" | "max" | "abs" | "neg" => self.arith(m, a),
            "rem" | "sad" | "mul24" | "mad24" | "popc" | "clz" | "brev" | "fns" | "bfind" | "bfe" | "bfi" | "prmt"
            | "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "shf" | "lop3" | "bmsk" | "szext" | "dp4a"
            | "dp2a" => self.int_op(m, a),
            "addc" | "subc" | "madc" => self.extended(m, a),
            "setp" | "set" => self.compare(m, a),
            "selp" | "slct" => self.select(m, a),
            "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" | "testp" | "copysign" => {
                self.float_fn(m, a)
            }
            "cvt" => self.cvt(m, a),
            "cvta" | "isspacep" => self.cvta(m, a),
            "ld" | "ldu" => self.load(m, a),
            "st" => self.store(m, a),
            "atom" | "red" => self.atomic(m, a),
            "prefetch" | "prefetchu" | "applypriority" | "discard" | "createpolicy" => self.hint(m, a),
            "alloca" | "stacksave" | "stackrestore" => self.stack(m, a),
            "bra" | "brx" | "call" | "ret" | "exit" | "trap" | "brkpt" | "pmevent" => self.control(m, a),
            "bar" | "barrier" | "membar" | "fence" | "shfl" | "vote" | "match" | "redux" | "activemask" | "elect"
            | "nanosleep" | "griddepcontrol" | "setmaxnreg" | "mapa" | "getctarank" => self.sync(m, a),
            "cp" | "ldmatrix" | "stmatrix" | "movmatrix" | "mma" | "wgmma" | "mbarrier" | "wmma" => self.tensor(m, a),
            "tensormap" => self.tensormap(m, a),
            "tex" | "tld4" | "txq" | "suld" | "sust" | "sured" | "suq" | "istypep" => {
                self.fail("unsupported: textures and surfaces are not modelled; read and write through a pointer to global memory")
            }
            video if video.starts_with('v') => self.video(m, a),
            other => self.fail(format!("unsupported instruction `{other}`")),
        }
    }
}
