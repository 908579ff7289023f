//! `runyard serve`: a server with a log, a greeting and signals.

use std::future::Future;
use std::io::{self, Write};
use std::pin::pin;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::config::Live;
use crate::logging;
use crate::server::{Error, ServeOptions, Server};

/// Serves until SIGTERM or SIGINT, then drains. A second signal stops now.
pub async fn serve(options: ServeOptions) -> Result<(), Error> {
    // Read once more by the server; here only to know how to log before anything else happens.
    logging::init(&Live::load(options.sources(), Default::default())?.current().config.log)?;
    let mut signals = Signals::new().map_err(Error::Signals)?;
    let stop = CancellationToken::new();
    let Some(server) = start(options, &stop, &mut signals).await? else { return Ok(()) };
    // Nobody reads it: that is no reason to stop.
    let _ = greet(&server, &mut io::stdout().lock());
    tokio::select! {
        () = stop.cancelled() => {}
        () = signals.next() => {}
        error = server.gave_up() => return Err(error),
    }
    let drain = server.drain_time();
    tracing::info!(target: "runyard::server", drain_ms = drain.as_millis() as u64, "stopping; a second signal stops now");
    or_now(server.shutdown(drain), signals.next()).await;
    Ok(())
}

/// A signal ends a start that waits, and a second one ends it now. A start that was all but done gives a server, which is
/// to stop then.
async fn start(
    options: ServeOptions,
    stop: &CancellationToken,
    signals: &mut Signals,
) -> Result<Option<Server>, Error> {
    let mut starting = pin!(Server::start_unless(options, stop.clone()));
    loop {
        tokio::select! {
            started = &mut starting => return match started {
                Err(Error::Stopped) => {
                    tracing::info!(target: "runyard::server", "stopped before it had started");
                    Ok(None)
                }
                started => started.map(Some),
            },
            () = signals.next() => {
                if stop.is_cancelled() {
                    return Ok(None);
                }
                stop.cancel();
            }
        }
    }
}

async fn or_now(shutdown: impl Future<Output = ()>, second: impl Future<Output = ()>) {
    tokio::select! {
        () = shutdown => tracing::info!(target: "runyard::server", "stopped"),
        () = second => tracing::warn!(target: "runyard::server", "stopped now; what ran is retried at the next start"),
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// For the configuration, which is read anyway when the start goes on: until there is somebody who listens to it, it
    /// must not end the process.
    _hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            _hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn greet(server: &Server, out: &mut impl Write) -> io::Result<()> {
    let (url, data_dir, key_file) = (&server.url, &server.data_dir, &server.key_file);
    writeln!(out, "Runyard {} listens on {url}", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "  data   {}", data_dir.display())?;
    if let Some(node) = server.node() {
        writeln!(out, "  node   {node}")?;
    }
    match key_file {
        Some(path) if !path.exists() => {
            writeln!(out, "  key    as on the other nodes (the first of them made admin.key)")?
        }
        Some(path) => writeln!(out, "  key    {} (the command line on this machine finds it)", path.display())?,
        None => writeln!(out, "  key    none asked for (--no-auth)")?,
    }
    writeln!(out, "\nTry, in another terminal:")?;
    writeln!(out, "  runyard submit --wait -- echo hello")?;
    writeln!(out, "  runyard watch")?;
    writeln!(out, "  runyard stats")?;
    out.flush()
}
