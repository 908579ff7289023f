//! From a start to what a worker on another machine is told of it: the same that the server's own worker makes of it, but
//! with the values of its secrets beside the payload, because the vault is here.

use std::collections::BTreeMap;
use std::sync::Arc;

use runyard_core::event::{Fault, Report, Start};
use runyard_core::task::Class;
use runyard_exec::{Secrets, secret};
use runyard_wire::{Id, Json, Limits, SecretValues, StartOrder, Timestamp, Token};
use runyard_worker::{MayRun, merged_payload};
use serde::Deserialize;
use serde_json::value::RawValue;

/// What orders are made with.
pub struct Workshop {
    pub may_run: MayRun,
    pub secrets: Arc<dyn Secrets>,
}

/// Why a start is not handed out, in words for people.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused(String);

impl Refused {
    /// The worker has no part in it.
    pub fn report(self) -> Report {
        Report::Failed {
            class: Class::Permanent,
            message: self.0.into(),
            retry_after_ms: None,
            result: None,
            usage: None,
            fault: Fault::Work,
        }
    }
}

#[derive(Deserialize)]
struct Spec<'a> {
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    limits: Option<Limits>,
    traceparent: Option<String>,
}

impl Workshop {
    pub fn order(&self, start: &Start) -> Result<StartOrder, Refused> {
        let (messages, dropped) = read(start).map_err(|error| Refused(format!("its spec cannot be read: {error}")))?;
        let payload = merged_payload(&payloads_of(&messages), &payloads_of(&dropped));
        if let Some(payload) = &payload {
            // It was allowed when it was submitted; that may be long ago.
            (self.may_run)(&start.kind, payload).map_err(Refused)?;
        }
        let secrets = payload.as_deref().map(|payload| self.reveal(payload, &start.agent)).transpose()?;
        // As with the payload, the last message's word counts.
        let last = messages.into_iter().next_back();
        let (limits, traceparent) = last.map_or((None, None), |spec| (spec.limits, spec.traceparent));
        Ok(StartOrder {
            task: Id(start.task.0),
            attempt: start.attempt,
            token: Token(start.token.0),
            kind: start.kind.to_string(),
            agent: start.agent.to_string(),
            session: start.session.as_ref().map(ToString::to_string),
            deadline: start.deadline.map(Timestamp),
            timeout_ms: start.timeout_ms,
            watch_silence: start.watch_silence,
            payload: payload.map(Json),
            limits,
            traceparent,
            secrets: SecretValues(secrets.unwrap_or_default()),
        })
    }

    fn reveal(&self, payload: &RawValue, agent: &str) -> Result<BTreeMap<String, String>, Refused> {
        let named = secret::references(payload).into_iter().map(|reference| reference.name);
        let values = named.map(|name| self.secrets.reveal(&name, agent).map(|value| (name, value)));
        values.collect::<Result<_, _>>().map_err(|error| Refused(error.to_string()))
    }
}

type Specs<'a> = Vec<Spec<'a>>;

/// The task's own message and those that were merged into it, and those it is told of.
fn read(start: &Start) -> serde_json::Result<(Specs<'_>, Specs<'_>)> {
    let messages = start.spec.iter().chain(&start.merged).map(|blob| serde_json::from_slice(blob));
    let dropped = start.dropped.iter().map(|blob| serde_json::from_slice(blob));
    Ok((messages.collect::<serde_json::Result<_>>()?, dropped.collect::<serde_json::Result<_>>()?))
}

fn payloads_of<'a>(specs: &[Spec<'a>]) -> Vec<Option<&'a RawValue>> {
    specs.iter().map(|spec| spec.payload).collect()
}
