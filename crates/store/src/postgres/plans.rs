//! Each hot statement's plan, on a database that was never analysed and on one with rows in it: the index it says it relies
//! on is the one that is used, and no big table is read through. A partial index taken for `id = ANY(…)` has cost eight times
//! the time before.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use runyard_testbed::shared;

use super::connect::{Address, Options, Purpose};
use super::link::Link;
use super::row::field;
use super::{commit, load, migrations, outbox, query, schedules, tasks};

/// (statement, the indexes that its plan may use, all of which it must)
fn hot() -> Vec<(&'static str, &'static [&'static str])> {
    vec![
        (commit::META, &[]),
        (commit::META_AND_LOG, &[]),
        (tasks::UPDATE_LIVE, &["tasks_phase"]),
        (tasks::FINISH, &["tasks_phase"]),
        (tasks::UPDATE_DONE, &["tasks_done_seq"]),
        (commit::REMOVE_EDGES, &["edges_pkey", "tasks_id", "tasks_done_id"]),
        (commit::ADD_EDGES, &["tasks_id", "tasks_done_id"]),
        (commit::REMOVE_RELEASES, &["releases_pkey"]),
        (commit::UPDATE_BATCHES, &["batches_pkey"]),
        (commit::UPDATE_SESSIONS, &["sessions_pkey"]),
        (commit::REMOVE_FLOWS, &[]),
        (commit::UPDATE_FLOWS, &[]),
        (&commit::UPDATE_COUNTS, &[]),
        (outbox::UPDATE, &["deliveries_pkey"]),
        (outbox::DUE, &["deliveries_due"]),
        (schedules::DUE, &["schedules_due"]),
        (query::TASKS, &["tasks_id", "tasks_done_id"]),
        (query::KEYS, &["keys_pkey"]),
        (query::SESSIONS, &["sessions_pkey"]),
        (query::SESSIONS_KEYED, &["sessions_key"]),
        (query::BATCHES, &["batches_pkey"]),
        (query::QUEUED, &["tasks_queued"]),
        (query::OLDEST, &["tasks_queued", "tasks_ranked"]),
        (query::DUE_WALL, &["tasks_wall_due"]),
        (query::DUE_STEADY, &["tasks_steady_due"]),
        (query::CHILDREN, &["edges_pkey", "tasks_id", "tasks_done_id"]),
        (query::MEMBERS, &["tasks_batch"]),
        (query::MEMBERS_LIVE, &["tasks_session"]),
        (query::LINE, &["tasks_line"]),
        (query::SPECS, &["specs_pkey", "tasks_id", "tasks_done_id"]),
        (query::AHEAD, &["tasks_queued"]),
        (load::HELD, &["tasks_phase"]),
    ]
}

#[test]
fn every_hot_statement_uses_its_index_with_and_without_rows() {
    let options = Options::new(shared().fresh_database());
    migrations::migrate(&options).unwrap();
    check_all(&options, "fresh");
    fill(&options);
    check_all(&options, "full, not analysed");
    Link::open(&Address::of(&options, Purpose::Migrate).unwrap()).unwrap().batch("analysing", "ANALYZE").unwrap();
    check_all(&options, "full and analysed");
}

fn check_all(options: &Options, state: &str) {
    let mut link = Link::open(&Address::of(options, Purpose::Write).unwrap()).unwrap();
    for (n, (sql, expected)) in hot().into_iter().enumerate() {
        let plan = explain(&mut link, n, sql);
        let used: BTreeSet<&str> = plan.lines().filter_map(index_of).collect();
        let wanted: BTreeSet<&str> = expected.iter().copied().collect();
        // What has no index is known by its place.
        assert!(!wanted.is_empty() || plan.contains("Tid Scan"), "{state}: {sql}\n{plan}");
        assert!(
            used == wanted && !plan.contains("Seq Scan"),
            "{state}: {sql}\n{plan}\nwanted {wanted:?}, used {used:?}"
        );
    }
}

/// The plan that is kept for all values.
fn explain(link: &mut Link, n: usize, sql: &str) -> String {
    let n_params = (1..).take_while(|n| sql.contains(&format!("${n}::"))).count();
    let nulls = vec!["NULL"; n_params].join(", ");
    let arguments = if n_params > 0 { format!("({nulls})") } else { String::new() };
    link.batch("preparing", &format!("PREPARE p{n} AS {sql}")).unwrap();
    // A test may leak; statements of the product are known by their text for ever.
    let explain: &'static str = format!("EXPLAIN EXECUTE p{n}{arguments}").leak();
    let rows = link.query("explaining", explain, []).unwrap();
    let lines: Vec<&str> = rows.iter().map(|row| field(row, 0).unwrap()).collect();
    lines.join("\n")
}

/// `… Index Scan using tasks_id on tasks t …`
fn index_of(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("Scan using ").or_else(|| line.split_once("Bitmap Index Scan on "))?;
    rest.split_whitespace().next()
}

/// A hundred thousand live tasks, as many ended ones, and what belongs to them.
fn fill(options: &Options) {
    let id = |n: &str| format!("lpad(to_hex({n}), 32, '0')::uuid");
    let (n, odd) = (id("n"), id("n % 1000"));
    let sql = format!(
        "INSERT INTO tasks SELECT n, n, n % 50, CASE WHEN n % 5 = 0 THEN n END, CASE WHEN n % 7 = 0 THEN n END, \
         CASE WHEN n % 3 = 0 THEN n % 100 END, CASE WHEN n % 9 = 0 THEN n END, {n}, CASE WHEN n % 11 = 0 THEN {odd} END, \
         CASE WHEN n % 20 = 0 THEN 1 ELSE 0 END, 1, CASE WHEN n % 100 = 0 THEN 3 ELSE n % 3 END, 'key', 'body' \
         FROM generate_series(1, 100000) n; \
         INSERT INTO tasks_done SELECT n, n, n, n % 50, NULL, CASE WHEN n % 3 = 0 THEN n % 100 END, {n}, NULL, 0, 1, 5, \
         'key', 'body' FROM generate_series(100001, 200000) n; \
         INSERT INTO specs SELECT n, 'spec' FROM generate_series(1, 200000) n; \
         INSERT INTO edges SELECT {n}, n % 1000, {odd} FROM generate_series(1, 20000) n; \
         INSERT INTO keys(hash, created_at, subject, agent, key, answer) \
         SELECT n, n, {n}, 'ada', n::text::bytea, 'answer' FROM generate_series(1, 50000) n; \
         INSERT INTO sessions SELECT n, n, 0, n::text::bytea, 'body' FROM generate_series(1, 20000) n; \
         INSERT INTO batches SELECT {n}, NULL, 'body' FROM generate_series(1, 20000) n; \
         INSERT INTO releases SELECT 4, 0, n::text::bytea FROM generate_series(1, 2000) n; \
         INSERT INTO deliveries SELECT n, n, n, {n}, 0, 0, NULL, 'body', 'progress' FROM generate_series(1, 20000) n; \
         INSERT INTO schedules SELECT {n}, n, true, 'ada', n::text::bytea, 'body' FROM generate_series(1, 20000) n"
    );
    Link::open(&Address::of(options, Purpose::Migrate).unwrap()).unwrap().batch("filling", &sql).unwrap();
}
