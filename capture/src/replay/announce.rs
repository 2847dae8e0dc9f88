//! Announces the replayed sides to the daemon by OPTIONS. The daemon may have monitored their ports while no process listened, and sends no
//! calls to peers that it considers down; on an OPTIONS from such a port it probes again at once.

use std::sync::mpsc::channel;
use std::time::Duration;

use super::Options;
use super::closing::answering;
use super::link::Link;
use super::rewrite::fresh;
use crate::flow::Role;
use crate::message::Message;

/// Time to wait for a response, and after that for a probe by the daemon.
const PATIENCE: Duration = Duration::from_millis(600);
const PROBE_WAIT: Duration = Duration::from_millis(250);

/// Sends an OPTIONS from each replayed side, and answers the daemon's probes. A side whose port can't be opened is skipped: the replay itself
/// reports it.
pub fn announce(options: &Options) {
    let (sender, incoming) = channel();
    let sides = [
        (Role::Runtime, options.runtime),
        (Role::Other, options.other),
    ];
    let links: Vec<(Role, Link)> = sides
        .into_iter()
        .filter_map(|(role, at)| Some((role, Link::listening(at?, role, &sender).ok()?)))
        .collect();
    if links.is_empty() {
        return;
    }

    for (_, link) in &links {
        link.ask(options.target, ping(link, options).as_bytes());
    }

    let mut until = (options.now)() + PATIENCE;
    while (options.now)() < until {
        let Ok(came) = incoming.recv_timeout(until.since((options.now)())) else {
            return;
        };

        let message = Message::parse(&came.octets);
        if message.status().is_some() {
            // The daemon is up: only its probe is still awaited, and may not come.
            until = until.min((options.now)() + PROBE_WAIT);
            continue;
        }

        let link = links.iter().find(|(role, _)| *role == came.party);
        if let Some((_, link)) = link {
            // The daemon repeats a probe whose response is lost.
            let _ = link.send(&answering(&message, 200, "OK").to_octets());
        }
    }
}

fn ping(link: &Link, options: &Options) -> String {
    let (at, target, id) = (link.local, options.target, fresh());
    format!(
        "OPTIONS sip:{target} SIP/2.0\r\nVia: SIP/2.0/UDP {at};branch=z9hG4bK{id};rport\r\nMax-Forwards: 70\r\n\
         From: <sip:replay@{at}>;tag={id}\r\nTo: <sip:{target}>\r\nCall-ID: {id}\r\nCSeq: 1 OPTIONS\r\n\
         Contact: <sip:replay@{at}>\r\nContent-Length: 0\r\n\r\n"
    )
}
