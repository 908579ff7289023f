//! What a session makes of a message that comes: refused, merged, handed over, or in line.

use crate::core::Core;
use crate::event::{Accepted, HappeningKind, NewMember, NewTask, Refusal};
use crate::flow::FlowKey;
use crate::flows::lane_in_force;
use crate::ids::TaskId;
use crate::lifecycle::Why;
use crate::name::Name;
use crate::now::{Now, WallMs};
use crate::planted::Bug;
use crate::session::{MESSAGE_BYTES_MAX, MESSAGES_MAX, Message, Mode, Overflow, Rules, Session, SessionId};
use crate::task::{Delay, Policy, State, Wait};
use crate::trail::StepKind;

/// What a session makes of a message that joins it now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// Refused: mode `reject`, and no seat is free.
    Busy,
    /// Refused: drop `new`, and the line is full.
    Full,
    /// Everyone before it is stopped.
    Interrupts,
    /// Handed to this running task.
    Steers(TaskId),
    /// It becomes part of this task.
    Merges(TaskId),
    /// In line, as itself.
    Stands,
}

/// What accepting a message would make of its session.
#[derive(Default)]
pub(crate) struct Taken {
    /// The row with it; `None` without a session.
    pub row: Option<Session>,
    /// The task that it becomes part of, if it does.
    pub carrier: Option<TaskId>,
}

impl Core {
    /// Decides over a copy of the row, so that a batch can be judged before anything of it is stored.
    pub(super) fn arrival(
        &self,
        row: &Session,
        rules: &Rules,
        mode: Mode,
        merge: Option<(&FlowKey, usize)>,
    ) -> Arrival {
        let n_free = row.n_free(rules);
        let is_full = rules.overflow == Overflow::New && row.n_standing() >= rules.cap.saturating_add(n_free);
        match mode {
            Mode::Reject if row.n_standing() >= n_free => return Arrival::Busy,
            Mode::Interrupt if row.n_seated + row.n_line > 0 => return Arrival::Interrupts,
            Mode::Interrupt => return Arrival::Stands,
            Mode::Steer if !is_full => {
                if let Some(target) = self.takes_input(row.id) {
                    return Arrival::Steers(target);
                }
            }
            _ => {}
        }
        let can_merge = mode != Mode::Reject;
        if let Some(carrier) = merge.filter(|_| can_merge).and_then(|(key, n)| self.carrier(row, mode, key, n)) {
            return Arrival::Merges(carrier);
        }
        match is_full {
            true => Arrival::Full,
            false => Arrival::Stands,
        }
    }

    /// The last in line, if it takes a message of this agent, lane and kind in.
    fn carrier(&self, row: &Session, mode: Mode, key: &FlowKey, n_bytes: usize) -> Option<TaskId> {
        let id = row.gatherer?;
        let task = &self.tasks.get(&id)?.task;
        let member = task.member.filter(|member| member.in_line())?;
        let gathers = match task.state {
            State::Scheduled(Delay::Debounce(_)) => true,
            State::Waiting(Wait::Seat) => mode == Mode::Collect,
            _ => false,
        };
        let own = &self.flows[self.flow_of(task)].key;
        let is_same = own.agent == key.agent && own.lane == key.lane && own.shape.kind == key.shape.kind;
        let has_room = member.n_merged + 1 < MESSAGES_MAX && member.merged_bytes + n_bytes as u64 <= MESSAGE_BYTES_MAX;
        (gathers && is_same && has_room && task.steers.is_none()).then_some(id)
    }

    /// The row as it would be with this message's settings.
    fn row_with(&self, row: Option<&Session>, item: &NewTask, member: &NewMember) -> Session {
        let lane = lane_in_force(&self.config, &item.flow.lane);
        let mut row = match row {
            Some(row) => row.clone(),
            None => Session::new(SessionId(0), member.key.clone(), lane.clone(), 0),
        };
        row.own = member.settings.over(row.own);
        row.lane = lane;
        (row.n_line, row.stopped_line) = (row.n_standing(), 0);
        row
    }

    /// Is the message taken, and how? `planned` is what the items before it in the same submission would make of its
    /// session.
    pub(crate) fn judge_member(
        &self,
        now: Now,
        item: &NewTask,
        planned: Option<&Session>,
        is_single: bool,
    ) -> Result<Taken, Refusal> {
        let Some(member) = &item.session else { return Ok(Taken::default()) };
        let mut taken = Taken::default();
        let mut row = self.row_with(planned.or_else(|| self.session_row(&member.key)), item, member);
        let key = || member.key.clone();
        if let (Some(sent_at), Some(cutoff)) = (member.sent_at, row.cutoff)
            && is_before(sent_at, cutoff)
        {
            return Err(Refusal::Stale { key: key(), cutoff, recorded: None });
        }
        if !joins_at_submit(now, item) {
            return Ok(Taken { row: Some(row), carrier: None });
        }
        let rules = row.rules(&self.config.sessions);
        let mode = member.as_mode.unwrap_or(rules.mode);
        match self.arrival(&row, &rules, mode, mergeable(item, is_single)) {
            Arrival::Busy => return Err(Refusal::SessionBusy { key: key(), recorded: None }),
            Arrival::Full => {
                let (waiting, cap) = (row.n_line, rules.cap);
                return Err(Refusal::SessionFull { key: key(), waiting, cap, recorded: None });
            }
            Arrival::Interrupts => {
                row.is_draining = row.n_seated > 0;
                row.n_line = u32::from(row.is_draining);
                row.n_seated = row.n_seated.max(1);
            }
            Arrival::Merges(carrier) => taken.carrier = Some(carrier),
            Arrival::Steers(_) => row.n_line += 1,
            Arrival::Stands if row.n_line == 0 && row.n_free(&rules) > 0 && rules.debounce_ms == 0 => row.n_seated += 1,
            Arrival::Stands => row.n_line = (row.n_line + 1).min(rules.cap.saturating_add(row.n_free(&rules))),
        }
        row.next_line += 1;
        Ok(Taken { row: Some(row), ..taken })
    }

    /// The message becomes part of a task that stands in line; what can differ between them is as the last one says.
    pub(crate) fn merge(&mut self, now: Now, item: NewTask, carrier: TaskId, key: Option<Name>) -> Accepted {
        let member = item.session.as_ref().expect("only a message to a session is merged");
        let id = self.note_message(now, member, &item.flow.lane);
        let rules = self.session_rules(id);
        let from = self.flow_of(&self.entry(carrier).task);
        let to = self.flow_for(&item.flow);
        if from != to {
            self.flow_gained_task(to);
            self.flow_lost_task(from);
        }
        let flow = self.flows[to].id;
        let ignores_limit = self.has_bug(Bug::DebounceWithoutEnd);
        let forgets_callback = self.has_bug(Bug::CallbackLost);
        let entry = self.touch(carrier);
        let task = &mut entry.task;
        let old_dues = (task.wall_due(), task.steady_due());
        entry.key_changed |= from != to;
        task.flow = flow;
        task.rank = item.rank;
        let called_back = task.policy.calls_back && !forgets_callback;
        task.policy = Policy { calls_back: called_back || item.policy.calls_back, ..item.policy };
        task.deadline = item.deadline;
        let place = task.member.as_mut().expect("the carrier stands in line");
        place.n_merged += 1;
        place.merged_bytes += item.spec.len() as u64;
        let n = place.n_merged;
        let next = match task.state {
            State::Scheduled(Delay::Debounce(_)) => {
                let until = now.steady_ms.saturating_add(rules.debounce_ms);
                place.debounced_until = if ignores_limit { until } else { until.min(place.gathers_until) };
                State::Scheduled(Delay::Debounce(place.debounced_until))
            }
            other => other,
        };
        let message = Message {
            task: carrier,
            task_seq: task.seq,
            n,
            at_ms: now.wall_ms,
            sent_at: item.session.as_ref().and_then(|member| member.sent_at),
            key,
        };
        let reason = task.reason.clone();
        self.move_dues(carrier, old_dues);
        if !self.has_bug(Bug::MergedMessageLost) {
            self.tick.messages.push((message, item.spec));
        }
        let step = Some(StepKind::Merged);
        self.transition(now, carrier, next, Why { reason, class: None, step });
        self.tell_one(now, HappeningKind::TaskMerged, carrier, to, Why::default(), None);
        let task = &self.entry(carrier).task;
        Accepted { id: carrier, phase: task.phase(), task: Some(Box::new(task.clone())), merged: Some(n) }
    }
}

/// Many senders know only the second: such a message is stale only when it was sent in an earlier one.
fn is_before(sent_at: WallMs, cutoff: WallMs) -> bool {
    match sent_at % 1000 {
        0 => sent_at < cutoff - cutoff % 1000,
        _ => sent_at < cutoff,
    }
}

/// A message that waits for nothing joins with its submit.
fn joins_at_submit(now: Now, item: &NewTask) -> bool {
    item.depends_on.is_empty()
        && item.run_at.is_none_or(|at| at <= now.wall_ms)
        && item.delay_ms.is_none_or(|delay_ms| delay_ms == 0)
}

/// Members of a batch are tasks that others may name, so they stay themselves. What steers is for the running one.
fn mergeable(item: &NewTask, is_single: bool) -> Option<(&FlowKey, usize)> {
    (is_single && item.steers.is_none()).then_some((&item.flow, item.spec.len()))
}
