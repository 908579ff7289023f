//! `runyard key`: API keys.

use runyard_wire::{Id, KeyRequest, KeyView, Scope};

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
    /// Make a key; it is printed this once
    Create {
        /// A name for people
        name: String,
        /// read, submit, exec (tasks that run programs) or admin; may be repeated
        #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',', default_value = "read", value_parser = scope)]
        scopes: Vec<Scope>,
        /// Bind it to the work of this agent; may be repeated
        #[arg(long = "agent", value_name = "AGENT")]
        agents: Vec<String>,
    },
    /// List keys
    List,
    /// Make a key useless
    Revoke {
        /// The key's id
        #[arg(value_name = "ID")]
        id: Id,
    },
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let client = shared.client()?;
    match args.action {
        Action::Create { name, scopes, agents } => {
            let request = KeyRequest { name, scopes, agents: Some(agents).filter(|agents| !agents.is_empty()) };
            let answer = client.key_create(&request).await?;
            if shared.json {
                out::line(&answer.text)?;
            } else {
                let created = answer.read()?;
                out::note(format!("key {} ({}); it is shown only now:", created.view.id, scope_list(&created.view)));
                out::line(&created.key)?;
            }
        }
        Action::List => {
            let answer = client.key_list().await?;
            if shared.json { out::line(&answer.text)? } else { print(&answer.read()?.items)? }
        }
        Action::Revoke { id } => {
            client.key_revoke(id).await?;
            out::note(format!("key {id} is revoked"));
        }
    }
    Ok(Exit::Done)
}

fn print(keys: &[KeyView]) -> Result<()> {
    let mut table = out::table(&["ID", "NAME", "SCOPES", "AGENTS", "CREATED", "LAST USED"]);
    for key in keys {
        let agents = key.agents.as_ref().map_or("any".to_owned(), |agents| agents.join(", "));
        let last_used = key.last_used_at.map_or("never".to_owned(), |at| at.to_string());
        let created = key.created_at.to_string();
        let row = [key.id.to_string(), key.name.clone(), scope_list(key), agents, created, last_used];
        table.add_row(row);
    }
    out::print(&table)
}

fn scope_list(key: &KeyView) -> String {
    key.scopes.iter().map(|&scope| scope_name(scope)).collect::<Vec<_>>().join(", ")
}

const SCOPES: [Scope; 5] = [Scope::Read, Scope::Submit, Scope::Exec, Scope::Worker, Scope::Admin];

fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Read => "read",
        Scope::Submit => "submit",
        Scope::Exec => "exec",
        Scope::Worker => "worker",
        Scope::Admin => "admin",
    }
}

fn scope(text: &str) -> std::result::Result<Scope, Error> {
    let found = SCOPES.into_iter().find(|&scope| scope_name(scope) == text);
    found.ok_or_else(|| Error::usage(format!("`{text}` is none of {}", SCOPES.map(scope_name).join(", "))))
}
