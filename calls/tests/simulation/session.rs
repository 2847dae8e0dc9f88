//! One dialog as a peer sees it: identity, sequence numbers, the offer that is out, the session timer.

use std::time::Duration;

use trunkline_sip::wire::{HeaderName, Message};

/// State of a dialog.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Early,
    Confirmed,
    /// Our BYE waits for its answer.
    Leaving,
    Ended,
}

/// A session interval that was agreed on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interval {
    pub(crate) seconds: u64,
    pub(crate) we_refresh: bool,
}

impl Interval {
    /// Returns whether `refresher=` names us; `ours` is our role in that transaction.
    pub(crate) fn read(message: &Message<'_>, ours: &str) -> Option<Self> {
        let value = message.first(HeaderName::SessionExpires)?;
        let value = String::from_utf8_lossy(value).replace(' ', "");
        let (seconds, refresher) = value
            .split_once(";refresher=")
            .unwrap_or((value.as_str(), "uac"));
        Some(Self {
            seconds: seconds.parse().ok()?,
            we_refresh: refresher == ours,
        })
    }

    /// Half of it, after which the refresher acts.
    pub(crate) fn half(&self) -> Duration {
        Duration::from_secs(self.seconds) / 2
    }

    pub(crate) fn whole(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) call_id: String,
    /// From of our requests.
    pub(crate) local: String,
    pub(crate) local_tag: String,
    /// To of our requests.
    pub(crate) remote: String,
    pub(crate) remote_tag: Vec<u8>,
    pub(crate) target: String,
    pub(crate) local_seq: u32,
    pub(crate) remote_seq: u32,
    /// The node has answered a request of ours with a number above 0, in a dialog that it keeps: not in an early dialog of its own INVITE.
    pub(crate) sequenced: bool,
    /// CSeq of the last request sent before the first ACK: the node may have answered it in an early dialog, whose requests it doesn't number.
    pub(crate) last_early: Option<u32>,
    pub(crate) stage: Stage,
    /// The label of our offer that waits for its answer.
    pub(crate) offered: Option<String>,
    /// An INVITE of ours or theirs that has no final answer or ACK yet, by client or server number.
    pub(crate) asking: Option<usize>,
    pub(crate) asked: Option<usize>,
    /// Our 2xx to the peer's INVITE waits for its ACK.
    pub(crate) unacknowledged: bool,
    pub(crate) interval: Option<Interval>,
    /// Counts the refreshes, so that an alarm knows whether it is still meant.
    pub(crate) refreshed: u32,
    /// The last RSeq, of theirs or ours.
    pub(crate) highest_rseq: u32,
    /// The offer of the INVITE, or the one that came instead, was answered before the 2xx.
    pub(crate) agreed: bool,
}

impl Session {
    /// A dialog that an INVITE of ours made.
    pub(crate) fn as_caller(invite: &Message<'_>, answer: &Message<'_>) -> Self {
        Self::new(
            answer,
            (invite.from(), invite.from_tag()),
            (answer.to(), answer.to_tag()),
            invite.cseq().number,
            0,
        )
    }

    /// A dialog that our answer to an INVITE makes.
    pub(crate) fn as_callee(invite: &Message<'_>, tag: &str) -> Self {
        let local = [invite.to(), b";tag=", tag.as_bytes()].concat();
        Self::new(
            invite,
            (&local, Some(tag.as_bytes())),
            (invite.from(), invite.from_tag()),
            0,
            invite.cseq().number,
        )
    }

    fn new(
        message: &Message<'_>,
        (local, local_tag): (&[u8], Option<&[u8]>),
        (remote, remote_tag): (&[u8], Option<&[u8]>),
        local_seq: u32,
        remote_seq: u32,
    ) -> Self {
        Self {
            call_id: text(message.call_id()),
            local: text(local),
            local_tag: text(local_tag.unwrap_or_default()),
            remote: text(remote),
            remote_tag: remote_tag.unwrap_or_default().to_vec(),
            target: contact_of(message).unwrap_or_default(),
            local_seq,
            remote_seq,
            sequenced: local_seq > 0,
            last_early: None,
            stage: Stage::Early,
            offered: None,
            asking: None,
            asked: None,
            unacknowledged: false,
            interval: None,
            refreshed: 0,
            highest_rseq: 0,
            agreed: false,
        }
    }

    pub(crate) fn is(&self, message: &Message<'_>) -> bool {
        self.call_id.as_bytes() == message.call_id()
            && Some(self.local_tag.as_bytes()) == message.to_tag()
            && Some(&*self.remote_tag) == message.from_tag()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.stage == Stage::Confirmed
    }

    /// Returns whether an offer could be made or taken now.
    pub(crate) fn is_quiet(&self) -> bool {
        self.offered.is_none() && self.asking.is_none() && self.asked.is_none()
    }

    pub(crate) fn refresh_target(&mut self, message: &Message<'_>) {
        if let Some(target) = contact_of(message) {
            self.target = target;
        }
    }
}

/// The URI of Contact, which all that we write put in angle brackets.
fn contact_of(message: &Message<'_>) -> Option<String> {
    let value = text(message.first(HeaderName::Contact)?);
    let (_, rest) = value.split_once('<')?;
    let (uri, _) = rest.split_once('>')?;
    Some(uri.to_owned())
}

pub(crate) fn text(octets: &[u8]) -> String {
    String::from_utf8_lossy(octets).into_owned()
}

/// Builds a description that differs from every other and names the offer that it answers.
pub(crate) fn sdp(label: &str, direction: &str, answers: Option<&str>) -> Vec<u8> {
    // In the session's name, since it says nothing of the media.
    let answers = answers.map_or(String::new(), |of| format!(" to {of}"));
    format!(
        "v=0\r\no=- 1 1 IN IP4 192.0.2.77\r\ns={label}{answers}\r\nc=IN IP4 192.0.2.77\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0 8\r\na={direction}\r\n"
    )
    .into_bytes()
}

/// The label of a description.
pub(crate) fn label_of(body: &[u8]) -> String {
    let line = line_of(body, "s=").unwrap_or_default();
    line.split(" to ").next().unwrap_or_default().to_owned()
}

/// Returns whether a description can be the answer to the offer with that label: a peer's that names it, one of the echo agent's, or
/// one that takes nothing.
pub(crate) fn is_answer_to(body: &[u8], label: &str) -> bool {
    let line = line_of(body, "s=").unwrap_or_default();
    match line.split_once(" to ") {
        Some((_, answered)) => answered == label,
        None => line == "-",
    }
}

fn line_of(body: &[u8], start: &str) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix(start))
        .map(str::to_owned)
}
