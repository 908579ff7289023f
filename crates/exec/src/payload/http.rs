//! The payload of `http`.

use std::collections::BTreeMap;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{PayloadError, parse_fields, required, wrong};
use crate::said::Said;

/// `http`: one request.
#[derive(Debug)]
pub struct HttpPayload {
    pub method: Method,
    pub url: Url,
    /// As it was given.
    url_text: String,
    pub headers: HeaderMap,
    /// As given, else what there is to say.
    pub body: Option<HttpBody>,
    /// See [`ProcessPayload::unsaid`].
    pub unsaid: Option<&'static str>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum HttpBody {
    /// A JSON string is sent as its text.
    Text(String),
    /// Anything else is sent as the JSON it is, byte for byte.
    Json(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpFields {
    method: Option<String>,
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Box<RawValue>>,
    message: Option<String>,
    media: Option<Vec<Box<RawValue>>>,
    dropped: Option<Vec<String>>,
}

impl HttpPayload {
    pub fn parse(payload: Option<&RawValue>) -> Result<HttpPayload, PayloadError> {
        let fields: HttpFields = parse_fields(required(payload, "an object with a url")?)?;
        let said = Said { message: fields.message, media: fields.media, dropped: fields.dropped };
        let (body, unsaid) = match fields.body.as_deref() {
            Some(body) => (Some(parse_body(body)?), said.first_field()),
            None => (said.json().map(HttpBody::Json), None),
        };
        let method = match (fields.method, &body) {
            (Some(method), _) => parse_method(&method)?,
            (None, Some(_)) => Method::POST,
            (None, None) => Method::GET,
        };
        Ok(HttpPayload {
            method,
            url: parse_url("url", &fields.url)?,
            url_text: fields.url,
            headers: parse_headers(&fields.headers)?,
            body,
            unsaid,
        })
    }

    /// What is asked for, for people.
    pub(crate) fn target(&self) -> String {
        format!("{} {}", self.method, self.url_text)
    }
}

fn parse_body(body: &RawValue) -> Result<HttpBody, PayloadError> {
    if body.get().starts_with('"') {
        return serde_json::from_str(body.get())
            .map(HttpBody::Text)
            .map_err(|error| wrong("body", format!("is not a valid string: {error}")));
    }
    Ok(HttpBody::Json(body.get().to_owned()))
}

fn parse_method(method: &str) -> Result<Method, PayloadError> {
    Method::from_bytes(method.to_ascii_uppercase().as_bytes())
        .map_err(|_| wrong("method", format!("`{method}` is not an HTTP method")))
}

pub(crate) fn parse_url(field: &str, url: &str) -> Result<Url, PayloadError> {
    let parsed = Url::parse(url).map_err(|error| wrong(field, format!("`{url}` is not a URL: {error}")))?;
    match parsed.scheme() {
        "http" | "https" => Ok(parsed),
        scheme => Err(wrong(field, format!("scheme `{scheme}` is not supported, use http or https"))),
    }
}

fn parse_headers(headers: &BTreeMap<String, String>) -> Result<HeaderMap, PayloadError> {
    let mut map = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let field = || format!("headers.{name}");
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong(field(), "is not a header name"))?;
        let value = HeaderValue::from_str(value).map_err(|_| wrong(field(), "has a value no header can carry"))?;
        map.append(header, value);
    }
    Ok(map)
}
