//! `docker`: one command in a container of its own, and no container left at the end.
//!
//! ```text
//!   create (the name is taken) ─► attach ─► start ─► watch: output, report, stop, kill ─► inspect ─► remove ─► outcome
//! ```
//!
//! It runs where a process runs: in a supervisor, which outlives the worker, writes the log and the exit record and is
//! adopted; or, without one, in the worker. The engine is asked for everything, and told everything that keeps the
//! container in its place ([`plan`]). The container carries labels that say whose it is, so that what a crash leaves is
//! found, created or started ([`reclaim`]).

mod container;
mod engine;
pub(crate) mod live;
mod outcome;
mod owner;
mod plan;
pub(crate) mod reclaim;
mod rules;
mod user;
mod watch;

pub use rules::{DockerRules, LIMITS_DEFAULT, SOCKET_DEFAULT};

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::job::Job;
use crate::outcome::{Class, Failure, Outcome};
use crate::payload::{DockerPayload, Stdin, User};
use crate::places::Places;
use crate::process::Ended;
use crate::process::stdin::Feed;
use crate::process::supervise::lease::LeaseFile;
use crate::secret::{Known, Redactor, Secrets};
use crate::wires::Wires;
use container::Container;
use engine::{Engine, EngineFacts};
use owner::Owner;
use plan::Plan;
use watch::{Ending, Watch};

pub struct Containers {
    places: Arc<Places>,
    /// Without any, payloads are run as they are.
    secrets: Option<Arc<dyn Secrets>>,
}

/// Does an engine answer there? It blocks, for a few seconds at most.
pub fn answers(socket: &Path) -> bool {
    // Mostly there is none, and no thread is needed to see that.
    socket.exists() && apart(async { Engine::connect(socket).await.is_ok() }).unwrap_or(false)
}

/// Runs it on a thread of its own and waits: whoever calls may be in a runtime or not.
fn apart<T: Send>(work: impl Future<Output = T> + Send) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("runyard-engine".to_owned());
        let running = thread.spawn_scoped(scope, || runtime.block_on(work))?;
        running.join().map_err(|_| io::Error::other("the thread that asks the engine panicked"))
    })
}

/// What this worker does not allow can never run, so it needs neither a directory nor a supervisor.
pub(crate) fn check(job: &Job) -> Result<(), Failure> {
    let payload = DockerPayload::parse(job.payload.as_deref())?;
    job.docker.clone().unwrap_or_default().check(&payload, &job.limits.or(LIMITS_DEFAULT))
}

impl Containers {
    pub fn new(places: Arc<Places>, secrets: Option<Arc<dyn Secrets>>) -> Containers {
        Containers { places, secrets }
    }

    /// Runs the job under a lease that is already there and is left there.
    pub(crate) async fn run_held(&self, job: &Job, lease: &LeaseFile, wires: Wires<'_>) -> Ended {
        let ended = self.run_to_end(job, lease, wires).await;
        ended.unwrap_or_else(|failure| Ended::unstarted(failure.into()))
    }

    async fn run_to_end(&self, job: &Job, lease: &LeaseFile, wires: Wires<'_>) -> Result<Ended, Failure> {
        let mut payload = DockerPayload::parse(job.payload.as_deref())?;
        let redactor = self.reveal(job, &mut payload)?;
        // As long as there is no container, a stop is simple: everything is dropped.
        let ready = tokio::select! {
            biased;
            () = wires.stop.cancelled() => return Ok(Ended::unstarted(Outcome::Stopped)),
            ready = self.make_ready(job, &payload) => ready?,
        };
        let Ready { engine, facts, owner, user } = ready;
        let plan = Plan { places: &self.places, job, payload: &payload, owner: &owner, user, engine: facts };
        let Some(container) = Container::create(&engine, &plan, wires.stop).await? else {
            return Ok(Ended::unstarted(Outcome::Stopped));
        };
        let ended = self.run_in(&container, &plan, lease, wires, &redactor).await;
        // Before anybody hears of the end: afterwards there is none.
        container.remove().await;
        let ended = ended?;
        Ok(Ended { outcome: redactor.outcome(ended.outcome), ..ended })
    }

    /// Everything that comes before the container.
    async fn make_ready(&self, job: &Job, payload: &DockerPayload) -> Result<Ready, Failure> {
        let socket = job.docker.clone().unwrap_or_default().socket;
        let engine = Engine::connect(&socket).await?;
        let facts = engine.facts().await?;
        let user = user::choose(payload.user, &facts)?;
        provide(&engine, payload).await?;
        let work_dir = self.places.work_dir(job.task);
        let unready =
            |error: io::Error| Failure::worker(format!("{} cannot be made ready: {error}", work_dir.display()));
        user::hand_over(&work_dir, user, &facts).map_err(unready)?;
        let owner =
            Owner::of(&self.places).map_err(|error| Failure::worker(format!("no owner of containers: {error}")))?;
        Ok(Ready { engine, facts, owner, user })
    }

    async fn run_in(
        &self,
        container: &Container,
        plan: &Plan<'_>,
        lease: &LeaseFile,
        wires: Wires<'_>,
        redactor: &Redactor,
    ) -> Result<Ended, Failure> {
        let Wires { input, stop, signs } = wires;
        let attached = container.attach(plan.takes_stdin()).await?;
        if stop.is_cancelled() {
            return Ok(Ended::unstarted(Outcome::Stopped));
        }
        container.start().await?;
        lease.container_started(&container.id, &container.warnings);
        let mut watch = Watch::new(&self.places, plan.job, container, attached.output, signs, redactor);
        if let Some(field) = plan.payload.unsaid {
            watch.log.note(&format!("payload.{field} is not handed over, because stdin is given beside it"));
        }
        container.warnings.iter().for_each(|warning| watch.log.note(warning));
        let feed = Feed::new(plan.takes_stdin().then_some(attached.input), plan.payload.stdin.clone(), input);
        let ending = watch.run(feed, plan.job.grace, stop).await;
        let words = watch.finish().await;
        let ending = ending?;
        let state = match container.state().await {
            Err(error) if ending == Ending::OfItself && !error.is_not_found() => return Err(error.into()),
            state => state.unwrap_or_default(),
        };
        let (status, out_of_memory) = (outcome::status_of(&state), outcome::was_out_of_memory(&state));
        let outcome = match (ending, status) {
            (Ending::Asked, _) => Outcome::Stopped,
            (Ending::OfItself, Some(status)) => outcome::of_end(status, out_of_memory, &plan.limits(), words),
            (Ending::OfItself, None) => Failure::work(Class::Task, "its container was removed by somebody else").into(),
        };
        Ok(Ended { outcome, status, not_enforced: container.warnings.clone(), out_of_memory })
    }

    /// Puts the values of secrets where the container gets them, which is nowhere but its input: an engine writes the
    /// environment of a container to its own disk.
    fn reveal(&self, job: &Job, payload: &mut DockerPayload) -> Result<Redactor, Failure> {
        let Some(secrets) = &self.secrets else { return Ok(Redactor::default()) };
        let mut known = Known::new(&job.agent, &**secrets);
        if let Stdin::Text(text) | Stdin::Open(text) = &mut payload.stdin {
            let revealed = known.text(text).map_err(|error| Failure::work(Class::Permanent, error.to_string()))?;
            *text = revealed;
        }
        Ok(known.redactor())
    }
}

/// What a container needs that is not in its payload.
struct Ready {
    engine: Engine,
    facts: EngineFacts,
    owner: Owner,
    user: User,
}

/// Sees to it that the image is there.
async fn provide(engine: &Engine, payload: &DockerPayload) -> Result<(), Failure> {
    let image = &payload.image;
    if engine.has_image(image).await? {
        return Ok(());
    }
    if !payload.pull {
        let message = format!("image {image} is not there; pull it, or allow pull: true");
        return Err(Failure::work(Class::Permanent, message));
    }
    tracing::info!(image, "is fetched");
    engine.pull(image).await.map_err(|error| match error {
        engine::Error::Refused { status: 400..=499, message } => {
            Failure::work(Class::Permanent, format!("image {image} cannot be pulled: {message}"))
        }
        // Of a registry that is away for the moment; it says nothing of this worker.
        engine::Error::Refused { message, .. } => {
            Failure::work(Class::Task, format!("image {image} cannot be pulled: {message}"))
        }
        away => away.into(),
    })
}
