//! One task: all its rules, and what the scheduler and the store get of it.

use runyard_core::event::{NewTask, Refusal};
use runyard_core::flow::{FlowKey, Shape};
use runyard_core::ids::TaskId;
use runyard_core::name::{Blob, Name};
use runyard_core::task::{Policy, Tier};
use runyard_wire::{Dependency, Id, StoredSpec, TaskRequest};
use serde_json::value::RawValue;

use super::Intake;
use super::exec;
use super::fields::{self, Checked};
use super::session;
use crate::access::Scope;
use crate::config;
use crate::problem::{Error, Invalid};

pub const AGENT_DEFAULT: &str = "default";
pub const KINDS_BUILT_IN: [&str; 4] = ["noop", "http", "process", "docker"];

/// A task that may be submitted, with the text that is stored of it still at hand for the answer.
pub struct Prepared {
    pub new: NewTask,
    pub stored: StoredSpec,
}

/// Names inside the batch are ids by now.
pub struct Resolved {
    pub id: TaskId,
    pub depends_on: Vec<TaskId>,
    pub retry_of: Option<Id>,
}

pub fn prepare(intake: &Intake, request: TaskRequest, resolved: Resolved) -> Result<Prepared, Error> {
    let kind = kind(&request)?;
    let agent = fields::name("agent", request.agent.as_deref().unwrap_or(AGENT_DEFAULT))?;
    authorize(intake, &agent, &kind)?;
    fields::callback_url(intake.config, request.callback_url.as_deref())?;
    check_times(intake, &request)?;
    check_payload(intake, &kind, &request)?;
    exec::check_allowed(&intake.config.exec, &kind, payload(&request))?;
    exec::check_secrets(intake, &kind, &agent, payload(&request))?;
    fields::tags(&request.tags)?;
    fields::metadata(request.metadata.as_ref())?;
    fields::title("name", request.name.as_deref())?;
    fields::limits(request.limits.as_ref(), &kind)?;
    let session = request.session.as_ref().map(|asked| session::member(asked, request.sent_at)).transpose()?;
    if let Some(member) = session.as_ref().filter(|member| !intake.caller.agents.allows_session(&member.key)) {
        return Err(Error::ForeignSession(member.key.to_string()));
    }
    if resolved.depends_on.len() > fields::DEPENDENCIES_MAX {
        return Err(Invalid::new("dependsOn", format!("at most {} tasks", fields::DEPENDENCIES_MAX)).into());
    }
    let settings = Settings::of(intake.config, &agent, &kind);
    let tier = settings.tier(fields::tier(request.priority.unwrap_or_default()));
    let policy = policy(intake, &request, &settings, &kind, tier)?;
    let lane = fields::name("lane", request.lane.as_deref().unwrap_or(runyard_core::config::LANE_MAIN))?;
    let (reserved, resources) = fields::resources(request.resources.as_ref(), &kind)?;
    let place = fields::place(request.place.as_ref())?;
    let gates = fields::gates(&request.gates, intake.config)?;
    let flow = FlowKey { agent, lane, tier, shape: Shape { kind, resources: reserved, place }, gates };
    let stored = StoredSpec {
        payload: request.payload,
        sent_at: request.sent_at,
        depends_on: resolved.depends_on.iter().map(|id| Id(id.0)).collect(),
        dependency_timeout_ms: request.dependency_timeout_ms,
        delay_ms: request.delay_ms,
        resources,
        limits: request.limits,
        place: request.place.unwrap_or_default(),
        gates: request.gates,
        callback_url: request.callback_url,
        metadata: request.metadata,
        tags: request.tags,
        name: request.name,
        idempotency_key: request.idempotency_key,
        retry_of: resolved.retry_of,
        traceparent: intake.traceparent.map(str::to_owned),
    };
    let new = NewTask {
        id: resolved.id,
        flow,
        rank: request.rank.unwrap_or(0),
        policy,
        run_at: request.run_at.map(|at| at.as_ms()),
        delay_ms: request.delay_ms.filter(|ms| *ms > 0),
        deadline: request.deadline.map(|at| at.as_ms()),
        dependency_timeout_ms: request.dependency_timeout_ms,
        depends_on: resolved.depends_on,
        session,
        steers: None,
        origin: None,
        spec: blob(&stored),
        refused: None,
        idempotency: None,
    };
    Ok(Prepared { new, stored })
}

/// An item of a batch that was refused here still has its place in it, so that those who depend on it are refused too.
pub fn refused(id: TaskId, invalid: Invalid) -> Prepared {
    let flow = FlowKey {
        agent: Name::new(AGENT_DEFAULT),
        lane: Name::new(runyard_core::config::LANE_MAIN),
        tier: Tier::Normal,
        shape: Shape { kind: Name::new("noop"), resources: Default::default(), place: Default::default() },
        gates: Vec::new(),
    };
    let Invalid { code, field, message } = invalid;
    let refusal = Refusal::Invalid { code: code.into(), field: field.into(), message: message.into() };
    let new = NewTask { refused: Some(refusal), ..NewTask::new(id, flow, Blob::from(&b"{}"[..])) };
    Prepared { new, stored: StoredSpec::default() }
}

/// Outside of a batch there are no names to refer to.
pub fn ids_only(depends_on: &[Dependency]) -> Checked<Vec<TaskId>> {
    let id = |(at, dependency): (usize, &Dependency)| match dependency {
        Dependency::Id(id) => Ok(TaskId(id.0)),
        Dependency::Name(_) => Err(Invalid::new(
            format!("dependsOn[{at}]"),
            "`#name` works only between tasks of one batch; use the task's id",
        )),
    };
    let mut ids = depends_on.iter().enumerate().map(id).collect::<Checked<Vec<_>>>()?;
    once_each(&mut ids);
    Ok(ids)
}

/// Keeps the order they were given in.
pub fn once_each(ids: &mut Vec<TaskId>) {
    let mut seen = std::collections::HashSet::with_capacity(ids.len());
    ids.retain(|id| seen.insert(*id));
}

fn kind(request: &TaskRequest) -> Checked<Name> {
    match &request.kind {
        Some(kind) => fields::name("kind", kind),
        None => {
            let known = KINDS_BUILT_IN.join(", ");
            Err(Invalid::new("kind", format!("is required: {known}, or a kind that some worker offers")))
        }
    }
}

fn authorize(intake: &Intake, agent: &Name, kind: &str) -> Result<(), Error> {
    if !intake.caller.may_act_for(agent) {
        return Err(Error::ForeignAgent(agent.to_string()));
    }
    if fields::runs_a_program(kind) && !intake.caller.scopes.allow(Scope::Exec) {
        return Err(Error::MissingScope(Scope::Exec));
    }
    Ok(())
}

fn check_times(intake: &Intake, request: &TaskRequest) -> Checked<()> {
    if request.delay_ms.is_some() && request.run_at.is_some() {
        return Err(Invalid::new("runAt", "is given beside delayMs; use one of them"));
    }
    fields::ms("delayMs", 0, request.delay_ms)?;
    fields::ms("dependencyTimeoutMs", 1, request.dependency_timeout_ms)?;
    fields::ms("stallMs", 1, request.stall_ms)?;
    fields::ms("ttlMs", 1, request.ttl_ms)?;
    let Some(deadline) = request.deadline else { return Ok(()) };
    if deadline.as_ms() <= intake.now_ms {
        return Err(Invalid::new("deadline", format!("{deadline} is already past")));
    }
    let starts_at = request.run_at.map(|at| at.as_ms()).or(request.delay_ms.map(|ms| intake.now_ms + ms));
    if starts_at.is_some_and(|at| at >= deadline.as_ms()) {
        return Err(Invalid::new("deadline", "lies before the moment the task may start"));
    }
    Ok(())
}

fn check_payload(intake: &Intake, kind: &str, request: &TaskRequest) -> Result<(), Error> {
    let sandbox = config::to_sandbox(intake.config.process.sandbox);
    let checked = runyard_exec::validate_payload(kind, payload(request), sandbox);
    checked.map_err(|error| Invalid::new(error.field, error.message))?;
    check_uploads(intake, kind, request)
}

/// Each one that is named stays for another while.
fn check_uploads(intake: &Intake, kind: &str, request: &TaskRequest) -> Result<(), Error> {
    for (field, id) in runyard_exec::uploads_named(kind, Some(payload(request))) {
        if !intake.uploads.need(id)? {
            let id = Id(id);
            return Err(Invalid::new(field, format!("there is no upload {id}; hand it in with PUT /v1/uploads")).into());
        }
    }
    Ok(())
}

/// Whether its executor hands further messages to it while it runs.
fn takes_input(kind: &str, request: &TaskRequest) -> bool {
    runyard_exec::takes_input(kind, Some(payload(request)))
}

fn payload(request: &TaskRequest) -> &RawValue {
    request.payload.as_ref().map_or(RawValue::NULL, |payload| &*payload.0)
}

/// What the configuration says about this agent and this kind.
struct Settings<'a> {
    defaults: &'a config::Defaults,
    agent: Option<&'a config::Agent>,
    kind: Option<&'a config::Kind>,
}

impl<'a> Settings<'a> {
    fn of(config: &'a config::Config, agent: &str, kind: &str) -> Settings<'a> {
        Settings { defaults: &config.defaults, agent: config.agents.get(agent), kind: config.kinds.get(kind) }
    }

    /// Never above the agent's own highest.
    fn tier(&self, asked: Tier) -> Tier {
        self.agent.and_then(|agent| agent.max_priority).map_or(asked, |highest| asked.max(highest.into()))
    }

    fn timeout_ms(&self) -> u64 {
        let agent = self.agent.and_then(|agent| agent.timeout_ms);
        agent.or(self.kind.and_then(|kind| kind.timeout_ms)).unwrap_or(self.defaults.timeout_ms)
    }

    fn retries(&self) -> [Option<&'a config::Retry>; 3] {
        let agent = self.agent.and_then(|agent| agent.retry.as_ref());
        [agent, self.kind.and_then(|kind| kind.retry.as_ref()), Some(&self.defaults.retry)]
    }
}

fn policy(intake: &Intake, request: &TaskRequest, settings: &Settings, kind: &str, tier: Tier) -> Checked<Policy> {
    let timeout_ms = request.timeout_ms.unwrap_or_else(|| settings.timeout_ms());
    let timeout_ms_max = intake.config.defaults.timeout_ms_max;
    if !(1..=timeout_ms_max).contains(&timeout_ms) {
        return Err(Invalid::new("timeoutMs", format!("must be from 1 to {timeout_ms_max}")));
    }
    Ok(Policy {
        timeout_ms,
        retry: fields::retry(request.retry.as_ref(), settings.retries())?,
        on_dependency_failure: fields::on_dependency_failure(request.on_dependency_failure.unwrap_or_default()),
        preemptible: request.preemptible.unwrap_or(tier == Tier::Low),
        stall_ms: request.stall_ms,
        ttl_ms: request.ttl_ms,
        takes_input: takes_input(kind, request),
        calls_back: request.callback_url.is_some(),
    })
}

fn blob(stored: &StoredSpec) -> Blob {
    serde_json::to_vec(stored).expect("a stored task is plain data").into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::access::{Binding, Caller, Scopes};
    use crate::config::Config;
    use crate::problem::problem;
    use crate::uploads::KnownUploads;

    const NOW_MS: u64 = 1_800_000_000_000;

    fn config() -> Config {
        let layers = config::Layers {
            file: json!({
                "agents": { "bot": { "maxPriority": "normal", "timeoutMs": 5000, "retry": { "maxRetries": 7 } } },
                "kinds": { "http": { "timeoutMs": 6000, "retry": { "maxRetries": 8, "backoffMs": 9 } } },
                "gates": { "api": { "maxInflight": 1 } },
            })
            .as_object()
            .expect("an object")
            .clone(),
            ..config::Layers::default()
        };
        config::merge(&layers).expect("valid").config
    }

    fn prepared(body: Value, caller: &Caller) -> Result<Prepared, Error> {
        let config = config();
        let request: TaskRequest = runyard_wire::parse(body.to_string().as_bytes())?;
        let depends_on = ids_only(&request.depends_on)?;
        let places = runyard_exec::Places::new(std::path::Path::new("/")).expect("a directory");
        let uploads = KnownUploads::Here(places.uploads());
        let intake =
            Intake { config: &config, caller, uploads: &uploads, now_ms: NOW_MS, vault: None, traceparent: None };
        prepare(&intake, request, Resolved { id: TaskId(1), depends_on, retry_of: None })
    }

    #[test]
    fn a_bad_field_is_named_with_its_rule() {
        let long = "x".repeat(10_000);
        let many_tags: Vec<String> = (0..33).map(|n| format!("t{n}")).collect();
        let big = json!({ "k": "x".repeat(17_000) });
        let table = [
            (json!({}), "kind", "is required"),
            (json!({ "kind": "a b" }), "kind", "a name is"),
            (json!({ "kind": "noop", "agent": long }), "agent", "a name is"),
            (json!({ "kind": "noop", "agent": "" }), "agent", "a name is"),
            (json!({ "kind": "noop", "lane": "ä" }), "lane", "a name is"),
            (json!({ "kind": "noop", "name": long }), "name", "256 bytes"),
            (json!({ "kind": "noop", "surprise": 1 }), "surprise", "unknown field"),
            (json!({ "kind": "noop", "timeoutMs": 0 }), "timeoutMs", "from 1 to 86400000"),
            (json!({ "kind": "noop", "timeoutMs": 86_400_001 }), "timeoutMs", "from 1 to 86400000"),
            (json!({ "kind": "noop", "timeoutMs": -1 }), "timeoutMs", "-1"),
            (json!({ "kind": "noop", "retry": { "maxRetries": 1001 } }), "retry.maxRetries", "0 to 1000"),
            (json!({ "kind": "noop", "retry": { "multiplier": 0.5 } }), "retry.multiplier", "from 1"),
            (json!({ "kind": "noop", "retry": { "jitter": 1.5 } }), "retry.jitter", "0 to 1"),
            (json!({ "kind": "noop", "retry": { "on": ["deadline"] } }), "retry.on[0]", "never retried"),
            (json!({ "kind": "noop", "resources": { "cpu": 0 } }), "resources.cpu", "more than 0"),
            (json!({ "kind": "noop", "resources": { "cpu": -1 } }), "resources.cpu", "more than 0"),
            (json!({ "kind": "noop", "resources": { "ramMb": 0 } }), "resources.ramMb", "at least 1"),
            (json!({ "kind": "noop", "resources": { "gpu": 0 } }), "resources.gpu", "at least 1"),
            (json!({ "kind": "noop", "deadline": "2001-01-01T00:00:00Z" }), "deadline", "already past"),
            (json!({ "kind": "noop", "delayMs": 5, "runAt": "2100-01-01T00:00:00Z" }), "runAt", "beside delayMs"),
            (
                json!({ "kind": "noop", "runAt": "2100-01-01T00:00:00Z", "deadline": "2099-01-01T00:00:00Z" }),
                "deadline",
                "before",
            ),
            (json!({ "kind": "noop", "dependsOn": ["#a"] }), "dependsOn[0]", "batch"),
            (json!({ "kind": "noop", "gates": ["other"] }), "gates[0]", "no gate"),
            (json!({ "kind": "noop", "tags": many_tags }), "tags", "at most 32"),
            (json!({ "kind": "noop", "tags": ["a b"] }), "tags[0]", "a name is"),
            (json!({ "kind": "noop", "metadata": big }), "metadata", "16384 bytes"),
            (json!({ "kind": "noop", "callbackUrl": "http://127.0.0.1/" }), "callbackUrl", "not a public address"),
            (json!({ "kind": "noop", "session": "" }), "session", "1 to 256 bytes"),
            (json!({ "kind": "noop", "session": "a\u{1}" }), "session", "control characters"),
            (json!({ "kind": "noop", "session": { "key": long } }), "session", "1 to 256 bytes"),
            (json!({ "kind": "noop", "session": { "key": "s", "cap": 0 } }), "session.cap", "at least 1"),
            (json!({ "kind": "noop", "session": { "key": "s", "mode": "fifo" } }), "session.mode", "interrupt"),
            (json!({ "kind": "noop", "sentAt": "yesterday" }), "sentAt", "a time looks like"),
            (json!({ "kind": "noop", "limits": { "pids": 5 } }), "limits.pids", "only outputBytes"),
            (json!({ "kind": "own", "limits": { "cpu": 0 } }), "limits.cpu", "from 0.01"),
            (json!({ "kind": "own", "limits": { "cpu": 2e6 } }), "limits.cpu", "to 1000000"),
            (json!({ "kind": "own", "limits": { "ramMb": 0 } }), "limits.ramMb", "at least 1"),
            (json!({ "kind": "own", "limits": { "pids": 0 } }), "limits.pids", "at least 1"),
            (json!({ "kind": "noop", "limits": { "outputBytes": 0 } }), "limits.outputBytes", "from 1"),
            (json!({ "kind": "noop", "place": { "require": { "a b": "c" } } }), "place.require", "a name is"),
            (json!({ "kind": "noop", "stallMs": 0 }), "stallMs", "from 1"),
            (json!({ "kind": "process", "payload": {} }), "payload.argv", "missing"),
            (json!({ "kind": "http" }), "payload", "missing"),
            (
                json!({ "kind": "process", "payload": { "argv": ["true"], "files": [
                    { "inline": "", "path": "a" }, { "upload": Id(7), "path": "b" }
                ] } }),
                "payload.files[1].upload",
                "no upload",
            ),
        ];
        for (body, field, rule) in table {
            let Err(error) = prepared(body.clone(), &Caller::unchecked()) else { panic!("{body} was taken") };
            let problem = problem(&error);
            assert_eq!(problem.status, 400, "{body}: {problem:?}");
            assert_eq!(problem.field.as_deref(), Some(field), "{body}: {problem:?}");
            assert!(problem.detail.contains(rule), "{body}: {problem:?}");
        }
    }

    #[test]
    fn defaults_come_from_the_narrowest_place() {
        let body = json!({ "kind": "http", "agent": "bot", "payload": { "url": "http://x/" }, "priority": "critical" });
        let new = prepared(body, &Caller::unchecked()).unwrap_or_else(|error| panic!("{error}")).new;
        assert_eq!(new.policy.timeout_ms, 5000);
        assert_eq!((new.policy.retry.max_retries, new.policy.retry.backoff_ms), (7, 9));
        assert_eq!(new.policy.retry.multiplier_milli, 2000);
        assert_eq!(new.flow.tier, Tier::Normal);
        let body =
            json!({ "kind": "http", "payload": { "url": "http://x/" }, "timeoutMs": 1, "retry": { "maxRetries": 0 } });
        let new = prepared(body, &Caller::unchecked()).unwrap_or_else(|error| panic!("{error}")).new;
        assert_eq!((new.policy.timeout_ms, new.policy.retry.max_retries), (1, 0));
    }

    #[test]
    fn programs_reserve_a_core_and_low_is_preemptible() {
        let body = json!({ "kind": "process", "payload": { "argv": ["true"] }, "priority": "low", "resources": { "cpu": 0.5 } });
        let new = prepared(body, &Caller::unchecked()).unwrap_or_else(|error| panic!("{error}")).new;
        assert_eq!((new.flow.shape.resources.cpu_milli, new.flow.shape.resources.ram_mb), (500, 256));
        assert!(new.policy.preemptible);
        let new =
            prepared(json!({ "kind": "noop" }), &Caller::unchecked()).unwrap_or_else(|error| panic!("{error}")).new;
        assert_eq!(new.flow.shape.resources, Default::default());
        assert_eq!((&*new.flow.agent, &*new.flow.lane), ("default", "main"));
        assert_eq!(&*new.spec, b"{}");
    }

    #[test]
    fn a_key_is_held_to_its_agents_and_scopes() {
        let agents = Binding::to(Some(&["a".to_owned()]));
        let caller = Caller { scopes: Scopes::from_iter([Scope::Submit]), agents, ..Caller::default() };
        let Err(error) = prepared(json!({ "kind": "noop", "agent": "b" }), &caller) else { panic!("taken") };
        assert_eq!(problem(&error).code, "foreign_agent");
        let process = json!({ "kind": "process", "agent": "a", "payload": { "argv": ["true"] } });
        let Err(error) = prepared(process, &caller) else { panic!("taken") };
        assert_eq!(problem(&error).code, "missing_scope");
        assert!(prepared(json!({ "kind": "noop", "agent": "a" }), &caller).is_ok());
        let message = |session: &str| prepared(json!({ "kind": "noop", "agent": "a", "session": session }), &caller);
        assert!(message("a/7").is_ok());
        assert!(message("b/7").is_err_and(|error| problem(&error).code == "foreign_session"));
    }
}
