//! The edges under load: thousands of clients that wait, and far more submits than the yard can take.

mod crowd;
mod open_loop;
mod overload;
mod steady;
mod unread;

use super::place::Place;
use super::report::Report;

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Clients that are connected and wait.
    pub clients: usize,
    /// Requests in a second beside them.
    pub per_second: u64,
    pub seconds: u64,
}

pub async fn measure(place: &Place, load: Load, report: &mut Report) -> anyhow::Result<()> {
    // Each client is a file here and one in the server, which raises its own limit.
    runyard_exec::open_files::raise();
    steady::beside_a_crowd(&place.join("crowd"), load, report).await?;
    overload::ten_times(&place.join("overload"), load, report).await?;
    unread::while_events_pass(&place.join("unread"), load.clients, report).await
}
