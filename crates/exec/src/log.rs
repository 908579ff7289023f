//! The output of one attempt, in an append-only file that a person can read with `cat`:
//!
//! ```text
//! 2026-11-15T21:00:00.123Z O a line of standard output
//! 2026-11-15T21:00:00.456Z E a line of standard error
//! 2026-11-15T21:00:00.789Z o the first part of a line that goes on in the next `O` or `o`
//! 2026-11-15T21:00:01.000Z S … output truncated at 1048576 bytes
//! ```
//!
//! The letter tells who spoke: `O` standard output (and what an HTTP answer streams), `E` standard error, `S` Runyard
//! itself. A small letter says that no line end followed: the line was longer than 64 KiB, or the work printed a prompt
//! and waits. The file is made with the first output. Bytes that are not UTF-8 are replaced.

mod copy;
mod reader;
mod writer;

pub use copy::append;
pub use reader::{Line, read};
pub use writer::LogWriter;

/// No attempt's file grows beyond this, whatever the task allows.
pub const LOG_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// Longer lines are split.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub enum Stream {
    Stdout,
    Stderr,
    System,
}

impl Stream {
    pub fn as_str(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
            Stream::System => "system",
        }
    }

    fn letter(self) -> char {
        match self {
            Stream::Stdout => 'O',
            Stream::Stderr => 'E',
            Stream::System => 'S',
        }
    }

    fn of_letter(letter: u8) -> Option<Stream> {
        match letter.to_ascii_uppercase() {
            b'O' => Some(Stream::Stdout),
            b'E' => Some(Stream::Stderr),
            b'S' => Some(Stream::System),
            _ => None,
        }
    }
}
