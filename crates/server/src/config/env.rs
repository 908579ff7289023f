//! `RUNYARD_SECTION__KEY` in the environment, such as `RUNYARD_LANES__MAIN=5` or `RUNYARD_LIMITS__MAX_QUEUED=1000`.
//!
//! Environment names have one case, ours have two: a key is found by its letters alone. Names of lanes and agents that
//! the other layers do not know are taken in lower case.

use serde_json::{Map, Value};

use super::error::Error;
use super::layers::{Layers, merge};
use super::types::Config;

const PREFIX: &str = "RUNYARD_";

/// Variables without `__` (RUNYARD_URL, RUNYARD_API_KEY, …) belong to the command line, not to the configuration.
pub fn read(
    variables: impl IntoIterator<Item = (String, String)>,
    file: &Map<String, Value>,
) -> Result<Map<String, Value>, Error> {
    let known = known_tree(file);
    let mut variables: Vec<_> = variables.into_iter().filter(|(name, _)| is_ours(name)).collect();
    variables.sort();
    let mut tree = Map::new();
    for (variable, text) in variables {
        let path = path_of(&variable, &known)?;
        let refuse = |message: String| Error::Env { variable: variable.clone(), message };
        insert(&mut tree, &path, value_of(&text));
        // Merged one by one, so that the error names the variable and not only the key.
        let layers = Layers { env: tree.clone(), file: file.clone(), ..Layers::default() };
        merge(&layers).map_err(|error| match error {
            Error::Value { field, message, .. } => refuse(format!("{field}: {message}")),
            other => refuse(other.to_string()),
        })?;
    }
    Ok(tree)
}

fn is_ours(variable: &str) -> bool {
    variable.strip_prefix(PREFIX).is_some_and(|rest| rest.contains("__"))
}

/// Every key that can be named: the defaults with the unset ones, and the names of the file.
fn known_tree(file: &Map<String, Value>) -> Value {
    let schema = super::schema::json_schema();
    let mut known = super::schema::tree_of_keys(&schema);
    add_names(&mut known, &Value::Object(file.clone()));
    if let Ok(defaults) = serde_json::to_value(Config::default()) {
        add_names(&mut known, &defaults);
    }
    known
}

/// The names that a layer uses where any name may stand.
fn add_names(known: &mut Value, layer: &Value) {
    let (Some(known), Some(layer)) = (known.as_object_mut(), layer.as_object()) else { return };
    let any = known.get("*").cloned();
    for (key, below) in layer {
        if let (false, Some(any)) = (known.contains_key(key), &any) {
            known.insert(key.clone(), any.clone());
        }
        if let Some(known) = known.get_mut(key) {
            add_names(known, below);
        }
    }
}

fn path_of(variable: &str, known: &Value) -> Result<Vec<String>, Error> {
    let rest = variable.strip_prefix(PREFIX).expect("filtered by prefix");
    let mut path = Vec::new();
    let mut at = known;
    for part in rest.split("__") {
        let keys = at.as_object().filter(|keys| !keys.is_empty()).ok_or_else(|| Error::Env {
            variable: variable.to_owned(),
            message: format!("{} has no keys below it", path.join(".")),
        })?;
        let wanted = letters(part);
        let (key, below) = match keys.iter().find(|(key, _)| key.as_str() != "*" && letters(key) == wanted) {
            Some((key, below)) => (key.clone(), below),
            None => match keys.get("*") {
                Some(below) if !part.is_empty() => (part.to_ascii_lowercase(), below),
                _ => return Err(unknown(variable, part, keys)),
            },
        };
        path.push(key);
        at = below;
    }
    Ok(path)
}

fn unknown(variable: &str, part: &str, keys: &Map<String, Value>) -> Error {
    let expected = keys.keys().filter(|key| *key != "*").cloned().collect::<Vec<_>>().join(", ");
    Error::Env { variable: variable.to_owned(), message: format!("unknown key `{part}`, expected one of {expected}") }
}

fn letters(key: &str) -> String {
    key.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect()
}

/// Numbers, booleans, lists and tables as JSON; anything else is a text.
fn value_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn insert(tree: &mut Map<String, Value>, path: &[String], value: Value) {
    let [first, rest @ ..] = path else { return };
    if rest.is_empty() {
        tree.insert(first.clone(), value);
        return;
    }
    let entry = tree.entry(first.clone()).or_insert_with(|| Value::Object(Map::new()));
    if let Value::Number(limit) = entry {
        // `RUNYARD_LANES__MAIN=5` before `RUNYARD_LANES__MAIN__PAUSED=true`: the number is the lane's limit.
        *entry = serde_json::json!({ "limit": limit });
    }
    if let Value::Object(inner) = entry {
        insert(inner, rest, value);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_all(variables: &[(&str, &str)], file: Value) -> Result<Value, Error> {
        let variables = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        read(variables, file.as_object().expect("an object")).map(Value::Object)
    }

    #[test]
    fn keys_are_found_by_their_letters() {
        let file = json!({ "agents": { "Big_Bot": {} }, "sessions": { "lanes": { "Big_Lane": {} } } });
        let variables = [
            ("RUNYARD_LANES__MAIN", "5"),
            ("RUNYARD_LANES__FRESH", "2"),
            ("RUNYARD_LIMITS__MAX_QUEUED", "9"),
            ("RUNYARD_LIMITS__MAXINFLIGHT", "8"),
            ("RUNYARD_AGENTS__BIG_BOT__MAXINFLIGHT", "3"),
            ("RUNYARD_DEFAULTS__RETRY__MAX_RETRIES", "0"),
            ("RUNYARD_LOG__FORMAT", "json"),
            ("RUNYARD_SESSIONS__MAX_CONCURRENT", "2"),
            ("RUNYARD_SESSIONS__LANES__BIG_LANE__CAP", "3"),
            ("RUNYARD_SESSIONS__PATTERNS", "[{\"match\": \"a:*\", \"mode\": \"collect\"}]"),
            ("RUNYARD_URL", "http://elsewhere"),
            ("PATH", "/bin"),
        ];
        let tree = read_all(&variables, file).expect("valid");
        let expected = json!({
            "lanes": { "main": 5, "fresh": 2 },
            "limits": { "maxQueued": 9, "maxInflight": 8 },
            "agents": { "Big_Bot": { "maxInflight": 3 } },
            "defaults": { "retry": { "maxRetries": 0 } },
            "log": { "format": "json" },
            "sessions": {
                "maxConcurrent": 2,
                "lanes": { "Big_Lane": { "cap": 3 } },
                "patterns": [{ "match": "a:*", "mode": "collect" }],
            },
        });
        assert_eq!(tree, expected);
    }

    #[test]
    fn an_unknown_key_names_the_variable() {
        let error = read_all(&[("RUNYARD_LIMITS__MAXQUED", "9")], json!({})).expect_err("unknown");
        assert!(error.to_string().starts_with("environment variable RUNYARD_LIMITS__MAXQUED: unknown key"), "{error}");
    }

    #[test]
    fn a_bad_value_names_the_variable() {
        let error = read_all(&[("RUNYARD_LANES__MAIN", "-5")], json!({})).expect_err("negative");
        assert!(error.to_string().starts_with("environment variable RUNYARD_LANES__MAIN: lanes.main.limit"), "{error}");
    }

    #[test]
    fn a_lane_and_its_pause_go_together() {
        let variables = [("RUNYARD_LANES__MAIN", "5"), ("RUNYARD_LANES__MAIN__PAUSED", "true")];
        let tree = read_all(&variables, json!({})).expect("valid");
        assert_eq!(tree, json!({ "lanes": { "main": { "limit": 5, "paused": true } } }));
    }
}
