//! Which addresses may be connected to on behalf of somebody else: webhooks always, `http` tasks where configured.
//!
//! A URL that came with a request is dialled from inside the server's network, so it must not become a way into it.
//! The rule: global unicast addresses only. What else is allowed is listed (`[outbound] allow`), and neither link-local
//! addresses nor those that hand out a cloud's credentials can be: no receiver lives there.
//!
//! ```text
//! URL ─► parsed once ─► literal address? ─► judged
//!              │
//!              └─ name ─► resolved once ─► every address judged ─► exactly these are dialled
//! ```
//!
//! Between the judgement and the connection nothing may change the target. So the name is not resolved again, no
//! redirect is followed, no proxy is asked (the environment names none either), and no connection is kept: each request
//! is judged by what its own name resolves to now. `Host` and the name in TLS stay the URL's.

mod address;
mod allow;
mod resolve;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Method, RequestBuilder, Url};
use url::Host;

pub use address::Special;
pub use allow::{Allow, NotAllow};

use resolve::GuardedResolver;

/// A connection that is not answered by then will not be.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Shared by everyone who connects; what it allows can be replaced while they do.
#[derive(Default)]
pub struct Guard {
    allow: RwLock<Arc<[Allow]>>,
    covers_tasks: AtomicBool,
}

/// Why a URL or an address is not connected to.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Blocked {
    #[error("only http and https URLs are called, not {scheme}")]
    Scheme { scheme: String },
    #[error("a URL with a user name or password in it is not called")]
    UserInfo,
    #[error("the URL names no host")]
    NoHost,
    #[error("{host} is not called: {} is {what}, not a public address{}", subject(.host, .ip), advice(.what))]
    Address { host: String, ip: IpAddr, what: Special },
}

/// Whoever wrote a name is not told which address it has here: names of the own network would be read out so.
fn subject(host: &str, ip: &IpAddr) -> String {
    if host.parse::<IpAddr>().is_ok() { ip.to_string() } else { "it".to_owned() }
}

/// What would help, where anything does.
fn advice(what: &Special) -> &'static str {
    if what.is_never() { "" } else { " (outbound.allow can list it)" }
}

impl Guard {
    pub fn new(allow: Vec<Allow>) -> Guard {
        let guard = Guard::default();
        guard.set_allow(allow);
        guard
    }

    pub fn set_allow(&self, allow: Vec<Allow>) {
        *self.allow.write().expect("no panic happens under this lock") = allow.into();
    }

    /// Do `http` tasks go through it too?
    pub fn covers_tasks(&self) -> bool {
        self.covers_tasks.load(Ordering::Relaxed)
    }

    pub fn cover_tasks(&self, covers: bool) {
        self.covers_tasks.store(covers, Ordering::Relaxed);
    }

    /// All that can be said of a URL without resolving its name. Its host must be parsed as a client parses it
    /// (`0x7f.1` is an address), so it is taken from a parsed URL only.
    pub fn check_url(&self, url: &Url) -> Result<(), Blocked> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Blocked::Scheme { scheme: url.scheme().to_owned() });
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Blocked::UserInfo);
        }
        match url.host().ok_or(Blocked::NoHost)? {
            Host::Ipv4(ip) => self.check_address(&ip.to_string(), ip.into()),
            Host::Ipv6(ip) => self.check_address(&ip.to_string(), ip.into()),
            Host::Domain("") => Err(Blocked::NoHost),
            Host::Domain(_) => Ok(()),
        }
    }

    /// May `host`, which is or resolved to `ip`, be connected to there? Addresses that `ip` carries inside it (mapped,
    /// translated, tunnelled) are judged with it: whoever unpacks it connects to those.
    pub fn check_address(&self, host: &str, ip: IpAddr) -> Result<(), Blocked> {
        let allow = self.allow.read().expect("no panic happens under this lock").clone();
        for ip in std::iter::once(ip).chain(address::embedded(ip).map(IpAddr::V4)) {
            let Some(what) = address::special(ip) else { continue };
            let is_allowed = !what.is_never() && allow.iter().any(|allow| allow.covers(host, ip));
            if !is_allowed {
                return Err(Blocked::Address { host: host.to_owned(), ip, what });
            }
        }
        Ok(())
    }

    pub fn client(self: &Arc<Self>) -> Result<GuardedClient, reqwest::Error> {
        let resolver = Arc::new(GuardedResolver { guard: self.clone() });
        let client = crate::http::with_certificates(|| closed_builder().dns_resolver(resolver.clone()))?;
        Ok(GuardedClient { guard: self.clone(), client })
    }
}

/// A client that connects to nothing its guard refuses. Literal addresses never reach a resolver, so the client itself
/// stays in here: there is no request whose URL was not looked at.
pub struct GuardedClient {
    guard: Arc<Guard>,
    client: Client,
}

impl GuardedClient {
    pub fn request(&self, method: Method, url: Url) -> Result<RequestBuilder, Blocked> {
        self.guard.check_url(&url)?;
        Ok(self.client.request(method, url))
    }
}

/// Nothing but the request's own URL decides where it goes.
fn closed_builder() -> ClientBuilder {
    let builder = Client::builder().no_proxy().redirect(Policy::none()).referer(false);
    builder.pool_max_idle_per_host(0).connect_timeout(CONNECT_TIMEOUT)
}

/// The refusal behind a client's error, if that is what it was.
pub fn blocked_by(error: &reqwest::Error) -> Option<&Blocked> {
    let first = std::error::Error::source(error);
    std::iter::successors(first, |cause| cause.source()).find_map(|cause| cause.downcast_ref::<Blocked>())
}

#[cfg(test)]
mod tests;
