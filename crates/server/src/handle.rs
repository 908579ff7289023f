//! How the rest of the server talks to the scheduler thread: events in, answers and happenings out.
//!
//! Two bounded inboxes: control (reports, cancels, heartbeats, questions) is drained before submits, so that a flood
//! of submits cannot keep a task from ending. A full submit inbox is `Busy`, at once.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use runyard_core::event::{Answer, Event, Happening};
use runyard_core::hash::DetMap;
use runyard_core::ids::Ticket;
use runyard_store::store::Reader;
use tokio::sync::{broadcast, oneshot, watch};

/// Submissions (each may be a batch of 1000) that may wait for a tick.
pub const SUBMITS_MAX: usize = 4096;
/// Commits a slow subscriber may fall behind before it has to read the event log instead.
const COMMITS_BEHIND_MAX: usize = 4096;

#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
pub enum Unavailable {
    #[error("the submit inbox is full ({SUBMITS_MAX} waiting)")]
    Busy,
    /// The tick's commit failed or the scheduler is recovering: whether a submit was stored can be asked with its key.
    #[error("the scheduler is recovering")]
    Recovering,
    #[error("the server is stopping")]
    Stopped,
}

/// What one commit made visible, in order.
#[derive(Debug)]
pub struct Commit {
    pub seq: u64,
    pub happenings: Vec<Happening>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    Recovering,
    Ready,
    Draining,
    Stopping,
}

struct Shared {
    inbox: Mutex<Inbox>,
    wake: Condvar,
    commits: broadcast::Sender<Arc<Commit>>,
    readiness: watch::Sender<Readiness>,
    reader: Arc<dyn Reader>,
}

#[derive(Default)]
struct Inbox {
    control: VecDeque<Event>,
    submits: VecDeque<Event>,
    answers: DetMap<Ticket, oneshot::Sender<Answer>>,
    next_ticket: u64,
    closed: bool,
}

impl Handle {
    pub fn new(reader: Arc<dyn Reader>) -> Handle {
        let (commits, _) = broadcast::channel(COMMITS_BEHIND_MAX);
        let (readiness, _) = watch::channel(Readiness::Recovering);
        let shared = Shared { inbox: Mutex::default(), wake: Condvar::new(), commits, readiness, reader };
        Handle { shared: Arc::new(shared) }
    }

    /// Sends the event that `make` builds around a fresh ticket, and waits for its answer, which comes after the
    /// commit that holds its writes.
    pub async fn ask(&self, make: impl FnOnce(Ticket) -> Event) -> Result<Answer, Unavailable> {
        let receiver = {
            let mut inbox = self.lock();
            if inbox.closed {
                return Err(Unavailable::Stopped);
            }
            let ticket = Ticket(inbox.next_ticket);
            let event = make(ticket);
            if matches!(event, Event::Submit(_)) && inbox.submits.len() >= SUBMITS_MAX {
                return Err(Unavailable::Busy);
            }
            inbox.next_ticket += 1;
            let (sender, receiver) = oneshot::channel();
            inbox.answers.insert(ticket, sender);
            inbox.push(event);
            receiver
        };
        self.shared.wake.notify_one();
        receiver.await.map_err(|_| Unavailable::Recovering)
    }

    /// Sends events nobody waits for: reports, heartbeats.
    pub fn tell(&self, events: impl IntoIterator<Item = Event>) {
        let mut inbox = self.lock();
        events.into_iter().for_each(|event| inbox.push(event));
        drop(inbox);
        self.shared.wake.notify_one();
    }

    pub fn reader(&self) -> &Arc<dyn Reader> {
        &self.shared.reader
    }

    /// Commits from now on. A receiver that lags must go on from `Reader::happenings`.
    pub fn commits(&self) -> broadcast::Receiver<Arc<Commit>> {
        self.shared.commits.subscribe()
    }

    pub fn readiness(&self) -> watch::Receiver<Readiness> {
        self.shared.readiness.subscribe()
    }

    pub(crate) fn set_readiness(&self, readiness: Readiness) {
        self.shared.readiness.send_replace(readiness);
    }

    /// Only from the state the caller believes in: a drain or stop that came in between stays.
    pub(crate) fn set_readiness_from(&self, from: Readiness, to: Readiness) {
        self.shared.readiness.send_if_modified(|readiness| {
            let is_from = *readiness == from;
            if is_from {
                *readiness = to;
            }
            is_from
        });
    }

    /// Before everything that waits already: after a recovery nothing may be judged before the worker is there.
    pub(crate) fn tell_first(&self, events: impl DoubleEndedIterator<Item = Event>) {
        let mut inbox = self.lock();
        events.rev().for_each(|event| inbox.control.push_front(event));
        drop(inbox);
        self.shared.wake.notify_one();
    }

    pub(crate) fn publish(&self, commit: Commit) {
        // An error only says that nobody listens.
        let _ = self.shared.commits.send(Arc::new(commit));
    }

    /// Control events first, then submits; at most `max` in all. Waits up to `timeout` when there is nothing.
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
        let n_submits = inbox.submits.len().min(max - n_control);
        into.extend(inbox.submits.drain(..n_submits));
    }

    pub(crate) fn answer(&self, answers: impl IntoIterator<Item = (Ticket, Answer)>) {
        let mut inbox = self.lock();
        for (ticket, answer) in answers {
            if let Some(sender) = inbox.answers.remove(&ticket) {
                let _ = sender.send(answer);
            }
        }
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
            Event::Submit(_) => self.submits.push_back(event),
            _ => self.control.push_back(event),
        }
    }

    fn is_empty(&self) -> bool {
        self.control.is_empty() && self.submits.is_empty()
    }
}
