//! A worker that shares a process with a server which is not the scheduler, or not any more: it speaks to whichever server
//! is, for as long as that one is. Who it is, its connections prove; so nothing has to be remembered of it, and when the
//! scheduler does not know it, it introduces itself again and stops nothing.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use runyard_core::event::{Event, Held};
use runyard_wire::WorkerRequest;
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::carried::CarriedSecrets;
use super::client::Client;
use super::conversation::{Over, Speaker};
use super::desk::{Desk, spawn_progress};
use super::identity::Identity;
use crate::worker::Worker;

/// What such a worker has still to tell.
#[derive(Default)]
pub struct Attached {
    desk: Arc<Desk>,
}

pub struct AttachedOptions {
    /// Its connections carry the proof of who it is.
    pub http: reqwest::Client,
    pub server: Url,
    /// What it says of itself.
    pub about: WorkerRequest,
    /// What cannot go on without the worker has so long to end when it is told to leave.
    pub drain: Duration,
}

impl Attached {
    pub fn report(&self, events: Vec<Event>) {
        self.desk.tell(|ledger| events.into_iter().for_each(|event| ledger.take(event)));
    }

    pub fn log_grew(&self, lease: Held, log_bytes: u64) {
        self.desk.tell(|ledger| ledger.log_grew(lease, log_bytes));
    }

    /// Whoever is told now is told by other means.
    pub fn clear(&self) {
        self.desk.lock().clear();
    }

    /// Presents what the worker holds and does what is asked of it, until it has said goodbye. Dropped, it says none: the
    /// next server is told everything anew.
    pub async fn speak(&self, worker: &Worker, options: AttachedOptions, leave: &CancellationToken) {
        let client = Arc::new(Client::over(options.http, &options.server));
        let secrets = Arc::new(CarriedSecrets::default());
        let _progress = AbortOnDrop(spawn_progress(worker, &self.desk));
        let mut backoff = Backoff::new();
        loop {
            let mut speaker =
                Speaker::new(client.clone(), worker.clone(), self.desk.clone(), secrets.clone(), options.drain);
            self.desk.lock().clear();
            speaker.present_found();
            match client.join_as_known(&options.about).await {
                Ok(joined) => {
                    backoff.reset();
                    let key = joined.key.unwrap_or_default();
                    client.be(Some(Identity { server: options.server.to_string(), id: joined.id, key }));
                    speaker.pace(joined.heartbeat_ms);
                    match speaker.speak(joined.session, leave).await {
                        Over::SaidGoodbye => return,
                        Over::Unknown(why) => tracing::debug!(why, "introduces itself again"),
                        Over::Fenced => tracing::debug!("introduces itself again: a later call of its own came first"),
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, server = %options.server, "the scheduler does not take this worker yet")
                }
            }
            tokio::select! {
                () = backoff.pause() => {}
                () = leave.cancelled() => return worker.shutdown(options.drain).await,
            }
        }
    }
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
