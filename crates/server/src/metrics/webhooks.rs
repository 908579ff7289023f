//! How messages to the outside fare.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::{counter, seconds};
use crate::webhook::{Outcome, Sent};

pub struct WebhookMetrics {
    taken: Counter,
    failed: Counter,
    pub given_up: Counter,
    pub postponed: Counter,
    pub targets_shut: Gauge,
    took: Histogram,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Tried {
    outcome: &'static str,
}

impl WebhookMetrics {
    pub fn register(registry: &mut Registry) -> WebhookMetrics {
        let tries = Family::<Tried, Counter>::default();
        registry.register("webhook_tries", "Webhook messages sent, by outcome", tries.clone());
        let targets_shut = Gauge::default();
        let help = "Receivers that are down and asked rarely";
        registry.register("webhook_targets_shut", help, targets_shut.clone());
        WebhookMetrics {
            taken: tries.get_or_create_owned(&Tried { outcome: "taken" }),
            failed: tries.get_or_create_owned(&Tried { outcome: "failed" }),
            given_up: counter(registry, "webhook_given_up", "Webhook messages that are not tried any more"),
            postponed: counter(
                registry,
                "webhook_postponed",
                "Messages put off because their receiver is down or busy",
            ),
            targets_shut,
            took: seconds(registry, "webhook_try_duration", "Time one try took"),
        }
    }

    pub fn observe(&self, sent: &Sent) {
        self.took.observe(sent.took_ms as f64 / 1000.0);
        let counter = if matches!(sent.outcome, Outcome::Taken) { &self.taken } else { &self.failed };
        counter.inc();
    }
}
