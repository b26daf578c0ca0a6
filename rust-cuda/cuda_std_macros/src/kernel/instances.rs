//! One entry point for each combination of listed dtypes and values.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::{ItemFn, Lit, Type, spanned::Spanned};

use super::attributes::Attributes;

/// One choice: which of the listed dtypes (by index), or which value.
#[derive(Clone)]
pub(super) enum Argument {
    Dtype { index: usize, ty: Box<Type> },
    Value(Lit),
}

pub(super) struct Instance {
    pub(super) symbol: String,
    /// In the order of the function's generic parameters.
    pub(super) arguments: Vec<(Ident, Argument)>,
}

pub(super) fn enumerate(function: &ItemFn, attributes: &Attributes) -> syn::Result<Vec<Instance>> {
    let mut instances = vec![Instance { symbol: function.sig.ident.to_string(), arguments: Vec::new() }];
    // Types are named before values, whatever the order of declaration: `rms_norm_bf16_v4`.
    for parameter in function.sig.generics.type_params() {
        let choices = attributes.dtypes.iter().filter(|c| c.parameter == parameter.ident);
        let options: Vec<_> = choices
            .flat_map(|choice| choice.values.iter().enumerate())
            .map(|(index, ty)| {
                let suffix = type_suffix(ty)?;
                Ok((suffix, Argument::Dtype { index, ty: Box::new(ty.clone()) }))
            })
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
            format!("two instances would be called `{}`: a dtype or value is listed twice", pair[0]),
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
            Self::Dtype { ty, .. } => ty.to_token_stream(),
            Self::Value(value) => quote!(#value),
        }
    }
}

fn type_suffix(ty: &Type) -> syn::Result<String> {
    if let Type::Path(path) = ty
        && let Some(segment) = path.path.segments.last()
        && segment.arguments.is_none()
    {
        return Ok(segment.ident.to_string().to_lowercase());
    }
    Err(syn::Error::new(ty.span(), "a dtype is a plain type name: `f32`, `half::bf16`"))
}

fn value_suffix(value: &Lit) -> String {
    match value {
        Lit::Bool(value) => u8::from(value.value).to_string(),
        Lit::Int(value) => value.base10_digits().to_owned(),
        other => other.to_token_stream().to_string(),
    }
}
