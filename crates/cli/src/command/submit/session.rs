//! The session a task is submitted to, and settings that stick to it.

use runyard_wire::{SessionDrop, SessionMode, SessionRequest, SessionSettings};

use crate::span::Span;

#[derive(clap::Args, Default)]
#[group(skip)]
pub struct SessionOptions {
    /// The session it belongs to: tasks of one session run in order
    #[arg(long, value_name = "KEY", help_heading = "Session")]
    session: Option<String>,
    /// While the session is busy: queue, followup, collect, steer, interrupt or reject
    #[arg(long, value_name = "MODE", requires = "session", help_heading = "Session")]
    session_mode: Option<SessionMode>,
    /// How many messages may wait in it [default: 10]
    #[arg(long, value_name = "N", requires = "session", help_heading = "Session")]
    session_cap: Option<u32>,
    /// Who makes room when that many wait: old, new or summarize
    #[arg(long, value_name = "WHO", requires = "session", help_heading = "Session")]
    session_drop: Option<SessionDrop>,
    /// Messages that come so close together become one run [default: 0s]
    #[arg(long, value_name = "SPAN", requires = "session", help_heading = "Session")]
    session_debounce: Option<Span>,
    /// No message is held back longer [default: five times the debounce]
    #[arg(long, value_name = "SPAN", requires = "session", help_heading = "Session")]
    session_max_wait: Option<Span>,
    /// How many of its tasks run at once [default: 1]
    #[arg(long, value_name = "N", requires = "session", help_heading = "Session")]
    session_max_concurrent: Option<u32>,
}

impl SessionOptions {
    pub fn into_request(self) -> Option<SessionRequest> {
        let settings = SessionSettings {
            mode: self.session_mode,
            cap: self.session_cap,
            drop: self.session_drop,
            debounce_ms: self.session_debounce.map(Span::as_ms),
            max_wait_ms: self.session_max_wait.map(Span::as_ms),
            max_concurrent: self.session_max_concurrent,
        };
        self.session.map(|key| SessionRequest { key, settings })
    }
}
