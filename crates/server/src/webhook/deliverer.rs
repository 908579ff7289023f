//! The loop behind the outbox: one task that decides, others that only send.
//!
//! A row is read when it is due, stays in the window until the store knows what became of it, and is never in the window
//! twice. Writes gather while one is on its way, so that a hundred outcomes are one event in one commit.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use runyard_core::event::Event;
use runyard_core::now::WallMs;
use runyard_core::outbox::{Delivery, DeliveryChange, DeliveryId, DeliveryState, Progress, Recipient, Try};
use runyard_exec::guard::GuardedClient;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::message::{Aim, aim, body, message_id, owner, secrets_for};
use super::schedule::next_try;
use super::send::{Outcome, Outgoing, Sent, post};
use super::window::{Job, Taken, Window};
use crate::app::App;
use crate::clock;
use crate::handle::{Readiness, Unavailable};
use crate::problem::Error;
use crate::secrets;

/// Rows read at a time.
const PAGE: usize = 256;
/// The latest tries that a row tells of.
const TRIES_KEPT: usize = 10;
/// What cannot be read or written now (the store is being recovered) is tried again.
const PAUSE: Duration = Duration::from_millis(500);
/// Without news it still looks now and then: a clock that was set forward makes rows due that nobody spoke of.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// A stopping server waits so long for what is on its way; what comes later is sent again by the next one.
const STOP_MAX: Duration = Duration::from_secs(2);

pub struct Deliverer {
    app: Arc<App>,
    /// Made with the first message: reading the system's certificates takes longer than a server may take to start.
    client: Arc<OnceLock<GuardedClient>>,
    window: Window,
    changes: Vec<DeliveryChange>,
    is_writing: bool,
    news: (mpsc::UnboundedSender<News>, mpsc::UnboundedReceiver<News>),
}

/// Sending and writing happen elsewhere; this is what comes back. Bounded by the window.
enum News {
    Sent(Box<Job>, Result<Sent, String>),
    Written(Vec<DeliveryId>),
}

impl Deliverer {
    fn new(app: Arc<App>) -> Deliverer {
        Deliverer {
            app,
            client: Arc::default(),
            window: Window::default(),
            changes: Vec::new(),
            is_writing: false,
            news: mpsc::unbounded_channel(),
        }
    }

    /// While this server has the scheduler, until it stops.
    pub async fn run(app: Arc<App>) {
        let mut readiness = app.handle.readiness();
        while !app.stop.is_cancelled() {
            let waiting = readiness.wait_for(|readiness| *readiness != Readiness::Following);
            tokio::select! {
                () = app.stop.cancelled() => return,
                waited = waiting => if waited.is_err() { return },
            }
            let mut over = app.handle.readiness();
            tokio::select! {
                () = Deliverer::new(app.clone()).send_until(app.stop.clone()) => {}
                // What is on its way is told to nobody here: the next holder sends it again.
                _ = over.wait_for(|readiness| *readiness == Readiness::Following) => {}
            }
        }
    }

    async fn send_until(mut self, stop: CancellationToken) {
        if let Err(error) = self.make_secret().await {
            if !self.app.stop.is_cancelled() {
                tracing::error!(target: "runyard::webhook", "no webhook is sent without a secret: {error}");
            }
            return stop.cancelled().await;
        }
        let posted = self.app.webhooks.posted.clone();
        let mut look_at = Instant::now();
        loop {
            if look_at <= Instant::now() {
                look_at = Instant::now() + self.look().await;
            }
            self.send_ready();
            self.write();
            tokio::select! {
                () = stop.cancelled() => break,
                Some(news) = self.news.1.recv() => {
                    let mut changed = self.hear(news);
                    while let Ok(more) = self.news.1.try_recv() {
                        changed |= self.hear(more);
                    }
                    if changed {
                        look_at = Instant::now();
                    }
                }
                () = posted.notified() => look_at = Instant::now(),
                () = tokio::time::sleep_until(look_at) => {}
            }
        }
        let _ = tokio::time::timeout(STOP_MAX, self.finish()).await;
    }

    /// What is on its way comes back and is written; nothing new is sent.
    async fn finish(&mut self) {
        while self.window.n_inflight() > 0 || self.is_writing || !self.changes.is_empty() {
            self.write();
            match self.news.1.recv().await {
                Some(news) => drop(self.hear(news)),
                None => return,
            }
        }
    }

    /// Nothing is signed before what signs it is kept.
    async fn make_secret(&self) -> Result<(), Unavailable> {
        loop {
            match self.app.webhooks.own(&self.app.handle).await {
                Ok(_) => return Ok(()),
                Err(secrets::Error::Unavailable(Unavailable::Stopped)) => return Err(Unavailable::Stopped),
                Err(secrets::Error::Unavailable(_)) => {}
                Err(error) => {
                    tracing::error!(target: "runyard::webhook", "webhooks wait for a secret to sign with: {error}");
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    // ── Reading ─────────────────────────────────────────────────────────────────────────────────────────────────

    /// Takes what is due into the window. Gives how long nothing else will be due.
    async fn look(&mut self) -> Duration {
        let mut after = None;
        // A full window has room again after a write, which is news.
        while !self.window.is_full() {
            let now_ms = clock::wall_ms();
            let page = match self.due(after, now_ms).await {
                Ok(page) => page,
                Err(error) => {
                    tracing::warn!(target: "runyard::webhook", "the outbox cannot be read: {error}");
                    return PAUSE;
                }
            };
            let Page { rows, next_at, last } = page;
            for row in rows {
                if self.window.is_full() {
                    return LOOK_EVERY;
                }
                self.take(row, now_ms);
            }
            match (next_at, last) {
                (Some(next_at), _) => return Duration::from_millis(next_at.saturating_sub(now_ms)).min(LOOK_EVERY),
                (None, Some(last)) => after = Some(last),
                (None, None) => return LOOK_EVERY,
            }
        }
        LOOK_EVERY
    }

    /// One page of rows whose time has come, each with where it goes; those in the window apart.
    async fn due(&self, after: Option<(WallMs, DeliveryId)>, now_ms: WallMs) -> Result<Page, Error> {
        let app = self.app.clone();
        let busy: HashSet<DeliveryId> = self.window.busy().collect();
        self.app
            .read(move |reader| {
                let config = app.config.current();
                let due = reader.deliveries_due(after, PAGE)?;
                let last = due.last().filter(|_| due.len() == PAGE).and_then(|row| Some((row.next_at()?, row.id)));
                let mut page = Page { rows: Vec::new(), next_at: None, last };
                for delivery in due {
                    if let Some(at) = delivery.next_at().filter(|at| *at > now_ms) {
                        page.next_at = Some(at);
                        break;
                    }
                    if !busy.contains(&delivery.id) {
                        let aim = aim(&config.config, reader, &delivery)?;
                        let owner = owner(reader, &delivery)?;
                        page.rows.push(Row { delivery, aim, owner });
                    }
                }
                Ok(page)
            })
            .await
    }

    fn take(&mut self, Row { delivery, aim, owner }: Row, now_ms: WallMs) {
        match aim {
            Aim::At(url) => {
                let progress = delivery.progress.clone();
                let id = delivery.id;
                if let Taken::Postponed(at) = self.window.take(Job { delivery, url, owner }, now_ms) {
                    self.postpone(id, progress, at);
                }
            }
            Aim::Split(each) => {
                self.window.mark_busy(delivery.id);
                self.changes.push(split(delivery, each));
            }
            Aim::Lost(why) => {
                self.window.mark_busy(delivery.id);
                let tried = Try { at_ms: now_ms, took_ms: 0, status: None, error: why.into() };
                let progress = after_try(delivery.progress, tried, DeliveryState::GivenUp);
                self.app.metrics.webhooks.given_up.inc();
                self.change(delivery.id, progress);
            }
        }
    }

    /// Looked at again then; it costs no try. One whose patience is over by then is given up.
    fn postpone(&mut self, id: DeliveryId, progress: Progress, at: WallMs) {
        let now_ms = clock::wall_ms();
        let Some(_) = next_try(id, progress.n_tries, progress.since_ms, now_ms, None) else {
            let error = "its receiver did not answer for a day".into();
            let tried = Try { at_ms: now_ms, took_ms: 0, status: None, error };
            self.app.metrics.webhooks.given_up.inc();
            return self.change(id, after_try(progress, tried, DeliveryState::GivenUp));
        };
        self.app.metrics.webhooks.postponed.inc();
        self.change(id, Progress { state: DeliveryState::Pending { next_at: at }, ..progress });
    }

    // ── Sending ─────────────────────────────────────────────────────────────────────────────────────────────────

    fn send_ready(&mut self) {
        for job in self.window.ready(clock::wall_ms()) {
            let (app, client, news) = (self.app.clone(), self.client.clone(), self.news.0.clone());
            tokio::spawn(async move {
                let sent = send(&app, &client, &job).await;
                // The loop is gone when the server is.
                let _ = news.send(News::Sent(Box::new(job), sent));
            });
        }
        self.app.metrics.webhooks.targets_shut.set(self.window.n_targets_open() as i64);
    }

    /// True when the store has changed, and with it what is due.
    fn hear(&mut self, news: News) -> bool {
        match news {
            News::Written(ids) => {
                self.is_writing = false;
                self.window.release(&ids);
                true
            }
            News::Sent(job, sent) => {
                self.sent(*job, sent);
                false
            }
        }
    }

    fn sent(&mut self, job: Job, sent: Result<Sent, String>) {
        let now_ms = clock::wall_ms();
        let shut_out = self.window.returned(&job, sent.as_ref().ok().map(|sent| &sent.outcome), now_ms);
        for (job, at) in shut_out {
            self.postpone(job.delivery.id, job.delivery.progress, at);
        }
        let Delivery { id, progress, .. } = job.delivery;
        match sent {
            Ok(sent) => {
                self.app.metrics.webhooks.observe(&sent);
                let progress = self.judged(id, progress, sent, now_ms);
                self.change(id, progress);
            }
            // Nothing was sent, because it could not be read: that is nobody's try.
            Err(error) => {
                tracing::warn!(target: "runyard::webhook", delivery = id.0, "a message cannot be made: {error}");
                self.postpone(id, progress, now_ms + PAUSE.as_millis() as u64);
            }
        }
    }

    fn judged(&self, id: DeliveryId, progress: Progress, sent: Sent, now_ms: WallMs) -> Progress {
        let (error, state) = match sent.outcome {
            Outcome::Taken => (String::new(), DeliveryState::Delivered),
            Outcome::Gone => ("HTTP 410 Gone: it wants no more of this".to_owned(), DeliveryState::GivenUp),
            Outcome::Failed { error, retry_after_ms, .. } => {
                let next = next_try(id, progress.n_tries + 1, progress.since_ms, now_ms, retry_after_ms);
                (error, next.map_or(DeliveryState::GivenUp, |next_at| DeliveryState::Pending { next_at }))
            }
        };
        if state == DeliveryState::GivenUp {
            self.app.metrics.webhooks.given_up.inc();
            tracing::warn!(target: "runyard::webhook", delivery = id.0, error, "a message is given up");
        }
        let tried = Try { at_ms: sent.at_ms, took_ms: sent.took_ms, status: sent.status, error: error.into() };
        let progress = after_try(progress, tried, state);
        Progress { n_tries: progress.n_tries + 1, ..progress }
    }

    // ── Writing ─────────────────────────────────────────────────────────────────────────────────────────────────

    fn change(&mut self, id: DeliveryId, progress: Progress) {
        self.changes.push(DeliveryChange { id, progress, others: Vec::new(), happening: None });
    }

    /// One event at a time. Whether or not its commit succeeds, the rows are then what the store says they are.
    fn write(&mut self) {
        if self.is_writing || self.changes.is_empty() {
            return;
        }
        self.is_writing = true;
        let changes = std::mem::take(&mut self.changes);
        let ids: Vec<DeliveryId> = changes.iter().map(|change| change.id).collect();
        let (app, news) = (self.app.clone(), self.news.0.clone());
        tokio::spawn(async move {
            let written = app.handle.ask(|ticket| Event::Deliveries { ticket: Some(ticket), changes }).await;
            if let Err(error) = written {
                tracing::warn!(target: "runyard::webhook", "outcomes of tries could not be written: {error}");
                // Unwritten rows are still due: not at once, or a store that is down would be asked in a circle.
                tokio::time::sleep(PAUSE).await;
            }
            let _ = news.send(News::Written(ids));
        });
    }
}

struct Row {
    delivery: Delivery,
    aim: Aim,
    owner: String,
}

struct Page {
    rows: Vec<Row>,
    /// The first row whose time has not come.
    next_at: Option<WallMs>,
    /// Where the next page begins, if there may be one.
    last: Option<(WallMs, DeliveryId)>,
}

/// The row goes on as the first of them, the others become rows of their own.
fn split(delivery: Delivery, mut each: Vec<Recipient>) -> DeliveryChange {
    let first = each.remove(0);
    let progress = Progress { to: first, ..delivery.progress };
    DeliveryChange { id: delivery.id, progress, others: each, happening: Some(delivery.happening) }
}

fn after_try(mut progress: Progress, tried: Try, state: DeliveryState) -> Progress {
    progress.state = state;
    progress.tries.push(tried);
    let n_over = progress.tries.len().saturating_sub(TRIES_KEPT);
    progress.tries.drain(..n_over);
    progress
}

async fn send(app: &App, client: &OnceLock<GuardedClient>, job: &Job) -> Result<Sent, String> {
    let client = match client.get() {
        Some(client) => client,
        None => {
            let made = app.config.guard().client().map_err(|error| error.to_string())?;
            client.get_or_init(|| made)
        }
    };
    let (body, traceparent) = body(app, &job.delivery).await.map_err(|error| error.to_string())?;
    let (id, secrets) = match secrets_for(app, &job.delivery) {
        Ok(secrets) => (message_id(&job.delivery), secrets),
        Err(error) => {
            tracing::error!(target: "runyard::webhook", delivery = job.delivery.id.0, "{error}");
            return Ok(Sent::not_called(error));
        }
    };
    Ok(post(client, Outgoing { url: job.url.clone(), id, secrets, body, traceparent }).await)
}
