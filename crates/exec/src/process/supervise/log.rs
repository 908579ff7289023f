//! What a supervisor writes to its own log. It knows secrets, and an error may quote anything.

use std::io::{self, Write};
use std::sync::OnceLock;

use crate::secret::Redactor;

/// Of this process, which supervises one run.
static HIDDEN: OnceLock<Redactor> = OnceLock::new();

pub(super) fn hide(redactor: Redactor) {
    // A second one is refused, which cannot be: there is one run.
    let _ = HIDDEN.set(redactor);
}

/// Standard error, for whole lines: each is cleared of secrets before it is written.
#[derive(Clone, Copy, Default)]
pub struct LogLine;

impl Write for LogLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match HIDDEN.get() {
            Some(redactor) => io::stderr().write_all(&redactor.bytes(line))?,
            None => io::stderr().write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
