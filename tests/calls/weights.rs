//! A runtime whose name leads to several hosts: those of one priority by their weights (RFC 2782), and a later priority only when no earlier host is
//! up.

use std::net::Ipv4Addr;
use std::time::Duration;

use trunkline_testkit::dns::{self, Record};
use trunkline_testkit::probe::Probe;
use trunkline_testkit::{DaemonSetup, Deadline, Responder};

/// Enough to rule out chance: the share of three quarters has a standard deviation of 2.2 in a hundred.
const CALLS: usize = 400;
const LEAST: usize = CALLS * 60 / 100;
const MOST: usize = CALLS * 90 / 100;

/// Far longer than the calls take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// The discard service, which nothing on this machine offers.
const NOBODY: u16 = 9;

#[test]
fn calls_are_shared_by_weight_within_the_first_priority() {
    let [heavy, light, later] = [(); 3].map(|()| Responder::busy());
    let service = |priority, weight, at: u16| Record::Weighted(priority, weight, at, "host.test");
    let names = dns::serve(vec![
        ("host.test", Record::Address(Ipv4Addr::LOCALHOST)),
        (
            "_sip._udp.pool.test",
            service(20, 1_000, later.address.port()),
        ),
        ("_sip._udp.pool.test", service(10, 30, heavy.address.port())),
        ("_sip._udp.pool.test", service(10, 10, light.address.port())),
        ("_sip._udp.rest.test", service(20, 0, later.address.port())),
        ("_sip._udp.rest.test", service(10, 100, NOBODY)),
    ]);

    let setup = DaemonSetup::new().set("TRUNKLINE__SIP__NAMESERVERS", &names.to_string());
    setup.dedicate("127.0.0.2");
    let of = |name: &str, uri: &str| {
        let made = setup.run(&[
            "agent",
            "create",
            "--org",
            &setup.org,
            "--name",
            name,
            "--runtime",
            uri,
            "--json",
        ]);
        made["id"].as_str().expect("an id").to_owned()
    };

    let (pool, rest) = (
        of("Pool", "sip:agent@pool.test"),
        of("Rest", "sip:agent@rest.test"),
    );
    let daemon = setup.serve();
    let probe = Probe::new(Ipv4Addr::new(127, 0, 0, 2), daemon.sip());
    let call = |agent: &str| probe.call("someone", &format!("X-PLATFORM-AGENT-ID: {agent}"));

    let taken = || heavy.taken() + light.taken() + later.taken();
    // Calls that the daemon refused for lack of time went to no host.
    let limit = Deadline::after(PATIENCE);
    while taken() < CALLS {
        assert!(!limit.is_over(), "only {} calls got through", taken());
        call(&pool);
    }

    let share = heavy.taken();
    assert!(
        (LEAST..=MOST).contains(&share),
        "{share} of {CALLS} went to the heavy one"
    );
    assert_eq!(
        (share + light.taken(), later.taken()),
        (CALLS, 0),
        "an earlier priority is there"
    );

    let limit = Deadline::after(PATIENCE);
    while later.taken() < 5 {
        assert!(!limit.is_over(), "only {} calls got through", later.taken());
        call(&rest);
    }
}
