//! Receivers of webhooks as they are: down, slow, wrong, or out to do harm. None of them costs more than a try, and none
//! holds up the others.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::scene::{Peer, Reply, SOON, Scene, n, text};
use crate::support::wait_until;
use crate::webhooks::{LOCAL, taken, until_asked};

/// What the sender of a message may read before it has heard enough, with all that sockets hold between the two.
const READ_MAX: u64 = 16 << 20;

/// Does with each connection what the test says, after it has read the message.
struct Hostile {
    address: SocketAddr,
    /// Bytes that were sent back on all connections.
    n_sent: Arc<AtomicU64>,
    /// Connections that are over.
    n_over: Arc<AtomicU64>,
}

impl Hostile {
    fn start(act: impl Fn(&mut Counted) -> std::io::Result<()> + Send + Sync + 'static) -> Hostile {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (n_sent, n_over) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let (sent, over, act) = (n_sent.clone(), n_over.clone(), Arc::new(act));
        // It holds nothing but its port, and lives until the test's process ends.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (sent, over, act) = (sent.clone(), over.clone(), act.clone());
                std::thread::spawn(move || {
                    let mut counted = Counted { stream, sent };
                    // Whoever has heard enough hangs up: that ends it, as it should.
                    let _ = act(&mut counted);
                    over.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Hostile { address, n_sent, n_over }
    }

    fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}/", self.address)
    }

    fn until_over(&self) {
        wait_until(SOON, "the sender hangs up", || self.n_over.load(Ordering::SeqCst) > 0);
    }
}

struct Counted {
    stream: TcpStream,
    sent: Arc<AtomicU64>,
}

impl Counted {
    fn read_message(&mut self) -> std::io::Result<()> {
        let mut reader = BufReader::new(&mut self.stream);
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let at = head.len();
            reader.read_line(&mut head)?;
            let line = head[at..].to_ascii_lowercase();
            length = line.strip_prefix("content-length:").map_or(length, |length| length.trim().parse().unwrap());
        }
        reader.read_exact(&mut vec![0; length])
    }

    /// For ever, or until nobody listens.
    fn repeat(&mut self, part: &[u8]) -> std::io::Result<()> {
        let block = part.repeat(65_536 / part.len() + 1);
        loop {
            self.send(&block)?;
        }
    }

    fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)?;
        self.sent.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        Ok(())
    }
}

impl Scene {
    /// The only message there is, once it was tried.
    fn tried(&self) -> Value {
        let mut found = Value::Null;
        wait_until(SOON, "it was tried", || {
            let deliveries = self.deliveries("");
            found = deliveries.into_iter().find(|delivery| n(&delivery["tries"]) == 1).unwrap_or(Value::Null);
            !found.is_null()
        });
        found
    }

    /// What one try at this place comes to.
    fn tell(&self, url: &str) -> Value {
        self.submit(json!({"kind": "noop", "callbackUrl": url}));
        self.tried()
    }
}

#[test]
fn an_answer_without_end_is_not_read_to_its_end() {
    let scene = Scene::with(LOCAL);
    let receiver = Hostile::start(|peer| {
        peer.read_message()?;
        peer.send(b"HTTP/1.1 200 OK\r\n\r\n")?;
        peer.repeat(b"no end ")
    });
    let delivery = scene.tell(&receiver.url("http"));
    assert_eq!((&delivery["state"], &delivery["log"][0]["status"]), (&json!("delivered"), &json!(200)));
    receiver.until_over();
    assert!(receiver.n_sent.load(Ordering::SeqCst) < READ_MAX);
}

#[test]
fn headers_without_end_are_a_failed_try() {
    let scene = Scene::with(LOCAL);
    let receiver = Hostile::start(|peer| {
        peer.read_message()?;
        peer.send(b"HTTP/1.1 200 OK\r\n")?;
        peer.repeat(b"x-filler: no end\r\n")
    });
    let delivery = scene.tell(&receiver.url("http"));
    assert_eq!((&delivery["state"], delivery["log"][0].get("status")), (&json!("pending"), None));
    receiver.until_over();
    assert!(receiver.n_sent.load(Ordering::SeqCst) < READ_MAX);
}

#[test]
fn one_header_without_end_is_a_failed_try() {
    let scene = Scene::with(LOCAL);
    let receiver = Hostile::start(|peer| {
        peer.read_message()?;
        peer.send(b"HTTP/1.1 200 OK\r\nx-filler: ")?;
        peer.repeat(b"no end ")
    });
    let delivery = scene.tell(&receiver.url("http"));
    assert_eq!((&delivery["state"], delivery["log"][0].get("status")), (&json!("pending"), None));
    receiver.until_over();
    assert!(receiver.n_sent.load(Ordering::SeqCst) < READ_MAX);
}

/// "Wait, there is more", for ever: the time of the try ends it.
#[test]
fn interim_answers_without_end_are_a_failed_try() {
    let scene = Scene::with(LOCAL);
    let receiver = Hostile::start(|peer| {
        peer.read_message()?;
        peer.repeat(b"HTTP/1.1 100 Continue\r\n\r\n")
    });
    let delivery = scene.tell(&receiver.url("http"));
    assert_eq!((&delivery["state"], delivery["log"][0].get("status")), (&json!("pending"), None));
    receiver.until_over();
}

#[test]
fn what_is_no_answer_is_a_failed_try() {
    let scene = Scene::with(LOCAL);
    let acts: [fn(&mut Counted) -> std::io::Result<()>; 4] = [
        // Closed with the message unread: a reset.
        |_| Ok(()),
        |peer| peer.read_message(),
        |peer| peer.read_message().and_then(|()| peer.send(b"HTTP/1.1 2")),
        |peer| peer.read_message().and_then(|()| peer.send(b"SSH-2.0-OpenSSH_9.9\r\n")),
    ];
    for act in acts {
        let id = scene.submit(json!({"kind": "noop", "callbackUrl": Hostile::start(act).url("http")}));
        let one = || scene.deliveries(&format!("task={id}")).into_iter().find(|delivery| n(&delivery["tries"]) == 1);
        wait_until(SOON, "it was tried", || one().is_some());
        let delivery = one().unwrap();
        let tried = &delivery["log"][0];
        assert_eq!((&delivery["state"], tried.get("status")), (&json!("pending"), None), "{delivery:#}");
        assert!(!text(&tried["error"]).is_empty() && delivery["nextAt"].is_string());
    }
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_a_failed_try() {
    let scene = Scene::with(LOCAL);
    let config = Arc::new(own_certificate());
    let has_spoken = Arc::new(AtomicBool::new(false));
    let spoken = has_spoken.clone();
    let receiver = Hostile::start(move |peer| {
        let mut tls = rustls::ServerConnection::new(config.clone()).unwrap();
        let shaken = tls.complete_io(&mut peer.stream);
        spoken.store(shaken.is_ok() && !tls.is_handshaking(), Ordering::SeqCst);
        Ok(())
    });
    let delivery = scene.tell(&receiver.url("https"));
    let error = text(&delivery["log"][0]["error"]);
    assert!(error.contains("certificate"), "{error}");
    receiver.until_over();
    assert!(!has_spoken.load(Ordering::SeqCst), "nothing is said to whoever it is");
}

fn own_certificate() -> rustls::ServerConfig {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key.into()).unwrap()
}

#[test]
fn a_receiver_that_hangs_is_left_after_ten_seconds_and_holds_up_nobody() {
    let scene = Scene::with(LOCAL);
    let (slow, quick) = (Peer::start(|_| Reply::Silence), Peer::start(taken));
    let stuck: Vec<String> =
        (0..20).map(|_| scene.submit(json!({"kind": "noop", "callbackUrl": slow.url()}))).collect();
    // As many as may be on their way to one receiver.
    until_asked(&slow, 8);
    let began = Instant::now();
    (0..20).for_each(|_| drop(scene.submit(json!({"kind": "noop", "callbackUrl": quick.url()}))));
    scene.until_deliveries("the others are told", 20, "state=delivered");
    assert_eq!(slow.asked().len(), 8, "after {:?}", began.elapsed());
    slow.until_hung_up();
    let failed = || scene.deliveries("state=pending").into_iter().find(|delivery| n(&delivery["tries"]) == 1);
    wait_until(SOON, "the first try is over", || failed().is_some());
    let delivery = failed().unwrap();
    assert!(stuck.contains(&text(&delivery["task"])));
    assert_eq!(delivery["log"][0]["error"], "no answer within 10 s");
    assert!((9_900..20_000).contains(&n(&delivery["log"][0]["ms"])), "{delivery:#}");
}

/// Opens, others go on, one probe, closes; and those that waited have lost no try by it.
#[test]
fn a_receiver_that_is_down_is_asked_rarely_until_it_is_well() {
    let scene = Scene::with(LOCAL);
    let is_well = Arc::new(AtomicBool::new(false));
    let asked_at: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let (well, at) = (is_well.clone(), asked_at.clone());
    let sick = Peer::start(move |_| {
        at.lock().unwrap().push(Instant::now());
        if !well.load(Ordering::SeqCst) {
            return Reply::text(500, "");
        }
        // The first one is the probe; it takes a moment.
        std::thread::park_timeout(Duration::from_millis(200));
        Reply::json(json!({}))
    });
    let ids: Vec<String> = (0..40).map(|_| scene.submit(json!({"kind": "noop", "callbackUrl": sick.url()}))).collect();
    let metrics = || scene.request("GET", "/metrics", "").body;
    wait_until(SOON, "it is shut out", || metrics().contains("runyard_webhook_targets_shut 1"));
    let untried = || scene.deliveries("state=pending&limit=1000").into_iter().filter(|d| n(&d["tries"]) == 0);
    wait_until(SOON, "all messages are there", || scene.deliveries("limit=1000").len() == ids.len());
    let n_asked = sick.asked().len();
    assert!(n_asked < 5 + 8, "five failures, and what was on its way: {n_asked}");
    let healthy = Peer::start(taken);
    (0..10).for_each(|_| drop(scene.submit(json!({"kind": "noop", "callbackUrl": healthy.url()}))));
    scene.until_deliveries("the others are told", 10, "state=delivered");
    assert_eq!(sick.asked().len(), n_asked);
    let waiting: Vec<u64> = untried().map(|delivery| n(&delivery["id"])).collect();
    assert!(waiting.len() >= ids.len() - n_asked);
    is_well.store(true, Ordering::SeqCst);
    wait_until(2 * SOON, "all of them are told", || {
        scene.deliveries("state=delivered&limit=1000").len() == ids.len() + 10
    });
    let asked_at = asked_at.lock().unwrap();
    let probe = asked_at.iter().position(|at| *at - asked_at[0] > Duration::from_secs(20)).unwrap();
    assert_eq!(probe, n_asked, "nobody is asked while it is shut out");
    let alone = asked_at[probe + 1] - asked_at[probe];
    assert!(alone >= Duration::from_millis(190), "one probe, and the others behind it: {alone:?}");
    for delivery in scene.deliveries("state=delivered&limit=1000") {
        let is_first = waiting.contains(&n(&delivery["id"]));
        assert!(!is_first || n(&delivery["tries"]) == 1, "waiting costs no try: {delivery:#}");
    }
    assert!(metrics().contains("runyard_webhook_targets_shut 0"));
}

/// A URL may be a secret: it is not in the log of deliveries, not in the server's, and in no error.
#[test]
fn the_rest_of_a_url_is_told_to_nobody() {
    let scene = Scene::with(LOCAL);
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let canary = "canary-51c9";
    let url = format!("http://{dead}/{canary}/x?token={canary}");
    let delivery = scene.tell(&url);
    let shown = scene.get(&format!("/v1/webhooks/deliveries/{}", delivery["id"]));
    assert_eq!(shown["target"], json!(format!("http://{dead}")));
    assert!(text(&shown["log"][0]["error"]).contains("refused"), "{shown:#}");
    assert!(!shown.to_string().contains(canary) && !scene.server_log().contains(canary));
    assert!(!scene.get("/v1/webhooks/deliveries").to_string().contains(canary));
}

/// A submitter whose hundred receivers take every connection and never answer has its share of the tries, and no more:
/// the messages of another agent, and those of a subscription, go out at once.
#[test]
fn an_agent_with_many_silent_receivers_holds_up_nobody_else() {
    let subscribed = Peer::start(taken);
    let events = "events = [\"task.completed\"]\nagents = [\"other\"]\n";
    let hook = format!("{LOCAL}[webhooks.ends]\nurl = \"{}\"\n{events}", subscribed.url());
    let scene = Scene::with(&hook);
    let silent: Vec<TcpListener> = (0..140).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    for _ in 0..4 {
        let task = |listener: &TcpListener| {
            let url = format!("http://{}/", listener.local_addr().unwrap());
            json!({"kind": "noop", "agent": "greedy", "callbackUrl": url})
        };
        let tasks: Vec<Value> = silent.iter().map(task).collect();
        scene.expect(201, "POST", "/v1/batches", json!({"tasks": tasks}));
    }
    wait_until(SOON, "all of them have ended", || n(&scene.stats()["metrics"]["completed"]) == 4 * 140);
    let peer = Peer::start(taken);
    let began = Instant::now();
    scene.submit(json!({"kind": "noop", "agent": "other", "callbackUrl": peer.url()}));
    until_asked(&peer, 1);
    until_asked(&subscribed, 1);
    assert!(began.elapsed() < Duration::from_secs(5), "it waited {:?} behind another's receivers", began.elapsed());
    drop(silent);
}
