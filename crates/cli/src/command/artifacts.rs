//! `runyard artifacts`: the files that a task left.

use std::path::{Component, Path, PathBuf};

use runyard_wire::{ArtifactsView, Id};
use tokio::io::AsyncWriteExt;

use crate::cli::Shared;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  runyard artifacts ID                        lists them
  runyard artifacts ID report.html            prints one
  runyard artifacts ID report.html -o FILE    writes one to a file, or into a directory
  runyard artifacts ID -o DIR                 writes all of them below a directory")]
pub struct Args {
    /// The task
    #[arg(value_name = "ID")]
    id: Id,
    /// One of them
    #[arg(value_name = "PATH")]
    path: Option<String>,
    /// Where to write: a file or a directory
    #[arg(long, short, value_name = "FILE|DIR")]
    output: Option<PathBuf>,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let client = shared.client()?;
    match (args.path, args.output) {
        (None, None) => list(shared, &client, args.id).await,
        (None, Some(folder)) => fetch_all(&client, args.id, &folder).await,
        (Some(path), None) => print(&client, args.id, &path).await,
        (Some(path), Some(to)) => {
            let to = if to.is_dir() { to.join(path.rsplit('/').next().unwrap_or_default()) } else { to };
            fetch(&client, args.id, &path, &to).await
        }
    }
}

async fn list(shared: &Shared, client: &Client, id: Id) -> Result<Exit> {
    let answer = client.artifacts(id).await?;
    if shared.json {
        out::line(&answer.text)?;
        return Ok(Exit::Done);
    }
    let ArtifactsView { items, left_out } = answer.read()?;
    match items.is_empty() {
        true => out::note("no artifacts"),
        false => {
            let mut table = out::table(&["PATH", "BYTES", "SHA256"]);
            for item in items {
                table.add_row([item.path.into(), out::number(item.bytes), item.sha256.into()]);
            }
            out::print(&table)?;
        }
    }
    for item in left_out {
        out::note(format!("left out: {}: {}", item.path, item.reason));
    }
    Ok(Exit::Done)
}

async fn print(client: &Client, id: Id, path: &str) -> Result<Exit> {
    let mut download = client.artifact(id, path).await?;
    let mut stdout = tokio::io::stdout();
    while let Some(chunk) = download.next().await? {
        match stdout.write_all(chunk.as_ref()).await {
            // A reader that has gone away has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(Exit::Done),
            written => written.map_err(Error::Output)?,
        }
    }
    stdout.flush().await.map_err(Error::Output)?;
    Ok(Exit::Done)
}

async fn fetch_all(client: &Client, id: Id, folder: &Path) -> Result<Exit> {
    let artifacts = client.artifacts(id).await?.read()?;
    for item in &artifacts.items {
        let to = folder.join(inner(&item.path)?);
        let above = to.parent().unwrap_or(folder);
        tokio::fs::create_dir_all(above).await.map_err(|source| file_error("make", above, source))?;
        fetch(client, id, &item.path, &to).await?;
        out::line(to.display().to_string())?;
    }
    for item in artifacts.left_out {
        out::note(format!("left out: {}: {}", item.path, item.reason));
    }
    Ok(Exit::Done)
}

/// Whatever a server says, nothing is written outside of the directory that was named.
fn inner(path: &str) -> Result<&Path> {
    let inner = Path::new(path);
    let is_inner = !path.is_empty() && inner.components().all(|part| matches!(part, Component::Normal(_)));
    if is_inner { Ok(inner) } else { Err(Error::usage(format!("the artifact `{path}` would be written elsewhere"))) }
}

async fn fetch(client: &Client, id: Id, path: &str, to: &Path) -> Result<Exit> {
    let mut download = client.artifact(id, path).await?;
    let failed = |source| file_error("write", to, source);
    let mut file = tokio::fs::File::create(to).await.map_err(failed)?;
    while let Some(chunk) = download.next().await? {
        file.write_all(chunk.as_ref()).await.map_err(failed)?;
    }
    file.flush().await.map_err(failed)?;
    Ok(Exit::Done)
}

fn file_error(doing: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::File { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_outside_of_the_directory() {
        assert!(inner("a/b.txt").is_ok());
        for path in ["", "..", "../a", "/etc/passwd", "a/../../b", "."] {
            assert!(inner(path).is_err(), "{path}");
        }
    }
}
