//! One stream, whatever carries it: messages out of octets, octets out of the outbox, and when it has to end.
//!
//! Nothing that has arrived is dropped: while the sink has no room the stream isn't read, and the peer's own
//! congestion control slows it down. Who starts a message must finish it in time, and who reads too slowly is cut off.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::timeout;
use trunkline_sip::fault::{Fault, Unreachable};
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::frame::{Frame, FrameFault, Framer};
use trunkline_sip::wire::{Framing, lex};

use super::outbox::{Done, Outbox, Refused};
use super::stream::{Received, Settings, Sink};

/// Octets read at once.
const READ: usize = 4_096;

/// How long a stream that brings nothing more can still be written to.
const LINGER: Duration = Duration::from_millis(300);

/// How long the refusal of what can't be cut out of a stream is waited for.
const REFUSAL_LOOK: Duration = Duration::from_millis(10);
const REFUSAL_LOOKS: u32 = 200;

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("closed by the peer")]
    ByPeer,
    #[error("nothing came for the idle time")]
    Idle,
    #[error("a message was begun and not finished in time")]
    SlowToSend,
    #[error("what is sent is not read in time")]
    SlowToRead,
    #[error("messages cannot be told apart: {0}")]
    Framing(FrameFault),
    #[error("could not be opened in time")]
    NotOpened,
    #[error("TLS could not be agreed on: {0}")]
    NotSecured(Arc<str>),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Ended {
    /// The name under which it is counted.
    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            Self::ByPeer => "by_peer",
            Self::Idle => "idle",
            Self::SlowToSend => "slow_to_send",
            Self::SlowToRead => "slow_to_read",
            Self::Framing(_) => "framing",
            Self::NotOpened => "not_opened",
            Self::NotSecured(_) => "not_secured",
            Self::Io(_) => "io",
        }
    }

    /// The same, as transactions that wait for an answer are told.
    pub(super) fn fault(&self) -> Fault {
        match self {
            Self::NotOpened => Fault::NotOpened,
            Self::NotSecured(reason) => Fault::NotSecured(Arc::clone(reason)),
            Self::Io(error) => fault_of(error),
            Self::ByPeer | Self::Idle | Self::SlowToSend | Self::SlowToRead | Self::Framing(_) => {
                Fault::Closed
            }
        }
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the standard library adds kinds"
)]
fn fault_of(error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Fault::Refused,
        io::ErrorKind::HostUnreachable => Fault::Unreachable(Unreachable::Host),
        io::ErrorKind::NetworkUnreachable => Fault::Unreachable(Unreachable::Network),
        io::ErrorKind::PermissionDenied => Fault::Unreachable(Unreachable::Prohibited),
        io::ErrorKind::TimedOut => Fault::NotOpened,
        _ => Fault::Closed,
    }
}

/// A stream being served.
pub(super) struct Connection<S, C> {
    pub(super) flow: Flow,
    pub(super) outbox: Arc<Outbox>,
    pub(super) sink: S,
    pub(super) clock: C,
    pub(super) settings: Settings,
    /// When the connection was accepted or opened.
    pub(super) began: Moment,
    /// What is awaited first.
    pub(super) awaited: Awaited,
}

impl<S: Sink, C: Fn() -> Moment + Copy + Send> Connection<S, C> {
    /// Reads and writes until the stream ends. What has been read whole is handed over, and what was queued is
    /// written as far as the peer takes it, whichever side ended it. `closing` is awaited once the peer sends no more, before the last
    /// answers leave.
    pub(super) async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send,
        closing: impl Future<Output = ()> + Send,
    ) -> Ended {
        let (mut read, mut write) = tokio::io::split(stream);
        let broken = Notify::new();
        let reading = async {
            let ended = self.read(&mut read, &broken).await;
            if matches!(ended, Some(Ended::ByPeer | Ended::Framing(_))) {
                closing.await;
                linger(read, &broken).await;
            }
            self.outbox.finish();
            ended
        };

        let writing = async {
            let ended = self.write(&mut write).await;
            broken.notify_one();
            ended
        };
        let (of_reading, of_writing) = tokio::join!(reading, writing);
        of_reading.or(of_writing).unwrap_or(Ended::ByPeer)
    }

    /// `None` when it is the writing that has ended.
    async fn read(&self, mut stream: impl AsyncRead + Unpin, broken: &Notify) -> Option<Ended> {
        let mut reading = Reading::new(&self.settings, self.awaited, self.began);
        let mut octets = [0; READ];
        loop {
            let patience = reading.patience((self.clock)());
            let next = tokio::select! {
                next = timeout(patience, stream.read(&mut octets)) => next,
                () = broken.notified() => return None,
            };

            let count = match next {
                Ok(Ok(0)) => return Some(Ended::ByPeer),
                Ok(Ok(count)) => count,
                Ok(Err(error)) => return Some(Ended::Io(error)),
                Err(_) => return Some(reading.overdue()),
            };
            if let Err(ended) = self.take(&mut reading, &octets[..count]).await {
                return Some(ended);
            }

            // A steady drip would always have something to be read.
            if reading.patience((self.clock)()).is_zero() {
                return Some(reading.overdue());
            }
        }
    }

    /// Hands over each message that `octets` complete, as the sink has room.
    async fn take(&self, reading: &mut Reading, octets: &[u8]) -> Result<(), Ended> {
        let received_at = (self.clock)();
        reading.framer.push(octets);
        let mut got = Got::Part;

        loop {
            let frame = match reading.framer.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(fault) => {
                    if fault == FrameFault::NoLength {
                        self.have_refused(reading.framer.unfinished(), received_at)
                            .await;
                    }
                    return Err(Ended::Framing(fault));
                }
            };
            match frame {
                Frame::Message(octets) => {
                    got = Got::Message;
                    let octets = Bytes::copy_from_slice(octets);
                    self.sink
                        .deliver(Received {
                            flow: self.flow,
                            octets,
                            received_at,
                        })
                        .await;
                }
                // RFC 5626 §4.4.1.
                Frame::Ping => {
                    got = got.max(Got::KeepAlive);
                    self.outbox
                        .push(b"\r\n")
                        .map_err(|Refused| Ended::SlowToRead)?;
                }
            }
        }

        reading.note(got, (self.clock)());
        Ok(())
    }

    /// A message whose end can't be found is refused with 400 before the connection is closed (RFC 3261 §18.3), if its header is
    /// enough for that. The answer comes by way of the sink, like any other, and gets some time to do so.
    async fn have_refused(&self, header: &[u8], received_at: Moment) {
        // Nobody may take it for a message.
        if !lex(header, Framing::Stream).is_err_and(|refused| refused.answer.is_some()) {
            return;
        }

        let before = self.outbox.pushed();
        let octets = Bytes::copy_from_slice(header);
        let flow = self.flow;
        self.sink
            .deliver(Received {
                flow,
                octets,
                received_at,
            })
            .await;

        for _ in 0..REFUSAL_LOOKS {
            if self.outbox.pushed() != before {
                break;
            }
            tokio::time::sleep(REFUSAL_LOOK).await;
        }
    }

    /// `None` when it is the reading that has ended.
    async fn write(&self, stream: &mut (impl AsyncWrite + Unpin)) -> Option<Ended> {
        let mut octets = Vec::new();
        loop {
            match self.outbox.take(&mut octets).await {
                Ok(()) => {}
                Err(Done::Overfull) => return Some(Ended::SlowToRead),
                Err(Done::Finished) => {
                    // A peer that is gone needs no farewell.
                    let _ = timeout(self.settings.message, stream.shutdown()).await;
                    return None;
                }
            }

            if let Err(ended) = self.write_out(stream, &octets).await {
                return Some(ended);
            }

            octets.clear();
            // A burst's buffer is not kept by a connection at rest.
            octets.shrink_to(READ);
        }
    }

    async fn write_out(
        &self,
        stream: &mut (impl AsyncWrite + Unpin),
        mut octets: &[u8],
    ) -> Result<(), Ended> {
        while !octets.is_empty() {
            let written = tokio::select! {
                written = timeout(self.settings.message, stream.write(octets)) => written,
                // Who reads nothing is not asked to the end of its time while it sends on.
                () = self.outbox.overfull() => return Err(Ended::SlowToRead),
            };
            match written.map_err(|_| Ended::SlowToRead)?? {
                0 => return Err(Ended::ByPeer),
                count => octets = &octets[count..],
            }
        }
        timeout(self.settings.message, stream.flush())
            .await
            .map_err(|_| Ended::SlowToRead)??;
        Ok(())
    }
}

/// Leaves time for the answers to what came before the end. What else comes is read away, since closing a socket with
/// octets unread resets it, and the peer may lose the answers.
async fn linger(mut stream: impl AsyncRead + Unpin, broken: &Notify) {
    let reading_away = async {
        let mut octets = [0; READ];
        while let Ok(1..) = stream.read(&mut octets).await {}
        std::future::pending().await
    };
    tokio::select! {
        () = reading_away => {}
        () = tokio::time::sleep(LINGER) => {}
        () = broken.notified() => {}
    }
}

/// How far the reading of a stream is.
struct Reading {
    framer: Framer,
    /// Since when the message that has begun, or the first one, or the next one is waited for.
    since: Moment,
    awaited: Awaited,
    settings: Settings,
}

/// What the peer is to send next, each with a time of its own.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Awaited {
    /// Anything at all.
    FirstOctet,
    /// The first whole message; keep-alives are none.
    FirstMessage,
    /// The rest of a message.
    Rest,
    /// The next message.
    Next,
}

/// What octets have completed.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Got {
    Part,
    KeepAlive,
    Message,
}

impl Reading {
    fn new(settings: &Settings, awaited: Awaited, began: Moment) -> Self {
        Self {
            framer: Framer::new(),
            since: began,
            awaited,
            settings: settings.clone(),
        }
    }

    /// How long the next octets may take.
    fn patience(&self, now: Moment) -> Duration {
        let whole = match self.awaited {
            Awaited::FirstOctet => self.settings.first_octet,
            Awaited::FirstMessage => self.settings.first_message,
            Awaited::Rest => self.settings.message,
            Awaited::Next => self.settings.idle,
        };
        whole.saturating_sub(now.since(self.since))
    }

    /// Notes what octets have come to. More of the same message is no progress: its time runs from its beginning, that of the first
    /// message from the connection's.
    fn note(&mut self, got: Got, now: Moment) {
        let is_begun = self.framer.is_within_message();

        match (self.awaited, got) {
            (Awaited::FirstOctet, Got::Part | Got::KeepAlive) => {
                self.awaited = Awaited::FirstMessage;
            }
            (Awaited::FirstMessage, Got::Part | Got::KeepAlive) | (Awaited::Rest, Got::Part) => {}
            (Awaited::Next, Got::Part) if !is_begun => {}
            (Awaited::FirstOctet | Awaited::FirstMessage, Got::Message)
            | (Awaited::Rest, Got::KeepAlive | Got::Message)
            | (Awaited::Next, Got::Part | Got::KeepAlive | Got::Message) => {
                self.since = now;
                self.awaited = if is_begun {
                    Awaited::Rest
                } else {
                    Awaited::Next
                };
            }
        }
    }

    const fn overdue(&self) -> Ended {
        match self.awaited {
            Awaited::FirstOctet | Awaited::FirstMessage | Awaited::Rest => Ended::SlowToSend,
            Awaited::Next => Ended::Idle,
        }
    }
}
