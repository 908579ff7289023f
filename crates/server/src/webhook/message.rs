//! What a message says and where it goes. Rows of the outbox name both only by reference, so both are looked up when they
//! are needed: the row of a task that has ended does not change any more.

use std::collections::BTreeSet;

use runyard_core::event::Subject;
use runyard_core::ids::{BatchId, TaskId};
use runyard_core::name::Name;
use runyard_core::outbox::{Delivery, Recipient};
use runyard_store::store::{self, Filter, Reader};
use runyard_wire::{BatchView, EventView, TaskView, Timestamp};
use serde::Serialize;
use url::Url;

use super::sign::{Secret, secrets_of};
use crate::app::App;
use crate::clock;
use crate::config::Config;
use crate::intake::StoredBatch;
use crate::problem::Error;
use crate::routes::batch_view;
use crate::view;

/// Where a message goes.
#[derive(Debug, PartialEq)]
pub enum Aim {
    At(Url),
    /// Several messages are in it; each of these asked to be called back, no two at the same place.
    Split(Vec<Recipient>),
    /// Nowhere, and why.
    Lost(String),
}

/// The same at every try, and after a crash too. What can happen to a task once only is named for what it is; the rest
/// carries the row's number.
pub fn message_id(delivery: &Delivery) -> String {
    let happening = &delivery.happening;
    let event = happening.kind.as_str().replace('.', "_");
    match (&happening.subject, delivery.id.0) {
        (Subject::Task(facts), _) if happening.kind.ends_a_task() => format!("msg_{:032x}_{event}", facts.task.0),
        (Subject::Batch(batch), _) => format!("msg_{:032x}_{event}", batch.id.0),
        (Subject::Task(facts), n) => format!("msg_{:032x}_{event}_{n}", facts.task.0),
        (_, n) => format!("msg_{event}_{n}"),
    }
}

/// Scheme, host and port: whoever shares these stands and falls together. The rest of a URL may be a secret.
pub fn target_of(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// Who caused it, and shares the way with nobody else: the subscription, or the agent of the task; of a batch, the agent of
/// one of its tasks. Blocking.
pub fn owner(reader: &dyn Reader, delivery: &Delivery) -> store::Result<String> {
    let agent = match (&delivery.hook, &delivery.happening.subject) {
        (Some(hook), _) => return Ok(format!("subscription {hook}")),
        (None, Subject::Task(facts)) => Some(facts.agent.clone()),
        (None, Subject::Batch(batch)) => batch_agent(reader, batch.id)?,
        (None, _) => None,
    };
    Ok(agent.map_or_else(|| "nobody".to_owned(), |agent| format!("agent {agent}")))
}

fn batch_agent(reader: &dyn Reader, batch: BatchId) -> store::Result<Option<Name>> {
    let filter = Filter { batch: Some(batch), ..Filter::default() };
    let Some(&task) = reader.task_ids(&filter, None, 1)?.items.first() else { return Ok(None) };
    Ok(reader.task(task)?.map(|doc| doc.agent))
}

/// Reads where it goes. Blocking.
pub fn aim(config: &Config, reader: &dyn Reader, delivery: &Delivery) -> store::Result<Aim> {
    if let Some(hook) = &delivery.hook {
        return Ok(match config.webhooks.get(hook.as_str()) {
            Some(webhook) => at(Some(&webhook.url)),
            None => Aim::Lost(format!("webhooks.{hook} is not configured any more")),
        });
    }
    match &delivery.happening.subject {
        Subject::Batch(batch) => Ok(at(batch_callback(reader, batch.id)?.as_deref())),
        Subject::Task(facts) => task_aim(reader, facts.task, delivery.progress.to),
        Subject::Worker { .. }
        | Subject::Session(_)
        | Subject::Schedule(_)
        | Subject::Config
        | Subject::Node { .. } => Ok(at(None)),
    }
}

fn at(url: Option<&str>) -> Aim {
    match url.map(Url::parse) {
        Some(Ok(url)) => Aim::At(url),
        Some(Err(error)) => Aim::Lost(format!("its URL cannot be read: {error}")),
        None => Aim::Lost("nobody asked to be called back".to_owned()),
    }
}

fn batch_callback(reader: &dyn Reader, id: BatchId) -> store::Result<Option<String>> {
    let spec = reader.batch(id)?.map(|(_, spec)| spec);
    Ok(spec.and_then(|spec| serde_json::from_slice::<StoredBatch>(&spec).ok()?.callback_url))
}

fn task_aim(reader: &dyn Reader, task: TaskId, to: Recipient) -> store::Result<Aim> {
    // Only a replay finds it so: what is pending keeps its task.
    let Some(doc) = reader.task(task)? else { return Ok(Aim::Lost("its task is not kept any more".to_owned())) };
    let own = doc.spec.as_deref().and_then(callback);
    match to {
        Recipient::Own => Ok(at(own.as_deref())),
        Recipient::Merged(n) => {
            let messages = reader.messages(task)?;
            let url = messages.iter().find(|(message, _)| message.n == n).and_then(|(_, spec)| callback(spec));
            Ok(at(url.as_deref()))
        }
        Recipient::Everyone => {
            let own = own.map(|url| (Recipient::Own, url));
            let merged = reader.messages(task)?;
            let merged =
                merged.iter().filter_map(|(message, spec)| Some((Recipient::Merged(message.n), callback(spec)?)));
            let mut seen = BTreeSet::new();
            let each = own.into_iter().chain(merged).filter(|(_, url)| seen.insert(url.clone())).map(|(to, _)| to);
            let each: Vec<Recipient> = each.collect();
            Ok(if each.is_empty() { at(None) } else { Aim::Split(each) })
        }
    }
}

fn callback(spec: &[u8]) -> Option<String> {
    view::read_spec(spec).ok()?.callback_url
}

/// What is sent.
#[derive(Serialize)]
pub struct Body {
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: Timestamp,
    data: Data,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Data {
    Task(Box<TaskView>),
    Batch(Box<BatchView>),
    Event(Box<EventView>),
}

/// With the trace it belongs to. A task that has ended, a batch that is finished: as the API shows them. Everything else: as the event stream does.
pub async fn body(app: &App, delivery: &Delivery) -> Result<(Vec<u8>, Option<String>), Error> {
    let happening = &delivery.happening;
    let data = match &happening.subject {
        Subject::Task(facts) if happening.kind.ends_a_task() => ended_task(app, facts.task).await?,
        Subject::Batch(batch) => finished_batch(app, batch.id).await?,
        _ => None,
    };
    let trace = match &data {
        Some(Data::Task(view)) => view.status.traceparent.clone(),
        _ => trace_of(app, &happening.subject).await?,
    };
    let data = data.unwrap_or_else(|| {
        let event = view::event_view(String::new(), happening);
        Data::Event(Box::new(EventView { id: None, ..event }))
    });
    let body = Body { kind: happening.kind.as_str(), timestamp: Timestamp(happening.at_ms), data };
    let bytes = serde_json::to_vec(&body).map_err(|_| Error::Internal("a message cannot be written".into()))?;
    Ok((bytes, trace))
}

async fn trace_of(app: &App, subject: &Subject) -> Result<Option<String>, Error> {
    let Subject::Task(facts) = subject else { return Ok(None) };
    let id = facts.task;
    let doc = app.read(move |reader| reader.task(id)).await?;
    Ok(doc.and_then(|doc| view::read_spec(&doc.spec?).ok()?.traceparent))
}

/// Without what was sent in with it: payloads hold credentials, and a receiver knows or can ask what it submitted.
async fn ended_task(app: &App, id: TaskId) -> Result<Option<Data>, Error> {
    let Some(doc) = app.read(move |reader| reader.task(id)).await? else { return Ok(None) };
    let mut view = view::doc_view(app, doc)?;
    view.spec.payload = None;
    view.spec.callback_url = None;
    Ok(Some(Data::Task(Box::new(view))))
}

async fn finished_batch(app: &App, id: BatchId) -> Result<Option<Data>, Error> {
    let Some((batch, spec)) = app.read(move |reader| reader.batch(id)).await? else { return Ok(None) };
    let stored = serde_json::from_slice(&spec).map_err(|_| Error::Internal("a stored batch cannot be read".into()))?;
    Ok(Some(Data::Batch(Box::new(batch_view(&batch, stored)))))
}

/// Those of its subscription, or the server's own. Whoever has a secret is sent nothing that another one signs.
pub fn secrets_for(app: &App, delivery: &Delivery) -> Result<Vec<Secret>, String> {
    let config = app.config.current();
    let webhook = delivery.hook.as_ref().and_then(|hook| config.config.webhooks.get(hook.as_str()));
    match webhook.and_then(|webhook| webhook.secret.as_deref()) {
        Some(text) => secrets_of(text).map_err(|_| LOST_SECRET.to_owned()),
        None => Ok(app.webhooks.secrets.load().signing(clock::wall_ms()).map(|(secret, _)| secret.clone()).collect()),
    }
}

const LOST_SECRET: &str = "it is not sent: the secret of its subscription cannot be opened with this secrets.key";
