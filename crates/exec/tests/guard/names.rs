//! A name server: enough of the protocol to answer, and to answer differently the next time.

use std::collections::HashMap;
use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, Mutex};

/// For each name its answers, one after the other; the last one stays.
pub type Zone = Vec<(&'static str, Vec<Vec<IpAddr>>)>;

pub struct Names {
    asked: Arc<Mutex<HashMap<String, usize>>>,
}

/// Names that stand for others.
const ALIASES: [(&str, &str); 2] = [("alias.test", "loop.test"), ("public-alias.test", "public.test")];

const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
/// In the place of a name: the name of the question.
const SAME_NAME: [u8; 2] = [0xc0, 12];

impl Names {
    pub fn serve(zone: Zone) -> Names {
        let socket = UdpSocket::bind("127.0.0.1:53").expect("the namespace's own port");
        let asked = Arc::new(Mutex::new(HashMap::new()));
        let counts = asked.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while let Ok((n, from)) = socket.recv_from(&mut buffer) {
                if let Some(answer) = answer(&buffer[..n], &zone, &counts) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Names { asked }
    }

    /// How often its IPv4 addresses were asked for.
    pub fn n_asked(&self, name: &str) -> usize {
        self.asked.lock().expect("no panic").get(name).copied().unwrap_or(0)
    }
}

fn answer(query: &[u8], zone: &Zone, counts: &Mutex<HashMap<String, usize>>) -> Option<Vec<u8>> {
    let (name, end) = question(query)?;
    let kind = u16::from_be_bytes(query.get(end..end + 2)?.try_into().ok()?);
    let mut counts = counts.lock().expect("no panic");
    let n_asked = counts.entry(name.clone()).or_insert(0);
    *n_asked += usize::from(kind == A);
    let alias = ALIASES.iter().find(|(known, _)| *known == name).map(|(_, meant)| *meant);
    let meant = alias.unwrap_or(&name);
    let answers = zone.iter().find(|(known, _)| *known == meant).map(|(_, answers)| answers);
    let addresses = answers.map(|answers| &answers[(*n_asked).max(1).min(answers.len()) - 1][..]).unwrap_or(&[]);
    let fits = |ip: &&IpAddr| matches!((ip, kind), (IpAddr::V4(_), A) | (IpAddr::V6(_), AAAA));
    let owner = alias.map_or(SAME_NAME.to_vec(), written);
    let alias = alias.map(|meant| record(&SAME_NAME, CNAME, &written(meant)));
    let addresses = addresses.iter().filter(fits).map(|ip| address(&owner, ip));
    let records: Vec<Vec<u8>> = alias.into_iter().chain(addresses).collect();
    let code = if answers.is_some() { 0 } else { 3 };
    let mut out = query[..2].to_vec();
    out.extend([0x84, code, 0, 1]);
    out.extend((records.len() as u16).to_be_bytes());
    out.extend([0, 0, 0, 0]);
    out.extend(&query[12..end + 4]);
    out.extend(records.concat());
    Some(out)
}

/// The name that is asked for, and where it ends.
fn question(query: &[u8]) -> Option<(String, usize)> {
    let (mut labels, mut at) = (Vec::new(), 12);
    loop {
        let len = usize::from(*query.get(at)?);
        at += 1;
        if len == 0 {
            return Some((labels.join(".").to_ascii_lowercase(), at));
        }
        labels.push(String::from_utf8_lossy(query.get(at..at + len)?).into_owned());
        at += len;
    }
}

/// A name as it is sent.
fn written(name: &str) -> Vec<u8> {
    let labels = name.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
    labels.chain([0]).collect()
}

fn address(owner: &[u8], ip: &IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => record(owner, A, &ip.octets()),
        IpAddr::V6(ip) => record(owner, AAAA, &ip.octets()),
    }
}

/// Nobody may remember it.
fn record(owner: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
    let mut out = owner.to_vec();
    out.extend(kind.to_be_bytes());
    out.extend([0, 1, 0, 0, 0, 0]);
    out.extend((data.len() as u16).to_be_bytes());
    out.extend(data);
    out
}
