//! A seeded simulator with faults. It drives the tick loop of `runyard-store` as the server does, over a store in
//! memory, against random work, workers, clocks and crashes, and checks the invariants of the architecture after every
//! step by bookkeeping of its own. Everything follows from the seed, so that a finding can be seen again.
//!
//! ```text
//! generate ─► world ─► yard (core + tick loop) ─► tap (memory store, failing commits)
//!               │  ▲                                   │
//!               ▼  └── simulated workers               ▼
//!             oracle: foresee (events) · arithmetic (gates) · sessions (lines) · schedules (runs) · mail · rows as committed
//! ```

#![forbid(unsafe_code)]

pub mod run;
pub mod scenario;
pub mod world;

mod act;
mod answers;
mod appoint;
pub mod arithmetic;
mod compare;
mod fleet;
pub mod foresee;
pub mod mail;
pub mod oracle;
pub mod schedules;
pub mod sessions;

mod lineup;
mod quiet;
mod seats;
mod signs;
mod timetable;

pub mod generate;
mod remote;
pub mod rng;
pub mod tap;
pub mod worker;
