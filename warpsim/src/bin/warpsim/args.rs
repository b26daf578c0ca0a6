//! Command-line values: sizes, checkers, devices, and a launch in one string.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use warpsim::{Checks, DEVICES, Device};

/// `8`, `8x4`, `8x4x2`
pub(crate) fn dims(s: &str) -> Result<[u32; 3], String> {
    let mut out = [1; 3];
    let parts: Vec<&str> = s.split(['x', ',']).collect();
    if parts.len() > 3 {
        return Err("at most three sizes".into());
    }
    for (o, p) in out.iter_mut().zip(parts) {
        *o = p.parse().map_err(|_| format!("`{p}` is not a size"))?;
    }
    Ok(out)
}

pub(crate) fn checks(s: &str) -> Result<Checks, String> {
    match s {
        "all" => return Ok(Checks::ALL),
        "none" => return Ok(Checks::NONE),
        _ => {}
    }
    let mut c = Checks::NONE;
    for p in s.split(',') {
        match p {
            "init" => c.init = true,
            "race" => c.race = true,
            "sync" => c.sync = true,
            "offsets" => c.offsets = true,
            _ => return Err(format!("no checker `{p}`: init, race, sync, offsets, all, none")),
        }
    }
    Ok(c)
}

/// A device by its key.
pub(crate) fn device() -> impl TypedValueParser<Value = Device> {
    PossibleValuesParser::new(DEVICES.map(|d| d.key)).try_map(|key| key.parse())
}

/// The words of a launch that is given as one string: separated by blanks, except between quotes.
pub(crate) fn words(s: &str) -> Result<Vec<String>, String> {
    let (mut out, mut word, mut quote) = (vec![], None::<String>, None);
    for c in s.chars() {
        match (c, quote) {
            (c, Some(q)) if c == q => quote = None,
            ('"' | '\'', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (c, None) if c.is_whitespace() => out.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    out.extend(word);
    if quote.is_some() { Err(format!("a quote without its end in `{s}`")) } else { Ok(out) }
}
