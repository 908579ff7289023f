//! `docker` against a real engine, without a supervisor: what a container gets, what it is kept from, how it ends.

#[path = "support/engine.rs"]
mod engine;
mod support;

use std::time::{Duration, Instant};

use engine::{Engine, IMAGE};
use runyard_exec::workspace::Artifacts;
use runyard_exec::{Class, DockerRules, Fault, Job, Kind, Limits, Outcome, Places};
use serde_json::{Value, json};
use support::{TASK, TASK_TEXT, Yard, completed, failed, failed_as};

/// An engine, a worker without a supervisor, and no containers.
struct Bed {
    engine: Engine,
    yard: Yard,
}

impl Bed {
    fn new() -> Bed {
        Bed { engine: Engine::start(), yard: Yard::new() }
    }

    fn rules(&self) -> DockerRules {
        DockerRules { socket: self.engine.socket(), ..DockerRules::default() }
    }

    fn job(&self, fields: Value) -> Job {
        let mut payload = json!({ "image": IMAGE });
        payload.as_object_mut().expect("an object").extend(fields.as_object().cloned().expect("an object"));
        Job { docker: Some(Box::new(self.rules())), ..self.yard.job(Kind::Docker, payload) }
    }

    /// Runs it, and sees that nothing is left.
    async fn run(&self, job: Job) -> Outcome {
        let outcome = self.yard.start(job).end().await;
        assert_eq!(self.engine.containers(), [""; 0], "after {outcome:?}");
        outcome
    }

    async fn shell(&self, line: &str) -> Outcome {
        self.run(self.job(json!({ "shell": line }))).await
    }

    /// What a line prints.
    async fn said(&self, line: &str) -> String {
        let result = completed(self.shell(line).await);
        result["stdout"].as_str().expect("a text").trim().to_owned()
    }
}

#[tokio::test]
async fn docker_runs_a_command_with_its_output_files_and_report() {
    let bed = Bed::new();
    let result = completed(bed.run(bed.job(json!({ "command": ["echo", "hi", "there"] }))).await);
    assert_eq!(result, json!({ "exitCode": 0, "stdout": "hi there\n" }));
    assert_eq!(bed.yard.log_texts(), ["hi there"]);

    let failure = failed(bed.shell("echo out; echo no >&2; exit 3").await);
    assert_eq!((failure.class, failure.fault, &*failure.message), (Class::Task, Fault::Work, "exit code 3: no"));
    assert_eq!(failed_as(bed.shell("exit 124").await), (Class::Timeout, "exit code 124".to_owned()));

    let image_words = bed.job(json!({ "entrypoint": ["echo", "a"], "command": ["b"] }));
    assert_eq!(completed(bed.run(image_words).await)["stdout"], "a b\n");

    let job =
        bed.job(json!({ "shell": "cat; env", "stdin": "from stdin\n", "env": { "COLOUR": "blue", "HOME": "/here" } }));
    let said = completed(bed.run(job).await)["stdout"].as_str().expect("a text").to_owned();
    for line in [
        "from stdin",
        "COLOUR=blue",
        "HOME=/here",
        "RUNYARD_AGENT=ada",
        "RUNYARD_ATTEMPT=1",
        "RUNYARD_WORKDIR=/workspace",
        "RUNYARD_REPORT=/workspace/.runyard-report.jsonl",
        &format!("RUNYARD_TASK_ID={TASK_TEXT}"),
    ] {
        assert!(said.lines().any(|said| said == line), "{line} in {said}");
    }

    let report = r#"echo '{"progress":0.5,"message":"half"}' >> $RUNYARD_REPORT
        echo '{"result":{"pages":7}}' >> $RUNYARD_REPORT; grep -c docker task.json"#;
    assert_eq!(completed(bed.shell(report).await), json!({ "pages": 7 }));

    let job = bed.job(json!({
        "shell": "pwd; cat in/a.txt; mkdir out; echo made > out/b.txt; stat -c %u out/b.txt",
        "files": [{ "inline": "brought\n", "path": "in/a.txt" }],
        "outputs": ["out/**"],
    }));
    let said = completed(bed.run(job).await)["stdout"].as_str().expect("a text").to_owned();
    assert_eq!(said.lines().collect::<Vec<_>>(), ["/workspace", "brought", "65534"], "root gives its place to nobody");
    let places: &Places = bed.yard.executors.places();
    let (_, artifact) = Artifacts::open(places, TASK, "out/b.txt").expect("the artifacts").expect("one of them");
    assert_eq!(std::io::read_to_string(artifact).expect("a text"), "made\n");
    assert!(!places.work_dir(TASK).exists(), "the working directory is removed");
}

#[tokio::test]
async fn docker_keeps_a_container_in_its_place() {
    let bed = Bed::new();
    assert_eq!(bed.said("ls /sys/class/net").await, "lo");
    let root = bed.said("touch /x 2>&1; touch /tmp/a /run/b /workspace/c && echo fine").await;
    assert!(root.contains("Read-only file system") && root.ends_with("fine"), "{root}");
    let status = bed.said("grep -E '^(Cap|NoNewPrivs)' /proc/self/status").await;
    for line in status.lines() {
        let (name, value) = line.split_once(":").expect("a field");
        let expected = if name == "NoNewPrivs" { "1" } else { "0000000000000000" };
        assert_eq!(value.trim(), expected, "{name}");
    }
    assert_eq!(bed.said("id -u").await, "65534");
    assert_eq!(completed(bed.run(bed.job(json!({ "command": ["id", "-u"], "user": "7" }))).await)["stdout"], "7\n");

    let pids = Job {
        limits: Limits { pids: Some(16), ..Limits::default() },
        ..bed.job(json!({ "shell":
        "for i in $(seq 64); do sleep 1000 & done 2>&1; echo all" }))
    };
    let (class, message) = failed_as(bed.run(pids).await);
    assert_eq!(class, Class::Task, "{message}");
    let log = bed.yard.log_texts().join("\n");
    assert!(log.contains("can't fork") && !log.contains("all"), "{log}");

    let limits = Limits { cpu: Some(0.5), ram_mb: Some(64), pids: Some(33) };
    let running = bed.yard.start(Job { limits, ..bed.job(json!({ "shell": "echo ready; sleep 1000" })) });
    running.line("ready").await;
    let name = bed.engine.containers().pop().expect("a container");
    let asked = "{{.NanoCpus}} {{.Memory}} {{.MemorySwap}} {{.PidsLimit}} {{.NetworkMode}} {{.ReadonlyRootfs}} \
                 {{.CapDrop}} {{.SecurityOpt}} {{.LogConfig.Type}} {{.RestartPolicy.Name}} {{.Init}} {{.Privileged}}";
    let asked = asked.replace("{{.", "{{.HostConfig.");
    let told = bed.engine.docker(&["inspect", "--format", &asked, &name]);
    let memory = 64 << 20;
    let expected = format!("500000000 {memory} {memory} 33 none true [ALL] [no-new-privileges] none no true false");
    assert_eq!(told, expected);
    let labels = bed.engine.docker(&["inspect", "--format", "{{json .Config.Labels}}", &name]);
    let labels: Value = serde_json::from_str(&labels).expect("JSON");
    assert_eq!((&labels["runyard.task"], &labels["runyard.attempt"]), (&json!(TASK_TEXT), &json!("1")));
    assert_eq!(name, format!("runyard-{}-{TASK_TEXT}", labels["runyard.owner"].as_str().expect("an owner")));
    // What the kernel was told, in either version of control groups.
    let quota = "cat /sys/fs/cgroup/cpu.max 2>/dev/null || cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us";
    assert!(bed.engine.docker(&["exec", &name, "sh", "-c", quota]).starts_with("50000"));
    assert_eq!(running.stop_and_end().await, Outcome::Stopped);
}

#[tokio::test]
async fn docker_tells_a_container_that_was_out_of_memory_from_one_that_failed() {
    let bed = Bed::new();
    let limits = Limits { ram_mb: Some(32), ..Limits::default() };
    let hog = json!({ "shell": "exec dd if=/dev/zero of=/tmp/x bs=1M count=100" });
    for round in 0..5 {
        let outcome = bed.run(Job { limits, ..bed.job(hog.clone()) }).await;
        assert_eq!(failed_as(outcome), (Class::Task, "out of memory: limit 32 MB".to_owned()), "round {round}");
    }
    assert_eq!(failed_as(bed.shell("exit 137").await), (Class::Task, "exit code 137".to_owned()));
}

#[tokio::test]
async fn docker_stops_a_container_and_kills_one_that_does_not_listen() {
    let bed = Bed::new();
    let polite = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let running = bed.yard.start(bed.job(json!({ "shell": polite })));
    running.line("ready").await;
    let began = Instant::now();
    assert_eq!(running.stop_and_end().await, Outcome::Stopped);
    assert!(began.elapsed() < Duration::from_secs(20), "it was not waited for until its grace was over");
    assert!(bed.yard.log_texts().contains(&"bye".to_owned()));
    assert_eq!(bed.engine.containers(), [""; 0]);

    let deaf = json!({ "shell": "trap '' TERM; sleep 1000 & echo deaf; while :; do sleep 1; done" });
    let running = bed.yard.start(Job { grace: Duration::from_millis(300), ..bed.job(deaf) });
    running.line("deaf").await;
    assert_eq!(running.stop_and_end().await, Outcome::Stopped);
    assert_eq!(bed.engine.containers(), [""; 0]);

    let running = bed.yard.start(bed.job(json!({ "shell": "sleep 1000" })));
    assert_eq!(running.stop_and_end().await, Outcome::Stopped, "stopped on its way");
    assert_eq!(bed.engine.containers(), [""; 0]);

    // Dropping the run kills its container too, though nobody hears when.
    let running = bed.yard.start(bed.job(json!({ "shell": "echo dropped; sleep 1000" })));
    running.line("dropped").await;
    running.outcome.abort();
    while !bed.engine.containers().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn docker_takes_lines_of_input_while_it_runs() {
    let bed = Bed::new();
    let payload =
        json!({ "shell": "while read -r line; do echo got $line; done; echo end", "input": true, "message": "one" });
    let (running, sender) = bed.yard.start_open(bed.job(payload));
    running.line("got one").await;
    sender.hand_in(runyard_exec::InputLine { id: 5, text: "two".to_owned() }).expect("it takes input");
    running.taken(5).await;
    running.line("got two").await;
    drop(sender);
    assert_eq!(completed(running.end().await)["stdout"], "got one\ngot two\nend\n");
}

#[tokio::test]
async fn docker_refuses_what_can_never_run_and_blames_the_worker_for_its_engine() {
    let bed = Bed::new();
    let with = |rules: DockerRules, fields: Value| Job { docker: Some(Box::new(rules)), ..bed.job(fields) };
    let missing = bed.run(bed.job(json!({ "image": "no/such:1" }))).await;
    let message = "image no/such:1 is not there; pull it, or allow pull: true";
    assert_eq!(failed_as(missing), (Class::Permanent, message.to_owned()));
    for (rules, fields, part) in [
        (bed.rules(), json!({ "network": "host" }), "[docker] networks"),
        (bed.rules(), json!({ "pull": true }), "[docker] pull"),
        (bed.rules(), json!({ "readOnly": false }), "[docker] writableRoot"),
        (DockerRules { ram_mb_max: Some(256), ..bed.rules() }, json!({}), "[docker] ramMbMax = 256"),
        (bed.rules(), json!({ "command": ["/no/program"] }), "the command cannot be run in this image"),
        (
            DockerRules { networks: vec!["lan".to_owned()], ..bed.rules() },
            json!({ "network": "lan", "command": ["true"] }),
            "lan",
        ),
    ] {
        let (class, message) = failed_as(bed.run(with(rules, fields)).await);
        assert!(class == Class::Permanent && message.contains(part), "{class:?} {message}");
    }
    let rules = DockerRules { networks: vec!["host".to_owned()], writable_root: true, ..bed.rules() };
    let allowed =
        with(rules, json!({ "network": "host", "readOnly": false, "shell": "ls /sys/class/net | wc -l", "user": "0" }));
    completed(bed.run(allowed).await);

    let gone = DockerRules { socket: "/nowhere/docker.sock".into(), ..bed.rules() };
    let failure = failed(bed.run(with(gone, json!({ "command": ["true"] }))).await);
    assert_eq!((failure.class, failure.fault), (Class::Task, Fault::Worker), "{}", failure.message);
    assert!(failure.message.contains("/nowhere/docker.sock"), "{}", failure.message);
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_sees_the_end_of_a_container_that_others_bring_about() {
    let mut bed = Bed::new();
    // One log for all of them, so each says a word of its own.
    let endless = |word: &str| json!({ "shell": format!("echo {word}; sleep 1000") });
    let running = bed.yard.start(bed.job(endless("first")));
    running.line("first").await;
    bed.engine.docker(&["rm", "--force", &bed.engine.containers()[0]]);
    let (class, message) = failed_as(running.end().await);
    assert!(class == Class::Task && !message.contains("engine"), "{message}");

    let running = bed.yard.start(bed.job(endless("second")));
    running.line("second").await;
    bed.engine.restart();
    let failure = failed(running.end().await);
    assert_eq!((failure.class, failure.fault), (Class::Task, Fault::Work), "{}", failure.message);
    assert_eq!(bed.engine.containers(), [""; 0], "it is removed though the engine was away");
    assert_eq!(bed.said("echo again").await, "again");
}
