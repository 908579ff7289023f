//! `runyard input`: text for a task that runs.

use std::io::Read;
use std::path::PathBuf;

use runyard_wire::{Id, InputAnswer};

use crate::cli::Shared;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out;

#[derive(clap::Args)]
#[command(after_help = "\
A process that was submitted with `input: true` reads the text as a line on stdin. For a task that takes no input the
text becomes a follow-up: a task like it that runs behind it, with the text as its message. The id of the task that
carries the text is all that is printed on stdout; it completes when the text was taken.")]
pub struct Args {
    /// The task
    #[arg(value_name = "ID")]
    id: Id,
    /// The text, or - for stdin
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    text: String,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let text = if args.text == "-" { stdin_text()? } else { args.text };
    let answer = shared.client()?.task_input(args.id, text).await?;
    if shared.json {
        out::line(&answer.text)?;
        return Ok(Exit::Done);
    }
    let InputAnswer { id, steers, .. } = answer.read()?;
    out::line(id.to_string())?;
    if steers.is_none() {
        out::note(format!("{} takes no input: the text follows it as a task of its own", args.id));
    }
    Ok(Exit::Done)
}

/// Without the end of its last line, which the task gets anyway.
fn stdin_text() -> Result<String> {
    let mut text = String::new();
    let read = std::io::stdin().read_to_string(&mut text);
    read.map_err(|source| Error::File { doing: "read", path: PathBuf::from("stdin"), source })?;
    text.truncate(text.trim_end_matches('\n').len());
    Ok(text)
}
