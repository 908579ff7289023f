//! A worker: takes starts and stops from the scheduler, runs them through the executors, and reports back.
//!
//! The server contains one; a worker on another machine is the same code behind another [`Link`]. It decides nothing:
//! what it holds, it runs until the work ends or the scheduler wants it stopped. What it must not know: limits, retries,
//! the store.

#![forbid(unsafe_code)]

mod defaults;
mod found;
mod input;
mod link;
pub mod machine;
mod merge;
mod rehearsal;
pub mod remote;
mod spec;
mod table;
mod watch;
mod worker;

pub use defaults::{
    DockerDefaults, DockerDefaultsNow, DockerOffer, MayRun, ProcessDefaults, ProcessDefaultsNow, Programs,
};
pub use found::Found;
pub use link::Link;
pub use merge::merge as merged_payload;
pub use rehearsal::Rehearsal;
pub use runyard_exec::Progress;
pub use spec::input_of;
pub use watch::{LogFollow, ProgressEvent};
pub use worker::{Error, Worker, WorkerOptions};
