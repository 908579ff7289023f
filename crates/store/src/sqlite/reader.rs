//! Readers for everyone but the tick loop: a few read-only connections, lent for one call each.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard};

use runyard_core::batch::Batch;
use runyard_core::event::Happening;
use runyard_core::ids::{BatchId, ScheduleId, TaskId};
use runyard_core::name::{Blob, Name};
use runyard_core::now::WallMs;
use runyard_core::outbox::{Delivery, DeliveryId};
use runyard_core::schedule::{Run, Schedule};
use runyard_core::session::{Message, Session, SessionId};
use runyard_core::task::Phase;
use runyard_core::worker::WorkerRow;
use runyard_core::write::{CountDelta, CountKey};
use rusqlite::backup::Backup;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::connect::open_reader;
use super::row::{
    Doing, N_TASK_COLUMNS, batch_at, blob_at, integer, moment, number, session_at, task_at, task_columns,
};
use super::{load, outbox, schedules};
use crate::codec::{MessagePlace, RowKeyRef, decode_happenings, decode_message_body, decode_row_key};
use crate::store::{
    DeliveryFilter, DeliveryPage, Error, Filter, IdPage, PAGE_BYTES_MAX, Page, Reader, Result, ScheduleCounts,
    ScheduleFilter, SchedulePage, SessionFilter, SessionPage, TaskDoc,
};

pub struct Readers {
    path: PathBuf,
    pool: Mutex<Pool>,
    returned: Condvar,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Connection>,
    n_open: usize,
}

/// Beyond so many readers at once, the next one waits. Two cores have no use for more.
const READERS_MAX: usize = 8;

/// Rows one page of a filtered list looks at: about 10 ms.
const SCAN_MAX: usize = 20_000;

/// What [`doc_at`] reads.
macro_rules! doc_select {
    () => {
        concat!(
            "SELECT ",
            task_columns!(),
            ", t.key, s.spec, t.result, g.key FROM tasks t LEFT JOIN specs s ON s.seq = t.seq",
            " LEFT JOIN sessions g ON g.id = t.session"
        )
    };
}

impl Readers {
    pub fn new(path: &Path) -> Readers {
        Readers { path: path.to_owned(), pool: Mutex::default(), returned: Condvar::new() }
    }

    fn with<T>(&self, read: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        let mut lent = Lent { readers: self, db: Some(self.borrow()?) };
        read(lent.db.as_mut().expect("it is lent until it is dropped"))
    }

    fn borrow(&self) -> Result<Connection> {
        let mut pool = self.lock();
        loop {
            if let Some(db) = pool.idle.pop() {
                return Ok(db);
            }
            if pool.n_open < READERS_MAX {
                let db = open_reader(&self.path)?;
                pool.n_open += 1;
                return Ok(db);
            }
            pool = self.returned.wait(pool).expect("no thread panics while it holds the pool");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().expect("no thread panics while it holds the pool")
    }
}

/// Goes back to the pool also when the read panics: statements and transactions have ended by then, and a pool that
/// loses a connection with each panic ends up waiting for ever.
struct Lent<'a> {
    readers: &'a Readers,
    db: Option<Connection>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.readers.lock().idle.extend(self.db.take());
        self.readers.returned.notify_one();
    }
}

impl Reader for Readers {
    fn task(&self, id: TaskId) -> Result<Option<TaskDoc>> {
        const SQL: &str = concat!(doc_select!(), " WHERE t.id = ?1");
        self.with(|db| {
            let mut select = db.prepare_cached(SQL).doing(READING)?;
            let mut rows = select.query([id.0.to_be_bytes()]).doing(READING)?;
            rows.next().doing(READING)?.map(doc_at).transpose()
        })
    }

    fn tasks(&self, filter: &Filter, after: Option<u64>, limit: usize) -> Result<Page> {
        self.with(|db| {
            // One snapshot for the scan and the rows it finds.
            let tx = db.transaction().doing(READING)?;
            list(&tx, filter, after, limit)
        })
    }

    fn task_ids(&self, filter: &Filter, after: Option<u64>, limit: usize) -> Result<IdPage> {
        self.with(|db| {
            let tx = db.transaction().doing(READING)?;
            list_ids(&tx, filter, after, limit)
        })
    }

    fn messages(&self, id: TaskId) -> Result<Vec<(Message, Blob)>> {
        self.with(|db| {
            let sql = "SELECT m.task_seq, m.n, m.body, m.spec FROM tasks t CROSS JOIN messages m ON m.task_seq = t.seq \
                       WHERE t.id = ?1 ORDER BY m.n";
            let mut select = db.prepare_cached(sql).doing(READING)?;
            let mut rows = select.query([id.0.to_be_bytes()]).doing(READING)?;
            let mut messages = Vec::new();
            while let Some(row) = rows.next().doing(READING)? {
                messages.push(message_at(id, row)?);
            }
            Ok(messages)
        })
    }

    fn session(&self, key: &str) -> Result<Option<Session>> {
        self.with(|db| {
            let sql = "SELECT id, key, body FROM sessions INDEXED BY sessions_key WHERE key = ?1";
            let mut select = db.prepare_cached(sql).doing(READING)?;
            let mut rows = select.query([key]).doing(READING)?;
            rows.next().doing(READING)?.map(session_at).transpose()
        })
    }

    fn sessions(&self, filter: &SessionFilter, after: Option<SessionId>, limit: usize) -> Result<SessionPage> {
        self.with(|db| list_sessions(db, filter, after, limit))
    }

    fn batch(&self, id: BatchId) -> Result<Option<(Batch, Blob)>> {
        self.with(|db| {
            let sql = "SELECT b.id, b.body, s.spec FROM batches b JOIN batch_specs s ON s.id = b.id WHERE b.id = ?1";
            let mut select = db.prepare_cached(sql).doing(READING)?;
            let mut rows = select.query([id.0.to_be_bytes()]).doing(READING)?;
            let Some(row) = rows.next().doing(READING)? else { return Ok(None) };
            let spec = blob_at(row, 2).doing(READING)?.unwrap_or_default();
            Ok(Some((batch_at(row)?, spec)))
        })
    }

    fn counts(&self) -> Result<Vec<(CountKey, CountDelta)>> {
        self.with(|db| load::counts(db))
    }

    fn flows(&self) -> Result<u64> {
        self.with(|db| {
            let mut select = db.prepare_cached("SELECT count(*) FROM flows").doing(READING)?;
            select.query_row([], |row| row.get(0)).map(number).doing(READING)
        })
    }

    fn happenings(&self, after: u64, limit: usize) -> Result<Vec<(u64, Vec<Happening>)>> {
        self.with(|db| {
            let sql = "SELECT seq, body FROM happenings WHERE seq > ?1 ORDER BY seq LIMIT ?2";
            let mut select = db.prepare_cached(sql).doing(READING)?;
            let mut rows = select.query(params![moment(after), limit as i64]).doing(READING)?;
            let mut commits = Vec::new();
            while let Some(row) = rows.next().doing(READING)? {
                commits.push(happenings_at(row)?);
            }
            Ok(commits)
        })
    }

    fn happenings_range(&self) -> Result<Option<(u64, u64)>> {
        self.with(|db| {
            // Two seeks; min and max in one SELECT would be a scan.
            let sql = "SELECT (SELECT min(seq) FROM happenings), (SELECT max(seq) FROM happenings)";
            let mut select = db.prepare_cached(sql).doing(READING)?;
            let range = select.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).doing(READING)?;
            let (first, last): (Option<i64>, Option<i64>) = range;
            Ok(first.map(number).zip(last.map(number)))
        })
    }

    fn delivery(&self, id: DeliveryId) -> Result<Option<Delivery>> {
        self.with(|db| outbox::one(db, id))
    }

    fn deliveries_due(&self, after: Option<(WallMs, DeliveryId)>, limit: usize) -> Result<Vec<Delivery>> {
        self.with(|db| outbox::due(db, after, limit))
    }

    fn deliveries(&self, filter: &DeliveryFilter, after: Option<DeliveryId>, limit: usize) -> Result<DeliveryPage> {
        self.with(|db| outbox::list(db, filter, after, limit, SCAN_MAX))
    }

    fn schedule(&self, id: ScheduleId) -> Result<Option<(Schedule, Blob)>> {
        self.with(|db| schedules::one(db, id))
    }

    fn schedule_named(&self, name: &str) -> Result<Option<ScheduleId>> {
        self.with(|db| schedules::named(db, name))
    }

    fn schedules(&self, filter: &ScheduleFilter, after: Option<ScheduleId>, limit: usize) -> Result<SchedulePage> {
        self.with(|db| schedules::list(db, filter, after, limit, SCAN_MAX))
    }

    fn schedule_counts(&self) -> Result<ScheduleCounts> {
        self.with(|db| schedules::counts(db))
    }

    fn runs(&self, schedule: ScheduleId, before: Option<u64>, limit: usize) -> Result<Vec<Run>> {
        self.with(|db| schedules::runs(db, schedule, before, limit))
    }

    fn setting(&self, name: &str) -> Result<Option<Blob>> {
        self.with(|db| {
            let mut select = db.prepare_cached("SELECT value FROM settings WHERE name = ?1").doing(READING)?;
            Ok(select.query_row([name], |row| blob_at(row, 0)).optional().doing(READING)?.flatten())
        })
    }

    fn workers(&self) -> Result<Vec<WorkerRow>> {
        self.with(|db| super::workers::load(db))
    }

    /// All pages in one step: the snapshot is held as long as that takes, and the log grows meanwhile. In several steps
    /// the copy would start over at each commit.
    fn backup(&self, to: &Path) -> Result<()> {
        let failed = |source: std::io::Error| Error::Driver { doing: "writing the backup", source: source.into() };
        if to.exists() {
            return Err(failed(std::io::Error::new(std::io::ErrorKind::AlreadyExists, "the file exists already")));
        }
        let mut part = to.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        new_private_file(&part).map_err(failed)?;
        self.with(|db| {
            let mut copy = Connection::open(&part).doing("writing the backup")?;
            Backup::new(db, &mut copy).and_then(|backup| backup.step(-1)).doing("writing the backup")?;
            copy.close().map_err(|(_, error)| error).doing("writing the backup")
        })?;
        std::fs::File::open(&part).and_then(|file| file.sync_all()).map_err(failed)?;
        std::fs::rename(&part, to).map_err(failed)
    }
}

/// An empty file that only its owner may read: payloads and results go into it, and the directory need not be private.
/// SQLite takes an empty file for a new database. What an earlier backup left half-written is begun anew.
fn new_private_file(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop)
}

fn doc_at(row: &Row<'_>) -> Result<TaskDoc> {
    let task = task_at(row)?;
    let key = key_at(row, N_TASK_COLUMNS)?.to_owned();
    let spec = blob_at(row, N_TASK_COLUMNS + 1).doing(READING)?;
    let result = blob_at(row, N_TASK_COLUMNS + 2).doing(READING)?;
    let session = row.get_ref(N_TASK_COLUMNS + 3).and_then(|key| Ok(key.as_str_or_null()?)).doing(READING)?;
    let session = session.map(Name::new);
    Ok(TaskDoc { task, agent: key.agent, lane: key.lane, kind: key.kind, tier: key.tier, session, spec, result })
}

/// Reads `task_seq, n, body, spec`.
fn message_at(task: TaskId, row: &Row<'_>) -> Result<(Message, Blob)> {
    let (task_seq, n) = (row.get(0).map(number).doing(READING)?, row.get(1).doing(READING)?);
    let body = row.get_ref(2).and_then(|body| Ok(body.as_blob()?)).doing(READING)?;
    let message = decode_message_body(MessagePlace { task, task_seq, n }, body)
        .ok_or_else(|| Error::Damaged { what: "a message's row", detail: format!("{n} of {task:?}") })?;
    Ok((message, blob_at(row, 3).doing(READING)?.unwrap_or_default()))
}

fn key_at<'row>(row: &'row Row<'_>, index: usize) -> Result<RowKeyRef<'row>> {
    let bytes = row.get_ref(index).and_then(|key| Ok(key.as_blob()?)).doing(READING)?;
    decode_row_key(bytes).ok_or_else(|| Error::Damaged { what: "a task's row", detail: "its key".to_owned() })
}

fn happenings_at(row: &Row<'_>) -> Result<(u64, Vec<Happening>)> {
    let seq = number(row.get(0).doing(READING)?);
    let body = row.get_ref(1).and_then(|body| Ok(body.as_blob()?)).doing(READING)?;
    let happenings = decode_happenings(body)
        .ok_or_else(|| Error::Damaged { what: "the event log", detail: format!("commit {seq}") })?;
    Ok((seq, happenings))
}

/// Looks at few columns of many rows, newest first, and reads whole rows only for what passes.
fn list(db: &Connection, filter: &Filter, after: Option<u64>, limit: usize) -> Result<Page> {
    const DOC: &str = concat!(doc_select!(), " WHERE t.seq = ?1");
    let mut select = db.prepare_cached(DOC).doing(READING)?;
    let mut items = Vec::new();
    let next = scan(db, filter, after, limit, |seq| {
        let mut rows = select.query([seq]).doing(READING)?;
        let doc = rows.next().doing(READING)?.map(doc_at).transpose()?;
        let n_bytes = doc.as_ref().map_or(0, TaskDoc::n_bytes);
        items.extend(doc);
        Ok(n_bytes)
    })?;
    Ok(Page { items, next })
}

fn list_ids(db: &Connection, filter: &Filter, after: Option<u64>, limit: usize) -> Result<IdPage> {
    let mut select = db.prepare_cached("SELECT id FROM tasks WHERE seq = ?1").doing(READING)?;
    let mut items = Vec::new();
    let next = scan(db, filter, after, limit, |seq| {
        let id: [u8; 16] = select.query_row([seq], |row| row.get(0)).doing(READING)?;
        items.push(TaskId(u128::from_be_bytes(id)));
        Ok(0)
    })?;
    Ok(IdPage { items, next })
}

/// In the order of their ids: an index for each filter would cost every session more than it gives the few who look.
fn list_sessions(
    db: &Connection,
    filter: &SessionFilter,
    after: Option<SessionId>,
    limit: usize,
) -> Result<SessionPage> {
    let sql = "SELECT id, key, body, n_live FROM sessions WHERE id < ?1 ORDER BY id DESC";
    let mut select = db.prepare_cached(sql).doing(READING)?;
    let mut rows = select.query([after.map_or(i64::MAX, |id| moment(id.0))]).doing(READING)?;
    let mut items = Vec::new();
    let (mut n_seen, mut last) = (0, None);
    while let Some(row) = rows.next().doing(READING)? {
        let passes = session_passes(row, filter).doing(READING)?;
        if n_seen == SCAN_MAX || passes && items.len() == limit {
            return Ok(SessionPage { items, next: last });
        }
        if passes {
            items.push(session_at(row)?);
        }
        n_seen += 1;
        last = Some(SessionId(row.get(0).map(number).doing(READING)?));
    }
    Ok(SessionPage { items, next: None })
}

fn session_passes(row: &Row<'_>, filter: &SessionFilter) -> rusqlite::Result<bool> {
    let key = row.get_ref(1)?.as_str()?;
    let is_busy = row.get::<_, i64>(3)? > 0;
    Ok((!filter.busy || is_busy) && filter.prefix.as_deref().is_none_or(|prefix| key.starts_with(prefix)))
}

/// Hands the seqs that pass to `take`, which says how many bytes it took. Gives where the next page goes on.
fn scan(
    db: &Connection,
    filter: &Filter,
    after: Option<u64>,
    limit: usize,
    mut take: impl FnMut(i64) -> Result<usize>,
) -> Result<Option<u64>> {
    let mut before = after.map_or(i64::MAX, integer);
    if let Some(at) = filter.created_before {
        before = before.min(first_created(db, moment(at))?);
    }
    let session = match &filter.session {
        Some(key) => match session_id(db, key)? {
            Some(id) => Some(id),
            None => return Ok(None),
        },
        None => None,
    };
    let scan = Scan::of(filter);
    let mut select = db.prepare_cached(scan.sql).doing(READING)?;
    select.raw_bind_parameter(1, before).doing(READING)?;
    scan.bind(&mut select, filter, session).doing(READING)?;
    let mut rows = select.raw_query();
    let (mut n_seen, mut n_taken, mut n_bytes) = (0, 0, 0);
    let mut last = None;
    while let Some(row) = rows.next().doing(READING)? {
        let seen = Seen::at(row)?;
        if filter.created_after.is_some_and(|at| seen.created_at <= at) {
            break;
        }
        let passes = seen.passes(filter);
        if n_seen == SCAN_MAX || passes && (n_taken == limit || n_bytes >= PAGE_BYTES_MAX) {
            return Ok(last.map(number));
        }
        if passes {
            n_bytes += take(seen.seq)?;
            n_taken += 1;
        }
        n_seen += 1;
        last = Some(seen.seq);
    }
    Ok(None)
}

fn session_id(db: &Connection, key: &str) -> Result<Option<i64>> {
    let mut select = db.prepare_cached("SELECT id FROM sessions WHERE key = ?1").doing(READING)?;
    select.query_row([key], |row| row.get(0)).optional().doing(READING)
}

/// Seqs follow time, so the first seq that was not created before `at` is found by halving.
fn first_created(db: &Connection, at: i64) -> Result<i64> {
    let mut select =
        db.prepare_cached("SELECT seq, created_at FROM tasks WHERE seq >= ?1 ORDER BY seq LIMIT 1").doing(READING)?;
    let last: Option<i64> = db.query_row("SELECT max(seq) FROM tasks", [], |row| row.get(0)).doing(READING)?;
    // Rows below `low` are all earlier than `at`, rows from `high` on are not.
    let (mut low, mut high) = (0, last.map_or(0, |last| last + 1));
    while low < high {
        let middle = low + (high - low) / 2;
        let found = select.query_row([middle], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))).optional();
        match found.doing(READING)? {
            Some((seq, created_at)) if created_at < at => low = seq + 1,
            _ => high = middle,
        }
    }
    Ok(high)
}

/// Which rows a list looks at: the fewest that hold all that can pass.
struct Scan {
    sql: &'static str,
    source: Source,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Batch,
    Session,
    Live,
    All,
}

impl Scan {
    fn of(filter: &Filter) -> Scan {
        if filter.batch.is_some() {
            let sql = "SELECT seq, phase, created_at, key FROM tasks INDEXED BY tasks_batch \
                       WHERE batch = ?2 AND batch IS NOT NULL AND seq < ?1 AND (?3 IS NULL OR session = ?3) \
                       ORDER BY seq DESC";
            return Scan { sql, source: Source::Batch };
        }
        if filter.session.is_some() {
            let sql = "SELECT seq, phase, created_at, key FROM tasks INDEXED BY tasks_session \
                       WHERE session = ?2 AND session IS NOT NULL AND seq < ?1 ORDER BY seq DESC";
            return Scan { sql, source: Source::Session };
        }
        if !filter.phases.is_empty() && filter.phases.iter().all(|phase| !phase.is_terminal()) {
            return Scan { sql: LIVE, source: Source::Live };
        }
        let sql = "SELECT seq, phase, created_at, key FROM tasks WHERE seq < ?1 ORDER BY seq DESC";
        Scan { sql, source: Source::All }
    }

    fn bind(
        &self,
        select: &mut rusqlite::Statement<'_>,
        filter: &Filter,
        session: Option<i64>,
    ) -> rusqlite::Result<()> {
        match self.source {
            Source::Batch => {
                select.raw_bind_parameter(2, filter.batch.map(|batch| batch.0.to_be_bytes()))?;
                select.raw_bind_parameter(3, session)
            }
            Source::Session => select.raw_bind_parameter(2, session),
            Source::Live => LIVE_PHASES.iter().enumerate().try_for_each(|(index, phase)| {
                // A phase nobody asked for is bound to one that no row has.
                let code = if filter.phases.contains(phase) { *phase as i64 } else { -1 };
                select.raw_bind_parameter(index + 2, code)
            }),
            Source::All => Ok(()),
        }
    }
}

const LIVE_PHASES: [Phase; 5] = [Phase::Waiting, Phase::Scheduled, Phase::Queued, Phase::Assigned, Phase::Running];

macro_rules! live {
    ($phase:literal) => {
        concat!(
            "SELECT seq, phase, created_at, key FROM tasks INDEXED BY tasks_live WHERE phase < 5 AND phase = ",
            $phase,
            " AND seq < ?1"
        )
    };
}

/// Five ranges of one index, merged row by row.
const LIVE: &str = concat!(
    live!("?2"),
    " UNION ALL ",
    live!("?3"),
    " UNION ALL ",
    live!("?4"),
    " UNION ALL ",
    live!("?5"),
    " UNION ALL ",
    live!("?6"),
    " ORDER BY seq DESC"
);

struct Seen<'row> {
    seq: i64,
    phase: u8,
    created_at: u64,
    key: RowKeyRef<'row>,
}

impl<'row> Seen<'row> {
    fn at(row: &'row Row<'_>) -> Result<Seen<'row>> {
        let columns = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2).map(number)?));
        let (seq, phase, created_at) = columns(row).doing(READING)?;
        Ok(Seen { seq, phase, created_at, key: key_at(row, 3)? })
    }

    /// Batch and session are not asked here: a scan for either sees its members only.
    fn passes(&self, filter: &Filter) -> bool {
        (filter.phases.is_empty() || filter.phases.iter().any(|phase| *phase as u8 == self.phase))
            && filter.agent.as_deref().is_none_or(|agent| agent == self.key.agent)
            && filter.lane.as_deref().is_none_or(|lane| lane == self.key.lane)
            && filter.kind.as_deref().is_none_or(|kind| kind == self.key.kind)
            && filter.tier.is_none_or(|tier| tier == self.key.tier)
            && filter.created_before.is_none_or(|at| self.created_at < at)
    }
}

const READING: &str = "reading rows";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_does_not_cost_a_connection() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store.db");
        Connection::open(&path).and_then(|db| db.execute_batch("CREATE TABLE one (a)")).expect("a database");
        let readers = Readers::new(&path);
        let read = std::panic::AssertUnwindSafe(|| readers.with(|_| -> Result<()> { panic!("as planned") }));
        assert!(std::panic::catch_unwind(read).is_err());
        let pool = readers.lock();
        assert_eq!((pool.idle.len(), pool.n_open), (1, 1));
    }
}
