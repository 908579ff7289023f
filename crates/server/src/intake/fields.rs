//! The rules of single fields.

use std::collections::BTreeMap;

use runyard_core::flow::{Place, Resources};
use runyard_core::name::Name;
use runyard_core::task::{Class, OnDependencyFailure, Retry, Tier};
use runyard_wire as wire;

use crate::config::{self, MULTIPLIER_MAX, NAME_RULE, RETRIES_MAX, RetryClass, name_is_valid};
use crate::problem::Invalid;

pub const DEPENDENCIES_MAX: usize = 1000;
pub const TAGS_MAX: usize = 32;
const LABELS_MAX: usize = 32;
const RESOURCES_MAX: usize = 16;
const METADATA_BYTES_MAX: usize = 16 * 1024;
const TITLE_BYTES_MAX: usize = 256;
/// A hundred years: beyond it, sums of times could overflow what a store keeps.
pub const MS_MAX: u64 = 100 * 365 * 24 * 3_600_000;
pub const CPU_MAX: f64 = 1_000_000.0;
/// A hundredth of a core is the least the kernel takes.
pub const CPU_LIMIT_MIN: f64 = 0.01;

pub type Checked<T> = Result<T, Invalid>;

pub fn name(field: &str, text: &str) -> Checked<Name> {
    if name_is_valid(text) { Ok(Name::new(text)) } else { Err(Invalid::new(field, NAME_RULE)) }
}

/// A name for people: more is allowed than in a name that is a key.
pub fn title(field: &str, text: Option<&str>) -> Checked<()> {
    let bad = |text: &str| text.is_empty() || text.len() > TITLE_BYTES_MAX || text.chars().any(char::is_control);
    match text {
        Some(text) if bad(text) => Err(Invalid::new(field, "must be 1 to 256 bytes without control characters")),
        _ => Ok(()),
    }
}

pub fn callback_url(config: &config::Config, url: Option<&str>) -> Checked<()> {
    let checked = url.map_or(Ok(()), |url| config.outbound.check_url(url).map(drop));
    checked.map_err(|message| Invalid::new("callbackUrl", message))
}

pub fn ms(field: &str, least: u64, value: Option<u64>) -> Checked<Option<u64>> {
    match value {
        Some(ms) if !(least..=MS_MAX).contains(&ms) => {
            Err(Invalid::new(field, format!("must be from {least} to {MS_MAX} milliseconds")))
        }
        value => Ok(value),
    }
}

pub fn tier(priority: wire::Priority) -> Tier {
    match priority {
        wire::Priority::Critical => Tier::Critical,
        wire::Priority::High => Tier::High,
        wire::Priority::Normal => Tier::Normal,
        wire::Priority::Low => Tier::Low,
    }
}

pub fn on_dependency_failure(asked: wire::OnDependencyFailure) -> OnDependencyFailure {
    match asked {
        wire::OnDependencyFailure::Cancel => OnDependencyFailure::Cancel,
        wire::OnDependencyFailure::Fail => OnDependencyFailure::Fail,
        wire::OnDependencyFailure::Run => OnDependencyFailure::Run,
    }
}

pub fn tags(tags: &[String]) -> Checked<()> {
    if tags.len() > TAGS_MAX {
        return Err(Invalid::new("tags", format!("at most {TAGS_MAX} tags, these are {}", tags.len())));
    }
    let bad = tags.iter().position(|tag| !name_is_valid(tag));
    bad.map_or(Ok(()), |at| Err(Invalid::new(format!("tags[{at}]"), NAME_RULE)))
}

pub fn metadata(metadata: Option<&serde_json::Map<String, serde_json::Value>>) -> Checked<()> {
    let Some(metadata) = metadata else { return Ok(()) };
    let bytes = serde_json::to_vec(metadata).map_or(usize::MAX, |text| text.len());
    if bytes > METADATA_BYTES_MAX {
        return Err(Invalid::new("metadata", format!("at most {METADATA_BYTES_MAX} bytes of JSON, this is {bytes}")));
    }
    Ok(())
}

/// Sorted, each once; only configured ones, because a gate that does not exist would hold nothing back in silence.
pub fn gates(gates: &[String], config: &config::Config) -> Checked<Vec<Name>> {
    for (at, gate) in gates.iter().enumerate() {
        if !config.gates.contains_key(gate) {
            let field = format!("gates[{at}]");
            let shown: String = gate.chars().take(64).collect();
            return Err(Invalid {
                code: "unknown_gate",
                field,
                message: format!("there is no gate `{shown}` in [gates]"),
            });
        }
    }
    let mut names: Vec<_> = gates.iter().map(|gate| Name::new(gate)).collect();
    names.sort();
    names.dedup();
    Ok(names)
}

/// The request's retry over its agent's, its kind's and the general one.
pub fn retry(asked: Option<&wire::RetryRequest>, wider: [Option<&config::Retry>; 3]) -> Checked<Retry> {
    let core = Retry::default();
    let asked = asked.cloned().unwrap_or_default();
    let pick = |own: Option<f64>, of: fn(&config::Retry) -> Option<f64>| {
        own.or_else(|| wider.iter().flatten().find_map(|r| of(r)))
    };
    let pick_ms = |own: Option<u64>, of: fn(&config::Retry) -> Option<u64>| {
        own.or_else(|| wider.iter().flatten().find_map(|r| of(r)))
    };
    let max_retries = pick_ms(asked.max_retries.map(u64::from), |retry| retry.max_retries.map(u64::from));
    let max_retries = max_retries.unwrap_or(u64::from(core.max_retries));
    let multiplier = pick(asked.multiplier, |retry| retry.multiplier).unwrap_or(2.0);
    let jitter = pick(asked.jitter, |retry| retry.jitter).unwrap_or(0.25);
    let backoff_ms = pick_ms(asked.backoff_ms, |retry| retry.backoff_ms).unwrap_or(core.backoff_ms);
    let max_backoff_ms = pick_ms(asked.max_backoff_ms, |retry| retry.max_backoff_ms).unwrap_or(core.backoff_ms_max);
    if max_retries > u64::from(RETRIES_MAX) {
        return Err(Invalid::new("retry.maxRetries", format!("must be from 0 to {RETRIES_MAX}")));
    }
    if !(1.0..=MULTIPLIER_MAX).contains(&multiplier) {
        return Err(Invalid::new("retry.multiplier", format!("must be from 1 to {MULTIPLIER_MAX}")));
    }
    if !(0.0..=1.0).contains(&jitter) {
        return Err(Invalid::new("retry.jitter", "must be from 0 to 1"));
    }
    ms("retry.backoffMs", 0, Some(backoff_ms))?;
    ms("retry.maxBackoffMs", 0, Some(max_backoff_ms))?;
    let configured = || wider.iter().flatten().find_map(|retry| retry.on.as_deref()).map(configured_classes);
    let on = asked.on.as_deref().map(asked_classes).transpose()?.or_else(configured).unwrap_or(core.on);
    Ok(Retry {
        max_retries: max_retries as u32,
        backoff_ms,
        multiplier_milli: (multiplier * 1000.0).round() as u32,
        backoff_ms_max: max_backoff_ms,
        jitter_milli: (jitter * 1000.0).round() as u32,
        on,
    })
}

fn asked_classes(classes: &[wire::Class]) -> Checked<u8> {
    let mut bits = 0;
    for (at, class) in classes.iter().enumerate() {
        bits |= match class {
            wire::Class::Task => Class::Task.bit(),
            wire::Class::Timeout => Class::Timeout.bit(),
            wire::Class::Lost => Class::Lost.bit(),
            wire::Class::Quota => Class::Quota.bit(),
            wire::Class::Permanent | wire::Class::Deadline => {
                let message = format!("`{class}` is never retried; task, timeout, lost and quota can be");
                return Err(Invalid::new(format!("retry.on[{at}]"), message));
            }
        };
    }
    Ok(bits)
}

fn configured_classes(classes: &[RetryClass]) -> u8 {
    let bit = |class: &RetryClass| match class {
        RetryClass::Task => Class::Task.bit(),
        RetryClass::Timeout => Class::Timeout.bit(),
        RetryClass::Lost => Class::Lost.bit(),
        RetryClass::Quota => Class::Quota.bit(),
    };
    classes.iter().map(bit).fold(0, |bits, bit| bits | bit)
}

/// Programs get a core and some memory reserved unless they say otherwise; what only waits gets nothing.
pub fn resources(asked: Option<&wire::Resources>, kind: &str) -> Checked<(Resources, wire::Resources)> {
    let mut shown = asked.cloned().unwrap_or_default();
    if runs_a_program(kind) {
        shown.cpu.get_or_insert(1.0);
        shown.ram_mb.get_or_insert(256);
    }
    if shown.cpu.is_some_and(|cpu| !(cpu > 0.0 && cpu <= CPU_MAX)) {
        return Err(Invalid::new("resources.cpu", format!("must be more than 0 and at most {CPU_MAX}")));
    }
    if shown.ram_mb == Some(0) {
        return Err(Invalid::new("resources.ramMb", "must be at least 1"));
    }
    if shown.named.len() > RESOURCES_MAX {
        return Err(Invalid::new("resources", format!("at most {RESOURCES_MAX} named resources")));
    }
    let mut named = Vec::with_capacity(shown.named.len() + 1);
    let gpu = shown.gpu.map(|n| ("gpu", n));
    for (resource, n) in shown.named.iter().map(|(resource, n)| (resource.as_str(), *n)).chain(gpu) {
        let field = format!("resources.{}", resource.chars().take(64).collect::<String>());
        if n == 0 {
            return Err(Invalid::new(field, "must be at least 1"));
        }
        named.push((name(&field, resource)?, n));
    }
    named.sort();
    // Rounded up: a task must never get less than it asked for.
    let cpu_milli = shown.cpu.map_or(0, |cpu| (cpu * 1000.0).ceil() as u32);
    Ok((Resources { cpu_milli, ram_mb: shown.ram_mb.unwrap_or(0), named }, shown))
}

pub fn runs_a_program(kind: &str) -> bool {
    matches!(kind, "process" | "docker")
}

pub fn place(asked: Option<&wire::Place>) -> Checked<Place> {
    let Some(asked) = asked else { return Ok(Place::default()) };
    Ok(Place {
        require: labels("place.require", &asked.require)?,
        prefer: labels("place.prefer", &asked.prefer)?,
        avoid: labels("place.avoid", &asked.avoid)?,
        spread_by: asked.spread_by.as_deref().map(|label| name("place.spreadBy", label)).transpose()?,
    })
}

pub fn labels(field: &str, labels: &BTreeMap<String, String>) -> Checked<Vec<(Name, Name)>> {
    if labels.len() > LABELS_MAX {
        return Err(Invalid::new(field, format!("at most {LABELS_MAX} labels")));
    }
    labels.iter().map(|(key, value)| Ok((name(field, key)?, name(field, value)?))).collect()
}

/// What is enforced while it runs. A built-in kind without a process of its own has nothing but its output to limit; what
/// a worker's own kind can do is the worker's to know.
pub fn limits(asked: Option<&wire::Limits>, kind: &str) -> Checked<()> {
    let Some(limits) = asked else { return Ok(()) };
    let set = [("cpu", limits.cpu.is_some()), ("ramMb", limits.ram_mb.is_some()), ("pids", limits.pids.is_some())];
    if let Some((field, _)) = set.into_iter().find(|(_, set)| *set && matches!(kind, "http" | "noop")) {
        let message = format!("a task of kind {kind} has no process to limit: only outputBytes");
        return Err(Invalid::new(format!("limits.{field}"), message));
    }
    if limits.cpu.is_some_and(|cpu| !(CPU_LIMIT_MIN..=CPU_MAX).contains(&cpu)) {
        return Err(Invalid::new("limits.cpu", format!("must be from {CPU_LIMIT_MIN} to {CPU_MAX}")));
    }
    if limits.ram_mb == Some(0) {
        return Err(Invalid::new("limits.ramMb", "must be at least 1"));
    }
    if limits.pids == Some(0) {
        return Err(Invalid::new("limits.pids", "must be at least 1"));
    }
    let bytes_max = runyard_exec::log::LOG_BYTES_MAX;
    match limits.output_bytes {
        Some(bytes) if !(1..=bytes_max).contains(&bytes) => {
            Err(Invalid::new("limits.outputBytes", format!("must be from 1 to {bytes_max}")))
        }
        _ => Ok(()),
    }
}
