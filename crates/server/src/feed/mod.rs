//! What was committed lately, and who wants to hear of it.
//!
//! All who stream events share one ring of the latest commits. A client is a place in it and a filter, not a queue of its
//! own: a thousand that read slowly cost what one costs. One task looks at each commit and wakes those it is for, so a
//! client that waits for one task costs nothing while the others run. Whoever falls behind the ring reads the event log.

mod filter;
mod listeners;
mod page;
mod recent;

use std::sync::{Arc, Mutex, Weak};

use runyard_core::event::Happening;
use runyard_worker::ProgressEvent;
use tokio::sync::{Semaphore, broadcast};
use tokio_util::sync::CancellationToken;

pub use filter::{EventFilter, PROGRESS};
pub use listeners::{Ear, News};
pub use page::{Page, Position};

use self::listeners::Listeners;
use self::page::Gathering;
use self::recent::{Next, Recent};
use crate::app::App;
use crate::problem::Error;

/// Commits that whoever is told of each may fall behind, before it learns that it missed some.
const BEHIND_MAX: usize = 4096;
/// Clients that read the event log at the same time. One commit may be megabytes, and thousands may have fallen behind.
const LOG_READERS_MAX: usize = 4;
/// Commits read from the log in one go.
const LOG_CHUNK: usize = 4;
/// Commits that one page looks at, so that a reader whose filter matches nothing gives way to others.
const LOG_COMMITS_MAX: usize = 1000;

/// What one commit made visible, in order.
#[derive(Debug)]
pub struct Commit {
    pub seq: u64,
    pub happenings: Vec<Happening>,
}

pub struct Feed {
    recent: Mutex<Recent>,
    /// Weak, so that one that does not come to read them keeps nothing in memory.
    commits: broadcast::Sender<Weak<Commit>>,
    listeners: Mutex<Listeners>,
    log_readers: Semaphore,
}

impl Default for Feed {
    fn default() -> Self {
        Feed {
            recent: Mutex::default(),
            commits: broadcast::channel(BEHIND_MAX).0,
            listeners: Mutex::default(),
            log_readers: Semaphore::new(LOG_READERS_MAX),
        }
    }
}

impl Feed {
    pub fn publish(&self, commit: Commit) {
        let commit = Arc::new(commit);
        let told = Arc::downgrade(&commit);
        self.recent.lock().expect("no thread panics while it holds the ring").push(commit);
        // An error only says that nobody listens.
        let _ = self.commits.send(told);
    }

    /// The last commit that was told.
    pub fn last_seq(&self) -> Option<u64> {
        self.recent.lock().expect("no thread panics while it holds the ring").last()
    }

    /// Something may have been committed that nobody told of: everyone looks into the log.
    pub fn missed(&self) {
        self.listeners().tell_all();
    }

    /// Commits from now on. One that is gone, or left out, is in the event log.
    pub fn commits(&self) -> broadcast::Receiver<Weak<Commit>> {
        self.commits.subscribe()
    }

    /// From now on whatever matches is told, but only as news: what it is, a page says.
    pub fn listen(self: &Arc<Self>, filter: EventFilter) -> Ear {
        Ear::new(self.clone(), filter)
    }

    /// What is behind `at` for this filter, as far as one page goes.
    async fn page(&self, app: &App, filter: &Arc<EventFilter>, at: Position) -> Result<Page, Error> {
        match self.page_of_recent(filter, at) {
            Some(page) => Ok(page),
            None => self.page_of_log(app, filter.clone(), at).await,
        }
    }

    /// None when the ring does not reach back so far.
    fn page_of_recent(&self, filter: &EventFilter, at: Position) -> Option<Page> {
        let mut gathering = Gathering::new(at);
        loop {
            let next = self.recent.lock().expect("no thread panics while it holds the ring").next(gathering.wants());
            match next {
                Next::Commit(commit) => gathering.look(filter, commit.seq, &commit.happenings),
                Next::Nothing => return Some(gathering.page_at_the_end()),
                // What has been found so far is a page too; the next one begins with the log.
                Next::Forgotten if gathering.has_moved() => return Some(gathering.page()),
                Next::Forgotten => return None,
            }
            if gathering.is_full() {
                return Some(gathering.page());
            }
        }
    }

    async fn page_of_log(&self, app: &App, filter: Arc<EventFilter>, at: Position) -> Result<Page, Error> {
        let _turn = self.log_readers.acquire().await.map_err(|_| Error::Internal("the log is closed".into()))?;
        let first = self.recent.lock().expect("no thread panics while it holds the ring").first();
        app.read(move |reader| {
            let mut gathering = Gathering::new(at);
            for _ in 0..LOG_COMMITS_MAX / LOG_CHUNK {
                let chunk = reader.happenings(gathering.after(), LOG_CHUNK)?;
                if chunk.is_empty() {
                    // All there is; whatever the ring has beyond it was committed meanwhile.
                    return Ok(gathering.page_at_the_end_of_log(first));
                }
                for (seq, happenings) in chunk {
                    gathering.look(&filter, seq, &happenings);
                    if gathering.is_full() {
                        return Ok(gathering.page());
                    }
                }
            }
            Ok(gathering.page())
        })
        .await
    }

    fn listeners(&self) -> std::sync::MutexGuard<'_, Listeners> {
        self.listeners.lock().expect("no thread panics while it holds the listeners")
    }
}

/// Wakes whom a commit or a progress is for, until `stop`.
pub async fn tell(
    feed: Arc<Feed>,
    mut commits: broadcast::Receiver<Weak<Commit>>,
    mut progress: broadcast::Receiver<ProgressEvent>,
    stop: CancellationToken,
) {
    let mut last_seq = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            commit = commits.recv() => match commit.map(|commit| commit.upgrade()) {
                Ok(Some(commit)) => {
                    // Commits with happenings are numbered without gaps: one left out was not told (a tick that failed
                    // behind its commit tells nobody).
                    let is_next = last_seq.is_some_and(|last| commit.seq == last + 1);
                    if is_next { feed.listeners().tell(&commit) } else { feed.listeners().tell_all() }
                    last_seq = Some(commit.seq);
                }
                Ok(None) | Err(broadcast::error::RecvError::Lagged(_)) => feed.listeners().tell_all(),
                Err(broadcast::error::RecvError::Closed) => return,
            },
            event = progress.recv() => match event {
                Ok(event) => feed.listeners().tell_progress(&event),
                // What was missed is overtaken by what comes.
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return,
            },
        }
    }
}
