//! The one place where a task changes state, and the bookkeeping that goes with it.
//!
//! ```text
//! waiting ⇄ scheduled ─► queued ─► assigned ─► running ─► completed | failed | cancelled
//!    running ─► scheduled (retry)      assigned/running ─► queued (preempted, lost, not started)
//!    any live state ─► cancelled       any live state past its deadline ─► failed
//!    waiting ─► completed (handed to a running task as input)
//! ```

use std::cmp::Reverse;

use crate::core::Core;
use crate::event::{Due, HappeningKind, ParentEnd, Release, Subject, TaskFacts};
use crate::gate::{GateKey, Holder};
use crate::ids::{TaskId, WorkerId};
use crate::line::Standing;
use crate::name::Name;
use crate::now::{Clock, Now};
use crate::placement::label;
use crate::planted::Bug;
use crate::schedule::Origin;
use crate::slab::{AgentIx, FlowIx, GateIx};
use crate::task::{Class, Delay, Failure, Lease, Phase, State, Stop, Text, Wait};
use crate::timers::Timer;
use crate::trail::{Step, StepKind};

/// Merged messages that a task's own history names.
const MERGES_IN_TRAIL: u32 = 20;

/// What a transition says about itself to people.
#[derive(Default)]
pub(crate) struct Why {
    pub reason: Text,
    pub class: Option<Class>,
    /// The step to record instead of the one named after the new state.
    pub step: Option<StepKind>,
}

impl Why {
    pub fn because(reason: impl Into<Text>) -> Why {
        Why { reason: reason.into(), ..Why::default() }
    }
}

impl Core {
    /// Changes the state of one task: queue, slots, timers, counts, batch, releases, dues, history and events follow.
    pub(crate) fn transition(&mut self, now: Now, id: TaskId, to: State, why: Why) {
        let entry = self.entry(id);
        let from = entry.task.state;
        let flow = self.flow_of(&entry.task);
        let old_dues = (entry.task.wall_due(), entry.task.steady_due());
        assert!(is_legal(from.phase(), to.phase()), "no way leads from {from:?} to {to:?}");
        match from {
            State::Queued { .. } => self.dequeue(flow, id),
            State::Assigned(lease) | State::Running(lease) if !to.phase().is_held() => {
                self.release_slot(now, id, flow, lease);
            }
            _ => {}
        }
        self.write_state(now, id, to, &why);
        self.count(flow, from.phase(), to.phase());
        self.count_member(id, from, to);
        match to {
            State::Queued { .. } => self.enqueue(flow, id),
            State::Running(lease) => self.set_timers(id, lease),
            _ => {}
        }
        self.move_dues(id, old_dues);
        self.tell(now, id, flow, from.phase(), why);
        // After its own final event: a batch is finished when everyone could have heard of its last member.
        if to.phase().is_terminal() {
            self.ended(now, id, flow, from.phase());
        }
    }

    fn write_state(&mut self, now: Now, id: TaskId, to: State, why: &Why) {
        let entry = self.touch(id);
        let task = &mut entry.task;
        let phase = to.phase();
        task.state = to;
        task.reason = why.reason.clone();
        match phase {
            Phase::Queued => task.queued_at = Some(now.wall_ms),
            Phase::Assigned => task.assigned_at = Some(now.wall_ms),
            Phase::Running => task.started_at = Some(now.wall_ms),
            _ if phase.is_terminal() => task.finished_at = Some(now.wall_ms),
            _ => {}
        }
        let kind = why.step.unwrap_or(match phase {
            Phase::Waiting => StepKind::Waiting,
            Phase::Scheduled => StepKind::Scheduled,
            Phase::Queued => StepKind::Queued,
            Phase::Assigned => StepKind::Assigned,
            Phase::Running => StepKind::Started,
            Phase::Completed => StepKind::Completed,
            Phase::Failed => StepKind::Failed,
            Phase::Cancelled => StepKind::Cancelled,
            Phase::Rejected => StepKind::Rejected,
        });
        let detail = why.class.map_or(0, |class| class as u8 + 1);
        // A burst of messages must not fill the history.
        if kind != StepKind::Merged || task.member.is_none_or(|member| member.n_merged <= MERGES_IN_TRAIL) {
            task.trail.push(Step { kind, detail, attempt: task.attempt, at_ms: now.wall_ms });
        }
    }

    /// Counts, kept in the same commit as the change they count.
    pub(crate) fn count(&mut self, flow: FlowIx, from: Phase, to: Phase) {
        let delta = self.delta(flow);
        if let Some(gauge) = delta.gauge(from) {
            *gauge -= 1;
        }
        if let Some(gauge) = delta.gauge(to) {
            *gauge += 1;
        }
        match to {
            Phase::Completed => delta.completed += 1,
            Phase::Failed => delta.failed += 1,
            Phase::Cancelled => delta.cancelled += 1,
            _ => {}
        }
        let agent = self.flows[flow].agent;
        match (from.is_unstarted(), to.is_unstarted()) {
            (true, false) => {
                self.n_unstarted -= 1;
                self.agents[agent].n_unstarted -= 1;
            }
            (false, true) => {
                self.n_unstarted += 1;
                self.agents[agent].n_unstarted += 1;
            }
            _ => {}
        }
    }

    /// The end of a task: its flow, its batch and whoever waited for it learn of it.
    fn ended(&mut self, now: Now, id: TaskId, flow: FlowIx, from: Phase) {
        debug_assert!(!from.is_terminal());
        self.flow_lost_task(flow);
        let task = &self.entry(id).task;
        let (phase, has_children, has_place, batch) = (task.phase(), task.has_children, task.has_place, task.batch);
        if let Some(Origin { schedule, run }) = task.origin.filter(|_| !self.has_bug(Bug::RunNotClosed)) {
            self.add_release(Release::RunEnded { schedule, run, task: id });
        }
        if has_children && !self.has_bug(Bug::ReleaseLost) {
            let ended = if phase == Phase::Completed { ParentEnd::Well } else { ParentEnd::Badly };
            self.add_release(Release::Parent { parent: id, ended });
        }
        self.leave_session(id);
        let Some(batch_id) = batch else { return };
        let gives_place = has_place && !self.has_bug(Bug::BatchPlaceLeaked);
        let batch = self.touch_batch(batch_id);
        match phase {
            Phase::Completed => batch.n_completed += 1,
            Phase::Failed => batch.n_failed += 1,
            _ => batch.n_cancelled += 1,
        }
        if gives_place {
            batch.n_places -= 1;
        }
        let is_over = batch.n_ended() == batch.n_total;
        let frees = has_place && batch.n_waiting > 0;
        if is_over {
            batch.finished_at = Some(now.wall_ms);
            let subject = Subject::Batch(Box::new(batch.clone()));
            self.happen(now, HappeningKind::BatchFinished, subject);
        }
        self.entry_mut(id).task.has_place = false;
        if frees {
            self.add_release(Release::BatchPlace { batch: batch_id });
        }
    }

    pub(crate) fn add_release(&mut self, release: Release) {
        self.releases.entry(release).or_insert(crate::core::Stored::No);
    }

    // ── Live tasks of flows and agents ──────────────────────────────────────────────────────────────────────────

    pub(crate) fn flow_gained_task(&mut self, ix: FlowIx) {
        self.tick.dirty_flows.insert(ix);
        let flow = &mut self.flows[ix];
        flow.n_live += 1;
        let agent = flow.agent;
        if flow.n_live == 1 {
            self.n_flows_live += 1;
            self.agents[agent].n_flows_live += 1;
        }
        self.agents[agent].n_live += 1;
        if self.agents[agent].n_live == 1 {
            // Idleness saves up nothing: it comes back at the least service of those who are here.
            let service_ms = self.service.first().map_or(0, |&(service_ms, _)| service_ms);
            let standing = Standing { service_ms, ..self.agents[agent].standing };
            self.agent_moves(agent, standing);
            self.service.insert((service_ms, agent));
        }
    }

    pub(crate) fn flow_lost_task(&mut self, ix: FlowIx) {
        self.tick.dirty_flows.insert(ix);
        let flow = &mut self.flows[ix];
        flow.n_live -= 1;
        let agent = flow.agent;
        if flow.n_live == 0 {
            self.n_flows_live -= 1;
            self.agents[agent].n_flows_live -= 1;
        }
        if flow.n_live == 0 && !flow.idle {
            flow.idle = true;
            flow.age = crate::now::SteadyMs::MAX;
            self.idle.push_back(ix);
        }
        self.agents[agent].n_live -= 1;
        if self.agents[agent].n_live == 0 {
            self.service.remove(&(self.agents[agent].standing.service_ms, agent));
        }
    }

    // ── Slots ───────────────────────────────────────────────────────────────────────────────────────────────────

    /// Takes a slot of every gate on the flow's way, and room on the worker. The agent's standing is the caller's to renew.
    pub(crate) fn take_slot(&mut self, id: TaskId, flow: FlowIx, lease: Lease) {
        let (tier, gates) = (self.tier_of(flow), self.flows[flow].gates.clone());
        let take = |&gate: &GateIx| self.gates[gate].holders.take(tier, lease.order, id);
        let slots = gates.iter().map(take).collect();
        let entry = self.entry_mut(id);
        assert!(entry.gates.is_empty(), "task {id:?} takes one slot of each gate");
        (entry.gates, entry.slots) = (gates, slots);
        let resources = self.flows[flow].key.shape.resources.clone();
        self.fleet.reserve(lease.worker, id, &resources);
        self.count_beside(id, flow, lease.worker);
    }

    fn release_slot(&mut self, now: Now, id: TaskId, flow: FlowIx, lease: Lease) {
        let entry = self.entry_mut(id);
        let (gates, slots) = (std::mem::take(&mut entry.gates), std::mem::take(&mut entry.slots));
        for (&gate, &slot) in gates.iter().zip(&slots) {
            if self.has_bug(Bug::SlotNotReleased) && matches!(self.gates[gate].key, GateKey::Lane(_)) {
                continue;
            }
            let held = self.gates[gate].holders.give_back(slot);
            assert_eq!(held, id, "who holds this slot of {:?}", self.gates[gate].key);
            self.gates[gate].n_stopping -= u32::from(lease.stop.is_some());
        }
        self.clear_timers(id);
        let resources = self.flows[flow].key.shape.resources.clone();
        self.fleet.release(now.steady_ms, lease.worker, id, &resources);
        self.uncount_beside(id, flow);
        let used_ms = now.steady_ms.saturating_sub(lease.since_ms);
        let agent = self.flows[flow].agent;
        self.agent_restands(agent, |standing| standing.service_ms += used_ms);
        for &gate in gates.iter() {
            if self.has_bug(Bug::WakeUpLost) {
                continue;
            }
            self.gate_changed(gate);
            self.wake_keepers(gate);
            self.gate_drop_if_unused(gate);
        }
        self.room_used(lease.worker, flow);
    }

    /// For a shape that is spread over the values of a label.
    fn count_beside(&mut self, id: TaskId, flow: FlowIx, worker: WorkerId) {
        let Some(key) = &self.flows[flow].key.shape.place.spread_by else { return };
        let value = Name::new(label(&self.fleet.workers[&worker].spec.labels, key));
        *self.flows[flow].beside.entry(value.clone()).or_default() += 1;
        self.entry_mut(id).spread_at = Some(value);
    }

    fn uncount_beside(&mut self, id: TaskId, flow: FlowIx) {
        let Some(value) = self.entry_mut(id).spread_at.take() else { return };
        let beside = &mut self.flows[flow].beside;
        let n = beside.get_mut(&value).expect("what is spread is counted");
        *n -= 1;
        if *n == 0 {
            beside.remove(&value);
        }
    }

    pub(crate) fn holder(&self, id: TaskId, flow: FlowIx, lease: Lease) -> Holder {
        Holder { tier: Reverse(self.tier_of(flow)), order: Reverse(lease.order), task: id }
    }

    /// Its load follows its slots; service and turn as the caller says.
    pub(crate) fn agent_restands(&mut self, ix: AgentIx, change: impl FnOnce(&mut Standing)) {
        let mut standing = self.agents[ix].standing;
        let old_service_ms = standing.service_ms;
        standing.load = self.agent_load(ix);
        change(&mut standing);
        if self.has_bug(Bug::FairnessTieBroken) {
            standing = Standing { service_ms: old_service_ms, served: 0, ..standing };
        }
        if standing.service_ms != old_service_ms && self.service.remove(&(old_service_ms, ix)) {
            self.service.insert((standing.service_ms, ix));
        }
        self.agent_moves(ix, standing);
    }

    // ── Stopping ────────────────────────────────────────────────────────────────────────────────────────────────

    /// Asks a held attempt to stop. The first reason fixes what comes after; only a cancel overrides it.
    pub(crate) fn ask_stop(&mut self, now: Now, id: TaskId, stop: Stop, out: &mut Vec<crate::event::Command>) {
        let task = &self.entry(id).task;
        let old_dues = (task.wall_due(), task.steady_due());
        let mut lease = *task.state.lease().expect("only a held task is asked to stop");
        let first = lease.stop.is_none();
        if !first && (stop != Stop::Cancel || lease.stop == Some(Stop::Cancel)) {
            return;
        }
        lease.stop = Some(stop);
        self.clear_timers(id);
        if first {
            let gates = self.entry(id).gates.clone();
            gates.iter().for_each(|&gate| self.gates[gate].n_stopping += 1);
        }
        let entry = self.touch(id);
        let task = &mut entry.task;
        task.state = match task.state {
            State::Assigned(_) => State::Assigned(lease),
            _ => State::Running(lease),
        };
        task.reason = format!("stopping: {}", stop.as_str()).into();
        let step = Step { kind: StepKind::Stopping, detail: stop as u8 + 1, attempt: task.attempt, at_ms: now.wall_ms };
        task.trail.push(step);
        let attempt = task.attempt;
        self.move_dues(id, old_dues);
        if first {
            let Lease { worker, token, .. } = lease;
            out.push(crate::event::Command::Stop { worker, task: id, attempt, token, stop });
        }
    }

    // ── Times ───────────────────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn set_timer(&mut self, id: TaskId, at_ms: crate::now::SteadyMs) {
        self.timers.insert(at_ms, Timer::Attempt(id));
        self.entry_mut(id).timer = Some(at_ms);
    }

    fn set_timers(&mut self, id: TaskId, lease: Lease) {
        self.clear_timers(id);
        if lease.stop.is_some() {
            return;
        }
        let policy = self.entry(id).task.policy;
        self.set_timer(id, lease.since_ms.saturating_add(policy.timeout_ms));
        if let Some(stall_ms) = policy.stall_ms {
            self.set_silence(id, lease.since_ms.saturating_add(stall_ms));
        }
    }

    pub(crate) fn set_silence(&mut self, id: TaskId, at_ms: crate::now::SteadyMs) {
        if let Some(old_ms) = self.entry_mut(id).stall.replace(at_ms) {
            self.timers.remove(old_ms, Timer::Silence(id));
        }
        self.timers.insert(at_ms, Timer::Silence(id));
    }

    pub(crate) fn clear_timers(&mut self, id: TaskId) {
        let entry = self.entry_mut(id);
        let (timer, stall) = (entry.timer.take(), entry.stall.take());
        if let Some(at_ms) = timer {
            self.timers.remove(at_ms, Timer::Attempt(id));
        }
        if let Some(at_ms) = stall {
            self.timers.remove(at_ms, Timer::Silence(id));
        }
    }

    pub(crate) fn move_dues(&mut self, id: TaskId, old: (Option<u64>, Option<u64>)) {
        let task = &self.entry(id).task;
        let (seq, new) = (task.seq, (task.wall_due(), task.steady_due()));
        let max = self.config.dues_max as usize;
        for (clock, old, new) in [(Clock::Wall, old.0, new.0), (Clock::Steady, old.1, new.1)] {
            if old == new {
                continue;
            }
            let window = self.dues_of(clock);
            if let Some(at_ms) = old {
                window.remove(Due { at_ms, seq, task: id });
            }
            if let Some(at_ms) = new {
                window.insert(Due { at_ms, seq, task: id }, max);
            }
        }
    }

    // ── Where does a task that is neither held nor ended stand? ─────────────────────────────────────────────────

    /// Its dependencies, then its time, then its session's seat, then its batch's place, then the queue.
    pub(crate) fn settle(&mut self, now: Now, id: TaskId, why: Why) {
        let joins = self.joins_now(now, id);
        if joins && !self.join(now, id) {
            return;
        }
        self.sit_if_alone(now, id);
        let next = self.next_stand(now, id);
        if next == State::Waiting(Wait::BatchPlace) {
            let batch = self.entry(id).task.batch.expect("only a member of a batch waits for its place");
            self.touch_batch(batch).n_waiting += 1;
        }
        if let (State::Queued { .. }, Some(batch)) = (next, self.entry(id).task.batch) {
            self.take_place(id, batch);
        }
        let reason = if why.reason.is_empty() { default_reason(&next) } else { why.reason };
        self.transition(now, id, next, Why { reason, ..why });
        self.hand_over(id);
        self.look_at_line(now, id, joins);
    }

    fn take_place(&mut self, id: TaskId, batch: crate::ids::BatchId) {
        if !self.entry(id).task.has_place {
            self.touch_batch(batch).n_places += 1;
            self.entry_mut(id).task.has_place = true;
        }
    }

    pub(crate) fn next_stand(&self, now: Now, id: TaskId) -> State {
        let task = &self.entry(id).task;
        let has_place = || task.batch.is_none_or(|batch| task.has_place || self.batches[&batch].batch.has_free_place());
        if task.n_deps_open > 0 {
            State::Waiting(Wait::Dependencies)
        } else if let Some(at) = task.run_at.filter(|&at| at > now.wall_ms) {
            State::Scheduled(Delay::Until(at))
        } else if let Some(member) = task.member.filter(|member| !member.seated) {
            match member.debounced_until > now.steady_ms {
                true => State::Scheduled(Delay::Debounce(member.debounced_until)),
                false => State::Waiting(Wait::Seat),
            }
        } else if !has_place() {
            State::Waiting(Wait::BatchPlace)
        } else {
            State::Queued { since_ms: now.steady_ms }
        }
    }

    /// Ends an unstarted or stopped task as failed.
    pub(crate) fn fail(
        &mut self,
        now: Now,
        id: TaskId,
        class: Class,
        message: impl Into<Text>,
        reason: impl Into<Text>,
    ) {
        let flow = self.flow_of(&self.entry(id).task);
        let failure = Failure { class, message: message.into() };
        self.entry_mut(id).task.error = Some(Box::new(failure));
        if class == Class::Deadline {
            self.delta(flow).expired += 1;
        }
        self.leave_batch_wait(id);
        self.transition(now, id, State::Failed, Why { reason: reason.into(), class: Some(class), step: None });
    }

    pub(crate) fn cancel(&mut self, now: Now, id: TaskId, reason: impl Into<Text>) {
        self.leave_batch_wait(id);
        self.transition(now, id, State::Cancelled, Why::because(reason));
    }

    /// Whoever leaves the wait for a batch's place is not counted there any more.
    pub(crate) fn leave_batch_wait(&mut self, id: TaskId) {
        let task = &self.entry(id).task;
        if let (State::Waiting(Wait::BatchPlace), Some(batch)) = (task.state, task.batch) {
            self.touch_batch(batch).n_waiting -= 1;
        }
    }

    /// Gives its batch's place back before its end.
    pub(crate) fn leave_batch_place(&mut self, id: TaskId) {
        let task = &self.entry(id).task;
        let Some(batch_id) = task.batch.filter(|_| task.has_place) else { return };
        self.touch(id).task.has_place = false;
        let batch = self.touch_batch(batch_id);
        batch.n_places -= 1;
        if batch.n_waiting > 0 {
            self.add_release(Release::BatchPlace { batch: batch_id });
        }
    }

    // ── Events ──────────────────────────────────────────────────────────────────────────────────────────────────

    fn tell(&mut self, now: Now, id: TaskId, flow: FlowIx, from: Phase, why: Why) {
        let to = self.entry(id).task.phase();
        let started_ms = self.entry(id).waited_ms;
        let run_ms = || {
            let task = &self.entry(id).task;
            let started = task.started_at.or(task.assigned_at)?;
            from.is_held().then(|| now.wall_ms.saturating_sub(started))
        };
        let (kind, elapsed_ms) = match to {
            Phase::Queued => (HappeningKind::TaskQueued, None),
            Phase::Running => (HappeningKind::TaskStarted, Some(started_ms)),
            Phase::Completed => (HappeningKind::TaskCompleted, run_ms()),
            Phase::Failed => (HappeningKind::TaskFailed, run_ms()),
            Phase::Cancelled => (HappeningKind::TaskCancelled, run_ms()),
            Phase::Waiting | Phase::Scheduled | Phase::Assigned | Phase::Rejected => return,
        };
        if kind.is_final() && self.has_bug(Bug::FinalEventTwice) {
            self.tell_one(now, kind, id, flow, Why::default(), elapsed_ms);
        }
        self.tell_one(now, kind, id, flow, why, elapsed_ms);
    }

    pub(crate) fn tell_one(
        &mut self,
        now: Now,
        kind: HappeningKind,
        id: TaskId,
        flow: FlowIx,
        why: Why,
        elapsed_ms: Option<u64>,
    ) {
        let task = &self.tasks[&id].task;
        let key = &self.flows[flow].key;
        let facts = TaskFacts {
            task: id,
            agent: key.agent.clone(),
            lane: key.lane.clone(),
            kind: key.shape.kind.clone(),
            tier: key.tier,
            batch: task.batch,
            session: task.session().map(|session| self.sessions[&session].session.key.clone()),
            attempt: task.attempt,
            class: why.class,
            reason: why.reason,
            elapsed_ms,
        };
        self.happen(now, kind, Subject::Task(facts));
    }
}

fn default_reason(state: &State) -> Text {
    match state {
        State::Waiting(Wait::Dependencies) => "waits for its dependencies".into(),
        State::Waiting(Wait::BatchPlace) => "waits for a place in its batch".into(),
        State::Waiting(Wait::Seat) => "waits for its turn in its session".into(),
        State::Scheduled(Delay::Until(_)) => "not before its time".into(),
        State::Scheduled(Delay::Debounce(_)) => "waits for more messages".into(),
        _ => Text::default(),
    }
}

/// Every arrow of the picture above, and no other.
fn is_legal(from: Phase, to: Phase) -> bool {
    use Phase::{Assigned, Cancelled, Completed, Failed, Queued, Rejected, Running, Scheduled, Waiting};
    match (from, to) {
        (Completed | Failed | Cancelled | Rejected, _) | (_, Rejected) => false,
        (_, Cancelled | Failed) => true,
        (Waiting, Waiting | Scheduled | Queued | Completed) => true,
        (Scheduled, Waiting | Scheduled | Queued) => true,
        (Queued, Waiting | Scheduled | Queued | Assigned) => true,
        (Assigned, Running | Completed | Queued | Scheduled) => true,
        (Running, Completed | Queued | Scheduled) => true,
        _ => false,
    }
}
