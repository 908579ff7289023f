//! Long poll for a task's end.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use runyard_wire::{Id, TaskView};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};
use utoipa::IntoParams;

use super::extract::{Params, TaskPath};
use super::tasks::own_doc;
use crate::access::Caller;
use crate::app::App;
use crate::handle::Unavailable;
use crate::problem::{Error, Invalid};
use crate::view;

const TIMEOUT_MS_DEFAULT: u64 = 30_000;
pub const TIMEOUT_MS_MAX: u64 = 600_000;
const TIMED_OUT: &str = "wait-timed-out";

#[derive(Deserialize, IntoParams, Default)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct WaitParams {
    /// How long to wait for the end: 0 to 600000; default 30000.
    timeout_ms: Option<u64>,
}

/// Wait until the task has ended, or for timeoutMs.
#[utoipa::path(get, path = "/v1/tasks/{id}/wait", tag = "tasks", params(("id" = Id, Path), WaitParams),
    responses((status = 200, description = "The task; still live when the time was up", body = TaskView,
        headers(("Wait-Timed-Out" = String, description = "`true` when the task is still live")))))]
pub async fn wait(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    TaskPath(id): TaskPath,
    Params(params): Params<WaitParams>,
) -> Result<Response, Error> {
    let timeout_ms = params.timeout_ms.unwrap_or(TIMEOUT_MS_DEFAULT);
    if timeout_ms > TIMEOUT_MS_MAX {
        return Err(Invalid::new("timeoutMs", format!("must be from 0 to {TIMEOUT_MS_MAX}")).into());
    }
    let until = Instant::now() + Duration::from_millis(timeout_ms);
    let pass = app.stream(&caller)?;
    // Watched before it is read: an end between the two is not missed.
    let mut waiter = app.waiters.watch(id);
    loop {
        let doc = own_doc(&app, &caller, id).await?;
        let ended = doc.task.phase().is_terminal();
        if !ended && app.stop.is_cancelled() {
            return Err(Unavailable::Stopped.into());
        }
        if pass.is_revoked() {
            return Err(Error::UnknownKey);
        }
        if ended || Instant::now() >= until {
            let mut response = Json(view::whole_view(&app, doc).await?).into_response();
            if !ended {
                response.headers_mut().insert(TIMED_OUT, HeaderValue::from_static("true"));
            }
            return Ok(response);
        }
        // With its payload it may be a megabyte, and thousands wait.
        drop(doc);
        tokio::select! {
            () = waiter.changed() => {}
            () = sleep_until(until) => {}
            () = app.stop.cancelled() => {}
            () = pass.revoked() => {}
        }
    }
}
