//! `runyard lanes`: list them, or change one.

use runyard_wire::{LanePut, LaneView};

use crate::cli::Shared;
use crate::error::Result;
use crate::exit::Exit;
use crate::out;

#[derive(clap::Args)]
pub struct Args {
    /// The lane to change; a new name with --limit makes a new lane
    name: Option<String>,
    /// How many of its tasks may run at once
    #[arg(long, value_name = "N", requires = "name")]
    limit: Option<u32>,
    /// Start nothing of it
    #[arg(long, requires = "name", conflicts_with = "resume")]
    pause: bool,
    /// Start its tasks again
    #[arg(long, requires = "name")]
    resume: bool,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let client = shared.client()?;
    let put = LanePut { limit: args.limit, paused: args.pause.then_some(true).or(args.resume.then_some(false)) };
    let Some(name) = &args.name else {
        let answer = client.lane_list().await?;
        if shared.json {
            out::line(&answer.text)?
        } else {
            print(&answer.read()?.items)?
        }
        return Ok(Exit::Done);
    };
    if put == LanePut::default() {
        let lanes: Vec<_> = client.lane_list().await?.read()?.items.into_iter().filter(|it| it.name == *name).collect();
        if lanes.is_empty() {
            out::note(format!("there is no lane `{name}`; --limit N makes one"));
            return Ok(Exit::NotFound);
        }
        if shared.json {
            out::json(&lanes[0])?
        } else {
            print(&lanes)?
        }
        return Ok(Exit::Done);
    }
    let answer = client.lane_put(name, &put).await?;
    if shared.json {
        out::line(&answer.text)?
    } else {
        print(&[answer.read()?])?
    }
    Ok(Exit::Done)
}

fn print(lanes: &[LaneView]) -> Result<()> {
    let mut table = out::table(&["LANE", "LIMIT", "RUNNING", "QUEUED", "WAITING", "PAUSED"]);
    for lane in lanes {
        table.add_row(vec![
            lane.name.as_str().into(),
            out::number(lane.limit),
            out::number(lane.running),
            out::number(lane.queued),
            out::number(lane.waiting),
            (if lane.paused { "paused" } else { "" }).into(),
        ]);
    }
    out::print(&table)
}
