//! The other nodes as this one sees them: who of them is there, and who is called the same.

use std::sync::Arc;

use runyard_store::nodes::NodeRow;
use runyard_wire::{Id, NodeRole};

use super::Cluster;

/// A beat or two are late on every busy machine. A holder beats five times in its term and the others four times a second,
/// so who is silent for longer than this is not there, or cannot reach the database.
const AWAY_AFTER_MS: u64 = 10_000;
/// Where terms are long, so are the pauses between a holder's beats.
const AWAY_AFTER_TERMS: u64 = 3;

pub fn role_of(row: &NodeRow, ttl_ms: u64) -> NodeRole {
    match row {
        NodeRow { is_holder: true, .. } => NodeRole::Holder,
        row if row.silent_ms > ttl_ms.saturating_mul(AWAY_AFTER_TERMS).max(AWAY_AFTER_MS) => NodeRole::Away,
        _ => NodeRole::Follower,
    }
}

/// Two nodes of one name serve as well as any, but people take one for the other.
pub async fn warn_of_namesakes(cluster: Arc<Cluster>, ttl_ms: u64) {
    let nodes = cluster.nodes.clone();
    let Ok(Ok(list)) = tokio::task::spawn_blocking(move || nodes.all()).await else { return };
    let own = cluster.member.card();
    let is_namesake =
        |row: &&NodeRow| row.card.name == own.name && row.card.id != own.id && role_of(row, ttl_ms) != NodeRole::Away;
    for NodeRow { card, silent_ms, .. } in list.nodes.iter().filter(is_namesake) {
        tracing::warn!(target: "runyard::nodes", name = card.name, id = %Id(own.id.0), other = %Id(card.id.0),
            other_url = card.url, silent_ms,
            "another node has the same name; give each its own with --node-name");
    }
}

#[cfg(test)]
mod tests {
    use runyard_store::nodes::{NodeCard, NodeId};

    use super::*;

    #[test]
    fn a_node_is_away_when_it_is_silent_for_longer_than_any_that_is_there() {
        let role = |is_holder, silent_ms, ttl_ms| {
            let card = NodeCard { id: NodeId(1), name: "a".into(), url: "http://1".into(), version: "0".into() };
            role_of(&NodeRow { card, started_at_ms: 0, silent_ms, is_holder }, ttl_ms)
        };
        let table = [
            (false, 0, 5_000, NodeRole::Follower),
            (false, 15_000, 5_000, NodeRole::Follower),
            (false, 15_001, 5_000, NodeRole::Away),
            (false, 10_000, 1_000, NodeRole::Follower),
            (false, 10_001, 1_000, NodeRole::Away),
            (false, 180_000, 60_000, NodeRole::Follower),
            // Its lease goes on.
            (true, 20_000, 5_000, NodeRole::Holder),
        ];
        for (is_holder, silent_ms, ttl_ms, expected) in table {
            assert_eq!(role(is_holder, silent_ms, ttl_ms), expected, "{silent_ms} of {ttl_ms}");
        }
    }
}
