//! What a tick starts has its secrets, and hides them.

use serde_json::json;

use crate::field::{Field, SOON, n, text};
use crate::support::{runs, wait_until};

const CANARY: &str = "canary-of-a-tick";

/// The server that kept the secret is gone; the tick opens it by itself, and the supervisor hides it after the tick.
#[test]
fn a_pass_hands_secrets_to_what_it_starts() {
    let field = Field::new("");
    let path = field.home().join("secret");
    std::fs::write(&path, "canary-in-a-file\n").unwrap();
    field.configure(&format!("[secrets.file]\nfile = {:?}\n", path.display().to_string()));
    let mut server = field.idle_server();
    let kept = server.request("PUT", "/v1/secrets/kept", &json!({"value": CANARY}).to_string());
    assert_eq!(kept.status, 204, "{}", kept.body);
    // The expected values are not in it: the command is stored, and would be found.
    let shell = "[ ${#A} = 16 ] && [ ${#B} = 16 ] && echo \"$A, $B\"";
    let env = json!({"A": "secret://kept", "B": "secret://file"});
    let task = json!({"kind": "process", "payload": {"shell": shell, "env": env}, "retry": {"maxRetries": 0}});
    let id = server.submit(&task.to_string());
    assert!(server.terminate().success());
    assert_eq!(n(&field.tick()["started"]), 1);
    let has_ended = || runs(&field.data()).iter().all(|run| run.join("exit.json").exists());
    wait_until(SOON, "its end is on record", has_ended);
    for run in runs(&field.data()) {
        for file in ["job.json", "exit.json", "supervisor.log"] {
            let text = std::fs::read_to_string(run.join(file)).unwrap();
            assert!(!text.contains(CANARY) && !text.contains("canary-in-a-file"), "{file}: {text}");
        }
    }
    field.tick();
    assert_eq!(text(&field.task(&id)["result"]["stdout"]), "(secret), (secret)\n");
}
