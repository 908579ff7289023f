//! One tick's writes as one transaction. Each changed row must still be as the core believes it to be; the first that is
//! not rolls all of it back.

use std::sync::LazyLock;

use runyard_core::batch::Batch;
use runyard_core::event::{FirstAnswer, IdempotencyRow, Release};
use runyard_core::hash::DetMap;
use runyard_core::ids::TaskId;
use runyard_core::name::{Blob, Name};
use runyard_core::session::{Message, Session};
use runyard_core::task::Task;
use runyard_core::write::{CountDelta, CountKey, Edge, FlowRow, Insert, SessionDrop, Update, WriteSet};
use rusqlite::{CachedStatement, OptionalExtension, Transaction, params};

use super::row::{Doing, failed, integer, is_constraint, moment};
use super::{outbox, schedules, workers};
use crate::codec::{
    ReleaseColumns, encode_answer, encode_batch, encode_happenings, encode_message_body, encode_release,
    encode_row_key, encode_session_body, encode_task_body,
};
use crate::store::{Error, Result};

/// Buffers that live from commit to commit.
#[derive(Default)]
pub struct Scratch {
    body: Vec<u8>,
    key: Vec<u8>,
    happenings: Vec<u8>,
}

/// Everything but the commit itself. Gives the sequence number of the happenings.
pub fn write_all(tx: &Transaction<'_>, writes: &WriteSet, scratch: &mut Scratch) -> Result<u64> {
    scratch.happenings.clear();
    if !writes.happenings.is_empty() {
        encode_happenings(&writes.happenings, &mut scratch.happenings);
    }
    let log_seq = write_meta(tx, writes, scratch.happenings.len())?;
    insert_tasks(tx, &writes.inserts, scratch)?;
    update_tasks(tx, &writes.updates, scratch)?;
    write_edges(tx, writes)?;
    write_releases(tx, writes)?;
    write_flows(tx, writes)?;
    write_batches(tx, &writes.batches_added, &writes.batches_put)?;
    insert_sessions(tx, &writes.sessions_added, scratch)?;
    update_sessions(tx, &writes.sessions_put, scratch)?;
    insert_messages(tx, &writes.messages_added, scratch)?;
    insert_drops(tx, &writes.drops_added)?;
    insert_keys(tx, &writes.idempotency_added)?;
    add_counts(tx, &writes.counts)?;
    put_rates(tx, &writes.rates)?;
    put_settings(tx, &writes.settings)?;
    outbox::insert(tx, &writes.deliveries_added, &mut scratch.body)?;
    outbox::update(tx, &writes.deliveries_put, &mut scratch.body)?;
    schedules::write(tx, writes, &mut scratch.body)?;
    workers::write(tx, writes, &mut scratch.body)?;
    if !writes.happenings.is_empty() {
        let mut insert =
            tx.prepare_cached("INSERT INTO happenings(seq, at_ms, body) VALUES (?1, ?2, ?3)").doing(WRITING)?;
        let row = params![integer(log_seq), moment(writes.meta.now.wall_ms), scratch.happenings];
        insert.execute(row).doing(WRITING)?;
    }
    Ok(log_seq)
}

/// The fence and the clocks in one row write: a later epoch leaves no row to change.
fn write_meta(tx: &Transaction<'_>, writes: &WriteSet, n_bytes: usize) -> Result<u64> {
    let sql = "UPDATE meta SET next_seq = ?2, next_flow = ?3, wall_ms = ?4, steady_ms = ?5, \
               log_seq = log_seq + ?6, log_bytes = log_bytes + ?7, next_delivery = ?8 WHERE epoch = ?1 RETURNING log_seq";
    let meta = &writes.meta;
    let row = params![
        integer(meta.epoch),
        integer(meta.next_seq),
        integer(meta.next_flow),
        integer(meta.now.wall_ms),
        integer(meta.now.steady_ms),
        i64::from(!writes.happenings.is_empty()),
        n_bytes as i64,
        integer(meta.next_delivery),
    ];
    let mut update = tx.prepare_cached(sql).doing(WRITING)?;
    let log_seq: Option<i64> = update.query_row(row, |row| row.get(0)).optional().doing(WRITING)?;
    match log_seq {
        Some(seq) => Ok(seq as u64),
        None => Err(Error::Fenced { ours: meta.epoch, theirs: epoch(tx)? }),
    }
}

pub fn epoch(tx: &Transaction<'_>) -> Result<u64> {
    let mut select = tx.prepare_cached("SELECT epoch FROM meta").doing("reading the epoch")?;
    let epoch: i64 = select.query_row([], |row| row.get(0)).doing("reading the epoch")?;
    Ok(epoch as u64)
}

fn insert_tasks(tx: &Transaction<'_>, inserts: &[Insert], scratch: &mut Scratch) -> Result<()> {
    if inserts.is_empty() {
        return Ok(());
    }
    let mut insert = tx
        .prepare_cached(
            "INSERT INTO tasks(seq, id, flow, rank, phase, attempt, created_at, wall_due, steady_due, expires_at, \
             batch, key, body, result, session, line) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        )
        .doing(WRITING)?;
    let mut insert_spec = tx.prepare_cached("INSERT INTO specs(seq, spec) VALUES (?1, ?2)").doing(WRITING)?;
    for Insert { task, key, spec, result } in inserts {
        encode_task_body(task, &mut scratch.body);
        encode_row_key(key, &mut scratch.key);
        let row = params![
            integer(task.seq),
            task.id.0.to_be_bytes(),
            integer(task.flow.0),
            task.rank,
            task.phase() as u8,
            task.attempt,
            moment(task.created_at),
            task.wall_due().map(moment),
            task.steady_due().map(moment),
            expires_at(task),
            task.batch.map(|batch| batch.0.to_be_bytes()),
            scratch.key,
            scratch.body,
            result.as_deref(),
            task.session().map(|session| integer(session.0)),
            line(task),
        ];
        insert.execute(row).map_err(|error| exists("the task", Some(task.id), error))?;
        if let Some(spec) = spec {
            insert_spec.execute(params![integer(task.seq), &spec[..]]).doing(WRITING)?;
        }
    }
    Ok(())
}

/// The statements of the four shapes an update has: with a result or without, of a session's member or not. A task
/// without a session never touches what a session's line is read by.
macro_rules! update_sql {
    ($($set:literal)?) => {
        concat!(
            "UPDATE tasks SET phase = ?4, attempt = ?5, flow = ?6, rank = ?7, wall_due = ?8, steady_due = ?9, \
             expires_at = ?10, body = ?11",
            $($set,)?
            " WHERE seq = ?1 AND phase = ?2 AND attempt = ?3"
        )
    };
}

const UPDATES: [&str; 4] = [
    update_sql!(),
    update_sql!(", line = ?12"),
    update_sql!(", result = ?13"),
    update_sql!(", line = ?12, result = ?13"),
];

fn update_tasks(tx: &Transaction<'_>, updates: &[Update], scratch: &mut Scratch) -> Result<()> {
    let mut prepared: [Option<CachedStatement<'_>>; 4] = Default::default();
    for change in updates {
        let shape = usize::from(change.task.member.is_some()) | usize::from(change.result.is_some()) << 1;
        let update = match &mut prepared[shape] {
            Some(update) => update,
            none => none.insert(tx.prepare_cached(UPDATES[shape]).doing(WRITING)?),
        };
        if update_task(update, change, scratch).doing(WRITING)? != 1 {
            return Err(stale(tx, change));
        }
        if let Some(key) = &change.key {
            encode_row_key(key, &mut scratch.key);
            let mut update = tx.prepare_cached("UPDATE tasks SET key = ?2 WHERE seq = ?1").doing(WRITING)?;
            update.execute(params![integer(change.task.seq), scratch.key]).doing(WRITING)?;
        }
    }
    Ok(())
}

fn update_task(update: &mut CachedStatement<'_>, change: &Update, scratch: &mut Scratch) -> rusqlite::Result<usize> {
    let Update { task, from: (phase, attempt), result, .. } = change;
    encode_task_body(task, &mut scratch.body);
    update.raw_bind_parameter(1, integer(task.seq))?;
    update.raw_bind_parameter(2, *phase as u8)?;
    update.raw_bind_parameter(3, *attempt)?;
    update.raw_bind_parameter(4, task.phase() as u8)?;
    update.raw_bind_parameter(5, task.attempt)?;
    update.raw_bind_parameter(6, integer(task.flow.0))?;
    update.raw_bind_parameter(7, task.rank)?;
    update.raw_bind_parameter(8, task.wall_due().map(moment))?;
    update.raw_bind_parameter(9, task.steady_due().map(moment))?;
    update.raw_bind_parameter(10, expires_at(task))?;
    update.raw_bind_parameter(11, &scratch.body[..])?;
    if task.member.is_some() {
        update.raw_bind_parameter(12, line(task))?;
    }
    if let Some(result) = result {
        update.raw_bind_parameter(13, &result[..])?;
    }
    update.raw_execute()
}

/// Says what the row is instead of what it should be.
fn stale(tx: &Transaction<'_>, change: &Update) -> Error {
    let sql = "SELECT phase, attempt FROM tasks WHERE seq = ?1";
    let found = tx.query_row(sql, [integer(change.task.seq)], |row| Ok((row.get::<_, u8>(0)?, row.get::<_, u32>(1)?)));
    let (phase, attempt) = change.from;
    let detail = match found {
        Ok((is, is_attempt)) => {
            format!("expected phase {} attempt {attempt}, found phase {is} attempt {is_attempt}", phase as u8)
        }
        Err(_) => format!("expected phase {} attempt {attempt}, found no row", phase as u8),
    };
    Error::Conflict { task: Some(change.task.id), detail }
}

/// Only a task with a ttl of its own has this: the others are purged by their place.
fn expires_at(task: &Task) -> Option<i64> {
    let ttl_ms = task.policy.ttl_ms.filter(|_| task.phase().is_terminal())?;
    Some(moment(task.finished_at.unwrap_or(task.created_at).saturating_add(ttl_ms)))
}

/// Its number in its session's line, while it stands there.
fn line(task: &Task) -> Option<i64> {
    task.member.filter(|_| task.in_line()).map(|member| integer(member.line))
}

/// What is removed and added in one commit is there afterwards.
fn write_edges(tx: &Transaction<'_>, writes: &WriteSet) -> Result<()> {
    if writes.edges_added.is_empty() && writes.edges_removed.is_empty() {
        return Ok(());
    }
    let touched =
        writes.inserts.iter().map(|insert| &insert.task).chain(writes.updates.iter().map(|update| &update.task));
    let near: DetMap<TaskId, u64> = touched.map(|task| (task.id, task.seq)).collect();
    let seq_of = |child: TaskId| match near.get(&child) {
        Some(&seq) => Ok(Some(integer(seq))),
        None => stored_seq(tx, child),
    };
    let mut delete = tx.prepare_cached("DELETE FROM edges WHERE parent = ?1 AND child = ?2").doing(WRITING)?;
    for Edge { parent, child } in &writes.edges_removed {
        if let Some(seq) = seq_of(*child)? {
            delete.execute(params![parent.0.to_be_bytes(), seq]).doing(WRITING)?;
        }
    }
    let mut insert = tx.prepare_cached("INSERT OR IGNORE INTO edges(parent, child) VALUES (?1, ?2)").doing(WRITING)?;
    for Edge { parent, child } in &writes.edges_added {
        let Some(seq) = seq_of(*child)? else {
            let detail = "the child of a new edge does not exist".to_owned();
            return Err(Error::Conflict { task: Some(*child), detail });
        };
        insert.execute(params![parent.0.to_be_bytes(), seq]).doing(WRITING)?;
    }
    Ok(())
}

fn stored_seq(tx: &Transaction<'_>, id: TaskId) -> Result<Option<i64>> {
    let mut select = tx.prepare_cached("SELECT seq FROM tasks WHERE id = ?1").doing(WRITING)?;
    select.query_row([id.0.to_be_bytes()], |row| row.get(0)).optional().doing(WRITING)
}

/// A release too many is worked off, one too few would leave its tasks waiting for ever: added after removed.
fn write_releases(tx: &Transaction<'_>, writes: &WriteSet) -> Result<()> {
    let columns = |release: &Release| {
        let ReleaseColumns { kind, id, ended } = encode_release(release);
        (kind, id, ended)
    };
    if !writes.releases_removed.is_empty() {
        let sql = "DELETE FROM releases WHERE kind = ?1 AND id = ?2 AND ended = ?3";
        let mut delete = tx.prepare_cached(sql).doing(WRITING)?;
        for release in &writes.releases_removed {
            delete.execute(columns(release)).doing(WRITING)?;
        }
    }
    if !writes.releases_added.is_empty() {
        let sql = "INSERT OR IGNORE INTO releases(kind, id, ended) VALUES (?1, ?2, ?3)";
        let mut insert = tx.prepare_cached(sql).doing(WRITING)?;
        for release in &writes.releases_added {
            insert.execute(columns(release)).doing(WRITING)?;
        }
    }
    Ok(())
}

fn write_flows(tx: &Transaction<'_>, writes: &WriteSet) -> Result<()> {
    if !writes.flows_removed.is_empty() {
        let mut delete = tx.prepare_cached("DELETE FROM flows WHERE id = ?1").doing(WRITING)?;
        for id in &writes.flows_removed {
            delete.execute([integer(id.0)]).doing(WRITING)?;
        }
    }
    if writes.flows_put.is_empty() {
        return Ok(());
    }
    // Most flows exist, and then the key need not be encoded.
    let mut update = tx.prepare_cached("UPDATE flows SET n_queued = ?2, n_live = ?3 WHERE id = ?1").doing(WRITING)?;
    let mut insert =
        tx.prepare_cached("INSERT INTO flows(id, key, n_queued, n_live) VALUES (?1, ?2, ?3, ?4)").doing(WRITING)?;
    for FlowRow { id, key, n_queued, n_live } in &writes.flows_put {
        let (id, n_queued, n_live) = (integer(id.0), integer(*n_queued), integer(*n_live));
        if update.execute(params![id, n_queued, n_live]).doing(WRITING)? == 0 {
            insert.execute(params![id, key.encode(), n_queued, n_live]).doing(WRITING)?;
        }
    }
    Ok(())
}

fn write_batches(tx: &Transaction<'_>, added: &[(Batch, Blob)], put: &[Batch]) -> Result<()> {
    for (batch, spec) in added {
        let sql = "INSERT INTO batches(id, finished_at, body) VALUES (?1, ?2, ?3)";
        let mut insert = tx.prepare_cached(sql).doing(WRITING)?;
        let row = params![batch.id.0.to_be_bytes(), batch.finished_at.map(moment), encode_batch(batch)];
        insert.execute(row).map_err(|error| exists("the batch", None, error))?;
        let mut insert = tx.prepare_cached("INSERT INTO batch_specs(id, spec) VALUES (?1, ?2)").doing(WRITING)?;
        insert.execute(params![batch.id.0.to_be_bytes(), &spec[..]]).doing(WRITING)?;
    }
    for batch in put {
        let sql = "UPDATE batches SET finished_at = ?2, body = ?3 WHERE id = ?1";
        let mut update = tx.prepare_cached(sql).doing(WRITING)?;
        let row = params![batch.id.0.to_be_bytes(), batch.finished_at.map(moment), encode_batch(batch)];
        if update.execute(row).doing(WRITING)? != 1 {
            let detail = format!("changed {:?} does not exist", batch.id);
            return Err(Error::Conflict { task: None, detail });
        }
    }
    Ok(())
}

fn insert_sessions(tx: &Transaction<'_>, sessions: &[Session], scratch: &mut Scratch) -> Result<()> {
    if sessions.is_empty() {
        return Ok(());
    }
    let sql = "INSERT INTO sessions(id, key, n_live, last_at, body) VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut insert = tx.prepare_cached(sql).doing(WRITING)?;
    for session in sessions {
        encode_session_body(session, &mut scratch.body);
        let (id, key) = (integer(session.id.0), session.key.as_str());
        let row = params![id, key, session.n_live, moment(session.last_at), scratch.body];
        insert.execute(row).map_err(|error| exists("the session", None, error))?;
    }
    Ok(())
}

/// A session keeps its key, so the index of keys is not touched.
fn update_sessions(tx: &Transaction<'_>, sessions: &[Session], scratch: &mut Scratch) -> Result<()> {
    if sessions.is_empty() {
        return Ok(());
    }
    let sql = "UPDATE sessions SET n_live = ?2, last_at = ?3, body = ?4 WHERE id = ?1";
    let mut update = tx.prepare_cached(sql).doing(WRITING)?;
    for session in sessions {
        encode_session_body(session, &mut scratch.body);
        let row = params![integer(session.id.0), session.n_live, moment(session.last_at), scratch.body];
        if update.execute(row).doing(WRITING)? != 1 {
            let detail = format!("changed {:?} does not exist", session.id);
            return Err(Error::Conflict { task: None, detail });
        }
    }
    Ok(())
}

fn insert_messages(tx: &Transaction<'_>, messages: &[(Message, Blob)], scratch: &mut Scratch) -> Result<()> {
    for (message, spec) in messages {
        let sql = "INSERT INTO messages(task_seq, n, body, spec) VALUES (?1, ?2, ?3, ?4)";
        let mut insert = tx.prepare_cached(sql).doing(WRITING)?;
        encode_message_body(message, &mut scratch.body);
        let row = params![integer(message.task_seq), message.n, scratch.body, &spec[..]];
        insert.execute(row).map_err(|error| exists("the message", Some(message.task), error))?;
    }
    Ok(())
}

fn insert_drops(tx: &Transaction<'_>, drops: &[SessionDrop]) -> Result<()> {
    for drop in drops {
        let sql = "INSERT INTO session_drops(session, n, task_seq) VALUES (?1, ?2, ?3)";
        let mut insert = tx.prepare_cached(sql).doing(WRITING)?;
        let row = params![integer(drop.session.0), integer(drop.n), integer(drop.task_seq)];
        insert.execute(row).map_err(|error| exists("the number of the drop", Some(drop.task), error))?;
    }
    Ok(())
}

fn insert_keys(tx: &Transaction<'_>, rows: &[IdempotencyRow]) -> Result<()> {
    for row in rows {
        let sql = "INSERT INTO keys(agent, key, hash, created_at, subject, answer, orphaned) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        let mut insert = tx.prepare_cached(sql).doing(WRITING)?;
        let subject = match &row.answer {
            FirstAnswer::Task { id, .. } => id.0,
            FirstAnswer::Batch { id, .. } => id.0,
            // Of no row, so that its time is all it has.
            FirstAnswer::Command(_) => 0,
        };
        let columns = params![
            row.key.agent.as_str(),
            row.key.key.as_str(),
            integer(row.key.hash),
            moment(row.created_at),
            subject.to_be_bytes(),
            encode_answer(&row.answer),
            subject == 0,
        ];
        insert.execute(columns).map_err(|error| exists("the idempotency key", None, error))?;
    }
    Ok(())
}

fn add_counts(tx: &Transaction<'_>, counts: &[(CountKey, CountDelta)]) -> Result<()> {
    for (key, delta) in counts {
        let mut upsert = tx.prepare_cached(&ADD_COUNTS).doing(WRITING)?;
        upsert.raw_bind_parameter(1, key.agent.as_str()).doing(WRITING)?;
        upsert.raw_bind_parameter(2, key.lane.as_str()).doing(WRITING)?;
        for (index, value) in delta.values().into_iter().enumerate() {
            upsert.raw_bind_parameter(index + 3, value).doing(WRITING)?;
        }
        upsert.raw_execute().doing(WRITING)?;
    }
    Ok(())
}

fn put_rates(tx: &Transaction<'_>, rates: &[(Name, u64)]) -> Result<()> {
    for (name, state) in rates {
        let sql = "INSERT OR REPLACE INTO rates(name, state) VALUES (?1, ?2)";
        let mut put = tx.prepare_cached(sql).doing(WRITING)?;
        put.execute(params![name.as_str(), integer(*state)]).doing(WRITING)?;
    }
    Ok(())
}

fn put_settings(tx: &Transaction<'_>, settings: &[(Name, Blob)]) -> Result<()> {
    for (name, value) in settings {
        let sql = "INSERT OR REPLACE INTO settings(name, value) VALUES (?1, ?2)";
        let mut put = tx.prepare_cached(sql).doing(WRITING)?;
        put.execute(params![name.as_str(), &value[..]]).doing(WRITING)?;
    }
    Ok(())
}

fn exists(what: &'static str, task: Option<TaskId>, error: rusqlite::Error) -> Error {
    if is_constraint(&error) {
        return Error::Conflict { task, detail: format!("{what} exists already") };
    }
    failed(WRITING, error)
}

static ADD_COUNTS: LazyLock<String> = LazyLock::new(|| {
    let names = CountDelta::NAMES.join(", ");
    let places = (1..=CountDelta::NAMES.len() + 2).map(|n| format!("?{n}")).collect::<Vec<_>>().join(", ");
    let sums = CountDelta::NAMES.map(|name| format!("{name} = {name} + excluded.{name}")).join(", ");
    format!("INSERT INTO counts(agent, lane, {names}) VALUES ({places}) ON CONFLICT(agent, lane) DO UPDATE SET {sums}")
});

const WRITING: &str = "writing a commit";
