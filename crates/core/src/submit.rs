//! Admission: what is taken in, what is refused, and what a change or cancel does before anything runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::batch::Batch;
use crate::core::{BatchEntry, Core, Entry, answer};
use crate::event::{
    Accepted, Admit, Answer, Asked, CancelAnswer, Change, ChangeRefusal, Command, FirstAnswer, HappeningKind,
    Idempotency, IdempotencyRow, NewMember, NewTask, Refusal, Subject, Submission, SubmitMode, TaskFacts,
};
use crate::flow::FlowKey;
use crate::hash::DetMap;
use crate::ids::{BatchId, FlowId, TaskId, Ticket};
use crate::lifecycle::Why;
use crate::name::Name;
use crate::now::Now;
use crate::planted::Bug;
use crate::session::{Member, Session};
use crate::task::{Class, Delay, OnDependencyFailure, Phase, State, Stop, Task, Text, Wait};
use crate::trail::{Step, StepKind, Trail};
use crate::write::Insert;

/// What the accepted items of one submission would add, so that limits hold for all of them together.
#[derive(Default)]
struct Planned {
    total: u64,
    by_agent: BTreeMap<Name, u64>,
    flows: BTreeSet<FlowKey>,
    flows_by_agent: BTreeMap<Name, u32>,
    /// The rows of sessions as the items so far would leave them.
    sessions: DetMap<Name, Box<Session>>,
    /// The task that a single submit becomes part of, if it does.
    carrier: Option<TaskId>,
}

type Items = Vec<Result<Accepted, Refusal>>;

/// A task that is there and does not stand anywhere yet.
struct Created {
    id: TaskId,
    parents: Vec<TaskId>,
    member: Option<(NewMember, Name)>,
}

/// Take the item (`Ok(None)`), answer with a known task (`Ok(Some)`), or refuse it.
type Verdict = Result<Option<Accepted>, Refusal>;

impl Core {
    pub(crate) fn on_submit(&mut self, now: Now, submission: Submission, out: &mut Vec<Command>) {
        let ticket = submission.ticket;
        let known = self.replay(submission.idempotency.as_ref()).or_else(|| self.stored(&submission));
        let result = match known {
            Some(known) => known,
            None => self.submit(now, submission),
        };
        answer(out, ticket, result);
    }

    /// A known key gives the first answer again, or is refused with another body.
    pub(crate) fn replay(&self, idempotency: Option<&Idempotency>) -> Option<Answer> {
        let key = idempotency?;
        let row = self.tick.keys.get(&(key.agent.clone(), key.key.clone()))?;
        if row.key.hash == key.hash {
            Some(Answer::Replayed(row.answer.clone()))
        } else {
            Some(Answer::Refused(Refusal::KeyReused { key: key.key.clone() }))
        }
    }

    /// What is asked again with the same ids is answered from the rows, if it was stored the first time.
    fn stored(&self, submission: &Submission) -> Option<Answer> {
        if submission.asked == Asked::Once {
            return None;
        }
        let phase = |item: &NewTask| self.tasks.get(&item.id).map(|entry| entry.task.phase());
        let found: Vec<Option<Phase>> = submission.items.iter().map(phase).collect();
        let first = found.iter().position(Option::is_some)?;
        let tasks = submission.items.iter().zip(found);
        let mut tasks = tasks.map(|(item, phase)| (item.id, phase.unwrap_or(Phase::Rejected)));
        Some(match &submission.batch {
            Some(batch) => Answer::Replayed(FirstAnswer::Batch { id: batch.id, tasks: tasks.collect() }),
            None => match tasks.nth(first)? {
                // It was refused and recorded; by now there may be room, but not under this id.
                (id, Phase::Rejected) => Answer::Refused(Refusal::QueueFull {
                    agent: None,
                    queued: self.n_unstarted,
                    limit: self.config.queued_max,
                    recorded: Some(id),
                }),
                (id, phase) => Answer::Replayed(FirstAnswer::Task { id, phase }),
            },
        })
    }

    pub(crate) fn submit(&mut self, now: Now, submission: Submission) -> Answer {
        if self.admit != Admit::Open {
            return Answer::Refused(Refusal::Draining);
        }
        let Submission { batch, mode, items, idempotency, .. } = submission;
        let is_single = batch.is_none() && items.len() == 1;
        let mut planned = Planned::default();
        let mut verdicts = self.judge(now, &items, idempotency.as_ref(), is_single, &mut planned);
        if mode == SubmitMode::All
            && let Some(at) = verdicts.iter().position(Result::is_err)
        {
            let refusal = verdicts.swap_remove(at).expect_err("the position was just found");
            return Answer::Refused(self.record_refusal(now, &items[at], refusal));
        }
        let batch_id = batch.as_ref().map(|batch| batch.id);
        if let Some(carrier) = planned.carrier {
            return self.submit_merged(now, items, carrier, idempotency);
        }
        let n_accepted = verdicts.iter().filter(|verdict| matches!(verdict, Ok(None))).count();
        if let Some(batch) = batch.filter(|_| n_accepted > 0) {
            self.add_batch(now, batch, n_accepted as u32);
        }
        let answers = self.create_all(now, items, verdicts, batch_id.filter(|_| n_accepted > 0));
        if let Some(key) = idempotency {
            self.remember_key(now, key, batch_id, &answers);
        }
        Answer::Submitted { items: answers }
    }

    /// No task of its own: the submitter gets the one that carries its message.
    fn submit_merged(
        &mut self,
        now: Now,
        items: Vec<NewTask>,
        carrier: TaskId,
        idempotency: Option<Idempotency>,
    ) -> Answer {
        let key = idempotency.as_ref().map(|key| &key.key);
        let answers: Items = items.into_iter().map(|item| Ok(self.merge(now, item, carrier, key.cloned()))).collect();
        if let Some(key) = idempotency {
            self.remember_key(now, key, None, &answers);
        }
        Answer::Submitted { items: answers }
    }

    fn judge(
        &self,
        now: Now,
        items: &[NewTask],
        own: Option<&Idempotency>,
        is_single: bool,
        planned: &mut Planned,
    ) -> Vec<Verdict> {
        let mut keys: BTreeMap<(&Name, &Name), usize> = BTreeMap::new();
        let mut verdicts: Vec<Verdict> = Vec::with_capacity(items.len());
        for (n, item) in items.iter().enumerate() {
            let repeated = item.idempotency.as_ref().and_then(|key| keys.get(&(&key.agent, &key.key)).copied());
            // The key of the whole submission names the whole: an item cannot have it too.
            let is_own =
                item.idempotency.as_ref().zip(own).is_some_and(|(a, b)| (&a.agent, &a.key) == (&b.agent, &b.key));
            let verdict = match repeated {
                _ if is_own => Err(Refusal::KeyReused { key: key_name(item) }),
                Some(first) => repeat_of(&items[first], &verdicts[first], item),
                None => self.judge_item(now, item, planned, is_single),
            };
            if let (Some(key), true) = (&item.idempotency, verdict.is_ok()) {
                keys.entry((&key.agent, &key.key)).or_insert(n);
            }
            verdicts.push(verdict);
        }
        refuse_children(items, &mut verdicts);
        verdicts
    }

    fn judge_item(&self, now: Now, item: &NewTask, planned: &mut Planned, is_single: bool) -> Verdict {
        if let Some(refusal) = &item.refused {
            return Err(refusal.clone());
        }
        match self.replay(item.idempotency.as_ref()) {
            Some(Answer::Replayed(FirstAnswer::Task { id, phase })) => {
                return Ok(Some(Accepted { id, phase, task: None, merged: None }));
            }
            Some(Answer::Refused(refusal)) => return Err(refusal),
            // A batch's key in the place of a task's: another body by definition.
            Some(_) => return Err(Refusal::KeyReused { key: key_name(item) }),
            None => {}
        }
        if item.deadline.is_some_and(|deadline| deadline <= now.wall_ms) {
            return Err(Refusal::DeadlinePassed);
        }
        let known = item.session.as_ref().and_then(|member| planned.sessions.get(&member.key)).map(|row| &**row);
        let taken = self.judge_member(now, item, known, is_single)?;
        planned.carrier = taken.carrier;
        // A message that becomes part of another task adds none.
        if taken.carrier.is_none() {
            self.judge_room(item, planned)?;
        }
        if let Some(row) = taken.row.filter(|_| !is_single) {
            planned.sessions.insert(row.key.clone(), Box::new(row));
        }
        Ok(None)
    }

    fn judge_room(&self, item: &NewTask, planned: &mut Planned) -> Result<(), Refusal> {
        let name = &item.flow.agent;
        let agent = self.agent_by_name.get(name).map(|&ix| &self.agents[ix]);
        let queued = self.n_unstarted + planned.total;
        if queued >= self.config.queued_max {
            return Err(Refusal::QueueFull { agent: None, queued, limit: self.config.queued_max, recorded: None });
        }
        let planned_here = planned.by_agent.get(name).copied().unwrap_or(0);
        let queued = agent.map_or(0, |agent| agent.n_unstarted) + planned_here;
        let limit = self.config.queued_per_agent_max;
        if queued >= limit {
            return Err(Refusal::QueueFull { agent: Some(name.clone()), queued, limit, recorded: None });
        }
        let is_live = self.flow_by_key.get(&item.flow).is_some_and(|&ix| self.flows[ix].n_live > 0);
        if !is_live && !planned.flows.contains(&item.flow) {
            let flows = self.n_flows_live + planned.flows.len() as u32;
            if flows >= self.config.flows_max {
                return Err(Refusal::TooManyFlows { agent: None, flows, limit: self.config.flows_max });
            }
            let flows_here = planned.flows_by_agent.get(name).copied().unwrap_or(0);
            let flows = agent.map_or(0, |agent| agent.n_flows_live) + flows_here;
            let limit = self.config.flows_per_agent_max;
            if flows >= limit {
                return Err(Refusal::TooManyFlows { agent: Some(name.clone()), flows, limit });
            }
            planned.flows.insert(item.flow.clone());
            *planned.flows_by_agent.entry(name.clone()).or_default() += 1;
        }
        planned.total += 1;
        match planned.by_agent.get_mut(name) {
            Some(n) => *n += 1,
            None => drop(planned.by_agent.insert(name.clone(), 1)),
        }
        Ok(())
    }

    /// Refusals for want of room, and those by a session, are counted, and recorded without payload up to a number an hour.
    fn record_refusal(&mut self, now: Now, item: &NewTask, mut refusal: Refusal) -> Refusal {
        if recorded_reason(&refusal).is_none() {
            return refusal;
        }
        let (agent, lane) = (item.flow.agent.clone(), item.flow.lane.clone());
        *self.tick.rejected.entry((agent, lane)).or_default() += 1;
        let record = self.record_if_allowed(now, item, &refusal);
        if let Refusal::QueueFull { recorded, .. }
        | Refusal::SessionBusy { recorded, .. }
        | Refusal::SessionFull { recorded, .. }
        | Refusal::Stale { recorded, .. } = &mut refusal
        {
            *recorded = record;
        }
        refusal
    }

    pub(crate) fn record_if_allowed(&mut self, now: Now, item: &NewTask, refusal: &Refusal) -> Option<TaskId> {
        let reason = recorded_reason(refusal)?;
        self.may_record(now, item.flow.agent.clone()).then(|| self.record(now, item, &reason))
    }

    fn may_record(&mut self, now: Now, agent: Name) -> bool {
        let hour = now.steady_ms / 3_600_000;
        if self.rejections.hour != hour {
            self.rejections = crate::core::Rejections { hour, by_agent: Default::default() };
        }
        let by_agent = &mut self.rejections.by_agent;
        if by_agent.len() >= REFUSED_AGENTS_MAX && !by_agent.contains_key(&agent) {
            return false;
        }
        let n = by_agent.entry(agent).or_default();
        *n += 1;
        *n <= self.config.rejections_per_hour_max
    }

    fn record(&mut self, now: Now, item: &NewTask, reason: &Text) -> TaskId {
        let mut task = self.new_task(now, item, FlowId(0), None);
        let session = item.session.as_ref().and_then(|member| self.session_by_key.get(&member.key));
        task.member = session.map(|&session| Member::new(session));
        task.state = State::Rejected;
        task.reason = reason.clone();
        task.finished_at = Some(now.wall_ms);
        task.trail.push(Step { kind: StepKind::Rejected, detail: 0, attempt: 0, at_ms: now.wall_ms });
        let facts = TaskFacts {
            task: item.id,
            agent: item.flow.agent.clone(),
            lane: item.flow.lane.clone(),
            kind: item.flow.shape.kind.clone(),
            tier: item.flow.tier,
            batch: None,
            session: item.session.as_ref().map(|member| member.key.clone()),
            attempt: 0,
            class: None,
            reason: reason.clone(),
            elapsed_ms: None,
        };
        self.happen(now, HappeningKind::TaskRejected, Subject::Task(facts));
        self.tick.rejections.push(Insert { task, key: Arc::new(item.flow.clone()), spec: None, result: None });
        item.id
    }

    fn add_batch(&mut self, now: Now, batch: crate::event::NewBatch, n_total: u32) {
        let row = Batch {
            id: batch.id,
            parallelism: batch.parallelism,
            calls_back: batch.calls_back,
            n_total,
            n_completed: 0,
            n_failed: 0,
            n_cancelled: 0,
            n_places: 0,
            n_waiting: 0,
            created_at: now.wall_ms,
            finished_at: None,
        };
        self.tick.touched_batches.push(batch.id);
        let entry = BatchEntry { batch: row, dirty: true, new_spec: Some(batch.spec), n_refs: 0 };
        self.batches.insert(batch.id, entry);
    }

    /// First every accepted item becomes a task, then their dependencies are tied, then each takes its stand: so items
    /// may refer to each other in any order.
    fn create_all(&mut self, now: Now, items: Vec<NewTask>, verdicts: Vec<Verdict>, batch: Option<BatchId>) -> Items {
        let mut created: Vec<Created> = Vec::with_capacity(items.len());
        let mut answers: Items = Vec::with_capacity(items.len());
        let mut repeats: BTreeMap<TaskId, TaskId> = BTreeMap::new();
        let is_single = batch.is_none();
        for (item, verdict) in items.into_iter().zip(verdicts) {
            answers.push(match verdict {
                Err(refusal) => Err(self.record_refusal(now, &item, refusal)),
                Ok(Some(known)) => {
                    repeats.insert(item.id, known.id);
                    Ok(known)
                }
                Ok(None) => {
                    created.push(self.create(now, item, batch));
                    Ok(Accepted { id: created[created.len() - 1].id, phase: Phase::Queued, task: None, merged: None })
                }
            });
        }
        if !repeats.is_empty() {
            // Who depends on a repeated item depends on the task that it repeats.
            let parents = created.iter_mut().flat_map(|created| &mut created.parents);
            parents.for_each(|parent| *parent = repeats.get(parent).copied().unwrap_or(*parent));
        }
        let bad_parents: Vec<Option<TaskId>> =
            created.iter().map(|created| self.tie_parents(created.id, &created.parents)).collect();
        for (Created { id, member, .. }, bad_parent) in created.into_iter().zip(bad_parents) {
            if let Some((member, lane)) = &member {
                self.note_message(now, member, lane);
            }
            match bad_parent {
                Some(parent) => self.parent_ended_badly(now, id, parent),
                None => self.settle(now, id, Why::default()),
            }
        }
        for accepted in answers.iter_mut().flatten() {
            if let Some(entry) = self.tasks.get(&accepted.id) {
                accepted.phase = entry.task.phase();
                accepted.task = is_single.then(|| Box::new(entry.task.clone()));
            }
        }
        answers
    }

    fn create(&mut self, now: Now, item: NewTask, batch: Option<BatchId>) -> Created {
        let ix = self.flow_for(&item.flow);
        let task = self.new_task(now, &item, self.flows[ix].id, batch);
        let NewTask { id, depends_on, spec, idempotency, session, flow, .. } = item;
        let gathers = batch.is_none() && depends_on.is_empty();
        self.flow_gained_task(ix);
        let mut entry = Entry::new(task, None);
        entry.spec = Some(spec);
        self.tasks.insert(id, Box::new(entry));
        self.touch(id);
        if let Some(batch) = batch {
            self.batches.get_mut(&batch).expect("the batch was just added").n_refs += 1;
        }
        if let Some(member) = &session {
            self.enrol(now, id, member, &flow.lane, gathers);
        }
        self.n_unstarted += 1;
        let agent = self.flows[ix].agent;
        self.agents[agent].n_unstarted += 1;
        let delta = self.delta(ix);
        delta.waiting += 1;
        delta.submitted += 1;
        self.move_dues(id, (None, None));
        self.tell_one(now, HappeningKind::TaskCreated, id, ix, Why::default(), None);
        if let Some(key) = idempotency {
            let row =
                IdempotencyRow { key, answer: FirstAnswer::Task { id, phase: Phase::Queued }, created_at: now.wall_ms };
            self.add_key(row);
        }
        Created { id, parents: depends_on, member: session.map(|member| (member, flow.lane)) }
    }

    fn new_task(&mut self, now: Now, item: &NewTask, flow: FlowId, batch: Option<BatchId>) -> Task {
        let seq = self.meta.next_seq;
        self.meta.next_seq += 1;
        let mut trail = Trail::default();
        trail.push(Step { kind: StepKind::Created, detail: 0, attempt: 0, at_ms: now.wall_ms });
        Task {
            rank: item.rank,
            batch,
            steers: item.steers,
            origin: item.origin,
            policy: item.policy,
            run_at: item.run_at.or(item.delay_ms.map(|delay_ms| now.wall_ms.saturating_add(delay_ms))),
            deadline: item.deadline,
            dependency_deadline: item.dependency_timeout_ms.map(|ms| now.wall_ms.saturating_add(ms)),
            trail,
            ..Task::new(item.id, seq, flow, now.wall_ms)
        }
    }

    /// Counts the parents that have yet to end; gives one that already ended badly, if that decides the matter.
    fn tie_parents(&mut self, id: TaskId, parents: &[TaskId]) -> Option<TaskId> {
        let mut bad = None;
        let mut seen = BTreeSet::new();
        for &parent in parents.iter().filter(|&&parent| seen.insert(parent)) {
            let phase = self.tasks.get(&parent).map(|entry| entry.task.phase());
            match phase {
                Some(Phase::Completed) => {}
                Some(phase) if phase.is_terminal() => bad = bad.or(Some(parent)),
                _ => self.add_edge(parent, id),
            }
        }
        let runs_anyway = self.entry(id).task.policy.on_dependency_failure == OnDependencyFailure::Run;
        bad.filter(|_| !runs_anyway)
    }

    fn add_edge(&mut self, parent: TaskId, child: TaskId) {
        self.tick.edges_new.entry(parent).or_default().push(child);
        self.entry_mut(child).task.n_deps_open += 1;
        // A parent nobody knows is waited for all the same: explain names it, and a timeout or the deadline ends it.
        if self.tasks.get(&parent).is_some_and(|entry| !entry.task.has_children) {
            self.touch(parent).task.has_children = true;
        }
    }

    fn remember_key(&mut self, now: Now, key: Idempotency, batch: Option<BatchId>, answers: &Items) {
        let accepted = || answers.iter().flatten().map(|accepted| (accepted.id, accepted.phase));
        // A submission of which nothing was taken does not use up its key.
        let Some((id, phase)) = accepted().next() else { return };
        // Refused items keep their place, so that a repeat answers each item where it stands.
        let item = |item: &Result<Accepted, Refusal>| match item {
            Ok(accepted) => (accepted.id, accepted.phase),
            Err(_) => (TaskId(0), Phase::Rejected),
        };
        let answer = match batch {
            Some(id) => FirstAnswer::Batch { id, tasks: answers.iter().map(item).collect() },
            None => FirstAnswer::Task { id, phase },
        };
        self.add_key(IdempotencyRow { key, answer, created_at: now.wall_ms });
    }

    pub(crate) fn add_key(&mut self, row: IdempotencyRow) {
        if !self.has_bug(Bug::KeyOverlayIgnored) {
            self.tick.keys.insert((row.key.agent.clone(), row.key.key.clone()), row.clone());
        }
        self.tick.keys_new.push(row);
    }

    // ── Cancel and change ───────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn on_cancel(&mut self, now: Now, ticket: Ticket, task: TaskId, reason: Text, out: &mut Vec<Command>) {
        let phase = self.tasks.get(&task).map(|entry| entry.task.phase());
        let result = match phase {
            None => CancelAnswer::NotFound,
            Some(phase) if phase.is_terminal() => CancelAnswer::Terminal(phase),
            Some(phase) if phase.is_held() => {
                self.cancel_held(now, task, &reason, out);
                CancelAnswer::Stopping
            }
            Some(_) => {
                self.cancel(now, task, reason);
                CancelAnswer::Ended
            }
        };
        answer(out, ticket, Answer::Cancel(result));
    }

    /// The first cancel gives the reason; a repeat changes nothing.
    pub(crate) fn cancel_held(&mut self, now: Now, task: TaskId, reason: &str, out: &mut Vec<Command>) {
        if self.entry(task).task.stop() != Some(Stop::Cancel) {
            self.ask_stop(now, task, Stop::Cancel, out);
            self.touch(task).task.reason = format!("{STOPPING_FOR_CANCEL}{reason}").into();
        }
    }

    pub(crate) fn on_change(
        &mut self,
        now: Now,
        ticket: Ticket,
        task: TaskId,
        change: &Change,
        out: &mut Vec<Command>,
    ) {
        let result = self.change(now, task, change).map(|()| Box::new(self.entry(task).task.clone()));
        answer(out, ticket, Answer::Change(result));
    }

    fn change(&mut self, now: Now, id: TaskId, change: &Change) -> Result<(), ChangeRefusal> {
        let Some(entry) = self.tasks.get(&id) else { return Err(ChangeRefusal::NotFound) };
        match entry.task.phase() {
            phase if phase.is_terminal() => return Err(ChangeRefusal::Terminal(phase)),
            phase if phase.is_held() => return Err(ChangeRefusal::Started(phase)),
            _ => {}
        }
        if change.deadline.flatten().is_some_and(|deadline| deadline <= now.wall_ms) {
            return Err(ChangeRefusal::DeadlinePassed);
        }
        let from = self.flow_of(&entry.task);
        let old_dues = (entry.task.wall_due(), entry.task.steady_due());
        let is_queued = entry.task.phase() == Phase::Queued;
        let to = self.changed_flow(from, change)?;
        if is_queued {
            self.dequeue(from, id);
        }
        if from != to {
            self.flow_gained_task(to);
            self.flow_lost_task(from);
        }
        let flow_id = self.flows[to].id;
        let entry = self.touch(id);
        entry.key_changed |= from != to;
        let task = &mut entry.task;
        task.flow = flow_id;
        task.rank = change.rank.unwrap_or(task.rank);
        task.deadline = change.deadline.unwrap_or(task.deadline);
        task.run_at = change.run_at.or(task.run_at);
        task.trail.push(Step { kind: StepKind::Changed, detail: 0, attempt: task.attempt, at_ms: now.wall_ms });
        let task_state = task.state;
        if is_queued {
            self.enqueue(to, id);
        }
        self.move_dues(id, old_dues);
        if change.run_at.is_some_and(|at| at > now.wall_ms) {
            self.rejoin_later(id);
        }
        let is_movable = match task_state {
            State::Queued { .. } | State::Scheduled(Delay::Until(_)) => true,
            State::Waiting(Wait::Seat | Wait::BatchPlace) | State::Scheduled(Delay::Debounce(_)) => {
                change.run_at > Some(now.wall_ms)
            }
            _ => false,
        };
        let moved_in_time = change.run_at.is_some() && is_movable;
        if moved_in_time && !(is_queued && self.next_stand(now, id).phase() == Phase::Queued) {
            self.leave_batch_wait(id);
            self.settle(now, id, Why::default());
        }
        Ok(())
    }

    fn changed_flow(
        &mut self,
        from: crate::slab::FlowIx,
        change: &Change,
    ) -> Result<crate::slab::FlowIx, ChangeRefusal> {
        let key = &self.flows[from].key;
        let Some(tier) = change.tier.filter(|&tier| tier != key.tier) else { return Ok(from) };
        let key = FlowKey { tier, ..(**key).clone() };
        let is_live = self.flow_by_key.get(&key).is_some_and(|&ix| self.flows[ix].n_live > 0);
        let limit = self.config.flows_per_agent_max;
        if !is_live && self.agents[self.flows[from].agent].n_flows_live >= limit {
            return Err(ChangeRefusal::TooManyFlows { scope: key.agent.to_string().into(), limit });
        }
        Ok(self.flow_for(&key))
    }

    /// A parent ended otherwise than well, and this one does not run without it.
    pub(crate) fn parent_ended_badly(&mut self, now: Now, id: TaskId, parent: TaskId) {
        let reason = format!("dependency {} did not complete", uuid_text(parent.0));
        match self.entry(id).task.policy.on_dependency_failure {
            OnDependencyFailure::Fail => self.fail(now, id, Class::Permanent, reason.clone(), reason),
            OnDependencyFailure::Cancel | OnDependencyFailure::Run => self.cancel(now, id, reason),
        }
    }
}

/// Agents whose refusals are recorded in one hour; beyond, they are only counted.
const REFUSED_AGENTS_MAX: usize = 10_000;

/// What the record of a refusal says; none for one that is not recorded.
fn recorded_reason(refusal: &Refusal) -> Option<Text> {
    Some(match refusal {
        Refusal::QueueFull { agent: Some(agent), queued, limit, .. } => {
            format!("queue of agent {agent} is full ({queued}/{limit})").into()
        }
        Refusal::QueueFull { agent: None, queued, limit, .. } => format!("queue is full ({queued}/{limit})").into(),
        Refusal::SessionBusy { .. } => "session is busy".into(),
        Refusal::SessionFull { waiting, cap, .. } => format!("line of the session is full ({waiting}/{cap})").into(),
        Refusal::Stale { .. } => "stale: sent before the session was stopped".into(),
        _ => return None,
    })
}

/// In front of the reason that a cancel gave, while the task is still stopping.
pub(crate) const STOPPING_FOR_CANCEL: &str = "stopping: cancel: ";

/// The same key again in one batch: the first item's task, which may itself be one of an earlier submit.
fn repeat_of(first: &NewTask, verdict: &Verdict, item: &NewTask) -> Verdict {
    let hash = |item: &NewTask| item.idempotency.as_ref().map(|key| key.hash);
    if hash(first) != hash(item) {
        return Err(Refusal::KeyReused { key: key_name(item) });
    }
    match verdict {
        Ok(Some(known)) => Ok(Some(known.clone())),
        _ => Ok(Some(Accepted { id: first.id, phase: Phase::Queued, task: None, merged: None })),
    }
}

fn key_name(item: &NewTask) -> Name {
    item.idempotency.as_ref().map_or_else(|| Name::new(""), |key| key.key.clone())
}

/// An item that names a refused one is refused too, and so on down.
fn refuse_children(items: &[NewTask], verdicts: &mut [Verdict]) {
    let mut refused: Vec<usize> = (0..items.len()).filter(|&n| verdicts[n].is_err()).collect();
    if refused.is_empty() {
        return;
    }
    let siblings: BTreeSet<TaskId> = items.iter().map(|item| item.id).collect();
    let mut children: BTreeMap<TaskId, Vec<usize>> = BTreeMap::new();
    for (n, item) in items.iter().enumerate() {
        for parent in item.depends_on.iter().filter(|parent| siblings.contains(parent)) {
            children.entry(*parent).or_default().push(n);
        }
    }
    while let Some(n) = refused.pop() {
        let parent = items[n].id;
        for child in children.remove(&parent).unwrap_or_default() {
            if verdicts[child].is_ok() {
                verdicts[child] = Err(Refusal::ParentRefused { parent });
                refused.push(child);
            }
        }
    }
}

/// The form in which people see ids.
pub fn uuid_text(id: u128) -> String {
    let hex = format!("{id:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
