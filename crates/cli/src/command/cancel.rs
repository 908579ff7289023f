//! `runyard cancel`: tasks by id, all that match a filter, or a batch.

use runyard_wire::{CancelFilter, CancelManyAnswer, Id, TaskState};

use crate::cli::Shared;
use crate::client::{Answer, Client};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out;

#[derive(clap::Args)]
#[command(after_help = "A running task is stopped: it is asked first, then killed. Its end is `cancelled`.")]
pub struct Args {
    /// The tasks
    #[arg(value_name = "ID", conflicts_with_all = ["agent", "state", "lane", "kind", "batch", "session"])]
    ids: Vec<Id>,
    /// All live tasks of this agent
    #[arg(long, short)]
    agent: Option<String>,
    /// All tasks in these states; may be repeated
    #[arg(long, short, value_delimiter = ',')]
    state: Vec<TaskState>,
    /// All live tasks of this lane
    #[arg(long, short)]
    lane: Option<String>,
    /// All live tasks of this kind
    #[arg(long, short)]
    kind: Option<String>,
    /// All live tasks of this batch
    #[arg(long, value_name = "ID")]
    batch: Option<Id>,
    /// All live tasks of this session; see also `runyard session stopall`
    #[arg(long, value_name = "KEY")]
    session: Option<String>,
    /// Why; shown with the task
    #[arg(long)]
    reason: Option<String>,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let client = shared.client()?;
    if !args.ids.is_empty() {
        return cancel_each(&client, shared, args).await;
    }
    let filter = CancelFilter {
        agent: args.agent,
        state: args.state,
        lane: args.lane,
        kind: args.kind,
        batch: args.batch,
        session: args.session,
        reason: args.reason,
    };
    let answer = cancel_many(&client, &filter).await?;
    if shared.json {
        out::line(&answer.text)?;
    } else {
        let CancelManyAnswer { matched, cancelled, stopping } = answer.read()?;
        out::line(format!("{matched} matched: {cancelled} cancelled, {stopping} being stopped"))?;
    }
    Ok(Exit::Done)
}

async fn cancel_many(client: &Client, filter: &CancelFilter) -> Result<Answer<CancelManyAnswer>> {
    let only_batch = CancelFilter { batch: filter.batch, reason: filter.reason.clone(), ..CancelFilter::default() };
    match filter.batch {
        Some(batch) if *filter == only_batch => client.batch_cancel(batch, filter.reason.clone()).await,
        None if *filter == only_batch => {
            Err(Error::usage("which tasks? Name ids, or --agent, --state, --lane, --kind, --batch or --session"))
        }
        _ => client.tasks_cancel(filter).await,
    }
}

/// One bad id does not keep the others from being cancelled; the worst answer is the exit.
async fn cancel_each(client: &Client, shared: &Shared, args: Args) -> Result<Exit> {
    let mut exit = Exit::Done;
    for id in args.ids {
        match client.task_cancel(id, args.reason.clone()).await {
            Ok(answer) if shared.json => out::line(&answer.text)?,
            Ok(answer) => {
                let answer = answer.read()?;
                let still = if answer.state.is_terminal() { "" } else { " (being stopped)" };
                out::line(format!("{id} {}{still}", answer.state))?;
            }
            Err(error @ Error::Refused(_)) => {
                out::note(format!("error: {id}: {error}"));
                exit = exit.worst(error.exit());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(exit)
}
