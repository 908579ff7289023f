//! Connections beside the store's: one of a test's own, and one that lies between the store and its database and can be cut.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use runyard_store::postgres::{Options, PgStore};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};

pub fn open(url: &str) -> PgStore {
    PgStore::open(options(url)).unwrap()
}

/// Patient enough for a machine that others use too.
pub fn options(url: &str) -> Options {
    Options { retry_for: Duration::from_secs(60), ..Options::new(url) }
}

/// A session as anybody has one.
pub struct Session {
    runtime: Runtime,
    client: Client,
}

impl Session {
    pub fn open(url: &str) -> Session {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (client, connection) = runtime.block_on(tokio_postgres::connect(url, NoTls)).unwrap();
        runtime.spawn(connection);
        Session { runtime, client }
    }

    pub fn run(&self, sql: &str) {
        self.runtime.block_on(self.client.batch_execute(sql)).unwrap();
    }

    pub fn number(&self, sql: &str) -> i64 {
        self.runtime.block_on(self.client.query_one(sql, &[])).unwrap().get(0)
    }

    /// Asks again until it is so.
    pub fn wait_until(&self, sql: &str) {
        for _ in 0..6000 {
            if self.runtime.block_on(self.client.query_one(sql, &[])).unwrap().get(0) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it is never so: {sql}");
    }
}

/// What happens to the next request on a proxied connection. Those after it pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    Pass,
    /// It never arrives.
    Request,
    /// It is done, and the answer to its commit never arrives.
    Answer,
    /// It arrives, and whoever sent it is cut off at once; the server notices nothing.
    Sender,
}

/// A way to the database that can be cut.
pub struct Proxy {
    pub url: String,
    cut: Arc<Mutex<Cut>>,
}

impl Proxy {
    pub fn to(url: &str, port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = url.replace(&format!(":{port}/"), &format!(":{}/", listener.local_addr().unwrap().port()));
        let cut = Arc::new(Mutex::new(Cut::Pass));
        let shared = cut.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                serve(client, server, shared.clone());
            }
        });
        Proxy { url, cut }
    }

    pub fn cut_next(&self, cut: Cut) {
        *self.cut.lock().unwrap() = cut;
    }

    pub fn is_cut(&self) -> bool {
        *self.cut.lock().unwrap() == Cut::Pass
    }
}

fn serve(mut client: TcpStream, mut server: TcpStream, cut: Arc<Mutex<Cut>>) {
    let (mut from_server, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let swallows = Arc::new(Mutex::new(false));
    let swallowing = swallows.clone();
    std::thread::spawn(move || {
        let mut bytes = [0; 65536];
        let mut swallowed = Vec::new();
        while let Ok(n @ 1..) = from_server.read(&mut bytes) {
            if *swallowing.lock().unwrap() {
                swallowed.extend_from_slice(&bytes[..n]);
                if swallowed.windows(7).any(|tag| tag == b"COMMIT\0") {
                    break;
                }
            } else if to_client.write_all(&bytes[..n]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
    std::thread::spawn(move || {
        let mut bytes = [0; 65536];
        while let Ok(n @ 1..) = client.read(&mut bytes) {
            match std::mem::replace(&mut *cut.lock().unwrap(), Cut::Pass) {
                Cut::Pass => {}
                Cut::Request => break,
                Cut::Answer => *swallows.lock().unwrap() = true,
                Cut::Sender => {
                    *swallows.lock().unwrap() = true;
                    server.write_all(&bytes[..n]).unwrap();
                    let _ = client.shutdown(Shutdown::Both);
                    // The server's side stays open until the other thread has seen the end of it.
                    return;
                }
            }
            if server.write_all(&bytes[..n]).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    });
}
