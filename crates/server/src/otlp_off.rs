//! In the place of `otlp` where the program is built without it.

use std::sync::{Arc, Weak};

use tokio::sync::broadcast;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::feed::Commit;

pub fn spawn(app: Arc<App>, _: broadcast::Receiver<Weak<Commit>>, _: CancellationToken) -> JoinHandle<()> {
    if !app.config.current().config.telemetry.otlp_endpoint.is_empty() {
        tracing::warn!(target: "runyard::otlp", "telemetry.otlpEndpoint is set, but this program is built without otlp");
    }
    tokio::spawn(async {})
}
