//! Files of traces go after their days, also after an erasure, a restart and a clock that was ahead.

use std::path::{Path, PathBuf};

use super::*;

const DAY: Duration = Duration::from_secs(86_400);
/// Times of messages in two files: an hour fills a file.
const FIRST: Moment = Moment::from_secs(1_800_000_000);
const SECOND: Moment = Moment::from_secs(1_800_050_000);
/// Time of a clock that is a year ahead.
const AHEAD: Moment = Moment::from_secs(1_800_000_000 + 365 * 86_400);

fn disk_of_days(directory: &tempfile::TempDir) -> Disk {
    Disk {
        retention: DAY,
        ..disk(directory)
    }
}

fn opened(disk: &Disk) -> Traces {
    Traces::unattended(1, Some(disk.clone()), None, around(clock)).unwrap()
}

/// Writes an INVITE of each call to disk.
fn write(traces: &Traces, at: Moment, call_ids: &[&str]) {
    let mut tap = traces.tap(0);
    for call_id in call_ids {
        let octets = message("INVITE sip:a SIP/2.0", call_id, 1);
        begin(&mut tap, call_id);
        tap.note(at, flow(), true, &octets);
    }
    tap.hand_on();
    traces.sweep(at);
    traces.sweep(at + AGE);
    traces.write(at + AGE);
}

/// Returns the files, oldest name first.
fn files(disk: &Disk) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(&disk.directory).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Sets the modification time that the file would have if the tests' clock were the system's.
fn set_written(path: &Path, at: Moment) {
    let time = std::time::UNIX_EPOCH + Duration::from_micros(at.as_micros());
    let file = std::fs::File::options().append(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

/// The erasure rewrites the first file long after its last message, which must not begin the days of that file anew.
#[test]
fn a_file_that_an_erasure_rewrote_goes_after_its_days_when_the_node_has_restarted() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk_of_days(&directory);
    let traces = opened(&disk);
    write(&traces, FIRST, &["erased", "other"]);
    write(&traces, SECOND, &["later"]);
    let [first, second]: [PathBuf; 2] = files(&disk).try_into().unwrap();
    set_written(&second, SECOND + AGE);

    let legs = ErasedCall {
        from: NEVER,
        until: FIRST + AGE,
        ..erased("erased")
    };
    assert_eq!(forget(&traces, &[legs]).unwrap(), 1);
    drop(traces);

    let traces = opened(&disk);
    assert_eq!(found(&traces, "other").messages.len(), 1);
    traces.write(FIRST + DAY);
    assert_eq!(files(&disk), [first, second.clone()]);
    traces.write(FIRST + DAY + AGE);
    assert_eq!(
        files(&disk),
        [second],
        "before the day of the other one ends"
    );
    traces.write(SECOND + DAY + 2 * AGE);
    assert_eq!(files(&disk).len(), 0);
}

/// The first file's last message lies a year ahead of the clock.
#[test]
fn files_behind_one_of_a_clock_that_was_ahead_go_after_their_days() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk_of_days(&directory);
    let traces = opened(&disk);
    write(&traces, AHEAD, &["ahead"]);
    write(&traces, FIRST, &["first"]);
    write(&traces, SECOND, &["second"]);
    assert_eq!(files(&disk).len(), 3);

    // The clock was right when `first` was written: the days of `ahead` begin then.
    traces.write(FIRST + DAY + 2 * AGE);
    assert_eq!(files(&disk).len(), 1);
    let left = |call_id: &str| found(&traces, call_id).messages.len();
    assert_eq!((left("ahead"), left("first"), left("second")), (0, 0, 1));

    traces.write(SECOND + DAY + 2 * AGE);
    assert_eq!(files(&disk).len(), 0);
}

/// The days begin when a process first sees that the file lies in the future, and not again with every restart.
#[test]
fn a_file_of_a_clock_that_was_ahead_is_searched_after_restarts_and_goes_after_its_days() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk_of_days(&directory);
    let traces = opened(&disk);
    write(&traces, AHEAD, &["ahead"]);
    drop(traces);
    set_written(&files(&disk)[0], AHEAD + AGE);

    for restarted_at in [FIRST, FIRST + DAY / 2, FIRST + DAY] {
        let traces = opened(&disk);
        traces.write(restarted_at);
        let found = traces.of(ORG, call("ahead"), AHEAD, AHEAD + AGE);
        assert_eq!(found.messages.len(), 1, "{restarted_at:?}");
    }

    opened(&disk).write(FIRST + DAY + AGE);
    assert_eq!(files(&disk).len(), 0);
}

/// A machine without a battery for its clock starts in 1970, and hears the time later.
#[test]
fn files_outlive_a_clock_that_is_not_set_yet() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk_of_days(&directory);
    let traces = opened(&disk);
    write(&traces, FIRST, &["first"]);
    drop(traces);
    set_written(&files(&disk)[0], FIRST + AGE);

    let traces = opened(&disk);
    traces.write(Moment::from_secs(100));
    // The build date of a system, or what a wrong clock kept.
    traces.write(FIRST - 100 * DAY);
    traces.write(FIRST + DAY / 2);
    assert_eq!(found(&traces, "first").messages.len(), 1);
    traces.write(FIRST + DAY + 2 * AGE);
    assert_eq!(files(&disk).len(), 0);
}

/// Calls with large SDP fill the quota many times over. The victim's one call is older than all of them.
struct Flood {
    traces: Traces,
    tap: Tap,
    seed: u64,
}

const VICTIM: Uuid = Uuid::from_u128(0xb);
const HOUR: Duration = Duration::from_secs(3_700);

impl Flood {
    fn of(disk: Option<Disk>) -> Self {
        let traces = Traces::unattended(1, disk, None, around(clock)).unwrap();
        Self {
            tap: traces.tap(0),
            traces,
            seed: 7,
        }
    }

    /// Has an org's call send one message.
    fn send(&mut self, org: Uuid, call_id: &str, octets: &[u8], at: Moment) {
        let leg = TracedLeg {
            org,
            call: call(call_id),
            leg: 0,
            role: LegRole::Trunk,
        };
        let local = tag(call_id);
        let identity = DialogIdentity::Tag {
            call_id: call_id.as_bytes().into(),
            local,
            remote: Some(local.as_bytes().into()),
            secrets: SecretHeaders::default(),
        };
        self.tap.assign(leg, Box::new(identity));
        self.tap.note(at, flow(), true, octets);
        self.tap.hand_on();
        self.traces.sweep(at);
        self.traces.sweep(at + AGE);
        self.traces.write(at + AGE);
    }

    /// Returns a message with this many letters that don't compress, as keys in SDP don't.
    fn large(&mut self, call_id: &str, letters: usize) -> Vec<u8> {
        let filling = std::iter::repeat_with(|| {
            self.seed = (self.seed)
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            char::from(b'!' + u8::try_from((self.seed >> 33) % 90).unwrap())
        });
        let filling: String = filling.take(letters).collect();
        let mut octets = message("INVITE sip:a SIP/2.0", call_id, 1);
        octets.extend_from_slice(filling.as_bytes());
        octets
    }

    /// Has the victim call twice, then an attacker 40 times.
    fn run(&mut self, letters: usize) {
        let small = message("INVITE sip:a SIP/2.0", "victim", 1);
        let beside = self.large("beside", letters);
        self.send(VICTIM, "victim", &small, FIRST);
        self.send(VICTIM, "beside", &beside, FIRST);
        let mut at = FIRST;
        for number in 0..40 {
            at = at + HOUR;
            let call_id = format!("attacker-{number}");
            let octets = self.large(&call_id, letters);
            self.send(ORG, &call_id, &octets, at);
        }
    }

    fn check(&self) {
        let of = |org, call_id: &str| {
            let found = self.traces.of(org, call(call_id), NEVER, ALWAYS);
            found.messages.len()
        };
        assert_eq!([of(VICTIM, "victim"), of(VICTIM, "beside")], [1, 1]);
        assert_eq!(of(ORG, "attacker-39"), 1, "its newest");
        assert_eq!(of(ORG, "attacker-0"), 0, "its oldest");
    }
}

#[test]
fn an_org_that_fills_the_quota_loses_its_own_oldest_traces() {
    let directory = tempfile::tempdir().unwrap();
    let disk = Disk {
        max_bytes: 1 << 20,
        retention: 30 * DAY,
        ..disk(&directory)
    };
    let mut flood = Flood::of(Some(disk.clone()));
    flood.run(100_000);
    flood.check();
    let sizes = files(&disk)
        .into_iter()
        .map(|file| file.metadata().unwrap().len());
    assert!(sizes.sum::<u64>() <= disk.max_bytes);
}

/// On a node that keeps no files, and on one whose disk takes none.
#[test]
fn an_org_that_fills_the_memory_loses_its_own_oldest_traces() {
    let directory = tempfile::tempdir().unwrap();
    let disk = disk(&directory);
    for is_written in [false, true] {
        let mut flood = Flood::of(is_written.then(|| disk.clone()));
        if is_written {
            std::fs::remove_dir_all(&disk.directory).unwrap();
        }
        flood.run(400_000);
        flood.check();
        let held = lock(&flood.traces.kept).calls.held;
        assert!(held <= CALL_OCTETS, "{held}");
    }
}

/// A write that failed halfway may have left a block in a file, while memory holds what is left of it.
#[test]
fn a_block_is_known_by_what_is_left_of_it() {
    let mut scratch = Vec::new();
    let mut open = Open::default();
    for (org, call_id) in [(ORG, "attacker"), (VICTIM, "victim")] {
        let octets = message("INVITE sip:a SIP/2.0", call_id, 1);
        let leg = TracedLeg {
            org,
            call: call(call_id),
            leg: 0,
            role: LegRole::Trunk,
        };
        let record = Record::new(FIRST, &flow(), true, Some(leg), &octets);
        open.push(&record, scan::key(leg.call.as_bytes()));
    }
    let whole = open.close(&mut scratch).unwrap();
    let left = whole.without(&[ORG].into(), &mut scratch).unwrap();
    assert!(left != whole && left.is_of(&whole) && whole.is_of(&whole));
    assert_eq!(record::records(&left.unpack()).count(), 1);
    assert_eq!(left.without(&[VICTIM].into(), &mut scratch), None);
}
