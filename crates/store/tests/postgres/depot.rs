//! Files that every node can have: whole or not at all, and no longer than their task.

use std::io::Cursor;
use std::time::Duration;

use runyard_core::task::{State, Task};
use runyard_store::postgres::{KeptArtifact, KeptArtifacts, Known, OfAttempt, PgDepot, PgNodes};
use runyard_store::store::Purge;
use runyard_store::suite::fixture::{Fixture, KEEP, ended, id, in_state, lease, task};
use runyard_testbed::shared;

use super::link::{Session, open, options};

struct Bed {
    url: String,
    fixture: Fixture,
    depot: PgDepot,
}

impl Bed {
    fn new() -> Bed {
        let url = shared().fresh_database();
        let fixture = Fixture::new(Box::new(open(&url)));
        let depot = PgNodes::open(options(&url)).unwrap().depot();
        Bed { url, fixture, depot }
    }

    fn put(&self, of: OfAttempt, path: &str, content: &[u8]) {
        self.depot.keep_artifact(of, &item(path, content), &mut Cursor::new(content)).unwrap();
    }

    fn read(&self, of: OfAttempt, path: &str) -> Vec<u8> {
        parts(|n| self.depot.artifact_part(of, path, n).unwrap())
    }

    fn upload(&self, id: u128, content: &[u8]) {
        self.depot.keep_upload(id, content.len() as u64, &mut Cursor::new(content)).unwrap();
    }

    fn count(&self, table: &str) -> i64 {
        Session::open(&self.url).number(&format!("SELECT count(*) FROM {table}"))
    }
}

fn of(n: u64, attempt: u32) -> OfAttempt {
    OfAttempt { task: id(n), attempt }
}

fn item(path: &str, content: &[u8]) -> KeptArtifact {
    KeptArtifact { path: path.to_owned(), bytes: content.len() as u64, sha256: "ab".repeat(32) }
}

fn parts(part: impl Fn(u32) -> Option<Vec<u8>>) -> Vec<u8> {
    (0..).map_while(part).flatten().collect()
}

/// Two whole parts and the beginning of a third.
fn long() -> Vec<u8> {
    (0..(2 << 20) + 17).map(|n: u32| (n % 251) as u8).collect()
}

#[test]
fn a_log_is_kept_as_long_as_its_task() {
    let mut bed = Bed::new();
    bed.fixture.insert([task(1)]);
    bed.depot.keep_log(of(1, 1), b"first").unwrap();
    bed.depot.keep_log(of(1, 1), b"again").unwrap();
    bed.depot.keep_log(of(1, 2), b"second").unwrap();
    bed.depot.keep_log(of(2, 1), b"of nobody").unwrap();
    bed.fixture.update(ended(5, task(1)));
    assert_eq!(bed.depot.log(of(1, 1)).unwrap().as_deref(), Some(&b"again"[..]));
    assert_eq!(bed.depot.log(of(1, 2)).unwrap().as_deref(), Some(&b"second"[..]));
    assert_eq!(bed.depot.log(of(2, 1)).unwrap(), None);
    assert_eq!(bed.fixture.purge(1000, &Purge { retention_ms: 0, ..KEEP }), [id(1)]);
    assert_eq!(bed.depot.log(of(1, 1)).unwrap(), None);
    bed.depot.keep_log(of(1, 3), b"late").unwrap();
    assert_eq!(bed.count("logs"), 0);
}

#[test]
fn artifacts_are_those_of_the_last_attempt_and_go_with_their_task() {
    let mut bed = Bed::new();
    bed.fixture.insert([task(1)]);
    bed.put(of(1, 1), "old", b"x");
    bed.put(of(1, 2), "b/c.txt", b"first");
    bed.put(of(1, 2), "b/c.txt", b"again");
    let deep = "d/".repeat(2000) + "e";
    bed.put(of(1, 2), &deep, &long());
    bed.put(of(1, 2), "a", b"");
    bed.depot.keep_left_out(of(1, 2), "big", "too large").unwrap();
    bed.put(of(2, 1), "of nobody", b"x");
    bed.fixture.update(ended(5, task(1)));
    let items = vec![item("a", b""), item("b/c.txt", b"again"), item(&deep, &long())];
    let left_out = vec![("big".to_owned(), "too large".to_owned())];
    assert_eq!(bed.depot.artifacts(id(1)).unwrap(), KeptArtifacts { attempt: 2, items, left_out });
    assert_eq!(bed.read(of(1, 2), "b/c.txt"), b"again");
    assert!(bed.read(of(1, 2), &deep) == long());
    assert_eq!((bed.read(of(1, 2), "a"), bed.read(of(1, 2), "old")), (vec![], vec![]));
    assert_eq!(bed.depot.artifacts(id(2)).unwrap(), KeptArtifacts::default());
    assert_eq!(bed.fixture.purge(1000, &Purge { retention_ms: 0, ..KEEP }), [id(1)]);
    bed.put(of(1, 2), "late", b"x");
    assert_eq!((bed.count("artifacts"), bed.count("artifact_parts")), (0, 0));
}

#[test]
fn an_upload_is_whole_and_stays_as_long_as_it_is_needed() {
    let bed = Bed::new();
    bed.upload(7, &long());
    bed.upload(7, b"another content of the same id");
    bed.upload(8, b"");
    assert!(parts(|n| bed.depot.upload_part(7, n).unwrap()) == long());
    assert_eq!(bed.depot.upload_part(8, 0).unwrap(), None);
    assert!(bed.depot.touch_upload(8).unwrap() && !bed.depot.touch_upload(9).unwrap());
    let week = Duration::from_secs(7 * 86_400);
    Session::open(&bed.url).run("UPDATE uploads SET needed_at = needed_at - interval '8 days'");
    assert!(bed.depot.touch_upload(8).unwrap());
    assert_eq!(bed.depot.remove_uploads(week).unwrap(), 1);
    assert_eq!((bed.count("uploads"), bed.count("upload_parts")), (1, 0));
    assert!(bed.depot.touch_upload(8).unwrap() && !bed.depot.touch_upload(7).unwrap());
}

#[test]
fn of_each_attempt_it_is_known_whether_it_runs_and_what_is_kept_of_it() {
    let mut bed = Bed::new();
    bed.fixture.insert([task(1), task(2)]);
    let lease = lease();
    bed.fixture.update(Task { attempt: 2, ..in_state(State::Running(lease), task(2)) });
    bed.fixture.update(ended(5, task(1)));
    bed.depot.keep_log(of(1, 1), b"12345").unwrap();
    bed.put(of(1, 1), "a", b"x");
    bed.depot.keep_left_out(of(1, 1), "b", "gone").unwrap();
    let asked = [of(3, 1), of(1, 1), of(1, 2), of(2, 2), of(2, 1)];
    let nothing = Known::Ended { log_bytes: None, n_artifacts: 0 };
    let whole = Known::Ended { log_bytes: Some(5), n_artifacts: 2 };
    assert_eq!(bed.depot.known(&asked).unwrap(), [Known::Gone, whole, nothing, Known::Runs, nothing]);
}
