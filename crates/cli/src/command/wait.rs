//! `runyard wait`: until tasks have ended, with a bar for each on a terminal.

use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use runyard_wire::{Id, TaskState, TaskView};

use crate::cli::Shared;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out;
use crate::patience::Patience;
use crate::span::{Span, short};

#[derive(clap::Args)]
pub struct Args {
    /// The tasks
    #[arg(required = true, value_name = "ID")]
    ids: Vec<Id>,
    /// Give up after this long, with exit code 124
    #[arg(long, short, value_name = "SPAN")]
    timeout: Option<Span>,
}

/// One long poll. On a terminal it is short, because progress is looked at in between.
const POLL: Duration = Duration::from_secs(25);
const POLL_LIVE: Duration = Duration::from_millis(500);
/// A bar has so many steps.
const BAR_STEPS: u64 = 1000;

/// A task that has ended, as text and read.
pub struct Ended {
    pub text: String,
    pub view: TaskView,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let client = shared.client()?;
    let bars = MultiProgress::new();
    let waits = args.ids.iter().map(|&id| {
        let bar = out::stderr_is_terminal().then(|| bars.add(bar(id)));
        wait_with_bar(&client, id, args.timeout, bar)
    });
    let mut exit = Exit::Done;
    for ended in futures_util::future::join_all(waits).await {
        let ended = ended?;
        exit = exit.worst(Exit::of_state(ended.view.status.state));
        if shared.json { out::line(&ended.text)? } else { out::line(outcome(&ended.view))? }
    }
    Ok(exit)
}

async fn wait_with_bar(client: &Client, id: Id, timeout: Option<Span>, bar: Option<ProgressBar>) -> Result<Ended> {
    let ended = match &bar {
        Some(bar) => until_ended(client, id, timeout, |view| advance(bar, view)).await,
        None => until_ended(client, id, timeout, |_| {}).await,
    };
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    ended
}

/// Waits for the end of a task through restarts of the server. `seen` gets the task each time it was looked at.
pub async fn until_ended(
    client: &Client,
    id: Id,
    timeout: Option<Span>,
    mut seen: impl FnMut(&TaskView),
) -> Result<Ended> {
    let begun = Instant::now();
    let poll = if out::stderr_is_terminal() { POLL_LIVE } else { POLL };
    let mut patience = Patience::default();
    loop {
        let left = timeout
            .map_or(poll, |timeout| timeout.0.saturating_sub(begun.elapsed()).clamp(Duration::from_millis(1), poll));
        let answer = match client.task_wait(id, left).await {
            Ok(answer) => answer,
            Err(error) => {
                patience.endure(error).await?;
                continue;
            }
        };
        patience.relax();
        let view = answer.read()?;
        seen(&view);
        if view.status.state.is_terminal() {
            return Ok(Ended { text: answer.text, view });
        }
        if let Some(timeout) = timeout.filter(|timeout| begun.elapsed() >= timeout.0) {
            let what = format!("task {id} is {}", standing(&view));
            return Err(Error::TimedOut { waited: timeout.to_string(), what });
        }
    }
}

fn bar(id: Id) -> ProgressBar {
    let bar = ProgressBar::new(BAR_STEPS);
    bar.set_style(ProgressStyle::with_template("{spinner} {prefix} {msg}").expect("the template is well formed"));
    bar.set_prefix(id.to_string());
    bar.enable_steady_tick(Duration::from_millis(120));
    bar
}

fn advance(bar: &ProgressBar, view: &TaskView) {
    let progress = view.status.progress.as_ref();
    if let Some(fraction) = progress.and_then(|progress| progress.fraction) {
        bar.set_style(
            ProgressStyle::with_template("{spinner} {prefix} [{bar:30}] {percent}% {msg}")
                .expect("the template is well formed"),
        );
        bar.set_position((fraction.clamp(0.0, 1.0) * BAR_STEPS as f64) as u64);
    }
    let message = progress.and_then(|progress| progress.message.clone());
    bar.set_message(message.unwrap_or_else(|| standing(view)));
}

/// State and reason in a few words.
pub fn standing(view: &TaskView) -> String {
    match view.status.reason.as_str() {
        "" => view.status.state.to_string(),
        reason => format!("{} ({reason})", view.status.state),
    }
}

/// How a task ended, on one line.
pub fn outcome(view: &TaskView) -> String {
    let status = &view.status;
    let ran = status.execution_ms.map(|ms| format!(" after {}", short(ms))).unwrap_or_default();
    let why = match (&status.error, status.state) {
        (Some(error), TaskState::Failed | TaskState::Rejected) => format!(": {} ({})", error.message, error.class),
        _ if status.reason.is_empty() => String::new(),
        _ => format!(": {}", status.reason),
    };
    format!("{} {}{ran}{why}", status.id, status.state)
}
