//! Copying the write-ahead log back into the database, beside the writer.
//!
//! ```text
//! log:   0 ──────── 16 MiB ─────────── 64 MiB ──────────────── 256 MiB
//!        nothing    the thread copies   once it has caught up,   the writer stops,
//!                   what is new         the writer copies the    copies and truncates
//!                                       last bit: the next
//!                                       commit begins at 0
//! ```
//! The thread alone cannot end the log: while it copies, the writer appends. The log's file is not cut when it begins
//! anew, because overwriting allocated blocks makes the fsync of a commit cheaper than growing a file.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::connect::{BUSY_TIMEOUT, Options, PAGE_BYTES, open_checkpointer};
use super::row::Doing;
use crate::store::{Error, Result};

pub struct Checkpoints {
    shared: Arc<Shared>,
    options: Options,
    /// A reader in the middle of the log keeps it from beginning anew; the writer tries again at this length.
    n_pages_retry: u64,
    /// `None` only while it is dropped: the thread ends when the channel does.
    nudge: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Pages in the log after the last commit.
    n_pages: AtomicU64,
    /// How many of them are in the database.
    n_copied: AtomicU64,
    /// The thread has caught up, and the writer has not made use of it yet.
    caught_up: AtomicBool,
    /// Two checkpoints at once only get in each other's way: SQLite refuses the second without waiting.
    turn: Mutex<()>,
}

impl Checkpoints {
    pub fn start(path: &Path, writer: &mut Connection, options: Options) -> Result<Checkpoints> {
        let shared = Arc::new(Shared::default());
        let counted = shared.clone();
        let count = move |_: &mut Wal, n_pages: std::ffi::c_int| {
            counted.saw(u64::try_from(n_pages).unwrap_or(0));
            Ok(())
        };
        writer.wal_hook(Some(count)).doing("counting pages of the log")?;
        let db = open_checkpointer(path, options.durability)?;
        let (nudge, nudged) = sync_channel(1);
        let thread_shared = shared.clone();
        let thread = std::thread::Builder::new()
            .name("checkpoint".to_owned())
            .spawn(move || copy_when_nudged(&db, &nudged, &thread_shared))
            .map_err(|source| Error::Driver { doing: "starting the checkpoint thread", source: source.into() })?;
        Ok(Checkpoints { shared, options, n_pages_retry: 0, nudge: Some(nudge), thread: Some(thread) })
    }

    /// Called by the writer between its transactions.
    pub fn after_commit(&mut self, writer: &Connection) -> Result<()> {
        let n_pages = self.shared.n_pages.load(Ordering::Relaxed);
        let n_bytes = n_pages * PAGE_BYTES;
        let n_behind = n_pages.saturating_sub(self.shared.n_copied.load(Ordering::Relaxed));
        if n_bytes >= self.options.wal_bytes_max && n_pages >= self.n_pages_retry {
            self.n_pages_retry = n_pages + self.options.checkpoint_bytes / PAGE_BYTES;
            return self.copy_here(writer, "PRAGMA wal_checkpoint(TRUNCATE)");
        }
        if n_bytes < self.options.wal_bytes_max {
            self.n_pages_retry = 0;
        }
        if n_bytes >= self.options.wal_bytes_reset && self.shared.caught_up.swap(false, Ordering::Relaxed) {
            return self.copy_here(writer, "PRAGMA wal_checkpoint(PASSIVE)");
        }
        if n_behind * PAGE_BYTES >= self.options.checkpoint_bytes
            && let Some(nudge) = &self.nudge
        {
            // A full channel means that it is told already.
            let _ = nudge.try_send(());
        }
        Ok(())
    }

    fn copy_here(&self, writer: &Connection, pragma: &str) -> Result<()> {
        let _turn = self.shared.turn.lock().expect("a checkpoint does not panic");
        // Without waiting: a backup may read for minutes.
        writer.busy_timeout(Duration::ZERO).doing("emptying the log")?;
        let copied = copy(writer, pragma);
        writer.busy_timeout(BUSY_TIMEOUT).doing("emptying the log")?;
        self.shared.n_copied.store(copied.doing("emptying the log")?, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.nudge = None;
        if let Some(thread) = self.thread.take() {
            // A panic in there has been reported by its own thread and loses nothing: the log is whole.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn saw(&self, n_pages: u64) {
        let before = self.n_pages.swap(n_pages, Ordering::Relaxed);
        if n_pages < before {
            // The log began anew.
            self.n_copied.store(0, Ordering::Relaxed);
        }
    }
}

fn copy_when_nudged(db: &Connection, nudged: &Receiver<()>, shared: &Shared) {
    while nudged.recv().is_ok() {
        // Each round leaves what was written during it; a few rounds leave little.
        for _ in 0..ROUNDS_MAX {
            let turn = shared.turn.lock().expect("a checkpoint does not panic");
            // A failure is not lost: the writer meets it at the latest when it must empty the log itself.
            let Ok(n_copied) = copy(db, "PRAGMA wal_checkpoint(PASSIVE)") else { break };
            shared.n_copied.store(n_copied, Ordering::Relaxed);
            drop(turn);
            let n_behind = shared.n_pages.load(Ordering::Relaxed).saturating_sub(n_copied);
            if n_behind * PAGE_BYTES < CAUGHT_UP_BYTES {
                break;
            }
        }
        shared.caught_up.store(true, Ordering::Relaxed);
    }
}

/// Gives the pages of the log that are in the database now.
fn copy(db: &Connection, pragma: &str) -> rusqlite::Result<u64> {
    let mut statement = db.prepare_cached(pragma)?;
    let n_copied: i64 = statement.query_row([], |row| row.get(2))?;
    Ok(u64::try_from(n_copied).unwrap_or(0))
}

const ROUNDS_MAX: usize = 4;
const CAUGHT_UP_BYTES: u64 = 2 << 20;
