//! Function bodies: scopes, declarations, instructions, operands.

use super::ParseError;
use super::ast::*;
use super::lexer::Tok;
use super::parser::{Parser, space_of};

const MAX_DEPTH: u32 = 100;

impl Parser<'_> {
    /// Parses statements up to the closing brace, which is consumed.
    pub(super) fn statements(&mut self) -> Result<Vec<Stmt>, ParseError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.err("scopes nested too deeply");
        }
        let mut out = vec![];
        while !self.eat(b'}') {
            match self.peek() {
                None => return self.unexpected("`}`"),
                Some(Tok::Punct(b'{')) => {
                    self.next();
                    let inner = self.statements()?;
                    out.push(Stmt::Block(inner));
                }
                Some(Tok::Punct(b';')) => {
                    self.next();
                }
                Some(Tok::Punct(b'@')) => out.push(self.instruction()?),
                Some(Tok::Word(w)) => self.word_statement(w, &mut out)?,
                _ => return self.unexpected("a statement"),
            }
        }
        self.depth -= 1;
        Ok(out)
    }

    fn word_statement(&mut self, w: &str, out: &mut Vec<Stmt>) -> Result<(), ParseError> {
        if self.peek_at(1) == Some(Tok::Punct(b':')) {
            let line = self.line();
            let label = self.name()?;
            self.expect(b':')?;
            match self.peek() {
                Some(Tok::Word(".branchtargets" | ".calltargets")) => {
                    self.next();
                    let mut list = vec![self.name()?];
                    while self.eat(b',') {
                        list.push(self.name()?);
                    }
                    self.expect(b';')?;
                    out.push(Stmt::Targets(label, list));
                }
                Some(Tok::Word(".callprototype")) => {
                    self.skip_to_semicolon();
                    out.push(Stmt::Prototype(label));
                }
                _ => out.push(Stmt::Label(label, line)),
            }
            return Ok(());
        }
        match w {
            ".reg" => {
                let r = self.registers()?;
                out.push(r);
            }
            ".loc" => {
                let loc = self.loc()?;
                out.push(Stmt::Loc(loc));
            }
            ".pragma" => self.skip_to_semicolon(),
            _ if space_of(w).is_some() => {
                for v in self.vars(false)? {
                    out.push(Stmt::Var(v));
                }
            }
            _ if w.starts_with('.') => return self.err(format!("unsupported directive `{w}`")),
            _ => out.push(self.instruction()?),
        }
        Ok(())
    }

    fn registers(&mut self) -> Result<Stmt, ParseError> {
        let line = self.line();
        self.next();
        let mut ty = self.name()?;
        let mut width = 1;
        if matches!(ty.as_ref(), ".v2" | ".v4") {
            width = if ty.as_ref() == ".v2" { 2 } else { 4 };
            ty = self.name()?;
        }
        let Some(ty) = ty.strip_prefix('.') else { return self.unexpected("a register type") };
        let ty = self.intern(ty);
        let mut names = vec![];
        loop {
            let name = self.name()?;
            let count = if self.eat(b'<') {
                let n = self.int32()?;
                self.expect(b'>')?;
                Some(n)
            } else {
                None
            };
            names.push((name, count));
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b';')?;
        Ok(Stmt::Reg(ty, width, names, line))
    }

    fn instruction(&mut self) -> Result<Stmt, ParseError> {
        let guard = if self.eat(b'@') {
            let negated = self.eat(b'!');
            Some((negated, self.name()?))
        } else {
            None
        };
        let line = self.line();
        let mut op = self.name()?;
        // Modifiers may be separated from the opcode, on a line of their own.
        while let Some(Tok::Word(more)) = self.peek()
            && more.starts_with('.')
        {
            op = self.intern(&format!("{op}{more}"));
            self.next();
        }
        let mut args = vec![];
        if !self.is(b';') {
            loop {
                // In other positions, a parenthesis begins an expression.
                let arg = if op.starts_with("call") && self.eat(b'(') {
                    Arg::List(self.list(b')', 0)?)
                } else {
                    self.pair()?
                };
                args.push(arg);
                if !self.eat(b',') {
                    break;
                }
            }
        }
        if !self.is(b';') {
            return self.unexpected(&format!("`;` after `{op}`"));
        }
        self.expect(b';')?;
        Ok(Stmt::Inst(Box::new(Inst { line, guard, op, args })))
    }

    fn pair(&mut self) -> Result<Arg, ParseError> {
        let a = self.operand(0)?;
        if self.eat(b'|') {
            let b = self.operand(0)?;
            return Ok(Arg::Pair(Box::new(a), Box::new(b)));
        }
        Ok(a)
    }

    fn list(&mut self, close: u8, depth: u32) -> Result<Vec<Arg>, ParseError> {
        let mut v = vec![];
        while !self.eat(close) {
            v.push(self.operand(depth + 1)?);
            if !self.eat(b',') && !self.is(close) {
                return self.unexpected(&format!("`,` or `{}`", close as char));
            }
        }
        Ok(v)
    }

    fn operand(&mut self, depth: u32) -> Result<Arg, ParseError> {
        if depth > 8 {
            return self.err("an operand nested too deeply");
        }
        Ok(match self.peek() {
            Some(Tok::Punct(b'{')) => {
                self.next();
                Arg::Vec(self.list(b'}', depth)?)
            }
            Some(Tok::Punct(b'[')) => {
                self.next();
                self.memory(depth)?
            }
            Some(Tok::Punct(b'!')) if self.names_next() => {
                self.next();
                Arg::Not(self.name()?)
            }
            Some(Tok::Punct(b'-')) if self.names_next() => {
                self.next();
                Arg::Neg(self.name()?)
            }
            Some(Tok::Word("WARP_SZ") | Tok::Punct(b'(' | b'!' | b'-' | b'~')) => self.constant()?,
            Some(Tok::Int(_) | Tok::F32(_) | Tok::F64(_) | Tok::Decimal(_)) => self.constant()?,
            Some(Tok::Word("_")) => {
                self.next();
                Arg::Sink
            }
            Some(Tok::Word(_)) => {
                let name = self.name()?;
                match self.offset()? {
                    0 => Arg::Name(name),
                    off => Arg::Offset(name, off),
                }
            }
            _ => return self.unexpected("an operand"),
        })
    }

    /// Whether a register follows a sign.
    fn names_next(&self) -> bool {
        matches!(self.peek_at(1), Some(Tok::Word(w)) if w != "WARP_SZ")
    }

    fn offset(&mut self) -> Result<i64, ParseError> {
        let mut total = 0i64;
        loop {
            let sign = if self.eat(b'+') {
                1
            } else if self.eat(b'-') {
                -1
            } else {
                return Ok(total);
            };
            total = total.wrapping_add((self.constant_term()? as i64).wrapping_mul(sign));
        }
    }

    fn memory(&mut self, depth: u32) -> Result<Arg, ParseError> {
        let base = self.operand(depth + 1)?;
        let (base, off) = match base {
            Arg::Offset(n, off) => (Arg::Name(n), off),
            Arg::Int(_) => {
                let off = self.offset()?;
                (base, off)
            }
            b => (b, 0),
        };
        let rest = if self.eat(b',') {
            self.list(b']', depth)?
        } else {
            self.expect(b']')?;
            vec![]
        };
        Ok(Arg::Mem(Box::new(base), off, rest))
    }
}
