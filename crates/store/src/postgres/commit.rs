//! One tick's writes as one transaction, built in full before anything is sent: a statement for each kind of row that
//! changed, with its rows as arrays. Each changed row must still be as the core believes it to be; the first statement
//! that finds another number of them than it was given ends the transaction.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;

use runyard_core::batch::Batch;
use runyard_core::event::{FirstAnswer, IdempotencyRow, ParentEnd, Release};
use runyard_core::hash::DetMap;
use runyard_core::ids::TaskId;
use runyard_core::name::{Blob, Name};
use runyard_core::session::{Message, Session, SessionId};
use runyard_core::task::Task;
use runyard_core::write::{CountDelta, CountKey, Edge, FlowRow, Insert, SessionDrop, Update, WriteSet};

use super::column::{Column, Param, bigints, uuids};
use super::link::{Call, Link, transaction};
use super::places::{Place, Places};
use super::row::{Fault, Row, Tried, damaged, field, integer, moment, number};
use super::{outbox, schedules, workers};
use crate::codec::{
    encode_answer, encode_batch, encode_happenings, encode_message_body, encode_row_key, encode_session_body,
    encode_task_body,
};
use crate::store::{Error, Result};

/// Buffers that live from commit to commit.
#[derive(Default)]
pub struct Scratch {
    body: Vec<u8>,
    key: Vec<u8>,
    happenings: Vec<u8>,
}

/// The whole transaction, and which of its answers say where rows stand now.
pub struct Whole {
    pub calls: Vec<Call>,
    flows: Range<usize>,
    counts: Range<usize>,
}

pub fn write_all(writes: &WriteSet, places: &Places, scratch: &mut Scratch) -> Whole {
    let mut calls = Vec::with_capacity(16);
    scratch.happenings.clear();
    if !writes.happenings.is_empty() {
        encode_happenings(&writes.happenings, &mut scratch.happenings);
    }
    calls.push(write_meta(writes, places.meta, &scratch.happenings));
    insert_tasks(&writes.inserts, scratch, &mut calls);
    update_tasks(&writes.updates, scratch, &mut calls);
    write_edges(writes, &mut calls);
    write_releases(writes, &mut calls);
    remove_flows(writes, places, &mut calls);
    let flows = calls.len();
    write_flows(writes, places, &mut calls);
    let flows = flows..calls.len();
    insert_batches(&writes.batches_added, &mut calls);
    update_batches(&writes.batches_put, &mut calls);
    insert_sessions(&writes.sessions_added, scratch, &mut calls);
    update_sessions(&writes.sessions_put, scratch, &mut calls);
    insert_messages(&writes.messages_added, scratch, &mut calls);
    insert_drops(&writes.drops_added, &mut calls);
    insert_keys(&writes.idempotency_added, &mut calls);
    let counts = calls.len();
    add_counts(&writes.counts, places, &mut calls);
    let counts = counts..calls.len();
    put_rates(&writes.rates, &mut calls);
    put_settings(&writes.settings, &mut calls);
    outbox::insert(&writes.deliveries_added, &mut scratch.body, &mut calls);
    outbox::update(&writes.deliveries_put, &mut scratch.body, &mut calls);
    schedules::write(writes, &mut scratch.body, &mut calls);
    workers::write(writes, &mut scratch.body, &mut calls);
    Whole { calls: transaction(calls), flows, counts }
}

impl Whole {
    /// The sequence number of the happenings, once all of it is done. The transaction's first answer is to its beginning.
    pub fn answered(&self, writes: &WriteSet, answers: &[Vec<Row>], places: &mut Places) -> Result<u64> {
        let row =
            |index: usize| answers[index + 1].first().ok_or_else(|| damaged("an answer", "it is empty".to_owned()));
        for id in &writes.flows_removed {
            places.flows.remove(&id.0);
        }
        for index in self.flows.clone() {
            places.flows_moved(row(index)?)?;
        }
        for index in self.counts.clone() {
            places.counts_moved(row(index)?)?;
        }
        places.meta = field(row(0)?, 1)?;
        Ok(number(field(row(0)?, 0)?))
    }
}

/// The fence and the clocks in one row write: a later epoch leaves no row to change. By its place.
macro_rules! meta_sql {
    ($($log:literal)?) => {
        concat!(
            "WITH passed AS (UPDATE meta SET n_commits = n_commits + 1, next_seq = $2::bigint, next_flow = $3::bigint, \
             wall_ms = $4::bigint, steady_ms = $5::bigint, log_seq = log_seq + $6::bigint, \
             log_bytes = log_bytes + $7::bigint, next_delivery = $8::bigint, \
             settings_version = settings_version + $9::bigint \
             WHERE ctid = $10::tid AND epoch = $1::bigint RETURNING log_seq, ctid AS at)",
            $($log,)?
            " SELECT runyard_fence((SELECT log_seq FROM passed)), (SELECT at FROM passed)"
        )
    };
}

pub const META: &str = meta_sql!();

/// With what happened. Each statement is answered by itself and wakes us up: one less is worth a little.
pub const META_AND_LOG: &str = meta_sql!(
    ", logged AS (INSERT INTO happenings(seq, at_ms, body) SELECT log_seq, $11::bigint, $12::bytea FROM passed)"
);

fn write_meta(writes: &WriteSet, place: Place, happenings: &[u8]) -> Call {
    let meta = &writes.meta;
    let columns = [
        integer(meta.epoch),
        integer(meta.next_seq),
        integer(meta.next_flow),
        integer(meta.now.wall_ms),
        integer(meta.now.steady_ms),
        i64::from(!writes.happenings.is_empty()),
        happenings.len() as i64,
        integer(meta.next_delivery),
        i64::from(!writes.settings.is_empty()),
    ];
    let mut params: Vec<Param> = columns.into_iter().map(Param::bigint).chain([place.param()]).collect();
    if writes.happenings.is_empty() {
        return Call::new(META, params);
    }
    params.extend([Param::bigint(moment(meta.now.wall_ms)), Param::bytes(happenings)]);
    Call::new(META_AND_LOG, params)
}

/// Is the row in `tasks_done`?
fn is_done(task: &Task) -> bool {
    task.phase().is_terminal()
}

fn insert_tasks(inserts: &[Insert], scratch: &mut Scratch, calls: &mut Vec<Call>) {
    if inserts.is_empty() {
        return;
    }
    let (mut live, mut done, mut specs) = (LiveRows::new(inserts.len()), DoneRows::new(0), Specs::new(inserts.len()));
    for Insert { task, key, spec, result } in inserts {
        encode_task_body(task, &mut scratch.body);
        encode_row_key(key, &mut scratch.key);
        match is_done(task) {
            true => done.push(task, &scratch.key, &scratch.body, result.as_deref()),
            false => live.push(task, &scratch.key, &scratch.body, result.as_deref()),
        }
        if let Some(spec) = spec {
            specs.push(task.seq, spec);
        }
    }
    match live.n {
        0 => specs.call(calls),
        _ => live.call(specs, calls),
    }
    done.call(calls);
}

/// Their payloads go along, and those of rows that have ended already.
pub const INSERT_LIVE: &str = "WITH specs AS (INSERT INTO specs(seq, spec) \
                               SELECT * FROM unnest($16::bigint[], $17::bytea[])) INSERT INTO tasks(seq, created_at, flow, wall_due, steady_due, session, line, id, batch, \
                               rank, attempt, phase, key, body, result) \
                               SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], \
                               $5::bigint[], $6::bigint[], $7::bigint[], $8::uuid[], $9::uuid[], $10::int[], \
                               $11::int[], $12::smallint[], $13::bytea[], $14::bytea[], $15::bytea[])";

struct LiveRows {
    n: usize,
    seq: Column,
    created_at: Column,
    flow: Column,
    wall_due: Column,
    steady_due: Column,
    session: Column,
    line: Column,
    id: Column,
    batch: Column,
    rank: Column,
    attempt: Column,
    phase: Column,
    key: Column,
    body: Column,
    result: Column,
}

impl LiveRows {
    fn new(n: usize) -> LiveRows {
        LiveRows {
            n: 0,
            seq: Column::bigint(n),
            created_at: Column::bigint(n),
            flow: Column::bigint(n),
            wall_due: Column::bigint(n),
            steady_due: Column::bigint(n),
            session: Column::bigint(n),
            line: Column::bigint(n),
            id: Column::uuid(n),
            batch: Column::uuid(n),
            rank: Column::int(n),
            attempt: Column::int(n),
            phase: Column::smallint(n),
            key: Column::bytea(n),
            body: Column::bytea(n),
            result: Column::bytea(n),
        }
    }

    fn push(&mut self, task: &Task, key: &[u8], body: &[u8], result: Option<&[u8]>) {
        self.n += 1;
        self.seq.push_i64(integer(task.seq));
        self.created_at.push_i64(moment(task.created_at));
        self.flow.push_i64(integer(task.flow.0));
        self.wall_due.push_some_i64(task.wall_due().map(moment));
        self.steady_due.push_some_i64(task.steady_due().map(moment));
        self.session.push_some_i64(session(task));
        self.line.push_some_i64(line(task));
        self.id.push_id(task.id.0);
        self.batch.push_some_id(task.batch.map(|batch| batch.0));
        self.rank.push_i32(task.rank);
        self.attempt.push_i32(task.attempt as i32);
        self.phase.push_i16(task.phase() as i16);
        self.key.push(key);
        self.body.push(body);
        self.result.push_some_bytes(result);
    }

    fn call(self, specs: Specs, calls: &mut Vec<Call>) {
        let columns = [
            self.seq,
            self.created_at,
            self.flow,
            self.wall_due,
            self.steady_due,
            self.session,
            self.line,
            self.id,
            self.batch,
            self.rank,
            self.attempt,
            self.phase,
            self.key,
            self.body,
            self.result,
            specs.seq,
            specs.spec,
        ];
        calls.push(Call::new(INSERT_LIVE, columns.map(Param::from)));
    }
}

/// New rows that have ended already: rejections.
const INSERT_DONE: &str = "INSERT INTO tasks_done(seq, created_at, ended_at, flow, expires_at, session, id, batch, rank, \
                           attempt, phase, key, body, result) \
                           SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], \
                           $6::bigint[], $7::uuid[], $8::uuid[], $9::int[], $10::int[], $11::smallint[], \
                           $12::bytea[], $13::bytea[], $14::bytea[])";

struct DoneRows {
    n: usize,
    seq: Column,
    created_at: Column,
    ended_at: Column,
    flow: Column,
    expires_at: Column,
    session: Column,
    id: Column,
    batch: Column,
    rank: Column,
    attempt: Column,
    phase: Column,
    key: Column,
    body: Column,
    result: Column,
}

impl DoneRows {
    fn new(n: usize) -> DoneRows {
        DoneRows {
            n: 0,
            seq: Column::bigint(n),
            created_at: Column::bigint(n),
            ended_at: Column::bigint(n),
            flow: Column::bigint(n),
            expires_at: Column::bigint(n),
            session: Column::bigint(n),
            id: Column::uuid(n),
            batch: Column::uuid(n),
            rank: Column::int(n),
            attempt: Column::int(n),
            phase: Column::smallint(n),
            key: Column::bytea(n),
            body: Column::bytea(n),
            result: Column::bytea(n),
        }
    }

    fn push(&mut self, task: &Task, key: &[u8], body: &[u8], result: Option<&[u8]>) {
        self.n += 1;
        self.seq.push_i64(integer(task.seq));
        self.created_at.push_i64(moment(task.created_at));
        self.ended_at.push_i64(ended_at(task));
        self.flow.push_i64(integer(task.flow.0));
        self.expires_at.push_some_i64(expires_at(task));
        self.session.push_some_i64(session(task));
        self.id.push_id(task.id.0);
        self.batch.push_some_id(task.batch.map(|batch| batch.0));
        self.rank.push_i32(task.rank);
        self.attempt.push_i32(task.attempt as i32);
        self.phase.push_i16(task.phase() as i16);
        self.key.push(key);
        self.body.push(body);
        self.result.push_some_bytes(result);
    }

    fn call(self, calls: &mut Vec<Call>) {
        if self.n == 0 {
            return;
        }
        let columns = [
            self.seq,
            self.created_at,
            self.ended_at,
            self.flow,
            self.expires_at,
            self.session,
            self.id,
            self.batch,
            self.rank,
            self.attempt,
            self.phase,
            self.key,
            self.body,
            self.result,
        ];
        calls.push(Call::new(INSERT_DONE, columns.map(Param::from)));
    }
}

const INSERT_SPECS: &str = "INSERT INTO specs(seq, spec) SELECT * FROM unnest($1::bigint[], $2::bytea[])";

struct Specs {
    n: usize,
    seq: Column,
    spec: Column,
}

impl Specs {
    fn new(n: usize) -> Specs {
        Specs { n: 0, seq: Column::bigint(n), spec: Column::bytea(n) }
    }

    fn push(&mut self, seq: u64, spec: &[u8]) {
        self.n += 1;
        self.seq.push_i64(integer(seq));
        self.spec.push(spec);
    }

    fn call(self, calls: &mut Vec<Call>) {
        if self.n > 0 {
            calls.push(Call::new(INSERT_SPECS, [self.seq.into(), self.spec.into()]));
        }
    }
}

/// The rows of an update, whatever table they are in and go to. A null key or result leaves what is there.
macro_rules! changed_rows {
    () => {
        "unnest($2::bigint[], $3::smallint[], $4::int[], $5::smallint[], $6::int[], $7::bigint[], $8::int[], \
         $9::bytea[], $10::bytea[], $11::bytea[], $12::bigint[], $13::bigint[], $14::bigint[]) \
         AS u(seq, from_phase, from_attempt, phase, attempt, flow, rank, body, result, key, \
         wall_due, steady_due, line)"
    };
}

/// The same with what only an ended task has.
macro_rules! ended_rows {
    () => {
        "unnest($2::bigint[], $3::smallint[], $4::int[], $5::smallint[], $6::int[], $7::bigint[], $8::int[], \
         $9::bytea[], $10::bytea[], $11::bytea[], $12::bigint[], $13::bigint[]) \
         AS u(seq, from_phase, from_attempt, phase, attempt, flow, rank, body, result, key, ended_at, expires_at)"
    };
}

/// By tasks_phase, in all four: the guard itself is what the row is looked for by.
pub const UPDATE_LIVE: &str = concat!(
    "WITH changed AS (UPDATE tasks t SET phase = u.phase, attempt = u.attempt, flow = u.flow, rank = u.rank, \
     wall_due = u.wall_due, steady_due = u.steady_due, line = u.line, body = u.body, \
     key = coalesce(u.key, t.key), result = coalesce(u.result, t.result) FROM ",
    changed_rows!(),
    " WHERE t.phase = u.from_phase AND t.seq = u.seq AND t.attempt = u.from_attempt RETURNING 1) \
     SELECT runyard_expect(count(*), $1::bigint, 'task') FROM changed"
);

/// The finishing write.
pub const FINISH: &str = concat!(
    "WITH gone AS (DELETE FROM tasks t USING ",
    ended_rows!(),
    " WHERE t.phase = u.from_phase AND t.seq = u.seq AND t.attempt = u.from_attempt \
     RETURNING t.seq, t.created_at, u.ended_at, u.flow, u.expires_at, t.session, t.id, t.batch, u.rank, u.attempt, \
     u.phase, coalesce(u.key, t.key), u.body, coalesce(u.result, t.result)), \
     kept AS (INSERT INTO tasks_done(seq, created_at, ended_at, flow, expires_at, session, id, batch, rank, attempt, \
     phase, key, body, result) SELECT * FROM gone RETURNING 1) \
     SELECT runyard_expect(count(*), $1::bigint, 'task') FROM kept"
);

/// By tasks_done_seq.
pub const UPDATE_DONE: &str = concat!(
    "WITH changed AS (UPDATE tasks_done t SET phase = u.phase, attempt = u.attempt, flow = u.flow, rank = u.rank, \
     ended_at = u.ended_at, expires_at = u.expires_at, body = u.body, key = coalesce(u.key, t.key), \
     result = coalesce(u.result, t.result) FROM ",
    ended_rows!(),
    " WHERE t.phase = u.from_phase AND t.seq = u.seq AND t.attempt = u.from_attempt RETURNING 1) \
     SELECT runyard_expect(count(*), $1::bigint, 'task') FROM changed"
);

/// No rule lets a task come back; a store does what it is told.
const REVIVE: &str = concat!(
    "WITH gone AS (DELETE FROM tasks_done t USING ",
    changed_rows!(),
    " WHERE t.phase = u.from_phase AND t.seq = u.seq AND t.attempt = u.from_attempt \
     RETURNING t.seq, t.created_at, u.flow, u.wall_due, u.steady_due, t.session, u.line, t.id, t.batch, u.rank, \
     u.attempt, u.phase, coalesce(u.key, t.key), u.body, coalesce(u.result, t.result)), \
     kept AS (INSERT INTO tasks(seq, created_at, flow, wall_due, steady_due, session, line, id, batch, rank, attempt, \
     phase, key, body, result) SELECT * FROM gone RETURNING 1) \
     SELECT runyard_expect(count(*), $1::bigint, 'task') FROM kept"
);

struct Changed {
    n: usize,
    seq: Column,
    from_phase: Column,
    from_attempt: Column,
    phase: Column,
    attempt: Column,
    flow: Column,
    rank: Column,
    body: Column,
    result: Column,
    key: Column,
    /// Its times and its place in line, or when it ended and expires.
    rest: Vec<Column>,
}

impl Changed {
    fn new(n: usize, n_rest: usize) -> Changed {
        Changed {
            n: 0,
            seq: Column::bigint(n),
            from_phase: Column::smallint(n),
            from_attempt: Column::int(n),
            phase: Column::smallint(n),
            attempt: Column::int(n),
            flow: Column::bigint(n),
            rank: Column::int(n),
            body: Column::bytea(n),
            result: Column::bytea(n),
            key: Column::bytea(n),
            rest: (0..n_rest).map(|_| Column::bigint(n)).collect(),
        }
    }

    fn push<const N: usize>(&mut self, change: &Update, scratch: &mut Scratch, rest: [Option<i64>; N]) {
        let Update { task, from: (phase, attempt), key, result } = change;
        encode_task_body(task, &mut scratch.body);
        self.n += 1;
        self.seq.push_i64(integer(task.seq));
        self.from_phase.push_i16(*phase as i16);
        self.from_attempt.push_i32(*attempt as i32);
        self.phase.push_i16(task.phase() as i16);
        self.attempt.push_i32(task.attempt as i32);
        self.flow.push_i64(integer(task.flow.0));
        self.rank.push_i32(task.rank);
        self.body.push(&scratch.body);
        self.result.push_some_bytes(result.as_deref());
        match key {
            Some(key) => {
                encode_row_key(key, &mut scratch.key);
                self.key.push(&scratch.key);
            }
            None => self.key.push_null(),
        }
        for (column, value) in self.rest.iter_mut().zip(rest) {
            column.push_some_i64(value);
        }
    }

    fn call(self, sql: &'static str, calls: &mut Vec<Call>) {
        if self.n == 0 {
            return;
        }
        let mut params = Vec::with_capacity(14);
        params.push(Param::bigint(self.n as i64));
        let columns = [
            self.seq,
            self.from_phase,
            self.from_attempt,
            self.phase,
            self.attempt,
            self.flow,
            self.rank,
            self.body,
            self.result,
            self.key,
        ];
        params.extend(columns.into_iter().chain(self.rest).map(Param::from));
        calls.push(Call::new(sql, params));
    }
}

fn update_tasks(updates: &[Update], scratch: &mut Scratch, calls: &mut Vec<Call>) {
    if updates.is_empty() {
        return;
    }
    let n_ended = updates.iter().filter(|change| is_done(&change.task)).count();
    let (mut live, mut finished) = (Changed::new(updates.len() - n_ended, 3), Changed::new(n_ended, 2));
    let (mut done, mut revived) = (Changed::new(0, 2), Changed::new(0, 3));
    for change in updates {
        let task = &change.task;
        let into = match (change.from.0.is_terminal(), is_done(task)) {
            (false, false) => &mut live,
            (false, true) => &mut finished,
            (true, true) => &mut done,
            (true, false) => &mut revived,
        };
        match is_done(task) {
            true => into.push(change, scratch, [Some(ended_at(task)), expires_at(task)]),
            false => {
                let times = [task.wall_due().map(moment), task.steady_due().map(moment), line(task)];
                into.push(change, scratch, times);
            }
        }
    }
    live.call(UPDATE_LIVE, calls);
    finished.call(FINISH, calls);
    done.call(UPDATE_DONE, calls);
    revived.call(REVIVE, calls);
}

fn ended_at(task: &Task) -> i64 {
    moment(task.finished_at.unwrap_or(task.created_at))
}

/// Only a task with a ttl of its own has this: the others are purged by their place.
fn expires_at(task: &Task) -> Option<i64> {
    let ttl_ms = task.policy.ttl_ms?;
    Some(moment(task.finished_at.unwrap_or(task.created_at).saturating_add(ttl_ms)))
}

fn session(task: &Task) -> Option<i64> {
    task.session().map(|session| integer(session.0))
}

/// Its number in its session's line, while it stands there.
fn line(task: &Task) -> Option<i64> {
    task.member.filter(|_| task.in_line()).map(|member| integer(member.line))
}

/// The seq of a task by its id `$id`, wherever the task is. By tasks_id and tasks_done_id.
macro_rules! seq_of {
    ($id:literal) => {
        concat!(
            "coalesce((SELECT t.seq FROM tasks t WHERE t.id = ",
            $id,
            "), (SELECT t.seq FROM tasks_done t WHERE t.id = ",
            $id,
            "))"
        )
    };
}
pub(super) use seq_of;

pub const REMOVE_EDGES: &str = concat!(
    "DELETE FROM edges d USING unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS e(parent, child_id, child) \
     WHERE d.parent = e.parent AND d.child = coalesce(e.child, ",
    seq_of!("e.child_id"),
    ")"
);

pub const ADD_EDGES: &str = concat!(
    "WITH e AS MATERIALIZED (SELECT e.parent, e.child_id, coalesce(e.child, ",
    seq_of!("e.child_id"),
    ") AS child FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS e(parent, child_id, child)), \
     added AS (INSERT INTO edges(parent, child, child_id) SELECT parent, child, child_id FROM e WHERE child IS NOT NULL \
     ON CONFLICT DO NOTHING) \
     SELECT runyard_expect(count(child), $4::bigint, 'edge') FROM e"
);

/// What is removed and added in one commit is there afterwards.
fn write_edges(writes: &WriteSet, calls: &mut Vec<Call>) {
    if writes.edges_added.is_empty() && writes.edges_removed.is_empty() {
        return;
    }
    let touched =
        writes.inserts.iter().map(|insert| &insert.task).chain(writes.updates.iter().map(|update| &update.task));
    let near: DetMap<TaskId, u64> = touched.map(|task| (task.id, task.seq)).collect();
    let columns = |edges: &[Edge]| {
        let (mut parents, mut ids, mut seqs) =
            (Column::uuid(edges.len()), Column::uuid(edges.len()), Column::bigint(edges.len()));
        for Edge { parent, child } in edges {
            parents.push_id(parent.0);
            ids.push_id(child.0);
            seqs.push_some_i64(near.get(child).copied().map(integer));
        }
        [parents, ids, seqs].map(Param::from)
    };
    if !writes.edges_removed.is_empty() {
        calls.push(Call::new(REMOVE_EDGES, columns(&writes.edges_removed)));
    }
    if !writes.edges_added.is_empty() {
        let mut params = Vec::from(columns(&writes.edges_added));
        params.push(Param::bigint(writes.edges_added.len() as i64));
        calls.push(Call::new(ADD_EDGES, params));
    }
}

pub const REMOVE_RELEASES: &str = "DELETE FROM releases d USING unnest($1::smallint[], $2::bytea[], $3::smallint[]) AS r(kind, id, ended) \
                   WHERE d.kind = r.kind AND d.id = r.id AND d.ended = r.ended";

/// A release too many is worked off, one too few would leave its tasks waiting for ever: added after removed.
fn write_releases(writes: &WriteSet, calls: &mut Vec<Call>) {
    let columns = |releases: &[Release]| {
        let n = releases.len();
        let (mut kinds, mut ids, mut ends) = (Column::smallint(n), Column::bytea(n), Column::smallint(n));
        for release in releases {
            let (kind, id, ended) = release_columns(release);
            kinds.push_i16(kind);
            ids.push(&id);
            ends.push_i16(ended);
        }
        [kinds, ids, ends].map(Param::from)
    };
    if !writes.releases_removed.is_empty() {
        calls.push(Call::new(REMOVE_RELEASES, columns(&writes.releases_removed)));
    }
    if !writes.releases_added.is_empty() {
        let sql = "INSERT INTO releases(kind, id, ended) \
                   SELECT * FROM unnest($1::smallint[], $2::bytea[], $3::smallint[]) ON CONFLICT DO NOTHING";
        calls.push(Call::new(sql, columns(&writes.releases_added)));
    }
}

/// `load` makes releases of these again. Numbers are written so that their bytes are in their order.
fn release_columns(release: &Release) -> (i16, Vec<u8>, i16) {
    let number = |SessionId(id): SessionId| id.to_be_bytes().to_vec();
    match *release {
        Release::Parent { parent, ended } => (0, parent.0.to_be_bytes().to_vec(), i16::from(ended == ParentEnd::Badly)),
        Release::BatchPlace { batch } => (1, batch.0.to_be_bytes().to_vec(), 0),
        Release::SessionStop { session: SessionId(session), before, from, why } => {
            (2, [session, before, from].map(u64::to_be_bytes).concat(), why as i16)
        }
        Release::SessionShrink { session } => (3, number(session), 0),
        Release::SessionSeat { session } => (4, number(session), 0),
        Release::SessionOverflow { session } => (5, number(session), 0),
        Release::SessionReview { after } => (6, number(after), 0),
        // The task first: retention looks for it.
        Release::RunEnded { schedule, run, task } => {
            let ids = [task.0, schedule.0].map(u128::to_be_bytes).concat();
            (7, [&ids[..], &run.to_be_bytes()].concat(), 0)
        }
    }
}

pub const REMOVE_FLOWS: &str = "DELETE FROM flows f USING unnest($1::tid[], $2::bigint[]) AS u(at, id) \
                                WHERE f.ctid = u.at AND f.id = u.id";

fn remove_flows(writes: &WriteSet, places: &Places, calls: &mut Vec<Call>) {
    let (mut at, mut ids, mut n) = (Column::tid(0), Column::bigint(0), 0);
    for id in &writes.flows_removed {
        if let Some(place) = places.flows.get(&id.0) {
            at.push(&place.0);
            ids.push_i64(integer(id.0));
            n += 1;
        }
    }
    if n > 0 {
        calls.push(Call::new(REMOVE_FLOWS, [at, ids].map(Param::from)));
    }
}

pub const UPDATE_FLOWS: &str = "WITH changed AS (UPDATE flows f SET n_queued = u.n_queued, n_live = u.n_live \
                                FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::tid[]) \
                                AS u(id, n_queued, n_live, at) \
                                WHERE f.ctid = u.at AND f.id = u.id RETURNING f.id, f.ctid AS at) \
                                SELECT runyard_expect(count(*), $1::bigint, 'flow'), array_agg(id), array_agg(at) \
                                FROM changed";

const INSERT_FLOWS: &str = "WITH added AS (INSERT INTO flows(id, n_queued, n_live, key) \
                            SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[]) \
                            RETURNING id, ctid AS at) SELECT count(*), array_agg(id), array_agg(at) FROM added";

/// Most flows exist, and then the key need not be encoded.
fn write_flows(writes: &WriteSet, places: &Places, calls: &mut Vec<Call>) {
    let three = || [Column::bigint(0), Column::bigint(0), Column::bigint(0)];
    let (mut known, mut at, mut n_known) = (three(), Column::tid(0), 0);
    let (mut new, mut keys, mut n_new) = (three(), Column::bytea(0), 0);
    for FlowRow { id, key, n_queued, n_live } in &writes.flows_put {
        let place = places.flows.get(&id.0).filter(|_| !writes.flows_removed.contains(id));
        let columns = match place {
            Some(place) => {
                at.push(&place.0);
                n_known += 1;
                &mut known
            }
            None => {
                keys.push(&key.encode());
                n_new += 1;
                &mut new
            }
        };
        for (column, value) in columns.iter_mut().zip([id.0, *n_queued, *n_live]) {
            column.push_i64(integer(value));
        }
    }
    if n_known > 0 {
        let params = [Param::bigint(n_known)].into_iter().chain(known.map(Param::from)).chain([at.into()]);
        calls.push(Call::new(UPDATE_FLOWS, params.collect::<Vec<_>>()));
    }
    if n_new > 0 {
        calls.push(Call::new(INSERT_FLOWS, new.into_iter().chain([keys]).map(Param::from).collect::<Vec<_>>()));
    }
}

fn insert_batches(added: &[(Batch, Blob)], calls: &mut Vec<Call>) {
    if added.is_empty() {
        return;
    }
    let n = added.len();
    let (mut ids, mut ends) = (Column::uuid(n), Column::bigint(n));
    let (mut bodies, mut specs) = (Column::bytea(n), Column::bytea(n));
    for (batch, spec) in added {
        ids.push_id(batch.id.0);
        ends.push_some_i64(batch.finished_at.map(moment));
        bodies.push(&encode_batch(batch));
        specs.push(spec);
    }
    let ids = Param::from(ids);
    let sql = "INSERT INTO batches(id, finished_at, body) SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bytea[])";
    calls.push(Call::new(sql, [ids.clone(), ends.into(), bodies.into()]));
    let sql = "INSERT INTO batch_specs(id, spec) SELECT * FROM unnest($1::uuid[], $2::bytea[])";
    calls.push(Call::new(sql, [ids, specs.into()]));
}

pub const UPDATE_BATCHES: &str = "WITH changed AS (UPDATE batches b SET finished_at = u.finished_at, body = u.body \
               FROM unnest($2::uuid[], $3::bigint[], $4::bytea[]) AS u(id, finished_at, body) \
               WHERE b.id = u.id RETURNING 1) SELECT runyard_expect(count(*), $1::bigint, 'batch') FROM changed";

fn update_batches(put: &[Batch], calls: &mut Vec<Call>) {
    if put.is_empty() {
        return;
    }
    let n = put.len();
    let (mut ids, mut ends, mut bodies) = (Column::uuid(n), Column::bigint(n), Column::bytea(n));
    for batch in put {
        ids.push_id(batch.id.0);
        ends.push_some_i64(batch.finished_at.map(moment));
        bodies.push(&encode_batch(batch));
    }
    calls.push(Call::new(UPDATE_BATCHES, [Param::bigint(n as i64), ids.into(), ends.into(), bodies.into()]));
}

fn insert_sessions(sessions: &[Session], scratch: &mut Scratch, calls: &mut Vec<Call>) {
    if sessions.is_empty() {
        return;
    }
    let mut keys = Column::bytea(sessions.len());
    sessions.iter().for_each(|session| keys.push(session.key.as_bytes()));
    let sql = "INSERT INTO sessions(id, last_at, n_live, body, key) \
               SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::bytea[], $5::bytea[])";
    let [ids, times, live, bodies] = session_columns(sessions, scratch);
    calls.push(Call::new(sql, [ids, times, live, bodies, keys.into()]));
}

pub const UPDATE_SESSIONS: &str = "WITH changed AS (UPDATE sessions s SET last_at = u.last_at, n_live = u.n_live, body = u.body \
               FROM unnest($2::bigint[], $3::bigint[], $4::int[], $5::bytea[]) AS u(id, last_at, n_live, body) \
               WHERE s.id = u.id RETURNING 1) SELECT runyard_expect(count(*), $1::bigint, 'session') FROM changed";

/// A session keeps its key, so the index of keys is not touched.
fn update_sessions(sessions: &[Session], scratch: &mut Scratch, calls: &mut Vec<Call>) {
    if sessions.is_empty() {
        return;
    }
    let [ids, times, live, bodies] = session_columns(sessions, scratch);
    calls.push(Call::new(UPDATE_SESSIONS, [Param::bigint(sessions.len() as i64), ids, times, live, bodies]));
}

fn session_columns(sessions: &[Session], scratch: &mut Scratch) -> [Param; 4] {
    let n = sessions.len();
    let (mut ids, mut times) = (Column::bigint(n), Column::bigint(n));
    let (mut live, mut bodies) = (Column::int(n), Column::bytea(n));
    for session in sessions {
        encode_session_body(session, &mut scratch.body);
        ids.push_i64(integer(session.id.0));
        times.push_i64(moment(session.last_at));
        live.push_i32(session.n_live as i32);
        bodies.push(&scratch.body);
    }
    [ids, times, live, bodies].map(Param::from)
}

fn insert_messages(messages: &[(Message, Blob)], scratch: &mut Scratch, calls: &mut Vec<Call>) {
    if messages.is_empty() {
        return;
    }
    let n = messages.len();
    let (mut seqs, mut numbers) = (Column::bigint(n), Column::int(n));
    let (mut bodies, mut specs) = (Column::bytea(n), Column::bytea(n));
    for (message, spec) in messages {
        encode_message_body(message, &mut scratch.body);
        seqs.push_i64(integer(message.task_seq));
        numbers.push_i32(message.n as i32);
        bodies.push(&scratch.body);
        specs.push(spec);
    }
    let sql = "INSERT INTO messages(task_seq, n, body, spec) \
               SELECT * FROM unnest($1::bigint[], $2::int[], $3::bytea[], $4::bytea[])";
    calls.push(Call::new(sql, [seqs, numbers, bodies, specs].map(Param::from)));
}

fn insert_drops(drops: &[SessionDrop], calls: &mut Vec<Call>) {
    if drops.is_empty() {
        return;
    }
    let sql = "INSERT INTO session_drops(session, n, task_seq) \
               SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])";
    let sessions = bigints(drops.iter().map(|drop| integer(drop.session.0)));
    let numbers = bigints(drops.iter().map(|drop| integer(drop.n)));
    calls.push(Call::new(sql, [sessions, numbers, bigints(drops.iter().map(|drop| integer(drop.task_seq)))]));
}

fn insert_keys(rows: &[IdempotencyRow], calls: &mut Vec<Call>) {
    if rows.is_empty() {
        return;
    }
    let n = rows.len();
    let (mut agents, mut keys, mut hashes) = (Column::text(n), Column::bytea(n), Column::bigint(n));
    let (mut times, mut subjects, mut answers) = (Column::bigint(n), Column::uuid(n), Column::bytea(n));
    for row in rows {
        agents.push(row.key.agent.as_bytes());
        keys.push(row.key.key.as_bytes());
        hashes.push_i64(integer(row.key.hash));
        times.push_i64(moment(row.created_at));
        subjects.push_id(match &row.answer {
            FirstAnswer::Task { id, .. } => id.0,
            FirstAnswer::Batch { id, .. } => id.0,
        });
        answers.push(&encode_answer(&row.answer));
    }
    let sql = "INSERT INTO keys(agent, key, hash, created_at, subject, answer) \
               SELECT * FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[], $5::uuid[], $6::bytea[])";
    calls.push(Call::new(sql, [agents, keys, hashes, times, subjects, answers].map(Param::from)));
}

fn add_counts(counts: &[(CountKey, CountDelta)], places: &Places, calls: &mut Vec<Call>) {
    let (known, new): (Vec<_>, Vec<_>) = counts.iter().partition(|(key, _)| places.counts.contains_key(key));
    if !known.is_empty() {
        let mut at = Column::tid(known.len());
        known.iter().for_each(|(key, _)| at.push(&places.counts[key].0));
        let n = Param::bigint(known.len() as i64);
        let params = [at.into(), n].into_iter().chain(count_columns(&known));
        calls.push(Call::new(&UPDATE_COUNTS, params.collect::<Vec<_>>()));
    }
    if !new.is_empty() {
        calls.push(Call::new(&INSERT_COUNTS, count_columns(&new)));
    }
}

fn count_columns(counts: &[&(CountKey, CountDelta)]) -> Vec<Param> {
    let n = counts.len();
    let (mut agents, mut lanes) = (Column::text(n), Column::text(n));
    let mut values: Vec<Column> = CountDelta::NAMES.iter().map(|_| Column::bigint(n)).collect();
    for (key, delta) in counts {
        agents.push(key.agent.as_bytes());
        lanes.push(key.lane.as_bytes());
        for (column, value) in values.iter_mut().zip(delta.values()) {
            column.push_i64(value);
        }
    }
    [agents, lanes].into_iter().chain(values).map(Param::from).collect()
}

fn put_rates(rates: &[(Name, u64)], calls: &mut Vec<Call>) {
    if rates.is_empty() {
        return;
    }
    let mut names = Column::text(rates.len());
    rates.iter().for_each(|(name, _)| names.push(name.as_bytes()));
    let sql = "INSERT INTO rates(name, state) SELECT * FROM unnest($1::text[], $2::bigint[]) \
               ON CONFLICT (name) DO UPDATE SET state = excluded.state";
    calls.push(Call::new(sql, [names.into(), bigints(rates.iter().map(|(_, state)| integer(*state)))]));
}

fn put_settings(settings: &[(Name, Blob)], calls: &mut Vec<Call>) {
    if settings.is_empty() {
        return;
    }
    let (mut names, mut values) = (Column::text(settings.len()), Column::bytea(settings.len()));
    // Written twice in one tick, the last one counts.
    let last: BTreeMap<&Name, &Blob> = settings.iter().map(|(name, value)| (name, value)).collect();
    for (name, value) in last {
        names.push(name.as_bytes());
        values.push(value);
    }
    let sql = "INSERT INTO settings(name, value) SELECT * FROM unnest($1::text[], $2::bytea[]) \
               ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    calls.push(Call::new(sql, [names, values].map(Param::from)));
}

/// What a refused commit means: who was in the way is asked for after it was rolled back.
pub fn refusal(link: &mut Link, writes: &WriteSet, fault: Fault) -> Error {
    let Fault::Refused { error, .. } = &fault else { return fault.into() };
    match error.code().code() {
        FENCED => fenced(writes.meta.epoch, error.message()),
        UNEXPECTED => match error.message() {
            "task" => stale(link, writes).unwrap_or_else(Error::from),
            "edge" => missing_child(link, writes).unwrap_or_else(Error::from),
            what => conflict(None, format!("a changed {what} does not exist")),
        },
        EXISTS => exists(writes, error.constraint().unwrap_or_default(), error.detail().unwrap_or_default()),
        _ => fault.into(),
    }
}

/// The row of meta was not as expected: it has another's epoch, or another place.
fn fenced(ours: u64, told: &str) -> Error {
    let theirs = told.parse().unwrap_or(u64::MAX);
    match theirs == ours {
        true => conflict(None, "the row of meta is not where it was".to_owned()),
        false => Error::Fenced { ours, theirs },
    }
}

/// Says what the row is instead of what it should be.
fn stale(link: &mut Link, writes: &WriteSet) -> Tried<Error> {
    const FOUND: &str = "SELECT w.seq, coalesce(t.phase, d.phase), coalesce(t.attempt, d.attempt) \
                         FROM unnest($1::uuid[], $2::bigint[]) AS w(id, seq) LEFT JOIN tasks t ON t.id = w.id \
                         LEFT JOIN tasks_done d ON d.id = w.id";
    let ids = uuids(writes.updates.iter().map(|change| change.task.id.0));
    let seqs = bigints(writes.updates.iter().map(|change| integer(change.task.seq)));
    let rows = link.query(WRITING, FOUND, [ids, seqs])?;
    let mut found: DetMap<i64, (Option<i16>, Option<i32>)> = DetMap::default();
    for row in &rows {
        found.insert(field(row, 0)?, (field(row, 1)?, field(row, 2)?));
    }
    for Update { task, from: (phase, attempt), .. } in &writes.updates {
        let is = found.get(&integer(task.seq)).copied().unwrap_or_default();
        if is != (Some(*phase as i16), Some(*attempt as i32)) {
            let found = match is {
                (Some(is), Some(is_attempt)) => format!("phase {is} attempt {is_attempt}"),
                _ => "no row".to_owned(),
            };
            let detail = format!("expected phase {} attempt {attempt}, found {found}", *phase as u8);
            return Ok(conflict(Some(task.id), detail));
        }
    }
    Ok(conflict(None, "a changed task was not as expected, and is again".to_owned()))
}

fn missing_child(link: &mut Link, writes: &WriteSet) -> Tried<Error> {
    const MISSING: &str = concat!(
        "SELECT w.n FROM unnest($1::uuid[]) WITH ORDINALITY AS w(id, n) WHERE ",
        seq_of!("w.id"),
        " IS NULL ORDER BY w.n"
    );
    let is_new = |child: TaskId| writes.inserts.iter().any(|insert| insert.task.id == child);
    let children: Vec<TaskId> = writes.edges_added.iter().map(|edge| edge.child).filter(|id| !is_new(*id)).collect();
    let rows = link.query(WRITING, MISSING, [uuids(children.iter().map(|id| id.0))])?;
    let first = rows.first().map(|row| field::<i64>(row, 0)).transpose()?;
    let child = first.and_then(|n| children.get(n as usize - 1)).copied();
    Ok(conflict(child, "the child of a new edge does not exist".to_owned()))
}

/// What a unique index was in the way of. The detail says which row: `Key (a, b)=(1, 2) already exists.`
fn exists(writes: &WriteSet, index: &str, detail: &str) -> Error {
    let values = detail.split_once(")=(").and_then(|(_, rest)| rest.rsplit_once(')')).map_or("", |(values, _)| values);
    let number = |n: usize| values.split(", ").nth(n).and_then(|text| text.parse::<u64>().ok());
    let task = match index {
        "tasks_id" | "tasks_done_id" => u128::from_str_radix(&values.replace('-', ""), 16).ok().map(TaskId),
        "tasks_done_seq" | "specs_pkey" => {
            let inserted = writes.inserts.iter().find(|insert| Some(insert.task.seq) == number(0));
            inserted.map(|insert| insert.task.id)
        }
        "messages_pkey" => {
            let mut messages = writes.messages_added.iter().map(|(message, _)| message);
            messages.find(|message| Some(message.task_seq) == number(0)).map(|message| message.task)
        }
        "session_drops_pkey" => {
            let is_it = |drop: &&SessionDrop| number(0) == Some(drop.session.0) && number(1) == Some(drop.n);
            writes.drops_added.iter().find(is_it).map(|drop| drop.task)
        }
        _ => None,
    };
    conflict(task, format!("{index}: ({values}) exists already"))
}

fn conflict(task: Option<TaskId>, detail: String) -> Error {
    Error::Conflict { task, detail }
}

pub static UPDATE_COUNTS: LazyLock<String> = LazyLock::new(|| {
    let (names, values) = (CountDelta::NAMES.join(", "), value_params(5));
    let sums = CountDelta::NAMES.map(|name| format!("{name} = c.{name} + u.{name}")).join(", ");
    format!(
        "WITH changed AS (UPDATE counts c SET {sums} FROM unnest($1::tid[], $3::text[], $4::text[], {values}) \
         AS u(at, agent, lane, {names}) WHERE c.ctid = u.at AND c.agent = u.agent AND c.lane = u.lane \
         RETURNING c.agent, c.lane, c.ctid AS at) \
         SELECT runyard_expect(count(*), $2::bigint, 'count'), array_agg(agent), array_agg(lane), array_agg(at) FROM changed"
    )
});

static INSERT_COUNTS: LazyLock<String> = LazyLock::new(|| {
    let (names, values) = (CountDelta::NAMES.join(", "), value_params(3));
    format!(
        "WITH added AS (INSERT INTO counts(agent, lane, {names}) \
         SELECT * FROM unnest($1::text[], $2::text[], {values}) RETURNING agent, lane, ctid AS at) \
         SELECT count(*), array_agg(agent), array_agg(lane), array_agg(at) FROM added"
    )
});

/// A parameter for each value of a count, from this number on.
fn value_params(first: usize) -> String {
    let params = (first..first + CountDelta::NAMES.len()).map(|n| format!("${n}::bigint[]"));
    params.collect::<Vec<_>>().join(", ")
}

/// What `runyard_fence` and `runyard_expect` raise.
pub const FENCED: &str = "RY002";
pub const UNEXPECTED: &str = "RY001";
/// The SQL standard's, for a unique index.
const EXISTS: &str = "23505";

pub const WRITING: &str = "writing a commit";
