//! What is collected at the end of a run.

use std::io::Read;
use std::os::unix::fs::symlink;

use runyard_exec::workspace::Artifacts;
use runyard_exec::{Job, Kind, Outcome, WorkspaceRules};
use serde_json::{Value, json};

use crate::support::{TASK, TASK_TEXT, Yard};

impl Yard {
    /// Runs a line, and gives the paths of what was collected and of what was left out, with the reasons.
    async fn collected(&self, line: &str, outputs: &[&str]) -> (Vec<String>, Vec<(String, String)>) {
        self.collected_by(line, outputs, WorkspaceRules::default()).await
    }

    async fn collected_by(
        &self,
        line: &str,
        outputs: &[&str],
        rules: WorkspaceRules,
    ) -> (Vec<String>, Vec<(String, String)>) {
        let outcome = self.run_with(json!({"shell": line, "outputs": outputs}), rules).await;
        assert!(matches!(outcome, Outcome::Completed { .. }), "{outcome:?}");
        let Artifacts { items, left_out, .. } = self.artifacts();
        let left_out = left_out.into_iter().map(|item| (item.path, item.reason)).collect();
        (items.into_iter().map(|item| item.path).collect(), left_out)
    }

    fn content(&self, path: &str) -> Option<Vec<u8>> {
        let (_, mut file) = Artifacts::open(self.executors.places(), TASK, path).expect("the artifacts")?;
        let mut content = Vec::new();
        file.read_to_end(&mut content).expect("read");
        Some(content)
    }
}

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[tokio::test]
async fn what_the_patterns_mean_is_collected_with_its_sum() {
    let yard = Yard::new();
    let line = "mkdir -p out/deep other; printf abc > out/deep/a.txt; echo b > out/b.txt; echo c > other/c.txt; \
        echo no > out/b.bin; echo top > top.txt";
    let (paths, left_out) = yard.collected(line, &["out/**/*.txt", "{top,none}.txt"]).await;
    assert_eq!((paths, left_out), (texts(&["out/b.txt", "out/deep/a.txt", "top.txt"]), Vec::new()));
    let artifact = yard.artifacts().items.remove(1);
    let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!((artifact.bytes, artifact.sha256.as_str()), (3, sum));
    assert_eq!(yard.content("out/deep/a.txt").as_deref(), Some(&b"abc"[..]));
    assert_eq!(yard.work_files(), Vec::<String>::new());
}

#[tokio::test]
async fn our_own_files_are_not_among_them() {
    let (paths, left_out) = Yard::new().collected("echo 1 > a; mkdir sub; echo 2 > sub/task.json", &["**"]).await;
    assert_eq!((paths, left_out), (texts(&["a", "sub/task.json"]), Vec::new()));
}

#[tokio::test]
async fn no_link_is_followed_anywhere() {
    let yard = Yard::new();
    let outside = yard.dir.path().join("outside");
    std::fs::create_dir(&outside).expect("a directory");
    std::fs::write(outside.join("secret.txt"), "secret").expect("a file");
    symlink(&outside, yard.dir.path().join("by-another-way")).expect("a link");
    let outside = outside.display();
    let line = format!(
        "echo 1 > real.txt; ln -s real.txt inner.txt; ln -s {outside}/secret.txt way.txt; ln -s {outside} folder; \
         ln -s /no/such broken.txt; mkdir sub; ln -s {outside} sub/folder; ln -s ../../../outside sub/up; \
         ln -s /etc/passwd sub/passwd.txt"
    );
    let (paths, left_out) = yard.collected(&line, &["**", "folder/secret.txt", "sub/folder/*"]).await;
    assert_eq!(paths, texts(&["real.txt"]));
    let mut left: Vec<String> = left_out.iter().map(|(path, _)| path.clone()).collect();
    left.sort();
    let all = ["broken.txt", "folder", "inner.txt", "sub/folder", "sub/passwd.txt", "sub/up", "way.txt"];
    assert_eq!(left, texts(&all));
    assert!(left_out.iter().all(|(_, reason)| reason == "is a link, and links are not followed"), "{left_out:?}");
    for path in ["folder/secret.txt", "sub/up/secret.txt", "way.txt"] {
        assert_eq!(yard.content(path), None);
    }
}

/// The working directory itself may be made a link by its own process.
#[tokio::test]
async fn a_working_directory_that_became_a_link_is_not_looked_into() {
    let yard = Yard::new();
    let outside = yard.dir.path().join("outside");
    std::fs::create_dir(&outside).expect("a directory");
    std::fs::write(outside.join("secret.txt"), "secret").expect("a file");
    let line = format!("cd ..; rm -rf $RUNYARD_WORKDIR; ln -s {} $RUNYARD_WORKDIR", outside.display());
    yard.run(Kind::Process, json!({"shell": line, "outputs": ["**"]})).await;
    assert_eq!(yard.artifacts(), Artifacts::default());
    assert!(outside.join("secret.txt").exists(), "what it led to was tidied away");
    // The next attempt makes it anew.
    assert_eq!(yard.staged(json!([{"inline": "1", "path": "a"}])).await, "./a: 1\n");
    assert!(outside.join("secret.txt").exists() && !outside.join("a").exists());
}

#[tokio::test]
async fn pipes_sockets_and_devices_are_left_out_and_nobody_waits_for_them() {
    let socket = "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"c.out\")' || true";
    let line = format!("mkfifo a.out; mkdir b.out; {socket}; mknod d.out c 1 5 || true; echo e > e.out");
    let (paths, left_out) = Yard::new().collected(&line, &["*.out"]).await;
    assert_eq!(paths, texts(&["e.out"]));
    let reasons = |name: &str| left_out.iter().find(|(path, _)| path == name).map(|(_, reason)| reason.as_str());
    assert_eq!(reasons("a.out"), Some("is a pipe"));
    // Not every machine lets a test make one.
    assert!(matches!(reasons("c.out"), None | Some("is a socket")), "{left_out:?}");
    assert!(matches!(reasons("d.out"), None | Some("is no regular file")), "{left_out:?}");
    assert_eq!(reasons("b.out"), None, "a directory that a pattern happens to meet is nothing to tell of");
}

#[tokio::test]
async fn a_directory_that_is_named_is_told_of() {
    let yard = Yard::new();
    let (paths, left_out) = yard.collected("mkdir out; echo 1 > out/a", &["out"]).await;
    assert_eq!(
        (paths, left_out),
        (Vec::new(), vec![("out".into(), "is a directory; `out/` takes what is in it".into())])
    );
    assert_eq!(yard.collected("mkdir out; echo 1 > out/a", &["out/"]).await.0, texts(&["out/a"]));
}

#[tokio::test]
async fn what_is_over_the_limits_is_left_out_and_the_rest_is_kept() {
    let yard = Yard::new();
    let rules = WorkspaceRules { artifacts_bytes_max: 10, artifacts_max: 3, ..WorkspaceRules::default() };
    let line = "printf 123456 > a; printf 12345 > b; printf 1234 > c; truncate -s 1T d; : > e; : > f";
    let (paths, left_out) = yard.collected_by(line, &["*"], rules).await;
    assert_eq!(paths, texts(&["a", "c", "e"]));
    let expected = [("b", "has 5 bytes"), ("d", "has 1099511627776 bytes"), ("f", "process.artifactsMax")];
    for ((path, reason), (expected, part)) in left_out.iter().zip(expected) {
        assert!(path == expected && reason.contains(part), "{left_out:?}");
    }
    assert_eq!(left_out.len(), 3);
}

#[tokio::test]
async fn a_flood_of_what_is_left_out_is_counted() {
    let line = "i=0; while [ $i -lt 150 ]; do ln -s x l$i; i=$((i+1)); done";
    let yard = Yard::new();
    let (_, left_out) = yard.collected(line, &["*"]).await;
    assert_eq!((left_out.len(), left_out.last()), (101, Some(&("…".to_owned(), "and 50 more".to_owned()))));
    assert!(yard.log_lines().len() < 25, "{}", yard.log_lines().len());
}

#[tokio::test]
async fn a_name_that_is_no_text_is_left_out() {
    let (paths, left_out) = Yard::new().collected("touch \"$(printf 'a\\377b')\" 'q\\uote' ' '", &["*"]).await;
    assert_eq!(paths, texts(&[" ", "q\\uote"]));
    assert_eq!(left_out, [("a\u{fffd}b".to_owned(), "has a name that is no text".to_owned())]);
}

#[tokio::test]
async fn the_log_tells_what_was_left_out_and_what_was_not_there() {
    let yard = Yard::new();
    yard.collected("echo hello; mkfifo pipe", &["pipe", "report.html"]).await;
    let expected = ["hello", "outputs: `report.html` matches no file", "outputs: `pipe` is left out: is a pipe"];
    assert_eq!(yard.log_texts(), expected);
}

#[tokio::test]
async fn a_later_attempt_replaces_what_an_earlier_one_left() {
    let yard = Yard::new();
    let run = |attempt, line: &str, outputs: Value| {
        let payload = json!({"shell": line, "outputs": outputs});
        yard.start(Job { attempt, ..yard.job(Kind::Process, payload) }).end()
    };
    run(1, "echo 1 > a; echo 1 > b; exit 1", json!(["*"])).await;
    assert_eq!(yard.artifacts().items.len(), 2, "of a failed attempt too");
    run(2, "echo 2 > b", json!(["*"])).await;
    assert_eq!((yard.content("a"), yard.content("b").as_deref()), (None, Some(&b"2\n"[..])));
    run(3, "true", json!(["*"])).await;
    assert_eq!(yard.artifacts(), Artifacts { attempt: 3, ..Artifacts::default() });
}

#[tokio::test]
async fn an_attempt_that_could_not_be_staged_leaves_them_alone() {
    let yard = Yard::new();
    yard.collected("echo 1 > a", &["*"]).await;
    let files = json!([{"inline": "staged", "path": "b"}, {"upload": TASK_TEXT, "path": "c"}]);
    let outcome =
        yard.run(Kind::Process, json!({"argv": ["true"], "files": files, "outputs": ["*"], "workDir": "keep"})).await;
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    assert_eq!((yard.content("a").as_deref(), yard.content("b")), (Some(&b"1\n"[..]), None));
    assert_eq!(yard.work_files(), Vec::<String>::new());
}

/// Whatever is asked for is only looked up.
#[tokio::test]
async fn only_a_path_in_the_table_can_be_opened() {
    let yard = Yard::new();
    yard.collected("mkdir a; echo 1 > a/b", &["**"]).await;
    assert!(yard.content("a/b").is_some());
    for path in ["", ".", "..", "a", "a/", "/a/b", "./a/b", "a//b", "a/../a/b", "../index.json", "index.json", "a/b\0"]
    {
        assert_eq!(yard.content(path), None, "{path}");
    }
}

#[tokio::test]
async fn a_link_that_was_put_among_the_artifacts_is_not_followed() {
    let yard = Yard::new();
    yard.collected("echo 1 > a", &["a"]).await;
    let file = yard.executors.places().artifacts_dir(TASK).join("files/a");
    std::fs::remove_file(&file).expect("removed");
    symlink("/etc/passwd", &file).expect("a link");
    assert!(Artifacts::open(yard.executors.places(), TASK, "a").is_err());
}

#[tokio::test]
async fn a_stopped_run_leaves_its_outputs_too() {
    let yard = Yard::new();
    let run =
        yard.start(yard.job(Kind::Process, json!({"shell": "echo 1 > a; echo ready; sleep 1000", "outputs": ["a"]})));
    run.line("ready").await;
    assert_eq!(run.stop_and_end().await, Outcome::Stopped);
    assert_eq!(yard.content("a").as_deref(), Some(&b"1\n"[..]));
}
