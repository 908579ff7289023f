//! Where the database is and how a connection to it is set up: address, TLS, and everything that is set by session.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::nodes::NodeId;
use crate::store::{Error, Result};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// A commit that returned survives a crash of the database's machine.
    #[default]
    Full,
    /// A commit that returned survives a crash of this program; one of the database may take the last ones, never a part
    /// of one.
    Normal,
}

#[derive(Clone)]
pub struct Options {
    /// `postgres://user:password@host:port/database?sslmode=…&sslrootcert=…`
    pub url: String,
    pub durability: Durability,
    /// What takes longer is given up, by the database and, should that not answer at all, by us.
    pub statement_timeout_ms: u64,
    pub connect_timeout: Duration,
    /// A lost connection is looked for again so long before its loss is an error.
    pub retry_for: Duration,
    /// Who must hold the lease for a store to be taken over. `None` asks for no lease: a database of one node.
    pub node: Option<NodeId>,
}

impl Options {
    pub fn new(url: impl Into<String>) -> Options {
        Options {
            url: url.into(),
            durability: Durability::Full,
            statement_timeout_ms: 30_000,
            connect_timeout: Duration::from_secs(5),
            retry_for: Duration::from_secs(10),
            node: None,
        }
    }
}

/// Without the address: it has the password in it.
impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("durability", &self.durability)
            .field("statement_timeout_ms", &self.statement_timeout_ms)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    Write,
    Read,
    /// Takes as long as it takes.
    Migrate,
}

/// Everything that opening a connection takes, read once.
pub struct Address {
    pub config: Config,
    pub tls: MakeRustlsConnect,
    pub connect_timeout: Duration,
    /// How long an answer is waited for.
    pub patience: Option<Duration>,
}

impl Address {
    pub fn of(options: &Options, purpose: Purpose) -> Result<Address> {
        let (url, ssl) = split_ssl(&options.url)?;
        let mut config: Config =
            url.parse().map_err(|error: tokio_postgres::Error| refused(error.into_source().unwrap_or("".into())))?;
        if config.get_target_session_attrs() == TargetSessionAttrs::Any {
            // After a failover the address may still lead to the old primary first.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        config.ssl_mode(ssl.mode());
        config.application_name("runyard");
        config.connect_timeout(options.connect_timeout);
        config.keepalives_idle(KEEPALIVE).keepalives_interval(KEEPALIVE).keepalives_retries(2);
        config.tcp_user_timeout(options.connect_timeout);
        let given = config.get_options().unwrap_or_default().to_owned();
        config.options(format!("{given} {}", settings(options, purpose)));
        let patience = match purpose {
            Purpose::Migrate => None,
            _ => Some(Duration::from_millis(options.statement_timeout_ms) + PATIENCE_MORE),
        };
        let tls = MakeRustlsConnect::new(ssl.config()?);
        Ok(Address { config, tls, connect_timeout: options.connect_timeout, patience })
    }
}

/// A fresh database has no statistics, and the planner guesses. All statements here are few and meant for their indexes, so
/// it is told not to weigh anything else, and to plan each once.
const PLANS: &str = "-c jit=off -c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_hashjoin=off \
                     -c enable_mergejoin=off -c enable_sort=off -c enable_bitmapscan=off -c enable_material=off";

/// A client that was stopped or cut off in the middle of a transaction must not hold its locks for long.
const ENDS: &str = "-c idle_in_transaction_session_timeout=3000 -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 \
                    -c tcp_keepalives_count=3 -c tcp_user_timeout=10000";

fn settings(options: &Options, purpose: Purpose) -> String {
    let synchronous = match options.durability {
        Durability::Full => "on",
        Durability::Normal => "off",
    };
    match purpose {
        Purpose::Migrate => String::new(),
        _ => {
            let timeout_ms = options.statement_timeout_ms;
            format!("{PLANS} {ENDS} -c statement_timeout={timeout_ms} -c synchronous_commit={synchronous}")
        }
    }
}

/// As libpq has them; `require` with a root certificate verifies as `verify-ca` does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

struct Ssl {
    mode: Mode,
    root: Option<String>,
}

impl Ssl {
    fn mode(&self) -> SslMode {
        match self.mode {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        }
    }

    fn config(&self) -> Result<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(error.into()))?;
        let verify = match (&self.root, self.mode) {
            (Some(root), _) => Some(WebPkiServerVerifier::builder_with_provider(roots(root)?, provider.clone())),
            (None, Mode::VerifyCa | Mode::VerifyFull) => {
                return Err(refused("sslmode verifies, so sslrootcert=FILE (or =system) is needed".into()));
            }
            (None, _) => None,
        };
        let verify = verify.map(|builder| builder.build().map_err(|error| refused(error.into()))).transpose()?;
        let is_named = self.mode == Mode::VerifyFull;
        let verifier = Arc::new(Verifier { provider, verify, is_named });
        Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
    }
}

/// Takes out of the address what the client library does not know.
fn split_ssl(url: &str) -> Result<(String, Ssl)> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(refused("it must begin with postgres://".into()));
    }
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let mut ssl = Ssl { mode: Mode::Prefer, root: None };
    let mut rest = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sslmode", mode)) => ssl.mode = mode_of(mode)?,
            Some(("sslrootcert", path)) => ssl.root = Some(unescaped(path)?),
            _ => rest.push(pair),
        }
    }
    Ok((format!("{base}?{}", rest.join("&")), ssl))
}

fn mode_of(text: &str) -> Result<Mode> {
    Ok(match text {
        "disable" => Mode::Disable,
        "allow" | "prefer" => Mode::Prefer,
        "require" => Mode::Require,
        "verify-ca" => Mode::VerifyCa,
        "verify-full" => Mode::VerifyFull,
        _ => return Err(refused("sslmode is disable, prefer, require, verify-ca or verify-full".into())),
    })
}

fn unescaped(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let code = after.get(..2).and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        bytes.push(code.ok_or_else(|| refused("sslrootcert has a % that is no escape".into()))?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|error| refused(error.into()))
}

/// Where distributions keep the roots that their package of certificates brings.
const SYSTEM_ROOTS: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

fn roots(path: &str) -> Result<Arc<RootCertStore>> {
    let path = match path {
        "system" => SYSTEM_ROOTS.into_iter().find(|path| Path::new(path).exists()).unwrap_or(SYSTEM_ROOTS[0]),
        path => path,
    };
    let bad = |error: String| refused(format!("sslrootcert {path}: {error}").into());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| bad(error.to_string()))? {
        let certificate = certificate.map_err(|error| bad(error.to_string()))?;
        roots.add(certificate).map_err(|error| bad(error.to_string()))?;
    }
    Ok(Arc::new(roots))
}

/// Verifies as much as the mode asks for.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    verify: Option<Arc<WebPkiServerVerifier>>,
    /// The name in the certificate must be the server's.
    is_named: bool,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let Some(verify) = &self.verify else { return Ok(ServerCertVerified::assertion()) };
        match verify.verify_server_cert(end_entity, intermediates, server_name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.is_named => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn refused(source: Box<dyn std::error::Error + Send + Sync>) -> Error {
    Error::Driver { doing: "reading the address of the database", source }
}

const KEEPALIVE: Duration = Duration::from_secs(5);
/// Beyond its own limit, the database gets so long to say that it gave up.
const PATIENCE_MORE: Duration = Duration::from_secs(2);
