//! Progress of the requests on a connection, and a bound on what comes without any.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counter of progress.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress(Arc<AtomicU64>);

impl Progress {
    pub(super) fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn made(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Octets of an HTTP/2 connection since the last progress of a request.
pub(super) struct Chatter {
    progress: Progress,
    /// Progress made when the octets were counted last.
    made: u64,
    octets: usize,
    most: usize,
}

impl Chatter {
    /// Begins a count; `most` octets may come without progress.
    pub(super) const fn new(progress: Progress, most: usize) -> Self {
        Self {
            progress,
            made: 0,
            octets: 0,
            most,
        }
    }

    /// Counts octets.
    ///
    /// # Errors
    /// They are too many without progress.
    pub(super) fn take(&mut self, octets: usize) -> io::Result<()> {
        let made = self.progress.made();
        if std::mem::replace(&mut self.made, made) != made {
            self.octets = 0;
        }
        self.octets += octets;
        match self.octets <= self.most {
            true => Ok(()),
            false => Err(io::Error::other("too many frames without a request")),
        }
    }
}
