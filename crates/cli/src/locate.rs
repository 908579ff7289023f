//! Where the server is and which key opens it: flags, then environment, then what a server on this machine left in its
//! data directory.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Error, Result};

/// Where a server listens unless told otherwise.
pub const DEFAULT_URL: &str = "http://127.0.0.1:7340";

/// How to reach the server; the same for every command.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Connection {
    /// Address of the server [default: the one running on this machine, else http://127.0.0.1:7340]
    #[arg(long, global = true, env = "RUNYARD_URL", value_name = "URL", help_heading = "Connection")]
    pub url: Option<String>,
    /// Key to sign in with [default: the admin key in the data directory]
    #[arg(
        long,
        global = true,
        env = "RUNYARD_API_KEY",
        value_name = "KEY",
        hide_env_values = true,
        help_heading = "Connection"
    )]
    pub api_key: Option<String>,
    /// File that holds the key
    #[arg(long, global = true, env = "RUNYARD_API_KEY_FILE", value_name = "FILE", help_heading = "Connection")]
    pub api_key_file: Option<PathBuf>,
    /// Certificates in PEM to trust beside those of the system, for a server with one of its own
    #[arg(long, global = true, env = "RUNYARD_CA_FILE", value_name = "FILE", help_heading = "Connection")]
    pub ca_file: Option<PathBuf>,
    /// Data directory [default: $XDG_DATA_HOME/runyard or ~/.local/share/runyard]
    #[arg(long, global = true, env = "RUNYARD_DATA", value_name = "DIR", help_heading = "Connection")]
    pub data: Option<PathBuf>,
}

impl Connection {
    pub fn data_dir(&self) -> Result<PathBuf> {
        let xdg = || std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
        let home = || std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        self.data
            .clone()
            .or_else(|| xdg().map(|dir| dir.join("runyard")))
            .or_else(|| home().map(|dir| dir.join(".local/share/runyard")))
            .ok_or_else(|| Error::usage("there is no HOME to keep data under; name a directory with --data"))
    }

    pub fn certificates(&self) -> Result<Vec<reqwest::Certificate>> {
        let Some(path) = &self.ca_file else { return Ok(Vec::new()) };
        let read = |source| Error::File { doing: "read the certificates in", path: path.clone(), source };
        let bytes = std::fs::read(path).map_err(read)?;
        let found = reqwest::Certificate::from_pem_bundle(&bytes);
        let is_empty = || Error::usage(format!("there is no certificate in {}", path.display()));
        found.ok().filter(|found| !found.is_empty()).ok_or_else(is_empty)
    }

    pub fn url(&self) -> Result<reqwest::Url> {
        let text = match &self.url {
            Some(url) => url.clone(),
            None => self.running_url().unwrap_or_else(|| DEFAULT_URL.to_owned()),
        };
        let text = if text.contains("://") { text } else { format!("http://{text}") };
        let url = reqwest::Url::parse(&text)
            .map_err(|error| Error::usage(format!("`{text}` is no address: {error}; it looks like {DEFAULT_URL}")))?;
        match url.scheme() {
            "http" | "https" if url.has_host() => Ok(url),
            _ => Err(Error::usage(format!("`{text}` is no address; it looks like {DEFAULT_URL}"))),
        }
    }

    /// What `<data>/server.json` of a running server says.
    fn running_url(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Running {
            url: String,
        }
        let text = std::fs::read(self.data_dir().ok()?.join("server.json")).ok()?;
        serde_json::from_slice::<Running>(&text).ok().map(|running| running.url)
    }

    /// The key to send to `url`. The admin key found on this machine is for this machine: it is never sent elsewhere.
    pub fn key_for(&self, url: &reqwest::Url) -> Result<Option<String>> {
        if let Some(key) = &self.api_key {
            return Ok(Some(key.trim().to_owned()).filter(|key| !key.is_empty()));
        }
        if let Some(file) = &self.api_key_file {
            return read_key(file).map(Some);
        }
        let Some(file) = self.data_dir().ok().map(|dir| dir.join("admin.key")) else { return Ok(None) };
        if is_loopback(url) && file.exists() { read_key(&file).map(Some) } else { Ok(None) }
    }
}

fn read_key(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).map_err(|source| Error::File {
        doing: "read the key in",
        path: file.to_owned(),
        source,
    })?;
    Ok(text.trim().to_owned())
}

pub fn is_loopback(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(dir: &Path) -> Connection {
        Connection { data: Some(dir.to_owned()), ..Connection::default() }
    }

    #[test]
    fn a_running_server_is_found_by_its_file() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(connection(dir.path()).url().unwrap().as_str(), "http://127.0.0.1:7340/");
        std::fs::write(dir.path().join("server.json"), r#"{"url":"http://127.0.0.1:4711","pid":1}"#).unwrap();
        assert_eq!(connection(dir.path()).url().unwrap().as_str(), "http://127.0.0.1:4711/");
        let flag = Connection { url: Some("http://example.org:1".into()), ..connection(dir.path()) };
        assert_eq!(flag.url().unwrap().as_str(), "http://example.org:1/");
    }

    #[test]
    fn the_local_admin_key_stays_on_this_machine() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("admin.key"), "ry_secret\n").unwrap();
        let key = |url: &str| connection(dir.path()).key_for(&reqwest::Url::parse(url).unwrap()).unwrap();
        assert_eq!(key("http://127.0.0.1:7340").as_deref(), Some("ry_secret"));
        assert_eq!(key("http://[::1]:7340").as_deref(), Some("ry_secret"));
        assert_eq!(key("http://localhost:7340").as_deref(), Some("ry_secret"));
        assert_eq!(key("http://example.org"), None);
    }

    #[test]
    fn an_address_may_come_without_its_scheme() {
        let url = Connection { url: Some("localhost:9".into()), ..Connection::default() }.url().unwrap();
        assert_eq!(url.as_str(), "http://localhost:9/");
        assert!(Connection { url: Some("ftp://x".into()), ..Connection::default() }.url().is_err());
    }
}
