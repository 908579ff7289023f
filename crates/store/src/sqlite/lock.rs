//! One process writes a database. SQLite's own locks would let a second one in between two commits; the epoch would then
//! fence the first. A lock held for as long as the store is open says so before any harm is done.

use std::fs::{File, OpenOptions};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::store::{Error, Result};

/// Held until it is dropped; the kernel drops it with the process, however that ends.
pub struct Lock(#[expect(dead_code, reason = "the open file is the lock")] File);

impl Lock {
    pub fn take(database: &Path) -> Result<Lock> {
        let path = database.with_file_name("runyard.lock");
        let failed = |source: std::io::Error| Error::Driver { doing: "opening runyard.lock", source: source.into() };
        let options = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = options.map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock(file)),
            Err(Errno::WOULDBLOCK) => Err(Error::Locked { path }),
            Err(errno) => Err(failed(errno.into())),
        }
    }
}
