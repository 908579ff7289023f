//! Files that every node can have: logs of ended attempts, artifacts, uploads. A node's disk is where they come in and where
//! copies lie; what counts is here, because the next holder is on another disk.
//!
//! A file is kept in parts, each sent by itself, and is there as a whole or not at all. What belongs to a task goes with it:
//! a file whose task is not there (any more) is not kept. All calls block; a file is read from its beginning again when a
//! connection breaks.

use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;
use std::time::Duration;

use runyard_core::ids::TaskId;
use sha2::{Digest, Sha256};

use super::column::{Column, Param, uuids};
use super::commit::seq_of;
use super::link::{Call, Link};
use super::reader::Readers;
use super::row::{Row, Tried, field, id_at, number};
use crate::store::{Error, Result};

/// So much of a file is in memory, and in one row.
const PART_BYTES: usize = 1024 * 1024;
/// Uploads that one transaction removes.
const REMOVED_MAX: i64 = 100;

pub struct PgDepot {
    links: Arc<Readers>,
}

/// What attempts left behind them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KeptArtifacts {
    pub attempt: u32,
    pub items: Vec<KeptArtifact>,
    /// Path, and why.
    pub left_out: Vec<(String, String)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptArtifact {
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
}

/// Which attempt of which task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OfAttempt {
    pub task: TaskId,
    pub attempt: u32,
}

/// What is known of an attempt whose files lie on some disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// Its task is not there, or not any more.
    Gone,
    /// It may still write.
    Runs,
    Ended {
        log_bytes: Option<u64>,
        n_artifacts: u64,
    },
}

/// The row of an ended task is held until its file is there, so that retention finds both or none. A live one is not: the
/// scheduler would have to wait.
macro_rules! owner {
    () => {
        "WITH ended AS (SELECT t.seq FROM tasks_done t WHERE t.id = $1::uuid FOR KEY SHARE), \
         owner AS (SELECT seq FROM ended UNION ALL SELECT t.seq FROM tasks t WHERE t.id = $1::uuid)"
    };
}

impl PgDepot {
    pub(super) fn over(links: Arc<Readers>) -> PgDepot {
        PgDepot { links }
    }

    /// A second log of an attempt replaces the first.
    pub fn keep_log(&self, of: OfAttempt, log: &[u8]) -> Result<()> {
        const KEEP: &str = concat!(
            owner!(),
            " INSERT INTO logs(seq, attempt, body) SELECT seq, $2::int, $3::bytea FROM owner \
             ON CONFLICT (seq, attempt) DO UPDATE SET body = excluded.body"
        );
        let params = [Param::uuid(of.task.0), attempt(of), Param::bytes(log)];
        self.links.with(|link| link.query(KEEPING, KEEP, params.clone())).map(drop)
    }

    pub fn log(&self, of: OfAttempt) -> Result<Option<Vec<u8>>> {
        const LOG: &str = concat!("SELECT body FROM logs WHERE seq = ", seq_of!("$1::uuid"), " AND attempt = $2::int");
        let rows = self.links.with(|link| link.query(READING, LOG, [Param::uuid(of.task.0), attempt(of)]))?;
        rows.first().map(|row| field(row, 0)).transpose()
    }

    /// What is known of each, in their order.
    pub fn known(&self, of: &[OfAttempt]) -> Result<Vec<Known>> {
        const KNOWN: &str = "SELECT t.seq, t.runs, (SELECT octet_length(l.body) FROM logs l WHERE l.seq = t.seq \
            AND l.attempt = k.attempt), (SELECT count(*) FROM artifacts a WHERE a.seq = t.seq AND a.attempt = k.attempt) \
            FROM unnest($1::uuid[], $2::int[]) WITH ORDINALITY k(id, attempt, n) LEFT JOIN LATERAL ( \
            SELECT l.seq, l.attempt <= k.attempt AND l.phase >= 3 AS runs FROM tasks l WHERE l.id = k.id \
            UNION ALL SELECT d.seq, false FROM tasks_done d WHERE d.id = k.id) t ON true ORDER BY k.n";
        let mut attempts = Column::int(of.len());
        of.iter().for_each(|of| attempts.push_i32(of.attempt as i32));
        let params = [uuids(of.iter().map(|of| of.task.0)), attempts.into()];
        let rows = self.links.with(|link| link.query(READING, KNOWN, params.clone()))?;
        rows.iter().map(known_at).collect()
    }

    /// A second file of the same path replaces the first.
    pub fn keep_artifact(&self, of: OfAttempt, item: &KeptArtifact, content: &mut (impl Read + Seek)) -> Result<()> {
        const CLEAR: &str = concat!(
            "DELETE FROM artifact_parts WHERE seq = ",
            seq_of!("$1::uuid"),
            " AND attempt = $2::int AND file = $3::uuid"
        );
        const PART: &str = concat!(
            "INSERT INTO artifact_parts(seq, attempt, file, n, body) SELECT t.seq, $2::int, $3::uuid, $4::int, $5::bytea \
             FROM (SELECT ",
            seq_of!("$1::uuid"),
            " AS seq) t WHERE t.seq IS NOT NULL"
        );
        const WHOLE: &str = concat!(
            owner!(),
            " INSERT INTO artifacts(seq, attempt, file, bytes, path, note) SELECT seq, $2::int, $3::uuid, $4::bigint, \
             $5::bytea, $6::bytea FROM owner ON CONFLICT (seq, attempt, file) DO UPDATE SET bytes = excluded.bytes, \
             note = excluded.note RETURNING seq"
        );
        let key = || [Param::uuid(of.task.0), attempt(of), Param::uuid(file_of(&item.path))];
        let about = [signed(item.bytes), text(&item.path), text(&item.sha256)];
        self.links.with(|link| {
            content.seek(SeekFrom::Start(0)).map_err(unreadable)?;
            let begin =
                [Call::new("BEGIN", []), Call::new(WHOLE, [&key()[..], &about].concat()), Call::new(CLEAR, key())];
            let is_kept = !link.query_all(KEEPING, &begin)?[1].is_empty();
            if is_kept {
                put_parts(link, content, |n, part| {
                    Call::new(PART, [&key()[..], &[Param::int(n), Param::bytes(part)]].concat())
                })?;
            }
            link.query(KEEPING, "COMMIT", []).map(drop)
        })
    }

    /// What an attempt meant to leave, and was not kept.
    pub fn keep_left_out(&self, of: OfAttempt, path: &str, reason: &str) -> Result<()> {
        const KEEP: &str = concat!(
            owner!(),
            " INSERT INTO artifacts(seq, attempt, file, bytes, path, note) SELECT seq, $2::int, $3::uuid, NULL, $4::bytea, \
             $5::bytea FROM owner ON CONFLICT (seq, attempt, file) DO NOTHING"
        );
        let params = [Param::uuid(of.task.0), attempt(of), Param::uuid(file_of(path)), text(path), text(reason)];
        self.links.with(|link| link.query(KEEPING, KEEP, params.clone())).map(drop)
    }

    /// Of the last attempt that left any, by path.
    pub fn artifacts(&self, task: TaskId) -> Result<KeptArtifacts> {
        const LIST: &str = concat!(
            "SELECT a.attempt, a.path, a.bytes, a.note FROM artifacts a WHERE a.seq = ",
            seq_of!("$1::uuid"),
            " AND a.attempt = (SELECT max(l.attempt) FROM artifacts l WHERE l.seq = ",
            seq_of!("$1::uuid"),
            ")"
        );
        let rows = self.links.with(|link| link.query(READING, LIST, [Param::uuid(task.0)]))?;
        let mut kept = KeptArtifacts::default();
        for row in &rows {
            kept.attempt = field::<i32>(row, 0)? as u32;
            let (path, note) = (text_of(row, 1)?, text_of(row, 3)?);
            match field::<Option<i64>>(row, 2)? {
                Some(bytes) => kept.items.push(KeptArtifact { path, bytes: number(bytes), sha256: note }),
                None => kept.left_out.push((path, note)),
            }
        }
        kept.items.sort_by(|a, b| a.path.cmp(&b.path));
        kept.left_out.sort();
        Ok(kept)
    }

    /// The parts of a file are asked for one by one, from 0 until there are no more.
    pub fn artifact_part(&self, of: OfAttempt, path: &str, n: u32) -> Result<Option<Vec<u8>>> {
        const PART: &str = concat!(
            "SELECT body FROM artifact_parts WHERE seq = ",
            seq_of!("$1::uuid"),
            " AND attempt = $2::int AND file = $3::uuid AND n = $4::int"
        );
        let params = [Param::uuid(of.task.0), attempt(of), Param::uuid(file_of(path)), Param::int(n as i32)];
        let rows = self.links.with(|link| link.query(READING, PART, params.clone()))?;
        rows.first().map(|row| field(row, 0)).transpose()
    }

    /// One that is there already stays as it is: an upload is never changed.
    pub fn keep_upload(&self, id: u128, bytes: u64, content: &mut (impl Read + Seek)) -> Result<()> {
        const WHOLE: &str = "INSERT INTO uploads(id, bytes, needed_at) VALUES ($1::uuid, $2::bigint, clock_timestamp()) \
                             ON CONFLICT (id) DO NOTHING RETURNING id";
        const PART: &str = "INSERT INTO upload_parts(id, n, body) VALUES ($1::uuid, $2::int, $3::bytea)";
        self.links.with(|link| {
            content.seek(SeekFrom::Start(0)).map_err(unreadable)?;
            let begin = [Call::new("BEGIN", []), Call::new(WHOLE, [Param::uuid(id), signed(bytes)])];
            let is_new = !link.query_all(KEEPING, &begin)?[1].is_empty();
            if is_new {
                put_parts(link, content, |n, part| {
                    Call::new(PART, [Param::uuid(id), Param::int(n), Param::bytes(part)])
                })?;
            }
            link.query(KEEPING, "COMMIT", []).map(drop)
        })
    }

    /// Somebody needs it: it stays for another while. False when it is not there.
    pub fn touch_upload(&self, id: u128) -> Result<bool> {
        const TOUCH: &str = "UPDATE uploads SET needed_at = clock_timestamp() WHERE id = $1::uuid RETURNING id";
        Ok(!self.links.with(|link| link.query(READING, TOUCH, [Param::uuid(id)]))?.is_empty())
    }

    /// As [`Self::artifact_part`]. An upload without a part is empty, or is none.
    pub fn upload_part(&self, id: u128, n: u32) -> Result<Option<Vec<u8>>> {
        const PART: &str = "SELECT body FROM upload_parts WHERE id = $1::uuid AND n = $2::int";
        let rows = self.links.with(|link| link.query(READING, PART, [Param::uuid(id), Param::int(n as i32)]))?;
        rows.first().map(|row| field(row, 0)).transpose()
    }

    /// Removes what nobody has needed for so long. Gives how many there were.
    pub fn remove_uploads(&self, keep: Duration) -> Result<usize> {
        const OLD: &str = "SELECT id FROM uploads WHERE needed_at < clock_timestamp() - $1::bigint * interval '1 millisecond' \
                           ORDER BY needed_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED";
        const PARTS: &str = "DELETE FROM upload_parts WHERE id = ANY($1::uuid[])";
        const UPLOADS: &str = "DELETE FROM uploads WHERE id = ANY($1::uuid[])";
        let keep_ms = Param::bigint(i64::try_from(keep.as_millis()).unwrap_or(i64::MAX));
        let mut n_removed = 0;
        loop {
            let n = self.links.with(|link| {
                let begin = [Call::new("BEGIN", []), Call::new(OLD, [keep_ms.clone(), Param::bigint(REMOVED_MAX)])];
                let old = &link.query_all(READING, &begin)?[1];
                let ids = old.iter().map(|row| id_at(row, 0)).collect::<Result<Vec<u128>>>()?;
                let gone = || [uuids(ids.iter().copied())];
                let calls = [Call::new(PARTS, gone()), Call::new(UPLOADS, gone()), Call::new("COMMIT", [])];
                link.query_all(KEEPING, &calls)?;
                Ok(ids.len())
            })?;
            n_removed += n;
            if n < REMOVED_MAX as usize {
                return Ok(n_removed);
            }
        }
    }
}

/// In the order they come, each by itself.
fn put_parts(link: &mut Link, content: &mut impl Read, call: impl Fn(i32, &[u8]) -> Call) -> Tried<()> {
    let mut part = Vec::with_capacity(PART_BYTES);
    for n in 0.. {
        part.clear();
        content.by_ref().take(PART_BYTES as u64).read_to_end(&mut part).map_err(unreadable)?;
        if part.is_empty() {
            break;
        }
        link.query_all(KEEPING, &[call(n, &part)])?;
    }
    Ok(())
}

fn known_at(row: &Row) -> Result<Known> {
    Ok(match (field::<Option<i64>>(row, 0)?, field::<Option<bool>>(row, 1)?) {
        (None, _) => Known::Gone,
        (Some(_), Some(true)) => Known::Runs,
        (Some(_), _) => Known::Ended {
            log_bytes: field::<Option<i32>>(row, 2)?.map(|n| n as u64),
            n_artifacts: number(field(row, 3)?),
        },
    })
}

/// A path may be longer than what an index takes.
fn file_of(path: &str) -> u128 {
    let sum = Sha256::digest(path.as_bytes());
    u128::from_be_bytes(sum[..16].try_into().expect("a sum has 32 bytes"))
}

fn attempt(of: OfAttempt) -> Param {
    Param::int(of.attempt as i32)
}

fn signed(bytes: u64) -> Param {
    Param::bigint(i64::try_from(bytes).unwrap_or(i64::MAX))
}

fn text(text: &str) -> Param {
    Param::bytes(text.as_bytes())
}

fn text_of(row: &Row, index: usize) -> Result<String> {
    Ok(String::from_utf8_lossy(field(row, index)?).into_owned())
}

fn unreadable(source: std::io::Error) -> Error {
    Error::Driver { doing: "reading a file to keep", source: source.into() }
}

const KEEPING: &str = "keeping a file in the database";
const READING: &str = "looking for a file in the database";
