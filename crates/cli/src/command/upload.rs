//! `runyard upload`: a file for tasks to come.

use std::path::PathBuf;

use crate::cli::Shared;
use crate::error::Result;
use crate::exit::Exit;
use crate::out;

#[derive(clap::Args)]
#[command(after_help = "\
The id of the upload is all that is printed on stdout. A task names it in its payload:
  {\"files\": [{\"upload\": \"ID\", \"path\": \"data.csv\"}]}
`runyard submit --file data.csv=@FILE` does both at once.")]
pub struct Args {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let answer = shared.client()?.upload(&args.file).await?;
    match shared.json {
        true => out::line(&answer.text)?,
        false => out::line(answer.read()?.id.to_string())?,
    }
    Ok(Exit::Done)
}
