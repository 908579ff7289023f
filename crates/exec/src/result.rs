//! Results are JSON of at most 1 MiB, so texts in them are cut to what fits once they are escaped.

use std::borrow::Cow;

use serde_json::Value;

pub const RESULT_BYTES_MAX: usize = 1024 * 1024;

/// Ends a text that was cut.
pub const CUT_MARK: &str = "… [truncated]";

/// Whether a text is there in full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    Whole,
    Cut,
}

/// Cuts `text` so that, as a JSON string, it takes at most `encoded_max` bytes, mark and quotes included.
pub fn fit_text(text: &str, encoded_max: usize) -> (Cow<'_, str>, Fit) {
    let budget = encoded_max.saturating_sub(2 + CUT_MARK.len());
    let mut used = 0;
    let mut cut_at = 0;
    for (at, char) in text.char_indices() {
        if used <= budget {
            cut_at = at;
        }
        used += encoded_len(char);
        if used + 2 > encoded_max {
            return (Cow::Owned(format!("{}{CUT_MARK}", &text[..cut_at])), Fit::Cut);
        }
    }
    (Cow::Borrowed(text), Fit::Whole)
}

/// What serde_json writes for one character of a string.
fn encoded_len(char: char) -> usize {
    match char {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..'\u{20}' => 6,
        _ => char.len_utf8(),
    }
}

pub(crate) fn to_bytes(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).expect("a JSON value can always be written")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_fits_is_untouched() {
        assert_eq!(fit_text("hällo\n", 64), (Cow::Borrowed("hällo\n"), Fit::Whole));
    }

    #[test]
    fn a_cut_text_fits_its_budget_when_encoded() {
        for text in ["a".repeat(500), "\u{1}".repeat(500), "\"\n".repeat(300), "ü€😀".repeat(100)] {
            for max in [20, 64, 65, 66, 67, 128, 499] {
                let (cut, fit) = fit_text(&text, max);
                assert_eq!(fit, Fit::Cut);
                assert!(cut.ends_with(CUT_MARK));
                assert!(serde_json::to_string(&cut).expect("a string").len() <= max, "{max}");
            }
        }
    }
}
