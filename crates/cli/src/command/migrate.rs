//! `runyard migrate`: the schema of a PostgreSQL database.

use std::path::PathBuf;

use runyard_server::config::Sources;
use runyard_server::{MigrateMode, migrate};
use serde_json::json;

use crate::cli::Shared;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::out;

#[derive(clap::Args)]
#[command(after_help = "\
A server that starts does this by itself, one node at a time. Exit code 0 when the schema is up to date; with --check 1 when
steps are missing.")]
pub struct Args {
    /// The database [default: store.url of the configuration]
    #[arg(long, value_name = "postgres://…", env = "RUNYARD_STORE", hide_env_values = true)]
    store: Option<String>,
    /// Configuration file
    #[arg(long, value_name = "FILE", env = "RUNYARD_CONFIG")]
    config: Option<PathBuf>,
    /// Only say what is missing
    #[arg(long)]
    check: bool,
    /// No node has the secrets.key of this database any more: let the next one that starts make a new one. What is sealed
    /// with the old one is lost
    #[arg(long, conflicts_with = "check")]
    give_up_secrets: bool,
}

pub async fn run(_shared: &Shared, args: Args) -> Result<Exit> {
    let mut sources = Sources::from_process(args.config);
    if let Some(url) = args.store {
        sources.flags.insert("store".to_owned(), json!({ "url": url }));
    }
    let mode = match (args.check, args.give_up_secrets) {
        (true, _) => MigrateMode::Look,
        (false, true) => MigrateMode::GiveUpSecrets,
        (false, false) => MigrateMode::Act,
    };
    let migrated = migrate(sources, mode).await?;
    let migrated =
        migrated.ok_or_else(|| Error::usage("no database is named: --store, RUNYARD_STORE or [store] url"))?;
    let steps = |n: u32| if n == 1 { "1 step".to_owned() } else { format!("{n} steps") };
    match (migrated.n_pending, mode) {
        (0, _) => out::line("the schema is up to date")?,
        (n, MigrateMode::Act | MigrateMode::GiveUpSecrets) => {
            out::line(format!("the schema is up to date: {} taken", steps(n)))?
        }
        (n, MigrateMode::Look) => {
            out::line(format!("{} missing: `runyard migrate` takes them, and so does a server that starts", steps(n)))?;
            return Ok(Exit::Failed);
        }
    }
    Ok(Exit::Done)
}
