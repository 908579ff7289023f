//! The event log as the holder writes it, told to those who listen at a node that follows.
//!
//! The database is the truth, and the beat says four times a second how far it is. So that nobody waits for a beat, the
//! holder is asked to say when there is more: a call that it answers with its next commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;

use super::member::{Role, Seen};
use crate::app::App;
use crate::feed::Commit;
use crate::nodes::Cluster;
use crate::problem::Error;

/// Commits read in one go.
const CHUNK: usize = 64;
/// A holder that has nothing to tell answers after this long.
pub const HINT_MAX: Duration = Duration::from_secs(5);
/// Beyond that, for the way there and back; and after a call that failed.
const HINT_MARGIN: Duration = Duration::from_secs(2);
const HINT_PAUSE: Duration = Duration::from_millis(250);

/// Until the server stops.
pub async fn follow(app: Arc<App>, cluster: Arc<Cluster>) {
    let hints = watch::Sender::new(0);
    let (mut roles, mut seen, mut hinted) = (cluster.member.roles(), cluster.member.seen(), hints.subscribe());
    let asking = tokio::spawn(ask_for_hints(app.clone(), cluster.clone(), hints));
    // What was read at the start may be old by now.
    let mut settings_version = None;
    let mut told = None;
    loop {
        let Seen { log_seq, settings_version: version } = *seen.borrow_and_update();
        let is_holder = *roles.borrow_and_update() == Role::Holder;
        if is_holder {
            // Its own thread tells of what it commits.
            told = None;
        } else {
            if settings_version != Some(version) && refresh(&app).await {
                settings_version = Some(version);
            }
            let from = *told.get_or_insert_with(|| start_here(&app, log_seq));
            told = Some(tell(&app, from).await.unwrap_or(from));
        }
        tokio::select! {
            () = app.stop.cancelled() => break,
            _ = roles.changed() => {}
            _ = seen.changed() => {}
            _ = hinted.changed() => {}
        }
    }
    asking.abort();
}

/// What was committed before was told by whoever held the lease, or by nobody: everyone looks again.
fn start_here(app: &App, log_seq: u64) -> u64 {
    app.waiters.observe_all();
    app.handle.feed().missed();
    if let Some(keeper) = &app.keeper {
        keeper.look();
    }
    log_seq
}

/// Tells of every commit behind `from`; gives the last of them.
async fn tell(app: &App, mut from: u64) -> Result<u64, Error> {
    loop {
        let chunk = app.read(move |reader| reader.happenings(from, CHUNK)).await?;
        let n_read = chunk.len();
        for (seq, happenings) in chunk {
            app.waiters.observe(&happenings);
            app.handle.feed().publish(Commit { seq, happenings });
            from = seq;
        }
        if n_read < CHUNK {
            return Ok(from);
        }
    }
}

async fn refresh(app: &Arc<App>) -> bool {
    let documents = app.documents.clone();
    let read = app.read(move |reader| Ok(documents.refresh(reader))).await;
    let ring = app.keys.ring();
    app.streams.keep(|key| ring.has(key));
    match read {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::warn!(target: "runyard::nodes", error = &error as &dyn std::error::Error,
                "what another node changed is not in force here");
            // It will not read any better before it is changed again.
            true
        }
        Err(_) => false,
    }
}

/// Has the holder say when it has committed something. That it answers at all is what `/readyz` tells of it.
async fn ask_for_hints(app: Arc<App>, cluster: Arc<Cluster>, hints: watch::Sender<u64>) {
    let mut roles = cluster.member.roles();
    // Another holder is asked for what it has, not for what comes: it answers at once.
    let mut after = 0;
    loop {
        let role = roles.borrow_and_update().clone();
        let Role::Follower { url, .. } = role else {
            cluster.holder_serves.store(false, Ordering::Relaxed);
            if roles.changed().await.is_err() {
                return;
            }
            after = 0;
            continue;
        };
        let call = cluster.peers.get(&url, &format!("/v1/nodes/commits?after={after}")).timeout(HINT_MAX + HINT_MARGIN);
        let seq = tokio::select! {
            seq = hinted(call) => seq,
            _ = roles.changed() => {
                cluster.holder_serves.store(false, Ordering::Relaxed);
                after = 0;
                continue;
            }
            () = app.stop.cancelled() => return,
        };
        cluster.holder_serves.store(seq.is_some(), Ordering::Relaxed);
        match seq {
            Some(seq) => {
                after = seq;
                hints.send_replace(seq);
            }
            None => {
                after = 0;
                tokio::time::sleep(HINT_PAUSE).await;
            }
        }
    }
}

async fn hinted(call: reqwest::RequestBuilder) -> Option<u64> {
    let answer = call.send().await.ok().filter(|answer| answer.status().is_success())?;
    answer.text().await.ok()?.trim().parse().ok()
}
