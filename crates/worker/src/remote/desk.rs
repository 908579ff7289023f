//! Where the worker's reports arrive, and whoever is to pass them on is told.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use runyard_core::event::{Event, Held};
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;

use super::ledger::{Due, Ledger, attempt_of};
use crate::link::Link;
use crate::worker::Worker;

#[derive(Default)]
pub(super) struct Desk {
    ledger: Mutex<Ledger>,
    news: Notify,
}

impl Desk {
    pub(super) fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("no thread panics while it holds the ledger")
    }

    pub(super) fn tell(&self, change: impl FnOnce(&mut Ledger)) {
        change(&mut self.lock());
        self.news.notify_one();
    }

    /// Waits until a letter is to be written.
    pub(super) async fn is_due(self: Arc<Self>) {
        loop {
            let due = self.lock().due(Instant::now());
            match due {
                Due::Now => return,
                Due::At(at) => {
                    let _ = tokio::time::timeout_at(at.into(), self.news.notified()).await;
                }
                Due::Never => self.news.notified().await,
            }
        }
    }
}

/// The worker's end of it.
pub(super) struct DeskLink(pub(super) Arc<Desk>);

impl Link for DeskLink {
    fn report(&self, events: Vec<Event>) {
        self.0.tell(|ledger| events.into_iter().for_each(|event| ledger.take(event)));
    }

    fn log_grew(&self, lease: Held, log_bytes: u64) {
        self.0.tell(|ledger| ledger.log_grew(lease, log_bytes));
    }
}

/// Progress of what runs, as it comes.
pub(super) fn spawn_progress(worker: &Worker, desk: &Arc<Desk>) -> JoinHandle<()> {
    let (worker, desk, mut events) = (worker.clone(), desk.clone(), worker.subscribe_progress());
    tokio::spawn(async move {
        loop {
            match events.recv().await {
                Ok(event) => {
                    let lease =
                        worker.held().into_iter().find(|lease| attempt_of(*lease) == (event.task, event.attempt));
                    if let Some(lease) = lease {
                        desk.tell(|ledger| ledger.progress(lease, event.progress));
                    }
                }
                // What was missed is overtaken by what comes.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    })
}
