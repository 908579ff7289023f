//! A copy of a database that nobody writes, made without touching it. (Even a reader would make files beside it.)

use std::io;
use std::path::{Path, PathBuf};

use super::lock::Lock;
use crate::store::{Error, Result};

/// Nobody writes what was copied as long as this is there.
pub struct Quiet {
    _lock: Option<Lock>,
}

/// Copies the database and its log; nothing when there is none. Fails with [`Locked`](Error::Locked) while somebody has
/// it open for writing.
pub fn copy_quiet(database: &Path, to: &Path) -> Result<Quiet> {
    let lock = Lock::take_unsigned(database)?;
    for suffix in ["", "-wal"] {
        let (from, to) = (with_suffix(database, suffix), with_suffix(to, suffix));
        match std::fs::copy(from, to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(Error::Driver { doing: "copying the database", source: source.into() }),
            Ok(_) => {}
        }
    }
    Ok(Quiet { _lock: lock })
}

pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
