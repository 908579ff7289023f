//! The JSON schema and the commented default file, both from the types and their comments.

use serde_json::{Map, Value, json};

use super::types::Config;

pub fn json_schema() -> Value {
    let mut schema = schemars::schema_for!(Config).to_value();
    schema["title"] = json!("runyard.toml");
    schema["description"] = json!("Configuration of the Runyard server");
    schema
}

/// A file that sets nothing and shows everything: each key with its comment and its default.
pub fn default_file() -> String {
    let schema = json_schema();
    let defaults = serde_json::to_value(Config::default()).expect("a configuration is plain data");
    let mut out = String::from(HEAD);
    for section in SECTIONS {
        let node = &schema["properties"][section];
        let body = resolved(&schema, node);
        out.push('\n');
        comment(&mut out, node.get("description").or(body.get("description")));
        match (section, map_values(&schema, body)) {
            ("lanes", _) => lanes(&mut out, &defaults["lanes"]),
            (_, Some(values)) => {
                out.push_str(&format!("# [{section}.NAME]\n"));
                keys(&mut out, &schema, values, &Value::Null, section);
            }
            (_, None) => {
                out.push_str(&format!("[{section}]\n"));
                keys(&mut out, &schema, body, &defaults[section], section);
            }
        }
    }
    out
}

const HEAD: &str = "\
# Configuration of the Runyard server. Every key is shown with its default; take the leading `# ` away to change one.
# The same keys as environment variables: RUNYARD_LIMITS__MAX_QUEUED=1000, RUNYARD_LANES__MAIN=5.
# The file is read again when it changes and on SIGHUP; `runyard config check FILE` says what is wrong with one.
";

/// What a reader looks for first comes first.
const SECTIONS: [&str; 25] = [
    "server",
    "limits",
    "lanes",
    "agents",
    "kinds",
    "gates",
    "sessions",
    "schedules",
    "webhooks",
    "outbound",
    "defaults",
    "retention",
    "process",
    "docker",
    "uploads",
    "worker",
    "workers",
    "autoscale",
    "exec",
    "secrets",
    "store",
    "nodes",
    "log",
    "telemetry",
    "scheduling",
];

/// Every key as a nested object; `*` stands for the names of a map.
pub(super) fn tree_of_keys(schema: &Value) -> Value {
    tree_below(schema, schema)
}

fn tree_below(schema: &Value, node: &Value) -> Value {
    let body = resolved(schema, node);
    if let Some(values) = map_values(schema, body) {
        return json!({ "*": tree_below(schema, values) });
    }
    let Some(properties) = body.get("properties").and_then(Value::as_object) else { return json!({}) };
    Value::Object(properties.iter().map(|(key, below)| (key.clone(), tree_below(schema, below))).collect())
}

/// Follows `$ref`, and looks into the one alternative of an optional or number-or-table value that has keys.
fn resolved<'a>(schema: &'a Value, node: &'a Value) -> &'a Value {
    if let Some(name) = node.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix("#/$defs/")) {
        return resolved(schema, &schema["$defs"][name]);
    }
    let alternatives = node.get("anyOf").and_then(Value::as_array);
    let keyed = alternatives.into_iter().flatten().map(|one| resolved(schema, one));
    keyed.into_iter().find(|one| one.get("properties").is_some() || one.get("enum").is_some()).unwrap_or(node)
}

fn map_values<'a>(schema: &'a Value, body: &'a Value) -> Option<&'a Value> {
    body.get("additionalProperties").filter(|values| values.is_object()).map(|values| resolved(schema, values))
}

fn comment(out: &mut String, text: Option<&Value>) {
    let Some(text) = text.and_then(Value::as_str) else { return };
    for line in text.lines() {
        out.push_str(format!("# {line}").trim_end());
        out.push('\n');
    }
}

fn lanes(out: &mut String, defaults: &Value) {
    out.push_str("[lanes]\n");
    for (name, lane) in defaults.as_object().into_iter().flatten() {
        out.push_str(&format!("# {name} = {}\n", lane["limit"]));
    }
}

fn keys(out: &mut String, schema: &Value, body: &Value, defaults: &Value, section: &str) {
    let empty = Map::new();
    let properties = body.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let list = |node| item(schema, resolved(schema, node));
    let is_table = |key: &str, node| defaults.get(key).is_some_and(Value::is_object) || list(node).is_some();
    for (key, node) in properties.iter().filter(|(key, node)| !is_table(key, node)) {
        comment(out, node.get("description"));
        match defaults.get(key) {
            Some(value) => out.push_str(&format!("# {key} = {value}\n")),
            None => out.push_str(&format!("# {key} = {}\n", example(schema, node))),
        }
    }
    for (key, node) in properties.iter().filter(|(key, node)| is_table(key, node)) {
        comment(out, node.get("description"));
        let (body, below) = (resolved(schema, node), format!("{section}.{key}"));
        // Names and entries of lists are the reader's to add, so their headers are comments too.
        match (map_values(schema, body), list(node)) {
            (Some(values), _) => {
                out.push_str(&format!("# [{below}.NAME]\n"));
                keys(out, schema, values, &Value::Null, &below);
            }
            (_, Some(entry)) => {
                out.push_str(&format!("# [[{below}]]\n"));
                keys(out, schema, entry, &Value::Null, &below);
            }
            _ => {
                out.push_str(&format!("[{below}]\n"));
                keys(out, schema, body, &defaults[key], &below);
            }
        }
    }
}

/// The entries of a list of tables.
fn item<'a>(schema: &'a Value, body: &'a Value) -> Option<&'a Value> {
    body.get("items").map(|entry| resolved(schema, entry)).filter(|entry| entry.get("properties").is_some())
}

/// For a key without a default: the example beside its type, written as TOML.
fn example(schema: &Value, node: &Value) -> String {
    match node["examples"].get(0) {
        Some(Value::Object(_)) | None if resolved(schema, node).get("properties").is_some() => {
            "{ maxRetries = 3 }".into()
        }
        Some(example) => example.to_string(),
        None => "0".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_default_file_sets_nothing() {
        let tree = super::super::file::parse(Path::new("default"), &default_file()).expect("valid");
        let sets = |value: &Value| value.as_object().is_none_or(|inner| !inner.values().all(|v| v == &json!({})));
        assert!(!tree.values().any(|section| section.as_object().is_none_or(|map| map.values().any(sets))), "{tree:?}");
    }

    #[test]
    fn every_key_of_the_default_file_may_be_uncommented() {
        let file = default_file();
        let is_key = |line: &str| {
            line.strip_prefix("# ").and_then(|rest| rest.split_once(" = ")).is_some_and(|(key, _)| !key.contains(' '))
        };
        let is_instead = |line: &str| line.starts_with("# file = \"/run/secrets");
        let uncommented = |line: &str| match line.strip_prefix("# ") {
            // It stands for the key before it, and says so.
            _ if is_instead(line) => line.to_owned(),
            Some(rest) if is_key(line) || rest.starts_with('[') => rest.replace("NAME", "some"),
            _ => line.to_owned(),
        };
        let text = file.lines().map(uncommented).collect::<Vec<_>>().join("\n");
        let tree =
            super::super::file::parse(Path::new("default"), &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(tree["agents"]["some"]["maxPriority"], "high");
        assert_eq!(tree["defaults"]["retry"]["maxRetries"], 3);
        assert_eq!(tree["lanes"]["main"], 30);
        assert_eq!(tree["sessions"]["lanes"]["some"]["mode"], "collect");
        assert_eq!(tree["sessions"]["patterns"][0]["match"], "agent:*:group:*");
        assert_eq!(tree["sessions"]["contextThreshold"], 0.6);
    }

    #[test]
    fn a_key_without_a_default_has_an_example() {
        let file = default_file();
        assert!(file.contains("# timeoutMs = 120000\n# Its share"), "{file}");
        // 0 is what a key without an example would show; here it is a default.
        assert!(file.lines().filter(|line| line.ends_with(" = 0")).eq(["# debounceMs = 0"]), "{file}");
    }

    #[test]
    fn every_section_is_in_the_default_file_and_has_a_comment() {
        let schema = json_schema();
        let sections = schema["properties"].as_object().expect("sections");
        assert_eq!(sections.len(), SECTIONS.len());
        for (name, section) in sections {
            assert!(SECTIONS.contains(&name.as_str()), "{name}");
            assert!(section.get("description").is_some(), "{name} has no comment");
        }
    }
}
