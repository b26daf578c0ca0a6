//! The device expansion: one `.entry` an instance, with the marker `cuda_builder` reads.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::GenericParam;

use super::{Kernel, attributes::Shared, dimensions, instances::Instance, string};

pub(super) fn entries(kernel: &Kernel) -> TokenStream {
    let entry = |instance: &Instance| {
        let (symbol, entry) = (string(&instance.symbol), entry(kernel, instance));
        // A build of some kernels leaves the others out. Inside, because only the builder tells rustc of `cuda_only`.
        quote! {
            #[cfg(target_arch = "nvptx64")]
            const _: () = {
                #[cfg(any(not(cuda_only), cuda_only = #symbol))]
                const _: () = { #entry };
            };
        }
    };
    kernel.instances.iter().map(entry).collect()
}

/// The generic parameters become items, so the signature and the attributes' expressions read as they were written.
fn generics(kernel: &Kernel, instance: &Instance) -> TokenStream {
    let parameters = &kernel.function.sig.generics.params;
    parameters
        .iter()
        .zip(&instance.arguments)
        .map(|(parameter, (_, argument))| {
            let argument = argument.tokens();
            match parameter {
                GenericParam::Type(parameter) => {
                    let name = &parameter.ident;
                    quote!(#[allow(dead_code)] type #name = #argument;)
                }
                GenericParam::Const(parameter) => {
                    let (name, ty) = (&parameter.ident, &parameter.ty);
                    quote!(#[allow(dead_code)] const #name: #ty = #argument;)
                }
                GenericParam::Lifetime(_) => TokenStream::new(),
            }
        })
        .collect()
}

fn entry(kernel: &Kernel, instance: &Instance) -> TokenStream {
    let function = &kernel.function.sig.ident;
    let symbol = string(&instance.symbol);
    let generics = generics(kernel, instance);
    let marker = marker(kernel);
    // Ahead of every access to memory, so that nobody has to think of it.
    let wait = kernel.attributes.programmatic.then(|| quote!(::cuda_std::grid::wait_for_launch_ahead();));

    let mut parameters = Vec::new();
    let mut addresses = Vec::new();
    let mut arguments = Vec::new();
    for (index, parameter) in kernel.parameters.iter().enumerate() {
        let name = format_ident!("parameter{index}");
        let ty = &parameter.ty;
        if parameter.is_tensor_map() {
            // By value in parameter space: the TMA unit reads the descriptor there, so only its address is taken.
            let symbol = string(&format!("{}_param_{index}", instance.symbol));
            parameters.push(quote!(_: ::cuda_std::tma::Parameter));
            addresses.push(quote! {
                let #name: u64;
                ::core::arch::asm!(
                    "{{", ".reg .b64 t;",
                    concat!("mov.b64 t, ", #symbol, ";"),
                    "cvta.param.u64 {address}, t;", "}}",
                    address = out(reg64) #name,
                    options(pure, nomem, nostack, preserves_flags),
                );
            });
            arguments.push(quote!(&*(#name as *const ::cuda_std::launch::TensorMap)));
        } else {
            parameters.push(quote!(#name: #ty));
            arguments.push(quote!(#name));
        }
    }
    let names = instance.arguments.iter().map(|(name, _)| name);
    let turbofish = (!instance.arguments.is_empty()).then(|| quote!(::<#(#names),*>));

    quote! {
        #generics
        #[unsafe(export_name = #symbol)]
        #[allow(improper_ctypes_definitions, clippy::too_many_arguments)]
        unsafe extern "ptx-kernel" fn kernel_entry(#(#parameters),*) {
            unsafe {
                #marker
                #wait
                #(#addresses)*
                #function #turbofish(#(#arguments),*)
            }
        }
    }
}

/// The comment that carries launch bounds and needs to the builder, which turns it into PTX directives.
fn marker(kernel: &Kernel) -> TokenStream {
    let attributes = &kernel.attributes;
    let [bx, by, bz] = dimensions(&attributes.block);
    let one = syn::parse_quote!(1);
    let [cx, cy, cz] = dimensions(attributes.cluster.as_ref().unwrap_or(&one));
    let min_blocks = match &attributes.min_blocks {
        Some(expression) => quote!((#expression) as u32),
        None => quote!(0u32),
    };
    let shared = shared_bytes(attributes.shared.as_ref());
    let tensor_maps: Vec<String> = kernel
        .parameters
        .iter()
        .enumerate()
        .filter(|(_, parameter)| parameter.is_tensor_map())
        .map(|(index, _)| index.to_string())
        .collect();
    let arch = attributes.arch.as_ref().map_or(String::new(), |arch| format!(" arch={}", arch.value()));
    let tail = string(&format!(
        "{arch} block={{bx}},{{by}},{{bz}} min_blocks={{min_blocks}} cluster={{cx}},{{cy}},{{cz}} shared={{shared}} \
         no_spills={} programmatic={}{}{} tensormaps={}",
        u8::from(attributes.no_spills),
        u8::from(attributes.programmatic),
        if attributes.cooperative { " cooperative=1" } else { "" },
        attributes.opt_level.map_or(String::new(), |level| format!(" opt_level={level}")),
        tensor_maps.join(","),
    ));
    quote! {
        ::core::arch::asm!(
            concat!("//#kernel module=", module_path!(), #tail),
            bx = const #bx, by = const #by, bz = const #bz,
            min_blocks = const #min_blocks,
            cx = const #cx, cy = const #cy, cz = const #cz,
            shared = const #shared,
            options(nomem, nostack, preserves_flags),
        );
    }
}

pub(super) fn shared_bytes(shared: Option<&Shared>) -> TokenStream {
    match shared {
        Some(Shared::Layout(layout)) => quote!(::core::mem::size_of::<#layout>()),
        Some(Shared::Bytes(expression)) => quote!(#expression),
        None => quote!(0usize),
    }
}
