//! `runyard worker` against a real server, both through the real binary: work is run elsewhere, and everything that can
//! be said of it travels. The server's own worker has no labels, so a task that requires one goes to another.

#![allow(clippy::unwrap_used)]

mod support;

#[path = "worker/site.rs"]
mod site;

#[path = "worker/absence.rs"]
mod absence;
#[path = "worker/fleet.rs"]
mod fleet;
#[path = "worker/python.rs"]
mod python;
#[path = "worker/tls.rs"]
mod tls;
#[path = "worker/travel.rs"]
mod travel;
