//! `gpu_printf!`: lays the arguments out the way the driver's `vprintf` reads them.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::{
    Expr, LitStr, Token,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
    spanned::Spanned as _,
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

/// The function of `cuda_std::printf` that takes what each conversion of the format prints, so that a mismatch is an error here and not
/// garbage on the screen.
fn conversions(format: &str) -> Result<Vec<&'static str>, String> {
    let mut checks = Vec::new();
    let mut rest = format;
    while let Some((_, conversion)) = rest.split_once('%') {
        if let Some(after) = conversion.strip_prefix('%') {
            rest = after;
            continue;
        }
        let flags = conversion.trim_start_matches(|c: char| c.is_ascii_digit() || "+-# .".contains(c));
        let letter = flags.trim_start_matches(['h', 'l', 'z', 'j', 't']);
        let is_long = flags[..flags.len() - letter.len()].contains(['l', 'z', 'j', 't']);
        checks.push(match letter.chars().next() {
            Some('d' | 'i' | 'u' | 'o' | 'x' | 'X' | 'c') if is_long => "bits64",
            Some('d' | 'i' | 'u' | 'o' | 'x' | 'X' | 'c') => "bits32",
            Some('p' | 's') => "bits64",
            Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | 'a' | 'A') => "double",
            Some(other) => return Err(format!("`%{other}` is no conversion: there are `%d`, `%u`, `%x`, `%c`, `%lld`, `%llu`, `%f`, `%e`, `%g`, `%p`, and `%%`")),
            None => return Err("the format ends in a conversion: a percent sign is `%%`".to_owned()),
        });
        rest = &letter[1..];
    }
    Ok(checks)
}

pub(crate) fn expand(input: TokenStream) -> syn::Result<TokenStream> {
    let Input { format, arguments } = syn::parse2(input)?;
    let text = format.value();
    if text.contains('\0') {
        return Err(syn::Error::new(format.span(), "the format ends at its first NUL character"));
    }
    let checks = conversions(&text).map_err(|error| syn::Error::new(format.span(), error))?;
    let expected = checks.len();
    if expected != arguments.len() {
        return Err(syn::Error::new(
            format.span(),
            format!("the format has {expected} conversions, but {} arguments follow", arguments.len()),
        ));
    }
    let format = LitStr::new(&format!("{text}\0"), format.span());
    let types: Vec<_> = (0..arguments.len()).map(|index| format_ident!("A{index}")).collect();
    let arguments = arguments.iter().zip(checks).map(|(argument, check)| {
        // At the argument, which is what the error is about.
        let check = Ident::new(check, argument.span().resolved_at(Span::call_site()));
        quote_spanned!(argument.span()=> ::cuda_std::printf::#check(#argument))
    });
    Ok(quote!({
        // C layout: every value at its natural alignment, as the driver expects.
        #[repr(C)]
        struct Arguments<#(#types),*>(#(#types),*);
        let arguments = Arguments(#(#arguments),*);
        ::cuda_std::printf::print(#format, &raw const arguments as *const u8)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_say_what_they_print() {
        assert_eq!(conversions("%d%% of %f, %-+08.3e\n").unwrap(), ["bits32", "double", "double"]);
        assert_eq!(
            conversions("%lld %llu %lx %zu %p %hhx").unwrap(),
            ["bits64", "bits64", "bits64", "bits64", "bits64", "bits32"]
        );
        assert_eq!(conversions("plain, 100%%").unwrap(), [""; 0]);
        assert!(conversions("100%").unwrap_err().contains("`%%`"));
        assert!(conversions("%*d").unwrap_err().contains("`%*` is no conversion"));
        assert!(conversions("%é").unwrap_err().contains("`%é`"));
    }

    #[test]
    fn argument_count_is_checked() {
        let error = expand(quote!("%d %d", 1)).unwrap_err();
        assert!(error.to_string().contains("2 conversions"));
        assert!(expand(quote!("plain\n")).is_ok());
    }
}
