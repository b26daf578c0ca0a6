//! Parses PTX text into a syntax tree.

pub mod ast;
mod body;
mod expr;
mod header;
mod init;
mod lexer;
mod parser;
mod twice;

use std::fmt;

pub use parser::parse;

/// An error for text that is not PTX, or for PTX that is not supported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// Line in the PTX text, starting at 1; 0 if no line applies.
    pub line: u32,
    /// The problem, and the instruction if there is one.
    pub message: String,
}

impl ParseError {
    pub(crate) fn new(line: u32, message: String) -> Self {
        Self { line, message }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.message),
            n => write!(f, "PTX line {n}: {}", self.message),
        }
    }
}

impl std::error::Error for ParseError {}
