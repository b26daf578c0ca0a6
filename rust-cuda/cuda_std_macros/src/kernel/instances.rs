//! One entry point for each combination of listed types and values.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::{Expr, GenericArgument, ItemFn, Lit, PathArguments, Type, spanned::Spanned};

use super::attributes::Attributes;

/// One choice: a listed type, with the number by which the host knows it, or a value.
#[derive(Clone)]
pub(super) enum Argument {
    Type { number: usize, ty: Box<Type> },
    Value(Lit),
}

pub(super) struct Instance {
    pub(super) symbol: String,
    /// In the order of the function's generic parameters.
    pub(super) arguments: Vec<(Ident, Argument)>,
}

pub(super) fn enumerate(function: &ItemFn, attributes: &Attributes) -> syn::Result<Vec<Instance>> {
    let symbol = attributes.symbol.as_ref().unwrap_or(&function.sig.ident).to_string();
    let mut instances = vec![Instance { symbol, arguments: Vec::new() }];
    // Types are named before values, whatever the order of declaration: `rms_norm_bf16_v4`.
    for parameter in function.sig.generics.type_params() {
        let choices = attributes.types.iter().filter(|c| c.parameter == parameter.ident);
        let options: Vec<_> = choices
            .flat_map(|choice| choice.types.iter().enumerate().map(|(index, ty)| (choice.number(index), ty)))
            .map(|(number, ty)| Ok((type_suffix(ty)?, Argument::Type { number, ty: Box::new(ty.clone()) })))
            .collect::<syn::Result<_>>()?;
        instances = product(&instances, &parameter.ident, &options);
    }
    for parameter in function.sig.generics.const_params() {
        let choices = attributes.values.iter().filter(|c| c.parameter == parameter.ident);
        let prefix = parameter.ident.to_string().to_lowercase();
        let options: Vec<_> = choices
            .flat_map(|choice| &choice.values)
            .map(|value| (format!("{prefix}{}", value_suffix(value)), Argument::Value(value.clone())))
            .collect();
        instances = product(&instances, &parameter.ident, &options);
    }
    let order = |name: &Ident| {
        let parameters = &function.sig.generics.params;
        parameters.iter().position(|parameter| match parameter {
            syn::GenericParam::Type(ty) => ty.ident == *name,
            syn::GenericParam::Const(value) => value.ident == *name,
            syn::GenericParam::Lifetime(_) => false,
        })
    };
    for instance in &mut instances {
        instance.arguments.sort_by_key(|(name, _)| order(name));
    }
    let mut symbols: Vec<&str> = instances.iter().map(|instance| &*instance.symbol).collect();
    symbols.sort_unstable();
    if let Some(pair) = symbols.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(syn::Error::new(
            function.sig.ident.span(),
            format!("two instances would be called `{}`: a type or value is listed twice", pair[0]),
        ));
    }
    Ok(instances)
}

fn product(instances: &[Instance], name: &Ident, options: &[(String, Argument)]) -> Vec<Instance> {
    let extend = |instance: &Instance, (suffix, argument): &(String, Argument)| {
        let mut arguments = instance.arguments.clone();
        arguments.push((name.clone(), argument.clone()));
        Instance { symbol: format!("{}_{suffix}", instance.symbol), arguments }
    };
    instances.iter().flat_map(|instance| options.iter().map(move |option| extend(instance, option))).collect()
}

impl Argument {
    pub(super) fn tokens(&self) -> TokenStream {
        match self {
            Self::Type { ty, .. } => ty.to_token_stream(),
            Self::Value(value) => quote!(#value),
        }
    }
}

/// `bf16`, `gelu_tanh` for a marker, `tile128x64x32` for one with const arguments.
fn type_suffix(ty: &Type) -> syn::Result<String> {
    let plain = || syn::Error::new(ty.span(), "a type is a plain name, `f32` or `half::bf16`, or `Name<1, 2>`");
    let Type::Path(path) = ty else { return Err(plain()) };
    let segment = path.path.segments.last().ok_or_else(plain)?;
    let name = snake_case(&segment.ident.to_string());
    match &segment.arguments {
        PathArguments::None => Ok(name),
        PathArguments::AngleBracketed(arguments) => {
            let values = arguments.args.iter().map(|argument| match argument {
                GenericArgument::Const(Expr::Lit(value)) => Ok(value_suffix(&value.lit)),
                _ => Err(plain()),
            });
            Ok(name + &values.collect::<syn::Result<Vec<_>>>()?.join("x"))
        }
        PathArguments::Parenthesized(_) => Err(plain()),
    }
}

fn snake_case(name: &str) -> String {
    let mut out = String::new();
    let mut after_small = false;
    for c in name.chars() {
        if c.is_uppercase() && after_small {
            out.push('_');
        }
        after_small = !c.is_uppercase();
        out.extend(c.to_lowercase());
    }
    out
}

fn value_suffix(value: &Lit) -> String {
    match value {
        Lit::Bool(value) => u8::from(value.value).to_string(),
        Lit::Int(value) => value.base10_digits().to_owned(),
        other => other.to_token_stream().to_string(),
    }
}
