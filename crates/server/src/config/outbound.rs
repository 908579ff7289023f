//! What the server calls by itself: where it may connect to, and who is told of what.

use runyard_core::event::HappeningKind;
use runyard_core::outbox::Hook;
use runyard_exec::guard::{Allow, Guard};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use super::check::{Broken, Checked, NAME_RULE, broken, name_is_valid};
use super::sealed::is_lost;
use super::types::Config;
use crate::webhook::{secrets_of, target_of};

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Outbound {
    /// What may be called beside public addresses: addresses, networks such as `10.1.0.0/16`, host names. Link-local
    /// addresses and those of cloud metadata services are never called.
    pub allow: Vec<String>,
    /// True: `http` tasks too, and `files` that are fetched from a `url`, may only call public addresses and what is
    /// allowed here. Webhooks are guarded always.
    pub guard_http_tasks: bool,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Webhook {
    /// Where the messages go: http or https.
    #[schemars(example = &"https://example.com/hooks")]
    pub url: String,
    /// What it is told of: names of events, or `task.*`, `session.*`, `*`. Default: the ends of tasks.
    #[serde(default = "final_events")]
    #[schemars(example = ["task.completed", "task.failed", "task.cancelled"])]
    pub events: Vec<String>,
    /// Only tasks of these agents; empty for all.
    #[serde(default)]
    #[schemars(example = ["bot"])]
    pub agents: Vec<String>,
    /// Only tasks in these lanes; empty for all.
    #[serde(default)]
    #[schemars(example = ["main"])]
    pub lanes: Vec<String>,
    /// Only tasks of these kinds; empty for all.
    #[serde(default)]
    #[schemars(example = ["http"])]
    pub kinds: Vec<String>,
    /// What its messages are signed with, in the place of the server's own secret: `whsec_…`, or two of them with a
    /// space between while it changes. It is not shown again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]
    pub secret: Option<String>,
}

fn final_events() -> Vec<String> {
    HappeningKind::ALL.into_iter().filter(|kind| kind.ends_a_task()).map(|kind| kind.as_str().to_owned()).collect()
}

impl Outbound {
    /// Entries are checked when the configuration is read.
    pub fn allow(&self) -> Vec<Allow> {
        self.allow.iter().filter_map(|entry| entry.parse().ok()).collect()
    }

    pub fn apply(&self, guard: &Guard) {
        guard.set_allow(self.allow());
        guard.cover_tasks(self.guard_http_tasks);
    }

    /// What can be said of a URL before anybody calls it.
    pub fn check_url(&self, url: &str) -> Result<Url, String> {
        if url.len() > URL_BYTES_MAX {
            return Err(format!("must be at most {URL_BYTES_MAX} bytes"));
        }
        let url = Url::parse(url).map_err(|error| format!("is not a URL: {error}"))?;
        Guard::new(self.allow()).check_url(&url).map_err(|blocked| blocked.to_string())?;
        Ok(url)
    }
}

const URL_BYTES_MAX: usize = 2048;

impl Webhook {
    pub fn hook(&self, name: &str) -> Hook {
        let names = |names: &[String]| names.iter().map(|name| name.as_str().into()).collect();
        Hook {
            name: name.into(),
            events: self.events.iter().filter_map(|event| event_bits(event)).fold(0, |bits, more| bits | more),
            agents: names(&self.agents),
            lanes: names(&self.lanes),
            kinds: names(&self.kinds),
        }
    }
}

/// `None` for a name that is none.
fn event_bits(name: &str) -> Option<u64> {
    let prefix = name.strip_suffix('*').filter(|prefix| prefix.is_empty() || prefix.ends_with('.'));
    let is_meant =
        |kind: &HappeningKind| prefix.map_or(kind.as_str() == name, |prefix| kind.as_str().starts_with(prefix));
    let bits = HappeningKind::ALL.into_iter().filter(is_meant).fold(0, |bits, kind| bits | kind.bit());
    (bits != 0).then_some(bits)
}

pub(super) fn check(config: &Config) -> Checked {
    for (at, entry) in config.outbound.allow.iter().enumerate() {
        let field = || format!("outbound.allow[{at}]");
        let allow = entry.parse::<Allow>().map_err(|error| Broken::new(field(), &error.to_string()))?;
        if let Some(what) = allow.never() {
            return broken(field(), &format!("is {what}, which is never called"));
        }
    }
    for (name, webhook) in &config.webhooks {
        if !name_is_valid(name) {
            return broken(format!("webhooks.{name}"), NAME_RULE);
        }
        check_webhook(config, name, webhook)?;
    }
    Ok(())
}

fn check_webhook(config: &Config, name: &str, webhook: &Webhook) -> Checked {
    let at = |field: &str| format!("webhooks.{name}.{field}");
    if webhook.url.ends_with(REST_HIDDEN) {
        return broken(at("url"), "is what is shown in the place of the whole URL: leave it out, or give it whole");
    }
    config.outbound.check_url(&webhook.url).map_err(|message| Broken::new(at("url"), &message))?;
    if let Some(n) = webhook.events.iter().position(|event| event_bits(event).is_none()) {
        return broken(at(&format!("events[{n}]")), "is no event; see GET /v1/events, or task.*, session.*, *");
    }
    for (field, names) in [("agents", &webhook.agents), ("lanes", &webhook.lanes), ("kinds", &webhook.kinds)] {
        if let Some(n) = names.iter().position(|name| !name_is_valid(name)) {
            return broken(at(&format!("{field}[{n}]")), NAME_RULE);
        }
    }
    let secret = webhook.secret.as_deref().filter(|secret| !is_lost(secret)).map_or(Ok(Vec::new()), secrets_of);
    secret.map(drop).map_err(|error| Broken::new(at("secret"), &error.to_string()))
}

/// The configuration as it may be shown: secrets are not.
pub fn redacted(mut values: Value) -> Value {
    let webhooks = values.get_mut("webhooks").and_then(Value::as_object_mut);
    for webhook in webhooks.into_iter().flat_map(|webhooks| webhooks.values_mut()) {
        if let Some(secret) = webhook.get_mut("secret") {
            *secret = Value::String(HIDDEN.to_owned());
        }
        if let Some(Value::String(url)) = webhook.get_mut("url") {
            *url = shown_url(url);
        }
    }
    if let Some(Value::String(url)) = values.pointer_mut("/store/url") {
        *url = HIDDEN.to_owned();
    }
    if let Some(Value::String(url)) = values.pointer_mut("/autoscale/url").filter(|url| **url != "") {
        *url = shown_url(url);
    }
    let headers = values.pointer_mut("/telemetry/otlpHeaders").and_then(Value::as_array_mut);
    for header in headers.into_iter().flatten() {
        let name = header.as_str().and_then(|text| text.split(':').next()).unwrap_or_default();
        *header = Value::String(format!("{name}: {HIDDEN}"));
    }
    values
}

/// Of a receiver's URL only the place: what follows is often a token.
pub fn shown_url(url: &str) -> String {
    match Url::parse(url) {
        Ok(parsed) if parsed.path() == "/" && parsed.query().is_none() && parsed.fragment().is_none() => url.to_owned(),
        Ok(parsed) => format!("{}{REST_HIDDEN}", target_of(&parsed)),
        Err(_) => HIDDEN.to_owned(),
    }
}

/// In the place of path and query. No URL that is called ends so, so it cannot be set by mistake.
const REST_HIDDEN: &str = "/…";
/// What stands in the place of a secret. It is no secret itself, so it cannot be set by mistake.
const HIDDEN: &str = "***";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Layers, merge};
    use super::*;

    fn merged(file: Value) -> Result<Config, String> {
        let file = file.as_object().expect("an object").clone();
        merge(&Layers { file, ..Layers::default() }).map(|merged| merged.config).map_err(|error| error.to_string())
    }

    #[test]
    fn a_subscription_reaches_the_scheduler() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let config = merged(json!({ "webhooks": {
            "ends": { "url": "https://example.com/x" },
            "all": { "url": "https://example.com/y", "events": ["session.*", "task.started"], "agents": ["a"], "secret": secret },
        } }))
        .expect("valid");
        let hooks = super::super::to_core(&config).hooks;
        let bits = |kinds: &[HappeningKind]| kinds.iter().fold(0, |bits, kind| bits | kind.bit());
        use HappeningKind::{
            SessionChanged, SessionReset, SessionStopped, TaskCancelled, TaskCompleted, TaskFailed, TaskStarted,
        };
        assert_eq!(
            (&*hooks[0].name, hooks[0].events),
            ("all", bits(&[SessionChanged, SessionStopped, SessionReset, TaskStarted]))
        );
        assert_eq!(hooks[0].agents, ["a".into()]);
        assert_eq!((&*hooks[1].name, hooks[1].events), ("ends", bits(&[TaskCompleted, TaskFailed, TaskCancelled])));
        assert_eq!(event_bits("*"), Some(bits(&HappeningKind::ALL)));
        let shown = redacted(serde_json::to_value(&config).expect("plain data"));
        assert_eq!(shown["webhooks"]["all"]["secret"], "***");
        assert!(!shown.to_string().contains("MfKQ9r8G"));
        assert_eq!(shown["webhooks"]["all"]["url"], "https://example.com/…");
        for (url, expected) in [
            ("https://example.com", "https://example.com"),
            ("http://h:8080/?token=x", "http://h:8080/…"),
            ("http://h/#x", "http://h/…"),
        ] {
            assert_eq!(shown_url(url), expected);
        }
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_place() {
        let url = "https://example.com/";
        let table = [
            (json!({ "outbound": { "allow": ["10.0.0.0/8", "a b"] } }), "outbound.allow[1]"),
            (json!({ "outbound": { "allow": ["169.254.169.254"] } }), "outbound.allow[0]"),
            (json!({ "outbound": { "allow": ["fe80::/64"] } }), "outbound.allow[0]"),
            (json!({ "outbound": { "allow": ["::ffff:169.254.0.0/112"] } }), "outbound.allow[0]"),
            (json!({ "webhooks": { "x": { "url": "https://example.com/…" } } }), "webhooks.x.url"),
            (json!({ "webhooks": { "x": { "url": "http://127.0.0.1/" } } }), "webhooks.x.url"),
            (json!({ "webhooks": { "x": { "url": "http://me@example.com/" } } }), "webhooks.x.url"),
            (json!({ "webhooks": { "x": { "url": "ftp://example.com/" } } }), "webhooks.x.url"),
            (json!({ "webhooks": { "x": { "url": "example.com" } } }), "webhooks.x.url"),
            (
                json!({ "webhooks": { "x": { "url": url, "events": ["task.completed", "task.done"] } } }),
                "webhooks.x.events[1]",
            ),
            (json!({ "webhooks": { "x": { "url": url, "events": ["tas*"] } } }), "webhooks.x.events[0]"),
            (json!({ "webhooks": { "x": { "url": url, "lanes": ["a b"] } } }), "webhooks.x.lanes[0]"),
            (json!({ "webhooks": { "x": { "url": url, "secret": "***" } } }), "webhooks.x.secret"),
            (json!({ "webhooks": { "x y": { "url": url } } }), "webhooks.x y"),
            (json!({ "webhooks": { "x": {} } }), "webhooks.x"),
        ];
        for (file, field) in table {
            let error = merged(file.clone()).expect_err("refused");
            assert!(error.contains(field), "{file}: {error}");
        }
        let allowed =
            json!({ "outbound": { "allow": ["127.0.0.1"] }, "webhooks": { "x": { "url": "http://127.0.0.1:1/" } } });
        assert!(merged(allowed).is_ok());
    }
}
