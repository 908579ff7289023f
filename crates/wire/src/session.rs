//! Sessions: how a message names one, how one is set, how one is shown, and what can be done to it.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{OneOfBuilder, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::object::object;
use crate::{Id, Json, SessionDrop, SessionMode, TaskState, Timestamp};

/// The session a task belongs to: its key, and settings that stick to the session. In JSON a bare key, or an object
/// `{key, mode, cap, …}`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SessionRequest {
    /// 1 to 256 bytes.
    pub key: String,
    pub settings: SessionSettings,
}

impl SessionRequest {
    pub fn new(key: impl Into<String>) -> SessionRequest {
        SessionRequest { key: key.into(), settings: SessionSettings::default() }
    }
}

/// The long form, flat: serde's flatten would lose the path of a setting that is wrong.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SessionObject {
    /// 1 to 256 bytes.
    key: String,
    /// What becomes of a message that comes while the session is busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<SessionMode>,
    /// How many messages may wait, at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    cap: Option<u32>,
    /// Who makes room when the line is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    drop: Option<SessionDrop>,
    /// Messages that come so close together, in milliseconds, become one run.
    #[serde(skip_serializing_if = "Option::is_none")]
    debounce_ms: Option<u64>,
    /// No message is held back longer, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_wait_ms: Option<u64>,
    /// How many of its tasks run at once, at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_concurrent: Option<u32>,
}

impl From<SessionObject> for SessionRequest {
    fn from(object: SessionObject) -> SessionRequest {
        let SessionObject { key, mode, cap, drop, debounce_ms, max_wait_ms, max_concurrent } = object;
        let settings = SessionSettings { mode, cap, drop, debounce_ms, max_wait_ms, max_concurrent };
        SessionRequest { key, settings }
    }
}

impl Serialize for SessionRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.settings.is_empty() {
            return serializer.serialize_str(&self.key);
        }
        let SessionSettings { mode, cap, drop, debounce_ms, max_wait_ms, max_concurrent } = self.settings;
        let key = self.key.clone();
        SessionObject { key, mode, cap, drop, debounce_ms, max_wait_ms, max_concurrent }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SessionRequest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SessionRequest, D::Error> {
        struct SessionVisitor;
        impl<'de> Visitor<'de> for SessionVisitor {
            type Value = SessionRequest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the key of a session, or an object with its key and settings")
            }

            fn visit_str<E: de::Error>(self, key: &str) -> Result<SessionRequest, E> {
                Ok(SessionRequest::new(key))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<SessionRequest, A::Error> {
                SessionObject::deserialize(MapAccessDeserializer::new(map)).map(SessionRequest::from)
            }
        }
        deserializer.deserialize_any(SessionVisitor)
    }
}

impl PartialSchema for SessionRequest {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .item(String::schema())
            .item(SessionObject::schema())
            .description(Some(
                "The key of a session, or an object with its key and settings that stick to the session.",
            ))
            .into()
    }
}

impl ToSchema for SessionRequest {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        SessionObject::schemas(schemas);
    }
}

/// Settings of a session; what is left out comes from the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct SessionSettings {
    /// What becomes of a message that comes while the session is busy (default `queue`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<SessionMode>,
    /// How many messages may wait, at least 1 (default 10).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap: Option<u32>,
    /// Who makes room when the line is full (default `old`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drop: Option<SessionDrop>,
    /// Messages that come so close together, in milliseconds, become one run (default 0: each is its own).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub debounce_ms: Option<u64>,
    /// No message is held back longer, in milliseconds (default: five times debounceMs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wait_ms: Option<u64>,
    /// How many of its tasks run at once, at least 1 (default 1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent: Option<u32>,
}

object!(SessionSettings);

impl SessionSettings {
    pub fn is_empty(&self) -> bool {
        *self == SessionSettings::default()
    }
}

/// The settings of a session that are in force, all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionRules {
    /// What becomes of a message that comes while the session is busy.
    pub mode: SessionMode,
    /// How many messages may wait.
    pub cap: u32,
    /// Who makes room when the line is full.
    pub drop: SessionDrop,
    /// Messages that come so close together, in milliseconds, become one run.
    pub debounce_ms: u64,
    /// No message is held back longer, in milliseconds.
    pub max_wait_ms: u64,
    /// How many of its tasks run at once; 1 while its context is nearly full.
    pub max_concurrent: u32,
}

/// A session: its settings and what it is doing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionView {
    /// Its key.
    pub key: String,
    /// Its own settings, from its messages and from `PUT`.
    pub settings: SessionSettings,
    /// Its settings in force, with the configuration's where it has none of its own.
    pub effective: SessionRules,
    /// Its live tasks.
    pub counts: SessionCounts,
    /// The lane of its latest message, whose settings are its defaults.
    pub lane: String,
    /// Raised by each reset.
    pub generation: u32,
    /// Messages that were sent before this moment are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cutoff: Option<Timestamp>,
    /// How full the context of its model was when a run last said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<SessionContext>,
    /// Messages it has taken so far, merged ones included.
    pub messages: u64,
    /// When it was first used.
    pub created_at: Timestamp,
    /// When it last took a message, or was set, stopped or reset.
    pub last_used_at: Timestamp,
}

/// The live tasks of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionCounts {
    /// Tasks that hold a slot.
    pub running: u32,
    /// Tasks that wait: for their turn, for a slot, for dependencies, for a time.
    pub waiting: u32,
    /// Tasks held back because more messages may come.
    pub debouncing: u32,
}

/// How full the context of a session's model is. Near its end the session runs one task at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct SessionContext {
    /// Tokens in the context.
    pub context_tokens: u64,
    /// Tokens that fit.
    pub context_window: u64,
}

object!(SessionContext);

/// What a stop did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionStopAnswer {
    /// The task that is being stopped; null when none ran.
    pub stopped: Option<Id>,
}

/// What a stop of everything, or a reset, found and is ending.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionStopAllAnswer {
    /// Running tasks that are being stopped.
    pub running: u32,
    /// Waiting tasks.
    pub waiting: u32,
    /// Tasks that were held back for more messages.
    pub debouncing: u32,
    /// The session as it is now.
    pub session: SessionView,
}

/// A message that was merged into a task, beyond the task's own.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessageView {
    /// Its place among the merged ones, from 1.
    pub n: u32,
    /// When it came.
    pub at: Timestamp,
    /// When the sender sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
    /// The key it was submitted with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// What it carried, as it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Json>,
}

/// Text for a running task.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct InputRequest {
    /// A process that was started with `input: true` reads it as a line on stdin.
    pub text: String,
}

object!(InputRequest);

/// The task that carries the text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InputAnswer {
    /// It completes when the text was taken, and runs by itself when it was not.
    pub id: Id,
    /// Where it stands.
    pub state: TaskState,
    /// The task the text is handed to; absent when that one takes no input and this is a follow-up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steers: Option<Id>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TaskRequest, parse};

    fn session(body: &str) -> SessionRequest {
        let body = format!(r#"{{"kind":"noop","session":{body}}}"#);
        parse::<TaskRequest>(body.as_bytes()).unwrap().session.unwrap()
    }

    #[test]
    fn a_session_is_a_key_or_an_object() {
        assert_eq!(session(r#""chat:7""#), SessionRequest::new("chat:7"));
        assert_eq!(session(r#"{"key":"chat:7"}"#), SessionRequest::new("chat:7"));
        let long = session(r#"{"key":"k","mode":"collect","drop":"summarize","maxConcurrent":3}"#);
        assert_eq!((long.settings.mode, long.settings.max_concurrent), (Some(SessionMode::Collect), Some(3)));
        assert_eq!(long.settings.drop, Some(SessionDrop::Summarize));
        let text = serde_json::to_string(&long).unwrap();
        assert_eq!(text, r#"{"key":"k","mode":"collect","drop":"summarize","maxConcurrent":3}"#);
        assert_eq!(serde_json::to_string(&SessionRequest::new("k")).unwrap(), r#""k""#);
    }

    #[test]
    fn a_wrong_setting_is_named_with_its_path() {
        for (body, field) in [
            (r#"{"key":"k","mode":"fifo"}"#, "session.mode"),
            (r#"{"key":"k","capacity":3}"#, "session.capacity"),
            (r#"{"key":"k","cap":-1}"#, "session.cap"),
            (r#"{"mode":"queue"}"#, "session.key"),
            ("7", "session"),
            ("[]", "session"),
        ] {
            let body = format!(r#"{{"kind":"noop","session":{body}}}"#);
            let error = parse::<TaskRequest>(body.as_bytes()).unwrap_err();
            assert_eq!(error.field, field, "{body}: {error}");
        }
    }

    #[test]
    fn a_stop_of_nothing_says_null() {
        let text = serde_json::to_string(&SessionStopAnswer { stopped: None }).unwrap();
        assert_eq!(text, r#"{"stopped":null}"#);
        assert_eq!(serde_json::from_str::<SessionStopAnswer>(&text).unwrap().stopped, None);
    }
}
