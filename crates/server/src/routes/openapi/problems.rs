//! The problems each operation may answer with, by status. There is no `default` among them: an answer that is not
//! named here is a mistake of the server or of the document.

use axum::http::Method;
use runyard_wire::{PROBLEM_CONTENT_TYPE, Problem};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::access::{Need, needed};

pub fn add(document: &mut Value) {
    let paths = document["paths"].as_object_mut().expect("a document has paths");
    for (path, item) in paths {
        for (method, operation) in item.as_object_mut().expect("a path has operations") {
            let statuses = statuses(method, path, operation.get("requestBody").is_some());
            let responses = operation["responses"].as_object_mut().expect("an operation has responses");
            for (status, description) in statuses {
                responses.entry(status).or_insert_with(|| problem(description));
            }
        }
    }
}

fn problem(description: &str) -> Value {
    let schema = json!({ "$ref": format!("#/components/schemas/{}", Problem::name()) });
    json!({ "description": description, "content": { PROBLEM_CONTENT_TYPE: { "schema": schema } } })
}

type Named = (&'static str, &'static str);

const ANYWHERE: [Named; 5] = [
    ("403", "The Host or Origin is foreign, or the key may not do this"),
    ("414", "The URL is too long"),
    ("429", "Too many requests, or a queue is full; Retry-After says when to come again"),
    ("500", "A bug, or a store that cannot be read; the server's log says more"),
    ("503", "Not now: starting, stopping, draining or busy"),
];
const WITH_KEY: [Named; 2] =
    [("400", "Something asked for is not valid; `field` names it"), ("401", "No key, or one that is not known")];
const WITH_BODY: [Named; 3] =
    [("408", "The body took too long"), ("413", "The body is too large"), ("415", "The body is not JSON")];
const OF_ONE: Named = ("404", "There is none such");
const CHANGES: Named = ("409", "It is in a state that does not allow this");
const SUBMITS: Named = ("422", "The idempotency key was used before with another body");

fn statuses(method: &str, path: &str, has_body: bool) -> Vec<Named> {
    let mut named = ANYWHERE.to_vec();
    if needed(&Method::GET, path) != Need::Open {
        named.extend(WITH_KEY);
    }
    if has_body {
        named.extend(WITH_BODY);
    }
    if path.contains('{') {
        named.push(OF_ONE);
    }
    if method != "get" {
        named.push(CHANGES);
    }
    if method == "post" && SUBMITTING.contains(&path) {
        named.push(SUBMITS);
    }
    named
}

const SUBMITTING: [&str; 3] = ["/v1/tasks", "/v1/batches", "/v1/tasks/{id}/input"];
