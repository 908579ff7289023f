//! Rules that types cannot say.

use std::net::SocketAddr;

use super::types::{Config, Retry};

pub(super) struct Broken {
    pub field: String,
    pub message: String,
}

type Checked = Result<(), Broken>;

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
    let scheduling = &config.scheduling;
    at_least("scheduling.agingMs", scheduling.aging_ms, 1)?;
    at_least("scheduling.agedOneIn", u64::from(scheduling.aged_one_in), 1)?;
    at_least("scheduling.windowMax", u64::from(scheduling.window_max), 1)?;
    at_least("scheduling.duesMax", u64::from(scheduling.dues_max), 1)?;
    at_least("limits.maxFlows", u64::from(config.limits.max_flows), 1)?;
    at_least("limits.maxFlowsPerAgent", u64::from(config.limits.max_flows_per_agent), 1)?;
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
    if config.worker.cpu.is_some_and(|cpu| !(cpu > 0.0 && cpu <= 1e6)) {
        return broken("worker.cpu", "must be more than 0");
    }
    Ok(())
}

fn check_defaults(config: &Config) -> Checked {
    let defaults = &config.defaults;
    at_least("defaults.timeoutMsMax", defaults.timeout_ms_max, 1)?;
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
    Ok(())
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

fn at_least(field: &str, value: u64, least: u64) -> Checked {
    if value >= least { Ok(()) } else { broken(field, &format!("must be at least {least}")) }
}

fn broken(field: impl Into<String>, message: &str) -> Checked {
    Err(Broken { field: field.into(), message: message.to_owned() })
}
