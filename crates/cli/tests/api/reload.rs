//! The configuration changes while the server runs.

use std::path::Path;

use serde_json::{Value, json};

use crate::scene::{SOON, Scene, n, text};
use crate::support::wait_until;

/// A4.68, A4.71: a changed file is read by itself; queue limits change and in-flight limits stay.
#[test]
fn a_changed_file_is_read_by_itself() {
    let scene = Scene::with("[limits]\nmaxQueued = 50\nmaxInflight = 7\n");
    replace(&scene.config_file(), "[limits]\nmaxQueued = 99\nmaxQueuedPerAgent = 49\nmaxInflight = 7\n");
    until_limit(&scene, "maxQueued", 99);
    let limits = &scene.stats()["limits"];
    assert_eq!((n(&limits["maxQueuedPerAgent"]), n(&limits["maxInflight"])), (49, 7));
    let origins = &scene.get("/v1/config")["origins"];
    assert_eq!(
        (origins["limits.maxQueued"].as_str(), origins["limits.maxFlows"].as_str()),
        (Some("file"), Some("default"))
    );
}

/// A4.69: SIGHUP reads the file again; in-flight limits are applied to what waits.
#[test]
fn sighup_reads_the_file_again() {
    let scene = Scene::with("[lanes]\nmain = 0\n");
    let id = scene.noop(json!({}));
    assert_eq!(scene.state(&id), "queued");
    replace(&scene.config_file(), "[limits]\nmaxInflight = 30\nmaxInflightPerAgent = 15\n[lanes]\nmain = 1\n");
    scene.signal("HUP");
    wait_until(SOON, "the signal is heard", || scene.server_log().contains("SIGHUP"));
    scene.ends_as("completed", &id);
    let limits = &scene.stats()["limits"];
    assert_eq!((n(&limits["maxInflight"]), n(&limits["maxInflightPerAgent"])), (30, 15));
}

/// A4.70: an empty change changes nothing; a file that was emptied goes back to the defaults.
#[test]
fn an_empty_patch_changes_nothing_and_an_empty_file_is_the_defaults() {
    let scene = Scene::with("[limits]\nmaxQueued = 50\n");
    let before = scene.get("/v1/config");
    assert_eq!(scene.expect(200, "PATCH", "/v1/config", json!({})), before);
    replace(&scene.config_file(), "");
    until_limit(&scene, "maxQueued", 1_000_000);
}

/// A4.72: a bad file is refused whole, with the line, and the old configuration stays.
#[test]
fn a_bad_file_is_refused_whole_with_its_line() {
    let scene = Scene::with("[limits]\nmaxQueued = 50\n");
    let before = scene.get("/v1/config");
    for (bad, line, word) in [
        ("[limits]\nmaxQueued = 99\nmaxInflite = 5\n", "test.toml:3:", "maxInflite"),
        ("[limits]\nmaxQueued = 99\n[lanes]\nmain = -1\n", "test.toml:4:", "-1"),
        ("[limits]\nmaxQueued = 99\n[gates.g]\n", "test.toml:3:", "gates.g"),
        ("[limits]\nmaxQueued = \n", "test.toml:2:", ""),
    ] {
        let n_refused = scene.server_log().matches("configuration refused").count();
        replace(&scene.config_file(), bad);
        wait_until(SOON, &format!("{bad:?} is refused"), || {
            scene.server_log().matches("configuration refused").count() > n_refused
        });
        let log = scene.server_log();
        let last = log.split("configuration refused").last().unwrap();
        assert!(last.contains(line) && last.contains(word), "{last}");
        assert_eq!(scene.get("/v1/config"), before);
    }
    replace(&scene.config_file(), "[limits]\nmaxQueued = 51\n");
    until_limit(&scene, "maxQueued", 51);
}

/// Design 13: a patch lies over the file, is shown with its origin, survives a restart, and null takes it back; what is
/// read once at the start, or makes no sense, is refused and changes nothing.
#[test]
fn a_patch_lies_over_the_file_and_survives_a_restart() {
    let mut scene = Scene::with("[limits]\nmaxQueued = 50\n");
    let view = scene.expect(200, "PATCH", "/v1/config", json!({"limits": {"maxQueued": 60}, "lanes": {"fresh": 2}}));
    assert_eq!(
        (n(&view["values"]["limits"]["maxQueued"]), view["origins"]["limits.maxQueued"].as_str()),
        (60, Some("patch"))
    );
    scene.restart();
    let limits = &scene.stats()["limits"];
    assert_eq!((n(&limits["maxQueued"]), n(&limits["lanes"]["fresh"])), (60, 2));
    let before = scene.get("/v1/config");
    for (bad, field) in [
        (json!({"limits": {"maxQueued": "many"}}), "limits.maxQueued"),
        (json!({"limits": {"maxQued": 5}}), "limits.maxQued"),
        (json!({"agents": {"a": {"weight": 0}}}), "agents.a.weight"),
        (json!({"server": {"listen": "127.0.0.1:1"}}), "server.listen"),
    ] {
        let refusal = scene.problem(400, "PATCH", "/v1/config", bad);
        assert_eq!(refusal["code"], "invalid_config");
        assert!(text(&refusal["detail"]).contains(field), "{refusal:#}");
    }
    assert_eq!(scene.get("/v1/config"), before);
    scene.expect(200, "PATCH", "/v1/config", json!({"limits": {"maxQueued": Value::Null}}));
    assert_eq!(n(&scene.stats()["limits"]["maxQueued"]), 50);
}

/// Design 13: a lowered limit stops new starts and lets what runs go on; a change is an event.
#[test]
fn a_lowered_limit_drains_and_is_announced() {
    let scene = Scene::with("[lanes]\nmain = 2\n");
    let (first, second) = (scene.blocker(), scene.blocker());
    scene.expect(200, "PATCH", "/v1/config", json!({"lanes": {"main": 1}}));
    let waiting = scene.noop(json!({}));
    assert_eq!((scene.state(&first), scene.state(&second)), ("running".into(), "running".into()));
    scene.cancel(&first);
    scene.end(&first);
    assert_eq!(scene.state(&waiting), "queued", "one still runs, and one is the limit");
    scene.cancel(&second);
    scene.ends_as("completed", &waiting);
    let mut stream = scene.events("types=config.changed");
    assert_eq!(stream.next_event()["type"], "config.changed");
}

/// Design 13: the environment lies over the file, and a bad configuration stops the start with its place.
#[test]
fn a_bad_file_or_variable_stops_the_start_and_says_where() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("bad.toml");
    std::fs::write(&file, "[limits]\nmaxQueued = true\n").unwrap();
    let serve = || {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(home.path().join("data")).timeout(SOON);
        command
    };
    let refused = |command: &mut assert_cmd::Command| {
        String::from_utf8_lossy(&command.assert().failure().get_output().stderr).into_owned()
    };
    let text = refused(serve().arg("--config").arg(&file));
    assert!(text.contains("bad.toml:2:13") && text.contains("maxQueued = true"), "{text}");
    let text = refused(serve().env("RUNYARD_LANES__MAIN", "-5"));
    assert!(text.contains("RUNYARD_LANES__MAIN"), "{text}");
}

/// Written beside it and moved over it, as editors do: there is no moment in which it is half there.
fn replace(path: &Path, text: &str) {
    let fresh = path.with_extension("fresh");
    std::fs::write(&fresh, text).unwrap();
    std::fs::rename(fresh, path).unwrap();
}

fn until_limit(scene: &Scene, name: &str, value: u64) {
    wait_until(SOON, &format!("{name} is {value}"), || n(&scene.stats()["limits"][name]) == value);
}
