//! How the rest of the server talks to the scheduler thread: events in, answers and happenings out.
//!
//! Two inboxes: control (reports, cancels, heartbeats, questions) is drained before submits, so that a flood of submits
//! cannot keep a task from ending. Both are bounded for whoever asks: submits by the tasks in them, control by its
//! events; a full one is `Busy`, at once. A submit for which the last tick left no room (`room.rs`) is refused at once,
//! too. Only what the worker tells is always taken: an end that is refused would be
//! lost, and there is no more of it than what runs.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use runyard_core::Core;
use runyard_core::event::{Answer, Event, FirstAnswer, Idempotency, Receipt, Refusal};
use runyard_core::hash::DetMap;
use runyard_core::ids::Ticket;
use runyard_core::name::Name;
use runyard_store::store::Reader;
use tokio::sync::{Notify, oneshot, watch};

use crate::feed::Feed;
use crate::room::Room;

/// Tasks in submissions that wait for a tick; a batch counts each of its own. With payloads of 1 KiB that is 200 MB.
const SUBMIT_ITEMS_MAX: usize = 200_000;
/// Tasks that one tick takes from the submits, so that a few batches do not make one commit of seconds.
const SUBMIT_ITEMS_PER_TICK: usize = 4096;
/// Questions, cancels and changes that may wait for a tick.
const CONTROL_MAX: usize = 100_000;

#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    /// What is asked through it is done at most once under this key.
    once: Option<Idempotency>,
    /// How long an answer is waited for.
    patience: Option<Duration>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
pub enum Unavailable {
    #[error("the scheduler's inbox is full (it takes {SUBMIT_ITEMS_MAX} tasks and {CONTROL_MAX} other requests)")]
    Busy,
    /// The tick's commit failed or the scheduler is recovering: whether a submit was stored can be asked with its key.
    #[error("the scheduler is recovering")]
    Recovering,
    #[error("the server is stopping")]
    Stopped,
    #[error("another node holds the scheduler lease")]
    NotHolder,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    Recovering,
    /// Another node has the scheduler.
    Following,
    Ready,
    Draining,
    Stopping,
}

struct Shared {
    inbox: Mutex<Inbox>,
    wake: Condvar,
    feed: Arc<Feed>,
    standing: Mutex<Standing>,
    readiness: watch::Sender<Readiness>,
    posted: Arc<Notify>,
    reader: Arc<dyn Reader>,
}

/// What readiness follows from. Each is set by who knows it, in any order: a drain that begins during a recovery is
/// still one when the recovery is over.
#[derive(Default)]
struct Standing {
    follows: bool,
    serves: bool,
    drains: bool,
    stops: bool,
}

impl Standing {
    fn readiness(&self) -> Readiness {
        match self {
            Standing { stops: true, .. } => Readiness::Stopping,
            Standing { follows: true, .. } => Readiness::Following,
            Standing { serves: false, .. } => Readiness::Recovering,
            Standing { drains: true, .. } => Readiness::Draining,
            _ => Readiness::Ready,
        }
    }
}

#[derive(Default)]
struct Inbox {
    control: VecDeque<Event>,
    submits: VecDeque<Event>,
    /// The tasks in `submits`.
    n_items: usize,
    room: Room,
    answers: DetMap<Ticket, oneshot::Sender<Answer>>,
    next_ticket: u64,
    closed: bool,
    /// There is no scheduler behind it for now.
    follows: bool,
}

impl Handle {
    pub fn new(reader: Arc<dyn Reader>) -> Handle {
        let (readiness, _) = watch::channel(Readiness::Recovering);
        let shared = Shared {
            inbox: Mutex::default(),
            wake: Condvar::new(),
            feed: Arc::default(),
            standing: Mutex::default(),
            readiness,
            posted: Arc::default(),
            reader,
        };
        Handle { shared: Arc::new(shared), once: None, patience: None }
    }

    /// What is not answered by then counts as one of unknown outcome: the database may take no writes for as long as it likes.
    pub fn patient_for(self, patience: Duration) -> Handle {
        Handle { patience: Some(patience), ..self }
    }

    /// For one command that is done at most once, whoever asks how often. One that turns out to be done already is answered
    /// as one of unknown outcome: who asks again asks [`Handle::was_done`] first.
    pub fn once(&self, key: Idempotency) -> Handle {
        Handle { once: Some(key), ..self.clone() }
    }

    /// What the command of this key did, if it was done.
    pub async fn was_done(&self, key: Idempotency) -> Result<Option<Receipt>, Unavailable> {
        match self.ask(|ticket| Event::WasDone { ticket, key }).await? {
            Answer::Replayed(FirstAnswer::Command(receipt)) => Ok(Some(receipt)),
            _ => Ok(None),
        }
    }

    /// Sends the event that `make` builds around a fresh ticket, and waits for its answer, which comes after the
    /// commit that holds its writes. A submit for which there is no room is answered at once.
    pub async fn ask(&self, make: impl FnOnce(Ticket) -> Event) -> Result<Answer, Unavailable> {
        let receiver = {
            let mut inbox = self.lock();
            if inbox.closed {
                return Err(Unavailable::Stopped);
            }
            if inbox.follows {
                return Err(Unavailable::NotHolder);
            }
            let ticket = Ticket(inbox.next_ticket);
            let mut event = match &self.once {
                Some(key) => Event::Once { ticket, key: key.clone(), command: Box::new(make(ticket)) },
                None => make(ticket),
            };
            if let Some(refusal) = inbox.turn_away(&mut event) {
                drop(inbox);
                self.shared.wake.notify_one();
                return Ok(Answer::Refused(refusal));
            }
            if inbox.is_full_for(&event) {
                return Err(Unavailable::Busy);
            }
            inbox.next_ticket += 1;
            let (sender, receiver) = oneshot::channel();
            inbox.answers.insert(ticket, sender);
            inbox.push(event);
            receiver
        };
        self.shared.wake.notify_one();
        let answer = match self.patience {
            None => receiver.await,
            Some(patience) => match tokio::time::timeout(patience, receiver).await {
                Ok(answer) => answer,
                Err(_) => return Err(Unavailable::Recovering),
            },
        };
        match answer {
            Ok(Answer::Replayed(_)) if self.once.is_some() => Err(Unavailable::Recovering),
            answer => answer.map_err(|_| Unavailable::Recovering),
        }
    }

    /// Sends events nobody waits for: reports, heartbeats.
    pub fn tell(&self, events: impl IntoIterator<Item = Event>) {
        let mut inbox = self.lock();
        if inbox.follows {
            // Its worker repeats what counts to whoever is the holder.
            return;
        }
        events.into_iter().for_each(|event| inbox.push(event));
        drop(inbox);
        self.shared.wake.notify_one();
    }

    pub fn reader(&self) -> &Arc<dyn Reader> {
        &self.shared.reader
    }

    /// What has been committed, for whoever wants to hear of it.
    pub fn feed(&self) -> &Arc<Feed> {
        &self.shared.feed
    }

    /// Told with each commit that put something into the outbox.
    pub fn posted(&self) -> &Arc<Notify> {
        &self.shared.posted
    }

    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.shared.readiness.subscribe()
    }

    /// Said by the scheduler: it has recovered.
    pub(crate) fn set_serving(&self) {
        self.stand(|standing| standing.serves = true);
    }

    /// Said by the scheduler: it is another node's now. Whoever waits for an answer learns that the outcome is unknown.
    pub(crate) fn set_following(&self) {
        {
            let mut inbox = self.lock();
            inbox.follows = true;
            inbox.control.clear();
            inbox.submits.clear();
            inbox.n_items = 0;
            inbox.room.forget();
            inbox.room.note_cleared();
            inbox.answers.clear();
        }
        self.stand(|standing| (standing.follows, standing.serves) = (true, false));
    }

    /// Said by the scheduler: this node holds the lease, and is about to load.
    pub(crate) fn set_holding(&self) {
        self.lock().follows = false;
        self.stand(|standing| standing.follows = false);
    }

    /// Said by the scheduler: a tick failed.
    pub(crate) fn set_recovering(&self) {
        self.lock().room.tick_failed();
        self.stand(|standing| standing.serves = false);
    }

    /// Said by who had the scheduler drain, or open again.
    pub(crate) fn set_draining(&self, drains: bool) {
        self.stand(|standing| standing.drains = drains);
    }

    /// For good.
    pub(crate) fn set_stopping(&self) {
        self.stand(|standing| standing.stops = true);
    }

    /// Whether nothing new starts, whatever else goes on.
    pub(crate) fn is_draining(&self) -> bool {
        let standing = self.shared.standing.lock().expect("no thread panics while it holds the standing");
        standing.drains || standing.stops
    }

    fn stand(&self, change: impl FnOnce(&mut Standing)) {
        let mut standing = self.shared.standing.lock().expect("no thread panics while it holds the standing");
        change(&mut standing);
        // Under the lock, so that the last change is also the last that is told.
        let next = standing.readiness();
        self.shared.readiness.send_if_modified(|readiness| std::mem::replace(readiness, next) != next);
    }

    /// Before everything that waits already: after a recovery nothing may be judged before the worker is there.
    pub(crate) fn tell_first(&self, events: impl DoubleEndedIterator<Item = Event>) {
        let mut inbox = self.lock();
        events.rev().for_each(|event| inbox.control.push_front(event));
        drop(inbox);
        self.shared.wake.notify_one();
    }

    /// Control events first, then submits; at most `max` in all, and of submits no more than a tick's share of tasks.
    /// Waits up to `timeout` when there is nothing.
    pub(crate) fn drain(&self, max: usize, timeout: Duration, into: &mut Vec<Event>) {
        let mut inbox = self.lock();
        if inbox.is_empty() && !inbox.closed && !timeout.is_zero() {
            inbox = self
                .shared
                .wake
                .wait_timeout_while(inbox, timeout, |inbox| inbox.is_empty() && !inbox.closed)
                .expect("no thread panics while it holds the inbox")
                .0;
        }
        let n_control = inbox.control.len().min(max);
        into.extend(inbox.control.drain(..n_control));
        into.extend(inbox.room.take_turned_away().map(Event::TurnedAway));
        inbox.take_submits(max - n_control, into);
    }

    /// After each tick, before its answers: how full the queues are now. `refused` are the agents at their own limit.
    pub(crate) fn publish_room(&self, core: &Core, refused: impl IntoIterator<Item = Name>) {
        self.lock().room.publish(core, refused);
    }

    pub(crate) fn answer(&self, answers: impl IntoIterator<Item = (Ticket, Answer)>) {
        let mut inbox = self.lock();
        for (ticket, answer) in answers {
            if let Some(sender) = inbox.answers.remove(&ticket) {
                let _ = sender.send(answer);
            }
        }
    }

    /// While the store cannot be written: whoever waits for an answer is told so. Reports and configuration stay.
    pub(crate) fn refuse_waiting(&self) {
        let mut inbox = self.lock();
        inbox.submits.clear();
        inbox.n_items = 0;
        inbox.room.note_cleared();
        let is_asked = |event: &Event| {
            matches!(
                event,
                Event::Cancel { .. }
                    | Event::Change { .. }
                    | Event::Heartbeat { .. }
                    | Event::Explain { .. }
                    | Event::Session { .. }
                    | Event::Schedule { .. }
                    | Event::Worker { .. }
                    | Event::Workers { .. }
                    | Event::Once { .. }
                    | Event::WasDone { .. }
                    | Event::Demand { .. }
            )
        };
        inbox.control.retain(|event| !is_asked(event));
        inbox.answers.clear();
    }

    /// After a failed commit: whoever still waits learns that the outcome is unknown.
    pub(crate) fn drop_answers(&self, tickets: impl IntoIterator<Item = Ticket>) {
        let mut inbox = self.lock();
        for ticket in tickets {
            inbox.answers.remove(&ticket);
        }
    }

    pub(crate) fn close(&self) {
        let mut inbox = self.lock();
        inbox.closed = true;
        inbox.answers.clear();
        drop(inbox);
        self.shared.wake.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.shared.inbox.lock().expect("no thread panics while it holds the inbox")
    }
}

impl Inbox {
    fn push(&mut self, event: Event) {
        match event {
            Event::Submit(ref submission) => {
                self.n_items += n_items(&event);
                self.room.note_waiting(&submission.items);
                self.submits.push_back(event);
            }
            _ => self.control.push_back(event),
        }
    }

    fn is_full_for(&self, event: &Event) -> bool {
        match event {
            Event::Submit(_) => self.n_items + n_items(event) > SUBMIT_ITEMS_MAX,
            _ => self.control.len() >= CONTROL_MAX,
        }
    }

    fn turn_away(&mut self, event: &mut Event) -> Option<Refusal> {
        match event {
            Event::Submit(submission) => self.room.turn_away(submission),
            _ => None,
        }
    }

    /// Whole submissions, the first one however large it is.
    fn take_submits(&mut self, max: usize, into: &mut Vec<Event>) {
        let mut n_taken = 0;
        for _ in 0..max {
            let Some(n) = self.submits.front().map(n_items) else { return };
            if n_taken > 0 && n_taken + n > SUBMIT_ITEMS_PER_TICK {
                return;
            }
            n_taken += n;
            self.n_items -= n;
            let Some(event) = self.submits.pop_front() else { return };
            if let Event::Submit(submission) = &event {
                self.room.note_in_tick(&submission.items);
            }
            into.push(event);
        }
    }

    fn is_empty(&self) -> bool {
        self.control.is_empty() && self.submits.is_empty() && !self.room.has_turned_away()
    }
}

/// A submission without tasks takes room too.
fn n_items(event: &Event) -> usize {
    match event {
        Event::Submit(submission) => submission.items.len().max(1),
        _ => 1,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use futures_util::FutureExt;
    use runyard_core::event::{Asked, NewTask, Submission, SubmitMode};
    use runyard_core::flow::{FlowKey, Place, Resources, Shape};
    use runyard_core::ids::{TaskId, WorkerId};
    use runyard_core::task::Tier;
    use runyard_store::memory::MemoryStore;
    use runyard_store::store::Store;

    use super::*;

    pub(crate) fn handle() -> Handle {
        Handle::new(MemoryStore::new().reader())
    }

    pub(crate) fn submit(n: usize) -> impl FnOnce(Ticket) -> Event {
        submit_of("a", n)
    }

    pub(crate) fn submit_of(agent: &str, n: usize) -> impl FnOnce(Ticket) -> Event + use<> {
        let shape = Shape { kind: "noop".into(), resources: Resources::default(), place: Place::default() };
        let flow = FlowKey { agent: agent.into(), lane: "main".into(), tier: Tier::Normal, shape, gates: Vec::new() };
        let new = NewTask::new(TaskId(1), flow, Default::default());
        let items = vec![new; n];
        move |ticket| {
            Event::Submit(Submission {
                ticket,
                batch: None,
                mode: SubmitMode::All,
                items,
                idempotency: None,
                asked: Asked::Once,
            })
        }
    }

    fn drained(handle: &Handle) -> Vec<usize> {
        let mut events = Vec::new();
        handle.drain(2048, Duration::ZERO, &mut events);
        events.iter().map(n_items).collect()
    }

    #[test]
    fn submits_are_bounded_by_the_tasks_in_them() {
        let handle = handle();
        let mut waiting = Vec::new();
        for _ in 0..SUBMIT_ITEMS_MAX / 1000 {
            let mut asked = Box::pin(handle.ask(submit(1000)));
            assert!(asked.as_mut().now_or_never().is_none());
            waiting.push(asked);
        }
        assert_eq!(handle.ask(submit(1)).now_or_never().map(|answer| answer.err()), Some(Some(Unavailable::Busy)));
        assert_eq!(drained(&handle), [1000; 4], "a tick takes its share");
        assert!(handle.ask(submit(1000)).now_or_never().is_none(), "and makes room");
    }

    #[test]
    fn a_submission_larger_than_a_ticks_share_goes_alone() {
        let handle = handle();
        for n in [SUBMIT_ITEMS_PER_TICK + 1, 1, 2] {
            assert!(handle.ask(submit(n)).now_or_never().is_none());
        }
        assert_eq!(drained(&handle), [SUBMIT_ITEMS_PER_TICK + 1]);
        assert_eq!(drained(&handle), [1, 2]);
        assert!(drained(&handle).is_empty());
    }

    #[test]
    fn a_full_control_inbox_refuses_questions_but_takes_reports() {
        let handle = handle();
        handle
            .tell((0..CONTROL_MAX + 1).map(|_| Event::WorkerSeen { worker: WorkerId(1), vitals: Default::default() }));
        let explain = |ticket| Event::Explain { ticket, task: TaskId(1) };
        assert_eq!(handle.ask(explain).now_or_never().map(|answer| answer.err()), Some(Some(Unavailable::Busy)));
        assert!(handle.ask(submit(1)).now_or_never().is_none());
        assert_eq!(handle.lock().control.len(), CONTROL_MAX + 1);
    }

    #[test]
    fn a_drain_that_begins_during_a_recovery_outlives_it() {
        let handle = handle();
        let readiness = || *handle.readiness().borrow();
        handle.set_draining(true);
        assert_eq!((readiness(), handle.is_draining()), (Readiness::Recovering, true));
        handle.set_serving();
        assert_eq!(readiness(), Readiness::Draining);
        handle.set_recovering();
        handle.set_draining(false);
        handle.set_serving();
        assert_eq!(readiness(), Readiness::Ready);
        handle.set_stopping();
        handle.set_recovering();
        assert_eq!(readiness(), Readiness::Stopping);
    }
}
