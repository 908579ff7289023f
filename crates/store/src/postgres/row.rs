//! From rows to the scheduler's types, and from PostgreSQL's errors to ours.

use runyard_core::batch::Batch;
use runyard_core::ids::{BatchId, FlowId, TaskId};
use runyard_core::name::{Blob, Name};
use runyard_core::session::{Session, SessionId};
use runyard_core::task::Task;
pub use tokio_postgres::Row;
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::types::{FromSql, Type};

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

/// What went wrong with a statement.
#[derive(Debug)]
pub enum Fault {
    /// The connection is gone, and with it the answer: what was sent may have been done or not.
    Lost(Error),
    /// The database refused, and did nothing.
    Refused { doing: &'static str, error: Box<DbError> },
    /// Not a matter of the database.
    Other(Error),
}

pub type Tried<T> = std::result::Result<T, Fault>;

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Other(error)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        match fault {
            Fault::Lost(error) | Fault::Other(error) => error,
            Fault::Refused { doing, error } => Error::Driver { doing, source: error },
        }
    }
}

impl Fault {
    pub fn of(doing: &'static str, error: tokio_postgres::Error) -> Fault {
        let Some(told) = error.as_db_error() else {
            return Fault::Lost(Error::Away { doing, source: error.into() });
        };
        if is_end_of_connection(told) {
            return Fault::Lost(Error::Away { doing, source: Box::new(told.clone()) });
        }
        Fault::Refused { doing, error: Box::new(told.clone()) }
    }

    pub fn lost(doing: &'static str, detail: &str) -> Fault {
        Fault::Lost(Error::Away { doing, source: detail.into() })
    }

    pub fn is_lost(&self) -> bool {
        matches!(self, Fault::Lost(_))
    }

    /// The error's code, if the database gave one.
    pub fn code(&self) -> Option<&str> {
        match self {
            Fault::Refused { error, .. } => Some(error.code().code()),
            _ => None,
        }
    }
}

/// Stopped, restarted, failed over or thrown out: another connection may find a server that goes on. A standby is a former
/// primary, or one that is to be.
fn is_end_of_connection(error: &DbError) -> bool {
    let code = error.code();
    code.code().starts_with("08")
        || [
            &SqlState::ADMIN_SHUTDOWN,
            &SqlState::CRASH_SHUTDOWN,
            &SqlState::CANNOT_CONNECT_NOW,
            &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
            &SqlState::READ_ONLY_SQL_TRANSACTION,
            &SqlState::TOO_MANY_CONNECTIONS,
        ]
        .contains(&code)
}

/// A field of a row, by its place. A column of another type is a mistake in a statement; see the tests.
pub fn field<'row, T: FromSql<'row>>(row: &'row Row, index: usize) -> Result<T> {
    row.try_get(index).map_err(|error| Error::Driver { doing: "reading a row", source: error.into() })
}

/// A uuid, without a crate for it.
pub struct Id(pub u128);

impl<'a> FromSql<'a> for Id {
    fn from_sql(_: &Type, raw: &'a [u8]) -> std::result::Result<Id, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Id(u128::from_be_bytes(raw.try_into()?)))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::UUID
    }
}

pub fn task_at(row: &Row) -> Result<Task> {
    task_from(row, 0)
}

/// A task whose columns begin at `first`.
pub fn task_from(row: &Row, first: usize) -> Result<Task> {
    let columns = TaskColumns {
        seq: number(field(row, first)?),
        id: TaskId(id_at(row, first + 1)?),
        flow: FlowId(number(field(row, first + 2)?)),
        rank: field(row, first + 3)?,
        batch: field::<Option<Id>>(row, first + 4)?.map(|Id(id)| BatchId(id)),
        attempt: field::<i32>(row, first + 5)? as u32,
    };
    decode_task_body(columns, field(row, first + 6)?)
        .ok_or_else(|| damaged("a task's row", format!("{:?}, seq {}", columns.id, columns.seq)))
}

/// Reads `id, body`.
pub fn batch_at(row: &Row) -> Result<Batch> {
    let id = BatchId(id_at(row, 0)?);
    decode_batch(id, field(row, 1)?).ok_or_else(|| damaged("a batch's row", format!("{id:?}")))
}

/// Reads `id, key, body`.
pub fn session_at(row: &Row) -> Result<Session> {
    let id = SessionId(number(field(row, 0)?));
    decode_session_body(id, text_at(row, 1)?, field(row, 2)?)
        .ok_or_else(|| damaged("a session's row", format!("{id:?}")))
}

pub fn id_at(row: &Row, index: usize) -> Result<u128> {
    field(row, index).map(|Id(id)| id)
}

pub fn blob_at(row: &Row, index: usize) -> Result<Option<Blob>> {
    Ok(field::<Option<&[u8]>>(row, index)?.map(Blob::from))
}

/// Any text, which is kept as its bytes.
pub fn text_at(row: &Row, index: usize) -> Result<Name> {
    let text = std::str::from_utf8(field(row, index)?);
    text.map(Name::new).map_err(|error| damaged("a text", error.to_string()))
}

pub fn name_at(row: &Row, index: usize) -> Result<Name> {
    field(row, index).map(Name::new)
}

pub fn damaged(what: &'static str, detail: String) -> Error {
    Error::Damaged { what, detail }
}

/// Its integers are signed. Counters never come near the sign; salts, hashes and rates use every bit and come back as they
/// went.
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
