//! A task's output, as plain text or as events, also while it is written.
//!
//! Text that ends where the output does not is broken off, so that nobody takes it for the whole: its connection is closed
//! without the last chunk, which every HTTP client says. Events just end: their reader comes back with the last id.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::sse::{Event as SseEvent, KeepAlive};
use axum::response::{IntoResponse, Response, Sse};
use futures_util::{Stream, StreamExt, future, stream};
use runyard_exec::log::{Line, Stream as Spoken};
use runyard_wire::{Id, LogLine, LogStream, Timestamp};
use serde::Deserialize;
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::events::{HEARTBEAT, channel};
use super::extract::{Params, TaskPath};
use super::tail::Tail;
use super::tasks::own_doc;
use crate::access::Caller;
use crate::app::App;
use crate::handle::Unavailable;
use crate::nodes::{Form, Forwarded};
use crate::output::{self, Chunk, Part, Place};
use crate::problem::Error;

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
    Extension(forwarded): Extension<Forwarded>,
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
    // Another node asks again, and soon the one that follows this one.
    if forwarded.form == Form::InParts && params.follow && app.stop.is_cancelled() {
        return Err(Unavailable::Stopped.into());
    }
    let pass = app.stream(&caller)?;
    let revoked = pass.revoked();
    let (to, from) = mpsc::channel(AHEAD_MAX);
    tokio::spawn(Tail { _pass: pass, app, task: id, only: params.attempt, at, follow: params.follow, to }.run());
    let parts = channel(from).take_until(revoked);
    match forwarded.form {
        Form::InParts => Ok(in_parts(parts)),
        Form::AsAsked => Ok(as_asked(&headers, parts)),
    }
}

/// Does it stay until the task has ended?
pub fn is_followed(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "follow=true"))
}

/// In the form that the client wants.
pub fn as_asked(headers: &HeaderMap, parts: impl Stream<Item = Part> + Send + 'static) -> Response {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    if accept.contains("text/event-stream") { events(parts) } else { text(parts) }
}

fn in_parts(parts: impl Stream<Item = Part> + Send + 'static) -> Response {
    let lines = parts.map(|part| Ok::<_, Infallible>(part.to_line()));
    ([(header::CONTENT_TYPE, output::CONTENT_TYPE)], Body::from_stream(lines)).into_response()
}

fn events(parts: impl Stream<Item = Part> + Send + 'static) -> Response {
    let chunks = parts.filter_map(|part| {
        future::ready(match part {
            Part::Lines(chunk) => Some(chunk),
            Part::End | Part::Missing => None,
        })
    });
    let events = chunks.flat_map(|chunk| stream::iter(into_events(chunk))).map(Ok::<_, Infallible>);
    Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT)).into_response()
}

#[derive(Debug, thiserror::Error)]
#[error("the output goes on, and could not be followed to its end")]
struct BrokenOff;

fn text(parts: impl Stream<Item = Part> + Send + 'static) -> Response {
    // What ends without a word is as good as missing.
    let parts = parts.chain(stream::once(future::ready(Part::Missing)));
    let text = parts.take_while(|part| future::ready(*part != Part::End)).map(|part| match part {
        Part::Lines(chunk) => Ok(into_text(chunk)),
        Part::End | Part::Missing => Err(BrokenOff),
    });
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    ([(header::CONTENT_TYPE, plain)], Body::from_stream(text)).into_response()
}

fn into_text(chunk: Chunk) -> Bytes {
    let mut text = String::new();
    for line in chunk.lines {
        text.push_str(&line.text);
        if line.ends {
            text.push('\n');
        }
    }
    Bytes::from(text)
}

/// Only the last line of a chunk has an id: a client that comes back goes on at a place that can be read from.
fn into_events(chunk: Chunk) -> Vec<SseEvent> {
    let last = chunk.lines.len().saturating_sub(1);
    let (attempt, id) = (chunk.attempt, chunk.next.to_string());
    let event = |(at, line): (usize, Line)| {
        let view = log_line(line, attempt);
        let event = SseEvent::default().event("log").data(serde_json::to_string(&view).expect("a line is plain data"));
        if at == last { event.id(&id) } else { event }
    };
    chunk.lines.into_iter().enumerate().map(event).collect()
}

fn log_line(line: Line, attempt: u32) -> LogLine {
    let stream = match line.stream {
        Spoken::Stdout => LogStream::Stdout,
        Spoken::Stderr => LogStream::Stderr,
        Spoken::System => LogStream::Note,
    };
    LogLine { stream, at: Timestamp(line.at_ms), text: line.text, attempt }
}
