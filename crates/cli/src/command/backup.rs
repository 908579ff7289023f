//! `runyard backup`: a consistent copy of the store, written by the server while it goes on.

use std::path::PathBuf;

use runyard_wire::BackupRequest;

use crate::cli::Shared;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out;

#[derive(clap::Args)]
pub struct Args {
    /// The file to write on the server's machine; it must not exist yet
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let path = std::path::absolute(&args.file).map_err(|source| Error::File {
        doing: "find",
        path: args.file.clone(),
        source,
    })?;
    let path = path.to_str().ok_or_else(|| Error::usage("the file's name is not UTF-8"))?.to_owned();
    let answer = shared.client()?.backup(&BackupRequest { path }).await?;
    if shared.json {
        out::line(&answer.text)?;
    } else {
        let written = answer.read()?;
        out::line(format!("{} ({} bytes)", written.path, written.bytes))?;
    }
    Ok(Exit::Done)
}
