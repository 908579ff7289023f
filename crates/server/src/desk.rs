//! What lies ready for workers on other machines until they fetch it.
//!
//! ```text
//! scheduler ── start, stop, input, revoke ──► tray of that worker ── its next sync ──► worker
//!                                               ▲                                        │
//!                                               └── what a later sync shows to be known ─┘
//! ```
//! An answer can get lost on its way, so mail is sent again with each sync until the worker shows that it has it. Nothing
//! here is stored: after a recovery of the scheduler every tray is empty, and the workers present themselves again.

mod logs;
mod order;
mod tray;

pub use logs::{Chunk, store_logs};
pub use order::Workshop;
pub use tray::{Input, Mail, Said};

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use runyard_core::event::{Event, Held, Report, Start};
use runyard_core::hash::DetMap;
use runyard_core::ids::{TaskId, Token, WorkerId};
use runyard_core::name::Blob;
use runyard_core::task::Stop;
use runyard_exec::Places;
use runyard_worker::{LogFollow, Progress, ProgressEvent};
use tokio::sync::{Mutex as Turn, oneshot};

use crate::handle::Handle;
use crate::scheduler::Orders;
use tray::Tray;

pub struct Desk {
    link: Handle,
    trays: Mutex<Trays>,
}

#[derive(Default)]
struct Trays {
    of: DetMap<WorkerId, Tray>,
    /// Who has a task, for those who look at its log or its progress.
    holders: DetMap<TaskId, WorkerId>,
}

/// What a sync finds when it looks for mail.
pub enum Look {
    Mail(Mail),
    /// Nothing: this tells when there may be some. Closed without a word, it is to be answered at once, empty.
    Wait(oneshot::Receiver<()>),
    /// As `Wait`, with mail that was sent before and may have got lost: it is sent again soon, and not at once, or a worker
    /// that takes its time to stop something would ask and be answered without a pause.
    Again(oneshot::Receiver<()>),
}

impl Desk {
    pub fn new(link: Handle) -> Desk {
        Desk { link, trays: Mutex::default() }
    }

    /// Syncs of one worker are handled one at a time; their waiting is not.
    pub fn turn(&self, worker: WorkerId) -> Arc<Turn<()>> {
        self.lock().of.entry(worker).or_default().turn.clone()
    }

    /// Is this the latest of its session that has come?
    pub fn is_latest(&self, worker: WorkerId, session: u64, seq: Option<u64>) -> bool {
        self.lock().of.entry(worker).or_default().is_latest(session, seq)
    }

    /// Has it presented what it holds, as far as is known here?
    pub fn is_joined(&self, worker: WorkerId) -> bool {
        self.lock().of.get(&worker).is_some_and(|tray| tray.joined)
    }

    /// It is about to present itself with these leases. What lay ready for it before was meant for who it was then; the
    /// scheduler revokes what it does not hold any more, on its way to the answer.
    pub fn present(&self, worker: WorkerId, held: &[Held]) {
        let mut trays = self.lock();
        let Trays { of, holders } = &mut *trays;
        let tray = of.entry(worker).or_default();
        let earlier: Vec<TaskId> = tray.leases.keys().copied().collect();
        forget(holders, worker, earlier);
        tray.present(held);
        holders.extend(held.iter().map(|held| (held.task, worker)));
    }

    /// Only when it has been answered that it is there. False when what it presented was dropped meanwhile: it has to present
    /// it again, or what it holds would be taken from it.
    pub fn joined(&self, worker: WorkerId) -> bool {
        let mut trays = self.lock();
        let tray = trays.of.entry(worker).or_default();
        tray.joined = tray.presented;
        tray.joined
    }

    pub fn left(&self, worker: WorkerId) {
        self.lock().of.entry(worker).or_default().joined = false;
    }

    /// Does this worker hold this lease?
    pub fn holds(&self, worker: WorkerId, held: Held) -> bool {
        self.lock().of.get(&worker).is_some_and(|tray| tray.holds(held))
    }

    /// What a worker has said, and the scheduler has taken: mail that is thereby known goes. An older sync that still
    /// waits is answered.
    pub fn settle(&self, worker: WorkerId, said: &Said) {
        let mut trays = self.lock();
        let Trays { of, holders } = &mut *trays;
        let Some(tray) = of.get_mut(&worker) else { return };
        tray.poll = None;
        let stopped = tray.settle(said);
        let ended = said.done.iter().chain(&stopped).map(|held| held.task);
        forget(holders, worker, ended.filter(|task| !tray.leases.contains_key(task)));
        drop(trays);
        self.tell(worker, stopped);
    }

    /// What a worker said before its latest words, and the scheduler has taken.
    pub fn settle_late(&self, worker: WorkerId, said: &Said) {
        let mut trays = self.lock();
        let Trays { of, holders } = &mut *trays;
        let Some(tray) = of.get_mut(&worker) else { return };
        tray.settle_late(said);
        let ended = said.done.iter().map(|held| held.task);
        forget(holders, worker, ended.filter(|task| !tray.leases.contains_key(task)));
    }

    /// What there is for this worker, or a place to wait for it.
    pub fn look(&self, worker: WorkerId) -> Look {
        let mut trays = self.lock();
        let tray = trays.of.entry(worker).or_default();
        if tray.has_news()
            && let Some(mail) = tray.mail()
        {
            return Look::Mail(mail);
        }
        let (sender, receiver) = oneshot::channel();
        // One that waited before is answered by this.
        tray.poll = Some(sender);
        if tray.has_old_mail() { Look::Again(receiver) } else { Look::Wait(receiver) }
    }

    /// All that lies ready, sent before or not.
    pub fn take(&self, worker: WorkerId) -> Option<Mail> {
        self.lock().of.get_mut(&worker).and_then(Tray::mail)
    }

    /// A start that cannot be handed out ends where it is.
    pub fn refuse(&self, worker: WorkerId, held: Held, report: Report) {
        self.drop_lease(worker, held);
        self.link.tell([report_event(worker, held, report)]);
    }

    /// Another process speaks for it from now on: what lies ready was not meant for that one.
    pub fn clear(&self, worker: WorkerId) {
        let mut trays = self.lock();
        let Trays { of, holders } = &mut *trays;
        if let Some(tray) = of.get_mut(&worker) {
            forget(holders, worker, tray.leases.keys().copied());
            tray.reset();
        }
    }

    /// It is gone for good.
    pub fn remove(&self, worker: WorkerId) {
        self.clear(worker);
        self.lock().of.remove(&worker);
    }

    /// The scheduler has dropped all it believed: whoever waits is answered, and presents itself again.
    pub fn clear_all(&self) {
        let mut trays = self.lock();
        trays.of.values_mut().for_each(Tray::reset);
        trays.holders.clear();
    }

    /// These files belong to what it was just handed.
    pub fn note_uploads(&self, held: Held, uploads: Vec<u128>) {
        self.with_lease(held.task, |lease| lease.uploads = uploads);
    }

    pub fn names_upload(&self, task: TaskId, upload: u128) -> bool {
        self.with_lease(task, |lease| lease.uploads.contains(&upload)).unwrap_or(false)
    }

    pub fn note_log(&self, task: TaskId, attempt: u32, log_bytes: u64) {
        self.with_lease(task, |lease| {
            if lease.held.attempt == attempt {
                lease.log_bytes.send_if_modified(|bytes| std::mem::replace(bytes, log_bytes) != log_bytes);
            }
        });
    }

    pub fn follow_log(&self, task: TaskId, places: &Places) -> Option<LogFollow> {
        self.with_lease(task, |lease| {
            let attempt = lease.held.attempt;
            LogFollow { attempt, path: places.log_file(task.0, attempt), bytes: lease.log_bytes.subscribe() }
        })
    }

    pub fn progress(&self, task: TaskId) -> Option<Progress> {
        self.with_lease(task, |lease| lease.progress.clone()).flatten()
    }

    /// What is to be told of it; `None` for a task that no worker elsewhere has.
    pub fn note_progress(&self, task: TaskId, progress: &Progress) -> Option<ProgressEvent> {
        self.with_lease(task, |lease| {
            let earlier = lease.progress.take().unwrap_or_default();
            // A message alone does not take the fraction back, nor the other way round.
            let merged = Progress {
                fraction: progress.fraction.or(earlier.fraction),
                message: progress.message.clone().or(earlier.message),
            };
            lease.progress = Some(merged.clone());
            ProgressEvent { task, attempt: lease.held.attempt, progress: merged }
        })
    }

    fn with_lease<T>(&self, task: TaskId, look: impl FnOnce(&mut tray::Lease) -> T) -> Option<T> {
        let mut trays = self.lock();
        let worker = *trays.holders.get(&task)?;
        trays.of.get_mut(&worker)?.leases.get_mut(&task).map(look)
    }

    fn drop_lease(&self, worker: WorkerId, held: Held) {
        let mut trays = self.lock();
        let Trays { of, holders } = &mut *trays;
        if let Some(tray) = of.get_mut(&worker) {
            tray.end(held);
            forget(holders, worker, Some(held.task).filter(|task| !tray.leases.contains_key(task)));
        }
    }

    fn tell(&self, worker: WorkerId, stopped: Vec<Held>) {
        if !stopped.is_empty() {
            self.link.tell(stopped.into_iter().map(|held| report_event(worker, held, Report::Stopped)));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Trays> {
        self.trays.lock().expect("no thread panics while it holds the trays")
    }
}

/// Unless another worker has it by now.
fn forget(holders: &mut DetMap<TaskId, WorkerId>, worker: WorkerId, tasks: impl IntoIterator<Item = TaskId>) {
    for task in tasks {
        if holders.get(&task) == Some(&worker) {
            holders.remove(&task);
        }
    }
}

fn report_event(worker: WorkerId, held: Held, report: Report) -> Event {
    Event::Report { worker, task: held.task, attempt: held.attempt, token: held.token, report }
}

/// On the scheduler's thread, after the commit.
impl Orders for Desk {
    fn start(&self, starts: Vec<Start>, _: Option<Instant>) {
        let mut trays = self.lock();
        for start in starts {
            let (worker, task) = (start.worker, start.task);
            trays.holders.insert(task, worker);
            trays.of.entry(worker).or_default().start(start);
        }
    }

    fn stop(&self, worker: WorkerId, held: Held, stop: Stop) {
        let mut trays = self.lock();
        let Trays { of, holders } = &mut *trays;
        let tray = of.entry(worker).or_default();
        let stopped = tray.stop(held, stop);
        forget(holders, worker, stopped.map(|held| held.task));
        drop(trays);
        self.tell(worker, stopped.into_iter().collect());
    }

    fn input(&self, worker: WorkerId, held: Held, message: TaskId, spec: Blob) {
        match runyard_worker::input_of(&spec) {
            Ok(text) => self.lock().of.entry(worker).or_default().input(Input { held, message, text }),
            Err(error) => {
                tracing::warn!(task = ?held.task, ?message, %error, "a message cannot be read, and is not handed over");
            }
        }
    }

    fn revoke(&self, worker: WorkerId, task: TaskId, attempt: u32) {
        let mut trays = self.lock();
        let Trays { of, holders } = &mut *trays;
        let tray = of.entry(worker).or_default();
        tray.revoke(task, attempt);
        forget(holders, worker, Some(task).filter(|task| !tray.leases.contains_key(task)));
    }
}

pub fn held_of(start: &Start) -> Held {
    Held { task: start.task, attempt: start.attempt, token: start.token }
}

pub fn held(lease: runyard_wire::HeldLease) -> Held {
    Held { task: TaskId(lease.task.0), attempt: lease.attempt, token: Token(lease.token.0) }
}
