//! The tasks: what each does, and how it may end.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::dice::Dice;
use crate::process::Grounds;

const AGENTS: usize = 12;
const SESSIONS: usize = 12;

/// One task of the test. Its number stands in its files; its id is the server's.
#[derive(Clone, Debug)]
pub struct Work {
    pub number: usize,
    pub way: Way,
    beats: u64,
    session: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Way {
    Plain,
    /// Fails twice before it succeeds.
    Flaky,
    /// Does not hear the request to stop.
    Deaf,
    /// Leaves a child in a session of its own.
    Leaves,
    LeavesSilently,
    LeavesUnmarked,
    ForksTwice,
    /// May be cancelled before it is done.
    MaybeCancelled,
    /// Never ends by itself: it is cancelled.
    Cancelled,
    CancelledDeaf,
    /// Never ends by itself: its time runs out.
    TimesOut,
    /// Never says a word.
    Stalls,
}

const WAYS: [Way; 16] = [
    Way::Plain,
    Way::Plain,
    Way::Plain,
    Way::Plain,
    Way::Flaky,
    Way::Flaky,
    Way::Deaf,
    Way::Leaves,
    Way::LeavesSilently,
    Way::LeavesUnmarked,
    Way::ForksTwice,
    Way::MaybeCancelled,
    Way::Cancelled,
    Way::CancelledDeaf,
    Way::TimesOut,
    Way::Stalls,
];

impl Way {
    fn word(self) -> &'static str {
        match self {
            Way::Plain | Way::MaybeCancelled => "plain",
            Way::Flaky => "flaky",
            Way::Deaf => "deaf",
            Way::Leaves => "leaves",
            Way::LeavesSilently => "leaves-silently",
            Way::LeavesUnmarked => "leaves-unmarked",
            Way::ForksTwice => "forks-twice",
            Way::Cancelled | Way::TimesOut | Way::Stalls => "endless",
            Way::CancelledDeaf => "endless-deaf",
        }
    }

    pub fn is_to_be_cancelled(self) -> bool {
        matches!(self, Way::MaybeCancelled | Way::Cancelled | Way::CancelledDeaf)
    }

    /// Retries and losses are as good as unlimited here, so that chance decides nothing about the end.
    pub fn may_end_as(self, state: &str) -> bool {
        match self {
            Way::MaybeCancelled => matches!(state, "completed" | "cancelled"),
            Way::Cancelled | Way::CancelledDeaf => state == "cancelled",
            Way::TimesOut | Way::Stalls => state == "failed",
            _ => state == "completed",
        }
    }
}

impl Work {
    pub fn draw(number: usize, dice: &mut Dice) -> Work {
        let way = WAYS[number % WAYS.len()];
        let session = dice.one_in(6).then(|| dice.between(0..SESSIONS as u64) as usize);
        Work { number, way, beats: dice.between(1..16), session }
    }

    pub fn body(&self, grounds: &Grounds) -> Value {
        let session = self.session.map_or("none".to_owned(), |session| session.to_string());
        let (number, beats) = (self.number.to_string(), self.beats.to_string());
        let (script, home) = (grounds.script(), grounds.home.display().to_string());
        let argv = json!(["sh", script, home, number, self.way.word(), beats, session]);
        let mut body = json!({
            "kind": "process",
            "agent": format!("agent-{}", self.number % AGENTS),
            "payload": {"argv": argv},
            "retry": {"maxRetries": 1000, "backoffMs": 20, "maxBackoffMs": 200},
        });
        if let Some(session) = self.session {
            body["session"] = json!({"key": format!("chat:{session}"), "mode": "queue"});
        }
        match self.way {
            Way::TimesOut => (body["timeoutMs"], body["retry"]["maxRetries"]) = (json!(700), json!(1)),
            Way::Stalls => (body["stallMs"], body["retry"]["maxRetries"]) = (json!(700), json!(1)),
            _ => {}
        }
        body
    }
}

/// What a task has written down: each line is of one attempt.
pub struct Diary {
    lines: Vec<(u32, String)>,
}

impl Diary {
    pub fn read(grounds: &Grounds, number: usize) -> Diary {
        let text = std::fs::read_to_string(grounds.diaries().join(number.to_string())).unwrap_or_default();
        let lines = text.lines().map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(words.len(), 3, "a line of task {number}: {line:?}");
            (words[0].parse().unwrap(), words[2].to_owned())
        });
        Diary { lines: lines.collect() }
    }

    pub fn has(&self, word: &str) -> bool {
        self.lines.iter().any(|(_, said)| said == word)
    }

    /// How often each attempt has begun.
    pub fn starts(&self) -> BTreeMap<u32, usize> {
        let mut starts = BTreeMap::new();
        for (attempt, _) in self.lines.iter().filter(|(_, said)| said == "start") {
            *starts.entry(*attempt).or_default() += 1;
        }
        starts
    }
}
