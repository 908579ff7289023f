//! `runyard tick`: one pass of the scheduler where no server runs.

use std::path::PathBuf;

use runyard_server::tick::{Mode, Summary, TickOptions, tick};

use crate::cli::Shared;
use crate::command::serve::own_program;
use crate::error::Result;
use crate::exit::Exit;
use crate::out;

#[derive(clap::Args)]
#[command(after_help = "\
For cron or a timer, on a data directory (--data) without a server: takes over what runs, records what has ended, requeues
or fails what was lost, stops what is over its time, starts what may start, and ends. What it starts goes on under
supervisors; the next tick, or a server, finds it again. It starts tasks of kind `process` only.

Exit code 0; 1 when something could not be read, started, stopped or written, and when a server or another tick is at
work on the directory.")]
pub struct Args {
    /// Configuration file
    #[arg(long, value_name = "FILE", env = "RUNYARD_CONFIG")]
    config: Option<PathBuf>,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let options = TickOptions {
        data: shared.connection.data_dir()?,
        config: args.config,
        supervisor: own_program(),
        mode: if args.dry_run { Mode::Rehearse } else { Mode::Act },
        env: Vec::new(),
    };
    let summary = tick(options.with_process_env()).await?;
    match shared.json {
        true => out::json(&summary)?,
        false => print(&summary)?,
    }
    Ok(if summary.errors == 0 { Exit::Done } else { Exit::Failed })
}

fn print(summary: &Summary) -> Result<()> {
    let Summary { leases_scanned, adopted, finished, reclaimed, started, .. } = summary;
    let Summary { blocked, queued, scheduled, errors, .. } = summary;
    let title = if summary.dry_run { "would be: " } else { "" };
    out::line(format!(
        "{title}{leases_scanned} leases scanned: {adopted} go on, {finished} finished, {reclaimed} reclaimed"
    ))?;
    let errors = if *errors == 1 { "1 error".to_owned() } else { format!("{errors} errors") };
    out::line(format!(
        "{title}{started} started; {blocked} blocked, {queued} queued, {scheduled} scheduled; {errors}"
    ))?;
    // Apart from the numbers: cron mails what is on standard error, and nothing when nobody needs to look.
    summary.messages.iter().for_each(out::note);
    Ok(())
}
