//! Webhooks as the core knows them: what is to be told to whom is a row, written in the commit that made it happen.
//!
//! The core decides that a message exists and gives it its number; how it is sent, and when it is tried again, is the
//! deliverer's, which has the outcome of its tries written here unread.
//!
//! ```text
//! pending ─► (tried, again at …) ─► delivered | given up ─► (replayed) pending
//! ```

use crate::core::Core;
use crate::event::{Answer, Command, Happening, Subject};
use crate::ids::{TaskId, Ticket};
use crate::name::Name;
use crate::now::WallMs;
use crate::planted::Bug;
use crate::task::Text;

/// The number of a message; later ones are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeliveryId(pub u64);

/// Somebody who is told of everything of a kind, by configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hook {
    pub name: Name,
    /// Bits of [`HappeningKind::bit`](crate::event::HappeningKind::bit).
    pub events: u64,
    /// Only tasks of these, each list empty for all. With any of them set it is told of tasks only, and with agents alone
    /// of their schedules too.
    pub agents: Vec<Name>,
    pub lanes: Vec<Name>,
    pub kinds: Vec<Name>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Delivery {
    pub id: DeliveryId,
    /// `None`: whoever submitted the task or the batch and asked to be called back.
    pub hook: Option<Name>,
    pub happening: Happening,
    pub progress: Progress,
}

/// What the deliverer changes of a row, always as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    pub to: Recipient,
    pub state: DeliveryState,
    /// Patience is counted from here: the message's own time, or that of its replay.
    pub since_ms: WallMs,
    pub n_tries: u32,
    /// The latest of them.
    pub tries: Vec<Try>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeliveryState {
    Pending { next_at: WallMs },
    Delivered,
    GivenUp,
}

/// Which of the messages that a task carries is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recipient {
    /// It carries several, and nobody has looked yet which of them ask to be called back.
    Everyone,
    /// The hook, or the submitter of the task's own message.
    Own,
    /// The sender of a merged message, by its place.
    Merged(u32),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Try {
    pub at_ms: WallMs,
    pub took_ms: u64,
    /// `None` without an answer.
    pub status: Option<u16>,
    /// Empty when it went well.
    pub error: Text,
}

/// One row changed by the deliverer, and rows that are split off from it.
#[derive(Clone, Debug)]
pub struct DeliveryChange {
    pub id: DeliveryId,
    pub progress: Progress,
    /// Others who are to be told of the same.
    pub others: Vec<Recipient>,
    /// What it tells of; only read for `others`.
    pub happening: Option<Happening>,
}

impl Progress {
    pub fn new(to: Recipient, at_ms: WallMs) -> Progress {
        let state = DeliveryState::Pending { next_at: at_ms };
        Progress { to, state, since_ms: at_ms, n_tries: 0, tries: Vec::new() }
    }
}

impl Delivery {
    /// The row that must stay readable until this is over.
    pub fn subject(&self) -> Option<u128> {
        match &self.happening.subject {
            Subject::Task(facts) => Some(facts.task.0),
            Subject::Batch(batch) => Some(batch.id.0),
            Subject::Worker { .. }
            | Subject::Session(_)
            | Subject::Schedule(_)
            | Subject::Config
            | Subject::Node { .. } => None,
        }
    }

    pub fn next_at(&self) -> Option<WallMs> {
        self.progress.next_at()
    }
}

impl Progress {
    pub fn next_at(&self) -> Option<WallMs> {
        match self.state {
            DeliveryState::Pending { next_at } => Some(next_at),
            DeliveryState::Delivered | DeliveryState::GivenUp => None,
        }
    }
}

impl Hook {
    fn wants(&self, happening: &Happening) -> bool {
        let lists = |list: &[Name], name: &Name| list.is_empty() || list.contains(name);
        let is_wide = [&self.agents, &self.lanes, &self.kinds].into_iter().all(Vec::is_empty);
        self.events & happening.kind.bit() != 0
            && match &happening.subject {
                Subject::Task(facts) => {
                    lists(&self.agents, &facts.agent)
                        && lists(&self.lanes, &facts.lane)
                        && lists(&self.kinds, &facts.kind)
                }
                Subject::Schedule(facts) => {
                    let is_of_agent = facts.agent.as_ref().is_some_and(|agent| lists(&self.agents, agent));
                    is_wide || is_of_agent && self.lanes.is_empty() && self.kinds.is_empty()
                }
                _ => is_wide,
            }
    }
}

impl Core {
    /// Everyone who asked for it by configuration.
    pub(crate) fn tell_hooks(&mut self, happening: &Happening) {
        if self.config.hooks.is_empty() {
            return;
        }
        let config = self.config.clone();
        for hook in config.hooks.iter().filter(|hook| hook.wants(happening)) {
            self.post(Some(hook.name.clone()), happening.clone(), Recipient::Own);
        }
    }

    /// Whoever asked, with the task or the batch, to be told of its end.
    pub(crate) fn call_back(&mut self, happening: &Happening) {
        let to = match &happening.subject {
            Subject::Task(facts) if happening.kind.ends_a_task() => self.task_recipient(facts.task),
            Subject::Batch(batch) => batch.calls_back.then_some(Recipient::Own),
            _ => None,
        };
        let Some(to) = to else { return };
        self.post(None, happening.clone(), to);
        if self.has_bug(Bug::CallbackTwice) {
            self.post(None, happening.clone(), to);
        }
    }

    fn task_recipient(&self, id: TaskId) -> Option<Recipient> {
        let task = &self.entry(id).task;
        let n_merged = task.member.map_or(0, |member| member.n_merged);
        task.policy.calls_back.then_some(if n_merged > 0 { Recipient::Everyone } else { Recipient::Own })
    }

    fn post(&mut self, hook: Option<Name>, happening: Happening, to: Recipient) {
        let progress = Progress::new(to, happening.at_ms);
        let id = DeliveryId(self.meta.next_delivery);
        self.meta.next_delivery += 1;
        self.tick.deliveries.push(Delivery { id, hook, happening, progress });
    }

    /// What the deliverer has done, kept as it says.
    pub(crate) fn on_deliveries(
        &mut self,
        ticket: Option<Ticket>,
        changes: Vec<DeliveryChange>,
        out: &mut Vec<Command>,
    ) {
        for change in changes {
            if let Some(happening) = change.happening {
                for to in change.others {
                    self.post(None, happening.clone(), to);
                }
            }
            self.tick.deliveries_put.push((change.id, change.progress));
        }
        ticket.into_iter().for_each(|ticket| crate::core::answer(out, ticket, Answer::Done));
    }
}
