//! An agent's runtime that answers as it likes.

use crate::caller::read;
use crate::peer::Stranger;
use trunkline_testkit::House;
use trunkline_testkit::answer::answer;

/// Takes the calls of a house's first agent.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) peer: Stranger,
}

impl Runtime {
    /// Binds a port and has the first agent spoken for from there.
    pub(crate) fn of(house: &House) -> Self {
        let peer = Stranger::new(house.sip);
        house.runtime(
            &house.first_agent,
            &format!("sip:{{agent_id}}@{}", peer.address()),
        );
        Self { peer }
    }

    /// The next request of this method; what comes before it is passed over.
    pub(crate) fn request(&self, method: &str) -> Vec<u8> {
        loop {
            let octets = self.peer.receive();
            let message = read(&octets);
            if message.is_request() && message.method_token() == method.as_bytes() {
                return octets;
            }
        }
    }

    /// Answers a request. `status` is what stands behind the version, `lines` are whole lines.
    pub(crate) fn answer(&self, request: &[u8], status: &str, lines: &str, body: &str) {
        let answer = answer(&read(request), status, "runtime", lines, body);
        self.peer.send(answer.as_bytes());
    }
}
