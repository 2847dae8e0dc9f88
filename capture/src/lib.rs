//! Captures of SIP traffic: read from files of others, kept as flows that people can read, played again against a daemon.
//!
//! `read` knows file formats, `decode` the headers below SIP, `reassemble` fragments and streams, `message` SIP as forgivingly as a
//! capture needs it, `calls` which messages belong together, `flow` our own format. Everything is bounded: a capture of
//! any size is read with the memory of its calls in progress.

pub mod anonymise;
pub mod calls;
pub mod decode;
pub mod flow;
pub mod hep;
pub mod import;
pub mod message;
pub mod read;
pub mod reassemble;
pub mod replay;
pub mod text;

use std::net::SocketAddr;

/// What a message travelled by.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// A stream.
    Tcp,
    /// An encrypted stream, of which a text capture may know.
    Tls,
}

impl Transport {
    /// As flows write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
        }
    }

    /// As flows write it, case ignored.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Udp, Self::Tcp, Self::Tls]
            .into_iter()
            .find(|transport| transport.as_str().eq_ignore_ascii_case(text))
    }
}

/// One message, or what was taken for one, with the way it went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Captured {
    /// Microseconds since 1970.
    pub at: u64,
    /// Who sent it.
    pub source: SocketAddr,
    /// Whom it was sent to.
    pub target: SocketAddr,
    /// How it travelled.
    pub transport: Transport,
    /// The octets, from the start line to the end of the body.
    pub octets: Vec<u8>,
}

/// Why a capture can't be used, in a sentence for its owner.
#[derive(Debug, thiserror::Error)]
pub enum CaptureFault {
    /// The file can't be read or written at all.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The first octets are those of no format that is known.
    #[error(
        "it is neither pcap, pcapng, a hex dump of a frame, sngrep or HEP text, nor a trunkline flow"
    )]
    UnknownFormat,
    /// Compressed files are recognised, not unpacked.
    #[error("it is compressed ({0}): unpack it first")]
    Compressed(&'static str),
    /// The format is known and the file breaks it before anything was found.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// The packets are framed in a way that isn't known.
    #[error(
        "its packets have link type {0}, which isn't known here (known: Ethernet, Linux cooked v1 and v2, raw IP, loopback)"
    )]
    LinkType(u32),
    /// It was read to its end.
    #[error("it holds no SIP message: {0}")]
    NoSip(String),
    /// One of our own flows with a mistake.
    #[error("line {line}: {what}")]
    Flow {
        /// The line, from 1 on.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
}
