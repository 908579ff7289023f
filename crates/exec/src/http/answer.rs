//! Reads an answer: a whole body, a stream of events, or the reason for a failure.

use jiff::Timestamp;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Response, StatusCode};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::classify::{class_of, retry_after_ms};
use super::sse::{EVENT_BYTES_MAX, SseEvent, SseParser};
use super::with_causes;
use crate::job::Signs;
use crate::log::{LogWriter, Stream};
use crate::outcome::{Class, Failure, Outcome};
use crate::result::{Fit, RESULT_BYTES_MAX, fit_text, to_bytes};
use crate::secret::Redactor;
use crate::usage::Usage;

/// How much of a refusal's body is quoted.
const QUOTE_BYTES_MAX: usize = 2048;
/// For the field names and the status around a body.
const ENVELOPE_BYTES: usize = 128;

pub(super) async fn read(response: Response, signs: &dyn Signs, log: &mut LogWriter) -> Result<Outcome, Failure> {
    if !response.status().is_success() {
        return Err(refused(response, log).await);
    }
    check_encoding(&response)?;
    let (result, usage) = match body_kind(response.headers()) {
        BodyKind::Events => read_events(response, signs, log).await?,
        kind => read_body(response, kind, signs, log).await?,
    };
    Ok(Outcome::Completed { result: Some(result), usage })
}

/// Is it an answer that can be read to its end as it is?
pub(super) async fn check(response: Response) -> Result<Response, Failure> {
    if !response.status().is_success() {
        // Nobody looks for what a refused download used.
        return Err(refused(response, &mut LogWriter::nowhere()).await);
    }
    check_encoding(&response)?;
    Ok(response)
}

fn check_encoding(response: &Response) -> Result<(), Failure> {
    let Some(encoding) = encoding(response) else { return Ok(()) };
    let message =
        format!("the answer has content-encoding `{encoding}`, which is not understood; send no accept-encoding");
    Err(Failure::work(Class::Task, message))
}

/// What a JSON text says was used. Nonsense is for people to see; the answer counts all the same.
fn usage_of(json: &[u8], log: &mut LogWriter) -> Option<Usage> {
    Usage::of_answer(json).unwrap_or_else(|error| {
        log.note(&format!("in the answer, {error}"));
        None
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyKind {
    Json,
    Events,
    Text,
}

fn body_kind(headers: &HeaderMap) -> BodyKind {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "text/event-stream" => BodyKind::Events,
        "application/json" => BodyKind::Json,
        other if other.ends_with("+json") => BodyKind::Json,
        _ => BodyKind::Text,
    }
}

/// How the body is packed, if it is. Nothing but the plain body is asked for, and nothing else could be stored as text.
fn encoding(response: &Response) -> Option<String> {
    let value =
        String::from_utf8_lossy(response.headers().get(CONTENT_ENCODING)?.as_bytes()).trim().to_ascii_lowercase();
    // The answer to a HEAD tells of a body that it does not have.
    let is_packed = !matches!(value.as_str(), "" | "identity") && response.content_length() != Some(0);
    is_packed.then_some(value)
}

async fn refused(mut response: Response, log: &mut LogWriter) -> Failure {
    let status = response.status();
    let retry_after_ms = retry_after_ms(response.headers(), Timestamp::now());
    let location = response.headers().get(LOCATION).map(|to| String::from_utf8_lossy(to.as_bytes()).into_owned());
    let encoding = encoding(&response);
    let is_json = encoding.is_none() && body_kind(response.headers()) == BodyKind::Json;
    let mut quote = Vec::new();
    // A body that breaks off is quoted as far as it came: the status is what counts.
    while let Ok(Some(chunk)) = response.chunk().await {
        quote.extend_from_slice(&chunk);
        if quote.len() >= QUOTE_BYTES_MAX {
            quote.truncate(log.redactor().ready(&quote, QUOTE_BYTES_MAX));
            break;
        }
    }
    let usage = is_json.then(|| usage_of(&quote, log)).flatten().map(Box::new);
    let quote = match encoding {
        Some(encoding) => format!("[a body with content-encoding `{encoding}`]"),
        None => String::from_utf8_lossy(&quote).into_owned(),
    };
    Failure {
        class: class_of(status, retry_after_ms),
        message: refusal_text(status, location.as_deref(), &quote),
        retry_after_ms,
        result: Some(to_bytes(&json!({"status": status.as_u16(), "body": quote}))),
        usage,
        fault: crate::outcome::Fault::Work,
    }
}

fn refusal_text(status: StatusCode, location: Option<&str>, quote: &str) -> String {
    let reason = status.canonical_reason().unwrap_or_default();
    let mut text = format!("HTTP {} {reason}", status.as_u16()).trim_end().to_owned();
    if let (true, Some(location)) = (status.is_redirection(), location) {
        text.push_str(&format!(": redirects are not followed; it points to {location}"));
    }
    match quote.trim() {
        "" => text,
        quote => format!("{text}: {quote}"),
    }
}

async fn read_body(
    mut response: Response,
    kind: BodyKind,
    signs: &dyn Signs,
    log: &mut LogWriter,
) -> Result<(Vec<u8>, Option<Usage>), Failure> {
    let status = response.status();
    let mut body = Vec::new();
    let mut n_bytes: u64 = 0;
    while let Some(chunk) = next_chunk(&mut response, n_bytes).await? {
        signs.alive();
        n_bytes += chunk.len() as u64;
        let was_whole = body.len() <= RESULT_BYTES_MAX;
        if was_whole {
            body.extend_from_slice(&chunk);
        }
        // Beyond the limit the log has the whole of it, from its first byte.
        if body.len() > RESULT_BYTES_MAX {
            log.write(Stream::Stdout, if was_whole { &body } else { &chunk });
            signs.log_grew(log.file_bytes());
        }
    }
    // What is too long to be read as JSON is a text like any other.
    if kind != BodyKind::Json || body.is_empty() || body.len() + ENVELOPE_BYTES > RESULT_BYTES_MAX {
        return Ok((to_bytes(&text_result(status, &body, signs, log)), None));
    }
    if let Some(result) = json_result(status, &body) {
        return Ok((result, usage_of(&body, log)));
    }
    let mut result = text_result(status, &body, signs, log);
    result["notJson"] = Value::Bool(true);
    Ok((to_bytes(&result), None))
}

/// `None` when it is not what its content type says.
fn json_result(status: StatusCode, body: &[u8]) -> Option<Vec<u8>> {
    let body: &RawValue = serde_json::from_slice(body).ok()?;
    let body = body.get();
    Some(format!(r#"{{"status":{},"body":{body}}}"#, status.as_u16()).into_bytes())
}

fn text_result(status: StatusCode, body: &[u8], signs: &dyn Signs, log: &mut LogWriter) -> Value {
    // Secrets are taken out before the text is cut, which could be in the middle of one.
    let redactor = log.redactor().clone();
    let whole = if body.len() > RESULT_BYTES_MAX { redactor.ready(body, usize::MAX) } else { body.len() };
    let text = redactor.bytes(&body[..whole]);
    let text = String::from_utf8_lossy(&text);
    let (text, fit) = fit_text(&text, RESULT_BYTES_MAX - ENVELOPE_BYTES);
    let mut result = json!({"status": status.as_u16(), "body": text});
    if fit == Fit::Cut {
        result["truncated"] = Value::Bool(true);
        // Just below the limit as bytes but over it once escaped: it has not been written yet.
        if body.len() <= RESULT_BYTES_MAX {
            log.write(Stream::Stdout, body);
            signs.log_grew(log.file_bytes());
        }
    }
    result
}

async fn read_events(
    mut response: Response,
    signs: &dyn Signs,
    log: &mut LogWriter,
) -> Result<(Vec<u8>, Option<Usage>), Failure> {
    let mut parser = SseParser::default();
    let mut gathered = Gathered::default();
    let mut n_bytes: u64 = 0;
    while let Some(chunk) = next_chunk(&mut response, n_bytes).await? {
        signs.alive();
        n_bytes += chunk.len() as u64;
        parser.feed(&chunk, |event| gathered.add(event, log));
        signs.log_grew(log.file_bytes());
    }
    if let Some(event) = parser.finish() {
        gathered.add(event, log);
    }
    let usage = gathered.last.as_deref().and_then(|data| usage_of(data.as_bytes(), log));
    Ok((gathered.result(response.status(), log.redactor()), usage))
}

/// What the events have said so far, within the limit of a result.
#[derive(Default)]
struct Gathered {
    text: String,
    n_events: u64,
    last: Option<String>,
}

impl Gathered {
    fn add(&mut self, event: SseEvent, log: &mut LogWriter) {
        if event.data == "[DONE]" {
            return;
        }
        log.write(Stream::Stdout, event.data.as_bytes());
        log.write(Stream::Stdout, b"\n");
        if self.n_events > 0 && self.text.len() <= RESULT_BYTES_MAX {
            self.text.push('\n');
        }
        // One event over the limit is enough to see that it must be cut.
        if self.text.len() <= RESULT_BYTES_MAX {
            self.text.push_str(&event.data);
        }
        self.n_events += 1;
        self.last = Some(event.data);
    }

    /// Secrets are taken out before anything is cut.
    fn result(self, status: StatusCode, redactor: &Redactor) -> Vec<u8> {
        let (last, last_fit) = match &self.last {
            None => (Value::Null, Fit::Whole),
            Some(data) => last_event(&redactor.text(data)),
        };
        let room = RESULT_BYTES_MAX - ENVELOPE_BYTES - to_bytes(&last).len();
        let text = redactor.text(&self.text);
        let (text, fit) = fit_text(&text, room);
        let mut result = json!({"status": status.as_u16(), "text": text, "lastEvent": last});
        if fit == Fit::Cut || last_fit == Fit::Cut {
            result["truncated"] = Value::Bool(true);
        }
        to_bytes(&result)
    }
}

fn last_event(data: &str) -> (Value, Fit) {
    match serde_json::from_str::<Value>(data) {
        Ok(value) if to_bytes(&value).len() <= EVENT_BYTES_MAX => (value, Fit::Whole),
        _ => {
            let (text, fit) = fit_text(data, EVENT_BYTES_MAX);
            (Value::String(text.into_owned()), fit)
        }
    }
}

pub(crate) async fn next_chunk(response: &mut Response, n_bytes: u64) -> Result<Option<bytes::Bytes>, Failure> {
    response.chunk().await.map_err(|error| {
        let message = format!("the answer broke off after {n_bytes} bytes: {}", with_causes(&error.without_url()));
        Failure::work(Class::Task, message)
    })
}
