//! The host expansion: a type that implements `cuda_std::launch::Kernel`.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens as _, format_ident, quote};
use syn::{Attribute, GenericParam, Type, TypeParam, WherePredicate};

use super::{
    Kernel,
    attributes::Role,
    device, dimensions,
    instances::{Argument, Instance},
    string,
};

pub(super) fn types(kernel: &Kernel) -> TokenStream {
    let signature = &kernel.function.sig;
    let visibility = &kernel.function.vis;
    let name = format_ident!("{}", camel_case(&signature.ident.to_string()), span = signature.ident.span());
    let docs = documentation(kernel);
    let traits: TokenStream =
        signature.generics.type_params().map(|parameter| listed_trait(kernel, &name, parameter)).collect();

    let mut declared = Vec::new();
    let mut bounded = Vec::new();
    let mut used = Vec::new();
    for parameter in &signature.generics.params {
        match parameter {
            GenericParam::Type(parameter) => {
                let ident = &parameter.ident;
                let bound = bound(kernel, &name, ident);
                let written = written_bounds(kernel, parameter);
                declared.push(quote!(#ident));
                bounded.push(quote!(#ident: #bound #(+ #written)*));
                used.push(quote!(#ident));
            }
            GenericParam::Const(parameter) => {
                let (ident, ty) = (&parameter.ident, &parameter.ty);
                declared.push(quote!(const #ident: #ty));
                bounded.push(quote!(const #ident: #ty));
                used.push(quote!(#ident));
            }
            GenericParam::Lifetime(_) => {}
        }
    }
    let phantom = signature.generics.type_params().map(|parameter| &parameter.ident);

    let symbol = symbol(kernel, &name);
    let [bx, by, bz] = dimensions(&kernel.attributes.block);
    let one = syn::parse_quote!(1);
    let [cx, cy, cz] = dimensions(kernel.attributes.cluster.as_ref().unwrap_or(&one));
    let shared = device::shared_bytes(kernel.attributes.shared.as_ref());
    let arguments = kernel.parameters.iter().map(|parameter| parameter.host_type());
    let list = list(kernel, &name);
    let (file, [first, last]) = (string(&kernel.source.file), kernel.source.lines);

    // The struct has braces, so that it is a type and no function: with a name of one letter, that is the list's.
    quote! {
        #traits

        #(#docs)*
        #[cfg(not(target_arch = "nvptx64"))]
        #visibility struct #name<#(#declared),*> { of: ::core::marker::PhantomData<fn() -> (#(#phantom,)*)> }

        #[cfg(not(target_arch = "nvptx64"))]
        #[allow(unused_braces, clippy::unnecessary_cast, clippy::type_complexity)]
        impl<#(#bounded),*> ::cuda_std::launch::Kernel for #name<#(#used),*> {
            const SYMBOL: &'static str = #symbol;
            const BLOCK: ::cuda_std::launch::Dim3 = ::cuda_std::launch::Dim3 { x: #bx, y: #by, z: #bz };
            const CLUSTER: ::cuda_std::launch::Dim3 = ::cuda_std::launch::Dim3 { x: #cx, y: #cy, z: #cz };
            const SHARED_BYTES: usize = #shared;
            const MODULE: &'static str = module_path!();
            const FILE: &'static str = #file;
            const LINES: [u32; 2] = [#first, #last];
            type Args = (#(#arguments,)*);
        }

        #list
    }
}

/// `GELU`: what the host knows of every instance, so that nobody lists them a second time.
fn list(kernel: &Kernel, name: &Ident) -> TokenStream {
    let visibility = &kernel.function.vis;
    let function = kernel.function.sig.ident.to_string();
    let constant = format_ident!("{}", function.to_uppercase(), span = kernel.function.sig.ident.span());
    let docs = string(&format!(" Every instance of the kernel `{function}`."));
    let instances = kernel.instances.iter().map(|instance| {
        let arguments = instance.arguments.iter().map(|(_, argument)| argument.tokens());
        let generics = (!instance.arguments.is_empty()).then(|| quote!(<#(#arguments),*>));
        quote!(::cuda_std::launch::Instance::of::<#name #generics>())
    });
    quote! {
        #[doc = #docs]
        #[cfg(not(target_arch = "nvptx64"))]
        #[allow(dead_code)]
        #visibility const #constant: &[::cuda_std::launch::Instance] = &[#(#instances),*];
    }
}

fn documentation(kernel: &Kernel) -> Vec<TokenStream> {
    let written: Vec<&Attribute> =
        kernel.function.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).collect();
    let mut docs: Vec<TokenStream> = written.iter().map(|attribute| quote!(#attribute)).collect();
    if docs.is_empty() {
        let text = string(&format!(" Launches the kernel `{}`.", kernel.function.sig.ident));
        docs.push(quote!(#[doc = #text]));
    }
    let names: Vec<String> = kernel.parameters.iter().map(|parameter| parameter.name.to_string()).collect();
    let text = string(&format!(" Arguments: `{}`.", names.join("`, `")));
    if !names.is_empty() {
        docs.push(quote!(#[doc = ""] #[doc = #text]));
    }
    docs
}

fn role(kernel: &Kernel, parameter: &Ident) -> Role {
    kernel.attributes.types.iter().find(|types| types.parameter == *parameter).map_or(Role::Dtype, |types| types.role)
}

/// What generic host code has to ask of a type parameter.
fn bound(kernel: &Kernel, kernel_name: &Ident, parameter: &Ident) -> TokenStream {
    match role(kernel, parameter) {
        Role::Float => quote!(::cuda_std::float::Element),
        Role::Half => quote!(::cuda_std::float::Half),
        Role::Float8 => quote!(::cuda_std::fp8::Float8),
        Role::Dtype | Role::Marker => trait_name(kernel, kernel_name, parameter).into_token_stream(),
    }
}

/// The number of a type parameter's type.
fn number(kernel: &Kernel, kernel_name: &Ident, parameter: &Ident) -> TokenStream {
    match role(kernel, parameter) {
        Role::Float | Role::Half => quote!(<#parameter as ::cuda_std::float::Element>::INDEX),
        Role::Float8 => quote!(<#parameter as ::cuda_std::fp8::Float8>::INDEX),
        Role::Dtype | Role::Marker => {
            let listed = trait_name(kernel, kernel_name, parameter);
            quote!(<#parameter as #listed>::INDEX)
        }
    }
}

/// `RmsNormDtype`, `RmsNormTDtype` where several parameters are element types, and `RmsNormEpilogue` for the marker `Epilogue`.
fn trait_name(kernel: &Kernel, kernel_name: &Ident, parameter: &Ident) -> Ident {
    let dtypes = kernel.attributes.types.iter().filter(|types| types.role != Role::Marker).count();
    match role(kernel, parameter) {
        Role::Marker => format_ident!("{kernel_name}{parameter}"),
        _ if dtypes == 1 => format_ident!("{kernel_name}Dtype"),
        _ => format_ident!("{kernel_name}{parameter}Dtype"),
    }
}

/// The bounds that the function itself states.
fn written_bounds(kernel: &Kernel, parameter: &TypeParam) -> Vec<TokenStream> {
    let mut bounds: Vec<TokenStream> = parameter.bounds.iter().map(|bound| quote!(#bound)).collect();
    for predicate in kernel.function.sig.generics.where_clause.iter().flat_map(|clause| &clause.predicates) {
        if let WherePredicate::Type(predicate) = predicate
            && matches!(&predicate.bounded_ty, Type::Path(path) if path.path.is_ident(&parameter.ident))
        {
            bounds.extend(predicate.bounds.iter().map(|bound| quote!(#bound)));
        }
    }
    bounds
}

/// The trait of the listed types. A set needs none: `cuda_std` has it.
fn listed_trait(kernel: &Kernel, kernel_name: &Ident, parameter: &TypeParam) -> TokenStream {
    if matches!(role(kernel, &parameter.ident), Role::Float | Role::Half | Role::Float8) {
        return TokenStream::new();
    }
    let visibility = &kernel.function.vis;
    let name = trait_name(kernel, kernel_name, &parameter.ident);
    let function = kernel.function.sig.ident.to_string();
    let docs = string(&format!(" The types `{function}` has kernels for as `{}`.", parameter.ident));
    let unimplemented = string(&format!("`{function}` has no kernel for `{{Self}}`"));
    let bounds = written_bounds(kernel, parameter);
    let listed = kernel.attributes.types.iter().filter(|types| types.parameter == parameter.ident);
    let implementations = listed.flat_map(|types| types.types.iter().enumerate()).map(|(index, ty)| {
        quote! {
            #[cfg(not(target_arch = "nvptx64"))]
            impl #name for #ty { const INDEX: usize = #index; }
        }
    });
    quote! {
        #[doc = #docs]
        #[cfg(not(target_arch = "nvptx64"))]
        #[diagnostic::on_unimplemented(message = #unimplemented)]
        #visibility trait #name: Sized #(+ #bounds)* {
            /// Which of the listed types this is.
            #[doc(hidden)]
            const INDEX: usize;
        }
        #(#implementations)*
    }
}

/// The symbol, chosen at compile time: an unlisted value is a compile error at the launch that names it.
fn symbol(kernel: &Kernel, name: &Ident) -> TokenStream {
    let generics = &kernel.function.sig.generics;
    if generics.params.is_empty() {
        let symbol = string(&kernel.instances[0].symbol);
        return quote!(#symbol);
    }
    let scrutinee = generics.params.iter().map(|parameter| match parameter {
        GenericParam::Type(parameter) => number(kernel, name, &parameter.ident),
        GenericParam::Const(parameter) => {
            let ident = &parameter.ident;
            quote!(#ident)
        }
        GenericParam::Lifetime(_) => TokenStream::new(),
    });
    let arms = kernel.instances.iter().map(|Instance { symbol, arguments }| {
        let symbol = string(symbol);
        let pattern = arguments.iter().map(|(_, argument)| match argument {
            Argument::Type { number, .. } => quote!(#number),
            Argument::Value(value) => quote!(#value),
        });
        quote!((#(#pattern,)*) => #symbol,)
    });
    let values: Vec<String> = kernel
        .attributes
        .values
        .iter()
        .map(|choice| {
            let values: Vec<String> = choice.values.iter().map(|value| quote!(#value).to_string()).collect();
            format!("{} = {}", choice.parameter, values.join(", "))
        })
        .collect();
    let filter = kernel.attributes.filter.as_ref().map(|condition| format!("where {}", quote!(#condition)));
    let message = string(&format!(
        "`{}` has no kernel for these parameters: it is built for {}",
        kernel.function.sig.ident,
        values.into_iter().chain(filter).collect::<Vec<_>>().join("; ")
    ));
    quote! {
        match (#(#scrutinee,)*) {
            #(#arms)*
            #[allow(unreachable_patterns)]
            _ => panic!(#message),
        }
    }
}

fn camel_case(name: &str) -> String {
    name.split('_')
        .flat_map(|word| {
            let mut characters = word.chars();
            let first = characters.next().map(|first| first.to_ascii_uppercase());
            first.into_iter().chain(characters)
        })
        .collect()
}
