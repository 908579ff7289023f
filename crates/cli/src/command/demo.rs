//! `runyard demo`: a server of its own with a lively workload, shown at work, gone afterwards.

mod screen;
mod workload;

use std::path::Path;
use std::time::Duration;

use runyard_server::{ServeOptions, Server};
use runyard_wire::MetricsView;

use crate::cli::Shared;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::locate::Connection;
use crate::out;

#[derive(clap::Args)]
pub struct Args {
    /// How long it goes on
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

pub async fn run(_shared: &Shared, args: Args) -> Result<Exit> {
    let home = tempfile::tempdir().map_err(|source| Error::File {
        doing: "make a directory in",
        path: std::env::temp_dir(),
        source,
    })?;
    let server = start(home.path()).await?;
    let connection =
        Connection { url: Some(server.url.clone()), data: Some(server.data_dir.clone()), ..Connection::default() };
    server.ready().await;
    let shown = show(&connection, Duration::from_secs(args.seconds)).await;
    // What still runs is of no further use.
    server.shutdown(Duration::ZERO).await;
    shown?;
    Ok(Exit::Done)
}

async fn start(home: &Path) -> Result<Server> {
    let config = home.join("runyard.toml");
    std::fs::write(&config, workload::CONFIG).map_err(|source| Error::File {
        doing: "write",
        path: config.clone(),
        source,
    })?;
    let options = ServeOptions {
        listen: Some("127.0.0.1:0".into()),
        data: home.join("data"),
        config: Some(config),
        ..ServeOptions::default()
    };
    Ok(Server::start(options).await?)
}

async fn show(connection: &Connection, length: Duration) -> Result<()> {
    let client = Client::new(connection)?;
    let work = async { tokio::try_join!(workload::drive(&client, length), screen::show(&client, length)).map(drop) };
    tokio::select! {
        ended = work => ended?,
        () = tokio::time::sleep(length) => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    summary(&client.stats().await?.read()?.metrics)
}

fn summary(metrics: &MetricsView) -> Result<()> {
    let MetricsView { submitted, completed, failed, retried, .. } = metrics;
    out::line(format!("{submitted} tasks submitted, {completed} completed, {failed} failed, {retried} retries."))?;
    out::line("Now your own: `runyard serve` in one terminal, `runyard submit --wait -- echo hi` in another.")
}
