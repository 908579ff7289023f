//! What users do to sessions, what can be seen of them, and what must be true of every one after every tick.

use std::collections::BTreeMap;

use runyard_core::event::{Answer, Event, Report, SessionAct, SessionAnswer, Start};
use runyard_core::ids::TaskId;
use runyard_core::name::Name;
use runyard_core::session::{Context, Session, SessionId, SessionsConfig, Settings, Usage};
use runyard_core::task::{Delay, State, Task};
use runyard_store::store::{Filter, Reader, SessionFilter};

use super::new::New;
use super::{Bed, text};

impl Bed {
    /// Messages to a session, each with its own words, one after the other.
    pub fn say<const N: usize>(&mut self, new: &New, words: [&str; N]) -> [TaskId; N] {
        words.map(|word| self.submit(new.clone().says(word)))
    }

    /// A message that becomes part of a task that is there already: that task, and the number the message has in it.
    pub fn merge(&mut self, new: New) -> (TaskId, u32) {
        let accepted = self.try_submit(new).expect("there is room for the message");
        (accepted.id, accepted.merged.expect("the message is merged"))
    }

    fn act(&mut self, key: &str, act: SessionAct) -> SessionAnswer {
        let ticket = self.ticket();
        self.send([Event::Session { ticket, key: key.into(), act }]);
        match self.answer(ticket) {
            Answer::Session(answer) => answer,
            other => panic!("a request to a session is answered as one, not {other:?}"),
        }
    }

    /// Its own settings, all of them.
    pub fn set(&mut self, key: &str, change: impl FnOnce(&mut Settings)) -> Session {
        let mut settings = Settings::default();
        change(&mut settings);
        match self.act(key, SessionAct::Set(settings)) {
            SessionAnswer::Row(session) => *session,
            other => panic!("settings are answered with the session, not {other:?}"),
        }
    }

    pub fn set_context(&mut self, key: &str, tokens: u64, window: u64) -> Session {
        match self.act(key, SessionAct::Context(Context { tokens, window })) {
            SessionAnswer::Row(session) => *session,
            other => panic!("a context is answered with the session, not {other:?}"),
        }
    }

    /// The task that is stopped.
    pub fn stop(&mut self, key: &str) -> Option<TaskId> {
        match self.act(key, SessionAct::Stop) {
            SessionAnswer::Stopped { task } => task,
            other => panic!("a stop is answered with a task, not {other:?}"),
        }
    }

    /// How many ran, waited and debounced.
    pub fn stop_all(&mut self, key: &str) -> (u32, u32, u32) {
        stopped(self.act(key, SessionAct::StopAll)).0
    }

    pub fn reset(&mut self, key: &str) -> ((u32, u32, u32), Session) {
        stopped(self.act(key, SessionAct::Reset))
    }

    pub fn find_session(&self, key: &str) -> Option<Session> {
        self.store.session(key).expect("memory reads")
    }

    pub fn session(&self, key: &str) -> Session {
        self.find_session(key).expect("the session is stored")
    }

    /// Seated, in line, debouncing.
    pub fn line(&self, key: &str) -> (u32, u32, u32) {
        let session = self.session(key);
        (session.n_seated, session.n_line, session.n_debouncing)
    }

    /// What the configuration in force says about sessions.
    pub fn config_now(&self) -> &SessionsConfig {
        &self.config.sessions
    }

    /// How many of its messages may run at the same time, now.
    pub fn seats(&self, key: &str) -> u32 {
        self.session(key).rules(&self.config.sessions).max_concurrent
    }

    /// Everything its latest start carried: its own words, then those of the messages merged into it.
    pub fn carried(&self, id: TaskId) -> Vec<String> {
        let Start { spec, merged, .. } = self.start_of(id);
        spec.iter().chain(&merged).map(text).collect()
    }

    /// The dropped messages that its latest start told of.
    pub fn told(&self, id: TaskId) -> Vec<String> {
        self.start_of(id).dropped.iter().map(text).collect()
    }

    /// The messages merged into it, with their keys, as they can be read at any time.
    pub fn merged(&self, id: TaskId) -> Vec<(String, Option<Name>)> {
        let messages = self.store.messages(id).expect("memory reads");
        messages.into_iter().map(|(message, spec)| (text(&spec), message.key)).collect()
    }

    /// Messages handed to running tasks since the last look: to whom, and which.
    pub fn take_inputs(&mut self) -> Vec<(TaskId, TaskId)> {
        std::mem::take(&mut self.inputs).into_iter().map(|(target, message, _)| (target, message)).collect()
    }

    /// The running task has taken the message in.
    pub fn take_in(&mut self, target: TaskId, message: TaskId) {
        self.report(target, Report::InputTaken { message });
    }

    pub fn complete_with_context(&mut self, task: TaskId, tokens: u64, window: u64) {
        let usage = Usage {
            context_tokens: Some(tokens),
            context_window: Some(window),
            input_tokens: None,
            output_tokens: None,
        };
        self.report(task, Report::Completed { result: None, usage: Some(usage) });
    }
}

fn stopped(answer: SessionAnswer) -> ((u32, u32, u32), Session) {
    match answer {
        SessionAnswer::StoppedAll { running, waiting, debouncing, session } => {
            ((running, waiting, debouncing), *session)
        }
        other => panic!("a stop of all is answered with counts, not {other:?}"),
    }
}

// ── What must be true of every session ──────────────────────────────────────────────────────────────────────────────

impl Bed {
    pub(super) fn check_sessions(&self) {
        let mut members: BTreeMap<SessionId, Vec<Task>> = BTreeMap::new();
        let sessions = self.sessions();
        if !sessions.is_empty() {
            let docs = self.store.tasks(&Filter::default(), None, 1_000_000).expect("memory reads").items;
            let live = docs.into_iter().map(|doc| doc.task).filter(|task| !task.phase().is_terminal());
            live.for_each(|task| members.entry(task.session().unwrap_or(SessionId(0))).or_default().push(task));
        }
        for session in &sessions {
            self.check_session(session, members.get(&session.id).map_or(&[], Vec::as_slice));
        }
    }

    /// The row of a session counts its members as their own rows say.
    fn check_session(&self, session: &Session, members: &[Task]) {
        let n = |is: fn(&Task) -> bool| members.iter().filter(|task| is(task)).count() as u32;
        assert_eq!(session.n_live, n(|_| true), "live members of {}", session.key);
        assert_eq!(session.n_held, n(|task| task.phase().is_held()), "held members of {}", session.key);
        assert_eq!(session.n_line, n(Task::in_line), "members in line of {}", session.key);
        let seated = n(|task| task.member.expect("it is a member").seated);
        assert_eq!(session.n_seated, seated, "seated members of {}", session.key);
        let debouncing = n(|task| matches!(task.state, State::Scheduled(Delay::Debounce(_))));
        assert_eq!(session.n_debouncing, debouncing, "debouncing members of {}", session.key);
        let stands = |id| members.iter().any(|task| task.id == id && task.in_line());
        assert!(session.gatherer.is_none_or(stands), "who gathers stands in line: {session:?}");
        let is_last = |id| members.iter().all(|task| !task.in_line() || place_of(task) <= place_of(&self.task(id)));
        assert!(session.gatherer.is_none_or(is_last), "only the last in line gathers: {session:?}");
    }

    /// When nothing is left to do, nobody stands in line before a free seat, but for a head that waits for the rest of
    /// its burst or for the run it was handed to.
    pub(super) fn check_lines(&self) {
        for session in self.sessions() {
            let n_free = session.n_free(&session.rules(&self.config.sessions));
            let members = if n_free.min(session.n_line) > 0 { self.members(&session.key) } else { Vec::new() };
            let head = members.iter().filter(|task| task.in_line()).min_by_key(|task| place_of(task));
            let Some(head) = head else { continue };
            let is_debounced = matches!(head.state, State::Scheduled(Delay::Debounce(_)));
            let is_handed = head.steers.is_some_and(|target| self.state(target).is_held());
            assert!(is_debounced || is_handed, "a seat is free and {head:?} waits: {session:?}");
        }
    }

    fn sessions(&self) -> Vec<Session> {
        self.store.sessions(&SessionFilter::default(), None, 1_000_000).expect("memory reads").items
    }

    /// Keys of the sessions with live messages.
    pub fn busy(&self, prefix: &str) -> Vec<String> {
        let filter = SessionFilter { prefix: Some(prefix.into()), busy: true };
        let page = self.store.sessions(&filter, None, 1_000_000).expect("memory reads");
        page.items.into_iter().map(|session| session.key.to_string()).collect()
    }

    /// Live members.
    fn members(&self, key: &Name) -> Vec<Task> {
        let filter = Filter { session: Some(key.clone()), ..Filter::default() };
        let docs = self.store.tasks(&filter, None, 1_000_000).expect("memory reads").items;
        docs.into_iter().map(|doc| doc.task).filter(|task| !task.phase().is_terminal()).collect()
    }
}

/// Its number in its session's line.
fn place_of(task: &Task) -> u64 {
    task.member.map_or(0, |member| member.line)
}
