//! `runyard heartbeat`: a sign of life of a running task.

use runyard_wire::{HeartbeatRequest, Id};

use crate::cli::Shared;
use crate::error::Result;
use crate::exit::Exit;

#[derive(clap::Args)]
#[command(after_help = "\
For work with a --stall that neither prints nor reports for long: each heartbeat gives it as much time again. The id of
a task is in the environment of its process: runyard heartbeat \"$RUNYARD_TASK_ID\"")]
pub struct Args {
    /// The task
    #[arg(value_name = "ID")]
    id: Id,
    /// The part that is done, 0.0 to 1.0
    #[arg(long, value_name = "PART")]
    progress: Option<f64>,
    /// What it is doing
    #[arg(long, short, value_name = "TEXT")]
    message: Option<String>,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let request = HeartbeatRequest { progress: args.progress, message: args.message };
    shared.client()?.task_heartbeat(args.id, &request).await?;
    Ok(Exit::Done)
}
