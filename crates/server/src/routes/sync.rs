//! The one call in which a worker says and hears everything: reports are committed before it is answered, and without
//! anything to answer it waits.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use runyard_core::event::{Answer, Event, Fault, Held, Report};
use runyard_core::ids::{TaskId, WorkerId};
use runyard_core::name::Blob;
use runyard_core::session::Usage;
use runyard_core::task::{Class, Text};
use runyard_core::worker::{Sync, Vitals, WorkerAct, WorkerAnswer, WorkerRefusal};
use runyard_exec::process::supervise::{ExitFacts, keep_exit};
use runyard_exec::result::RESULT_BYTES_MAX;
use runyard_wire::{
    self as wire, FaultOf, HeldLease, Id, InputOrder, LeaseRef, LogTaken, Problem, RefusedReport, StopOrder,
    SyncAnswer, SyncRequest, Token, UsageView, WorkDone, WorkEnd, WorkOutcome,
};
use runyard_worker::Progress;

use super::apart::apart;
use super::extract::{BATCH_BODY_BYTES_MAX, Body, WorkerPath};
use super::tasks::unexpected;
use super::workers::refused;
use crate::app::{App, to_its_end};
use crate::clock;
use crate::desk::{Chunk, Look, Mail, Said, Workshop, held, held_of, store_logs};
use crate::ground;
use crate::handle::Unavailable;
use crate::problem::{Error, Invalid};
use crate::workers::vitals;

const WAIT_MS: u64 = 10_000;
const WAIT_MS_MAX: u64 = 30_000;
const MESSAGE_CHARS_MAX: usize = 4000;

/// A worker says all it has to say, and hears what there is for it; when that is nothing, it waits for a while.
#[utoipa::path(post, path = "/v1/workers/{id}/sync", tag = "workers", params(("id" = Id, Path)),
    request_body = SyncRequest,
    responses((status = 200, description = "Everything is stored, or named as refused; what is to be done", body = SyncAnswer),
              (status = 404, description = "It was removed, and has to join anew", content_type = "application/problem+json",
               body = Problem),
              (status = 409, description = "Another process speaks for it: it is to stop everything and end",
               content_type = "application/problem+json", body = Problem)))]
pub async fn sync(
    State(app): State<Arc<App>>,
    WorkerPath(worker): WorkerPath,
    body: Body<SyncRequest, BATCH_BODY_BYTES_MAX>,
) -> Result<Json<SyncAnswer>, Error> {
    let session = app.roster.session(worker).ok_or(Error::WorkerNotFound(worker))?;
    let word = Word::read(body.value)?;
    if session != word.session {
        return Err(Error::Fenced);
    }
    let wait = word.wait(&app);
    let heartbeat_ms = app.config.current().config.workers.heartbeat_ms;
    let heard = app.clone();
    let (mut answer, is_latest) = to_its_end(async move {
        let turn = heard.desk.turn(worker);
        let _alone = turn.lock().await;
        let mut answer = SyncAnswer { heartbeat_ms, ..SyncAnswer::default() };
        let is_latest = heard.desk.is_latest(worker, word.session, word.seq);
        match is_latest {
            true => hear(&heard, worker, word, &mut answer).await?,
            false => hear_late(&heard, worker, word, &mut answer).await?,
        }
        Ok((answer, is_latest))
    })
    .await?;
    if !is_latest {
        return Ok(Json(answer));
    }
    // What it wants to know at once is not made to wait.
    let wait = if answer.refused.is_empty() && answer.logged.is_empty() { wait } else { Duration::ZERO };
    let mail = mail_within(&app, worker, wait).await;
    // Whoever holds the lease now gives the orders; what lies here is not for anybody any more.
    if !app.holds() {
        return Err(Unavailable::NotHolder.into());
    }
    if let Some(mail) = mail {
        fill(&app, worker, mail, &mut answer);
    }
    Ok(Json(answer))
}

/// What a worker has said, in the scheduler's words.
struct Word {
    session: u64,
    seq: Option<u64>,
    leaves: bool,
    vitals: Vitals,
    metrics: Option<wire::MachineMetrics>,
    said: Said,
    reports: Vec<(Held, Report)>,
    logs: Vec<Chunk>,
    progress: Vec<(Held, Progress)>,
    exits: Vec<(Held, wire::WorkExit)>,
    wait_ms: u64,
}

impl Word {
    fn read(request: SyncRequest) -> Result<Word, Invalid> {
        let wait_ms = request.wait_ms.unwrap_or(WAIT_MS);
        if wait_ms > WAIT_MS_MAX {
            return Err(Invalid::new("waitMs", format!("must be from 0 to {WAIT_MS_MAX}")));
        }
        let vitals = vitals(&request)?;
        let mut reports = Vec::new();
        reports.extend(request.started.iter().map(|lease| (held(*lease), Report::Started)));
        reports.extend(request.alive.iter().map(|lease| (held(*lease), Report::Alive)));
        for input in &request.inputs {
            let lease = HeldLease { task: input.task, attempt: input.attempt, token: input.token };
            reports.push((held(lease), Report::InputTaken { message: TaskId(input.message.0) }));
        }
        let mut said = Said {
            held: request.held.iter().map(|lease| held(*lease)).collect(),
            done: request.done.iter().map(|done| held(done.lease())).collect(),
            inputs: request.inputs.iter().map(|input| TaskId(input.message.0)).collect(),
        };
        // Whoever reports on something has it, or had it until now.
        let others: Vec<Held> = reports.iter().map(|(held, _)| *held).chain(said.done.iter().copied()).collect();
        others.into_iter().for_each(|held| {
            if !said.held.contains(&held) {
                said.held.push(held)
            }
        });
        let exits = request.done.iter().filter_map(|done| Some((held(done.lease()), done.outcome.exit.clone()?)));
        let exits = exits.collect();
        for (at, done) in request.done.into_iter().enumerate() {
            let lease = held(done.lease());
            reports.push((lease, report(done).map_err(|error| error.inside(&format!("done[{at}].outcome")))?));
        }
        Ok(Word {
            session: request.session.0,
            seq: request.seq,
            leaves: request.leaving,
            vitals,
            metrics: request.metrics,
            said,
            reports,
            logs: chunks(request.logs)?,
            progress: request.progress.into_iter().map(progress).collect(),
            exits,
            wait_ms,
        })
    }

    /// Never longer than a heartbeat: who waits is not heard.
    fn wait(&self, app: &App) -> Duration {
        let heartbeat_ms = app.config.current().config.workers.heartbeat_ms;
        match self.leaves || !self.said.done.is_empty() || !self.said.inputs.is_empty() {
            // A worker that says goodbye, or wants to forget what it has reported, is not made to wait.
            true => Duration::ZERO,
            false => Duration::from_millis(self.wait_ms.min(heartbeat_ms)),
        }
    }
}

fn chunks(logs: Vec<wire::LogChunk>) -> Result<Vec<Chunk>, Invalid> {
    let chunk = |(at, chunk): (usize, wire::LogChunk)| {
        let lease = HeldLease { task: chunk.task, attempt: chunk.attempt, token: chunk.token };
        let bytes =
            STANDARD.decode(&chunk.data).map_err(|_| Invalid::new(format!("logs[{at}].data"), "is no base64"))?;
        Ok(Chunk { held: held(lease), offset: chunk.offset, bytes })
    };
    logs.into_iter().enumerate().map(chunk).collect()
}

fn progress(note: wire::ProgressNote) -> (Held, Progress) {
    let lease = HeldLease { task: note.task, attempt: note.attempt, token: note.token };
    (held(lease), Progress::said(note.fraction, note.message))
}

fn report(done: WorkDone) -> Result<Report, Invalid> {
    let WorkOutcome { state, result, usage, class, message, retry_after_ms, fault, .. } = done.outcome;
    let result = result.map(|result| Blob::from(result.as_str().as_bytes()));
    let usage = usage.map(usage_of);
    let needed = |message: Option<String>| {
        let text = message.ok_or_else(|| Invalid::new("message", format!("is needed for `{state}`")))?;
        Ok::<Text, Invalid>(text.chars().take(MESSAGE_CHARS_MAX).collect::<String>().into())
    };
    if result.as_ref().is_some_and(|result| result.len() > RESULT_BYTES_MAX) {
        // Refused as a whole it would be sent for ever.
        let message = format!("its result is larger than {RESULT_BYTES_MAX} bytes");
        return Ok(failed(Class::Permanent, message.into(), None, usage));
    }
    Ok(match state {
        WorkEnd::Completed => Report::Completed { result, usage },
        WorkEnd::Stopped => Report::Stopped,
        WorkEnd::NotStarted => Report::NotStarted { reason: needed(message)? },
        WorkEnd::Failed => {
            let class = class.ok_or_else(|| Invalid::new("class", "is needed for `failed`"))?;
            let fault = match fault.unwrap_or_default() {
                FaultOf::Work => Fault::Work,
                FaultOf::Worker => Fault::Worker,
            };
            let message = needed(message)?;
            Report::Failed { class: class_of(class)?, message, retry_after_ms, result, usage, fault }
        }
    })
}

fn failed(class: Class, message: Text, result: Option<Blob>, usage: Option<Usage>) -> Report {
    Report::Failed { class, message, retry_after_ms: None, result, usage, fault: Fault::Work }
}

fn class_of(class: wire::Class) -> Result<Class, Invalid> {
    Ok(match class {
        wire::Class::Task => Class::Task,
        wire::Class::Timeout => Class::Timeout,
        wire::Class::Lost => Class::Lost,
        wire::Class::Quota => Class::Quota,
        wire::Class::Permanent => Class::Permanent,
        wire::Class::Deadline => return Err(Invalid::new("class", "whether a deadline is past, the server decides")),
    })
}

fn usage_of(usage: UsageView) -> Usage {
    Usage {
        input_tokens: usage.input_tokens,
        output_tokens: usage.output_tokens,
        context_tokens: usage.context_tokens,
        context_window: usage.context_window,
    }
}

async fn hear(app: &Arc<App>, worker: WorkerId, mut word: Word, answer: &mut SyncAnswer) -> Result<(), Error> {
    if let Some(metrics) = word.metrics.take() {
        app.roster.note(worker, metrics);
    }
    if !app.desk.is_joined(worker) {
        present(app, worker, &word).await?;
    }
    take_output(app, worker, &mut word, answer).await?;
    let reports = std::mem::take(&mut word.reports);
    let refused = match ask(app, worker, word.sync(Joins::No, reports.clone())).await? {
        Ok(refused) => refused,
        // It was given up meanwhile: it fell silent, or the scheduler has reloaded.
        Err(NotJoined) => {
            present(app, worker, &word).await?;
            let again = ask(app, worker, word.sync(Joins::No, reports)).await?;
            again.map_err(|NotJoined| Error::Unavailable(crate::handle::Unavailable::Recovering))?
        }
    };
    app.desk.settle(worker, &word.said);
    if word.leaves {
        app.desk.left(worker);
    }
    answer.refused = refused.into_iter().map(stale).collect();
    Ok(())
}

/// Words that later ones have overtaken on their way. What they report is true of the leases they name; what they do not
/// name may have come to the worker since, so nothing is believed of that.
async fn hear_late(app: &Arc<App>, worker: WorkerId, mut word: Word, answer: &mut SyncAnswer) -> Result<(), Error> {
    take_output(app, worker, &mut word, answer).await?;
    let reports = std::mem::take(&mut word.reports);
    let sync = Sync { leaves: false, vitals: None, ..word.sync(Joins::No, reports) };
    // Who is not there must present itself first, which it does with its latest words.
    let refused = ask(app, worker, sync).await?;
    let refused = refused.map_err(|NotJoined| Error::Unavailable(crate::handle::Unavailable::Recovering))?;
    app.desk.settle_late(worker, &word.said);
    answer.refused = refused.into_iter().map(stale).collect();
    Ok(())
}

/// Logs, progress and exits come first, so that whoever hears of an end finds all of its output.
async fn take_output(app: &App, worker: WorkerId, word: &mut Word, answer: &mut SyncAnswer) -> Result<(), Error> {
    take_logs(app, worker, std::mem::take(&mut word.logs), answer).await?;
    for (held, progress) in std::mem::take(&mut word.progress) {
        if app.desk.holds(worker, held) {
            app.note_progress(held.task, progress);
        }
    }
    keep_exits(app, worker, std::mem::take(&mut word.exits)).await
}

/// It shows what it holds. What it does not, is lost; what is not its own any more, is revoked.
async fn present(app: &Arc<App>, worker: WorkerId, word: &Word) -> Result<(), Error> {
    app.desk.present(worker, &word.said.held);
    let joined = ask(app, worker, Sync { leaves: false, ..word.sync(Joins::Yes, Vec::new()) }).await?;
    match joined {
        Ok(_) if app.desk.joined(worker) => Ok(()),
        // The scheduler has begun anew while it was asked.
        Ok(_) => Err(Unavailable::Recovering.into()),
        Err(NotJoined) => {
            app.desk.left(worker);
            Ok(())
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Joins {
    Yes,
    No,
}

impl Word {
    fn sync(&self, joins: Joins, reports: Vec<(Held, Report)>) -> Sync {
        Sync {
            session: self.session,
            joins: joins == Joins::Yes,
            leaves: self.leaves,
            held: self.said.held.clone(),
            vitals: Some(self.vitals.clone()),
            reports,
        }
    }
}

struct NotJoined;

async fn ask(app: &App, worker: WorkerId, sync: Sync) -> Result<Result<Vec<(TaskId, u32)>, NotJoined>, Error> {
    let act = WorkerAct::Sync(Box::new(sync));
    match app.handle.ask(|ticket| Event::Worker { ticket, worker, act }).await? {
        Answer::Worker(Ok(WorkerAnswer::Synced { refused })) => Ok(Ok(refused)),
        Answer::Worker(Err(WorkerRefusal::NotJoined)) => Ok(Err(NotJoined)),
        Answer::Worker(Err(refusal)) => Err(refused(worker, refusal)),
        _ => Err(unexpected()),
    }
}

async fn take_logs(app: &App, worker: WorkerId, logs: Vec<Chunk>, answer: &mut SyncAnswer) -> Result<(), Error> {
    let (live, stale_logs): (Vec<Chunk>, Vec<Chunk>) =
        logs.into_iter().partition(|chunk| app.desk.holds(worker, chunk.held));
    // Of a lease that does not live nothing is kept, and nothing more is to be sent.
    let passed = stale_logs.iter().map(|chunk| (chunk.held, chunk.offset + chunk.bytes.len() as u64));
    let mut taken: Vec<(Held, u64)> = passed.collect();
    if !live.is_empty() {
        let places = app.worker.places().clone();
        let stored = apart(move || store_logs(&places, live)).await.map_err(not_stored)?;
        stored.iter().for_each(|(held, bytes)| app.desk.note_log(held.task, held.attempt, *bytes));
        taken.extend(stored);
    }
    let logged = |(held, offset): (Held, u64)| LogTaken { task: Id(held.task.0), attempt: held.attempt, offset };
    answer.logged = taken.into_iter().map(logged).collect();
    Ok(())
}

async fn keep_exits(app: &App, worker: WorkerId, mut exits: Vec<(Held, wire::WorkExit)>) -> Result<(), Error> {
    exits.retain(|(held, _)| app.desk.holds(worker, *held));
    if exits.is_empty() {
        return Ok(());
    }
    let places = app.worker.places().clone();
    let ended_at = wire::Timestamp(clock::wall_ms()).to_string();
    let keep = move || {
        exits.into_iter().try_for_each(|(held, exit)| {
            let facts = ExitFacts {
                attempt: held.attempt,
                exit_code: exit.exit_code,
                signal: exit.signal,
                out_of_memory: exit.out_of_memory,
                cpu_seconds: exit.cpu_seconds,
                peak_rss_bytes: exit.peak_rss_bytes,
                wall_ms: exit.wall_ms,
                ended_at: ended_at.clone(),
            };
            keep_exit(&places, held.task.0, facts)
        })
    };
    apart(keep).await.map_err(not_stored)
}

fn not_stored(error: std::io::Error) -> Error {
    tracing::error!(target: "runyard::http", %error, "what a worker told of a run cannot be stored");
    Error::Internal("the log or the exit cannot be stored".into())
}

fn stale((task, attempt): (TaskId, u32)) -> RefusedReport {
    RefusedReport { task: Id(task.0), attempt, status: 409, code: "stale_lease".to_owned() }
}

/// `None` when there was none in this time, or a newer sync has taken this one's place.
/// What may have got lost on its way is sent again after so long.
const SEND_AGAIN_AFTER: Duration = Duration::from_secs(1);

async fn mail_within(app: &App, worker: WorkerId, wait: Duration) -> Option<Mail> {
    let (woken, wait) = match app.desk.look(worker) {
        Look::Mail(mail) => return Some(mail),
        Look::Wait(woken) => (woken, wait),
        Look::Again(woken) => (woken, wait.min(SEND_AGAIN_AFTER)),
    };
    if wait.is_zero() {
        return app.desk.take(worker);
    }
    tokio::select! {
        () = app.stop.cancelled() => None,
        () = tokio::time::sleep(wait) => app.desk.take(worker),
        // Without a word: a newer sync has taken its place.
        woken = woken => woken.ok().and_then(|()| app.desk.take(worker)),
    }
}

fn fill(app: &Arc<App>, worker: WorkerId, mail: Mail, answer: &mut SyncAnswer) {
    let workshop = Workshop { may_run: ground::may_run(app.config.clone()), secrets: app.vault.clone() };
    for start in mail.starts {
        match workshop.order(&start) {
            Ok(order) => {
                let payload = order.payload.as_ref().map(|payload| &*payload.0);
                let uploads = runyard_exec::uploads_named(&order.kind, payload);
                app.desk.note_uploads(held_of(&start), uploads.into_iter().map(|(_, id)| id).collect());
                answer.start.push(order);
            }
            Err(refused) => app.desk.refuse(worker, held_of(&start), refused.report()),
        }
    }
    let stop = |(held, stop): (Held, runyard_core::task::Stop)| StopOrder {
        task: Id(held.task.0),
        attempt: held.attempt,
        token: Token(held.token.0),
        reason: stop.as_str().to_owned(),
    };
    answer.stop = mail.stops.into_iter().map(stop).collect();
    let input = |input: crate::desk::Input| InputOrder {
        task: Id(input.held.task.0),
        attempt: input.held.attempt,
        token: Token(input.held.token.0),
        message: Id(input.message.0),
        text: input.text,
    };
    answer.input = mail.inputs.into_iter().map(input).collect();
    let revoked = |(task, attempt): (TaskId, u32)| LeaseRef { task: Id(task.0), attempt };
    answer.revoked = mail.revokes.into_iter().map(revoked).collect();
}
