//! Files from an address.

use runyard_exec::{Class, Outcome, WorkspaceRules};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::support::{Yard, failed};
use crate::zips::{Entry, zip};

/// Answers one request with these bytes, and then closes or, when told so, stays silent.
async fn serve(answer: Vec<u8>, then: Then) -> (String, oneshot::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/a", listener.local_addr().expect("an address"));
    let (sender, asked) = oneshot::channel();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut request).await.expect("a request") > 0);
        }
        let _ = stream.write_all(&answer).await;
        let _ = sender.send(String::from_utf8(request).expect("a text"));
        match then {
            Then::Close => drop(stream.shutdown().await),
            Then::Silence => drop(stream.read(&mut [0; 1]).await),
        }
    });
    (url, asked)
}

#[derive(Clone, Copy)]
enum Then {
    Close,
    Silence,
}

fn ok(body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

#[tokio::test]
async fn a_file_comes_from_an_address() {
    let yard = Yard::new();
    let (url, asked) = serve(ok(b"from afar"), Then::Close).await;
    assert_eq!(yard.staged(json!([{"url": url, "path": "x/a"}])).await, "./x/\n./x/a: from afar\n");
    let asked = asked.await.expect("a request");
    assert!(asked.starts_with("GET /a HTTP/1.1\r\n") && asked.contains("user-agent: runyard/"), "{asked}");
    let (url, _) = serve(ok(&zip(&[Entry::new("a", b"packed")])), Then::Close).await;
    assert_eq!(yard.staged(json!([{"url": url, "path": ".", "unzip": true}])).await, "./a: packed\n");
}

#[tokio::test]
async fn what_is_not_there_has_the_classes_of_an_http_task() {
    let table: [(&str, Class, Option<u64>, &str); 7] = [
        ("404 Not Found\r\n\r\nnothing here", Class::Permanent, None, "HTTP 404 Not Found: nothing here"),
        ("503 Unavailable\r\n\r\n", Class::Task, None, "HTTP 503"),
        ("503 Unavailable\r\nretry-after: 2\r\n\r\n", Class::Quota, Some(2000), "HTTP 503"),
        ("429 Too Many\r\nretry-after: 7\r\n\r\n", Class::Quota, Some(7000), "HTTP 429"),
        ("302 Found\r\nlocation: http://elsewhere/\r\n\r\n", Class::Permanent, None, "redirects are not followed"),
        ("200 OK\r\ncontent-length: 10\r\n\r\nhalf", Class::Task, None, "broke off after 4 bytes"),
        ("200 OK\r\ncontent-encoding: gzip\r\n\r\nnoise", Class::Task, None, "content-encoding `gzip`"),
    ];
    for (answer, class, retry_after_ms, part) in table {
        let (url, _) = serve(format!("HTTP/1.1 {answer}").into_bytes(), Then::Close).await;
        let yard = Yard::new();
        let files = json!([{"url": url, "path": "a"}]);
        let failure = failed(yard.start(yard.staging(files, WorkspaceRules::default())).end().await);
        assert_eq!((failure.class, failure.retry_after_ms), (class, retry_after_ms), "{answer}");
        assert!(failure.message.starts_with("files[0] `a`: "), "{}", failure.message);
        assert!(failure.message.contains(part) && failure.message.contains(&url), "{}", failure.message);
        assert_eq!(yard.work_files(), Vec::<String>::new());
    }
}

/// It does not end by itself: only the limit ends it.
#[tokio::test]
async fn a_download_is_cut_off_at_the_budget() {
    for unzip in [false, true] {
        let endless = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'x'; 5000]].concat();
        let (url, _) = serve(endless, Then::Silence).await;
        let rules = WorkspaceRules { files_bytes_max: 4999, ..WorkspaceRules::default() };
        let files = json!([{"url": url, "path": "a", "unzip": unzip}]);
        let (class, message) = Yard::new().refused(files, rules).await;
        assert_eq!(class, Class::Permanent);
        assert!(message.contains("process.filesBytesMax"), "{message}");
    }
}

/// An archive may be as large as what comes out of it, and beside it does not count.
#[tokio::test]
async fn a_downloaded_archive_does_not_count_beside_its_content() {
    let yard = Yard::new();
    let archive = zip(&[Entry::stored("a", &[b'x'; 900])]);
    let (url, _) = serve(ok(&archive), Then::Close).await;
    let rules = WorkspaceRules { files_bytes_max: archive.len() as u64, ..WorkspaceRules::default() };
    let files = json!([{"url": url, "path": ".", "unzip": true}]);
    let outcome = yard.start(yard.staging(files, rules)).end().await;
    assert!(matches!(outcome, Outcome::Completed { .. }), "{outcome:?}");
}

#[tokio::test]
async fn a_stop_while_files_are_staged_ends_it_there() {
    let yard = Yard::new();
    let (url, asked) = serve(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf".to_vec(), Then::Silence).await;
    let files = json!([{"inline": "1", "path": "first"}, {"url": url, "path": "a"}]);
    let run = yard.start(yard.staging(files, WorkspaceRules::default()));
    asked.await.expect("it asks");
    assert_eq!(run.stop_and_end().await, Outcome::Stopped);
    assert_eq!(yard.work_files(), Vec::<String>::new());
    assert!(!yard.log_file().exists(), "the command ran");
}
