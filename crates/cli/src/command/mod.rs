//! One module for each command.

pub mod serve;
pub mod supervise;
pub mod tick;
pub mod worker;

pub mod demo;

pub mod batch;
pub mod cron;
pub mod submit;
pub mod upload;

pub mod list;
pub mod show;

pub mod artifacts;
pub mod heartbeat;
pub mod input;
pub mod logs;
pub mod wait;
pub mod watch;

pub mod cancel;
pub mod retry;

pub mod stats;
pub mod top;
pub mod why;

pub mod agents;
pub mod audit;
pub mod backup;
pub mod config;
pub mod drain;
pub mod key;
pub mod lanes;
pub mod migrate;
pub mod nodes;
pub mod secret;
pub mod session;
pub mod webhook;
pub mod workers;
