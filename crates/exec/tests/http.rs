//! The `http` executor against tiny servers on loopback.

mod support;

use runyard_exec::outcome::Fault;
use runyard_exec::{Class, Kind, Outcome, Usage};
use serde_json::{Value, json};
use support::{TASK_TEXT, Yard, completed, failed, failed_as, usage};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Answers one request with these bytes, closes, and gives the request.
async fn serve(answer: impl Into<Vec<u8>>) -> (String, oneshot::Receiver<String>) {
    let answer = answer.into();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/path?q=1", listener.local_addr().expect("an address"));
    let (sender, request) = oneshot::channel();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let _ = sender.send(read_request(&mut stream).await);
        let _ = stream.write_all(&answer).await;
        let _ = stream.shutdown().await;
    });
    (url, request)
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0usize) {
                return text;
            }
        }
        if stream.read_buf(&mut bytes).await.expect("the request") == 0 {
            return text;
        }
    }
}

fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n{body}").into_bytes()
}

fn json_answer(body: &str) -> Vec<u8> {
    answer("200 OK", "content-type: application/json; charset=utf-8\r\n", body)
}

async fn outcome_of(answer: Vec<u8>) -> Outcome {
    let (url, _) = serve(answer).await;
    Yard::new().run(Kind::Http, json!({"url": url})).await
}

#[tokio::test]
async fn a_json_answer_is_passed_on_as_it_is() {
    let result = outcome_of(json_answer(r#"{"big": 12345678901234567890123, "a": [1]}"#)).await;
    let Outcome::Completed { result: Some(result), .. } = result else { panic!("{result:?}") };
    let expected = r#"{"status":200,"body":{"big": 12345678901234567890123, "a": [1]}}"#;
    assert_eq!(String::from_utf8(result).expect("text"), expected);
}

#[tokio::test]
async fn any_other_answer_is_a_text() {
    let plain = outcome_of(answer("201 Created", "content-type: text/plain\r\n", "hi\n")).await;
    assert_eq!(completed(plain), json!({"status": 201, "body": "hi\n"}));
    let empty = outcome_of(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n".to_vec()).await;
    assert_eq!(completed(empty), json!({"status": 204, "body": ""}));
}

#[tokio::test]
async fn an_answer_that_only_says_it_is_json_is_a_marked_text() {
    let broken = completed(outcome_of(json_answer("{not json")).await);
    assert_eq!(broken, json!({"status": 200, "body": "{not json", "notJson": true}));
    assert_eq!(completed(outcome_of(json_answer("")).await), json!({"status": 200, "body": ""}));
}

#[tokio::test]
async fn a_packed_answer_fails_and_names_its_encoding() {
    for (value, name) in [("gzip", "`gzip`"), ("BR", "`br`"), ("gzip, br", "`gzip, br`")] {
        let headers = format!("content-type: application/json\r\ncontent-encoding: {value}\r\n");
        let (class, message) = failed_as(outcome_of(answer("200 OK", &headers, "\u{1f}packed")).await);
        assert_eq!(class, Class::Task);
        assert!(message.contains(name), "{message}");
        let (class, message) = failed_as(outcome_of(answer("404 Not Found", &headers, "\u{1f}packed")).await);
        assert_eq!(class, Class::Permanent);
        assert!(message.contains(name) && !message.contains("packed"), "{message}");
    }
    let plain = outcome_of(answer("200 OK", "content-encoding: identity\r\n", "hi")).await;
    assert_eq!(completed(plain), json!({"status": 200, "body": "hi"}));
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n".to_vec();
    let (url, _) = serve(head).await;
    let head = Yard::new().run(Kind::Http, json!({"url": url, "method": "HEAD"})).await;
    assert_eq!(completed(head), json!({"status": 200, "body": ""}));
}

#[tokio::test]
async fn the_request_carries_method_headers_body_and_who_asks() {
    let (url, request) = serve(json_answer("1")).await;
    let payload = json!({
        "method": "put", "url": url, "body": {"a": 1},
        "headers": {"Authorization": "Bearer x", "X-Runyard-Attempt": "99", "X-Agent-Id": "mine"},
    });
    completed(Yard::new().run(Kind::Http, payload).await);
    let request = request.await.expect("a request");
    assert!(request.starts_with("PUT /path?q=1 HTTP/1.1\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\n{\"a\":1}"), "{request}");
    for header in [
        "authorization: Bearer x",
        "content-type: application/json",
        "x-agent-id: mine",
        "x-runyard-attempt: 1",
        &format!("x-runyard-task-id: {TASK_TEXT}"),
        &format!("idempotency-key: {TASK_TEXT}"),
    ] {
        assert_eq!(request.lines().filter(|line| line == &header).count(), 1, "{header} in\n{request}");
    }
    assert!(!request.contains("x-runyard-attempt: 99"), "{request}");
}

#[tokio::test]
async fn without_a_body_it_is_a_get_and_a_text_body_is_sent_as_text() {
    let (url, request) = serve(json_answer("1")).await;
    completed(Yard::new().run(Kind::Http, json!({"url": url})).await);
    assert!(request.await.expect("a request").starts_with("GET "));
    let (url, request) = serve(json_answer("1")).await;
    completed(Yard::new().run(Kind::Http, json!({"url": url, "body": "a \"text\""})).await);
    let request = request.await.expect("a request");
    assert!(request.starts_with("POST ") && request.ends_with("\r\n\r\na \"text\""), "{request}");
    assert!(request.contains("content-type: text/plain"));
}

#[tokio::test]
async fn every_status_has_its_class() {
    let table = [
        ("301 Moved Permanently", "location: http://elsewhere/\r\n", Class::Permanent, None),
        ("400 Bad Request", "", Class::Permanent, None),
        ("404 Not Found", "", Class::Permanent, None),
        ("408 Request Timeout", "", Class::Timeout, None),
        ("409 Conflict", "", Class::Task, None),
        ("425 Too Early", "", Class::Task, None),
        ("429 Too Many Requests", "", Class::Quota, None),
        ("429 Too Many Requests", "retry-after: 7\r\n", Class::Quota, Some(7000)),
        ("500 Internal Server Error", "", Class::Task, None),
        ("502 Bad Gateway", "", Class::Task, None),
        ("503 Service Unavailable", "", Class::Task, None),
        ("503 Service Unavailable", "retry-after: 2\r\n", Class::Quota, Some(2000)),
    ];
    for (status, headers, class, retry_after_ms) in table {
        let failure = failed(outcome_of(answer(status, headers, "the reason")).await);
        assert_eq!((failure.class, failure.retry_after_ms), (class, retry_after_ms), "{status}");
        assert!(failure.message.starts_with(&format!("HTTP {status}")), "{}", failure.message);
        assert!(failure.message.ends_with(": the reason"), "{}", failure.message);
        assert_eq!(failure.fault, Fault::Work);
    }
}

#[tokio::test]
async fn retry_after_may_be_a_date() {
    let headers = "retry-after: Fri, 31 Dec 2100 23:59:59 GMT\r\n";
    let failure = failed(outcome_of(answer("503 Service Unavailable", headers, "")).await);
    assert_eq!(failure.class, Class::Quota);
    assert!(failure.retry_after_ms.expect("a wait") > 1_000_000_000);
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_names_where_it_points() {
    let headers = "location: http://127.0.0.1:1/other\r\n";
    let (class, message) = failed_as(outcome_of(answer("302 Found", headers, "")).await);
    assert_eq!(class, Class::Permanent);
    assert!(message.contains("http://127.0.0.1:1/other"), "{message}");
}

#[tokio::test]
async fn only_the_first_part_of_a_refusal_is_quoted() {
    let body = "x".repeat(100_000);
    let (_, message) = failed_as(outcome_of(answer("500 Internal Server Error", "", &body)).await);
    assert_eq!(message.matches('x').count(), 2048);
}

#[tokio::test]
async fn no_answer_is_a_failure_of_the_task() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let yard = Yard::new();
    let (class, message) = failed_as(yard.run(Kind::Http, json!({"url": format!("http://{address}/")})).await);
    assert_eq!(class, Class::Task);
    assert!(message.contains(&address.to_string()) && message.contains("refused"), "{message}");
    let (class, _) = failed_as(yard.run(Kind::Http, json!({"url": "http://no-such-host.invalid/"})).await);
    assert_eq!(class, Class::Task);
}

#[tokio::test]
async fn a_broken_handshake_is_a_failure_of_the_task() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("https://{}/", listener.local_addr().expect("an address"));
    let yard = Yard::new();
    let run = yard.start(yard.job(Kind::Http, json!({"url": url})));
    let (mut stream, _) = listener.accept().await.expect("a connection");
    stream.write_all(b"this is not TLS").await.expect("sent");
    let (class, message) = failed_as(run.end().await);
    assert_eq!(class, Class::Task, "{message}");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_a_failure_of_the_task() {
    let (class, message) = failed_as(outcome_of(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n12345".to_vec()).await);
    assert_eq!(class, Class::Task);
    assert!(message.contains("broke off after 5 bytes"), "{message}");
}

#[tokio::test]
async fn a_bad_payload_is_permanent_and_names_the_field() {
    let yard = Yard::new();
    for (payload, field) in [
        (json!({"url": "http://x/", "surprise": 1}), "payload.surprise"),
        (json!({"url": "file:///etc/passwd"}), "payload.url"),
        (Value::Null, "payload"),
    ] {
        let (class, message) = failed_as(yard.run(Kind::Http, payload).await);
        assert_eq!(class, Class::Permanent);
        assert!(message.starts_with(field), "{message}");
    }
}

#[tokio::test]
async fn a_stop_aborts_the_request_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let yard = Yard::new();
    let run = yard.start(yard.job(Kind::Http, json!({"url": url})));
    let (mut stream, _) = listener.accept().await.expect("a connection");
    read_request(&mut stream).await;
    assert_eq!(run.stop_and_end().await, Outcome::Stopped);
    // The other side sees the connection end.
    assert_eq!(stream.read(&mut [0; 1]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn events_are_logged_as_they_arrive_and_joined_in_the_result() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let yard = Yard::new();
    let run = yard.start(yard.job(Kind::Http, json!({"url": url})));
    let (mut stream, _) = listener.accept().await.expect("a connection");
    read_request(&mut stream).await;
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head).await.expect("sent");
    stream.write_all(b": hello\n\nevent: delta\ndata: first\n\n").await.expect("sent");
    // The second event is sent only after the first was seen in the log.
    assert_eq!(run.line("first").await, "");
    stream.write_all(b"data: {\"n\":\ndata: 2}\n\ndata: [DONE]\n\n").await.expect("sent");
    drop(stream);
    let expected = json!({"status": 200, "text": "first\n{\"n\":\n2}", "lastEvent": {"n": 2}});
    assert_eq!(completed(run.end().await), expected);
    assert_eq!(yard.log_texts(), ["first", "{\"n\":", "2}"]);
}

#[tokio::test]
async fn a_stream_without_events_has_an_empty_text() {
    let stream = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_vec();
    assert_eq!(completed(outcome_of(stream).await), json!({"status": 200, "text": "", "lastEvent": null}));
}

#[tokio::test]
async fn a_long_answer_is_cut_in_the_result_and_whole_in_the_log() {
    let body = format!("[{}1]", "1,\n".repeat(600_000));
    let (url, _) = serve(json_answer(&body)).await;
    let yard = Yard::new();
    let outcome = yard.run(Kind::Http, json!({"url": url})).await;
    let Outcome::Completed { result: Some(bytes), .. } = &outcome else { panic!("{outcome:?}") };
    assert!(bytes.len() <= 1024 * 1024, "{}", bytes.len());
    let result = completed(outcome);
    assert_eq!((&result["status"], &result["truncated"]), (&json!(200), &json!(true)));
    assert!(result["body"].as_str().expect("a text").ends_with("… [truncated]"));
    let mut job = yard.job(Kind::Http, json!({"url": serve(answer("200 OK", "", &"y".repeat(2_000_000))).await.0}));
    job.attempt = 2;
    completed(yard.start(job).end().await);
    let log = yard.executors.places().log_file(support::TASK, 2);
    let (lines, _) = runyard_exec::log::read(&log, 0, usize::MAX >> 1).expect("the log can be read");
    assert_eq!(lines.iter().map(|line| line.text.len()).sum::<usize>(), 2_000_000);
}

#[tokio::test]
async fn a_message_is_posted_as_json() {
    let (url, request) = serve(json_answer("1")).await;
    let payload = json!({"url": url, "message": "a\nb", "media": [{"url": "x"}], "dropped": ["c"]});
    completed(Yard::new().run(Kind::Http, payload).await);
    let request = request.await.expect("a request");
    assert!(request.starts_with("POST ") && request.contains("content-type: application/json"), "{request}");
    let (_, body) = request.split_once("\r\n\r\n").expect("a body");
    assert_eq!(body, r#"{"message":"a\nb","media":[{"url":"x"}],"dropped":["c"]}"#);
}

#[tokio::test]
async fn a_body_of_its_own_is_sent_and_a_message_beside_it_is_noted() {
    let (url, request) = serve(json_answer("1")).await;
    let yard = Yard::new();
    completed(yard.run(Kind::Http, json!({"url": url, "message": "unheard", "body": "mine"})).await);
    assert!(request.await.expect("a request").ends_with("\r\n\r\nmine"));
    assert_eq!(yard.log_texts(), ["payload.message is not sent, because body is given beside it"]);
}

#[tokio::test]
async fn usage_is_read_from_json_answers_and_last_events() {
    let body = r#"{"text":"hi","usage":{"inputTokens":1,"contextTokens":6,"contextWindow":10,"more":true}}"#;
    let expected =
        Usage { input_tokens: Some(1), output_tokens: None, context_tokens: Some(6), context_window: Some(10) };
    let json = "content-type: application/problem+json\r\n";
    let events = "content-type: text/event-stream\r\n";
    for answer in [
        json_answer(body),
        answer("429 Too Many Requests", json, body),
        answer("200 OK", events, &format!("data: hi\n\ndata: {body}\n\ndata: [DONE]\n\n")),
    ] {
        assert_eq!(usage(&outcome_of(answer).await), Some(expected));
    }
    for other in [r#"{"usage":{"prompt_tokens":1}}"#, r#"{"usage":"none"}"#, "[1]"] {
        assert_eq!(usage(&outcome_of(json_answer(other)).await), None, "{other}");
    }
    assert_eq!(usage(&outcome_of(answer("200 OK", "content-type: text/plain\r\n", body)).await), None);
}

#[tokio::test]
async fn a_usage_of_the_wrong_type_is_noted_and_the_answer_counts() {
    let (url, _) = serve(json_answer(r#"{"usage":{"inputTokens":"many"}}"#)).await;
    let yard = Yard::new();
    let outcome = yard.run(Kind::Http, json!({"url": url})).await;
    assert_eq!(usage(&outcome), None);
    assert_eq!(completed(outcome)["status"], 200);
    let texts = yard.log_texts();
    assert!(texts[0].starts_with("in the answer, usage is not understood"), "{texts:?}");
}

#[tokio::test]
async fn a_short_answer_makes_no_log() {
    let (url, _) = serve(json_answer("{}")).await;
    let yard = Yard::new();
    completed(yard.run(Kind::Http, json!({"url": url})).await);
    assert!(!yard.log_file().exists());
}
