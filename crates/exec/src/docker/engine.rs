//! The engine, as far as it is needed: a few calls, and what its refusals mean.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::Docker;
use bollard::container::AttachContainerResults;
use bollard::errors::Error as Bollard;
use bollard::models::{ContainerCreateBody, ContainerState, ContainerStateStatusEnum};
use bollard::query_parameters::{
    AttachContainerOptions, CreateContainerOptions, CreateImageOptions, InspectContainerOptions, KillContainerOptions,
    ListContainersOptions, RemoveContainerOptions, StartContainerOptions, WaitContainerOptions,
};
use futures_util::StreamExt;
use tokio::time::Instant;

use crate::outcome::{Class, Failure};

/// Until an answer begins. To create a container of a large image takes minutes where the image is copied for it.
const ANSWER_S_MAX: u64 = 300;
/// Until an engine says who it is. One that does not is not there.
const GREETING_MAX: Duration = Duration::from_secs(5);
/// A removal that somebody else has begun ends by itself.
const REMOVAL_MAX: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);
/// How long a start may be under way whose caller is dead.
const START_MAX: Duration = Duration::from_secs(1);

const NOT_FOUND: u16 = 404;
const CONFLICT: u16 = 409;
/// Other things may not be found either: an image, a network, a program.
const NO_CONTAINER: &str = "No such container";

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the engine at {} cannot be reached: {cause}", socket.display())]
    Away { socket: PathBuf, cause: String },
    #[error("{message}")]
    Refused { status: u16, message: String },
}

impl Error {
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Error::Refused { status: NOT_FOUND, .. })
    }

    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Error::Refused { status: CONFLICT, .. })
    }
}

/// An engine that is away or broken is no fault of the work. What it does not accept, it never will; but a conflict is of
/// the moment, and so is a container that somebody has taken away.
impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Refused { status: NOT_FOUND, message } if message.starts_with(NO_CONTAINER) => {
                Failure::work(Class::Task, format!("its container was removed by somebody else: {message}"))
            }
            Error::Refused { status, message } if (400..500).contains(&status) && status != CONFLICT => {
                Failure::work(Class::Permanent, format!("the engine refuses the container: {message}"))
            }
            Error::Refused { message, .. } => Failure::worker(format!("the engine failed: {message}")),
            Error::Away { .. } => Failure::worker(error.to_string()),
        }
    }
}

/// A connection, as cheap to clone as it is to make: each call has its own.
#[derive(Clone)]
pub(crate) struct Engine {
    docker: Docker,
    socket: PathBuf,
}

/// What it says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct EngineFacts {
    /// It runs as an ordinary user, who is root inside of its containers.
    pub is_rootless: bool,
    /// It gives users other numbers inside than outside, unless told not to.
    pub remaps_users: bool,
    pub n_cpus: Option<u32>,
}

/// A container as it stands in a list.
pub(super) struct Listed {
    pub id: String,
    pub labels: HashMap<String, String>,
}

impl Engine {
    pub(crate) async fn connect(socket: &Path) -> Result<Engine, Error> {
        let away = |cause: String| Error::Away { socket: socket.to_owned(), cause };
        let path = socket.to_str().ok_or_else(|| away("its path is no text".to_owned()))?;
        let docker = Docker::connect_with_unix(path, ANSWER_S_MAX, bollard::API_DEFAULT_VERSION);
        let docker = docker.map_err(|error| away(error.to_string()))?;
        match tokio::time::timeout(GREETING_MAX, docker.negotiate_version()).await {
            Ok(Ok(docker)) => Ok(Engine { docker, socket: socket.to_owned() }),
            Ok(Err(error)) => Err(away(cause_of(&error))),
            Err(_) => Err(away(format!("it does not answer within {} s", GREETING_MAX.as_secs()))),
        }
    }

    pub(super) async fn facts(&self) -> Result<EngineFacts, Error> {
        let info = match self.docker.info().await {
            // What is asked for here is there to be careful with old and new engines alike; the rest does not need it.
            Err(Bollard::JsonDataError { .. } | Bollard::JsonSerdeError { .. }) => return Ok(EngineFacts::default()),
            info => info.map_err(|error| self.told(error))?,
        };
        let has = |name: &str| info.security_options.iter().flatten().any(|option| option == name);
        Ok(EngineFacts {
            is_rootless: has("name=rootless"),
            remaps_users: has("name=userns"),
            n_cpus: info.ncpu.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0),
        })
    }

    pub(super) async fn has_image(&self, image: &str) -> Result<bool, Error> {
        match self.docker.inspect_image(image).await.map_err(|error| self.told(error)) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Until it is there. A pull that is dropped is given up by the engine.
    pub(super) async fn pull(&self, image: &str) -> Result<(), Error> {
        // Without a tag the engine would fetch all there are.
        let last = image.rsplit('/').next().unwrap_or(image);
        let from = if last.contains([':', '@']) { image.to_owned() } else { format!("{image}:latest") };
        let options = CreateImageOptions { from_image: Some(from), ..CreateImageOptions::default() };
        let mut steps = self.docker.create_image(Some(options), None, None);
        while let Some(step) = steps.next().await {
            step.map_err(|error| self.told(error))?;
        }
        Ok(())
    }

    /// Its id, and what the engine warns of.
    pub(super) async fn create(&self, name: &str, body: ContainerCreateBody) -> Result<(String, Vec<String>), Error> {
        let options = CreateContainerOptions { name: Some(name.to_owned()), ..CreateContainerOptions::default() };
        let created = self.docker.create_container(Some(options), body).await.map_err(|error| self.told(error))?;
        Ok((created.id, created.warnings))
    }

    pub(super) async fn start(&self, id: &str) -> Result<(), Error> {
        self.docker.start_container(id, None::<StartContainerOptions>).await.map_err(|error| self.told(error))
    }

    pub(super) async fn attach(&self, id: &str, stdin: bool) -> Result<AttachContainerResults, Error> {
        let options = AttachContainerOptions { stream: true, stdout: true, stderr: true, stdin, ..Default::default() };
        self.docker.attach_container(id, Some(options)).await.map_err(|error| self.told(error))
    }

    /// Returns when it does not run any more, at once if it does not now.
    pub(super) async fn ended(&self, id: &str) -> Result<(), Error> {
        let options = WaitContainerOptions { condition: "not-running".to_owned() };
        let mut waited = std::pin::pin!(self.docker.wait_container(id, Some(options)));
        match waited.next().await {
            // This client takes every exit code but zero for an error.
            Some(Ok(_) | Err(Bollard::DockerContainerWaitError { .. })) => Ok(()),
            Some(Err(error)) => Err(self.told(error)),
            None => Err(self.away("it broke off while a container was waited for".to_owned())),
        }
    }

    pub(super) async fn state(&self, id: &str) -> Result<ContainerState, Error> {
        let inspected = self.docker.inspect_container(id, None::<InspectContainerOptions>).await;
        Ok(inspected.map_err(|error| self.told(error))?.state.unwrap_or_default())
    }

    /// To one that runs; a conflict says that it does not.
    pub(super) async fn signal(&self, id: &str, signal: &str) -> Result<(), Error> {
        let options = KillContainerOptions { signal: signal.to_owned() };
        match self.docker.kill_container(id, Some(options)).await.map_err(|error| self.told(error)) {
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            sent => sent,
        }
    }

    /// Kills it if it runs. When this returns there is none of this name or id.
    pub(super) async fn remove(&self, container: &str) -> Result<(), Error> {
        let give_up_at = Instant::now() + REMOVAL_MAX;
        loop {
            let options = RemoveContainerOptions { v: true, force: true, link: false };
            match self.docker.remove_container(container, Some(options)).await.map_err(|error| self.told(error)) {
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) if error.is_conflict() && Instant::now() < give_up_at => tokio::time::sleep(LOOK).await,
                removed => return removed,
            }
        }
    }

    /// As [`Self::remove`], for one of a caller who may have died in the middle of a start. An engine that removes what it
    /// is just starting may take its files away and leave it running.
    pub(super) async fn remove_left(&self, container: &str) -> Result<(), Error> {
        let settled_at = Instant::now() + START_MAX;
        while Instant::now() < settled_at {
            match self.state(container).await {
                Ok(state) if state.status == Some(ContainerStateStatusEnum::CREATED) => {
                    tokio::time::sleep(LOOK).await;
                }
                _ => break,
            }
        }
        self.remove(container).await
    }

    /// All with this label, whether they run or not.
    pub(super) async fn list(&self, label: String) -> Result<Vec<Listed>, Error> {
        let filters = HashMap::from([("label".to_owned(), vec![label])]);
        let options = ListContainersOptions { all: true, filters: Some(filters), ..Default::default() };
        let listed = self.docker.list_containers(Some(options)).await.map_err(|error| self.told(error))?;
        let listed = listed.into_iter();
        Ok(listed.filter_map(|one| Some(Listed { id: one.id?, labels: one.labels.unwrap_or_default() })).collect())
    }

    fn told(&self, error: Bollard) -> Error {
        match error {
            Bollard::DockerResponseServerError { status_code, message } => {
                Error::Refused { status: status_code, message }
            }
            Bollard::DockerStreamError { error } => Error::Refused { status: 500, message: error },
            error => self.away(cause_of(&error)),
        }
    }

    fn away(&self, cause: String) -> Error {
        Error::Away { socket: self.socket.clone(), cause }
    }
}

/// The whole chain: the outermost of them says no more than "client error".
fn cause_of(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Fault;

    #[test]
    fn only_what_will_never_be_accepted_is_permanent() {
        let judged = |status, message: &str| {
            let failure = Failure::from(Error::Refused { status, message: message.to_owned() });
            (failure.class, failure.fault)
        };
        assert_eq!(judged(400, "invalid"), (Class::Permanent, Fault::Work));
        assert_eq!(judged(404, "network lan not found"), (Class::Permanent, Fault::Work));
        assert_eq!(judged(404, "No such container: 1f"), (Class::Task, Fault::Work));
        assert_eq!(judged(409, "the name is taken"), (Class::Task, Fault::Worker));
        assert_eq!(judged(500, "broken"), (Class::Task, Fault::Worker));
        let away = Failure::from(Error::Away { socket: "/s".into(), cause: "gone".to_owned() });
        assert_eq!((away.class, away.fault), (Class::Task, Fault::Worker));
    }
}
