//! Running call of a browser: messages between its user agent and the shards, and its negotiated media.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use trunkline_model::address::{AddressPolicy, Refusal};
use trunkline_net::listener::InProcess;
use trunkline_net::media::{Media, MediaPeer, NegotiatedMedia};
use trunkline_sip::dialog::sdp::{Audio, Direction};
use trunkline_sip::wire::frame::{Frame, Framer};
use uuid::Uuid;

use super::order::{BrowserCommand, BrowserEvent};
use super::user_agent::{End, Event, Output, UserAgent};
use crate::engine::clock;
use crate::engine::inbox::{ForwardedMessage, Input, ShardRouter};
use crate::engine::media_addresses::MediaAddresses;
use crate::engine::member_invite::MemberInvite;

/// Longest wait for the end of the call after our BYE or CANCEL.
const HANG_UP_TIMEOUT: Duration = Duration::from_secs(5);

/// Parts of the daemon that a browser's call uses; clones share them.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Wires {
    pub(in crate::engine) router: ShardRouter,
    pub(in crate::engine) media: Media,
    pub(in crate::engine) media_addresses: Arc<MediaAddresses>,
    pub(in crate::engine) addresses: Arc<AddressPolicy>,
}

/// State of a call from its INVITE to its end.
#[derive(Debug)]
pub(super) struct RunningCall {
    pub(super) wires: Wires,
    /// Key of the call's media.
    pub(super) key: u64,
    pub(super) agent: UserAgent,
    pub(super) connection: InProcess,
    pub(super) events: mpsc::Sender<BrowserEvent>,
    pub(super) negotiation: MediaNegotiation,
}

/// Media of a call as last negotiated.
#[derive(Debug, Default)]
pub(super) struct MediaNegotiation(Option<NegotiatedMedia>);

impl MediaNegotiation {
    fn agree(&mut self, media: &Media, key: u64, agreed: NegotiatedMedia) {
        self.0 = Some(agreed);
        media.update(key, agreed, clock::now());
        media.start(key, clock::now());
    }

    /// Stops the audio in both directions until an offer turns it on again. Does nothing before the first agreement.
    fn turn_off(&mut self, media: &Media, key: u64) {
        if let Some(agreed) = &mut self.0 {
            agreed.remote.set_port(0);
            agreed.direction = Direction::Inactive;
            media.update(key, *agreed, clock::now());
        }
    }
}

impl RunningCall {
    /// Runs the call to its end. `began` yields the id of the call's record.
    pub(super) async fn run(
        mut self,
        first: MemberInvite,
        began: oneshot::Receiver<Uuid>,
        mut commands: mpsc::Receiver<BrowserCommand>,
    ) {
        let inbox = self.wires.router.inbox_for(&first.octets).clone();
        inbox.send(Input::Member(Box::new(first))).await;
        // The shard ends this wait once it has handled the INVITE: if there is no record, it drops the sender.
        if let Ok(call) = began.await {
            self.tell(BrowserEvent::Began(call));
        }

        let (mut framer, mut octets) = (Framer::new(), Vec::new());
        let mut hang_up_deadline = None;
        while !self.agent.is_over() {
            let hang_up_timeout = async {
                match hang_up_deadline {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };

            let mut output = Output::default();
            tokio::select! {
                is_open = self.connection.receive(&mut octets) => {
                    // A full outbox closes the connection: more messages waited than a call ever gets.
                    if !is_open {
                        break;
                    }
                    framer.push(&octets);
                    octets.clear();
                    self.read(&mut framer, &mut output);
                }
                // Not polled after a hang-up: a closed channel is always ready, and the loop would spin.
                command = commands.recv(), if hang_up_deadline.is_none() => match command {
                    Some(BrowserCommand::Press(keys)) => self.wires.media.press(self.key, keys.as_bytes()),
                    Some(BrowserCommand::HangUp) | None => {
                        self.agent.hang_up(&mut output);
                        hang_up_deadline = Some(tokio::time::Instant::from_std(clock::instant(clock::now() + HANG_UP_TIMEOUT)));
                    }
                },
                () = hang_up_timeout => break,
            }

            self.carry_out(output).await;
        }
    }

    fn read(&mut self, framer: &mut Framer, output: &mut Output) {
        while let Ok(Some(frame)) = framer.next_frame() {
            if let Frame::Message(message) = frame {
                self.agent.handle_message(message, output);
            }
        }
    }

    async fn carry_out(&mut self, output: Output) {
        for octets in output.messages {
            let inbox = self.wires.router.inbox_for(&octets);
            let message = ForwardedMessage {
                flow: self.connection.flow(),
                octets: octets.into(),
                received_at: clock::now(),
            };
            inbox.send(Input::Messages(vec![message])).await;
        }

        for event in output.events {
            match event {
                Event::Ringing => self.tell(BrowserEvent::Ringing),
                Event::Answered => self.tell(BrowserEvent::Answered),
                Event::Media(audio) => self.agree(audio),
                Event::Ended(end) => self.tell(ended_event(end)),
            }
        }
    }

    /// Sets the negotiated media. No RTP is sent to an address in the SDP that the address policy refuses.
    fn agree(&mut self, audio: Option<Audio>) {
        let Some(audio) = audio else {
            // A stream that was turned off by a port of 0 (RFC 3264 §8.2).
            return self.negotiation.turn_off(&self.wires.media, self.key);
        };

        let inside = self.wires.media_addresses.inside_of(audio.remote);
        let inside = inside.filter(|inside| self.wires.media.is_port(*inside));
        let mut remote = inside.unwrap_or(audio.remote);
        // A port of this node's own media, as of a built-in agent, may be on an address that tenants mustn't name.
        if !self.wires.media.is_port(remote)
            && let Err(refusal) = self.wires.addresses.examine(remote)
        {
            tracing::info!(peer = %remote, reason = refusal.code(), "a browser's call sends no RTP: the address in the SDP is not allowed");
            self.tell(BrowserEvent::NoAudio(no_audio(remote.ip(), refusal)));
            remote.set_port(0);
        }

        // Media that goes in neither direction needs no target.
        if !audio.direction.sends() && !audio.direction.receives() {
            remote.set_port(0);
        }

        let agreed = NegotiatedMedia {
            remote,
            payload: audio.payload,
            telephone_event: audio.telephone_event,
            received: audio.received,
            direction: audio.direction,
            packet_time: audio.packet_time,
            rtcp: None,
            sources: [remote.ip(); 2],
            from_any: false,
            peer: MediaPeer::default(),
        };
        self.negotiation.agree(&self.wires.media, self.key, agreed);
    }

    /// Sends an event to the page.
    fn tell(&self, event: BrowserEvent) {
        // Lost if the page is gone or doesn't read. It still learns of the end, since the channel closes.
        let _ = self.events.try_send(event);
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        // The figures of the browser's own audio are not recorded.
        let _ = self.wires.media.close(self.key, clock::now());
    }
}

/// Returns the sentence for media whose address is refused.
fn no_audio(ip: IpAddr, refusal: Refusal) -> Box<str> {
    format!("No audio passes: the runtime's media address {ip} {refusal}.").into()
}

fn ended_event(end: End) -> BrowserEvent {
    let hung_up = |sentence: &str| BrowserEvent::Ended {
        status: None,
        code: None,
        sentence: sentence.into(),
    };
    match end {
        End::Own => hung_up("You hung up."),
        End::Remote => hung_up("The other side hung up."),
        End::Refused(status, code, sentence) => BrowserEvent::Ended {
            status: Some(status),
            code,
            sentence,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use trunkline_bounds::Holder;
    use trunkline_net::media::MediaSettings;
    use trunkline_sip::dialog::sdp::{AudioPayload, PacketTime, PayloadTypes};
    use trunkline_sip::entropy::Entropy;
    use trunkline_testkit::Deadline;
    use trunkline_testkit::talker::Rtp;

    use super::*;

    const KEY: u64 = 1;
    const PATIENCE: Duration = Duration::from_secs(15);

    #[test]
    fn audio_that_was_turned_off_is_no_longer_sent() {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let settings = MediaSettings {
            ports: 40_000..=40_999,
            ips: vec![ip],
            own: vec![ip],
            listeners: Vec::new(),
            workers: 1,
            descriptors: std::sync::Arc::default(),
        };
        let entropy = Entropy::from_seed([1; 32]);
        let media = Media::new(&settings, entropy, clock::now, |_, _| {}).unwrap();
        let ours = media
            .open(KEY, ip, Holder::alone(uuid::Uuid::nil()))
            .unwrap();
        let audio = media.attach_browser(KEY);

        let peer = Rtp::new(ip);

        let mut negotiation = MediaNegotiation::default();
        negotiation.turn_off(&media, KEY);
        let agreed = NegotiatedMedia {
            remote: peer.address(),
            payload: AudioPayload::PCMU,
            telephone_event: None,
            received: PayloadTypes::default(),
            direction: Direction::SendRecv,
            packet_time: PacketTime::default(),
            rtcp: None,
            sources: [ip; 2],
            from_any: false,
            peer: MediaPeer::default(),
        };
        negotiation.agree(&media, KEY, agreed);

        let hears = || {
            peer.speak(ours);
            // A full queue already has frames to send.
            let _ = audio.spoken.try_send([0x23; 160]);
            peer.audio()
        };

        let heard = Deadline::after(PATIENCE).poll(hears);
        assert!(heard.is_some(), "the peer hears the microphone");

        negotiation.turn_off(&media, KEY);
        let is_silent = || (0..20).all(|_| hears().is_none());
        let silent = Deadline::after(PATIENCE).poll(|| is_silent().then_some(()));
        assert!(silent.is_some(), "the peer hears nothing any more");
    }
}
