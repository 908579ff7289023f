//! The pure scheduler: closed enum of events in, closed enum of commands out.
//!
//! It does no IO, reads no clock, draws no random number and never blocks: the same events give the same commands,
//! byte for byte. What it must not know: SQL, JSON, HTTP, threads, processes.

#![forbid(unsafe_code)]

pub mod batch;
pub mod config;
pub mod core;
pub mod event;
pub mod explain;
pub mod flow;
pub mod outbox;
pub mod schedule;
pub mod session;
pub mod task;
pub mod worker;
pub mod write;

mod configure;
mod dispatch;
mod fleet;
mod flows;
mod gate;
mod happening;
mod holders;
mod lifecycle;
mod line;
mod once;
mod placement;
mod preempt;
mod ranking;
mod recover;
mod report;
mod roll;
mod schedules;
mod sessions;
mod submission;
mod submit;
mod timers;
mod turned_away;
mod wake;
mod window;
mod workers;

pub mod hash;
pub mod ids;
pub mod name;
pub mod now;
pub mod planted;
pub mod sanity;
mod slab;
pub mod trail;

pub use crate::core::Core;
pub use crate::flows::lane_in_force;
pub use crate::report::backoff_ms;
pub use crate::submit::uuid_text;
pub use crate::turned_away::TurnedAway;
