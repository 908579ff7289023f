//! The payload of `noop`.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::{PayloadError, parse_fields, wrong};
use crate::outcome::Class;

/// `noop`: nothing, or what a demo or a test wants to see.
#[derive(Debug, Default)]
pub struct NoopPayload {
    pub sleep_ms: u64,
    pub fail: Option<Class>,
    pub result: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct NoopFields {
    #[serde(default)]
    sleep_ms: u64,
    fail: Option<String>,
    result: Option<Box<RawValue>>,
    // Nobody listens, but a session of no-ops must be able to speak.
    #[serde(rename = "message")]
    _message: Option<String>,
    #[serde(rename = "media")]
    _media: Option<Vec<IgnoredAny>>,
    #[serde(rename = "dropped")]
    _dropped: Option<Vec<String>>,
}

impl NoopPayload {
    pub fn parse(payload: Option<&RawValue>) -> Result<NoopPayload, PayloadError> {
        let Some(payload) = payload.filter(|payload| payload.get() != "null") else {
            return Ok(NoopPayload::default());
        };
        let fields: NoopFields = parse_fields(payload)?;
        let fail = fields.fail.as_deref().map(parse_class).transpose()?;
        Ok(NoopPayload { sleep_ms: fields.sleep_ms, fail, result: fields.result })
    }
}

fn parse_class(name: &str) -> Result<Class, PayloadError> {
    match name {
        "task" => Ok(Class::Task),
        "timeout" => Ok(Class::Timeout),
        "quota" => Ok(Class::Quota),
        "permanent" => Ok(Class::Permanent),
        _ => Err(wrong("fail", format!("`{name}` is none of task, timeout, quota, permanent"))),
    }
}
