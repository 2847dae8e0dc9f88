//! A daemon that may open few files, and peers that want more: HTTP and calls have a reserve.

use std::net::TcpStream;
use std::time::Duration;

use trunkline_testkit::{DaemonSetup, Deadline, http, tools};

/// Files that the daemon may open: some dozens are its own.
const OPEN_FILES: u32 = 512;
/// Connections: more than those files.
const CONNECTIONS: u32 = 600;
/// Far beyond the usual time, since other tests share the machine.
const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn connections_of_sip_leave_descriptors_to_http_and_calls() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = DaemonSetup::new()
        .set("TRUNKLINE__LIMITS__MAX_CONNECTIONS_PER_SOURCE", "10000")
        .open_files(OPEN_FILES)
        .serve();
    // Those beyond the daemon's bound displace the oldest, which it closes.
    let flood: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| TcpStream::connect(daemon.sip()).expect("a connection"))
        .collect();

    for path in ["/healthz", "/readyz"] {
        let answered = Deadline::after(LIMIT).poll(|| {
            let (status, _) = http::get(daemon.setup.http, path, None)?;
            (status == 200).then_some(())
        });
        assert!(answered.is_some(), "{path}: {}", daemon.log());
    }
    daemon.shown("/phone/calls");
    daemon.caller().play("caller_hangs_up").finish();
    assert_eq!(daemon.record()["status"], "completed");
    assert!(!daemon.log().contains("not accepted"), "{}", daemon.log());
    drop(flood);
}
