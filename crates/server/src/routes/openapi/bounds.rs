//! What types alone do not say: how large a number may be, how a name looks, how many there may be of something. Taken
//! from the constants that requests are checked against, so that the document and the checks cannot drift apart.

use serde_json::{Value, json};

use crate::config::{MULTIPLIER_MAX, RETRIES_MAX};
use crate::intake::{CPU_LIMIT_MIN, CPU_MAX, DEPENDENCIES_MAX, ITEMS_MAX, MS_MAX, TAGS_MAX};
use crate::routes::extract::PAGE_MAX;

pub fn add(document: &mut Value) {
    widths(document);
    for (schema, properties) in schemas().as_object().expect("an object") {
        merge(&mut document["components"]["schemas"][schema], properties);
    }
    let paths = document["paths"].as_object_mut().expect("a document has paths");
    for (path, item) in paths {
        for operation in item.as_object_mut().expect("a path has operations").values_mut() {
            let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
            parameters.into_iter().flatten().for_each(|parameter| bound(path, parameter));
            operation.pointer_mut("/requestBody/content/application~1json/schema").into_iter().for_each(not_null);
        }
    }
}

/// An unsigned number is wider than the signed one of its size.
fn widths(value: &mut Value) {
    if value.get("minimum") == Some(&json!(0)) {
        match value.get("format").and_then(Value::as_str) {
            Some("int32") => merge(value, &json!({ "format": "uint32", "maximum": u32::MAX })),
            Some("int64") => merge(value, &json!({ "format": "uint64", "maximum": u64::MAX })),
            _ => {}
        }
    }
    match value {
        Value::Object(fields) => fields.values_mut().for_each(widths),
        Value::Array(items) => items.iter_mut().for_each(widths),
        _ => {}
    }
}

/// A body that may be left out is not `null`.
fn not_null(schema: &mut Value) {
    let forms = schema.get("oneOf").and_then(Value::as_array);
    let one = forms.and_then(|forms| forms.iter().find(|form| form.get("$ref").is_some())).cloned();
    if let Some(one) = one {
        *schema = one;
    }
}

fn bound(path: &str, parameter: &mut Value) {
    let name = parameter["name"].as_str().unwrap_or("").to_owned();
    let more = match (parameter["in"].as_str().unwrap_or(""), name.as_str()) {
        ("path", "name") if path.starts_with("/v1/secrets") => json!({ "pattern": "^[A-Za-z0-9_-]{1,64}$" }),
        ("path", "name") => self::name(),
        ("path", "key") | ("header", "Idempotency-Key") => key(),
        ("query", "limit") => json!({ "minimum": 1, "maximum": PAGE_MAX }),
        ("query", "cursor") => json!({ "pattern": "^[0-9]{1,19}$" }),
        ("query", "timeoutMs") => json!({ "maximum": super::super::wait::TIMEOUT_MS_MAX }),
        ("query", "state") if path == "/v1/tasks" => json!({ "pattern": states() }),
        _ => return,
    };
    merge(&mut parameter["schema"], &more);
}

/// By type and property.
fn schemas() -> Value {
    let session = json!({
        "cap": at_least(1), "maxConcurrent": at_least(1), "debounceMs": ms(0), "maxWaitMs": ms(0),
    });
    let mut long_session = session.clone();
    long_session["key"] = key();
    let output = json!({ "minimum": 1, "maximum": runyard_exec::log::LOG_BYTES_MAX });
    json!({
        "AgentPut": { "properties": { "weight": at_least(1) } },
        "BackupRequest": { "properties": { "path": { "minLength": 1 } } },
        "BatchRequest": { "properties": {
            "parallelism": at_least(1), "name": title(), "idempotencyKey": key(),
            "tasks": { "minItems": 1, "maxItems": ITEMS_MAX },
        } },
        "Dependency": { "pattern": DEPENDENCY },
        "HeartbeatRequest": { "properties": { "progress": { "minimum": 0, "maximum": 1 } } },
        "KeyRequest": { "properties": {
            "name": name(), "scopes": { "minItems": 1 }, "agents": { "minItems": 1, "maxItems": 100, "items": name() },
        } },
        "Limits": { "properties": { "cpu": { "minimum": CPU_LIMIT_MIN, "maximum": CPU_MAX }, "ramMb": at_least(1), "pids": at_least(1), "outputBytes": output } },
        "Resources": {
            "properties": { "cpu": { "exclusiveMinimum": 0, "maximum": CPU_MAX }, "ramMb": at_least(1) },
            "propertyNames": name(), "additionalProperties": at_least(1),
        },
        "RetryRequest": { "properties": {
            "maxRetries": { "maximum": RETRIES_MAX }, "multiplier": { "minimum": 1, "maximum": MULTIPLIER_MAX },
            "jitter": { "minimum": 0, "maximum": 1 }, "backoffMs": ms(0), "maxBackoffMs": ms(0),
        } },
        "SecretPut": { "properties": {
            "value": { "maxLength": 65536, "pattern": "^[^\\u0000]*$" }, "agents": { "items": name() },
        } },
        "SessionContext": { "properties": { "contextWindow": at_least(1) } },
        "SessionRequest": { "oneOf": [key(), { "properties": long_session }] },
        "SessionSettings": { "properties": session },
        "TaskRequest": { "properties": {
            "kind": name(), "agent": name(), "lane": name(), "name": title(), "idempotencyKey": key(),
            "dependsOn": { "maxItems": DEPENDENCIES_MAX }, "tags": { "maxItems": TAGS_MAX, "items": name() },
            "gates": { "items": name() }, "delayMs": ms(0), "timeoutMs": ms(1), "stallMs": ms(1), "ttlMs": ms(1),
            "dependencyTimeoutMs": ms(1),
        } },
        "Timestamp": { "pattern": "^(19[7-9]|[2-9][0-9]{2})[0-9]-" },
    })
}

fn name() -> Value {
    json!({ "pattern": "^[A-Za-z0-9._:@-]{1,64}$" })
}

/// What is counted are bytes; a document can only speak of characters.
fn key() -> Value {
    json!({ "minLength": 1, "maxLength": 256, "pattern": "^[^\\u0000-\\u001F\\u007F-\\u009F]+$" })
}

fn title() -> Value {
    key()
}

fn at_least(least: u32) -> Value {
    json!({ "minimum": least })
}

fn ms(least: u32) -> Value {
    json!({ "minimum": least, "maximum": MS_MAX })
}

/// Words of the list, separated by commas; an empty one says nothing.
fn states() -> String {
    let words: Vec<_> = runyard_core::task::Phase::ALL.into_iter().map(|phase| phase.as_str()).collect();
    let word = format!("({})?", words.join("|"));
    format!("^ *{word} *(, *{word} *)*$")
}

const DEPENDENCY: &str = "^(#.+|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$";

/// Objects and arrays of the same length are merged, everything else replaces.
fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(more)) => {
            into.iter_mut().zip(more).for_each(|(into, more)| merge(into, more))
        }
        (into, more) => *into = more.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bound_is_on_something_that_is_there() {
        let document: Value = serde_json::to_value(super::super::super::api().into_openapi()).expect("plain data");
        for (schema, bounds) in schemas().as_object().expect("an object") {
            let there = &document["components"]["schemas"][schema];
            assert!(there.is_object(), "{schema}");
            for property in bounds["properties"].as_object().into_iter().flat_map(|properties| properties.keys()) {
                assert!(there["properties"][property].is_object(), "{schema}.{property}");
            }
        }
    }

    #[test]
    fn an_unsigned_number_has_its_own_width() {
        let mut value = json!([{ "type": "integer", "format": "int32", "minimum": 0 }, { "format": "int32" }]);
        widths(&mut value);
        assert_eq!(value[0]["maximum"], u32::MAX);
        assert_eq!(value[1], json!({ "format": "int32" }));
    }
}
