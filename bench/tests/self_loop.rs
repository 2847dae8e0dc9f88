//! The caller against its own callee, on a network inside the test: no socket, and a clock that jumps.

use std::net::{Ipv4Addr, SocketAddrV4};

use trunkline_bench::exchange::{Exchange, Gate, Parties, Plan, Span};
use trunkline_bench::outbox::Outbox;
use trunkline_bench::tally::{Failure, Repeats};

const DELAY: u64 = 1_000;

fn port(port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)
}

fn parties() -> Parties {
    Parties {
        server: port(5062),
        caller: port(5061),
        callee: port(5062),
        user: "tl-4711".into(),
        password: "secret".into(),
        number: "+4930111222".into(),
    }
}

fn loopback_plan() -> Plan {
    Plan {
        context: false,
        ..Plan::default()
    }
}

fn gate() -> Option<Gate> {
    Some(Gate::new("tl-4711", "secret"))
}

/// Carries datagrams between the two ends; `loses` decides which of them are lost.
struct Network<F: FnMut() -> bool> {
    exchange: Exchange,
    now: u64,
    loses: F,
    carried: u64,
}

impl<F: FnMut() -> bool> Network<F> {
    fn new(exchange: Exchange, loses: F) -> Self {
        Self {
            exchange,
            now: 0,
            loses,
            carried: 0,
        }
    }

    /// Delivers the datagrams in transit; returns true if there were any.
    fn carry(&mut self) -> bool {
        let for_callee = self.take(|exchange| &mut exchange.caller_out);
        let for_caller = self.take(|exchange| &mut exchange.callee_out);
        self.now += DELAY;
        for datagram in &for_callee {
            self.exchange
                .callee_received(datagram, port(5061), self.now);
        }
        for datagram in &for_caller {
            self.exchange
                .caller_received(datagram, port(5062), self.now);
        }
        !(for_callee.is_empty() && for_caller.is_empty())
    }

    fn take(&mut self, outbox: impl Fn(&mut Exchange) -> &mut Outbox) -> Vec<Vec<u8>> {
        let outbox = outbox(&mut self.exchange);
        let all: Vec<_> = outbox
            .messages()
            .map(|(octets, _)| octets.to_vec())
            .collect();
        outbox.clear();
        self.carried += all.len() as u64;
        all.into_iter().filter(|_| !(self.loses)()).collect()
    }

    /// Runs until no call is alive.
    fn run_out(&mut self) {
        for _ in 0..1_000_000 {
            if self.carry() {
                continue;
            }
            if self.exchange.live() == 0 {
                return;
            }

            let due = self.exchange.next_due().unwrap_or(self.now + 1_000_000);
            self.now = self.now.max(due);
            self.exchange.handle_due(self.now);
            self.exchange.sweep(self.now);
        }
        panic!("{} calls never end", self.exchange.live());
    }
}

fn run(plan: Plan, gate: Option<Gate>, calls: u64) -> Exchange {
    let mut network = Network::new(Exchange::new(&parties(), plan, gate, 100), || false);
    for _ in 0..calls {
        let now = network.now;
        assert!(network.exchange.begin_call(now, now));
        network.run_out();
    }
    network.exchange
}

#[test]
fn calls_complete_and_leave_nothing() {
    let fresh = loopback_plan();
    let long = Plan {
        ring: Span::For(3_000_000),
        talk: Span::For(60_000_000),
        ..loopback_plan()
    };

    for (name, plan, gate) in [
        ("no digest", fresh.clone(), None),
        ("a challenge a call", fresh, gate()),
        ("ringing and talking for a while", long, gate()),
    ] {
        let exchange = run(plan, gate, 50);
        assert_eq!(exchange.tally.completed, 50, "{name}: {:?}", exchange.tally);
        assert_eq!(exchange.tally.failed(), 0, "{name}");
        assert_eq!(exchange.tally.set_up.total(), 50, "{name}");

        assert_eq!(
            (exchange.tally.daemon, exchange.tally.ours),
            Default::default(),
            "{name}: nothing is sent twice"
        );
        assert_eq!(
            (
                exchange.live(),
                exchange.tally.malformed,
                exchange.tally.unexpected
            ),
            (0, 0, 0),
            "{name}"
        );
    }
}

/// A call with a challenge takes ten messages: INVITE, 401, ACK, INVITE, 100, 180, 200, ACK, BYE, 200. Without one it takes seven.
#[test]
fn a_challenge_takes_three_messages() {
    let carried = |gate| {
        let exchange = Exchange::new(&parties(), loopback_plan(), gate, 100);
        let mut network = Network::new(exchange, || false);
        for _ in 0..20 {
            let now = network.now;
            network.exchange.begin_call(now, now);
            network.run_out();
        }
        network.carried
    };

    assert_eq!((carried(gate()), carried(None)), (200, 140));
}

#[test]
fn set_up_time_counts_from_the_planned_start() {
    let mut network = Network::new(Exchange::new(&parties(), loopback_plan(), None, 1), || {
        false
    });
    network.now = 5_000_000;
    network.exchange.begin_call(2_000_000, 5_000_000);
    network.run_out();
    assert_eq!(
        network.exchange.tally.set_up.highest(),
        3_000_000 + 2 * DELAY
    );
}

#[test]
fn a_wrong_password_is_a_failure() {
    let exchange = run(loopback_plan(), Some(Gate::new("tl-4711", "another")), 1);
    assert_eq!(
        exchange.tally.failures.into_iter().collect::<Vec<_>>(),
        [(Failure::Refused(401), 1)]
    );
}

#[test]
fn a_missing_context_header_is_a_failure() {
    let exchange = run(Plan::default(), None, 1);
    assert_eq!(
        exchange.tally.failures.into_iter().collect::<Vec<_>>(),
        [(Failure::ContextMissing, 1)]
    );
}

#[test]
fn a_call_beyond_the_room_fails_and_does_not_wait() {
    let mut network = Network::new(Exchange::new(&parties(), loopback_plan(), None, 1), || {
        false
    });
    assert!(network.exchange.begin_call(0, 0));
    assert!(!network.exchange.begin_call(0, 0));
    network.run_out();
    assert_eq!(
        network
            .exchange
            .tally
            .failures
            .into_iter()
            .collect::<Vec<_>>(),
        [(Failure::NoRoom, 1)]
    );
}

#[test]
fn held_calls_ring_and_talk_until_they_are_let_go() {
    use trunkline_bench::calls::{CalleeState, CallerState};

    let plan = Plan {
        ring: Span::Held,
        talk: Span::Held,
        ..loopback_plan()
    };
    let mut network = Network::new(Exchange::new(&parties(), plan, gate(), 10), || false);
    (0..10).for_each(|_| assert!(network.exchange.begin_call(0, 0)));
    while network.carry() {}

    let ringing = network
        .exchange
        .in_states(CallerState::Proceeding, CalleeState::Ringing);
    assert_eq!(ringing.len(), 10);

    ringing
        .iter()
        .for_each(|call| network.exchange.answer(*call, network.now));
    while network.carry() {}

    let talking = network
        .exchange
        .in_states(CallerState::Talking, CalleeState::Talking);
    assert_eq!(talking.len(), 10);

    talking
        .iter()
        .for_each(|call| network.exchange.hang_up(*call, network.now));
    network.run_out();

    assert_eq!(
        (
            network.exchange.tally.completed,
            network.exchange.tally.failed()
        ),
        (10, 0)
    );
}

#[test]
fn every_call_ends_on_a_network_that_loses_a_fifth() {
    for seed in 1..=200_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let loses = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % 5 == 0
        };

        let exchange = Exchange::new(&parties(), loopback_plan(), gate(), 10);
        let mut network = Network::new(exchange, loses);
        (0..10).for_each(|_| assert!(network.exchange.begin_call(0, 0)));
        network.run_out();

        let tally = &network.exchange.tally;
        assert_eq!(
            tally.completed + tally.failed(),
            10,
            "seed {seed}: {tally:?}"
        );
        assert_ne!(tally.ours, Repeats::default(), "seed {seed} lost nothing");
    }
}

#[test]
fn a_silent_server_costs_a_failure_after_64_t1() {
    let mut network = Network::new(Exchange::new(&parties(), loopback_plan(), None, 1), || true);
    network.exchange.begin_call(0, 0);
    network.run_out();

    assert_eq!(
        network
            .exchange
            .tally
            .failures
            .into_iter()
            .collect::<Vec<_>>(),
        [(Failure::NoAnswer, 1)]
    );

    assert!(
        (32_000_000..32_100_000).contains(&network.now),
        "after {} µs",
        network.now
    );
    assert_eq!(network.exchange.tally.ours.invite, 6);
}
