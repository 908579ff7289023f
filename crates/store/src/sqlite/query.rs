//! What the tick loop reads. Each statement names the index it relies on; SQLite refuses the statement if it cannot use it.
//!
//! "After (rank, seq)" is asked in two statements, the rest of that rank and then the ranks behind it. As one comparison
//! of pairs SQLite seeks by the rank alone and walks over every seq before the wanted one, because seq is the row's own
//! number: a queue of ten million would be read from its beginning at each refill.

use std::ops::Range;

use runyard_core::event::{Due, Idempotency, IdempotencyRow, Release, Rest};
use runyard_core::ids::TaskId;
use runyard_core::name::Blob;
use runyard_core::now::Clock;
use runyard_core::session::{Session, SessionId};
use runyard_core::task::{State, Task, Wait};
use runyard_core::write::{Needs, Rows};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::row::{Doing, batch_at, blob_at, id_at, integer, moment, number, session_at, task_at, task_columns};
use super::schedules;
use crate::codec::decode_answer;
use crate::store::{Error, FlowRows, FlowWant, Result};

pub fn fetch(db: &Connection, needs: &Needs) -> Result<Rows> {
    let mut rows = Rows::default();
    // By tasks_id.
    const TASK: &str = concat!("SELECT ", task_columns!(), " FROM tasks t WHERE t.id = ?1");
    for id in &needs.tasks {
        rows.tasks.extend(one(db, TASK, [id.0.to_be_bytes()], task_at)?);
    }
    for id in &needs.batches {
        rows.batches.extend(one(db, "SELECT id, body FROM batches WHERE id = ?1", [id.0.to_be_bytes()], batch_at)?);
    }
    rows.sessions = sessions(db, needs)?;
    rows.schedules = schedules::fetch(db, needs)?;
    for key in &needs.keys {
        rows.keys.extend(idempotency(db, key)?);
    }
    Ok(rows)
}

/// A tick of a busy yard names thousands of keys, so each statement is looked up once and not for each key.
fn sessions(db: &Connection, needs: &Needs) -> Result<Vec<Session>> {
    let mut sessions = Vec::new();
    if !needs.sessions.is_empty() {
        let mut select = db.prepare_cached("SELECT id, key, body FROM sessions WHERE id = ?1").doing(READING)?;
        for id in &needs.sessions {
            let mut rows = select.query([integer(id.0)]).doing(READING)?;
            sessions.extend(rows.next().doing(READING)?.map(session_at).transpose()?);
        }
    }
    if !needs.session_keys.is_empty() {
        let sql = "SELECT id, key, body FROM sessions INDEXED BY sessions_key WHERE key = ?1";
        let mut select = db.prepare_cached(sql).doing(READING)?;
        for key in &needs.session_keys {
            let mut rows = select.query([key.as_str()]).doing(READING)?;
            sessions.extend(rows.next().doing(READING)?.map(session_at).transpose()?);
        }
    }
    Ok(sessions)
}

/// The hash that comes back is the stored one: whether it is the same body is not the store's to judge.
fn idempotency(db: &Connection, wanted: &Idempotency) -> Result<Option<IdempotencyRow>> {
    let sql = "SELECT hash, created_at, answer FROM keys WHERE agent = ?1 AND key = ?2";
    one(db, sql, params![wanted.agent.as_str(), wanted.key.as_str()], |row| {
        let columns = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let (hash, created_at, answer): (i64, i64, Vec<u8>) = columns(row).doing(READING)?;
        let answer = decode_answer(&answer).ok_or_else(|| Error::Damaged {
            what: "an idempotency key's row",
            detail: format!("{} of {}", wanted.key, wanted.agent),
        })?;
        let key = Idempotency { hash: number(hash), ..wanted.clone() };
        Ok(IdempotencyRow { key, answer, created_at: number(created_at) })
    })
}

pub fn flow_rows(db: &Connection, want: &FlowWant) -> Result<FlowRows> {
    // One more than asked for, to know whether there is more.
    let mut rows = queued_after(db, want, want.limit.saturating_add(1))?;
    let rest = if rows.len() > want.limit { Rest::More } else { Rest::Done };
    rows.truncate(want.limit);
    let oldest = oldest(db, integer(want.flow.0))?.map(Box::new);
    Ok(FlowRows { flow: want.flow, rows, oldest, rest })
}

fn queued_after(db: &Connection, want: &FlowWant, limit: usize) -> Result<Vec<Task>> {
    const SAME_RANK: &str = concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks t INDEXED BY tasks_queued WHERE t.phase = 2 AND t.flow = ?1 AND t.rank = ?2 AND t.seq > ?3",
        " ORDER BY t.seq LIMIT ?4"
    );
    const LATER_RANKS: &str = concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks t INDEXED BY tasks_queued WHERE t.phase = 2 AND t.flow = ?1 AND t.rank > ?2",
        " ORDER BY t.rank, t.seq LIMIT ?3"
    );
    let flow = integer(want.flow.0);
    let mut rows = Vec::new();
    if let Some((rank, seq)) = want.after {
        rows = many(db, SAME_RANK, params![flow, rank, integer(seq), limit as i64], task_at)?;
    }
    if rows.len() < limit {
        let rank = want.after.map_or(i64::MIN, |(rank, _)| i64::from(rank));
        rows.extend(many(db, LATER_RANKS, params![flow, rank, (limit - rows.len()) as i64], task_at)?);
    }
    Ok(rows)
}

/// The first of rank 0 and the first of any other rank, whichever is older.
fn oldest(db: &Connection, flow: i64) -> Result<Option<Task>> {
    const PLAIN: &str = concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks t INDEXED BY tasks_queued WHERE t.phase = 2 AND t.flow = ?1 AND t.rank = 0",
        " ORDER BY t.seq LIMIT 1"
    );
    const RANKED: &str = concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks t INDEXED BY tasks_ranked WHERE t.phase = 2 AND t.rank <> 0 AND t.flow = ?1",
        " ORDER BY t.seq LIMIT 1"
    );
    let plain = one(db, PLAIN, [flow], task_at)?;
    let ranked = one(db, RANKED, [flow], task_at)?;
    Ok(plain.into_iter().chain(ranked).min_by_key(|task| task.seq))
}

pub fn dues(db: &Connection, clock: Clock, after: Option<Due>, limit: usize) -> Result<Vec<Due>> {
    let (same_moment, later) = match clock {
        Clock::Wall => (
            "SELECT wall_due, seq, id FROM tasks INDEXED BY tasks_wall_due \
             WHERE wall_due = ?1 AND wall_due IS NOT NULL AND seq > ?2 ORDER BY seq LIMIT ?3",
            "SELECT wall_due, seq, id FROM tasks INDEXED BY tasks_wall_due \
             WHERE wall_due > ?1 AND wall_due IS NOT NULL ORDER BY wall_due, seq LIMIT ?2",
        ),
        Clock::Steady => (
            "SELECT steady_due, seq, id FROM tasks INDEXED BY tasks_steady_due \
             WHERE steady_due = ?1 AND steady_due IS NOT NULL AND seq > ?2 ORDER BY seq LIMIT ?3",
            "SELECT steady_due, seq, id FROM tasks INDEXED BY tasks_steady_due \
             WHERE steady_due > ?1 AND steady_due IS NOT NULL ORDER BY steady_due, seq LIMIT ?2",
        ),
    };
    let mut dues = Vec::new();
    if let Some(due) = after {
        dues = many(db, same_moment, params![moment(due.at_ms), integer(due.seq), limit as i64], due_at)?;
    }
    if dues.len() < limit {
        let at_ms = after.map_or(-1, |due| moment(due.at_ms));
        dues.extend(many(db, later, params![at_ms, (limit - dues.len()) as i64], due_at)?);
    }
    Ok(dues)
}

fn due_at(row: &Row<'_>) -> Result<Due> {
    let (at_ms, seq) = (row.get(0).doing(READING)?, row.get(1).doing(READING)?);
    Ok(Due { at_ms: number(at_ms), seq: number(seq), task: TaskId(id_at(row, 2)?) })
}

pub fn released(db: &Connection, release: &Release, limit: usize) -> Result<Vec<Task>> {
    const CHILDREN: &str = concat!(
        "SELECT ",
        task_columns!(),
        " FROM edges e CROSS JOIN tasks t ON t.seq = e.child WHERE e.parent = ?1 ORDER BY e.child LIMIT ?2"
    );
    const MEMBERS: &str = concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks t INDEXED BY tasks_batch_waiting WHERE t.phase = 0 AND t.batch = ?1 AND t.batch IS NOT NULL",
        " ORDER BY t.seq"
    );
    match *release {
        Release::Parent { parent, .. } => many(db, CHILDREN, params![parent.0.to_be_bytes(), limit as i64], task_at),
        // A batch has at most a thousand members, so those that wait for something else are passed over here.
        Release::BatchPlace { batch } => {
            let mut members = many(db, MEMBERS, [batch.0.to_be_bytes()], task_at)?;
            members.retain(|task| task.state == State::Waiting(Wait::BatchPlace));
            members.truncate(limit);
            Ok(members)
        }
        Release::SessionStop { session, before, from, .. } => members_live(db, session, from..before, limit),
        Release::SessionShrink { session } => members_seated(db, session, limit),
        Release::SessionSeat { session } | Release::SessionOverflow { session } => line(db, session, limit),
        Release::SessionReview { .. } | Release::RunEnded { .. } => Ok(Vec::new()),
    }
}

/// The index holds a session's whole history: the walk begins at `seqs.start`, which the core keeps near.
fn members_live(db: &Connection, session: SessionId, seqs: Range<u64>, limit: usize) -> Result<Vec<Task>> {
    const SQL: &str = concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks t INDEXED BY tasks_session WHERE t.session = ?1 AND t.session IS NOT NULL",
        " AND t.seq >= ?2 AND t.seq < ?3 AND t.phase < 5 ORDER BY t.seq LIMIT ?4"
    );
    let (from, before) = (moment(seqs.start), moment(seqs.end));
    many(db, SQL, params![integer(session.0), from, before, limit as i64], task_at)
}

/// Those that wait for a place or are queued. No live member stands before the session's `live_from`, so the walk begins
/// there.
fn members_seated(db: &Connection, session: SessionId, limit: usize) -> Result<Vec<Task>> {
    const SQL: &str = concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks t INDEXED BY tasks_session WHERE t.session = ?1 AND t.session IS NOT NULL",
        " AND t.seq >= ?2 AND t.phase IN (0, 2) ORDER BY t.seq"
    );
    let id = integer(session.0);
    let row = one(db, "SELECT id, key, body FROM sessions WHERE id = ?1", [id], session_at)?;
    let from = row.map_or(0, |session| moment(session.live_from));
    let mut select = db.prepare_cached(SQL).doing(READING)?;
    let mut rows = select.query([id, from]).doing(READING)?;
    let mut members = Vec::new();
    while members.len() < limit
        && let Some(row) = rows.next().doing(READING)?
    {
        members.extend(Some(task_at(row)?).filter(|task| task.member.is_some_and(|member| member.seated)));
    }
    Ok(members)
}

fn line(db: &Connection, session: SessionId, limit: usize) -> Result<Vec<Task>> {
    const SQL: &str = concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks t INDEXED BY tasks_line WHERE t.session = ?1 AND t.line IS NOT NULL ORDER BY t.line LIMIT ?2"
    );
    many(db, SQL, params![integer(session.0), limit as i64], task_at)
}

pub fn sessions_after(db: &Connection, after: SessionId, limit: usize) -> Result<Vec<Session>> {
    let sql = "SELECT id, key, body FROM sessions WHERE id > ?1 ORDER BY id LIMIT ?2";
    many(db, sql, params![moment(after.0), limit as i64], session_at)
}

pub fn merged(db: &Connection, task: TaskId) -> Result<Vec<Blob>> {
    let sql = "SELECT m.spec FROM tasks t CROSS JOIN messages m ON m.task_seq = t.seq WHERE t.id = ?1 ORDER BY m.n";
    many(db, sql, [task.0.to_be_bytes()], spec_at)
}

pub fn dropped(db: &Connection, session: SessionId, from: u64, to: u64) -> Result<Vec<Blob>> {
    let sql = "SELECT task_seq FROM session_drops WHERE session = ?1 AND n >= ?2 AND n < ?3 ORDER BY n";
    let seq = |row: &Row<'_>| row.get::<_, i64>(0).doing(READING);
    let mut specs = Vec::new();
    for seq in many(db, sql, params![integer(session.0), moment(from), moment(to)], seq)? {
        specs.extend(one(db, "SELECT spec FROM specs WHERE seq = ?1", [seq], spec_at)?);
        specs.extend(many(db, "SELECT spec FROM messages WHERE task_seq = ?1 ORDER BY n", [seq], spec_at)?);
    }
    Ok(specs)
}

fn spec_at(row: &Row<'_>) -> Result<Blob> {
    Ok(blob_at(row, 0).doing(READING)?.unwrap_or_default())
}

pub fn specs(db: &Connection, tasks: &[TaskId]) -> Result<Vec<Option<Blob>>> {
    let sql = "SELECT s.spec FROM tasks t CROSS JOIN specs s ON s.seq = t.seq WHERE t.id = ?1";
    let mut select = db.prepare_cached(sql).doing("reading specs")?;
    let spec = |id: &TaskId| {
        let spec = select.query_row([id.0.to_be_bytes()], |row| blob_at(row, 0)).optional();
        Ok(spec.doing("reading specs")?.flatten())
    };
    tasks.iter().map(spec).collect()
}

pub fn n_ahead(db: &Connection, task: &Task, limit: u32) -> Result<u32> {
    const EARLIER_RANKS: &str = "SELECT count(*) FROM (SELECT 1 FROM tasks INDEXED BY tasks_queued \
                                 WHERE phase = 2 AND flow = ?1 AND rank < ?2 LIMIT ?3)";
    const SAME_RANK: &str = "SELECT count(*) FROM (SELECT 1 FROM tasks INDEXED BY tasks_queued \
                             WHERE phase = 2 AND flow = ?1 AND rank = ?2 AND seq < ?4 LIMIT ?3)";
    let (flow, rank, seq) = (integer(task.flow.0), task.rank, integer(task.seq));
    let count = |row: &Row<'_>| row.get::<_, u32>(0).doing(READING);
    let earlier = one(db, EARLIER_RANKS, params![flow, rank, limit], count)?.unwrap_or(0);
    let same = one(db, SAME_RANK, params![flow, rank, limit - earlier, seq], count)?.unwrap_or(0);
    Ok(earlier + same)
}

fn one<T>(db: &Connection, sql: &str, params: impl Params, read: impl Fn(&Row<'_>) -> Result<T>) -> Result<Option<T>> {
    let mut statement = db.prepare_cached(sql).doing(READING)?;
    let mut rows = statement.query(params).doing(READING)?;
    rows.next().doing(READING)?.map(read).transpose()
}

fn many<T>(db: &Connection, sql: &str, params: impl Params, read: impl Fn(&Row<'_>) -> Result<T>) -> Result<Vec<T>> {
    let mut statement = db.prepare_cached(sql).doing(READING)?;
    let mut rows = statement.query(params).doing(READING)?;
    let mut items = Vec::new();
    while let Some(row) = rows.next().doing(READING)? {
        items.push(read(row)?);
    }
    Ok(items)
}

const READING: &str = "reading rows";
