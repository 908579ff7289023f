//! What leads to what: the id in one answer is the `{id}` of other operations. A tool that reads the document can walk
//! through the API this way, and the one that tests it does.

use serde_json::{Value, json};

/// (method, path, status, where the id is, what it is the id of)
const SOURCES: [(&str, &str, &str, &str, &str); 4] = [
    ("post", "/v1/tasks", "201", "$response.body#/id", "/v1/tasks/{id}"),
    ("post", "/v1/batches", "201", "$response.body#/id", "/v1/batches/{id}"),
    ("post", "/v1/keys", "201", "$response.body#/id", "/v1/keys/{id}"),
    ("put", "/v1/sessions/{key}", "200", "$response.body#/key", "/v1/sessions/{key}"),
];

/// Names every operation by its method and path, and links them.
pub fn add(document: &mut Value) {
    let named: Vec<_> = operations(document).map(|(path, method)| (path.clone(), method.clone())).collect();
    for (path, method) in &named {
        document["paths"][path][method]["operationId"] = json!(operation_id(method, path));
    }
    for (method, path, status, id, of) in SOURCES {
        let parameter = if of.ends_with("{key}") { "key" } else { "id" };
        let targets = named.iter().filter(|(path, _)| path.starts_with(of) && !path.ends_with("{path}"));
        let links = targets.map(|(path, method)| {
            let name = operation_id(method, path);
            (name.clone(), json!({ "operationId": name, "parameters": { parameter: id } }))
        });
        document["paths"][path][method]["responses"][status]["links"] = links.collect();
    }
}

fn operations(document: &Value) -> impl Iterator<Item = (&String, &String)> {
    let paths = document["paths"].as_object().expect("a document has paths");
    paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().expect("a path has operations").keys();
        methods.map(move |method| (path, method))
    })
}

/// `GET /v1/tasks/{id}/events` is `get_tasks_id_events`: the name of a handler is not unique, this is.
fn operation_id(method: &str, path: &str) -> String {
    let words = path.split(['/', '{', '}', '.']).filter(|word| !word.is_empty() && *word != "v1");
    std::iter::once(method).chain(words).collect::<Vec<_>>().join("_")
}
