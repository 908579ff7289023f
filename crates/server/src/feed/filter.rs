//! What a client wants to hear of, and what it may.

use runyard_core::event::{Happening, Subject, TaskFacts};
use runyard_core::ids::{BatchId, ScheduleId, TaskId};
use runyard_core::schedule::ScheduleFacts;

use crate::access::Binding;

/// The only event that is not of a commit: it is told as it comes, and kept nowhere.
pub const PROGRESS: &str = "task.progress";

#[derive(Clone, Default, Debug)]
pub struct EventFilter {
    /// Names such as `task.completed`, or prefixes such as `task.*`; empty is all.
    pub types: Vec<String>,
    pub agent: Option<String>,
    pub lane: Option<String>,
    pub task: Option<TaskId>,
    pub batch: Option<BatchId>,
    pub session: Option<String>,
    pub schedule: Option<ScheduleId>,
    /// Whose the client is; it has been checked that `task`, `batch` and `schedule`, where they are named, are theirs
    /// too.
    pub bound_to: Binding,
}

impl EventFilter {
    pub fn matches(&self, happening: &Happening) -> bool {
        self.matches_type(happening.kind.as_str())
            && match &happening.subject {
                Subject::Task(facts) => self.matches_task(facts),
                Subject::Batch(batch) => self.is_about_batches(batch.id) && self.is_free_or(self.batch.is_some()),
                Subject::Session(session) => {
                    self.is_about_sessions(&session.key) && self.bound_to.allows_session(&session.key)
                }
                Subject::Schedule(facts) => self.matches_schedule(facts),
                Subject::Worker { .. } | Subject::Config | Subject::Node { .. } => {
                    self.is_about_all() && self.is_free_or(false)
                }
            }
    }

    pub(super) fn matches_type(&self, name: &str) -> bool {
        let is_it = |wanted: &String| match wanted.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => wanted == name,
        };
        self.types.is_empty() || self.types.iter().any(is_it)
    }

    fn matches_task(&self, facts: &TaskFacts) -> bool {
        self.bound_to.allows_agent(&facts.agent)
            && self.agent.as_deref().is_none_or(|agent| *agent == *facts.agent)
            && self.lane.as_deref().is_none_or(|lane| *lane == *facts.lane)
            && self.task.is_none_or(|task| task == facts.task)
            && self.batch.is_none_or(|batch| Some(batch) == facts.batch)
            && self.session.as_deref().is_none_or(|session| Some(session) == facts.session.as_deref())
            && self.schedule.is_none()
    }

    fn is_about_batches(&self, id: BatchId) -> bool {
        self.is_about_no_task()
            && self.session.is_none()
            && self.schedule.is_none()
            && self.batch.is_none_or(|batch| batch == id)
    }

    fn is_about_sessions(&self, key: &str) -> bool {
        self.is_about_no_task()
            && self.batch.is_none()
            && self.schedule.is_none()
            && self.session.as_deref().is_none_or(|session| session == key)
    }

    /// An event of a version that did not say whose it was is for a bound client where it was checked before.
    fn matches_schedule(&self, facts: &ScheduleFacts) -> bool {
        let is_own = facts.agent.as_ref().is_some_and(|agent| self.bound_to.allows_agent(agent));
        self.is_free_or(is_own || self.schedule.is_some())
            && self.agent.as_deref().is_none_or(|agent| facts.agent.as_deref() == Some(agent))
            && self.lane.is_none()
            && self.task.is_none()
            && self.batch.is_none()
            && self.session.is_none()
            && self.schedule.is_none_or(|schedule| schedule == facts.schedule)
    }

    fn is_about_all(&self) -> bool {
        self.is_about_no_task() && self.batch.is_none() && self.session.is_none() && self.schedule.is_none()
    }

    fn is_about_no_task(&self) -> bool {
        self.agent.is_none() && self.lane.is_none() && self.task.is_none()
    }

    /// What does not say whose it is, is for a bound client only where it was checked before.
    fn is_free_or(&self, checked: bool) -> bool {
        checked || !self.bound_to.is_bound()
    }

    /// Progress knows its task only.
    pub(super) fn matches_progress(&self, task: TaskId) -> bool {
        self.matches_type(PROGRESS)
            && self.is_free_or(self.task.is_some())
            && self.agent.is_none()
            && self.lane.is_none()
            && self.batch.is_none()
            && self.session.is_none()
            && self.schedule.is_none()
            && self.task.is_none_or(|wanted| wanted == task)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use runyard_core::event::HappeningKind;
    use runyard_core::session::{Session, SessionId};
    use runyard_core::task::Tier;

    use super::*;

    pub fn happening(kind: HappeningKind, agent: &str, task: u128) -> Happening {
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
        let bound = EventFilter { bound_to: Binding::to(Some(&["b".to_owned()])), ..EventFilter::default() };
        assert!(bound.matches(&happening(HappeningKind::TaskCompleted, "b", 1)));
        assert!(![&event, &config, &stopped].into_iter().any(|foreign| bound.matches(foreign)));
        let fired = |agent: Option<&str>| {
            let facts = ScheduleFacts {
                schedule: ScheduleId(1),
                name: "nightly".into(),
                agent: agent.map(Into::into),
                run: Some(1),
                task: None,
                scheduled_for: None,
                n_failed: 0,
                reason: "".into(),
            };
            Happening { kind: HappeningKind::ScheduleFired, at_ms: 1, subject: Subject::Schedule(Box::new(facts)) }
        };
        let of_agent = filter(&["schedule.*"], Some("b"), None);
        for (agent, is_bound, is_of_agent) in [(Some("b"), true, true), (Some("a"), false, false), (None, false, false)]
        {
            assert_eq!((bound.matches(&fired(agent)), of_agent.matches(&fired(agent))), (is_bound, is_of_agent));
            assert!(
                EventFilter { schedule: Some(ScheduleId(1)), ..bound.clone() }.matches(&fired(agent)),
                "checked before"
            );
            assert!(filter(&[], None, None).matches(&fired(agent)));
        }
        assert!(!bound.matches_progress(TaskId(1)));
        assert!(EventFilter { task: Some(TaskId(1)), ..bound }.matches_progress(TaskId(1)));
    }
}
