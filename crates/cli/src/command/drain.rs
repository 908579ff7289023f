//! `runyard drain`: let what runs end and begin nothing new, without stopping the server.

use std::time::Duration;

use runyard_wire::{DrainRequest, DrainView};

use crate::cli::Shared;
use crate::client::Client;
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
const POLL: Duration = Duration::from_millis(500);

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let client = shared.client()?;
    let answer = match args.status {
        true => client.drain().await?,
        false => client.drain_set(DrainRequest { on: !args.off }).await?,
    };
    let answer = if args.wait { until_idle(&client).await? } else { answer };
    if shared.json {
        out::line(&answer.text)?;
        return Ok(Exit::Done);
    }
    let DrainView { draining, running, queued } = answer.read()?;
    let how = if draining { "draining: nothing new is accepted or started" } else { "open" };
    out::line(format!("{how}; {running} running, {queued} queued"))?;
    Ok(Exit::Done)
}

async fn until_idle(client: &Client) -> Result<crate::client::Answer<DrainView>> {
    let mut patience = Patience::default();
    let mut n_last = None;
    loop {
        match client.drain().await {
            Ok(answer) => {
                patience.relax();
                let n = answer.read()?.running;
                if n == 0 {
                    return Ok(answer);
                }
                if n_last.replace(n) != Some(n) {
                    out::note(format!("{n} still running"));
                }
                tokio::time::sleep(POLL).await;
            }
            Err(error) => patience.endure(error).await?,
        }
    }
}
