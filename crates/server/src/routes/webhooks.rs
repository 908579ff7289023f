//! Deliveries of webhooks: list, show, replay; and the secret they are signed with.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use runyard_core::event::{Event, HappeningKind, Subject};
use runyard_core::name::Name;
use runyard_core::outbox::{Delivery, DeliveryChange, DeliveryId, DeliveryState, Progress, Recipient, Try};
use runyard_store::store::{DeliveryFilter, DeliveryPhase};
use runyard_wire::{self as wire, DeliveryTry, DeliveryView, Id, ListPage, Timestamp, WebhookSecret, WebhookSecrets};
use serde::Deserialize;
use utoipa::IntoParams;

use super::extract::{NumberPath, Params, cursor, page_limit};
use crate::access::Caller;
use crate::app::App;
use crate::audit::Entry;
use crate::clock;
use crate::nodes::Once;
use crate::problem::{Error, Invalid};
use crate::webhook::{Aim, OwnSecrets, Secret, aim, message_id, target_of};

#[derive(Deserialize, IntoParams, Default)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct DeliveryParams {
    /// `pending`, `delivered` or `given_up`.
    state: Option<wire::DeliveryState>,
    /// The name of a subscription.
    webhook: Option<String>,
    /// The name of an event, such as `task.completed`.
    event: Option<String>,
    /// Messages about this task.
    task: Option<Id>,
    /// Messages about this batch.
    batch: Option<Id>,
    /// 1 to 1000; default 100.
    limit: Option<usize>,
    /// `nextCursor` of the page before.
    cursor: Option<String>,
}

/// List webhook deliveries, the latest first.
#[utoipa::path(get, path = "/v1/webhooks/deliveries", tag = "webhooks", params(DeliveryParams),
    responses((status = 200, description = "One page", body = ListPage<DeliveryView>)))]
pub async fn list(
    State(app): State<Arc<App>>,
    Params(params): Params<DeliveryParams>,
) -> Result<Json<ListPage<DeliveryView>>, Error> {
    let limit = page_limit(params.limit)?;
    let after = cursor(params.cursor.as_deref())?.map(DeliveryId);
    let filter = filter(&params)?;
    let page = app.read(move |reader| reader.deliveries(&filter, after, limit)).await?;
    let items = page.items.iter().map(delivery_view).collect();
    Ok(Json(ListPage { items, next_cursor: page.next.map(|id| id.0.to_string()) }))
}

/// Show a webhook delivery with its tries.
#[utoipa::path(get, path = "/v1/webhooks/deliveries/{id}", tag = "webhooks", params(("id" = u64, Path)),
    responses((status = 200, description = "The delivery", body = DeliveryView)))]
pub async fn show(State(app): State<Arc<App>>, NumberPath(id): NumberPath) -> Result<Json<DeliveryView>, Error> {
    let delivery = found(&app, id).await?;
    shown(&app, delivery).await.map(Json)
}

/// Send a message again that was delivered or given up: the same id, and a day of tries. One that is still pending is
/// refused: it is being tried anyway.
#[utoipa::path(post, path = "/v1/webhooks/deliveries/{id}/replay", tag = "webhooks", params(("id" = u64, Path)),
    responses((status = 200, description = "The delivery, pending", body = DeliveryView)))]
pub async fn replay(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(once): Extension<Once>,
    NumberPath(id): NumberPath,
) -> Result<Json<DeliveryView>, Error> {
    let delivery = found(&app, id).await?;
    if once.first.is_some() {
        app.audit.record(&caller.actor, Entry::new("webhook.replayed").of(id.to_string())).await;
        return shown(&app, delivery).await.map(Json);
    }
    // A pending row belongs to the deliverer: it may be on its way at this moment.
    if delivery.next_at().is_some() {
        return Err(Error::DeliveryPending(id));
    }
    let now_ms = clock::wall_ms();
    let state = DeliveryState::Pending { next_at: now_ms };
    let progress = Progress { state, since_ms: now_ms, n_tries: 0, ..delivery.progress };
    let change = DeliveryChange { id: delivery.id, progress, others: Vec::new(), happening: None };
    // To its end also when the client hangs up, as every change.
    let (again, handle) = (app.clone(), once.handle(&app));
    let replayed = tokio::spawn(async move {
        handle.ask(|ticket| Event::Deliveries { ticket: Some(ticket), changes: vec![change] }).await?;
        again.webhooks.posted.notify_one();
        again.audit.record(&caller.actor, Entry::new("webhook.replayed").of(id.to_string())).await;
        Ok::<_, Error>(())
    });
    replayed.await.map_err(|_| Error::Internal("the change ended without an answer".into()))??;
    let delivery = found(&app, id).await?;
    shown(&app, delivery).await.map(Json)
}

/// What webhooks are signed with.
#[utoipa::path(get, path = "/v1/webhooks/secret", tag = "webhooks",
    responses((status = 200, description = "The secrets that sign now", body = WebhookSecrets)))]
pub async fn secret(State(app): State<Arc<App>>) -> Result<Json<WebhookSecrets>, Error> {
    Ok(Json(secrets_view(&*app.webhooks.own(&app.handle).await?)))
}

/// Sign with a new secret from now on; for a day the one before signs too.
#[utoipa::path(post, path = "/v1/webhooks/secret/rotate", tag = "webhooks",
    responses((status = 200, description = "The secrets that sign now", body = WebhookSecrets)))]
pub async fn rotate(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(once): Extension<Once>,
) -> Result<Json<WebhookSecrets>, Error> {
    if once.first.is_some() {
        app.audit.record(&caller.actor, Entry::new("webhook.secret_rotated")).await;
        return secret(State(app)).await;
    }
    // On a task of its own, because a client that hangs up must not leave store and memory apart.
    let rotated = tokio::spawn(async move {
        let secrets = app.webhooks.rotate(&once.handle(&app)).await?;
        tracing::info!(target: "runyard::webhook", "the webhook secret was rotated");
        app.audit.record(&caller.actor, Entry::new("webhook.secret_rotated")).await;
        Ok::<_, Error>(secrets)
    });
    let rotated = rotated.await;
    let secrets = rotated.map_err(|_| Error::Internal("the change ended without an answer".into()))??;
    Ok(Json(secrets_view(&secrets)))
}

fn filter(params: &DeliveryParams) -> Result<DeliveryFilter, Invalid> {
    if params.task.is_some() && params.batch.is_some() {
        return Err(Invalid::new("batch", "is given beside task; use one of them"));
    }
    let event = |name: &String| HappeningKind::ALL.into_iter().find(|kind| kind.as_str() == name);
    let event = params.event.as_ref().map(|name| event(name).ok_or_else(|| Invalid::new("event", "is no event")));
    let state = params.state.map(|state| match state {
        wire::DeliveryState::Pending => DeliveryPhase::Pending,
        wire::DeliveryState::Delivered => DeliveryPhase::Delivered,
        wire::DeliveryState::GivenUp => DeliveryPhase::GivenUp,
    });
    let subject = params.task.or(params.batch).map(|id| id.0);
    Ok(DeliveryFilter { state, hook: params.webhook.as_deref().map(Name::new), event: event.transpose()?, subject })
}

async fn found(app: &App, id: u64) -> Result<Delivery, Error> {
    let found = app.read(move |reader| reader.delivery(DeliveryId(id))).await?;
    found.ok_or_else(|| Error::NotFound { what: "delivery", id: id.to_string() })
}

/// With the place it goes to, which is not in its row.
async fn shown(app: &Arc<App>, delivery: Delivery) -> Result<DeliveryView, Error> {
    let mut view = delivery_view(&delivery);
    let config = app.config.current().config.clone();
    let aim = app.read(move |reader| aim(&config, reader, &delivery)).await?;
    view.target = match aim {
        Aim::At(url) => Some(target_of(&url)),
        Aim::Split(_) | Aim::Lost(_) => None,
    };
    Ok(view)
}

fn delivery_view(delivery: &Delivery) -> DeliveryView {
    let (happening, progress) = (&delivery.happening, &delivery.progress);
    let (task, batch) = match &happening.subject {
        Subject::Task(facts) => (Some(Id(facts.task.0)), None),
        Subject::Batch(batch) => (None, Some(Id(batch.id.0))),
        Subject::Worker { .. }
        | Subject::Session(_)
        | Subject::Schedule(_)
        | Subject::Config
        | Subject::Node { .. } => (None, None),
    };
    DeliveryView {
        id: delivery.id.0,
        message_id: message_id(delivery),
        event: happening.kind.as_str().to_owned(),
        at: Timestamp(happening.at_ms),
        state: match progress.state {
            DeliveryState::Pending { .. } => wire::DeliveryState::Pending,
            DeliveryState::Delivered => wire::DeliveryState::Delivered,
            DeliveryState::GivenUp => wire::DeliveryState::GivenUp,
        },
        webhook: delivery.hook.as_ref().map(|hook| hook.to_string()),
        task,
        batch,
        merged_message: match progress.to {
            Recipient::Merged(n) => Some(n),
            Recipient::Own | Recipient::Everyone => None,
        },
        target: None,
        next_at: progress.next_at().map(Timestamp),
        tries: progress.n_tries,
        log: progress.tries.iter().map(try_view).collect(),
    }
}

fn try_view(tried: &Try) -> DeliveryTry {
    let error = Some(tried.error.to_string()).filter(|error| !error.is_empty());
    DeliveryTry { at: Timestamp(tried.at_ms), ms: tried.took_ms, status: tried.status, error }
}

fn secrets_view(secrets: &OwnSecrets) -> WebhookSecrets {
    let signing = secrets.signing(clock::wall_ms());
    let view = |(secret, until): (&Secret, Option<u64>)| WebhookSecret {
        secret: secret.reveal(),
        until: until.map(Timestamp),
    };
    WebhookSecrets { secrets: signing.map(view).collect() }
}
