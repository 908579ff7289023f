//! The real server in a network of its own, in which every address there is leads to one listener: whatever the server
//! connects to because of a URL that somebody gave it is counted.

#![allow(clippy::unwrap_used)]

mod support;

#[path = "../../exec/tests/guard"]
#[allow(dead_code, reason = "the guard's own tests use the rest")]
mod guard {
    pub mod names;
    pub mod net;
    pub mod vectors;
}

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use guard::names::Names;
use guard::net::{Net, PUBLIC_V4, PUBLIC_V6};
use guard::vectors;
use serde_json::{Value, json};
use support::{Server, wait_until};
use tempfile::TempDir;

/// A test below runs itself again inside the namespace, with this set to its name.
const INSIDE: &str = "RUNYARD_TEST_IN_NAMESPACE";
const SOON: Duration = Duration::from_secs(60);
const VECTORS_MIN: usize = 80;

struct Scene {
    net: Net,
    names: Names,
    server: Server,
    _home: TempDir,
}

impl Scene {
    fn new() -> Scene {
        let home = tempfile::tempdir().unwrap();
        let server = Server::start_with(&home.path().join("data"), &["--no-auth"], "");
        Scene { net: Net::listen(), names: Names::serve(vectors::names()), server, _home: home }
    }

    fn url(&self, pattern: &str) -> String {
        pattern.replace("{p}", &self.net.port.to_string())
    }

    fn vectors(&self) -> Vec<String> {
        vectors::blocked().map(|pattern| self.url(pattern)).collect()
    }

    fn allow(&self, allow: &[&str]) {
        let answer = self.server.request("PATCH", "/v1/config", &json!({"outbound": {"allow": allow}}).to_string());
        assert_eq!(answer.status, 200, "{}", answer.body);
    }

    /// Gives its id, or nothing when it is refused for its URL.
    fn submit(&self, task: Value) -> Option<String> {
        let answer = self.server.post("/v1/tasks", &task.to_string());
        match answer.status {
            201 => Some(answer.json()["id"].as_str().unwrap().to_owned()),
            status => {
                assert_eq!(status, 400, "{task}: {}", answer.body);
                None
            }
        }
    }

    /// A task that has ended, with a message about it to this place.
    fn tell(&self, pattern: &str) -> Value {
        let id = self.submit(json!({"kind": "noop", "callbackUrl": self.url(pattern)})).expect("it is taken");
        self.until_tried(&id, 1)
    }

    fn delivery(&self, task: &str) -> Option<Value> {
        self.server.get(&format!("/v1/webhooks/deliveries?task={task}"))["items"].get(0).cloned()
    }

    fn until_tried(&self, task: &str, n: u64) -> Value {
        let tried = || self.delivery(task).filter(|delivery| delivery["tries"].as_u64() >= Some(n));
        wait_until(SOON, &format!("{n} tries of the message about {task}"), || tried().is_some());
        tried().unwrap()
    }

    /// Everything that was connected to up to now, the public addresses apart.
    fn blocked_ranges_reached(&self) -> Vec<IpAddr> {
        let reached = self.net.reached();
        reached.into_iter().filter(|ip| *ip != IpAddr::V4(PUBLIC_V4) && *ip != IpAddr::V6(PUBLIC_V6)).collect()
    }

    /// The listener is there for whoever is not guarded, so nothing failed for want of a way.
    fn every_way_is_open(&self) {
        // A link-local address is one of an interface, here the first and only one.
        let ways = [
            "127.0.0.1",
            "[::1]",
            "10.0.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.1",
            "[fd00::1]",
            "[fe80::1%1]",
        ];
        for ip in ways {
            let address: SocketAddr = format!("{ip}:{}", self.net.port).parse().unwrap();
            assert!(TcpStream::connect(address).is_ok(), "{ip} leads to the listener");
        }
        assert_eq!(self.blocked_ranges_reached().len(), ways.len());
    }
}

fn was_refused(delivery: &Value) -> bool {
    delivery["log"][0]["error"].as_str().is_some_and(|error| error.contains("not a public address"))
}

#[test]
fn no_message_reaches_a_blocked_range() {
    in_namespace("no_message_reaches_a_blocked_range", || {
        let scene = Scene::new();
        // What is listed when a task is taken may not be any more when it ends: so the sender meets every literal, too.
        scene.allow(&["0.0.0.0/0", "::/0"]);
        let later = |url: &String| scene.submit(json!({"kind": "noop", "delayMs": 600_000, "callbackUrl": url}));
        let taken: Vec<String> = scene.vectors().iter().filter_map(later).collect();
        scene.allow(&[]);
        for id in &taken {
            assert_eq!(scene.server.post(&format!("/v1/tasks/{id}/cancel"), "").status, 200);
        }
        for id in &taken {
            let delivery = scene.until_tried(id, 1);
            assert!(was_refused(&delivery), "{delivery:#}");
        }
        assert!(taken.len() >= VECTORS_MIN, "{} vectors came so far", taken.len());
        // Without a list a literal does not even come in; a name is judged when it is called.
        let now = |url: &String| scene.submit(json!({"kind": "noop", "callbackUrl": url}));
        let named: Vec<String> = scene.vectors().iter().filter_map(now).collect();
        assert!(named.len() < 30, "{} of the vectors are names", named.len());
        for id in &named {
            assert!(was_refused(&scene.until_tried(id, 1)));
        }
        assert_eq!(scene.blocked_ranges_reached(), Vec::<IpAddr>::new());
        for public in ["public.test", "public-alias.test", "93.184.216.34", "[2606:2800:220:1::1]"] {
            assert_eq!(scene.tell(&format!("http://{public}:{{p}}/"))["state"], "delivered", "{public}");
        }
        assert_eq!(scene.net.reached().len(), 4);
        scene.every_way_is_open();
    });
}

#[test]
fn no_subscription_reaches_a_blocked_range_and_what_is_listed_is_reached() {
    in_namespace("no_subscription_reaches_a_blocked_range_and_what_is_listed_is_reached", || {
        let scene = Scene::new();
        let subscribe = |url: &str| {
            let hooks = json!({"webhooks": {"all": {"url": url}}});
            scene.server.request("PATCH", "/v1/config", &hooks.to_string()).status
        };
        let n_taken = scene.vectors().iter().filter(|url| subscribe(url) == 200).count();
        assert!(n_taken < 30, "{n_taken} of the vectors are names");
        for name in ["loop.test", "both.test", "alias.test", "mapped.test"] {
            assert_eq!(subscribe(&scene.url(&format!("http://{name}:{{p}}/"))), 200);
            let id = scene.submit(json!({"kind": "noop"})).unwrap();
            assert!(was_refused(&scene.until_tried(&id, 1)), "{name}");
        }
        assert_eq!(scene.blocked_ranges_reached(), Vec::<IpAddr>::new());
        assert_eq!(scene.server.request("PATCH", "/v1/config", r#"{"webhooks": null}"#).status, 200);
        scene.allow(&["127.0.0.0/8", "private.test"]);
        assert_eq!(scene.tell("http://127.0.0.9:{p}/")["state"], "delivered");
        assert_eq!(scene.tell("http://private.test:{p}/")["state"], "delivered");
        let reached = scene.blocked_ranges_reached();
        assert_eq!(reached, ["127.0.0.9", "10.0.0.1"].map(|ip| ip.parse::<IpAddr>().unwrap()));
    });
}

#[test]
fn a_name_is_judged_again_at_every_try() {
    in_namespace("a_name_is_judged_again_at_every_try", || {
        let scene = Scene::new();
        let delivery = scene.tell("http://rebind.test:{p}/");
        assert_eq!((&delivery["state"], scene.names.n_asked("rebind.test")), (&json!("delivered"), 1));
        // The listener keeps the connection open, and the name has moved to loopback.
        let replay = format!("/v1/webhooks/deliveries/{}/replay", delivery["id"]);
        assert_eq!(scene.server.post(&replay, "").status, 200);
        let task = delivery["task"].as_str().unwrap();
        let again = scene.until_tried(task, 1);
        assert_eq!((&again["state"], scene.names.n_asked("rebind.test")), (&json!("pending"), 2));
        assert!(again["log"][1]["error"].as_str().unwrap().contains("it is loopback"), "{again:#}");
        assert_eq!(scene.net.reached(), [IpAddr::V4(PUBLIC_V4)]);
        // A connection is not kept for a name that stays, either.
        for n in 2..=3 {
            scene.tell("http://public.test:{p}/");
            assert_eq!(scene.net.reached().len(), n);
        }
    });
}

#[test]
fn redirects_lead_nowhere_and_proxies_are_not_asked() {
    in_namespace("redirects_lead_nowhere_and_proxies_are_not_asked", || {
        let scene = Scene::new();
        assert!(std::env::var("ALL_PROXY").is_ok_and(|proxy| proxy.contains("127.0.0.1")), "the server inherits it");
        for status in [301, 302, 303, 307, 308] {
            let delivery = scene.tell(&format!("http://public.test:{{p}}/redirect/{status}"));
            assert_eq!((&delivery["state"], &delivery["log"][0]["status"]), (&json!("pending"), &json!(status)));
        }
        assert_eq!(scene.blocked_ranges_reached(), Vec::<IpAddr>::new());
        let heads = scene.net.heads();
        let host = format!("host: public.test:{}", scene.net.port);
        // A proxy would be sent the whole URL.
        assert!(heads.len() == 5 && heads.iter().all(|head| head.starts_with("POST /redirect/")), "{heads:?}");
        assert!(heads.iter().all(|head| head.to_ascii_lowercase().contains(&host)), "{heads:?}");
    });
}

#[test]
fn http_tasks_and_fetched_files_are_guarded_where_it_is_configured() {
    in_namespace("http_tasks_and_fetched_files_are_guarded_where_it_is_configured", || {
        let scene = Scene::new();
        let call =
            |url: &str| scene.submit(json!({"kind": "http", "payload": {"url": url}, "retry": {"maxRetries": 0}}));
        let fetch = |url: &str| {
            let files = json!([{"path": "x", "url": url}]);
            let payload = json!({"argv": ["true"], "files": files});
            scene.submit(json!({"kind": "process", "payload": payload, "retry": {"maxRetries": 0}}))
        };
        let guarded = scene.server.request("PATCH", "/v1/config", r#"{"outbound": {"guardHttpTasks": true}}"#);
        assert_eq!(guarded.status, 200, "{}", guarded.body);
        let mut ids = Vec::new();
        for url in scene.vectors() {
            ids.extend(call(&url));
            ids.extend(fetch(&url));
        }
        assert!(ids.len() >= VECTORS_MIN, "{} tasks were taken", ids.len());
        for id in &ids {
            let task = scene.server.wait(id);
            assert_eq!(task["state"], "failed", "{task:#}");
        }
        assert_eq!(scene.blocked_ranges_reached(), Vec::<IpAddr>::new());
        for id in [call(&scene.url("http://public.test:{p}/")), fetch(&scene.url("http://public.test:{p}/"))] {
            assert_eq!(scene.server.wait(&id.unwrap())["state"], "completed");
        }
        scene.every_way_is_open();
    });
}

/// Outside: runs the named test again in a network of its own. Inside: runs it.
fn in_namespace(test: &str, body: impl FnOnce()) {
    if std::env::var(INSIDE).is_ok_and(|name| name == test) {
        return body();
    }
    guard::net::enter(test, INSIDE);
}
