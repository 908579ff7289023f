//! How nodes call each other. That a caller is a node is proven with the secret that the database keeps for its nodes.

use std::io;
use std::path::Path;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::Response;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use reqwest::{Certificate, Client, ClientBuilder, Url};
use subtle::ConstantTimeEq;

use super::forwarded::Forwarded;

pub const NODE: HeaderName = HeaderName::from_static("runyard-node");

/// A node that does not take a connection in this time is not there.
const CONNECT_MAX: Duration = Duration::from_secs(1);
/// A connection on which nothing comes is asked this often whether its other end is there; it is given up after three times that.
const KEEPALIVE: Duration = Duration::from_secs(1);
/// Meant for one connection, not for who is at its other end.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::EXPECT,
];

pub struct Peers {
    http: Client,
    secret: HeaderValue,
    secret_bytes: [u8; 32],
    certificates: Vec<Certificate>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{} cannot be read", path.display())]
    Certificates {
        path: std::path::PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("connections to other nodes cannot be made")]
    Http(#[from] reqwest::Error),
}

impl Peers {
    /// `ca_file`: certificates to trust beside the system's.
    pub fn new(secret: [u8; 32], ca_file: Option<&Path>) -> Result<Peers, Error> {
        // Another part of the process may have installed it already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let certificates = ca_file.map_or(Ok(Vec::new()), certificates)?;
        let http = to_nodes(&certificates).build()?;
        Ok(Peers { http, secret: header_of(&secret), secret_bytes: secret, certificates })
    }

    /// Sends a client's request on. The answer's body comes as it comes.
    pub async fn send(
        &self,
        url: &str,
        parts: &Parts,
        body: impl Into<reqwest::Body>,
        forwarded: &Forwarded,
    ) -> reqwest::Result<reqwest::Response> {
        let rest = parts.uri.path_and_query().map_or("/", |rest| rest.as_str());
        let mut headers = passed_on(&parts.headers);
        forwarded.write(&mut headers);
        headers.insert(NODE, self.secret.clone());
        let request = self.http.request(parts.method.clone(), joined(url, rest)).headers(headers).body(body);
        request.send().await
    }

    /// A question of this node's own.
    pub fn get(&self, url: &str, path: &str) -> reqwest::RequestBuilder {
        self.http.get(joined(url, path)).header(NODE, self.secret.clone())
    }

    /// Something to tell of this node's own.
    pub fn post(&self, url: &str, path: &str) -> reqwest::RequestBuilder {
        self.http.post(joined(url, path)).header(NODE, self.secret.clone())
    }

    /// Whether this is what a node of this database would say.
    pub fn knows(&self, presented: &HeaderValue) -> bool {
        bool::from(self.secret.as_bytes().ct_eq(presented.as_bytes()))
    }

    /// For a client of its own that speaks to nodes.
    pub fn client(&self) -> ClientBuilder {
        to_nodes(&self.certificates)
    }

    pub fn secret_bytes(&self) -> &[u8; 32] {
        &self.secret_bytes
    }

    pub fn secret(&self) -> &HeaderValue {
        &self.secret
    }
}

/// A node that is cut off says nothing, not even that the connection is over. One that is merely slow is still waited for.
fn to_nodes(certificates: &[Certificate]) -> ClientBuilder {
    let builder = Client::builder()
        .connect_timeout(CONNECT_MAX)
        .tcp_keepalive(KEEPALIVE)
        .tcp_keepalive_interval(KEEPALIVE)
        .tcp_keepalive_retries(2)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .tcp_nodelay(true);
    #[cfg(target_os = "linux")]
    let builder = builder.tcp_user_timeout(3 * KEEPALIVE);
    certificates.iter().cloned().fold(builder, ClientBuilder::add_root_certificate)
}

/// Another node's answer as this node's. One that does not end by itself is broken off by `until`: nobody must take what
/// came so far for the whole.
pub fn passed_back(answer: reqwest::Response, until: impl Future<Output = ()> + Send + 'static) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = answer.status();
    *response.headers_mut() = without_hops(answer.headers());
    // What says how long it is ends by itself, and must not end early.
    let body = match answer.headers().get(header::CONTENT_LENGTH).cloned() {
        Some(length) => {
            response.headers_mut().insert(header::CONTENT_LENGTH, length);
            Body::from_stream(answer.bytes_stream())
        }
        None => Body::from_stream(broken_off(answer.bytes_stream().map_err(io::Error::other), until)),
    };
    *response.body_mut() = body;
    response
}

fn broken_off(
    bytes: impl Stream<Item = io::Result<Bytes>> + Unpin,
    until: impl Future<Output = ()>,
) -> impl Stream<Item = io::Result<Bytes>> {
    stream::unfold(Some((bytes, Box::pin(until))), async |state| {
        let (mut bytes, mut until) = state?;
        tokio::select! {
            piece = bytes.next() => piece.map(|piece| (piece, Some((bytes, until)))),
            () = &mut until => Some((Err(io::Error::other("another node holds the scheduler lease")), None)),
        }
    })
}

fn without_hops(headers: &HeaderMap) -> HeaderMap {
    let mut passed = headers.clone();
    HOP_BY_HOP.iter().for_each(|name| drop(passed.remove(name)));
    passed
}

/// Without what is for one hop, and without what only nodes may say.
fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let mut passed = without_hops(headers);
    let own: Vec<HeaderName> = passed.keys().filter(|name| name.as_str().starts_with("runyard-")).cloned().collect();
    own.iter().for_each(|name| drop(passed.remove(name)));
    passed
}

fn joined(url: &str, rest: &str) -> String {
    format!("{}{rest}", url.trim_end_matches('/'))
}

fn header_of(secret: &[u8; 32]) -> HeaderValue {
    let text: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut value = HeaderValue::from_str(&text).expect("hexadecimal digits are a header's");
    value.set_sensitive(true);
    value
}

fn certificates(path: &Path) -> Result<Vec<Certificate>, Error> {
    let unreadable = |source| Error::Certificates { path: path.to_owned(), source };
    let pem = std::fs::read(path).map_err(unreadable)?;
    Ok(Certificate::from_pem_bundle(&pem)?)
}

/// `http://10.0.0.7:7340`, as a URL.
pub fn parsed(url: &str) -> Option<Url> {
    Url::parse(url).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_secret_proves_a_node() {
        let peers = Peers::new([7; 32], None).expect("a client");
        assert!(peers.knows(&header_of(&[7; 32])));
        assert!(!peers.knows(&header_of(&[8; 32])));
        assert!(!peers.knows(&HeaderValue::from_static("")));
        assert!(!peers.knows(&HeaderValue::from_static("0707")));
    }

    #[tokio::test]
    async fn what_ends_by_itself_ends_and_what_is_cut_breaks_off() {
        let piece = || Ok(Bytes::from_static(b"piece"));
        let whole = broken_off(stream::iter([piece()]), std::future::pending());
        assert!(whole.map(|piece| piece.is_ok()).collect::<Vec<_>>().await == [true]);
        let endless = stream::iter([piece()]).chain(stream::pending());
        let mut cut = std::pin::pin!(broken_off(endless, std::future::ready(())));
        while cut.next().await.is_some_and(|piece| piece.is_ok()) {}
        assert!(cut.next().await.is_none(), "nothing follows a break");
    }

    #[test]
    fn what_only_nodes_say_is_not_passed_on_for_a_client() {
        let mut headers = HeaderMap::new();
        for name in ["runyard-node", "runyard-asked", "runyard-for", "connection", "host", "authorization", "accept"] {
            headers.insert(name, HeaderValue::from_static("x"));
        }
        let passed = passed_on(&headers);
        let names: std::collections::BTreeSet<&str> = passed.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["accept", "authorization"].into());
    }
}
