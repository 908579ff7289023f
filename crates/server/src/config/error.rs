//! What can be wrong with a configuration. Every text says where, what, and what would be right.

use std::path::PathBuf;

use super::layers::Origin;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{}:{line}:{column}: {message}\n  {line} | {text}\n  {caret}", path.display(), caret = caret(*line, *column))]
    File { path: PathBuf, line: usize, column: usize, text: String, message: String },
    #[error("environment variable {variable}: {message}")]
    Env { variable: String, message: String },
    /// A value of a layer that is no text file: a flag, a patch, or several layers that do not fit together.
    #[error("{field} (from {origin}): {message}")]
    Value { field: String, origin: Origin, message: String },
}

impl Error {
    /// The key that is wrong, where one is known.
    pub fn field(&self) -> Option<&str> {
        match self {
            Error::Value { field, .. } => Some(field),
            _ => None,
        }
    }
}

/// Points below the offending column of the line printed as `  LINE | TEXT`.
fn caret(line: usize, column: usize) -> String {
    let before = line.to_string().len() + 3 + column.saturating_sub(1);
    format!("{}^", " ".repeat(before))
}
