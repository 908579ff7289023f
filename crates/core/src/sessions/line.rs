//! The line of a session and its seats: who joins, who sits, who is dropped, who stands up again.

use super::arrival::Arrival;
use crate::core::Core;
use crate::event::{HappeningKind, Release};
use crate::ids::TaskId;
use crate::lifecycle::Why;
use crate::now::Now;
use crate::planted::Bug;
use crate::session::{DROPPED_TOLD_MAX, Member, Mode, Overflow, SessionId};
use crate::task::{State, Task, Text, Wait};
use crate::write::SessionDrop;

impl Core {
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

    pub(super) fn drop_member(&mut self, now: Now, id: TaskId, reason: impl Into<Text>) {
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
}
