//! SIP for Trunkline, sans-IO: no sockets, no clock, no executor.
//!
//! [`endpoint::Endpoint`] holds the transactions of one shard. Octets go in through [`receive`](endpoint::Endpoint::receive), together with
//! the [`Flow`](flow::Flow) that brought them and the [`Moment`](moment::Moment) of arrival; what is to be sent is drained as
//! [`transmits`](endpoint::Endpoint::transmits). Randomness is an input too ([`entropy::Entropy`]), so that any run can be repeated.
//!
//! The protocol is that of RFC 3261; each module names the section that it implements:
//!
//! - [`wire`]: octets and messages; [`header`]: header values as types
//! - [`transaction`]: the four machines of §17, their tables and tombstones; [`endpoint`]: the face of them all
//! - [`dialog`]: route set, CSeq, target, session timer, SDP of our own; [`auth`]: digest, as server and as client
//! - [`slot`]: our tags and branches, and what they carry; [`wheel`]: one timer wheel a shard
//! - [`moment`], [`entropy`], [`flow`]: time, randomness and the way of a message, as plain values
//!
//! # Example
//!
//! An endpoint accepts an OPTIONS and answers it with 200:
//!
//! ```
//! use std::time::Duration;
//!
//! use trunkline_sip::endpoint::{Config, Endpoint, Owner, Received, Response};
//! use trunkline_sip::entropy::Entropy;
//! use trunkline_sip::flow::{Flow, Transport};
//! use trunkline_sip::moment::Moment;
//! use trunkline_sip::slot::{Minter, Node};
//!
//! let config = Config {
//!     minter: Minter::new(Node(1), [0; 16]), // a real node draws its secret at random
//!     t1: Duration::from_millis(500),
//!     t2: Duration::from_secs(4),
//!     t4: Duration::from_secs(5),
//!     server: "example".into(),
//!     sent_by: vec!["192.0.2.1:5060".into()],
//!     max_transactions: 100,
//! };
//! let mut endpoint = Endpoint::new(config, Entropy::from_seed([0; 32]));
//! let flow = Flow {
//!     transport: Transport::Udp,
//!     listener: 0,
//!     connection: 0,
//!     local: "192.0.2.1:5060".parse().unwrap(),
//!     peer: "192.0.2.2:5060".parse().unwrap(),
//! };
//! let now = Moment::from_secs(0);
//!
//! let datagram = b"OPTIONS sip:192.0.2.1 SIP/2.0\r\n\
//!     Via: SIP/2.0/UDP 192.0.2.2;branch=z9hG4bKa\r\n\
//!     From: <sip:pbx@192.0.2.2>;tag=1\r\n\
//!     To: <sip:192.0.2.1>\r\n\
//!     Call-ID: a\r\n\
//!     CSeq: 1 OPTIONS\r\n\
//!     Content-Length: 0\r\n\r\n";
//! let Received::Request(request) = endpoint.receive(datagram, flow, now) else {
//!     panic!("a new request");
//! };
//! let tx = endpoint.accept(&request, flow, Owner(0), now).unwrap();
//! endpoint.respond(tx, &Response::bare(200), now);
//!
//! let (to, octets) = endpoint.transmits().next().unwrap();
//! assert_eq!(to.peer, flow.peer);
//! assert!(octets.starts_with(b"SIP/2.0 200 OK\r\n"));
//! endpoint.clear_transmits(); // they have been handed to the socket
//! ```

#![warn(missing_docs)]

pub mod auth;
pub mod dialog;
pub mod endpoint;
pub mod entropy;
pub mod fault;
pub mod flow;
pub mod header;
pub mod method;
pub mod moment;
pub mod slot;
pub mod transaction;
pub mod verified;
pub mod wheel;
pub mod wire;
