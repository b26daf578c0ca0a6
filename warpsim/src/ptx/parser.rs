//! Module level: directives, variables, function headers.

use std::collections::HashSet;
use std::sync::Arc;

use super::ParseError;
use super::ast::*;
use super::lexer::{Tok, tokens};
use super::twice;

/// Parses a whole module.
pub fn parse(src: &str) -> Result<Ast, ParseError> {
    let toks = tokens(src)?;
    let mut p = Parser { toks, at: 0, names: HashSet::new(), declared: HashSet::new(), depth: 0 };
    p.module()
}

pub(super) struct Parser<'a> {
    toks: Vec<(Tok<'a>, u32)>,
    pub(super) at: usize,
    names: HashSet<Arc<str>>,
    /// The names of functions and of the module's variables.
    declared: HashSet<Name>,
    pub(super) depth: u32,
}

#[derive(Default)]
struct Linkage {
    external: bool,
}

impl<'a> Parser<'a> {
    pub(super) fn peek(&self) -> Option<Tok<'a>> {
        self.toks.get(self.at).map(|t| t.0)
    }
    pub(super) fn peek_at(&self, n: usize) -> Option<Tok<'a>> {
        self.toks.get(self.at + n).map(|t| t.0)
    }
    pub(super) fn line(&self) -> u32 {
        self.toks.get(self.at).or(self.toks.last()).map_or(1, |t| t.1)
    }
    pub(super) fn next(&mut self) -> Option<Tok<'a>> {
        let t = self.peek();
        self.at += 1;
        t
    }
    pub(super) fn err<T>(&self, msg: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError::new(self.line(), msg.into()))
    }
    pub(super) fn unexpected<T>(&self, wanted: &str) -> Result<T, ParseError> {
        let got = match self.peek() {
            Some(Tok::Punct(c)) => format!("`{}`", c as char),
            Some(Tok::Word(w)) => format!("`{w}`"),
            Some(t) => format!("{t:?}"),
            None => "the end of the text".into(),
        };
        self.err(format!("expected {wanted}, found {got}"))
    }
    pub(super) fn is(&self, c: u8) -> bool {
        self.peek() == Some(Tok::Punct(c))
    }
    pub(super) fn eat(&mut self, c: u8) -> bool {
        let hit = self.is(c);
        self.at += usize::from(hit);
        hit
    }
    pub(super) fn expect(&mut self, c: u8) -> Result<(), ParseError> {
        if self.eat(c) { Ok(()) } else { self.unexpected(&format!("`{}`", c as char)) }
    }
    pub(super) fn eat_word(&mut self, w: &str) -> bool {
        let hit = self.peek() == Some(Tok::Word(w));
        self.at += usize::from(hit);
        hit
    }
    pub(super) fn intern(&mut self, s: &str) -> Name {
        if let Some(n) = self.names.get(s) {
            return n.clone();
        }
        let n: Name = Arc::from(s);
        self.names.insert(n.clone());
        n
    }
    pub(super) fn name(&mut self) -> Result<Name, ParseError> {
        match self.peek() {
            Some(Tok::Word(w)) => {
                self.at += 1;
                Ok(self.intern(w))
            }
            _ => self.unexpected("a name"),
        }
    }
    pub(super) fn int(&mut self) -> Result<u64, ParseError> {
        match self.peek() {
            Some(Tok::Int(v)) => {
                self.at += 1;
                Ok(v)
            }
            _ => self.unexpected("an integer"),
        }
    }
    pub(super) fn int32(&mut self) -> Result<u32, ParseError> {
        let v = self.int()?;
        u32::try_from(v).or_else(|_| self.err(format!("{v} is too large")))
    }

    fn module(&mut self) -> Result<Ast, ParseError> {
        let mut ast = Ast::default();
        while let Some(tok) = self.peek() {
            let Tok::Word(w) = tok else {
                if self.eat(b';') {
                    continue;
                }
                return self.unexpected("a directive");
            };
            match w {
                ".version" => {
                    self.at += 1;
                    ast.version = match self.next() {
                        Some(Tok::Decimal(v)) => format!("{v:?}"),
                        Some(Tok::Int(v)) => v.to_string(),
                        _ => return self.unexpected("a version"),
                    };
                }
                ".target" => {
                    self.at += 1;
                    ast.target = self.name()?.to_string();
                    while self.eat(b',') {
                        ast.debug |= self.name()?.as_ref() == "debug";
                    }
                }
                ".address_size" => {
                    self.at += 1;
                    if self.int()? != 64 {
                        return self.err("only .address_size 64 is supported");
                    }
                }
                ".file" => {
                    self.at += 1;
                    let n = self.int32()?;
                    let Some(Tok::Str(s)) = self.next() else { return self.unexpected("a file name") };
                    ast.files.push((n, s.to_string()));
                    while self.eat(b',') {
                        self.int()?;
                    }
                }
                ".section" => self.section()?,
                ".pragma" => self.skip_to_semicolon(),
                ".alias" => {
                    self.at += 1;
                    let alias = self.name()?;
                    self.expect(b',')?;
                    ast.aliases.push((alias, self.name()?));
                    self.expect(b';')?;
                }
                ".loc" => {
                    self.loc()?;
                }
                _ => self.top_level(&mut ast)?,
            }
        }
        Ok(ast)
    }

    fn section(&mut self) -> Result<(), ParseError> {
        while let Some(t) = self.next() {
            if t == Tok::Punct(b'{') {
                break;
            }
        }
        while let Some(t) = self.next() {
            if t == Tok::Punct(b'}') {
                return Ok(());
            }
        }
        self.err("a section without an end")
    }

    pub(super) fn skip_to_semicolon(&mut self) {
        while let Some(t) = self.next() {
            if t == Tok::Punct(b';') {
                return;
            }
        }
    }

    fn source(&mut self) -> Result<Source, ParseError> {
        Ok((self.int32()?, self.int32()?, self.int32()?))
    }

    pub(super) fn loc(&mut self) -> Result<Loc, ParseError> {
        self.at += 1;
        let mut loc = Loc { at: self.source()?, inlined_at: None };
        while self.eat(b',') {
            match self.name()?.as_ref() {
                "function_name" => {
                    self.name()?;
                    if self.eat(b'+') {
                        self.int()?;
                    }
                }
                "inlined_at" => loc.inlined_at = Some(self.source()?),
                _ => return self.unexpected("`function_name` or `inlined_at`"),
            }
        }
        Ok(loc)
    }

    fn top_level(&mut self, ast: &mut Ast) -> Result<(), ParseError> {
        let mut link = Linkage::default();
        loop {
            match self.peek() {
                Some(Tok::Word(".visible" | ".weak" | ".common")) => self.at += 1,
                Some(Tok::Word(".extern")) => {
                    link.external = true;
                    self.at += 1;
                }
                Some(Tok::Word(".entry" | ".func")) => {
                    let f = self.func()?;
                    if !self.declared.insert(f.name.clone()) {
                        twice::func(ast, &f)?;
                    }
                    ast.funcs.push(f);
                    return Ok(());
                }
                Some(Tok::Word(w)) if space_of(w).is_some() => {
                    for v in self.vars(link.external)? {
                        if !self.declared.insert(v.name.clone()) {
                            twice::var(ast, &v)?;
                        }
                        ast.vars.push(v);
                    }
                    return Ok(());
                }
                _ => return self.unexpected("a module-level directive"),
            }
        }
    }

    /// `.space [.align n] [.vN] .type name[dims] [= init], …;`
    pub(super) fn vars(&mut self, external: bool) -> Result<Vec<Var>, ParseError> {
        let mut out = vec![];
        let first = self.var(external)?;
        let (space, align, ty) = (first.space, first.align, first.ty.clone());
        out.push(first);
        while self.eat(b',') {
            let v = self.declarator(space, align, ty.clone(), 1, external)?;
            out.push(v);
        }
        if let Some(v) = out.iter().find(|v| v.count.is_none() && !external) {
            return self.err(format!("`{}` has no size, and is not .extern", v.name));
        }
        self.expect(b';')?;
        Ok(out)
    }

    pub(super) fn var(&mut self, external: bool) -> Result<Var, ParseError> {
        let mut space = Space::Generic;
        let (mut align, mut vector) = (0, 1);
        loop {
            let Some(Tok::Word(w)) = self.peek() else { return self.unexpected("a variable's type") };
            if let Some(s) = space_of(w) {
                // In `.param .u64 .ptr .global`, the space is that of the pointee, not of the variable.
                if space == Space::Generic {
                    space = s;
                }
                self.at += 1;
                continue;
            }
            match w {
                ".align" => {
                    self.at += 1;
                    align = self.int32()?;
                    if !align.is_power_of_two() {
                        return self.err("an alignment that is not a power of two");
                    }
                }
                ".v2" | ".v4" | ".v8" => {
                    vector = w[2..].parse().unwrap_or(1);
                    self.at += 1;
                }
                ".ptr" => self.at += 1,
                ".attribute" => {
                    while let Some(t) = self.next() {
                        if t == Tok::Punct(b')') {
                            break;
                        }
                    }
                }
                _ if w.starts_with('.') => break,
                _ => return self.unexpected("a type"),
            }
        }
        let ty = self.name()?;
        let ty = self.intern(&ty[1..]);
        // `.ptr .space .align n` follows the type of a parameter.
        let mut pointee = false;
        while let Some(Tok::Word(w)) = self.peek() {
            if w == ".ptr" || (pointee && space_of(w).is_some()) {
                pointee = true;
                self.at += 1;
            } else if pointee && w == ".align" {
                self.at += 1;
                self.int()?;
            } else {
                break;
            }
        }
        self.declarator(space, align, ty, vector, external)
    }

    fn declarator(
        &mut self,
        space: Space,
        align: u32,
        ty: Name,
        vector: u64,
        external: bool,
    ) -> Result<Var, ParseError> {
        let line = self.line();
        let name = self.name()?;
        let bytes = type_bytes(&ty);
        if matches!(&*ty, "texref" | "samplerref" | "surfref") {
            return self.err(format!("`{name}` is a `.{ty}`: textures and surfaces are not modelled"));
        }
        if bytes == 0 {
            return self.err(format!("unsupported variable type `.{ty}`"));
        }
        let (mut count, mut dims) = (Some(vector), vec![]);
        while self.eat(b'[') {
            if self.eat(b']') {
                count = None;
                dims.push(0);
                continue;
            }
            let n = self.constant_int()?;
            self.expect(b']')?;
            dims.push(n);
            count = count.and_then(|c| c.checked_mul(n));
            if count.is_none_or(|c| c.saturating_mul(u64::from(bytes)) > 1 << 32) {
                return self.err(format!("`{name}` is too large"));
            }
        }
        let mut init = vec![];
        if self.eat(b'=') {
            self.initialiser(&mut init, &dims, 0)?;
        }
        if count.is_none() && !init.is_empty() {
            count = Some(init.len() as u64);
        }
        if count.is_some_and(|c| c < init.len() as u64) {
            return self.err(format!("`{name}` has more initial values than elements"));
        }
        let align = if align == 0 { bytes * vector as u32 } else { align };
        Ok(Var { space, align, ty, name, count, init, external, line })
    }
}

pub(super) fn space_of(w: &str) -> Option<Space> {
    Some(match w {
        ".global" => Space::Global,
        ".shared" => Space::Shared,
        ".local" => Space::Local,
        ".const" => Space::Const,
        ".param" => Space::Param,
        _ => return None,
    })
}
