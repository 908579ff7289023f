//! What must be true of every line: after a commit, and when nothing is left to do.

use std::collections::BTreeSet;

use runyard_core::event::StopWhy;
use runyard_core::ids::TaskId;
use runyard_core::name::{Blob, Name};
use runyard_core::session::{DROPPED_TOLD_MAX, Overflow};
use runyard_core::task::{Delay, Phase, Policy, State, Stop, Task, Wait};

use crate::foresee::Forecast;
use crate::oracle::{Applied, Oracle};
use crate::sessions::{Followed, SessionShadow};

impl Oracle {
    // ── After a commit ──────────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn check_sessions(&mut self, forecast: &Forecast, applied: &Applied) {
        let mut touched: BTreeSet<Name> = applied.sessions.keys().cloned().collect();
        touched.extend(applied.changed.iter().filter_map(|(id, _)| self.session_of(&self.rows[id]).cloned()));
        for key in &touched {
            self.recount_session(key);
            self.check_followed(key);
            self.check_barriers(key);
        }
        for (id, old) in &applied.changed {
            let row = &self.rows[id];
            if let Some(key) = self.session_of(row) {
                self.check_member(key, row, old.as_ref(), applied);
                self.check_dropped(key, row, old.as_ref(), applied);
            }
        }
        self.check_merged(forecast, applied);
        for expected in &forecast.expected {
            self.check_expected(expected, applied);
        }
    }

    /// The row's counts against counted ones.
    pub(crate) fn recount_session(&self, key: &Name) {
        let row = &self.sessions[key].row;
        let count = |is_meant: &dyn Fn(&Task) -> bool| self.members(key).filter(|task| is_meant(task)).count() as u32;
        let is_debouncing = |task: &Task| matches!(task.state, State::Scheduled(Delay::Debounce(_)));
        let is_seated = |task: &Task| task.member.is_some_and(|member| member.seated);
        let in_line = |task: &Task| task.member.is_some_and(|member| member.line > 0 && !member.seated);
        assert_eq!(row.n_live, count(&|_| true), "live members of session {key}");
        assert_eq!(row.n_held, count(&|task| task.phase().is_held()), "held members of session {key}");
        assert_eq!(row.n_seated, count(&is_seated), "seated members of session {key}");
        assert_eq!(row.n_line, count(&in_line), "the line of session {key}");
        assert_eq!(row.n_debouncing, count(&is_debouncing), "debouncing members of session {key}");
        let lines: Vec<u64> = self.members(key).filter_map(|task| task.member).map(|member| member.line).collect();
        let joined: BTreeSet<u64> = lines.iter().copied().filter(|line| *line > 0).collect();
        assert_eq!(joined.len(), lines.iter().filter(|line| **line > 0).count(), "numbers in line of session {key}");
        assert!(joined.last().is_none_or(|last| *last < row.next_line), "numbers in line of session {key}");
        if let Some(gatherer) = row.gatherer {
            let last = self.members(key).filter(|task| in_line(task)).max_by_key(|task| task.member.map(|m| m.line));
            assert_eq!(last.map(|task| task.id), Some(gatherer), "only the last in line of {key} gathers");
        }
        let oldest = self.members(key).map(|task| task.seq).min();
        assert!(oldest.is_none_or(|seq| seq >= row.live_from), "session {key} looks for its members from {row:?}");
    }

    fn check_followed(&mut self, key: &Name) {
        let SessionShadow { row, followed, .. } = &self.sessions[key];
        let said = Followed {
            own: row.own,
            lane: row.lane.clone(),
            generation: row.generation,
            cutoff: row.cutoff,
            context: row.context,
            n_messages: row.n_messages,
        };
        assert_eq!(&said, followed, "what session {key} was told");
    }

    /// Nobody behind an interrupting message sits while somebody before it still does.
    fn check_barriers(&mut self, key: &Name) {
        let mut barriers = self.sessions[key].barriers.clone();
        for barrier in &barriers {
            for task in self.members(key) {
                let is_before = task.member.is_some_and(|member| member.seated && member.line < *barrier);
                if !is_before {
                    continue;
                }
                let after = self
                    .members(key)
                    .find(|task| task.member.is_some_and(|member| member.seated && member.line >= *barrier));
                assert!(after.is_none(), "{:?} overlaps with {:?}, which it interrupted", after.map(|t| t.id), task.id);
            }
        }
        let is_before = |task: &Task, barrier: u64| task.member.is_some_and(|m| (1..barrier).contains(&m.line));
        barriers.retain(|barrier| self.members(key).any(|task| is_before(task, *barrier)));
        let session = self.sessions.get_mut(key).expect("it was just looked at");
        session.is_unsure &= session.row.n_seated > 0;
        session.barriers = barriers;
    }

    /// State and membership agree; who sits down passes nobody and finds a free seat.
    fn check_member(&self, key: &Name, row: &Task, old: Option<&Task>, applied: &Applied) {
        let id = row.id;
        if row.phase().is_terminal() {
            return;
        }
        let member = row.member.expect("a member of a session");
        let fits = match row.state {
            State::Waiting(Wait::Dependencies) | State::Scheduled(Delay::Until(_)) => member.line == 0,
            State::Waiting(Wait::Seat) => member.in_line(),
            State::Scheduled(Delay::Debounce(at)) => member.in_line() && member.debounced_until == at,
            // Its time was moved while it waited for something else.
            State::Waiting(Wait::BatchPlace) | State::Scheduled(Delay::Backoff(_)) => member.seated || member.line == 0,
            _ => member.seated,
        };
        assert!(fits, "{id:?} is {:?} and {member:?}", row.state);
        if let State::Scheduled(Delay::Debounce(at)) = row.state {
            let until = self.gathers_until[&id];
            assert!(at <= until, "{id:?} is held back until {at}, and may be only until {until}");
        }
        let passes = |line: u64| {
            self.members(key).find(|task| task.member.is_some_and(|other| other.in_line() && other.line < line))
        };
        let was_seated = old.and_then(|old| old.member).is_some_and(|old| old.seated && old.line == member.line);
        if member.seated && !was_seated {
            let passed = passes(member.line).map(|task| task.id);
            assert_eq!(passed, None, "{id:?} passed others in the line of session {key}");
            let n_seated = self.members(key).filter(|task| task.member.is_some_and(|m| m.seated)).count();
            let limit = self.rules_now(key).max_concurrent;
            assert!(n_seated <= limit as usize, "session {key} seats {n_seated} of {limit}");
            let steers = row.steers.or(old.and_then(|old| old.steers));
            let target = steers.filter(|target| {
                self.rows.get(target).is_some_and(|task| task.phase().is_held()) && !applied.started.contains(target)
            });
            assert_eq!(target, None, "{id:?} was handed to a task that runs, and runs itself");
        }
        if applied.started.contains(&id) {
            let is_stopped =
                self.stopped.contains(&id) || self.sessions[key].barriers.iter().any(|barrier| member.line < *barrier);
            assert!(!is_stopped, "{id:?} started after session {key} was stopped");
        }
        if applied.started.contains(&id) && row.attempt == 1 {
            let passed = passes(member.line).map(|task| task.id);
            assert_eq!(passed, None, "{id:?} started before others in the line of session {key}");
        }
    }

    /// A message that makes room is told of before its end, and noted where the next run is to hear of it.
    fn check_dropped(&self, key: &Name, row: &Task, old: Option<&Task>, applied: &Applied) {
        let was_live = old.is_none_or(|old| !old.phase().is_terminal());
        let was_held = old.is_some_and(|old| old.phase().is_held());
        let is_full = row.reason.starts_with("dropped: ");
        let is_dropped = is_full || (row.reason == StopWhy::Interrupt.as_str() && !was_held);
        if row.phase() != Phase::Cancelled || !was_live || !is_dropped {
            return;
        }
        let id = row.id;
        assert!(applied.dropped.contains(&id), "{id:?} is dropped and nobody is told");
        if is_full && row.member.is_some_and(|member| member.line > 0) {
            let is_noted = self.sessions[key].drops.contains(&id);
            let is_summarized = self.rules_now(key).overflow == Overflow::Summarize;
            assert_eq!(is_noted, is_summarized, "the next run of session {key} is told of {id:?}");
        }
    }

    /// Every merged message is one of this tick, for the session and of the kin of the task that carries it now.
    fn check_merged(&self, forecast: &Forecast, applied: &Applied) {
        for (message, spec) in &applied.messages {
            let row = &self.rows[&message.task];
            let submissions = forecast.submissions.iter().map(|(submission, _)| submission);
            let single = submissions.filter(|submission| submission.batch.is_none());
            let single = single.map(|submission| (&submission.items[0], submission.idempotency.as_ref()));
            let mut sent = single.chain(self.book.fired.iter().map(|item| (item, None)));
            let found = sent.find(|(item, _)| item.spec == *spec);
            let (item, key) = found.unwrap_or_else(|| panic!("{message:?} was not submitted in this tick"));
            let member = item.session.as_ref().expect("only a message to a session is merged");
            assert_eq!(Some(&member.key), self.session_of(row), "the session of {message:?}");
            let (own, carrier) = (&item.flow, self.key_of(row));
            let is_kin = own.agent == carrier.agent && own.lane == carrier.lane && own.shape.kind == carrier.shape.kind;
            assert!(is_kin && item.depends_on.is_empty(), "{message:?} is of another kind");
            let key = key.map(|key| &key.key);
            assert_eq!((message.key.as_ref(), message.sent_at), (key, member.sent_at), "what is known of {message:?}");
            let is_last = row.member.is_some_and(|member| member.n_merged == message.n);
            let is_touched = forecast.tasks.contains_key(&row.id) || applied.created.contains(&row.id);
            if is_last && !is_touched && !row.phase().is_terminal() {
                // Whoever asked to be called back is, whatever those after him asked for.
                let policy = Policy { calls_back: self.asked_for_callback(row.id), ..item.policy };
                assert_eq!((row.rank, row.policy), (item.rank, policy), "{:?} is as its last message says", row.id);
                assert_eq!((&item.flow, item.deadline), (&**carrier, row.deadline), "{:?} as its last message", row.id);
            }
        }
        for (id, _) in &applied.changed {
            let n_stored = self.messages.get(id).map_or(0, Vec::len);
            let n_merged = self.rows[id].member.map_or(0, |member| member.n_merged as usize);
            assert_eq!(n_merged, n_stored, "merged messages of {id:?}");
        }
    }

    // ── At rest ─────────────────────────────────────────────────────────────────────────────────────────────────

    /// To be asked when nothing is left to do.
    pub(crate) fn check_stopped(&mut self) {
        for id in std::mem::take(&mut self.stopped) {
            let task = &self.rows[&id];
            let is_over = task.phase().is_terminal() || task.stop() == Some(Stop::Cancel);
            assert!(is_over, "the session of {id:?} was stopped, and it is {:?}", task.state);
        }
    }

    /// A free seat is taken by the first in line, unless more of its message may come or a running task may take it.
    pub(crate) fn check_seats(&self) {
        for (key, session) in &self.sessions {
            let barrier = session.barriers.iter().max().copied().unwrap_or(0);
            for task in self.members(key) {
                let is_meant = task.member.is_some_and(|member| (1..barrier).contains(&member.line));
                let is_stopping = task.stop() == Some(Stop::Cancel);
                assert!(!is_meant || is_stopping, "{:?} was interrupted and is {:?}", task.id, task.state);
            }
        }
        for (key, session) in self.sessions.iter().filter(|(_, session)| !session.is_unsure) {
            let line = self.members(key).filter(|task| task.member.is_some_and(|member| member.in_line()));
            let Some(first) = line.min_by_key(|task| task.member.map(|member| member.line)) else { continue };
            let is_handed = first.steers.is_some_and(|target| self.live.contains(&target));
            let is_debouncing = matches!(first.state, State::Scheduled(Delay::Debounce(_)));
            let n_free = self.lineup(key, &session.followed).n_free();
            assert!(
                n_free == 0 || is_handed || is_debouncing,
                "{:?} is the first in session {key}, {n_free} seats are free, and the yard rests",
                first.id
            );
        }
    }

    /// Is the gate of its session closed to this one? `None` where that depends on who leaves the line first, or on what only
    /// the session itself knows.
    pub(crate) fn is_session_closed(&self, task: &Task) -> Option<bool> {
        let Some(key) = self.session_of(task) else { return Some(false) };
        let member = task.member.expect("a member of a session");
        if member.seated {
            return Some(false);
        }
        if task.state == State::Waiting(Wait::Seat) {
            return Some(true);
        }
        if self.sessions[key].is_unsure {
            return None;
        }
        let n_free = self.lineup(key, &self.sessions[key].followed).n_free() as usize;
        let others = || self.members(key).filter(|other| other.id != task.id).filter_map(|other| other.member);
        let n_others = others().filter(|other| other.in_line()).count();
        let n_before =
            others().filter(|other| other.in_line() && (member.line == 0 || other.line < member.line)).count();
        match (n_free > n_before, n_free > n_others) {
            (is_open, is_surely_open) if is_open == is_surely_open => Some(!is_open),
            _ => None,
        }
    }

    /// What a run must be told of dropped messages; they count as told from now on.
    pub(crate) fn tell_drops(&mut self, task: TaskId) -> Vec<Blob> {
        let row = &self.rows[&task];
        let Some(key) = self.session_of(row).cloned() else { return Vec::new() };
        let (from, to) = row.member.map_or((0, 0), |member| member.told);
        let session = self.sessions.get_mut(&key).expect("the session of a task is known");
        session.told.extend(from..to);
        let dropped = &session.drops[from as usize..to as usize];
        let blobs = dropped.iter().flat_map(|id| {
            let merged = self.messages.get(id).into_iter().flatten();
            self.specs.get(id).into_iter().chain(merged)
        });
        blobs.cloned().collect()
    }

    /// Every dropped message that is not to be told any more was told, is with somebody who has a seat, or was forgotten
    /// by a reset. Of more than a run is told the oldest go without.
    pub(crate) fn recount_drops(&self) {
        for (key, session) in &self.sessions {
            assert_eq!(session.row.n_dropped as usize, session.drops.len(), "drops of session {key}");
            let carried: Vec<(u64, u64)> =
                self.members(key).filter_map(|task| task.member).filter(|m| m.seated).map(|m| m.told).collect();
            let first = session.n_forgotten.max(session.row.n_dropped.saturating_sub(DROPPED_TOLD_MAX));
            for n in first..session.row.n_told {
                let is_carried = carried.iter().any(|(from, to)| (*from..*to).contains(&n));
                assert!(session.told.contains(&n) || is_carried, "drop {n} of session {key} is told to nobody");
            }
            assert!(session.row.n_told >= session.n_forgotten, "session {key} was reset and tells old drops");
        }
    }
}
