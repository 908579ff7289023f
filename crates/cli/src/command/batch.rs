//! `runyard batch`: many tasks from a file, as one batch.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use runyard_wire::{
    BatchAnswer, BatchCounts, BatchItem, BatchMode, BatchRequest, BatchState, BatchView, Id, TaskRequest, parse,
};

use crate::cli::Shared;
use crate::client::{Answer, Client};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out;
use crate::patience::Patience;

#[derive(clap::Args)]
#[command(after_help = "\
The file holds a batch as the API takes it ({\"tasks\": [...]}), a JSON array of tasks, or one task on each line:
  {\"name\": \"build\", \"kind\": \"process\", \"payload\": {\"argv\": [\"make\"]}}
  {\"kind\": \"process\", \"payload\": {\"argv\": [\"make\", \"test\"]}, \"dependsOn\": [\"#build\"]}

Without --wait the id of the new batch is all that is printed on stdout.")]
pub struct Args {
    /// The file, or - for stdin
    file: PathBuf,
    /// How many of its tasks may be queued or running at once
    #[arg(long, short, value_name = "N")]
    parallelism: Option<u32>,
    /// all: one bad task and nothing is stored; partial: each task answers for itself
    #[arg(long)]
    mode: Option<BatchMode>,
    /// A name for people
    #[arg(long)]
    name: Option<String>,
    /// A repeat with the same key and tasks gives the same batch
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Wait until all have ended, and exit with the outcome
    #[arg(long, short)]
    wait: bool,
}

/// How often a batch that is waited for is looked at.
const POLL: Duration = Duration::from_millis(300);

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let client = shared.client()?;
    let mut request = read(&text(&args.file)?)?;
    request.parallelism = args.parallelism.or(request.parallelism);
    request.mode = args.mode.unwrap_or(request.mode);
    request.name = args.name.or(request.name);
    request.idempotency_key = args.idempotency_key.or(request.idempotency_key);
    let answer = client.batch_submit(&request).await?;
    let batch = answer.read()?;
    let refused = note_refused(&batch);
    if !args.wait {
        if shared.json {
            out::line(&answer.text)?
        } else {
            out::line(batch.id.to_string())?
        }
        return Ok(refused);
    }
    out::note(format!("batch {}", batch.id));
    let ended = until_finished(&client, batch.id).await?;
    let view = ended.read()?;
    if shared.json {
        out::line(&ended.text)?
    } else {
        out::line(outcome(&view))?
    }
    Ok(exit(&view.counts).worst(refused))
}

fn text(file: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = match file.to_str() {
        Some("-") => std::io::stdin().read_to_end(&mut bytes).map(drop),
        _ => std::fs::read(file).map(|read| bytes = read),
    };
    read.map_err(|source| Error::File { doing: "read", path: file.to_owned(), source })?;
    Ok(bytes)
}

/// A batch, an array of tasks, or a task on each line.
fn read(bytes: &[u8]) -> Result<BatchRequest> {
    let of_tasks = |tasks| BatchRequest { tasks, ..BatchRequest::default() };
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return parse(bytes).map(of_tasks).map_err(Error::usage);
    }
    // One value is a batch (and if it is a wrong one, that is the error to show), several are tasks.
    let is_one_batch = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(bytes)
        .is_ok_and(|object| object.contains_key("tasks"));
    if is_one_batch {
        return parse(bytes).map_err(Error::usage);
    }
    let lines = bytes.split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.trim_ascii().is_empty());
    let task = |(n, line): (usize, &[u8])| {
        parse::<TaskRequest>(line).map_err(|error| Error::usage(format!("line {}: {error}", n + 1)))
    };
    lines.map(task).collect::<Result<Vec<_>>>().map(of_tasks)
}

fn note_refused(batch: &BatchAnswer) -> Exit {
    let mut exit = Exit::Done;
    for (n, item) in batch.tasks.iter().enumerate() {
        if let BatchItem::Refused { error } = item {
            let place = format!("tasks[{n}]");
            let place = if error.detail.starts_with(&place) { String::new() } else { format!("{place}: ") };
            out::note(format!("error: {place}{}", Error::Refused(error.clone())));
            exit = Exit::Refused;
        }
    }
    exit
}

async fn until_finished(client: &Client, id: Id) -> Result<Answer<BatchView>> {
    let bar = out::stderr_is_terminal().then(bar);
    let mut patience = Patience::default();
    loop {
        match client.batch(id).await {
            Ok(answer) => {
                patience.relax();
                let view = answer.read()?;
                if let Some(bar) = &bar {
                    advance(bar, &view.counts);
                }
                if view.state == BatchState::Finished {
                    bar.inspect(ProgressBar::finish_and_clear);
                    return Ok(answer);
                }
                tokio::time::sleep(POLL).await;
            }
            Err(error) => patience.endure(error).await?,
        }
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} [{bar:40}] {pos}/{len} {msg}");
    ProgressBar::no_length().with_style(style.expect("the template is well formed"))
}

fn advance(bar: &ProgressBar, counts: &BatchCounts) {
    bar.set_length(u64::from(counts.total));
    bar.set_position(u64::from(counts.completed + counts.failed + counts.cancelled));
    bar.set_message(match (counts.failed, counts.cancelled) {
        (0, 0) => String::new(),
        (failed, cancelled) => format!("{failed} failed, {cancelled} cancelled"),
    });
}

fn outcome(view: &BatchView) -> String {
    let BatchCounts { total, completed, failed, cancelled, .. } = view.counts;
    format!("{} finished: {total} tasks, {completed} completed, {failed} failed, {cancelled} cancelled", view.id)
}

fn exit(counts: &BatchCounts) -> Exit {
    match counts {
        BatchCounts { failed: 1.., .. } => Exit::Failed,
        BatchCounts { cancelled: 1.., .. } => Exit::Cancelled,
        _ => Exit::Done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_forms_of_a_file_are_read() {
        let forms: [&[u8]; 4] = [
            br#"{"tasks": [{"kind": "a"}, {"kind": "b"}]}"#,
            br#" [{"kind": "a"}, {"kind": "b"}]"#,
            b"{\"kind\": \"a\"}\n\n{\"kind\": \"b\"}\n",
            b"{\"kind\": \"a\"}\r\n{\"kind\": \"b\"}",
        ];
        for form in forms {
            let kinds: Vec<_> = read(form).unwrap().tasks.into_iter().filter_map(|task| task.kind).collect();
            assert_eq!(kinds, ["a", "b"], "{}", String::from_utf8_lossy(form));
        }
        assert_eq!(read(br#"{"kind": "a"}"#).unwrap().tasks.len(), 1);
    }

    #[test]
    fn a_wrong_file_says_where() {
        let error = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
        assert!(error(br#"{"tasks": [{"kin": "a"}]}"#).starts_with("tasks[0].kin: "));
        assert!(error(b"{\"kind\": \"a\"}\n{\"kin\": 1}").starts_with("line 2: kin: "));
    }
}
