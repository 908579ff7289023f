//! Numbered steps from an empty file to today's schema.

use rusqlite::{Connection, TransactionBehavior};

use super::row::Doing;
use crate::migrations::{checksum, verify};
use crate::store::{Error, Result};

/// Index 0 is version 1.
const MIGRATIONS: &[&str] = &[
    include_str!("migrations/0001_first.sql"),
    include_str!("migrations/0002_sessions.sql"),
    include_str!("migrations/0003_outbox.sql"),
    include_str!("migrations/0004_schedules.sql"),
    include_str!("migrations/0005_workers.sql"),
];

/// Marks the file as ours, so that another program's database is not taken for an empty one.
const APPLICATION_ID: i32 = 0x5275_6e79;

pub fn migrate(db: &mut Connection) -> Result<()> {
    migrate_with(db, MIGRATIONS)
}

fn migrate_with(db: &mut Connection, migrations: &[&str]) -> Result<()> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).doing("migrating the database")?;
    let found = version(&tx)?;
    let known = migrations.len() as u32;
    if found > known {
        return Err(Error::TooNew { found, known });
    }
    if found == 0 {
        begin(&tx)?;
    }
    verify(migrations, &recorded(&tx, found)?)?;
    for (index, sql) in migrations.iter().enumerate().skip(found as usize) {
        let version = index as i64 + 1;
        tx.execute_batch(sql).doing("migrating the database")?;
        tx.execute("INSERT INTO migrations(version, checksum) VALUES (?1, ?2)", (version, checksum(sql)))
            .doing("migrating the database")?;
    }
    tx.pragma_update(None, "user_version", known).doing("migrating the database")?;
    tx.commit().doing("migrating the database")
}

fn version(db: &Connection) -> Result<u32> {
    let application: i32 =
        db.pragma_query_value(None, "application_id", |row| row.get(0)).doing("reading the database's version")?;
    let n_tables: u32 = db
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .doing("reading the database's version")?;
    if application != APPLICATION_ID && n_tables > 0 {
        return Err(damaged("it belongs to another program".to_owned()));
    }
    db.pragma_query_value(None, "user_version", |row| row.get(0)).doing("reading the database's version")
}

fn begin(db: &Connection) -> Result<()> {
    db.pragma_update(None, "application_id", APPLICATION_ID).doing("migrating the database")?;
    let sql = "CREATE TABLE IF NOT EXISTS migrations(version INTEGER PRIMARY KEY, checksum INTEGER NOT NULL)";
    db.execute_batch(sql).doing("migrating the database")
}

/// The checksums of the steps made so far, in order.
fn recorded(db: &Connection, found: u32) -> Result<Vec<i64>> {
    let mut select =
        db.prepare("SELECT checksum FROM migrations WHERE version = ?1").doing("migrating the database")?;
    let checksum = |version: u32| {
        select
            .query_row([version], |row| row.get(0))
            .map_err(|error| damaged(format!("migration {version} is not recorded: {error}")))
    };
    (1..=found).map(checksum).collect()
}

fn damaged(detail: String) -> Error {
    Error::Damaged { what: "the database", detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_version_is_brought_up_to_date() {
        let mut db = Connection::open_in_memory().unwrap();
        migrate_with(&mut db, &["CREATE TABLE a(x)"]).unwrap();
        migrate_with(&mut db, &["CREATE TABLE a(x)", "ALTER TABLE a ADD COLUMN y"]).unwrap();
        db.execute_batch("INSERT INTO a(x, y) VALUES (1, 2)").unwrap();
        assert_eq!(version(&db).unwrap(), 2);
    }

    #[test]
    fn a_later_version_is_refused() {
        let mut db = Connection::open_in_memory().unwrap();
        migrate_with(&mut db, &["CREATE TABLE a(x)", "CREATE TABLE b(x)"]).unwrap();
        let refused = migrate_with(&mut db, &["CREATE TABLE a(x)"]).unwrap_err();
        assert!(matches!(refused, Error::TooNew { found: 2, known: 1 }), "{refused}");
    }

    #[test]
    fn a_changed_step_is_refused() {
        let mut db = Connection::open_in_memory().unwrap();
        migrate_with(&mut db, &["CREATE TABLE a(x)"]).unwrap();
        let refused = migrate_with(&mut db, &["CREATE TABLE a(x, y)"]).unwrap_err();
        assert!(matches!(refused, Error::Damaged { .. }), "{refused}");
    }

    #[test]
    fn another_programs_database_is_refused() {
        let mut db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE theirs(x)").unwrap();
        assert!(matches!(migrate(&mut db), Err(Error::Damaged { .. })));
    }

    #[test]
    fn a_failed_step_leaves_nothing_behind() {
        let mut db = Connection::open_in_memory().unwrap();
        assert!(migrate_with(&mut db, &["CREATE TABLE a(x)", "no such statement"]).is_err());
        assert_eq!(version(&db).unwrap(), 0);
        migrate(&mut db).unwrap();
    }
}
