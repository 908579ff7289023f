//! `runyard logs`, and what `submit --wait` shows: a task's output, live if wanted.

use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;

use runyard_wire::{Id, LogLine, LogStream, TaskState};

use crate::cli::Shared;
use crate::client::{Client, EventStream};
use crate::command::wait;
use crate::error::Result;
use crate::exit::Exit;
use crate::out;
use crate::patience::Patience;

#[derive(clap::Args)]
pub struct Args {
    /// The task
    #[arg(value_name = "ID")]
    id: Id,
    /// Go on as output comes, until the task has ended
    #[arg(long, short)]
    follow: bool,
    /// Only this attempt [default: all]
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
}

/// After the end of a task its last lines may still be on their way.
const LAST_LINES_WAIT: Duration = Duration::from_secs(2);
/// Before a stream that ended early is opened again.
const REOPEN_WAIT: Duration = Duration::from_millis(300);

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let client = shared.client()?;
    let attempt = args.attempt.map(|n| ("attempt", n.to_string()));
    if args.follow {
        let mut printer = Printer { as_json: shared.json, ..Printer::default() };
        let query: Vec<_> = attempt.into_iter().chain([("follow", "true".to_owned())]).collect();
        follow(&client, args.id, &query, &mut printer).await?;
        return Ok(Exit::Done);
    }
    if shared.json {
        let mut printer = Printer { as_json: true, ..Printer::default() };
        let query: Vec<_> = attempt.into_iter().collect();
        let mut stream = client.log_stream(args.id, &query, None).await?;
        printer.drain(&mut stream).await?;
        return Ok(Exit::Done);
    }
    let text = client.logs(args.id, &attempt.into_iter().collect::<Vec<_>>()).await?;
    if !text.is_empty() {
        out::line(text.strip_suffix('\n').unwrap_or(&text))?;
    }
    Ok(Exit::Done)
}

/// Shows a task's output as it comes; the exit is the task's outcome.
pub async fn follow_to_end(client: &Client, id: Id) -> Result<Exit> {
    let mut printer = Printer::default();
    let query = [("follow", "true".to_owned())];
    let ended = follow(client, id, &query, &mut printer).await?;
    let state = ended.view.status.state;
    // What gave no output has its result to show: the answer of an HTTP call, for example.
    let result =
        ended.view.status.result.as_ref().filter(|_| !printer.has_printed && ended.view.spec.kind != "process");
    if let Some(result) = result.filter(|_| state == TaskState::Completed) {
        out::line(result.as_str())?;
    }
    if state != TaskState::Completed || out::stderr_is_terminal() {
        out::note(wait::outcome(&ended.view));
    }
    Ok(Exit::of_state(state))
}

/// Prints until the task has ended and its last line is printed.
async fn follow(client: &Client, id: Id, query: &[(&str, String)], printer: &mut Printer) -> Result<wait::Ended> {
    let is_over = Cell::new(false);
    let mut printing = pin!(print_all(client, id, query, printer, &is_over));
    let ended = tokio::select! {
        ended = wait::until_ended(client, id, None, |_| {}) => ended?,
        // Before the task is over it can only end with an error.
        Err(error) = &mut printing => return Err(error),
    };
    is_over.set(true);
    match tokio::time::timeout(LAST_LINES_WAIT, printing).await {
        Ok(Err(error)) if !error.is_passing() => Err(error),
        _ => Ok(ended),
    }
}

/// Reopens the stream whenever it ends before the task, behind the last line it gave.
async fn print_all(
    client: &Client,
    id: Id,
    query: &[(&str, String)],
    printer: &mut Printer,
    is_over: &Cell<bool>,
) -> Result<()> {
    let mut patience = Patience::default();
    loop {
        match print_stream(client, id, query, printer).await {
            Ok(()) if is_over.get() => return Ok(()),
            Ok(()) => patience.relax(),
            Err(error) => patience.endure(error).await?,
        }
        tokio::time::sleep(REOPEN_WAIT).await;
    }
}

async fn print_stream(client: &Client, id: Id, query: &[(&str, String)], printer: &mut Printer) -> Result<()> {
    let mut stream = client.log_stream(id, query, printer.last_id.as_deref()).await?;
    printer.drain(&mut stream).await
}

#[derive(Default)]
struct Printer {
    as_json: bool,
    has_printed: bool,
    last_id: Option<String>,
    /// Not every line has an id: so many were printed since the last one that had, and come again when the stream is
    /// opened again behind it.
    n_since_id: usize,
}

impl Printer {
    async fn drain(&mut self, stream: &mut EventStream) -> Result<()> {
        let mut n_known = self.n_since_id;
        while let Some(event) = stream.next().await? {
            // Other events of the stream carry no line.
            if let Ok(line) = serde_json::from_str::<LogLine>(&event.data) {
                if n_known == 0 {
                    self.print(&line, &event.data)?;
                    self.has_printed = true;
                    self.n_since_id += 1;
                }
                n_known = n_known.saturating_sub(1);
            }
            if event.id.is_some() {
                self.last_id = event.id;
                (self.n_since_id, n_known) = (0, 0);
            }
        }
        Ok(())
    }

    fn print(&self, line: &LogLine, json: &str) -> Result<()> {
        match line.stream {
            _ if self.as_json => out::line(json),
            LogStream::Stdout => out::line(&line.text),
            LogStream::Stderr | LogStream::Note => {
                out::note(&line.text);
                Ok(())
            }
        }
    }
}
