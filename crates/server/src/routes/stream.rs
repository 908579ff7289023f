//! The event stream: from the log up to now, then live, without gap or duplicate.
//!
//! The subscription to live commits begins before the log is read, so whatever is committed meanwhile is seen at least
//! once; sequence numbers make it exactly once. A subscriber that falls behind, or that sees a gap (a tick that failed
//! behind its commit tells nobody), reads the log again.

use std::sync::Arc;

use axum::response::sse::Event as SseEvent;
use runyard_core::event::{Happening, Subject, TaskFacts};
use runyard_core::ids::{BatchId, TaskId};
use tokio::sync::{broadcast, mpsc};

use crate::app::App;
use crate::clock;
use crate::handle::Commit;
use crate::problem::{Error, Invalid};
use crate::view;

/// Commits read from the log in one go.
const LOG_CHUNK: usize = 256;
pub const PROGRESS: &str = "task.progress";

/// The place of one event: its commit, and its index in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Position {
    pub seq: u64,
    pub index: u64,
}

impl Position {
    pub fn parse(text: &str) -> Result<Position, Invalid> {
        let parts = text.split_once('-').and_then(|(seq, index)| Some((seq.parse().ok()?, index.parse().ok()?)));
        let (seq, index) = parts.ok_or_else(|| Invalid::new("Last-Event-ID", "an event id looks like 1234-0"))?;
        Ok(Position { seq, index })
    }
}

#[derive(Clone, Default, Debug)]
pub struct EventFilter {
    /// Names such as `task.completed`, or prefixes such as `task.*`; empty is all.
    pub types: Vec<String>,
    pub agent: Option<String>,
    pub lane: Option<String>,
    pub task: Option<TaskId>,
    pub batch: Option<BatchId>,
    pub session: Option<String>,
}

impl EventFilter {
    pub fn matches(&self, happening: &Happening) -> bool {
        self.matches_type(happening.kind.as_str())
            && match &happening.subject {
                Subject::Task(facts) => self.matches_task(facts),
                Subject::Batch(batch) => self.is_about_batches(batch.id),
                Subject::Session(session) => self.is_about_sessions(&session.key),
                Subject::Worker { .. } | Subject::Config => self.is_about_all(),
            }
    }

    fn matches_type(&self, name: &str) -> bool {
        let is_it = |wanted: &String| match wanted.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => wanted == name,
        };
        self.types.is_empty() || self.types.iter().any(is_it)
    }

    fn matches_task(&self, facts: &TaskFacts) -> bool {
        self.agent.as_deref().is_none_or(|agent| *agent == *facts.agent)
            && self.lane.as_deref().is_none_or(|lane| *lane == *facts.lane)
            && self.task.is_none_or(|task| task == facts.task)
            && self.batch.is_none_or(|batch| Some(batch) == facts.batch)
            && self.session.as_deref().is_none_or(|session| Some(session) == facts.session.as_deref())
    }

    fn is_about_batches(&self, id: BatchId) -> bool {
        self.is_about_no_task() && self.session.is_none() && self.batch.is_none_or(|batch| batch == id)
    }

    fn is_about_sessions(&self, key: &str) -> bool {
        self.is_about_no_task() && self.batch.is_none() && self.session.as_deref().is_none_or(|session| session == key)
    }

    fn is_about_all(&self) -> bool {
        self.is_about_no_task() && self.batch.is_none() && self.session.is_none()
    }

    fn is_about_no_task(&self) -> bool {
        self.agent.is_none() && self.lane.is_none() && self.task.is_none()
    }

    /// Progress knows its task only.
    fn matches_progress(&self, task: TaskId) -> bool {
        self.matches_type(PROGRESS)
            && self.agent.is_none()
            && self.lane.is_none()
            && self.batch.is_none()
            && self.session.is_none()
            && self.task.is_none_or(|wanted| wanted == task)
    }
}

/// Feeds one client until it leaves or the server stops.
pub struct Pump {
    pub app: Arc<App>,
    pub filter: EventFilter,
    pub to: mpsc::Sender<SseEvent>,
    /// The last event the client has, or is not interested in.
    pub at: Position,
}

/// The client is gone.
struct Gone;

impl Pump {
    /// Where a stream begins: behind `last`, or at the end of the log. True when the client missed something for good.
    pub async fn start(app: &App, last: Option<Position>) -> Result<(Position, bool), Error> {
        let range = app.read(|reader| reader.happenings_range()).await?;
        let end = range.map_or(Position { seq: 0, index: u64::MAX }, |(_, seq)| Position { seq, index: u64::MAX });
        let Some(last) = last else { return Ok((end, false)) };
        match range {
            Some((first, _)) if last.seq + 1 < first => Ok((Position { seq: first - 1, index: u64::MAX }, true)),
            // An id from the future belongs to another store, or to one that was restored from a backup.
            _ if last.seq > end.seq => Ok((end, true)),
            _ => Ok((last, false)),
        }
    }

    pub async fn run(mut self, mut commits: broadcast::Receiver<Arc<Commit>>) {
        let mut progress = self.app.worker.subscribe_progress();
        if self.catch_up().await.is_err() {
            return;
        }
        let (stop, to) = (self.app.stop.clone(), self.to.clone());
        loop {
            let step = tokio::select! {
                () = stop.cancelled() => return,
                () = to.closed() => return,
                commit = commits.recv() => match commit {
                    Ok(commit) => self.send_live(&commit).await,
                    Err(broadcast::error::RecvError::Lagged(_)) => self.catch_up().await,
                    Err(broadcast::error::RecvError::Closed) => return,
                },
                event = progress.recv() => match event {
                    Ok(event) => self.send_progress(event).await,
                    // What was missed is overtaken by what comes.
                    Err(broadcast::error::RecvError::Lagged(_)) => Ok(()),
                    Err(broadcast::error::RecvError::Closed) => return,
                },
            };
            if step.is_err() {
                return;
            }
        }
    }

    /// Reads the log from where the client is to its end.
    async fn catch_up(&mut self) -> Result<(), Gone> {
        loop {
            // The commit the client is in the middle of is read again for the rest of it.
            let after = if self.at.index == u64::MAX { self.at.seq } else { self.at.seq.saturating_sub(1) };
            let chunk = self.app.read(move |reader| reader.happenings(after, LOG_CHUNK)).await.map_err(|_| Gone)?;
            let is_last = chunk.len() < LOG_CHUNK;
            for (seq, happenings) in chunk {
                self.send(seq, &happenings).await?;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Commits with happenings are numbered without gaps, so a number left out is a commit that was not told.
    async fn send_live(&mut self, commit: &Commit) -> Result<(), Gone> {
        if commit.seq > self.at.seq + 1 {
            self.catch_up().await?;
        }
        self.send(commit.seq, &commit.happenings).await
    }

    async fn send(&mut self, seq: u64, happenings: &[Happening]) -> Result<(), Gone> {
        for (index, happening) in happenings.iter().enumerate() {
            let position = Position { seq, index: index as u64 };
            if position > self.at && self.filter.matches(happening) {
                self.to.send(sse_event(position, happening)).await.map_err(|_| Gone)?;
            }
        }
        self.at = self.at.max(Position { seq, index: u64::MAX });
        Ok(())
    }

    async fn send_progress(&self, event: runyard_worker::ProgressEvent) -> Result<(), Gone> {
        if !self.filter.matches_progress(event.task) {
            return Ok(());
        }
        let view = view::progress_event(PROGRESS, clock::wall_ms(), event);
        let body = serde_json::to_string(&view).expect("an event is plain data");
        let event = SseEvent::default().event(PROGRESS).data(body);
        self.to.send(event).await.map_err(|_| Gone)
    }
}

fn sse_event(position: Position, happening: &Happening) -> SseEvent {
    let id = format!("{}-{}", position.seq, position.index);
    let view = view::event_view(id.clone(), happening);
    let body = serde_json::to_string(&view).expect("an event is plain data");
    SseEvent::default().id(id).event(happening.kind.as_str()).data(body)
}

#[cfg(test)]
mod tests {
    use runyard_core::event::HappeningKind;
    use runyard_core::session::{Session, SessionId};
    use runyard_core::task::Tier;

    use super::*;

    fn happening(kind: HappeningKind, agent: &str, task: u128) -> Happening {
        let facts = TaskFacts {
            task: TaskId(task),
            agent: agent.into(),
            lane: "main".into(),
            kind: "noop".into(),
            tier: Tier::Normal,
            batch: None,
            session: Some("s".into()),
            attempt: 1,
            class: None,
            reason: "".into(),
            elapsed_ms: None,
        };
        Happening { kind, at_ms: 1, subject: Subject::Task(facts) }
    }

    #[test]
    fn filters_choose_by_type_and_subject() {
        let event = happening(HappeningKind::TaskCompleted, "a", 1);
        let filter = |types: &[&str], agent: Option<&str>, task: Option<u128>| EventFilter {
            types: types.iter().map(|name| name.to_string()).collect(),
            agent: agent.map(str::to_owned),
            task: task.map(TaskId),
            ..EventFilter::default()
        };
        assert!(filter(&[], None, None).matches(&event));
        assert!(filter(&["task.completed"], Some("a"), Some(1)).matches(&event));
        assert!(filter(&["task.*"], None, None).matches(&event));
        assert!(!filter(&["task.failed", "batch.*"], None, None).matches(&event));
        assert!(!filter(&[], Some("b"), None).matches(&event));
        assert!(!filter(&[], None, Some(2)).matches(&event));
        let config = Happening { kind: HappeningKind::ConfigChanged, at_ms: 1, subject: Subject::Config };
        assert!(filter(&[], None, None).matches(&config) && !filter(&[], Some("a"), None).matches(&config));
        let of_session = |key: &str| EventFilter { session: Some(key.to_owned()), ..EventFilter::default() };
        assert!(of_session("s").matches(&event) && !of_session("t").matches(&event));
        let session = Session::new(SessionId(1), "s".into(), "main".into(), 1);
        let subject = Subject::Session(Box::new(session));
        let stopped = Happening { kind: HappeningKind::SessionStopped, at_ms: 1, subject };
        assert!(of_session("s").matches(&stopped) && !of_session("t").matches(&stopped));
        assert!(
            filter(&["session.*"], None, None).matches(&stopped) && !filter(&[], Some("a"), None).matches(&stopped)
        );
        assert!(!of_session("s").matches(&config));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_commit_that_was_not_told_is_read_from_the_log() {
        let dir = tempfile::tempdir().expect("a directory");
        let options =
            crate::ServeOptions { listen: Some("127.0.0.1:0".into()), ..crate::ServeOptions::new(dir.path()) };
        let server = crate::Server::start(options).await.expect("it starts");
        assert!(server.ready().await);
        let app = server.app();
        let filter = EventFilter { types: vec!["config.changed".into()], ..EventFilter::default() };
        let (at, _) = Pump::start(app, None).await.expect("it reads");
        let (to, mut sent) = mpsc::channel(8);
        let (commits, told) = broadcast::channel(8);
        let mut live = app.handle.commits();
        let pump = Pump { app: app.clone(), filter, to, at };
        // Nothing is in the log yet that the client does not have, so its first look finds nothing.
        let pump = tokio::spawn(pump.run(told));
        let mut last = None;
        for limit in [3, 4] {
            let change = serde_json::json!({ "lanes": { "main": limit } });
            app.patch_config(change.as_object().expect("an object").clone()).await.expect("patched");
            last = Some(live.recv().await.expect("told"));
        }
        commits.send(last.expect("two were told")).expect("the pump listens");
        for _ in 0..2 {
            let event = tokio::time::timeout(std::time::Duration::from_secs(30), sent.recv()).await;
            assert!(event.is_ok_and(|event| event.is_some()), "both are sent");
        }
        server.shutdown(std::time::Duration::ZERO).await;
        pump.await.expect("it ends with the server");
        assert!(sent.recv().await.is_none(), "and neither twice");
    }

    #[test]
    fn positions_are_ordered_by_commit_then_index() {
        let position = |text| Position::parse(text).expect("valid");
        assert!(position("2-0") > position("1-9") && position("1-10") > position("1-9"));
        assert!(Position::parse("17").is_err() && Position::parse("a-b").is_err());
    }
}
