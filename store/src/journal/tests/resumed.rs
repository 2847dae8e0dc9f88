//! Facts that the store has aren't passed to it again, and leave the disk.

use super::*;

/// A run was killed when some of its facts were stored: in the middle of a segment, and at its end.
#[tokio::test]
async fn a_replay_goes_on_behind_what_the_store_has() {
    let source = written(1..=20).await;
    let first = segments(source.path())[0].clone();
    let octets = fs::read(first.path(source.path())).unwrap();
    let in_first = frame::Pieces::new(&octets).count() as u64;
    assert!(in_first > 2, "several facts: {in_first}");

    let cases = [
        ("nothing", 0, 0),
        ("one fact", first.number, 1),
        ("the first segment", first.number, in_first),
        (
            "a fact of the second segment",
            first.number + 1,
            in_first + 1,
        ),
        ("everything", first.number + 99, 20),
    ];
    for (name, segment, fact) in cases {
        let stored = ReadPosition {
            segment,
            fact: FactPosition(fact),
        };
        let store = Store::default();
        store.0.lock().unwrap().read_to = Some((FIRST_BOOT, stored));

        let directory = copy(source.path());
        let opened = Journal::open(directory.path(), NEXT_BOOT, settings());
        let (_journal, mut projector) = opened.unwrap();
        let replayed = projector.replay(&store).await.unwrap();

        let expected: Vec<_> = (fact as u32 + 1..=20)
            .map(|fact| (FIRST_BOOT, fact))
            .collect();
        assert_eq!(store.facts(), expected, "{name}");
        assert_eq!(replayed.facts, expected.len(), "{name}");
    }
}

/// A backlog is stored by several transactions: each says how far it has come.
#[tokio::test]
async fn each_part_of_a_backlog_is_stored_with_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let large = Settings {
        segment_octets: 8 << 20,
        ..settings()
    };
    let (mut journal, projector) = Journal::open(directory.path(), FIRST_BOOT, large).unwrap();
    let last = journal.append(&mut (1..=5_000).collect()).unwrap();
    journal.synced(last).await.unwrap();

    // The second transaction fails for ever, as if the process were killed before it.
    let store = Store::default();
    let mut projected = tokio::spawn(projector.run(OnceThenAway(store.clone())));
    let _ = tokio::time::timeout(Duration::from_secs(60), async {
        while store.facts().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    projected.abort();
    let _ = (&mut projected).await;

    let stored = store.facts().len();
    assert!(stored > 0 && stored < 5_000, "a part: {stored}");
    let killed = copy(directory.path());
    let (_next, mut projector) = Journal::open(killed.path(), NEXT_BOOT, settings()).unwrap();
    let replayed = projector.replay(&store).await.unwrap();
    assert_eq!(replayed.facts, 5_000 - stored);
    assert!(
        store
            .facts()
            .into_iter()
            .map(|(_, fact)| fact)
            .eq(1..=5_000)
    );
}

/// A store that takes facts once.
struct OnceThenAway(Store);

impl Project<u32> for OnceThenAway {
    async fn project(
        &self,
        origin: Origin,
        facts: Arc<[u32]>,
        end: ReadPosition,
    ) -> Result<(), Retry> {
        if self.0.facts().is_empty() {
            return self.0.project(origin, facts, end).await;
        }
        std::future::pending().await
    }

    async fn read_to(&self, origin: Origin) -> Result<ReadPosition, Retry> {
        self.0.read_to(origin).await
    }
}

/// Facts of a site with few calls leave the disk although they never fill a segment.
#[tokio::test]
async fn a_segment_of_some_age_is_deleted_although_it_is_not_full() {
    let directory = tempfile::tempdir().unwrap();
    let aged = Settings {
        segment_octets: 8 << 20,
        segment_age: Duration::from_millis(1),
        ..settings()
    };
    let (mut journal, projector) = Journal::open(directory.path(), FIRST_BOOT, aged).unwrap();
    let store = Store::default();
    let projecting = tokio::spawn(projector.run(store.clone()));
    journal.append(&mut vec![1, 2, 3]).unwrap();

    let gone = async {
        while journal.synced_to() == FactPosition(0)
            || segment::hold_facts(directory.path(), u64::MAX).unwrap()
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone)
        .await
        .expect("the facts leave the disk");
    assert_eq!(store.facts(), [1, 2, 3].map(|fact| (FIRST_BOOT, fact)));

    drop(journal);
    projecting.await.unwrap().unwrap();
}
