//! A log that is written elsewhere, and copied here in parts.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::LOG_BYTES_MAX;
use crate::places::create_private_dir;

/// Adds the bytes that stand at `offset` in the original, as far as the copy does not have them yet. Gives from where on
/// it needs more: further than it is long when it is full, because then nothing more is kept.
pub fn append(path: &Path, offset: u64, bytes: &[u8]) -> io::Result<u64> {
    let open = || OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    let mut file = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            path.parent().map_or(Ok(()), create_private_dir)?;
            open()?
        }
        file => file?,
    };
    let length = file.metadata()?.len();
    let end = offset.saturating_add(bytes.len() as u64);
    if length >= LOG_BYTES_MAX {
        return Ok(end.max(length));
    }
    if offset > length || end <= length {
        return Ok(length);
    }
    let fresh = &bytes[(length - offset) as usize..];
    let room = usize::try_from(LOG_BYTES_MAX - length).unwrap_or(usize::MAX);
    file.write_all(&fresh[..fresh.len().min(room)])?;
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_overlap_make_one_whole_and_a_gap_is_not_taken() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("logs/7.log");
        assert_eq!(append(&path, 3, b"later").expect("read"), 0);
        assert_eq!(append(&path, 0, b"abc").expect("written"), 3);
        assert_eq!(append(&path, 0, b"abc").expect("again"), 3);
        assert_eq!(append(&path, 1, b"bcde").expect("written"), 5);
        assert_eq!(append(&path, 7, b"x").expect("read"), 5);
        assert_eq!(std::fs::read(&path).expect("there"), b"abcde");
    }

    #[test]
    fn a_full_copy_takes_nothing_and_asks_for_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("7.log");
        std::fs::write(&path, vec![b'x'; LOG_BYTES_MAX as usize - 1]).expect("written");
        assert_eq!(append(&path, LOG_BYTES_MAX - 1, b"yz").expect("written"), LOG_BYTES_MAX + 1);
        assert_eq!(std::fs::metadata(&path).expect("there").len(), LOG_BYTES_MAX);
        assert_eq!(append(&path, LOG_BYTES_MAX + 1, b"more").expect("passed over"), LOG_BYTES_MAX + 5);
    }
}
