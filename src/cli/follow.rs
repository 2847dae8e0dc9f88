//! Follower of events on a terminal: one loop that prints what a format makes of each event, until the format, the person or
//! the reader of the output ends it. Events come by a [`Feed`], which goes on when the stream breaks.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Interval, MissedTickBehavior};

use super::Failure;
use super::event_stream::{EventSelection, Feed, News};
use super::output;
use super::session::Session;

/// Lines that are printed next.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct FollowedLines {
    lines: Vec<String>,
    is_end: bool,
}

impl FollowedLines {
    /// Lines after which no others come.
    pub(super) const fn last(lines: Vec<String>) -> Self {
        let is_end = true;
        Self { lines, is_end }
    }
}

impl From<Vec<String>> for FollowedLines {
    fn from(lines: Vec<String>) -> Self {
        let is_end = false;
        Self { lines, is_end }
    }
}

/// Format in which a follower prints events, with the state that it needs for it.
pub(super) trait FollowFormat {
    /// Time after which [`Self::catch_up`] is called although no event has come.
    fn interval(&self) -> Option<Duration> {
        None
    }

    /// Reads the present state. The stream is open by then, so that no change falls between the two; it is read again if events may have
    /// been missed.
    async fn catch_up(&mut self) -> Result<FollowedLines, Failure> {
        Ok(FollowedLines::default())
    }

    async fn take_event(&mut self, event: &Value) -> Result<FollowedLines, Failure>;
}

/// Process in which a follower runs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Within {
    /// A command, which Ctrl-C ends, and which says when its stream is lost.
    Command,
    /// The daemon, which ends the follower when it ends itself: until then calls that are up go on and are printed.
    Daemon,
}

/// Prints events, until the format ends it, `most` events have been taken, nobody reads the output any more, or Ctrl-C is pressed.
///
/// # Errors
/// The API can't be reached at first, or refuses; or a failure of the format.
pub(super) async fn follow(
    session: &Arc<Session>,
    selection: EventSelection,
    most: Option<u32>,
    format: &mut impl FollowFormat,
    within: Within,
) -> Result<(), Failure> {
    let mut feed = Feed::start(Arc::clone(session), selection);
    let outcome = tokio::select! {
        outcome = print_all(&mut feed, most, format, within) => outcome,
        _ = tokio::signal::ctrl_c(), if within == Within::Command => Ok(()),
    };
    feed.stop().await;
    outcome
}

/// Prints the present state alone.
///
/// # Errors
/// Those of the format.
pub(super) async fn print_once(format: &mut impl FollowFormat) -> Result<(), Failure> {
    write(&format.catch_up().await?).map(|_| ())
}

async fn print_all(
    feed: &mut Feed,
    most: Option<u32>,
    format: &mut impl FollowFormat,
    within: Within,
) -> Result<(), Failure> {
    let mut left = most;
    let mut ticks = format.interval().map(ticks);

    loop {
        let lines = tokio::select! {
            news = feed.next() => match news {
                News::Open { is_resumed: false } => format.catch_up().await?,
                News::Open { is_resumed: true } => FollowedLines::default(),
                News::Event(event) => {
                    left = left.map(|left| left.saturating_sub(1));
                    format.take_event(&event).await?
                }
                News::Lost { fault, pause } => {
                    if within == Within::Command {
                        let seconds = pause.as_secs();
                        eprintln!("trunkline: {fault}: trying again in {seconds} s");
                    }
                    continue;
                }
                News::Refused(failure) => return Err(failure),
            },
            () = next(&mut ticks) => format.catch_up().await?,
        };

        let has_reader = write(&lines)?;
        if lines.is_end || left == Some(0) || !has_reader {
            return Ok(());
        }
        // The state has just been read: with a key each look costs the org a request.
        if let Some(ticks) = ticks.as_mut().filter(|_| !lines.lines.is_empty()) {
            ticks.reset();
        }
    }
}

fn ticks(period: Duration) -> Interval {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // An interval begins with a tick; the first one is due after a whole period.
    ticks.reset();
    ticks
}

/// Waits for the next tick; without an interval, for ever.
async fn next(ticks: &mut Option<Interval>) {
    match ticks {
        Some(ticks) => _ = ticks.tick().await,
        None => std::future::pending().await,
    }
}

/// Prints lines, and returns false if nobody reads them any more.
fn write(lines: &FollowedLines) -> Result<bool, Failure> {
    for line in &lines.lines {
        match output::try_print(line) {
            Ok(()) => {}
            Err(fault) if fault.kind() == ErrorKind::BrokenPipe => return Ok(false),
            Err(fault) => return Err(Failure::Command(format!("standard output: {fault}"))),
        }
    }
    Ok(true)
}
