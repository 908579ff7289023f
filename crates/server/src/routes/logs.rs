//! A task's output, as plain text or as events, also while it is written.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::sse::{Event as SseEvent, KeepAlive};
use axum::response::{IntoResponse, Response, Sse};
use futures_util::StreamExt;
use runyard_core::ids::TaskId;
use runyard_exec::log::{Line, Stream};
use runyard_wire::{Id, LogLine, LogStream, Timestamp};
use serde::Deserialize;
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::events::{HEARTBEAT, channel};
use super::extract::{Params, TaskPath};
use super::tasks::{own_doc, task_doc};
use crate::access::Caller;
use crate::app::App;
use crate::edge::StreamPass;
use crate::problem::{Error, Invalid};

const READ_BYTES: usize = 256 * 1024;
/// A chunk is as large as what is read, so a client that does not read holds two of them: one here, one on its way.
const AHEAD_MAX: usize = 1;

#[derive(Deserialize, IntoParams, Default)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct LogParams {
    /// `true`: stay until the task has ended.
    follow: bool,
    /// One attempt only; default: all of them, in order.
    attempt: Option<u32>,
    /// The id of the last line seen, as Last-Event-ID.
    after: Option<String>,
}

/// The output of a task: as events with `Accept: text/event-stream`, else as plain text.
#[utoipa::path(get, path = "/v1/tasks/{id}/logs", tag = "tasks", params(("id" = Id, Path), LogParams),
    responses((status = 200, description = "Its output", content((String = "text/plain"), (LogLine = "text/event-stream")))))]
pub async fn logs(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    TaskPath(id): TaskPath,
    headers: HeaderMap,
    Params(params): Params<LogParams>,
) -> Result<Response, Error> {
    let doc = own_doc(&app, &caller, id).await?;
    let header = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let after = header.or(params.after.as_deref()).map(Place::parse).transpose()?;
    let first = Place { attempt: params.attempt.unwrap_or(1), offset: 0 };
    let at = after.unwrap_or(first);
    if params.attempt.is_some_and(|attempt| attempt == 0 || attempt > doc.task.attempt.max(1)) {
        return Err(Error::NotFound { what: "attempt", id: params.attempt.unwrap_or(0).to_string() });
    }
    let pass = app.stream(&caller)?;
    let revoked = pass.revoked();
    let (to, from) = mpsc::channel(AHEAD_MAX);
    let tail = Tail { _pass: pass, app, task: id, only: params.attempt, at, follow: params.follow, to };
    tokio::spawn(tail.run());
    let chunks = channel(from).take_until(revoked);
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    if accept.contains("text/event-stream") {
        let events =
            chunks.flat_map(|chunk: Chunk| futures_util::stream::iter(chunk.into_events())).map(Ok::<_, Infallible>);
        return Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response());
    }
    let text = chunks.map(|chunk: Chunk| Ok::<_, Infallible>(chunk.into_text()));
    let mut response = Body::from_stream(text).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    Ok(response)
}

/// Which attempt's log, and how far into it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place {
    attempt: u32,
    offset: u64,
}

impl Place {
    fn parse(text: &str) -> Result<Place, Invalid> {
        let parts =
            text.split_once('-').and_then(|(attempt, offset)| Some((attempt.parse().ok()?, offset.parse().ok()?)));
        let (attempt, offset) = parts.ok_or_else(|| Invalid::new("after", "a log position looks like 1-4096"))?;
        Ok(Place { attempt, offset })
    }
}

/// Lines read in one go, and where the next ones are.
struct Chunk {
    lines: Vec<Line>,
    attempt: u32,
    next: Place,
}

impl Chunk {
    fn into_text(self) -> Bytes {
        let mut text = String::new();
        for line in self.lines {
            text.push_str(&line.text);
            if line.ends {
                text.push('\n');
            }
        }
        Bytes::from(text)
    }

    /// Only the last line of a chunk has an id: a client that comes back goes on at a place that can be read from.
    fn into_events(self) -> Vec<SseEvent> {
        let last = self.lines.len().saturating_sub(1);
        let id = format!("{}-{}", self.next.attempt, self.next.offset);
        let event = |(at, line): (usize, Line)| {
            let view = log_line(line, self.attempt);
            let event =
                SseEvent::default().event("log").data(serde_json::to_string(&view).expect("a line is plain data"));
            if at == last { event.id(&id) } else { event }
        };
        self.lines.into_iter().enumerate().map(event).collect()
    }
}

fn log_line(line: Line, attempt: u32) -> LogLine {
    let stream = match line.stream {
        Stream::Stdout => LogStream::Stdout,
        Stream::Stderr => LogStream::Stderr,
        Stream::System => LogStream::Note,
    };
    LogLine { stream, at: Timestamp(line.at_ms), text: line.text, attempt }
}

/// Reads the logs of a task's attempts one after the other.
struct Tail {
    _pass: StreamPass,
    app: Arc<App>,
    task: TaskId,
    only: Option<u32>,
    at: Place,
    follow: bool,
    to: mpsc::Sender<Chunk>,
}

/// Why a tail ends before the task: the client is gone, or the log cannot be read.
struct Ended;

impl Tail {
    async fn run(mut self) {
        let app = self.app.clone();
        let mut waiter = app.waiters.watch(self.task);
        loop {
            // Taken before the rest is read: what is written in between wakes the wait below.
            let follow = app.follow_log(self.task).filter(|follow| follow.attempt == self.at.attempt);
            let seen = follow.as_ref().map_or(0, |follow| *follow.bytes.borrow());
            let Ok(doc) = task_doc(&app, self.task).await else { return };
            let (attempt, phase) = (doc.task.attempt, doc.task.phase());
            // With its payload it may be a megabyte, and this may wait for long.
            drop(doc);
            let attempt_ended = self.at.attempt < attempt || !phase.is_held();
            if attempt_ended && self.at.offset == 0 {
                app.bring_log(self.task, self.at.attempt).await;
            }
            if self.read_rest().await.is_err() {
                return;
            }
            if self.at.attempt < attempt && self.only.is_none() {
                self.at = Place { attempt: self.at.attempt + 1, offset: 0 };
                continue;
            }
            let over = phase.is_terminal() || (self.only.is_some() && attempt_ended && attempt >= self.at.attempt);
            if over || !self.follow {
                return;
            }
            if self.grown(&mut waiter, follow, seen).await.is_err() {
                return;
            }
        }
    }

    /// Waits until there may be more to read.
    async fn grown(
        &self,
        waiter: &mut crate::waiters::Waiter<'_>,
        follow: Option<runyard_worker::LogFollow>,
        seen: u64,
    ) -> Result<(), Ended> {
        tokio::select! {
            () = self.app.stop.cancelled() => Err(Ended),
            () = self.to.closed() => Err(Ended),
            () = waiter.changed() => Ok(()),
            () = log_beyond(follow, seen) => Ok(()),
        }
    }

    async fn read_rest(&mut self) -> Result<(), Ended> {
        let path = self.app.worker.places().log_file(self.task.0, self.at.attempt);
        loop {
            let (path, offset) = (path.clone(), self.at.offset);
            let read = tokio::task::spawn_blocking(move || runyard_exec::log::read(&path, offset, READ_BYTES)).await;
            let Ok(Ok((lines, next))) = read else { return Err(Ended) };
            let is_end = next == self.at.offset;
            self.at.offset = next;
            if !lines.is_empty() {
                let chunk = Chunk { lines, attempt: self.at.attempt, next: self.at };
                self.to.send(chunk).await.map_err(|_| Ended)?;
            }
            if is_end {
                return Ok(());
            }
        }
    }
}

/// Returns when the log is longer than it was. The end of an attempt is not awaited here: the waiter tells of it when it
/// is committed.
async fn log_beyond(follow: Option<runyard_worker::LogFollow>, seen: u64) {
    if let Some(mut follow) = follow {
        let grew = follow.bytes.wait_for(|bytes| *bytes > seen).await.is_ok();
        if grew {
            return;
        }
    }
    std::future::pending::<()>().await;
}
