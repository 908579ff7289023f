//! `runyard serve`: the server, until it is told to stop.

use std::path::PathBuf;

use runyard_server::ServeOptions;

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
}

/// This very program, also when its file has been replaced by a newer one since it was started.
pub fn own_program() -> PathBuf {
    let image = PathBuf::from("/proc/self/exe");
    if image.exists() { image } else { std::env::current_exe().unwrap_or_else(|_| "runyard".into()) }
}

pub async fn run(shared: &Shared, args: Args) -> Result<Exit> {
    let options = ServeOptions {
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
