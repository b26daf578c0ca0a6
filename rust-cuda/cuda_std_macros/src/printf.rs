//! `gpu_printf!`: lays the arguments out the way the driver's `vprintf` reads them.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{
    Expr, LitStr, Token,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
};

struct Input {
    format: LitStr,
    arguments: Punctuated<Expr, Token![,]>,
}

impl Parse for Input {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let format = input.parse()?;
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
        Ok(Self { format, arguments: input.parse_terminated(Expr::parse, Token![,])? })
    }
}

/// How many arguments the format consumes, so that a mismatch is an error here and not garbage on the screen.
fn conversions(format: &str) -> usize {
    let mut count = 0;
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character == '%' && characters.next().is_some_and(|next| next != '%') {
            count += 1;
        }
    }
    count
}

pub(crate) fn expand(input: TokenStream) -> syn::Result<TokenStream> {
    let Input { format, arguments } = syn::parse2(input)?;
    let text = format.value();
    if text.contains('\0') {
        return Err(syn::Error::new(format.span(), "the format ends at its first NUL character"));
    }
    let expected = conversions(&text);
    if expected != arguments.len() {
        return Err(syn::Error::new(
            format.span(),
            format!("the format has {expected} conversions, but {} arguments follow", arguments.len()),
        ));
    }
    let format = LitStr::new(&format!("{text}\0"), format.span());
    let types: Vec<_> = (0..arguments.len()).map(|index| format_ident!("A{index}")).collect();
    let arguments = arguments.iter();
    Ok(quote!({
        // C layout: every value at its natural alignment, as the driver expects.
        #[repr(C)]
        struct Arguments<#(#types),*>(#(#types),*);
        let arguments = Arguments(#(::cuda_std::printf::Argument::promote(#arguments)),*);
        ::cuda_std::printf::print(#format, &raw const arguments as *const u8)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_skip_escaped_percent() {
        assert_eq!(conversions("%d%% of %f"), 2);
        assert_eq!(conversions("100%"), 0);
    }

    #[test]
    fn argument_count_is_checked() {
        let error = expand(quote!("%d %d", 1)).unwrap_err();
        assert!(error.to_string().contains("2 conversions"));
        assert!(expand(quote!("plain\n")).is_ok());
    }
}
