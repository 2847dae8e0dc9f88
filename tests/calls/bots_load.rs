//! The benchmark of bot calls over TLS at a small size: it must work where nobody reads its figures.

use trunkline_bench::modes::{Setting, Talk, bots};
use trunkline_testkit::process::trunkline;

#[test]
fn the_benchmark_of_bots_runs() {
    let setting = Setting {
        daemon: trunkline(),
        cores: None,
        reuse_nonce: false,
        callers: 1,
        room: 1,
        leftover: false,
        warm_up: 1,
        environment: Vec::new(),
    };
    let talk = Talk {
        calls: 10,
        seconds: 10,
        message_ms: 40,
    };
    let report = bots(&setting, talk).expect("a daemon");

    assert!(report.faults.is_empty(), "{report}");
    assert_eq!(report.value("calls_up"), Some(10.0), "{report}");

    for figure in ["to_bot_p50_ms", "ticks", "clears", "kilobytes_per_call"] {
        let value = report.value(figure);
        assert!(value.is_some_and(|value| value > 0.0), "{figure}: {report}");
    }
}
