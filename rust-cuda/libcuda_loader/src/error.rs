use std::fmt;

/// No driver library could be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    pub(crate) tried: Vec<(String, String)>,
}

impl LoadError {
    /// Each file that was tried, and why it failed.
    pub fn tried(&self) -> &[(String, String)] {
        &self.tried
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (file, reason)) in self.tried.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            // dlopen repeats the name in most of its messages.
            let reason = reason.strip_prefix(&format!("{file}: ")).unwrap_or(reason);
            write!(f, "{file}: {reason}")?;
        }
        Ok(())
    }
}

impl std::error::Error for LoadError {}
