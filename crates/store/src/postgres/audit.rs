//! Who changed what, where every node can read it.
//!
//! Whoever writes takes a lock first, so that the numbers have neither gaps nor clashes when two nodes write at once. The
//! table is kept as small as the files of a node are: each entry says how many bytes there were up to it, and with the
//! newest go as many of the oldest as are too many.

use super::column::Param;
use super::link::{Call, transaction};
use super::query::all;
use super::reader::Readers;
use super::row::{Row, field, number};
use crate::nodes::AuditRow;
use crate::store::Result;

/// As much as the files of one node hold.
const ENTRIES_MAX: i64 = 120_000;
const BYTES_MAX: i64 = 32 * 1024 * 1024;

pub struct AuditTable<'a>(pub &'a Readers);

impl AuditTable<'_> {
    /// Behind all others. An answer that was lost is no reason to write it twice.
    pub fn write(&self, entry: &[u8]) -> Result<()> {
        let mut is_first = true;
        self.0.with(|link| {
            let insert = if std::mem::replace(&mut is_first, false) { INSERT } else { INSERT_IF_NEW };
            let calls = transaction(vec![
                Call::new("SELECT pg_advisory_xact_lock($1::bigint)", [Param::bigint(LOCK)]),
                Call::new(insert, [Param::bytes(entry)]),
                Call::new(FORGET, [Param::bigint(ENTRIES_MAX), Param::bigint(BYTES_MAX)]),
            ]);
            link.query_all(WRITING, &calls).map(drop)
        })
    }

    /// The latest first, those before this number.
    pub fn latest(&self, before: Option<u64>, limit: usize) -> Result<Vec<AuditRow>> {
        let sql = "SELECT n, body FROM audit WHERE n < $1::bigint ORDER BY n DESC LIMIT $2::bigint";
        let before = before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self.0.with(|link| link.query(READING, sql, [Param::bigint(before), Param::bigint(limit)]))?;
        all(&rows, entry_at)
    }
}

const INSERT: &str = "INSERT INTO audit(n, upto, body) \
                      SELECT coalesce(l.n, 0) + 1, coalesce(l.upto, 0) + octet_length($1::bytea), $1::bytea FROM (SELECT 1) one \
                      LEFT JOIN (SELECT n, upto FROM audit ORDER BY n DESC LIMIT 1) l ON true";

/// The first try may have been stored. It is then among the latest.
const INSERT_IF_NEW: &str = "INSERT INTO audit(n, upto, body) \
    SELECT coalesce(l.n, 0) + 1, coalesce(l.upto, 0) + octet_length($1::bytea), $1::bytea FROM (SELECT 1) one \
    LEFT JOIN (SELECT n, upto FROM audit ORDER BY n DESC LIMIT 1) l ON true \
    WHERE NOT EXISTS (SELECT 1 FROM audit a WHERE a.n > l.n - 1000 AND a.body = $1::bytea)";

/// A long entry may take the place of many short ones. What a call leaves over, the next takes.
const FORGET: &str = "DELETE FROM audit a USING (SELECT n, upto FROM audit ORDER BY n DESC LIMIT 1) l \
                      WHERE a.n IN (SELECT n FROM audit ORDER BY n LIMIT 500) \
                      AND (a.n <= l.n - $1::bigint OR a.upto <= l.upto - $2::bigint)";

fn entry_at(row: &Row) -> Result<AuditRow> {
    Ok(AuditRow { n: number(field(row, 0)?), body: field(row, 1)? })
}

/// Ours among the advisory locks of a database: "audit" in bytes.
const LOCK: i64 = 0x0061_7564_6974;
const WRITING: &str = "writing the audit log";
const READING: &str = "reading the audit log";
