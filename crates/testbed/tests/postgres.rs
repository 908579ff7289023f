//! The server that other tests stand on.

use runyard_testbed::{Options, Postgres};

#[test]
fn a_server_keeps_its_data_over_a_stop_and_a_crash_and_leaves_nothing() {
    let mut postgres = Postgres::start_with(&Options { tls: true, ..Options::default() });
    let url = postgres.fresh_database();
    let database = url.rsplit('/').next().unwrap();
    postgres.sql(database, "CREATE TABLE kept AS SELECT 7 AS n");
    postgres.stop();
    postgres.start_again();
    postgres.kill();
    postgres.start_again();
    assert_eq!(postgres.sql(database, "SELECT n FROM kept"), "7");
    assert_eq!(postgres.sql(database, "SHOW ssl"), "on");
    let dir = postgres.root_certificate().ancestors().nth(2).unwrap().to_owned();
    drop(postgres);
    assert!(!dir.exists());
}

#[test]
fn a_standby_has_what_its_primary_had_and_takes_its_place() {
    let mut primary = Postgres::start();
    let url = primary.fresh_database();
    let database = url.rsplit('/').next().unwrap();
    let standby = primary.standby();
    primary.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.sql("postgres", "SELECT pg_reload_conf()");
    primary.sql(database, "CREATE TABLE kept AS SELECT 7 AS n");
    assert!(primary.is_running());
    primary.kill();
    assert!(!primary.is_running());
    standby.promote();
    assert_eq!(standby.sql(database, "SELECT n FROM kept"), "7");
    standby.sql(database, "INSERT INTO kept VALUES (8)");
}
