//! One tick's writes as one transaction. Each changed row must still be as the core believes it to be; the first that is
//! not rolls all of it back.

use std::sync::LazyLock;

use runyard_core::batch::Batch;
use runyard_core::event::{FirstAnswer, IdempotencyRow, ParentEnd, Release};
use runyard_core::hash::DetMap;
use runyard_core::ids::TaskId;
use runyard_core::name::{Blob, Name};
use runyard_core::task::Task;
use runyard_core::write::{CountDelta, CountKey, Edge, FlowRow, Insert, Update, WriteSet};
use rusqlite::{OptionalExtension, Transaction, params};

use super::row::{Doing, failed, integer, is_constraint, moment};
use crate::codec::{encode_answer, encode_batch, encode_happenings, encode_row_key, encode_task_body};
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
    insert_keys(tx, &writes.idempotency_added)?;
    add_counts(tx, &writes.counts)?;
    put_rates(tx, &writes.rates)?;
    put_settings(tx, &writes.settings)?;
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
               log_seq = log_seq + ?6, log_bytes = log_bytes + ?7 WHERE epoch = ?1 RETURNING log_seq";
    let meta = &writes.meta;
    let row = params![
        integer(meta.epoch),
        integer(meta.next_seq),
        integer(meta.next_flow),
        integer(meta.now.wall_ms),
        integer(meta.now.steady_ms),
        i64::from(!writes.happenings.is_empty()),
        n_bytes as i64,
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
             batch, key, body, result) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
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
        ];
        insert.execute(row).map_err(|error| exists("the task", Some(task.id), error))?;
        if let Some(spec) = spec {
            insert_spec.execute(params![integer(task.seq), &spec[..]]).doing(WRITING)?;
        }
    }
    Ok(())
}

fn update_tasks(tx: &Transaction<'_>, updates: &[Update], scratch: &mut Scratch) -> Result<()> {
    if updates.is_empty() {
        return Ok(());
    }
    let mut update = tx
        .prepare_cached(
            "UPDATE tasks SET phase = ?4, attempt = ?5, flow = ?6, rank = ?7, wall_due = ?8, steady_due = ?9, \
             expires_at = ?10, body = ?11 WHERE seq = ?1 AND phase = ?2 AND attempt = ?3",
        )
        .doing(WRITING)?;
    let mut update_result = tx
        .prepare_cached(
            "UPDATE tasks SET phase = ?4, attempt = ?5, flow = ?6, rank = ?7, wall_due = ?8, steady_due = ?9, \
             expires_at = ?10, body = ?11, result = ?12 WHERE seq = ?1 AND phase = ?2 AND attempt = ?3",
        )
        .doing(WRITING)?;
    for change in updates {
        let task = &change.task;
        encode_task_body(task, &mut scratch.body);
        let (seq, phase, attempt) = (integer(task.seq), change.from.0 as u8, change.from.1);
        let (to_phase, to_attempt) = (task.phase() as u8, task.attempt);
        let (flow, rank) = (integer(task.flow.0), task.rank);
        let (wall, steady) = (task.wall_due().map(moment), task.steady_due().map(moment));
        let (expires, body) = (expires_at(task), &scratch.body);
        let n_changed = match &change.result {
            None => update
                .execute(params![seq, phase, attempt, to_phase, to_attempt, flow, rank, wall, steady, expires, body]),
            Some(result) => update_result.execute(params![
                seq,
                phase,
                attempt,
                to_phase,
                to_attempt,
                flow,
                rank,
                wall,
                steady,
                expires,
                body,
                &result[..]
            ]),
        };
        if n_changed.doing(WRITING)? != 1 {
            return Err(stale(tx, change));
        }
        if let Some(key) = &change.key {
            encode_row_key(key, &mut scratch.key);
            let mut update = tx.prepare_cached("UPDATE tasks SET key = ?2 WHERE seq = ?1").doing(WRITING)?;
            update.execute(params![seq, scratch.key]).doing(WRITING)?;
        }
    }
    Ok(())
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
    if !writes.releases_removed.is_empty() {
        let sql = "DELETE FROM releases WHERE kind = ?1 AND id = ?2 AND ended = ?3";
        let mut delete = tx.prepare_cached(sql).doing(WRITING)?;
        for release in &writes.releases_removed {
            delete.execute(release_columns(release)).doing(WRITING)?;
        }
    }
    if !writes.releases_added.is_empty() {
        let sql = "INSERT OR IGNORE INTO releases(kind, id, ended) VALUES (?1, ?2, ?3)";
        let mut insert = tx.prepare_cached(sql).doing(WRITING)?;
        for release in &writes.releases_added {
            insert.execute(release_columns(release)).doing(WRITING)?;
        }
    }
    Ok(())
}

fn release_columns(release: &Release) -> (i64, [u8; 16], i64) {
    match *release {
        Release::Parent { parent, ended } => (0, parent.0.to_be_bytes(), i64::from(ended == ParentEnd::Badly)),
        Release::BatchPlace { batch } => (1, batch.0.to_be_bytes(), 0),
    }
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

fn insert_keys(tx: &Transaction<'_>, rows: &[IdempotencyRow]) -> Result<()> {
    for row in rows {
        let sql = "INSERT INTO keys(agent, key, hash, created_at, subject, answer) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let mut insert = tx.prepare_cached(sql).doing(WRITING)?;
        let subject = match &row.answer {
            FirstAnswer::Task { id, .. } => id.0,
            FirstAnswer::Batch { id, .. } => id.0,
        };
        let columns = params![
            row.key.agent.as_str(),
            row.key.key.as_str(),
            integer(row.key.hash),
            moment(row.created_at),
            subject.to_be_bytes(),
            encode_answer(&row.answer),
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
