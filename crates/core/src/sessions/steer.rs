//! Messages for a task that runs. Each is a waiting task of its own until the worker says that it was taken; if the run
//! ends first it is an ordinary follow-up.

use crate::core::Core;
use crate::event::{Command, Release};
use crate::ids::TaskId;
use crate::lifecycle::Why;
use crate::now::Now;
use crate::session::SessionId;
use crate::submit::uuid_text;
use crate::task::{Phase, State, Task};

impl Core {
    /// The running member that takes input and was started first.
    pub(super) fn takes_input(&self, id: SessionId) -> Option<TaskId> {
        self.sessions.get(&id)?.held.values().find(|&task| self.may_take_input(task))
    }

    fn may_take_input(&self, id: TaskId) -> bool {
        self.tasks.get(&id).is_some_and(|entry| {
            let Task { policy, state, .. } = &entry.task;
            policy.takes_input && state.lease().is_some_and(|lease| lease.stop.is_none())
        })
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
}
