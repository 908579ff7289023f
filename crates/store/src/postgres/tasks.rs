//! Rows of tasks: the live ones in a hot table, those that have ended in another. A finishing write moves a row from the
//! one to the other under its guard.

use runyard_core::task::Task;
use runyard_core::write::{Insert, Update};

use super::column::{Column, Param};
use super::commit::Scratch;
use super::link::Call;
use super::row::{integer, moment};
use crate::codec::{encode_row_key, encode_task_body};

/// Is the row in `tasks_done`?
fn is_done(task: &Task) -> bool {
    task.phase().is_terminal()
}

pub fn insert_tasks(inserts: &[Insert], scratch: &mut Scratch, calls: &mut Vec<Call>) {
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
    match live.rows.n {
        0 => specs.call(calls),
        _ => live.call(specs, calls),
    }
    done.call(calls);
}

/// Their payloads go along, and those of rows that have ended already.
pub const INSERT_LIVE: &str = "WITH specs AS (INSERT INTO specs(seq, spec) \
                               SELECT * FROM unnest($16::bigint[], $17::bytea[])) \
                               INSERT INTO tasks(seq, created_at, flow, session, id, batch, rank, attempt, phase, key, \
                               body, result, wall_due, steady_due, line) \
                               SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::uuid[], \
                               $6::uuid[], $7::int[], $8::int[], $9::smallint[], $10::bytea[], $11::bytea[], \
                               $12::bytea[], $13::bigint[], $14::bigint[], $15::bigint[])";

/// New rows that have ended already: rejections.
const INSERT_DONE: &str = "INSERT INTO tasks_done(seq, created_at, flow, session, id, batch, rank, attempt, phase, key, \
                           body, result, ended_at, expires_at) \
                           SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::uuid[], \
                           $6::uuid[], $7::int[], $8::int[], $9::smallint[], $10::bytea[], $11::bytea[], \
                           $12::bytea[], $13::bigint[], $14::bigint[])";

/// What both tables have.
struct Rows {
    n: usize,
    seq: Column,
    created_at: Column,
    flow: Column,
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

impl Rows {
    fn new(n: usize) -> Rows {
        Rows {
            n: 0,
            seq: Column::bigint(n),
            created_at: Column::bigint(n),
            flow: Column::bigint(n),
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
        self.flow.push_i64(integer(task.flow.0));
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

    /// With those that only one of the tables has.
    fn params(self, more: impl IntoIterator<Item = Column>) -> Vec<Param> {
        let own = [
            self.seq,
            self.created_at,
            self.flow,
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
        own.into_iter().chain(more).map(Param::from).collect()
    }
}

struct LiveRows {
    rows: Rows,
    wall_due: Column,
    steady_due: Column,
    line: Column,
}

impl LiveRows {
    fn new(n: usize) -> LiveRows {
        let [wall_due, steady_due, line] = [(); 3].map(|()| Column::bigint(n));
        LiveRows { rows: Rows::new(n), wall_due, steady_due, line }
    }

    fn push(&mut self, task: &Task, key: &[u8], body: &[u8], result: Option<&[u8]>) {
        self.rows.push(task, key, body, result);
        self.wall_due.push_some_i64(task.wall_due().map(moment));
        self.steady_due.push_some_i64(task.steady_due().map(moment));
        self.line.push_some_i64(line(task));
    }

    fn call(self, specs: Specs, calls: &mut Vec<Call>) {
        let more = [self.wall_due, self.steady_due, self.line, specs.seq, specs.spec];
        calls.push(Call::new(INSERT_LIVE, self.rows.params(more)));
    }
}

struct DoneRows {
    rows: Rows,
    ended_at: Column,
    expires_at: Column,
}

impl DoneRows {
    fn new(n: usize) -> DoneRows {
        DoneRows { rows: Rows::new(n), ended_at: Column::bigint(n), expires_at: Column::bigint(n) }
    }

    fn push(&mut self, task: &Task, key: &[u8], body: &[u8], result: Option<&[u8]>) {
        self.rows.push(task, key, body, result);
        self.ended_at.push_i64(ended_at(task));
        self.expires_at.push_some_i64(expires_at(task));
    }

    fn call(self, calls: &mut Vec<Call>) {
        if self.rows.n > 0 {
            calls.push(Call::new(INSERT_DONE, self.rows.params([self.ended_at, self.expires_at])));
        }
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

pub fn update_tasks(updates: &[Update], scratch: &mut Scratch, calls: &mut Vec<Call>) {
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
