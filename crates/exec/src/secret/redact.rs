//! Takes secrets out of what a run prints and gives back.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::form::{self, Form, Found};
use crate::outcome::{Failure, Outcome};

const HIDDEN: &str = "(secret)";

/// What must not be seen, in every form of [`form`].
#[derive(Clone, Default)]
pub struct Redactor {
    /// `None` when there is nothing to hide.
    hidden: Option<Arc<Hidden>>,
}

struct Hidden {
    forms: Vec<Form>,
    /// Which bytes a form may begin with: most of a text is passed over with one look.
    begins: [bool; 256],
}

/// Without what it hides: it is part of what is printed when something goes wrong.
impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_forms = self.hidden.as_ref().map_or(0, |hidden| hidden.forms.len());
        f.debug_struct("Redactor").field("n_forms", &n_forms).finish_non_exhaustive()
    }
}

impl Redactor {
    pub fn new(values: impl IntoIterator<Item = String>) -> Redactor {
        let mut forms: Vec<Form> = values.into_iter().flat_map(|value| form::all(&value)).collect();
        forms.dedup();
        if forms.is_empty() {
            return Redactor::default();
        }
        let begins = std::array::from_fn(|byte| forms.iter().any(|form| form.begins_with(byte as u8)));
        Redactor { hidden: Some(Arc::new(Hidden { forms, begins })) }
    }

    pub fn is_empty(&self) -> bool {
        self.hidden.is_none()
    }

    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(hidden) = &self.hidden else { return Cow::Borrowed(bytes) };
        let mut out = Vec::new();
        let (mut copied, mut at) = (0, 0);
        while at < bytes.len() {
            match hidden.at(&bytes[at..]).0 {
                Some(len) => {
                    out.extend_from_slice(&bytes[copied..at]);
                    out.extend_from_slice(HIDDEN.as_bytes());
                    at += len;
                    copied = at;
                }
                None => at += 1,
            }
        }
        if copied == 0 {
            return Cow::Borrowed(bytes);
        }
        out.extend_from_slice(&bytes[copied..]);
        Cow::Owned(out)
    }

    pub fn text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.bytes(text.as_bytes())).into_owned()
    }

    /// How many bytes can be shown without what follows them: at most so many, and no cut through a value. It is more
    /// only where the text begins with a value that is longer, and none where it begins with one that is not whole yet.
    pub fn ready(&self, bytes: &[u8], at_most: usize) -> usize {
        let Some(hidden) = &self.hidden else { return bytes.len().min(at_most) };
        let mut at = 0;
        while at < bytes.len().min(at_most) {
            let (len, waits) = hidden.at(&bytes[at..]);
            let next = at + len.unwrap_or(1);
            if waits || (next > at_most && at > 0) {
                break;
            }
            at = next;
        }
        at
    }

    /// Of a JSON text the strings, as they are without their quotes, and numbers that are a value: what comes out is JSON
    /// again.
    pub fn json(&self, json: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(json.len());
        let mut rest = json;
        while let Some(first) = rest.first() {
            let len = token_len(rest);
            let (token, after) = rest.split_at(len);
            match first {
                b'"' => self.string(token, &mut out),
                _ if matches!(self.bytes(token), Cow::Owned(_)) => push_string(HIDDEN, &mut out),
                _ => out.extend_from_slice(token),
            }
            rest = after;
        }
        out
    }

    fn string(&self, token: &[u8], out: &mut Vec<u8>) {
        match serde_json::from_slice::<String>(token) {
            Ok(text) if matches!(self.bytes(text.as_bytes()), Cow::Owned(_)) => push_string(&self.text(&text), out),
            // Half a character (`\ud800`): the text cannot be looked into.
            Err(_) if matches!(self.bytes(token), Cow::Owned(_)) => push_string(HIDDEN, out),
            _ => out.extend_from_slice(token),
        }
    }

    pub fn outcome(&self, outcome: Outcome) -> Outcome {
        if self.is_empty() {
            return outcome;
        }
        let json = |result: Option<Vec<u8>>| result.map(|bytes| self.json(&bytes));
        match outcome {
            Outcome::Completed { result, usage } => Outcome::Completed { result: json(result), usage },
            Outcome::Failed(failure) => {
                let message = self.text(&failure.message);
                Outcome::Failed(Failure { message, result: json(failure.result), ..failure })
            }
            Outcome::Lost { reason } => Outcome::Lost { reason: self.text(&reason) },
            Outcome::NotStarted { reason } => Outcome::NotStarted { reason: self.text(&reason) },
            Outcome::Stopped | Outcome::Left => outcome,
        }
    }
}

impl Hidden {
    /// How long the longest form is that stands here, and whether a longer one may, once more has come.
    fn at(&self, bytes: &[u8]) -> (Option<usize>, bool) {
        let (mut longest, mut waits) = (None, false);
        if self.begins[usize::from(bytes[0])] {
            for form in &self.forms {
                match form.at(bytes) {
                    Found::Whole(len) => longest = longest.max(Some(len)),
                    Found::Begun => waits = true,
                    Found::Nothing => {}
                }
            }
        }
        (longest, waits)
    }
}

/// Of the string, the number or the single byte that stands here.
fn token_len(json: &[u8]) -> usize {
    if json[0] != b'"' {
        let is_number = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        return json.iter().take_while(|byte| is_number(byte)).count().max(1);
    }
    let mut is_escaped = false;
    let end = json.iter().skip(1).position(|byte| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    });
    end.map_or(json.len(), |end| end + 2)
}

fn push_string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("text is plain data, and memory takes it");
}

/// Takes values out of what comes in pieces.
#[derive(Default)]
pub(crate) struct Sieve {
    redactor: Redactor,
    /// The beginning of a value, perhaps.
    waiting: Vec<u8>,
}

impl Sieve {
    pub(crate) fn new(redactor: Redactor) -> Sieve {
        Sieve { redactor, waiting: Vec::new() }
    }

    pub(crate) fn push(&mut self, chunk: &[u8], out: &mut Vec<u8>) {
        if self.redactor.is_empty() {
            out.extend_from_slice(chunk);
            return;
        }
        self.waiting.extend_from_slice(chunk);
        let rest = self.waiting.split_off(self.redactor.ready(&self.waiting, usize::MAX));
        out.extend_from_slice(&self.redactor.bytes(&self.waiting));
        self.waiting = rest;
    }

    /// What still waits, if nothing more comes.
    pub(crate) fn rest(&self) -> Cow<'_, [u8]> {
        self.redactor.bytes(&self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::outcome::Class;

    fn redactor(values: &[&str]) -> Redactor {
        Redactor::new(values.iter().map(|value| value.to_string()))
    }

    #[test]
    fn values_are_hidden_in_every_form_they_can_take() {
        let redactor =
            redactor(&["canary-1", "canary-1-longer", "line-one-x\nline-two-y", "with\"quote", "blank-end "]);
        for (text, expected) in [
            ("a canary-1 b", "a (secret) b"),
            ("canary-1-longer", "(secret)"),
            ("canary-1canary-1", "(secret)(secret)"),
            ("line-two-y alone", "(secret) alone"),
            ("line-one-x\nline-two-y", "(secret)"),
            (r#"{"a":"with\"quote"}"#, r#"{"a":"(secret)"}"#),
            (r#"{"a":"{\"b\":\"with\\\"quote\"}"}"#, r#"{"a":"{\"b\":\"(secret)\"}"}"#),
            ("/?q=with%22quote&r=1", "/?q=(secret)&r=1"),
            ("Basic dXNlcjpjYW5hcnktMS1sb25nZXI=", "Basic dXNlcjp(secret)I="),
            ("canary-", "canary-"),
            ("x: blank-end", "x: (secret)"),
        ] {
            assert_eq!(redactor.text(text), expected);
        }
    }

    #[test]
    fn what_is_printed_of_it_has_no_value() {
        let printed = format!("{:?}", redactor(&["canary-1"]));
        assert!(printed.starts_with("Redactor { n_forms: ") && !printed.contains("canary"), "{printed}");
        assert!(!printed.contains("99"), "not as bytes either: {printed}");
    }

    #[test]
    fn a_redacted_json_text_is_json() {
        let redactor = redactor(&["nabcdefgh", "12345678", "key-canary", "quo\"ted-x"]);
        let text = json!({
            "lines": "\nabcdefgh", "n": 12345678, "list": [1.5, -2, true, null, "123456789"], "key-canary": "quo\"ted-x",
        });
        let cleared: Value = serde_json::from_slice(&redactor.json(text.to_string().as_bytes())).expect("JSON");
        assert_eq!(cleared["lines"], "\nabcdefgh", "a line end is no letter");
        assert_eq!((&cleared["n"], &cleared["(secret)"]), (&json!("(secret)"), &json!("(secret)")));
        assert_eq!(cleared["list"], json!([1.5, -2, true, null, "(secret)9"]));
        let untouched = br#"{ "a" : 1.50, "b":"\u00e9\\" }"#;
        assert_eq!(redactor.json(untouched), untouched, "what has no secret stays as it was written");
        let half = redactor.json(br#"["\ud800 key-canary", "\ud800"]"#);
        assert_eq!(half, br#"["(secret)", "\ud800"]"#);
    }

    #[test]
    fn outcomes_are_cleared() {
        let redactor = redactor(&["canary-1"]);
        let failed =
            Failure::work(Class::Task, "GET http://x/?k=canary-1: refused").with_result(b"\"canary-1\"".to_vec());
        let Outcome::Failed(failed) = redactor.outcome(Outcome::Failed(failed)) else { panic!("it is a failure") };
        assert_eq!(failed.message, "GET http://x/?k=(secret): refused");
        assert_eq!(failed.result.as_deref(), Some(&b"\"(secret)\""[..]));
    }

    #[test]
    fn a_cut_is_not_made_through_a_value() {
        let redactor = redactor(&["abcdefgh"]);
        for (text, at_most, ready) in [
            ("xyabcdefghz", 20, 11),
            ("xyabcdefghz", 10, 10),
            ("xyabcdefghz", 9, 2),
            ("abcdefghz", 3, 8),
            ("xyabc", 20, 2),
            ("abc", 20, 0),
            ("xyabc", 1, 1),
        ] {
            assert_eq!(redactor.ready(text.as_bytes(), at_most), ready, "{text} {at_most}");
        }
        assert_eq!(Redactor::default().ready(b"abc", 2), 2);
    }

    proptest! {
        /// However output is cut into pieces: no piece shows a value, and nothing else is lost.
        #[test]
        fn no_cut_shows_a_value(text in "[ab]{0,6}(abcabcab|x){0,3}[abc]{0,9}", cuts in prop::collection::vec(0usize..40, 0..6)) {
            let mut sieve = Sieve::new(redactor(&["abcabcab"]));
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut shown = Vec::new();
            for pair in cuts.windows(2) {
                sieve.push(&text.as_bytes()[pair[0]..pair[1]], &mut shown);
            }
            shown.extend_from_slice(&sieve.rest());
            let shown = String::from_utf8(shown).expect("text");
            prop_assert!(!shown.contains("abcabcab"), "{shown}");
            prop_assert_eq!(shown.replace("(secret)", "abcabcab"), text);
        }
    }
}
