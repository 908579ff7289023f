//! What a payload says to the work: any kind may have a `message`, `media` that goes with it, and a line for each
//! message that was `dropped` before it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::job::Kind;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Said {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media: Option<Vec<Box<RawValue>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<Vec<String>>,
}

impl Said {
    /// The first field that is there, by name.
    pub(crate) fn first_field(&self) -> Option<&'static str> {
        let there =
            [("message", self.message.is_some()), ("media", self.media.is_some()), ("dropped", self.dropped.is_some())];
        there.into_iter().find(|(_, is_there)| *is_there).map(|(name, _)| name)
    }

    /// For standard input: what was dropped comes before what is said now.
    pub(crate) fn lines(&self) -> String {
        let mut text = String::new();
        for line in self.dropped.iter().flatten() {
            push_line(&mut text, &format!("dropped: {line}"));
        }
        if let Some(message) = self.message.as_deref().filter(|message| !message.is_empty()) {
            push_line(&mut text, message);
        }
        text
    }

    /// For a request; `None` when nothing is said.
    pub(crate) fn json(&self) -> Option<String> {
        self.first_field()?;
        Some(serde_json::to_string(self).expect("texts and JSON values can always be written"))
    }
}

/// Ends in exactly the line end that it has, or in one of ours.
pub(crate) fn push_line(to: &mut String, text: &str) {
    to.push_str(text);
    if !text.ends_with('\n') {
        to.push('\n');
    }
}

/// The payload of a follow-up to a task with this one: it says this text, and nothing of what was said before.
pub fn follow_up_payload(kind: &str, payload: Option<&RawValue>, text: &str) -> Box<RawValue> {
    // What is not an object has no fields to keep.
    let kept = payload.and_then(|payload| serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(payload.get()).ok());
    let mut fields = kept.unwrap_or_default();
    let said_otherwise = match Kind::parse(kind) {
        Some(Kind::Http) => &["media", "dropped", "body"][..],
        Some(Kind::Process | Kind::Docker) => &["media", "dropped", "stdin"],
        Some(Kind::Noop) | None => &["media", "dropped"],
    };
    said_otherwise.iter().for_each(|name| drop(fields.remove(*name)));
    fields.insert("message".to_owned(), to_raw_value(text).expect("a text is JSON"));
    to_raw_value(&fields).expect("JSON values under names are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dropped_comes_before_the_message() {
        let said = Said {
            message: Some("now\nand here".to_owned()),
            media: None,
            dropped: Some(vec!["first".to_owned(), "second".to_owned()]),
        };
        assert_eq!(said.lines(), "dropped: first\ndropped: second\nnow\nand here\n");
        let of = |message: &str| Said { message: Some(message.to_owned()), ..Said::default() };
        assert_eq!((of("").lines(), of("a\n").lines()), (String::new(), "a\n".to_owned()));
        assert_eq!(Said::default().lines(), "");
    }

    #[test]
    fn a_request_says_what_is_there() {
        let media = vec![RawValue::from_string(r#"{"n": 1.50}"#.to_owned()).expect("the test's JSON is valid")];
        let said = Said { message: Some("a \"b\"".to_owned()), media: Some(media), dropped: None };
        assert_eq!(said.json().as_deref(), Some(r#"{"message":"a \"b\"","media":[{"n": 1.50}]}"#));
        assert_eq!(Said::default().json(), None);
    }

    #[test]
    fn a_follow_up_says_only_the_new_text() {
        let follow = |kind: &str, payload: &str| {
            let raw = RawValue::from_string(payload.to_owned()).expect("the test's JSON is valid");
            follow_up_payload(kind, Some(&raw), "go").get().to_owned()
        };
        let process = r#"{"argv":["a"],"stdin":"x","message":"y","media":[1],"dropped":["z"]}"#;
        assert_eq!(follow("process", process), r#"{"argv":["a"],"message":"go"}"#);
        let http = r#"{"url":"http://x/","body":{"a":1},"stdin":7}"#;
        assert_eq!(follow("http", http), r#"{"message":"go","stdin":7,"url":"http://x/"}"#);
        assert_eq!(follow("mine", r#"{"body":1,"n":1.0}"#), r#"{"body":1,"message":"go","n":1.0}"#);
        assert_eq!(follow("mine", "[1]"), r#"{"message":"go"}"#);
        assert_eq!(follow_up_payload("noop", None, "go").get(), r#"{"message":"go"}"#);
    }
}
