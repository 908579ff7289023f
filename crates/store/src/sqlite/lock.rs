//! One process writes a database. SQLite's own locks would let a second one in between two commits; the epoch would then
//! fence the first. A lock held for as long as the store is open says so before any harm is done.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::store::{Error, Holder, Result, User};

/// A server that is killed while it starts a process leaves a child between fork and exec, which has the lock too until
/// it gets to run. That child is gone in milliseconds; another server is not.
const PATIENCE: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(10);

/// Held until it is dropped; the kernel drops it with the process, however that ends.
pub struct Lock(#[expect(dead_code, reason = "the open file is the lock")] File);

impl Lock {
    pub fn take(database: &Path, user: User) -> Result<Lock> {
        let path = lock_file(database);
        let options = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
        let mut file = locked(options.map_err(failed)?, path)?;
        sign(&mut file, Holder { user, pid: std::process::id() }).map_err(failed)?;
        Ok(Lock(file))
    }

    /// As [`Lock::take`], but without leaving a trace. `None` when nobody has ever had it.
    pub fn take_unsigned(database: &Path) -> Result<Option<Lock>> {
        let path = lock_file(database);
        match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            opened => Ok(Some(Lock(locked(opened.map_err(failed)?, path)?))),
        }
    }
}

fn lock_file(database: &Path) -> PathBuf {
    database.with_file_name("runyard.lock")
}

fn locked(mut file: File, path: PathBuf) -> Result<File> {
    let began = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if began.elapsed() < PATIENCE => std::thread::sleep(STEP),
            Err(Errno::WOULDBLOCK) => return Err(Error::Locked { holder: signature(&mut file), path }),
            Err(errno) => return Err(failed(errno.into())),
        }
    }
}

/// Only who has the lock writes into it, so what stands there is the holder's, but for the moment in between.
fn sign(file: &mut File, holder: Holder) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{} {}", holder.user.as_str(), holder.pid)
}

/// `None` when an earlier version has it, which said nothing.
fn signature(file: &mut File) -> Option<Holder> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    let (user, pid) = text.trim().split_once(' ')?;
    Some(Holder { user: User::parse(user)?, pid: pid.parse().ok()? })
}

fn failed(source: io::Error) -> Error {
    Error::Driver { doing: "opening runyard.lock", source: source.into() }
}
