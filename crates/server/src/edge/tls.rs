//! HTTPS, with a certificate that can be replaced while the server runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::config;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read {}", path.display())]
    Pem {
        path: PathBuf,
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    #[error("there is no certificate in {}", path.display())]
    Empty { path: PathBuf },
    #[error("the certificate and its key cannot be used")]
    Unusable(#[source] rustls::Error),
}

#[derive(Clone)]
pub struct Tls {
    pub acceptor: TlsAcceptor,
    current: Arc<Current>,
    files: Files,
}

#[derive(Clone, Debug)]
struct Files {
    cert: PathBuf,
    key: PathBuf,
}

/// The certificate that the next handshake gets.
#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl Tls {
    /// None where no certificate is configured.
    pub fn load(config: &config::Tls) -> Result<Option<Tls>, Error> {
        let (Some(cert), Some(key)) = (&config.cert, &config.key) else { return Ok(None) };
        let files = Files { cert: cert.into(), key: key.into() };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let current = Arc::new(Current(ArcSwap::from_pointee(files.read(&provider)?)));
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(Error::Unusable)?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Some(Tls { acceptor: TlsAcceptor::from(Arc::new(server)), current, files }))
    }

    /// Reads the files again. When they cannot be used, the old certificate stays.
    fn reload(&self, cause: &str) {
        match self.files.read(&rustls::crypto::ring::default_provider()) {
            Ok(fresh) if fresh.cert == self.current.0.load().cert => {}
            Ok(fresh) => {
                self.current.0.store(Arc::new(fresh));
                tracing::info!(target: "runyard::tls", cause, "certificate read again");
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::error!(target: "runyard::tls", cause, error, "certificate refused, the old one stays");
            }
        }
    }

    /// Until `stop`: reloads on SIGHUP and when a file changes.
    pub async fn watch(self, stop: CancellationToken) {
        let (sender, mut changes) = mpsc::channel(1);
        // Kept until the end: dropping a watcher ends its watch.
        let _watchers = [&self.files.cert, &self.files.key].map(|path| config::watcher(path, sender.clone()));
        let Ok(mut hangup) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()) else { return };
        // A server may have waited for its database for long.
        self.reload("start");
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = hangup.recv() => self.reload("SIGHUP"),
                _ = changes.recv() => {
                    // Two files are written one after the other.
                    tokio::time::sleep(config::SETTLE).await;
                    while changes.try_recv().is_ok() {}
                    self.reload("file change");
                }
            }
        }
    }
}

impl Files {
    fn read(&self, provider: &CryptoProvider) -> Result<CertifiedKey, Error> {
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Pem { path, source }
        };
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_file_iter(&self.cert).and_then(Iterator::collect).map_err(unreadable(&self.cert))?;
        if chain.is_empty() {
            return Err(Error::Empty { path: self.cert.clone() });
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(unreadable(&self.key))?;
        CertifiedKey::from_der(chain, key, provider).map_err(Error::Unusable)
    }
}
