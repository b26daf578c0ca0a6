//! Function headers: parameters and performance-tuning directives.

use super::ParseError;
use super::ast::*;
use super::lexer::Tok;
use super::parser::Parser;

impl Parser<'_> {
    pub(super) fn func(&mut self) -> Result<Func, ParseError> {
        let line = self.line();
        let entry = self.next() == Some(Tok::Word(".entry"));
        if self.eat_word(".attribute") {
            self.skip_parens()?;
        }
        let rets = if self.is(b'(') { self.params()? } else { vec![] };
        let name = self.name()?;
        let params = if self.is(b'(') { self.params()? } else { vec![] };
        let mut bounds = Bounds::default();
        let body = loop {
            match self.peek() {
                Some(Tok::Punct(b';')) => {
                    self.at += 1;
                    break None;
                }
                Some(Tok::Punct(b'{')) => {
                    self.at += 1;
                    break Some(self.statements()?);
                }
                Some(Tok::Word(".maxntid")) => bounds.max_threads = Some(self.triple()?),
                Some(Tok::Word(".reqntid")) => bounds.required_threads = Some(self.triple()?),
                Some(Tok::Word(".reqnctapercluster")) => bounds.required_cluster = Some(self.triple()?),
                Some(Tok::Word(".minnctapersm")) => bounds.min_blocks = Some(self.triple()?[0]),
                Some(Tok::Word(".maxnreg")) => bounds.max_registers = Some(self.triple()?[0]),
                Some(Tok::Word(".maxclusterrank" | ".maxnctapersm")) => {
                    self.triple()?;
                }
                Some(Tok::Word(".explicitcluster" | ".noreturn" | ".blocksareclusters")) => self.at += 1,
                Some(Tok::Word(".abi_preserve" | ".abi_preserve_control")) => {
                    self.triple()?;
                }
                Some(Tok::Word(".pragma")) => self.skip_to_semicolon(),
                Some(Tok::Word(".attribute")) => {
                    self.at += 1;
                    self.skip_parens()?;
                }
                _ => return self.unexpected("a function body"),
            }
        };
        Ok(Func { name, entry, rets, params, body, bounds, line })
    }

    fn skip_parens(&mut self) -> Result<(), ParseError> {
        self.expect(b'(')?;
        while let Some(t) = self.next() {
            if t == Tok::Punct(b')') {
                return Ok(());
            }
        }
        self.unexpected("`)`")
    }

    fn triple(&mut self) -> Result<[u32; 3], ParseError> {
        self.at += 1;
        let mut v = [self.int32()?, 1, 1];
        for slot in &mut v[1..] {
            if self.eat(b',') {
                *slot = self.int32()?;
            }
        }
        Ok(v)
    }

    fn params(&mut self) -> Result<Vec<Var>, ParseError> {
        self.expect(b'(')?;
        let mut out = vec![];
        while !self.eat(b')') {
            let register = self.eat_word(".reg");
            let v = self.var(false)?;
            out.push(if register { Var { space: Space::Reg, ..v } } else { v });
            if !self.eat(b',') && !self.is(b')') {
                return self.unexpected("`,` or `)`");
            }
        }
        Ok(out)
    }
}
