//! How connections are opened: everything that is set by pragma is here.

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::copy::with_suffix;
use super::row::Doing;
use crate::store::{Result, User};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// A commit that returned survives power loss.
    #[default]
    Full,
    /// A commit that returned survives `kill -9`; power loss may take the last ones, never a part of one.
    Normal,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    pub durability: Durability,
    /// Once so much of the log is not yet in the database, the checkpoint thread copies it.
    pub checkpoint_bytes: u64,
    /// From this size on the log begins anew as soon as the checkpoint thread has caught up.
    pub wal_bytes_reset: u64,
    /// At this size the writer itself stops and empties the log.
    pub wal_bytes_max: u64,
    /// Who opens it: what others are told who find it locked.
    pub user: User,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            durability: Durability::Full,
            checkpoint_bytes: 16 << 20,
            wal_bytes_reset: 64 << 20,
            wal_bytes_max: 256 << 20,
            user: User::Server,
        }
    }
}

pub fn open_writer(path: &Path, durability: Durability) -> Result<Connection> {
    let db = open_for_writing(path, durability)?;
    // A thread of its own checkpoints; see checkpoint.rs.
    db.pragma_update(None, "wal_autocheckpoint", 0).doing("turning off automatic checkpoints")?;
    db.pragma_update(None, "cache_size", -WRITER_CACHE_KIB).doing("setting the page cache")?;
    db.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(db)
}

/// For the checkpoint thread: it copies pages and reads no rows, so it needs no cache.
pub fn open_checkpointer(path: &Path, durability: Durability) -> Result<Connection> {
    let db = open_for_writing(path, durability)?;
    db.pragma_update(None, "wal_autocheckpoint", 0).doing("turning off automatic checkpoints")?;
    Ok(db)
}

pub fn open_reader(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).doing("opening a reader")?;
    db.busy_timeout(BUSY_TIMEOUT).doing("opening a reader")?;
    db.pragma_update(None, "query_only", true).doing("opening a reader")?;
    db.pragma_update(None, "mmap_size", 0).doing("opening a reader")?;
    db.pragma_update(None, "cache_size", -READER_CACHE_KIB).doing("opening a reader")?;
    db.pragma_update(None, "temp_store", "memory").doing("opening a reader")?;
    db.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(db)
}

/// Payloads and results are in these files, and the directory may be open to others. A database that is not there yet is
/// made as an empty file, which SQLite takes for a new one; the files beside it get the rights that it has.
pub fn private(path: &Path) -> std::io::Result<()> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    for suffix in ["", "-wal", "-shm"] {
        match std::fs::set_permissions(with_suffix(path, suffix), Permissions::from_mode(0o600)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn open_for_writing(path: &Path, durability: Durability) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags).doing("opening the database")?;
    db.busy_timeout(BUSY_TIMEOUT).doing("opening the database")?;
    // Counts only while the file is empty.
    db.pragma_update(None, "page_size", PAGE_BYTES as i64).doing("opening the database")?;
    db.pragma_update(None, "journal_mode", "wal").doing("opening the database")?;
    let synchronous = match durability {
        Durability::Full => "full",
        Durability::Normal => "normal",
    };
    db.pragma_update(None, "synchronous", synchronous).doing("opening the database")?;
    db.pragma_update(None, "foreign_keys", false).doing("opening the database")?;
    db.pragma_update(None, "mmap_size", 0).doing("opening the database")?;
    db.pragma_update(None, "temp_store", "memory").doing("opening the database")?;
    Ok(db)
}

pub const PAGE_BYTES: u64 = 4096;
const WRITER_CACHE_KIB: i64 = 64 << 10;
const READER_CACHE_KIB: i64 = 4 << 10;
/// More than there are different statements, so that none is compiled twice.
const STATEMENTS_MAX: usize = 128;
/// Nobody holds a lock for long; what waits longer than this has found a fault.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
