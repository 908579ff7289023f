//! What waiting may mend, as real servers say it.

use std::net::TcpListener;
use std::time::Duration;

use runyard_store::postgres::{Options, PgStore, is_passing, migrate};
use runyard_store::store::Error;
use runyard_testbed::{Options as ServerOptions, PASSWORD, Postgres, shared};

fn refused(url: &str) -> Error {
    let options = Options { connect_timeout: Duration::from_millis(300), ..Options::new(url) };
    match PgStore::open(options) {
        Ok(_) => panic!("there is a database at {url}"),
        Err(error) => error,
    }
}

/// What nobody has to change anything for.
fn passes(url: &str) {
    let error = refused(url);
    assert!(is_passing(&error), "{error:?}");
}

fn stays(url: &str) {
    let error = refused(url);
    assert!(!is_passing(&error), "{error:?}");
}

#[test]
fn a_server_that_is_not_there_may_come() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (answers_nothing, closed) = (silent.local_addr().unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let nobody = closed.local_addr().unwrap();
    drop(closed);
    passes(&format!("postgres://runyard:x@{nobody}/d"));
    passes(&format!("postgres://runyard:x@{answers_nothing}/d"));
    passes("postgres://runyard:x@no-such-host.invalid/d");
    passes("postgres://runyard:x@%2Fnowhere/d");
    passes(&format!("postgres://runyard:x@{nobody}/d?sslmode=verify-full&sslrootcert=system"));
}

#[test]
fn a_server_that_does_not_know_who_is_asking_will_not_know_later() {
    let url = shared().fresh_database();
    stays(&url.replace(PASSWORD, "another"));
    stays(&url.replace(&format!(":{PASSWORD}"), ""));
    stays(&url.replace("runyard:", "nobody:"));
    stays(&format!("{url}x"));
}

#[test]
fn an_address_that_cannot_be_read_stays_so() {
    let url = shared().fresh_database();
    stays(&url.replace("postgres://", "mysql://"));
    stays(&format!("{url}?sslmode=perhaps"));
    stays(&format!("{url}?sslmode=verify-full"));
    stays(&url.replace("127.0.0.1:", "127.0.0.1:x"));
}

#[test]
fn a_server_that_cannot_prove_who_it_is_will_not_later() {
    let postgres = Postgres::start_with(&ServerOptions { tls: true, ..ServerOptions::default() });
    let url = postgres.fresh_database();
    let other = tempfile::NamedTempFile::new().unwrap();
    let stranger = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(other.path(), stranger.cert.pem()).unwrap();
    stays(&format!("{url}?sslmode=verify-full&sslrootcert={}", other.path().display()));
    let good = postgres.root_certificate();
    stays(&format!("{}?sslmode=verify-full&sslrootcert={}", url.replace("127.0.0.1", "localhost"), good.display()));
    stays(&format!("{}?sslmode=require", shared().fresh_database()));
}

#[test]
fn a_server_that_only_follows_may_be_the_primary_later() {
    let primary = Postgres::start();
    let url = primary.fresh_database();
    migrate(&Options::new(&*url)).unwrap();
    let standby = primary.standby();
    passes(&url.replace(&primary.port().to_string(), &standby.port().to_string()));
}

#[test]
fn a_server_that_has_too_many_connections_may_have_fewer_later() {
    let limit = vec![("max_connections".to_owned(), "4".to_owned())];
    let postgres = Postgres::start_with(&ServerOptions { settings: limit, ..ServerOptions::default() });
    let url = postgres.fresh_database();
    migrate(&Options::new(&*url)).unwrap();
    let mut open = Vec::new();
    let error = loop {
        match PgStore::open(Options::new(&*url)) {
            Ok(store) => open.push(store),
            Err(error) => break error,
        }
    };
    assert!(!open.is_empty() && is_passing(&error), "{error:?}");
}

#[test]
fn data_that_is_damaged_or_of_a_later_version_stays_so() {
    for change in [
        "INSERT INTO migrations SELECT max(version) + 1, 0 FROM migrations",
        "UPDATE migrations SET checksum = 7",
        "DROP TABLE migrations",
    ] {
        let url = shared().fresh_database();
        migrate(&Options::new(&*url)).unwrap();
        shared().sql(url.rsplit('/').next().unwrap(), change);
        stays(&url);
    }
}
