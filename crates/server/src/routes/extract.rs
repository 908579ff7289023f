//! Reading requests so that every mistake is answered with problem+json that names it.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use axum::body::{Bytes, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use runyard_core::ids::{BatchId, TaskId};
use runyard_core::name::Name;
use runyard_wire::Id;
use serde::de::DeserializeOwned;

use crate::config::{NAME_RULE, name_is_valid};
use crate::intake::session_key;
use crate::problem::{Error, Invalid};

pub const TASK_BODY_BYTES_MAX: usize = 1024 * 1024;
pub const BATCH_BODY_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A JSON body of at most `MAX` bytes, with the bytes it was read from.
pub struct Body<T, const MAX: usize = TASK_BODY_BYTES_MAX> {
    pub value: T,
    pub bytes: Bytes,
}

impl<S: Send + Sync, T: DeserializeOwned, const MAX: usize> FromRequest<S> for Body<T, MAX> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self, Error> {
        if !is_json(request.headers()) {
            return Err(Error::UnsupportedMediaType);
        }
        let bytes = body_bytes(request, MAX).await?;
        let value = runyard_wire::parse(&bytes)?;
        Ok(Body { value, bytes })
    }
}

/// A body that may be left out.
pub struct OptionalBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalBody<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self, Error> {
        let says_json = is_json(request.headers());
        let bytes = body_bytes(request, TASK_BODY_BYTES_MAX).await?;
        if bytes.is_empty() {
            return Ok(OptionalBody(T::default()));
        }
        if !says_json {
            return Err(Error::UnsupportedMediaType);
        }
        Ok(OptionalBody(runyard_wire::parse(&bytes)?))
    }
}

/// How long the body of this request may take, put into it by the guard.
#[derive(Clone, Copy)]
pub struct BodyTime(pub Duration);

const BODY_TIME: Duration = Duration::from_secs(60);

pub fn body_time(request: &Request) -> Duration {
    request.extensions().get().map_or(BODY_TIME, |BodyTime(time)| *time)
}

async fn body_bytes(request: Request, max: usize) -> Result<Bytes, Error> {
    let declared = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    if declared.and_then(|text| text.parse::<u64>().ok()).is_some_and(|bytes| bytes > max as u64) {
        return Err(Error::TooLarge(max));
    }
    let time = body_time(&request);
    let read = tokio::time::timeout(time, to_bytes(request.into_body(), max)).await;
    read.map_err(|_| Error::SlowBody(time))?.map_err(|error| {
        let too_large =
            std::error::Error::source(&error).is_some_and(|cause| cause.is::<http_body_util::LengthLimitError>());
        if too_large { Error::TooLarge(max) } else { Error::BrokenBody }
    })
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
