//! The `runyard` program: server, client and demo in one binary.

#![forbid(unsafe_code)]

mod bench;
mod cli;
mod command;

mod client;
mod error;
mod exit;
mod locate;
mod out;
mod patience;
mod span;
mod sse;

use std::process::ExitCode;

use clap::Parser;

#[tokio::main]
async fn main() -> ExitCode {
    match cli::Cli::parse().run().await {
        Ok(exit) => exit.into(),
        Err(error) => {
            out::note(format!("error: {error}"));
            error.exit().into()
        }
    }
}
