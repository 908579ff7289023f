//! Signs of life of the work itself: who has been silent for too long, and what a heartbeat is answered.

use runyard_core::event::HeartbeatAnswer;
use runyard_core::ids::{TaskId, Ticket, WorkerId};
use runyard_core::task::{State, Task};

use crate::foresee::Forecast;
use crate::oracle::Oracle;

impl Oracle {
    /// A sign of life counts where silence is measured.
    pub(crate) fn note_sign(&mut self, id: TaskId) {
        if let Some(heard_ms) = self.heard_ms.get_mut(&id) {
            *heard_ms = self.now.steady_ms;
        }
    }

    /// Its worker came back after a restart of the scheduler: the silence of what it runs is measured again, anew.
    pub(crate) fn listen_again(&mut self, worker: WorkerId, forecast: &Forecast) {
        for (id, _) in self.leases_of(worker, forecast) {
            let task = forecast.tasks.get(&id).map_or(&self.rows[&id], |foreseen| &foreseen.task);
            if matches!(task.state, State::Running(_)) {
                self.heard_ms.entry(id).or_insert(self.now.steady_ms);
            }
        }
    }

    pub(crate) fn is_silent(&self, task: &Task) -> bool {
        let heard_ms = self.heard_ms.get(&task.id).filter(|_| matches!(task.state, State::Running(_)));
        let until_ms = heard_ms.zip(task.policy.stall_ms).map(|(heard_ms, stall_ms)| heard_ms + stall_ms);
        until_ms.is_some_and(|until_ms| until_ms <= self.now.steady_ms)
    }

    pub(crate) fn foresee_heartbeat(&mut self, ticket: Ticket, id: TaskId, forecast: &mut Forecast) {
        let foreseen = forecast.tasks.get(&id);
        // Where it stands is known from its row only, or it may not even be there.
        let is_unsure = foreseen.is_some_and(|foreseen| foreseen.is_vague() || foreseen.is_moved);
        let task = foreseen.map(|foreseen| &foreseen.task).or_else(|| self.rows.get(&id));
        let expected = match task {
            None => (!self.births.contains_key(&id)).then_some(HeartbeatAnswer::NotFound),
            Some(_) if is_unsure => None,
            // A message of the same tick may have stopped it or let it go.
            Some(task) if task.member.is_some() => None,
            Some(task) if task.stop().is_some() => Some(HeartbeatAnswer::Stopping),
            Some(task) if task.phase().is_held() => Some(HeartbeatAnswer::Noted),
            Some(task) => Some(HeartbeatAnswer::NotRunning(task.phase())),
        };
        forecast.heartbeats.insert(ticket, (id, expected));
        self.note_sign(id);
    }
}
