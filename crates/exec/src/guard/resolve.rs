//! Names become addresses here, once for each connection, and no unjudged one leaves.

use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::Guard;

pub(super) struct GuardedResolver {
    pub guard: Arc<Guard>,
}

impl Resolve for GuardedResolver {
    /// As every other program on this machine resolves: the hosts file, then the configured servers.
    fn resolve(&self, name: Name) -> Resolving {
        let (guard, host) = (self.guard.clone(), name.as_str().to_owned());
        Box::pin(async move {
            let addresses: Vec<_> = tokio::net::lookup_host((host.as_str(), 0)).await?.collect();
            // One bad address refuses the name: whoever answers with both means the bad one.
            for address in &addresses {
                guard.check_address(&host, address.ip()).inspect_err(|_| {
                    let ip = address.ip();
                    tracing::warn!(target: "runyard::outbound", host, %ip, "a name is not called for its address");
                })?;
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}
