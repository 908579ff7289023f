//! What is shown of the whole, whichever node shows it: statistics, metrics, workers, and the nodes themselves.

use serde_json::json;

use crate::beside_others;
use crate::cluster::{Cluster, SOON};
use crate::support::wait_until;

#[test]
fn every_node_tells_how_long_tasks_wait_and_run() {
    let _turn = beside_others();
    let cluster = Cluster::of(2);
    let holder = cluster.holder();
    let id = cluster.submit(holder, json!({"kind": "noop", "payload": {"sleepMs": 5}}));
    cluster.ends_as(holder, "completed", &id);
    let told = cluster.get(holder, "/v1/stats");
    for field in ["averageWaitMs", "p99WaitMs", "averageRunMs", "p99RunMs"] {
        assert!(told["metrics"][field].is_number(), "{field}: {told:#}");
    }
    assert_eq!(cluster.get(1 - holder, "/v1/stats"), told);
}

#[test]
fn what_only_the_holder_knows_is_not_told_as_nothing_by_the_others() {
    let _turn = beside_others();
    let mut cluster = Cluster::of(2);
    let holder = cluster.holder();
    let id = cluster.submit(holder, json!({"kind": "noop"}));
    cluster.ends_as(holder, "completed", &id);
    let metrics = |cluster: &Cluster, node| cluster.request(node, "GET", "/metrics", "").body;
    let of_the_holder = ["runyard_task_wait_seconds", "runyard_commits", "runyard_workers", "runyard_worker_up"];
    let (held, followed) = (metrics(&cluster, holder), metrics(&cluster, 1 - holder));
    for (text, holds) in [(&held, 1), (&followed, 0)] {
        assert!(text.contains(&format!("\nrunyard_holder {holds}\n")), "{text}");
        assert!(text.contains("runyard_tasks_completed_total{agent=\"default\"} 1"), "{text}");
        assert!(text.contains("runyard_http_requests_total"), "{text}");
        for family in of_the_holder {
            assert_eq!(text.contains(family), holds == 1, "{family}: {text}");
        }
    }
    cluster.nodes[holder].ask_to_stop();
    wait_until(SOON, "the other one holds the lease, and says so", || {
        let text = metrics(&cluster, 1 - holder);
        text.contains("\nrunyard_holder 1\n") && of_the_holder.iter().all(|family| text.contains(family))
    });
}
