//! From rows to the scheduler's types, and from SQLite's errors to ours.

use runyard_core::batch::Batch;
use runyard_core::ids::{BatchId, FlowId, TaskId};
use runyard_core::name::{Blob, Name};
use runyard_core::session::{Session, SessionId};
use runyard_core::task::Task;
use rusqlite::{ErrorCode, Row};

use crate::codec::{TaskColumns, decode_batch, decode_session_body, decode_task_body};
use crate::store::{Error, Result};

/// What [`task_at`] reads, in its order. Statements name the table `t`.
macro_rules! task_columns {
    () => {
        "t.seq, t.id, t.flow, t.rank, t.batch, t.attempt, t.body"
    };
}
pub(super) use task_columns;

/// How many columns `task_columns!` names: what a statement selects beside it begins here.
pub const N_TASK_COLUMNS: usize = 7;

/// Says what was being done when SQLite failed.
pub trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T>;
}

impl<T> Doing<T> for rusqlite::Result<T> {
    fn doing(self, doing: &'static str) -> Result<T> {
        self.map_err(|error| failed(doing, error))
    }
}

pub fn failed(doing: &'static str, error: rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Error::Damaged { what: "the database", detail: format!("{doing}: {error}") }
        }
        _ => Error::Driver { doing, source: error.into() },
    }
}

pub fn is_constraint(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}

pub fn task_at(row: &Row<'_>) -> Result<Task> {
    let columns = task_columns_at(row).doing("reading a task's row")?;
    let body = row.get_ref(6).and_then(|body| Ok(body.as_blob()?)).doing("reading a task's row")?;
    decode_task_body(columns, body).ok_or_else(|| Error::Damaged {
        what: "a task's row",
        detail: format!("{:?}, seq {}", columns.id, columns.seq),
    })
}

fn task_columns_at(row: &Row<'_>) -> rusqlite::Result<TaskColumns> {
    Ok(TaskColumns {
        seq: number(row.get(0)?),
        id: TaskId(u128::from_be_bytes(row.get(1)?)),
        flow: FlowId(number(row.get(2)?)),
        rank: row.get(3)?,
        batch: row.get::<_, Option<[u8; 16]>>(4)?.map(|id| BatchId(u128::from_be_bytes(id))),
        attempt: row.get(5)?,
    })
}

/// Reads `id, body`.
pub fn batch_at(row: &Row<'_>) -> Result<Batch> {
    let id = BatchId(id_at(row, 0)?);
    let body = row.get_ref(1).and_then(|body| Ok(body.as_blob()?)).doing("reading a batch's row")?;
    decode_batch(id, body).ok_or_else(|| Error::Damaged { what: "a batch's row", detail: format!("{id:?}") })
}

/// Reads `id, key, body`.
pub fn session_at(row: &Row<'_>) -> Result<Session> {
    let columns = |row: &Row<'_>| Ok((SessionId(number(row.get(0)?)), Name::new(row.get_ref(1)?.as_str()?)));
    let (id, key) = columns(row).doing("reading a session's row")?;
    let body = row.get_ref(2).and_then(|body| Ok(body.as_blob()?)).doing("reading a session's row")?;
    decode_session_body(id, key, body)
        .ok_or_else(|| Error::Damaged { what: "a session's row", detail: format!("{id:?}") })
}

pub fn id_at(row: &Row<'_>, index: usize) -> Result<u128> {
    row.get(index).map(u128::from_be_bytes).doing("reading an id")
}

pub fn blob_at(row: &Row<'_>, index: usize) -> rusqlite::Result<Option<Blob>> {
    Ok(row.get_ref(index)?.as_blob_or_null()?.map(Blob::from))
}

/// SQLite's integers are signed. Counters never come near the sign; salts, hashes and rates use every bit and come back
/// as they went.
pub fn integer(n: u64) -> i64 {
    n as i64
}

pub fn number(n: i64) -> u64 {
    n as u64
}

/// A moment in an index must keep its order, so one beyond the range stands at its end.
pub fn moment(at: u64) -> i64 {
    i64::try_from(at).unwrap_or(i64::MAX)
}
