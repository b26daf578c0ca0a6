//! Initial values of variables.

use super::ParseError;
use super::ast::*;
use super::lexer::Tok;
use super::parser::Parser;

/// Maximum number of elements that an incomplete nested list may omit.
const MAX_SKIPPED: u64 = 1 << 20;

impl Parser<'_> {
    /// `{1, 2, {3, 4}}`. If a nested list is incomplete, the rest of its row is zero.
    pub(super) fn initialiser(&mut self, out: &mut Vec<Init>, dims: &[u64], depth: u32) -> Result<(), ParseError> {
        if depth > 16 {
            return self.err("an initialiser nested too deeply");
        }
        if !self.eat(b'{') {
            let item = self.initial()?;
            out.push(item);
            return Ok(());
        }
        let inner = dims.get(1..).unwrap_or_default();
        let row = inner.iter().try_fold(1u64, |n, d| n.checked_mul(*d)).unwrap_or(u64::MAX);
        while !self.eat(b'}') {
            let (start, list) = (out.len() as u64, self.is(b'{'));
            self.initialiser(out, inner, depth + 1)?;
            if !self.eat(b',') && !self.is(b'}') {
                return self.unexpected("`,` or `}`");
            }
            let rest = row.saturating_sub(out.len() as u64 - start);
            if list && !inner.is_empty() && rest > 0 && !self.is(b'}') {
                if rest > MAX_SKIPPED {
                    return self.err("an initialiser that leaves out too much");
                }
                out.resize(out.len() + rest as usize, Init::Int(0));
            }
        }
        Ok(())
    }

    fn initial(&mut self) -> Result<Init, ParseError> {
        if let (Some(Tok::Int(mask)), Some(Tok::Punct(b'('))) = (self.peek(), self.peek_at(1)) {
            self.at += 2;
            let (name, off) = self.symbol()?;
            self.expect(b')')?;
            return Ok(Init::Masked(name, off, mask));
        }
        if let Some(Tok::Word(w)) = self.peek()
            && w != "WARP_SZ"
        {
            let (name, off) = self.symbol()?;
            return Ok(Init::Addr(name, off));
        }
        Ok(match self.constant()? {
            Arg::Int(v) => Init::Int(v),
            Arg::F32(v) => Init::F32(v),
            Arg::F64(v) => Init::F64(v),
            Arg::Decimal(v) => Init::Float(v),
            _ => return self.unexpected("an initial value"),
        })
    }

    /// `name`, `generic(name)`, `name + 4`
    fn symbol(&mut self) -> Result<(Name, i64), ParseError> {
        let mut name = self.name()?;
        let mut off = 0;
        if name.as_ref() == "generic" && self.eat(b'(') {
            name = self.name()?;
            off = self.sum()?;
            self.expect(b')')?;
        }
        Ok((name, off.wrapping_add(self.sum()?)))
    }

    /// `+ 4`, `- 4` or nothing
    fn sum(&mut self) -> Result<i64, ParseError> {
        let mut off = 0i64;
        if self.eat(b'+') {
            off = self.constant_term()? as i64;
        } else if self.eat(b'-') {
            off = (self.constant_term()? as i64).wrapping_neg();
        }
        Ok(off)
    }
}
