//! A session: an ordered stream of tasks with one key.
//!
//! ```text
//! not joined ── dependencies and delay over ──► in line ── a seat is free, and it is the first ──► seated ──► ended
//! (waiting, scheduled)                     (waiting, scheduled: debounce)         (queued, held, backoff)
//! ```
//!
//! At most `max_concurrent` members are seated. A member keeps its seat from its first queueing to its end, through
//! retries, losses and preemption, so the order of the line is the order of the runs. The line is in the store; memory
//! holds the row while a member of it is in memory.

use crate::ids::TaskId;
use crate::name::Name;
use crate::now::{SteadyMs, WallMs};

/// Drawn from the sequence that numbers tasks; from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u64);

/// What becomes of a message that comes while the session is busy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Mode {
    /// In order.
    Queue = 0,
    /// In order; the name other systems use for it.
    Followup = 1,
    /// What comes during a run becomes one follow-up.
    Collect = 2,
    /// Handed to the running task if it takes input, else in order.
    Steer = 3,
    /// The running one is stopped, the waiting ones are dropped; the new one starts when the old has stopped.
    Interrupt = 4,
    /// Refused.
    Reject = 5,
}

impl Mode {
    pub const ALL: [Mode; 6] = [Mode::Queue, Mode::Followup, Mode::Collect, Mode::Steer, Mode::Interrupt, Mode::Reject];

    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Queue => "queue",
            Mode::Followup => "followup",
            Mode::Collect => "collect",
            Mode::Steer => "steer",
            Mode::Interrupt => "interrupt",
            Mode::Reject => "reject",
        }
    }

    pub fn from_code(code: u8) -> Option<Mode> {
        Mode::ALL.get(usize::from(code)).copied()
    }
}

/// Who makes room when the line is full.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Overflow {
    /// The one that has waited longest.
    Old = 0,
    /// The one that comes.
    New = 1,
    /// As `Old`, and the next run is told of it in one line.
    Summarize = 2,
}

impl Overflow {
    pub const ALL: [Overflow; 3] = [Overflow::Old, Overflow::New, Overflow::Summarize];

    pub fn as_str(self) -> &'static str {
        match self {
            Overflow::Old => "old",
            Overflow::New => "new",
            Overflow::Summarize => "summarize",
        }
    }

    pub fn from_code(code: u8) -> Option<Overflow> {
        Overflow::ALL.get(usize::from(code)).copied()
    }
}

/// Settings as somebody gave them: what is not given comes from the layer below.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    pub mode: Option<Mode>,
    pub cap: Option<u32>,
    pub overflow: Option<Overflow>,
    pub debounce_ms: Option<u64>,
    pub wait_ms_max: Option<u64>,
    pub max_concurrent: Option<u32>,
}

impl Settings {
    /// These, and where they are silent those below.
    pub fn over(self, below: Settings) -> Settings {
        Settings {
            mode: self.mode.or(below.mode),
            cap: self.cap.or(below.cap),
            overflow: self.overflow.or(below.overflow),
            debounce_ms: self.debounce_ms.or(below.debounce_ms),
            wait_ms_max: self.wait_ms_max.or(below.wait_ms_max),
            max_concurrent: self.max_concurrent.or(below.max_concurrent),
        }
    }

    pub fn rules(self) -> Rules {
        let debounce_ms = self.debounce_ms.unwrap_or(0);
        Rules {
            mode: self.mode.unwrap_or(Mode::Queue),
            cap: self.cap.unwrap_or(CAP_DEFAULT).max(1),
            overflow: self.overflow.unwrap_or(Overflow::Old),
            debounce_ms,
            wait_ms_max: self.wait_ms_max.unwrap_or(debounce_ms.saturating_mul(WAIT_IN_DEBOUNCES)),
            max_concurrent: self.max_concurrent.unwrap_or(1).max(1),
        }
    }
}

pub const CAP_DEFAULT: u32 = 10;
/// Without a maximum of its own a burst of messages is held back for so many times the debounce.
pub const WAIT_IN_DEBOUNCES: u64 = 5;

/// The settings in force, all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    pub mode: Mode,
    pub cap: u32,
    pub overflow: Overflow,
    pub debounce_ms: u64,
    /// A message is never held back for longer than this.
    pub wait_ms_max: u64,
    pub max_concurrent: u32,
}

/// What the configuration says about sessions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionsConfig {
    pub defaults: Settings,
    pub lanes: std::collections::BTreeMap<Name, Settings>,
    /// In order; a later match counts over an earlier one.
    pub patterns: Vec<(Name, Settings)>,
    /// Thousandths: from this share of its context window on, a session runs one task at a time.
    pub context_milli: u32,
}

impl Default for SessionsConfig {
    fn default() -> Self {
        let (defaults, lanes) = (Settings::default(), Default::default());
        SessionsConfig { defaults, lanes, patterns: Vec::new(), context_milli: 600 }
    }
}

impl SessionsConfig {
    /// The session's own settings, over those of every pattern its key matches, its lane's, the general ones.
    pub fn rules(&self, key: &str, lane: &str, own: Settings) -> Rules {
        let lane = self.lanes.get(lane).copied().unwrap_or_default();
        let below = lane.over(self.defaults);
        let matching = self.patterns.iter().filter(|(pattern, _)| matches(pattern, key));
        let below = matching.fold(below, |below, (_, settings)| settings.over(below));
        own.over(below).rules()
    }
}

/// `*` stands for any number of characters, everything else for itself.
pub fn matches(pattern: &str, key: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = key.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// How full the model's context was when a run last said so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    pub tokens: u64,
    pub window: u64,
}

impl Context {
    pub fn is_over(&self, milli: u32) -> bool {
        let share = u128::from(self.tokens) * 1000;
        self.window > 0 && share >= u128::from(self.window) * u128::from(milli)
    }
}

/// The row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    pub id: SessionId,
    pub key: Name,
    /// Its own settings, from submits and `PUT`.
    pub own: Settings,
    /// The lane of its latest message: whose defaults count.
    pub lane: Name,
    /// Raised by a reset.
    pub generation: u32,
    /// Members before this sequence number belong to an older generation.
    pub reset_seq: u64,
    /// Members before this sequence number, and before this number in line, are being stopped and never start. An
    /// interrupt moves only the second: who has not joined yet is not concerned.
    pub stopped_seq: u64,
    pub stopped_line: u64,
    /// An interrupt waits until every seat is given back.
    pub is_draining: bool,
    /// Messages that were sent before this are refused.
    pub cutoff: Option<WallMs>,
    pub context: Option<Context>,
    pub n_live: u32,
    pub n_held: u32,
    pub n_seated: u32,
    /// In line, without a seat; debouncing ones included.
    pub n_line: u32,
    pub n_debouncing: u32,
    /// The number the next member in line gets.
    pub next_line: u64,
    /// The last in line, while it may take further messages in.
    pub gatherer: Option<TaskId>,
    /// Messages dropped so far with a line for the next run, and how many of these lines were handed on.
    pub n_dropped: u64,
    pub n_told: u64,
    /// No live member has a lower sequence number.
    pub live_from: u64,
    pub n_messages: u64,
    pub created_at: WallMs,
    pub last_at: WallMs,
}

impl Session {
    pub fn new(id: SessionId, key: Name, lane: Name, now_ms: WallMs) -> Session {
        Session {
            id,
            key,
            own: Settings::default(),
            lane,
            generation: 0,
            reset_seq: 0,
            stopped_seq: 0,
            stopped_line: 0,
            is_draining: false,
            cutoff: None,
            context: None,
            n_live: 0,
            n_held: 0,
            n_seated: 0,
            n_line: 0,
            n_debouncing: 0,
            next_line: 1,
            gatherer: None,
            n_dropped: 0,
            n_told: 0,
            live_from: id.0,
            n_messages: 0,
            created_at: now_ms,
            last_at: now_ms,
        }
    }

    /// Its settings under this configuration, with one task at a time when its context is nearly full.
    pub fn rules(&self, config: &SessionsConfig) -> Rules {
        let mut rules = config.rules(&self.key, &self.lane, self.own);
        if self.context.is_some_and(|context| context.is_over(config.context_milli)) {
            rules.max_concurrent = 1;
        }
        rules
    }

    /// Seats that may be taken now.
    pub fn n_free(&self, rules: &Rules) -> u32 {
        match self.is_draining && self.n_seated > 0 {
            true => 0,
            false => rules.max_concurrent.saturating_sub(self.n_seated),
        }
    }

    /// In line, without those that were stopped and have yet to leave it.
    pub fn n_standing(&self) -> u32 {
        let n_newer = self.next_line.saturating_sub(self.stopped_line);
        self.n_line.min(u32::try_from(n_newer).unwrap_or(u32::MAX))
    }

    /// Live members that neither run nor debounce.
    pub fn n_waiting(&self) -> u32 {
        self.n_live - self.n_held - self.n_debouncing
    }
}

/// A task's membership in its session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    pub session: SessionId,
    /// Its number in the line; 0 before it has joined.
    pub line: u64,
    pub seated: bool,
    /// Others may be merged into it: it waited for no other task, and belongs to no batch.
    pub gathers: bool,
    /// Messages that were merged into it, beyond its own, and their bytes.
    pub n_merged: u32,
    pub merged_bytes: u64,
    /// Its debounce ends here, in elapsed time, and is never extended beyond the second.
    pub debounced_until: SteadyMs,
    pub gathers_until: SteadyMs,
    /// The dropped messages it tells of: from, to in the session's count.
    pub told: (u64, u64),
    /// Message mode it was given for itself, in the place of the session's.
    pub as_mode: Option<Mode>,
}

impl Member {
    pub fn new(session: SessionId) -> Member {
        Member {
            session,
            line: 0,
            seated: false,
            gathers: false,
            n_merged: 0,
            merged_bytes: 0,
            debounced_until: 0,
            gathers_until: 0,
            told: (0, 0),
            as_mode: None,
        }
    }

    /// In line, without a seat.
    pub fn in_line(&self) -> bool {
        self.line > 0 && !self.seated
    }
}

/// A message that was merged into a task, beyond the task's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub task: TaskId,
    /// The task's sequence number, and the message's place in the task: 1 for the first that was merged.
    pub task_seq: u64,
    pub n: u32,
    pub at_ms: WallMs,
    pub sent_at: Option<WallMs>,
    /// Its idempotency key.
    pub key: Option<Name>,
}

/// Tokens a run says it has used. Nothing is added up here: the last report of an attempt counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    pub input_tokens: Option<u64>,
    pub output_tokens: Option<u64>,
    pub context_tokens: Option<u64>,
    pub context_window: Option<u64>,
}

impl Usage {
    pub fn context(&self) -> Option<Context> {
        Some(Context { tokens: self.context_tokens?, window: self.context_window? })
    }
}

/// Messages one task carries, its own included, and the bytes of those that were merged.
pub const MESSAGES_MAX: u32 = 1000;
pub const MESSAGE_BYTES_MAX: u64 = 1 << 20;
/// Lines about dropped messages that one run is told; of more, the latest.
pub const DROPPED_TOLD_MAX: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, key, fits) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("", "", true),
            ("*", "", true),
            ("agent:*:group:*", "agent:x:group:7", true),
            ("agent:*:group:*", "agent:x:direct:7", false),
            ("*:cron:*", "agent:k:cron:9", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*bc", "abcbc", true),
        ] {
            assert_eq!(matches(pattern, key), fits, "{pattern} and {key}");
        }
    }

    #[test]
    fn the_nearest_layer_that_says_something_counts() {
        let cap = |n| Settings { cap: Some(n), ..Settings::default() };
        let mut config = SessionsConfig { defaults: cap(1), ..SessionsConfig::default() };
        assert_eq!(config.rules("k", "main", Settings::default()).cap, 1);
        config.lanes.insert("main".into(), cap(2));
        assert_eq!(config.rules("k", "main", Settings::default()).cap, 2);
        config.patterns = vec![("k*".into(), cap(3)), ("*".into(), Settings::default())];
        assert_eq!(config.rules("k", "main", Settings::default()).cap, 3);
        assert_eq!(config.rules("k", "main", cap(4)).cap, 4);
        assert_eq!(config.rules("x", "team", Settings::default()).cap, 1);
    }

    #[test]
    fn a_debounce_without_a_maximum_waits_five_of_them() {
        let rules = |debounce_ms, wait_ms_max| Settings { debounce_ms, wait_ms_max, ..Settings::default() }.rules();
        assert_eq!(rules(Some(200), None).wait_ms_max, 1000);
        assert_eq!(rules(Some(200), Some(300)).wait_ms_max, 300);
        assert_eq!(rules(None, None).wait_ms_max, 0);
    }
}
