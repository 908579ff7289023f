//! Rows after a commit against what was foreseen: those the events touched, those that were held, those nobody touched.

use std::collections::BTreeMap;

use runyard_core::event::FirstAnswer;
use runyard_core::ids::TaskId;
use runyard_core::name::Name;
use runyard_core::task::{Class, Delay, OnDependencyFailure, Phase, State, Stop, Task, Wait};

use crate::foresee::{Fate, Forecast, Foreseen, Ledger, ledger};
use crate::oracle::{Applied, Oracle};
use crate::sessions::Seen;

type Sessions = BTreeMap<Name, Seen>;

impl Oracle {
    /// An item whose key was used before is answered with that key's task: who depends on it depends on that one.
    pub fn note_repeats(&mut self, forecast: &Forecast, applied: &Applied) {
        for item in forecast.submissions.iter().flat_map(|(submission, _)| &submission.items) {
            let Some(key) = item.idempotency.as_ref().filter(|_| !self.rows.contains_key(&item.id)) else { continue };
            let known = self.keys.get(&(key.agent.clone(), key.key.clone()));
            let known = known.or_else(|| applied.keys.iter().find(|row| row.key == *key));
            if let Some(FirstAnswer::Task { id, .. }) = known.map(|row| &row.answer) {
                self.aliases.insert(item.id, *id);
            }
        }
    }

    /// Rows are as foreseen: those the events touched, those that were held, and those nobody touched.
    pub fn check_rows(&self, forecast: &Forecast, applied: &Applied, seen: &Sessions) {
        for (id, foreseen) in &forecast.tasks {
            self.check_foreseen(*id, foreseen, forecast, seen);
        }
        for (id, old) in applied.changed.iter().filter(|(id, _)| !forecast.tasks.contains_key(id)) {
            let row = &self.rows[id];
            match old {
                Some(old) if old.phase().is_held() => self.check_held_row(old, row, seen),
                Some(old) if old.phase().is_terminal() => {}
                _ => self.check_unstarted(row, old.is_none(), forecast, seen),
            }
        }
    }

    fn check_foreseen(&self, id: TaskId, foreseen: &Foreseen, forecast: &Forecast, seen: &Sessions) {
        let row = &self.rows[&id];
        let before = &foreseen.before;
        if before.phase().is_terminal() {
            return;
        }
        assert_eq!(row.usage, foreseen.task.usage, "the usage of {id:?}");
        if foreseen.fates.is_empty() {
            if foreseen.task.phase().is_held() {
                self.check_held_row(&foreseen.task, row, seen);
            } else {
                self.check_unstarted(row, false, forecast, seen);
            }
        } else if !foreseen.is_moved {
            let fits =
                |(fate, expected): &(Fate, Ledger)| *expected == ledger(row) && self.fits(*fate, before, row, seen);
            assert!(
                foreseen.fates.iter().any(fits),
                "{id:?} was {:?} {:?} and may be {:?}, and is {:?} {:?} ({:?})",
                before.state,
                ledger(before),
                foreseen.fates,
                row.state,
                ledger(row),
                row.error
            );
        }
    }

    fn fits(&self, fate: Fate, before: &Task, row: &Task, seen: &Sessions) -> bool {
        let now = self.now;
        let class = row.error.as_ref().map(|error| error.class);
        let is_expired = row.phase() == Phase::Failed
            && class == Some(Class::Deadline)
            && row.deadline.is_some_and(|deadline| deadline <= now.wall_ms);
        let is_back = (row.phase() == Phase::Queued && row.attempt == before.attempt)
            || (row.phase() == Phase::Assigned && row.attempt == before.attempt + 1)
            || (row.state == State::Waiting(Wait::Seat) && before.member.is_some_and(|member| member.seated))
            || is_expired;
        // Back from its worker, it was stopped with its session.
        let is_stopped = row.phase() == Phase::Cancelled && self.may_end(row, seen);
        match fate {
            Fate::Requeued | Fate::Backoff(..) if is_stopped => true,
            Fate::Ended(phase, expected) => row.phase() == phase && (expected.is_none() || class == expected),
            Fate::Requeued => is_back,
            Fate::Backoff(expected, min_ms, max_ms) => {
                let at_most = row.deadline.map(|deadline| deadline.saturating_sub(now.wall_ms));
                match row.state {
                    State::Scheduled(Delay::Backoff(at)) => {
                        let wait_ms = at.saturating_sub(now.steady_ms);
                        (min_ms..=max_ms).contains(&wait_ms) && at_most.is_none_or(|most_ms| wait_ms < most_ms)
                    }
                    State::Failed => {
                        is_expired || (class == Some(expected) && at_most.is_some_and(|most_ms| most_ms <= max_ms))
                    }
                    // Without a wait it is due in the same tick, and may have another time to wait for.
                    State::Scheduled(Delay::Until(at)) => min_ms == 0 && at > now.wall_ms,
                    _ => min_ms == 0 && is_back,
                }
            }
        }
    }

    /// A lease that no event ended lives on; a stop may have come on top, for a reason.
    fn check_held_row(&self, foreseen: &Task, row: &Task, seen: &Sessions) {
        let id = row.id;
        if !row.phase().is_held() || row.attempt != foreseen.attempt {
            // Handed out, not begun, asked back, and no answer: the worker is not asked any more.
            let is_given_up =
                foreseen.stop() == Some(Stop::NotStarted) && self.fits(Fate::Requeued, foreseen, row, seen);
            assert!(is_given_up, "{id:?} lost its lease without a cause: {:?}", row.state);
            return;
        }
        assert_eq!(row.phase(), foreseen.phase(), "the phase of {id:?}");
        match (foreseen.stop(), row.stop()) {
            (None, None | Some(Stop::Preempted)) => {}
            (_, Some(Stop::Cancel)) if self.may_be_stopped(row, seen) => {}
            (None, Some(stop)) => assert!(self.may_stop(foreseen, Some(stop)), "{id:?} is stopped for {stop:?}"),
            (Some(stop), now) => assert_eq!(now, Some(stop), "the stop of {id:?}"),
        }
    }

    /// An unstarted task ends only for a reason: it was cancelled, its time is over, a parent ended badly, its session
    /// was stopped or full, or a running task took it in.
    fn check_unstarted(&self, row: &Task, is_new: bool, forecast: &Forecast, seen: &Sessions) {
        let id = row.id;
        let now = self.now;
        let bad_parent = || {
            let phase = |parent: &TaskId| self.rows.get(parent).map(Task::phase);
            self.parents_of(id).iter().filter_map(phase).any(|phase| phase.is_terminal() && phase != Phase::Completed)
        };
        let policy = row.policy.on_dependency_failure;
        match row.phase() {
            Phase::Cancelled => {
                let by_parent = policy == OnDependencyFailure::Cancel && bad_parent();
                let by_session = self.may_end(row, seen);
                assert!(
                    by_parent || by_session || is_new,
                    "{id:?} is cancelled and nobody asked for it: {}",
                    row.reason
                );
            }
            Phase::Failed => {
                let is_over = |at: Option<u64>| at.is_some_and(|at| at <= now.wall_ms);
                let class = row.error.as_ref().map(|error| error.class);
                let in_time =
                    class == Some(Class::Deadline) && (is_over(row.deadline) || is_over(row.dependency_deadline));
                let by_parent = class == Some(Class::Permanent) && policy == OnDependencyFailure::Fail && bad_parent();
                assert!(in_time || by_parent, "{id:?} failed without a cause: {:?}", row.error);
            }
            Phase::Completed => assert!(forecast.taken.contains(&id), "{id:?} never started"),
            phase => assert_ne!(phase, Phase::Running, "{id:?} never started"),
        }
    }
}
