//! `runyard serve`: the server, until it is told to stop.

use std::path::PathBuf;

use runyard_server::ServeOptions;
use serde_json::{Map, Value, json};

use crate::cli::Shared;
use crate::error::Result;
use crate::exit::Exit;

#[derive(clap::Args)]
#[command(after_help = "\
The data directory (--data) holds everything: tasks, logs, the admin key. The first start makes it.
SIGTERM stops the server cleanly, a second one at once; SIGHUP reads the configuration again.")]
pub struct Args {
    /// Address and port to listen on [default: 127.0.0.1:7340]
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<String>,
    /// Configuration file
    #[arg(long, value_name = "FILE", env = "RUNYARD_CONFIG")]
    config: Option<PathBuf>,
    /// Ask for no key; on loopback only
    #[arg(long)]
    no_auth: bool,
    /// PostgreSQL in the place of the SQLite file; several servers on one database are the nodes of one scheduler
    #[arg(long, value_name = "postgres://…", env = "RUNYARD_STORE", hide_env_values = true)]
    store: Option<String>,
    /// Where the other nodes reach this one [default: the address it listens on]
    #[arg(long, value_name = "URL")]
    advertise: Option<String>,
    /// This node's name, for people [default: the machine's]
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
}

impl Args {
    /// As the configuration file would say it.
    fn flags(&self) -> Map<String, Value> {
        let mut flags = json!({});
        for (section, key, value) in
            [("store", "url", &self.store), ("nodes", "advertise", &self.advertise), ("nodes", "name", &self.node_name)]
        {
            if let Some(value) = value {
                flags[section][key] = value.as_str().into();
            }
        }
        flags.as_object().cloned().unwrap_or_default()
    }
}

/// This very program, also when its file has been replaced by a newer one since it was started.
pub fn own_program() -> PathBuf {
    let image = PathBuf::from("/proc/self/exe");
    if image.exists() { image } else { std::env::current_exe().unwrap_or_else(|_| "runyard".into()) }
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let options = ServeOptions {
        flags: args.flags(),
        listen: args.listen,
        data: shared.connection.data_dir()?,
        config: args.config,
        no_auth: args.no_auth,
        supervisor: Some(own_program()),
        ..ServeOptions::default()
    };
    runyard_server::serve(options.with_process_env()).await?;
    Ok(Exit::Done)
}
