//! Where a node is while it cannot begin: its database is away, or the holder that it needs a key of.
//!
//! ```text
//! start ──► in the lobby ──► serves
//!              │  ▲
//!              └──┘ what may pass: told at `/readyz`, tried again
//!              └──► ends: a signal, or what no waiting mends
//! ```
//!
//! The node listens already, so that probes get an answer and clients a reason. A start that is done before anybody could
//! notice never opens its lobby: whoever connects meanwhile waits to be accepted. A server with a store of its own waits
//! for nobody and has no lobby.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::edge::{self, Front};
use crate::nodes::Member;
use crate::server::Error;

/// A probe waits for a second before it counts as failed.
const OPEN_AFTER: Duration = Duration::from_millis(500);
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);
const WARN_EVERY: Duration = Duration::from_secs(60);
/// What a start that is to end is at gets so long, and so does its goodbye.
const LEAVE_MAX: Duration = Duration::from_secs(2);

/// What a start waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// For itself: it is being made.
    Start,
    Database,
    /// A node that holds the lease and shares what a new one needs.
    Holder,
    /// A holder that has the key of the secrets: this node must not be one, and nobody else is.
    Key,
}

pub struct Lobby {
    waits: watch::Sender<Waits>,
    /// The process is to end.
    stop: CancellationToken,
    close: CancellationToken,
    serving: Option<JoinHandle<()>>,
    pause: Duration,
    warned_at: Option<Instant>,
    /// Whom a start that fails has to take back.
    member: Option<Arc<Member>>,
}

impl Lobby {
    /// `stop` ends a start that waits.
    pub fn new(stop: CancellationToken) -> Lobby {
        Lobby {
            waits: watch::Sender::new(Waits::Start),
            stop,
            close: CancellationToken::new(),
            serving: None,
            pause: PAUSE_MIN,
            warned_at: None,
            member: None,
        }
    }

    pub fn waits(&self) -> watch::Receiver<Waits> {
        self.waits.subscribe()
    }

    /// For [`Front::close`].
    pub fn close_token(&self) -> CancellationToken {
        self.close.clone()
    }

    /// Answers whoever comes, if the start takes long enough for anybody to notice.
    pub fn open(&mut self, listener: Arc<TcpListener>, front: Front) {
        self.serving = Some(tokio::spawn(async move {
            if tokio::time::timeout(OPEN_AFTER, front.close.cancelled()).await.is_err() {
                // Who is in the middle of a request is answered, and comes again.
                edge::accept(&listener, &front).await.detach_all();
            }
        }));
    }

    /// A store of one's own is there: nothing is waited for, and a signal is heeded when the server is up.
    pub fn stay_shut(&mut self) {
        self.stop = CancellationToken::new();
    }

    /// Returns when nobody is accepted here any more.
    pub async fn close(&mut self) {
        self.close.cancel();
        if let Some(serving) = self.serving.take() {
            let _ = serving.await;
        }
    }

    /// Blocking work of the start.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        if self.stop.is_cancelled() {
            return Err(Error::Stopped);
        }
        let mut working = tokio::task::spawn_blocking(work);
        let done = tokio::select! {
            done = &mut working => done,
            // It may be about to hold something that is to be given back.
            () = self.stop.cancelled() => {
                tokio::time::timeout(LEAVE_MAX, working).await.map_err(|_| Error::Stopped)?
            }
        };
        done.map_err(|_| Error::Thread)?
    }

    /// Tells what the start waits for, and lets some time pass.
    pub async fn wait(&mut self, waits: Waits, why: &str) -> Result<(), Error> {
        let pause = self.tell(waits, why);
        tokio::select! {
            () = tokio::time::sleep(pause) => Ok(()),
            () = self.stop.cancelled() => Err(Error::Stopped),
        }
    }

    /// Gives how long to wait before the next try.
    fn tell(&mut self, waits: Waits, why: &str) -> Duration {
        if self.waits.send_replace(waits) != waits {
            (self.pause, self.warned_at) = (PAUSE_MIN, None);
        }
        if self.warned_at.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            self.warned_at = Some(Instant::now());
            tracing::warn!(target: "runyard::nodes", why, "this node waits for {}, and tries again", whom(waits));
        }
        let next = (self.pause * 2).min(PAUSE_MAX);
        std::mem::replace(&mut self.pause, next)
    }

    /// As [`Lobby::wait`], for an error of the database. What waiting cannot mend comes back.
    pub async fn wait_out(&mut self, error: Error) -> Result<(), Error> {
        match error.passing() {
            Some(cause) => self.wait(Waits::Database, &text_of(cause)).await,
            None => Err(error),
        }
    }

    /// There is nothing to wait for.
    pub fn go_on(&self) {
        self.waits.send_replace(Waits::Start);
    }

    pub fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }

    /// This node is one of the others now.
    pub fn joined(&mut self, member: Arc<Member>) {
        self.member = Some(member);
    }

    /// After a start that failed: what it held in the database is given back.
    pub async fn leave(&mut self) {
        if let Some(member) = self.member.take() {
            let leaving = tokio::task::spawn_blocking(move || member.leave());
            let _ = tokio::time::timeout(LEAVE_MAX, leaving).await;
        }
    }
}

/// A start that fails has nobody to accept any more.
impl Drop for Lobby {
    fn drop(&mut self) {
        self.close.cancel();
    }
}

fn whom(waits: Waits) -> &'static str {
    match waits {
        Waits::Start => "its own start",
        Waits::Database => "the database",
        Waits::Holder => "the node that holds the scheduler lease",
        Waits::Key => "a node that has the key that secrets are sealed with",
    }
}

/// With its causes.
pub fn text_of(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use runyard_store::store;

    use super::*;

    fn away() -> Error {
        Error::Database(store::Error::Away { doing: "connecting to the database", source: "no answer".into() })
    }

    #[test]
    fn tries_come_ever_later_and_every_second_at_last() {
        let mut lobby = Lobby::new(CancellationToken::new());
        let mut pauses = |waits| [(); 6].map(|()| lobby.tell(waits, "it is away").as_millis());
        assert_eq!(pauses(Waits::Database), [100, 200, 400, 800, 1000, 1000]);
        assert_eq!(pauses(Waits::Holder)[..2], [100, 200], "another reason is another wait");
    }

    #[tokio::test]
    async fn what_may_pass_is_waited_out_and_told() {
        let mut lobby = Lobby::new(CancellationToken::new());
        lobby.wait_out(away()).await.expect("waited");
        assert_eq!(*lobby.waits().borrow(), Waits::Database);
        lobby.go_on();
        assert_eq!(*lobby.waits().borrow(), Waits::Start);
    }

    #[tokio::test]
    async fn what_waiting_cannot_mend_comes_back_at_once() {
        let mut lobby = Lobby::new(CancellationToken::new());
        let newer = Error::Database(store::Error::TooNew { found: 7, known: 2 });
        assert!(matches!(lobby.wait_out(newer).await, Err(Error::Database(store::Error::TooNew { .. }))));
        assert_eq!(*lobby.waits().borrow(), Waits::Start);
    }

    #[tokio::test]
    async fn a_start_that_is_to_end_neither_waits_nor_begins_anything() {
        let stop = CancellationToken::new();
        let mut lobby = Lobby::new(stop.clone());
        stop.cancel();
        assert!(matches!(lobby.wait(Waits::Holder, "nobody").await, Err(Error::Stopped)));
        let begun = lobby.run(|| -> Result<(), Error> { panic!("it was begun") }).await;
        assert!(matches!(begun, Err(Error::Stopped)), "{begun:?}");
    }

    #[tokio::test]
    async fn work_that_is_done_when_a_start_is_to_end_is_not_lost() {
        let stop = CancellationToken::new();
        let lobby = Lobby::new(stop.clone());
        let done = lobby.run(move || {
            stop.cancel();
            Ok(7)
        });
        assert_eq!(done.await.expect("done"), 7);
    }
}
