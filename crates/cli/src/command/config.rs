//! `runyard config`: what is in force, whether a file is right, and what can be set.

use std::path::PathBuf;

use runyard_server::config::{self, Sources};
use runyard_wire::ConfigView;
use serde_json::Value;

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
    /// Show the configuration in force and where each value comes from
    Show {
        /// Print a commented file with every key and its default instead; needs no server
        #[arg(long)]
        default: bool,
        /// Only what is not a default
        #[arg(long, conflicts_with = "default")]
        changed: bool,
    },
    /// Check a file together with the environment, without a server
    Check {
        /// The file [default: the environment alone]
        file: Option<PathBuf>,
    },
    /// Print the JSON schema of the file
    Schema,
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    match args.action {
        Action::Show { default: true, .. } => out::line(config::default_file().trim_end())?,
        Action::Show { changed, .. } => show(shared, changed).await?,
        Action::Check { file } => check(file)?,
        Action::Schema => {
            let schema = serde_json::to_string_pretty(&config::json_schema()).expect("a schema is plain JSON");
            out::line(schema)?;
        }
    }
    Ok(Exit::Done)
}

async fn show(shared: &Shared, only_changed: bool) -> Result<()> {
    let answer = shared.client()?.config().await?;
    if shared.json {
        return out::line(&answer.text);
    }
    let ConfigView { values, origins } = answer.read()?;
    let mut leaves = Vec::new();
    flatten("", &values, &mut leaves);
    let mut table = out::table(&["KEY", "VALUE", "FROM"]);
    for (key, value) in leaves {
        let origin = origins.get(&key).map_or("default", String::as_str);
        if !only_changed || origin != "default" {
            table.add_row([key, value.to_string(), origin.to_owned()]);
        }
    }
    out::print(&table)
}

fn check(file: Option<PathBuf>) -> Result<()> {
    let what = file.as_ref().map_or("the environment".to_owned(), |file| file.display().to_string());
    let layers = Sources::from_process(file).layers().map_err(Error::usage)?;
    let merged = config::merge(&layers).map_err(Error::usage)?;
    // Everything that is left out has a default, so a whole configuration came out.
    drop(merged);
    out::line(format!("{what}: ok"))
}

/// Every value with its path; a list is a value, and so is an empty table.
fn flatten(prefix: &str, value: &Value, leaves: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                flatten(&path, value, leaves);
            }
        }
        Value::Null => {}
        value => leaves.push((prefix.to_owned(), value.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_shown_by_their_path() {
        let mut leaves = Vec::new();
        flatten("", &json!({"limits": {"maxQueued": 1}, "lanes": {}, "log": {"level": null}}), &mut leaves);
        assert_eq!(leaves, [("lanes".into(), json!({})), ("limits.maxQueued".into(), json!(1))]);
    }
}
