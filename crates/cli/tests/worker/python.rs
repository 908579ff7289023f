//! The example in docs/examples: a worker in another language, against the real server.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::site::Site;

struct Python(Child);

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn sixty_lines_of_python_register_run_complete_and_are_cancelled() {
    let site = Site::new();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/worker.py");
    let lines = std::fs::read_to_string(example).unwrap();
    assert!(lines.lines().filter(|line| !line.trim().is_empty()).count() <= 60, "it is to be read in a minute");
    let child = Command::new("python3")
        .args([example, &site.url()])
        .env("RUNYARD_WORKER_TOKEN", site.join_token())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let _python = Python(child);
    site.until_status("python", "idle");
    let task = |payload| json!({"kind": "py-upper", "payload": payload});
    let id = site.submit(task(json!({"text": "shout"})));
    assert_eq!(site.ends_as("completed", &id)["result"], json!({"text": "SHOUT"}));
    let wrong = site.ends_as("failed", &site.submit(task(json!({}))));
    assert_eq!((&wrong["error"]["class"], &wrong["attempts"]), (&json!("permanent"), &json!(1)), "{wrong:#}");
    let long = site.submit(task(json!({"text": "never", "seconds": 600})));
    site.until_state(&long, "running");
    let began = Instant::now();
    site.expect(202, "POST", &format!("/v1/tasks/{long}/cancel"), json!({}));
    site.ends_as("cancelled", &long);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}
