//! Rules that types cannot say.

use std::net::SocketAddr;

use runyard_exec::secret::name_is_valid as secret_name_is_valid;
use runyard_wire::Limits;

use super::types::{Config, DockerLimits, ProcessLimits, Retry, Server, SessionSettings};
use crate::edge::network;
use crate::intake::{MS_MAX, SESSION_KEY_BYTES_MAX, check_lists, limits as limits_of_task};
use crate::routes::BATCH_BODY_BYTES_MAX;

pub(super) struct Broken {
    pub field: String,
    pub message: String,
}

impl Broken {
    pub fn new(field: impl Into<String>, message: &str) -> Broken {
        Broken { field: field.into(), message: message.to_owned() }
    }
}

pub(super) type Checked = Result<(), Broken>;

/// Agents, lanes, kinds, gates, tags: short, printable, safe in a URL, a label and a file name.
pub fn name_is_valid(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:@-".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(allowed)
}

pub const NAME_BYTES_MAX: usize = 64;
pub const NAME_RULE: &str = "a name is 1 to 64 of the characters A-Z a-z 0-9 . _ : @ -";

pub(super) fn check(config: &Config) -> Checked {
    check_names(config)?;
    check_server(config)?;
    check_defaults(config)?;
    check_scheduling(config)?;
    check_workers(config)?;
    check_store(config)?;
    check_autoscale(config)?;
    check_limits(config)?;
    check_files(config)?;
    check_process_limits(config)?;
    check_docker(config)?;
    check_sessions(config)?;
    check_schedules(config)?;
    check_exec(config)?;
    super::outbound::check(config)?;
    super::telemetry::check(config)?;
    for (name, agent) in &config.agents {
        if let Some(weight) = agent.weight {
            at_least(&format!("agents.{name}.weight"), u64::from(weight), 1)?;
        }
    }
    for (name, gate) in &config.gates {
        check_gate(name, gate)?;
    }
    Ok(())
}

fn check_names(config: &Config) -> Checked {
    let sections = [
        ("lanes", config.lanes.keys().collect::<Vec<_>>()),
        ("agents", config.agents.keys().collect()),
        ("kinds", config.kinds.keys().collect()),
        ("gates", config.gates.keys().collect()),
        ("sessions.lanes", config.sessions.lanes.keys().collect()),
    ];
    for (section, names) in sections {
        if let Some(name) = names.into_iter().find(|name| !name_is_valid(name)) {
            return broken(format!("{section}.{name}"), NAME_RULE);
        }
    }
    Ok(())
}

fn check_server(config: &Config) -> Checked {
    if config.server.listen.parse::<SocketAddr>().is_err() {
        return broken("server.listen", "must be ADDRESS:PORT, such as 127.0.0.1:7340 or [::1]:7340");
    }
    check_edge(&config.server)?;
    ms("server.drainMs", 0, config.server.drain_ms)?;
    ms("worker.graceMs", 0, config.worker.grace_ms.0)?;
    ms("worker.heartbeatMs", 50, config.worker.heartbeat_ms.0)?;
    if config.worker.cpu.is_some_and(|cpu| !(cpu > 0.0 && cpu <= 1e6)) {
        return broken("worker.cpu", "must be more than 0");
    }
    Ok(())
}

fn check_store(config: &Config) -> Checked {
    let (store, nodes) = (&config.store, &config.nodes);
    let is_postgres = |url: &str| url.starts_with("postgres://") || url.starts_with("postgresql://");
    if store.url.as_deref().is_some_and(|url| !is_postgres(url)) {
        return broken("store.url", "must be postgres://USER:PASSWORD@HOST:PORT/DATABASE");
    }
    let is_http = |url: &str| {
        let parsed = url::Url::parse(url).ok().filter(|parsed| parsed.host().is_some() && parsed.path() == "/");
        parsed.is_some_and(|parsed| matches!(parsed.scheme(), "http" | "https"))
    };
    if nodes.advertise.as_deref().is_some_and(|url| !is_http(url)) {
        return broken(
            "nodes.advertise",
            "must be http://HOST:PORT or https://HOST:PORT, where the other nodes reach this one",
        );
    }
    if nodes.name.as_deref().is_some_and(|name| !name_is_valid(name)) {
        return broken("nodes.name", NAME_RULE);
    }
    ms("store.statementTimeoutMs", 1000, store.statement_timeout_ms)?;
    ms("nodes.ttlMs", 1000, nodes.ttl_ms)?;
    ms("nodes.waitMs", 0, nodes.wait_ms)
}

fn check_schedules(config: &Config) -> Checked {
    let schedules = &config.schedules;
    if !runyard_cron::is_zone(&schedules.default_tz) {
        return broken("schedules.defaultTz", "is no time zone; Europe/Berlin is one");
    }
    at_most("schedules.max", schedules.max, COUNT_MAX)?;
    at_least("schedules.keepRuns", schedules.keep_runs, 1)?;
    at_most("schedules.keepRuns", schedules.keep_runs, COUNT_MAX)?;
    ms("schedules.keepRunsMs", 0, schedules.keep_runs_ms)
}

fn check_exec(config: &Config) -> Checked {
    if let Err(invalid) = check_lists(&config.exec) {
        return broken(invalid.field, &invalid.message);
    }
    for (name, secret) in &config.secrets {
        let at = format!("secrets.{name}");
        if !secret_name_is_valid(name) {
            return broken(at, "the name of a secret is 1 to 64 of the characters A-Z a-z 0-9 _ -");
        }
        if secret.env.is_some() == secret.file.is_some() {
            return broken(at, "needs env or file, and only one of them");
        }
    }
    Ok(())
}

fn check_edge(server: &Server) -> Checked {
    let (limits, rates) = (&server.limits, &server.rate_limit);
    for (at, proxy) in server.trusted_proxies.iter().enumerate() {
        if network(proxy).is_none() {
            return broken(
                format!("server.trustedProxies[{at}]"),
                "must be an address or a network such as 10.0.0.0/8",
            );
        }
    }
    at_least("server.rateLimit.perKey", rates.per_key.unwrap_or(1).into(), 1)?;
    at_least("server.rateLimit.perAddress", rates.per_address.unwrap_or(1).into(), 1)?;
    at_least("server.rateLimit.burstSeconds", rates.burst_seconds.into(), 1)?;
    at_least("server.limits.connections", limits.connections.into(), 1)?;
    at_least("server.limits.connectionsPerAddress", limits.connections_per_address.into(), 1)?;
    at_least("server.limits.headBytes", limits.head_bytes.into(), HEAD_BYTES_MIN)?;
    at_most("server.limits.headBytes", limits.head_bytes.into(), HEAD_BYTES_MAX)?;
    at_least("server.limits.headers", limits.headers.into(), HEADERS_MIN)?;
    at_most("server.limits.headers", limits.headers.into(), HEADERS_MAX)?;
    at_least("server.limits.urlBytes", limits.url_bytes.into(), URL_BYTES_MIN)?;
    ms("server.limits.headMs", 1, limits.head_ms)?;
    ms("server.limits.bodyMs", 1, limits.body_ms)?;
    at_least("server.limits.bodyBytes", limits.body_bytes, BODY_BYTES_MIN)?;
    ms("server.limits.stallMs", 1, limits.stall_ms)?;
    match (&server.tls.cert, &server.tls.key) {
        (Some(_), None) => broken("server.tls.key", "is needed beside server.tls.cert"),
        (None, Some(_)) => broken("server.tls.cert", "is needed beside server.tls.key"),
        _ => Ok(()),
    }
}

/// What the HTTP library reads at once.
const HEAD_BYTES_MIN: u64 = 8 * 1024;
const HEAD_BYTES_MAX: u64 = 1024 * 1024;
/// What ordinary clients and proxies send.
const HEADERS_MIN: u64 = 16;
const HEADERS_MAX: u64 = 1000;
/// Half of it, the share of one key, holds the largest batch.
const BODY_BYTES_MIN: u64 = 2 * BATCH_BODY_BYTES_MAX as u64;
/// A session's key of 256 bytes, each percent-encoded, and what stands around it.
const URL_BYTES_MIN: u64 = 1024;

fn check_scheduling(config: &Config) -> Checked {
    let scheduling = &config.scheduling;
    ms("scheduling.agingMs", 1, scheduling.aging_ms)?;
    ms("scheduling.quotaWaitMsMax", 1, scheduling.quota_wait_ms_max)?;
    at_least("scheduling.agedOneIn", u64::from(scheduling.aged_one_in), 1)?;
    at_least("scheduling.windowMax", u64::from(scheduling.window_max), 1)?;
    at_least("scheduling.duesMax", u64::from(scheduling.dues_max), 1)?;
    ms("retention.tasksMs", 0, config.retention.tasks_ms)?;
    ms("retention.eventsMs", 0, config.retention.events_ms)?;
    ms("retention.deliveriesMs", 0, config.retention.deliveries_ms)
}

fn check_workers(config: &Config) -> Checked {
    let workers = &config.workers;
    ms("workers.heartbeatMs", HEARTBEAT_MS_MIN, workers.heartbeat_ms)?;
    // With less, one that is a little late makes a healthy worker lose everything it runs.
    ms("workers.offlineAfterMs", workers.heartbeat_ms.saturating_mul(2), workers.offline_after_ms)?;
    ms("workers.cooldownMs", 0, workers.cooldown_ms)?;
    ms("workers.assignTimeoutMs", 1, workers.assign_timeout_ms)?;
    ms("workers.forgetAfterMs", workers.offline_after_ms, workers.forget_after_ms)?;
    at_most("workers.max", workers.max.into(), WORKERS_MAX)?;
    if !(0.0..=100.0).contains(&workers.max_cpu_usage) {
        return broken("workers.maxCpuUsage", "must be from 0 to 100");
    }
    let weights = &workers.weights;
    let named =
        [("cpuUsage", weights.cpu_usage), ("reservedCpu", weights.reserved_cpu), ("reservedRam", weights.reserved_ram)];
    match named.into_iter().find(|(_, weight)| !(0.0..=WEIGHT_MAX).contains(weight)) {
        Some((name, _)) => broken(format!("workers.weights.{name}"), "must be from 0 to 1000"),
        None => Ok(()),
    }
}

fn check_autoscale(config: &Config) -> Checked {
    let autoscale = &config.autoscale;
    if !autoscale.url.is_empty() && !autoscale.command.is_empty() {
        return broken("autoscale.command", "a command or a url, not both");
    }
    if !autoscale.url.is_empty() {
        let checked = config.outbound.check_url(&autoscale.url);
        checked.map_err(|message| Broken::new("autoscale.url", &message))?;
    }
    ms("autoscale.afterMs", 0, autoscale.after_ms)?;
    ms("autoscale.idleAfterMs", 0, autoscale.idle_after_ms)?;
    ms("autoscale.everyMs", 1000, autoscale.every_ms)
}

/// More often is a flood, and not news.
const HEARTBEAT_MS_MIN: u64 = 100;
/// Ten times what placement was measured with.
const WORKERS_MAX: u64 = 100_000;
const WEIGHT_MAX: f64 = 1000.0;

fn check_limits(config: &Config) -> Checked {
    let limits = &config.limits;
    at_most("limits.maxQueued", limits.max_queued, COUNT_MAX)?;
    at_most("limits.maxQueuedPerAgent", limits.max_queued_per_agent, COUNT_MAX)?;
    at_most("retention.eventsBytesMax", config.retention.events_bytes_max, COUNT_MAX)?;
    at_least("limits.maxFlows", u64::from(limits.max_flows), 1)?;
    at_least("limits.maxFlowsPerAgent", u64::from(limits.max_flows_per_agent), 1)
}

fn check_files(config: &Config) -> Checked {
    let (process, uploads) = (&config.process, &config.uploads);
    at_most("process.filesBytesMax", process.files_bytes_max, COUNT_MAX)?;
    at_most("process.filesMax", process.files_max, COUNT_MAX)?;
    at_most("process.artifactsBytesMax", process.artifacts_bytes_max, COUNT_MAX)?;
    at_most("process.artifactsMax", process.artifacts_max, COUNT_MAX)?;
    at_most("uploads.bytesMax", uploads.bytes_max, COUNT_MAX)?;
    ms("uploads.keepMs", 0, uploads.keep_ms)
}

/// The same rules as for a task that asks for them.
fn check_process_limits(config: &Config) -> Checked {
    let ProcessLimits { cpu, ram_mb, pids, output_bytes } = config.process.limits;
    let checked = limits_of_task(Some(&Limits { cpu, ram_mb, pids, output_bytes }), "process");
    checked.map_err(|invalid| Broken { field: format!("process.{}", invalid.field), message: invalid.message })
}

/// The same rules again, for what a container gets and for what it may ask for.
fn check_docker(config: &Config) -> Checked {
    let docker = &config.docker;
    if !docker.socket.is_absolute() {
        return broken("docker.socket".to_owned(), "must be an absolute path");
    }
    let DockerLimits { cpu, ram_mb, pids, output_bytes } = docker.limits;
    let given = Limits { cpu: Some(cpu), ram_mb: Some(ram_mb), pids: Some(pids), output_bytes };
    let checked = limits_of_task(Some(&given), "docker");
    checked.map_err(|invalid| Broken { field: format!("docker.{}", invalid.field), message: invalid.message })?;
    let ceilings = Limits { cpu: docker.cpu_max, ram_mb: docker.ram_mb_max, pids: docker.pids_max, output_bytes: None };
    limits_of_task(Some(&ceilings), "docker").map_err(|invalid| {
        let key = invalid.field.strip_prefix("limits.").unwrap_or(&invalid.field);
        Broken { field: format!("docker.{key}Max"), message: invalid.message }
    })?;
    // Else nothing that says nothing of its own could ever run.
    for (key, given, most) in [
        ("cpu", Some(cpu), docker.cpu_max),
        ("ramMb", Some(f64::from(ram_mb)), docker.ram_mb_max.map(f64::from)),
        ("pids", Some(f64::from(pids)), docker.pids_max.map(f64::from)),
    ] {
        if most.is_some_and(|most| given.is_some_and(|given| given > most)) {
            return broken(format!("docker.limits.{key}"), &format!("is over docker.{key}Max"));
        }
    }
    Ok(())
}

/// Beyond it a number is no longer exact in JSON, and sums of several may not fit what a store keeps.
const COUNT_MAX: u64 = 1 << 53;

fn check_defaults(config: &Config) -> Checked {
    let defaults = &config.defaults;
    ms("defaults.timeoutMsMax", 1, defaults.timeout_ms_max)?;
    check_timeout("defaults", defaults.timeout_ms, defaults.timeout_ms_max)?;
    check_retry("defaults", &defaults.retry)?;
    for (name, agent) in &config.agents {
        let at = format!("agents.{name}");
        agent.timeout_ms.map_or(Ok(()), |ms| check_timeout(&at, ms, defaults.timeout_ms_max))?;
        agent.retry.as_ref().map_or(Ok(()), |retry| check_retry(&at, retry))?;
    }
    for (name, kind) in &config.kinds {
        let at = format!("kinds.{name}");
        kind.timeout_ms.map_or(Ok(()), |ms| check_timeout(&at, ms, defaults.timeout_ms_max))?;
        kind.retry.as_ref().map_or(Ok(()), |retry| check_retry(&at, retry))?;
    }
    Ok(())
}

fn check_timeout(at: &str, timeout_ms: u64, timeout_ms_max: u64) -> Checked {
    if (1..=timeout_ms_max).contains(&timeout_ms) {
        return Ok(());
    }
    broken(format!("{at}.timeoutMs"), &format!("must be from 1 to defaults.timeoutMsMax ({timeout_ms_max})"))
}

fn check_retry(at: &str, retry: &Retry) -> Checked {
    if retry.max_retries.is_some_and(|n| n > RETRIES_MAX) {
        return broken(format!("{at}.retry.maxRetries"), "must be from 0 to 1000");
    }
    if retry.multiplier.is_some_and(|factor| !(1.0..=MULTIPLIER_MAX).contains(&factor)) {
        return broken(format!("{at}.retry.multiplier"), "must be from 1 to 1000");
    }
    if retry.jitter.is_some_and(|part| !(0.0..=1.0).contains(&part)) {
        return broken(format!("{at}.retry.jitter"), "must be from 0 to 1");
    }
    ms(&format!("{at}.retry.backoffMs"), 0, retry.backoff_ms.unwrap_or(0))?;
    ms(&format!("{at}.retry.maxBackoffMs"), 0, retry.max_backoff_ms.unwrap_or(0))
}

pub const RETRIES_MAX: u32 = 1000;
pub const MULTIPLIER_MAX: f64 = 1000.0;

fn check_gate(name: &str, gate: &super::types::Gate) -> Checked {
    if gate.max_inflight.is_none() && gate.per_minute.is_none() {
        return broken(
            format!("gates.{name}"),
            "needs maxInflight, perMinute, or both: a gate without a limit holds nothing",
        );
    }
    if let Some(n) = gate.per_minute {
        at_least(&format!("gates.{name}.perMinute"), u64::from(n), 1)?;
    }
    if let Some(n) = gate.burst {
        at_least(&format!("gates.{name}.burst"), u64::from(n), 1)?;
    }
    Ok(())
}

fn check_sessions(config: &Config) -> Checked {
    let sessions = &config.sessions;
    check_session("sessions", &sessions.settings())?;
    if !(sessions.context_threshold > 0.0 && sessions.context_threshold <= 1.0) {
        return broken("sessions.contextThreshold", "must be more than 0 and at most 1");
    }
    for (name, settings) in &sessions.lanes {
        check_session(&format!("sessions.lanes.{name}"), settings)?;
    }
    for (at, pattern) in sessions.patterns.iter().enumerate() {
        let at = format!("sessions.patterns[{at}]");
        if pattern.key.is_empty() || pattern.key.len() > SESSION_KEY_BYTES_MAX {
            return broken(format!("{at}.match"), "must be 1 to 256 bytes, such as agent:*:group:*");
        }
        check_session(&at, &pattern.settings())?;
    }
    Ok(())
}

fn check_session(at: &str, settings: &SessionSettings) -> Checked {
    at_least(&format!("{at}.cap"), u64::from(settings.cap.unwrap_or(1)), 1)?;
    at_least(&format!("{at}.maxConcurrent"), u64::from(settings.max_concurrent.unwrap_or(1)), 1)?;
    ms(&format!("{at}.debounceMs"), 0, settings.debounce_ms.unwrap_or(0))?;
    ms(&format!("{at}.maxWaitMs"), 0, settings.max_wait_ms.unwrap_or(0))
}

/// The bounds of a task's own times: both are added to the same clocks.
fn ms(field: &str, least: u64, value: u64) -> Checked {
    if (least..=MS_MAX).contains(&value) {
        return Ok(());
    }
    broken(field, &format!("must be from {least} to {MS_MAX} milliseconds"))
}

fn at_most(field: &str, value: u64, most: u64) -> Checked {
    if value <= most { Ok(()) } else { broken(field, &format!("must be at most {most}")) }
}

fn at_least(field: &str, value: u64, least: u64) -> Checked {
    if value >= least { Ok(()) } else { broken(field, &format!("must be at least {least}")) }
}

pub(super) fn broken(field: impl Into<String>, message: &str) -> Checked {
    Err(Broken::new(field, message))
}
