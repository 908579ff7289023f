//! Uploads, and the files that a task leaves: what goes in and out over HTTP, and what does not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::access::Guarded;
use crate::scene::{SOON, Scene, header, n, problem, text};
use crate::support::{Answer, wait_until};

const ABC_SHA256: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

impl Scene {
    pub fn upload(&self, content: &[u8]) -> String {
        let answer = self.put_upload(&[], content);
        assert_eq!(answer.status, 201, "{}", answer.body);
        text(&answer.json()["id"])
    }

    fn put_upload(&self, headers: &[(&str, &str)], content: &[u8]) -> Answer {
        self.try_send("PUT", "/v1/uploads", headers, content).expect("the server answers")
    }

    fn uploads(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.data().join("uploads")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Runs a line to its end, with these fields in its payload.
    pub fn leaves(&self, line: &str, more: Value) -> String {
        let mut payload = json!({"shell": line});
        payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let id = self.submit(json!({"kind": "process", "payload": payload}));
        self.ends_as("completed", &id);
        id
    }

    pub fn artifacts(&self, id: &str) -> Value {
        self.get(&format!("/v1/tasks/{id}/artifacts"))
    }

    pub fn artifact(&self, id: &str, path: &str) -> Answer {
        self.request("GET", &format!("/v1/tasks/{id}/artifacts/{path}"), "")
    }
}

#[test]
fn a_file_goes_in_and_what_became_of_it_comes_out() {
    let scene = Scene::new();
    let answer = scene.put_upload(&[], b"abc");
    let upload = answer.json();
    assert_eq!((answer.status, n(&upload["bytes"]), &upload["sha256"]), (201, 3, &json!(ABC_SHA256)));
    let files = json!([{"upload": upload["id"], "path": "in/a.txt"}, {"inline": "!", "path": "b"}]);
    let line = "mkdir -p out/sub; cat in/a.txt b > out/sub/c.txt; cp in/a.txt 'out/ü b.txt'; ln -s /etc/passwd out/l";
    let id = scene.leaves(line, json!({"files": files, "outputs": ["out/**"]}));
    let artifacts = scene.artifacts(&id);
    let items = artifacts["items"].as_array().unwrap();
    let paths: Vec<String> = items.iter().map(|item| text(&item["path"])).collect();
    assert_eq!(paths, ["out/sub/c.txt", "out/ü b.txt"]);
    assert_eq!((n(&items[1]["bytes"]), &items[1]["sha256"]), (3, &json!(ABC_SHA256)));
    let left_out = json!([{"path": "out/l", "reason": "is a link, and links are not followed"}]);
    assert_eq!(artifacts["leftOut"], left_out);
    let file = scene.artifact(&id, "out/sub/c.txt");
    assert_eq!((file.status, file.body.as_str()), (200, "abc!"));
    for (name, value) in [
        ("content-type", "application/octet-stream"),
        ("content-length", "4"),
        ("content-disposition", "attachment; filename*=UTF-8''c.txt"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(header(&file, name).as_deref(), Some(value));
    }
    assert_eq!(scene.artifact(&id, "out/%C3%BC%20b.txt").body, "abc");
    assert_eq!(scene.request("HEAD", &format!("/v1/tasks/{id}/artifacts/out/sub/c.txt"), "").body, "");
    let log = scene.request("GET", &format!("/v1/tasks/{id}/logs"), "").body;
    assert!(log.contains("`out/l` is left out: is a link"), "{log}");
}

#[test]
fn a_task_without_artifacts_has_empty_lists_and_no_task_has_none() {
    let scene = Scene::new();
    let id = scene.noop(json!({}));
    assert_eq!(scene.artifacts(&id), json!({"items": [], "leftOut": []}));
    problem(404, &scene.artifact(&id, "a"));
    let nobody = "01912345-6789-7abc-8def-0123456789ab";
    problem(404, &scene.request("GET", &format!("/v1/tasks/{nobody}/artifacts"), ""));
    problem(404, &scene.artifact(nobody, "a"));
    problem(400, &scene.artifact("..", "a"));
}

/// Sent as they are here: no client in between cleans them up.
#[test]
fn no_spelling_of_a_path_leads_out_of_the_artifacts() {
    let scene = Scene::new();
    let id = scene.leaves("mkdir a; printf abc > a/b", json!({"outputs": ["**"]}));
    assert_eq!(scene.artifact(&id, "a/b").body, "abc");
    assert_eq!(scene.artifact(&id, "a%2Fb").body, "abc", "a slash may be written as its code");
    let key = "..%2f..%2f..%2f..%2ftest.toml";
    for path in [
        "a",
        "a/",
        "a//b",
        "./a/b",
        "a/./b",
        "a/../a/b",
        "../a/b",
        "..",
        "../",
        "../index.json",
        "index.json",
        "%2e%2e",
        "%2e%2e/index.json",
        "%2e%2e%2findex.json",
        "..%2findex.json",
        "%2E%2E%2Findex.json",
        "..%5cindex.json",
        "..\\index.json",
        "%252e%252e%252findex.json",
        "..%252findex.json",
        "%c0%ae%c0%ae/index.json",
        "/a/b",
        "%2fa%2fb",
        "//etc/passwd",
        "%2fetc%2fpasswd",
        "a%2fb%00",
        "a/b%00.txt",
        "a/b/",
        "a/b/..",
        "..;/index.json",
        key,
        "../../../../test.toml",
        "....//index.json",
        "%2e%2e%2f%2e%2e%2f%2e%2e%2f%2e%2e%2ftest.toml",
        "files/a/b",
    ] {
        let answer = scene.artifact(&id, path);
        assert!(matches!(answer.status, 400 | 404), "{path}: {} {}", answer.status, answer.body);
    }
}

#[test]
fn an_upload_over_the_limit_is_cut_off_early() {
    let scene = Scene::with("[uploads]\nbytesMax = 1000\n");
    assert_eq!(scene.put_upload(&[], &[b'x'; 1000]).status, 201);
    let told = problem(413, &scene.put_upload(&[], &[b'x'; 1001]));
    assert_eq!((&told["code"], n(&told["limit"])), (&json!("body_too_large"), 1000));
    // It only promises a lot, and is answered before it has sent any of it.
    let answer = scene.put_upload(&[("content-length", "99999999999")], b"");
    problem(413, &answer);
    // It does not say how much it is, and does not stop.
    let mut stream = scene.open("PUT", "/v1/uploads", &[("transfer-encoding", "chunked")], b"").unwrap();
    let chunk = [format!("{:x}\r\n", 600).as_bytes(), &[b'x'; 600], b"\r\n"].concat();
    let mut answer = String::new();
    stream.write_all(&chunk).unwrap();
    stream.write_all(&chunk).unwrap();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert_eq!(scene.uploads().len(), 1, "only the one that was taken is there");
}

#[test]
fn an_upload_that_breaks_off_leaves_nothing() {
    let mut scene = Scene::new();
    let half = |scene: &Scene| -> TcpStream {
        let stream = scene.open("PUT", "/v1/uploads", &[("content-length", "1000000")], &[b'x'; 1000]).unwrap();
        wait_until(SOON, "it is on its way", || scene.uploads().len() == 1);
        stream
    };
    drop(half(&scene));
    wait_until(SOON, "it is gone", || scene.uploads().is_empty());
    let held = half(&scene);
    scene.server_mut().kill9();
    assert_eq!(scene.uploads().len(), 1);
    scene.start_again();
    drop(held);
    assert_eq!(scene.uploads(), Vec::<PathBuf>::new());
}

#[test]
fn an_upload_that_is_not_there_is_refused_at_the_submit() {
    let scene = Scene::new();
    let gone = "01912345-6789-7abc-8def-0123456789ab";
    let submit = |upload: &str| {
        let files = json!([{"inline": "", "path": "a"}, {"upload": upload, "path": "b"}]);
        scene.send("POST", "/v1/tasks", json!({"kind": "process", "payload": {"argv": ["true"], "files": files}}))
    };
    let inside = scene.upload(b"abc");
    let path = format!("{}/../{inside}", "x");
    for upload in [gone, "../worker.id", "..%2fworker.id", "/etc/passwd", "", &path, &inside.to_uppercase(), ".part-x"]
    {
        let told = problem(400, &submit(upload));
        assert_eq!(told["field"], "payload.files[1].upload", "{told:#}");
    }
    assert_eq!(submit(&inside).status, 201);
    let tasks = json!([{"kind": "noop"}, {"kind": "process", "payload": {"argv": ["true"], "files": [{"upload": gone, "path": "b"}]}}]);
    let told = scene.problem(400, "POST", "/v1/batches", json!({"tasks": tasks}));
    assert_eq!(told["field"], "tasks[1].payload.files[0].upload");
}

#[test]
fn an_upload_that_nobody_needs_goes() {
    let mut scene = Scene::new();
    let (needed, old) = (scene.upload(b"abc"), scene.upload(b"abc"));
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(8 * 86_400);
    for id in [&needed, &old] {
        let file = std::fs::File::options().write(true).open(scene.data().join("uploads").join(id)).unwrap();
        file.set_modified(long_ago).unwrap();
    }
    // Whoever names it keeps it.
    scene.leaves("true", json!({"files": [{"upload": needed, "path": "a"}]}));
    scene.restart();
    wait_until(SOON, "the old one is gone", || scene.uploads() == [scene.data().join("uploads").join(&needed)]);
}

#[test]
fn files_ask_for_the_scopes_of_what_they_are_for() {
    let guarded = Guarded::new();
    let (_, reads) = guarded.key(json!({"name": "r", "scopes": ["read"]}));
    let (_, submits) = guarded.key(json!({"name": "s", "scopes": ["submit"]}));
    problem(403, &guarded.ask(&reads, "PUT", "/v1/uploads", json!("x")));
    assert_eq!(guarded.ask(&submits, "PUT", "/v1/uploads", json!("x")).status, 201);
    let id = guarded.ask(&submits, "POST", "/v1/tasks", json!({"kind": "noop"})).json();
    let path = format!("/v1/tasks/{}/artifacts", text(&id["id"]));
    assert_eq!(guarded.ask(&reads, "GET", &path, Value::Null).status, 200);
    problem(403, &guarded.ask(&submits, "GET", &path, Value::Null));
    problem(403, &guarded.ask(&submits, "GET", &format!("{path}/a"), Value::Null));
}

#[test]
fn the_command_line_hands_in_and_fetches() {
    let scene = Scene::new();
    let here = scene.home().join("here.txt");
    std::fs::write(&here, "abc").unwrap();
    let run = |arguments: &[&str]| {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"));
        command.env("RUNYARD_DATA", scene.data()).env_remove("RUNYARD_URL").args(arguments);
        let output = command.assert().success().get_output().clone();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let here = here.to_str().unwrap();
    let (upload, _) = run(&["upload", here]);
    assert_eq!(scene.uploads(), [scene.data().join("uploads").join(upload.trim())]);
    let (file, text) = (format!("in/a=@{here}"), "in/b=text");
    let submit = ["submit", "--file", &file, "--file", text, "--output", "out/**", "--work-dir", "keep", "--shell"];
    let (id, _) = run(&[&submit[..], &["mkdir -p out/sub; cat in/a in/b > out/sub/c; mkfifo out/p"]].concat());
    let id = id.trim();
    scene.ends_as("completed", id);
    assert!(scene.data().join("work").join(id).join("in/a").exists(), "it is kept");
    let (list, notes) = run(&["artifacts", id]);
    assert!(list.contains("out/sub/c      7  ") && notes.contains("left out: out/p: is a pipe"), "{list}{notes}");
    assert_eq!(run(&["artifacts", id, "out/sub/c"]).0, "abctext");
    let (one, all) = (scene.home().join("one"), scene.home().join("all"));
    run(&["artifacts", id, "out/sub/c", "-o", one.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(one).unwrap(), "abctext");
    run(&["artifacts", id, "-o", all.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(all.join("out/sub/c")).unwrap(), "abctext");
}
