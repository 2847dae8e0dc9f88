//! A model of a disk in a crash of the machine: of what was written since the last sync, each page may be there or not.

use proptest::prelude::*;

use super::*;

/// Octets of a page of the model. Small, so that a page holds parts of two or three facts, as a real one holds those of ten.
const PAGE: usize = 64;

/// Returns what the disk holds after the crash: all octets up to `synced`, and of the pages behind it those that `arrived` names. The file
/// system has noted `length` octets; a page that never arrived reads as zeros.
fn crashed(written: &[u8], synced: usize, length: usize, arrived: &[bool]) -> Vec<u8> {
    let is_there = |at: usize| at < synced || arrived[at / PAGE];
    let octets = written[..length].iter().enumerate();
    octets
        .map(|(at, &octet)| if is_there(at) { octet } else { 0 })
        .collect()
}

/// Returns a segment with the facts 1 to `count`, and the end of each.
fn segment_of(count: u32) -> (Vec<u8>, Vec<usize>) {
    let mut octets = Vec::new();
    let mut ends = vec![0];
    for fact in 1..=count {
        frame::append(&mut octets, FactPosition(u64::from(fact)), |out| {
            serde_json::to_writer(out, &fact)
        })
        .unwrap();
        ends.push(octets.len());
    }
    (octets, ends)
}

/// Replays a directory whose only segment holds these octets.
fn facts_after_restart(octets: &[u8]) -> Vec<u32> {
    let directory = tempfile::tempdir().unwrap();
    let segment = Segment {
        number: 1,
        origin: FIRST_BOOT,
    };
    fs::write(segment.path(directory.path()), octets).unwrap();

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(replayed(directory.path())).1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A fact behind a lost page is read too: it is true by itself, and the rows of calls take facts in any order. Reading on also keeps what
    /// was synced where a page in the middle is damaged.
    #[test]
    fn whatever_pages_are_lost_all_that_was_synced_is_read_and_nothing_that_was_not_written(
        count in 1..60_u32,
        synced_share in 0.0..=1.0_f64,
        length_share in 0.0..=1.0_f64,
        arrived in prop::collection::vec(any::<bool>(), 60 * 40 / PAGE + 1),
    ) {
        let (written, ends) = segment_of(count);
        let synced = (f64::from(count) * synced_share) as usize;
        let unsynced = written.len() - ends[synced];
        let length = ends[synced] + (unsynced as f64 * length_share) as usize;

        let disk = crashed(&written, ends[synced], length, &arrived);
        let facts = facts_after_restart(&disk);

        let acknowledged: Vec<u32> = (1..=count).take(synced).collect();
        prop_assert!(facts.starts_with(&acknowledged), "{facts:?}");
        prop_assert!(facts.is_sorted_by(|fact, next| fact < next), "{facts:?}");
        prop_assert!(facts.iter().all(|&fact| fact <= count), "{facts:?}");

        let is_whole = |fact: u32| {
            let line = ends[fact as usize - 1]..ends[fact as usize];
            disk.get(line.clone()) == Some(&written[line])
        };
        let whole: Vec<u32> = (1..=count).filter(|&fact| is_whole(fact)).collect();
        prop_assert_eq!(facts, whole);
    }
}
