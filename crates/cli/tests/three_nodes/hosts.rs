//! The hosts and their cables: three for each node, so that it can be cut from one thing and still reach the others.

use std::os::unix::fs::PermissionsExt;

use runyard_testbed::Options;
use tempfile::TempDir;

use crate::cluster::{self, Cluster, Plan, Site};
use crate::network::{Network, Plug};

const NODES: [&str; 3] = ["one", "two", "three"];
const PORT: u16 = 7340;

/// What a node is connected to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Net {
    Peers,
    Store,
    Door,
}

impl Net {
    const ALL: [Net; 3] = [Net::Peers, Net::Store, Net::Door];

    fn name(self) -> &'static str {
        match self {
            Net::Peers => "peers",
            Net::Store => "store",
            Net::Door => "door",
        }
    }

    fn address(self, host: usize) -> String {
        let net = match self {
            Net::Peers => 1,
            Net::Store => 2,
            Net::Door => 3,
        };
        format!("10.78.{net}.{host}")
    }
}

/// The hub's own number in each network.
const HUB: usize = 254;

pub struct Hosts {
    network: Network,
    /// With the rules of who may come to the database.
    rules: TempDir,
}

impl Hosts {
    pub fn new() -> Hosts {
        let network = Network::of(&["hub", "one", "two", "three"]);
        for net in Net::ALL {
            network.switch(Plug { host: "hub", name: net.name() }, &format!("{}/24", net.address(HUB)));
            for (n, host) in NODES.iter().enumerate() {
                let (near, far) = (format!("{}{}", net.name(), n + 1), Plug { host, name: net.name() });
                let near = Plug { host: "hub", name: &near };
                network.cable(near, far);
                network.put_into(near, net.name());
                network.address(far, &format!("{}/24", net.address(n + 1)));
            }
        }
        Hosts { network, rules: rules() }
    }

    pub fn enter_hub(&self) {
        self.network.enter("hub");
    }

    pub fn start(&self, config: &str) -> Cluster {
        let file = self.rules.path().join("pg_hba.conf").display().to_string();
        let settings = [("listen_addresses", "*".to_owned()), ("hba_file", file)];
        let settings = settings.map(|(name, value)| (name.to_owned(), value)).into();
        Cluster::start(Plan {
            sites: (0..NODES.len()).map(|n| self.site(n)).collect(),
            url: &|url| url.replace("127.0.0.1", &Net::Store.address(HUB)),
            config: &format!("{}{config}", cluster::CONFIG),
            postgres: Options { fsync: true, settings, ..Options::default() },
        })
    }

    fn site(&self, n: usize) -> Site {
        Site {
            name: NODES[n].to_owned(),
            prefix: self.network.prefix(NODES[n]),
            listen: format!("0.0.0.0:{PORT}"),
            advertise: format!("http://{}:{PORT}", Net::Peers.address(n + 1)),
            address: format!("{}:{PORT}", Net::Door.address(n + 1)),
        }
    }

    pub fn cut(&self, node: usize, net: Net) {
        self.network.cut(Plug { host: "hub", name: &format!("{}{}", net.name(), node + 1) });
    }

    pub fn mend(&self, node: usize, net: Net) {
        self.network.mend(Plug { host: "hub", name: &format!("{}{}", net.name(), node + 1) });
    }

    pub fn names(&self) -> Vec<String> {
        self.network.names()
    }
}

/// Who comes from another host says its password.
fn rules() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    // The server is not root and must read it.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let text = "local all all trust\nhost all all 0.0.0.0/0 scram-sha-256\n";
    std::fs::write(dir.path().join("pg_hba.conf"), text).unwrap();
    dir
}
