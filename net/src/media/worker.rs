//! A media thread, which alone touches its calls: waits for packets, bots and commands, ticks every 20 ms, reports silent calls each second.
//!
//! Each call has a socket of its own, so that a batch would rarely hold more than one datagram: recvmmsg and sendmmsg would save nothing. A
//! packet costs two calls of recvfrom: one that returns it, and one that finds the socket empty.

mod contained;
mod resist;
mod rounds;

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::{Arc, mpsc::Receiver};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use slab::Slab;
use trunkline_sip::moment::Moment;

use crate::bot::{BotEnd, link::LinkProgress};

use super::allowance::Taken;
use super::bot_leg::{BotLeg, Scratch};
use super::call::{Call, Fate};
use super::closing_links::ClosingLinks;
use super::command::Command;
use super::event::MediaEvent;
use super::floods::Floods;
use super::meters::{Meters, Packets};
use super::ports::Ports;
use super::rtcp;
use super::session::Session;
use super::timeline::MediaStepKind;
use super::tokens::{Socket, WAKER};
use super::wheel::Wheel;

/// Most packets read from one socket before the other sockets have their turn.
const TURN: usize = 16;

/// Interval at which a worker looks for silent calls and closes surplus sockets.
const ROUND: Duration = Duration::from_secs(1);

/// Buffer size in octets. A longer packet is no telephone audio.
const LONGEST: usize = 2_048;

/// Delay of a call's tick within its slot of 20 ms. A frame that is still missing then is concealed.
const PHASE: Duration = super::inbound::PATIENCE;

pub(super) struct Worker<C, E> {
    index: usize,
    poll: Poll,
    commands: Receiver<Command>,
    ports: Arc<Ports>,
    clock: C,
    on_event: E,
    calls: Slab<Call>,
    by_key: HashMap<u64, usize>,
    /// The call that is worked on.
    current: Option<usize>,
    wheel: Wheel,
    scratch: Scratch,
    buffer: Box<[u8; LONGEST]>,
    news: Vec<(u64, MediaEvent)>,
    /// Sockets that have more to read.
    unread: Vec<Token>,
    floods: Floods,
    packets: Packets,
    meters: Meters,
    closing_links: ClosingLinks,
}

/// Sends a packet. One that can't be sent is lost, as RTP is.
fn send(socket: &UdpSocket, packet: &[u8], to: SocketAddr) {
    // The error may be that of an earlier packet, reported by ICMP: then nothing was sent now.
    let is_reported = |error: io::Error| error.kind() == ErrorKind::ConnectionRefused;
    if socket.send_to(packet, to).is_err_and(is_reported) {
        let _ = socket.send_to(packet, to);
    }
}

impl<C: Fn() -> Moment + Send + 'static, E: Fn(u64, MediaEvent) + Send + 'static> Worker<C, E> {
    pub(super) fn new(
        index: usize,
        poll: Poll,
        commands: Receiver<Command>,
        ports: Arc<Ports>,
        clock: C,
        on_event: E,
    ) -> Self {
        Self {
            index,
            poll,
            commands,
            ports,
            clock,
            on_event,
            calls: Slab::new(),
            by_key: HashMap::new(),
            current: None,
            wheel: Wheel::default(),
            scratch: Scratch::default(),
            buffer: Box::new([0; LONGEST]),
            news: Vec::new(),
            unread: Vec::new(),
            floods: Floods::default(),
            packets: Packets::default(),
            meters: Meters::new(),
            closing_links: ClosingLinks::default(),
        }
    }

    pub(super) fn start(self) -> io::Result<()> {
        let name = format!("media-{}", self.index);
        std::thread::Builder::new()
            .name(name)
            .spawn(move || self.run())
            .map(drop)
    }

    fn run(mut self) {
        let mut events = Events::with_capacity(1_024);
        let mut round_at = (self.clock)() + ROUND;
        let mut made_at = round_at;
        let mut unread = Vec::new();

        while !self.ports.is_stopped() {
            let patience = if self.unread.is_empty() {
                let now = (self.clock)();
                let waits = [self.wheel.wait(now), self.floods.wait(now)];
                waits.into_iter().flatten().fold(ROUND, Duration::min)
            } else {
                Duration::ZERO
            };
            if let Err(error) = self.poll.poll(&mut events, Some(patience))
                && error.kind() != ErrorKind::Interrupted
            {
                tracing::error!(%error, "media cannot wait for packets");
                std::thread::sleep(ROUND);
            }

            std::mem::swap(&mut unread, &mut self.unread);
            let ready = events
                .iter()
                .map(|event| (event.token(), event.is_writable(), event.is_error()));
            let unread = unread.drain(..).map(|token| (token, false, false));
            for (token, is_writable, has_failed) in ready.chain(unread) {
                self.contain(Self::run_commands);
                // A bot that sends without end delays no tick by more than its turn.
                self.contain(Self::run_ticks);
                if token != WAKER {
                    self.contain(|worker| {
                        worker.current = Some(Socket::of(token).place());
                        if has_failed {
                            worker.read_errors(token);
                        }
                        worker.serve(token, is_writable);
                    });
                }
            }
            self.contain(Self::run_commands);
            self.contain(Self::run_ticks);

            let now = (self.clock)();
            self.ports.beats.note(self.index, now);
            self.contain(|worker| worker.hear_again(now));
            if now >= round_at {
                round_at = now + ROUND;
                let passed = now.since(std::mem::replace(&mut made_at, now));
                self.contain(|worker| worker.make_round(passed, now));
            }
            self.contain(Self::report);
        }
    }

    fn run_commands(&mut self) {
        while let Ok(command) = self.commands.try_recv() {
            self.run_command(command);
        }
    }

    fn run_command(&mut self, command: Command) {
        let now = (self.clock)();
        match command {
            Command::Open {
                key,
                socket,
                statistics,
                seed,
            } => {
                statistics.note(MediaStepKind::Opened, now);
                let place =
                    self.calls
                        .insert(Call::new(key, socket, Session::new(seed), statistics));
                self.by_key.insert(key, place);
                let socket = &self.calls[place].socket;
                let token = Socket::Rtp(place).token();
                if let Err(error) = self.poll.registry().register(
                    &mut SourceFd(&socket.as_raw_fd()),
                    token,
                    Interest::READABLE,
                ) {
                    tracing::warn!(%error, "an RTP socket cannot be watched");
                }
            }

            Command::Update {
                key,
                mut agreed,
                rtcp,
                now,
            } => {
                if let Some(call) = self.call(key) {
                    self.watch_rtcp(call, rtcp);
                    self.unfilter(call);
                    let call = &mut self.calls[call];
                    self.ports.look_up(&mut agreed, now);
                    call.negotiate(agreed, now);
                    // A peer at our own port is a call of this node. Its agent may wait for a first packet, to learn our address from it.
                    let is_near = call.has_browser() && self.ports.is_ours(agreed.remote);
                    call.session.speak_first(is_near);
                }
            }
            Command::Prove { key } => {
                if let Some(call) = self.call(key) {
                    self.calls[call].prove();
                }
            }
            Command::Speak { key, speech } => {
                if let Some(call) = self.call(key) {
                    self.calls[call].session.say(speech);
                    self.wheel.add(call, now);
                }
            }
            Command::Play { key, serial, sound } => {
                if let Some(call) = self.call(key) {
                    self.calls[call].play(serial, sound);
                    self.wheel.add(call, now + PHASE);
                }
            }

            Command::Attach {
                key,
                bot,
                rtcp,
                hold,
                share,
                entropy,
            } => {
                let Some(call) = self.call(key) else { return };
                self.watch_rtcp(call, rtcp);
                match BotLeg::new(*bot, hold, share, *entropy) {
                    Ok(bot) => self.attach(call, bot, now),
                    Err(error) => {
                        tracing::warn!(%error, "a bot's socket refuses its options");
                        self.news.push((key, MediaEvent::BotClosed(BotEnd::Lost)));
                    }
                }
            }

            Command::AttachBrowser { key, browser } => {
                if let Some(call) = self.call(key) {
                    self.calls[call].attach_browser(*browser);
                }
            }
            Command::Press { key, keys } => {
                if let Some(call) = self.call(key) {
                    self.calls[call].press(&keys);
                }
            }

            Command::Start { key, answered_at } => {
                if let Some(call) = self.call(key) {
                    self.calls[call].start(answered_at, &mut self.scratch, now);
                    self.wheel.add(call, now + PHASE);
                    self.remove_ended(call, now);
                }
            }
            Command::PassKey { key, pressed } => {
                if let Some(call) = self.call(key) {
                    self.calls[call].pass_key(pressed, &mut self.scratch, now);
                    self.remove_ended(call, now);
                }
            }
            Command::Close { key } => {
                if let Some(call) = self.call(key) {
                    self.by_key.remove(&key);
                    self.wheel.remove(call);
                    self.unfilter(call);
                    let mut call = self.calls.remove(call);
                    self.forget(&mut call, now);
                }
            }
        }
    }

    /// Ends a call. Its socket is kept for the next calls; those of its bot and of RTCP are closed.
    fn forget(&mut self, call: &mut Call, now: Moment) {
        let ports = &self.ports;
        call.stop(|to| ports.is_listener(to), &mut self.scratch, now);
        if let Some(bot) = call.take_bot() {
            self.dismiss(*bot, now);
        }
        // The quality is that of the agent's leg; a browser's own call isn't counted beside it.
        if !call.has_browser() {
            self.meters.call_over(&call.figures());
        }
        for socket in [Some(&call.socket), call.rtcp()].into_iter().flatten() {
            // A socket that isn't watched makes no events.
            let _ = self
                .poll
                .registry()
                .deregister(&mut SourceFd(&socket.as_raw_fd()));
        }
    }

    fn watch_rtcp(&mut self, place: usize, socket: Option<Arc<UdpSocket>>) {
        if self.calls[place].rtcp().is_some() {
            return;
        }
        if let Some(socket) = &socket {
            let token = Socket::Rtcp(place).token();
            let registered = self.poll.registry().register(
                &mut SourceFd(&socket.as_raw_fd()),
                token,
                Interest::READABLE,
            );
            if let Err(error) = registered {
                tracing::warn!(%error, "an RTCP socket cannot be watched");
            }
        }
        self.calls[place].set_rtcp(socket);
    }

    /// Finds the call that a command is about.
    fn call(&mut self, key: u64) -> Option<usize> {
        self.current = self.by_key.get(&key).copied();
        self.current
    }

    fn attach(&mut self, call: usize, mut bot: BotLeg, now: Moment) {
        let token = Socket::Bot(call).token();
        let registered = self.poll.registry().register(
            bot.link().stream(),
            token,
            Interest::READABLE | Interest::WRITABLE,
        );
        if let Err(error) = registered {
            tracing::warn!(%error, "a bot's socket cannot be watched");
        }

        // Octets that came with the handshake cause no event.
        self.unread.push(token);
        if let Some(before) = self.calls[call].attach(bot, &mut self.scratch, now) {
            self.dismiss(*before, now);
        }
        self.meters.bot_attached();
        self.remove_ended(call, now);
    }

    /// Removes a stopped bot.
    fn dismiss(&mut self, bot: BotLeg, now: Moment) {
        self.meters.bot_gone(&bot.counts(), None);
        let mut link = bot.into_link();
        // A socket that isn't watched makes no events.
        let _ = self.poll.registry().deregister(link.stream());
        self.closing_links.add(link, now);
    }

    fn serve(&mut self, token: Token, is_writable: bool) {
        match Socket::of(token) {
            Socket::Rtp(call) => self.serve_rtp(call),
            Socket::Rtcp(call) => self.serve_rtcp(call),
            Socket::Bot(call) => self.serve_bot(call, is_writable),
        }
    }

    fn serve_rtp(&mut self, place: usize) {
        let ports = Arc::clone(&self.ports);
        for _ in 0..TURN {
            let Some(call) = self.calls.get_mut(place) else {
                return;
            };
            let (length, source) = match call.socket.recv_from(&mut *self.buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return self.settle(place, (self.clock)());
                }
                // An ICMP error of an earlier packet; the next packet may still be readable.
                Err(_) => continue,
            };
            if !call.session.is_negotiated() {
                // The result of the negotiation may still be in the mailbox, and this packet needs it.
                self.run_commands();
                self.current = Some(place);
            }

            let now = (self.clock)();
            let Some(call) = self.calls.get_mut(place) else {
                return;
            };
            if let Err(flood) = call.take_packet(source, now) {
                self.packets.discarded += 1;
                if self.resist(place, flood, now) {
                    continue;
                }
                return self.settle(place, now);
            }
            if length >= LONGEST || ports.is_listener(source) {
                self.packets.discarded += 1;
                continue;
            }

            let octets = &mut self.buffer[..length];
            if rtcp::is_rtcp(octets) {
                call.receive_rtcp(octets, source, now);
                if call.take_back() {
                    self.news.push((call.key, MediaEvent::Heard));
                }
                continue;
            }
            match call.receive(
                octets,
                source,
                |address| ports.is_ours(address),
                &mut self.scratch,
                now,
            ) {
                Fate::Echoed(to, packet) => {
                    send(&call.socket, packet, to);
                    self.packets.echoed += 1;
                }
                Fate::Passed => self.packets.passed += 1,
                Fate::Discarded => self.packets.discarded += 1,
            }
            if call.take_back() {
                self.news.push((call.key, MediaEvent::Heard));
            }
            if let Some((trunk, ip)) = call.take_new_ip() {
                ports.known_ips.note(trunk, ip, now);
            }
            // An echo has no ticks, so its reports are sent when packets come.
            if call.is_echo() {
                call.report(|to| ports.is_listener(to), now);
            }
            if let Some(digit) = call.take_digit(&mut self.scratch, now) {
                self.news.push((call.key, MediaEvent::Digit(digit)));
            }
        }

        self.unread.push(Socket::Rtp(place).token());
        self.settle(place, (self.clock)());
    }

    fn serve_rtcp(&mut self, place: usize) {
        let Some(call) = self.calls.get_mut(place) else {
            return;
        };
        for _ in 0..TURN {
            let Some(socket) = call.rtcp() else { return };
            match socket.recv_from(&mut *self.buffer) {
                Ok((length, source)) => {
                    let now = (self.clock)();
                    if call.take_report(now) == Taken::Exceeded {
                        return self.pause(Socket::Rtcp(place).token(), now);
                    }
                    if self.ports.is_listener(source) {
                        continue;
                    }
                    call.receive_rtcp(&self.buffer[..length], source, now);
                    if call.take_back() {
                        self.news.push((call.key, MediaEvent::Heard));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // An ICMP error of an earlier report.
                Err(_) => {}
            }
        }
        self.unread.push(Socket::Rtcp(place).token());
    }

    /// Returns the UDP socket of a token, with its call.
    fn socket(&self, token: Token) -> Option<(&Call, Arc<UdpSocket>)> {
        let (place, is_rtp) = match Socket::of(token) {
            Socket::Rtp(place) => (place, true),
            Socket::Rtcp(place) => (place, false),
            Socket::Bot(_) => return None,
        };
        let call = self.calls.get(place)?;
        let socket = if is_rtp {
            Some(&call.socket)
        } else {
            call.rtcp()
        };
        Some((call, Arc::clone(socket?)))
    }

    fn serve_bot(&mut self, place: usize, is_writable: bool) {
        let now = (self.clock)();
        let Some(call) = self.calls.get_mut(place) else {
            return;
        };
        let Some(bot) = call.bot() else { return };

        let flushed = if is_writable { bot.flush() } else { Ok(()) };
        let turn = bot.read(&mut self.scratch, now);
        call.check(flushed);
        match turn {
            LinkProgress::Emptied => {}
            LinkProgress::MoreToRead => self.unread.push(Socket::Bot(place).token()),
            LinkProgress::Ended(end) => call.check(Err(end)),
        }
        self.settle(place, now);
    }

    /// Publishes the changes of a turn.
    fn settle(&mut self, place: usize, now: Moment) {
        if let Some(call) = self.calls.get_mut(place) {
            call.publish(now);
        }
        self.remove_ended(place, now);
        self.report();
    }

    /// Drops the bot of a call, if it has gone.
    fn remove_ended(&mut self, place: usize, now: Moment) {
        let Some(call) = self.calls.get_mut(place) else {
            return;
        };
        if let Some((mut bot, end)) = call.take_ended(now) {
            // A socket that isn't watched makes no events.
            let _ = self.poll.registry().deregister(bot.link().stream());
            self.meters.bot_gone(&bot.counts(), Some(end));
            self.news.push((call.key, MediaEvent::BotClosed(end)));
        }
    }

    fn run_ticks(&mut self) {
        let mut now = (self.clock)();
        while let Some(due) = self.wheel.next_due(now) {
            self.meters.tick_late(now.since(due.at));
            for at in 0..self.wheel.len(due.slot) {
                let Some(place) = self.wheel.call(due.slot, at) else {
                    break;
                };
                self.current = Some(place);
                let Some(call) = self.calls.get_mut(place) else {
                    continue;
                };
                if let Some((to, packets)) =
                    // A tick counts at the time at which it was due. At `now`, ticks caught up would share one slot.
                    call.tick(&mut *self.buffer, &mut self.scratch, &mut self.news, due.at)
                {
                    for packet in packets.iter() {
                        send(&call.socket, packet, to);
                    }
                }

                call.report(|to| self.ports.is_listener(to), due.at);
                if let Some(after) = call.take_cleared(due.at) {
                    self.meters.cleared(after);
                }
                call.publish(due.at);
                if let Some(hold) = call.take_learnt() {
                    self.ports.learn(call.key, hold);
                }
                self.remove_ended(place, due.at);
            }
            now = (self.clock)();
        }
    }

    fn report(&mut self) {
        for (key, event) in self.news.drain(..) {
            if let MediaEvent::BotSpoke { after } = event {
                self.meters.first_word(after);
            }
            (self.on_event)(key, event);
        }
    }
}
