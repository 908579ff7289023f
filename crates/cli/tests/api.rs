//! The API through the real binary and real HTTP: the rules of the systems this one unites, put in terms of `/v1`, and
//! the server's own.
//!
//! Each test is named for its rule; its comment names the case it comes from: `A4.n` is pinchtab's, `B4.n` is
//! browseros's, `G4.n` is goclaw's list of cases.

#![allow(clippy::unwrap_used)]

mod support;

#[path = "api/chat.rs"]
mod chat;
#[path = "api/scene.rs"]
mod scene;

#[path = "api/access.rs"]
mod access;
#[path = "api/adopt.rs"]
mod adopt;
#[path = "api/batches.rs"]
mod batches;
#[path = "api/cancel.rs"]
mod cancel;
#[path = "api/dependencies.rs"]
mod dependencies;
#[path = "api/events.rs"]
mod events;
#[path = "api/execute.rs"]
mod execute;
#[path = "api/files.rs"]
mod files;
#[path = "api/heartbeat.rs"]
mod heartbeat;
#[path = "api/input.rs"]
mod input;
#[path = "api/logs.rs"]
mod logs;
#[path = "api/merges.rs"]
mod merges;
#[path = "api/operate.rs"]
mod operate;
#[path = "api/order.rs"]
mod order;
#[path = "api/receivers.rs"]
mod receivers;
#[path = "api/reload.rs"]
mod reload;
#[path = "api/retention.rs"]
mod retention;
#[path = "api/retries.rs"]
mod retries;
#[path = "api/schedules.rs"]
mod schedules;
#[path = "api/session_settings.rs"]
mod session_settings;
#[path = "api/session_stops.rs"]
mod session_stops;
#[path = "api/sessions.rs"]
mod sessions;
#[path = "api/settings.rs"]
mod settings;
#[path = "api/signatures.rs"]
mod signatures;
#[path = "api/staging.rs"]
mod staging;
#[path = "api/stats.rs"]
mod stats;
#[path = "api/steer.rs"]
mod steer;
#[path = "api/stop.rs"]
mod stop;
#[path = "api/supervise.rs"]
mod supervise;
#[path = "api/tasks.rs"]
mod tasks;
#[path = "api/verdicts.rs"]
mod verdicts;
#[path = "api/webhooks.rs"]
mod webhooks;
