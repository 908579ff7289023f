//! Reloads on SIGHUP and when the file changes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use notify::{RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::live::{Live, paths};
use crate::audit::{Audit, Entry};
use crate::handle::Handle;

/// Editors write a file in several steps; one reload after the last of them.
pub const SETTLE: Duration = Duration::from_millis(200);

/// Runs until `stop`. A bad file is logged with its line and changes nothing.
pub async fn watch_file(live: Arc<Live>, handle: Handle, audit: Audit, stop: CancellationToken) {
    let (sender, mut changes) = mpsc::channel(1);
    // Kept until the end: dropping the watcher ends the watch.
    let _watcher = live.file().and_then(|path| watcher(path, sender.clone()));
    let Ok(mut hangup) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()) else {
        tracing::warn!(target: "runyard::config", "SIGHUP cannot be watched; the file is, if there is one");
        return;
    };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = hangup.recv() => reload(&live, &handle, &audit, "SIGHUP").await,
            _ = changes.recv() => {
                tokio::time::sleep(SETTLE).await;
                while changes.try_recv().is_ok() {}
                reload(&live, &handle, &audit, "file change").await;
            }
        }
    }
}

/// Watches the directory: a file replaced by a rename is another file, and a watch on the old one would see nothing.
pub fn watcher(path: &Path, sender: mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
    let path = std::path::absolute(path).ok()?;
    let (directory, name) = (path.parent()?.to_owned(), path.file_name()?.to_owned());
    let on_event = move |event: notify::Result<notify::Event>| {
        let touches = |event: notify::Event| {
            !event.kind.is_access() && event.paths.iter().any(|changed| changed.file_name() == Some(&name))
        };
        if event.is_ok_and(touches) {
            // A full channel already holds the news.
            let _ = sender.try_send(());
        }
    };
    let watching = notify::recommended_watcher(on_event)
        .and_then(|mut watcher| watcher.watch(&directory, RecursiveMode::NonRecursive).map(|()| watcher));
    watching
        .inspect_err(|error| {
            tracing::warn!(target: "runyard::config", %error, "a file cannot be watched; SIGHUP reads it again");
        })
        .ok()
}

async fn reload(live: &Live, handle: &Handle, audit: &Audit, cause: &str) {
    match live.reload(handle).await {
        Ok(changed) if changed.is_empty() => {
            tracing::info!(target: "runyard::config", cause, "configuration read again: nothing changed");
        }
        Ok(changed) => {
            tracing::info!(target: "runyard::config", cause, changed = %paths(&changed), "configuration reloaded");
            audit.record_own(cause, Entry::new("config.reloaded").changed(&changed)).await;
        }
        Err(error) => {
            tracing::error!(target: "runyard::config", cause, "configuration refused, the old one stays: {error}");
        }
    }
}
