//! The keys about who may connect, how much they may ask for, and what they may run. They are apart from the other types
//! because they are read by the doors of the server, not by the scheduler.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RateLimit {
    /// Requests in a second with one key. Not set: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 100)]
    pub per_key: Option<u32>,
    /// Requests in a second from one address (for IPv6: one /64), with or without a key. Not set: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 200)]
    pub per_address: Option<u32>,
    /// So many seconds' worth may come at once before a rate binds.
    pub burst_seconds: u32,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ServerLimits {
    /// Open connections, over all clients.
    pub connections: u32,
    /// Open connections from one address (for IPv6: one /64), proxies that are trusted left out.
    pub connections_per_address: u32,
    /// Event streams, followed logs and waits that are open at once. A key without scope `admin` gets half of them at most,
    /// and a sixteenth is kept for keys with it.
    pub streams: u32,
    /// The request line and all headers together, in bytes. About: up to twice as much may pass, depending on
    /// the pieces in which it arrives.
    pub head_bytes: u32,
    /// Headers of one request.
    pub headers: u32,
    /// Path and query, in bytes.
    pub url_bytes: u32,
    /// A connection that has not sent a whole head after this time is closed, an idle one too.
    pub head_ms: u64,
    /// A body has to arrive in this time.
    pub body_ms: u64,
    /// Bytes that the bodies of requests take in memory while they are read and worked on, over all clients. A key without
    /// scope `admin` gets half of them at most, and a sixteenth is kept for keys with it. At least 64 MiB, so that the
    /// largest batch fits into half of them.
    pub body_bytes: u64,
    /// A client that takes nothing of its answer for so long is disconnected.
    pub stall_ms: u64,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Tls {
    /// The certificate and its chain, in PEM. With `key`, the server speaks HTTPS only. Both files are read again when they
    /// change and on SIGHUP.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = "/etc/runyard/cert.pem")]
    pub cert: Option<String>,
    /// The private key of the certificate, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = "/etc/runyard/key.pem")]
    pub key: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Exec {
    /// Programs that tasks may start, as the task names them; `*` stands for any number of characters. A shell line is the
    /// program `sh`. Not set: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = ["git", "/usr/local/bin/*"])]
    pub commands: Option<Vec<String>>,
    /// Directories that tasks may name as `cwd`, with everything below them. Not set: any. A task that names none runs in a
    /// directory of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = ["/srv/agents"])]
    pub work_dirs: Option<Vec<String>>,
    /// Images that tasks of kind `docker` may use; `*` stands for any number of characters. Not set: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = ["alpine:*"])]
    pub images: Option<Vec<String>>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Secret {
    /// The variable of the server's environment that holds the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"PROVIDER_TOKEN")]
    pub env: Option<String>,
    /// The file that holds the value, instead of `env`. It is read at each use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = "/run/secrets/provider")]
    pub file: Option<String>,
    /// The agents whose tasks may have it. Not set: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = ["crawler"])]
    pub agents: Option<Vec<String>>,
}

impl Default for RateLimit {
    fn default() -> Self {
        RateLimit { per_key: None, per_address: None, burst_seconds: 5 }
    }
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            connections: 20_000,
            // Fewer than all: no address can lock the others out.
            connections_per_address: 12_000,
            streams: 15_000,
            head_bytes: 64 * 1024,
            headers: 100,
            url_bytes: 8 * 1024,
            head_ms: 15_000,
            body_ms: 60_000,
            // Four of the largest batches; what they are parsed into takes about as much again.
            body_bytes: 128 * 1024 * 1024,
            // Two heartbeats of a stream: a client that is gone is noticed by the first one that does not get through.
            stall_ms: 30_000,
        }
    }
}
