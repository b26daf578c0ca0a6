//! `ptx_registers!`: array operands for inline PTX.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};
use syn::{
    Expr, LitInt, LitStr, Token, bracketed, parenthesized,
    parse::{Parse, ParseStream},
};

mod keyword {
    syn::custom_keyword!(array);
    syn::custom_keyword!(inout);
    syn::custom_keyword!(out);
}

struct ArrayOperand {
    name: Ident,
    count: usize,
    direction: Ident,
    class: Ident,
    place: Expr,
}

struct Input {
    template: Vec<LitStr>,
    arrays: Vec<ArrayOperand>,
    rest: TokenStream,
}

impl Parse for ArrayOperand {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        input.parse::<keyword::array>()?;
        let name = input.parse()?;
        input.parse::<Token![=]>()?;
        let count;
        bracketed!(count in input);
        let count = count.parse::<LitInt>()?.base10_parse()?;
        let direction = if input.peek(Token![in]) {
            let token = input.parse::<Token![in]>()?;
            Ident::new_raw("in", token.span)
        } else {
            input.parse()?
        };
        let class;
        parenthesized!(class in input);
        let class = class.parse()?;
        let place = input.parse()?;
        Ok(Self { name, count, direction, class, place })
    }
}

impl Parse for Input {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut template = Vec::new();
        while input.peek(LitStr) || input.peek(syn::Ident) && input.peek2(Token![!]) {
            template.push(template_piece(input)?);
            input.parse::<Token![,]>()?;
        }
        let mut arrays = Vec::new();
        while input.peek(keyword::array) {
            arrays.push(input.parse()?);
            input.parse::<Token![,]>()?;
        }
        Ok(Self { template, arrays, rest: input.parse()? })
    }
}

/// A string literal, or a `concat!` of literals (what a `macro_rules` caller pastes its names with).
fn template_piece(input: ParseStream<'_>) -> syn::Result<LitStr> {
    if input.peek(LitStr) {
        return input.parse();
    }
    let path: Ident = input.parse()?;
    if path != "concat" {
        return Err(syn::Error::new(path.span(), "expected a string literal or `concat!`"));
    }
    input.parse::<Token![!]>()?;
    let pieces;
    parenthesized!(pieces in input);
    let pieces = pieces.parse_terminated(syn::Lit::parse, Token![,])?;
    let mut text = String::new();
    for piece in &pieces {
        match piece {
            syn::Lit::Str(piece) => text.push_str(&piece.value()),
            syn::Lit::Int(piece) => text.push_str(piece.base10_digits()),
            other => return Err(syn::Error::new(other.span(), "expected a string or integer literal")),
        }
    }
    Ok(LitStr::new(&text, path.span()))
}

pub(crate) fn expand(input: TokenStream) -> syn::Result<TokenStream> {
    let Input { template, arrays, rest } = syn::parse2(input)?;

    let mut lines: Vec<String> = template.iter().map(LitStr::value).collect();
    let mut operands = TokenStream::new();
    for array in &arrays {
        let names: Vec<Ident> = (0..array.count).map(|index| format_ident!("{}{index}", array.name)).collect();
        let list = names.iter().map(|name| format!("{{{name}}}")).collect::<Vec<_>>().join(", ");
        let marker = format!("{{{}*}}", array.name);
        for line in &mut lines {
            *line = line.replace(&marker, &list);
        }
        let ArrayOperand { direction, class, place, .. } = array;
        let direction = if direction == "r#in" { quote!(in) } else { quote!(#direction) };
        let indices = (0..array.count).map(syn::Index::from);
        operands.extend(quote!(#(#names = #direction(#class) #place[#indices],)*));
    }
    let lines = lines.iter().map(|line| LitStr::new(line, Span::call_site()));
    Ok(quote!(ptx!(#(#lines,)* #operands #rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expansion(input: TokenStream) -> String {
        expand(input).expect("well-formed").to_string().replace(' ', "")
    }

    #[test]
    fn arrays_become_operands() {
        let text = expansion(quote!(
            concat!("mma.", "m16", " {{{d*}}}, {{{a*}}}, {b};"), " // {d*}",
            array d = [2] inout(reg32) d,
            array a = [1] in(reg32) fragment.words,
            b = in(reg64) b.0,
            options(nomem),
        ));
        assert_eq!(
            text,
            "ptx!(\"mma.m16{{{d0},{d1}}},{{{a0}}},{b};\",\"//{d0},{d1}\",\
             d0=inout(reg32)d[0],d1=inout(reg32)d[1],a0=in(reg32)fragment.words[0],\
             b=in(reg64)b.0,options(nomem),)"
        );
    }

    #[test]
    fn only_literals_are_concatenated() {
        assert!(expand(quote!(concat!("a", b), options(nomem))).is_err());
        assert!(expand(quote!(format!("a"), options(nomem))).is_err());
    }
}
