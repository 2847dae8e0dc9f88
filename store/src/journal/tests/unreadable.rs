//! A disk that fails while a run's facts are read back: they are read again, by the same run.

use super::*;

/// More facts than stay in memory, so that they are read back from disk.
const MANY: u32 = 40_000;

/// Opens a journal with that many facts in one segment, and returns the segment's path.
async fn spooled(
    directory: &Path,
) -> (
    Journal<u32>,
    Projector<u32>,
    PathBuf,
    watch::Receiver<FactPosition>,
) {
    let pause = Duration::from_millis(1);
    let large = Settings {
        segment_octets: 8 << 20,
        project_retry: (pause, pause),
        ..settings()
    };
    let (mut journal, projector) = Journal::open(directory, FIRST_BOOT, large).unwrap();
    let last = journal.append(&mut (1..=MANY).collect()).unwrap();
    journal.synced(last).await.unwrap();
    let path = segments(directory).remove(0).path(directory);
    let projected = journal.projected();
    (journal, projector, path, projected)
}

async fn until(condition: &Condition, state: State) {
    let reached = async {
        while condition.state() != state {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reached)
        .await
        .unwrap_or_else(|_| panic!("the condition isn't {state:?}"));
}

#[tokio::test]
async fn a_segment_that_cannot_be_read_for_a_while_is_projected_by_the_same_run() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, projector, path, mut projected) = spooled(directory.path()).await;
    let aside = directory.path().join("aside");
    fs::rename(&path, &aside).unwrap();
    // A directory can be opened like a file, and then fails to be read. A link to it is replaced in one step: the segment is never missing,
    // which would mean that it was never created.
    std::os::unix::fs::symlink(directory.path(), &path).unwrap();

    let store = Store::default();
    let condition = journal.condition();
    let running = tokio::spawn(projector.run(store.clone()));
    until(&condition, State::Waiting).await;
    assert!(store.facts().is_empty());
    assert!(!running.is_finished());

    fs::rename(&aside, &path).unwrap();
    let all = projected.wait_for(|projected| projected.0 == u64::from(MANY));
    let all = tokio::time::timeout(Duration::from_secs(60), all).await;
    all.expect("the facts are read again").unwrap();
    assert_eq!(condition.state(), State::Ok);

    drop(journal);
    running.await.unwrap().unwrap();
    assert!(store.facts().into_iter().map(|(_, fact)| fact).eq(1..=MANY));
    assert_eq!(segments(directory.path()), []);
}

#[tokio::test]
async fn facts_that_cannot_be_set_aside_for_a_while_are_set_aside_once_by_the_same_run() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, projector, path, _) = spooled(directory.path()).await;
    let mut octets = fs::read(&path).unwrap();
    octets[3] = b'z';
    fs::write(&path, &octets).unwrap();
    let aside = directory.path().join("set-aside.jsonl");
    fs::create_dir(&aside).unwrap();

    let store = Store::default();
    let condition = journal.condition();
    let running = tokio::spawn(projector.run(store.clone()));
    until(&condition, State::Waiting).await;
    assert!(store.facts().is_empty());

    fs::remove_dir(&aside).unwrap();
    until(&condition, State::Ok).await;
    drop(journal);
    running.await.unwrap().unwrap();

    assert!(store.facts().into_iter().map(|(_, fact)| fact).eq(2..=MANY));
    let lines = fs::read_to_string(&aside).unwrap();
    // A damaged line may have kept its line feed, and then an empty line follows.
    let damaged = lines.lines().filter(|line| !line.is_empty());
    assert_eq!(damaged.count(), 1, "{lines}");
}
