//! The keys of `#[kernel(...)]`.

use proc_macro2::{Ident, Span};
use quote::ToTokens;
use syn::{
    Expr, Lit, LitInt, LitStr, Token, Type,
    ext::IdentExt as _,
    parenthesized,
    parse::{Parse, ParseStream},
    parse_quote,
};

/// The list of values of one generic parameter.
pub(super) struct Choices<V> {
    pub(super) parameter: Ident,
    pub(super) values: Vec<V>,
}

/// What the types listed for a parameter are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Element types, one by one.
    Dtype,
    /// Types without values, which select code.
    Marker,
    /// `float`: every element type that is a float.
    Float,
    /// `half`: those of 16 bits.
    Half,
    /// `float8`: every float of 8 bits.
    Float8,
}

/// The types of one parameter.
pub(super) struct Types {
    pub(super) parameter: Ident,
    pub(super) role: Role,
    pub(super) types: Vec<Type>,
}

impl Types {
    /// Replaces a set by its types.
    fn new(choices: Choices<Type>, role: Role) -> Self {
        let Choices { parameter, values } = choices;
        let set = match &values[..] {
            [only] if role == Role::Dtype => only.to_token_stream().to_string(),
            _ => String::new(),
        };
        let half = [parse_quote!(::cuda_std::f16), parse_quote!(::cuda_std::bf16)];
        match set.as_str() {
            "float" => Self { parameter, role: Role::Float, types: [&[parse_quote!(f32)], &half[..]].concat() },
            "half" => Self { parameter, role: Role::Half, types: half.to_vec() },
            "float8" => {
                let types = vec![parse_quote!(::cuda_std::f8e4m3), parse_quote!(::cuda_std::f8e5m2)];
                Self { parameter, role: Role::Float8, types }
            }
            _ => Self { parameter, role, types: values },
        }
    }

    /// The number by which the host knows type `index` of the list.
    pub(super) fn number(&self, index: usize) -> usize {
        // As `Element::INDEX` counts.
        if self.role == Role::Half { index + 1 } else { index }
    }
}

pub(super) enum Shared {
    /// Bytes are the size of this type.
    Layout(Box<Type>),
    /// Bytes are this expression.
    Bytes(Box<Expr>),
}

pub(super) struct Attributes {
    pub(super) types: Vec<Types>,
    pub(super) values: Vec<Choices<Lit>>,
    /// The combinations that are wanted; all without it.
    pub(super) filter: Option<Expr>,
    pub(super) block: Expr,
    pub(super) min_blocks: Option<Expr>,
    pub(super) cluster: Option<Expr>,
    pub(super) shared: Option<Shared>,
    pub(super) arch: Option<LitStr>,
    /// What the symbols start with, instead of the function's name.
    pub(super) symbol: Option<Ident>,
    pub(super) no_spills: bool,
    pub(super) programmatic: bool,
    pub(super) cooperative: bool,
    /// How far the driver's compiler is to optimise.
    pub(super) opt_level: Option<u32>,
}

const KEYS: &str = "`dtypes`, `types`, `values`, `where`, `block`, `min_blocks`, `cluster`, `shared`, `arch`, `symbol`, `no_spills`, `programmatic`, `cooperative` and `opt_level`";

/// The device targets a kernel can be restricted to.
const ARCHITECTURES: [&str; 5] = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a"];

impl Parse for Attributes {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut types = Vec::new();
        let mut values = Vec::new();
        let mut filter = None;
        let mut block = None;
        let mut min_blocks = None;
        let mut cluster = None;
        let mut shared = None;
        let mut arch = None;
        let mut symbol = None;
        let mut no_spills = false;
        let mut programmatic = false;
        let mut cooperative = false;
        let mut opt_level = None;
        let mut seen: Vec<Ident> = Vec::new();

        while !input.is_empty() {
            let key = input.call(Ident::parse_any)?;
            if seen.contains(&key) {
                return Err(syn::Error::new(key.span(), format!("`{key}` is given twice")));
            }
            match key.to_string().as_str() {
                "dtypes" => types.extend(choices(input, Type::parse)?.into_iter().map(|c| Types::new(c, Role::Dtype))),
                "types" => types.extend(choices(input, Type::parse)?.into_iter().map(|c| Types::new(c, Role::Marker))),
                "where" => {
                    let condition;
                    parenthesized!(condition in input);
                    filter = Some(condition.parse()?);
                }
                "values" => values = choices(input, value)?,
                "block" => block = Some(extent(input)?),
                "min_blocks" => min_blocks = Some(assigned(input, Expr::parse)?),
                "cluster" => cluster = Some(extent(input)?),
                "shared" => shared = Some(assigned(input, shared_bytes)?),
                "arch" => arch = Some(assigned(input, architecture)?),
                "symbol" => symbol = Some(assigned(input, Ident::parse)?),
                "no_spills" => no_spills = true,
                "programmatic" => programmatic = true,
                "cooperative" => cooperative = true,
                "opt_level" => opt_level = Some(assigned(input, level)?),
                _ => {
                    return Err(syn::Error::new(key.span(), format!("unknown key `{key}`: a kernel takes {KEYS}")));
                }
            }
            if programmatic && cooperative {
                let message = "a launch is `programmatic` or `cooperative`: one that begins early does not find room for all blocks at once";
                return Err(syn::Error::new(key.span(), message));
            }
            seen.push(key);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }

        let block = block.ok_or_else(|| {
            syn::Error::new(Span::call_site(), "a kernel declares its threads a block: `#[kernel(block = 256)]`")
        })?;
        Ok(Self {
            types,
            values,
            filter,
            block,
            min_blocks,
            cluster,
            shared,
            arch,
            symbol,
            no_spills,
            programmatic,
            cooperative,
            opt_level,
        })
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

fn level(input: ParseStream<'_>) -> syn::Result<u32> {
    let literal: LitInt = input.parse()?;
    match literal.base10_parse() {
        Ok(level @ 0..=3) => Ok(level),
        _ => Err(syn::Error::new(literal.span(), format!("an `opt_level` is 0, 1, 2 or 3, not {literal}"))),
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
