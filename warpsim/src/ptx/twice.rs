//! A module's names that are declared again.

use super::ParseError;
use super::ast::*;

fn refuse(line: u32, message: String) -> Result<(), ParseError> {
    Err(ParseError::new(line, message))
}

/// A function may be declared several times alike, and then defined.
pub(super) fn func(ast: &Ast, f: &Func) -> Result<(), ParseError> {
    if ast.vars.iter().any(|v| v.name == f.name) {
        return refuse(f.line, format!("a variable is called `{}` too", f.name));
    }
    let alike = |a: &[Var], b: &[Var]| {
        let what = |v: &Var| (v.space, v.ty.clone(), v.count, v.align);
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| what(a) == what(b))
    };
    for g in ast.funcs.iter().filter(|g| g.name == f.name) {
        if g.body.is_some() {
            return refuse(f.line, format!("a second function `{}`", f.name));
        }
        if g.entry != f.entry || !alike(&g.rets, &f.rets) || !alike(&g.params, &f.params) {
            return refuse(
                f.line,
                format!("`{}` was declared with other parameters or results in line {}", f.name, g.line),
            );
        }
    }
    Ok(())
}

/// A variable may also be declared `.extern`, with the same type and no other size.
pub(super) fn var(ast: &Ast, v: &Var) -> Result<(), ParseError> {
    if ast.funcs.iter().any(|f| f.name == v.name) {
        return refuse(v.line, format!("a function is called `{}` too", v.name));
    }
    for w in ast.vars.iter().filter(|w| w.name == v.name) {
        if !v.external && !w.external {
            return refuse(v.line, format!("a second variable `{}`", v.name));
        }
        let sizes = v.count.is_none() || w.count.is_none() || v.count == w.count;
        if (v.space, &v.ty) != (w.space, &w.ty) || !sizes {
            return refuse(v.line, format!("`{}` was declared with another type or size in line {}", v.name, w.line));
        }
    }
    Ok(())
}
