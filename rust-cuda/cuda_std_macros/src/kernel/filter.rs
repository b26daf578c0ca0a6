//! `where(…)`: which combinations of the listed types and values are wanted.

use quote::ToTokens;
use syn::{BinOp, Expr, ExprCall, Lit, UnOp, spanned::Spanned};

use super::instances::{Argument, Instance};

/// What a part of the condition evaluates to.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Bool(bool),
    Int(i128),
    /// A type, by its last name.
    Type(String),
}

/// The instances for which the condition holds, if there is one.
pub(super) fn wanted(instances: Vec<Instance>, condition: Option<&Expr>) -> syn::Result<Vec<Instance>> {
    let Some(condition) = condition else { return Ok(instances) };
    let mut wanted = Vec::new();
    for instance in instances {
        if admits(condition, &instance)? {
            wanted.push(instance);
        }
    }
    if wanted.is_empty() {
        return Err(syn::Error::new(condition.span(), "no combination of the listed types and values passes"));
    }
    Ok(wanted)
}

fn admits(condition: &Expr, instance: &Instance) -> syn::Result<bool> {
    match evaluate(condition, instance)? {
        Value::Bool(yes) => Ok(yes),
        _ => Err(syn::Error::new(condition.span(), "a condition is true or false")),
    }
}

fn evaluate(expression: &Expr, instance: &Instance) -> syn::Result<Value> {
    let unknown = || {
        syn::Error::new(
            expression.span(),
            "a condition is made of the kernel's parameters, listed types, `bytes(T)`, numbers and operators",
        )
    };
    match expression {
        Expr::Paren(inner) => evaluate(&inner.expr, instance),
        Expr::Group(inner) => evaluate(&inner.expr, instance),
        Expr::Lit(literal) => value(&literal.lit).ok_or_else(unknown),
        Expr::Path(path) => {
            let name = &path.path.segments.last().ok_or_else(unknown)?.ident;
            let argument = instance.arguments.iter().find(|(parameter, _)| parameter == name);
            match argument {
                Some((_, Argument::Value(literal))) => value(literal).ok_or_else(unknown),
                Some((_, Argument::Type { ty, .. })) => Ok(Value::Type(last_name(&ty.to_token_stream().to_string()))),
                // Not a parameter: a type to compare with.
                None => Ok(Value::Type(name.to_string())),
            }
        }
        Expr::Call(call) => bytes(call, instance)?.map(Value::Int).ok_or_else(unknown),
        Expr::Unary(unary) => match (&unary.op, evaluate(&unary.expr, instance)?) {
            (UnOp::Not(_), Value::Bool(yes)) => Ok(Value::Bool(!yes)),
            (UnOp::Neg(_), Value::Int(n)) => Ok(Value::Int(-n)),
            _ => Err(unknown()),
        },
        Expr::Binary(binary) => {
            let (left, right) = (evaluate(&binary.left, instance)?, evaluate(&binary.right, instance)?);
            apply(&binary.op, left, right).ok_or_else(unknown)
        }
        _ => Err(unknown()),
    }
}

fn apply(operator: &BinOp, left: Value, right: Value) -> Option<Value> {
    match (operator, &left, &right) {
        (BinOp::Eq(_), ..) => return Some(Value::Bool(left == right)),
        (BinOp::Ne(_), ..) => return Some(Value::Bool(left != right)),
        (BinOp::And(_), Value::Bool(a), Value::Bool(b)) => return Some(Value::Bool(*a && *b)),
        (BinOp::Or(_), Value::Bool(a), Value::Bool(b)) => return Some(Value::Bool(*a || *b)),
        _ => {}
    }
    let (Value::Int(a), Value::Int(b)) = (left, right) else { return None };
    Some(match operator {
        BinOp::Lt(_) => Value::Bool(a < b),
        BinOp::Le(_) => Value::Bool(a <= b),
        BinOp::Gt(_) => Value::Bool(a > b),
        BinOp::Ge(_) => Value::Bool(a >= b),
        BinOp::Add(_) => Value::Int(a.checked_add(b)?),
        BinOp::Sub(_) => Value::Int(a.checked_sub(b)?),
        BinOp::Mul(_) => Value::Int(a.checked_mul(b)?),
        BinOp::Div(_) => Value::Int(a.checked_div(b)?),
        BinOp::Rem(_) => Value::Int(a.checked_rem(b)?),
        _ => return None,
    })
}

/// `bytes(T)`: the size of an element type.
fn bytes(call: &ExprCall, instance: &Instance) -> syn::Result<Option<i128>> {
    let is_bytes = matches!(&*call.func, Expr::Path(path) if path.path.is_ident("bytes"));
    let (true, Some(argument), 1) = (is_bytes, call.args.first(), call.args.len()) else { return Ok(None) };
    let Value::Type(name) = evaluate(argument, instance)? else { return Ok(None) };
    Ok(match name.as_str() {
        "i8" | "u8" => Some(1),
        "f16" | "bf16" | "i16" | "u16" => Some(2),
        "f32" | "i32" | "u32" => Some(4),
        "f64" | "i64" | "u64" => Some(8),
        _ => None,
    })
}

fn value(literal: &Lit) -> Option<Value> {
    match literal {
        Lit::Bool(value) => Some(Value::Bool(value.value)),
        Lit::Int(value) => value.base10_parse().ok().map(Value::Int),
        _ => None,
    }
}

/// The `bf16` of `half :: bf16`.
fn last_name(ty: &str) -> String {
    ty.rsplit("::").next().unwrap_or(ty).trim().to_owned()
}
