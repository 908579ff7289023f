//! Whether this node is where it says the others reach it. A slip there is noticed by nobody until the node holds the lease,
//! and then no other node's clients get through.

use std::sync::Arc;
use std::time::Duration;

use runyard_wire::Id;

use crate::app::App;
use crate::nodes::Cluster;

/// Answered by every node, the holder or not.
pub const SELF: &str = "/v1/nodes/self";

const TRIES: u32 = 5;
const TRY_EVERY: Duration = Duration::from_secs(2);
const CALL_MAX: Duration = Duration::from_secs(5);

/// Who answers at the address that this node gives as its own.
enum Found {
    Itself,
    /// Another node, by its id.
    Another(String),
    Nobody(String),
}

/// Once, beside everything else.
pub async fn check_address(app: Arc<App>, cluster: Arc<Cluster>) {
    let url = &cluster.member.card().url;
    let mut why = String::new();
    for _ in 0..TRIES {
        match who_is_at(&cluster, url).await {
            Found::Itself => return,
            Found::Another(id) => return stand_back(cluster.clone(), url, &id).await,
            Found::Nobody(reason) => why = reason,
        }
        tokio::select! {
            () = tokio::time::sleep(TRY_EVERY) => {}
            () = app.stop.cancelled() => return,
        }
    }
    // From here; others may get through all the same.
    tracing::warn!(target: "runyard::nodes", url, why,
        "this node does not reach itself at the address that it gives to the others; say where they reach it with --advertise");
}

async fn who_is_at(cluster: &Cluster, url: &str) -> Found {
    let answer = match cluster.peers.get(url, SELF).timeout(CALL_MAX).send().await {
        Ok(answer) if answer.status().is_success() => answer.text().await.unwrap_or_default(),
        Ok(answer) => return Found::Nobody(format!("it answers {}", answer.status())),
        Err(error) => return Found::Nobody(crate::lobby::text_of(&error)),
    };
    let own = Id(cluster.member.card().id.0).to_string();
    if answer.trim() == own { Found::Itself } else { Found::Another(answer.trim().to_owned()) }
}

/// It would hold the lease for nobody.
async fn stand_back(cluster: Arc<Cluster>, url: &str, id: &str) {
    tracing::error!(target: "runyard::nodes", url, node = id,
        "another node answers at the address that this one gives to the others, so it does not take the lease; \
         correct --advertise and start it again");
    let _ = tokio::task::spawn_blocking(move || cluster.member.hand_over()).await;
}
