//! `#[kernel]`: parsing ([`attributes`], [`signature`]), instances, and the two expansions (device and host).

mod attributes;
mod device;
mod filter;
mod host;
mod instances;
mod signature;
#[cfg(test)]
mod tests;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Expr, ItemFn, LitStr};

use attributes::Attributes;
use instances::Instance;
use signature::Parameter;

/// A kernel, checked: what both expansions work from.
struct Kernel {
    attributes: Attributes,
    function: ItemFn,
    parameters: Vec<Parameter>,
    instances: Vec<Instance>,
    source: Source,
}

/// Where a kernel is written: a file, its first and its last line there.
pub(crate) struct Source {
    pub(crate) file: String,
    pub(crate) lines: [u32; 2],
}

pub(crate) fn expand(attributes: TokenStream, item: TokenStream, source: Source) -> syn::Result<TokenStream> {
    let function: ItemFn = syn::parse2(item)?;
    let attributes: Attributes = syn::parse2(attributes)?;
    signature::check(&function, &attributes)?;
    let parameters = signature::parameters(&function)?;
    let instances = instances::enumerate(&function, &attributes)?;
    let instances = filter::wanted(instances, attributes.filter.as_ref())?;
    let kernel = Kernel { attributes, function, parameters, instances, source };

    let body = body(&kernel.function);
    let device = device::entries(&kernel);
    let host = host::types(&kernel);
    Ok(quote!(#body #device #host))
}

/// The kernel as an ordinary function: inlined into each entry on the device, only type-checked on the host.
fn body(function: &ItemFn) -> TokenStream {
    quote! {
        #[inline(always)]
        #[allow(dead_code, clippy::too_many_arguments, clippy::missing_safety_doc)]
        #function
    }
}

/// `block`, `cluster`: one expression or a tuple, as three `u32` expressions.
fn dimensions(value: &Expr) -> [TokenStream; 3] {
    let mut dimensions = [quote!(1u32), quote!(1u32), quote!(1u32)];
    match value {
        Expr::Tuple(tuple) => {
            for (dimension, element) in dimensions.iter_mut().zip(&tuple.elems) {
                *dimension = quote!((#element) as u32);
            }
        }
        value => dimensions[0] = quote!((#value) as u32),
    }
    dimensions
}

fn string(text: &str) -> LitStr {
    LitStr::new(text, proc_macro2::Span::call_site())
}
