//! Several nodes on one real PostgreSQL, with the real binary: what each of them takes, what a change of holder looks like
//! from outside, and what trouble with the database does to them.

#![allow(clippy::unwrap_used)]

mod cluster;
mod support;

#[path = "worker/site.rs"]
mod site;

#[path = "nodes/access.rs"]
mod access;
#[path = "nodes/audit.rs"]
mod audit;
#[path = "nodes/commands.rs"]
mod commands;
#[path = "nodes/events.rs"]
mod events;
#[path = "nodes/files.rs"]
mod files;
#[path = "nodes/handover.rs"]
mod handover;
#[path = "nodes/schema.rs"]
mod schema;
#[path = "nodes/seal.rs"]
mod seal;
#[path = "nodes/shown.rs"]
mod shown;
#[path = "nodes/sleeper.rs"]
mod sleeper;
#[path = "nodes/start.rs"]
mod start;
#[path = "nodes/streams.rs"]
mod streams;
#[path = "nodes/takeover.rs"]
mod takeover;
#[path = "nodes/trouble.rs"]
mod trouble;
#[path = "nodes/unheard.rs"]
mod unheard;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// What is measured in seconds has the machine to itself.
static MACHINE: RwLock<()> = RwLock::new(());

/// For as long as it lives no other test of this file runs.
fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

fn beside_others() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}
