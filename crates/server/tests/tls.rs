//! HTTPS, and a certificate that is replaced while the server runs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{PATIENCE, Yard, options};
use runyard_server::{Error, ServeOptions, Server};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

/// Writes a new certificate for this machine, the key last.
fn certify(dir: &Path) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(dir.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(dir.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

/// The answer to `GET /healthz`, if the server shows this certificate.
async fn healthz(addr: &str, trusted: &CertificateDer<'static>) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(addr).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

fn with_tls(dir: &TempDir) -> ServeOptions {
    let tls = json!({"cert": dir.path().join("cert.pem"), "key": dir.path().join("key.pem")});
    let flags = json!({"server": {"tls": tls, "limits": {"headMs": 1000}}}).as_object().unwrap().clone();
    ServeOptions { flags, ..options(dir) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_certificate_is_served_and_a_broken_one_is_not() {
    let dir = TempDir::new().unwrap();
    let first = certify(dir.path());
    let yard = Yard::start(with_tls(&dir), dir).await;
    let addr = yard.addr.replace("127.0.0.1", "localhost");
    assert!(yard.server.as_ref().unwrap().url.starts_with("https://"));
    assert!(healthz(&addr, &first).await.unwrap().starts_with("HTTP/1.1 200"));
    let plain = yard.request("GET", "/healthz");
    let plain = tokio::time::timeout(PATIENCE, tokio::spawn(async move { plain.send().await })).await.unwrap();
    assert!(plain.is_err(), "plain HTTP gets no answer");

    std::fs::write(yard.dir.path().join("cert.pem"), "nonsense").unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(healthz(&addr, &first).await.is_ok(), "the old one stays");
    let second = certify(yard.dir.path());
    let replaced = async {
        while healthz(&addr, &second).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, replaced).await.expect("the new one is served");
    assert!(healthz(&addr, &first).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_does_not_come_to_its_end_is_not_waited_for() {
    let dir = TempDir::new().unwrap();
    let trusted = certify(dir.path());
    let yard = Yard::start(with_tls(&dir), dir).await;
    // Nothing; the beginning of a record; a whole record that begins a longer message.
    for begun in [&b""[..], b"\x16\x03\x01", b"\x16\x03\x01\x00\x04\x01\x00\x02\x00"] {
        let mut stream = TcpStream::connect(&yard.addr).await.unwrap();
        stream.write_all(begun).await.unwrap();
        let mut words = Vec::new();
        let read = stream.read_to_end(&mut words);
        let _ = tokio::time::timeout(PATIENCE, read).await.expect("the server hangs up");
    }
    let addr = yard.addr.replace("127.0.0.1", "localhost");
    assert!(healthz(&addr, &trusted).await.is_ok(), "others are served");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_waits_for_its_database_speaks_https_too_and_leaves_its_port_when_it_is_told_to() {
    let dir = TempDir::new().unwrap();
    let trusted = certify(dir.path());
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (addr, stop) = (free(), CancellationToken::new());
    let mut options = ServeOptions { listen: Some(addr.to_string()), ..with_tls(&dir) };
    options.flags.insert("store".into(), json!({"url": format!("postgres://runyard:x@{}/runyard", free())}));
    let starting = tokio::spawn(Server::start_unless(options, stop.clone()));
    let door = format!("localhost:{}", addr.port());
    let answer = async {
        loop {
            match healthz(&door, &trusted).await {
                Ok(answer) => return answer,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    let answer = tokio::time::timeout(PATIENCE, answer).await.expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    stop.cancel();
    let started = tokio::time::timeout(PATIENCE, starting).await.unwrap().unwrap();
    assert!(matches!(started, Err(Error::Stopped)));
    let is_free = async {
        while TcpListener::bind(addr).is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, is_free).await.expect("nobody listens there any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_its_certificate_does_not_start() {
    let dir = TempDir::new().unwrap();
    assert!(matches!(Server::start(with_tls(&dir)).await, Err(Error::Tls(_))));
    certify(dir.path());
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().signing_key.serialize_pem();
    std::fs::write(dir.path().join("key.pem"), key).unwrap();
    assert!(matches!(Server::start(with_tls(&dir)).await, Err(Error::Tls(_))), "a key of another certificate");
}
