//! The forms in which a value can stand in a text: as it is, escaped as URLs and JSON do it, or inside of base64.

use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD_NO_PAD, URL_SAFE_NO_PAD};

use super::VALUE_BYTES_MIN;

/// JSON in JSON doubles them each time; what has more is no escape of anything, and need not be waited for.
const BACKSLASHES_MAX: usize = 16;

/// What a text begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// All of it, in so many bytes.
    Whole(usize),
    /// The text ends before it does.
    Begun,
    Nothing,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Form {
    /// Any of its characters may be escaped.
    Text(String),
    /// To the letter.
    Exact(Vec<u8>),
}

/// All forms of a value. Of one with several lines also each line that is long enough to be a value, and
/// without the blanks around it: a header loses them on its way.
pub(super) fn all(value: &str) -> Vec<Form> {
    let lines = value.lines().flat_map(|line| [line, line.trim()]).filter(|line| line.len() >= VALUE_BYTES_MIN);
    let texts = lines.chain(Some(value).filter(|value| !value.is_empty())).map(|text| Form::Text(text.to_owned()));
    let encoded = [STANDARD_NO_PAD, URL_SAFE_NO_PAD].into_iter().flat_map(|engine| in_base64(value.as_bytes(), engine));
    texts.chain(encoded.map(Form::Exact)).collect()
}

impl Form {
    pub(super) fn at(&self, text: &[u8]) -> Found {
        match self {
            Form::Exact(bytes) => exact(bytes, text),
            // As it is comes first: it may itself look like something escaped.
            Form::Text(value) => match exact(value.as_bytes(), text) {
                Found::Nothing => escaped(value, text),
                found => found,
            },
        }
    }

    /// May it begin with this byte?
    pub(super) fn begins_with(&self, byte: u8) -> bool {
        match self {
            Form::Exact(bytes) => bytes.first() == Some(&byte),
            Form::Text(value) => {
                let first = value.as_bytes().first();
                first == Some(&byte) || byte == b'%' || byte == b'\\' || (first == Some(&b' ') && byte == b'+')
            }
        }
    }
}

fn exact(value: &[u8], text: &[u8]) -> Found {
    match text.starts_with(value) {
        true => Found::Whole(value.len()),
        false if value.starts_with(text) => Found::Begun,
        false => Found::Nothing,
    }
}

fn escaped(value: &str, text: &[u8]) -> Found {
    let (mut left, mut at) = (value, 0);
    while let Some(char) = left.chars().next() {
        if at == text.len() {
            return Found::Begun;
        }
        let (n_value, found) = match char {
            '\\' => backslashes(left, &text[at..]),
            _ => (char.len_utf8(), char_at(char, &text[at..])),
        };
        match found {
            Found::Whole(n_text) => at += n_text,
            other => return other,
        }
        left = &left[n_value..];
    }
    Found::Whole(at)
}

fn char_at(char: char, text: &[u8]) -> Found {
    let mut raw = [0; 4];
    let raw = char.encode_utf8(&mut raw).as_bytes();
    let ways = [percent(raw, text), backslash(char, text), exact(raw, text)];
    let whole = ways.into_iter().find(|found| matches!(found, Found::Whole(_)));
    let begun = ways.contains(&Found::Begun).then_some(Found::Begun);
    whole.or(begun).unwrap_or(Found::Nothing)
}

/// `%C3%A9`, in upper or lower case; `+` for a blank.
fn percent(raw: &[u8], text: &[u8]) -> Found {
    if raw == b" " && text.first() == Some(&b'+') {
        return Found::Whole(1);
    }
    let mut at = 0;
    for byte in raw {
        let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).expect("four bits are a digit") as u8;
        for expected in [b'%', digit(byte >> 4), digit(byte & 15)] {
            match text.get(at) {
                None => return Found::Begun,
                Some(found) if found.eq_ignore_ascii_case(&expected) => at += 1,
                Some(_) => return Found::Nothing,
            }
        }
    }
    Found::Whole(at)
}

/// `\n`, `\"`, `\u00e9`, with as many backslashes as it was escaped times.
fn backslash(char: char, text: &[u8]) -> Found {
    let letter = match char {
        '"' | '/' => Some(char as u8),
        '\n' => Some(b'n'),
        '\r' => Some(b'r'),
        '\t' => Some(b't'),
        '\u{8}' => Some(b'b'),
        '\u{c}' => Some(b'f'),
        _ => None,
    };
    let run = run(text);
    match text.get(run) {
        _ if run == 0 || run > BACKSLASHES_MAX => Found::Nothing,
        None => Found::Begun,
        Some(byte) if Some(*byte) == letter => Found::Whole(run + 1),
        Some(_) => code_units(char, text),
    }
}

fn code_units(char: char, text: &[u8]) -> Found {
    let mut units = [0; 2];
    let mut at = 0;
    for unit in char.encode_utf16(&mut units) {
        at += run(&text[at..]);
        let expected = format!("u{unit:04x}");
        for expected in expected.bytes() {
            match text.get(at) {
                None => return Found::Begun,
                Some(found) if found.eq_ignore_ascii_case(&expected) => at += 1,
                Some(_) => return Found::Nothing,
            }
        }
    }
    Found::Whole(at)
}

/// Those of the value, each at least once. How many of the value they stand for comes first.
fn backslashes(value: &str, text: &[u8]) -> (usize, Found) {
    let (n_value, n_text) = (run(value.as_bytes()), run(text));
    let found = match n_text {
        0 => char_at('\u{5c}', text),
        _ if n_text > n_value * BACKSLASHES_MAX => Found::Nothing,
        // More of them may come.
        _ if n_text == text.len() => Found::Begun,
        _ if n_text < n_value => Found::Nothing,
        // The last one may belong to the character behind them, if that is escaped.
        _ if n_text > n_value && !goes_on(&value[n_value..], &text[n_text..]) => Found::Whole(n_text - 1),
        _ => Found::Whole(n_text),
    };
    // Written as `%5C` they come one by one.
    (if n_text == 0 { 1 } else { n_value }, found)
}

/// Is the next character there as it is?
fn goes_on(value: &str, text: &[u8]) -> bool {
    let mut raw = [0; 4];
    value.chars().next().is_none_or(|char| exact(char.encode_utf8(&mut raw).as_bytes(), text) != Found::Nothing)
}

fn run(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| **byte == b'\\').count()
}

/// What every base64 text has in it that has the value inside, wherever in the bytes it stands: there are three ways in
/// which bytes fall on letters, and the letters at either end also hold bits of the neighbours.
fn in_base64(value: &[u8], engine: GeneralPurpose) -> impl Iterator<Item = Vec<u8>> {
    (0..3).filter_map(move |n_before| {
        let mut letters = engine.encode([&[0; 2][..n_before], value].concat()).into_bytes();
        letters.truncate((n_before + value.len()) * 8 / 6);
        let own = letters.split_off(letters.len().min((n_before * 8).div_ceil(6)));
        (own.len() >= VALUE_BYTES_MIN).then_some(own)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(value: &str, text: &str) -> Found {
        Form::Text(value.to_owned()).at(text.as_bytes())
    }

    #[test]
    fn a_value_is_found_however_its_characters_are_escaped() {
        let value = "a/b é\"c\\d\\é\n😀%2F";
        for text in [
            value,
            "a%2fb%20%C3%a9%22c%5Cd%5c%C3%A9%0A%F0%9F%98%80%252F",
            "a/b+%C3%A9%22c%5Cd%5C%C3%A9%0a%f0%9f%98%80%252F",
            r#"a\/b \u00E9\"c\\d\\\u00e9\n\ud83d\ude00%2F"#,
            r#"a\\/b é\\\"c\\\\d\\\\é\\n\\ud83d\\ude00%2F"#,
        ] {
            assert_eq!(found(value, text), Found::Whole(text.len()), "{text}");
            for cut in (1..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
                assert_eq!(found(value, &text[..cut]), Found::Begun, "{}", &text[..cut]);
            }
        }
        for other in ["b", "a/c", "a%2gb", r"a\/b \u00e8", "a/b é'c"] {
            assert_eq!(found(value, other), Found::Nothing, "{other}");
        }
        assert_eq!(found("\"", &"\\".repeat(BACKSLASHES_MAX)), Found::Begun);
        assert_eq!(
            found("\"", &"\\".repeat(BACKSLASHES_MAX + 1)),
            Found::Nothing,
            "it would be waited for without end"
        );
    }

    #[test]
    fn base64_has_the_value_in_it_wherever_it_stands() {
        let value = "canary>>?-value";
        let forms = all(value);
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            for before in ["", "u", "us", "user:"] {
                for after in ["", "\n", "xyz"] {
                    let text = engine.encode(format!("{before}{value}{after}"));
                    let is_whole =
                        |at: usize| forms.iter().any(|form| matches!(form.at(&text.as_bytes()[at..]), Found::Whole(_)));
                    assert!((0..text.len()).any(is_whole), "{before} {after}");
                }
            }
        }
    }
}
