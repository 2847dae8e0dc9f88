//! A name server for tests, on loopback: it answers A, AAAA, SRV and NAPTR queries from a table.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

const A: u16 = 1;
const AAAA: u16 = 28;
const SRV: u16 = 33;
const NAPTR: u16 = 35;

/// Records of one name.
#[derive(Debug, Clone)]
pub enum Record {
    Address(Ipv4Addr),
    SixthVersion(Ipv6Addr),
    /// SRV with a weight of 0: priority, port, target.
    Service(u16, u16, &'static str),
    /// SRV: priority, weight, port, target.
    Weighted(u16, u16, u16, &'static str),
    /// NAPTR: order, service, and the name of its SRV records.
    Pointer(u16, &'static str, &'static str),
}

/// Ways in which a name server fails.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// It never answers queries for IPv6 addresses.
    DropsAaaa,
    /// It never answers queries for names with this ending.
    DropsUnder(&'static str),
    /// It answers no query after [`Faulty::begin_to_fail`].
    Silent,
    /// It answers SERVFAIL after [`Faulty::begin_to_fail`].
    Fails,
}

/// A name server that fails. Its answers have a TTL of 0, so that each name is queried again.
#[derive(Debug)]
pub struct Faulty {
    pub address: SocketAddr,
    fails: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
}

impl Faulty {
    pub fn serve(table: Vec<(&'static str, Record)>, fault: Fault) -> Self {
        let (fails, asked) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (switch, count) = (Arc::clone(&fails), Arc::clone(&asked));
        let address = listen(move |query| {
            AtomicUsize::fetch_add(&count, 1, Ordering::SeqCst);
            let fails = switch.load(Ordering::SeqCst);
            match fault {
                Fault::DropsAaaa if kind(query) == Some(AAAA) => None,
                Fault::DropsUnder(end) if asked_name(query)?.ends_with(end) => None,
                Fault::Silent if fails => None,
                Fault::Fails if fails => {
                    answer(query, &[], 0).map(|answer| with_status(answer, SERVFAIL))
                }
                Fault::DropsAaaa | Fault::DropsUnder(_) | Fault::Silent | Fault::Fails => {
                    answer(query, &table, 0)
                }
            }
        });

        Self {
            address,
            fails,
            asked,
        }
    }

    pub fn begin_to_fail(&self) {
        self.fails.store(true, Ordering::SeqCst);
    }

    /// Number of queries that have arrived.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Serves the table until the test's process ends.
pub fn serve(table: Vec<(&'static str, Record)>) -> SocketAddr {
    listen(move |query| answer(query, &table, 60))
}

fn listen(answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = socket.local_addr().expect("an address");
    thread::spawn(move || {
        let mut packet = [0; 1_500];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            if let Some(answer) = answer(&packet[..length]) {
                // The resolver may have closed its socket.
                let _ = socket.send_to(&answer, from);
            }
        }
    });
    address
}

const SERVFAIL: u8 = 2;

fn with_status(mut answer: Vec<u8>, status: u8) -> Vec<u8> {
    answer[3] = 0x80 | status;
    answer
}

/// The type that a query asks for. It follows the name, which a zero octet ends.
fn kind(query: &[u8]) -> Option<u16> {
    let end = 12 + query.get(12..)?.iter().position(|octet| *octet == 0)?;
    Some(u16::from_be_bytes([
        *query.get(end + 1)?,
        *query.get(end + 2)?,
    ]))
}

/// The name that a query asks for.
fn asked_name(query: &[u8]) -> Option<String> {
    let (mut at, mut labels) = (12, Vec::new());
    while *query.get(at)? != 0 {
        let length = usize::from(query[at]);
        labels.push(String::from_utf8_lossy(query.get(at + 1..at + 1 + length)?).to_lowercase());
        at += 1 + length;
    }
    Some(labels.join("."))
}

/// Answers a query with one question, as nearly all have. The answer has a TTL of `ttl` seconds.
fn answer(query: &[u8], table: &[(&'static str, Record)], ttl: u8) -> Option<Vec<u8>> {
    let (name, kind) = (asked_name(query)?, kind(query)?);
    let end = 12 + query.get(12..)?.iter().position(|octet| *octet == 0)?;
    let question = query.get(12..end + 5)?;
    let of_name: Vec<&Record> = table
        .iter()
        .filter(|(held, _)| *held == name)
        .map(|(_, record)| record)
        .collect();

    let found: Vec<Vec<u8>> = of_name
        .iter()
        .filter_map(|record| data(record, kind))
        .collect();
    // A name without records doesn't exist (NXDOMAIN); one with others only lacks this type.
    let status = if of_name.is_empty() { 3 } else { 0 };

    let mut out = Vec::from(&query[..2]);
    out.extend([
        0x81,
        0x80 | status,
        0,
        1,
        0,
        u8::try_from(found.len()).ok()?,
        0,
        0,
        0,
        0,
    ]);

    out.extend(question);
    for data in found {
        out.extend([0xc0, 12]); // the name of the question
        out.extend(kind.to_be_bytes());
        out.extend([0, 1, 0, 0, 0, ttl]); // IN
        out.extend(u16::try_from(data.len()).ok()?.to_be_bytes());
        out.extend(data);
    }

    Some(out)
}

fn data(record: &Record, kind: u16) -> Option<Vec<u8>> {
    match record {
        Record::Address(ip) if kind == A => Some(ip.octets().to_vec()),
        Record::SixthVersion(ip) if kind == AAAA => Some(ip.octets().to_vec()),
        Record::Service(priority, port, target) if kind == SRV => {
            Some(service([*priority, 0, *port], target))
        }
        Record::Weighted(priority, weight, port, target) if kind == SRV => {
            Some(service([*priority, *weight, *port], target))
        }

        Record::Pointer(order, service, target) if kind == NAPTR => {
            let mut data = Vec::new();
            for number in [*order, 0] {
                data.extend(number.to_be_bytes());
            }
            for text in ["s", service, ""] {
                data.push(u8::try_from(text.len()).expect("a short text"));
                data.extend(text.as_bytes());
            }
            data.extend(name(target));
            Some(data)
        }

        Record::Address(_)
        | Record::SixthVersion(_)
        | Record::Service(..)
        | Record::Weighted(..)
        | Record::Pointer(..) => None,
    }
}

fn service(numbers: [u16; 3], target: &str) -> Vec<u8> {
    let mut data: Vec<u8> = numbers
        .iter()
        .flat_map(|number| number.to_be_bytes())
        .collect();
    data.extend(name(target));
    data
}

fn name(name: &str) -> Vec<u8> {
    let mut data = Vec::new();
    for label in name.split('.') {
        data.push(u8::try_from(label.len()).expect("a label"));
        data.extend(label.as_bytes());
    }
    data.push(0);
    data
}
