//! A PostgreSQL server as a test sees it: databases with addresses, and the ways to be without one.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::cluster::{Cluster, binary};

/// What its databases belong to: a role that may log in and nothing else.
const ROLE: &str = "runyard";
pub const PASSWORD: &str = "a-word-to-keep";

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Commits reach the disk. Without it a suite is several times faster, and only a crash of the machine would tell.
    pub fsync: bool,
    /// Takes TLS connections, with a certificate that [`Postgres::root_certificate`] verifies for 127.0.0.1.
    pub tls: bool,
    /// More settings, as on the server's command line.
    pub settings: Vec<(String, String)>,
    /// Where its directory is made, if it is not to be with all other temporary ones.
    pub below: Option<PathBuf>,
}

pub struct Postgres {
    cluster: Cluster,
    port: u16,
    settings: Vec<(String, String)>,
    n_databases: AtomicU32,
}

/// One server for all tests of this process. It ends with the process.
pub fn shared() -> &'static Postgres {
    static SHARED: OnceLock<Postgres> = OnceLock::new();
    SHARED.get_or_init(Postgres::start)
}

impl Postgres {
    pub fn start() -> Postgres {
        Postgres::start_with(&Options::default())
    }

    pub fn start_with(options: &Options) -> Postgres {
        let mut cluster = Cluster::new(&options.below.clone().unwrap_or_else(std::env::temp_dir));
        let port = free_port();
        let mut settings = settings(port, options);
        if options.tls {
            certify(&cluster);
            settings.push(("ssl".to_owned(), "on".to_owned()));
        }
        settings.extend(options.settings.iter().cloned());
        cluster.start(&settings);
        let postgres = Postgres { cluster, port, settings, n_databases: AtomicU32::new(0) };
        postgres.sql("postgres", &format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'"));
        postgres
    }

    /// Another server, which has what this one has and follows it.
    pub fn standby(&self) -> Postgres {
        let mut cluster = Cluster::following(&self.cluster, self.port);
        let (port, mut settings) = (free_port(), self.settings.clone());
        settings.push(("port".to_owned(), port.to_string()));
        cluster.start(&settings);
        Postgres { cluster, port, settings, n_databases: AtomicU32::new(0) }
    }

    /// A standby takes the place of the one that it followed.
    pub fn promote(&self) {
        assert_eq!(self.sql("postgres", "SELECT pg_promote()"), "t", "{}", self.log());
    }

    /// The address of a new, empty database.
    pub fn fresh_database(&self) -> String {
        let name = format!("d{}", self.n_databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name} OWNER {ROLE}"));
        self.url(&name)
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://{ROLE}:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Everything of it is below.
    pub fn directory(&self) -> &Path {
        &self.cluster.dir
    }

    /// Verifies the server, when it was started with TLS.
    pub fn root_certificate(&self) -> PathBuf {
        self.cluster.dir.join("data/server.crt")
    }

    /// Runs statements as the superuser and gives what they print, one row a line.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = Command::new(binary("psql"));
        psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--username=postgres"]);
        psql.args(["--set=ON_ERROR_STOP=1", "--command", sql, "--dbname", database]);
        psql.arg("--host").arg(&self.cluster.dir).arg(format!("--port={}", self.port));
        let output = psql.output().expect("psql starts");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// An orderly stop. The data and the port stay.
    pub fn stop(&mut self) {
        self.cluster.stop();
    }

    /// As a crash: with SIGKILL.
    pub fn kill(&mut self) {
        self.cluster.kill();
    }

    /// Nobody has stopped it, nor has it ended by itself.
    pub fn is_running(&self) -> bool {
        self.cluster.is_running()
    }

    pub fn start_again(&mut self) {
        self.cluster.start(&self.settings);
    }

    /// What the server wrote about itself.
    pub fn log(&self) -> String {
        self.cluster.log()
    }
}

fn settings(port: u16, options: &Options) -> Vec<(String, String)> {
    let mut settings = vec![
        ("port", port.to_string()),
        ("listen_addresses", "127.0.0.1".to_owned()),
        ("max_connections", "200".to_owned()),
        ("shared_buffers", "64MB".to_owned()),
        // Tests that make a database each would else wait for checkpoints.
        ("max_wal_size", "4GB".to_owned()),
    ];
    if !options.fsync {
        settings.push(("fsync", "off".to_owned()));
        settings.push(("full_page_writes", "off".to_owned()));
    }
    settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("it is bound").port()
}

/// A certificate for the loopback address that signs itself.
fn certify(cluster: &Cluster) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    for (name, text) in [("server.crt", made.cert.pem()), ("server.key", made.signing_key.serialize_pem())] {
        let path = cluster.data().join(name);
        std::fs::write(&path, text).expect("a file in a directory of ours");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("the file is ours");
        cluster.own(&path);
    }
}
