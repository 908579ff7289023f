//! Reads a log from a byte offset on, also while it is still being written.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::{LINE_BYTES_MAX, Stream};

#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Line {
    pub stream: Stream,
    /// Milliseconds since the Unix epoch.
    pub at_ms: u64,
    pub text: String,
    /// False for a part of a line that goes on in the next one of its stream.
    pub ends: bool,
}

/// Room for one line: bytes that are not UTF-8 grow to three when they are replaced, and the frame comes on top.
const READ_BYTES_MIN: usize = 3 * LINE_BYTES_MAX + 64;

/// The whole lines from `offset` on, about `bytes_max` of them, and the offset to go on from. A file that is not there
/// (yet) has no lines.
pub fn read(path: &Path, offset: u64, bytes_max: usize) -> io::Result<(Vec<Line>, u64)> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), offset)),
        Err(error) => return Err(error),
    };
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(bytes_max.max(READ_BYTES_MIN) as u64).read_to_end(&mut bytes)?;
    // What follows the last line end is still being written.
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lines = bytes[..whole].split_inclusive(|byte| *byte == b'\n').filter_map(parse_line).collect();
    Ok((lines, offset + whole as u64))
}

/// `None` for a line that this program did not write: a damaged one must not hide the others.
fn parse_line(line: &[u8]) -> Option<Line> {
    let line = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let (at, rest) = line.split_once(' ')?;
    let (letter, text) = rest.split_once(' ')?;
    let &[letter] = letter.as_bytes() else { return None };
    let at: jiff::Timestamp = at.parse().ok()?;
    Some(Line {
        stream: Stream::of_letter(letter)?,
        at_ms: u64::try_from(at.as_millisecond()).ok()?,
        text: text.to_owned(),
        ends: letter.is_ascii_uppercase(),
    })
}
