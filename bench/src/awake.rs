//! A core that never rests. A virtual machine's core that does is lent to others or slowed down by the host, so that whatever runs
//! next takes longer: what a call costs at half the load then says as much about the host as about the daemon.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::kernel;

/// A thread that gives way to all others on its core, until this is dropped.
#[derive(Debug)]
pub struct Awake {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Awake {
    /// Keeps `core` awake.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn keep(core: usize) -> io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ended);
        let turn = move || {
            kernel::pin_to(core)?;
            kernel::give_way()?;
            while !told.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            Ok(())
        };
        let thread = std::thread::Builder::new()
            .name("awake".to_owned())
            .spawn(turn)?;
        Ok(Self {
            ended,
            thread: Some(thread),
        })
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(error))) => eprintln!("the core was not kept awake: {error}"),
            Some(Err(_)) => eprintln!("the core was not kept awake"),
            Some(Ok(Ok(()))) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_when_it_is_dropped() {
        let awake = Awake::keep(0).expect("a thread");
        let told = Arc::clone(&awake.ended);
        drop(awake);
        assert_eq!(Arc::strong_count(&told), 1, "nobody runs on");
    }
}
