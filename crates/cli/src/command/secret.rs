//! `runyard secret`: what tasks refer to as `secret://NAME`.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use runyard_wire::{SecretPut, SecretSource, SecretView};

use crate::cli::Shared;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out;

#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Keep a secret; its value is read from stdin or a file, never from the command line
    Set {
        /// What payloads call it: secret://NAME
        name: String,
        /// File that holds the value [default: stdin]
        #[arg(long, value_name = "FILE")]
        from_file: Option<PathBuf>,
        /// Only tasks of this agent may have it; may be repeated
        #[arg(long = "agent", value_name = "AGENT")]
        agents: Vec<String>,
    },
    /// List secrets, without their values
    List,
    /// Remove a secret
    Remove {
        /// Its name
        name: String,
    },
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let client = shared.client()?;
    match args.action {
        Action::Set { name, from_file, agents } => {
            let value = value(from_file)?;
            let put = SecretPut { value, agents: Some(agents).filter(|agents| !agents.is_empty()) };
            client.secret_put(&name, &put).await?;
            out::note(format!("secret {name} is kept; payloads call it secret://{name}"));
        }
        Action::List => {
            let answer = client.secret_list().await?;
            if shared.json { out::line(&answer.text)? } else { print(&answer.read()?.items)? }
        }
        Action::Remove { name } => {
            client.secret_remove(&name).await?;
            out::note(format!("secret {name} is removed"));
        }
    }
    Ok(Exit::Done)
}

/// Without the end of its last line, which an editor or `echo` adds.
fn value(from: Option<PathBuf>) -> Result<String> {
    if from.is_none() && std::io::stdin().is_terminal() {
        out::note("type the value, then Ctrl-D on a line of its own");
    }
    let mut text = String::new();
    let read = match &from {
        Some(path) => std::fs::read_to_string(path).map(|read| text = read),
        None => std::io::stdin().read_to_string(&mut text).map(drop),
    };
    let path = from.unwrap_or_else(|| "stdin".into());
    read.map_err(|source| Error::File { doing: "read the value in", path, source })?;
    text.truncate(text.trim_end_matches(['\r', '\n']).len());
    Ok(text)
}

fn print(secrets: &[SecretView]) -> Result<()> {
    let mut table = out::table(&["NAME", "SOURCE", "AGENTS", "SET"]);
    for secret in secrets {
        let source = match secret.source {
            SecretSource::Stored => "stored",
            SecretSource::Env => "env",
            SecretSource::File => "file",
        };
        let agents = secret.agents.as_ref().map_or("any".to_owned(), |agents| agents.join(", "));
        let set = secret.set_at.map(|at| at.to_string()).unwrap_or_default();
        table.add_row([secret.name.clone(), source.to_owned(), agents, set]);
    }
    out::print(&table)
}
