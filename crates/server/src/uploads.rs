//! Uploads: those that a task may name, and those that nobody needs any more.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use runyard_exec::Places;
use runyard_exec::workspace::Uploads;
use runyard_store::postgres::PgDepot;
use tokio::time::MissedTickBehavior;

use crate::app::App;
use crate::problem::Error;

/// Those that a payload may name.
pub enum KnownUploads {
    /// On the disk of the only server there is.
    Here(Uploads),
    /// In the database of all nodes.
    Shared(Arc<PgDepot>),
}

impl KnownUploads {
    pub fn of(app: &App) -> KnownUploads {
        match &app.cluster {
            Some(cluster) => KnownUploads::Shared(cluster.depot.clone()),
            None => KnownUploads::Here(app.worker.places().uploads()),
        }
    }

    /// Somebody needs it: it stays for another while. False when there is none.
    pub fn need(&self, id: u128) -> Result<bool, Error> {
        match self {
            KnownUploads::Here(uploads) => Ok(uploads
                .touch(id)
                .inspect_err(|error| tracing::debug!(target: "runyard::http", %error, "an upload is not to be had"))
                .is_ok()),
            // Few tasks name an upload, so a request that does waits for the database where it is.
            KnownUploads::Shared(depot) => Ok(tokio::task::block_in_place(|| depot.touch_upload(id))?),
        }
    }
}

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
        sweep_shared(&app, keep).await;
        match swept {
            Ok(Ok(0)) | Err(_) => {}
            Ok(Ok(n_removed)) => {
                tracing::info!(target: "runyard::http", n_removed, "uploads that nobody needed are removed")
            }
            Ok(Err(error)) => tracing::warn!(target: "runyard::http", %error, "old uploads cannot be removed"),
        }
    }
}

/// What lies on a node's disk is a copy; the holder removes what all of them have.
async fn sweep_shared(app: &App, keep: Duration) {
    let Some(cluster) = app.cluster.clone().filter(|_| app.holds()) else { return };
    let swept = tokio::task::spawn_blocking(move || cluster.depot.remove_uploads(keep)).await;
    if let Ok(Err(error)) = swept {
        tracing::warn!(target: "runyard::http", error = &error as &dyn std::error::Error, "old uploads cannot be removed");
    }
}
