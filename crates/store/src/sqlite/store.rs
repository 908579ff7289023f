//! The writer: the connection that the tick loop owns.

use std::path::Path;
use std::sync::Arc;

use runyard_core::event::{Due, Release};
use runyard_core::ids::{ScheduleId, TaskId};
use runyard_core::name::Blob;
use runyard_core::now::{Clock, Now};
use runyard_core::schedule::{Run, ScheduleDue};
use runyard_core::session::{Session, SessionId};
use runyard_core::task::Task;
use runyard_core::write::{Loaded, Needs, Rows, WriteSet};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::checkpoint::Checkpoints;
use super::commit::{Scratch, write_all};
use super::connect::{Options, open_writer, private};
use super::lock::Lock;
use super::purge::{self, Cursor};
use super::reader::Readers;
use super::row::Doing;
use super::{load, migrations, query, schedules};
use crate::store::{Error, FlowRows, FlowWant, Purge, Purged, Reader, Result, Store};

/// Fields are dropped in this order: the checkpoint thread ends before its database closes, the lock goes last.
pub struct SqliteStore {
    checkpoints: Checkpoints,
    db: Connection,
    readers: Arc<Readers>,
    scratch: Scratch,
    cursor: Cursor,
    /// Ours since the last load.
    epoch: u64,
    _lock: Lock,
}

impl SqliteStore {
    /// Opens the database file, makes it if there is none, and brings its schema up to date. Fails with
    /// [`Locked`](crate::store::Error::Locked) while another store has it open.
    pub fn open(path: &Path, options: Options) -> Result<SqliteStore> {
        let lock = Lock::take(path, options.user)?;
        private(path)
            .map_err(|source| Error::Driver { doing: "keeping the database private", source: source.into() })?;
        let mut db = open_writer(path, options.durability)?;
        migrations::migrate(&mut db)?;
        let checkpoints = Checkpoints::start(path, &mut db, options)?;
        let readers = Arc::new(Readers::new(path));
        let (scratch, cursor) = (Scratch::default(), Cursor::default());
        Ok(SqliteStore { checkpoints, db, readers, scratch, cursor, epoch: 0, _lock: lock })
    }
}

impl Store for SqliteStore {
    fn load(&mut self, salt: u64) -> Result<Loaded> {
        let tx = begin(&mut self.db)?;
        let loaded = load::load(&tx, salt)?;
        tx.commit().doing("taking the store over")?;
        self.epoch = loaded.meta.epoch;
        self.cursor = Cursor::default();
        Ok(loaded)
    }

    fn fetch(&mut self, needs: &Needs) -> Result<Rows> {
        query::fetch(&self.db, needs)
    }

    fn commit(&mut self, writes: &WriteSet) -> Result<u64> {
        let tx = begin(&mut self.db)?;
        let seq = write_all(&tx, writes, &mut self.scratch)?;
        tx.commit().doing("committing")?;
        self.checkpoints.after_commit(&self.db)?;
        Ok(seq)
    }

    fn flow_rows(&mut self, wants: &[FlowWant]) -> Result<Vec<FlowRows>> {
        wants.iter().map(|want| query::flow_rows(&self.db, want)).collect()
    }

    fn dues(&mut self, clock: Clock, after: Option<Due>, limit: usize) -> Result<Vec<Due>> {
        query::dues(&self.db, clock, after, limit)
    }

    fn released(&mut self, release: &Release, limit: usize) -> Result<Vec<Task>> {
        query::released(&self.db, release, limit)
    }

    fn specs(&mut self, tasks: &[TaskId]) -> Result<Vec<Option<Blob>>> {
        query::specs(&self.db, tasks)
    }

    fn sessions_after(&mut self, after: SessionId, limit: usize) -> Result<Vec<Session>> {
        query::sessions_after(&self.db, after, limit)
    }

    fn merged(&mut self, task: TaskId) -> Result<Vec<Blob>> {
        query::merged(&self.db, task)
    }

    fn dropped(&mut self, session: SessionId, from: u64, to: u64) -> Result<Vec<Blob>> {
        query::dropped(&self.db, session, from, to)
    }

    fn schedules_due(&mut self, after: Option<ScheduleDue>, limit: usize) -> Result<Vec<ScheduleDue>> {
        schedules::due(&self.db, after, limit)
    }

    fn run(&mut self, schedule: ScheduleId, n: u64) -> Result<Option<Run>> {
        schedules::run(&self.db, schedule, n)
    }

    fn n_ahead(&mut self, task: &Task, limit: u32) -> Result<u32> {
        query::n_ahead(&self.db, task, limit)
    }

    fn purge(&mut self, now: Now, purge: &Purge) -> Result<Purged> {
        let tx = begin(&mut self.db)?;
        let (purged, cursor) = purge::purge(&tx, self.epoch, now, purge, self.cursor)?;
        tx.commit().doing("purging")?;
        self.cursor = cursor;
        self.checkpoints.after_commit(&self.db)?;
        Ok(purged)
    }

    fn reader(&self) -> Arc<dyn Reader> {
        self.readers.clone()
    }
}

fn begin(db: &mut Connection) -> Result<Transaction<'_>> {
    db.transaction_with_behavior(TransactionBehavior::Immediate).doing("beginning a transaction")
}
