//! The embedded store: one SQLite file in WAL mode, one writer, readers beside it.
//!
//! A commit of the tick loop is one transaction and one fsync. Three things keep it cheap: a task's row holds in columns
//! only what an index or a guard reads and the rest in one blob; payloads stand in a table of their own, so that a
//! changed task never rewrites its payload; and every index of the hot path is partial, so that the finishing write
//! takes the row out of all of them. Copying the log back into the database is the work of another thread.

mod checkpoint;
mod commit;
mod connect;
mod copy;
mod load;
mod lock;
mod migrations;
mod outbox;
mod purge;
mod query;
mod raw;
mod reader;
mod row;
mod schedules;
mod store;
mod workers;

pub use connect::{Durability, Options};
pub use copy::{Quiet, copy_quiet};
pub use lock::Lock;
pub use raw::{RawLimit, raw_limit};
pub use store::SqliteStore;
