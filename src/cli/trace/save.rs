//! A call saved to a file, in the form that its ending names: `.pcap` for Wireshark and sngrep, `.flow` for `replay`,
//! `.txt` to be read.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use axum::http::Method;
use serde_json::Value;
use trunkline_capture::flow;
use trunkline_capture::import::import;
use uuid::Uuid;

use super::plain::ItemPrinter;
use crate::cli::Failure;
use crate::cli::session::{NOT_TRUNKLINE, Session};

/// Endings of files.
pub(super) const ENDINGS: [&str; 3] = ["pcap", "flow", "txt"];

/// Media type of a pcap in the API.
const PCAP: &str = "application/vnd.tcpdump.pcap";

/// Saves the messages of a call to a new file.
///
/// # Errors
/// The ending is unknown, the file exists or can't be written, or the API refuses.
pub(super) async fn save(session: &Session, call: Uuid, file: &Path) -> Result<(), Failure> {
    let ending = file.extension().and_then(|ending| ending.to_str());
    let octets = match ending {
        Some("pcap") => get(session, call, PCAP).await?,
        Some("flow") => as_flow(call, &get(session, call, PCAP).await?)?,
        Some("txt") => as_text(&get(session, call, "application/json").await?)?,
        Some(_) | None => {
            return Err(Failure::Command(format!(
                "{}: the ending selects the format: use .pcap, .flow or .txt",
                file.display()
            )));
        }
    };

    let failed = |error| Failure::Command(format!("{}: {error}", file.display()));
    // A file of another call must not be lost. Only the user who saves them may read the messages of a call, whatever the umask.
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file);
    let written = opened.map_err(failed)?.write_all(&octets);
    if written.is_err() {
        // Half a file would be in the way of the next attempt.
        let _ = std::fs::remove_file(file);
    }
    written.map_err(failed)
}

async fn get(session: &Session, call: Uuid, accept: &'static str) -> Result<Vec<u8>, Failure> {
    let path = format!("/phone/calls/{call}/trace");
    let answer = session.send_once(&Method::GET, &path, accept, None).await;
    let answer = answer.map_err(|refusal| refusal.failure)?;
    Ok(session.read_body(answer).await?.to_vec())
}

fn as_flow(call: Uuid, pcap: &[u8]) -> Result<Vec<u8>, Failure> {
    let (mut output, mut number) = (Vec::new(), 0);
    flow::write_head(&mut output, &format!("call {call}"))
        .map_err(|error| Failure::Command(error.to_string()))?;
    import(pcap, None, &mut |call| {
        number += 1;
        Ok(flow::write_call(&mut output, number, &call)?)
    })
    .map_err(|fault| Failure::Command(fault.to_string()))?;
    Ok(output)
}

fn as_text(trace: &[u8]) -> Result<Vec<u8>, Failure> {
    let trace: Value =
        serde_json::from_slice(trace).map_err(|_| Failure::Command(NOT_TRUNKLINE.to_owned()))?;
    let mut printer = ItemPrinter::new(true);
    let items = trace["items"].as_array().map_or(&[][..], Vec::as_slice);
    let lines: String = items
        .iter()
        .map(|item| format!("{}\n", printer.text(item)))
        .collect();
    Ok(lines.into_bytes())
}
