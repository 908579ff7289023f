//! What is counted, for `/metrics` and `/v1/stats`.
//!
//! The scheduler thread feeds this with each commit's happenings, 100 000 and more a second: only fixed handles are
//! touched there, no label is looked up and no text is made. What goes by agent and lane comes from the store's kept
//! counts when somebody asks, so it goes on over a restart.
//!
//! Of several nodes only the holder has commits to count. The others leave out what is counted with them: zeros would be
//! taken for an answer.

mod histogram;
mod scrape;
mod webhooks;
mod workers;

use std::time::Duration;

use axum::http::{Method, StatusCode};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use runyard_core::event::{Happening, HappeningKind, Subject, TaskFacts};
use runyard_core::task::Class;

pub use histogram::LogHistogram;
pub use scrape::{AGENTS_MAX, Seat};
use webhooks::WebhookMetrics;

pub struct Metrics {
    /// What every node counts for itself,
    registry: Registry,
    /// and what only one with a scheduler can count.
    scheduler: Registry,
    /// By [`HappeningKind`].
    happened: Vec<Counter>,
    /// By [`Class`].
    failures: Vec<Counter>,
    waits: Histogram,
    runs: Histogram,
    commits: Counter,
    commit_events: Histogram,
    commit_seconds: Histogram,
    /// By method, then by the first digit of the status.
    requests: Vec<[Counter; 5]>,
    connections_refused: Counter,
    requests_limited: Counter,
    #[cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "only the exporter counts it"))]
    spans_dropped: Counter,
    pub connections: Gauge,
    pub streams: Gauge,
    pub webhooks: WebhookMetrics,
    pub wait_ms: LogHistogram,
    pub run_ms: LogHistogram,
}

const METHODS: [Method; 6] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD];

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("runyard");
        let mut scheduler = Registry::with_prefix("runyard");
        let happened = HappeningKind::ALL.iter().map(|_| Counter::default()).collect::<Vec<_>>();
        let named = [
            (HappeningKind::TaskPreempted, "tasks_preempted", "Attempts stopped for a critical task"),
            (HappeningKind::TaskStalled, "tasks_stalled", "Attempts stopped because they were silent"),
            (HappeningKind::BatchFinished, "batches_finished", "Batches whose last task ended"),
            (HappeningKind::ScheduleFired, "schedule_runs_fired", "Runs of schedules that became tasks"),
            (HappeningKind::ScheduleSkipped, "schedule_runs_skipped", "Runs of schedules that found no place"),
            (HappeningKind::ScheduleMissed, "schedule_runs_missed", "Times that moments of a schedule were missed"),
            (HappeningKind::ScheduleFailing, "schedules_failing", "Schedules that began to fail"),
        ];
        for (kind, name, help) in named {
            scheduler.register(name, help, happened[kind as usize].clone());
        }
        Metrics {
            failures: failures(&mut scheduler),
            waits: seconds(&mut scheduler, "task_wait", "From ready to start"),
            runs: seconds(&mut scheduler, "task_run", "From start to end of an attempt"),
            commits: counter(&mut scheduler, "commits", "Transactions of the scheduler"),
            commit_events: commit_events(&mut scheduler),
            commit_seconds: seconds(&mut scheduler, "commit_duration", "Time one transaction took"),
            requests: requests(&mut registry),
            connections_refused: counter(&mut registry, "http_connections_refused", "Connections beyond a limit"),
            spans_dropped: counter(&mut registry, "otlp_dropped", "Spans that no collector took"),
            requests_limited: counter(&mut registry, "http_requests_limited", "Requests beyond a rate"),
            connections: gauge(&mut registry, "http_connections", "Connections that are open"),
            streams: gauge(&mut registry, "http_streams", "Event streams, followed logs and waits that are open"),
            webhooks: WebhookMetrics::register(&mut scheduler),
            registry,
            scheduler,
            happened,
            wait_ms: LogHistogram::default(),
            run_ms: LogHistogram::default(),
        }
    }
}

impl Metrics {
    pub fn connection_refused(&self) {
        self.connections_refused.inc();
    }

    pub fn request_limited(&self) {
        self.requests_limited.inc();
    }

    #[cfg(feature = "otlp")]
    pub fn spans_dropped(&self, n: u64) {
        self.spans_dropped.inc_by(n);
    }

    /// Called by the scheduler with what one commit made visible.
    pub fn observe(&self, happenings: &[Happening]) {
        for happening in happenings {
            self.happened[happening.kind as usize].inc();
            if let Subject::Task(facts) = &happening.subject {
                self.observe_task(happening.kind, facts);
            }
        }
    }

    /// How often this has happened since the server started.
    pub fn n_happened(&self, kind: HappeningKind) -> u64 {
        self.happened[kind as usize].get()
    }

    /// Called by the scheduler for each transaction: events handled in it, and how long it took.
    pub fn observe_commit(&self, n_events: usize, took: Duration) {
        self.commits.inc();
        self.commit_events.observe(n_events as f64);
        self.commit_seconds.observe(took.as_secs_f64());
    }

    pub fn observe_request(&self, method: &Method, status: StatusCode) {
        let at = METHODS.iter().position(|known| known == method).unwrap_or(METHODS.len());
        let class = usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
        self.requests[at][class].inc();
    }

    fn observe_task(&self, kind: HappeningKind, facts: &TaskFacts) {
        if let Some(elapsed_ms) = facts.elapsed_ms {
            if kind == HappeningKind::TaskStarted {
                self.waits.observe(elapsed_ms as f64 / 1000.0);
                self.wait_ms.observe(elapsed_ms);
            } else {
                self.runs.observe(elapsed_ms as f64 / 1000.0);
                self.run_ms.observe(elapsed_ms);
            }
        }
        if let (HappeningKind::TaskFailed | HappeningKind::TaskRetrying, Some(class)) = (kind, facts.class) {
            self.failures[class as usize].inc();
        }
    }
}

fn gauge(registry: &mut Registry, name: &str, help: &str) -> Gauge {
    let gauge = Gauge::default();
    registry.register(name, help, gauge.clone());
    gauge
}

fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    let counter = Counter::default();
    registry.register(name, help, counter.clone());
    counter
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Failed {
    class: &'static str,
}

fn failures(registry: &mut Registry) -> Vec<Counter> {
    let family = Family::<Failed, Counter>::default();
    registry.register("attempts_failed", "Attempts that failed", family.clone());
    Class::ALL.iter().map(|class| family.get_or_create_owned(&Failed { class: class.as_str() })).collect()
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Answered {
    method: &'static str,
    status: &'static str,
}

fn requests(registry: &mut Registry) -> Vec<[Counter; 5]> {
    let family = Family::<Answered, Counter>::default();
    registry.register("http_requests", "Requests answered", family.clone());
    let statuses = ["1xx", "2xx", "3xx", "4xx", "5xx"];
    let one = |method| statuses.map(|status| family.get_or_create_owned(&Answered { method, status }));
    ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "other"].into_iter().map(one).collect()
}

/// A millisecond to about nine hours: agents' work lasts anything.
fn seconds(registry: &mut Registry, name: &str, help: &str) -> Histogram {
    let histogram = Histogram::new(exponential_buckets(0.001, 4.0, 13));
    registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
    histogram
}

fn commit_events(registry: &mut Registry) -> Histogram {
    let histogram = Histogram::new(exponential_buckets(1.0, 4.0, 8));
    registry.register("commit_events", "Events handled in one transaction", histogram.clone());
    histogram
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use runyard_core::ids::TaskId;
    use runyard_core::task::Tier;

    use super::*;

    fn happening(kind: HappeningKind, class: Option<Class>, elapsed_ms: Option<u64>) -> Happening {
        let facts = TaskFacts {
            task: TaskId(1),
            agent: "a".into(),
            lane: "main".into(),
            kind: "noop".into(),
            tier: Tier::Normal,
            batch: None,
            session: None,
            attempt: 1,
            class,
            reason: "".into(),
            elapsed_ms,
        };
        Happening { kind, at_ms: 1, subject: Subject::Task(facts) }
    }

    #[test]
    fn happenings_become_counters() {
        let metrics = Metrics::default();
        metrics.observe(&[
            happening(HappeningKind::TaskPreempted, None, None),
            happening(HappeningKind::TaskStarted, None, Some(20)),
            happening(HappeningKind::TaskRetrying, Some(Class::Timeout), Some(100)),
            happening(HappeningKind::TaskFailed, Some(Class::Deadline), Some(300)),
        ]);
        metrics.observe_commit(4, Duration::from_millis(2));
        metrics.observe_request(&Method::POST, StatusCode::CREATED);
        let text = metrics.scrape(&[], &crate::config::Config::default(), Seat::Holder { workers: &[] });
        for line in [
            "runyard_tasks_preempted_total 1",
            "runyard_attempts_failed_total{class=\"deadline\"} 1",
            "runyard_attempts_failed_total{class=\"timeout\"} 1",
            "runyard_task_wait_seconds_count 1",
            "runyard_task_run_seconds_count 2",
            "runyard_commits_total 1",
            "runyard_http_requests_total{method=\"POST\",status=\"2xx\"} 1",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert_eq!(metrics.wait_ms.average(), Some(20.0));
    }

    #[test]
    fn a_node_that_follows_tells_nothing_that_only_the_holder_knows() {
        let metrics = Metrics::default();
        // Of the time when it was the holder.
        metrics.observe(&[happening(HappeningKind::TaskStarted, None, Some(20))]);
        metrics.observe_commit(1, Duration::from_millis(2));
        let families = |seat| {
            let text = metrics.scrape(&[], &crate::config::Config::default(), seat);
            assert!(text.ends_with("# EOF\n"), "{text}");
            let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE runyard_")?.split(' ').next());
            let names: BTreeSet<String> = types.map(str::to_owned).collect();
            (text, names)
        };
        let (held, at_holder) = families(Seat::Holder { workers: &[] });
        let (followed, at_follower) = families(Seat::Follower);
        assert!(held.contains("\nrunyard_holder 1\n") && followed.contains("\nrunyard_holder 0\n"), "{followed}");
        assert!(at_follower.is_subset(&at_holder));
        let words = ["http_", "otlp_", "tasks_", "limit", "holder"];
        for name in &at_follower {
            assert!(words.iter().any(|word| name.starts_with(word)), "{name} is not a follower's to tell");
        }
        let of_the_holder =
            "task_wait_seconds attempts_failed batches_finished commits workers tasks_preempted webhook_tries";
        for name in of_the_holder.split(' ') {
            assert!(at_holder.contains(name) && !at_follower.contains(name), "{name}: {followed}");
        }
    }
}
