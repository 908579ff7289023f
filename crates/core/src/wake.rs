//! What time brings: dues of stored tasks, timeouts of held ones, silent workers, rates that open again. And what the
//! end of one task sets free for others.

use crate::core::{Core, DUES_PER_WAKE, Stored};
use crate::event::{Command, Due, HappeningKind, ParentEnd, Release, Rest};
use crate::ids::TaskId;
use crate::lifecycle::Why;
use crate::now::{Clock, Now};
use crate::slab::GateIx;
use crate::task::{Class, OnDependencyFailure, State, Stop, Wait};
use crate::timers::Timer;
use crate::write::Edge;

/// Timers worked on in one call.
const TIMERS_PER_WAKE: usize = 4096;

impl Core {
    pub(crate) fn on_wake(&mut self, now: Now, out: &mut Vec<Command>) {
        for (clock, at_ms) in [(Clock::Wall, now.wall_ms), (Clock::Steady, now.steady_ms)] {
            let due: Vec<Due> =
                self.dues_of(clock).iter().take_while(|due| due.at_ms <= at_ms).take(DUES_PER_WAKE).copied().collect();
            for due in due {
                self.fall_due(now, clock, due, out);
            }
        }
        self.fire_schedules(now);
        for _ in 0..TIMERS_PER_WAKE {
            let Some(timer) = self.timers.ring(now.steady_ms) else { return };
            self.ring(now, timer, out);
        }
    }

    fn fall_due(&mut self, now: Now, clock: Clock, due: Due, out: &mut Vec<Command>) {
        // Not loaded in this tick: it stays due and comes with the next.
        let Some(entry) = self.tasks.get(&due.task) else { return };
        let task = &entry.task;
        let still = match clock {
            Clock::Wall => task.wall_due(),
            Clock::Steady => task.steady_due(),
        };
        if still != Some(due.at_ms) {
            self.dues_of(clock).remove(due);
            return;
        }
        if task.deadline.is_some_and(|deadline| deadline <= now.wall_ms) && clock == Clock::Wall {
            match task.phase().is_held() {
                true => self.ask_stop(now, due.task, Stop::Deadline, out),
                false => {
                    let message = format!("deadline exceeded while {}", task.phase().as_str());
                    self.fail(now, due.task, Class::Deadline, message, "deadline");
                }
            }
            return;
        }
        match task.state {
            State::Waiting(Wait::Dependencies) => {
                self.fail(now, due.task, Class::Deadline, "its dependencies did not end in time", "dependency timeout");
            }
            _ => self.settle(now, due.task, Why::default()),
        }
    }

    fn ring(&mut self, now: Now, timer: Timer, out: &mut Vec<Command>) {
        match timer {
            Timer::Attempt(id) => self.attempt_overdue(now, id, out),
            Timer::Silence(id) => {
                self.entry_mut(id).stall = None;
                let flow = self.flow_of(&self.entry(id).task);
                self.tell_one(now, HappeningKind::TaskStalled, id, flow, Why::default(), None);
                self.ask_stop(now, id, Stop::Stalled, out);
            }
            Timer::Worker(id) => self.worker_overdue(now, id, out),
            Timer::Cooled(id) => self.cooled(now, id),
            Timer::Rate(gate) => {
                if self.gates.contains(gate) {
                    self.gate_changed(gate);
                    self.wake_keepers(gate);
                    self.arm_rate(now, gate);
                }
            }
            Timer::Reserve(flow) => {
                if self.flows.contains(flow) {
                    self.reserve_worker(now, flow);
                }
            }
        }
    }

    /// Running for too long is stopped; handed out and not begun is taken back, and after as long again without an
    /// answer the worker is not asked any more.
    fn attempt_overdue(&mut self, now: Now, id: TaskId, out: &mut Vec<Command>) {
        self.entry_mut(id).timer = None;
        let task = &self.entry(id).task;
        match task.state {
            State::Assigned(lease) if lease.stop.is_none() => {
                self.ask_stop(now, id, Stop::NotStarted, out);
                self.set_timer(id, now.steady_ms.saturating_add(self.config.assign_timeout_ms));
            }
            State::Assigned(lease) => {
                out.push(Command::Revoke { worker: lease.worker, task: id, attempt: task.attempt });
                self.lost(now, id, "not started, and its worker does not answer");
            }
            _ => self.ask_stop(now, id, Stop::Timeout, out),
        }
    }

    /// A rate opens by itself; somebody has to look when it does.
    pub(crate) fn arm_rate(&mut self, now: Now, gate: GateIx) {
        let opens_at = self.gates[gate].rate.as_ref().and_then(|rate| rate.opens_at(now.steady_ms));
        if let Some(at_ms) = opens_at.filter(|_| !self.gates[gate].line.is_empty()) {
            self.timers.insert(at_ms, Timer::Rate(gate));
        }
    }

    // ── Releases ────────────────────────────────────────────────────────────────────────────────────────────────

    pub(crate) fn on_released(
        &mut self,
        now: Now,
        release: Release,
        tasks: &[TaskId],
        rest: Rest,
        bound: u64,
        out: &mut Vec<Command>,
    ) {
        let is_done = match release {
            Release::Parent { parent, ended } => {
                tasks.iter().for_each(|&child| self.parent_ended(now, parent, ended, child));
                rest == Rest::Done
            }
            Release::BatchPlace { batch } => self.batch_place_free(now, batch, tasks),
            Release::SessionStop { session, before, from, why } => {
                self.stop_members(now, session, from..bound.min(before), why, out);
                if rest == Rest::More {
                    let from = bound;
                    self.add_release(Release::SessionStop { session, before, from, why });
                }
                true
            }
            Release::SessionShrink { session } => self.shrink(now, session) || rest == Rest::Done,
            Release::SessionSeat { session } => self.seat_next(now, session, bound),
            Release::SessionOverflow { session } => self.drop_oldest(now, session, bound),
            Release::SessionReview { .. } => unreachable!("a review comes with sessions, not with tasks"),
            Release::RunEnded { .. } => unreachable!("the end of a run comes with its row, not with tasks"),
        };
        self.release_done(release, is_done);
    }

    pub(crate) fn release_done(&mut self, release: Release, is_done: bool) {
        if is_done && self.releases.remove(&release) == Some(Stored::Yes) {
            self.tick.releases_removed.push(release);
        }
    }

    fn batch_place_free(&mut self, now: Now, batch: crate::ids::BatchId, tasks: &[TaskId]) -> bool {
        for &id in tasks {
            let state = self.entry(id).task.state;
            let free = self.batches[&batch].batch.has_free_place();
            if free && state == State::Waiting(Wait::BatchPlace) {
                self.leave_batch_wait(id);
                self.settle(now, id, Why::default());
            }
        }
        let batch = &self.batches[&batch].batch;
        batch.n_waiting == 0 || !batch.has_free_place()
    }

    fn parent_ended(&mut self, now: Now, parent: TaskId, ended: ParentEnd, child: TaskId) {
        self.remove_edge(parent, child);
        let task = &self.entry(child).task;
        if task.state != State::Waiting(Wait::Dependencies) {
            return;
        }
        let runs_anyway = task.policy.on_dependency_failure == OnDependencyFailure::Run;
        if ended == ParentEnd::Badly && !runs_anyway {
            return self.parent_ended_badly(now, child, parent);
        }
        self.touch(child).task.n_deps_open -= 1;
        if self.entry(child).task.n_deps_open == 0 {
            self.settle(now, child, Why::default());
        }
    }

    fn remove_edge(&mut self, parent: TaskId, child: TaskId) {
        let new = self.tick.edges_new.get_mut(&parent);
        match new.and_then(|children| Some((children.iter().position(|&other| other == child)?, children))) {
            Some((at, children)) => drop(children.swap_remove(at)),
            None => self.tick.edges_removed.push(Edge { parent, child }),
        }
    }
}
