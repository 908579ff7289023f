//! Several messages in one start.
//!
//! A task of a session may carry messages that came after its own, and be told of messages that were dropped before it.
//! They are rows until it starts; here they become one payload. Texts are joined by line ends, media are put one behind
//! the other, every other field is the last message's. All values but the texts stay the JSON they were.

use std::collections::BTreeMap;

use serde_json::value::{RawValue, to_raw_value};

/// Of a dropped message, in characters.
const SUMMARY_CHARS_MAX: usize = 160;

type Fields = BTreeMap<String, Box<RawValue>>;

/// `messages` are payloads, the task's own first.
pub fn merge(messages: &[Option<&RawValue>], dropped: &[Option<&RawValue>]) -> Option<Box<RawValue>> {
    let last = messages.last().copied().flatten();
    if messages.len() < 2 && dropped.is_empty() {
        return last.map(RawValue::to_owned);
    }
    let messages: Vec<Fields> = messages.iter().map(|message| fields_of(*message)).collect();
    let mut texts = messages.iter().filter_map(text_of).filter(|text| !text.is_empty()).peekable();
    let text = texts.peek().is_some().then(|| Vec::from_iter(texts).join("\n"));
    let media = items_of(&messages, "media");
    let mut told = items_of(&messages, "dropped");
    told.extend(dropped.iter().map(|payload| raw(&summary(*payload))));
    let mut merged = messages.into_iter().next_back().unwrap_or_default();
    if let Some(text) = text {
        merged.insert("message".to_owned(), raw(&text));
    }
    for (name, items) in [("media", media), ("dropped", told)] {
        if !items.is_empty() {
            merged.insert(name.to_owned(), raw(&items));
        }
    }
    // Nothing said and nothing given is still no payload.
    (last.is_some() || !merged.is_empty()).then(|| raw(&merged))
}

/// What a running task reads of a message: its text, or else the whole of it.
pub(crate) fn input_text(payload: Option<&RawValue>) -> String {
    text_of(&fields_of(payload)).unwrap_or_else(|| compact(payload))
}

/// One line about a message that was dropped.
fn summary(payload: Option<&RawValue>) -> String {
    let text = text_of(&fields_of(payload)).unwrap_or_default();
    let first = text.lines().map(str::trim).find(|line| !line.is_empty());
    cut(first.map_or_else(|| compact(payload), str::to_owned))
}

fn cut(line: String) -> String {
    if line.chars().count() <= SUMMARY_CHARS_MAX {
        return line;
    }
    line.chars().take(SUMMARY_CHARS_MAX - 1).chain(['…']).collect()
}

/// What is not an object has no fields.
fn fields_of(payload: Option<&RawValue>) -> Fields {
    payload.and_then(|payload| serde_json::from_str(payload.get()).ok()).unwrap_or_default()
}

fn text_of(fields: &Fields) -> Option<String> {
    serde_json::from_str(fields.get("message")?.get()).ok()
}

/// All items of the lists with this name, in the order of the messages.
fn items_of(messages: &[Fields], name: &str) -> Vec<Box<RawValue>> {
    let lists = messages.iter().filter_map(|fields| serde_json::from_str::<Vec<_>>(fields.get(name)?.get()).ok());
    lists.flatten().collect()
}

/// The same JSON on one line: blanks outside of texts go, everything else stays as it was written.
fn compact(payload: Option<&RawValue>) -> String {
    let mut is_text = false;
    let mut is_escaped = false;
    let keep = |char: &char| {
        let was_text = is_text;
        match char {
            '"' if !is_escaped => is_text = !is_text,
            _ => {}
        }
        is_escaped = was_text && *char == '\\' && !is_escaped;
        was_text || !char.is_ascii_whitespace()
    };
    payload.map_or("null", RawValue::get).chars().filter(keep).collect()
}

fn raw(value: &(impl serde::Serialize + ?Sized)) -> Box<RawValue> {
    to_raw_value(value).expect("texts, and JSON values under names, are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw_of(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).expect("the test's JSON is valid")
    }

    /// An empty text stands for no payload.
    fn merged(messages: &[&str], dropped: &[&str]) -> String {
        let own =
            |list: &[&str]| -> Vec<_> { list.iter().map(|json| (!json.is_empty()).then(|| raw_of(json))).collect() };
        let (messages, dropped) = (own(messages), own(dropped));
        let messages: Vec<_> = messages.iter().map(Option::as_deref).collect();
        let dropped: Vec<_> = dropped.iter().map(Option::as_deref).collect();
        merge(&messages, &dropped).map_or(String::new(), |payload| payload.get().to_owned())
    }

    #[test]
    fn one_message_is_left_byte_for_byte() {
        assert_eq!(merged(&[r#"{"z": 1, "a": [ ]}"#], &[]), r#"{"z": 1, "a": [ ]}"#);
        assert_eq!(merged(&[""], &[]), "");
    }

    /// goclaw 26: two texts are one, with everything else of the last.
    #[test]
    fn texts_are_joined_and_other_fields_are_the_last_ones() {
        let (one, two) = (r#"{"message":"one","n":1,"only":"first"}"#, r#"{"message":"two","n":2}"#);
        assert_eq!(merged(&[one, two], &[]), r#"{"message":"one\ntwo","n":2}"#);
    }

    /// goclaw 30: media in the order in which they came, all in one.
    #[test]
    fn media_are_put_one_behind_the_other() {
        let (one, two) = (r#"{"media":[{"n": 1.50},"b"]}"#, r#"{"media":["c"]}"#);
        assert_eq!(merged(&[one, two], &[]), r#"{"media":[{"n": 1.50},"b","c"]}"#);
    }

    /// goclaw 31: text then media; text, media, text.
    #[test]
    fn texts_and_media_meet_in_one_message() {
        let (look, this) = (r#"{"message":"look:"}"#, r#"{"message":"this","media":["pic"]}"#);
        assert_eq!(merged(&[look, this], &[]), r#"{"media":["pic"],"message":"look:\nthis"}"#);
        let between = [r#"{"message":"one"}"#, r#"{"media":["pic"]}"#, r#"{"message":"two"}"#];
        assert_eq!(merged(&between, &[]), r#"{"media":["pic"],"message":"one\ntwo"}"#);
    }

    /// goclaw 33: each message is in it once, and in its order, however many there are.
    #[test]
    fn every_message_is_there_once() {
        let messages: Vec<_> = (0..1000).map(|n| format!(r#"{{"message":"m{n}","media":[{n}]}}"#)).collect();
        let merged = merged(&messages.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
        let fields = fields_of(Some(&raw_of(&merged)));
        let texts: Vec<_> = (0..1000).map(|n| format!("m{n}")).collect();
        assert_eq!(text_of(&fields), Some(texts.join("\n")));
        assert_eq!(items_of(&[fields], "media").len(), 1000);
    }

    /// goclaw 36: empty texts are skipped, the latest parameters win.
    #[test]
    fn empty_and_missing_texts_are_skipped() {
        let messages = [r#"{"message":"one","p":1}"#, r#"{"message":""}"#, r#"{"message":null}"#, r#"{"p":2}"#];
        assert_eq!(merged(&messages, &[]), r#"{"message":"one","p":2}"#);
        assert_eq!(merged(&[r#"{"message":"","p":1}"#, r#"{"p":2}"#], &[]), r#"{"p":2}"#);
        assert_eq!(merged(&["", "null", ""], &[]), "");
        assert_eq!(merged(&[r#"{"message":"one"}"#, ""], &[]), r#"{"message":"one"}"#);
    }

    #[test]
    fn each_dropped_message_is_one_short_line() {
        let long = format!(r#"{{"message":"{}"}}"#, "ü".repeat(500));
        let cut = format!("{}…", "ü".repeat(159));
        let dropped = [r#"{"message":"\n first \nsecond"}"#, r#"{"url": "a b",  "n": 10}"#, "", &long];
        let expected =
            format!(r#"{{"dropped":["first","{{\"url\":\"a b\",\"n\":10}}","null","{cut}"],"message":"now"}}"#);
        assert_eq!(merged(&[r#"{"message":"now"}"#], &dropped), expected);
        assert_eq!(merged(&[""], &[r#"{"message":"a"}"#]), r#"{"dropped":["a"]}"#);
    }

    #[test]
    fn input_is_the_text_or_the_whole_payload_on_one_line() {
        let text = |json: &str| input_text(Some(&raw_of(json)));
        assert_eq!(text(r#"{"message":"a\nb","x":1}"#), "a\nb");
        assert_eq!(text("{\"x\": \"a \\\" b\\\\\",\n \"y\": [1, 2.50]}"), r#"{"x":"a \" b\\","y":[1,2.50]}"#);
        assert_eq!(input_text(None), "null");
    }
}
