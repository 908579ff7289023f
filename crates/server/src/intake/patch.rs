//! A change of a schedule, laid over what was submitted.

use std::collections::BTreeMap;

use runyard_wire::{Json, ParseError, ScheduleKind, SchedulePatch, ScheduleRequest};
use serde::Serialize;

type Fields = BTreeMap<String, Json>;

/// As texts, so that a payload that is not spoken of keeps its bytes.
pub fn patched(stored: &ScheduleRequest, patch: SchedulePatch) -> Result<ScheduleRequest, ParseError> {
    let mut fields = fields_of(stored);
    for (field, value) in patch.0 {
        let value = match (field.as_str(), value.read::<Fields>()) {
            ("schedule", Ok(change)) if is_other_kind(stored, &change) => value,
            ("schedule" | "task", Ok(change)) => {
                let mut inner = fields.get(&field).and_then(|old| old.read::<Fields>().ok()).unwrap_or_default();
                lay_over(&mut inner, change);
                json(&inner)
            }
            _ => value,
        };
        lay_over(&mut fields, Fields::from([(field, value)]));
    }
    runyard_wire::parse(json(&fields).as_str().as_bytes())
}

/// What says when it runs: a schedule that is done begins anew when it is changed.
pub fn touches_times(patch: &SchedulePatch) -> bool {
    ["schedule", "startAt", "endAt", "maxRuns", "enabled"].into_iter().any(|field| patch.0.contains_key(field))
}

/// null takes a field away.
fn lay_over(fields: &mut Fields, change: Fields) {
    for (field, value) in change {
        match value.as_str() {
            "null" => drop(fields.remove(&field)),
            _ => drop(fields.insert(field, value)),
        }
    }
}

fn is_other_kind(stored: &ScheduleRequest, change: &Fields) -> bool {
    let kind = change.get("kind").map(|kind| kind.read::<ScheduleKind>());
    kind.is_some_and(|kind| kind.ok() != Some(stored.schedule.kind))
}

fn fields_of(value: &impl Serialize) -> Fields {
    json(value).read().expect("a schedule is an object")
}

fn json(value: &impl Serialize) -> Json {
    Json::of(value).expect("a schedule is plain data")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn patched_to(patch: Value) -> Result<Value, ParseError> {
        let stored = json!({
            "name": "n", "schedule": {"kind": "cron", "expr": "@daily", "tz": "Europe/Berlin"},
            "task": {"kind": "noop", "payload": {"a": 1, "b": 2}, "tags": ["t"]}, "maxRuns": 3
        });
        let stored = runyard_wire::parse(stored.to_string().as_bytes())?;
        let request = patched(&stored, runyard_wire::parse(patch.to_string().as_bytes())?)?;
        Ok(serde_json::to_value(request).expect("plain data"))
    }

    #[test]
    fn each_field_is_changed_by_itself() {
        let same = patched_to(json!({})).expect("valid");
        assert_eq!(same["task"]["payload"], json!({"a": 1, "b": 2}));
        let changed = patched_to(json!({"name": "m", "maxRuns": null, "task": {"payload": {"c": 3}, "tags": null}}));
        let changed = changed.expect("valid");
        assert_eq!((&changed["name"], &changed["maxRuns"]), (&json!("m"), &Value::Null));
        assert_eq!(changed["task"], json!({"kind": "noop", "payload": {"c": 3}}), "a payload is one field");
        assert_eq!(changed["schedule"], same["schedule"]);
    }

    #[test]
    fn a_schedule_of_the_same_kind_keeps_its_zone_and_another_kind_takes_its_place() {
        let later = patched_to(json!({"schedule": {"expr": "@hourly"}})).expect("valid");
        assert_eq!(later["schedule"], json!({"kind": "cron", "expr": "@hourly", "tz": "Europe/Berlin"}));
        let no_zone = patched_to(json!({"schedule": {"kind": "cron", "tz": null}})).expect("valid");
        assert_eq!(no_zone["schedule"], json!({"kind": "cron", "expr": "@daily"}));
        let every = patched_to(json!({"schedule": {"kind": "every", "everyMs": 5000}})).expect("valid");
        assert_eq!(every["schedule"], json!({"kind": "every", "everyMs": 5000}));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (patch, field) in [
            (json!({"nmae": "m"}), "nmae"),
            (json!({"name": null}), "name"),
            (json!({"task": {"prio": 1}}), "task.prio"),
            (json!({"task": 7}), "task"),
            (json!({"schedule": {"kind": "often"}}), "schedule.kind"),
            (json!({"schedule": {"zone": "UTC"}}), "schedule.zone"),
        ] {
            assert_eq!(patched_to(patch.clone()).expect_err("wrong").field, field, "{patch}");
        }
    }

    #[test]
    fn a_payload_that_is_not_spoken_of_keeps_its_bytes() {
        let stored = br#"{"name":"n","schedule":{"kind":"at"},"task":{"payload":{"n":  1.00}}}"#;
        let stored: ScheduleRequest = runyard_wire::parse(stored).expect("valid");
        let patch = runyard_wire::parse(br#"{"task":{"agent":"a"}}"#).expect("valid");
        let payload = patched(&stored, patch).expect("valid").task.payload.expect("kept");
        assert_eq!(payload.as_str(), r#"{"n":  1.00}"#);
    }
}
