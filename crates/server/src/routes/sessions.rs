//! Sessions: list, show, set, and stop what they do.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use runyard_core::event::{Answer, Event, Receipt, SessionAct, SessionAnswer};
use runyard_core::name::Name;
use runyard_core::session::{Context, Session, SessionId};
use runyard_store::store::SessionFilter;
use runyard_wire::{
    Id, ListPage, SessionContext, SessionSettings, SessionStopAllAnswer, SessionStopAnswer, SessionView,
};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use super::extract::{Body, Params, SessionPath, cursor, page_limit};
use super::tasks::unexpected;
use crate::access::Caller;
use crate::app::{App, to_its_end};
use crate::audit::Entry;
use crate::config::to_core_sessions;
use crate::handle::Handle;
use crate::intake;
use crate::nodes::Once;
use crate::problem::{Error, Invalid};
use crate::view;

#[derive(Deserialize, IntoParams, Default)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct SessionParams {
    /// Sessions whose key begins so.
    prefix: Option<String>,
    /// True: only sessions with live tasks.
    busy: Option<bool>,
    /// 1 to 1000; default 100.
    limit: Option<usize>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
}

/// List sessions, the latest created first.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", params(SessionParams),
    responses((status = 200, description = "One page", body = ListPage<SessionView>)))]
pub async fn list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Params(params): Params<SessionParams>,
) -> Result<Json<ListPage<SessionView>>, Error> {
    let limit = page_limit(params.limit)?;
    let after = cursor(params.cursor.as_deref())?.map(SessionId);
    let prefix = params.prefix.as_deref().filter(|prefix| !prefix.is_empty()).or(caller.agents.only()).map(Name::new);
    let filter = SessionFilter { prefix, busy: params.busy.unwrap_or(false) };
    let page = app.read(move |reader| reader.sessions(&filter, after, limit)).await?;
    let config = to_core_sessions(&app.config.current().config.sessions);
    let items = page
        .items
        .iter()
        .filter(|session| caller.agents.allows_session(&session.key))
        .map(|session| view::session_view(session, &config))
        .collect();
    Ok(Json(ListPage { items, next_cursor: page.next.map(|id| id.0.to_string()) }))
}

/// Show a session.
#[utoipa::path(get, path = "/v1/sessions/{key}", tag = "sessions", params(("key" = String, Path)),
    responses((status = 200, description = "The session", body = SessionView)))]
pub async fn show(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    SessionPath(key): SessionPath,
) -> Result<Json<SessionView>, Error> {
    may_use(&caller, &key)?;
    Ok(Json(shown(&app, &found(&app, key).await?)))
}

/// Replace a session's own settings as a whole: what is left out comes from the configuration again. A key that is new
/// makes a new session.
#[utoipa::path(put, path = "/v1/sessions/{key}", tag = "sessions", params(("key" = String, Path)), request_body = SessionSettings,
    responses((status = 200, description = "The session as it is now", body = SessionView)))]
pub async fn put(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    SessionPath(key): SessionPath,
    body: Body<SessionSettings>,
) -> Result<Json<SessionView>, Error> {
    let settings = intake::session_settings(&body.value)?;
    may_use(&caller, &key)?;
    let known = key.clone();
    let before = app.read(move |reader| reader.session(&known)).await?;
    let entry = Entry::new("session.set").of(&*key).after(told(&body.value));
    let entry = match before {
        Some(session) => entry.before(told(&shown(&app, &session).settings)),
        None => entry,
    };
    to_its_end(async move {
        let answer = ask(&app.handle, key, SessionAct::Set(settings)).await?;
        app.audit.record(&caller.actor, entry).await;
        row(&app, answer)
    })
    .await
}

/// Say how full the context of a session's model is. Near its end the session runs one task at a time.
#[utoipa::path(put, path = "/v1/sessions/{key}/context", tag = "sessions", params(("key" = String, Path)), request_body = SessionContext,
    responses((status = 200, description = "The session as it is now", body = SessionView)))]
pub async fn put_context(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    SessionPath(key): SessionPath,
    body: Body<SessionContext>,
) -> Result<Json<SessionView>, Error> {
    let context = Context { tokens: body.value.context_tokens, window: body.value.context_window };
    if context.window == 0 {
        return Err(Invalid::new("contextWindow", "must be at least 1").into());
    }
    may_use(&caller, &key)?;
    row(&app, ask(&app.handle, key, SessionAct::Context(context)).await?)
}

/// Stop the session's oldest running task. What waits goes on.
#[utoipa::path(post, path = "/v1/sessions/{key}/stop", tag = "sessions", params(("key" = String, Path)),
    responses((status = 200, description = "Which one", body = SessionStopAnswer)))]
pub async fn stop(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(once): Extension<Once>,
    SessionPath(key): SessionPath,
) -> Result<Json<SessionStopAnswer>, Error> {
    may_use(&caller, &key)?;
    if let Some(Receipt::Stopped { task }) = once.first {
        return Ok(Json(SessionStopAnswer { stopped: task.map(|id| Id(id.0)) }));
    }
    match ask(&once.handle(&app), key, SessionAct::Stop).await? {
        SessionAnswer::Stopped { task } => Ok(Json(SessionStopAnswer { stopped: task.map(|id| Id(id.0)) })),
        _ => Err(unexpected()),
    }
}

/// Cancel everything the session runs and everything that waits in it. Messages that were sent before now are refused.
#[utoipa::path(post, path = "/v1/sessions/{key}/stopall", tag = "sessions", params(("key" = String, Path)),
    responses((status = 200, description = "How many", body = SessionStopAllAnswer)))]
pub async fn stop_all(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(once): Extension<Once>,
    SessionPath(key): SessionPath,
) -> Result<Json<SessionStopAllAnswer>, Error> {
    stopped_all(&app, &caller, once, key, SessionAct::StopAll).await
}

/// As stopall, and the session begins anew: its context is forgotten, and late reports of old tasks do not touch it. Its
/// settings stay.
#[utoipa::path(post, path = "/v1/sessions/{key}/reset", tag = "sessions", params(("key" = String, Path)),
    responses((status = 200, description = "How many", body = SessionStopAllAnswer)))]
pub async fn reset(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(once): Extension<Once>,
    SessionPath(key): SessionPath,
) -> Result<Json<SessionStopAllAnswer>, Error> {
    stopped_all(&app, &caller, once, key, SessionAct::Reset).await
}

async fn ask(handle: &Handle, key: Name, act: SessionAct) -> Result<SessionAnswer, Error> {
    match handle.ask(|ticket| Event::Session { ticket, key, act }).await? {
        Answer::Session(answer) => Ok(answer),
        _ => Err(unexpected()),
    }
}

fn told(settings: &SessionSettings) -> Value {
    serde_json::to_value(settings).expect("settings are plain data")
}

/// A session that is named after an agent is its own, whoever else sent messages to it.
fn may_use(caller: &Caller, key: &str) -> Result<(), Error> {
    if caller.agents.allows_session(key) { Ok(()) } else { Err(Error::ForeignSession(key.to_owned())) }
}

fn row(app: &App, answer: SessionAnswer) -> Result<Json<SessionView>, Error> {
    match answer {
        SessionAnswer::Row(session) => Ok(Json(shown(app, &session))),
        _ => Err(unexpected()),
    }
}

async fn stopped_all(
    app: &App,
    caller: &Caller,
    once: Once,
    key: Name,
    act: SessionAct,
) -> Result<Json<SessionStopAllAnswer>, Error> {
    may_use(caller, &key)?;
    if let Some(Receipt::StoppedAll { running, waiting, debouncing }) = once.first {
        let session = shown(app, &found(app, key).await?);
        return Ok(Json(SessionStopAllAnswer { running, waiting, debouncing, session }));
    }
    match ask(&once.handle(app), key, act).await? {
        SessionAnswer::StoppedAll { running, waiting, debouncing, session } => {
            Ok(Json(SessionStopAllAnswer { running, waiting, debouncing, session: shown(app, &session) }))
        }
        _ => Err(unexpected()),
    }
}

async fn found(app: &App, key: Name) -> Result<Session, Error> {
    let wanted = key.clone();
    let session = app.read(move |reader| reader.session(&wanted)).await?;
    session.ok_or_else(|| Error::NotFound { what: "session", id: key.to_string() })
}

fn shown(app: &App, session: &Session) -> SessionView {
    view::session_view(session, &to_core_sessions(&app.config.current().config.sessions))
}
