//! Taking the store over, and what a core starts from: O(flows + held tasks), whatever is queued.

use std::collections::BTreeSet;

use runyard_core::batch::Batch;
use runyard_core::event::Release;
use runyard_core::flow::FlowKey;
use runyard_core::ids::{BatchId, FlowId};
use runyard_core::name::{Blob, Name};
use runyard_core::now::Now;
use runyard_core::session::{Session, SessionId};
use runyard_core::task::Task;
use runyard_core::write::{CountDelta, CountKey, FlowRow, Loaded, Meta};
use rusqlite::{Row, Transaction};

use super::row::{Doing, batch_at, blob_at, integer, number, session_at, task_at, task_columns};
use super::{schedules, workers};
use crate::codec::{ReleaseColumns, decode_release};
use crate::store::{Error, Result};

pub fn load(tx: &Transaction<'_>, salt: u64) -> Result<Loaded> {
    let meta = take_over(tx, salt)?;
    let held = held(tx)?;
    Ok(Loaded {
        meta,
        flows: flows(tx)?,
        batches: batches(tx, &held)?,
        sessions: sessions(tx, &held)?,
        held,
        releases: releases(tx)?,
        counts: counts(tx)?,
        rates: rates(tx)?,
        settings: settings(tx)?,
        n_schedules: schedules::count(tx)?,
        workers: workers::load(tx)?,
    })
}

fn take_over(tx: &Transaction<'_>, salt: u64) -> Result<Meta> {
    let sql = "UPDATE meta SET epoch = epoch + 1, salt = coalesce(salt, ?1) \
               RETURNING epoch, next_seq, next_flow, wall_ms, steady_ms, salt, next_delivery";
    tx.query_row(sql, [integer(salt)], |row| {
        Ok(Meta {
            epoch: number(row.get(0)?),
            next_seq: number(row.get(1)?),
            next_flow: number(row.get(2)?),
            now: Now { wall_ms: number(row.get(3)?), steady_ms: number(row.get(4)?) },
            salt: number(row.get(5)?),
            next_delivery: number(row.get(6)?),
        })
    })
    .doing("taking the store over")
}

/// A flow nobody lives in is not worth loading; its next task gives it a new row.
fn flows(tx: &Transaction<'_>) -> Result<Vec<FlowRow>> {
    tx.execute("DELETE FROM flows WHERE n_live = 0", []).doing("loading flows")?;
    all(tx, "SELECT id, key, n_queued, n_live FROM flows ORDER BY id", "loading flows", |row| {
        let id = FlowId(number(row.get(0).doing("loading flows")?));
        let key: Vec<u8> = row.get(1).doing("loading flows")?;
        let key = FlowKey::decode(&key).ok_or_else(|| damaged("a flow's row", format!("{id:?}")))?;
        let n_queued = number(row.get(2).doing("loading flows")?);
        let n_live = number(row.get(3).doing("loading flows")?);
        Ok(FlowRow { id, key, n_queued, n_live })
    })
}

fn held(tx: &Transaction<'_>) -> Result<Vec<Task>> {
    const SQL: &str = concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks t INDEXED BY tasks_live WHERE t.phase IN (3, 4) AND t.phase < 5"
    );
    let mut held = all(tx, SQL, "loading held tasks", task_at)?;
    held.sort_by_key(|task| task.seq);
    Ok(held)
}

/// Unfinished batches that held tasks belong to; the others are fetched when an event names them.
fn batches(tx: &Transaction<'_>, held: &[Task]) -> Result<Vec<Batch>> {
    let named: BTreeSet<BatchId> = held.iter().filter_map(|task| task.batch).collect();
    let sql = "SELECT id, body FROM batches WHERE id = ?1 AND finished_at IS NULL";
    let mut select = tx.prepare_cached(sql).doing("loading batches")?;
    let mut batches = Vec::new();
    for id in named {
        let mut rows = select.query([id.0.to_be_bytes()]).doing("loading batches")?;
        if let Some(row) = rows.next().doing("loading batches")? {
            batches.push(batch_at(row)?);
        }
    }
    Ok(batches)
}

/// Sessions that held tasks belong to; the others are fetched when an event names them.
fn sessions(tx: &Transaction<'_>, held: &[Task]) -> Result<Vec<Session>> {
    let named: BTreeSet<SessionId> = held.iter().filter_map(Task::session).collect();
    let sql = "SELECT id, key, body FROM sessions WHERE id = ?1";
    let mut select = tx.prepare_cached(sql).doing("loading sessions")?;
    let mut sessions = Vec::new();
    for id in named {
        let mut rows = select.query([integer(id.0)]).doing("loading sessions")?;
        if let Some(row) = rows.next().doing("loading sessions")? {
            sessions.push(session_at(row)?);
        }
    }
    Ok(sessions)
}

fn releases(tx: &Transaction<'_>) -> Result<Vec<Release>> {
    let mut releases = all(tx, "SELECT kind, id, ended FROM releases", "loading releases", |row| {
        let columns = |row: &Row<'_>| Ok(ReleaseColumns { kind: row.get(0)?, id: row.get(1)?, ended: row.get(2)? });
        let columns = columns(row).doing("loading releases")?;
        decode_release(&columns).ok_or_else(|| damaged("a release's row", format!("{columns:?}")))
    })?;
    releases.sort();
    Ok(releases)
}

pub fn counts(db: &rusqlite::Connection) -> Result<Vec<(CountKey, CountDelta)>> {
    all(db, "SELECT * FROM counts ORDER BY agent, lane", "reading counts", |row| {
        let read = |row: &Row<'_>| {
            let key = CountKey { agent: name_at(row, 0)?, lane: name_at(row, 1)? };
            let mut values = [0; 13];
            for (index, value) in values.iter_mut().enumerate() {
                *value = row.get(index + 2)?;
            }
            Ok((key, CountDelta::from_values(values)))
        };
        read(row).doing("reading counts")
    })
}

fn rates(tx: &Transaction<'_>) -> Result<Vec<(Name, u64)>> {
    all(tx, "SELECT name, state FROM rates ORDER BY name", "loading rates", |row| {
        let read = |row: &Row<'_>| Ok((name_at(row, 0)?, number(row.get(1)?)));
        read(row).doing("loading rates")
    })
}

fn settings(tx: &Transaction<'_>) -> Result<Vec<(Name, Blob)>> {
    all(tx, "SELECT name, value FROM settings ORDER BY name", "loading settings", |row| {
        let read = |row: &Row<'_>| Ok((name_at(row, 0)?, blob_at(row, 1)?.unwrap_or_default()));
        read(row).doing("loading settings")
    })
}

pub(super) fn all<T>(
    db: &rusqlite::Connection,
    sql: &str,
    doing: &'static str,
    read: impl Fn(&Row<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut statement = db.prepare_cached(sql).doing(doing)?;
    let mut rows = statement.query([]).doing(doing)?;
    let mut items = Vec::new();
    while let Some(row) = rows.next().doing(doing)? {
        items.push(read(row)?);
    }
    Ok(items)
}

fn name_at(row: &Row<'_>, index: usize) -> rusqlite::Result<Name> {
    Ok(Name::new(row.get_ref(index)?.as_str()?))
}

pub(super) fn damaged(what: &'static str, detail: String) -> Error {
    Error::Damaged { what, detail }
}
