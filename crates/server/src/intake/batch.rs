//! A batch: shared defaults, names that refer to each other, and what one bad item means for the rest.

use std::collections::{HashMap, HashSet};

use runyard_core::event::{NewBatch, SubmitMode};
use runyard_core::ids::{BatchId, TaskId};
use runyard_core::name::{Blob, Name};
use runyard_wire::{BatchMode, BatchRequest, Dependency, RetryRequest, TaskRequest};
use serde::{Deserialize, Serialize};

use super::Intake;
use super::fields;
use super::key::{idempotency, key_of};
use super::task::{self, Prepared, Resolved};
use crate::problem::{Error, Invalid};

pub const ITEMS_MAX: usize = 1000;

pub struct PreparedBatch {
    pub batch: NewBatch,
    pub mode: SubmitMode,
    pub items: Vec<Prepared>,
    /// Whose the batch's own idempotency key is.
    pub agent: Name,
}

/// What is stored of a batch beside its counts.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredBatch {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
}

pub fn prepare_batch(
    intake: &Intake,
    request: BatchRequest,
    mut new_id: impl FnMut() -> u128,
) -> Result<PreparedBatch, Error> {
    check_batch(&request)?;
    fields::callback_url(intake.config, request.callback_url.as_deref())?;
    let agent = request.defaults.as_ref().and_then(|defaults| defaults.agent.as_deref());
    let agent = fields::name("defaults.agent", agent.unwrap_or(task::AGENT_DEFAULT))?;
    let ids: Vec<TaskId> = request.tasks.iter().map(|_| TaskId(new_id())).collect();
    let names = Names::of(&request.tasks, &ids);
    let in_cycle = names.cycles(&request.tasks);
    let defaults = request.defaults.as_deref();
    let mut items = Vec::with_capacity(ids.len());
    for (at, item) in request.tasks.into_iter().enumerate() {
        let item = merged(item, defaults);
        let prepared = names.check(at, &item).and_then(|()| match in_cycle.get(&at) {
            Some(cycle) => Err(Invalid::new("dependsOn", format!("is a cycle: {cycle}"))),
            None => Ok(()),
        });
        let prepared = prepared.map_err(Error::from).and_then(|()| one(intake, item, ids[at], &names));
        match (prepared, request.mode) {
            (Ok(prepared), _) => items.push(prepared),
            (Err(Error::Invalid(invalid)), BatchMode::Partial) => {
                items.push(task::refused(ids[at], invalid.inside(&format!("tasks[{at}]"))));
            }
            (Err(Error::Invalid(invalid)), BatchMode::All) => {
                return Err(invalid.inside(&format!("tasks[{at}]")).into());
            }
            // What the key may not do is a matter of the whole request.
            (Err(other), _) => return Err(other),
        }
    }
    let calls_back = request.callback_url.is_some();
    let stored = StoredBatch { name: request.name, metadata: request.metadata, callback_url: request.callback_url };
    let spec: Blob = serde_json::to_vec(&stored).expect("a stored batch is plain data").into();
    let batch = NewBatch { id: BatchId(new_id()), parallelism: request.parallelism, calls_back, spec };
    let mode = match request.mode {
        BatchMode::All => SubmitMode::All,
        BatchMode::Partial => SubmitMode::Partial,
    };
    Ok(PreparedBatch { batch, mode, items, agent })
}

fn check_batch(request: &BatchRequest) -> Result<(), Invalid> {
    let n = request.tasks.len();
    if !(1..=ITEMS_MAX).contains(&n) {
        return Err(Invalid::new("tasks", format!("must be 1 to {ITEMS_MAX} tasks, these are {n}")));
    }
    if request.parallelism == Some(0) {
        return Err(Invalid::new("parallelism", "must be at least 1"));
    }
    fields::title("name", request.name.as_deref())?;
    fields::metadata(request.metadata.as_ref())?;
    let own = request.defaults.as_ref().map(|defaults| (defaults.name.is_some(), defaults.idempotency_key.is_some()));
    match own {
        Some((true, _)) => Err(Invalid::new("defaults.name", "cannot be shared: each task has a name of its own")),
        Some((_, true)) => Err(Invalid::new("defaults.idempotencyKey", "cannot be shared: give the batch a key")),
        _ => Ok(()),
    }
}

fn one(intake: &Intake, item: TaskRequest, id: TaskId, names: &Names) -> Result<Prepared, Error> {
    let depends_on = names.resolve(&item.depends_on)?;
    let key = key_of(None, item.idempotency_key.as_deref())?;
    // Hashed as it reads with the batch's defaults: the same key with the same task is the same submit.
    let hashed = key.map(|key| (key, serde_json::to_vec(&item).expect("a request is plain data")));
    let mut prepared = task::prepare(intake, item, Resolved { id, depends_on, retry_of: None })?;
    prepared.new.idempotency = hashed.map(|(key, body)| idempotency(&prepared.new.flow.agent, &key, &body));
    Ok(prepared)
}

/// What `#name` means in this batch.
struct Names<'a> {
    by_name: HashMap<String, usize>,
    /// Items whose name was taken by an earlier one.
    duplicates: HashSet<usize>,
    ids: &'a [TaskId],
}

impl<'a> Names<'a> {
    fn of(tasks: &[TaskRequest], ids: &'a [TaskId]) -> Names<'a> {
        let mut names = Names { by_name: HashMap::new(), duplicates: HashSet::new(), ids };
        for (at, task) in tasks.iter().enumerate() {
            let Some(name) = &task.name else { continue };
            if names.by_name.contains_key(name) {
                names.duplicates.insert(at);
            } else {
                names.by_name.insert(name.clone(), at);
            }
        }
        names
    }

    fn check(&self, at: usize, item: &TaskRequest) -> Result<(), Invalid> {
        if self.duplicates.contains(&at) {
            let name = item.name.as_deref().unwrap_or("");
            return Err(Invalid::new("name", format!("`{name}` is already the name of another task in this batch")));
        }
        Ok(())
    }

    fn resolve(&self, depends_on: &[Dependency]) -> Result<Vec<TaskId>, Invalid> {
        let id = |(at, dependency): (usize, &Dependency)| match dependency {
            Dependency::Id(id) => Ok(TaskId(id.0)),
            Dependency::Name(name) => self.by_name.get(name).map(|item| self.ids[*item]).ok_or_else(|| {
                let shown: String = name.chars().take(64).collect();
                Invalid::new(format!("dependsOn[{at}]"), format!("no task in this batch is named `{shown}`"))
            }),
        };
        let mut ids = depends_on.iter().enumerate().map(id).collect::<Result<Vec<_>, _>>()?;
        task::once_each(&mut ids);
        Ok(ids)
    }

    /// Every item that lies on a cycle, with the cycle in words: `a → b → a`.
    fn cycles(&self, tasks: &[TaskRequest]) -> HashMap<usize, String> {
        let parents: Vec<Vec<usize>> = tasks.iter().map(|task| self.parents(task)).collect();
        let mut found = HashMap::new();
        let mut state = vec![Visit::New; tasks.len()];
        for start in 0..tasks.len() {
            if state[start] == Visit::New {
                self.visit(start, &parents, tasks, &mut state, &mut found);
            }
        }
        found
    }

    fn parents(&self, task: &TaskRequest) -> Vec<usize> {
        let named = |dependency: &Dependency| match dependency {
            Dependency::Name(name) => self.by_name.get(name).copied(),
            Dependency::Id(_) => None,
        };
        task.depends_on.iter().filter_map(named).collect()
    }

    /// Depth first with a stack of its own: a chain of 1000 tasks must not need 1000 frames.
    fn visit(
        &self,
        start: usize,
        parents: &[Vec<usize>],
        tasks: &[TaskRequest],
        state: &mut [Visit],
        found: &mut HashMap<usize, String>,
    ) {
        let mut path = vec![(start, 0)];
        state[start] = Visit::Open;
        while let Some((item, next)) = path.last_mut() {
            let Some(&parent) = parents[*item].get(*next) else {
                state[*item] = Visit::Done;
                path.pop();
                continue;
            };
            *next += 1;
            match state[parent] {
                Visit::New => {
                    state[parent] = Visit::Open;
                    path.push((parent, 0));
                }
                Visit::Open => note_cycle(&path, parent, tasks, found),
                Visit::Done => {}
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Visit {
    New,
    Open,
    Done,
}

fn note_cycle(path: &[(usize, usize)], back_to: usize, tasks: &[TaskRequest], found: &mut HashMap<usize, String>) {
    let cycle = path.iter().map(|(item, _)| *item).skip_while(|item| *item != back_to);
    let items: Vec<usize> = cycle.collect();
    let name = |item: usize| tasks[item].name.as_deref().unwrap_or("");
    let words: Vec<&str> = items.iter().copied().chain([back_to]).map(name).collect();
    let text = words.join(" → ");
    for item in items {
        found.entry(item).or_insert_with(|| text.clone());
    }
}

/// The item's own fields, and the batch's where it has none. Retry merges field by field, everything else whole.
fn merged(item: TaskRequest, defaults: Option<&TaskRequest>) -> TaskRequest {
    let Some(shared) = defaults else { return item };
    let list = |own: Vec<String>, shared: &Vec<String>| if own.is_empty() { shared.clone() } else { own };
    TaskRequest {
        kind: item.kind.or_else(|| shared.kind.clone()),
        payload: item.payload.or_else(|| shared.payload.clone()),
        agent: item.agent.or_else(|| shared.agent.clone()),
        lane: item.lane.or_else(|| shared.lane.clone()),
        session: item.session.or_else(|| shared.session.clone()),
        sent_at: item.sent_at.or(shared.sent_at),
        priority: item.priority.or(shared.priority),
        rank: item.rank.or(shared.rank),
        depends_on: if item.depends_on.is_empty() { shared.depends_on.clone() } else { item.depends_on },
        on_dependency_failure: item.on_dependency_failure.or(shared.on_dependency_failure),
        dependency_timeout_ms: item.dependency_timeout_ms.or(shared.dependency_timeout_ms),
        // A moment of its own replaces the shared one, whichever form either has.
        delay_ms: item.delay_ms.or(shared.delay_ms.filter(|_| item.run_at.is_none())),
        run_at: item.run_at.or(shared.run_at.filter(|_| item.delay_ms.is_none())),
        deadline: item.deadline.or(shared.deadline),
        timeout_ms: item.timeout_ms.or(shared.timeout_ms),
        retry: merged_retry(item.retry, shared.retry.as_ref()),
        resources: item.resources.or_else(|| shared.resources.clone()),
        limits: item.limits.or_else(|| shared.limits.clone()),
        place: item.place.or_else(|| shared.place.clone()),
        gates: list(item.gates, &shared.gates),
        stall_ms: item.stall_ms.or(shared.stall_ms),
        preemptible: item.preemptible.or(shared.preemptible),
        ttl_ms: item.ttl_ms.or(shared.ttl_ms),
        callback_url: item.callback_url.or_else(|| shared.callback_url.clone()),
        metadata: item.metadata.or_else(|| shared.metadata.clone()),
        tags: list(item.tags, &shared.tags),
        name: item.name,
        idempotency_key: item.idempotency_key,
    }
}

fn merged_retry(own: Option<RetryRequest>, shared: Option<&RetryRequest>) -> Option<RetryRequest> {
    let (own, shared) = match (own, shared) {
        (Some(own), Some(shared)) => (own, shared),
        (own, shared) => return own.or_else(|| shared.cloned()),
    };
    Some(RetryRequest {
        max_retries: own.max_retries.or(shared.max_retries),
        backoff_ms: own.backoff_ms.or(shared.backoff_ms),
        multiplier: own.multiplier.or(shared.multiplier),
        max_backoff_ms: own.max_backoff_ms.or(shared.max_backoff_ms),
        jitter: own.jitter.or(shared.jitter),
        on: own.on.or_else(|| shared.on.clone()),
    })
}

#[cfg(test)]
mod tests {
    use runyard_core::event::Refusal;
    use serde_json::{Value, json};

    use super::*;
    use crate::access::Caller;
    use crate::config::Config;
    use crate::problem::problem;
    use crate::uploads::KnownUploads;

    fn prepared(body: Value) -> Result<PreparedBatch, Error> {
        let request: BatchRequest = runyard_wire::parse(body.to_string().as_bytes())?;
        let (config, caller) = (Config::default(), Caller::unchecked());
        let mut next = 0;
        let new_id = || {
            next += 1;
            next
        };
        let places = runyard_exec::Places::new(std::path::Path::new("/")).expect("a directory");
        let uploads = KnownUploads::Here(places.uploads());
        let intake =
            Intake { config: &config, caller: &caller, uploads: &uploads, now_ms: 1, vault: None, traceparent: None };
        prepare_batch(&intake, request, new_id)
    }

    fn refused(body: Value) -> (String, String) {
        let Err(error) = prepared(body.clone()) else { panic!("{body} was taken") };
        let problem = problem(&error);
        assert_eq!(problem.status, 400, "{problem:?}");
        (problem.field.unwrap_or_default(), problem.detail)
    }

    #[test]
    fn names_become_ids_and_defaults_are_shared() {
        let batch = prepared(json!({
            "defaults": { "kind": "noop", "agent": "bot", "retry": { "maxRetries": 9, "backoffMs": 5 } },
            "parallelism": 2,
            "tasks": [
                { "name": "a" },
                { "name": "b", "dependsOn": ["#a", "#a"], "retry": { "maxRetries": 1 } },
                { "agent": "other", "dependsOn": ["#a", "#b"] },
            ],
        }));
        let batch = batch.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((batch.mode, batch.batch.parallelism, &*batch.agent), (SubmitMode::All, Some(2), "bot"));
        assert_eq!(batch.items[1].new.depends_on, [TaskId(1)]);
        assert_eq!(batch.items[2].new.depends_on, [TaskId(1), TaskId(2)]);
        assert_eq!(batch.items[1].new.policy.retry.max_retries, 1);
        assert_eq!(batch.items[1].new.policy.retry.backoff_ms, 5);
        assert_eq!(&*batch.items[2].new.flow.agent, "other");
    }

    #[test]
    fn a_cycle_is_refused_and_named() {
        let (field, detail) = refused(json!({ "defaults": { "kind": "noop" }, "tasks": [
            { "name": "a", "dependsOn": ["#c"] },
            { "name": "b", "dependsOn": ["#a"] },
            { "name": "c", "dependsOn": ["#b"] },
        ] }));
        assert_eq!(field, "tasks[0].dependsOn");
        assert!(detail.contains("a → c → b → a"), "{detail}");
        let (_, detail) = refused(json!({ "tasks": [{ "kind": "noop", "name": "a", "dependsOn": ["#a"] }] }));
        assert!(detail.contains("a → a"), "{detail}");
    }

    #[test]
    fn a_bad_batch_is_refused_with_its_field() {
        let noop = json!({ "kind": "noop" });
        let table = [
            (json!({ "tasks": [] }), "tasks"),
            (json!({ "tasks": vec![&noop; 1001] }), "tasks"),
            (json!({ "tasks": [noop], "parallelism": 0 }), "parallelism"),
            (json!({ "tasks": [noop], "callbackUrl": "http://127.0.0.1/" }), "callbackUrl"),
            (json!({ "tasks": [noop], "defaults": { "name": "x" } }), "defaults.name"),
            (json!({ "tasks": [noop], "defaults": { "agent": "a b" } }), "defaults.agent"),
            (json!({ "tasks": [noop, { "kind": "noop", "timeoutMs": 0 }] }), "tasks[1].timeoutMs"),
            (json!({ "tasks": [noop, { "kind": "noop", "dependsOn": ["#x"] }] }), "tasks[1].dependsOn[0]"),
            (json!({ "tasks": [{ "kind": "noop", "name": "a" }, { "kind": "noop", "name": "a" }] }), "tasks[1].name"),
        ];
        for (body, field) in table {
            assert_eq!(refused(body.clone()).0, field, "{body}");
        }
    }

    #[test]
    fn in_a_partial_batch_each_item_answers_for_itself() {
        let batch = prepared(json!({ "mode": "partial", "tasks": [
            { "kind": "noop", "name": "bad", "timeoutMs": 0 },
            { "kind": "noop", "dependsOn": ["#bad"] },
            { "kind": "noop" },
        ] }));
        let batch = batch.unwrap_or_else(|error| panic!("{error}"));
        let Some(Refusal::Invalid { field, .. }) = &batch.items[0].new.refused else { panic!("not refused") };
        assert_eq!(field, "tasks[0].timeoutMs");
        assert_eq!(batch.items[1].new.depends_on, [batch.items[0].new.id]);
        assert!(batch.items[2].new.refused.is_none());
    }
}
