//! The shared store: PostgreSQL, one writer at a time, readers on every node.
//!
//! A commit of the tick loop is one round trip: `BEGIN`, one statement for each kind of row that changed, and `COMMIT` are
//! sent together, and a guard that fails ends the transaction inside the database. Rows travel as arrays, one for each
//! column. A finished task is deleted from the hot table and inserted into another, so that the hot indexes stay as small
//! as what is alive. The first statement of every commit changes the one row of `meta` if it still has our epoch: that
//! is the fence.
//!
//! An answer that never came is looked for, not guessed: `meta` counts the commits. See [`store`].

mod audit;
mod column;
mod commit;
mod connect;
mod depot;
mod link;
mod load;
mod migrations;
mod nodes;
mod outbox;
mod passing;
mod places;
mod purge;
mod query;
mod raw;
mod reader;
mod refusal;
mod row;
mod schedules;
mod store;
mod tasks;
mod workers;

#[cfg(test)]
mod plans;

pub use connect::{Durability, Options};
pub use depot::{KeptArtifact, KeptArtifacts, Known, OfAttempt, PgDepot};
pub use migrations::{check_migrations, migrate};
pub use nodes::PgNodes;
pub use passing::is_passing;
pub use raw::{RawLimit, raw_limit};
pub use store::PgStore;
