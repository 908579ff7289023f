//! What a server stands on: a store of its own in the data directory, or a database that it shares with other nodes.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use runyard_store::nodes::{Bid, NodeCard, NodeId, Nodes, SealedWith};
use runyard_store::postgres::{self, PgNodes, PgStore};
use runyard_store::sqlite::Lock;
use runyard_store::store::{self, Reader, Store, User};
use runyard_worker::machine;
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::config::{Config, Durability};
use crate::ground::{open_store, stored_keys};
use crate::lobby::{Lobby, Waits, text_of};
use crate::nodes::{Cluster, Latest, Member, MemberOptions, Peers, Role, Tenure};
use crate::scheduler::{OpenStore, once};
use crate::secrets::{self, SealingKey};
use crate::server::{Error, STORE_FILE, url_of};
use crate::webhook;

const NODE_FILE: &str = "node.id";

pub(crate) struct Footing {
    pub store: OpenStore,
    pub reader: Arc<dyn Reader>,
    pub tenure: Tenure,
    pub cluster: Option<Arc<Cluster>>,
    /// Nobody else uses the data directory meanwhile. A store of one's own has a lock of its own.
    pub lock: Option<Lock>,
}

/// Where a node is reached.
pub(crate) struct Place {
    pub addr: SocketAddr,
    pub scheme: &'static str,
    /// It asks for no keys, so none has to be made.
    pub no_auth: bool,
}

impl Footing {
    pub(crate) async fn find(
        data_dir: &Path,
        config: &Config,
        place: Place,
        key: &Arc<SealingKey>,
        lobby: &mut Lobby,
    ) -> Result<Footing, Error> {
        match database(config)? {
            None => Footing::own(data_dir, config.store.durability).await,
            Some(_) => Footing::shared(data_dir, config, place, key, lobby).await,
        }
    }

    async fn own(data_dir: &Path, durability: Durability) -> Result<Footing, Error> {
        let store = open_store(data_dir, durability, User::Server).await?;
        let reader = store.reader();
        Ok(Footing { store: once(store), reader, tenure: Tenure::Sole, cluster: None, lock: None })
    }

    async fn shared(
        data_dir: &Path,
        config: &Config,
        place: Place,
        key: &Arc<SealingKey>,
        lobby: &mut Lobby,
    ) -> Result<Footing, Error> {
        let broken = |source| Error::Store { path: data_dir.to_owned(), source };
        let lock = Lock::take(&data_dir.join(STORE_FILE), User::Server).map_err(broken)?;
        let id = node_id(data_dir)?;
        let card = card(id, config, &place);
        let joined = loop {
            let (options, card, ttl_ms) = (options_again(config, id)?, card.clone(), config.nodes.ttl_ms);
            let (stop, key) = (lobby.stop_token().clone(), key.clone());
            match lobby.run(move || join(options, card, ttl_ms, &key, &stop)).await {
                Ok(joined) => break joined,
                Err(error) => lobby.wait_out(error).await?,
            }
        };
        let Joined { store, nodes, nodes_secret, member } = joined;
        lobby.joined(member.clone());
        let peers = Peers::new(nodes_secret, config.nodes.ca_file.as_deref())?;
        let reader = store.reader();
        let depot = Arc::new(nodes.depot());
        let progress = Latest::default();
        let holder_serves = AtomicBool::new(false);
        let cluster = Arc::new(Cluster { member: member.clone(), peers, nodes, depot, holder_serves, progress });
        settle(&cluster, &reader, key, place.no_auth, lobby).await?;
        member.may_hold();
        lobby.go_on();
        let (mut first, reopened) = (Some(store), options_again(config, id)?);
        let store = Box::new(move || -> store::Result<Box<dyn Store + Send>> {
            match first.take() {
                Some(store) => Ok(store),
                None => Ok(Box::new(PgStore::open(reopened.clone())?)),
            }
        });
        Ok(Footing { store, reader, tenure: Tenure::Lease(member), cluster: Some(cluster), lock: Some(lock) })
    }
}

struct Joined {
    store: Box<dyn Store + Send>,
    nodes: Arc<PgNodes>,
    nodes_secret: [u8; 32],
    member: Arc<Member>,
}

fn join(
    options: postgres::Options,
    card: NodeCard,
    ttl_ms: u64,
    key: &SealingKey,
    stop: &CancellationToken,
) -> Result<Joined, Error> {
    postgres::migrate(&options).map_err(Error::Database)?;
    let store = Box::new(PgStore::open(options.clone()).map_err(Error::Database)?);
    let nodes = Arc::new(PgNodes::open(options.clone()).map_err(Error::Database)?);
    let nodes_secret = nodes.secret().map_err(Error::Database)?;
    let bid = first_bid(&nodes, &*store.reader(), key)?;
    // A beat that takes longer than this is worth nothing: the next one knows more.
    let hasty = postgres::Options {
        statement_timeout_ms: (ttl_ms / 2).max(500),
        connect_timeout: Duration::from_millis((ttl_ms / 2).max(500)),
        retry_for: Duration::from_millis(100),
        ..options
    };
    let beats = Arc::new(PgNodes::open(hasty).map_err(Error::Database)?);
    if stop.is_cancelled() {
        // Nobody would give the lease back.
        return Err(Error::Stopped);
    }
    let member = Member::join(MemberOptions { nodes: beats, card, ttl_ms, bid }).map_err(Error::Database)?;
    Ok(Joined { store, nodes, nodes_secret, member })
}

/// A node without the key that secrets are sealed with must not become the holder: it would make another one, and whoever has
/// the right one could not come back. Only the first node of all makes it.
fn first_bid(nodes: &PgNodes, reader: &dyn Reader, key: &SealingKey) -> Result<Bid, Error> {
    let sealed_with = nodes.sealed_with().map_err(Error::Database)?;
    let is_new = !has_key(key)?;
    let may_make = match &sealed_with {
        SealedWith::GivenUp => true,
        SealedWith::Key(_) => false,
        // A database of a version that did not say.
        SealedWith::Unsaid => !has_sealed(reader).map_err(Error::Database)?,
    };
    if is_new && !may_make {
        return Ok(Bid::Follow);
    }
    key.make_missing().map_err(Error::SealingKey)?;
    let own = key.mark().map_err(Error::SealingKey)?.expect("it was made");
    match nodes.seal_with(&own).map_err(Error::Database)? {
        SealedWith::Key(mark) if mark == own => Ok(Bid::Hold),
        _ if is_new => key.unmake().map_err(Error::SealingKey).map(|()| Bid::Follow),
        _ => Err(Error::SealingKey(key.is_another())),
    }
}

fn has_key(key: &SealingKey) -> Result<bool, Error> {
    Ok(key.mark().map_err(Error::SealingKey)?.is_some())
}

fn has_sealed(reader: &dyn Reader) -> store::Result<bool> {
    Ok(reader.setting(secrets::SETTING)?.is_some() || reader.setting(webhook::SETTING)?.is_some())
}

/// The address of the database, where there is one.
pub fn database(config: &Config) -> Result<Option<String>, Error> {
    match (&config.store.url, &config.store.url_file) {
        (Some(url), _) => Ok(Some(url.clone())),
        (None, None) => Ok(None),
        (None, Some(path)) => {
            let read = std::fs::read_to_string(path);
            let url = read.map_err(|source| Error::UrlFile { path: path.clone(), source })?;
            Ok(Some(url.trim().to_owned()))
        }
    }
}

pub fn options(config: &Config, url: String, node: Option<NodeId>) -> postgres::Options {
    let durability = match config.store.durability {
        Durability::Full => postgres::Durability::Full,
        Durability::Normal => postgres::Durability::Normal,
    };
    let statement_timeout_ms = config.store.statement_timeout_ms;
    postgres::Options { durability, statement_timeout_ms, node, ..postgres::Options::new(url) }
}

/// For each try of a start, and for the terms after the first: the file with the address may hold another one by then.
fn options_again(config: &Config, id: NodeId) -> Result<postgres::Options, Error> {
    Ok(options(config, database(config)?.unwrap_or_default(), Some(id)))
}

fn card(id: NodeId, config: &Config, place: &Place) -> NodeCard {
    let name = config.nodes.name.clone().or_else(machine::hostname).unwrap_or_else(|| "node".to_owned());
    let url = config.nodes.advertise.clone().unwrap_or_else(|| url_of(place.addr, place.scheme));
    if config.nodes.advertise.is_none() && place.addr.ip().is_unspecified() {
        tracing::warn!(target: "runyard::nodes", url,
            "other machines cannot reach this node there; say where they can with --advertise");
    }
    NodeCard { id, name, url: url.trim_end_matches('/').to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
}

/// The same over restarts: a node that comes back within its lease has it still.
fn node_id(data_dir: &Path) -> Result<NodeId, Error> {
    let path = data_dir.join(NODE_FILE);
    let known = std::fs::read_to_string(&path).ok().and_then(|text| u128::from_str_radix(text.trim(), 16).ok());
    if let Some(id) = known {
        return Ok(NodeId(id));
    }
    let id = clock::new_id();
    std::fs::write(&path, format!("{id:032x}\n")).map_err(|source| Error::Data { path, source })?;
    Ok(NodeId(id))
}

/// A node that follows begins when the holder has made what all nodes share: the key that secrets are sealed with, and the
/// first admin key. A node that holds the lease makes them itself.
async fn settle(
    cluster: &Cluster,
    reader: &Arc<dyn Reader>,
    key: &SealingKey,
    no_auth: bool,
    lobby: &mut Lobby,
) -> Result<(), Error> {
    let mut roles = cluster.member.roles();
    loop {
        let role = roles.borrow_and_update().clone();
        let why = match role {
            Role::Holder => return Ok(()),
            Role::Unknown if cluster.member.is_reached() && !has_key(key)? => {
                lobby.wait(Waits::Key, NO_KEY).await?;
                continue;
            }
            Role::Unknown => "no node holds the scheduler lease".to_owned(),
            Role::Follower { url, .. } => {
                let asked = tokio::select! {
                    asked = shared_by(cluster, &url, reader, key) => asked,
                    // It may stand still, and another one has the lease; or nobody waits for it any more.
                    _ = roles.changed() => continue,
                    () = lobby.stop_token().cancelled() => return Err(Error::Stopped),
                };
                match asked {
                    Ok(Shared::All) => return Ok(()),
                    Ok(Shared::NoAdmin) if no_auth => return Ok(()),
                    Ok(Shared::NoAdmin) => format!("{url} has no admin key yet"),
                    Ok(Shared::No(reason)) => reason,
                    Err(error) => error.passing().map(|cause| text_of(cause)).ok_or(error)?,
                }
            }
        };
        let waits = if cluster.member.is_reached() { Waits::Holder } else { Waits::Database };
        lobby.wait(waits, &why).await?;
    }
}

const NO_KEY: &str = "no node holds the scheduler lease, and this one has no secrets.key, so it must not. Start a node that has it, \
                      or put a copy into the data directory; if it is lost for good, `runyard migrate --give-up-secrets` \
                      lets a new one be made";

/// What the nodes share by now.
enum Shared {
    All,
    NoAdmin,
    No(String),
}

async fn shared_by(cluster: &Cluster, url: &str, reader: &Arc<dyn Reader>, key: &SealingKey) -> Result<Shared, Error> {
    let asked = cluster.peers.get(url, "/v1/nodes/sealing-key").timeout(Duration::from_secs(5)).send().await;
    let shared = match asked {
        Ok(answer) if answer.status().is_success() => answer.text().await,
        Ok(answer) => return Ok(Shared::No(format!("{url} answered {}", answer.status()))),
        Err(error) => return Ok(Shared::No(format!("{url} cannot be reached: {}", text_of(&error)))),
    };
    let Ok(shared) = shared else { return Ok(Shared::No(format!("{url} broke off"))) };
    key.adopt(cluster.peers.secret_bytes(), shared.trim()).map_err(Error::SealingKey)?;
    let reader = reader.clone();
    let ring = tokio::task::spawn_blocking(move || stored_keys(&*reader)).await.map_err(|_| Error::Thread)?;
    let has_admin = ring.map_err(Error::Database)?.map_err(Error::StoredKeys)?.has_admin();
    Ok(if has_admin { Shared::All } else { Shared::NoAdmin })
}
