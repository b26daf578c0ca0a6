//! What a kernel's signature may be, and how its parameters cross the launch.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::{FnArg, GenericParam, ItemFn, Pat, ReturnType, Type, spanned::Spanned};

use super::attributes::Attributes;

pub(super) enum ParameterKind {
    ConstPointer(Type),
    MutPointer(Type),
    Value,
    TensorMap,
}

pub(super) struct Parameter {
    pub(super) name: Ident,
    pub(super) ty: Type,
    pub(super) kind: ParameterKind,
}

impl Parameter {
    /// The type the host passes.
    pub(super) fn host_type(&self) -> TokenStream {
        match &self.kind {
            ParameterKind::ConstPointer(element) => quote!(::cuda_std::launch::DevicePtr<#element>),
            ParameterKind::MutPointer(element) => {
                quote!(::cuda_std::launch::DevicePtrMut<#element>)
            }
            ParameterKind::Value => {
                let ty = &self.ty;
                quote!(#ty)
            }
            ParameterKind::TensorMap => quote!(::cuda_std::launch::TensorMap),
        }
    }

    pub(super) fn is_tensor_map(&self) -> bool {
        matches!(self.kind, ParameterKind::TensorMap)
    }
}

pub(super) fn check(function: &ItemFn, attributes: &Attributes) -> syn::Result<()> {
    let signature = &function.sig;
    let fail = |span, message: &str| Err(syn::Error::new(span, message));
    if signature.unsafety.is_none() {
        return fail(
            signature.fn_token.span,
            "a kernel is an `unsafe fn`: the launch decides whether its pointers are valid",
        );
    }
    if let Some(name) =
        [Some(&signature.ident), attributes.symbol.as_ref()].into_iter().flatten().find(|n| !is_plain(n))
    {
        return fail(
            name.span(),
            &format!(
                "a kernel cannot be called `{name}`: PTX and the host's type take ASCII letters, digits and `_`, a letter first"
            ),
        );
    }
    if let ReturnType::Type(..) = &signature.output {
        return fail(signature.output.span(), "a kernel returns nothing: write results through a `*mut` parameter");
    }
    if let Some(token) = &signature.asyncness {
        return fail(token.span, "a kernel cannot be async");
    }
    if let Some(token) = &signature.constness {
        return fail(token.span, "a kernel cannot be const");
    }
    if let Some(abi) = &signature.abi {
        return fail(abi.span(), "`#[kernel]` chooses the ABI: write a plain `unsafe fn`");
    }
    for parameter in &signature.generics.params {
        match parameter {
            GenericParam::Type(ty) if !attributes.types.iter().any(|c| c.parameter == ty.ident) => {
                return fail(ty.ident.span(), &format!("list the types of `{0}`: `dtypes({0}: f32, …)`", ty.ident));
            }
            GenericParam::Const(value) if !attributes.values.iter().any(|c| c.parameter == value.ident) => {
                return fail(
                    value.ident.span(),
                    &format!("list the values of `{0}`: `values({0}: 1, …)`", value.ident),
                );
            }
            GenericParam::Lifetime(lifetime) => {
                return fail(lifetime.span(), "a kernel has no lifetime parameters");
            }
            _ => {}
        }
    }
    let is_type = |name: &Ident| signature.generics.type_params().any(|p| p.ident == *name);
    if let Some(choice) = attributes.types.iter().find(|c| !is_type(&c.parameter)) {
        return fail(choice.parameter.span(), &format!("`{}` is no type parameter of this kernel", choice.parameter));
    }
    let is_const = |name: &Ident| signature.generics.const_params().any(|p| p.ident == *name);
    if let Some(choice) = attributes.values.iter().find(|c| !is_const(&c.parameter)) {
        return fail(choice.parameter.span(), &format!("`{}` is no const parameter of this kernel", choice.parameter));
    }
    Ok(())
}

/// Whether an entry, and the host's type in camel case, can have this name. A raw one shows its `#`.
fn is_plain(name: &Ident) -> bool {
    let name = name.to_string();
    let letters = name.trim_start_matches('_');
    letters.starts_with(|c: char| c.is_ascii_alphabetic())
        && letters.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

pub(super) fn parameters(function: &ItemFn) -> syn::Result<Vec<Parameter>> {
    let inputs = &function.sig.inputs;
    if inputs.len() > 20 {
        return Err(syn::Error::new_spanned(
            inputs,
            format!("a kernel takes at most 20 parameters, found {}", inputs.len()),
        ));
    }
    inputs.iter().enumerate().map(|(index, input)| parameter(index, input)).collect()
}

fn parameter(index: usize, input: &FnArg) -> syn::Result<Parameter> {
    let FnArg::Typed(input) = input else {
        return Err(syn::Error::new_spanned(input, "a kernel takes no `self`"));
    };
    let name = match &*input.pat {
        Pat::Ident(pattern) => pattern.ident.clone(),
        _ => format_ident!("parameter{index}"),
    };
    Ok(Parameter { name, ty: (*input.ty).clone(), kind: kind(&input.ty)? })
}

fn kind(ty: &Type) -> syn::Result<ParameterKind> {
    match ty {
        // What a macro passes as a type comes in invisible brackets.
        Type::Group(group) => return kind(&group.elem),
        Type::Ptr(pointer) if pointer.mutability.is_some() => {
            return Ok(ParameterKind::MutPointer((*pointer.elem).clone()));
        }
        Type::Ptr(pointer) => return Ok(ParameterKind::ConstPointer((*pointer.elem).clone())),
        Type::Reference(reference)
            if reference.mutability.is_none() && last_segment(&reference.elem, &["TensorMap"]) =>
        {
            return Ok(ParameterKind::TensorMap);
        }
        ty if last_segment(ty, &["usize", "isize", "bool"]) => {}
        // A number, or a struct that `launch::Param` will ask for.
        Type::Path(_) => return Ok(ParameterKind::Value),
        _ => {}
    }
    let hint = match ty {
        Type::Reference(_) => ": pass a raw pointer and a length",
        ty if last_segment(ty, &["usize", "isize"]) => ": its width is the device's; write `u64` or `i64`",
        ty if last_segment(ty, &["bool"]) => ": write `u32`",
        _ => "",
    };
    Err(syn::Error::new_spanned(
        ty,
        format!(
            "a kernel parameter is `*const T`, `*mut T`, `&TensorMap`, a number of fixed width or a struct of them{hint}"
        ),
    ))
}

fn last_segment(ty: &Type, names: &[&str]) -> bool {
    matches!(ty, Type::Path(path) if path.qself.is_none()
    && path.path.segments.last().is_some_and(|segment| {
        segment.arguments.is_none() && names.iter().any(|name| segment.ident == name)
    }))
}
