//! When keys were last used at a node that follows, told to the holder, which stores the later of what it is told and what it
//! knows. A key's moment moves once a minute, so mostly there is nothing to tell.

use std::sync::Arc;
use std::time::Duration;

use super::member::Role;
use crate::access::Used;
use crate::app::App;
use crate::nodes::Cluster;

/// How often it is looked whether there is something to tell. A node that is killed loses no more than that.
const TELL_EVERY: Duration = Duration::from_secs(5);
const CALL_MAX: Duration = Duration::from_secs(5);

/// Until the server stops.
pub async fn tell_used(app: Arc<App>, cluster: Arc<Cluster>) {
    // To whom: another holder may not have heard it.
    let mut told = None;
    let mut every = tokio::time::interval(TELL_EVERY);
    loop {
        let is_last = tokio::select! {
            _ = every.tick() => false,
            () = app.stop.cancelled() => true,
        };
        if let Role::Follower { holder, url } = cluster.member.role() {
            let used = app.keys.ring().used();
            let is_told = told.as_ref().is_some_and(|(to, earlier)| (*to, earlier) == (holder, &used));
            if !is_told && tell(&cluster, &url, &used).await {
                told = Some((holder, used));
            }
        }
        if is_last {
            return;
        }
    }
}

async fn tell(cluster: &Cluster, url: &str, used: &Used) -> bool {
    let Ok(body) = serde_json::to_vec(used) else { return false };
    let call = cluster.peers.post(url, "/v1/nodes/used").header("content-type", "application/json").body(body);
    call.timeout(CALL_MAX).send().await.is_ok_and(|answer| answer.status().is_success())
}
