//! One process writes a database. SQLite's own locks would let a second one in between two commits; the epoch would then
//! fence the first. A lock held for as long as the store is open says so before any harm is done.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::store::{Error, Result};

/// A server that is killed while it starts a process leaves a child between fork and exec, which has the lock too until
/// it gets to run. That child is gone in milliseconds; another server is not.
const PATIENCE: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(10);

/// Held until it is dropped; the kernel drops it with the process, however that ends.
pub struct Lock(#[expect(dead_code, reason = "the open file is the lock")] File);

impl Lock {
    pub fn take(database: &Path) -> Result<Lock> {
        let path = database.with_file_name("runyard.lock");
        let failed = |source: std::io::Error| Error::Driver { doing: "opening runyard.lock", source: source.into() };
        let options = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = options.map_err(failed)?;
        let began = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Lock(file)),
                Err(Errno::WOULDBLOCK) if began.elapsed() < PATIENCE => std::thread::sleep(STEP),
                Err(Errno::WOULDBLOCK) => return Err(Error::Locked { path }),
                Err(errno) => return Err(failed(errno.into())),
            }
        }
    }
}
