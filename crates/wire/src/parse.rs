//! Reading a request body so that a person learns what was wrong and where.

use serde::de::DeserializeOwned;

/// Where a body is wrong, and how.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct ParseError {
    /// Path of the field, like `tasks[3].retry.maxRetries`; empty when the body as a whole is wrong.
    pub field: String,
    /// What is wrong, with line and column where there is one.
    pub message: String,
}

impl ParseError {
    fn whole(message: String) -> ParseError {
        ParseError { field: String::new(), message }
    }

    fn text(&self) -> String {
        match self.field.as_str() {
            "" => self.message.clone(),
            field => format!("{field}: {}", self.message),
        }
    }
}

/// Reads `bytes` as one JSON value of type `T` and nothing behind it.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ParseError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| ParseError::whole(format!("the body is not UTF-8: byte {} is wrong", error.valid_up_to())))?;
    if text.trim_ascii().is_empty() {
        return Err(ParseError::whole("the body is empty; a JSON value is expected".into()));
    }
    // Keeping track of the path costs time, and most bodies are right: it is looked for only after a failure.
    serde_json::from_str(text).map_err(|_| locate::<T>(text))
}

fn locate<T: DeserializeOwned>(text: &str) -> ParseError {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut deserializer, &mut track);
    if let Err(error) = T::deserialize(tracked) {
        return describe(track.path().to_string(), &error);
    }
    match deserializer.end() {
        Err(error) => ParseError::whole(format!("there is more behind the JSON value: {error}")),
        // Both readings of one text agree; should they ever not, the caller still gets an error and no panic.
        Ok(()) => ParseError::whole("the body cannot be read".into()),
    }
}

fn describe(path: String, error: &serde_json::Error) -> ParseError {
    // A root path is written as a lone dot.
    let path = if path == "." { String::new() } else { path };
    let message = error.to_string();
    match error.classify() {
        serde_json::error::Category::Data if is_list_for_object(&message) => list_for_object(path, error),
        serde_json::error::Category::Data => ParseError { field: with_missing(path, &message), message },
        serde_json::error::Category::Eof => ParseError::whole(format!("the JSON ends too early: {message}")),
        _ => ParseError { field: path, message: format!("the body is not JSON: {message}") },
    }
}

/// The commonest wrong type deserves the words of the API's own reader: serde calls a list a sequence, and an object a
/// map.
fn is_list_for_object(message: &str) -> bool {
    let expected = message.strip_prefix("invalid type: sequence, expected ");
    expected.is_some_and(|expected| expected.starts_with("an object") || expected.starts_with("a map"))
}

fn list_for_object(field: String, error: &serde_json::Error) -> ParseError {
    let what = if field.is_empty() { "the body " } else { "" };
    let (line, column) = (error.line(), error.column());
    ParseError { field, message: format!("{what}must be an object, not a list (line {line} column {column})") }
}

/// A missing field is named by serde in its message only, because it has no place of its own in the text.
fn with_missing(path: String, message: &str) -> String {
    let missing = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    match missing {
        None => path,
        Some(field) if path.is_empty() => field.to_owned(),
        Some(field) => format!("{path}.{field}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchRequest, TaskRequest};

    fn task_error(body: &str) -> ParseError {
        parse::<TaskRequest>(body.as_bytes()).unwrap_err()
    }

    #[test]
    fn an_unknown_field_is_named() {
        let error = task_error(r#"{"kind":"noop","prio":1}"#);
        assert_eq!(error.field, "prio");
        assert!(error.message.contains("unknown field `prio`"), "{error}");
    }

    #[test]
    fn an_unknown_field_deep_inside_is_named_with_its_path() {
        let body = r#"{"tasks":[{"kind":"a"},{"kind":"b","retry":{"maxRetry":1}}]}"#;
        let error = parse::<BatchRequest>(body.as_bytes()).unwrap_err();
        assert_eq!(error.field, "tasks[1].retry.maxRetry");
    }

    #[test]
    fn a_wrong_type_is_named_with_its_path() {
        let body = r#"{"tasks":[{"kind":"a","payload":{"x":[1]},"retry":{"maxRetries":-1}}]}"#;
        let error = parse::<BatchRequest>(body.as_bytes()).unwrap_err();
        assert_eq!(error.field, "tasks[0].retry.maxRetries");
        assert!(error.message.contains("-1"), "{error}");
        assert_eq!(task_error(r#"{"kind":7}"#).field, "kind");
        assert_eq!(task_error(r#"{"kind":"a","priority":"urgent"}"#).field, "priority");
        assert_eq!(task_error(r#"{"kind":"a","deadline":"soon"}"#).field, "deadline");
        assert_eq!(task_error(r#"{"kind":"a","dependsOn":["x"]}"#).field, "dependsOn[0]");
        assert_eq!(task_error(r#"{"kind":"a","resources":{"gpu":"one"}}"#).field, "resources.gpu");
        assert_eq!(task_error(r#"{"kind":"a","resources":{"licence":-1}}"#).field, "resources.licence");
        assert_eq!(task_error(r#"{"kind":"a","metadata":[]}"#).field, "metadata");
    }

    #[test]
    fn a_missing_field_is_named() {
        assert_eq!(parse::<BatchRequest>(b"{}").unwrap_err().field, "tasks");
    }

    #[test]
    fn a_body_that_is_no_json_says_so() {
        assert!(task_error("").message.contains("empty"));
        assert!(task_error(r#"{"kind":"#).message.contains("ends too early"));
        assert!(task_error("{kind}").message.contains("not JSON"));
        assert!(task_error(r#"{"kind":"a"} true"#).message.contains("more behind"));
        assert!(task_error("[]").message.contains("the body must be an object"));
    }

    #[test]
    fn bytes_that_are_no_utf8_say_where() {
        let error = parse::<TaskRequest>(b"{\"kind\":\"\xff\"}").unwrap_err();
        assert!(error.message.contains("not UTF-8") && error.message.contains("byte 9"), "{error}");
    }

    proptest::proptest! {
        /// Requests come from anybody: whatever the bytes are, they are read or refused with a place.
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
            text in r#"[\[\]{}:,"a-z0-9.eE\\-]{0,80}"#,
            field in proptest::sample::select(vec!["kind", "payload", "session", "retry", "resources", "dependsOn", "runAt", "tags"]),
            value in r#"(null|-?[0-9]{1,30}(\.[0-9]{1,3})?(e[0-9]{1,4})?|"[ -~]{0,20}"|\[\]|\{\}|\[\[\[\]\]\])"#,
        ) {
            let known = format!("{{\"kind\":\"noop\",\"{field}\":{value}}}");
            for bytes in [&bytes[..], text.as_bytes(), known.as_bytes()] {
                let _ = parse::<crate::TaskRequest>(bytes);
                let _ = parse::<crate::BatchRequest>(bytes);
                let _ = parse::<crate::SessionSettings>(bytes);
            }
            let _ = (text.parse::<crate::Id>(), text.parse::<crate::Timestamp>(), value.trim_matches('"').parse::<crate::Timestamp>());
        }

        #[test]
        fn nesting_has_an_end(depth in 1usize..3000) {
            let nested = "[".repeat(depth) + &"]".repeat(depth);
            let _ = parse::<crate::TaskRequest>(format!("{{\"kind\":\"noop\",\"payload\":{nested}}}").as_bytes());
            let _ = parse::<crate::TaskRequest>(format!("{{\"kind\":\"noop\",\"metadata\":{{\"a\":{nested}}}}}").as_bytes());
        }
    }
}
