//! One try: a POST with the headers of Standard Webhooks, ten seconds, no redirects, and an answer that is not read far.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderMap, USER_AGENT};
use reqwest::{Method, Response, StatusCode};
use runyard_exec::guard::{GuardedClient, blocked_by};
use runyard_exec::http::classify::retry_after_ms;
use url::Url;

use super::sign::{Secret, signatures};
use crate::clock;

const TRY_MAX: Duration = Duration::from_secs(10);
/// The status says it all; a little is read so that a well-behaved server can finish its answer.
const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Receivers tell what they think of a message in many words.
const ERROR_BYTES_MAX: usize = 500;

pub struct Outgoing {
    pub url: Url,
    pub id: String,
    pub secrets: Vec<Secret>,
    pub body: Vec<u8>,
    /// The trace of the task it is about.
    pub traceparent: Option<String>,
}

#[derive(Debug)]
pub struct Sent {
    pub at_ms: u64,
    pub took_ms: u64,
    pub status: Option<u16>,
    pub outcome: Outcome,
}

impl Sent {
    /// A try all the same: whoever looks at the delivery learns why nothing comes.
    pub fn not_called(error: String) -> Sent {
        Sent { at_ms: clock::wall_ms(), took_ms: 0, status: None, outcome: failed(error, Blame::Nobody) }
    }
}

#[derive(Debug)]
pub enum Outcome {
    Taken,
    /// The receiver wants no more of it.
    Gone,
    Failed {
        error: String,
        retry_after_ms: Option<u64>,
        blame: Blame,
    },
}

/// Does it say something about everyone else at the same place?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blame {
    /// It does not answer, or is overwhelmed.
    Target,
    /// It answered, and did not like this one.
    Message,
    /// It was not called, because its address may not be.
    Nobody,
}

pub async fn post(client: &GuardedClient, outgoing: Outgoing) -> Sent {
    let (at_ms, began) = (clock::wall_ms(), Instant::now());
    let (status, outcome) = match request(client, outgoing, at_ms / 1000).await {
        Ok(response) => (Some(response.status().as_u16()), judge(response).await),
        Err((error, blame)) => (None, failed(error, blame)),
    };
    Sent { at_ms, took_ms: began.elapsed().as_millis() as u64, status, outcome }
}

async fn request(client: &GuardedClient, outgoing: Outgoing, timestamp: u64) -> Result<Response, (String, Blame)> {
    let Outgoing { url, id, secrets, body, traceparent } = outgoing;
    let signature = signatures(&secrets, &id, timestamp, &body);
    let request = client.request(Method::POST, url).map_err(|blocked| (blocked.to_string(), Blame::Nobody))?;
    let request = request
        .timeout(TRY_MAX)
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("runyard/", env!("CARGO_PKG_VERSION")))
        .header("webhook-id", id)
        .header("webhook-timestamp", timestamp)
        .header("webhook-signature", signature)
        .body(body);
    let request = traceparent.into_iter().fold(request, |request, trace| request.header("traceparent", trace));
    request.send().await.map_err(|error| match blocked_by(&error) {
        Some(blocked) => (blocked.to_string(), Blame::Nobody),
        None if error.is_timeout() => (format!("no answer within {} s", TRY_MAX.as_secs()), Blame::Target),
        None => (causes(&error.without_url()), Blame::Target),
    })
}

async fn judge(mut response: Response) -> Outcome {
    let (status, headers) = (response.status(), response.headers().clone());
    let mut n_bytes = 0;
    while let Ok(Some(chunk)) = response.chunk().await {
        n_bytes += chunk.len();
        if n_bytes > ANSWER_BYTES_MAX {
            break;
        }
    }
    outcome_of(status, &headers)
}

fn outcome_of(status: StatusCode, headers: &HeaderMap) -> Outcome {
    let code = status.as_u16();
    let text = format!("HTTP {code} {}", status.canonical_reason().unwrap_or_default()).trim_end().to_owned();
    match code {
        200..=299 => Outcome::Taken,
        410 => Outcome::Gone,
        300..=399 => failed(format!("{text}: redirects are not followed"), Blame::Message),
        429 | 500.. => {
            let retry_after_ms = retry_after_ms(headers, Timestamp::now());
            Outcome::Failed { error: text, retry_after_ms, blame: Blame::Target }
        }
        _ => failed(text, Blame::Message),
    }
}

fn failed(error: String, blame: Blame) -> Outcome {
    let end = (0..=ERROR_BYTES_MAX.min(error.len())).rev().find(|at| error.is_char_boundary(*at)).unwrap_or(0);
    Outcome::Failed { error: error[..end].to_owned(), retry_after_ms: None, blame }
}

/// The outermost text of an HTTP client alone says very little.
fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderValue, RETRY_AFTER};

    use super::*;

    #[test]
    fn a_status_decides() {
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("7"))]);
        let shape = |status: u16| match outcome_of(StatusCode::from_u16(status).expect("a status"), &headers) {
            Outcome::Taken => ("taken", None),
            Outcome::Gone => ("gone", None),
            Outcome::Failed { retry_after_ms, blame: Blame::Target, .. } => ("target", retry_after_ms),
            Outcome::Failed { retry_after_ms, blame: Blame::Message, .. } => ("message", retry_after_ms),
            Outcome::Failed { blame: Blame::Nobody, .. } => panic!("a status is an answer"),
        };
        let table = [
            (200, ("taken", None)),
            (204, ("taken", None)),
            (301, ("message", None)),
            (304, ("message", None)),
            (308, ("message", None)),
            (400, ("message", None)),
            (404, ("message", None)),
            (410, ("gone", None)),
            (429, ("target", Some(7000))),
            (500, ("target", Some(7000))),
            (503, ("target", Some(7000))),
        ];
        for (status, expected) in table {
            assert_eq!(shape(status), expected, "{status}");
        }
    }
}
