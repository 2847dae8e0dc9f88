//! Steps of a call's media in the order in which they happened: for the call's record, never the audio itself. Bounded, each kind of step as
//! well as all of them, so that a bot that clears without end hides neither its call's beginning nor its end.

use std::net::SocketAddr;

use trunkline_sip::moment::Moment;

use crate::bot::BotEnd;

/// Most steps of a call that are kept. Later ones are left out.
const MAX_STEPS: usize = 64;

/// Most steps of one kind.
const MAX_OF_KIND: usize = 8;

/// Step of a call's media.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct MediaStep {
    /// Time of the step.
    pub at: Moment,
    /// Kind of the step.
    pub kind: MediaStepKind,
}

/// Kind of a step of a call's media.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum MediaStepKind {
    /// A port was assigned.
    Opened,
    /// The first packet with a negotiated payload type came, from this address.
    FirstPacket(SocketAddr),
    /// The peer is heard at this address, and audio goes there.
    Learnt(SocketAddr),
    /// Audio of the agent is withheld: this address has sent nothing, and only SDP says that the peer listens there.
    Withheld(SocketAddr),
    /// No socket is bound at this address, which audio was sent to: nothing more is sent until the peer is heard.
    Unreachable(SocketAddr),
    /// A bot was attached.
    BotConnected,
    /// The bot got its `start`.
    Started,
    /// The first audio of the agent was sent to the peer.
    FirstAudio,
    /// The bot cleared audio that was queued.
    Cleared,
    /// The last audible packet after a clear was sent.
    Silent,
    /// The audio before a mark of the bot was played.
    Mark,
    /// The peer pressed a key. The key itself isn't kept, since keys may spell a card's number.
    Key,
    /// The bot's audio ran out inside a talk spurt.
    Underrun,
    /// Audio of the bot was discarded because its queue was full.
    Discarded,
    /// The bot has gone before the end of its call.
    BotClosed(BotEnd),
    /// The port was released.
    Closed,
}

/// Steps that were kept.
#[derive(Debug, Default)]
pub(super) struct Timeline(Vec<MediaStep>);

impl Timeline {
    /// Keeps a step, if there is room for it.
    pub(super) fn note(&mut self, kind: MediaStepKind, at: Moment) {
        let is_alike =
            |step: &&MediaStep| std::mem::discriminant(&step.kind) == std::mem::discriminant(&kind);
        if self.0.len() < MAX_STEPS && self.0.iter().filter(is_alike).count() < MAX_OF_KIND {
            self.0.push(MediaStep { at, kind });
        }
    }

    /// Returns the steps.
    pub(super) fn steps(&self) -> &[MediaStep] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_step_leaves_room_for_the_others() {
        let mut timeline = Timeline::default();
        timeline.note(MediaStepKind::Opened, Moment::from_secs(1));
        for second in 0..100 {
            for kind in [
                MediaStepKind::Cleared,
                MediaStepKind::Silent,
                MediaStepKind::Mark,
                MediaStepKind::Underrun,
            ] {
                timeline.note(kind, Moment::from_secs(second));
            }
        }
        timeline.note(MediaStepKind::Closed, Moment::from_secs(200));

        let mut kinds = timeline.steps().iter().map(|step| step.kind);
        assert_eq!(
            kinds
                .clone()
                .filter(|kind| *kind == MediaStepKind::Mark)
                .count(),
            8
        );
        assert_eq!(kinds.clone().next(), Some(MediaStepKind::Opened));
        assert_eq!(kinds.next_back(), Some(MediaStepKind::Closed));
    }
}
