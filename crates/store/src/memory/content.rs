//! What the store in memory holds: rows, the orders they are read in, and how a commit and a purge change them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use runyard_core::batch::Batch;
use runyard_core::event::{FirstAnswer, Happening, IdempotencyRow, Release, Rest};
use runyard_core::hash::{DetMap, DetSet};
use runyard_core::ids::{BatchId, FlowId, TaskId, WorkerId};
use runyard_core::name::{Blob, Name};
use runyard_core::now::{Clock, Now, WallMs};
use runyard_core::outbox::{Delivery, DeliveryId};
use runyard_core::session::{Message, Session, SessionId};
use runyard_core::task::{Phase, State, Task, Wait};
use runyard_core::worker::WorkerRow;
use runyard_core::write::{CountDelta, CountKey, FlowRow, Loaded, Meta, Needs, WriteSet};

use super::FailCommit;
use super::schedules::Schedules;
use crate::codec::{RowKey, encode_happenings};
use crate::store::{
    DeliveryFilter, DeliveryPhase, Error, Filter, FlowRows, FlowWant, Purge, Purged, Result, SessionFilter, TaskDoc,
};

#[derive(Default)]
pub(super) struct Content {
    pub(super) meta: Meta,
    pub(super) has_salt: bool,
    pub(super) tasks: BTreeMap<u64, Row>,
    pub(super) seqs: DetMap<TaskId, u64>,
    pub(super) queued: BTreeSet<(FlowId, i32, u64)>,
    pub(super) queued_by_seq: BTreeSet<(FlowId, u64)>,
    pub(super) wall_dues: BTreeSet<(u64, u64)>,
    pub(super) steady_dues: BTreeSet<(u64, u64)>,
    pub(super) held: BTreeSet<u64>,
    pub(super) members: BTreeSet<(BatchId, u64)>,
    /// Members that wait for a place of their batch.
    pub(super) placeless: BTreeSet<(BatchId, u64)>,
    /// Edges by the parent and the child's seq, and back.
    pub(super) edges: BTreeSet<(TaskId, u64)>,
    pub(super) edges_back: BTreeSet<(u64, TaskId)>,
    pub(super) releases: BTreeSet<Release>,
    pub(super) sessions: BTreeMap<SessionId, Session>,
    pub(super) session_ids: BTreeMap<Name, SessionId>,
    pub(super) session_members: BTreeSet<(SessionId, u64)>,
    /// Members in line without a seat, by their number in the line.
    pub(super) lines: BTreeSet<(SessionId, u64, u64)>,
    /// By the task's seq and the message's place in it.
    pub(super) messages: BTreeMap<(u64, u32), (Message, Blob)>,
    /// The seqs of dropped tasks, by their number in the session's count.
    pub(super) drops: BTreeMap<(SessionId, u64), u64>,
    pub(super) flows: BTreeMap<FlowId, FlowRow>,
    pub(super) batches: BTreeMap<BatchId, (Batch, Blob)>,
    pub(super) counts: BTreeMap<CountKey, CountDelta>,
    pub(super) keys: BTreeMap<(Name, Name), IdempotencyRow>,
    pub(super) rates: BTreeMap<Name, u64>,
    pub(super) settings: BTreeMap<Name, Blob>,
    pub(super) deliveries: BTreeMap<DeliveryId, Delivery>,
    /// Pending ones by their next time.
    pub(super) deliveries_due: BTreeSet<(WallMs, DeliveryId)>,
    pub(super) schedules: Schedules,
    pub(super) workers: BTreeMap<WorkerId, WorkerRow>,
    pub(super) log: BTreeMap<u64, LogEntry>,
    pub(super) log_seq: u64,
    pub(super) log_bytes: u64,
    pub(super) fail_next: Option<FailCommit>,
}

pub(super) struct Row {
    pub(super) task: Task,
    pub(super) key: RowKey,
    pub(super) spec: Option<Blob>,
    pub(super) result: Option<Blob>,
}

pub(super) struct LogEntry {
    pub(super) at_ms: WallMs,
    pub(super) n_bytes: u64,
    pub(super) happenings: Vec<Happening>,
}

impl Content {
    pub(super) fn load(&mut self, salt: u64) -> Loaded {
        self.meta.epoch += 1;
        if !self.has_salt {
            self.meta.salt = salt;
            self.has_salt = true;
        }
        self.flows.retain(|_, flow| flow.n_live > 0);
        let held: Vec<Task> = self.held.iter().map(|seq| self.tasks[seq].task.clone()).collect();
        let named: BTreeSet<BatchId> = held.iter().filter_map(|task| task.batch).collect();
        let batches = named.iter().filter_map(|id| self.batches.get(id)).map(|(batch, _)| batch);
        Loaded {
            meta: self.meta,
            flows: self.flows.values().cloned().collect(),
            batches: batches.filter(|batch| batch.finished_at.is_none()).cloned().collect(),
            sessions: self.sessions_held(&held),
            held,
            releases: self.releases.iter().copied().collect(),
            counts: self.counts_all(),
            rates: self.rates.iter().map(|(name, &state)| (name.clone(), state)).collect(),
            settings: self.settings.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            n_schedules: self.schedules.len(),
            workers: self.workers.values().cloned().collect(),
        }
    }

    /// Every guard of the commit, before anything is written.
    pub(super) fn check(&self, writes: &WriteSet) -> Result<()> {
        if writes.meta.epoch != self.meta.epoch {
            return Err(Error::Fenced { ours: writes.meta.epoch, theirs: self.meta.epoch });
        }
        let mut new = DetSet::default();
        for insert in &writes.inserts {
            let Task { id, seq, .. } = insert.task;
            if self.tasks.contains_key(&seq) || self.seqs.contains_key(&id) || !new.insert(id) {
                return Err(conflict(Some(id), "it exists already"));
            }
        }
        for update in &writes.updates {
            let row = self.tasks.get(&update.task.seq);
            let is = row.map(|row| (row.task.phase(), row.task.attempt));
            if is != Some(update.from) {
                return Err(conflict(Some(update.task.id), &format!("expected {:?}, found {is:?}", update.from)));
            }
        }
        for edge in &writes.edges_added {
            if !new.contains(&edge.child) && !self.seqs.contains_key(&edge.child) {
                return Err(conflict(Some(edge.child), "the child of a new edge does not exist"));
            }
        }
        if writes.batches_added.iter().any(|(batch, _)| self.batches.contains_key(&batch.id)) {
            return Err(conflict(None, "a new batch exists already"));
        }
        let is_new = |batch: &Batch| writes.batches_added.iter().any(|(new, _)| new.id == batch.id);
        if writes.batches_put.iter().any(|batch| !self.batches.contains_key(&batch.id) && !is_new(batch)) {
            return Err(conflict(None, "a changed batch does not exist"));
        }
        let exists = |row: &IdempotencyRow| self.keys.contains_key(&key_of(row));
        if writes.idempotency_added.iter().any(exists) {
            return Err(conflict(None, "a new idempotency key exists already"));
        }
        let mut numbers = BTreeSet::new();
        for Delivery { id, .. } in &writes.deliveries_added {
            if self.deliveries.contains_key(id) || !numbers.insert(id) {
                return Err(conflict(None, "a new delivery exists already"));
            }
        }
        self.check_sessions(writes)?;
        self.schedules.check(writes)
    }

    fn check_sessions(&self, writes: &WriteSet) -> Result<()> {
        let (mut ids, mut keys) = (BTreeSet::new(), BTreeSet::new());
        for Session { id, key, .. } in &writes.sessions_added {
            let exists = self.sessions.contains_key(id) || self.session_ids.contains_key(key);
            if exists || !ids.insert(id) || !keys.insert(key) {
                return Err(conflict(None, "a new session exists already"));
            }
        }
        if writes.sessions_put.iter().any(|Session { id, .. }| !self.sessions.contains_key(id) && !ids.contains(id)) {
            return Err(conflict(None, "a changed session does not exist"));
        }
        let mut places = BTreeSet::new();
        for (message, _) in &writes.messages_added {
            let place = (message.task_seq, message.n);
            if self.messages.contains_key(&place) || !places.insert(place) {
                return Err(conflict(Some(message.task), "its message exists already"));
            }
        }
        let mut numbers = BTreeSet::new();
        for drop in &writes.drops_added {
            let number = (drop.session, drop.n);
            if self.drops.contains_key(&number) || !numbers.insert(number) {
                return Err(conflict(Some(drop.task), "its drop's number is taken"));
            }
        }
        Ok(())
    }

    pub(super) fn apply(&mut self, writes: &WriteSet) -> u64 {
        self.meta = Meta { salt: self.meta.salt, ..writes.meta };
        for insert in &writes.inserts {
            let key = RowKey::of(&insert.key);
            let (spec, result) = (insert.spec.clone(), insert.result.clone());
            self.put(Row { task: insert.task.clone(), key, spec, result });
        }
        for update in &writes.updates {
            let mut row = self.take(update.task.seq).expect("its guard was checked");
            row.task = update.task.clone();
            row.key = update.key.as_ref().map_or(row.key, |key| RowKey::of(key));
            row.result = update.result.clone().or(row.result);
            self.put(row);
        }
        self.apply_links(writes);
        self.apply_sessions(writes);
        self.apply_rest(writes);
        self.apply_deliveries(writes);
        self.schedules.apply(writes);
        self.workers.extend(writes.workers_put.iter().map(|row| (row.spec.id, row.clone())));
        writes.workers_removed.iter().for_each(|id| drop(self.workers.remove(id)));
        self.append(&writes.happenings)
    }

    /// What is removed and added in one commit is there afterwards: a release too many is worked off, one too few
    /// would leave its tasks waiting for ever.
    fn apply_links(&mut self, writes: &WriteSet) {
        for edge in &writes.edges_removed {
            if let Some(&child) = self.seqs.get(&edge.child) {
                self.edges.remove(&(edge.parent, child));
                self.edges_back.remove(&(child, edge.parent));
            }
        }
        for edge in &writes.edges_added {
            let child = self.seqs[&edge.child];
            self.edges.insert((edge.parent, child));
            self.edges_back.insert((child, edge.parent));
        }
        for release in &writes.releases_removed {
            self.releases.remove(release);
        }
        self.releases.extend(&writes.releases_added);
    }

    fn apply_sessions(&mut self, writes: &WriteSet) {
        self.session_ids.extend(writes.sessions_added.iter().map(|session| (session.key.clone(), session.id)));
        let sessions = writes.sessions_added.iter().chain(&writes.sessions_put);
        self.sessions.extend(sessions.map(|session| (session.id, session.clone())));
        let messages = writes.messages_added.iter().map(|row| ((row.0.task_seq, row.0.n), row.clone()));
        self.messages.extend(messages);
        self.drops.extend(writes.drops_added.iter().map(|drop| ((drop.session, drop.n), drop.task_seq)));
    }

    fn apply_rest(&mut self, writes: &WriteSet) {
        for id in &writes.flows_removed {
            self.flows.remove(id);
        }
        self.flows.extend(writes.flows_put.iter().map(|flow| (flow.id, flow.clone())));
        self.batches.extend(writes.batches_added.iter().map(|(batch, spec)| (batch.id, (batch.clone(), spec.clone()))));
        for batch in &writes.batches_put {
            self.batches.get_mut(&batch.id).expect("its guard was checked").0 = batch.clone();
        }
        self.keys.extend(writes.idempotency_added.iter().map(|row| (key_of(row), row.clone())));
        for (key, delta) in &writes.counts {
            let count = self.counts.entry(key.clone()).or_default();
            let (mut values, deltas) = (count.values(), delta.values());
            values.iter_mut().zip(deltas).for_each(|(value, delta)| *value += delta);
            *count = CountDelta::from_values(values);
        }
        self.rates.extend(writes.rates.iter().cloned());
        self.settings.extend(writes.settings.iter().cloned());
    }

    fn apply_deliveries(&mut self, writes: &WriteSet) {
        for delivery in &writes.deliveries_added {
            self.deliveries_due.extend(delivery.next_at().map(|at| (at, delivery.id)));
            self.deliveries.insert(delivery.id, delivery.clone());
        }
        for (id, progress) in &writes.deliveries_put {
            let Some(delivery) = self.deliveries.get_mut(id) else { continue };
            delivery.next_at().map(|at| self.deliveries_due.remove(&(at, *id)));
            delivery.progress = progress.clone();
            self.deliveries_due.extend(delivery.next_at().map(|at| (at, *id)));
        }
    }

    fn append(&mut self, happenings: &[Happening]) -> u64 {
        if !happenings.is_empty() {
            let mut bytes = Vec::new();
            encode_happenings(happenings, &mut bytes);
            let n_bytes = bytes.len() as u64;
            let entry = LogEntry { at_ms: self.meta.now.wall_ms, n_bytes, happenings: happenings.to_vec() };
            self.log_seq += 1;
            self.log_bytes += n_bytes;
            self.log.insert(self.log_seq, entry);
        }
        self.log_seq
    }

    fn put(&mut self, row: Row) {
        let task = &row.task;
        let Task { id, seq, flow, rank, .. } = *task;
        match task.state {
            State::Queued { .. } => {
                self.queued.insert((flow, rank, seq));
                self.queued_by_seq.insert((flow, seq));
            }
            State::Assigned(_) | State::Running(_) => {
                self.held.insert(seq);
            }
            _ => {}
        }
        self.wall_dues.extend(task.wall_due().map(|at| (at, seq)));
        self.steady_dues.extend(task.steady_due().map(|at| (at, seq)));
        self.members.extend(task.batch.map(|batch| (batch, seq)));
        self.placeless.extend(place_wanted(task));
        self.session_members.extend(task.session().map(|session| (session, seq)));
        self.lines.extend(place_in_line(task));
        self.seqs.insert(id, seq);
        self.tasks.insert(seq, row);
    }

    /// Takes a row out of everything that [`Content::put`] entered it in.
    pub(super) fn take(&mut self, seq: u64) -> Option<Row> {
        let row = self.tasks.remove(&seq)?;
        let task = &row.task;
        let Task { id, flow, rank, .. } = *task;
        self.queued.remove(&(flow, rank, seq));
        self.queued_by_seq.remove(&(flow, seq));
        self.held.remove(&seq);
        task.wall_due().map(|at| self.wall_dues.remove(&(at, seq)));
        task.steady_due().map(|at| self.steady_dues.remove(&(at, seq)));
        task.batch.map(|batch| self.members.remove(&(batch, seq)));
        place_wanted(task).map(|place| self.placeless.remove(&place));
        task.session().map(|session| self.session_members.remove(&(session, seq)));
        place_in_line(task).map(|place| self.lines.remove(&place));
        self.seqs.remove(&id);
        Some(row)
    }

    pub(super) fn row(&self, id: TaskId) -> Option<&Row> {
        self.seqs.get(&id).map(|seq| &self.tasks[seq])
    }

    pub(super) fn dues_of(&self, clock: Clock) -> &BTreeSet<(u64, u64)> {
        match clock {
            Clock::Wall => &self.wall_dues,
            Clock::Steady => &self.steady_dues,
        }
    }

    pub(super) fn children(&self, parent: TaskId) -> impl Iterator<Item = u64> + '_ {
        self.edges.range((parent, 0)..=(parent, u64::MAX)).map(|&(_, child)| child)
    }

    pub(super) fn session_of(&self, key: &str) -> Option<&Session> {
        self.session_ids.get(key).map(|id| &self.sessions[id])
    }

    pub(super) fn sessions_named(&self, needs: &Needs) -> Vec<Session> {
        let by_id = needs.sessions.iter().filter_map(|id| self.sessions.get(id));
        by_id.chain(needs.session_keys.iter().filter_map(|key| self.session_of(key))).cloned().collect()
    }

    fn sessions_held(&self, held: &[Task]) -> Vec<Session> {
        let named: BTreeSet<SessionId> = held.iter().filter_map(Task::session).collect();
        named.iter().filter_map(|id| self.sessions.get(id)).cloned().collect()
    }

    /// Seqs of the members that were submitted from `from` on and before `before`.
    pub(super) fn members_of(&self, session: SessionId, from: u64, before: u64) -> impl Iterator<Item = u64> + '_ {
        self.session_members.range((session, from)..(session, before.max(from))).map(|&(_, seq)| seq)
    }

    pub(super) fn messages_of(&self, seq: u64) -> impl Iterator<Item = &(Message, Blob)> + '_ {
        self.messages.range((seq, 0)..=(seq, u32::MAX)).map(|(_, row)| row)
    }

    pub(super) fn doc(&self, row: &Row) -> TaskDoc {
        let RowKey { agent, lane, kind, tier } = row.key.clone();
        let session = self.session_key(&row.task).cloned();
        let (task, spec, result) = (row.task.clone(), row.spec.clone(), row.result.clone());
        TaskDoc { task, agent, lane, kind, tier, session, spec, result }
    }

    fn session_key(&self, task: &Task) -> Option<&Name> {
        task.session().and_then(|id| self.sessions.get(&id)).map(|session| &session.key)
    }

    pub(super) fn passes(&self, row: &Row, filter: &Filter) -> bool {
        row.passes(filter) && filter.session.as_ref().is_none_or(|key| self.session_key(&row.task) == Some(key))
    }

    pub(super) fn counts_all(&self) -> Vec<(CountKey, CountDelta)> {
        self.counts.iter().map(|(key, count)| (key.clone(), *count)).collect()
    }

    pub(super) fn flow_rows(&self, want: &FlowWant) -> FlowRows {
        let &FlowWant { flow, after, limit } = want;
        let start = match after {
            Some((rank, seq)) => Bound::Excluded((flow, rank, seq)),
            None => Bound::Included((flow, i32::MIN, 0)),
        };
        let mut seqs = self.queued.range((start, Bound::Included((flow, i32::MAX, u64::MAX)))).map(|&(_, _, seq)| seq);
        let task = |seq: u64| self.tasks[&seq].task.clone();
        let rows = seqs.by_ref().take(limit).map(task).collect();
        let rest = if seqs.next().is_some() { Rest::More } else { Rest::Done };
        let oldest = self.queued_by_seq.range((flow, 0)..=(flow, u64::MAX)).next();
        FlowRows { flow, rows, oldest: oldest.map(|&(_, seq)| Box::new(task(seq))), rest }
    }

    pub(super) fn purge(&mut self, now: Now, purge: &Purge) -> Purged {
        let mut rest = Rest::Done;
        let mut first = |mut found: Vec<u64>| {
            if found.len() > purge.limit {
                found.truncate(purge.limit);
                rest = Rest::More;
            }
            found
        };
        let expired = self.tasks.values().filter(|row| self.is_expired(row, now, purge)).map(|row| row.task.seq);
        let expired = first(expired.collect());
        let log = first(self.log_expired(now, purge));
        let tasks = expired.iter().map(|&seq| self.remove(seq)).collect();
        for seq in log {
            self.log_bytes -= self.log.remove(&seq).map_or(0, |entry| entry.n_bytes);
        }
        self.purge_batches(now, purge);
        let is_over = |d: &Delivery| d.next_at().is_none() && is_past(now, d.happening.at_ms, purge.deliveries_ms);
        self.deliveries.retain(|_, delivery| !is_over(delivery));
        self.purge_sessions(now, purge);
        self.purge_keys(now, purge);
        if self.schedules.purge_runs(now, purge) {
            rest = Rest::More;
        }
        Purged { tasks, rest }
    }

    fn is_expired(&self, row: &Row, now: Now, purge: &Purge) -> bool {
        let task = &row.task;
        let kept_ms = task.policy.ttl_ms.unwrap_or(purge.retention_ms);
        task.phase().is_terminal()
            && is_past(now, task.finished_at.unwrap_or(task.created_at), kept_ms)
            && !self.is_awaited(task.id.0)
            && !self
                .releases
                .iter()
                .any(|release| matches!(release, Release::Parent { parent: id, .. } | Release::RunEnded { task: id, .. } if *id == task.id))
    }

    /// Is there a message about it that has not been delivered?
    fn is_awaited(&self, subject: u128) -> bool {
        self.deliveries_due.iter().any(|(_, id)| self.deliveries[id].subject() == Some(subject))
    }

    fn log_expired(&self, now: Now, purge: &Purge) -> Vec<u64> {
        let mut n_bytes = self.log_bytes;
        let mut is_over = |entry: &LogEntry| {
            let is_over = n_bytes > purge.happenings_bytes_max || is_past(now, entry.at_ms, purge.happenings_ms);
            n_bytes -= entry.n_bytes;
            is_over
        };
        self.log.iter().take_while(|(_, entry)| is_over(entry)).map(|(&seq, _)| seq).collect()
    }

    fn remove(&mut self, seq: u64) -> TaskId {
        let row = self.take(seq).expect("it was just found");
        let id = row.task.id;
        let children: Vec<u64> = self.children(id).collect();
        let parents: Vec<TaskId> =
            self.edges_back.range((seq, TaskId(0))..=(seq, TaskId(u128::MAX))).map(|&(_, parent)| parent).collect();
        let edges =
            children.into_iter().map(|child| (id, child)).chain(parents.into_iter().map(|parent| (parent, seq)));
        for (parent, child) in edges {
            self.edges.remove(&(parent, child));
            self.edges_back.remove(&(child, parent));
        }
        if row.task.member.is_some() {
            self.messages.retain(|&(task, _), _| task != seq);
            self.drops.retain(|_, task| *task != seq);
        }
        id
    }

    fn purge_batches(&mut self, now: Now, purge: &Purge) {
        let members = &self.members;
        let awaited: BTreeSet<BatchId> = self.batches.keys().filter(|id| self.is_awaited(id.0)).copied().collect();
        self.batches.retain(|&id, (batch, _)| {
            let is_over = batch.finished_at.is_some_and(|at| is_past(now, at, purge.retention_ms));
            !is_over || awaited.contains(&id) || members.range((id, 0)..=(id, u64::MAX)).next().is_some()
        });
    }

    /// A session goes when nothing lives in it, nobody used it for so long, and no task is left to show.
    fn purge_sessions(&mut self, now: Now, purge: &Purge) {
        let members = &self.session_members;
        self.sessions.retain(|&id, session| {
            let is_over = session.n_live == 0 && is_past(now, session.last_at, purge.retention_ms);
            !is_over || members.range((id, 0)..=(id, u64::MAX)).next().is_some()
        });
        let sessions = &self.sessions;
        self.session_ids.retain(|_, id| sessions.contains_key(id));
    }

    fn purge_keys(&mut self, now: Now, purge: &Purge) {
        let (seqs, batches) = (&self.seqs, &self.batches);
        self.keys.retain(|_, row| {
            let lives = match &row.answer {
                FirstAnswer::Task { id, .. } => seqs.contains_key(id),
                FirstAnswer::Batch { id, .. } => batches.contains_key(id),
                FirstAnswer::Command(_) => false,
            };
            lives || !is_past(now, row.created_at, purge.keys_ms_min)
        });
    }
}

impl Row {
    pub(super) fn passes(&self, filter: &Filter) -> bool {
        let (task, key) = (&self.task, &self.key);
        (filter.phases.is_empty() || filter.phases.contains(&task.phase()))
            && filter.agent.as_ref().is_none_or(|agent| *agent == key.agent)
            && filter.lane.as_ref().is_none_or(|lane| *lane == key.lane)
            && filter.kind.as_ref().is_none_or(|kind| *kind == key.kind)
            && filter.tier.is_none_or(|tier| tier == key.tier)
            && filter.batch.is_none_or(|batch| Some(batch) == task.batch)
            && filter.created_after.is_none_or(|at| task.created_at > at)
            && filter.created_before.is_none_or(|at| task.created_at < at)
    }
}

fn place_wanted(task: &Task) -> Option<(BatchId, u64)> {
    let waits = task.state == State::Waiting(Wait::BatchPlace);
    task.batch.filter(|_| waits).map(|batch| (batch, task.seq))
}

fn place_in_line(task: &Task) -> Option<(SessionId, u64, u64)> {
    task.member.filter(|_| task.in_line()).map(|member| (member.session, member.line, task.seq))
}

pub(super) fn is_seated_unstarted(task: &Task) -> bool {
    let unstarted = matches!(task.phase(), Phase::Waiting | Phase::Queued);
    unstarted && task.member.is_some_and(|member| member.seated)
}

pub(super) fn session_passes(session: &Session, filter: &SessionFilter) -> bool {
    (!filter.busy || session.n_live > 0)
        && filter.prefix.as_ref().is_none_or(|prefix| session.key.starts_with(&**prefix))
}

pub(super) fn delivery_passes(delivery: &Delivery, filter: &DeliveryFilter) -> bool {
    filter.state.is_none_or(|state| state == DeliveryPhase::of(delivery.progress.state))
        && filter.event.is_none_or(|event| event == delivery.happening.kind)
        && filter.hook.as_ref().is_none_or(|hook| delivery.hook.as_ref() == Some(hook))
        && filter.subject.is_none_or(|subject| delivery.subject() == Some(subject))
}

fn key_of(row: &IdempotencyRow) -> (Name, Name) {
    (row.key.agent.clone(), row.key.key.clone())
}

/// A time so long that it reaches behind the beginning of the clock is never over.
pub(super) fn is_past(now: Now, at: WallMs, kept_ms: u64) -> bool {
    now.wall_ms.checked_sub(kept_ms).is_some_and(|limit| at <= limit)
}

pub(super) fn conflict(task: Option<TaskId>, detail: &str) -> Error {
    Error::Conflict { task, detail: detail.to_owned() }
}

pub(super) fn injected(doing: &'static str) -> Error {
    Error::Driver { doing, source: "a failure that a test asked for".into() }
}
