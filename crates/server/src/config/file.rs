//! The TOML file: read whole or refused whole, with the line that is wrong.

use std::ops::Range;
use std::path::Path;

use serde_json::{Map, Value};

use super::check;
use super::error::Error;
use super::layers::{Layers, normalized};
use super::types::Config;

/// A file that is not there is an empty one only where nobody named it.
pub fn read(path: &Path) -> Result<Map<String, Value>, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    parse(path, &text)
}

pub fn parse(path: &Path, text: &str) -> Result<Map<String, Value>, Error> {
    let at = |span: Range<usize>, message: &str| located(path, text, span, message);
    // Parsed into the types first: only there do errors know their place in the text.
    toml::from_str::<Config>(text).map_err(|error| at(error.span().unwrap_or(0..0), error.message()))?;
    let tree: Map<String, Value> =
        toml::from_str(text).map_err(|error| at(error.span().unwrap_or(0..0), error.message()))?;
    check_alone(&tree).map_err(|rule| at(span_of(text, &rule.field), &format!("{}: {}", rule.field, rule.message)))?;
    Ok(tree)
}

/// The file must make sense over the defaults, whatever environment and flags add.
fn check_alone(tree: &Map<String, Value>) -> Result<(), check::Broken> {
    let layers = Layers { file: normalized(tree), ..Layers::default() };
    match super::layers::merge(&layers) {
        Ok(_) => Ok(()),
        Err(Error::Value { field, message, .. }) => Err(check::Broken { field, message }),
        Err(other) => Err(check::Broken { field: String::new(), message: other.to_string() }),
    }
}

fn located(path: &Path, text: &str, span: Range<usize>, message: &str) -> Error {
    let before = text.get(..span.start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |tail| tail.chars().count()) + 1;
    let offending = text.lines().nth(line - 1).unwrap_or("").to_owned();
    let message = message.trim_end().replace('\n', "; ");
    Error::File { path: path.to_owned(), line, column, text: offending, message }
}

/// Where the deepest key of `field` that the file has is written.
fn span_of(text: &str, field: &str) -> Range<usize> {
    let Ok(document) = toml::de::DeTable::parse(text) else { return 0..0 };
    let mut found = 0..0;
    let mut rest = field;
    let mut table = document.get_ref();
    // Names may hold dots themselves, so keys are matched against the text, not split at dots.
    while let Some((key, value)) = table.iter().find(|(key, _)| starts_with_key(rest, key.get_ref())) {
        found = key.span();
        rest = rest[key.get_ref().len()..].trim_start_matches('.');
        let (value, behind) = entry_of(value, rest);
        rest = behind;
        match value.get_ref().as_table() {
            Some(inner) if !rest.is_empty() => table = inner,
            _ => break,
        }
    }
    found
}

/// `[2].cap` of a list is `cap` of its third entry.
fn entry_of<'a, 't>(
    value: &'a toml::Spanned<toml::de::DeValue<'t>>,
    rest: &'a str,
) -> (&'a toml::Spanned<toml::de::DeValue<'t>>, &'a str) {
    let index = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let entry = index.and_then(|(at, rest)| Some((value.get_ref().as_array()?.get(at.parse::<usize>().ok()?)?, rest)));
    entry.map_or((value, rest), |(entry, rest)| (entry, rest.trim_start_matches('.')))
}

fn starts_with_key(field: &str, key: &str) -> bool {
    field.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        parse(Path::new("runyard.toml"), text).expect_err("refused").to_string()
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line() {
        let error = refused("[limits]\nmaxQueued = 5\nmaxQued = 6\n");
        assert!(error.starts_with("runyard.toml:3:1: unknown field `maxQued`"), "{error}");
        assert!(error.contains("3 | maxQued = 6"), "{error}");
    }

    #[test]
    fn a_wrong_type_is_refused_with_its_line() {
        let error = refused("[lanes]\nmain = 5\nown = -1\n");
        assert!(error.starts_with("runyard.toml:3:7: invalid value: integer `-1`"), "{error}");
    }

    #[test]
    fn a_broken_rule_is_refused_with_its_line() {
        let error = refused("[agents.\"a.b\"]\npaused = true\nweight = 0\n");
        assert!(error.starts_with("runyard.toml:3:1: agents.a.b.weight: must be at least 1"), "{error}");
    }

    #[test]
    fn broken_toml_is_refused_with_its_line() {
        let error = refused("[limits\nmaxQueued = 5\n");
        assert!(error.starts_with("runyard.toml:1:"), "{error}");
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        let error = refused("[lanes]\n\"a b\" = 1\n");
        assert!(error.contains("a name is 1 to 64"), "{error}");
    }

    #[test]
    fn a_session_rule_is_refused_with_its_line() {
        for (text, expected) in [
            ("[sessions]\ncap = 0\n", "runyard.toml:2:1: sessions.cap: must be at least 1"),
            ("[sessions]\nmode = \"fifo\"\n", "runyard.toml:2:8: unknown variant `fifo`"),
            ("[sessions]\ncontextThreshold = 60\n", "runyard.toml:2:1: sessions.contextThreshold: must be more than 0"),
            ("[sessions.lanes.main]\n\nmaxConcurrent = 0\n", "runyard.toml:3:1: sessions.lanes.main.maxConcurrent"),
            (
                "[[sessions.patterns]]\nmatch = \"a\"\ncap = 1\n[[sessions.patterns]]\nmatch = \"b\"\ncap = 0\n",
                "runyard.toml:6:1: sessions.patterns[1].cap: must be at least 1",
            ),
            ("[[sessions.patterns]]\nmatch = \"\"\n", "runyard.toml:2:1: sessions.patterns[0].match"),
            ("[[sessions.patterns]]\ncap = 1\n", "runyard.toml:1:1: missing field `match`"),
        ] {
            let error = refused(text);
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn lanes_are_numbers_or_tables() {
        let tree = parse(Path::new("f"), "[lanes]\nmain = 0\nown = { limit = 3, paused = true }\n").expect("valid");
        assert_eq!(tree["lanes"]["own"]["paused"], true);
    }
}
