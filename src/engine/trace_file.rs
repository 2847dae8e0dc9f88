//! A file of the traces as a capture, for the operator: it has the messages of all orgs.

use std::io;
use std::path::Path;

use crate::traces::{messages_in, pcap};

/// Ending of such a file.
const ENDING: &str = "trace";

/// Returns the pcap of a file of the traces; `None` if it isn't one.
///
/// # Errors
/// The file can't be read.
pub fn trace_as_pcap(path: &Path) -> io::Result<Option<Vec<u8>>> {
    if path.extension().is_none_or(|ending| ending != ENDING) {
        return Ok(None);
    }
    let messages = messages_in(path)?;
    Ok((!messages.is_empty()).then(|| pcap::file(&messages)))
}
