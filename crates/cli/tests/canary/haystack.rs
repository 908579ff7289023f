//! What was seen of a server, and where in it a secret is found.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

#[derive(Default)]
pub struct Haystack {
    seen: Vec<(String, Vec<u8>)>,
}

/// A secret, in the forms in which it would be found.
pub struct Canary {
    name: String,
    forms: Vec<(&'static str, Vec<u8>)>,
}

impl Haystack {
    pub fn add(&mut self, place: &str, bytes: &(impl AsRef<[u8]> + ?Sized)) {
        self.seen.push((place.to_owned(), bytes.as_ref().to_vec()));
    }

    pub fn merge(&mut self, other: Haystack) {
        self.seen.extend(other.seen);
    }

    /// In how many places this text is.
    pub fn contains(&self, text: &str) -> usize {
        self.seen.iter().map(|(_, bytes)| n_of(bytes, text.as_bytes())).sum()
    }

    pub fn places_of(&self, canary: &Canary) -> Vec<String> {
        let mut places = Vec::new();
        for (place, bytes) in &self.seen {
            for (form, text) in &canary.forms {
                if let Some(at) = position(bytes, text) {
                    let around = &bytes[at.saturating_sub(60)..(at + text.len() + 20).min(bytes.len())];
                    places.push(format!("{} ({form}) in {place}: …{}…", canary.name, String::from_utf8_lossy(around)));
                }
            }
        }
        places
    }
}

impl Canary {
    pub fn new(name: &str, value: &str) -> Canary {
        let json = serde_json::to_string(value).unwrap();
        let twice = serde_json::to_string(&json).unwrap();
        let ascii: String =
            json.chars().map(|char| if char.is_ascii() { char.to_string() } else { unicode(char) }).collect();
        let mut forms = vec![
            ("as it is", value.as_bytes().to_vec()),
            ("json", inner(&json)),
            ("json twice", twice.trim_matches(['"', '\\']).as_bytes().to_vec()),
            ("json in ascii", inner(&ascii)),
            ("percent", percent(value, "").into_bytes()),
            ("percent of a path", percent(value, "/").into_bytes()),
            ("form", percent(value, "").replace("%20", "+").into_bytes()),
            ("percent in lower case", percent(value, "").to_lowercase().into_bytes()),
        ];
        for before in ["", "x", "xx"] {
            for engine in [STANDARD, URL_SAFE] {
                // Four letters at either end may hold bits of what stands beside it.
                let text = engine.encode(format!("{before}{value}xxx"));
                forms.push(("base64", text.as_bytes()[4..text.len() - 8].to_vec()));
            }
        }
        Canary { name: name.to_owned(), forms }
    }
}

fn inner(json: &str) -> Vec<u8> {
    json.as_bytes()[1..json.len() - 1].to_vec()
}

fn unicode(char: char) -> String {
    char.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect()
}

fn percent(value: &str, safe: &str) -> String {
    let is_safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte) || safe.as_bytes().contains(byte);
    value
        .bytes()
        .map(|byte| if is_safe(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// By its first byte, which in most places is none: there are megabytes to look through.
fn position(bytes: &[u8], text: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == text[0]) {
        if bytes[from + at..].starts_with(text) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

fn n_of(bytes: &[u8], text: &[u8]) -> usize {
    let (mut from, mut n) = (0, 0);
    while let Some(at) = position(&bytes[from..], text) {
        from += at + text.len();
        n += 1;
    }
    n
}

#[test]
fn a_canary_is_found_in_every_form() {
    let value = "a \"b\"/ö\\ canary";
    let canary = Canary::new("it", value);
    let json = serde_json::json!([value]).to_string();
    let texts = [
        value.to_owned(),
        json.clone(),
        serde_json::json!([json]).to_string(),
        r#""a \"b\"/\u00f6\\ canary""#.to_owned(),
        "a%20%22b%22%2F%C3%B6%5C%20canary".to_owned(),
        "a+%22b%22%2F%C3%B6%5C+canary".to_owned(),
        STANDARD.encode(format!("user:{value}")),
        URL_SAFE.encode(format!("{value}\n")),
    ];
    for text in texts {
        let mut found = Haystack::default();
        found.add("here", &text);
        assert!(!found.places_of(&canary).is_empty(), "{text}");
    }
}
