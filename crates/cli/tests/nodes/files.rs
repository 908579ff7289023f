//! Files at several nodes: where they came in, and whose disk is gone, makes no difference.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::beside_others;
use crate::cluster::{Cluster, SOON};
use crate::site::Host;
use crate::support::wait_until;

/// Two whole parts of what the database keeps, and some.
const CONTENT_BYTES: usize = 2 * 1024 * 1024 + 4097;

fn content() -> String {
    (0..CONTENT_BYTES).map(|n| char::from(b'a' + (n % 23) as u8)).collect()
}

fn upload(cluster: &Cluster, node: usize, content: &str) -> String {
    let answer = cluster.request(node, "PUT", "/v1/uploads", content);
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()["id"].as_str().unwrap().to_owned()
}

fn copying(upload: &str, shell: &str) -> Value {
    let payload = json!({
        "shell": shell, "files": [{"path": "in.txt", "upload": upload}], "outputs": ["out/**", "in.txt"],
    });
    json!({"kind": "process", "payload": payload, "resources": {"cpu": 400}})
}

#[test]
fn an_upload_that_one_node_took_is_there_for_the_workers_of_all() {
    let _turn = beside_others();
    let cluster = Cluster::of(3);
    let [one, other] = cluster.followers();
    let upload = upload(&cluster, one, &content());
    let go = cluster.home().join("go");
    let shell = format!("while [ ! -e {} ]; do sleep 0.02; done; wc -c < in.txt", go.display());
    // Two fit on each.
    let ids: Vec<String> = (0..6).map(|_| cluster.submit(other, copying(&upload, &shell))).collect();
    ids.iter().for_each(|id| cluster.until_state(one, id, "running"));
    let workers: BTreeSet<String> =
        ids.iter().map(|id| cluster.get(one, &format!("/v1/tasks/{id}"))["worker"].to_string()).collect();
    assert_eq!(workers.len(), 3, "each node's worker has some: {workers:?}");
    std::fs::write(&go, "").unwrap();
    for id in &ids {
        let task = cluster.ends_as(one, "completed", id);
        assert_eq!(task["result"]["stdout"], format!("{CONTENT_BYTES}\n"));
    }
    let unknown = copying("01a1e16d-81ad-7094-a972-d962b6e39bb4", "true");
    let refused = cluster.expect(one, 400, "POST", "/v1/tasks", unknown);
    assert_eq!(refused["field"], "payload.files[0].upload");
}

#[test]
fn uploads_and_artifacts_outlive_the_node_that_took_them() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let holder = cluster.holder();
    let [one, other] = cluster.followers();
    let upload = upload(&cluster, holder, &content());
    let shell = "mkdir -p out/deep; echo made > out/deep/a.txt; : > out/empty; echo said";
    let ids: Vec<String> = (0..3).map(|_| cluster.submit(one, copying(&upload, shell))).collect();
    ids.iter().for_each(|id| drop(cluster.ends_as(one, "completed", id)));
    wait_until(SOON, "everything is where all nodes can have it", || {
        cluster.sql("SELECT (SELECT count(*) FROM artifacts), (SELECT count(*) FROM logs)") == "9|3"
    });
    cluster.nodes[holder].kill9();
    std::fs::remove_dir_all(cluster.nodes[holder].data().join("artifacts")).unwrap();
    wait_until(SOON, "another node holds the lease", || cluster.holder_seen_by(one).is_some_and(|now| now != holder));
    for id in &ids {
        let list = cluster.get(other, &format!("/v1/tasks/{id}/artifacts"));
        let items: Vec<(String, u64)> = (list["items"].as_array().unwrap().iter())
            .map(|item| (item["path"].as_str().unwrap().to_owned(), item["bytes"].as_u64().unwrap()))
            .collect();
        let expected = [("in.txt", CONTENT_BYTES as u64), ("out/deep/a.txt", 5), ("out/empty", 0)];
        assert_eq!(items, expected.map(|(path, bytes)| (path.to_owned(), bytes)));
        let file = |path: &str| cluster.request(one, "GET", &format!("/v1/tasks/{id}/artifacts/{path}"), "").body;
        assert_eq!((file("out/deep/a.txt").as_str(), file("out/empty").as_str()), ("made\n", ""));
        assert!(file("in.txt") == content(), "the whole file");
        assert_eq!(cluster.request(other, "GET", &format!("/v1/tasks/{id}/logs"), "").body, "said\n");
    }
    // What the dead node took is staged by those that are left.
    let next = cluster.submit(other, copying(&upload, "wc -c < in.txt"));
    assert_eq!(cluster.ends_as(one, "completed", &next)["result"]["stdout"], format!("{CONTENT_BYTES}\n"));
}

#[test]
fn artifacts_of_a_worker_elsewhere_are_there_whichever_node_hears_of_the_end() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(3);
    let [one, other] = cluster.followers();
    let key = cluster.expect(other, 201, "POST", "/v1/keys", json!({"name": "join", "scopes": ["worker"]}));
    let (token, url) = (key["key"].as_str().unwrap().to_owned(), cluster.nodes[one].url());
    let worker = Host::join(cluster.home(), "field", &["--name", "field", "--labels", "zone=field"], &url, &token, &[]);
    let upload = upload(&cluster, other, "handed in");
    let mut task = copying(&upload, "mkdir out; cat in.txt > out/copy");
    task["place"] = json!({"require": {"zone": "field"}});
    task["resources"] = json!({});
    let id = cluster.submit(other, task);
    cluster.ends_as(one, "completed", &id);
    let holder = cluster.holder();
    cluster.nodes[holder].kill9();
    wait_until(SOON, "another node holds the lease", || cluster.holder_seen_by(one).is_some_and(|now| now != holder));
    let copy = cluster.request(other, "GET", &format!("/v1/tasks/{id}/artifacts/out/copy"), "");
    assert_eq!((copy.status, copy.body.as_str()), (200, "handed in"));
    drop(worker);
}

#[test]
fn what_a_node_had_not_handed_on_is_handed_on_when_it_is_back_and_what_is_gone_goes() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(1);
    let shell = "mkdir out; echo made > out/a; echo said";
    let run = |cluster: &Cluster| {
        let id = cluster.submit(0, json!({"kind": "process", "payload": {"shell": shell, "outputs": ["out/*"]}}));
        cluster.ends_as(0, "completed", &id);
        id
    };
    let (kept, gone, young) = (run(&cluster), run(&cluster), run(&cluster));
    let counts =
        "SELECT (SELECT count(*) FROM artifacts), (SELECT count(*) FROM artifact_parts), (SELECT count(*) FROM logs)";
    wait_until(SOON, "all of it is there", || cluster.sql(counts) == "3|3|3");
    cluster.nodes[0].kill9();
    // As if it had died right behind the commits, and retention had been another node's.
    cluster.sql("DELETE FROM artifacts; DELETE FROM artifact_parts; DELETE FROM logs");
    cluster.sql(&format!("DELETE FROM tasks_done WHERE id IN ('{gone}', '{young}')"));
    let files = find(&cluster, &gone);
    assert!(files.len() >= 3, "its log, its exit, its artifacts: {files:?}");
    let aged = std::process::Command::new("touch").args(["--date", "2 days ago"]).args(&files).status().unwrap();
    assert!(aged.success());
    cluster.nodes[0].start_again();
    cluster.nodes[0].until_ready();
    wait_until(SOON, "what was missed is there", || cluster.sql(counts) == "1|1|1");
    wait_until(SOON, "nothing of what is long gone lies here", || find(&cluster, &gone).is_empty());
    assert!(!find(&cluster, &kept).is_empty() && !find(&cluster, &young).is_empty());
    let copy = cluster.request(0, "GET", &format!("/v1/tasks/{kept}/artifacts/out/a"), "");
    assert_eq!((copy.status, copy.body.as_str()), (200, "made\n"));
}

/// What lies of a task on the disk of the first node.
fn find(cluster: &Cluster, id: &str) -> Vec<String> {
    let found = std::process::Command::new("find")
        .arg(cluster.nodes[0].data())
        .args(["-path", &format!("*{id}*"), "-print"])
        .output()
        .unwrap();
    String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect()
}
