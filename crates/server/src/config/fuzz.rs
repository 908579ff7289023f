//! Whatever stands in a file, a variable or a patch: it is taken or refused, and nothing else happens.

use std::path::Path;

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::env;
use super::file::parse;
use super::layers::{Layers, merge, merge_patch};
use super::schema::default_file;

/// JSON of every shape, with keys that the configuration knows more often than chance would have it.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        prop::sample::select(vec![
            "server", "limits", "lanes", "agents", "sessions", "patterns", "tls", "exec", "retry"
        ]),
        prop::sample::select(vec!["limit", "maxInflight", "listen", "cert", "commands", "match", "secrets", "env", ""]),
    ];
    let key = prop_oneof![key.prop_map(str::to_owned), ".{0,6}"];
    leaf.prop_recursive(4, 24, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        other => Map::from_iter([("limits".to_owned(), other)]),
    }
}

proptest! {
    #[test]
    fn any_text_is_a_file_or_is_refused_with_its_line(text in ".{0,200}") {
        if let Err(error) = parse(Path::new("f"), &text) {
            prop_assert!(error.to_string().starts_with("f:"), "{error}");
        }
    }

    #[test]
    fn a_file_with_some_bytes_changed_is_taken_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), "[\\PC\n]"), 1..8),
        comments in any::<bool>(),
    ) {
        let mut text: Vec<char> = default_file().chars().collect();
        for (at, with) in changes {
            let at = at.index(text.len());
            text.splice(at..=at, with.chars());
        }
        let text: String = text.into_iter().collect();
        let text = if comments { text } else { text.replace("\n# ", "\n") };
        let _ = parse(Path::new("f"), &text);
    }

    #[test]
    fn any_patch_is_taken_or_refused(first in any_json(), second in any_json()) {
        let mut patch = object(first);
        merge_patch(&mut patch, &object(second));
        if let Ok(merged) = merge(&Layers { patch, ..Layers::default() }) {
            // What was taken makes sense to the scheduler too.
            let _ = super::to_core(&merged.config);
        }
    }

    #[test]
    fn any_variable_is_taken_or_refused(name in "[A-Z_]{0,30}", value in ".{0,40}") {
        for name in [format!("RUNYARD_{name}"), format!("RUNYARD_LIMITS__{name}"), format!("RUNYARD_AGENTS__{name}__WEIGHT")] {
            let _ = env::read([(name, value.clone())], &Map::new());
        }
    }
}
