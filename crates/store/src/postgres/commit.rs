//! One tick's writes as one transaction, built in full before anything is sent: a statement for each kind of row that
//! changed, with its rows as arrays. Each changed row must still be as the core believes it to be; the first statement
//! that finds another number of them than it was given ends the transaction.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::LazyLock;

use runyard_core::batch::Batch;
use runyard_core::event::{FirstAnswer, IdempotencyRow, Release};
use runyard_core::hash::DetMap;
use runyard_core::ids::TaskId;
use runyard_core::name::{Blob, Name};
use runyard_core::session::{Message, Session};
use runyard_core::write::{CountDelta, CountKey, Edge, FlowRow, SessionDrop, WriteSet};

use super::column::{Column, Param, bigints};
use super::link::{Call, transaction};
use super::places::{Place, Places};
use super::row::{Row, damaged, field, integer, moment, number};
use super::{outbox, schedules, tasks, workers};
use crate::codec::{
    ReleaseColumns, encode_answer, encode_batch, encode_happenings, encode_message_body, encode_release,
    encode_session_body,
};
use crate::store::Result;

/// Buffers that live from commit to commit.
#[derive(Default)]
pub struct Scratch {
    pub body: Vec<u8>,
    pub key: Vec<u8>,
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
    tasks::insert_tasks(&writes.inserts, scratch, &mut calls);
    tasks::update_tasks(&writes.updates, scratch, &mut calls);
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
            let ReleaseColumns { kind, id, ended } = encode_release(release);
            kinds.push_i16(kind.into());
            ids.push(&id);
            ends.push_i16(ended.into());
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
            // Of no row, so that its time is all it has.
            FirstAnswer::Command(_) => 0,
        });
        answers.push(&encode_answer(&row.answer));
    }
    let sql = "INSERT INTO keys(agent, key, hash, created_at, subject, answer, orphaned) \
               SELECT k.*, k.subject = '00000000-0000-0000-0000-000000000000' FROM unnest($1::text[], $2::bytea[], \
               $3::bigint[], $4::bigint[], $5::uuid[], $6::bytea[]) k(agent, key, hash, created_at, subject, answer)";
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
pub const WRITING: &str = "writing a commit";
