//! `runyard tick` with the real binary and real processes: the rules of tinyscheduler, put in terms of `/v1`, and the
//! tick's own.
//!
//! Each test is named for its rule; `tinyscheduler n` in its comment is the case it comes from. Their agent with a limit is
//! `[agents.NAME] maxInflight`, their queue a lane, their slot a lease, their recipe a command; blocked is the state
//! `waiting`.

#![allow(clippy::unwrap_used)]

mod support;

#[path = "tick/field.rs"]
mod field;

#[path = "tick/blocking.rs"]
mod blocking;
#[path = "tick/errors.rs"]
mod errors;
#[path = "tick/leases.rs"]
mod leases;
#[path = "tick/packaging.rs"]
mod packaging;
#[path = "tick/passes.rs"]
mod passes;
#[path = "tick/secrets.rs"]
mod secrets;
#[path = "tick/slots.rs"]
mod slots;
#[path = "tick/turns.rs"]
mod turns;
#[path = "tick/validation.rs"]
mod validation;
