//! Schedules and their runs: rows written in the tick that fires them, read by when they are due.

use std::sync::Arc;

use runyard_core::ids::ScheduleId;
use runyard_core::name::{Blob, Name};
use runyard_core::schedule::{Run, Schedule, ScheduleBody, ScheduleDue, Template};
use runyard_core::write::{Needs, ScheduleRow, WriteSet};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::row::{Doing, blob_at, failed, id_at, integer, is_constraint, moment, number};
use crate::codec::{
    RunPlace, cause_code, cause_of, decode_run_body, decode_schedule_body, decode_template, encode_run_body,
    encode_schedule_body, encode_template,
};
use crate::store::{Error, PAGE_BYTES_MAX, Result, ScheduleCounts, ScheduleFilter, SchedulePage};

pub fn write(tx: &Transaction<'_>, writes: &WriteSet, body: &mut Vec<u8>) -> Result<()> {
    let is_quiet = writes.schedules_put.is_empty() && writes.schedules_removed.is_empty();
    if !is_quiet {
        write_schedules(tx, writes, body)?;
    }
    insert_runs(tx, &writes.runs_added, body)?;
    update_runs(tx, &writes.runs_put, body)
}

/// Edited rows are taken out before any is put back: two of them may have changed names with each other.
fn write_schedules(tx: &Transaction<'_>, writes: &WriteSet, body: &mut Vec<u8>) -> Result<()> {
    let edited = writes.schedules_put.iter().filter(|row| row.body.is_some()).map(|row| row.schedule.id);
    for id in writes.schedules_removed.iter().copied().chain(edited) {
        for sql in ["DELETE FROM schedules WHERE id = ?1", "DELETE FROM schedule_bodies WHERE id = ?1"] {
            tx.prepare_cached(sql).doing(WRITING)?.execute([key(id)]).doing(WRITING)?;
        }
    }
    for ScheduleRow { schedule, body: written } in &writes.schedules_put {
        match written {
            Some(written) => insert(tx, schedule, written, body)?,
            None => update(tx, schedule, body)?,
        }
    }
    Ok(())
}

fn insert(tx: &Transaction<'_>, schedule: &Schedule, written: &ScheduleBody, body: &mut Vec<u8>) -> Result<()> {
    let sql = "INSERT INTO schedules(id, name, agent, enabled, due_at, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let mut insert = tx.prepare_cached(sql).doing(WRITING)?;
    encode_schedule_body(schedule, body);
    let row = params![
        key(schedule.id),
        schedule.name.as_str(),
        written.template.flow.agent.as_str(),
        schedule.is_enabled(),
        schedule.due_at().map(moment),
        &body[..],
    ];
    insert.execute(row).map_err(|error| exists(error, || format!("the schedule {}", schedule.name)))?;
    encode_template(&written.template, body);
    let sql = "INSERT INTO schedule_bodies(id, template, spec) VALUES (?1, ?2, ?3)";
    let mut insert = tx.prepare_cached(sql).doing(WRITING)?;
    insert.execute(params![key(schedule.id), &body[..], &written.spec[..]]).doing(WRITING)?;
    Ok(())
}

/// Without an edit its name and its agent are as they were.
fn update(tx: &Transaction<'_>, schedule: &Schedule, body: &mut Vec<u8>) -> Result<()> {
    let sql = "UPDATE schedules SET enabled = ?2, due_at = ?3, body = ?4 WHERE id = ?1";
    let mut update = tx.prepare_cached(sql).doing(WRITING)?;
    encode_schedule_body(schedule, body);
    let row = params![key(schedule.id), schedule.is_enabled(), schedule.due_at().map(moment), &body[..]];
    if update.execute(row).doing(WRITING)? != 1 {
        return Err(conflict(format!("changed {:?} does not exist", schedule.id)));
    }
    Ok(())
}

fn insert_runs(tx: &Transaction<'_>, runs: &[Run], body: &mut Vec<u8>) -> Result<()> {
    if runs.is_empty() {
        return Ok(());
    }
    let sql = "INSERT INTO runs(schedule, n, scheduled_for, cause, ended_at, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let mut insert = tx.prepare_cached(sql).doing(WRITING)?;
    for run in runs {
        encode_run_body(run, body);
        let row = params![
            key(run.schedule),
            integer(run.n),
            integer(run.scheduled_for),
            cause_code(run.cause),
            run.ended_at.map(moment),
            &body[..],
        ];
        insert.execute(row).map_err(|error| exists(error, || format!("run {} of {:?}", run.n, run.schedule)))?;
    }
    Ok(())
}

fn update_runs(tx: &Transaction<'_>, runs: &[Run], body: &mut Vec<u8>) -> Result<()> {
    for run in runs {
        let sql = "UPDATE runs SET ended_at = ?3, body = ?4 WHERE schedule = ?1 AND n = ?2";
        let mut update = tx.prepare_cached(sql).doing(WRITING)?;
        encode_run_body(run, body);
        let row = params![key(run.schedule), integer(run.n), run.ended_at.map(moment), &body[..]];
        if update.execute(row).doing(WRITING)? != 1 {
            return Err(conflict(format!("changed run {} of {:?} does not exist", run.n, run.schedule)));
        }
    }
    Ok(())
}

/// With what each makes its tasks of. One that is named twice comes twice.
pub fn fetch(db: &Connection, needs: &Needs) -> Result<Vec<(Schedule, Arc<Template>)>> {
    const BY_ID: &str = "SELECT s.id, s.name, s.body, b.template FROM schedules s \
                         JOIN schedule_bodies b ON b.id = s.id WHERE s.id = ?1";
    const BY_NAME: &str = "SELECT s.id, s.name, s.body, b.template FROM schedules s INDEXED BY schedules_name \
                           JOIN schedule_bodies b ON b.id = s.id WHERE s.name = ?1";
    let mut found = Vec::new();
    if !needs.schedules.is_empty() {
        let mut select = db.prepare_cached(BY_ID).doing(READING)?;
        for id in &needs.schedules {
            let mut rows = select.query([key(*id)]).doing(READING)?;
            found.extend(rows.next().doing(READING)?.map(with_template).transpose()?);
        }
    }
    if !needs.schedule_names.is_empty() {
        let mut select = db.prepare_cached(BY_NAME).doing(READING)?;
        for name in &needs.schedule_names {
            let mut rows = select.query([name.as_str()]).doing(READING)?;
            found.extend(rows.next().doing(READING)?.map(with_template).transpose()?);
        }
    }
    Ok(found)
}

pub fn count(db: &Connection) -> Result<u64> {
    let mut select = db.prepare_cached("SELECT count(*) FROM schedules").doing(READING)?;
    select.query_row([], |row| row.get(0)).map(number).doing(READING)
}

/// Both from an index: of a hundred thousand, milliseconds.
pub fn counts(db: &Connection) -> Result<ScheduleCounts> {
    let sql = "SELECT count(*) FROM schedules INDEXED BY schedules_due WHERE due_at IS NOT NULL";
    let mut select = db.prepare_cached(sql).doing(READING)?;
    let enabled = select.query_row([], |row| row.get(0)).map(number).doing(READING)?;
    Ok(ScheduleCounts { total: count(db)?, enabled })
}

pub fn due(db: &Connection, after: Option<ScheduleDue>, limit: usize) -> Result<Vec<ScheduleDue>> {
    // In two statements, as the dues of tasks are: a comparison of pairs is sought by its first part only.
    const SAME_MOMENT: &str = "SELECT due_at, id FROM schedules INDEXED BY schedules_due \
                               WHERE due_at = ?1 AND due_at IS NOT NULL AND id > ?2 ORDER BY id LIMIT ?3";
    const LATER: &str = "SELECT due_at, id FROM schedules INDEXED BY schedules_due \
                         WHERE due_at > ?1 AND due_at IS NOT NULL ORDER BY due_at, id LIMIT ?2";
    let read = |row: &Row<'_>| Ok((number(row.get(0)?), ScheduleId(u128::from_be_bytes(row.get(1)?))));
    let mut dues: Vec<ScheduleDue> = Vec::new();
    if let Some((at, id)) = after {
        let mut select = db.prepare_cached(SAME_MOMENT).doing(READING)?;
        let rows = select.query_map(params![moment(at), key(id), limit as i64], read).doing(READING)?;
        dues = rows.collect::<rusqlite::Result<_>>().doing(READING)?;
    }
    if dues.len() < limit {
        let mut select = db.prepare_cached(LATER).doing(READING)?;
        let at = after.map_or(-1, |(at, _)| moment(at));
        let rows = select.query_map(params![at, (limit - dues.len()) as i64], read).doing(READING)?;
        dues.extend(rows.collect::<rusqlite::Result<Vec<_>>>().doing(READING)?);
    }
    Ok(dues)
}

pub fn run(db: &Connection, schedule: ScheduleId, n: u64) -> Result<Option<Run>> {
    let sql = "SELECT schedule, n, scheduled_for, cause, body FROM runs WHERE schedule = ?1 AND n = ?2";
    let mut select = db.prepare_cached(sql).doing(READING)?;
    let mut rows = select.query(params![key(schedule), integer(n)]).doing(READING)?;
    rows.next().doing(READING)?.map(run_at).transpose()
}

pub fn runs(db: &Connection, schedule: ScheduleId, before: Option<u64>, limit: usize) -> Result<Vec<Run>> {
    let sql = "SELECT schedule, n, scheduled_for, cause, body FROM runs WHERE schedule = ?1 AND n < ?2 \
               ORDER BY n DESC LIMIT ?3";
    let mut select = db.prepare_cached(sql).doing(READING)?;
    let before = before.map_or(i64::MAX, moment);
    let mut rows = select.query(params![key(schedule), before, limit as i64]).doing(READING)?;
    let mut runs = Vec::new();
    while let Some(row) = rows.next().doing(READING)? {
        runs.push(run_at(row)?);
    }
    Ok(runs)
}

pub fn one(db: &Connection, id: ScheduleId) -> Result<Option<(Schedule, Blob)>> {
    let sql =
        "SELECT s.id, s.name, s.body, b.spec FROM schedules s JOIN schedule_bodies b ON b.id = s.id WHERE s.id = ?1";
    let mut select = db.prepare_cached(sql).doing(READING)?;
    let mut rows = select.query([key(id)]).doing(READING)?;
    rows.next().doing(READING)?.map(with_spec).transpose()
}

pub fn named(db: &Connection, name: &str) -> Result<Option<ScheduleId>> {
    let sql = "SELECT id FROM schedules INDEXED BY schedules_name WHERE name = ?1";
    let mut select = db.prepare_cached(sql).doing(READING)?;
    let id = select.query_row([name], |row| row.get(0)).optional().doing(READING)?;
    Ok(id.map(|id| ScheduleId(u128::from_be_bytes(id))))
}

/// In the order of their ids, which is that of their making.
pub fn list(
    db: &Connection,
    filter: &ScheduleFilter,
    after: Option<ScheduleId>,
    limit: usize,
    scan_max: usize,
) -> Result<SchedulePage> {
    let sql = "SELECT s.id, s.name, s.body, b.spec, s.enabled, s.agent FROM schedules s \
               JOIN schedule_bodies b ON b.id = s.id WHERE s.id < ?1 ORDER BY s.id DESC";
    let mut select = db.prepare_cached(sql).doing(READING)?;
    // A byte longer than any id, and so behind the last.
    let before = after.map_or(vec![0xFF; 17], |id| key(id).to_vec());
    let mut rows = select.query([before]).doing(READING)?;
    let (mut items, mut n_bytes, mut n_seen, mut last) = (Vec::new(), 0, 0, None);
    while let Some(row) = rows.next().doing(READING)? {
        let passes = passes(row, filter).doing(READING)?;
        if n_seen == scan_max || passes && (items.len() == limit || n_bytes >= PAGE_BYTES_MAX) {
            return Ok(SchedulePage { items, next: last });
        }
        if passes {
            let item = with_spec(row)?;
            n_bytes += item.1.len();
            items.push(item);
        }
        n_seen += 1;
        last = Some(ScheduleId(id_at(row, 0)?));
    }
    Ok(SchedulePage { items, next: None })
}

fn passes(row: &Row<'_>, filter: &ScheduleFilter) -> rusqlite::Result<bool> {
    let enabled: bool = row.get(4)?;
    let agent = row.get_ref(5)?.as_str()?;
    Ok(filter.enabled.is_none_or(|wanted| wanted == enabled)
        && filter.agent.as_deref().is_none_or(|wanted| wanted == agent))
}

/// Reads `id, name, body`.
fn schedule_at(row: &Row<'_>) -> Result<Schedule> {
    let id = ScheduleId(id_at(row, 0)?);
    let name = row.get_ref(1).and_then(|name| Ok(Name::new(name.as_str()?))).doing(READING)?;
    let body = row.get_ref(2).and_then(|body| Ok(body.as_blob()?)).doing(READING)?;
    decode_schedule_body(id, name, body).ok_or_else(|| damaged("a schedule's row", format!("{id:?}")))
}

/// Reads `id, name, body, template`.
fn with_template(row: &Row<'_>) -> Result<(Schedule, Arc<Template>)> {
    let schedule = schedule_at(row)?;
    let template = row.get_ref(3).and_then(|bytes| Ok(bytes.as_blob()?)).doing(READING)?;
    let template =
        decode_template(template).ok_or_else(|| damaged("a schedule's template", format!("{:?}", schedule.id)))?;
    Ok((schedule, Arc::new(template)))
}

/// Reads `id, name, body, spec`.
fn with_spec(row: &Row<'_>) -> Result<(Schedule, Blob)> {
    Ok((schedule_at(row)?, blob_at(row, 3).doing(READING)?.unwrap_or_default()))
}

/// Reads `schedule, n, scheduled_for, cause, body`.
fn run_at(row: &Row<'_>) -> Result<Run> {
    let schedule = ScheduleId(id_at(row, 0)?);
    let columns = |row: &Row<'_>| Ok((number(row.get(1)?), number(row.get(2)?), row.get(3)?));
    let (n, scheduled_for, cause): (u64, u64, u8) = columns(row).doing(READING)?;
    let body = row.get_ref(4).and_then(|body| Ok(body.as_blob()?)).doing(READING)?;
    let run = cause_of(cause).and_then(|cause| decode_run_body(RunPlace { schedule, n, scheduled_for, cause }, body));
    run.ok_or_else(|| damaged("a run's row", format!("{n} of {schedule:?}")))
}

fn key(id: ScheduleId) -> [u8; 16] {
    id.0.to_be_bytes()
}

fn exists(error: rusqlite::Error, what: impl FnOnce() -> String) -> Error {
    if is_constraint(&error) {
        return conflict(format!("{} exists already", what()));
    }
    failed(WRITING, error)
}

fn conflict(detail: String) -> Error {
    Error::Conflict { task: None, detail }
}

fn damaged(what: &'static str, detail: String) -> Error {
    Error::Damaged { what, detail }
}

const WRITING: &str = "writing schedules";
const READING: &str = "reading schedules";
