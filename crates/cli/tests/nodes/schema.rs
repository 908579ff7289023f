//! The tables of a database: made and changed by one command or by the first node, refused when they are newer.

use runyard_testbed::Postgres;

use crate::beside_others;
use crate::support::Server;

fn migrate(url: &str, more: &[&str]) -> assert_cmd::assert::Assert {
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"));
    command.args(["migrate", "--store", url]).args(more).timeout(std::time::Duration::from_secs(60)).assert()
}

#[test]
fn a_check_tells_of_what_is_to_be_done_and_does_nothing() {
    let _turn = beside_others();
    let postgres = Postgres::start();
    let url = postgres.fresh_database();
    for _ in 0..2 {
        let told = migrate(&url, &["--check"]).failure();
        let output = told.get_output();
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        assert!(!said.is_empty(), "it says what is to be done");
    }
    migrate(&url, &[]).success();
    migrate(&url, &["--check"]).success();
    migrate(&url, &[]).success();
}

/// The address may also come from the environment, or from a file that nobody else can read.
#[test]
fn the_address_of_the_store_is_taken_from_the_environment_or_a_file() {
    let _turn = beside_others();
    let postgres = Postgres::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("url");
    let url = postgres.fresh_database();
    std::fs::write(&file, format!("{url}\n")).unwrap();
    let check = |name: &str, value: &str| {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"));
        command.env(name, value).args(["migrate", "--check"]).timeout(std::time::Duration::from_secs(60)).assert()
    };
    migrate(&url, &[]).success();
    check("RUNYARD_STORE__URL", &url).success();
    check("RUNYARD_STORE__URL_FILE", file.to_str().unwrap()).success();
    check("RUNYARD_STORE__URL", &postgres.fresh_database()).failure();
}

#[test]
fn a_database_that_is_newer_than_the_program_is_refused_and_left_alone() {
    let _turn = beside_others();
    let postgres = Postgres::start();
    let url = postgres.fresh_database();
    let database = url.rsplit('/').next().unwrap();
    migrate(&url, &[]).success();
    postgres.sql(database, FROM_LATER);
    let version = postgres.sql(database, VERSION);
    let dir = tempfile::tempdir().unwrap();
    let mut serve = assert_cmd::Command::new(env!("CARGO_BIN_EXE_runyard"));
    serve.args(["serve", "--listen", "127.0.0.1:0", "--store", &url, "--data"]).arg(dir.path());
    for refused in [
        serve.timeout(std::time::Duration::from_secs(60)).assert().failure(),
        migrate(&url, &[]).failure(),
        migrate(&url, &["--check"]).failure(),
    ] {
        let said = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
        assert!(
            said.contains(&format!("of a later version ({version})")) && said.contains("use a newer runyard"),
            "{said}"
        );
        assert!(!said.contains("a-word-to-keep"), "no password is told: {said}");
    }
    assert_eq!(postgres.sql(database, VERSION), version);
}

/// What a later version would have left, whatever else it notes of a migration.
const FROM_LATER: &str = "INSERT INTO migrations \
    SELECT (jsonb_populate_record(last, jsonb_build_object('version', last.version + 1))).* \
    FROM migrations last ORDER BY version DESC LIMIT 1";
const VERSION: &str = "SELECT max(version) FROM migrations";

/// What the guide grants is all that it takes.
#[test]
fn the_role_of_the_guide_is_enough() {
    let _turn = beside_others();
    let postgres = Postgres::start();
    // The testbed has a role of that name, which may more.
    let guide = include_str!("../../../../docs/guides/postgres.md").replace("runyard", "guided");
    let blocks: Vec<&str> = guide.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    postgres.sql("postgres", "CREATE DATABASE shared");
    postgres.sql("postgres", "CREATE ROLE reporter");
    for (script, database) in [(blocks[0], "guided"), (blocks[1], "shared")] {
        as_superuser(&postgres, script);
        let url = format!("postgres://guided:a%20long%20one@127.0.0.1:{}/{database}", postgres.port());
        migrate(&url, &[]).success();
        migrate(&url, &["--check"]).success();
        serves(&url);
        as_superuser(&postgres, &format!("\\connect {database}\n{}", blocks[2]));
        let tables = "SELECT string_agg(DISTINCT schemaname, ',') FROM pg_tables WHERE tableowner = 'guided'";
        assert_eq!(postgres.sql(database, tables), "guided", "all of them are in its own schema");
    }
}

/// A script with commands of psql in it.
fn as_superuser(postgres: &Postgres, script: &str) {
    let mut psql = assert_cmd::Command::new("psql");
    psql.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--username=postgres", "--dbname=postgres"]);
    psql.arg("--host").arg(postgres.directory()).arg(format!("--port={}", postgres.port()));
    psql.write_stdin(script).assert().success();
}

/// A node on it does its work.
fn serves(url: &str) {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_with(dir.path(), &["--no-auth", "--store", url], "");
    let id = server.submit(r#"{"kind": "noop"}"#);
    assert_eq!(server.wait(&id)["state"], "completed");
}
