//! The ACK that waits for an SDP answer (RFC 3264 §4): the 2xx to an INVITE of ours had the offer.

use trunkline_sip::endpoint::ClientTx;

/// A 2xx with an offer whose ACK waits for the answer. The requester's ACK brings it; without one, `on_no_ack` rejects the offer.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Delayed {
    pub(crate) client: ClientTx,
    pub(crate) fork: u8,
    /// CSeq of our INVITE on that leg.
    pub(crate) cseq: u32,
    /// The offer, to be rejected if no answer comes.
    pub(crate) offer: Box<[u8]>,
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use trunkline_sip::endpoint::{ClientTx, Config, Endpoint, Owner, Request};
    use trunkline_sip::entropy::Entropy;
    use trunkline_sip::flow::{Flow, Transport};
    use trunkline_sip::moment::Moment;
    use trunkline_sip::slot::{Minter, Node};
    use trunkline_sip::wire::Method;

    use super::Delayed;

    /// Transactions of two INVITEs.
    pub(crate) fn transactions() -> [ClientTx; 2] {
        let address = std::net::SocketAddr::from(([192, 0, 2, 1], 5060));
        let flow = Flow {
            transport: Transport::Udp,
            listener: 0,
            connection: 0,
            local: address,
            peer: address,
        };
        let config = Config {
            minter: Minter::new(Node(7), [7; 16]),
            t1: Duration::from_millis(500),
            t2: Duration::from_secs(4),
            t4: Duration::from_secs(5),
            server: String::new(),
            sent_by: vec!["h".into()],
            max_transactions: 2,
        };
        let mut endpoint = Endpoint::new(config, Entropy::from_seed([5; 32]));
        [1, 2].map(|owner| {
            let request = Request {
                method: Method::Invite,
                token: "INVITE",
                uri: b"sip:a@h",
                head: b"From: <sip:c@h>;tag=c\r\nTo: <sip:a@h>\r\nCall-ID: i\r\nCSeq: 1 INVITE\r\n",
                body: b"",
            };
            let now = Moment::from_secs(1_790_000_000);
            let sent = endpoint.request(flow, &request, Owner(owner), now);
            sent.expect("room for it")
        })
    }

    /// A 2xx whose ACK waits.
    pub(crate) fn delayed() -> Delayed {
        let [client, _] = transactions();
        Delayed {
            client,
            fork: 0,
            cseq: 7,
            offer: Box::default(),
        }
    }
}
