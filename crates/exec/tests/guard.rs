//! The guard against real sockets and a real name server, in a network of its own where every address there is leads to
//! one listener: whatever is connected to anywhere is counted.

mod guard {
    pub mod names;
    pub mod net;
    pub mod vectors;
}

use std::net::IpAddr;
use std::sync::Arc;

use guard::names::Names;
use guard::net::{Net, PUBLIC_V4, PUBLIC_V6};
use guard::vectors;
use reqwest::{Method, Url};
use runyard_exec::guard::GuardedClient;
use runyard_exec::{Blocked, Guard};

/// A test below runs itself again inside the namespace, with this set to its name.
const INSIDE: &str = "RUNYARD_TEST_IN_NAMESPACE";

struct Scene {
    net: Net,
    names: Names,
    guard: Arc<Guard>,
    client: GuardedClient,
}

/// What became of one call.
#[derive(Debug, PartialEq, Eq)]
enum Called {
    Status(u16),
    Blocked,
    /// Not even a URL, or a name that does not resolve.
    Nowhere,
}

impl Scene {
    fn new() -> Scene {
        let guard = Arc::new(Guard::default());
        let client = guard.client().expect("a client");
        Scene { net: Net::listen(), names: Names::serve(vectors::names()), guard, client }
    }

    async fn call(&self, url: &str) -> Called {
        let url = url.replace("{p}", &self.net.port.to_string());
        let Ok(url) = Url::parse(&url) else { return Called::Nowhere };
        let Ok(request) = self.client.request(Method::POST, url) else { return Called::Blocked };
        match request.body("{}").send().await {
            Ok(answer) => Called::Status(answer.status().as_u16()),
            Err(error) if runyard_exec::guard::blocked_by(&error).is_some() => Called::Blocked,
            Err(_) => Called::Nowhere,
        }
    }

    /// Everything that was connected to up to now, the public addresses apart.
    fn blocked_ranges_reached(&self) -> Vec<IpAddr> {
        let reached = self.net.reached();
        reached.into_iter().filter(|ip| *ip != IpAddr::V4(PUBLIC_V4) && *ip != IpAddr::V6(PUBLIC_V6)).collect()
    }
}

#[test]
fn no_vector_reaches_a_blocked_range() {
    in_namespace("no_vector_reaches_a_blocked_range", async {
        let scene = Scene::new();
        let mut n_vectors = 0;
        for url in vectors::blocked() {
            let called = scene.call(url).await;
            assert!(matches!(called, Called::Blocked | Called::Nowhere), "{url}: {called:?}");
            n_vectors += 1;
        }
        assert_eq!(scene.blocked_ranges_reached(), Vec::<IpAddr>::new());
        assert!(n_vectors >= 80, "{n_vectors} vectors");
        // The same listener is reached by whoever is let through: nothing above failed for want of a way.
        assert_eq!(scene.call("http://public.test:{p}/").await, Called::Status(200));
        assert_eq!(scene.call("http://public-alias.test:{p}/").await, Called::Status(200));
        assert_eq!(scene.call("http://93.184.216.34:{p}/").await, Called::Status(200));
        assert_eq!(scene.call("http://[2606:2800:220:1::1]:{p}/").await, Called::Status(200));
        let plain = reqwest::Client::builder().no_proxy().build().expect("a client");
        for host in ["127.1", "10.0.0.1", "169.254.169.254", "[fd00:ec2::254]", "loop.test", "[::ffff:10.0.0.7]"] {
            let url = format!("http://{host}:{}/", scene.net.port);
            assert!(plain.post(&url).send().await.is_ok(), "{url} is reached without the guard");
        }
        assert_eq!(scene.blocked_ranges_reached().len(), 6);
    });
}

#[test]
fn a_name_is_resolved_once_and_judged_again_each_time() {
    in_namespace("a_name_is_resolved_once_and_judged_again_each_time", async {
        let scene = Scene::new();
        // First a public address, then loopback: what was judged is what is dialled.
        assert_eq!(scene.call("http://rebind.test:{p}/").await, Called::Status(200));
        assert_eq!(scene.names.n_asked("rebind.test"), 1);
        assert_eq!(scene.net.reached(), [IpAddr::V4(PUBLIC_V4)]);
        // The connection from before stands open, and is not used: the name leads elsewhere now.
        assert_eq!(scene.call("http://rebind.test:{p}/").await, Called::Blocked);
        assert_eq!(scene.names.n_asked("rebind.test"), 2);
        assert_eq!(scene.net.reached().len(), 1);
        // Nor is one kept for a name that stays where it is.
        for n in 2..=3 {
            assert_eq!(scene.call("http://public.test:{p}/").await, Called::Status(200));
            assert_eq!(scene.net.reached().len(), n);
        }
    });
}

#[test]
fn redirects_are_not_followed_and_proxies_not_asked() {
    in_namespace("redirects_are_not_followed_and_proxies_not_asked", async {
        let scene = Scene::new();
        for status in [301, 302, 303, 307, 308] {
            let called = scene.call(&format!("http://public.test:{{p}}/redirect/{status}")).await;
            assert_eq!(called, Called::Status(status));
        }
        assert_eq!(scene.blocked_ranges_reached(), Vec::<IpAddr>::new());
        let heads = scene.net.heads();
        assert_eq!(heads.len(), 5);
        // A proxy would be sent the whole URL.
        assert!(heads.iter().all(|head| head.starts_with("POST /redirect/")), "{heads:?}");
        assert!(std::env::var("http_proxy").is_ok_and(|proxy| proxy.contains("127.0.0.1")));
    });
}

#[test]
fn the_host_stays_the_urls_own() {
    in_namespace("the_host_stays_the_urls_own", async {
        let scene = Scene::new();
        scene.call("http://public.test:{p}/x").await;
        scene.call("https://public.test:{p}/x").await;
        let heads = scene.net.heads();
        let host = format!("host: public.test:{}", scene.net.port);
        assert!(heads[0].to_ascii_lowercase().contains(&host), "{}", heads[0]);
        // The name in the first message of TLS.
        assert!(heads[1].starts_with('\u{16}') && heads[1].contains("public.test"));
    });
}

#[test]
fn what_is_listed_is_reached() {
    in_namespace("what_is_listed_is_reached", async {
        let scene = Scene::new();
        let allow = ["127.0.0.0/8", "both.test"].map(|text| text.parse().expect("an entry"));
        scene.guard.set_allow(allow.to_vec());
        assert_eq!(scene.call("http://0x7f.1:{p}/").await, Called::Status(200));
        assert_eq!(scene.call("http://loop.test:{p}/").await, Called::Status(200));
        assert_eq!(scene.call("http://both.test:{p}/").await, Called::Status(200));
        assert_eq!(scene.call("http://[::1]:{p}/").await, Called::Blocked);
        assert_eq!(scene.call("http://private.test:{p}/").await, Called::Blocked);
        scene.guard.set_allow(Vec::new());
        assert_eq!(scene.call("http://loop.test:{p}/").await, Called::Blocked);
        let refused = scene.client.request(Method::GET, Url::parse("http://127.0.0.1/").expect("a URL"));
        assert!(matches!(refused, Err(Blocked::Address { .. })));
    });
}

/// Outside: runs the named test again in a network of its own. Inside: runs it.
fn in_namespace(test: &str, body: impl Future<Output = ()>) {
    if std::env::var(INSIDE).is_ok_and(|name| name == test) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        return runtime.block_on(body);
    }
    guard::net::enter(test, INSIDE);
}
