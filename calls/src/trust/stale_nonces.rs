//! Callers that answer with a nonce that is no longer valid.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use trunkline_sip::wire::Message;

/// Recent calls that have answered a challenge with an expired nonce, to notice those that do it again. Only senders with a valid password get here.
#[derive(Debug, Default)]
pub(crate) struct StaleNonces(VecDeque<(u64, u32)>);

impl StaleNonces {
    /// Calls that are kept; the oldest is forgotten.
    const KEPT: usize = 64;

    /// Notes the request. Returns whether its call did the same before, in another request.
    pub(crate) fn is_repeated(&mut self, message: &Message<'_>) -> bool {
        let mut hasher = DefaultHasher::new();
        message.call_id().hash(&mut hasher);
        let (call, number) = (hasher.finish(), message.cseq().number);
        let known = self.0.iter().find(|(known, _)| *known == call);
        let is_again = known.is_some_and(|(_, first)| *first != number);
        if known.is_none() {
            self.0.push_back((call, number));
            if self.0.len() > Self::KEPT {
                self.0.pop_front();
            }
        }
        is_again
    }
}
