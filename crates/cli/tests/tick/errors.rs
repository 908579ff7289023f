//! What goes wrong for one task holds nobody else up, and is told. tinyscheduler's "T-errors".

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::field::{Field, SOON, counts, messages, n, signal, sleeper, text, text_of};
use crate::support::{is_alive, wait_until};

/// A command that is not there.
fn missing(agent: &str) -> Value {
    json!({"kind": "process", "agent": agent, "payload": {"argv": ["/no/such/program"]}})
}

/// tinyscheduler 9: what cannot be read of one lane's work does not keep another lane's from starting, and counts. (There
/// is no source to be asked that could fail: what can be unreadable here is what earlier runs left.)
#[test]
fn what_cannot_be_read_is_counted_and_holds_nobody_up() {
    let field = Field::new("");
    let ids = field.submit(&[sleeper("dev")]);
    field.tick();
    field.kill_supervisor(&ids[0]);
    std::fs::write(field.lease_file(&ids[0]), "{").unwrap();
    let more = field.submit(&[sleeper("qa")]);
    // The server that took it has met the first one already.
    assert!(!field.lease_file(&ids[0]).exists());
    std::fs::write(field.lease_file(&ids[0]), "{").unwrap();
    let summary = field.tick_ending(1, &[]);
    assert_eq!(counts(&summary, ["errors", "started"]), [1, 2]);
    assert!(messages(&summary)[0].contains(&format!("task_{}.json.bad-2 cannot be read", ids[0])), "{summary:#}");
    assert!(field.is_running(&ids[0]) && field.is_running(&more[0]));
    assert_eq!(n(&field.tick()["errors"]), 0, "it is set aside, and told of once");
}

/// tinyscheduler 9: the same for the orders of a run. Its supervisor is given up with its command, its task recovered.
#[test]
fn a_run_whose_orders_cannot_be_read_is_given_up_and_its_task_recovered() {
    let field = Field::new("");
    let ids = field.submit(&[sleeper("dev")]);
    field.tick();
    let pid = n(&field.lease(&ids[0])["metadata"]["command_pid"]);
    std::fs::write(field.data().join(format!("runs/{}-1/job.json", ids[0])), "?").unwrap();
    let summary = field.tick_ending(1, &[]);
    assert_eq!(counts(&summary, ["leasesScanned", "errors", "reclaimed", "started"]), [1, 1, 1, 1]);
    assert!(!is_alive(pid) && field.is_running(&ids[0]));
    assert_eq!(n(&field.lease(&ids[0])["attempt"]), 2);
}

/// tinyscheduler 10: the first of three cannot be started; the other two are.
#[test]
fn a_command_that_cannot_be_started_is_an_error_and_the_others_start() {
    let field = Field::new("");
    let ids = field.submit(&[missing("ada"), sleeper("ada"), sleeper("ada")]);
    let summary = field.tick_ending(1, &[]);
    assert_eq!(counts(&summary, ["started", "errors"]), [2, 1]);
    assert_eq!(field.running(&ids), [1, 2]);
    let expected = format!("task {} of ada: program `/no/such/program` was not found", ids[0]);
    assert!(messages(&summary)[0].starts_with(&expected), "{summary:#}");
}

/// tinyscheduler 11: who cannot have its slot leaves it to the next one, in the same pass.
#[test]
fn a_start_that_fails_leaves_its_slot_to_the_next_one() {
    let field = Field::new("[agents.ada]\nmaxInflight = 1\n");
    let ids = field.submit(&[missing("ada"), missing("ada"), sleeper("ada"), sleeper("ada")]);
    let summary = field.tick_ending(1, &[]);
    assert_eq!(counts(&summary, ["started", "errors", "queued"]), [1, 2, 1]);
    assert_eq!(field.running(&ids), [2]);
}

/// tinyscheduler 12: the reason stands on the task.
#[test]
fn a_task_whose_command_is_missing_says_so() {
    let field = Field::new("");
    let ids = field.submit(&[missing("ada")]);
    field.tick_ending(1, &[]);
    let task = field.task(&ids[0]);
    assert_eq!((&task["state"], &task["error"]["class"]), (&json!("failed"), &json!("permanent")));
    assert!(text(&task["error"]["message"]).contains("`/no/such/program` was not found"), "{task:#}");
    assert_eq!(counts(&field.tick(), ["leasesScanned", "started", "errors"]), [0, 0, 0]);
}

/// Everything below a directory: what it is, when it was changed, and what is in it.
fn listing(root: &Path) -> BTreeMap<PathBuf, (u32, i64, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = std::fs::symlink_metadata(&path).unwrap();
            let bytes = if metadata.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
            if metadata.is_dir() {
                folders.push(path.clone());
            }
            found.insert(path, (metadata.mode(), metadata.mtime(), metadata.mtime_nsec(), bytes));
        }
    }
    found
}

/// tinyscheduler 13: a rehearsal tells what would be done, and does nothing of it.
#[test]
fn a_dry_run_changes_nothing_and_tells_what_a_tick_then_does() {
    // No beat comes in between.
    let field = Field::with_worker("heartbeatMs = 600000", "[agents.ada]\nmaxInflight = 4\n");
    let mut bodies = vec![field.until("ada", "go"), sleeper("ada"), sleeper("ada"), sleeper("ada")];
    bodies.extend([sleeper("ada"), sleeper("ada")]);
    let ids = field.submit(&bodies);
    assert_eq!(n(&field.tick()["started"]), 4);
    field.let_end("go", &[&ids[0]]);
    field.kill_supervisor(&ids[1]);
    std::fs::write(field.lease_file(&ids[2]), "{").unwrap();
    let alive = [&ids[2], &ids[3]].map(|id| field.data().join(format!("runs/{id}-1/supervisor.json")));
    let alive = alive.map(|path| serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap());
    let before = listing(&field.data());
    let planned = field.tick_ending(1, &["--dry-run"]);
    let after = listing(&field.data());
    let changed: Vec<_> =
        before.iter().filter(|(path, was)| after.get(*path) != Some(was)).map(|(path, _)| path).collect();
    assert!(changed.is_empty(), "{changed:#?}");
    assert_eq!(before.len(), after.len(), "nothing is new");
    assert!(alive.iter().all(|identity| is_alive(n(&identity["pid"]))));
    let names = ["leasesScanned", "adopted", "finished", "reclaimed", "started", "queued", "errors"];
    assert_eq!(counts(&planned, names), [4, 2, 1, 1, 2, 1, 1]);
    assert_eq!(planned["dryRun"], true);
    let done = field.tick_ending(1, &[]);
    assert_eq!(counts(&done, names), counts(&planned, names));
    assert_eq!((messages(&done).len(), done.get("dryRun")), (messages(&planned).len(), None));
}

/// tinyscheduler 13: also where nobody has ever been.
#[test]
fn a_dry_run_makes_no_directory() {
    let field = Field::new("");
    let output = field.run(&["--dry-run"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text_of(&output.stderr).contains("cannot use the data directory"), "{output:?}");
    assert!(!field.data().exists());
    std::fs::create_dir(field.data()).unwrap();
    assert_eq!(counts(&field.tick_ending(0, &["--dry-run"]), ["leasesScanned", "started", "errors"]), [0, 0, 0]);
    assert!(listing(&field.data()).is_empty());
}

/// tinyscheduler 14, answered differently: there an unreadable file of agents means that only limits count. Here a bad
/// configuration is refused whole, with its place (design 13), and none at all means the defaults.
#[test]
fn a_bad_configuration_is_refused_and_a_missing_one_means_the_defaults() {
    let field = Field::new("");
    let ids = field.submit(&[sleeper("ada")]);
    std::fs::write(field.config_file(), "[agents.ada]\nmaxInflight = {").unwrap();
    let output = field.run(&[]);
    let told = text_of(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("tick.toml:2:"), "{told}");
    assert!(!field.is_running(&ids[0]));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_runyard"));
    let output = command.args(["tick", "--data"]).arg(field.data()).env_remove("RUNYARD_CONFIG").output().unwrap();
    let said = text_of(&output.stdout);
    assert!(output.status.success() && said.contains("1 started"), "{output:?}");
    wait_until(SOON, "it runs", || field.is_running(&ids[0]));
}

/// The survey asks a supervisor only when it has to: one that beats is left in peace, stopped or not.
#[test]
fn a_supervisor_that_has_just_beaten_is_not_asked() {
    let field = Field::with_worker("heartbeatMs = 600000", "");
    let ids = field.submit(&[sleeper("ada")]);
    field.tick();
    let pid = n(&field.lease(&ids[0])["pid"]);
    signal("STOP", pid);
    assert_eq!(counts(&field.tick(), ["adopted", "reclaimed"]), [1, 0]);
    signal("CONT", pid);
    assert!(field.is_running(&ids[0]));
}
