//! Submits that were refused before they came here, because the queue was full when the last tick ended.

use crate::core::Core;
use crate::event::{NewTask, Refusal};
use crate::name::Name;
use crate::now::Now;

/// What was refused of one agent in one lane since the last tick.
#[derive(Clone, Debug)]
pub struct TurnedAway {
    pub agent: Name,
    pub lane: Name,
    /// All of them.
    pub n: u64,
    /// The first of them, without their payloads, to be recorded as far as the hour's number allows.
    pub items: Vec<(NewTask, Refusal)>,
}

impl TurnedAway {
    /// To be counted, and not recorded.
    pub fn without_items(&self) -> TurnedAway {
        TurnedAway { agent: self.agent.clone(), lane: self.lane.clone(), n: self.n, items: Vec::new() }
    }
}

impl Core {
    /// Unstarted tasks, of one agent or of all: what the limits on the queue are about.
    pub fn n_unstarted(&self, agent: Option<&Name>) -> u64 {
        match agent {
            Some(name) => self.agent_by_name.get(name).map_or(0, |&ix| self.agents[ix].n_unstarted),
            None => self.n_unstarted,
        }
    }

    pub(crate) fn on_turned_away(&mut self, now: Now, turned_away: Vec<TurnedAway>) {
        for TurnedAway { agent, lane, n, items } in turned_away {
            *self.tick.rejected.entry((agent, lane)).or_default() += n as i64;
            for (item, refusal) in items {
                self.record_if_allowed(now, &item, &refusal);
            }
        }
    }
}
