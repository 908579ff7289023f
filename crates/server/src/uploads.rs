//! Uploads that nobody needs any more.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use runyard_exec::Places;
use tokio::time::MissedTickBehavior;

use crate::app::App;

/// They are kept for days.
const LOOK_EVERY: Duration = Duration::from_secs(600);

/// What was on its way when an earlier server died. To be called before anything new can come.
pub fn clear_parts(data_dir: &Path) {
    let cleared = Places::new(data_dir).and_then(|places| places.uploads().remove_parts());
    if let Err(error) = cleared {
        tracing::warn!(target: "runyard::http", %error, "unfinished uploads cannot be removed");
    }
}

/// Removes old ones, until the server stops.
pub async fn sweep(app: Arc<App>) {
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = app.stop.cancelled() => return,
            _ = look.tick() => {}
        }
        let uploads = app.worker.places().uploads();
        // Asked for each time, so that a reload counts.
        let keep = Duration::from_millis(app.config.current().config.uploads.keep_ms);
        let swept = tokio::task::spawn_blocking(move || uploads.remove_unneeded(keep)).await;
        match swept {
            Ok(Ok(0)) | Err(_) => {}
            Ok(Ok(n_removed)) => {
                tracing::info!(target: "runyard::http", n_removed, "uploads that nobody needed are removed")
            }
            Ok(Err(error)) => tracing::warn!(target: "runyard::http", %error, "old uploads cannot be removed"),
        }
    }
}
