//! Readers for everyone but the tick loop: a few connections, lent for one call each. A read whose connection breaks is asked
//! again on a new one, for as long as a lost connection is looked for.

use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use runyard_core::batch::Batch;
use runyard_core::event::Happening;
use runyard_core::ids::{BatchId, ScheduleId, TaskId};
use runyard_core::name::Blob;
use runyard_core::now::WallMs;
use runyard_core::outbox::{Delivery, DeliveryId};
use runyard_core::schedule::{Run, Schedule};
use runyard_core::session::{Message, Session, SessionId};
use runyard_core::task::Phase;
use runyard_core::worker::WorkerRow;
use runyard_core::write::{CountDelta, CountKey};

use super::column::{Column, Param, uuids};
use super::commit::seq_of;
use super::connect::{Address, Options, Purpose};
use super::link::Link;
use super::query::all;
use super::row::{
    Id, N_TASK_COLUMNS, Row, Tried, batch_at, blob_at, damaged, field, integer, moment, number, session_at, task_at,
    task_columns, text_at,
};
use super::store::Patience;
use super::{load, outbox, schedules, workers};
use crate::codec::{MessagePlace, RowKeyRef, decode_happenings, decode_message_body, decode_row_key};
use crate::store::{
    DeliveryFilter, DeliveryPage, Error, Filter, IdPage, PAGE_BYTES_MAX, Page, Reader, Result, ScheduleCounts,
    ScheduleFilter, SchedulePage, SessionFilter, SessionPage, TaskDoc,
};

pub struct Readers {
    address: Address,
    retry_for: Duration,
    pool: Mutex<Pool>,
    returned: Condvar,
}

#[derive(Default)]
struct Pool {
    idle: Vec<Link>,
    n_open: usize,
}

/// Beyond so many readers at once, the next one waits.
const READERS_MAX: usize = 8;

/// Rows one page of a filtered list looks at.
const SCAN_MAX: usize = 20_000;

impl Readers {
    pub fn new(options: &Options) -> Result<Readers> {
        let address = Address::of(options, Purpose::Read)?;
        Ok(Readers { address, retry_for: options.retry_for, pool: Mutex::default(), returned: Condvar::new() })
    }

    /// Asks on a connection that is lent for it. One that broke is thrown away with all that lie idle: they lead to the
    /// same server.
    pub fn with<T>(&self, mut read: impl FnMut(&mut Link) -> Tried<T>) -> Result<T> {
        let mut patience = Patience::new(self.retry_for);
        loop {
            match self.ask(&mut read) {
                Err(fault) if fault.is_lost() => {
                    self.close_idle();
                    patience.wait(fault)?;
                }
                answer => return Ok(answer?),
            }
        }
    }

    fn ask<T>(&self, read: &mut impl FnMut(&mut Link) -> Tried<T>) -> Tried<T> {
        let mut lent = Lent { readers: self, link: self.borrow() };
        let link = match &mut lent.link {
            Some(link) => link,
            none => none.insert(Link::open(&self.address)?),
        };
        let answer = read(link);
        // Whatever went wrong, a transaction may be left open on it.
        if answer.is_err() {
            lent.link = None;
        }
        answer
    }

    /// An idle one, or the right to open one.
    fn borrow(&self) -> Option<Link> {
        let mut pool = self.lock();
        loop {
            while let Some(link) = pool.idle.pop() {
                if !link.is_closed() {
                    return Some(link);
                }
                pool.n_open -= 1;
            }
            if pool.n_open < READERS_MAX {
                pool.n_open += 1;
                return None;
            }
            pool = self.returned.wait(pool).expect("no thread panics while it holds the pool");
        }
    }

    fn close_idle(&self) {
        let mut pool = self.lock();
        pool.n_open -= pool.idle.len();
        pool.idle.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().expect("no thread panics while it holds the pool")
    }
}

/// Its place in the pool is free again also when the read panics: a pool that loses a place with each panic ends up waiting
/// for ever.
struct Lent<'a> {
    readers: &'a Readers,
    link: Option<Link>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut pool = self.readers.lock();
        match self.link.take() {
            Some(link) if !std::thread::panicking() => pool.idle.push(link),
            _ => pool.n_open -= 1,
        }
        self.readers.returned.notify_one();
    }
}

/// What [`doc_at`] reads of a task in either table. By specs_pkey, sessions_pkey.
macro_rules! doc_select {
    ($table:literal) => {
        concat!(
            "SELECT ",
            task_columns!(),
            ", t.key, s.spec, t.result, g.key AS session_key FROM ",
            $table,
            " t LEFT JOIN specs s ON s.seq = t.seq LEFT JOIN sessions g ON g.id = t.session"
        )
    };
}

impl Reader for Readers {
    fn task(&self, id: TaskId) -> Result<Option<TaskDoc>> {
        // By tasks_id, tasks_done_id.
        const SQL: &str = concat!(
            doc_select!("tasks"),
            " WHERE t.id = $1::uuid UNION ALL ",
            doc_select!("tasks_done"),
            " WHERE t.id = $1::uuid LIMIT 1"
        );
        let rows = self.with(|link| link.query(READING, SQL, [Param::uuid(id.0)]))?;
        rows.first().map(doc_at).transpose()
    }

    fn tasks(&self, filter: &Filter, after: Option<u64>, limit: usize) -> Result<Page> {
        self.with(|link| in_one_snapshot(link, |link| list(link, filter, after, limit)))
    }

    fn task_ids(&self, filter: &Filter, after: Option<u64>, limit: usize) -> Result<IdPage> {
        self.with(|link| {
            in_one_snapshot(link, |link| {
                let found = scan(link, filter, after, limit)?;
                Ok(IdPage { items: found.tasks.iter().map(|(_, id)| TaskId(*id)).collect(), next: found.next })
            })
        })
    }

    fn messages(&self, id: TaskId) -> Result<Vec<(Message, Blob)>> {
        const SQL: &str = concat!(
            "SELECT m.task_seq, m.n, m.body, m.spec FROM messages m WHERE m.task_seq = ",
            seq_of!("$1::uuid"),
            " ORDER BY m.n"
        );
        let rows = self.with(|link| link.query(READING, SQL, [Param::uuid(id.0)]))?;
        all(&rows, |row| message_at(id, row))
    }

    fn session(&self, key: &str) -> Result<Option<Session>> {
        let sql = "SELECT id, key, body FROM sessions WHERE key = $1::bytea";
        let rows = self.with(|link| link.query(READING, sql, [Param::bytes(key.as_bytes())]))?;
        rows.first().map(session_at).transpose()
    }

    fn sessions(&self, filter: &SessionFilter, after: Option<SessionId>, limit: usize) -> Result<SessionPage> {
        self.with(|link| list_sessions(link, filter, after, limit))
    }

    fn batch(&self, id: BatchId) -> Result<Option<(Batch, Blob)>> {
        let sql = "SELECT b.id, b.body, s.spec FROM batches b JOIN batch_specs s ON s.id = b.id WHERE b.id = $1::uuid";
        let rows = self.with(|link| link.query(READING, sql, [Param::uuid(id.0)]))?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some((batch_at(row)?, blob_at(row, 2)?.unwrap_or_default())))
    }

    fn counts(&self) -> Result<Vec<(CountKey, CountDelta)>> {
        all(&self.with(|link| link.query(READING, load::COUNTS, []))?, load::count_at)
    }

    fn flows(&self) -> Result<u64> {
        let rows = self.with(|link| link.query(READING, "SELECT count(*) FROM flows", []))?;
        rows.first().map_or(Ok(0), |row| field(row, 0)).map(number)
    }

    fn happenings(&self, after: u64, limit: usize) -> Result<Vec<(u64, Vec<Happening>)>> {
        let sql = "SELECT seq, body FROM happenings WHERE seq > $1::bigint ORDER BY seq LIMIT $2::bigint";
        let params = [moment(after), limit as i64].map(Param::bigint);
        let rows = self.with(|link| link.query(READING, sql, params.clone()))?;
        all(&rows, happenings_at)
    }

    fn happenings_range(&self) -> Result<Option<(u64, u64)>> {
        // Two seeks.
        let sql = "SELECT (SELECT min(seq) FROM happenings), (SELECT max(seq) FROM happenings)";
        let rows = self.with(|link| link.query(READING, sql, []))?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (first, last): (Option<i64>, Option<i64>) = (field(row, 0)?, field(row, 1)?);
        Ok(first.map(number).zip(last.map(number)))
    }

    fn delivery(&self, id: DeliveryId) -> Result<Option<Delivery>> {
        self.with(|link| outbox::one(link, id))
    }

    fn deliveries_due(&self, after: Option<(WallMs, DeliveryId)>, limit: usize) -> Result<Vec<Delivery>> {
        self.with(|link| outbox::due(link, after, limit))
    }

    fn deliveries(&self, filter: &DeliveryFilter, after: Option<DeliveryId>, limit: usize) -> Result<DeliveryPage> {
        self.with(|link| outbox::list(link, filter, after, limit, SCAN_MAX))
    }

    fn schedule(&self, id: ScheduleId) -> Result<Option<(Schedule, Blob)>> {
        self.with(|link| schedules::one(link, id))
    }

    fn schedule_named(&self, name: &str) -> Result<Option<ScheduleId>> {
        self.with(|link| schedules::named(link, name))
    }

    fn schedules(&self, filter: &ScheduleFilter, after: Option<ScheduleId>, limit: usize) -> Result<SchedulePage> {
        self.with(|link| schedules::list(link, filter, after, limit, SCAN_MAX))
    }

    fn schedule_counts(&self) -> Result<ScheduleCounts> {
        self.with(schedules::counts)
    }

    fn runs(&self, schedule: ScheduleId, before: Option<u64>, limit: usize) -> Result<Vec<Run>> {
        self.with(|link| schedules::runs(link, schedule, before, limit))
    }

    fn setting(&self, name: &str) -> Result<Option<Blob>> {
        let sql = "SELECT value FROM settings WHERE name = $1::text";
        let rows = self.with(|link| link.query(READING, sql, [Param::bytes(name.as_bytes())]))?;
        rows.first().map_or(Ok(None), |row| blob_at(row, 0))
    }

    fn workers(&self) -> Result<Vec<WorkerRow>> {
        all(&self.with(|link| link.query(READING, workers::ALL, []))?, workers::worker_at)
    }

    /// The database has tools of its own for this, and they know its other contents too.
    fn backup(&self, _to: &Path) -> Result<()> {
        Err(Error::Driver {
            doing: "copying a PostgreSQL database",
            source: "use pg_dump or pg_basebackup for it".into(),
        })
    }
}

/// A task that ends between two statements must not be missing from both tables.
fn in_one_snapshot<T>(link: &mut Link, read: impl FnOnce(&mut Link) -> Tried<T>) -> Tried<T> {
    link.query(READING, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY", [])?;
    let answer = read(link)?;
    link.query(READING, "COMMIT", [])?;
    Ok(answer)
}

fn doc_at(row: &Row) -> Result<TaskDoc> {
    let task = task_at(row)?;
    let key = key_at(row, N_TASK_COLUMNS)?.to_owned();
    let spec = blob_at(row, N_TASK_COLUMNS + 1)?;
    let result = blob_at(row, N_TASK_COLUMNS + 2)?;
    let session = match field::<Option<&[u8]>>(row, N_TASK_COLUMNS + 3)? {
        Some(_) => Some(text_at(row, N_TASK_COLUMNS + 3)?),
        None => None,
    };
    Ok(TaskDoc { task, agent: key.agent, lane: key.lane, kind: key.kind, tier: key.tier, session, spec, result })
}

/// Reads `task_seq, n, body, spec`.
fn message_at(task: TaskId, row: &Row) -> Result<(Message, Blob)> {
    let (task_seq, n) = (number(field(row, 0)?), field::<i32>(row, 1)? as u32);
    let message = decode_message_body(MessagePlace { task, task_seq, n }, field(row, 2)?)
        .ok_or_else(|| damaged("a message's row", format!("{n} of {task:?}")))?;
    Ok((message, blob_at(row, 3)?.unwrap_or_default()))
}

fn key_at(row: &Row, index: usize) -> Result<RowKeyRef<'_>> {
    decode_row_key(field(row, index)?).ok_or_else(|| damaged("a task's row", "its key".to_owned()))
}

fn happenings_at(row: &Row) -> Result<(u64, Vec<Happening>)> {
    let seq = number(field(row, 0)?);
    let happenings =
        decode_happenings(field(row, 1)?).ok_or_else(|| damaged("the event log", format!("commit {seq}")))?;
    Ok((seq, happenings))
}

/// Looks at few columns of many rows, newest first, and reads whole rows only for what passes, as many as fit on a page.
fn list(link: &mut Link, filter: &Filter, after: Option<u64>, limit: usize) -> Tried<Page> {
    // By tasks_id, tasks_done_id.
    const DOCS: &str = concat!(
        "SELECT t.* FROM unnest($1::uuid[]) WITH ORDINALITY AS w(id, n) CROSS JOIN LATERAL (",
        doc_select!("tasks"),
        " WHERE t.id = w.id UNION ALL ",
        doc_select!("tasks_done"),
        " WHERE t.id = w.id LIMIT 1) t ORDER BY w.n"
    );
    let mut found = scan(link, filter, after, limit)?;
    cut_to_size(link, &mut found)?;
    let rows = link.query(READING, DOCS, [uuids(found.tasks.iter().map(|(_, id)| *id))])?;
    Ok(Page { items: all(&rows, doc_at)?, next: found.next })
}

/// Nobody reads a payload to learn its size.
fn cut_to_size(link: &mut Link, found: &mut Found) -> Tried<()> {
    const SIZES: &str = "SELECT coalesce(octet_length(s.spec), 0)::bigint + coalesce(t.n_bytes, 0) \
                         FROM unnest($1::uuid[], $2::bigint[]) WITH ORDINALITY AS w(id, seq, n) CROSS JOIN LATERAL \
                         (SELECT octet_length(t.result) AS n_bytes FROM tasks t WHERE t.id = w.id UNION ALL \
                         SELECT octet_length(t.result) FROM tasks_done t WHERE t.id = w.id LIMIT 1) t \
                         LEFT JOIN specs s ON s.seq = w.seq ORDER BY w.n";
    let (mut ids, mut seqs) = (Column::uuid(found.tasks.len()), Column::bigint(found.tasks.len()));
    for (seq, id) in &found.tasks {
        ids.push_id(*id);
        seqs.push_i64(*seq);
    }
    let mut n_bytes = 0;
    for (index, row) in link.query(READING, SIZES, [ids, seqs].map(Param::from))?.iter().enumerate() {
        if n_bytes >= PAGE_BYTES_MAX as i64 {
            found.next = Some(number(found.tasks[index].0) + 1);
            found.tasks.truncate(index);
            return Ok(());
        }
        n_bytes += field::<i64>(row, 0)?;
    }
    Ok(())
}

/// In the order of their ids: an index for each filter would cost every session more than it gives the few who look.
fn list_sessions(
    link: &mut Link,
    filter: &SessionFilter,
    after: Option<SessionId>,
    limit: usize,
) -> Tried<SessionPage> {
    let sql = "SELECT id, key, body, n_live FROM sessions WHERE id < $1::bigint ORDER BY id DESC LIMIT $2::bigint";
    let mut before = after.map_or(i64::MAX, |id| moment(id.0));
    let (mut items, mut n_seen, mut last) = (Vec::new(), 0, None);
    let mut pages = Pages::of(limit);
    loop {
        let page = pages.next_size();
        let rows = link.query(READING, sql, [before, page as i64].map(Param::bigint))?;
        for row in &rows {
            let passes = session_passes(row, filter)?;
            if n_seen == SCAN_MAX || passes && items.len() == limit {
                return Ok(SessionPage { items, next: last });
            }
            if passes {
                items.push(session_at(row)?);
            }
            n_seen += 1;
            before = field(row, 0)?;
            last = Some(SessionId(number(before)));
        }
        if rows.len() < page {
            return Ok(SessionPage { items, next: None });
        }
    }
}

fn session_passes(row: &Row, filter: &SessionFilter) -> Result<bool> {
    let key: &[u8] = field(row, 1)?;
    let is_busy = field::<i32>(row, 3)? > 0;
    Ok((!filter.busy || is_busy) && filter.prefix.as_deref().is_none_or(|prefix| key.starts_with(prefix.as_bytes())))
}

/// A short list is read in one go; one that few pass, in larger and larger ones.
struct Pages(usize);

impl Pages {
    fn of(limit: usize) -> Pages {
        Pages(limit.saturating_add(1).clamp(64, 4096))
    }

    fn next_size(&mut self) -> usize {
        let size = self.0;
        self.0 = (size * 4).min(8192);
        size
    }
}

/// What a scan found: (seq, id) of what passes, and where the next page goes on.
struct Found {
    tasks: Vec<(i64, u128)>,
    next: Option<u64>,
}

fn scan(link: &mut Link, filter: &Filter, after: Option<u64>, limit: usize) -> Tried<Found> {
    let mut found = Found { tasks: Vec::new(), next: None };
    let mut before = after.map_or(i64::MAX, integer);
    if let Some(at) = filter.created_before {
        before = before.min(first_created(link, moment(at))?);
    }
    let session = match &filter.session {
        Some(key) => match session_id(link, key)? {
            Some(id) => Some(id),
            None => return Ok(found),
        },
        None => None,
    };
    let (mut n_seen, mut last) = (0, None);
    let mut pages = Pages::of(limit);
    loop {
        let page = pages.next_size();
        let rows = look_at(link, filter, session, before, page)?;
        for row in &rows {
            let seen = Seen::at(row)?;
            if filter.created_after.is_some_and(|at| seen.created_at <= at) {
                return Ok(found);
            }
            let passes = seen.passes(filter);
            if n_seen == SCAN_MAX || passes && found.tasks.len() == limit {
                found.next = last.map(number);
                return Ok(found);
            }
            if passes {
                found.tasks.push((seen.seq, seen.id));
            }
            n_seen += 1;
            before = seen.seq;
            last = Some(seen.seq);
        }
        if rows.len() < page {
            return Ok(found);
        }
    }
}

/// The next rows downwards, of the fewest that hold all that can pass.
fn look_at(link: &mut Link, filter: &Filter, session: Option<i64>, before: i64, limit: usize) -> Tried<Vec<Row>> {
    let (before, limit) = (Param::bigint(before), Param::bigint(limit as i64));
    let session_param = session.map_or(Param::NULL, Param::bigint);
    if let Some(batch) = filter.batch {
        return link.query(READING, SEEN_BATCH, [before, limit, Param::uuid(batch.0), session_param]);
    }
    if session.is_some() {
        return link.query(READING, SEEN_SESSION, [before, limit, session_param]);
    }
    let is_asked = |phase: &Phase| filter.phases.is_empty() || filter.phases.contains(phase);
    let mut live = Column::smallint(Phase::ALL.len());
    Phase::ALL
        .iter()
        .filter(|phase| !phase.is_terminal() && is_asked(phase))
        .for_each(|phase| live.push_i16(*phase as i16));
    let ended = Phase::ALL.iter().any(|phase| phase.is_terminal() && is_asked(phase));
    link.query(READING, SEEN, [before, limit, live.into(), Param::bool(ended)])
}

/// By tasks_phase, one range for each phase, and tasks_done_seq.
const SEEN: &str = "SELECT * FROM (\
    SELECT t.seq, t.id, t.phase, t.created_at, t.key FROM unnest($3::smallint[]) AS p(phase) CROSS JOIN LATERAL \
    (SELECT t.* FROM tasks t WHERE t.phase = p.phase AND t.seq < $1::bigint ORDER BY t.phase DESC, t.seq DESC \
    LIMIT $2::bigint) t UNION ALL \
    (SELECT t.seq, t.id, t.phase, t.created_at, t.key FROM tasks_done t WHERE $4::boolean AND t.seq < $1::bigint \
    ORDER BY t.seq DESC LIMIT $2::bigint)) seen ORDER BY seq DESC LIMIT $2::bigint";

/// By tasks_batch, tasks_done_batch.
const SEEN_BATCH: &str = "SELECT * FROM (\
    (SELECT t.seq, t.id, t.phase, t.created_at, t.key FROM tasks t WHERE t.batch = $3::uuid AND t.batch IS NOT NULL \
    AND t.seq < $1::bigint AND ($4::bigint IS NULL OR t.session = $4::bigint) ORDER BY t.seq DESC LIMIT $2::bigint) \
    UNION ALL (SELECT t.seq, t.id, t.phase, t.created_at, t.key FROM tasks_done t WHERE t.batch = $3::uuid \
    AND t.batch IS NOT NULL AND t.seq < $1::bigint AND ($4::bigint IS NULL OR t.session = $4::bigint) \
    ORDER BY t.seq DESC LIMIT $2::bigint)) seen ORDER BY seq DESC LIMIT $2::bigint";

/// By tasks_session, tasks_done_session.
const SEEN_SESSION: &str = "SELECT * FROM (\
    (SELECT t.seq, t.id, t.phase, t.created_at, t.key FROM tasks t WHERE t.session = $3::bigint \
    AND t.session IS NOT NULL AND t.seq < $1::bigint ORDER BY t.seq DESC LIMIT $2::bigint) UNION ALL \
    (SELECT t.seq, t.id, t.phase, t.created_at, t.key FROM tasks_done t WHERE t.session = $3::bigint \
    AND t.session IS NOT NULL AND t.seq < $1::bigint ORDER BY t.seq DESC LIMIT $2::bigint)) seen \
    ORDER BY seq DESC LIMIT $2::bigint";

fn session_id(link: &mut Link, key: &str) -> Tried<Option<i64>> {
    let sql = "SELECT id FROM sessions WHERE key = $1::bytea";
    let rows = link.query(READING, sql, [Param::bytes(key.as_bytes())])?;
    Ok(rows.first().map(|row| field(row, 0)).transpose()?)
}

/// Seqs follow time, so the first seq that was not created before `at` is found by halving. By tasks_phase, tasks_done_seq.
fn first_created(link: &mut Link, at: i64) -> Tried<i64> {
    const LAST: &str = "SELECT max(seq) FROM (SELECT (SELECT t.seq FROM tasks t WHERE t.phase = p.phase \
                        ORDER BY t.phase DESC, t.seq DESC LIMIT 1) AS seq FROM generate_series(0, 4) AS p(phase) UNION ALL \
                        SELECT max(seq) FROM tasks_done) last";
    const NEXT: &str = "SELECT seq, created_at FROM (SELECT t.seq, t.created_at FROM generate_series(0, 4) AS p(phase) \
                        CROSS JOIN LATERAL (SELECT t.seq, t.created_at FROM tasks t WHERE t.phase = p.phase::smallint \
                        AND t.seq >= $1::bigint ORDER BY t.phase, t.seq LIMIT 1) t UNION ALL \
                        (SELECT seq, created_at FROM tasks_done WHERE seq >= $1::bigint ORDER BY seq LIMIT 1)) next \
                        ORDER BY seq LIMIT 1";
    let last = link.query(READING, LAST, [])?;
    let last: Option<i64> = last.first().map_or(Ok(None), |row| field(row, 0))?;
    // Rows below `low` are all earlier than `at`, rows from `high` on are not.
    let (mut low, mut high) = (0, last.map_or(0, |last| last + 1));
    while low < high {
        let middle = low + (high - low) / 2;
        let found = link.query(READING, NEXT, [Param::bigint(middle)])?;
        let (mut seq, mut created_at) = (0_i64, i64::MAX);
        if let Some(row) = found.first() {
            (seq, created_at) = (field(row, 0)?, field(row, 1)?);
        }
        match created_at < at {
            true => low = seq + 1,
            false => high = middle,
        }
    }
    Ok(high)
}

struct Seen<'row> {
    seq: i64,
    id: u128,
    phase: i16,
    created_at: u64,
    key: RowKeyRef<'row>,
}

impl<'row> Seen<'row> {
    fn at(row: &'row Row) -> Result<Seen<'row>> {
        let Id(id) = field(row, 1)?;
        Ok(Seen {
            seq: field(row, 0)?,
            id,
            phase: field(row, 2)?,
            created_at: number(field(row, 3)?),
            key: key_at(row, 4)?,
        })
    }

    /// Batch and session are not asked here: a scan for either sees its members only.
    fn passes(&self, filter: &Filter) -> bool {
        (filter.phases.is_empty() || filter.phases.iter().any(|phase| *phase as i16 == self.phase))
            && filter.agent.as_deref().is_none_or(|agent| agent == self.key.agent)
            && filter.lane.as_deref().is_none_or(|lane| lane == self.key.lane)
            && filter.kind.as_deref().is_none_or(|kind| kind == self.key.kind)
            && filter.tier.is_none_or(|tier| tier == self.key.tier)
            && filter.created_before.is_none_or(|at| self.created_at < at)
    }
}

const READING: &str = "reading rows";
