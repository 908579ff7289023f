//! The start of a node that has to wait: for its database, for the holder. It listens, says what it waits for, and goes on
//! by itself. What no waiting mends ends it at once.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use runyard_testbed::{PASSWORD, Postgres};
use serde_json::json;

use crate::beside_others;
use crate::cluster::{CONFIG, Cluster, Node, SOON, Site, Transaction};
use crate::support::{Answer, wait_until};

/// A stop while it waits: for what is under way it takes two seconds at most, and for its goodbye as many.
const STOP_MAX: Duration = Duration::from_secs(8);

fn node(name: &str, url: &str, home: &Path) -> Node {
    Node::start(Site::on_loopback(name), url, home.join(name), CONFIG)
}

/// What a node that waits says at `/readyz`.
fn until_it_waits(node: &mut Node, word: &str) {
    wait_until(SOON, &format!("{} says `{word}`", node.name()), || {
        assert!(!node.has_ended(), "it stays up: {}", node.last_lines());
        let answer = node.try_request("GET", "/readyz", "");
        answer.is_some_and(|answer| answer.status == 503 && answer.json() == json!({"status": word}))
    });
}

fn ask(node: &Node, method: &str, path: &str, body: &str) -> Answer {
    node.try_request(method, path, body).expect("an answer")
}

/// It is alive, and takes nothing.
fn answers_that_it_waits(node: &Node, code: &str) {
    assert_eq!(ask(node, "GET", "/healthz", "").json(), json!({"status": "ok"}));
    assert_eq!(ask(node, "GET", "/version", "").json()["name"], "runyard");
    for (method, path, body) in [("POST", "/v1/tasks", r#"{"kind":"noop"}"#), ("GET", "/v1/tasks", "")] {
        let answer = ask(node, method, path, body);
        assert_eq!((answer.status, &answer.json()["code"]), (503, &code.into()), "{path}: {}", answer.body);
        let head = answer.head.to_ascii_lowercase();
        assert!(head.contains("\r\nretry-after: 1"), "{head}");
        assert!(head.contains("\r\ncontent-type: application/problem+json"), "{head}");
    }
}

fn works(node: &Node) {
    let task = ask(node, "POST", "/v1/tasks", r#"{"kind":"noop"}"#);
    assert_eq!(task.status, 201, "{}", task.body);
    let path = format!("/v1/tasks/{}/wait?timeoutMs=60000", task.json()["id"].as_str().unwrap());
    assert_eq!(ask(node, "GET", &path, "").json()["state"], "completed");
}

fn stops_at_once(node: &mut Node) {
    node.ask_to_stop();
    wait_until(STOP_MAX, "it ends", || node.has_ended());
    let status = node.ended();
    assert_eq!(status.code(), Some(0), "{status}: {}", node.last_lines());
    assert!(!node.data().join("server.json").exists(), "it leaves nothing that leads to it");
}

#[test]
fn a_node_that_starts_before_its_database_waits_for_it_and_then_works() {
    let _turn = beside_others();
    let (mut postgres, home) = (Postgres::start(), tempfile::tempdir().unwrap());
    let url = postgres.fresh_database();
    postgres.stop();
    let mut node = node("early", &url, home.path());
    until_it_waits(&mut node, "no database");
    answers_that_it_waits(&node, "no_database");
    let said = node.said();
    assert_eq!(said.matches("waits for the database").count(), 1, "once, and not at each try: {said}");
    assert!(!said.contains(PASSWORD) && !said.contains("listens on"), "{said}");
    // A reload is for later, and no reason to end.
    node.signal("HUP");
    postgres.start_again();
    node.until_ready();
    node.give_key(std::fs::read_to_string(node.data().join("admin.key")).unwrap().trim());
    works(&node);
    assert!(node.said().contains("listens on"), "{}", node.said());
}

#[test]
fn a_node_that_finds_no_primary_waits_for_one() {
    let _turn = beside_others();
    let (mut primary, home) = (Postgres::start(), tempfile::tempdir().unwrap());
    let url = primary.fresh_database();
    let standby = primary.standby();
    let (here, both) = (format!(":{}/", primary.port()), format!(":{},127.0.0.1:{}/", primary.port(), standby.port()));
    primary.kill();
    let mut node = node("early", &url.replace(&here, &both), home.path());
    until_it_waits(&mut node, "no database");
    standby.promote();
    node.until_ready();
    node.give_key(std::fs::read_to_string(node.data().join("admin.key")).unwrap().trim());
    works(&node);
}

#[test]
fn a_node_that_cannot_reach_the_holder_waits_until_it_can() {
    let _turn = beside_others();
    let door = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut cluster = unreachable_holder(&door);
    let mut second = node("second", cluster.url(), cluster.home());
    until_it_waits(&mut second, "no holder");
    answers_that_it_waits(&second, "no_holder");
    pass_on(&door, cluster.nodes[0].address());
    second.until_ready();
    second.give_key(cluster.admin());
    works(&second);
    assert_eq!(cluster.holder_seen_by(0), Some(0), "it follows");
    let key = |node: &Node| std::fs::read(node.data().join("secrets.key")).unwrap();
    assert_eq!(key(&second), key(&cluster.nodes[0]), "it has what it waited for");
    assert!(!cluster.nodes[0].has_ended());
}

/// One node, which others look for where nobody is.
fn unreachable_holder(door: &str) -> Cluster {
    let postgres = Postgres::start();
    let url = postgres.fresh_database();
    let site = Site { advertise: format!("http://{door}"), ..Site::on_loopback("first") };
    Cluster::on(postgres, url, vec![site], CONFIG)
}

/// Whoever connects there is connected to here.
fn pass_on(door: &str, to: &str) {
    let (listener, to) = (TcpListener::bind(door).unwrap(), to.to_owned());
    std::thread::spawn(move || {
        for from in listener.incoming() {
            let (from, to) = (from.unwrap(), TcpStream::connect(&to).unwrap());
            for (mut one, mut other) in
                [(from.try_clone().unwrap(), to.try_clone().unwrap()), (to.try_clone().unwrap(), from)]
            {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut one, &mut other);
                    let _ = other.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
}

#[test]
fn a_node_that_starts_beside_a_holder_that_stands_still_takes_its_place() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(1);
    // Without it, it would have to wait.
    let data = cluster.folder("second");
    std::fs::copy(cluster.nodes[0].data().join("secrets.key"), data.join("secrets.key")).unwrap();
    cluster.nodes[0].freeze();
    let mut second = node("second", cluster.url(), cluster.home());
    second.give_key(cluster.admin());
    second.until_ready();
    works(&second);
    cluster.nodes[0].thaw();
    cluster.nodes[0].until_ready();
    works(&cluster.nodes[0]);
    assert!(!second.has_ended() && !cluster.nodes[0].has_ended());
}

#[test]
fn a_node_that_is_stopped_while_it_waits_for_its_database_ends_at_once() {
    let _turn = beside_others();
    let (mut postgres, home) = (Postgres::start(), tempfile::tempdir().unwrap());
    let url = postgres.fresh_database();
    postgres.stop();
    let mut refused = node("refused", &url, home.path());
    until_it_waits(&mut refused, "no database");
    stops_at_once(&mut refused);
    // Connections are taken, and nobody ever answers.
    let silent = TcpListener::bind(("127.0.0.1", postgres.port())).unwrap();
    let mut unanswered = node("unanswered", &url, home.path());
    until_it_waits(&mut unanswered, "recovering");
    stops_at_once(&mut unanswered);
    drop(silent);
}

#[test]
fn a_node_that_is_stopped_while_it_waits_for_the_holder_is_gone() {
    let _turn = beside_others();
    let door = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let cluster = unreachable_holder(&door);
    let mut second = node("second", cluster.url(), cluster.home());
    until_it_waits(&mut second, "no holder");
    assert_eq!(cluster.sql("SELECT count(*) FROM nodes"), "2");
    stops_at_once(&mut second);
    assert_eq!(cluster.sql("SELECT string_agg(name, ',') FROM nodes"), "first");
    assert_eq!(cluster.holder_seen_by(0), Some(0));
}

/// It has the lease already, and cannot read what it needs.
#[test]
fn a_node_that_is_stopped_in_the_middle_of_its_start_keeps_no_lease() {
    let _turn = beside_others();
    let (postgres, home) = (Postgres::start(), tempfile::tempdir().unwrap());
    let url = postgres.fresh_database();
    let database = url.rsplit('/').next().unwrap();
    let mut node = node("stopped", &url, home.path());
    node.until_ready();
    node.ask_to_stop();
    node.ended();
    let lock = Transaction::begin(&url, "BEGIN; LOCK TABLE settings IN ACCESS EXCLUSIVE MODE; SELECT 'locked';");
    node.start_again();
    until_it_waits(&mut node, "recovering");
    let held = || postgres.sql(database, "SELECT count(*) FROM lease WHERE holder IS NOT NULL");
    wait_until(SOON, "it holds the lease", || held() == "1");
    stops_at_once(&mut node);
    assert_eq!(held(), "0");
    assert_eq!(postgres.sql(database, "SELECT count(*) FROM nodes"), "0");
    node.start_again();
    until_it_waits(&mut node, "recovering");
    lock.end();
    node.until_ready();
}

#[test]
fn what_no_waiting_mends_ends_a_node_at_once_and_it_says_why() {
    let _turn = beside_others();
    let (mut postgres, home) = (Postgres::start(), tempfile::tempdir().unwrap());
    let url = postgres.fresh_database();
    for (store, why) in [
        (url.replace(PASSWORD, "not-the-word"), "password authentication failed"),
        (format!("{url}x"), "does not exist"),
        (format!("{url}?sslmode=require"), "does not support TLS"),
        (format!("{url}?sslmode=perhaps"), "sslmode is"),
    ] {
        let said = ends(&store, &home.path().join("wrong"));
        assert!(said.contains("error: cannot use the database") && said.contains(why), "{said}");
        assert!(!said.contains("not-the-word") && !said.contains(PASSWORD), "{said}");
        assert!(!said.contains("waits for"), "{said}");
    }
    // Also where the database would have to be waited for.
    postgres.stop();
    let mut first = node("first", &url, home.path());
    until_it_waits(&mut first, "no database");
    let said = ends(&url, first.data());
    assert!(said.contains("is in use by") && said.contains(&first.pid().to_string()), "{said}");
    assert!(!first.has_ended());
}

/// It has said that it is there before it finds that its data belong to others.
#[test]
fn a_node_whose_start_is_refused_is_not_one_of_the_others() {
    let _turn = beside_others();
    let cluster = Cluster::of(1);
    let mut foreign = node("foreign", &cluster.postgres.fresh_database(), cluster.home());
    foreign.until_ready();
    foreign.give_key(std::fs::read_to_string(foreign.data().join("admin.key")).unwrap().trim());
    let kept = ask(&foreign, "PUT", "/v1/secrets/word", r#"{"value":"long enough"}"#);
    assert_eq!(kept.status, 204, "{}", kept.body);
    stops_at_once(&mut foreign);
    let said = ends(cluster.url(), foreign.data());
    assert!(said.contains("the key that the other nodes seal secrets with"), "{said}");
    assert_eq!(cluster.sql("SELECT string_agg(name, ',') FROM nodes"), "node-1");
}

/// All that a server says which ends by itself, with an error.
fn ends(store: &str, data: &Path) -> String {
    let mut serve = assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"));
    serve.args(["serve", "--listen", "127.0.0.1:0", "--store", store, "--data"]).arg(data);
    let ended = serve.timeout(SOON).assert().failure();
    let output = ended.get_output();
    assert!(output.status.code().is_some(), "it ended by itself");
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

#[test]
fn a_node_that_lost_its_database_says_that_it_has_none() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(2);
    cluster.postgres.stop();
    cluster.nodes.iter_mut().for_each(|node| until_it_waits(node, "no database"));
    cluster.postgres.start_again();
    cluster.until_all_ready();
    works(&cluster.nodes[0]);
}
