//! Sessions at work: who joins the line, who is seated next, who is merged, dropped, handed over or stopped.
//!
//! What a message does to a busy session is decided at once; what that frees or drops is a release, because the
//! members it concerns are in the store. Memory may hold some of them, and newer: whoever looks at the line reads the
//! store's part first and then goes by what is in memory.

use std::ops::Range;

use crate::core::{Core, SessionEntry, answer};
use crate::event::{
    Accepted, Answer, Command, HappeningKind, NewMember, NewTask, Refusal, Release, Rest, SessionAct, SessionAnswer,
    StopWhy, Subject,
};
use crate::flow::FlowKey;
use crate::flows::lane_in_force;
use crate::ids::{TaskId, Ticket};
use crate::lifecycle::Why;
use crate::name::Name;
use crate::now::{Now, WallMs};
use crate::planted::Bug;
use crate::session::{
    DROPPED_TOLD_MAX, MESSAGE_BYTES_MAX, MESSAGES_MAX, Member, Message, Mode, Overflow, Rules, Session, SessionId,
    Usage,
};
use crate::submit::uuid_text;
use crate::task::{Delay, Phase, State, Stop, Task, Text, Wait};
use crate::trail::StepKind;
use crate::write::SessionDrop;

/// What a session makes of a message that joins it now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arrival {
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

impl Core {
    // ── Rows in memory ──────────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn member_loaded(&mut self, task: &Task) {
        let Some(member) = task.member.filter(|_| !task.phase().is_terminal()) else { return };
        let entry = self.sessions.get_mut(&member.session).expect("the session of a live task is loaded before it");
        entry.members.insert(task.seq, task.id);
        if member.in_line() {
            entry.line.insert(member.line, task.id);
        }
        if let Some(lease) = task.state.lease() {
            entry.held.insert(lease.order, task.id);
        }
    }

    pub(crate) fn member_forgotten(&mut self, task: &Task) {
        let Some(member) = task.member else { return };
        let Some(entry) = self.sessions.get_mut(&member.session) else { return };
        entry.members.remove(task.seq);
        entry.line.remove(member.line);
        self.note_session(member.session);
    }

    fn touch_session(&mut self, id: SessionId) -> &mut Session {
        self.note_session(id);
        let entry = self.sessions.get_mut(&id).expect("the session of a task in memory is in memory");
        entry.dirty = true;
        &mut entry.session
    }

    /// It is written, and looked at when the tick ends.
    pub(crate) fn note_session(&mut self, id: SessionId) {
        let entry = self.sessions.get_mut(&id).expect("a session that is spoken of is in memory");
        if !std::mem::replace(&mut entry.touched, true) {
            self.tick.touched_sessions.push(id);
        }
    }

    fn session(&self, id: SessionId) -> &Session {
        &self.sessions[&id].session
    }

    pub(crate) fn session_rules(&self, id: SessionId) -> Rules {
        let session = self.session(id);
        let mut rules = match self.has_bug(Bug::ThrottleIgnored) {
            true => self.config.sessions.rules(&session.key, &session.lane, session.own),
            false => session.rules(&self.config.sessions),
        };
        rules.max_concurrent += u32::from(self.has_bug(Bug::OneSeatMore));
        rules
    }

    fn session_row(&self, key: &Name) -> Option<&Session> {
        self.session_by_key.get(key).map(|&id| self.session(id))
    }

    /// The session of this key, made when there is none.
    fn session_for(&mut self, now: Now, key: &Name, lane: &Name) -> SessionId {
        if let Some(&id) = self.session_by_key.get(key) {
            return id;
        }
        self.meta.next_seq += 1;
        let id = SessionId(self.meta.next_seq);
        let session = Session::new(id, key.clone(), lane.clone(), now.wall_ms);
        self.session_by_key.insert(key.clone(), id);
        self.sessions.insert(id, Box::new(SessionEntry::new(session, true)));
        self.note_session(id);
        id
    }

    // ── Arrival ─────────────────────────────────────────────────────────────────────────────────────────────────

    /// Decides over a copy of the row, so that a batch can be judged before anything of it is stored.
    fn arrival(&self, row: &Session, rules: &Rules, mode: Mode, single: Option<(&FlowKey, usize)>) -> Arrival {
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
        if let Some(carrier) = single.filter(|_| can_merge).and_then(|(key, n)| self.carrier(row, mode, key, n)) {
            return Arrival::Merges(carrier);
        }
        match is_full {
            true => Arrival::Full,
            false => Arrival::Stands,
        }
    }

    /// The running member that takes input and was started first.
    fn takes_input(&self, id: SessionId) -> Option<TaskId> {
        self.sessions.get(&id)?.held.values().find(|&task| self.may_take_input(task))
    }

    fn may_take_input(&self, id: TaskId) -> bool {
        self.tasks.get(&id).is_some_and(|entry| {
            let Task { policy, state, .. } = &entry.task;
            policy.takes_input && state.lease().is_some_and(|lease| lease.stop.is_none())
        })
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

    /// Is the message taken? `planned` is what the items before it in the same submission would make of its session.
    pub(crate) fn judge_member(
        &self,
        now: Now,
        item: &NewTask,
        planned: Option<&Session>,
        single: bool,
    ) -> Result<Option<Session>, Refusal> {
        let Some(member) = &item.session else { return Ok(None) };
        let mut row = self.row_with(planned.or_else(|| self.session_row(&member.key)), item, member);
        let key = || member.key.clone();
        if let (Some(sent_at), Some(cutoff)) = (member.sent_at, row.cutoff)
            && is_before(sent_at, cutoff)
        {
            return Err(Refusal::Stale { key: key(), cutoff, recorded: None });
        }
        if !joins_at_submit(now, item) {
            return Ok(Some(row));
        }
        let rules = row.rules(&self.config.sessions);
        let mode = member.as_mode.unwrap_or(rules.mode);
        let merge = mergeable(item, single);
        match self.arrival(&row, &rules, mode, merge) {
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
            Arrival::Merges(_) => {}
            Arrival::Steers(_) => row.n_line += 1,
            Arrival::Stands if row.n_line == 0 && row.n_free(&rules) > 0 && rules.debounce_ms == 0 => row.n_seated += 1,
            Arrival::Stands => row.n_line = (row.n_line + 1).min(rules.cap.saturating_add(row.n_free(&rules))),
        }
        row.next_line += 1;
        Ok(Some(row))
    }

    /// The task that a single submit becomes part of, if it does.
    pub(crate) fn carrier_for(&self, now: Now, item: &NewTask) -> Option<TaskId> {
        let member = item.session.as_ref()?;
        let row = self.row_with(Some(self.session_row(&member.key)?), item, member);
        let rules = row.rules(&self.config.sessions);
        let merge = mergeable(item, true).filter(|_| joins_at_submit(now, item));
        match self.arrival(&row, &rules, member.as_mode.unwrap_or(rules.mode), merge) {
            Arrival::Merges(carrier) => Some(carrier),
            _ => None,
        }
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
        let entry = self.touch(carrier);
        let task = &mut entry.task;
        let old_dues = (task.wall_due(), task.steady_due());
        entry.key_changed |= from != to;
        task.flow = flow;
        task.rank = item.rank;
        task.policy = item.policy;
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

    /// A message was taken: the session knows of it, and its settings stick. Who sits may be another matter then.
    pub(crate) fn note_message(&mut self, now: Now, member: &NewMember, lane: &Name) -> SessionId {
        let lane = lane_in_force(&self.config, lane);
        let id = self.session_for(now, &member.key, &lane);
        let session = self.touch_session(id);
        session.own = member.settings.over(session.own);
        session.lane = lane;
        session.n_messages += 1;
        session.last_at = now.wall_ms;
        self.review(id);
        id
    }

    /// A new task is a member from its creation on, whenever it joins.
    pub(crate) fn enrol(&mut self, now: Now, id: TaskId, member: &NewMember, lane: &Name, gathers: bool) {
        let session_id = self.session_for(now, &member.key, lane);
        let seq = self.entry(id).task.seq;
        self.entry_mut(id).task.member = Some(Member { as_mode: member.as_mode, gathers, ..Member::new(session_id) });
        let session = self.touch_session(session_id);
        session.n_live += 1;
        if session.n_live == 1 {
            session.live_from = seq;
        }
        self.sessions.get_mut(&session_id).expect("it was just touched").members.insert(seq, id);
    }

    /// A message that the running task takes instead goes out with this tick; otherwise it is an ordinary one.
    pub(crate) fn hand_over(&mut self, id: TaskId) {
        let Some(target) = self.entry(id).task.steers else { return };
        let run = self.tasks.get(&target).map(|entry| &entry.task).filter(|task| task.phase().is_held());
        if self.may_take_input(target) && self.entry(id).task.phase() == Phase::Waiting {
            self.tick.inputs.push((target, id));
        } else if run.is_none_or(|task| !task.policy.takes_input) {
            self.touch(id).task.steers = None;
        }
    }

    /// A run that takes input has begun, or goes on under a scheduler that was started anew: who waits to be taken in by it
    /// is handed over again.
    pub(crate) fn look_for_input(&mut self, id: TaskId) {
        let task = &self.entry(id).task;
        let Some(session) = task.session().filter(|_| task.policy.takes_input) else { return };
        if self.session(session).n_line > 0 {
            self.add_release(Release::SessionSeat { session });
        }
    }

    pub(crate) fn send_inputs(&mut self, out: &mut Vec<Command>) {
        for (target, message) in std::mem::take(&mut self.tick.inputs) {
            let entry = self.entry(message);
            if !self.may_take_input(target) || entry.task.phase() != Phase::Waiting {
                continue;
            }
            let task = &self.entry(target).task;
            let lease = *task.state.lease().expect("what takes input is held");
            out.push(Command::Input {
                worker: lease.worker,
                task: target,
                attempt: task.attempt,
                token: lease.token,
                message,
                spec: entry.spec.clone(),
            });
        }
    }

    pub(crate) fn on_input_taken(&mut self, now: Now, target: TaskId, message: TaskId) {
        let Some(entry) = self.tasks.get(&message) else { return };
        if entry.task.steers == Some(target) && entry.task.phase() == Phase::Waiting {
            let reason = format!("handed to {} as input", uuid_text(target.0));
            self.transition(now, message, State::Completed, Why::because(reason));
        }
    }

    // ── The line ────────────────────────────────────────────────────────────────────────────────────────────────

    /// Its dependencies and its delay are over, and it has not joined yet.
    pub(crate) fn joins_now(&self, now: Now, id: TaskId) -> bool {
        let task = &self.entry(id).task;
        task.member.is_some_and(|member| member.line == 0)
            && task.n_deps_open == 0
            && task.run_at.is_none_or(|at| at <= now.wall_ms)
    }

    /// Takes a number in the line. False when the task has ended instead.
    pub(crate) fn join(&mut self, now: Now, id: TaskId) -> bool {
        let task = &self.entry(id).task;
        let (member, seq, steers) = (task.member.expect("only a member joins"), task.seq, task.steers);
        let session_id = member.session;
        let session = self.session(session_id);
        if seq < session.stopped_seq {
            self.stop_waiting(now, id);
            return false;
        }
        let rules = self.session_rules(session_id);
        let mode = member.as_mode.unwrap_or(rules.mode);
        let arrival = self.arrival(session, &rules, mode, None);
        match arrival {
            Arrival::Busy => {
                self.cancel(now, id, "session is busy");
                return false;
            }
            Arrival::Full => {
                self.drop_member(now, id, "dropped: the line of its session is full");
                return false;
            }
            Arrival::Interrupts => self.interrupt(session_id),
            Arrival::Steers(target) => self.entry_mut(id).task.steers = Some(target),
            Arrival::Merges(_) => unreachable!("a task of its own is not merged"),
            Arrival::Stands => {}
        }
        let is_plain = arrival == Arrival::Stands && mode != Mode::Interrupt && steers.is_none();
        // What has been run once and comes back, because its time was moved, has said what it has to say.
        let gathers = is_plain && member.gathers && self.entry(id).task.attempt == 0;
        let debounce_ms = if is_plain { rules.debounce_ms.min(rules.wait_ms_max) } else { 0 };
        let session = self.touch_session(session_id);
        let line = session.next_line;
        session.next_line += 1;
        session.n_line += 1;
        // Only the last in line gathers: a message must not pass those that came before it.
        session.gatherer = (gathers && (debounce_ms > 0 || mode == Mode::Collect)).then_some(id);
        self.sessions.get_mut(&session_id).expect("it was just touched").line.insert(line, id);
        let member = self.entry_mut(id).task.member.as_mut().expect("only a member joins");
        member.line = line;
        member.gathers_until = now.steady_ms.saturating_add(rules.wait_ms_max);
        member.debounced_until = if debounce_ms > 0 { now.steady_ms.saturating_add(debounce_ms) } else { 0 };
        true
    }

    /// Takes a free seat at once when nobody stands before it.
    pub(crate) fn sit_if_alone(&mut self, now: Now, id: TaskId) {
        let task = &self.entry(id).task;
        let Some(member) = task.member.filter(|member| member.in_line()) else { return };
        let session = self.session(member.session);
        let is_alone = session.n_line == 1 && session.n_free(&self.session_rules(member.session)) > 0;
        if is_alone && !self.is_held_back(now, task) {
            self.sit(id);
        }
    }

    /// More messages of its burst may come, or the running task may take it: nobody passes it meanwhile.
    fn is_held_back(&self, now: Now, task: &Task) -> bool {
        let is_debounced = task.member.is_some_and(|member| member.debounced_until > now.steady_ms);
        let is_handed =
            task.steers.is_some_and(|target| self.tasks.get(&target).is_some_and(|entry| entry.task.phase().is_held()));
        is_debounced || (is_handed && !self.has_bug(Bug::HandedRunsToo))
    }

    fn sit(&mut self, id: TaskId) {
        let task = &self.entry(id).task;
        let member = task.member.expect("only a member sits");
        // A run that comes again was told before; what was dropped since is for the next new one.
        let is_new = task.n_runs == 0;
        self.sessions.get_mut(&member.session).expect("its session is in memory").line.remove(member.line);
        let session = self.touch_session(member.session);
        session.n_line -= 1;
        session.n_seated += 1;
        session.is_draining = false;
        if session.gatherer == Some(id) {
            session.gatherer = None;
        }
        let told = (session.n_told.max(session.n_dropped.saturating_sub(DROPPED_TOLD_MAX)), session.n_dropped);
        if is_new {
            session.n_told = session.n_dropped;
        }
        let is_told = is_new && told.0 < told.1 && !self.has_bug(Bug::DropsNotTold);
        let task = &mut self.touch(id).task;
        task.steers = None;
        let member = task.member.as_mut().expect("only a member sits");
        member.seated = true;
        if is_told {
            member.told = told;
        }
    }

    /// After its stand has changed: a free seat may be somebody's, and who joins may make the line too long. Only then:
    /// nobody is dropped because a setting was lowered.
    pub(crate) fn look_at_line(&mut self, now: Now, id: TaskId, joins: bool) {
        let task = &self.entry(id).task;
        let Some(member) = task.member.filter(|member| member.in_line()) else { return };
        let is_held_back = self.is_held_back(now, task);
        let rules = self.session_rules(member.session);
        let session = self.session(member.session);
        let n_free = session.n_free(&rules);
        let is_over = session.n_line > rules.cap.saturating_add(n_free) && rules.overflow != Overflow::New;
        if n_free > 0 && !is_held_back {
            self.add_release(Release::SessionSeat { session: member.session });
        }
        if is_over && joins {
            self.add_release(Release::SessionOverflow { session: member.session });
        }
    }

    /// A task that ended, or goes back to wait for its time, gives its seat or its place in line back.
    fn unjoin(&mut self, id: TaskId) {
        let task = &self.entry(id).task;
        let Some(member) = task.member.filter(|member| member.line > 0) else { return };
        self.sessions.get_mut(&member.session).expect("its session is in memory").line.remove(member.line);
        let keeps_seat = self.has_bug(Bug::SeatNotGivenBack);
        let session = self.touch_session(member.session);
        match member.seated {
            true => session.n_seated -= u32::from(!keeps_seat),
            false => session.n_line -= 1,
        }
        if session.gatherer == Some(id) {
            session.gatherer = None;
        }
        let has_line = session.n_line > 0;
        self.untell(id);
        if has_line {
            self.add_release(Release::SessionSeat { session: member.session });
        }
    }

    /// Lines about dropped messages that nobody has read yet go to the next run, not over a reset. Where another was told
    /// of later ones meanwhile the next run is told of those again: better twice than never.
    fn untell(&mut self, id: TaskId) {
        let task = &self.entry(id).task;
        let Some(Member { session, told, .. }) = task.member.filter(|member| member.told.0 < member.told.1) else {
            return;
        };
        let row = self.session(session);
        if task.n_runs == 0 && task.seq >= row.reset_seq {
            let session = self.touch_session(session);
            session.n_told = session.n_told.min(told.0);
            self.touch(id).task.member.as_mut().expect("only a member was told").told = (0, 0);
        }
    }

    /// Back to before it joined: its time was moved.
    pub(crate) fn rejoin_later(&mut self, id: TaskId) {
        if self.entry(id).task.member.is_none_or(|member| member.line == 0) {
            return;
        }
        self.unjoin(id);
        // Its batch's place would be held by somebody who cannot use it.
        self.leave_batch_place(id);
        self.entry_mut(id).task.steers = None;
        if let Some(member) = &mut self.entry_mut(id).task.member {
            *member = Member { line: 0, seated: false, debounced_until: 0, told: (0, 0), ..*member };
        }
    }

    pub(crate) fn leave_session(&mut self, id: TaskId) {
        let Some(session_id) = self.entry(id).task.session() else { return };
        self.unjoin(id);
        let next_seq = self.meta.next_seq;
        let session = self.touch_session(session_id);
        session.n_live -= 1;
        if session.n_live == 0 {
            session.live_from = next_seq;
        }
    }

    /// The row's counts of what runs and what debounces follow the state.
    pub(crate) fn count_member(&mut self, id: TaskId, from: State, to: State) {
        let Some(session_id) = self.entry(id).task.session() else { return };
        let is_debounced = |state: State| matches!(state, State::Scheduled(Delay::Debounce(_)));
        let (was_debounced, is_debounced) = (is_debounced(from), is_debounced(to));
        let (was_held, is_held) = (from.phase().is_held(), to.phase().is_held());
        if was_debounced != is_debounced || was_held != is_held {
            let session = self.touch_session(session_id);
            session.n_debouncing = session.n_debouncing + u32::from(is_debounced) - u32::from(was_debounced);
            session.n_held = session.n_held + u32::from(is_held) - u32::from(was_held);
        }
        let held = &mut self.sessions.get_mut(&session_id).expect("the session of a task in memory").held;
        match (from.lease(), to.lease()) {
            (None, Some(lease)) => held.insert(lease.order, id),
            (Some(lease), None) => held.remove(lease.order),
            _ => {}
        }
        if was_held && !is_held {
            // Fewer may be seated than when it started; and whoever was handed to it may have to go on by himself.
            self.review(session_id);
        }
    }

    // ── Releases ────────────────────────────────────────────────────────────────────────────────────────────────

    /// How many stored rows a release about a session is worth reading.
    pub fn n_rows_of(&self, release: Release) -> usize {
        let (Release::SessionSeat { session: id } | Release::SessionOverflow { session: id }) = release else {
            return usize::MAX;
        };
        let Some(entry) = self.sessions.get(&id) else { return 1 };
        let (session, rules) = (&entry.session, self.session_rules(id));
        let n_free = session.n_free(&rules);
        let n = match release {
            Release::SessionSeat { .. } => n_free,
            _ => session.n_line.saturating_sub(rules.cap.saturating_add(n_free)),
        };
        // Some of the stored ones may have left the line in this tick.
        (n as usize).saturating_add(entry.members.len()).saturating_add(1)
    }

    /// Seats the first in line while seats are free. True when there is nothing more to do for now.
    pub(crate) fn seat_next(&mut self, now: Now, id: SessionId, bound: u64) -> bool {
        loop {
            let session = self.session(id);
            let (n_line, n_free) = (session.n_line, session.n_free(&self.session_rules(id)));
            let line = &self.sessions[&id].line;
            let first = match self.has_bug(Bug::LastInLineFirst) {
                true => line.last(),
                false => line.first(),
            };
            let first = first.filter(|&(number, _)| number < bound);
            if let Some((_, task)) = first.filter(|_| n_line > 0) {
                // Its target may have been started anew, or the scheduler: it is handed over again.
                self.hand_over(task);
            }
            if n_line == 0 || n_free == 0 {
                return true;
            }
            let Some((number, task)) = first else {
                assert!(bound < u64::MAX, "the line of {id:?} has {n_line} members and none of them is known");
                return false;
            };
            if number < self.session(id).stopped_line {
                self.stop_waiting(now, task);
                continue;
            }
            if self.is_held_back(now, &self.entry(task).task) {
                return true;
            }
            self.sit(task);
            self.settle(now, task, Why::default());
        }
    }

    /// Drops the first in line while the line is too long.
    pub(crate) fn drop_oldest(&mut self, now: Now, id: SessionId, bound: u64) -> bool {
        loop {
            let rules = self.session_rules(id);
            let session = self.session(id);
            if session.n_line <= rules.cap.saturating_add(session.n_free(&rules)) {
                return true;
            }
            let first = self.sessions[&id].line.first();
            let Some((_, task)) = first.filter(|&(number, _)| number < bound) else {
                assert!(bound < u64::MAX, "the line of {id:?} has {} members and none is known", session.n_line);
                return false;
            };
            if rules.overflow == Overflow::Summarize {
                let task_seq = self.entry(task).task.seq;
                let session = self.touch_session(id);
                let drop = SessionDrop { session: id, n: session.n_dropped, task, task_seq };
                session.n_dropped += 1;
                self.tick.drops.push(drop);
            }
            self.drop_member(now, task, "dropped: the line of its session is full");
        }
    }

    fn drop_member(&mut self, now: Now, id: TaskId, reason: impl Into<Text>) {
        let reason = reason.into();
        let flow = self.flow_of(&self.entry(id).task);
        if !self.has_bug(Bug::DroppedSilently) {
            self.tell_one(now, HappeningKind::TaskDropped, id, flow, Why::because(reason.clone()), None);
        }
        self.cancel(now, id, reason);
    }

    /// Surplus members that have not started go back into the line, the last first. True when there is no surplus.
    pub(crate) fn shrink(&mut self, now: Now, id: SessionId) -> bool {
        let n_surplus = self.session(id).n_seated.saturating_sub(self.session_rules(id).max_concurrent) as usize;
        let members = self.sessions[&id].members.values().map(|task| &self.entry(task).task);
        let mut seated: Vec<(u64, TaskId)> = members
            .filter(|task| matches!(task.state, State::Queued { .. } | State::Waiting(Wait::BatchPlace)))
            .filter_map(|task| Some((task.member.filter(|member| member.seated)?.line, task.id)))
            .collect();
        seated.sort_unstable_by(|a, b| b.cmp(a));
        seated.truncate(n_surplus);
        let is_done = seated.len() == n_surplus;
        seated.into_iter().for_each(|(_, task)| self.stand_up(now, task));
        is_done
    }

    fn stand_up(&mut self, now: Now, id: TaskId) {
        self.leave_batch_wait(id);
        // Its batch's place would be held by somebody who cannot use it.
        self.leave_batch_place(id);
        self.untell(id);
        let member = self.touch(id).task.member.as_mut().expect("only a member has a seat");
        member.seated = false;
        let Member { session: session_id, line, .. } = *member;
        let session = self.touch_session(session_id);
        session.n_seated -= 1;
        session.n_line += 1;
        self.sessions.get_mut(&session_id).expect("it was just touched").line.insert(line, id);
        let reason = "waits for its turn in its session";
        self.transition(now, id, State::Waiting(Wait::Seat), Why::because(reason));
    }

    /// The rules may have changed: more may sit, or fewer.
    pub(crate) fn review(&mut self, id: SessionId) {
        let rules = self.session_rules(id);
        let session = self.session(id);
        let (n_line, n_free, n_seated) = (session.n_line, session.n_free(&rules), session.n_seated);
        if n_line > 0 && n_free > 0 {
            self.add_release(Release::SessionSeat { session: id });
        }
        if n_seated > rules.max_concurrent && !self.has_bug(Bug::SurplusSeated) {
            self.add_release(Release::SessionShrink { session: id });
        }
    }

    pub(crate) fn on_sessions_reviewed(&mut self, after: SessionId, sessions: &[SessionId], rest: Rest) {
        sessions.iter().for_each(|&id| self.review(id));
        self.release_done(Release::SessionReview { after }, true);
        if let (Rest::More, Some(&last)) = (rest, sessions.last()) {
            self.add_release(Release::SessionReview { after: last });
        }
    }

    // ── Stops ───────────────────────────────────────────────────────────────────────────────────────────────────

    /// Everyone who has joined before this message is stopped; it starts when they are gone.
    fn interrupt(&mut self, id: SessionId) {
        let overlaps = self.has_bug(Bug::InterruptOverlaps);
        let session = self.touch_session(id);
        session.is_draining = session.n_seated > 0 && !overlaps;
        session.stopped_line = session.next_line;
        let from = session.live_from;
        let before = self.meta.next_seq;
        self.add_release(Release::SessionStop { session: id, before, from, why: StopWhy::Interrupt });
    }

    /// Stops the members in memory within this range; the store's have just been read.
    pub(crate) fn stop_members(
        &mut self,
        now: Now,
        id: SessionId,
        range: Range<u64>,
        why: StopWhy,
        out: &mut Vec<Command>,
    ) {
        let stopped_line = self.session(id).stopped_line;
        let members: Vec<TaskId> = self.sessions[&id].members.range(range).collect();
        for task in members {
            let Task { member, state, .. } = &self.entry(task).task;
            let line = member.map_or(0, |member| member.line);
            let spares_unjoined = why == StopWhy::Interrupt || self.has_bug(Bug::UnjoinedSpared);
            let is_meant = !spares_unjoined || (line > 0 && line < stopped_line);
            if !is_meant || state.phase().is_terminal() {
                continue;
            }
            match (state.phase().is_held(), why) {
                (true, _) => self.cancel_held(now, task, why.as_str(), out),
                (false, StopWhy::Interrupt) => self.drop_member(now, task, why.as_str()),
                (false, _) => self.cancel(now, task, why.as_str()),
            }
        }
    }

    /// It was stopped with its session, before the release that says so came to it.
    pub(crate) fn is_stopped(&self, id: TaskId) -> bool {
        let task = &self.entry(id).task;
        task.member.is_some_and(|member| {
            let session = self.session(member.session);
            task.seq < session.stopped_seq || (member.line > 0 && member.line < session.stopped_line)
        })
    }

    pub(crate) fn stop_waiting(&mut self, now: Now, id: TaskId) {
        let task = &self.entry(id).task;
        let session = self.session(task.session().expect("only a member is stopped with its session"));
        if task.seq < session.reset_seq {
            self.cancel(now, id, StopWhy::Reset.as_str());
        } else if task.seq < session.stopped_seq {
            self.cancel(now, id, StopWhy::StopAll.as_str());
        } else {
            self.drop_member(now, id, StopWhy::Interrupt.as_str());
        }
    }

    pub(crate) fn on_session(&mut self, now: Now, ticket: Ticket, key: Name, act: SessionAct, out: &mut Vec<Command>) {
        let result = match act {
            SessionAct::Stop => SessionAnswer::Stopped { task: self.stop_oldest(now, &key, out) },
            SessionAct::StopAll => self.stop_all(now, &key, StopWhy::StopAll, out),
            SessionAct::Reset => self.stop_all(now, &key, StopWhy::Reset, out),
            SessionAct::Set(settings) => {
                let id = self.session_for(now, &key, &Name::new(crate::config::LANE_MAIN));
                self.touch_session(id).own = settings;
                self.changed(now, id)
            }
            SessionAct::Context(context) => {
                let id = self.session_for(now, &key, &Name::new(crate::config::LANE_MAIN));
                self.touch_session(id).context = Some(context);
                self.changed(now, id)
            }
        };
        answer(out, ticket, Answer::Session(result));
    }

    fn changed(&mut self, now: Now, id: SessionId) -> SessionAnswer {
        self.touch_session(id).last_at = now.wall_ms;
        self.review(id);
        let row = Box::new(self.session(id).clone());
        self.happen(now, HappeningKind::SessionChanged, Subject::Session(row.clone()));
        SessionAnswer::Row(row)
    }

    fn stop_oldest(&mut self, now: Now, key: &Name, out: &mut Vec<Command>) -> Option<TaskId> {
        let &id = self.session_by_key.get(key)?;
        let is_stopping = |task| self.entry(task).task.stop() == Some(Stop::Cancel);
        let oldest = self.sessions[&id].held.values().find(|&task| !is_stopping(task))?;
        self.cancel_held(now, oldest, "stopped", out);
        let row = Box::new(self.session(id).clone());
        self.happen(now, HappeningKind::SessionStopped, Subject::Session(row));
        Some(oldest)
    }

    fn stop_all(&mut self, now: Now, key: &Name, why: StopWhy, out: &mut Vec<Command>) -> SessionAnswer {
        let id = self.session_for(now, key, &Name::new(crate::config::LANE_MAIN));
        let before = self.meta.next_seq;
        let forgets_cutoff = self.has_bug(Bug::CutoffForgotten);
        let session = self.touch_session(id);
        let (running, waiting, debouncing) = (session.n_held, session.n_waiting(), session.n_debouncing);
        if !forgets_cutoff {
            session.cutoff = Some(now.wall_ms);
        }
        session.stopped_seq = before;
        session.stopped_line = session.next_line;
        session.gatherer = None;
        session.last_at = now.wall_ms;
        let mut kind = HappeningKind::SessionStopped;
        if why == StopWhy::Reset {
            session.generation += 1;
            session.reset_seq = before;
            session.context = None;
            session.n_told = session.n_dropped;
            kind = HappeningKind::SessionReset;
        }
        let (from, n_live, row) = (session.live_from, session.n_live, Box::new(session.clone()));
        // What runs is in memory and is asked at once; the rest is in the store.
        let held: Vec<TaskId> = self.sessions[&id].held.values().collect();
        held.into_iter().for_each(|task| self.cancel_held(now, task, why.as_str(), out));
        if n_live > 0 {
            self.add_release(Release::SessionStop { session: id, before, from, why });
        }
        self.happen(now, kind, Subject::Session(row.clone()));
        SessionAnswer::StoppedAll { running, waiting, debouncing, session: row }
    }

    /// What a run says of its context counts for its session, unless the session was reset since.
    pub(crate) fn on_usage(&mut self, id: TaskId, usage: &Usage) {
        let task = &mut self.entry_mut(id).task;
        task.usage = Some(Box::new(*usage));
        let seq = task.seq;
        let Some((session_id, context)) = task.session().zip(usage.context()) else { return };
        if seq >= self.session(session_id).reset_seq || self.has_bug(Bug::OldGenerationHeard) {
            self.touch_session(session_id).context = Some(context);
            self.review(session_id);
        }
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
fn mergeable(item: &NewTask, single: bool) -> Option<(&FlowKey, usize)> {
    (single && item.steers.is_none()).then_some((&item.flow, item.spec.len()))
}
