//! Who is to be woken by what.
//!
//! A listener that names a task, a session, a batch or an agent is found by that name; only those who want something of
//! everything are asked one by one, and first by the kinds of events that are in a commit at all.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use runyard_core::event::{Happening, HappeningKind, Subject};
use runyard_core::ids::{BatchId, TaskId};
use runyard_core::name::Name;
use runyard_worker::ProgressEvent;
use tokio::sync::Notify;

use super::filter::EventFilter;
use super::{Commit, Feed, Page, Position};
use crate::app::App;
use crate::problem::Error;

/// Progress that waits for one client; the oldest is overtaken.
const PROGRESS_MAX: usize = 16;
/// No news.
const NONE: u64 = u64::MAX;

#[derive(Default)]
pub struct Listeners {
    by_topic: HashMap<Topic, Vec<Arc<Listener>>>,
}

/// The narrowest thing that a filter names.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Topic {
    Task(TaskId),
    Session(Name),
    Batch(BatchId),
    Agent(Name),
    All,
}

struct Listener {
    filter: Arc<EventFilter>,
    topic: Topic,
    /// The kinds that its filter lets through, a bit each.
    kinds: u64,
    /// The first commit with something for it that it does not know of.
    from: AtomicU64,
    progress: Mutex<VecDeque<ProgressEvent>>,
    wake: Notify,
}

/// One who listens, until it is dropped.
pub struct Ear {
    feed: Arc<Feed>,
    listener: Arc<Listener>,
}

pub struct News {
    /// In no commit before this one is anything for it; 0 where that is not known.
    pub from: Option<u64>,
    pub progress: VecDeque<ProgressEvent>,
}

impl Ear {
    pub(super) fn new(feed: Arc<Feed>, filter: EventFilter) -> Ear {
        let listener = Arc::new(Listener {
            topic: Topic::of(&filter),
            kinds: filter.kinds(),
            filter: Arc::new(filter),
            from: AtomicU64::new(NONE),
            progress: Mutex::default(),
            wake: Notify::new(),
        });
        feed.listeners().by_topic.entry(listener.topic.clone()).or_default().push(listener.clone());
        Ear { feed, listener }
    }

    /// What is behind `at` for its filter, as far as one page goes.
    pub async fn page(&self, app: &App, at: Position) -> Result<Page, Error> {
        self.feed.page(app, &self.listener.filter, at).await
    }

    /// Returns when there is something since the last call.
    pub async fn news(&self) -> News {
        loop {
            let from = Some(self.listener.from.swap(NONE, Ordering::SeqCst)).filter(|from| *from != NONE);
            let progress = std::mem::take(&mut *self.listener.progress());
            if from.is_some() || !progress.is_empty() {
                return News { from, progress };
            }
            self.listener.wake.notified().await;
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let mut listeners = self.feed.listeners();
        let topic = &self.listener.topic;
        let Some(all) = listeners.by_topic.get_mut(topic) else { return };
        all.retain(|listener| !Arc::ptr_eq(listener, &self.listener));
        if all.is_empty() {
            listeners.by_topic.remove(topic);
        }
    }
}

impl Listener {
    fn tell(&self, seq: u64) {
        self.from.fetch_min(seq, Ordering::SeqCst);
        self.wake.notify_one();
    }

    fn tell_progress(&self, event: &ProgressEvent) {
        let mut progress = self.progress();
        if progress.len() >= PROGRESS_MAX {
            progress.pop_front();
        }
        progress.push_back(event.clone());
        drop(progress);
        self.wake.notify_one();
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, VecDeque<ProgressEvent>> {
        self.progress.lock().expect("no thread panics while it holds the progress")
    }
}

impl Listeners {
    pub fn tell(&self, commit: &Commit) {
        let kinds = commit.happenings.iter().fold(0, |kinds, happening| kinds | happening.kind.bit());
        let of_all = self.of(&Topic::All);
        for listener in of_all.iter().filter(|listener| listener.kinds & kinds != 0) {
            if commit.happenings.iter().any(|happening| listener.filter.matches(happening)) {
                listener.tell(commit.seq);
            }
        }
        if self.by_topic.len() == usize::from(!of_all.is_empty()) {
            return;
        }
        for happening in &commit.happenings {
            for topic in topics(happening) {
                let matching = self.of(&topic).iter().filter(|listener| listener.filter.matches(happening));
                matching.for_each(|listener| listener.tell(commit.seq));
            }
        }
    }

    /// What was committed is not known here: everybody has to look.
    pub fn tell_all(&self) {
        self.by_topic.values().flatten().for_each(|listener| listener.tell(0));
    }

    pub fn tell_progress(&self, event: &ProgressEvent) {
        for topic in [Topic::Task(event.task), Topic::All] {
            let matching = self.of(&topic).iter().filter(|listener| listener.filter.matches_progress(event.task));
            matching.for_each(|listener| listener.tell_progress(event));
        }
    }

    fn of(&self, topic: &Topic) -> &[Arc<Listener>] {
        self.by_topic.get(topic).map_or(&[], Vec::as_slice)
    }
}

impl Topic {
    fn of(filter: &EventFilter) -> Topic {
        let EventFilter { task, session, batch, agent, .. } = filter;
        let session = session.as_deref().map(|key| Topic::Session(Name::new(key)));
        let agent = agent.as_deref().map(|agent| Topic::Agent(Name::new(agent)));
        task.map(Topic::Task).or(session).or(batch.map(Topic::Batch)).or(agent).unwrap_or(Topic::All)
    }
}

/// Where those who may want it are found, but for those who want something of everything.
fn topics(happening: &Happening) -> impl Iterator<Item = Topic> {
    let topics = match &happening.subject {
        Subject::Task(facts) => [
            Some(Topic::Task(facts.task)),
            Some(Topic::Agent(facts.agent.clone())),
            facts.session.clone().map(Topic::Session),
            facts.batch.map(Topic::Batch),
        ],
        Subject::Batch(batch) => [Some(Topic::Batch(batch.id)), None, None, None],
        Subject::Session(session) => [Some(Topic::Session(session.key.clone())), None, None, None],
        Subject::Schedule(facts) => [facts.agent.clone().map(Topic::Agent), None, None, None],
        Subject::Worker { .. } | Subject::Config | Subject::Node { .. } => [const { None }; 4],
    };
    topics.into_iter().flatten()
}

impl EventFilter {
    fn kinds(&self) -> u64 {
        let wanted = HappeningKind::ALL.into_iter().filter(|kind| self.matches_type(kind.as_str()));
        wanted.fold(0, |kinds, kind| kinds | kind.bit())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use runyard_core::session::{Session, SessionId};

    use super::*;
    use crate::feed::filter::tests::happening;

    fn filters() -> Vec<(&'static str, EventFilter)> {
        let none = EventFilter::default;
        vec![
            ("all", none()),
            ("task", EventFilter { task: Some(TaskId(1)), ..none() }),
            ("agent", EventFilter { agent: Some("a".into()), ..none() }),
            ("session", EventFilter { session: Some("s".into()), ..none() }),
            ("batch", EventFilter { batch: Some(BatchId(1)), ..none() }),
            ("lane", EventFilter { lane: Some("main".into()), ..none() }),
            ("config", EventFilter { types: vec!["config.*".into()], ..none() }),
            ("both", EventFilter { task: Some(TaskId(1)), agent: Some("b".into()), ..none() }),
        ]
    }

    fn told(ears: &[(&'static str, Ear)]) -> Vec<&'static str> {
        let told = ears.iter().filter(|(_, ear)| ear.news().now_or_never().is_some());
        told.map(|(name, _)| *name).collect()
    }

    #[test]
    fn each_commit_wakes_those_whose_filter_lets_something_through_and_nobody_else() {
        let feed = Arc::new(Feed::default());
        let ears: Vec<_> = filters().into_iter().map(|(name, filter)| (name, feed.listen(filter))).collect();
        let of_session = Session::new(SessionId(1), "s".into(), "main".into(), 1);
        let subjects = [
            happening(HappeningKind::TaskCompleted, "a", 1),
            happening(HappeningKind::TaskCompleted, "b", 2),
            happening(HappeningKind::TaskCompleted, "b", 1),
            Happening { kind: HappeningKind::ConfigChanged, at_ms: 1, subject: Subject::Config },
            Happening { kind: HappeningKind::SessionReset, at_ms: 1, subject: Subject::Session(Box::new(of_session)) },
        ];
        for (seq, subject) in (1..).zip(subjects) {
            // By the filters themselves, so that no index can hide what they let through.
            let matching = filters().into_iter().filter(|(_, filter)| filter.matches(&subject)).map(|(name, _)| name);
            let expected: Vec<_> = matching.collect();
            feed.listeners().tell(&Commit { seq, happenings: vec![subject] });
            assert_eq!(told(&ears), expected, "{seq}");
        }
        feed.listeners().tell_all();
        assert_eq!(told(&ears).len(), ears.len());
        drop(ears);
        assert!(feed.listeners().by_topic.is_empty());
    }

    #[test]
    fn the_first_of_several_commits_is_where_the_news_begin() {
        let feed = Arc::new(Feed::default());
        let ear = feed.listen(EventFilter { task: Some(TaskId(1)), ..EventFilter::default() });
        for (seq, task) in [(5, 2), (6, 1), (7, 1)] {
            let happenings = vec![happening(HappeningKind::TaskStarted, "a", task)];
            feed.listeners().tell(&Commit { seq, happenings });
        }
        assert_eq!(ear.news().now_or_never().map(|news| news.from), Some(Some(6)));
        assert!(ear.news().now_or_never().is_none());
    }

    #[test]
    fn progress_that_nobody_reads_is_overtaken() {
        let feed = Arc::new(Feed::default());
        let ear = feed.listen(EventFilter { task: Some(TaskId(1)), ..EventFilter::default() });
        for n in 0..100 {
            let event = |task| ProgressEvent { task: TaskId(task), attempt: n, progress: Default::default() };
            feed.listeners().tell_progress(&event(1));
            feed.listeners().tell_progress(&event(2));
        }
        let progress = ear.news().now_or_never().expect("there is some").progress;
        assert_eq!(progress.len(), PROGRESS_MAX);
        assert!(progress.iter().all(|event| event.task == TaskId(1)));
        assert_eq!(progress.back().map(|event| event.attempt), Some(99));
    }
}
