//! The environment's variables.

use std::ffi::OsString;

/// A variable that is set and not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    text(std::env::var_os(name)?)
}

/// Bytes that are not Unicode become replacement characters: the value is then refused as an unknown word, and not ignored.
fn text(value: OsString) -> Option<String> {
    Some(value.to_string_lossy().into_owned()).filter(|text| !text.is_empty())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn what_is_no_unicode_is_not_left_out() {
        assert_eq!(text(OsString::from_vec(vec![0xff])).unwrap(), "\u{fffd}");
        assert_eq!([text("sim".into()), text("".into())], [Some("sim".to_owned()), None]);
    }
}
