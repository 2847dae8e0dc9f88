//! The benchmarks of bot calls over TLS at a small size: they must work where nobody reads their figures.

use trunkline_bench::modes::{Attack, Setting, Talk, bots, hostile};
use trunkline_testkit::process::trunkline;

fn setting() -> Setting {
    Setting {
        daemon: trunkline(),
        cores: None,
        callers: 1,
        room: 1,
        leftover: false,
        warm_up: 1,
        kamailio: None,
        scratch: std::env::temp_dir(),
        environment: Vec::new(),
    }
}

#[test]
fn a_hostile_bot_alone_loses_its_calls() {
    let attack = Attack {
        calls: 10,
        seconds: 4,
        junk: 10_000,
    };
    let report = hostile(&setting(), attack).expect("a daemon");
    assert!(report.faults.is_empty(), "{report}");
    assert_eq!(report.value("calls_up"), Some(10.0), "{report}");
    assert_eq!(report.value("other_calls_ended"), Some(0.0), "{report}");
    assert!(report.value("hostile_calls_ended") >= Some(1.0), "{report}");
}

#[test]
fn the_benchmark_of_bots_runs() {
    let talk = Talk {
        calls: 10,
        seconds: 10,
        message_ms: 40,
    };
    let report = bots(&setting(), talk).expect("a daemon");

    assert!(report.faults.is_empty(), "{report}");
    assert_eq!(report.value("calls_up"), Some(10.0), "{report}");

    for figure in ["to_bot_p50_ms", "ticks", "clears", "kilobytes_per_call"] {
        let value = report.value(figure);
        assert!(value.is_some_and(|value| value > 0.0), "{figure}: {report}");
    }
}
