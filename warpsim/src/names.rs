//! Names of variables as findings show them.

/// The source name of a variable: for a mangled name (`_ZZ4tileILi2EEvPfE3acc`), its last component.
pub fn plain(symbol: &str) -> &str {
    if !symbol.starts_with("_Z") {
        return symbol;
    }
    // Variables of the same name in one function are numbered.
    let unnumbered = symbol.trim_end_matches(|c: char| c.is_ascii_digit()).strip_suffix('_');
    let forms = [Some(symbol), symbol.strip_suffix('E'), unnumbered];
    forms.into_iter().flatten().find_map(last_part).unwrap_or(symbol)
}

/// The identifier at the end that is preceded by its length: the longest such identifier, because a name may contain digits.
fn last_part(symbol: &str) -> Option<&str> {
    (1..symbol.len()).find_map(|at| {
        let (before, name) = symbol.split_at_checked(at)?;
        let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let length = before.strip_suffix(&name.len().to_string())?;
        (starts && !length.ends_with(|c: char| c.is_ascii_digit())).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn the_last_part_is_the_name() {
        for (symbol, name) in [
            ("tile", "tile"),
            ("_ZZ2mmILi1EEvPfS0_S0_iE2sb", "sb"),
            ("_ZZ7stencilILi16EEvPfE5sh4_a", "sh4_a"),
            ("_ZZ1fvE1s_0", "s"),
            ("_ZN33_INTERNAL_af15cb7a_5_r1_cu_pad3_04cuda3std7advanceE", "advance"),
            ("_ZN4warp5countE", "count"),
            ("_Z", "_Z"),
            ("_ZStrange", "_ZStrange"),
        ] {
            assert_eq!(plain(symbol), name);
        }
    }
}
