//! `GET /v1/events`: what happens, as it happens.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Sse;
use axum::response::sse::{Event as SseEvent, KeepAlive};
use futures_util::{Stream, StreamExt, stream};
use runyard_core::ids::{BatchId, ScheduleId, TaskId};
use runyard_wire::{EventView, Id};
use serde::Deserialize;
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::batches;
use super::extract::{Params, parsed};
use super::schedules;
use super::stream::{Pump, reset};
use super::tasks::own_doc;
use crate::access::{Binding, Caller};
use crate::app::App;
use crate::feed::{EventFilter, Position};
use crate::problem::{Error, Invalid};

pub const HEARTBEAT: Duration = Duration::from_secs(15);
/// What a client should wait before it comes back.
const RETRY: Duration = Duration::from_secs(2);

#[derive(Deserialize, IntoParams, Default)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct EventParams {
    /// Names such as `task.completed`, or `task.*`, separated by commas; default all.
    types: Option<String>,
    /// Events of this agent's tasks.
    agent: Option<String>,
    /// Events of this task.
    #[param(value_type = Option<Id>)]
    task: Option<String>,
    /// Events of this batch and its tasks.
    #[param(value_type = Option<Id>)]
    batch: Option<String>,
    /// Events of this session and its tasks.
    session: Option<String>,
    /// Events of this schedule.
    schedule: Option<String>,
    /// Events of this lane's tasks.
    lane: Option<String>,
    /// As the header Last-Event-ID, for clients that cannot send one.
    after: Option<String>,
}

impl EventParams {
    fn filter(&self) -> Result<EventFilter, Invalid> {
        let task: Option<Id> = self.task.as_deref().map(|text| parsed("task", text)).transpose()?;
        let batch: Option<Id> = self.batch.as_deref().map(|text| parsed("batch", text)).transpose()?;
        let schedule: Option<Id> = self.schedule.as_deref().map(|text| parsed("schedule", text)).transpose()?;
        let types = self.types.as_deref().unwrap_or("").split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(EventFilter {
            types: types.map(str::to_owned).collect(),
            agent: self.agent.clone(),
            lane: self.lane.clone(),
            task: task.map(|id| TaskId(id.0)),
            batch: batch.map(|id| BatchId(id.0)),
            session: self.session.clone(),
            schedule: schedule.map(|id| ScheduleId(id.0)),
            bound_to: Binding::default(),
        })
    }
}

/// Everything that happens, as server-sent events. With Last-Event-ID the stream goes on behind that event; when the log
/// does not reach back so far, a `reset` event comes first.
#[utoipa::path(get, path = "/v1/events", tag = "events",
    params(EventParams, ("Last-Event-ID" = Option<String>, Header, description = "The id of the last event seen")),
    responses((status = 200, description = "A stream that does not end", content_type = "text/event-stream", body = EventView)))]
pub async fn events(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Params(params): Params<EventParams>,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, Error> {
    let filter = own_only(&app, &caller, params.filter()?).await?;
    let header = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let last = header.or(params.after.as_deref()).map(Position::parse).transpose()?;
    let pass = app.stream(&caller)?;
    // Before the log is looked at: nothing committed from here on can be missed.
    let ear = app.handle.feed().listen(filter);
    let (at, is_reset) = Pump::start(&app, last).await?;
    let first = if is_reset { reset() } else { SseEvent::default().comment("runyard") }.retry(RETRY);
    let events = stream::once(async { first }).chain(Pump::new(app, ear, at, pass).stream()).map(Ok);
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT)))
}

/// A key that is bound to agents may name what is theirs, and gets nothing else if it names nothing.
async fn own_only(app: &App, caller: &Caller, filter: EventFilter) -> Result<EventFilter, Error> {
    if let Some(agent) = filter.agent.as_deref().filter(|agent| !caller.may_act_for(agent)) {
        return Err(Error::ForeignAgent(agent.to_owned()));
    }
    if let Some(task) = filter.task.filter(|_| caller.agents.is_bound()) {
        own_doc(app, caller, task).await?;
    }
    if let Some(batch) = filter.batch {
        batches::may_see(app, caller, batch).await?;
    }
    if let Some(schedule) = filter.schedule.filter(|_| caller.agents.is_bound()) {
        schedules::may_see(app, caller, schedule).await?;
    }
    Ok(EventFilter { bound_to: caller.agents.clone(), ..filter })
}

/// Ends when the sender is dropped.
pub fn channel<T>(mut from: mpsc::Receiver<T>) -> impl Stream<Item = T> {
    stream::poll_fn(move |context| from.poll_recv(context))
}
