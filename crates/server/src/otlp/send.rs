//! One request to the collector, and another one if that did not work.

use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use super::span::{Span, text};
use crate::config::{Telemetry, header};

const TRY_MAX: Duration = Duration::from_secs(10);
/// A collector that restarts is back by then, mostly.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
const TRIES: usize = 2;

#[derive(Default)]
pub struct Collector {
    client: Option<Client>,
    /// Said once for each time it goes wrong, not once for each request.
    is_failing: bool,
}

impl Collector {
    /// False: it did not take them.
    pub async fn send(&mut self, telemetry: &Telemetry, spans: Vec<Span>) -> bool {
        let outcome = match self.client() {
            Ok(client) => post(&client, telemetry, &body(telemetry, &spans)).await,
            Err(error) => Err(error.to_string()),
        };
        match &outcome {
            Err(error) if !self.is_failing => {
                tracing::warn!(target: "runyard::otlp", error, "the collector does not take spans; they are dropped");
            }
            Ok(()) if self.is_failing => tracing::info!(target: "runyard::otlp", "the collector takes spans again"),
            _ => {}
        }
        self.is_failing = outcome.is_err();
        outcome.is_ok()
    }

    fn client(&mut self) -> Result<Client, reqwest::Error> {
        if self.client.is_none() {
            let plain = || Client::builder().no_proxy().redirect(Policy::none()).timeout(TRY_MAX);
            self.client = Some(runyard_exec::http::with_certificates(plain)?);
        }
        Ok(self.client.clone().expect("it was just made"))
    }
}

async fn post(client: &Client, telemetry: &Telemetry, body: &Value) -> Result<(), String> {
    let url = format!("{}/v1/traces", telemetry.otlp_endpoint.trim_end_matches('/'));
    let mut problem = String::new();
    for n in 0..TRIES {
        if n > 0 {
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        let headers = telemetry.otlp_headers.iter().filter_map(|text| header(text));
        let request = headers.fold(client.post(&url), |request, (name, value)| request.header(name, value));
        match request.json(body).send().await {
            Ok(answer) if answer.status().is_success() => return Ok(()),
            Ok(answer) => {
                problem = format!("HTTP {}", answer.status());
                if !is_worth_another(answer.status()) {
                    break;
                }
            }
            // Without its URL: an endpoint may hold a key.
            Err(error) => problem = error.without_url().to_string(),
        }
    }
    Err(problem)
}

fn is_worth_another(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502..=504)
}

fn body(telemetry: &Telemetry, spans: &[Span]) -> Value {
    json!({ "resourceSpans": [{
        "resource": { "attributes": [text("service.name", &telemetry.service_name)] },
        "scopeSpans": [{ "scope": { "name": "runyard", "version": env!("CARGO_PKG_VERSION") }, "spans": spans }],
    }] })
}
