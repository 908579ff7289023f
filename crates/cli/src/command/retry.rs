//! `runyard retry`: a finished task again, as a new one.

use runyard_wire::Id;
use serde::Deserialize;

use crate::cli::Shared;
use crate::command::logs;
use crate::error::Result;
use crate::exit::Exit;
use crate::out;

#[derive(clap::Args)]
pub struct Args {
    /// The finished task
    #[arg(value_name = "ID")]
    id: Id,
    /// Print the new task's output as it comes, and exit with its outcome
    #[arg(long, short)]
    wait: bool,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    #[derive(Deserialize)]
    struct Submitted {
        id: Id,
    }
    let client = shared.client()?;
    let answer = client.task_retry(args.id).await?;
    let Submitted { id } = answer.read_as()?;
    if args.wait {
        out::note(format!("task {id}"));
        return logs::follow_to_end(&client, id).await;
    }
    if shared.json {
        out::line(&answer.text)?
    } else {
        out::line(id.to_string())?
    }
    Ok(Exit::Done)
}
