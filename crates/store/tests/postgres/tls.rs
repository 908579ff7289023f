//! Who the server must prove to be, and that nobody reads the password.

use std::path::Path;

use runyard_store::postgres::{Options, PgStore, migrate};
use runyard_store::store::Result;
use runyard_testbed::{Options as ServerOptions, Postgres, shared};

fn connect(url: &str) -> Result<()> {
    migrate(&Options::new(url))
}

/// The connections of this database that are encrypted.
fn n_encrypted(postgres: &Postgres, database: &str) -> String {
    let sql = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
               WHERE s.ssl AND a.usename = 'runyard' AND a.application_name = 'runyard'";
    postgres.sql(database, sql)
}

#[test]
fn the_server_proves_as_much_as_the_address_asks_for() {
    let postgres = Postgres::start_with(&ServerOptions { tls: true, ..ServerOptions::default() });
    let url = postgres.fresh_database();
    let database = url.rsplit('/').next().unwrap().to_owned();
    let root = |path: &Path| format!("sslrootcert={}", path.display());
    let good = root(&postgres.root_certificate());
    let other = tempfile::NamedTempFile::new().unwrap();
    let stranger = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(other.path(), stranger.cert.pem()).unwrap();
    let bad = root(other.path());
    let by_name = url.replace("127.0.0.1", "localhost");

    connect(&format!("{url}?sslmode=disable")).unwrap();
    connect(&format!("{url}?sslmode=require")).unwrap();
    connect(&format!("{url}?sslmode=verify-full&{good}")).unwrap();
    connect(&format!("{by_name}?sslmode=verify-ca&{good}")).unwrap();
    connect(&format!("{url}?{good}&sslmode=verify-full&application_name=x")).unwrap();
    for refused in [
        format!("{url}?sslmode=verify-full"),
        format!("{url}?sslmode=verify-full&{bad}"),
        format!("{url}?sslmode=verify-ca&{bad}"),
        format!("{url}?sslmode=require&{bad}"),
        format!("{by_name}?sslmode=verify-full&{good}"),
        format!("{url}?sslmode=verify-full&sslrootcert=/nowhere"),
        format!("{url}?sslmode=perhaps"),
    ] {
        assert!(connect(&refused).is_err(), "{refused}");
    }

    let plain = PgStore::open(Options::new(format!("{url}?sslmode=disable"))).unwrap();
    assert_eq!(n_encrypted(&postgres, &database), "0");
    drop(plain);
    let _encrypted = PgStore::open(Options::new(url)).unwrap();
    assert_eq!(n_encrypted(&postgres, &database), "1");
}

#[test]
fn a_server_without_tls_is_refused_when_tls_is_asked_for() {
    let url = shared().fresh_database();
    assert!(connect(&format!("{url}?sslmode=require")).is_err());
    connect(&url).unwrap();
}

#[test]
fn no_error_shows_the_password() {
    let url = shared().fresh_database();
    let password = url.split([':', '@']).nth(2).unwrap().to_owned();
    let bad = [
        url.replace(&password, &format!("{password}-but-wrong")),
        url.replace("127.0.0.1", "127.0.0.1.nowhere.invalid"),
        url.replace("127.0.0.1:", "127.0.0.1:1"),
        format!("{url}?sslmode=none"),
        format!("{url}?unknown=1"),
        url.replace("postgres://", "mysql://"),
        url.replace("/d", "/no-such-database-d"),
    ];
    for url in bad {
        let options = Options::new(&*url);
        let error = migrate(&options).unwrap_err();
        let mut told = format!("{error} {error:?} {options:?}");
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            told += &format!(" {cause}");
            source = cause.source();
        }
        assert!(!told.contains(&password), "{told}");
    }
}
