//! Layers and their merge: JSON trees of one shape, laid over each other leaf by leaf.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use super::check;
use super::error::Error;
use super::types::Config;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    Default,
    File,
    Env,
    Flag,
    Patch,
}

impl Origin {
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Default => "default",
            Origin::File => "file",
            Origin::Env => "env",
            Origin::Flag => "flag",
            Origin::Patch => "patch",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Default, Debug)]
pub struct Layers {
    pub file: Map<String, Value>,
    pub env: Map<String, Value>,
    pub flags: Map<String, Value>,
    pub patch: Map<String, Value>,
}

/// What is in force, and where each leaf came from (`limits.maxQueued` → file).
#[derive(Clone, PartialEq, Debug)]
pub struct Merged {
    pub config: Config,
    pub values: Value,
    pub origins: BTreeMap<String, Origin>,
}

pub fn merge(layers: &Layers) -> Result<Merged, Error> {
    let mut origins = BTreeMap::new();
    let Ok(Value::Object(mut values)) = serde_json::to_value(Config::default()) else {
        unreachable!("a configuration serialises to an object");
    };
    note_leaves("", &values, Origin::Default, &mut origins);
    let above = [
        (Origin::File, &layers.file),
        (Origin::Env, &layers.env),
        (Origin::Flag, &layers.flags),
        (Origin::Patch, &layers.patch),
    ];
    for (origin, layer) in above {
        let layer = normalized(layer);
        overlay(&mut values, &layer);
        note_leaves("", &layer, origin, &mut origins);
    }
    let config = typed(&values, &origins)?;
    check::check(&config).map_err(|rule| Error::Value {
        origin: origin_of(&rule.field, &origins),
        field: rule.field,
        message: rule.message,
    })?;
    // Written back from the types, so that what is shown has every default filled in.
    let values = serde_json::to_value(&config).expect("a configuration is plain data");
    Ok(Merged { config, values, origins })
}

/// RFC 7396: `null` takes a value out of the target, objects merge, anything else replaces.
pub fn merge_patch(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        match value {
            Value::Null => {
                target.remove(key);
            }
            Value::Object(inner) => {
                let entry = target.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
                if !entry.is_object() {
                    *entry = Value::Object(Map::new());
                }
                let Value::Object(entry) = entry else { unreachable!("made an object above") };
                merge_patch(entry, inner);
            }
            other => {
                target.insert(key.clone(), other.clone());
            }
        }
    }
    // An override that holds nothing any more is no override.
    target.retain(|_, value| value.as_object().is_none_or(|map| !map.is_empty()));
}

/// A lane given as a bare number becomes its table, so that layers merge into it.
pub(super) fn normalized(layer: &Map<String, Value>) -> Map<String, Value> {
    let mut layer = layer.clone();
    if let Some(Value::Object(lanes)) = layer.get_mut("lanes") {
        for lane in lanes.values_mut().filter(|lane| lane.is_number()) {
            let limit = lane.take();
            *lane = Value::Object(Map::from_iter([("limit".to_owned(), limit)]));
        }
    }
    layer
}

fn overlay(below: &mut Map<String, Value>, above: &Map<String, Value>) {
    for (key, value) in above {
        match (below.get_mut(key), value) {
            (Some(Value::Object(below)), Value::Object(above)) => overlay(below, above),
            _ => {
                below.insert(key.clone(), value.clone());
            }
        }
    }
}

fn typed(values: &Map<String, Value>, origins: &BTreeMap<String, Origin>) -> Result<Config, Error> {
    serde_path_to_error::deserialize(Value::Object(values.clone())).map_err(|error| {
        let field = error.path().to_string();
        Error::Value { origin: origin_of(&field, origins), field, message: error.into_inner().to_string() }
    })
}

/// The latest layer that set this key or something below it.
fn origin_of(field: &str, origins: &BTreeMap<String, Origin>) -> Origin {
    let below = |path: &str| path == field || path.starts_with(field) && path[field.len()..].starts_with('.');
    let above = |path: &str| field.starts_with(path) && field[path.len()..].starts_with(['.', '[']);
    let origin = origins.iter().filter(|(path, _)| below(path) || above(path)).map(|(_, origin)| *origin).max();
    origin.unwrap_or(Origin::Default)
}

fn note_leaves(prefix: &str, tree: &Map<String, Value>, origin: Origin, origins: &mut BTreeMap<String, Origin>) {
    for (key, value) in tree {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            Value::Object(inner) if !inner.is_empty() => note_leaves(&path, inner, origin, origins),
            Value::Object(_) => {}
            _ => {
                origins.insert(path, origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tree(value: Value) -> Map<String, Value> {
        value.as_object().expect("an object").clone()
    }

    #[test]
    fn a_later_layer_wins_value_by_value() {
        let layers = Layers {
            file: tree(json!({ "lanes": { "main": 5, "own": 7 }, "limits": { "maxInflight": 10, "maxQueued": 11 } })),
            env: tree(json!({ "lanes": { "main": 6 }, "limits": { "maxInflight": 20 } })),
            flags: tree(json!({ "limits": { "maxInflight": 30 } })),
            patch: tree(json!({ "lanes": { "main": { "paused": true } } })),
        };
        let merged = merge(&layers).expect("valid");
        assert_eq!(merged.config.lanes["main"], crate::config::Lane { limit: 6, paused: true });
        assert_eq!(merged.config.lanes["own"].limit, 7);
        assert_eq!(merged.config.lanes["team"].limit, 100);
        assert_eq!(merged.config.limits.max_inflight, 30);
        assert_eq!(merged.config.limits.max_queued, 11);
        assert_eq!(merged.origins["lanes.main.limit"], Origin::Env);
        assert_eq!(merged.origins["lanes.main.paused"], Origin::Patch);
        assert_eq!(merged.origins["limits.maxInflight"], Origin::Flag);
        assert_eq!(merged.origins["limits.maxQueued"], Origin::File);
        assert_eq!(merged.origins["limits.maxQueuedPerAgent"], Origin::Default);
    }

    #[test]
    fn null_in_a_patch_takes_the_override_back() {
        let mut stored = tree(json!({ "lanes": { "main": { "limit": 1 } }, "limits": { "maxQueued": 5 } }));
        merge_patch(&mut stored, &tree(json!({ "lanes": { "main": { "limit": null } } })));
        assert_eq!(Value::Object(stored), json!({ "limits": { "maxQueued": 5 } }));
    }

    #[test]
    fn a_bad_value_names_its_field_and_origin() {
        let layers = Layers { patch: tree(json!({ "limits": { "maxQueued": -1 } })), ..Layers::default() };
        let error = merge(&layers).expect_err("negative");
        assert_eq!(error.field(), Some("limits.maxQueued"));
        assert!(error.to_string().starts_with("limits.maxQueued (from patch): invalid value: integer `-1`"), "{error}");
    }

    #[test]
    fn a_lane_paused_by_patch_keeps_the_limit_below() {
        let layers = Layers { patch: tree(json!({ "lanes": { "cron": { "paused": true } } })), ..Layers::default() };
        assert_eq!(merge(&layers).expect("valid").config.lanes["cron"].limit, 30);
    }
}
