//! Reading requests so that every mistake is answered with problem+json that names it.

use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::BytesMut;
use futures_util::StreamExt;
use runyard_core::ids::{BatchId, TaskId, WorkerId};
use runyard_core::name::Name;
use runyard_wire::Id;
use serde::de::DeserializeOwned;

use crate::config::{NAME_RULE, name_is_valid};
use crate::edge::{Bodies, BodyPass};
use crate::intake::session_key;
use crate::problem::{Error, Invalid};

pub const TASK_BODY_BYTES_MAX: usize = 1024 * 1024;
pub const BATCH_BODY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A JSON body of at most `MAX` bytes, with the bytes it was read from.
pub struct Body<T, const MAX: usize = TASK_BODY_BYTES_MAX> {
    pub value: T,
    pub bytes: Bytes,
    /// Its bytes count until the request is answered.
    _pass: BodyPass,
}

impl<S: Send + Sync, T: DeserializeOwned, const MAX: usize> FromRequest<S> for Body<T, MAX> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self, Error> {
        if !is_json(request.headers()) {
            return Err(Error::UnsupportedMediaType);
        }
        let (bytes, pass) = body_bytes(request, MAX).await?;
        let value = runyard_wire::parse(&bytes)?;
        Ok(Body { value, bytes, _pass: pass })
    }
}

/// A body that may be left out.
pub struct OptionalBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalBody<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self, Error> {
        let says_json = is_json(request.headers());
        let (bytes, _pass) = body_bytes(request, TASK_BODY_BYTES_MAX).await?;
        if bytes.is_empty() {
            return Ok(OptionalBody(T::default()));
        }
        if !says_json {
            return Err(Error::UnsupportedMediaType);
        }
        Ok(OptionalBody(runyard_wire::parse(&bytes)?))
    }
}

/// What holds for the body of this request, put into it by the guard.
#[derive(Clone)]
pub struct BodyRules {
    /// It has to arrive in this time.
    pub time: Duration,
    /// What all bodies together may take in memory.
    pub bytes_held_max: u64,
    pub bodies: Arc<Bodies>,
}

impl BodyRules {
    pub fn of(request: &Request) -> Result<&BodyRules, Error> {
        let rules = request.extensions().get();
        rules.ok_or_else(|| Error::Internal("a request came past the guard".into()))
    }
}

pub async fn body_bytes(request: Request, max: usize) -> Result<(Bytes, BodyPass), Error> {
    let declared = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if declared.and_then(|text| text.parse::<u64>().ok()).is_some_and(|bytes| bytes > max as u64) {
        return Err(Error::TooLarge(max));
    }
    let BodyRules { time, bytes_held_max, bodies } = BodyRules::of(&request)?.clone();
    let mut pass = bodies.enter(request.extensions().get(), bytes_held_max);
    let read = tokio::time::timeout(time, gathered(request.into_body(), max, &mut pass)).await;
    let bytes = read.map_err(|_| Error::SlowBody(time))??;
    Ok((bytes, pass))
}

async fn gathered(body: axum::body::Body, max: usize, pass: &mut BodyPass) -> Result<Bytes, Error> {
    let mut chunks = body.into_data_stream();
    let (mut first, mut all) = (Bytes::new(), BytesMut::new());
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| Error::BrokenBody)?;
        if first.len() + all.len() + chunk.len() > max {
            return Err(Error::TooLarge(max));
        }
        pass.grow(chunk.len() as u64)?;
        // Most bodies come in one piece, and that one need not be copied.
        if first.is_empty() && all.is_empty() {
            first = chunk;
            continue;
        }
        all.extend_from_slice(&std::mem::take(&mut first));
        all.extend_from_slice(&chunk);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(text) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let media = text.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    media == "application/json" || (media.starts_with("application/") && media.ends_with("+json"))
}

/// The query as a type of its own; unknown parameters are an error that names them.
pub struct Params<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Params<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Error> {
        let Query(value) = Query::try_from_uri(&parts.uri).map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            let message = cause.unwrap_or_else(|| error.to_string());
            query_error(&message)
        })?;
        Ok(Params(value))
    }
}

/// The message begins with the parameter where it is known, and quotes it where it is missing or unknown.
fn query_error(message: &str) -> Invalid {
    match message.split_once(": ").filter(|(field, _)| !field.contains(' ')) {
        Some((field, message)) => Invalid::new(field, message),
        None => Invalid::new(message.split('`').nth(1).unwrap_or("query"), message),
    }
}

pub struct TaskPath(pub TaskId);
pub struct BatchPath(pub BatchId);
pub struct KeyPath(pub Id);
pub struct WorkerPath(pub WorkerId);
pub struct NumberPath(pub u64);
pub struct NamePath(pub Name);
pub struct SessionPath(pub Name);
/// An id or a name.
pub struct SchedulePath(pub String);

impl<S: Send + Sync> FromRequestParts<S> for TaskPath {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        id_of(parts, state).await.map(|id| TaskPath(TaskId(id.0)))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for BatchPath {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        id_of(parts, state).await.map(|id| BatchPath(BatchId(id.0)))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for KeyPath {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        id_of(parts, state).await.map(KeyPath)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for WorkerPath {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        id_of(parts, state).await.map(|id| WorkerPath(WorkerId(id.0)))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for NumberPath {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let text = path_text(parts, state).await?;
        Ok(NumberPath(parsed("id", &text)?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for NamePath {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let text = path_text(parts, state).await?;
        if name_is_valid(&text) { Ok(NamePath(Name::new(&text))) } else { Err(Invalid::new("name", NAME_RULE).into()) }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for SessionPath {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        let text = path_text(parts, state).await?;
        Ok(SessionPath(session_key("key", &text)?))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for SchedulePath {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Error> {
        path_text(parts, state).await.map(SchedulePath)
    }
}

async fn id_of<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<Id, Error> {
    let text = path_text(parts, state).await?;
    Ok(parsed("id", &text)?)
}

async fn path_text<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<String, Error> {
    let path = Path::<String>::from_request_parts(parts, state).await;
    path.map(|Path(text)| text).map_err(|error| Invalid::new("path", error.body_text()).into())
}

const PAGE_DEFAULT: usize = 100;
pub const PAGE_MAX: usize = 1000;

pub fn page_limit(asked: Option<usize>) -> Result<usize, Invalid> {
    let limit = asked.unwrap_or(PAGE_DEFAULT);
    if (1..=PAGE_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(Invalid::new("limit", format!("must be from 1 to {PAGE_MAX}")))
}

/// Where the page before ended.
pub fn cursor(asked: Option<&str>) -> Result<Option<u64>, Invalid> {
    let bad = || Invalid::new("cursor", "is not one that this server gave");
    // A sign is none of ours either.
    let digits = |cursor: &&str| cursor.bytes().all(|byte| byte.is_ascii_digit());
    asked.map(|cursor| Some(cursor).filter(digits).and_then(|cursor| cursor.parse().ok()).ok_or_else(bad)).transpose()
}

pub fn parsed<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, Invalid> {
    text.parse().map_err(|error: T::Err| Invalid::new(field, error.to_string()))
}

/// `a,b,c` in a query.
pub fn parsed_list<T: FromStr<Err: Display>>(field: &str, text: Option<&str>) -> Result<Vec<T>, Invalid> {
    let parts = text.unwrap_or("").split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| parsed(field, part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Page {
        #[serde(rename = "limit")]
        _limit: Option<u32>,
    }

    async fn problem_of(query: &str) -> runyard_wire::Problem {
        let request = axum::http::Request::builder().uri(format!("/?{query}")).body(()).unwrap();
        let (mut parts, ()) = request.into_parts();
        let refused = Params::<Page>::from_request_parts(&mut parts, &()).await.err().expect("it is refused");
        crate::problem::problem(&refused)
    }

    #[tokio::test]
    async fn a_bad_parameter_is_named_once() {
        let unknown = problem_of("limt=1").await;
        assert_eq!(unknown.field.as_deref(), Some("limt"));
        assert_eq!(unknown.detail, "limt: unknown field `limt`, expected `limit`");
        let bad = problem_of("limit=many").await;
        assert_eq!(
            (bad.field.as_deref(), bad.detail.as_str()),
            (Some("limit"), "limit: invalid digit found in string")
        );
    }
}
