//! Schedules and their runs: rows written in the tick that fires them, read by when they are due.

use std::sync::Arc;

use runyard_core::ids::ScheduleId;
use runyard_core::name::{Blob, Name};
use runyard_core::schedule::{Run, Schedule, ScheduleDue, Template};
use runyard_core::write::{Needs, ScheduleRow, WriteSet};

use super::column::{Column, Param, uuids};
use super::link::{Call, Link};
use super::row::{Id, Row, Tried, blob_at, damaged, field, id_at, integer, moment, number, text_at};
use crate::codec::{
    RunPlace, cause_code, cause_of, decode_run_body, decode_schedule_body, decode_template, encode_run_body,
    encode_schedule_body, encode_template,
};
use crate::store::{PAGE_BYTES_MAX, Result, ScheduleCounts, ScheduleFilter, SchedulePage};

pub fn write(writes: &WriteSet, body: &mut Vec<u8>, calls: &mut Vec<Call>) {
    take_out(writes, calls);
    insert(writes, body, calls);
    update(writes, body, calls);
    insert_runs(&writes.runs_added, body, calls);
    update_runs(&writes.runs_put, body, calls);
}

/// Edited rows are taken out before any is put back: two of them may have changed names with each other.
fn take_out(writes: &WriteSet, calls: &mut Vec<Call>) {
    let edited = writes.schedules_put.iter().filter(|row| row.body.is_some()).map(|row| row.schedule.id);
    let ids: Vec<ScheduleId> = writes.schedules_removed.iter().copied().chain(edited).collect();
    if ids.is_empty() {
        return;
    }
    let ids = uuids(ids.iter().map(|id| id.0));
    calls.push(Call::new("DELETE FROM schedules WHERE id = ANY($1::uuid[])", [ids.clone()]));
    calls.push(Call::new("DELETE FROM schedule_bodies WHERE id = ANY($1::uuid[])", [ids]));
}

fn insert(writes: &WriteSet, body: &mut Vec<u8>, calls: &mut Vec<Call>) {
    let (mut ids, mut names, mut agents, mut enabled) =
        (Column::uuid(0), Column::bytea(0), Column::text(0), Column::bool(0));
    let (mut dues, mut bodies) = (Column::bigint(0), Column::bytea(0));
    let (mut templates, mut specs) = (Column::bytea(0), Column::bytea(0));
    let mut n = 0;
    for ScheduleRow { schedule, body: written } in &writes.schedules_put {
        let Some(written) = written else { continue };
        n += 1;
        ids.push_id(schedule.id.0);
        names.push(schedule.name.as_bytes());
        agents.push(written.template.flow.agent.as_bytes());
        enabled.push(&[u8::from(schedule.is_enabled())]);
        dues.push_some_i64(schedule.due_at().map(moment));
        encode_schedule_body(schedule, body);
        bodies.push(body);
        encode_template(&written.template, body);
        templates.push(body);
        specs.push(&written.spec);
    }
    if n == 0 {
        return;
    }
    let ids = Param::from(ids);
    let sql = "INSERT INTO schedules(id, name, agent, enabled, due_at, body) \
               SELECT * FROM unnest($1::uuid[], $2::bytea[], $3::text[], $4::boolean[], $5::bigint[], $6::bytea[])";
    let columns = [names, agents, enabled, dues, bodies].map(Param::from);
    calls.push(Call::new(sql, [vec![ids.clone()], Vec::from(columns)].concat()));
    let sql =
        "INSERT INTO schedule_bodies(id, template, spec) SELECT * FROM unnest($1::uuid[], $2::bytea[], $3::bytea[])";
    calls.push(Call::new(sql, [ids, templates.into(), specs.into()]));
}

/// Without an edit its name and its agent are as they were.
fn update(writes: &WriteSet, body: &mut Vec<u8>, calls: &mut Vec<Call>) {
    let (mut ids, mut enabled) = (Column::uuid(0), Column::bool(0));
    let (mut dues, mut bodies) = (Column::bigint(0), Column::bytea(0));
    let mut n = 0;
    for ScheduleRow { schedule, .. } in writes.schedules_put.iter().filter(|row| row.body.is_none()) {
        n += 1;
        ids.push_id(schedule.id.0);
        enabled.push(&[u8::from(schedule.is_enabled())]);
        dues.push_some_i64(schedule.due_at().map(moment));
        encode_schedule_body(schedule, body);
        bodies.push(body);
    }
    if n == 0 {
        return;
    }
    let sql = "WITH changed AS (UPDATE schedules s SET enabled = u.enabled, due_at = u.due_at, body = u.body \
               FROM unnest($2::uuid[], $3::boolean[], $4::bigint[], $5::bytea[]) AS u(id, enabled, due_at, body) \
               WHERE s.id = u.id RETURNING 1) SELECT runyard_expect(count(*), $1::bigint, 'schedule') FROM changed";
    calls.push(Call::new(sql, [Param::bigint(n), ids.into(), enabled.into(), dues.into(), bodies.into()]));
}

fn insert_runs(runs: &[Run], body: &mut Vec<u8>, calls: &mut Vec<Call>) {
    if runs.is_empty() {
        return;
    }
    let sql = "INSERT INTO runs(schedule, n, ended_at, body, scheduled_for, cause) \
               SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bigint[], $6::smallint[])";
    let (mut moments, mut causes) = (Column::bigint(runs.len()), Column::smallint(runs.len()));
    for run in runs {
        moments.push_i64(integer(run.scheduled_for));
        causes.push_i16(i16::from(cause_code(run.cause)));
    }
    let [schedules, numbers, ends, bodies] = run_columns(runs, body);
    calls.push(Call::new(sql, [schedules, numbers, ends, bodies, moments.into(), causes.into()]));
}

fn update_runs(runs: &[Run], body: &mut Vec<u8>, calls: &mut Vec<Call>) {
    if runs.is_empty() {
        return;
    }
    let sql = "WITH changed AS (UPDATE runs r SET ended_at = u.ended_at, body = u.body \
               FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bytea[]) AS u(schedule, n, ended_at, body) \
               WHERE r.schedule = u.schedule AND r.n = u.n RETURNING 1) \
               SELECT runyard_expect(count(*), $1::bigint, 'run') FROM changed";
    let [schedules, numbers, ends, bodies] = run_columns(runs, body);
    calls.push(Call::new(sql, [Param::bigint(runs.len() as i64), schedules, numbers, ends, bodies]));
}

fn run_columns(runs: &[Run], body: &mut Vec<u8>) -> [Param; 4] {
    let n = runs.len();
    let (mut schedules, mut numbers) = (Column::uuid(n), Column::bigint(n));
    let (mut ends, mut bodies) = (Column::bigint(n), Column::bytea(n));
    for run in runs {
        schedules.push_id(run.schedule.0);
        numbers.push_i64(integer(run.n));
        ends.push_some_i64(run.ended_at.map(moment));
        encode_run_body(run, body);
        bodies.push(body);
    }
    [schedules, numbers, ends, bodies].map(Param::from)
}

/// With what each makes its tasks of. One that is named twice comes twice. By the keys of both tables, and schedules_name.
pub fn fetch_calls(needs: &Needs) -> [Option<Call>; 2] {
    const BY_ID: &str = "SELECT s.id, s.name, s.body, b.template FROM unnest($1::uuid[]) WITH ORDINALITY AS w(id, n) \
                         JOIN schedules s ON s.id = w.id JOIN schedule_bodies b ON b.id = s.id ORDER BY w.n";
    const BY_NAME: &str = "SELECT s.id, s.name, s.body, b.template FROM unnest($1::bytea[]) WITH ORDINALITY AS w(name, n) \
                           JOIN schedules s ON s.name = w.name JOIN schedule_bodies b ON b.id = s.id ORDER BY w.n";
    let by_id = || Call::new(BY_ID, [uuids(needs.schedules.iter().map(|id| id.0))]);
    let by_name = || Call::new(BY_NAME, [texts(&needs.schedule_names)]);
    [(!needs.schedules.is_empty()).then(by_id), (!needs.schedule_names.is_empty()).then(by_name)]
}

/// Any texts, as their bytes.
pub fn texts(names: &[Name]) -> Param {
    let mut column = Column::bytea(names.len());
    names.iter().for_each(|name| column.push(name.as_bytes()));
    column.into()
}

pub const COUNT: &str = "SELECT count(*) FROM schedules";

/// The first from an index: of a hundred thousand, milliseconds.
pub fn counts(link: &mut Link) -> Tried<ScheduleCounts> {
    let enabled = Call::new("SELECT count(*) FROM schedules WHERE due_at IS NOT NULL", []);
    let answers = link.query_all(READING, &[Call::new(COUNT, []), enabled])?;
    let count = |answer: &Vec<Row>| answer.first().map_or(Ok(0), |row| field(row, 0)).map(number);
    Ok(ScheduleCounts { total: count(&answers[0])?, enabled: count(&answers[1])? })
}

/// By schedules_due.
pub const DUE: &str = "SELECT due_at, id FROM schedules WHERE due_at IS NOT NULL \
                       AND (due_at, id) > ($1::bigint, $2::uuid) ORDER BY due_at, id LIMIT $3::bigint";

pub fn due(link: &mut Link, after: Option<ScheduleDue>, limit: usize) -> Tried<Vec<ScheduleDue>> {
    let (at, id) = after.map_or((-1, 0), |(at, id)| (moment(at), id.0));
    let rows = link.query(READING, DUE, [Param::bigint(at), Param::uuid(id), Param::bigint(limit as i64)])?;
    let read = |row: &Row| -> Result<ScheduleDue> { Ok((number(field(row, 0)?), ScheduleId(id_at(row, 1)?))) };
    Ok(rows.iter().map(read).collect::<Result<_>>()?)
}

pub fn run(link: &mut Link, schedule: ScheduleId, n: u64) -> Tried<Option<Run>> {
    let sql = "SELECT schedule, n, scheduled_for, cause, body FROM runs WHERE schedule = $1::uuid AND n = $2::bigint";
    let rows = link.query(READING, sql, [Param::uuid(schedule.0), Param::bigint(integer(n))])?;
    Ok(rows.first().map(run_at).transpose()?)
}

pub fn runs(link: &mut Link, schedule: ScheduleId, before: Option<u64>, limit: usize) -> Tried<Vec<Run>> {
    let sql = "SELECT schedule, n, scheduled_for, cause, body FROM runs WHERE schedule = $1::uuid AND n < $2::bigint \
               ORDER BY n DESC LIMIT $3::bigint";
    let before = before.map_or(i64::MAX, moment);
    let rows =
        link.query(READING, sql, [Param::uuid(schedule.0), Param::bigint(before), Param::bigint(limit as i64)])?;
    Ok(rows.iter().map(run_at).collect::<Result<_>>()?)
}

pub fn one(link: &mut Link, id: ScheduleId) -> Tried<Option<(Schedule, Blob)>> {
    let sql = "SELECT s.id, s.name, s.body, b.spec FROM schedules s JOIN schedule_bodies b ON b.id = s.id \
               WHERE s.id = $1::uuid";
    let rows = link.query(READING, sql, [Param::uuid(id.0)])?;
    Ok(rows.first().map(with_spec).transpose()?)
}

pub fn named(link: &mut Link, name: &str) -> Tried<Option<ScheduleId>> {
    let sql = "SELECT id FROM schedules WHERE name = $1::bytea";
    let rows = link.query(READING, sql, [Param::bytes(name.as_bytes())])?;
    Ok(rows.first().map(|row| id_at(row, 0)).transpose()?.map(ScheduleId))
}

/// Latest first. Sizes first, in their order, so that a page never reads more than it gives.
pub fn list(
    link: &mut Link,
    filter: &ScheduleFilter,
    after: Option<ScheduleId>,
    limit: usize,
    scan_max: usize,
) -> Tried<SchedulePage> {
    const SEEN: &str = "SELECT s.id, s.enabled, s.agent, octet_length(b.spec) FROM schedules s \
                        JOIN schedule_bodies b ON b.id = s.id WHERE $1::uuid IS NULL OR s.id < $1::uuid \
                        ORDER BY s.id DESC LIMIT $2::bigint";
    const ITEMS: &str = "SELECT s.id, s.name, s.body, b.spec FROM unnest($1::uuid[]) WITH ORDINALITY AS w(id, n) \
                         JOIN schedules s ON s.id = w.id JOIN schedule_bodies b ON b.id = s.id ORDER BY w.n";
    let seen_max = Param::bigint(scan_max as i64 + 1);
    let rows = link.query(READING, SEEN, [after.map_or(Param::NULL, |id| Param::uuid(id.0)), seen_max])?;
    let (mut ids, mut n_bytes, mut last, mut next) = (Vec::new(), 0, None, None);
    for (n_seen, row) in rows.iter().enumerate() {
        let passes = passes(row, filter)?;
        if n_seen == scan_max || passes && (ids.len() == limit || n_bytes >= PAGE_BYTES_MAX) {
            next = last;
            break;
        }
        let Id(id) = field(row, 0)?;
        if passes {
            n_bytes += field::<i32>(row, 3)? as usize;
            ids.push(id);
        }
        last = Some(ScheduleId(id));
    }
    let items = link.query(READING, ITEMS, [uuids(ids.into_iter())])?;
    Ok(SchedulePage { items: items.iter().map(with_spec).collect::<Result<_>>()?, next })
}

fn passes(row: &Row, filter: &ScheduleFilter) -> Result<bool> {
    let (enabled, agent): (bool, &str) = (field(row, 1)?, field(row, 2)?);
    Ok(filter.enabled.is_none_or(|wanted| wanted == enabled)
        && filter.agent.as_deref().is_none_or(|wanted| wanted == agent))
}

/// Reads `id, name, body`.
fn schedule_at(row: &Row) -> Result<Schedule> {
    let id = ScheduleId(id_at(row, 0)?);
    decode_schedule_body(id, text_at(row, 1)?, field(row, 2)?)
        .ok_or_else(|| damaged("a schedule's row", format!("{id:?}")))
}

/// Reads `id, name, body, template`.
pub fn with_template(row: &Row) -> Result<(Schedule, Arc<Template>)> {
    let schedule = schedule_at(row)?;
    let template = decode_template(field(row, 3)?)
        .ok_or_else(|| damaged("a schedule's template", format!("{:?}", schedule.id)))?;
    Ok((schedule, Arc::new(template)))
}

/// Reads `id, name, body, spec`.
fn with_spec(row: &Row) -> Result<(Schedule, Blob)> {
    Ok((schedule_at(row)?, blob_at(row, 3)?.unwrap_or_default()))
}

/// Reads `schedule, n, scheduled_for, cause, body`.
fn run_at(row: &Row) -> Result<Run> {
    let schedule = ScheduleId(id_at(row, 0)?);
    let (n, scheduled_for) = (number(field(row, 1)?), number(field(row, 2)?));
    let cause = u8::try_from(field::<i16>(row, 3)?).ok().and_then(cause_of);
    let place = cause.map(|cause| RunPlace { schedule, n, scheduled_for, cause });
    let body = field(row, 4)?;
    let run = place.and_then(|place| decode_run_body(place, body));
    run.ok_or_else(|| damaged("a run's row", format!("{n} of {schedule:?}")))
}

const READING: &str = "reading schedules";
