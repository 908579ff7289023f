//! Requests by the clock: each is due at its moment, whether or not those before it have been answered, and its latency
//! counts from that moment. A server that falls behind cannot make the measurement kinder by answering less.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::super::http::Connection;
use super::super::server::BenchServer;

#[derive(Clone, Copy)]
pub struct Plan {
    pub per_second: u64,
    pub seconds: u64,
    /// They take turns. With too few of them a slow answer would hold up what another one could have sent.
    pub n_connections: usize,
}

pub struct Answered {
    /// Since it was due.
    pub after: Duration,
    /// 0 when there was no answer at all.
    pub status: u16,
    pub says_when: bool,
}

/// The answers, in no order.
pub async fn offer(
    server: &BenchServer,
    plan: Plan,
    request: impl Fn(u64) -> Arc<[u8]> + Send + Sync + 'static,
) -> anyhow::Result<Vec<Answered>> {
    let request = Arc::new(request);
    let connections = server.connections(plan.n_connections).await?;
    let n_total = plan.per_second * plan.seconds;
    let began = Instant::now();
    let mut senders = JoinSet::new();
    for (first, connection) in (0..).zip(connections) {
        let (address, request) = (server.address.clone(), request.clone());
        senders.spawn(async move {
            let mut line = Line { address, connection: Some(connection) };
            let mut answers = Vec::new();
            for n in (first..n_total).step_by(plan.n_connections) {
                let due = began + Duration::from_nanos(1_000_000_000 * n / plan.per_second);
                tokio::time::sleep_until(due.into()).await;
                answers.push(line.send(&request(n), due).await);
            }
            answers
        });
    }
    let mut answers = Vec::new();
    while let Some(sender) = senders.join_next().await {
        answers.extend(sender?);
    }
    Ok(answers)
}

/// A connection that is opened again when it broke.
struct Line {
    address: String,
    connection: Option<Connection>,
}

impl Line {
    async fn send(&mut self, request: &[u8], due: Instant) -> Answered {
        let answer = self.try_send(request).await;
        let after = due.elapsed();
        match answer {
            Ok((status, says_when)) => Answered { after, status, says_when },
            Err(error) => {
                eprintln!("  no answer: {error:#}");
                self.connection = None;
                Answered { after, status: 0, says_when: false }
            }
        }
    }

    async fn try_send(&mut self, request: &[u8]) -> anyhow::Result<(u16, bool)> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            broken => broken.insert(Connection::open(&self.address).await?),
        };
        let response = connection.send(request).await?;
        Ok((response.status, response.has_header("retry-after")))
    }
}
