//! Numbered steps from an empty schema to today's, made by one node at a time: whoever comes second waits for the first and
//! finds nothing left to do. All of them or none: a step that fails leaves nothing behind.

use super::connect::{Address, Options, Purpose};
use super::link::Link;
use super::row::{Tried, damaged, field};
use crate::migrations::{checksum, verify};
use crate::store::{Error, Result};

/// Index 0 is version 1.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_first.sql"), include_str!("migrations/0002_files.sql")];

/// Makes the steps that are missing.
pub fn migrate(options: &Options) -> Result<()> {
    migrate_with(options, MIGRATIONS)
}

/// How many steps are missing. Changes nothing.
pub fn check_migrations(options: &Options) -> Result<u32> {
    let mut link = Link::open(&Address::of(options, Purpose::Migrate)?)?;
    let recorded = recorded(&mut link)?;
    verify(MIGRATIONS, &recorded)?;
    Ok((MIGRATIONS.len() - recorded.len()) as u32)
}

fn migrate_with(options: &Options, migrations: &[&str]) -> Result<()> {
    let mut link = Link::open(&Address::of(options, Purpose::Migrate)?)?;
    // Most starts find nothing to do, and then need no lock.
    let found = recorded(&mut link)?;
    verify(migrations, &found)?;
    if found.len() == migrations.len() {
        return Ok(());
    }
    link.batch(MIGRATING, &format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK})"))?;
    let found = recorded(&mut link)?;
    verify(migrations, &found)?;
    if found.is_empty() {
        begin(&mut link)?;
    }
    for (index, sql) in migrations.iter().enumerate().skip(found.len()) {
        link.batch(MIGRATING, sql)?;
        let insert = format!("INSERT INTO migrations(version, checksum) VALUES ({}, {})", index + 1, checksum(sql));
        link.batch(MIGRATING, &insert)?;
    }
    Ok(link.batch(MIGRATING, "COMMIT")?)
}

/// The checksums of the steps made so far, in order. Another program's tables are not taken for an empty schema.
fn recorded(link: &mut Link) -> Result<Vec<i64>> {
    let sql =
        "SELECT to_regclass('migrations') IS NOT NULL, to_regclass('tasks') IS NOT NULL, current_schema() IS NULL";
    let rows = link.query(READING, sql, [])?;
    let row = rows.first().ok_or_else(|| damaged("the database", "it does not answer".to_owned()))?;
    let (is_ours, has_tasks, is_nowhere): (bool, bool, bool) = (field(row, 0)?, field(row, 1)?, field(row, 2)?);
    if is_nowhere {
        return Err(damaged("the database", "the search_path names no schema that exists".to_owned()));
    }
    if !is_ours && has_tasks {
        return Err(damaged("the database", "it belongs to another program".to_owned()));
    }
    if !is_ours {
        return Ok(Vec::new());
    }
    versions(link).map_err(Error::from)
}

fn versions(link: &mut Link) -> Tried<Vec<i64>> {
    let rows = link.query(READING, "SELECT version, checksum FROM migrations ORDER BY version", [])?;
    let mut checksums = Vec::new();
    for (row, expected) in rows.iter().zip(1_i64..) {
        let version: i64 = field(row, 0)?;
        if version != expected {
            return Err(damaged("the database", format!("migration {expected} is not recorded")).into());
        }
        checksums.push(field(row, 1)?);
    }
    Ok(checksums)
}

fn begin(link: &mut Link) -> Result<()> {
    let sql = "CREATE TABLE IF NOT EXISTS migrations(version bigint PRIMARY KEY, checksum bigint NOT NULL)";
    Ok(link.batch(MIGRATING, sql)?)
}

/// Ours among the advisory locks of a database: "Runyard" in bytes.
const LOCK: i64 = 0x0052_756e_7961_7264;
const MIGRATING: &str = "migrating the database";
const READING: &str = "reading the database's version";
