//! The beat of a node: it says that it is here, and learns who holds the scheduler lease.
//!
//! A node that holds it renews it five times in its term; one that follows asks four times a second, or just when the
//! lease runs out, whichever is sooner. The moment until which a holder may believe in its lease is counted from *before*
//! it asked, on its own clock: the database's answer may be as late as it likes.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use runyard_core::name::Name;
use runyard_store::nodes::{Bid, NodeCard, NodeId, NodeRow, Nodes, Standing};
use runyard_store::store;
use tokio::sync::watch;

/// A node that follows asks so often: a clean handover takes no longer than this and the loading.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Renewals in one term.
const RENEWALS: u32 = 5;
/// A node that follows says so four times a second.
const OTHER_SILENT_MAX_MS: u64 = 2_000;
/// After a beat that failed.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Whom the scheduler belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// Nobody that is known of: the lease is free, or the database cannot be asked.
    Unknown,
    Holder,
    Follower {
        holder: NodeId,
        url: String,
    },
}

pub struct MemberOptions {
    pub nodes: Arc<dyn Nodes>,
    pub card: NodeCard,
    pub ttl_ms: u64,
    /// What it begins with.
    pub bid: Bid,
}

/// This node among the others.
pub struct Member {
    nodes: Arc<dyn Nodes>,
    card: NodeCard,
    ttl_ms: u64,
    /// Held by who speaks to the database: a beat that is under way must not take the lease back that was just given up.
    speaking: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
    role: watch::Sender<Role>,
    /// What the last beat told of the store.
    seen: watch::Sender<Seen>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How far the store is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    pub log_seq: u64,
    pub settings_version: u64,
}

struct State {
    /// Until when this node may act as the holder.
    until: Option<Instant>,
    bid: Bid,
    /// The database answered the last beat.
    reached: bool,
    closed: bool,
}

impl Member {
    /// The first beat is made here, so that a database that cannot be used is known at once.
    pub fn join(options: MemberOptions) -> store::Result<Arc<Member>> {
        let MemberOptions { nodes, card, ttl_ms, bid } = options;
        let member = Arc::new(Member {
            nodes,
            card,
            ttl_ms,
            speaking: Mutex::new(()),
            state: Mutex::new(State { until: None, bid, reached: false, closed: false }),
            changed: Condvar::new(),
            role: watch::Sender::new(Role::Unknown),
            seen: watch::Sender::new(Seen::default()),
            thread: Mutex::new(None),
        });
        let pause = member.beat()?;
        let beating = member.clone();
        let thread = std::thread::Builder::new()
            .name("node".into())
            .spawn(move || beating.run(pause))
            .expect("the operating system gives one more thread");
        *member.thread.lock().expect("no thread panics while it holds this") = Some(thread);
        Ok(member)
    }

    pub fn card(&self) -> &NodeCard {
        &self.card
    }

    pub fn role(&self) -> Role {
        self.role.borrow().clone()
    }

    pub fn roles(&self) -> watch::Receiver<Role> {
        self.role.subscribe()
    }

    pub fn seen(&self) -> watch::Receiver<Seen> {
        self.seen.subscribe()
    }

    /// Does the database answer?
    pub fn is_reached(&self) -> bool {
        self.lock().reached
    }

    /// Whether what a tick decided may still leave this node.
    pub fn holds(&self) -> bool {
        self.lock().until.is_some_and(|until| Instant::now() < until)
    }

    fn until(&self) -> Option<Instant> {
        self.lock().until
    }

    /// Blocks until this node holds the lease; false when it is to stop, or `is_over` says so.
    pub fn await_turn(&self, mut is_over: impl FnMut() -> bool) -> bool {
        let mut state = self.lock();
        loop {
            if state.closed || is_over() {
                return false;
            }
            if state.until.is_some_and(|until| Instant::now() < until) {
                return true;
            }
            state = self.changed.wait_timeout(state, LOOK_EVERY).expect(UNPOISONED).0;
        }
    }

    /// The store says that somebody else is the holder, whatever this node believes.
    pub fn deposed(&self) {
        self.lock().until = None;
        self.set_role(Role::Unknown);
    }

    /// This node has all that a holder needs.
    pub fn may_hold(&self) {
        self.lock().bid = Bid::Hold;
    }

    /// Gives the lease back, so that another node can have it at once, and follows from now on.
    pub fn hand_over(&self) {
        let _speaking = self.speaking.lock().expect(UNPOISONED);
        {
            let mut state = self.lock();
            (state.bid, state.until) = (Bid::Follow, None);
        }
        self.set_role(Role::Unknown);
        self.say_goodbye();
    }

    /// Whether another node was heard of lately, which would take the lease.
    pub fn has_others(&self) -> bool {
        let is_other = |row: &NodeRow| row.card.id != self.card.id && row.silent_ms < OTHER_SILENT_MAX_MS;
        self.nodes.all().is_ok_and(|list| list.nodes.iter().any(is_other))
    }

    /// Gives the lease back, and is gone.
    pub fn leave(&self) {
        {
            let mut state = self.lock();
            (state.closed, state.until) = (true, None);
        }
        self.changed.notify_all();
        if let Some(thread) = self.thread.lock().expect("no thread panics while it holds this").take() {
            let _ = thread.join();
        }
        self.set_role(Role::Unknown);
        self.say_goodbye();
    }

    fn say_goodbye(&self) {
        if let Err(error) = self.nodes.leave(self.card.id) {
            tracing::warn!(target: "runyard::nodes", error = &error as &dyn std::error::Error,
                "this node could not say goodbye; its lease runs out by itself");
        }
    }

    fn run(&self, mut pause: Duration) {
        let mut n_failed = 0u32;
        loop {
            {
                let state = self.lock();
                let is_open = |state: &mut State| !state.closed;
                let state = self.changed.wait_timeout_while(state, pause, is_open).expect(UNPOISONED).0;
                if state.closed {
                    return;
                }
            }
            pause = match self.beat() {
                Ok(pause) => {
                    n_failed = 0;
                    pause
                }
                Err(error) => {
                    if n_failed.is_multiple_of(25) {
                        tracing::warn!(target: "runyard::nodes", error = &error as &dyn std::error::Error,
                            "the database does not answer");
                    }
                    n_failed += 1;
                    self.missed();
                    RETRY_AFTER
                }
            };
        }
    }

    /// One round trip; gives when the next is due.
    fn beat(&self) -> store::Result<Duration> {
        let _speaking = self.speaking.lock().expect(UNPOISONED);
        let bid = self.lock().bid;
        let asked_at = Instant::now();
        let standing = self.nodes.beat(&self.card, bid, self.ttl_ms)?;
        Ok(self.hear(asked_at, standing))
    }

    fn hear(&self, asked_at: Instant, standing: Standing) -> Duration {
        let Standing { holder, log_seq, settings_version } = standing;
        let left = holder.as_ref().map(|lease| Duration::from_millis(lease.left_ms));
        let role = match holder {
            Some(lease) if lease.node == self.card.id => Role::Holder,
            Some(lease) => Role::Follower { holder: lease.node, url: lease.url },
            None => Role::Unknown,
        };
        let is_holder = role == Role::Holder;
        {
            let mut state = self.lock();
            state.reached = true;
            state.until = left.filter(|_| is_holder).map(|left| asked_at + left);
        }
        self.changed.notify_all();
        let seen = Seen { log_seq, settings_version };
        self.seen.send_if_modified(|known| std::mem::replace(known, seen) != seen);
        self.set_role(role);
        if is_holder {
            return Duration::from_millis(self.ttl_ms) / RENEWALS;
        }
        left.map_or(LOOK_EVERY, |left| LOOK_EVERY.min(left + Duration::from_millis(1)))
    }

    /// The database did not answer. A lease that may have run out meanwhile is not believed in any more.
    fn missed(&self) {
        let mut state = self.lock();
        state.reached = false;
        let is_over = state.until.is_none_or(|until| Instant::now() >= until);
        if is_over {
            state.until = None;
            drop(state);
            self.set_role(Role::Unknown);
        }
    }

    fn set_role(&self, role: Role) {
        let is_new = self.role.send_if_modified(|known| {
            let is_new = *known != role;
            if is_new {
                known.clone_from(&role);
            }
            is_new
        });
        if is_new {
            match role {
                Role::Holder => tracing::info!(target: "runyard::nodes", "this node holds the scheduler lease"),
                Role::Follower { url, .. } => {
                    tracing::info!(target: "runyard::nodes", holder = url, "this node follows");
                }
                Role::Unknown => {
                    tracing::info!(target: "runyard::nodes", "no node is known to hold the scheduler lease")
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(UNPOISONED)
    }
}

const UNPOISONED: &str = "no thread panics while it holds the node's state";

/// By what right a scheduler runs.
#[derive(Clone)]
pub enum Tenure {
    /// The store is this process's own.
    Sole,
    /// As long as this node holds the lease.
    Lease(Arc<Member>),
}

impl Tenure {
    /// Blocks until the scheduler may run; false when it is to stop first.
    pub fn await_turn(&self, is_over: impl FnMut() -> bool) -> bool {
        match self {
            Tenure::Sole => true,
            Tenure::Lease(member) => member.await_turn(is_over),
        }
    }

    pub fn holds(&self) -> bool {
        match self {
            Tenure::Sole => true,
            Tenure::Lease(member) => member.holds(),
        }
    }

    /// What is ordered now must have begun by then.
    pub fn until(&self) -> Option<Instant> {
        match self {
            Tenure::Sole => None,
            // A holder that is none any more orders nothing that could begin.
            Tenure::Lease(member) => Some(member.until().unwrap_or_else(Instant::now)),
        }
    }

    pub fn deposed(&self) {
        if let Tenure::Lease(member) = self {
            member.deposed();
        }
    }

    /// The name of the node whose turn it is.
    pub fn node(&self) -> Option<Name> {
        match self {
            Tenure::Sole => None,
            Tenure::Lease(member) => Some(Name::new(&member.card.name)),
        }
    }

    pub fn is_shared(&self) -> bool {
        matches!(self, Tenure::Lease(_))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use runyard_store::nodes::{AuditRow, Lease, NodeList};
    use runyard_store::store::{Error, Result};

    use super::*;

    /// A database that answers what it is told to.
    #[derive(Default)]
    struct Scripted {
        answer: Mutex<Option<Standing>>,
        n_left: Mutex<u32>,
        /// A beat that finds these says that it has begun, and waits for a word before it goes on.
        held_up: Mutex<Option<(Sender<()>, Receiver<()>)>>,
    }

    impl Scripted {
        fn says(&self, standing: Option<Standing>) {
            *self.answer.lock().expect("whole") = standing;
        }
    }

    impl Nodes for Scripted {
        fn secret(&self) -> Result<[u8; 32]> {
            Ok([0; 32])
        }

        fn beat(&self, _: &NodeCard, _: Bid, _: u64) -> Result<Standing> {
            if let Some((begun, word)) = self.held_up.lock().expect("whole").take() {
                begun.send(()).expect("the test waits");
                word.recv().expect("the test says when");
            }
            let away = || Error::Damaged { what: "the database", detail: "away".into() };
            self.answer.lock().expect("whole").clone().ok_or_else(away)
        }

        fn leave(&self, _: NodeId) -> Result<()> {
            *self.n_left.lock().expect("whole") += 1;
            Ok(())
        }

        fn all(&self) -> Result<NodeList> {
            Ok(NodeList { epoch: 1, nodes: Vec::new() })
        }

        fn write_audit(&self, _: &[u8]) -> Result<()> {
            Ok(())
        }

        fn audit(&self, _: Option<u64>, _: usize) -> Result<Vec<AuditRow>> {
            Ok(Vec::new())
        }
    }

    fn held_by(node: u128, left_ms: u64) -> Option<Standing> {
        let lease = Lease { node: NodeId(node), url: format!("http://{node}"), epoch: 1, left_ms };
        Some(Standing { holder: Some(lease), log_seq: 7, settings_version: 3 })
    }

    fn member(nodes: &Arc<Scripted>, ttl_ms: u64) -> Arc<Member> {
        let card = NodeCard { id: NodeId(1), name: "a".into(), url: "http://1".into(), version: "0".into() };
        Member::join(MemberOptions { nodes: nodes.clone(), card, ttl_ms, bid: Bid::Hold })
            .expect("the database answers")
    }

    #[test]
    fn a_lease_is_believed_in_no_longer_than_it_lasts_whatever_the_database_says_later() {
        let nodes = Arc::new(Scripted::default());
        nodes.says(held_by(1, 60));
        let member = member(&nodes, 100_000);
        assert!(member.holds() && member.role() == Role::Holder);
        assert!(member.await_turn(|| false));
        while member.holds() {
            std::thread::yield_now();
        }
        assert!(!member.holds(), "it was not renewed");
        member.leave();
        assert_eq!(*nodes.n_left.lock().expect("whole"), 1);
    }

    #[test]
    fn a_holder_that_cannot_ask_is_none_when_its_time_is_over() {
        let nodes = Arc::new(Scripted::default());
        nodes.says(held_by(1, 50));
        let member = member(&nodes, 50);
        nodes.says(None);
        let mut roles = member.roles();
        while *roles.borrow_and_update() != Role::Unknown {
            std::thread::yield_now();
        }
        assert!(!member.holds() && !member.is_reached());
        nodes.says(held_by(2, 1000));
        while member.role() == Role::Unknown {
            std::thread::yield_now();
        }
        assert_eq!(member.role(), Role::Follower { holder: NodeId(2), url: "http://2".into() });
        assert_eq!(*member.seen().borrow(), Seen { log_seq: 7, settings_version: 3 });
        member.leave();
    }

    #[test]
    fn a_lease_is_given_back_after_the_beat_that_is_under_way() {
        let nodes = Arc::new(Scripted::default());
        nodes.says(held_by(1, 50));
        let member = member(&nodes, 50);
        let ((begun, has_begun), (word, awaited)) = (channel(), channel());
        *nodes.held_up.lock().expect("whole") = Some((begun, awaited));
        has_begun.recv().expect("a beat is under way");
        let leaving = member.clone();
        let (left, has_left) = channel();
        let leaver = std::thread::spawn(move || {
            leaving.hand_over();
            left.send(()).expect("the test waits");
        });
        assert!(has_left.recv_timeout(Duration::from_millis(200)).is_err(), "the beat would take it back");
        nodes.says(held_by(2, 1000));
        word.send(()).expect("the beat waits");
        leaver.join().expect("no panic");
        assert!(!member.holds() && *nodes.n_left.lock().expect("whole") == 1);
        member.leave();
    }

    #[test]
    fn who_waits_for_the_lease_is_told_to_stop() {
        let nodes = Arc::new(Scripted::default());
        nodes.says(held_by(2, 100_000));
        let member = member(&nodes, 1000);
        let waiting = member.clone();
        let waiter = std::thread::spawn(move || waiting.await_turn(|| false));
        member.leave();
        assert!(!waiter.join().expect("no panic"));
        assert!(!member.await_turn(|| false));
    }

    #[test]
    fn a_holder_that_the_store_refused_is_none_until_the_next_beat() {
        let nodes = Arc::new(Scripted::default());
        nodes.says(held_by(1, 100_000));
        let member = member(&nodes, 100_000);
        member.deposed();
        assert!(!member.holds() && member.role() == Role::Unknown);
        member.leave();
    }
}
