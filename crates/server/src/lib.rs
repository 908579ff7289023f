//! The server: REST, SSE, configuration, access, the embedded worker, and the thread that owns the scheduler.
//!
//! [`serve()`] is the command; [`Server`] is the same for tests, the demo and the benchmark. A request goes
//! `routes` → `intake` → [`handle`] → the scheduler's thread, and comes back through `view`; reads go to the store's
//! reader and never to the scheduler.

#![forbid(unsafe_code)]

mod serve;
mod server;
pub mod tick;

mod footing;
mod ground;
mod lobby;
mod migrate;
mod shelf;

mod app;
mod audit;
mod edge;
mod intake;
#[cfg_attr(not(feature = "otlp"), path = "otlp_off.rs")]
mod otlp;
mod output;
mod problem;
mod routes;
mod secrets;
mod view;
mod webhook;

mod autoscale;
mod desk;
mod workers;

mod nodes;

mod clock;
pub mod feed;
#[cfg(test)]
mod fuzz;
pub mod handle;
mod observe;
mod room;
pub mod scheduler;
mod uploads;
mod waiters;

pub mod access;
pub mod config;
pub mod logging;
pub mod metrics;

pub use migrate::{MigrateMode, Migrated, migrate};
pub use routes::openapi_json;
pub use serve::serve;
pub use server::{Error, SERVER_FILE, STORE_FILE, ServeOptions, Server};
