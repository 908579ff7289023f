//! What the tick loop reads. What is asked for together is asked in one round trip, and each statement names the index it
//! relies on; a test has the plans explained on a database without statistics.
//!
//! A task by its id is looked for among the live ones first and then among the ended: the second is only read when the first
//! gave nothing.

use std::ops::Range;

use runyard_core::event::{Due, Idempotency, IdempotencyRow, Release, Rest};
use runyard_core::ids::TaskId;
use runyard_core::name::Blob;
use runyard_core::now::Clock;
use runyard_core::session::{Session, SessionId};
use runyard_core::task::{State, Task, Wait};
use runyard_core::write::{Needs, Rows};

use super::column::{Column, Param, bigints, uuids};
use super::commit::seq_of;
use super::link::{Call, Link};
use super::places::Floors;
use super::row::{
    Row, Tried, batch_at, blob_at, damaged, field, id_at, integer, moment, number, session_at, task_at, task_columns,
    task_from,
};
use super::schedules::{self, texts, with_template};
use crate::codec::decode_answer;
use crate::store::{FlowRows, FlowWant, Result};

/// By tasks_id, tasks_done_id.
pub const TASKS: &str = concat!(
    "SELECT ",
    task_columns!(),
    " FROM unnest($1::uuid[]) WITH ORDINALITY AS w(id, n) CROSS JOIN LATERAL (SELECT ",
    task_columns!(),
    " FROM tasks t WHERE t.id = w.id UNION ALL SELECT ",
    task_columns!(),
    " FROM tasks_done t WHERE t.id = w.id LIMIT 1) t ORDER BY w.n"
);

/// By keys_pkey.
pub const KEYS: &str = "SELECT w.n, k.hash, k.created_at, k.answer \
                        FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY AS w(agent, key, n) \
                        JOIN keys k ON k.agent = w.agent AND k.key = w.key ORDER BY w.n";

/// By sessions_pkey.
pub const SESSIONS: &str = "SELECT s.id, s.key, s.body FROM unnest($1::bigint[]) WITH ORDINALITY AS w(id, n) \
                            JOIN sessions s ON s.id = w.id ORDER BY w.n";

/// By sessions_key.
pub const SESSIONS_KEYED: &str = "SELECT s.id, s.key, s.body FROM unnest($1::bytea[]) WITH ORDINALITY AS w(key, n) \
                                  JOIN sessions s ON s.key = w.key ORDER BY w.n";

/// By batches_pkey.
pub const BATCHES: &str = "SELECT b.id, b.body FROM unnest($1::uuid[]) WITH ORDINALITY AS w(id, n) \
                           JOIN batches b ON b.id = w.id ORDER BY w.n";

pub fn fetch(link: &mut Link, needs: &Needs) -> Tried<Rows> {
    let [by_id, by_name] = schedules::fetch_calls(needs);
    let asked = [
        (!needs.tasks.is_empty()).then(|| Call::new(TASKS, [uuids(needs.tasks.iter().map(|id| id.0))])),
        (!needs.batches.is_empty()).then(|| Call::new(BATCHES, [uuids(needs.batches.iter().map(|id| id.0))])),
        (!needs.sessions.is_empty())
            .then(|| Call::new(SESSIONS, [bigints(needs.sessions.iter().map(|id| integer(id.0)))])),
        (!needs.session_keys.is_empty()).then(|| Call::new(SESSIONS_KEYED, [texts(&needs.session_keys)])),
        (!needs.keys.is_empty()).then(|| Call::new(KEYS, key_columns(&needs.keys))),
        by_id,
        by_name,
    ];
    let is_asked = asked.each_ref().map(Option::is_some);
    let calls: Vec<Call> = asked.into_iter().flatten().collect();
    let mut answers = link.query_all(READING, &calls)?.into_iter();
    let [tasks, batches, sessions, keyed, keys, by_id, by_name] =
        is_asked.map(|is_asked| if is_asked { answers.next().unwrap_or_default() } else { Vec::new() });
    Ok(Rows {
        tasks: all(&tasks, task_at)?,
        batches: all(&batches, batch_at)?,
        sessions: sessions.iter().chain(&keyed).map(session_at).collect::<Result<_>>()?,
        keys: all(&keys, |row| idempotency_at(row, &needs.keys))?,
        schedules: by_id.iter().chain(&by_name).map(with_template).collect::<Result<_>>()?,
    })
}

fn key_columns(keys: &[Idempotency]) -> [Param; 2] {
    let (mut agents, mut names) = (Column::text(keys.len()), Column::bytea(keys.len()));
    for key in keys {
        agents.push(key.agent.as_bytes());
        names.push(key.key.as_bytes());
    }
    [agents, names].map(Param::from)
}

/// The hash that comes back is the stored one: whether it is the same body is not the store's to judge.
fn idempotency_at(row: &Row, wanted: &[Idempotency]) -> Result<IdempotencyRow> {
    let wanted = &wanted[field::<i64>(row, 0)? as usize - 1];
    let answer = decode_answer(field(row, 3)?)
        .ok_or_else(|| damaged("an idempotency key's row", format!("{} of {}", wanted.key, wanted.agent)))?;
    let key = Idempotency { hash: number(field(row, 1)?), ..wanted.clone() };
    Ok(IdempotencyRow { key, answer, created_at: number(field(row, 2)?) })
}

/// By tasks_queued.
pub const QUEUED: &str = concat!(
    "SELECT w.n, ",
    task_columns!(),
    " FROM unnest($1::bigint[], $2::int[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS w(flow, rank, seq, n_max, n) \
     CROSS JOIN LATERAL (SELECT ",
    task_columns!(),
    " FROM tasks t WHERE t.phase = 2 AND t.flow = w.flow AND (t.rank, t.seq) > (w.rank, w.seq) \
     ORDER BY t.rank, t.seq LIMIT w.n_max) t"
);

/// The first of rank 0 and the first of any other rank, whichever is older. By tasks_queued, tasks_ranked.
pub const OLDEST: &str = concat!(
    "SELECT w.n, ",
    task_columns!(),
    " FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS w(flow, floor, n) CROSS JOIN LATERAL ((SELECT ",
    task_columns!(),
    " FROM tasks t WHERE t.phase = 2 AND t.flow = w.flow AND t.rank = 0 AND t.seq >= w.floor ORDER BY t.seq LIMIT 1) \
     UNION ALL (SELECT ",
    task_columns!(),
    " FROM tasks t WHERE t.phase = 2 AND t.flow = w.flow AND t.rank <> 0 AND t.seq >= w.floor ORDER BY t.seq LIMIT 1)) t"
);

pub fn flow_rows(link: &mut Link, wants: &[FlowWant], floors: &mut Floors) -> Tried<Vec<FlowRows>> {
    let n = wants.len();
    let (mut flows, mut ranks) = (Column::bigint(n), Column::int(n));
    let (mut seqs, mut limits, mut oldest) = (Column::bigint(n), Column::bigint(n), Column::bigint(n));
    for want in wants {
        let (rank, from) = floors.head(want.flow.0);
        let (rank, seq) = want.after.map_or((rank, from - 1), |(rank, seq)| (rank, integer(seq)));
        oldest.push_i64(floors.oldest(want.flow.0));
        flows.push_i64(integer(want.flow.0));
        ranks.push_i32(rank);
        seqs.push_i64(seq);
        // One more than asked for, to know whether there is more.
        limits.push_i64(want.limit.saturating_add(1) as i64);
    }
    let flows = Param::from(flows);
    let queued = Call::new(QUEUED, [flows.clone(), ranks.into(), seqs.into(), limits.into()]);
    let answers = link.query_all(READING, &[queued, Call::new(OLDEST, [flows, oldest.into()])])?;
    let none = |want: &FlowWant| FlowRows { flow: want.flow, rows: Vec::new(), oldest: None, rest: Rest::Done };
    let mut read: Vec<FlowRows> = wants.iter().map(none).collect();
    for row in &answers[0] {
        let index = field::<i64>(row, 0)? as usize - 1;
        match read[index].rows.len() < wants[index].limit {
            true => read[index].rows.push(task_from(row, 1)?),
            false => read[index].rest = Rest::More,
        }
    }
    for row in &answers[1] {
        let oldest = &mut read[field::<i64>(row, 0)? as usize - 1].oldest;
        let task = task_from(row, 1)?;
        if oldest.as_ref().is_none_or(|oldest| task.seq < oldest.seq) {
            *oldest = Some(Box::new(task));
        }
    }
    wants.iter().zip(&read).for_each(|(want, read)| floors.raise(want, read));
    Ok(read)
}

/// By tasks_wall_due.
pub const DUE_WALL: &str = "SELECT t.wall_due, t.seq, t.id FROM tasks t WHERE t.wall_due IS NOT NULL \
                            AND (t.wall_due, t.seq) > ($1::bigint, $2::bigint) \
                            ORDER BY t.wall_due, t.seq LIMIT $3::bigint";
/// By tasks_steady_due.
pub const DUE_STEADY: &str = "SELECT t.steady_due, t.seq, t.id FROM tasks t WHERE t.steady_due IS NOT NULL \
                              AND (t.steady_due, t.seq) > ($1::bigint, $2::bigint) \
                              ORDER BY t.steady_due, t.seq LIMIT $3::bigint";

pub fn dues(link: &mut Link, clock: Clock, after: Option<Due>, limit: usize) -> Tried<Vec<Due>> {
    let sql = match clock {
        Clock::Wall => DUE_WALL,
        Clock::Steady => DUE_STEADY,
    };
    let (at, seq) = after.map_or((-1, -1), |due| (moment(due.at_ms), integer(due.seq)));
    let rows = link.query(READING, sql, [at, seq, limit as i64].map(Param::bigint))?;
    Ok(all(&rows, due_at)?)
}

fn due_at(row: &Row) -> Result<Due> {
    Ok(Due { at_ms: number(field(row, 0)?), seq: number(field(row, 1)?), task: TaskId(id_at(row, 2)?) })
}

/// By edges_pkey, tasks_id, tasks_done_id.
pub const CHILDREN: &str = concat!(
    "SELECT ",
    task_columns!(),
    " FROM (SELECT e.child, e.child_id FROM edges e WHERE e.parent = $1::uuid ORDER BY e.child LIMIT $2::bigint) e \
     CROSS JOIN LATERAL (SELECT ",
    task_columns!(),
    " FROM tasks t WHERE t.id = e.child_id UNION ALL SELECT ",
    task_columns!(),
    " FROM tasks_done t WHERE t.id = e.child_id LIMIT 1) t ORDER BY e.child"
);

/// By tasks_batch. A batch has at most a thousand members, so those that wait for something else are passed over.
pub const MEMBERS: &str = concat!(
    "SELECT ",
    task_columns!(),
    " FROM tasks t WHERE t.batch = $1::uuid AND t.batch IS NOT NULL AND t.phase = 0 ORDER BY t.seq"
);

pub fn released(link: &mut Link, release: &Release, limit: usize) -> Tried<Vec<Task>> {
    match *release {
        Release::Parent { parent, .. } => {
            let rows = link.query(READING, CHILDREN, [Param::uuid(parent.0), Param::bigint(limit as i64)])?;
            Ok(all(&rows, task_at)?)
        }
        Release::BatchPlace { batch } => {
            let mut members = all(&link.query(READING, MEMBERS, [Param::uuid(batch.0)])?, task_at)?;
            members.retain(|task| task.state == State::Waiting(Wait::BatchPlace));
            members.truncate(limit);
            Ok(members)
        }
        Release::SessionStop { session, before, from, .. } => members_live(link, session, from..before, limit),
        Release::SessionShrink { session } => members_seated(link, session, limit),
        Release::SessionSeat { session } | Release::SessionOverflow { session } => line(link, session, limit),
        Release::SessionReview { .. } | Release::RunEnded { .. } => Ok(Vec::new()),
    }
}

/// By tasks_session.
pub const MEMBERS_LIVE: &str = concat!(
    "SELECT ",
    task_columns!(),
    " FROM tasks t WHERE t.session = $1::bigint AND t.session IS NOT NULL AND t.seq >= $2::bigint AND t.seq < $3::bigint \
     ORDER BY t.seq LIMIT $4::bigint"
);

fn members_live(link: &mut Link, session: SessionId, seqs: Range<u64>, limit: usize) -> Tried<Vec<Task>> {
    let range = [integer(session.0), moment(seqs.start), moment(seqs.end), limit as i64];
    Ok(all(&link.query(READING, MEMBERS_LIVE, range.map(Param::bigint))?, task_at)?)
}

/// Those that wait for a place or are queued. By tasks_session: only live ones are in it.
fn members_seated(link: &mut Link, session: SessionId, limit: usize) -> Tried<Vec<Task>> {
    const SQL: &str = concat!(
        "SELECT ",
        task_columns!(),
        " FROM tasks t WHERE t.session = $1::bigint AND t.session IS NOT NULL AND t.phase IN (0, 2) ORDER BY t.seq"
    );
    let rows = link.query(READING, SQL, [Param::bigint(integer(session.0))])?;
    let mut members = all(&rows, task_at)?;
    members.retain(|task| task.member.is_some_and(|member| member.seated));
    members.truncate(limit);
    Ok(members)
}

/// By tasks_line.
pub const LINE: &str = concat!(
    "SELECT ",
    task_columns!(),
    " FROM tasks t WHERE t.session = $1::bigint AND t.line IS NOT NULL ORDER BY t.line, t.seq LIMIT $2::bigint"
);

fn line(link: &mut Link, session: SessionId, limit: usize) -> Tried<Vec<Task>> {
    Ok(all(&link.query(READING, LINE, [integer(session.0), limit as i64].map(Param::bigint))?, task_at)?)
}

pub fn sessions_after(link: &mut Link, after: SessionId, limit: usize) -> Tried<Vec<Session>> {
    let sql = "SELECT id, key, body FROM sessions WHERE id > $1::bigint ORDER BY id LIMIT $2::bigint";
    Ok(all(&link.query(READING, sql, [moment(after.0), limit as i64].map(Param::bigint))?, session_at)?)
}

pub fn merged(link: &mut Link, task: TaskId) -> Tried<Vec<Blob>> {
    const SQL: &str =
        concat!("SELECT m.spec FROM messages m WHERE m.task_seq = ", seq_of!("$1::uuid"), " ORDER BY m.n");
    Ok(all(&link.query(READING, SQL, [Param::uuid(task.0)])?, spec_at)?)
}

/// Each task's own message is the first of those it carried.
pub fn dropped(link: &mut Link, session: SessionId, from: u64, to: u64) -> Tried<Vec<Blob>> {
    let sql = "SELECT c.spec FROM session_drops d CROSS JOIN LATERAL \
               (SELECT -1 AS n, s.spec FROM specs s WHERE s.seq = d.task_seq UNION ALL \
               SELECT m.n, m.spec FROM messages m WHERE m.task_seq = d.task_seq) c \
               WHERE d.session = $1::bigint AND d.n >= $2::bigint AND d.n < $3::bigint ORDER BY d.n, c.n";
    let range = [integer(session.0), moment(from), moment(to)];
    Ok(all(&link.query(READING, sql, range.map(Param::bigint))?, spec_at)?)
}

fn spec_at(row: &Row) -> Result<Blob> {
    Ok(blob_at(row, 0)?.unwrap_or_default())
}

/// By tasks_id, tasks_done_id, specs_pkey.
pub const SPECS: &str = concat!(
    "SELECT w.n, s.spec FROM unnest($1::uuid[]) WITH ORDINALITY AS w(id, n) JOIN specs s ON s.seq = ",
    seq_of!("w.id")
);

pub fn specs(link: &mut Link, tasks: &[TaskId]) -> Tried<Vec<Option<Blob>>> {
    let rows = link.query("reading specs", SPECS, [uuids(tasks.iter().map(|id| id.0))])?;
    let mut specs = vec![None; tasks.len()];
    for row in &rows {
        specs[field::<i64>(row, 0)? as usize - 1] = blob_at(row, 1)?;
    }
    Ok(specs)
}

/// By tasks_queued.
pub const AHEAD: &str = "SELECT count(*) FROM (SELECT 1 FROM tasks t WHERE t.phase = 2 AND t.flow = $1::bigint \
                         AND (t.rank, t.seq) < ($2::int, $3::bigint) LIMIT $4::bigint) ahead";

pub fn n_ahead(link: &mut Link, task: &Task, limit: u32) -> Tried<u32> {
    let params = [
        Param::bigint(integer(task.flow.0)),
        Param::int(task.rank),
        Param::bigint(integer(task.seq)),
        Param::bigint(i64::from(limit)),
    ];
    let rows = link.query(READING, AHEAD, params)?;
    Ok(rows.first().map_or(Ok(0), |row| field::<i64>(row, 0))? as u32)
}

pub fn all<T>(rows: &[Row], read: impl Fn(&Row) -> Result<T>) -> Result<Vec<T>> {
    rows.iter().map(read).collect()
}

const READING: &str = "reading rows";
