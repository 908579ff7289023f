//! What is refused before it can do harm. tinyscheduler's "T-validation".

use serde_json::{Value, json};

use crate::field::{Field, n, sleeper, text, text_of, with};

/// tinyscheduler 33: names are 1 to 64 letters, digits and `._:@-`: nothing that means something to a path, a shell or a
/// log. (Their set has no `.:@`, which agents of chat systems need; design 3.)
#[test]
fn names_that_mean_something_to_a_path_or_a_shell_are_refused() {
    let field = Field::new("");
    let server = field.idle_server();
    let long = "a".repeat(65);
    for name in ["../x", "a;b", "a\n", "a\0b", "", " a", "a/b", "ä", long.as_str()] {
        for key in ["agent", "lane", "kind"] {
            let answer = server.post("/v1/tasks", &with(sleeper("ada"), json!({key: name})).to_string());
            assert_eq!(answer.status, 400, "{key} {name:?}: {}", answer.body);
            assert_eq!(answer.json()["field"], key, "{}", answer.body);
        }
    }
    for name in ["a", "A-1_b", "user:7@chat.example", &"a".repeat(64)] {
        server.submit(&sleeper(name).to_string());
    }
    for id in ["..%2Fx", "a%0A", "%00", "1"] {
        assert_eq!(server.request("GET", &format!("/v1/tasks/{id}"), "").status / 100, 4, "{id}");
    }
}

/// tinyscheduler 33: the same in the configuration of limits.
#[test]
fn limits_of_impossible_names_are_refused() {
    let field = Field::new("");
    for name in ["../x", "a;b", "a\\n", "", &"a".repeat(65)] {
        field.configure(&format!("[agents.\"{name}\"]\nmaxInflight = 1\n"));
        let output = field.run(&[]);
        let told = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name:?}: {told}");
        assert!(told.contains("a name is 1 to 64"), "{told}");
    }
    assert!(!field.data().exists(), "nothing is made before the configuration is known to be right");
}

/// tinyscheduler 33: an address that is no web address.
#[test]
fn only_web_addresses_are_called() {
    let field = Field::new("");
    let server = field.idle_server();
    for url in ["file:///etc/passwd", "ftp://127.0.0.1/x", "/x", ""] {
        let answer = server.post("/v1/tasks", &json!({"kind": "http", "payload": {"url": url}}).to_string());
        assert_eq!(answer.status, 400, "{url}: {}", answer.body);
        assert!(text(&answer.json()["field"]).starts_with("payload"), "{}", answer.body);
    }
}

/// tinyscheduler 34: a limit is a whole number, in the file and in the environment; anything else is refused with its
/// name. (Their `a:1,b:2` in one variable is a variable for each here.)
#[test]
fn a_limit_is_a_whole_number_wherever_it_is_set() {
    let field = Field::new("");
    let ids = field.submit(&vec![sleeper("ada"); 4]);
    for limit in ["-1", "1.5", "\"two\"", "true"] {
        field.configure(&format!("[agents.ada]\nmaxInflight = {limit}\n"));
        let output = field.run(&[]);
        let told = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{limit}: {told}");
        assert!(told.contains("tick.toml:") && told.contains(&format!("maxInflight = {limit}")), "{limit}: {told}");
        field.configure("");
        let limit = limit.trim_matches('"');
        let output = field.command(&[]).env("RUNYARD_AGENTS__ADA__MAX_INFLIGHT", limit).output().unwrap();
        let told = text_of(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{limit}: {told}");
        assert!(told.contains("RUNYARD_AGENTS__ADA__MAX_INFLIGHT"), "{limit}: {told}");
    }
    assert!(field.running(&ids).is_empty());
    field.configure("[agents]\nada = { maxInflight = 1 }\nbob = { maxInflight = 0 }\n");
    field.submit(&[sleeper("bob")]);
    assert_eq!(n(&field.tick()["started"]), 1, "0 means that nothing of it starts");
    let output = field.command(&["--json"]).env("RUNYARD_AGENTS__ADA__MAX_INFLIGHT", "3").output().unwrap();
    let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(n(&summary["started"]), 2);
    assert_eq!(field.running(&ids), [0, 1, 2]);
}

/// Design 13: a limit that was patched while a server ran counts for a tick too.
#[test]
fn a_patched_limit_counts_for_a_tick() {
    let field = Field::new("");
    field.submit(&vec![sleeper("ada"); 3]);
    let mut server = field.idle_server();
    let patched = server.request("PATCH", "/v1/config", r#"{"agents": {"ada": {"maxInflight": 2}}}"#);
    assert_eq!(patched.status, 200, "{}", patched.body);
    assert!(server.terminate().success());
    assert_eq!(n(&field.tick_ending(0, &["--dry-run"])["started"]), 2);
    assert_eq!(n(&field.tick()["started"]), 2);
}
