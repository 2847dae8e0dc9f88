//! A core that never idles. The host of a virtual machine lends an idle core to others or slows it down, so that the next work on it
//! takes longer. The cost of a call at half the load would then say as much about the host as about the daemon.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use crate::kernel;

/// A thread that yields to all others on its core; it ends when this value is dropped.
#[derive(Debug)]
pub struct Awake {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Awake {
    /// Keeps `core` awake.
    ///
    /// # Errors
    /// No thread can be started, or it may not choose its core or its scheduling policy.
    pub fn keep(core: usize) -> io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&ended);
        let (tell, begun) = mpsc::channel();
        let turn = move || {
            let ready = kernel::pin_to(core).and_then(|()| kernel::give_way());
            let runs = ready.is_ok();
            // `keep` waits for this, so the channel is open.
            let _ = tell.send(ready);
            while runs && !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };

        let thread = std::thread::Builder::new()
            .name("awake".to_owned())
            .spawn(turn)?;

        begun.recv().map_err(io::Error::other)??;
        Ok(Self {
            ended,
            thread: Some(thread),
        })
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread does nothing that could panic.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_when_it_is_dropped() {
        let awake = Awake::keep(0).expect("a thread");
        let ended = Arc::clone(&awake.ended);
        assert_eq!(Arc::strong_count(&ended), 3, "the thread runs");
        drop(awake);
        assert_eq!(Arc::strong_count(&ended), 1, "the thread has ended");
    }

    #[test]
    fn a_core_that_is_not_there_is_a_fault() {
        assert!(Awake::keep(1_000).is_err());
    }
}
