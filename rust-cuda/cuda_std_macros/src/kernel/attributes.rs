//! The keys of `#[kernel(...)]`.

use proc_macro2::{Ident, Span};
use quote::ToTokens;
use syn::{
    Expr, Lit, LitStr, Token, Type, parenthesized,
    parse::{Parse, ParseStream},
};

/// The list of values of one generic parameter.
pub(super) struct Choices<V> {
    pub(super) parameter: Ident,
    pub(super) values: Vec<V>,
}

pub(super) enum Shared {
    /// Bytes are the size of this type.
    Layout(Box<Type>),
    /// Bytes are this expression.
    Bytes(Box<Expr>),
}

pub(super) struct Attributes {
    pub(super) dtypes: Vec<Choices<Type>>,
    pub(super) values: Vec<Choices<Lit>>,
    pub(super) block: Expr,
    pub(super) min_blocks: Option<Expr>,
    pub(super) cluster: Option<Expr>,
    pub(super) shared: Option<Shared>,
    pub(super) arch: Option<LitStr>,
    pub(super) no_spills: bool,
}

const KEYS: &str = "`dtypes`, `values`, `block`, `min_blocks`, `cluster`, `shared`, `arch` and `no_spills`";

/// The device targets a kernel can be restricted to (the values of `--cfg cuda_arch`).
const ARCHITECTURES: [&str; 5] = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a"];

impl Parse for Attributes {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut dtypes = Vec::new();
        let mut values = Vec::new();
        let mut block = None;
        let mut min_blocks = None;
        let mut cluster = None;
        let mut shared = None;
        let mut arch = None;
        let mut no_spills = false;
        let mut seen: Vec<Ident> = Vec::new();

        while !input.is_empty() {
            let key: Ident = input.parse()?;
            if seen.contains(&key) {
                return Err(syn::Error::new(key.span(), format!("`{key}` is given twice")));
            }
            match key.to_string().as_str() {
                "dtypes" => dtypes = choices(input, Type::parse)?,
                "values" => values = choices(input, value)?,
                "block" => block = Some(extent(input)?),
                "min_blocks" => min_blocks = Some(assigned(input, Expr::parse)?),
                "cluster" => cluster = Some(extent(input)?),
                "shared" => shared = Some(assigned(input, shared_bytes)?),
                "arch" => arch = Some(assigned(input, architecture)?),
                "no_spills" => no_spills = true,
                _ => {
                    return Err(syn::Error::new(key.span(), format!("unknown key `{key}`: a kernel takes {KEYS}")));
                }
            }
            seen.push(key);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }

        let block = block.ok_or_else(|| {
            syn::Error::new(Span::call_site(), "a kernel declares its threads a block: `#[kernel(block = 256)]`")
        })?;
        Ok(Self { dtypes, values, block, min_blocks, cluster, shared, arch, no_spills })
    }
}

fn assigned<V>(input: ParseStream<'_>, parse: impl FnOnce(ParseStream<'_>) -> syn::Result<V>) -> syn::Result<V> {
    input.parse::<Token![=]>()?;
    parse(input)
}

/// `(T: f32, bf16, U: f32)`: each `name:` starts the list of the next parameter.
fn choices<V>(
    input: ParseStream<'_>,
    parse: impl Fn(ParseStream<'_>) -> syn::Result<V>,
) -> syn::Result<Vec<Choices<V>>> {
    let content;
    let parentheses = parenthesized!(content in input);
    let mut choices: Vec<Choices<V>> = Vec::new();
    while !content.is_empty() {
        if content.peek(syn::Ident) && content.peek2(Token![:]) && !content.peek2(Token![::]) {
            let parameter = content.parse()?;
            content.parse::<Token![:]>()?;
            choices.push(Choices { parameter, values: Vec::new() });
        }
        let Some(current) = choices.last_mut() else {
            return Err(content.error("expected `PARAMETER: first, second, …`"));
        };
        current.values.push(parse(&content)?);
        if !content.is_empty() {
            content.parse::<Token![,]>()?;
        }
    }
    if choices.is_empty() {
        return Err(syn::Error::new(parentheses.span.join(), "expected `PARAMETER: first, second, …`"));
    }
    Ok(choices)
}

fn value(input: ParseStream<'_>) -> syn::Result<Lit> {
    let literal: Lit = input.parse()?;
    match literal {
        Lit::Int(_) | Lit::Bool(_) => Ok(literal),
        other => Err(syn::Error::new(other.span(), "a const parameter's values are integers or booleans")),
    }
}

fn extent(input: ParseStream<'_>) -> syn::Result<Expr> {
    let expression = assigned(input, Expr::parse)?;
    if let Expr::Tuple(tuple) = &expression
        && !(1..=3).contains(&tuple.elems.len())
    {
        return Err(syn::Error::new_spanned(
            &expression,
            format!("expected one to three dimensions, found {}", tuple.elems.len()),
        ));
    }
    if expression.to_token_stream().to_string() == "0" {
        return Err(syn::Error::new_spanned(&expression, "an extent is at least 1"));
    }
    Ok(expression)
}

fn shared_bytes(input: ParseStream<'_>) -> syn::Result<Shared> {
    if input.peek(syn::token::Brace) || input.peek(Lit) {
        Ok(Shared::Bytes(Box::new(input.parse()?)))
    } else {
        Ok(Shared::Layout(Box::new(input.parse()?)))
    }
}

fn architecture(input: ParseStream<'_>) -> syn::Result<LitStr> {
    let arch: LitStr = input.parse()?;
    if ARCHITECTURES.contains(&arch.value().as_str()) {
        Ok(arch)
    } else {
        Err(syn::Error::new(
            arch.span(),
            format!("unknown architecture \"{}\": expected one of {ARCHITECTURES:?}", arch.value()),
        ))
    }
}
