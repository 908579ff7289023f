//! The suite on SQLite, and what only a file can do: be locked, be copied, be of another version, grow.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use runyard_core::event::{ParentEnd, Release};
use runyard_core::task::{State, Wait};
use runyard_core::write::{Needs, WriteSet};
use runyard_store::sqlite::{Durability, Options, SqliteStore, copy_quiet};
use runyard_store::store::{Error, Filter, Holder, Purge, ScheduleFilter, SessionFilter, Store, User};
use runyard_store::suite::Harness;
use runyard_store::suite::fixture::{
    Fixture, KEEP, batch_id, blob, ended, id, in_line, in_state, insert, lease, member, run, schedule_id, schedule_row,
    session, session_id, task,
};
use tempfile::TempDir;

#[derive(Default)]
struct Sqlite {
    /// One for each store; the last is the one that is reopened.
    dirs: Vec<TempDir>,
}

impl Harness for Sqlite {
    fn fresh(&mut self) -> Box<dyn Store> {
        self.dirs.push(tempfile::tempdir().unwrap());
        self.open()
    }

    fn reopen(&mut self, store: Box<dyn Store>) -> Box<dyn Store> {
        drop(store);
        self.open()
    }
}

impl Sqlite {
    fn open(&self) -> Box<dyn Store> {
        Box::new(open(self.dirs.last().unwrap().path()))
    }
}

fn open(dir: &Path) -> SqliteStore {
    // Durability costs a rule its fsyncs and shows nothing that a rule could see.
    let options = Options { durability: Durability::Normal, ..Options::default() };
    SqliteStore::open(&dir.join("runyard.db"), options).unwrap()
}

runyard_store::store_suite!(Sqlite::default());

#[test]
fn a_second_store_on_the_same_data_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runyard.db");
    for user in [User::Server, User::Tick] {
        let first = SqliteStore::open(&path, Options { user, ..Options::default() }).unwrap();
        let Err(error @ Error::Locked { holder, .. }) = &SqliteStore::open(&path, Options::default()) else {
            panic!("it is in use");
        };
        assert_eq!(*holder, Some(Holder { user, pid: std::process::id() }));
        assert!(error.to_string().contains(&format!("a {} with pid {}", user.as_str(), std::process::id())));
        drop(first);
    }
    open(dir.path());
}

#[test]
fn a_copy_has_what_was_committed_and_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runyard.db");
    let mut fixture = Fixture::new(Box::new(open(dir.path())));
    fixture.insert([task(0)]);
    let copied = tempfile::tempdir().unwrap();
    let copy = copied.path().join("runyard.db");
    assert!(matches!(copy_quiet(&path, &copy), Err(Error::Locked { .. })), "somebody writes it");
    drop(fixture);
    // As a crash leaves it: what was committed last is in the log alone.
    let crashed = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::new(Box::new(open(crashed.path())));
    fixture.insert([task(0)]);
    for name in ["runyard.db", "runyard.db-wal"] {
        std::fs::copy(crashed.path().join(name), dir.path().join(name)).unwrap();
    }
    let listing = || {
        let entries = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap());
        let mut files: Vec<_> =
            entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap())).collect();
        files.sort();
        files
    };
    let before = listing();
    let quiet = copy_quiet(&path, &copy).unwrap();
    assert!(matches!(SqliteStore::open(&path, Options::default()), Err(Error::Locked { .. })), "nobody comes between");
    assert!(listing() == before);
    drop(quiet);
    assert_eq!(Fixture::new(Box::new(open(copied.path()))).task(id(0)), task(0));
    let nothing = tempfile::tempdir().unwrap();
    copy_quiet(&nothing.path().join("runyard.db"), &nothing.path().join("copy.db")).unwrap();
    assert_eq!(std::fs::read_dir(nothing.path()).unwrap().count(), 0);
}

#[test]
fn data_of_a_later_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runyard.db");
    drop(open(dir.path()));
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let refused = SqliteStore::open(&path, Options::default()).err().unwrap();
    assert!(matches!(refused, Error::TooNew { found: 99, .. }), "{refused}");
}

/// A database as version 0.1 left it, before there were sessions: its rows are in bytes of that version.
#[test]
fn data_of_the_first_version_is_brought_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runyard.db");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch(include_str!("../src/sqlite/migrations/0001_first.sql")).unwrap();
    db.execute_batch(FIRST_VERSION_ROWS).unwrap();
    drop(db);
    let mut fixture = Fixture::new(Box::new(open(dir.path())));
    let running = in_state(State::Running(lease()), task(2));
    let waiting = in_state(State::Waiting(Wait::BatchPlace), member(batch_id(1), task(4)));
    for old in [task(1), running.clone(), ended(3, task(3)), waiting.clone()] {
        assert_eq!(fixture.task(old.id), old);
    }
    assert_eq!(fixture.doc(id(1)).and_then(|doc| doc.spec), Some(blob("spec of 1")));
    let loaded = fixture.store.load(1).unwrap();
    assert_eq!((loaded.meta.epoch, loaded.meta.next_seq, loaded.meta.salt), (6, 5, 7));
    assert_eq!((loaded.held, loaded.sessions), (vec![running], vec![]));
    let place = Release::BatchPlace { batch: batch_id(1) };
    assert_eq!(loaded.releases, [Release::Parent { parent: id(3), ended: ParentEnd::Well }, place]);
    assert_eq!(fixture.store.released(&place, 9).unwrap(), [waiting]);

    // And it goes on from there: old tasks end, new ones have sessions.
    fixture.meta.epoch = loaded.meta.epoch;
    fixture.update(ended(9, task(1)));
    fixture.commit(WriteSet {
        inserts: vec![insert(in_line(1, 1, task(5)))],
        sessions_added: vec![session(1)],
        ..WriteSet::default()
    });
    drop(fixture);
    let mut fixture = Fixture::new(Box::new(open(dir.path())));
    let seat = Release::SessionSeat { session: session_id(1) };
    assert_eq!(fixture.store.released(&seat, 9).unwrap(), [in_line(1, 1, task(5))]);
    assert_eq!(fixture.task(id(1)), ended(9, task(1)));
    assert_eq!(fixture.purge(1000, &Purge { retention_ms: 0, ..KEEP }), [id(1)], "the other parent is being released");
}

/// A database as the version before schedules left it. Its rows were not written otherwise then.
#[test]
fn data_from_before_schedules_is_brought_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::new(Box::new(open(dir.path())));
    let held = in_state(State::Running(lease()), task(2));
    fixture.insert([task(1), held.clone(), ended(3, task(3))]);
    fixture.meta.next_seq = 4;
    fixture.commit(WriteSet::default());
    drop(fixture);
    let db = rusqlite::Connection::open(dir.path().join("runyard.db")).unwrap();
    db.execute_batch(
        "DROP TABLE workers; DROP TABLE runs; DROP TABLE schedule_bodies; DROP TABLE schedules;
         DELETE FROM migrations WHERE version > 3; PRAGMA user_version = 3;",
    )
    .unwrap();
    drop(db);
    let mut fixture = Fixture::new(Box::new(open(dir.path())));
    assert_eq!((fixture.task(id(1)), fixture.task(id(3))), (task(1), ended(3, task(3))));
    let loaded = fixture.store.load(1).unwrap();
    assert_eq!((loaded.held, loaded.n_schedules, loaded.meta.next_seq), (vec![held], 0, 4));
    fixture.meta.epoch = loaded.meta.epoch;
    let (schedules_put, runs_added) = (vec![schedule_row(1, 50)], vec![run(1, 1, 40)]);
    fixture.commit(WriteSet { schedules_put, runs_added, ..WriteSet::default() });
    assert_eq!(fixture.store.schedules_due(None, 9).unwrap(), [(50, schedule_id(1))]);
}

#[test]
fn damaged_rows_of_schedules_are_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::new(Box::new(open(dir.path())));
    let (schedules_put, runs_added) = (vec![schedule_row(1, 50)], vec![run(1, 1, 40)]);
    fixture.commit(WriteSet { schedules_put, runs_added, ..WriteSet::default() });
    let db = rusqlite::Connection::open(dir.path().join("runyard.db")).unwrap();
    let is_damaged = |error: Option<Error>| matches!(error, Some(Error::Damaged { .. }));
    let needs = Needs { schedules: vec![schedule_id(1)], ..Needs::default() };
    db.execute_batch("UPDATE schedule_bodies SET template = X'01FF'").unwrap();
    assert!(is_damaged(fixture.store.fetch(&needs).err()));
    db.execute_batch("UPDATE schedules SET body = X'01'").unwrap();
    assert!(is_damaged(fixture.reader().schedule(schedule_id(1)).err()));
    assert!(is_damaged(fixture.reader().schedules(&ScheduleFilter::default(), None, 9).err()));
    db.execute_batch("UPDATE runs SET cause = 9").unwrap();
    assert!(is_damaged(fixture.store.run(schedule_id(1), 1).err()));
    db.execute_batch("UPDATE runs SET cause = 0, body = X''").unwrap();
    assert!(is_damaged(fixture.reader().runs(schedule_id(1), None, 9).err()));
}

/// What `migrate` recorded, and rows as their first version encoded them.
const FIRST_VERSION_ROWS: &str = "
    PRAGMA application_id = 1383427705;
    PRAGMA user_version = 1;
    CREATE TABLE migrations(version INTEGER PRIMARY KEY, checksum INTEGER NOT NULL);
    INSERT INTO migrations VALUES (1, 4503394610315146582);
    UPDATE meta SET epoch = 4, next_seq = 5, next_flow = 2, wall_ms = 100, steady_ms = 50, salt = 7;
    INSERT INTO tasks(seq, id, flow, rank, phase, attempt, created_at, batch, key, body) VALUES
        (1, X'000000000000000000000000000003E9', 1, 0, 2, 0, 1, NULL,
         X'0203616461046D61696E046E6F6F70', X'010205000100'),
        (2, X'000000000000000000000000000003EA', 1, 0, 4, 0, 2, NULL,
         X'0203616461046D61696E046E6F6F70', X'010400000000000000000000000000000009FCFFFFFFFFFFFFFF044D00000200'),
        (3, X'000000000000000000000000000003EB', 1, 0, 5, 0, 3, NULL,
         X'0203616461046D61696E046E6F6F70', X'010540030000'),
        (4, X'000000000000000000000000000003EC', 1, 0, 0, 0, 4, X'00000000000000000000000000001389',
         X'0203616461046D61696E046E6F6F70', X'010001000400');
    INSERT INTO specs VALUES (1, CAST('spec of 1' AS BLOB));
    INSERT INTO flows VALUES (1, X'010203616461046D61696E046E6F6F700000000000000000', 1, 3);
    INSERT INTO batches VALUES (X'00000000000000000000000000001389', NULL, X'0101020301000001010A');
    INSERT INTO releases VALUES (0, X'000000000000000000000000000003EB', 0);
    INSERT INTO releases VALUES (1, X'00000000000000000000000000001389', 0);
";

#[test]
fn a_file_that_is_no_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runyard.db");
    std::fs::write(&path, "a text of more than a hundred bytes, ".repeat(20)).unwrap();
    let refused = SqliteStore::open(&path, Options::default()).err().unwrap();
    assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
}

#[test]
fn a_backup_is_a_store_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::new(Box::new(open(dir.path())));
    fixture.insert((1..500).map(task));
    let copy = tempfile::tempdir().unwrap();
    let to = copy.path().join("runyard.db");
    fixture.reader().backup(&to).unwrap();
    fixture.insert([task(1000)]);
    assert!(fixture.reader().backup(&to).is_err(), "a backup never overwrites a file");
    let restored = Fixture::new(Box::new(open(copy.path())));
    assert_eq!(restored.task(id(499)), task(499));
    assert!(restored.doc(id(1000)).is_none());
}

#[test]
fn a_backup_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::new(Box::new(open(dir.path())));
    fixture.insert([task(1)]);
    let to = dir.path().join("copy.db");
    // Left by a backup that was cut short, readable by all.
    std::fs::write(dir.path().join("copy.db.part"), "half of a database").unwrap();
    fixture.reader().backup(&to).unwrap();
    assert_eq!(std::fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_backup_can_be_made_while_commits_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::new(Box::new(open(dir.path())));
    fixture.insert((0..2000).map(task));
    let reader = fixture.reader();
    let to = dir.path().join("copy.db");
    let backup = std::thread::spawn(move || reader.backup(&to));
    let mut seq = 2000;
    while !backup.is_finished() {
        fixture.insert([task(seq)]);
        seq += 1;
    }
    backup.join().unwrap().unwrap();
    fixture.insert([task(seq)]);
}

#[test]
fn the_log_stays_bounded_under_steady_writes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runyard.db");
    let options = Options {
        durability: Durability::Normal,
        checkpoint_bytes: 256 << 10,
        wal_bytes_reset: 1 << 20,
        wal_bytes_max: 4 << 20,
        ..Options::default()
    };
    let mut fixture = Fixture::new(Box::new(SqliteStore::open(&path, options).unwrap()));
    let wal = dir.path().join("runyard.db-wal");
    let mut len_max = 0;
    for seq in 0..1000 {
        let spec = Some(blob(vec![7; 20_000]));
        let inserts = vec![runyard_core::write::Insert { spec, ..insert(task(seq)) }];
        fixture.commit(WriteSet { inserts, ..WriteSet::default() });
        len_max = len_max.max(std::fs::metadata(&wal).unwrap().len());
    }
    // 20 MB went through it.
    assert!(len_max < 5 << 20, "the log grew to {len_max} bytes");
    assert_eq!(fixture.task(id(999)), task(999));
}

#[test]
fn a_long_reader_does_not_stop_the_writer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runyard.db");
    let options = Options {
        durability: Durability::Normal,
        checkpoint_bytes: 64 << 10,
        wal_bytes_reset: 128 << 10,
        wal_bytes_max: 256 << 10,
        ..Options::default()
    };
    let mut fixture = Fixture::new(Box::new(SqliteStore::open(&path, options).unwrap()));
    fixture.insert([task(0)]);
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch("BEGIN; SELECT count(*) FROM tasks;").unwrap();
    let n =
        |db: &rusqlite::Connection| db.query_row("SELECT count(*) FROM tasks", [], |row| row.get::<_, i64>(0)).unwrap();
    for seq in 1..2000 {
        fixture.insert([task(seq)]);
    }
    assert_eq!(n(&db), 1, "a reader keeps its snapshot");
    db.execute_batch("COMMIT").unwrap();
    assert_eq!(n(&db), 2000);
}

#[test]
fn readers_beyond_the_pool_wait_for_their_turn() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::new(Box::new(open(dir.path())));
    fixture.insert((0..100).map(task));
    let reader = fixture.reader();
    std::thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| assert_eq!(reader.tasks(&Filter::default(), None, 100).unwrap().items.len(), 100));
        }
    });
}

#[test]
fn a_filtered_page_looks_at_a_bounded_number_of_rows() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::new(Box::new(open(dir.path())));
    fixture.insert((0..25_000).map(task));
    let filter = Filter { agent: Some("nobody".into()), ..Filter::default() };
    let first = fixture.reader().tasks(&filter, None, 10).unwrap();
    assert!(first.items.is_empty());
    assert_eq!(first.next, Some(5000));
    let second = fixture.reader().tasks(&filter, first.next, 10).unwrap();
    assert_eq!(second.next, None);
}

#[test]
fn a_page_of_sessions_looks_at_a_bounded_number_of_rows() {
    let dir = tempfile::tempdir().unwrap();
    let mut fixture = Fixture::new(Box::new(open(dir.path())));
    let sessions_added = (0..25_000).map(session).collect();
    fixture.commit(WriteSet { sessions_added, ..WriteSet::default() });
    let filter = SessionFilter { prefix: Some("nobody".into()), busy: false };
    let first = fixture.reader().sessions(&filter, None, 10).unwrap();
    assert!(first.items.is_empty());
    assert_eq!(first.next, Some(session_id(5000)));
    assert_eq!(fixture.reader().sessions(&filter, first.next, 10).unwrap().next, None);
}
