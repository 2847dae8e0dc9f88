//! The journal on a real directory: the facts that survive a crash, and those that the projector passes on.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use tempfile::TempDir;

use super::*;

mod lost_pages;
mod resumed;
mod unreadable;

const FIRST_BOOT: Origin = Origin { node: 1, boot: 1 };
const NEXT_BOOT: Origin = Origin { node: 1, boot: 2 };

fn settings() -> Settings {
    Settings {
        gather: Duration::ZERO,
        disk_retry: Duration::ZERO,
        window: Duration::ZERO,
        project_retry: (Duration::ZERO, Duration::ZERO),
        segment_octets: 200,
        ..Settings::default()
    }
}

/// A store that keeps what it gets, after refusing some times.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    refusals: usize,
    facts: Vec<(Origin, u32)>,
    /// End of the last facts, and their run.
    read_to: Option<(Origin, ReadPosition)>,
}

impl Store {
    fn refusing(refusals: usize) -> Self {
        Self(Arc::new(Mutex::new(Kept {
            refusals,
            ..Kept::default()
        })))
    }

    /// Refuses nothing from now on.
    fn accept(&self) {
        self.0.lock().unwrap().refusals = 0;
    }

    fn refusals(&self) -> usize {
        self.0.lock().unwrap().refusals
    }

    fn facts(&self) -> Vec<(Origin, u32)> {
        self.0.lock().unwrap().facts.clone()
    }
}

impl Project<u32> for Store {
    async fn project(
        &self,
        origin: Origin,
        facts: Arc<[u32]>,
        end: ReadPosition,
    ) -> Result<(), Retry> {
        let mut kept = self.0.lock().unwrap();
        if kept.refusals > 0 {
            kept.refusals -= 1;
            return Err(Retry("the database is away".into()));
        }
        kept.facts.extend(facts.iter().map(|&fact| (origin, fact)));
        kept.read_to = Some((origin, end));
        Ok(())
    }

    async fn read_to(&self, origin: Origin) -> Result<ReadPosition, Retry> {
        let kept = self.0.lock().unwrap();
        let of_run = kept.read_to.filter(|(run, _)| *run == origin);
        Ok(of_run.map(|(_, position)| position).unwrap_or_default())
    }
}

/// A copy of the directory, as a process killed now would leave it.
fn copy(from: &Path) -> TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    to
}

/// Appends the facts one by one, each synced before the next, and leaves all of it on disk.
async fn written(facts: std::ops::RangeInclusive<u32>) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let (mut journal, _projector) =
        Journal::open(directory.path(), FIRST_BOOT, settings()).unwrap();
    for fact in facts {
        let position = journal.append(&mut vec![fact]).unwrap();
        journal.synced(position).await.unwrap();
    }
    copy(directory.path())
}

async fn replayed(directory: &Path) -> (Replayed, Vec<u32>) {
    let store = Store::default();
    let (_journal, mut projector) = Journal::open(directory, NEXT_BOOT, settings()).unwrap();
    let replayed = projector.replay(&store).await.unwrap();
    let facts = store.facts();
    assert!(
        facts.iter().all(|&(origin, _)| origin == FIRST_BOOT),
        "facts keep their origin"
    );
    (replayed, facts.into_iter().map(|(_, fact)| fact).collect())
}

fn segments(directory: &Path) -> Vec<Segment> {
    segment::list(directory).unwrap()
}

#[tokio::test]
async fn what_is_appended_is_projected_in_order_and_nothing_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::default();
    let (mut journal, projector) = Journal::open(directory.path(), FIRST_BOOT, settings()).unwrap();
    let projecting = tokio::spawn(projector.run(store.clone()));
    let mut projected = journal.projected();
    for fact in 0..100 {
        let mut facts = vec![fact * 2, fact * 2 + 1];
        let position = journal.append(&mut facts).unwrap();
        assert!(facts.is_empty(), "they were taken");
        projected
            .wait_for(|&projected| projected >= position)
            .await
            .unwrap();
        assert_eq!(store.facts().len(), facts_of(position));
    }

    assert!(
        segments(directory.path()).len() <= 2,
        "segments are deleted as they are done"
    );

    drop(journal);
    projecting.await.unwrap().unwrap();

    assert_eq!(
        store.facts(),
        (0..200).map(|fact| (FIRST_BOOT, fact)).collect::<Vec<_>>()
    );
    assert_eq!(segments(directory.path()), []);
}

fn facts_of(position: FactPosition) -> usize {
    usize::try_from(position.0).unwrap()
}

#[tokio::test]
async fn facts_wait_while_the_store_is_away() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::refusing(5);
    let pause = Duration::from_millis(20);
    let settings = Settings {
        project_retry: (pause, pause),
        ..settings()
    };
    let (mut journal, projector) = Journal::open(directory.path(), FIRST_BOOT, settings).unwrap();
    let condition = journal.condition();
    assert_eq!(condition.state(), State::Ok);

    let position = journal.append(&mut vec![1, 2, 3]).unwrap();
    let mut projected = journal.projected();
    let running = tokio::spawn(projector.run(store.clone()));
    while store.refusals() == 5 {
        tokio::task::yield_now().await;
    }
    assert_eq!(condition.state(), State::Waiting);
    projected.wait_for(|kept| *kept == position).await.unwrap();
    assert_eq!(condition.state(), State::Ok);

    drop(journal);
    running.await.unwrap().unwrap();

    assert_eq!(
        store.facts(),
        [(FIRST_BOOT, 1), (FIRST_BOOT, 2), (FIRST_BOOT, 3)]
    );
}

#[tokio::test]
async fn killed_at_any_octet_nothing_whole_is_lost_and_the_rest_is_cut() {
    let source = written(1..=4).await;
    let segment = segments(source.path()).remove(0);
    let path = segment.path(source.path());
    let octets = fs::read(&path).unwrap();
    let line = octets.len() / 4;

    for cut in 0..=octets.len() {
        let directory = copy(source.path());
        let path = segment.path(directory.path());
        fs::write(&path, &octets[..cut]).unwrap();
        let (_, spooled) = left_behind(directory.path()).unwrap();
        assert_eq!(
            (spooled, fs::metadata(&path).unwrap().len()),
            ((cut / line * line) as u64, spooled),
            "{cut}"
        );

        let (replayed, facts) = replayed(directory.path()).await;
        assert_eq!(
            facts,
            (1..=(cut / line) as u32).collect::<Vec<_>>(),
            "cut at {cut}"
        );
        assert_eq!(
            (replayed.facts, replayed.set_aside),
            (cut / line, 0),
            "cut at {cut}"
        );
    }
}

#[tokio::test]
async fn a_replay_that_is_itself_killed_begins_again() {
    let source = written(1..=20).await;
    let before = segments(source.path()).len();
    assert!(before > 2, "several segments: {before}");

    let (replayed_once, facts) = replayed(copy(source.path()).path()).await;
    assert_eq!(
        (replayed_once.segments, facts.clone()),
        (before, (1..=20).collect())
    );

    assert_eq!(replayed(source.path()).await.1, facts);
    assert_eq!(
        segments(source.path()).len(),
        1,
        "only the segment that the next start began"
    );
}

#[tokio::test]
async fn what_cannot_be_read_is_set_aside_and_the_rest_is_projected() {
    let source = written(1..=4).await;
    let path = segments(source.path())[0].path(source.path());
    let mut octets = fs::read(&path).unwrap();
    let line = octets.len() / 4;
    octets[line + 3] = b'z';
    frame::append(&mut octets, FactPosition(9), |out| {
        serde_json::to_writer(out, "a later version's")
    })
    .unwrap();
    fs::write(&path, &octets).unwrap();

    let (replayed, facts) = replayed(source.path()).await;
    assert_eq!((replayed.set_aside, facts), (2, vec![1, 3, 4]));

    let aside = fs::read_to_string(source.path().join("set-aside.jsonl")).unwrap();
    assert!(
        aside.contains("\"a later version's\"") && aside.contains('z'),
        "{aside}"
    );
}

#[test]
fn two_processes_cannot_share_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let _first = Journal::<u32>::open(directory.path(), FIRST_BOOT, settings()).unwrap();
    let second = Journal::<u32>::open(directory.path(), FIRST_BOOT, settings());
    assert!(matches!(second, Err(OpenError::InUse(_))));
}

#[test]
fn a_directory_that_cannot_be_one_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let opened = Journal::<u32>::open(file.path(), FIRST_BOOT, settings());
    assert!(matches!(opened, Err(OpenError::Io { .. })));
}

#[tokio::test]
async fn facts_of_another_format_stay_and_empty_segments_go() {
    for (name, writer) in [
        ("0000000000000007.node1.boot42.facts", "build c486631c"),
        (
            "0000000000000007.node1.boot42.facts1",
            "the version that wrote it",
        ),
    ] {
        let source = written(1..=4).await;
        let other = source.path().join(name);
        fs::write(&other, "a line\n").unwrap();
        let before = segments(source.path()).len();

        assert!(check_format(source.path()).is_err());
        let opened = Journal::<u32>::open(source.path(), NEXT_BOOT, settings());
        let fault = opened.err().unwrap().to_string();
        assert!(fault.contains(name) && fault.contains(writer), "{fault}");
        assert_eq!(fs::read_to_string(&other).unwrap(), "a line\n");
        assert_eq!(
            segments(source.path()).len(),
            before,
            "no segment was begun"
        );

        fs::write(&other, "").unwrap();
        check_format(source.path()).unwrap();
        assert_eq!(replayed(source.path()).await.1, [1, 2, 3, 4]);
        assert!(!other.exists());
    }
    check_format(Path::new("/there/is/none")).unwrap();
}

#[tokio::test]
async fn a_journal_at_its_size_on_disk_takes_facts_until_the_queue_is_full() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Settings {
        spool_octets: 0,
        queue_facts: 8,
        disk_retry: Duration::from_millis(1),
        ..settings()
    };

    let (mut journal, _projector) = Journal::open(directory.path(), FIRST_BOOT, limits).unwrap();
    let refused = (0..100_u32).find(|&fact| journal.append(&mut vec![fact]).is_err());
    assert!(
        refused.is_some_and(|taken| taken >= 8),
        "bounded, and not before its bound: {refused:?}"
    );
    assert!(!journal.has_reserve());
    assert_eq!(journal.spooled_octets(), 0);
    assert!(
        segments(directory.path()).len() <= 1,
        "attempts leave no files"
    );

    drop(journal);
}

/// Starts one ignored test as a process of its own, over a journal in `directory`.
fn started(test: &str, directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env("TRUNKLINE_TEST_JOURNAL", directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Started and killed by the next test: appends facts one after the other and prints each once it is synced.
#[tokio::test]
#[ignore = "the process that the next test kills"]
async fn victim() {
    let directory = std::env::var_os("TRUNKLINE_TEST_JOURNAL").expect("the directory");
    let (mut journal, _projector) =
        Journal::open(Path::new(&directory), FIRST_BOOT, settings()).unwrap();
    for fact in 1.. {
        let position = journal.append(&mut vec![fact]).unwrap();
        journal.synced(position).await.unwrap();
        println!("synced {fact}");
    }
}

#[tokio::test]
async fn a_process_killed_outright_loses_nothing_that_it_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let mut process = started("journal::tests::victim", directory.path());
    let lines = BufReader::new(process.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    let mut acknowledged =
        lines.filter_map(|line| Some(line.split("synced ").nth(1)?.parse::<u32>().unwrap()));
    let seen = acknowledged.by_ref().take(50).last();
    process.kill().unwrap();

    // The lines that it wrote to the pipe before it died count as well.
    let last = acknowledged
        .last()
        .or(seen)
        .expect("it acknowledged something");
    process.wait().unwrap();

    let (_, facts) = replayed(directory.path()).await;
    assert!(
        facts.len() as u32 >= last.max(50),
        "{} kept of {last} acknowledged",
        facts.len()
    );
    assert_eq!(facts, (1..=facts.len() as u32).collect::<Vec<_>>());
}

/// Started and killed by the next test: appends facts one after the other, whose batch is never gathered, and prints each once it is
/// handed over.
#[test]
#[ignore = "the process that the next test kills"]
fn unsynced_victim() {
    let directory = std::env::var_os("TRUNKLINE_TEST_JOURNAL").expect("the directory");
    let settings = Settings {
        gather: Duration::from_secs(3_600),
        ..settings()
    };
    let (mut journal, _projector) =
        Journal::open(Path::new(&directory), FIRST_BOOT, settings).unwrap();
    for fact in 1_u32.. {
        journal.append(&mut vec![fact]).unwrap();
        journal.hand_over(Moment::from_secs(1));
        println!("handed over {fact}");
    }
}

#[tokio::test]
async fn what_was_handed_over_outlives_a_killed_process_without_a_sync() {
    use std::os::unix::fs::PermissionsExt as _;

    let directory = tempfile::tempdir().unwrap();
    let mut process = started("journal::tests::unsynced_victim", directory.path());
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut handed = lines
        .map_while(Result::ok)
        .filter_map(|line| line.split("handed over ").nth(1)?.parse::<u32>().ok());
    let seen = handed.by_ref().take(50).last();
    process.kill().unwrap();
    let last = handed.last().or(seen).expect("it handed something over");
    process.wait().unwrap();
    let segment = segments(directory.path()).remove(0).path(directory.path());
    let mode = fs::metadata(segment).unwrap().permissions().mode();
    assert_eq!(
        mode & 0o777,
        0o600,
        "what callers said is this user's alone"
    );
    let (_, facts) = replayed(directory.path()).await;
    assert!(
        last >= 50 && facts.len() as u32 >= last,
        "{} of {last}",
        facts.len()
    );
    assert_eq!(facts, (1..=facts.len() as u32).collect::<Vec<_>>());
}

/// Longest wait of [`Journal::clear`] in tests.
const AT_MOST: Duration = Duration::from_secs(60);

/// A wait for a database that is away ends with an error, and may be repeated.
#[tokio::test]
async fn clearing_a_journal_ends_with_its_time() {
    let directory = tempfile::tempdir().unwrap();
    let (mut journal, projector) = Journal::open(directory.path(), FIRST_BOOT, settings()).unwrap();
    let store = Store::refusing(usize::MAX);
    let projecting = tokio::spawn(projector.run(store.clone()));
    journal.append(&mut vec![1]).unwrap();

    let late = journal.clear(Duration::from_millis(200)).await;
    assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
    store.accept();
    journal.clear(AT_MOST).await.unwrap();
    assert_eq!(store.facts(), [(FIRST_BOOT, 1)]);

    drop(journal);
    projecting.await.unwrap().unwrap();
}

/// `clear` ends a partly filled segment once all of its facts are projected, and does nothing to an empty one.
#[tokio::test]
async fn a_cleared_journal_holds_no_earlier_fact() {
    let directory = tempfile::tempdir().unwrap();
    let large = Settings {
        segment_octets: 1 << 20,
        ..settings()
    };
    let (mut journal, projector) = Journal::open(directory.path(), FIRST_BOOT, large).unwrap();
    let store = Store::refusing(3);
    let projecting = tokio::spawn(projector.run(store.clone()));
    journal.clear(AT_MOST).await.unwrap();
    journal.append(&mut vec![1, 2, 3]).unwrap();
    journal.clear(AT_MOST).await.unwrap();

    let facts = [1, 2, 3].map(|fact| (FIRST_BOOT, fact));
    assert_eq!(store.facts(), facts);

    let octets: u64 = segment::list(directory.path())
        .unwrap()
        .iter()
        .map(|segment| fs::metadata(segment.path(directory.path())).unwrap().len())
        .sum();
    assert_eq!(octets, 0, "no segment holds anything");

    journal.append(&mut vec![4]).unwrap();
    drop(journal);
    projecting.await.unwrap().unwrap();
    assert_eq!(store.facts().last(), Some(&(FIRST_BOOT, 4)));
}

#[tokio::test]
async fn lines_that_were_set_aside_are_taken_out() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, _projector) =
        Journal::<u32>::open(directory.path(), FIRST_BOOT, settings()).unwrap();
    let gone = |line: &[u8]| line.starts_with(b"b");
    assert_eq!(
        journal.forget_set_aside(gone).unwrap(),
        0,
        "there is no file"
    );

    let path = directory.path().join("set-aside.jsonl");
    fs::write(&path, "a1\nb1\na2\nb2").unwrap();
    assert_eq!(journal.forget_set_aside(gone).unwrap(), 2);
    assert_eq!(fs::read_to_string(&path).unwrap(), "a1\na2\n");
    assert_eq!(journal.forget_set_aside(|_| true).unwrap(), 2);
    assert!(!path.exists());
}
