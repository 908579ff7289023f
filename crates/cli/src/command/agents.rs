//! `runyard agents`: list them, or change one.

use runyard_wire::{AgentPut, AgentView, Priority};

use crate::cli::Shared;
use crate::error::Result;
use crate::exit::Exit;
use crate::out;

#[derive(clap::Args)]
pub struct Args {
    /// The agent to change
    name: Option<String>,
    /// Start nothing of it
    #[arg(long, requires = "name", conflicts_with = "resume")]
    pause: bool,
    /// Start its tasks again
    #[arg(long, requires = "name")]
    resume: bool,
    /// How many of its tasks may run at once
    #[arg(long, value_name = "N", requires = "name")]
    max_inflight: Option<u32>,
    /// Its share beside other agents
    #[arg(long, value_name = "N", requires = "name")]
    weight: Option<u32>,
    /// The highest tier its tasks may have
    #[arg(long, value_name = "TIER", requires = "name")]
    max_priority: Option<Priority>,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let client = shared.client()?;
    let put = AgentPut {
        max_inflight: args.max_inflight.map(Some),
        weight: args.weight.map(Some),
        paused: args.pause.then_some(true).or(args.resume.then_some(false)),
        max_priority: args.max_priority.map(Some),
    };
    let Some(name) = &args.name else {
        let answer = client.agent_list().await?;
        if shared.json {
            out::line(&answer.text)?
        } else {
            print(&answer.read()?.items)?
        }
        return Ok(Exit::Done);
    };
    if put == AgentPut::default() {
        let agents: Vec<_> =
            client.agent_list().await?.read()?.items.into_iter().filter(|it| it.name == *name).collect();
        if agents.is_empty() {
            out::note(format!("agent `{name}` has no tasks and no settings"));
            return Ok(Exit::NotFound);
        }
        if shared.json {
            out::json(&agents[0])?
        } else {
            print(&agents)?
        }
        return Ok(Exit::Done);
    }
    let answer = client.agent_put(name, &put).await?;
    if shared.json {
        out::line(&answer.text)?
    } else {
        print(&[answer.read()?])?
    }
    Ok(Exit::Done)
}

fn print(agents: &[AgentView]) -> Result<()> {
    if agents.is_empty() {
        out::note("no agents yet: they appear with their first task");
        return Ok(());
    }
    let mut table = out::table(&[
        "AGENT",
        "QUEUED",
        "RUNNING",
        "LIMIT",
        "WEIGHT",
        "MAX PRIORITY",
        "PAUSED",
        "COMPLETED",
        "FAILED",
        "CANCELLED",
    ]);
    for agent in agents {
        let counts = &agent.counts;
        table.add_row(vec![
            agent.name.as_str().into(),
            out::number(counts.waiting + counts.scheduled + counts.queued),
            out::number(counts.running),
            out::number(agent.max_inflight.map_or("–".to_owned(), |limit| limit.to_string())),
            out::number(agent.weight),
            agent.max_priority.map_or("–", Priority::as_str).into(),
            (if agent.paused { "paused" } else { "" }).into(),
            out::number(counts.completed),
            out::number(counts.failed),
            out::number(counts.cancelled),
        ]);
    }
    out::print(&table)
}
