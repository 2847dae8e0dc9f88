//! Random input in any order: once the users have let go and time has run out, nothing is left.

use proptest::prelude::*;

use super::*;

const METHODS: [&str; 6] = ["INVITE", "ACK", "CANCEL", "BYE", "OPTIONS", "PRACK"];
const BRANCHES: [&str; 4] = ["z9hG4bKone", "z9hG4bKtwo", "z9hG4bKthree", "old"];
const SENT: [Method; 3] = [Method::Invite, Method::Bye, Method::Options];
const STATUSES: [u16; 8] = [100, 180, 183, 200, 202, 302, 486, 503];
const TAGS: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Debug)]
enum Step {
    Arrive {
        method: usize,
        branch: usize,
        in_dialog: bool,
    },
    Respond {
        which: usize,
        status: usize,
        bare: bool,
    },
    Acknowledged {
        which: usize,
    },
    Send {
        method: usize,
    },
    Answer {
        which: usize,
        status: usize,
        tag: usize,
        to_cancel: bool,
    },
    Cancel {
        which: usize,
    },
    Ack {
        which: usize,
        tag: usize,
    },
    Lose,
    Wait {
        millis: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0..6usize;
    prop_oneof![
        4 => (0..METHODS.len(), 0..BRANCHES.len(), any::<bool>())
            .prop_map(|(method, branch, in_dialog)| Step::Arrive { method, branch, in_dialog }),
        3 => (which.clone(), 0..STATUSES.len(), any::<bool>())
            .prop_map(|(which, status, bare)| Step::Respond { which, status, bare }),
        1 => which.clone().prop_map(|which| Step::Acknowledged { which }),
        2 => (0..SENT.len()).prop_map(|method| Step::Send { method }),
        4 => (which.clone(), 0..STATUSES.len(), 0..TAGS.len(), prop::bool::weighted(0.2))
            .prop_map(|(which, status, tag, to_cancel)| Step::Answer { which, status, tag, to_cancel }),
        1 => which.clone().prop_map(|which| Step::Cancel { which }),
        1 => (which, 0..TAGS.len()).prop_map(|(which, tag)| Step::Ack { which, tag }),
        1 => Just(Step::Lose),
        3 => prop_oneof![0..2_000u64, 0..40_000u64].prop_map(|millis| Step::Wait { millis }),
    ]
}

/// The users of an endpoint, who keep every handle and respect no order.
struct Users {
    endpoint: Endpoint,
    flow: Flow,
    now: Moment,
    servers: Vec<ServerTx>,
    clients: Vec<(ClientTx, Method, String)>,
}

impl Users {
    fn perform(&mut self, step: &Step) {
        let (flow, now) = (self.flow, self.now);
        match *step {
            Step::Arrive {
                method,
                branch,
                in_dialog,
            } => {
                let to = if in_dialog { ";tag=us" } else { "" };
                let arrival = Arrival {
                    method: METHODS[method],
                    branch: BRANCHES[branch],
                    to,
                };
                self.receive(&arrival.print());
            }

            Step::Respond {
                which,
                status,
                bare,
            } => {
                let head: &[u8] = if bare { b"" } else { b"Contact: <sip:us>\r\n" };
                if let Some(tx) = self.servers.get(which) {
                    let response = Response {
                        head,
                        ..Response::bare(STATUSES[status])
                    };
                    self.endpoint.respond(*tx, &response, now);
                }
            }

            Step::Acknowledged { which } => {
                if let Some(tx) = self.servers.get(which) {
                    self.endpoint.acknowledged(*tx);
                }
            }
            Step::Send { method } => self.send(SENT[method]),

            Step::Answer {
                which,
                status,
                tag,
                to_cancel,
            } => {
                if let Some((_, method, via)) = self.clients.get(which) {
                    let method = if to_cancel { Method::Cancel } else { *method };
                    let octets = answer(via, method, STATUSES[status], TAGS[tag]);
                    self.receive(&octets);
                }
            }

            Step::Cancel { which } => {
                if let Some((tx, ..)) = self.clients.get(which) {
                    self.endpoint.cancel(*tx, b"", now);
                }
            }
            Step::Ack { which, tag } => {
                if let Some((tx, ..)) = self.clients.get(which) {
                    let head = our_head("ACK");
                    let ack = our_request(Method::Ack, &head);
                    self.endpoint
                        .ack(*tx, TAGS[tag].as_bytes(), flow, &ack, now);
                }
            }

            Step::Lose => self.endpoint.handle_flow_lost(&flow, &Fault::Closed, now),
            Step::Wait { millis } => self.wait(Duration::from_millis(millis)),
        }

        self.check_output();
    }

    fn receive(&mut self, octets: &[u8]) {
        let (flow, now) = (self.flow, self.now);
        if let Received::Request(message) = self.endpoint.receive(octets, flow, now)
            && let Ok(tx) = self.endpoint.accept(&message, flow, OWNER, now)
        {
            self.servers.push(tx);
        }
    }

    fn send(&mut self, method: Method) {
        let head = our_head(method.as_str());
        let request = our_request(method, &head);
        if let Ok(tx) = self.endpoint.request(self.flow, &request, OWNER, self.now) {
            let (_, sent) = self
                .endpoint
                .transmits()
                .last()
                .expect("it is sent at once");
            let sent = String::from_utf8_lossy(sent);
            let via = sent
                .lines()
                .find(|line| line.starts_with("Via: "))
                .expect("it has a Via");
            self.clients.push((tx, method, via.to_owned()));
        }
    }

    fn wait(&mut self, duration: Duration) {
        let until = self.now + duration;
        while let Some(next) = self.endpoint.next_timeout().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            self.endpoint.handle_timeout(self.now);
            self.check_output();
        }
        self.now = until;
    }

    /// Every message sent can be lexed again.
    fn check_output(&mut self) {
        for (_, octets) in self.endpoint.transmits() {
            assert!(
                lex(octets, Framing::Stream).is_ok(),
                "{}",
                String::from_utf8_lossy(octets)
            );
        }
        self.endpoint.clear_transmits();
        while self.endpoint.poll_event().is_some() {}
    }

    /// Gives every request a final response and cancels every INVITE, as a user must.
    fn let_go(&mut self) {
        for tx in std::mem::take(&mut self.servers) {
            self.endpoint.respond(tx, &Response::bare(500), self.now);
        }
        for (tx, ..) in std::mem::take(&mut self.clients) {
            self.endpoint.cancel(tx, b"", self.now);
        }
        self.check_output();
    }
}

fn answer(via: &str, method: Method, status: u16, tag: &str) -> Vec<u8> {
    format!(
        "SIP/2.0 {status} Whatever\r\n{via}\r\nFrom: <sip:us@example.com>;tag=us\r\n\
         To: <sip:peer@example.org>;tag={tag}\r\nCall-ID: ours\r\nCSeq: 3 {}\r\nContent-Length: 0\r\n\r\n",
        method.as_str()
    )
    .into_bytes()
}

proptest! {
    #[test]
    fn nothing_is_left_once_time_has_run_out(
        steps in proptest::collection::vec(step(), 1..80),
        reliable in any::<bool>(),
        max in 1..12usize,
    ) {
        let transport = if reliable { Transport::Tcp } else { Transport::Udp };
        let mut users = Users {
            endpoint: Endpoint::new(config(max), Entropy::from_seed([6; 32])),
            flow: flow(transport),
            now: START,
            servers: Vec::new(),
            clients: Vec::new(),
        };
        for step in &steps {
            users.perform(step);
            let counts = users.endpoint.counts();
            prop_assert!(counts.server_invite + counts.server_other <= max + max.div_ceil(RESERVE_FOR_BYE));
            prop_assert!(counts.client_invite + counts.client_other <= max);
            prop_assert!(counts.tombstones <= max * TOMBSTONES_PER_TRANSACTION);
        }

        users.let_go();
        users.wait(Duration::from_secs(70));
        prop_assert_eq!(users.endpoint.counts(), Counts::default());
        prop_assert_eq!(users.endpoint.next_timeout(), None);
        prop_assert!(users.endpoint.merged.is_empty());
    }
}
