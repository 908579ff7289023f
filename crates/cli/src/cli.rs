//! The command line as a whole: which commands there are and where each is carried out.

use clap::{CommandFactory, Parser, Subcommand};

use crate::bench;
use crate::client::Client;
use crate::command::{
    agents, artifacts, audit, backup, batch, cancel, config, cron, demo, drain, heartbeat, input, key, lanes, list,
    logs, migrate, nodes, retry, secret, serve, session, show, stats, submit, supervise, tick, top, upload, wait,
    watch, webhook, why, worker, workers,
};
use crate::error::Result;
use crate::exit::{self, Exit};
use crate::locate::Connection;

/// One scheduler for the work of AI agents.
#[derive(Parser)]
#[command(name = "runyard", version, after_help = exit::HELP, arg_required_else_help = true)]
pub struct Cli {
    #[command(flatten)]
    shared: Shared,
    #[command(subcommand)]
    command: Command,
}

/// What every command understands.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Shared {
    #[command(flatten)]
    pub connection: Connection,
    /// Print the answer of the API as JSON
    #[arg(long, global = true)]
    pub json: bool,
}

impl Shared {
    pub fn client(&self) -> Result<Client> {
        Client::new(&self.connection)
    }
}

#[derive(Subcommand)]
enum Command {
    /// Start the server
    Serve(serve::Args),
    /// Run tasks of a server on this machine
    Worker(Box<worker::Args>),
    /// Do one pass of the scheduler, for cron: where no server runs
    Tick(tick::Args),
    /// Run one attempt of a process task; the server starts it
    #[command(hide = true)]
    Supervise(supervise::Args),
    /// Start a server with a sample workload and watch it at work
    Demo(demo::Args),
    /// Submit a task: a command, a shell line, an HTTP call, or any kind
    Submit(Box<submit::Args>),
    /// Submit many tasks from a file
    Batch(batch::Args),
    /// Tasks at times: make, list, change and run schedules
    Cron(cron::Args),
    /// Hand in a file for tasks to come
    Upload(upload::Args),
    /// List tasks, newest first
    List(list::Args),
    /// Show one task and its history
    Show(show::Args),
    /// Wait until tasks have ended
    Wait(wait::Args),
    /// Watch events as they happen
    Watch(watch::Args),
    /// Print a task's output
    Logs(logs::Args),
    /// List or fetch the files that a task left
    Artifacts(artifacts::Args),
    /// Hand text to a running task
    Input(input::Args),
    /// Tell that a running task is alive, and how far it is
    Heartbeat(heartbeat::Args),
    /// Cancel tasks
    Cancel(cancel::Args),
    /// Submit a finished task again, as a new one
    Retry(retry::Args),
    /// Explain why a task waits
    Why(why::Args),
    /// Show counts, waits and limits
    Stats,
    /// Watch agents, lanes, workers and running tasks as a picture
    Top(top::Args),
    /// List agents, or change one
    Agents(agents::Args),
    /// List lanes, or change one
    Lanes(lanes::Args),
    /// List workers, show, drain or remove one
    Workers(workers::Args),
    /// List the servers that share one PostgreSQL database
    Nodes,
    /// Bring the schema of a PostgreSQL database up to date
    Migrate(migrate::Args),
    /// List sessions, set one, stop what it does
    Session(session::Args),
    /// List webhook deliveries, send one again, show the signing secret
    Webhook(webhook::Args),
    /// Accept and start nothing new until told otherwise
    Drain(drain::Args),
    /// Show, check or describe the configuration
    Config(config::Args),
    /// Create, list and revoke API keys
    Key(key::Args),
    /// Keep, list and remove secrets that tasks refer to
    Secret(secret::Args),
    /// Show who changed what
    Audit(audit::Args),
    /// Measure this machine: submits, whole lives, latency, growth, sessions
    Bench(bench::Args),
    /// Write a consistent copy of the store while the server goes on
    Backup(backup::Args),
    /// Print a completion script for a shell
    Completions { shell: clap_complete::Shell },
}

impl Cli {
    /// The one command that has no use for threads.
    pub fn into_supervise(self) -> std::result::Result<supervise::Args, Box<Cli>> {
        match self.command {
            Command::Supervise(args) => Ok(args),
            command => Err(Box::new(Cli { command, ..self })),
        }
    }

    pub async fn run(self) -> Result<Exit> {
        let shared = &self.shared;
        match self.command {
            Command::Serve(args) => serve::run(shared, args).await,
            Command::Worker(args) => worker::run(shared, *args).await,
            Command::Tick(args) => tick::run(shared, args).await,
            Command::Supervise(_) => unreachable!("it has been taken before"),
            Command::Demo(args) => demo::run(shared, args).await,
            Command::Submit(args) => submit::run(shared, *args).await,
            Command::Batch(args) => batch::run(shared, args).await,
            Command::Cron(args) => cron::run(shared, args).await,
            Command::Upload(args) => upload::run(shared, args).await,
            Command::List(args) => list::run(shared, args).await,
            Command::Show(args) => show::run(shared, args).await,
            Command::Wait(args) => wait::run(shared, args).await,
            Command::Watch(args) => watch::run(shared, args).await,
            Command::Logs(args) => logs::run(shared, args).await,
            Command::Artifacts(args) => artifacts::run(shared, args).await,
            Command::Input(args) => input::run(shared, args).await,
            Command::Heartbeat(args) => heartbeat::run(shared, args).await,
            Command::Cancel(args) => cancel::run(shared, args).await,
            Command::Retry(args) => retry::run(shared, args).await,
            Command::Why(args) => why::run(shared, args).await,
            Command::Stats => stats::run(shared).await,
            Command::Top(args) => top::run(shared, args).await,
            Command::Agents(args) => agents::run(shared, args).await,
            Command::Lanes(args) => lanes::run(shared, args).await,
            Command::Workers(args) => workers::run(shared, args).await,
            Command::Nodes => nodes::run(shared).await,
            Command::Migrate(args) => migrate::run(shared, args).await,
            Command::Session(args) => session::run(shared, args).await,
            Command::Webhook(args) => webhook::run(shared, args).await,
            Command::Drain(args) => drain::run(shared, args).await,
            Command::Config(args) => config::run(shared, args).await,
            Command::Key(args) => key::run(shared, args).await,
            Command::Secret(args) => secret::run(shared, args).await,
            Command::Audit(args) => audit::run(shared, args).await,
            Command::Bench(args) => bench::run(shared, args).await,
            Command::Backup(args) => backup::run(shared, args).await,
            Command::Completions { shell } => Ok(completions(shell)),
        }
    }
}

fn completions(shell: clap_complete::Shell) -> Exit {
    clap_complete::generate(shell, &mut Cli::command(), "runyard", &mut std::io::stdout());
    Exit::Done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
