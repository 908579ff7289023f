//! A connection that is lost, a server that is gone for a while, a holder that is no longer one.

use std::time::Duration;

use runyard_core::now::Now;
use runyard_core::write::WriteSet;
use runyard_store::postgres::{Options, PgStore};
use runyard_store::store::{Error, Store};
use runyard_store::suite::fixture::{Fixture, KEEP, blob, ended, happening, id, insert, task};
use runyard_testbed::{Postgres, shared};

use super::link::{Cut, Proxy, Session, open, options};

/// A store whose way to its database can be cut, with one task in it.
fn proxied(url: &str) -> (Fixture, Proxy) {
    let proxy = Proxy::to(url, shared().port());
    let mut fixture = Fixture::new(Box::new(open(&proxy.url)));
    commit(&mut fixture, 1);
    (fixture, proxy)
}

/// Inserts one task, with a happening that says so.
fn commit(fixture: &mut Fixture, seq: u64) -> u64 {
    let happenings = vec![happening(runyard_core::event::HappeningKind::TaskCreated, &task(seq))];
    fixture.commit(WriteSet { inserts: vec![insert(task(seq))], happenings, ..WriteSet::default() })
}

fn n_commits(url: &str) -> i64 {
    Session::open(url).number("SELECT n_commits FROM meta")
}

#[test]
fn a_commit_that_never_arrived_is_sent_again() {
    let url = shared().fresh_database();
    let (mut fixture, proxy) = proxied(&url);
    let before = n_commits(&url);
    proxy.cut_next(Cut::Request);
    assert_eq!(commit(&mut fixture, 2), 2);
    assert!(proxy.is_cut(), "the connection was never cut");
    assert_eq!(n_commits(&url), before + 1);
    assert_eq!(fixture.task(id(2)), task(2));
    assert_eq!(commit(&mut fixture, 3), 3);
}

#[test]
fn a_commit_whose_answer_is_lost_is_found() {
    let url = shared().fresh_database();
    let (mut fixture, proxy) = proxied(&url);
    let before = n_commits(&url);
    proxy.cut_next(Cut::Answer);
    assert_eq!(commit(&mut fixture, 2), 2);
    assert!(proxy.is_cut(), "the connection was never cut");
    assert_eq!(n_commits(&url), before + 1, "it was made once");
    assert_eq!(commit(&mut fixture, 3), 3);
}

#[test]
fn a_commit_that_is_still_under_way_is_waited_for() {
    let url = shared().fresh_database();
    let (mut fixture, proxy) = proxied(&url);
    let before = n_commits(&url);
    // The commit gets as far as this table and no further.
    let blocker = Session::open(&url);
    blocker.run("BEGIN; LOCK TABLE specs");
    proxy.cut_next(Cut::Sender);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let is_looking = "SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                              AND datname = current_database() AND query LIKE '%log_seq FROM meta%FOR UPDATE'";
            Session::open(&url).wait_until(is_looking);
            blocker.run("COMMIT");
        });
        assert_eq!(commit(&mut fixture, 2), 2);
    });
    assert_eq!(n_commits(&url), before + 1, "it was made once");
}

#[test]
fn a_writer_that_was_thrown_out_goes_on() {
    let url = shared().fresh_database();
    let mut fixture = Fixture::new(Box::new(open(&url)));
    commit(&mut fixture, 1);
    assert_eq!(fixture.task(id(1)), task(1));
    let throw_out = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                     WHERE datname = current_database() AND pid <> pg_backend_pid()";
    Session::open(&url).run(throw_out);
    commit(&mut fixture, 2);
    assert_eq!(fixture.task(id(2)), task(2), "and so do readers");
    Session::open(&url).run(throw_out);
    assert_eq!(fixture.store.specs(&[id(2)]).unwrap(), [Some(blob("spec of 2"))]);
    Session::open(&url).run(throw_out);
    let purged = fixture.store.purge(Now { wall_ms: 9, steady_ms: 0 }, &KEEP).unwrap();
    assert!(purged.tasks.is_empty());
    commit(&mut fixture, 3);
}

#[test]
fn a_server_that_restarts_or_crashes_loses_nothing() {
    let mut postgres = Postgres::start();
    let url = postgres.fresh_database();
    let mut fixture = Fixture::new(Box::new(open(&url)));
    commit(&mut fixture, 1);
    for (seq, is_crash) in [(2, false), (3, true)] {
        if is_crash {
            postgres.kill()
        } else {
            postgres.stop()
        }
        std::thread::scope(|scope| {
            scope.spawn(|| postgres.start_again());
            assert_eq!(commit(&mut fixture, seq), seq);
        });
        assert_eq!(fixture.task(id(seq)), task(seq));
    }
    assert_eq!(fixture.reader().happenings(0, 9).unwrap().len(), 3);
}

#[test]
fn a_server_that_stays_away_is_an_error_in_the_end() {
    let mut postgres = Postgres::start();
    let url = postgres.fresh_database();
    let options = Options { retry_for: Duration::from_millis(100), ..Options::new(&*url) };
    let mut fixture = Fixture::new(Box::new(PgStore::open(options).unwrap()));
    postgres.stop();
    let writes = WriteSet { inserts: vec![insert(task(1))], ..WriteSet::default() };
    assert!(matches!(fixture.try_commit(writes), Err(Error::Away { .. })));
    assert!(matches!(fixture.store.specs(&[id(1)]), Err(Error::Away { .. })));
    assert!(matches!(fixture.reader().task(id(1)), Err(Error::Away { .. })));
}

#[test]
fn a_statement_that_takes_too_long_is_an_error_and_changes_nothing() {
    let url = shared().fresh_database();
    let options = Options { statement_timeout_ms: 200, ..options(&url) };
    let mut fixture = Fixture::new(Box::new(PgStore::open(options).unwrap()));
    commit(&mut fixture, 1);
    let blocker = Session::open(&url);
    blocker.run("BEGIN; LOCK TABLE specs");
    let writes = WriteSet { inserts: vec![insert(task(2))], ..WriteSet::default() };
    assert!(matches!(fixture.try_commit(writes), Err(Error::Driver { .. })));
    blocker.run("COMMIT");
    assert!(fixture.doc(id(2)).is_none());
    commit(&mut fixture, 2);
}

#[test]
fn who_was_taken_over_writes_nothing_any_more() {
    let url = shared().fresh_database();
    let mut first = Fixture::new(Box::new(open(&url)));
    commit(&mut first, 1);
    let mut second = Fixture::new(Box::new(open(&url)));
    commit(&mut second, 2);
    let writes = WriteSet { inserts: vec![insert(task(3))], ..WriteSet::default() };
    assert!(matches!(first.try_commit(writes), Err(Error::Fenced { ours: 1, theirs: 2 })));
    let purged = first.store.purge(Now { wall_ms: 9, steady_ms: 0 }, &KEEP);
    assert!(matches!(purged, Err(Error::Fenced { ours: 1, theirs: 2 })));
    assert!(second.doc(id(3)).is_none());
    commit(&mut second, 3);
}

#[test]
fn a_lost_answer_is_not_taken_for_a_commit_after_a_takeover() {
    let url = shared().fresh_database();
    let (mut fixture, proxy) = proxied(&url);
    // As many commits as it takes for the number alone to look right.
    let mut other = open(&url);
    other.load(1).unwrap();
    proxy.cut_next(Cut::Request);
    let writes = WriteSet { inserts: vec![insert(task(2))], ..WriteSet::default() };
    assert!(matches!(fixture.try_commit(writes), Err(Error::Fenced { ours: 1, theirs: 2 })));
}

#[test]
fn a_predecessor_that_sits_in_a_transaction_does_not_hold_a_takeover_up() {
    let url = shared().fresh_database();
    let mut fixture = Fixture::new(Box::new(open(&url)));
    commit(&mut fixture, 1);
    let stopped = Session::open(&url);
    stopped.run(
        "UPDATE lease SET writer_pid = pg_backend_pid(), writer_start = \
         (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())",
    );
    stopped.run("SET idle_in_transaction_session_timeout = 0");
    stopped.run("BEGIN; UPDATE meta SET wall_ms = wall_ms");
    let mut store = open(&url);
    assert_eq!(store.load(1).unwrap().meta.epoch, 2);
    // A pid that is somebody else's by now is left alone.
    let other = Session::open(&url);
    other.run("UPDATE lease SET writer_pid = pg_backend_pid(), writer_start = 'epoch'");
    assert_eq!(store.load(1).unwrap().meta.epoch, 3);
    other.run("SELECT 1");
}

#[test]
fn a_task_that_ends_leaves_the_hot_table_with_its_result() {
    let url = shared().fresh_database();
    let mut fixture = Fixture::new(Box::new(open(&url)));
    fixture.insert([task(1), task(2)]);
    fixture.update(ended(5, task(1)));
    let session = Session::open(&url);
    assert_eq!(session.number("SELECT seq FROM tasks"), 2);
    assert_eq!(session.number("SELECT seq FROM tasks_done"), 1);
}
