//! Secrets in payloads. What is submitted, stored and shown holds references, `secret://NAME`; only the run itself sees the
//! values, and what it prints or gives back is cleared of them.

mod form;
mod handed;
mod redact;
mod url;

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) use handed::{Handed, NotHanded};
pub use redact::Redactor;
pub(crate) use redact::Sieve;

/// Where the values are.
pub trait Secrets: Send + Sync {
    /// For a task of this agent.
    fn reveal(&self, name: &str, agent: &str) -> Result<String, SecretError>;
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SecretError {
    #[error("there is no secret `{0}`")]
    Unknown(String),
    #[error("secret `{name}` is not for agent `{agent}`")]
    ForeignAgent { name: String, agent: String },
    #[error("secret `{name}` cannot be read: {cause}")]
    Unreadable { name: String, cause: String },
}

const SCHEME: &str = "secret://";
pub const NAME_BYTES_MAX: usize = 64;
/// A shorter value stands in too much that is none, and could not be hidden.
pub const VALUE_BYTES_MIN: usize = 8;
pub const VALUE_BYTES_MAX: usize = 64 * 1024;

/// Letters, digits, `_` and `-`: what may follow the reference in a text, such as a full stop, is not part of it.
pub fn name_is_valid(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_of_name)
}

fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// A name that a payload refers to, and where it does.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Reference {
    pub name: String,
    /// A path such as `payload.headers.authorization`.
    pub field: String,
}

/// What a payload refers to. Only string values are looked at, not keys.
pub fn references(payload: &RawValue) -> Vec<Reference> {
    if !may_refer(payload.get()) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let Ok(mut value) = serde_json::from_str::<Value>(payload.get()) else { return found };
    // Nothing fails, so nothing is left out.
    let _ = replace(&mut value, "payload", &mut |field, name| {
        found.push(Reference { name: name.to_owned(), field: field.to_owned() });
        Ok::<_, std::convert::Infallible>(String::new())
    });
    found.sort();
    found.dedup();
    found
}

/// Nearly no payload refers to one, and this is asked for each. The same text can be written with escapes: these two
/// can stand for a letter, a colon or a slash.
fn may_refer(json: &str) -> bool {
    [SCHEME, r"\/", r"\u"].iter().any(|sign| json.contains(sign))
}

/// Why a secret may not be here in the payload of an `http` task: what a request is sent to, and how, is told to people,
/// and in other words than it was given in.
pub fn misplaced_in_http(payload: &RawValue) -> Option<(Reference, &'static str)> {
    references(payload).into_iter().find_map(|found| {
        let why = match found.field.as_str() {
            "payload.method" => "a method is told to people; secret://NAME works in url, headers, body and message",
            "payload.url" if !url::stays_behind_host(payload) => {
                "where a request goes is told to people; secret://NAME works behind the host, in the path or the query"
            }
            _ => return None,
        };
        Some((found, why))
    })
}

/// The payload of an `http` task with its values, and what has to be hidden from now on.
pub fn reveal(payload: &RawValue, agent: &str, secrets: &dyn Secrets) -> Result<Revealed, SecretError> {
    put_values(payload, Known::new(agent, secrets), |field, value| match field {
        // As it is, it could change which part of the URL is which, and come back in other words.
        "payload.url" => url::encoded(&value),
        _ => value,
    })
}

/// As [`reveal`], for a program that reads the payload as it is.
pub(crate) fn reveal_for_program(
    payload: &RawValue,
    agent: &str,
    secrets: &dyn Secrets,
) -> Result<Revealed, SecretError> {
    put_values(payload, Known::new(agent, secrets), |_, value| value)
}

fn put_values(
    payload: &RawValue,
    mut known: Known<'_>,
    written: impl Fn(&str, String) -> String,
) -> Result<Revealed, SecretError> {
    if references(payload).is_empty() {
        return Ok(Revealed { payload: payload.to_owned(), redactor: Redactor::default() });
    }
    let unreadable = |error: serde_json::Error| SecretError::Unreadable { name: "*".into(), cause: error.to_string() };
    let mut value: Value = serde_json::from_str(payload.get()).map_err(unreadable)?;
    replace(&mut value, "payload", &mut |field, name| known.value(name).map(|value| written(field, value)))?;
    let payload = serde_json::value::to_raw_value(&value).map_err(unreadable)?;
    Ok(Revealed { payload, redactor: known.redactor() })
}

/// Values as they are asked for, each remembered to be hidden.
pub(crate) struct Known<'a> {
    agent: &'a str,
    secrets: &'a dyn Secrets,
    values: BTreeMap<String, String>,
}

impl<'a> Known<'a> {
    pub(crate) fn new(agent: &'a str, secrets: &'a dyn Secrets) -> Known<'a> {
        Known { agent, secrets, values: BTreeMap::new() }
    }

    pub(crate) fn value(&mut self, name: &str) -> Result<String, SecretError> {
        if let Some(value) = self.values.get(name) {
            return Ok(value.clone());
        }
        let value = self.secrets.reveal(name, self.agent)?;
        self.values.insert(name.to_owned(), value.clone());
        Ok(value)
    }

    /// A text with the values in the place of the references.
    pub(crate) fn text(&mut self, text: &str) -> Result<String, SecretError> {
        replaced(text, &mut |name| self.value(name))
    }

    pub(crate) fn redactor(self) -> Redactor {
        Redactor::new(self.values.into_values())
    }
}

pub struct Revealed {
    pub payload: Box<RawValue>,
    pub redactor: Redactor,
}

fn replace<E>(value: &mut Value, field: &str, with: &mut impl FnMut(&str, &str) -> Result<String, E>) -> Result<(), E> {
    match value {
        Value::String(text) if text.contains(SCHEME) => {
            *text = replaced(text, &mut |name| with(field, name))?;
            Ok(())
        }
        Value::Array(items) => {
            let mut items = items.iter_mut().enumerate();
            items.try_for_each(|(at, item)| replace(item, &format!("{field}[{at}]"), with))
        }
        Value::Object(fields) => {
            fields.iter_mut().try_for_each(|(key, value)| replace(value, &format!("{field}.{key}"), with))
        }
        _ => Ok(()),
    }
}

/// One pass: a value that looks like a reference itself is not looked into.
fn replaced<E>(text: &str, with: &mut impl FnMut(&str) -> Result<String, E>) -> Result<String, E> {
    let mut parts = text.split(SCHEME);
    let mut out = parts.next().unwrap_or("").to_owned();
    for part in parts {
        let end = part.bytes().position(|byte| !is_of_name(byte)).unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        if name_is_valid(name) {
            out.push_str(&with(name)?);
        } else {
            out.push_str(SCHEME);
            out.push_str(name);
        }
        out.push_str(rest);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Vault;

    impl Secrets for Vault {
        fn reveal(&self, name: &str, agent: &str) -> Result<String, SecretError> {
            match (name, agent) {
                ("token", "bot") => Ok("canary-value".into()),
                ("odd", "bot") => Ok("secret://token".into()),
                ("token", _) => Err(SecretError::ForeignAgent { name: name.into(), agent: agent.into() }),
                _ => Err(SecretError::Unknown(name.into())),
            }
        }
    }

    fn raw(value: Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(&value).expect("plain JSON")
    }

    #[test]
    fn references_are_found_in_values_wherever_they_stand() {
        let payload = raw(serde_json::json!({
            "headers": {"authorization": "Bearer secret://token", "secret://key": "x"},
            "argv": ["--a=secret://a-b_C1.", "secret://", "secret:///x", "secret://a-b_C1,secret://token"],
        }));
        let found: Vec<_> = references(&payload).into_iter().map(|found| (found.name, found.field)).collect();
        let expected = [
            ("a-b_C1", "payload.argv[0]"),
            ("a-b_C1", "payload.argv[3]"),
            ("token", "payload.argv[3]"),
            ("token", "payload.headers.authorization"),
        ];
        assert_eq!(found, expected.map(|(name, field)| (name.to_owned(), field.to_owned())));
        assert!(references(&raw(serde_json::json!({"shell": "echo hi"}))).is_empty());
    }

    #[test]
    fn references_are_found_however_they_are_escaped() {
        for text in [r#"{"a":"secret:\/\/token"}"#, r#"{"a":"\u0073ecret://token"}"#, r#"{"a":"secret\u003a//token"}"#]
        {
            let payload = RawValue::from_string(text.to_owned()).expect("JSON");
            let found: Vec<_> = references(&payload).into_iter().map(|found| found.name).collect();
            assert_eq!(found, ["token"], "{text}");
            let revealed = reveal(&payload, "bot", &Vault).expect("known");
            assert_eq!(revealed.payload.get(), r#"{"a":"canary-value"}"#);
        }
    }

    #[test]
    fn in_a_request_they_stand_behind_the_host() {
        let misplaced = |payload: Value| misplaced_in_http(&raw(payload)).map(|(found, _)| found.field);
        for url in [
            "http://h/secret://a",
            "http://h/?q=secret://a&r=secret://b",
            "http://h#secret://a",
            "http:\\\\h\\secret://a",
            "http://h?secret://a",
            "http://user:pw@h:80/x@secret://a:1/",
        ] {
            assert_eq!(misplaced(serde_json::json!({"url": url, "body": "secret://c"})), None, "{url}");
        }
        for url in [
            "secret://a",
            "secret://a/x",
            "http:secret://a",
            "http://secret://a/",
            "http://x.secret://a.invalid/",
            "http://secret://a@h/",
            "http://u:secret://a@h/",
            "http://h:secret://a/",
            "httpsecret://a://h/",
            "http:\t//secret://a/x/secret://b",
        ] {
            assert_eq!(misplaced(serde_json::json!({"url": url})).as_deref(), Some("payload.url"), "{url}");
        }
        let method = serde_json::json!({"url": "http://h/", "method": "secret://a"});
        assert_eq!(misplaced(method).as_deref(), Some("payload.method"));
    }

    #[test]
    fn in_a_url_a_value_is_one_word() {
        let payload = raw(serde_json::json!({"url": "http://h/secret://odd?q=secret://odd", "body": "secret://odd"}));
        let revealed = reveal(&payload, "bot", &Vault).expect("known");
        let value: Value = serde_json::from_str(revealed.payload.get()).expect("JSON");
        assert_eq!(value["url"], "http://h/secret%3A%2F%2Ftoken?q=secret%3A%2F%2Ftoken");
        assert_eq!(value["body"], "secret://token");
        assert_eq!(revealed.redactor.text("GET /secret%3A%2F%2Ftoken"), "GET /(secret)");
    }

    #[test]
    fn values_take_the_place_of_references_once() {
        let payload = raw(serde_json::json!({"a": "x secret://token/y", "b": ["secret://odd"], "secret://token": 1}));
        let revealed = reveal(&payload, "bot", &Vault).expect("known");
        let value: Value = serde_json::from_str(revealed.payload.get()).expect("JSON");
        assert_eq!(value, serde_json::json!({"a": "x canary-value/y", "b": ["secret://token"], "secret://token": 1}));
        assert_eq!(revealed.redactor.text("is canary-value here"), "is (secret) here");
    }

    #[test]
    fn what_is_not_known_or_not_for_this_agent_is_an_error() {
        let payload = raw(serde_json::json!({"a": "secret://token"}));
        let refused = reveal(&payload, "other", &Vault).err().expect("refused");
        assert_eq!(refused.to_string(), "secret `token` is not for agent `other`");
        let unknown = raw(serde_json::json!(["secret://nope"]));
        assert_eq!(reveal(&unknown, "bot", &Vault).err(), Some(SecretError::Unknown("nope".into())));
    }
}
