//! What lies ready for one worker. Pure bookkeeping.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use runyard_core::event::{Held, Start};
use runyard_core::ids::TaskId;
use runyard_core::task::Stop;
use runyard_worker::Progress;
use tokio::sync::{Mutex as Turn, oneshot, watch};

use super::held_of;

/// Specs that one answer carries; the rest comes with the next one. Some payloads are a megabyte.
const START_BYTES_MAX: usize = 8 * 1024 * 1024;

#[derive(Default)]
pub struct Tray {
    pub joined: bool,
    /// It has said what it holds since all that was believed of it was dropped.
    pub presented: bool,
    /// What this worker holds, as the scheduler believes.
    pub leases: BTreeMap<TaskId, Lease>,
    pub turn: Arc<Turn<()>>,
    /// The latest sync that was heard, by its session and its number there. Outlives what is believed of the worker: who
    /// presents itself again does so with its latest words.
    heard: Option<(u64, u64)>,
    /// The sync that waits.
    pub poll: Option<oneshot::Sender<()>>,
    starts: BTreeMap<TaskId, StartMail>,
    stops: BTreeMap<TaskId, StopMail>,
    inputs: Vec<Input>,
    revokes: BTreeSet<(TaskId, u32)>,
    has_news: bool,
}

pub struct Lease {
    pub held: Held,
    pub log_bytes: watch::Sender<u64>,
    pub progress: Option<Progress>,
    /// Files that its payload names; unknown for one that was presented after a restart.
    pub uploads: Vec<u128>,
}

struct StartMail {
    start: Arc<Start>,
    was_sent: bool,
}

struct StopMail {
    held: Held,
    stop: Stop,
    was_sent: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Input {
    pub held: Held,
    pub message: TaskId,
    pub text: String,
}

/// For one answer.
#[derive(Default)]
pub struct Mail {
    pub starts: Vec<Arc<Start>>,
    pub stops: Vec<(Held, Stop)>,
    pub inputs: Vec<Input>,
    pub revokes: Vec<(TaskId, u32)>,
}

/// What a sync says about leases.
#[derive(Default)]
pub struct Said {
    pub held: Vec<Held>,
    pub done: Vec<Held>,
    /// Messages that were taken.
    pub inputs: Vec<TaskId>,
}

impl Tray {
    pub fn holds(&self, held: Held) -> bool {
        self.leases.get(&held.task).is_some_and(|lease| lease.held == held)
    }

    /// Is this the latest of its session that has come? One without a number counts as such, and so does the latest itself,
    /// asked again: nobody has heard the answer, so nothing has come to the worker since.
    pub fn is_latest(&mut self, session: u64, seq: Option<u64>) -> bool {
        let Some(seq) = seq else { return true };
        let is_overtaken = self.heard.is_some_and(|heard| heard.0 == session && seq < heard.1);
        if !is_overtaken {
            self.heard = Some((session, seq));
        }
        !is_overtaken
    }

    pub fn start(&mut self, start: Start) {
        let held = held_of(&start);
        // An older attempt of the same task has ended, or this one would not be here.
        self.end_mail(held.task);
        self.leases.insert(held.task, Lease::new(held));
        self.starts.insert(held.task, StartMail { start: Arc::new(start), was_sent: false });
        self.wake();
    }

    /// Gives the lease when there is nothing to stop: its start was never sent.
    pub fn stop(&mut self, held: Held, stop: Stop) -> Option<Held> {
        let is_meant = |mail: &&StartMail| mail.start.attempt == held.attempt;
        let start = self.starts.get(&held.task).filter(is_meant).map(|mail| mail.was_sent);
        if start.is_some() {
            self.starts.remove(&held.task);
        }
        if start == Some(false) {
            self.end(held);
            return Some(held);
        }
        // One that was sent is not sent again; a worker that never got it has nothing to stop, and says so.
        self.stops.insert(held.task, StopMail { held, stop, was_sent: false });
        self.wake();
        None
    }

    pub fn input(&mut self, input: Input) {
        if self.holds(input.held) && !self.inputs.contains(&input) {
            self.inputs.push(input);
            self.wake();
        }
    }

    pub fn revoke(&mut self, task: TaskId, attempt: u32) {
        let was_sent = self.starts.get(&task).is_none_or(|mail| mail.was_sent);
        if self.leases.get(&task).is_some_and(|lease| lease.held.attempt == attempt) {
            self.leases.remove(&task);
            self.end_mail(task);
        }
        if was_sent {
            self.revokes.insert((task, attempt));
            self.wake();
        }
    }

    /// It ended: what lay ready for it is moot.
    pub fn end(&mut self, held: Held) {
        if self.leases.get(&held.task).is_some_and(|lease| lease.held.attempt <= held.attempt) {
            self.leases.remove(&held.task);
            self.end_mail(held.task);
        }
    }

    /// These are its leases from now on, unless they are revoked. Whoever follows the log of one goes on doing so.
    pub fn present(&mut self, held: &[Held]) {
        self.presented = true;
        let mut earlier = std::mem::take(&mut self.leases);
        for held in held {
            let known = earlier.remove(&held.task).filter(|lease| lease.held == *held);
            self.leases.insert(held.task, known.unwrap_or_else(|| Lease::new(*held)));
        }
        self.starts.clear();
        self.stops.clear();
        self.inputs.clear();
        self.revokes.clear();
    }

    /// Nothing lies ready, and nothing is believed. Whoever waits is answered.
    pub fn reset(&mut self) {
        *self = Tray { turn: self.turn.clone(), heard: self.heard, ..Tray::default() };
    }

    /// Drops what the worker has shown to know. Gives leases that are stopped though it did not say so: it was told to
    /// stop them, and does not have them.
    pub fn settle(&mut self, said: &Said) -> Vec<Held> {
        let is = |held: &Held| (held.task, held.attempt);
        let held: BTreeSet<_> = said.held.iter().map(is).collect();
        let done: BTreeSet<_> = said.done.iter().map(is).collect();
        said.done.iter().for_each(|ended| self.end(*ended));
        self.starts.retain(|task, mail| !held.contains(&(*task, mail.start.attempt)));
        let silent = self.stops.values().filter(|mail| mail.was_sent && !held.contains(&is(&mail.held)));
        let silent: Vec<Held> = silent.map(|mail| mail.held).collect();
        silent.iter().for_each(|stopped| self.end(*stopped));
        let leases = &self.leases;
        self.stops.retain(|task, mail| leases.get(task).is_some_and(|lease| lease.held == mail.held));
        self.inputs.retain(|input| {
            let is_held = leases.get(&input.held.task).is_some_and(|lease| lease.held == input.held);
            is_held && !said.inputs.contains(&input.message)
        });
        self.revokes.retain(|revoked| held.contains(revoked));
        if !self.joined {
            // All that was believed of it was dropped while it spoke: it is not known here what it may hold.
            return silent;
        }
        let lives = |held: &Held| self.leases.get(&held.task).is_some_and(|lease| lease.held == *held);
        let dead = said.held.iter().filter(|held| !done.contains(&is(held)) && !lives(held));
        self.revokes.extend(dead.map(is));
        silent
    }

    /// Of words that were overtaken only what they report counts: what they do not name may have come to the worker since.
    pub fn settle_late(&mut self, said: &Said) {
        said.done.iter().for_each(|ended| self.end(*ended));
        self.inputs.retain(|input| !said.inputs.contains(&input.message));
    }

    /// Everything that lies ready; `None` when nothing does.
    pub fn mail(&mut self) -> Option<Mail> {
        let mut mail = Mail { revokes: self.revokes.iter().copied().collect(), ..Mail::default() };
        let mut n_bytes = 0;
        for start in self.starts.values_mut() {
            n_bytes += spec_bytes(&start.start);
            if n_bytes > START_BYTES_MAX && !mail.starts.is_empty() {
                break;
            }
            start.was_sent = true;
            mail.starts.push(start.start.clone());
        }
        for stop in self.stops.values_mut() {
            stop.was_sent = true;
            mail.stops.push((stop.held, stop.stop));
        }
        mail.inputs.clone_from(&self.inputs);
        // What did not fit goes with the next one, at once.
        self.has_news = self.starts.values().any(|start| !start.was_sent);
        let is_empty =
            mail.starts.is_empty() && mail.stops.is_empty() && mail.inputs.is_empty() && mail.revokes.is_empty();
        (!is_empty).then_some(mail)
    }

    fn end_mail(&mut self, task: TaskId) {
        self.starts.remove(&task);
        self.stops.remove(&task);
        self.inputs.retain(|input| input.held.task != task);
    }

    /// Is there anything that no answer has carried yet?
    pub fn has_news(&self) -> bool {
        self.has_news
    }

    /// Has it been sent something that it has not shown to know?
    pub fn has_old_mail(&self) -> bool {
        !(self.starts.is_empty() && self.stops.is_empty() && self.inputs.is_empty() && self.revokes.is_empty())
    }

    fn wake(&mut self) {
        self.has_news = true;
        if let Some(poll) = self.poll.take() {
            // An error only says that its client has hung up.
            let _ = poll.send(());
        }
    }
}

impl Lease {
    fn new(held: Held) -> Lease {
        Lease { held, log_bytes: watch::channel(0).0, progress: None, uploads: Vec::new() }
    }
}

fn spec_bytes(start: &Start) -> usize {
    let merged = start.merged.iter().chain(&start.dropped).chain(&start.spec);
    merged.map(|blob| blob.len()).sum()
}

#[cfg(test)]
mod tests {
    use runyard_core::ids::{Token, WorkerId};

    use super::*;

    fn start(task: u128, attempt: u32, spec_bytes: usize) -> Start {
        Start {
            worker: WorkerId(1),
            task: TaskId(task),
            seq: 0,
            attempt,
            token: Token(u64::from(attempt)),
            agent: "a".into(),
            kind: "k".into(),
            deadline: None,
            timeout_ms: 1,
            watch_silence: false,
            spec: Some(vec![b' '; spec_bytes].into()),
            session: None,
            n_merged: 0,
            told: None,
            merged: Vec::new(),
            dropped: Vec::new(),
        }
    }

    fn lease(task: u128, attempt: u32) -> Held {
        Held { task: TaskId(task), attempt, token: Token(u64::from(attempt)) }
    }

    fn started(tray: &mut Tray) -> Vec<u128> {
        tray.mail().map_or(Vec::new(), |mail| mail.starts.iter().map(|start| start.task.0).collect())
    }

    fn holding(held: &[Held]) -> Said {
        Said { held: held.to_vec(), ..Said::default() }
    }

    #[test]
    fn a_start_is_sent_until_the_worker_shows_that_it_has_it() {
        let mut tray = Tray::default();
        tray.start(start(1, 1, 0));
        for _ in 0..2 {
            assert_eq!(started(&mut tray), [1]);
            assert!(tray.settle(&holding(&[])).is_empty());
        }
        tray.settle(&holding(&[lease(1, 1)]));
        assert!(tray.mail().is_none() && tray.holds(lease(1, 1)));
        tray.settle(&Said { done: vec![lease(1, 1)], ..Said::default() });
        assert!(!tray.holds(lease(1, 1)));
    }

    #[test]
    fn what_is_dropped_while_a_worker_speaks_takes_nothing_from_it() {
        let mut tray = Tray::default();
        tray.present(&[lease(1, 1)]);
        tray.joined = true;
        tray.settle(&holding(&[lease(1, 1), lease(2, 1)]));
        assert_eq!(tray.mail().expect("one of them is not its own").revokes, [(TaskId(2), 1)]);
        tray.reset();
        assert!(!tray.presented, "what it says now is not of this term");
        tray.settle(&holding(&[lease(1, 1)]));
        assert!(tray.mail().is_none(), "it is not known what it may hold");
    }

    #[test]
    fn a_stop_before_the_start_was_sent_needs_no_worker() {
        let mut tray = Tray::default();
        tray.start(start(1, 1, 0));
        assert_eq!(tray.stop(lease(1, 1), Stop::Cancel), Some(lease(1, 1)));
        assert!(tray.mail().is_none() && tray.leases.is_empty());
    }

    #[test]
    fn a_stop_behind_a_start_that_was_sent_takes_its_place_until_it_is_done() {
        let mut tray = Tray::default();
        tray.start(start(1, 1, 0));
        assert_eq!(started(&mut tray), [1]);
        assert_eq!(tray.stop(lease(1, 1), Stop::Cancel), None);
        let said = holding(&[lease(1, 1)]);
        for _ in 0..2 {
            assert!(tray.settle(&said).is_empty());
            let mail = tray.mail().expect("the stop");
            assert!(mail.starts.is_empty() && mail.stops == [(lease(1, 1), Stop::Cancel)]);
        }
        tray.settle(&Said { done: vec![lease(1, 1)], ..said });
        assert!(tray.mail().is_none());
    }

    #[test]
    fn what_a_worker_was_told_to_stop_and_does_not_have_is_stopped() {
        let mut tray = Tray { joined: true, ..Tray::default() };
        tray.start(start(1, 1, 0));
        tray.mail();
        tray.stop(lease(1, 1), Stop::NotStarted);
        assert!(tray.settle(&holding(&[])).is_empty(), "it does not know of the stop yet");
        tray.mail();
        assert_eq!(tray.settle(&holding(&[])), [lease(1, 1)]);
        assert!(tray.mail().is_none());
        tray.settle(&holding(&[lease(1, 1)]));
        assert_eq!(tray.mail().expect("it came late").revokes, [(TaskId(1), 1)]);
    }

    #[test]
    fn what_is_not_its_own_is_revoked_until_it_lets_go() {
        let mut tray = Tray::default();
        tray.start(start(1, 1, 0));
        tray.mail();
        tray.revoke(TaskId(1), 1);
        for _ in 0..2 {
            let mail = tray.mail().expect("the revoke");
            assert!(mail.starts.is_empty() && mail.revokes == [(TaskId(1), 1)]);
            tray.settle(&holding(&[lease(1, 1)]));
        }
        tray.settle(&holding(&[]));
        assert!(tray.mail().is_none());
        tray.settle(&Said { held: vec![lease(2, 1)], done: vec![lease(2, 1)], ..Said::default() });
        assert!(tray.mail().is_none(), "an end is not revoked");
    }

    #[test]
    fn a_sync_that_was_overtaken_is_known_by_its_number_also_after_a_recovery() {
        let mut tray = Tray::default();
        assert!(tray.is_latest(7, Some(1)) && tray.is_latest(7, Some(3)));
        assert!(!tray.is_latest(7, Some(2)));
        assert!(tray.is_latest(7, Some(3)), "a node asks again what it got no answer to");
        tray.reset();
        assert!(!tray.is_latest(7, Some(2)));
        assert!(tray.is_latest(7, None), "one that does not count is taken as it comes");
        assert!(tray.is_latest(8, Some(1)), "another process counts for itself");
    }

    #[test]
    fn what_overtaken_words_do_not_name_is_neither_known_nor_gone() {
        let mut tray = Tray::default();
        (1..=2).for_each(|task| tray.start(start(task, 1, 0)));
        tray.mail();
        tray.stop(lease(2, 1), Stop::Cancel);
        tray.mail();
        tray.settle_late(&Said { done: vec![lease(1, 1)], ..holding(&[lease(1, 1)]) });
        assert!(!tray.holds(lease(1, 1)), "its end is an end");
        assert!(tray.holds(lease(2, 1)), "it was started after they were written");
        assert_eq!(tray.mail().expect("the stop").stops, [(lease(2, 1), Stop::Cancel)]);
    }

    #[test]
    fn a_newer_attempt_is_not_taken_for_the_one_that_ended() {
        let mut tray = Tray::default();
        tray.start(start(1, 1, 0));
        tray.mail();
        // The tick that took the end has already placed the next attempt here.
        tray.start(start(1, 2, 0));
        tray.settle(&Said { held: vec![lease(1, 1)], done: vec![lease(1, 1)], ..Said::default() });
        assert!(tray.holds(lease(1, 2)));
        assert_eq!(started(&mut tray), [1]);
    }

    #[test]
    fn a_message_is_sent_until_it_was_taken_or_its_task_is_gone() {
        let mut tray = Tray::default();
        tray.start(start(1, 1, 0));
        let input = Input { held: lease(1, 1), message: TaskId(9), text: "hi".into() };
        tray.input(input.clone());
        tray.input(input.clone());
        tray.settle(&holding(&[lease(1, 1)]));
        assert_eq!(tray.mail().expect("the message").inputs, std::slice::from_ref(&input));
        tray.settle(&Said { inputs: vec![TaskId(9)], ..holding(&[lease(1, 1)]) });
        assert!(tray.mail().is_none());
        tray.input(input);
        tray.settle(&Said { done: vec![lease(1, 1)], ..Said::default() });
        assert!(tray.mail().is_none());
    }

    #[test]
    fn one_answer_carries_so_much_and_at_least_one() {
        let mut tray = Tray::default();
        (1..=3).for_each(|task| tray.start(start(task, 1, START_BYTES_MAX / 2 + 1)));
        assert_eq!(started(&mut tray), [1]);
        tray.settle(&holding(&[lease(1, 1)]));
        assert_eq!(started(&mut tray), [2]);
        assert_eq!(tray.stop(lease(3, 1), Stop::Cancel), Some(lease(3, 1)), "the third was never sent");
    }
}
