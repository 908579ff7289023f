//! Whether the queue has room, as the last tick left it: under overload a submit is refused at the door and does not
//! wait for a tick to say so.
//!
//! Only what a tick could not decide otherwise is refused here. A submit with an idempotency key may be the repeat of an
//! accepted one, one of a session may become part of another task, and in a batch of mode `partial` each item answers
//! for itself: those go the long way. What is refused is told to the scheduler with the next tick, which counts all of
//! it and records some; nobody waits for that, so such an answer names no record.

use std::collections::BTreeMap;

use runyard_core::event::{Admit, NewTask, Refusal, Submission, SubmitMode};
use runyard_core::hash::DetMap;
use runyard_core::name::{Blob, Name};
use runyard_core::{Core, TurnedAway};

/// Agents whose numbers are looked up after each tick. They are those that were refused for their own limit; of more of
/// them, the rest is refused by the tick.
const WATCHED_MAX: usize = 1000;
/// Agents and lanes in what was refused since the last tick. Beyond, the tick refuses.
const TURNED_AWAY_MAX: usize = 10_000;
/// Refusals handed on to be recorded with one tick; all are counted.
const RECORDS_PER_TICK: usize = 1000;

#[derive(Default)]
pub(crate) struct Room {
    /// Unknown while nothing may be refused here: before the first tick, during a recovery and a drain.
    all: Option<Fill>,
    /// Agents that were at their limit, until they are well below it.
    watched: DetMap<Name, Fill>,
    turned_away: BTreeMap<(Name, Name), TurnedAway>,
    /// What the tick that runs was told of: numbers only, to be told again if it comes to nothing.
    in_tick: Vec<TurnedAway>,
    n_records: usize,
}

/// How full one queue is.
#[derive(Clone, Copy, Debug, Default)]
struct Fill {
    n_unstarted: u64,
    limit: u64,
    /// Let through since, and waiting for a tick.
    n_waiting: u64,
    /// In the tick that runs: when it is over, they are in `n_unstarted`.
    n_in_tick: u64,
}

impl Fill {
    /// The number that would be refused, if it is full. Those that wait for a tick count only when the queue is nearly
    /// full already: else most of them start at once, and never stand in it.
    fn refused(&self) -> Option<u64> {
        let ahead = if self.n_unstarted.saturating_mul(10) >= self.limit.saturating_mul(9) {
            self.n_waiting + self.n_in_tick
        } else {
            0
        };
        let queued = self.n_unstarted + ahead;
        (queued >= self.limit).then_some(queued)
    }

    fn is_nearly_full(&self) -> bool {
        self.n_unstarted.saturating_mul(2) >= self.limit
    }

    fn set(&mut self, n_unstarted: u64, limit: u64) {
        *self = Fill { n_unstarted, limit, n_waiting: self.n_waiting, n_in_tick: 0 };
    }
}

impl Room {
    /// After each tick. `refused` are the agents that it refused something for their own limit.
    pub fn publish(&mut self, core: &Core, refused: impl IntoIterator<Item = Name>) {
        self.in_tick.clear();
        if core.admission() != Admit::Open {
            return self.forget();
        }
        let config = core.config();
        let mut all = self.all.unwrap_or_default();
        all.set(core.n_unstarted(None), config.queued_max);
        self.all = Some(all);
        for agent in refused {
            if self.watched.len() < WATCHED_MAX {
                self.watched.entry(agent).or_default();
            }
        }
        self.watched.retain(|agent, fill| {
            fill.set(core.n_unstarted(Some(agent)), config.queued_per_agent_max);
            fill.is_nearly_full()
        });
    }

    /// Nothing is known any more, so nothing is refused here.
    pub fn forget(&mut self) {
        self.all = None;
        self.watched.clear();
    }

    /// The tick has come to nothing. What was refused at the door stays refused, and is counted with the next one.
    pub fn tick_failed(&mut self) {
        for TurnedAway { agent, lane, n, items } in std::mem::take(&mut self.in_tick) {
            let kept = self.turned_away.entry((agent.clone(), lane.clone()));
            kept.or_insert_with(|| TurnedAway { agent, lane, n: 0, items }).n += n;
        }
        self.forget();
    }

    /// Refuses the submission if there was no room for it, and keeps what is to be told of that.
    pub fn turn_away(&mut self, submission: &mut Submission) -> Option<Refusal> {
        if !is_plain(submission) || self.turned_away.len() >= TURNED_AWAY_MAX {
            return None;
        }
        let (at, refusal) = self.refusal(&submission.items)?;
        self.keep(submission.items.swap_remove(at), refusal.clone());
        Some(refusal)
    }

    /// The first item that has no room, as the tick would find it.
    fn refusal(&self, items: &[NewTask]) -> Option<(usize, Refusal)> {
        let all = self.all?;
        if let Some(queued) = all.refused() {
            return Some((0, Refusal::QueueFull { agent: None, queued, limit: all.limit, recorded: None }));
        }
        if self.watched.is_empty() {
            return None;
        }
        items.iter().enumerate().find_map(|(at, item)| {
            let agent = &item.flow.agent;
            let fill = self.watched.get(agent)?;
            let (queued, limit) = (fill.refused()?, fill.limit);
            Some((at, Refusal::QueueFull { agent: Some(agent.clone()), queued, limit, recorded: None }))
        })
    }

    fn keep(&mut self, item: NewTask, refusal: Refusal) {
        let (agent, lane) = (item.flow.agent.clone(), item.flow.lane.clone());
        let kept = self.turned_away.entry((agent.clone(), lane.clone()));
        let kept = kept.or_insert_with(|| TurnedAway { agent, lane, n: 0, items: Vec::new() });
        kept.n += 1;
        if self.n_records < RECORDS_PER_TICK {
            self.n_records += 1;
            let bare = NewTask { spec: Blob::default(), depends_on: Vec::new(), ..item };
            kept.items.push((bare, refusal));
        }
    }

    /// What was refused since this was asked last.
    pub fn take_turned_away(&mut self) -> Option<Vec<TurnedAway>> {
        if self.turned_away.is_empty() {
            return None;
        }
        self.n_records = 0;
        let turned_away: Vec<TurnedAway> = std::mem::take(&mut self.turned_away).into_values().collect();
        self.in_tick.extend(turned_away.iter().map(TurnedAway::without_items));
        Some(turned_away)
    }

    pub fn has_turned_away(&self) -> bool {
        !self.turned_away.is_empty()
    }

    /// A submission was let through, and waits for a tick.
    pub fn note_waiting(&mut self, items: &[NewTask]) {
        self.each(items, |fill, n| fill.n_waiting += n);
    }

    /// A submission is taken by a tick.
    pub fn note_in_tick(&mut self, items: &[NewTask]) {
        self.each(items, |fill, n| {
            // Those that came before the agent was watched were not counted.
            fill.n_waiting = fill.n_waiting.saturating_sub(n);
            fill.n_in_tick += n;
        });
    }

    /// Nothing waits any more.
    pub fn note_cleared(&mut self) {
        self.all.iter_mut().chain(self.watched.values_mut()).for_each(|fill| fill.n_waiting = 0);
    }

    fn each(&mut self, items: &[NewTask], change: impl Fn(&mut Fill, u64)) {
        if let Some(all) = &mut self.all {
            change(all, items.len() as u64);
        }
        if !self.watched.is_empty() {
            let agents = items.iter().map(|item| &item.flow.agent);
            agents.for_each(|agent| self.watched.get_mut(agent).into_iter().for_each(|fill| change(fill, 1)));
        }
    }
}

/// Nothing but room decides about it.
fn is_plain(submission: &Submission) -> bool {
    let is_plain = |item: &NewTask| item.idempotency.is_none() && item.session.is_none() && item.refused.is_none();
    submission.mode == SubmitMode::All && submission.idempotency.is_none() && submission.items.iter().all(is_plain)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures_util::FutureExt;
    use runyard_core::config::Config;
    use runyard_core::event::{Answer, Event, Idempotency};
    use runyard_core::ids::{TaskId, Ticket};
    use runyard_core::now::Now;
    use runyard_store::memory::MemoryStore;
    use runyard_store::yard::Yard;

    use super::*;
    use crate::handle::Handle;
    use crate::handle::tests::{handle, submit, submit_of};

    /// A scheduler without a worker, so that nothing ever starts.
    struct Scene {
        handle: Handle,
        yard: Yard,
        now: Now,
        n_ids: u128,
    }

    impl Scene {
        fn new(queued_max: u64, queued_per_agent_max: u64) -> Scene {
            let config = Arc::new(Config { queued_max, queued_per_agent_max, ..Config::default() });
            let (yard, now) = Yard::open(Box::new(MemoryStore::new()), config, 1, 1_000).expect("memory");
            Scene { handle: handle(), yard, now, n_ids: 0 }
        }

        /// One tick over what is in the inbox; gives how many it was told of that were refused at the door.
        fn tick(&mut self) -> u64 {
            let mut events = Vec::new();
            self.handle.drain(2048, Duration::ZERO, &mut events);
            for item in events.iter_mut().flat_map(items) {
                self.n_ids += 1;
                item.id = TaskId(self.n_ids);
            }
            let n = events.iter().map(n_turned_away).sum();
            let ticked = self.yard.tick(self.now, &mut events).expect("memory");
            self.handle.publish_room(self.yard.core(), crate::scheduler::agents_at_limit(&ticked.commands));
            n
        }

        /// The refusal of a submit that was not left to a tick.
        fn refused_at_once(&self, submit: impl FnOnce(Ticket) -> Event) -> Option<(Option<Name>, u64, u64)> {
            match self.handle.ask(submit).now_or_never()? {
                Ok(Answer::Refused(Refusal::QueueFull { agent, queued, limit, recorded: None })) => {
                    Some((agent, queued, limit))
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn items(event: &mut Event) -> Vec<&mut NewTask> {
        match event {
            Event::Submit(submission) => submission.items.iter_mut().collect(),
            Event::TurnedAway(turned_away) => {
                let items = turned_away.iter_mut().flat_map(|one| &mut one.items);
                items.map(|(item, _)| item).collect()
            }
            _ => Vec::new(),
        }
    }

    fn n_turned_away(event: &Event) -> u64 {
        match event {
            Event::TurnedAway(turned_away) => turned_away.iter().map(|one| one.n).sum(),
            _ => 0,
        }
    }

    fn with(ticket: Ticket, change: impl FnOnce(&mut Submission)) -> Event {
        let Event::Submit(mut submission) = submit(1)(ticket) else { panic!("a submit") };
        change(&mut submission);
        Event::Submit(submission)
    }

    #[test]
    fn a_submit_is_refused_before_any_tick_when_the_last_one_left_no_room() {
        let mut scene = Scene::new(2, 100);
        assert!(scene.refused_at_once(submit(2)).is_none(), "nothing is known yet");
        scene.tick();
        assert_eq!(scene.refused_at_once(submit(1)), Some((None, 2, 2)));
        assert_eq!(scene.refused_at_once(submit_of("b", 3)), Some((None, 2, 2)));
        assert_eq!(scene.tick(), 2, "both are told, and counted once");
        assert_eq!(scene.tick(), 0);
    }

    #[test]
    fn what_a_failed_tick_was_told_is_counted_by_the_next_one_and_only_once() {
        let mut scene = Scene::new(1, 100);
        assert!(scene.refused_at_once(submit(1)).is_none());
        scene.tick();
        (0..2).for_each(|_| assert!(scene.refused_at_once(submit(1)).is_some()));
        let mut events = Vec::new();
        scene.handle.drain(2048, Duration::ZERO, &mut events);
        assert_eq!(events.iter().map(n_turned_away).sum::<u64>(), 2);
        scene.handle.set_recovering();
        assert_eq!(scene.tick(), 2);
        scene.handle.set_recovering();
        assert_eq!(scene.tick(), 0);
    }

    #[test]
    fn what_a_tick_may_answer_otherwise_is_left_to_it() {
        let mut scene = Scene::new(1, 100);
        assert!(scene.refused_at_once(submit(1)).is_none());
        scene.tick();
        let key = Idempotency { agent: "a".into(), key: "k".into(), hash: 0 };
        assert!(
            scene.refused_at_once(|ticket| with(ticket, |submission| submission.idempotency = Some(key))).is_none()
        );
        let partial = |ticket| with(ticket, |submission| submission.mode = SubmitMode::Partial);
        assert!(scene.refused_at_once(partial).is_none());
        assert!(scene.refused_at_once(submit(1)).is_some());
        scene.handle.set_recovering();
        assert!(scene.refused_at_once(submit(1)).is_none(), "nothing is known during a recovery");
    }

    #[test]
    fn an_agent_at_its_limit_is_refused_at_once_after_its_first_refusal_and_others_are_not() {
        let mut scene = Scene::new(1000, 2);
        assert!(scene.refused_at_once(submit(2)).is_none());
        scene.tick();
        assert!(scene.refused_at_once(submit(1)).is_none(), "the tick finds it");
        scene.tick();
        assert_eq!(scene.refused_at_once(submit(1)), Some((Some("a".into()), 2, 2)));
        assert!(scene.refused_at_once(submit_of("b", 1)).is_none());
    }

    #[test]
    fn those_that_wait_for_a_tick_have_the_last_places() {
        let mut scene = Scene::new(10, 100);
        assert!(scene.refused_at_once(submit(9)).is_none());
        scene.tick();
        assert!(scene.refused_at_once(submit(1)).is_none());
        assert_eq!(scene.refused_at_once(submit(1)), Some((None, 10, 10)));
    }

    #[test]
    fn a_queue_that_was_nearly_empty_refuses_nobody_for_those_that_may_start_at_once() {
        let mut scene = Scene::new(2, 100);
        scene.tick();
        for _ in 0..5 {
            assert!(scene.refused_at_once(submit(1)).is_none());
        }
    }
}
