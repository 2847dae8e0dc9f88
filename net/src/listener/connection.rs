//! One SIP stream over TCP or TLS: cuts messages out of the octets that arrive, writes the outbox, and decides when the connection ends.
//!
//! Received messages are never dropped: while the sink has no room the stream isn't read, and the peer's own congestion control slows it
//! down. A peer that doesn't finish a message in time, or reads too slowly, is disconnected.

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

use super::outbox::{Done, Outbox, OutboxClosed};
use super::stream::{Received, Sink, StreamSettings};

/// Most octets of one read.
const READ: usize = 4_096;

/// Time for which answers are still written after the peer has closed its side.
const LINGER: Duration = Duration::from_millis(300);

/// Time for the peer to read all octets that are written together, as a multiple of [`StreamSettings::message`], the time in which it has
/// to read some of them.
const BATCH: u32 = 6;

/// Interval and number of checks for the 400 that refuses a message without a readable length: 2 seconds in total.
const REFUSAL_LOOK: Duration = Duration::from_millis(10);
const REFUSAL_LOOKS: u32 = 200;

/// Reason why a stream ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("closed by the peer")]
    ByPeer,
    #[error("its peer has proved nothing, and another connection needs its place")]
    GaveWay,
    #[error("nothing came for the idle time")]
    Idle,
    #[error("a message was begun and not finished in time")]
    SlowToSend,
    #[error("what is sent is not read in time")]
    SlowToRead,
    #[error("messages cannot be separated: {0}")]
    Framing(FrameFault),
    #[error("could not be opened in time")]
    NotOpened,
    #[error("TLS could not be agreed on: {0}")]
    NotSecured(Arc<str>),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Ended {
    /// Returns the label under which the metric counts the reason.
    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            Self::ByPeer => "by_peer",
            Self::GaveWay => "gave_way",
            Self::Idle => "idle",
            Self::SlowToSend => "slow_to_send",
            Self::SlowToRead => "slow_to_read",
            Self::Framing(_) => "framing",
            Self::NotOpened => "not_opened",
            Self::NotSecured(_) => "not_secured",
            Self::Io(_) => "io",
        }
    }

    /// Returns the fault that transactions waiting for a response get.
    pub(super) fn fault(&self) -> Fault {
        match self {
            Self::NotOpened => Fault::NotOpened,
            Self::NotSecured(reason) => Fault::NotSecured(Arc::clone(reason)),
            Self::Io(error) => fault_of(error),
            Self::ByPeer
            | Self::GaveWay
            | Self::Idle
            | Self::SlowToSend
            | Self::SlowToRead
            | Self::Framing(_) => Fault::Closed,
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
        // Among them ETIMEDOUT: the peer has acknowledged no octet for long.
        _ => Fault::Closed,
    }
}

/// A stream being served.
pub(super) struct Connection<S, C> {
    pub(super) flow: Flow,
    pub(super) outbox: Arc<Outbox>,
    pub(super) sink: S,
    pub(super) clock: C,
    pub(super) settings: StreamSettings,
    /// Time at which the connection was accepted or opened.
    pub(super) began: Moment,
    /// Input awaited first.
    pub(super) awaited: Awaited,
}

impl<S: Sink, C: Fn() -> Moment + Copy + Send> Connection<S, C> {
    /// Reads and writes until the stream ends, whichever side ends it. Every complete message is delivered, and queued octets are written as
    /// far as the peer takes them. `closing` is awaited once the peer sends no more, before the last answers leave.
    pub(super) async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send,
        closing: impl Future<Output = ()> + Send,
    ) -> Ended {
        let (mut read, mut write) = tokio::io::split(stream);
        let broken = Notify::new();
        let reading = async {
            let ended = self.read(&mut read, &broken).await;
            // After these two ends answers may be due, and the peer may read them. After any other end there is nothing to wait for.
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
        // Neither is dropped halfway: a failed write ends the reading, and `finish` lets the writer empty its queue.
        let (of_reading, of_writing) = tokio::join!(reading, writing);
        of_reading.or(of_writing).unwrap_or(Ended::ByPeer)
    }

    /// Reads until the stream ends; `None` if writing has ended first.
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

            // A peer that sends one octet at a time never lets the read above time out.
            if reading.patience((self.clock)()).is_zero() {
                return Some(reading.overdue());
            }
        }
    }

    /// Delivers each message that `octets` complete, waiting until the sink has room.
    async fn take(&self, reading: &mut Reading, octets: &[u8]) -> Result<(), Ended> {
        let received_at = (self.clock)();
        reading.framer.push(octets);
        let mut got = Progress::Part;

        loop {
            let frame = match reading.framer.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(fault) => {
                    if fault == FrameFault::NoLength {
                        self.refuse_unframed(reading.framer.unfinished(), received_at)
                            .await;
                    }
                    // A stream whose message ends nowhere can't be resynchronised, unlike a datagram.
                    return Err(Ended::Framing(fault));
                }
            };

            match frame {
                Frame::Message(octets) => {
                    got = Progress::Message;
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
                    got = got.max(Progress::KeepAlive);
                    self.outbox
                        .push(b"\r\n")
                        .map_err(|OutboxClosed| Ended::SlowToRead)?;
                }
            }
        }

        // The clock is read anew: the time for which the sink had no room isn't the peer's.
        reading.note(got, (self.clock)());
        Ok(())
    }

    /// Delivers the header of a message without a readable length, so that the sink refuses it with 400 before the connection is closed
    /// (RFC 3261 §18.3). Does so only if the header suffices for a response. Waits for the response to reach the outbox, at most 2 s.
    async fn refuse_unframed(&self, header: &[u8], received_at: Moment) {
        // Only input that the lexer refuses with a response may be delivered: the sink must not take it for a message.
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

    /// Writes until the stream ends; `None` if reading has ended first.
    async fn write(&self, stream: &mut (impl AsyncWrite + Unpin)) -> Option<Ended> {
        let mut octets = Vec::new();
        loop {
            match self.outbox.take(&mut octets).await {
                Ok(()) => {}
                Err(Done::Overfull) => return Some(Ended::SlowToRead),
                Err(Done::Finished) => {
                    // The peer may have gone already; a failed shutdown changes nothing.
                    let _ = timeout(self.settings.message, stream.shutdown()).await;
                    return None;
                }
            }

            if let Err(ended) = self.write_out(stream, &octets).await {
                return Some(ended);
            }

            octets.clear();
            // An idle connection doesn't keep the large buffer of a burst.
            octets.shrink_to(READ);
        }
    }

    async fn write_out(
        &self,
        stream: &mut (impl AsyncWrite + Unpin),
        mut octets: &[u8],
    ) -> Result<(), Ended> {
        // A peer that takes one octet at a time never lets a single write time out.
        let deadline = (self.clock)() + self.settings.message * BATCH;
        while !octets.is_empty() {
            let patience = deadline.since((self.clock)()).min(self.settings.message);
            if patience.is_zero() {
                return Err(Ended::SlowToRead);
            }
            let written = tokio::select! {
                written = timeout(patience, stream.write(octets)) => written,
                // A peer that reads nothing but keeps sending requests overfills the outbox: end at once instead of after the full timeout.
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

/// Leaves time for the answers to the last messages. Further input is read and discarded: closing a socket with unread octets resets
/// it, and the peer may then lose the answers.
async fn linger(mut stream: impl AsyncRead + Unpin, broken: &Notify) {
    let reading_away = async {
        let mut octets = [0; READ];
        while let Ok(1..) = stream.read(&mut octets).await {}
        // The end of the input isn't the end of the wait: the answers still need the time.
        std::future::pending().await
    };
    tokio::select! {
        () = reading_away => {}
        () = tokio::time::sleep(LINGER) => {}
        () = broken.notified() => {}
    }
}

/// Progress of reading a stream.
struct Reading {
    framer: Framer,
    /// Time from which the limit of `awaited` runs.
    since: Moment,
    awaited: Awaited,
    settings: StreamSettings,
}

/// Input that the peer has to send next, each with a time limit of its own.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Awaited {
    /// Anything at all.
    FirstOctet,
    /// The first whole message; keep-alives don't count.
    FirstMessage,
    /// The rest of a message.
    Rest,
    /// The next message.
    Next,
}

/// The most that a read has completed. The variants ascend.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Progress {
    Part,
    KeepAlive,
    Message,
}

impl Reading {
    fn new(settings: &StreamSettings, awaited: Awaited, began: Moment) -> Self {
        Self {
            framer: Framer::new(),
            since: began,
            awaited,
            settings: settings.clone(),
        }
    }

    /// Returns the time that the next octets may take.
    fn patience(&self, now: Moment) -> Duration {
        let whole = match self.awaited {
            Awaited::FirstOctet => self.settings.first_octet,
            Awaited::FirstMessage => self.settings.first_message,
            Awaited::Rest => self.settings.message,
            Awaited::Next => self.settings.idle,
        };
        whole.saturating_sub(now.since(self.since))
    }

    /// Records the result of a read. More octets of the same message are no progress: the limit runs from the message's first octet, and for
    /// the first message from the start of the connection.
    fn note(&mut self, got: Progress, now: Moment) {
        let is_begun = self.framer.is_within_message();

        match (self.awaited, got) {
            (Awaited::FirstOctet, Progress::Part | Progress::KeepAlive) => {
                self.awaited = Awaited::FirstMessage;
            }
            (Awaited::FirstMessage, Progress::Part | Progress::KeepAlive)
            | (Awaited::Rest, Progress::Part) => {}
            // Line ends that make no whole keep-alive (RFC 5626 §4.4.1) begin no message, and prolong no idle time.
            (Awaited::Next, Progress::Part) if !is_begun => {}
            (Awaited::FirstOctet | Awaited::FirstMessage, Progress::Message)
            | (Awaited::Rest, Progress::KeepAlive | Progress::Message)
            | (Awaited::Next, Progress::Part | Progress::KeepAlive | Progress::Message) => {
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

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::{Context, Poll};

    use trunkline_sip::flow::Transport;

    use super::super::Lost;
    use super::*;

    #[derive(Clone)]
    struct NoSink;

    impl Sink for NoSink {
        async fn deliver(&self, _: Received) {}
        async fn closing(&self, _: Flow, _: u32) {}
        async fn lost(&self, _: Lost) {}
    }

    /// A peer that takes one octet at a time.
    struct Trickle(usize);

    impl AsyncWrite for Trickle {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.0 += 1;
            Poll::Ready(Ok(1))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_peer_that_reads_an_octet_at_a_time_holds_nothing_for_long() {
        static SECONDS: AtomicU64 = AtomicU64::new(0);
        let address = ([192, 0, 2, 1], 5060).into();
        let connection = Connection {
            flow: Flow {
                transport: Transport::Tcp,
                listener: 0,
                connection: 1,
                local: address,
                peer: address,
            },
            outbox: Arc::new(Outbox::new(64 << 10, None)),
            sink: NoSink,
            // Each octet takes a second.
            clock: || Moment::from_secs(SECONDS.fetch_add(1, Ordering::Relaxed)),
            settings: StreamSettings::default(),
            began: Moment::default(),
            awaited: Awaited::Next,
        };

        let mut peer = Trickle(0);
        let ended = connection.write_out(&mut peer, &[b'x'; 64 << 10]).await;
        assert!(matches!(ended, Err(Ended::SlowToRead)), "{ended:?}");
        assert_eq!(peer.0, 59);
        assert!(connection.write_out(&mut peer, b"short").await.is_ok());
    }
}
