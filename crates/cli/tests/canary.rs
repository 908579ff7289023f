//! No secret is ever seen where it is not meant to be.
//!
//! Secrets of every kind are used by tasks that show them in every way they can, while the server is killed and started
//! again; then everything that the server has written, answered, logged and sent is searched for them, in the forms in
//! which texts are usually escaped.

#![allow(clippy::unwrap_used)]

#[path = "canary/haystack.rs"]
mod haystack;
#[path = "canary/peer.rs"]
mod peer;
mod support;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haystack::{Canary, Haystack};
use peer::Peer;
use serde_json::{Value, json};
use support::{Answer, Server, runs, stop_supervised, wait_until};

const SOON: Duration = Duration::from_secs(60);
/// With everything in it that is escaped somewhere.
const VAULT: &str = "canary/vault \"7d1f\"+\\ö?";
/// The variable that every server of these tests has.
const ENV: &str = "which no task may see";
const FILE: &str = "canary-file-first-line\ncanary-file-second-line";
const SUBSCRIPTION: &str = "whsec_Y2FuYXJ5LW9mLWEtc3Vic2NyaXB0aW9uLTEyMzQ1Njc4";
/// What a client writes in another way when it is part of a URL, each with what would then be seen.
const IN_URLS: [(&str, &str, &str); 4] = [
    ("turned", "CANARY\\TOKEN99", "CANARY/TOKEN99"),
    ("climbs", "x/../CANARYTOKEN98", "CANARYTOKEN98"),
    ("tabbed", "CANARY\tTOKEN97", "CANARYTOKEN97"),
    ("upper", "CANARYTOKEN96", "canarytoken96"),
];
const COLLECTOR: &str = "canary-of-the-collector-5b1e";
/// They exist to hold what is searched for.
const KEY_FILES: [&str; 2] = ["admin.key", "secrets.key"];

struct Stage {
    server: Server,
    home: tempfile::TempDir,
    key: String,
    heads: Haystack,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.server.kill9_if_alive();
        stop_supervised(&self.data());
    }
}

fn data_of(home: &Path) -> PathBuf {
    home.join("data")
}

fn start(home: &Path) -> Server {
    let secrets = format!(
        "[secrets.env]\nenv = \"SECRET_OF_THE_SERVER\"\n[secrets.file]\nfile = {:?}\n",
        home.join("secret").display().to_string()
    );
    let config = format!("[outbound]\nallow = [\"127.0.0.1\"]\n[log]\nlevel = \"debug\"\n{secrets}");
    Server::start_with(&data_of(home), &[], &config)
}

impl Stage {
    fn new() -> Stage {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("secret"), format!("{FILE}\n")).unwrap();
        let server = start(home.path());
        let key = std::fs::read_to_string(data_of(home.path()).join("admin.key")).unwrap().trim().to_owned();
        Stage { server, home, key, heads: Haystack::default() }
    }

    fn data(&self) -> PathBuf {
        data_of(self.home.path())
    }

    fn send(&mut self, method: &str, path: &str, body: &Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.server.try_request(method, path, &[("x-api-key", &self.key)], &body).unwrap();
        self.heads.add(&format!("head of {method} {path}"), &answer.head);
        answer
    }

    fn json(&mut self, method: &str, path: &str, body: Value) -> Value {
        let answer = self.send(method, path, &body);
        assert!(answer.status < 300, "{method} {path}: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap_or(Value::Null)
    }

    fn submit(&mut self, task: Value) -> String {
        self.json("POST", "/v1/tasks", task)["id"].as_str().unwrap().to_owned()
    }

    fn ended(&mut self, id: &str, state: &str) -> Value {
        let task = self.json("GET", &format!("/v1/tasks/{id}/wait?timeoutMs=60000"), Value::Null);
        assert_eq!(task["state"], state, "{task:#}");
        task
    }

    fn kill_and_start_again(&mut self) {
        self.server.kill9();
        self.server = start(self.home.path());
    }

    /// Every file of the data directory, the server's log among them.
    fn files(&self, found: &mut Haystack) {
        for path in files_below(&self.data()) {
            let name = path.strip_prefix(self.data()).unwrap().display().to_string();
            // A run that goes on writes its report, which is its own until it ends.
            let is_live = !runs(&self.data()).is_empty() && name.ends_with(".runyard-report.jsonl");
            if !KEY_FILES.contains(&name.as_str()) && !is_live {
                // A file may be gone by now.
                found.add(&name, &std::fs::read(&path).unwrap_or_default());
            }
        }
    }

    /// What every route that can be read says.
    fn answers(&mut self, tasks: &[String], found: &mut Haystack) {
        let api = self.json("GET", "/openapi.json", Value::Null);
        let paths: Vec<String> = api["paths"].as_object().unwrap().keys().cloned().collect();
        let delivery = self.json("GET", "/v1/webhooks/deliveries", Value::Null)["items"][0]["id"].to_string();
        let mut n_asked = 0;
        for path in paths.iter().filter(|path| api["paths"][path.as_str()].get("get").is_some()) {
            let all: Vec<String> = match path.as_str() {
                // It exists to show one of them; and this one does not end by itself.
                "/v1/webhooks/secret" | "/v1/events" => continue,
                path if path.starts_with("/v1/tasks/{id}") => {
                    let of_task = |id: &String| path.replace("{id}", id).replace("{path}", "a").replace("{*path}", "a");
                    tasks.iter().map(of_task).collect()
                }
                "/v1/webhooks/deliveries/{id}" => vec![path.replace("{id}", &delivery)],
                path => {
                    vec![path.replace("{key}", "agent:bot:main").replace("{id}", &tasks[0]).replace("{name}", "bot")]
                }
            };
            for path in all {
                let answer = self.send("GET", &path, &Value::Null);
                assert!(answer.status < 500, "{path}: {}", answer.body);
                n_asked += usize::from(answer.status == 200);
                found.add(&format!("GET {path}"), &answer.body);
            }
        }
        assert!(n_asked > 5 * tasks.len(), "{n_asked} routes were read");
    }

    /// All events so far, and those that come: progress is told to those who watch, and to nobody later.
    fn events(&self) -> Arc<Mutex<String>> {
        let stream = self.server.open("GET", "/v1/events?after=0-0", &[("x-api-key", &self.key)], b"").unwrap();
        let heard: Arc<Mutex<String>> = Arc::default();
        let hears = heard.clone();
        // Until the server ends.
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                hears.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        heard
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).map(|entries| entries.flatten().collect()).unwrap_or_else(|_| Vec::new());
    let below = |path: PathBuf| if path.is_dir() && !path.is_symlink() { files_below(&path) } else { vec![path] };
    entries.into_iter().flat_map(|entry| below(entry.path())).collect()
}

/// Tells everybody everything.
const BLABBER: &str = r#"
import base64, json, os, sys, time, urllib.parse
values = [os.environ[name] for name in ('VAULT', 'ENV', 'FILE')]
told = sys.stdin.read()
with open(os.environ['SEEN'], 'w') as seen:
    json.dump(values + [told], seen)
def b64(text, how=base64.b64encode):
    return how(text.encode()).decode()
def blab(out):
    for v in values:
        ways = [v, json.dumps(v), json.dumps(v, ensure_ascii=False), json.dumps(json.dumps(v)), repr(v),
                urllib.parse.quote(v, safe=''), urllib.parse.quote(v), urllib.parse.quote_plus(v),
                b64(v), b64('user:' + v), b64('x' + v + 'y', base64.urlsafe_b64encode)]
        for way in ways:
            print('so:', way, file=out)
    print('told:', told, 'x' * 9000, values[0], file=out)
    out.flush()
def report(line):
    with open(os.environ['RUNYARD_REPORT'], 'a') as file:
        file.write(json.dumps(line) + '\n')
blab(sys.stdout)
blab(sys.stderr)
for v in values:
    report({'progress': 0.5, 'message': 'x' * 490 + v})
    report({'progress': 0.6, 'message': 'at ' + v})
    report({'progress': v})
    report({'usage': {'inputTokens': v}})
while os.environ.get('GO') and not os.path.exists(os.environ['GO']):
    time.sleep(0.02)
blab(sys.stdout)
if os.environ['MODE'] == 'fail' or (os.environ['MODE'] == 'retry' and os.environ['RUNYARD_ATTEMPT'] == '1'):
    sys.exit('it fails with ' + values[0])
if os.environ['MODE'] == 'result':
    report({'result': {'values': values, 'json': json.dumps(values), values[1]: urllib.parse.quote(values[0])}})
"#;

fn process(mode: &str, seen: &Path, go: Option<&Path>) -> Value {
    json!({
        "kind": "process", "agent": "bot", "retry": {"maxRetries": u8::from(mode == "retry"), "backoffMs": 10},
        "payload": {
            "argv": ["python3", "-c", BLABBER], "stdin": "told secret://vault and secret://file", "workDir": "keep",
            "env": {
                "VAULT": "secret://vault", "ENV": "secret://env", "FILE": "secret://file", "MODE": mode, "SEEN": seen,
                "GO": go.map_or_else(String::new, |go| go.display().to_string()),
            },
        },
    })
}

fn http(url: &str, way: &str) -> Value {
    json!({
        "kind": "http", "agent": "bot", "retry": {"maxRetries": 1, "backoffMs": 10},
        "payload": {
            "url": format!("{url}{way}?q=secret://env"), "method": "POST",
            "headers": {"Authorization": "Bearer secret://env"}, "body": {"a": "secret://vault", "b": ["secret://file"]},
        },
    })
}

#[test]
fn no_secret_is_seen_where_it_is_not_meant_to_be() {
    let mut stage = Stage::new();
    let peer = Peer::start();
    stage.json("PUT", "/v1/secrets/vault", json!({"value": VAULT, "agents": ["bot"]}));
    for (name, value, _) in IN_URLS {
        stage.json("PUT", &format!("/v1/secrets/{name}"), json!({"value": value}));
    }
    stage.json("PATCH", "/v1/config", json!({"telemetry": {"otlpHeaders": [format!("x-api-key: {COLLECTOR}")]}}));
    let made = stage.json("POST", "/v1/keys", json!({"name": "other", "scopes": ["read"]}));
    let other_key = made["key"].as_str().or(made["secret"].as_str()).unwrap().to_owned();
    let own = stage.json("POST", "/v1/webhooks/secret/rotate", Value::Null);
    let own: Vec<String> =
        own["secrets"].as_array().unwrap().iter().map(|own| own["secret"].as_str().unwrap().to_owned()).collect();
    assert_eq!(own.len(), 2);
    let hook = json!({"url": format!("{}hook", peer.url), "events": ["*"], "secret": SUBSCRIPTION});
    stage.json("PATCH", "/v1/config", json!({"webhooks": {"all": hook}}));
    // The request of a key that is none: what was sent must not be quoted.
    let wrong = "ry_wrong-canary-key-that-is-not-known-1234567890";
    let refused = stage.server.try_request("GET", "/v1/tasks", &[("authorization", &format!("Bearer {wrong}"))], "");
    assert_eq!(refused.unwrap().status, 401);

    let (go, seen) = (stage.home.path().join("go"), stage.home.path().join("seen"));
    let with_callback = |mut task: Value| {
        task["callbackUrl"] = json!(format!("{}callback", peer.url));
        task
    };
    let adopted = stage.submit(with_callback(process("result", &seen, Some(&go))));
    wait_until(SOON, "it has its secrets", || {
        seen.exists() && std::fs::read(&seen).is_ok_and(|seen| seen.ends_with(b"]"))
    });
    let seen: Vec<String> = serde_json::from_slice(&std::fs::read(&seen).unwrap()).unwrap();
    assert_eq!(seen, [VAULT, ENV, FILE, &format!("told {VAULT} and {FILE}")]);

    let mut canaries =
        vec![Canary::new("vault", VAULT), Canary::new("env", ENV), Canary::new("subscription", SUBSCRIPTION)];
    canaries.extend(IN_URLS.iter().flat_map(|(name, value, seen)| [Canary::new(name, value), Canary::new(name, seen)]));
    canaries.push(Canary::new("collector", COLLECTOR));
    canaries.extend(FILE.lines().map(|line| Canary::new("file", line)));
    canaries.extend(own.iter().map(|own| Canary::new("webhooks", own)));
    canaries.extend([&stage.key, &other_key, wrong].map(|key| Canary::new("key", key)));

    // While it runs, under a supervisor that knows them.
    let mut found = Haystack::default();
    stage.files(&mut found);
    let run = runs(&stage.data()).remove(0);
    let supervisor: Value = serde_json::from_slice(&std::fs::read(run.join("supervisor.json")).unwrap()).unwrap();
    for file in ["environ", "cmdline"] {
        found.add(file, &std::fs::read(format!("/proc/{}/{file}", supervisor["pid"])).unwrap());
    }
    let input = std::fs::read_link(format!("/proc/{}/fd/0", supervisor["pid"])).unwrap();
    assert_eq!(input, Path::new("/dev/null"), "the memory that they came in is gone");
    stage.kill_and_start_again();

    let events = stage.events();
    let another = stage.home.path().join("another");
    let retried = stage.submit(with_callback(process("retry", &another, None)));
    let failed = stage.submit(with_callback(process("fail", &another, None)));
    let mut tasks = vec![adopted.clone(), retried.clone(), failed.clone()];
    let ways = [
        ("json", "completed"),
        ("text", "completed"),
        ("events", "completed"),
        ("moved", "failed"),
        ("broken", "failed"),
    ];
    let calls: Vec<(String, &str)> =
        ways.iter().map(|(way, state)| (stage.submit(with_callback(http(&peer.url, way))), *state)).collect();
    let nowhere = stage.submit(with_callback(http(&peer::closed(), "nowhere")));
    for (name, _, _) in IN_URLS {
        let payload = json!({"url": format!("{}p/secret://{name}?q=secret://{name}", peer::closed())});
        let task = json!({"kind": "http", "agent": "bot", "retry": {"maxRetries": 0}, "payload": payload});
        let id = stage.submit(with_callback(task));
        let message = stage.ended(&id, "failed")["error"]["message"].clone();
        assert!(message.as_str().unwrap().contains(&format!("/p/secret://{name}?q=secret://{name}")), "{message}");
        tasks.push(id);
        // Where it goes is nobody's secret.
        for url in [format!("http://a.secret://{name}.invalid/"), format!("http://secret://{name}@h/")] {
            let refused = stage.send("POST", "/v1/tasks", &json!({"kind": "http", "payload": {"url": url}}));
            assert!(refused.status == 400 && refused.body.contains("payload.url"), "{}", refused.body);
        }
    }
    std::fs::write(&go, "").unwrap();
    let result = stage.ended(&adopted, "completed")["result"].clone();
    assert_eq!(
        (&result["values"], &result["(secret)"]),
        (&json!(vec!["(secret)"; 3]), &json!("(secret)")),
        "{result:#}"
    );
    let result = stage.ended(&retried, "completed")["result"]["stdout"].clone();
    assert!(result.as_str().unwrap().contains("so: (secret)") || result.as_str().unwrap().ends_with("(secret)\n"));
    assert_eq!(stage.ended(&failed, "failed")["error"]["message"], "exit code 1: it fails with (secret)");
    for (id, state) in &calls {
        stage.ended(id, state);
    }
    let unreachable = stage.ended(&nowhere, "failed")["error"]["message"].clone();
    assert!(unreachable.as_str().unwrap().contains("q=secret://env"), "{unreachable}");
    assert!(peer.asked().contains(&format!("Bearer {ENV}")), "the peer was told");
    tasks.extend(calls.into_iter().map(|(id, _)| id).chain([nowhere]));
    let last = stage.submit(json!({"kind": "noop", "agent": "bot"}));
    stage.ended(&last, "completed");

    let is_last = |line: &str| line.contains(&last) && line.contains("task.completed");
    wait_until(SOON, "the last event came", || events.lock().unwrap().lines().any(is_last));
    let events = std::mem::take(&mut *events.lock().unwrap());
    assert!(events.contains("task.progress") && events.contains("task.failed"), "{events}");
    found.add("events", &events);
    stage.answers(&tasks, &mut found);
    wait_until(SOON, "all is told", || peer.hooks().len() > 2 * tasks.len());
    let copy = stage.data().join("copy.db");
    stage.json("POST", "/v1/backup", json!({"path": copy}));
    stage.kill_and_start_again();
    stage.answers(&tasks, &mut found);
    wait_until(SOON, "every end is acknowledged", || runs(&stage.data()).is_empty());
    assert!(stage.server.terminate().success());
    stage.files(&mut found);
    for (at, hook) in peer.hooks().iter().enumerate() {
        found.add(&format!("webhook {at}"), hook);
    }
    found.merge(std::mem::take(&mut stage.heads));
    assert!(found.contains("(secret)") > 100 && found.contains("secret://vault") > 10, "there was something to hide");
    let shown: Vec<String> = canaries.iter().flat_map(|canary| found.places_of(canary)).collect();
    assert!(shown.is_empty(), "{} places:\n{}", shown.len(), shown.join("\n"));
}
