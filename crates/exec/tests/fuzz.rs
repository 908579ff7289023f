//! Files and payloads that nobody of ours wrote.

use proptest::prelude::*;
use runyard_exec::process::supervise::survey;
use runyard_exec::{Places, Sandbox, log, secret, takes_input, validate_payload};
use serde_json::value::RawValue;

/// A JSON value of some depth, as text.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "-?(0|[1-9][0-9]{0,19})",
        "[ -!#-\\[\\]-~]{0,20}".prop_map(|text| format!("\"{text}\"")),
        Just("\"secret://a\"".to_owned()),
    ];
    leaf.prop_recursive(3, 16, 5, |inner| {
        let key = prop::sample::select(vec![
            "argv", "shell", "cwd", "env", "stdin", "input", "sandbox", "url", "headers", "body", "method", "message",
            "media", "sleepMs", "fail", "result", "x",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            prop::collection::btree_map(key, inner, 0..4).prop_map(|fields| {
                let fields: Vec<_> = fields.into_iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                format!("{{{}}}", fields.join(","))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn any_payload_is_taken_or_refused(text in json(), kind in prop::sample::select(vec!["http", "process", "noop", "own"])) {
        let payload = RawValue::from_string(text).expect("JSON");
        if let Err(error) = validate_payload(kind, &payload, Sandbox::None) {
            prop_assert!(error.field.starts_with("payload"), "{error}");
        }
        takes_input(kind, Some(&payload));
        secret::references(&payload);
    }

    /// The log of a task is as its process wrote it, and a disk may damage it: lines that are not ours are left out.
    #[test]
    fn any_log_file_is_read_to_its_end(
        pieces in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..60),
            Just(b"2026-11-16T04:50:07.412Z O text\n".to_vec()),
            Just(b"2026-11-16T04:50:07.412Z e \xff\n".to_vec()),
            Just(b"9999999-01-01T00:00:00Z O x\n".to_vec()),
            Just(b"\n".to_vec()),
        ], 0..12),
        offset in 0u64..400,
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let bytes = pieces.concat();
        std::fs::write(&path, &bytes).expect("written");
        let (lines, next) = log::read(&path, offset, 1 << 20).expect("readable");
        prop_assert!(next >= offset && next <= offset.max(bytes.len() as u64));
        prop_assert!(lines.len() <= bytes.iter().filter(|byte| **byte == b'\n').count());
        prop_assert_eq!(log::read(&path, next, 1 << 20).expect("readable").1, next, "its end is its end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Leases and records of runs are files that anybody with the data directory can touch. No process is hurt by what
    /// stands in them: a pid is believed only with its start time.
    #[test]
    fn any_files_of_runs_are_looked_at_or_set_aside(
        name in "[a-zA-Z0-9_.-]{1,40}",
        content in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..80),
            json().prop_map(String::into_bytes),
            (any::<i32>(), any::<u64>(), ".{0,10}").prop_map(|(pid, start, text)| serde_json::json!({
                "task_id": text, "agent": text, "pid": pid, "recipe": text, "started_at": text, "heartbeat": text,
                "host": text, "attempt": 1, "boot_id": text, "process_start": start,
                "metadata": {"command_pid": pid, "command_start": start},
            }).to_string().into_bytes()),
        ],
    ) {
        let dir = tempfile::tempdir().expect("a directory");
        let places = Places::new(dir.path()).expect("places");
        for root in ["running", "runs"] {
            std::fs::create_dir_all(dir.path().join(root)).expect("made");
        }
        let id = "01a1e226-0890-75c0-99e6-301d0345656c";
        let lease = dir.path().join("running").join(format!("task_{id}.json"));
        std::fs::write(&lease, &content).expect("written");
        std::fs::write(dir.path().join("running").join(&name), &content).ok();
        let run = dir.path().join("runs").join(format!("{id}-1"));
        std::fs::create_dir_all(&run).expect("made");
        for file in ["job.json", "exit.json", "identity.json"] {
            std::fs::write(run.join(file), &content).expect("written");
        }
        let survey = survey(&places).expect("it can be looked at");
        prop_assert!(survey.live.is_empty() && survey.n_killed == 0);
    }
}
