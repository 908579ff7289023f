//! `runyard drain`: let what runs end and begin nothing new, without stopping the server.

use std::time::Duration;

use runyard_wire::{DrainRequest, DrainView};

use crate::cli::Shared;
use crate::client::{Answer, Client};
use crate::error::Result;
use crate::exit::Exit;
use crate::out;
use crate::patience::Patience;

#[derive(clap::Args)]
pub struct Args {
    /// Come back when nothing runs any more
    #[arg(long, short, conflicts_with_all = ["off", "status"])]
    wait: bool,
    /// Accept and start work again
    #[arg(long, conflicts_with = "status")]
    off: bool,
    /// Only say how it is
    #[arg(long)]
    status: bool,
}

/// How often the server is asked whether it is idle.
const POLL: Duration = Duration::from_millis(200);

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let client = shared.client()?;
    let answer = match args.status {
        true => client.drain().await?,
        false => client.drain_set(DrainRequest { on: !args.off }).await?,
    };
    let answer = if args.wait { until_idle(&client, answer).await? } else { answer };
    if shared.json {
        out::line(&answer.text)?;
        return Ok(Exit::Done);
    }
    let DrainView { draining, running, queued } = answer.read()?;
    let how = if draining { "draining: nothing new is accepted or started" } else { "open" };
    out::line(format!("{how}; {running} running, {queued} queued"))?;
    if args.wait && !draining {
        out::note("the drain was ended before the server was idle");
        return Ok(Exit::Refused);
    }
    Ok(Exit::Done)
}

/// Says each time the number of running tasks changes, until there is none. A drain that somebody ended, or that ended
/// with a restart, would never come to that, so it is not waited for.
async fn until_idle(client: &Client, first: Answer<DrainView>) -> Result<Answer<DrainView>> {
    let mut patience = Patience::default();
    let mut answer = first;
    let mut n_last = None;
    loop {
        let DrainView { draining, running, queued } = answer.read()?;
        if running == 0 || !draining {
            return Ok(answer);
        }
        if n_last.replace(running) != Some(running) {
            out::note(format!("{running} still running; {queued} queued stay for later"));
        }
        tokio::time::sleep(POLL).await;
        answer = loop {
            match client.drain().await {
                Ok(answer) => break answer,
                Err(error) => patience.endure(error).await?,
            }
        };
        patience.relax();
    }
}
