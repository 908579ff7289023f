//! Tells somebody who can make and end workers that work finds none, or that they find no work. What comes of it is theirs:
//! nothing here decides how many there should be.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runyard_core::event::{Answer, Event};
use runyard_core::flow::{Place, Resources};
use runyard_core::name::Name;
use runyard_core::worker::{Demand, Unmet};
use runyard_wire::{self as wire, Id};
use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt;

use crate::app::App;
use crate::clock;
use crate::config::Autoscale;
use crate::webhook::{Outcome, Outgoing, post};

const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Of those that wait, the ones that have done so the longest.
const SHAPES_MAX: usize = 100;
const IDLE_MAX: usize = 1000;
const COMMAND_MAX: Duration = Duration::from_secs(30);

/// Looks again and again while somebody is to be told, until the server stops.
pub async fn watch(app: Arc<App>) {
    let mut told = Told::default();
    let mut every = tokio::time::interval(LOOK_EVERY);
    loop {
        tokio::select! {
            () = app.stop.cancelled() => return,
            _ = every.tick() => {}
        }
        let config = app.config.current().config.autoscale.clone();
        if !config.is_on() {
            continue;
        }
        let Ok(Answer::Demand(demand)) = app.handle.ask(|ticket| Event::Demand { ticket }).await else { continue };
        for message in told.due(&config, *demand, Instant::now()) {
            if let Err(error) = tell(&app, &config, &message).await {
                tracing::warn!(target: "runyard::worker", event = %message["event"], error, "autoscaling was not told");
            }
        }
    }
}

/// When each kind of message was last sent.
#[derive(Default)]
struct Told {
    demand: Option<Instant>,
    idle: Option<Instant>,
}

impl Told {
    fn due(&mut self, config: &Autoscale, demand: Demand, now: Instant) -> Vec<Value> {
        let every = Duration::from_millis(config.every_ms);
        let is_due = |last: Option<Instant>| last.is_none_or(|last| now.duration_since(last) >= every);
        let n_workers = demand.n_workers;
        let mut unmet: Vec<Unmet> =
            demand.unmet.into_iter().filter(|unmet| unmet.waited_ms >= config.after_ms).collect();
        unmet.sort_by_key(|unmet| std::cmp::Reverse(unmet.waited_ms));
        let idle: Vec<Value> = demand
            .idle
            .into_iter()
            .filter(|worker| worker.idle_ms >= config.idle_after_ms)
            .take(IDLE_MAX)
            .map(|worker| json!({"id": Id(worker.id.0), "name": &*worker.name, "idleMs": worker.idle_ms}))
            .collect();
        let mut messages = Vec::new();
        if !unmet.is_empty() && is_due(self.demand) {
            self.demand = Some(now);
            let shapes: Vec<Value> = unmet.into_iter().take(SHAPES_MAX).map(shape).collect();
            messages.push(json!({"event": "autoscale.demand", "shapes": shapes, "workers": n_workers}));
        }
        if !idle.is_empty() && is_due(self.idle) {
            self.idle = Some(now);
            messages.push(json!({"event": "autoscale.idle", "workers": idle}));
        }
        messages
    }
}

fn shape(unmet: Unmet) -> Value {
    json!({
        "kind": &*unmet.shape.kind,
        "resources": resources(&unmet.shape.resources),
        "place": place(&unmet.shape.place),
        "queued": unmet.n_queued,
        "waitedMs": unmet.waited_ms,
        "fitsSomeWorker": unmet.fits_some,
    })
}

fn resources(resources: &Resources) -> Value {
    let mut amounts = Map::new();
    amounts.insert("cpu".into(), json!(f64::from(resources.cpu_milli) / 1000.0));
    amounts.insert("ramMb".into(), json!(resources.ram_mb));
    amounts.extend(resources.named.iter().map(|(name, n)| (name.to_string(), json!(n))));
    Value::Object(amounts)
}

fn place(place: &Place) -> wire::Place {
    let labels =
        |labels: &[(Name, Name)]| labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    wire::Place {
        require: labels(&place.require),
        prefer: labels(&place.prefer),
        avoid: labels(&place.avoid),
        spread_by: place.spread_by.as_ref().map(ToString::to_string),
    }
}

async fn tell(app: &App, config: &Autoscale, message: &Value) -> Result<(), String> {
    let body = message.to_string().into_bytes();
    match config.url.is_empty() {
        false => call(app, &config.url, body).await,
        true => run(&config.command, body).await,
    }
}

async fn call(app: &App, url: &str, body: Vec<u8>) -> Result<(), String> {
    let url = app.config.current().config.outbound.check_url(url)?;
    let client = app.config.guard().client().map_err(|error| error.to_string())?;
    let own = app.webhooks.own(&app.handle).await.map_err(|error| error.to_string())?;
    let secrets = own.signing(clock::wall_ms()).map(|(secret, _)| secret.clone()).collect();
    let id = format!("msg_{:032x}", clock::new_id());
    let outgoing = Outgoing { url, id, secrets, body, traceparent: None };
    match post(&client, outgoing).await.outcome {
        Outcome::Taken => Ok(()),
        Outcome::Gone => Err("HTTP 410 Gone".to_owned()),
        Outcome::Failed { error, .. } => Err(error),
    }
}

async fn run(command: &[String], body: Vec<u8>) -> Result<(), String> {
    let (program, arguments) = command.split_first().ok_or("no command")?;
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
    let mut stdin = child.stdin.take().ok_or("no standard input")?;
    let ended = async move {
        // One that does not read is judged by its exit.
        let _ = stdin.write_all(&body).await;
        drop(stdin);
        child.wait().await
    };
    match tokio::time::timeout(COMMAND_MAX, ended).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("{program}: {status}")),
        Ok(Err(error)) => Err(format!("{program}: {error}")),
        Err(_) => Err(format!("{program} did not end within {} s, and was killed", COMMAND_MAX.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use runyard_core::flow::Shape;
    use runyard_core::ids::WorkerId;
    use runyard_core::worker::IdleWorker;

    use super::*;

    fn demand(waited_ms: u64, idle_ms: u64) -> Demand {
        let named = vec![("gpu".into(), 2)];
        let resources = Resources { cpu_milli: 1500, ram_mb: 64, named };
        let shape = Shape { kind: "k".into(), resources, place: Place::default() };
        Demand {
            unmet: vec![Unmet { shape, n_queued: 7, waited_ms, fits_some: false }],
            idle: vec![IdleWorker { id: WorkerId(1), name: "w".into(), idle_ms }],
            n_workers: 3,
        }
    }

    #[test]
    fn it_is_told_when_it_has_lasted_and_again_after_a_while() {
        let config = Autoscale { after_ms: 100, idle_after_ms: 1000, every_ms: 60_000, ..Autoscale::default() };
        let (mut told, start) = (Told::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let events =
            |messages: Vec<Value>| messages.iter().map(|message| message["event"].to_string()).collect::<Vec<_>>();
        assert!(told.due(&config, demand(99, 999), at(0)).is_empty());
        let first = told.due(&config, demand(100, 999), at(1));
        let resources = json!({"cpu": 1.5, "ramMb": 64, "gpu": 2});
        let shape = json!({"kind": "k", "resources": resources, "place": {}, "queued": 7, "waitedMs": 100, "fitsSomeWorker": false});
        assert_eq!(first, [json!({"event": "autoscale.demand", "shapes": [shape], "workers": 3})]);
        assert_eq!(events(told.due(&config, demand(5000, 1000), at(2))), ["\"autoscale.idle\""], "the other one waits");
        assert!(told.due(&config, demand(5000, 1000), at(60)).is_empty());
        assert_eq!(told.due(&config, demand(5000, 1000), at(62)).len(), 2, "it still lasts");
    }
}
