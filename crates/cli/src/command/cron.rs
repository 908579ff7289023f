//! `runyard cron`: tasks at times.

mod import;
mod next;
mod options;
mod show;

use clap::Subcommand;
use runyard_wire::{PauseRequest, RunOutcome, RunView, ScheduleRequest, ScheduleView};

use self::options::{RuleOptions, TimingOptions, Unset};
use super::submit::TaskOptions;
use crate::cli::Shared;
use crate::client::{Answer, Client};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out;
use crate::pages::{Pages, Query};

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a schedule
    Add(Box<AddArgs>),
    /// List schedules, the latest made first
    List(ListArgs),
    /// Show one schedule with its next runs
    Show(Which),
    /// Change a schedule; what is not named stays
    Edit(Box<EditArgs>),
    /// Delete a schedule; its runs stay readable by its id
    Rm(Which),
    /// Pause a schedule
    Pause(PauseArgs),
    /// Resume a schedule
    Resume(Which),
    /// Run a schedule once, now
    Run(Which),
    /// List the runs of a schedule, the latest first
    Runs(RunsArgs),
    /// Print when an expression fires; needs no server
    Next(next::Args),
    /// Make a schedule of each line of a crontab file
    Import(import::Args),
}

#[derive(clap::Args)]
struct Which {
    /// The name or the id of the schedule
    #[arg(value_name = "SCHEDULE")]
    schedule: String,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  runyard cron add report --cron '0 9 * * MON-FRI' --tz Europe/Berlin -- ./report.sh
  runyard cron add poll --every 5m --http GET http://127.0.0.1:8080/poll
  runyard cron add once --at 2h --shell 'echo {{scheduledFor}}'

In texts of the task {{scheduledFor}}, {{fireTime}} and {{run}} are filled in for each run.
The id of the new schedule is all that is printed on stdout.")]
struct AddArgs {
    /// The name of the schedule
    #[arg(value_name = "NAME")]
    schedule: String,
    #[command(flatten)]
    timing: TimingOptions,
    #[command(flatten)]
    rules: RuleOptions,
    #[command(flatten)]
    task: TaskOptions,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  runyard cron edit report --cron '30 8 * * MON-FRI'
  runyard cron edit report --overlap queue --timeout 10m
  runyard cron edit report --unset max-runs,end-at")]
struct EditArgs {
    /// The name or the id of the schedule
    #[arg(value_name = "SCHEDULE")]
    schedule: String,
    /// Another name
    #[arg(long, value_name = "NAME")]
    rename: Option<String>,
    #[command(flatten)]
    timing: TimingOptions,
    #[command(flatten)]
    rules: RuleOptions,
    /// Back to the default; may be repeated
    #[arg(long, value_name = "SETTING", value_delimiter = ',')]
    unset: Vec<Unset>,
    #[command(flatten)]
    task: TaskOptions,
}

#[derive(clap::Args)]
struct ListArgs {
    /// Only those that are enabled
    #[arg(long, conflicts_with = "disabled")]
    enabled: bool,
    /// Only those that are paused or done
    #[arg(long)]
    disabled: bool,
    /// Only those whose tasks are of this agent
    #[arg(long, short)]
    agent: Option<String>,
    #[command(flatten)]
    pages: Pages,
}

#[derive(clap::Args)]
struct PauseArgs {
    /// The name or the id of the schedule
    #[arg(value_name = "SCHEDULE")]
    schedule: String,
    /// For people; shown with the schedule
    #[arg(long)]
    reason: Option<String>,
}

#[derive(clap::Args)]
struct RunsArgs {
    /// The name or the id of the schedule; of a deleted one its id
    #[arg(value_name = "SCHEDULE")]
    schedule: String,
    #[command(flatten)]
    pages: Pages,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    // It needs no server, so it must not look for one.
    if let Command::Next(args) = &args.command {
        return next::run(shared, args);
    }
    let client = shared.client()?;
    match args.command {
        Command::Add(args) => add(&client, shared, *args).await?,
        Command::List(args) => list(&client, shared, &args).await?,
        Command::Show(which) => print_one(shared, client.schedule(&which.schedule).await?)?,
        Command::Edit(args) => edit(&client, shared, *args).await?,
        Command::Rm(which) => client.schedule_remove(&which.schedule).await?,
        Command::Pause(args) => {
            let request = PauseRequest { reason: args.reason };
            print_one(shared, client.schedule_pause(&args.schedule, &request).await?)?;
        }
        Command::Resume(which) => print_one(shared, client.schedule_resume(&which.schedule).await?)?,
        Command::Run(which) => return run_now(&client, shared, &which.schedule).await,
        Command::Runs(args) => runs(&client, shared, &args).await?,
        Command::Next(_) => unreachable!("it has been taken before"),
        Command::Import(args) => return import::run(&client, shared, &args).await,
    }
    Ok(Exit::Done)
}

async fn add(client: &Client, shared: &Shared, args: AddArgs) -> Result<()> {
    let schedule = args.timing.into_timing()?.ok_or_else(|| Error::usage("when? Name --cron, --every or --at"))?;
    let task = args.task.into_request(client).await?;
    let request = ScheduleRequest { name: args.schedule, schedule, task, ..args.rules.into_request() };
    let answer = client.schedule_create(&request).await?;
    if shared.json {
        return out::line(&answer.text);
    }
    let made = answer.read()?;
    let next = made.next_run_at.map_or(String::new(), |at| format!("; next run {at}"));
    out::note(format!("{}: {}{next}", made.name, made.description));
    out::line(made.id.to_string())
}

async fn edit(client: &Client, shared: &Shared, args: EditArgs) -> Result<()> {
    let mut patch = args.rules.into_patch(&args.unset)?;
    patch.extend(args.rename.map(|name| ("name".to_owned(), name.into())));
    patch.extend(args.timing.into_patch()?.map(|timing| ("schedule".to_owned(), timing)));
    patch.extend(args.task.into_patch(client).await?.map(|task| ("task".to_owned(), task)));
    if patch.is_empty() {
        return Err(Error::usage("what is to be changed? See `runyard cron edit --help`"));
    }
    print_one(shared, client.schedule_patch(&args.schedule, &patch).await?)
}

async fn list(client: &Client, shared: &Shared, args: &ListArgs) -> Result<()> {
    let read = async |query: Query| client.schedule_list(&query).await;
    args.pages.list((shared, client), args.query(), read, show::schedules).await
}

impl ListArgs {
    fn query(&self) -> Query {
        let enabled = [self.enabled.then_some("true"), self.disabled.then_some("false")].into_iter().flatten().next();
        let enabled = enabled.map(|enabled| ("enabled", enabled.to_owned()));
        enabled.into_iter().chain(self.agent.iter().map(|agent| ("agent", agent.clone()))).collect()
    }
}

async fn runs(client: &Client, shared: &Shared, args: &RunsArgs) -> Result<()> {
    let read = async |query: Query| client.schedule_runs(&args.schedule, &query).await;
    args.pages.list((shared, client), Query::new(), read, show::runs).await
}

/// The id of its task is all that is printed, so that it can be waited for.
async fn run_now(client: &Client, shared: &Shared, schedule: &str) -> Result<Exit> {
    let answer = client.schedule_run(schedule).await?;
    let run: RunView = answer.read()?;
    match (shared.json, run.task_id) {
        (true, _) => out::line(&answer.text)?,
        (false, Some(task)) => out::line(task.to_string())?,
        (false, None) => out::note(format!("run {} was {}: {}", run.run, run.outcome, run.reason)),
    }
    Ok(if run.outcome == RunOutcome::Skipped { Exit::Refused } else { Exit::Done })
}

fn print_one(shared: &Shared, answer: Answer<ScheduleView>) -> Result<()> {
    if shared.json {
        return out::line(&answer.text);
    }
    show::one(&answer.read()?)
}
