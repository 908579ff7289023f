//! Accepts connections and serves HTTP/1.1 on each, within the limits of the configuration.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::address::{Peer, is_trusted};
use super::doors::{Doors, Pass, Who};
use super::paced::Paced;
use super::tls::Tls;
use crate::config::{Live, ServerLimits};
use crate::metrics::Metrics;

/// All that a connection needs.
#[derive(Clone)]
pub struct Front {
    pub router: Router,
    pub config: Arc<Live>,
    pub doors: Arc<Doors>,
    pub metrics: Arc<Metrics>,
    pub tls: Option<Tls>,
    /// Connections end after the request they are at.
    pub close: CancellationToken,
}

/// Until `front.close`, and then until every connection has ended. Dropped, it ends them at once.
pub async fn serve(listener: Arc<TcpListener>, front: Front) -> io::Result<()> {
    let mut connections = accept(&listener, &front).await;
    drop(listener);
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// Until `front.close`. Gives the connections that have not ended yet.
pub async fn accept(listener: &TcpListener, front: &Front) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = front.close.cancelled() => return connections,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    if let Some(pass) = admit(front, &stream, peer) {
                        connections.spawn(converse(front.clone(), stream, peer, pass));
                    }
                }
                Err(error) => rest(&error).await,
            },
        }
    }
}

/// A connection that broke before it was accepted is nobody's trouble; without files left, others have to close first.
async fn rest(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::warn!(target: "runyard::http", %error, "no connection can be accepted for now");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

fn admit(front: &Front, stream: &TcpStream, peer: SocketAddr) -> Option<Pass> {
    let config = front.config.current();
    let server = &config.config.server;
    let who =
        if is_trusted(peer.ip().to_canonical(), &server.trusted_proxies) { Who::TrustedProxy } else { Who::Client };
    let pass = front.doors.enter(peer.ip(), who, &server.limits);
    if pass.is_none() {
        front.metrics.connection_refused();
        if front.tls.is_none() {
            // The buffer of a new connection is empty, so this does not wait; a client that is gone does not matter.
            let _ = stream.try_write(FULL.as_bytes());
        }
    }
    pass
}

const FULL: &str = "HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/problem+json\r\nretry-after: 5\r\nconnection: close\r\ncontent-length: 165\r\n\r\n\
    {\"type\":\"urn:runyard:problem:too_many_connections\",\"title\":\"Service Unavailable\",\"status\":503,\
    \"detail\":\"too many connections are open\",\"code\":\"too_many_connections\"}";

/// What the kernel takes before the other end has room for it. It would take 4 MB, from each client that does not read.
const UNSENT_BYTES_MAX: u32 = 128 * 1024;

async fn converse(front: Front, stream: TcpStream, peer: SocketAddr, _pass: Pass) {
    // Answers are small and waited for: gathering them costs 40 ms each.
    let _ = stream.set_nodelay(true);
    let _ = SockRef::from(&stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    let limits = front.config.current().config.server.limits.clone();
    match &front.tls {
        None => http(&front, stream, peer, &limits).await,
        Some(tls) => {
            let handshake = tokio::time::timeout(Duration::from_millis(limits.head_ms), tls.acceptor.accept(stream));
            if let Ok(Ok(stream)) = handshake.await {
                http(&front, stream, peer, &limits).await;
            }
        }
    }
}

async fn http(front: &Front, stream: impl AsyncRead + AsyncWrite + Unpin, peer: SocketAddr, limits: &ServerLimits) {
    let router = front.router.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer.ip()));
        // A router is always ready.
        router.clone().call(request.map(Body::new))
    });
    let stream = TokioIo::new(Paced::new(stream, Duration::from_millis(limits.stall_ms)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(limits.head_ms))
        .max_headers(limits.headers as usize)
        .max_buf_size(limits.head_bytes as usize)
        .serve_connection(stream, service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = front.close.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(target: "runyard::http", %peer, error = &error as &dyn std::error::Error, "connection ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_a_full_house_is_well_formed() {
        let (head, body) = FULL.split_once("\r\n\r\n").unwrap();
        let problem: runyard_wire::Problem = serde_json::from_str(body).unwrap();
        assert_eq!((problem.status, problem.code.as_str()), (503, "too_many_connections"));
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
    }
}
