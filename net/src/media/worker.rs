//! A thread that serves a share of the RTP sockets: receives packets, sends the echo and, once a second, reports silent calls and closes
//! surplus sockets.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use mio::event::Event;
use mio::{Events, Poll};
use trunkline_sip::moment::Moment;

use super::MediaEvent;
use super::ports::Ports;

/// Most packets read from one socket before the others have their turn.
const TURN: usize = 16;

/// Interval at which a worker looks for silent calls and closes surplus sockets.
const ROUND: Duration = Duration::from_secs(1);

/// Interval at which a worker looks for due packets of speech, while it has any to send.
const SPEAKING: Duration = Duration::from_millis(5);

/// Most packets of speech that one call is sent at a time.
const SPOKEN: usize = 10;

/// Buffer size in octets. Longer packets are no telephone audio.
const LONGEST: usize = 2_048;

/// One worker.
pub(super) struct Worker {
    index: usize,
    poll: Poll,
    ports: Arc<Ports>,
    silence: Duration,
    packets: Packets,
    /// Digits to be reported, with the key of their call.
    pressed: Vec<(u64, u8)>,
}

/// Counts between two rounds.
#[derive(Default)]
struct Packets {
    echoed: u64,
    discarded: u64,
}

/// Result of a turn at a socket.
#[derive(PartialEq, Eq)]
enum Turn {
    Emptied,
    MoreToRead,
}

impl Worker {
    pub(super) fn new(index: usize, poll: Poll, ports: Arc<Ports>, silence: Duration) -> Self {
        Self {
            index,
            poll,
            ports,
            silence,
            packets: Packets::default(),
            pressed: Vec::new(),
        }
    }

    /// Starts the thread.
    pub(super) fn start(
        self,
        clock: impl Fn() -> Moment + Send + 'static,
        on_event: impl Fn(u64, MediaEvent) + Send + 'static,
    ) -> io::Result<()> {
        let name = format!("media-{}", self.index);
        std::thread::Builder::new()
            .name(name)
            .spawn(move || self.run(clock, on_event))
            .map(drop)
    }

    fn run(mut self, clock: impl Fn() -> Moment, on_event: impl Fn(u64, MediaEvent)) {
        let mut events = Events::with_capacity(1_024);
        let mut buffer = [0; LONGEST];
        let mut round_at = clock() + ROUND;
        let mut is_speaking = false;

        while !self.ports.is_stopped() {
            let patience = if is_speaking { SPEAKING } else { ROUND };
            if let Err(error) = self.poll.poll(&mut events, Some(patience))
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "media cannot wait for packets");
                std::thread::sleep(ROUND);
            }

            let now = clock();
            for event in &events {
                self.handle_event(event, &mut buffer, now);
                for (key, digit) in self.pressed.drain(..) {
                    on_event(key, MediaEvent::Digit(digit));
                }
            }

            is_speaking = self.speak(&mut buffer, &on_event, now);

            if now >= round_at {
                round_at = now + ROUND;
                self.make_round(&on_event, now);
            }
        }
    }

    fn handle_event(&mut self, event: &Event, buffer: &mut [u8; LONGEST], now: Moment) {
        let Ok(port) = u16::try_from(event.token().0) else {
            return;
        };
        if self.serve(port, buffer, now) == Turn::MoreToRead
            && let Err(error) = self.ports.rearm(port)
        {
            tracing::warn!(%error, port, "an RTP socket cannot be watched");
        }
    }

    fn serve(&mut self, port: u16, buffer: &mut [u8; LONGEST], now: Moment) -> Turn {
        let ports = Arc::clone(&self.ports);
        let mut port = ports.port(port);
        let (Some(socket), mut session) = port.parts() else {
            return Turn::Emptied;
        };

        for _ in 0..TURN {
            let (length, source) = match socket.recv_from(buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Turn::Emptied,
                // An ICMP error of an earlier packet; the next packet may be readable all the same.
                Err(_) => continue,
            };
            let echo = session
                .as_deref_mut()
                .filter(|_| length < LONGEST && !ports.is_listener(source))
                .and_then(|session| {
                    let is_ours = |address| ports.is_ours(address);
                    session.receive(&mut buffer[..length], source, is_ours, now)
                });
            match echo {
                // A packet that can't be sent is lost, as RTP is.
                Some((to, octets)) if socket.send_to(octets, to).is_ok() => {
                    self.packets.echoed += 1
                }
                Some(_) | None => self.packets.discarded += 1,
            }

            let pressed = session
                .as_deref_mut()
                .and_then(|session| Some((session.key(), session.take_digit()?)));
            self.pressed.extend(pressed);
        }

        Turn::MoreToRead
    }

    /// Sends the due packets of speech of all calls; returns whether any speech continues.
    fn speak(
        &self,
        buffer: &mut [u8; LONGEST],
        on_event: impl Fn(u64, MediaEvent),
        now: Moment,
    ) -> bool {
        self.ports.speaking_of(self.index, |port| {
            let mut port = self.ports.port(port);
            let (Some(socket), Some(session)) = port.parts() else {
                return false;
            };

            for _ in 0..SPOKEN {
                let Some((to, octets)) = session.speak(buffer, now) else {
                    break;
                };
                // A packet that can't be sent is lost, as RTP is.
                let _ = socket.send_to(octets, to);
            }

            let is_over = session.take_end();
            if is_over {
                on_event(session.key(), MediaEvent::Spoken);
            }

            !is_over && session.is_spoken_to()
        })
    }

    fn make_round(&mut self, on_event: impl Fn(u64, MediaEvent), now: Moment) {
        for port in self.ports.of_worker(self.index) {
            if let Some(key) = self.silent_call(port, now) {
                on_event(key, MediaEvent::Silent);
            }
        }
        self.publish();
        if self.index == 0 {
            self.ports.shrink();
        }
    }

    /// Returns the call on `port`, if it has just become silent.
    fn silent_call(&self, port: u16, now: Moment) -> Option<u64> {
        let mut port = self.ports.port(port);
        let (_, session) = port.parts();
        let session = session?;
        session
            .report_silence(self.silence, now)
            .then(|| session.key())
    }

    fn publish(&mut self) {
        let Packets { echoed, discarded } = std::mem::take(&mut self.packets);
        metrics::counter!("trunkline_media_packets_total", "fate" => "echoed").increment(echoed);
        metrics::counter!("trunkline_media_packets_total", "fate" => "discarded")
            .increment(discarded);
        if self.index == 0 {
            metrics::gauge!("trunkline_media_calls").set(self.ports.open_calls() as f64);
            metrics::gauge!("trunkline_media_sockets").set(self.ports.bound() as f64);
        }
    }
}
