//! One container, from its creation until it is gone.

use std::time::Duration;

use bollard::container::{AttachContainerResults, LogOutput};
use bollard::models::ContainerState;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::engine::{Engine, Error};
use super::plan::{Plan, name_of};
use crate::outcome::Failure;

/// An engine that is restarted is back long before. After this nobody waits any more: what it still runs is removed when
/// it is there again.
pub(super) const AWAY_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(250);
/// Mostly a container that was in the way is gone by then.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long the name may be taken by what cannot be removed. An engine takes the name first and makes the container then;
/// in between there is nothing to remove, and whoever asked for it may be dead.
const TAKEN_MAX: Duration = Duration::from_secs(60);

/// Removed when it is dropped, though then nobody waits for that.
pub(super) struct Container {
    engine: Engine,
    pub id: String,
    /// What the engine could not do as it was asked.
    pub warnings: Vec<String>,
    is_gone: bool,
}

pub(super) type Output =
    std::pin::Pin<Box<dyn futures_util::Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>;

impl Container {
    /// One of the same task that is there already is left from an attempt that is over, and goes. `None` when a stop was
    /// asked meanwhile.
    pub(super) async fn create(
        engine: &Engine,
        plan: &Plan<'_>,
        stop: &CancellationToken,
    ) -> Result<Option<Container>, Failure> {
        let name = name_of(plan.owner, &plan.job.task_text());
        let give_up_at = Instant::now() + TAKEN_MAX;
        while !stop.is_cancelled() {
            match engine.create(&name, plan.body()).await {
                Ok((id, warnings)) => {
                    return Ok(Some(Container { engine: engine.clone(), id, warnings, is_gone: false }));
                }
                Err(error) if !error.is_conflict() => return Err(error.into()),
                Err(error) if Instant::now() >= give_up_at => {
                    return Err(Failure::worker(format!("a container of an earlier attempt does not go: {error}")));
                }
                Err(_) => engine.remove_left(&name).await?,
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(None)
    }

    pub(super) async fn attach(&self, stdin: bool) -> Result<AttachContainerResults, Error> {
        self.engine.attach(&self.id, stdin).await
    }

    pub(super) async fn start(&self) -> Result<(), Error> {
        self.engine.start(&self.id).await
    }

    pub(super) async fn ended(&self) -> Result<(), Error> {
        self.engine.ended(&self.id).await
    }

    /// What cannot be sent is said in the log; whether it has ended, others see.
    pub(super) async fn signal(&self, signal: &str) {
        if let Err(error) = self.engine.signal(&self.id, signal).await {
            tracing::warn!(container = self.id, signal, %error, "a container cannot be sent a signal");
        }
    }

    pub(super) async fn state_now(&self) -> Result<ContainerState, Error> {
        self.engine.state(&self.id).await
    }

    /// Waits for an engine that is away.
    pub(super) async fn state(&self) -> Result<ContainerState, Error> {
        let patience = Patience::new();
        loop {
            let state = self.state_now().await;
            if !patience.tries_again(&state).await {
                return state;
            }
        }
    }

    pub(super) async fn remove(mut self) {
        let patience = Patience::new();
        let mut removed = self.engine.remove(&self.id).await;
        while patience.tries_again(&removed).await {
            removed = self.engine.remove(&self.id).await;
        }
        match removed {
            Ok(()) => self.is_gone = true,
            Err(error) => tracing::warn!(container = self.id, %error, "a container cannot be removed"),
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if self.is_gone {
            return;
        }
        let (engine, id) = (self.engine.clone(), std::mem::take(&mut self.id));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(async move { engine.remove(&id).await }));
        }
    }
}

/// With an engine that is away: as long as one that is restarted may be.
pub(super) struct Patience {
    give_up_at: Instant,
}

impl Patience {
    pub(super) fn new() -> Patience {
        Patience { give_up_at: Instant::now() + AWAY_MAX }
    }

    /// True, after a pause, when it is worth another try.
    pub(super) async fn tries_again<T>(&self, answer: &Result<T, Error>) -> bool {
        let tries_again = matches!(answer, Err(Error::Away { .. })) && Instant::now() < self.give_up_at;
        if tries_again {
            tokio::time::sleep(LOOK).await;
        }
        tries_again
    }
}
