//! `trunkline capture …`: converts capture files of other programs into flows.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Cursor, Write};
use std::path::{Path, PathBuf};

use trunkline_calls::Reason;
use trunkline_capture::CaptureFault;
use trunkline_capture::anonymise::Anonymiser;
use trunkline_capture::flow;
use trunkline_capture::import::{Summary, import};
use trunkline_store::whole_file::WholeFile;

use super::Failure;
use crate::engine::trace_as_pcap;

/// Subcommands of `capture`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    Import(Import),
}

/// Converts a capture into a flow file, which people can read and `replay` plays.
///
/// Reads pcap and pcapng (Ethernet, VLAN, Linux cooked, raw IP, loopback; fragments, UDP, TCP, HEP), text files saved
/// by sngrep and Homer, flows, and the daemon's own files in `data_dir/traces`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trunkline capture import call.pcap -o call.flow\n  trunkline capture import call.pcap -o report.flow --anonymise"
)]
pub(super) struct Import {
    /// The capture.
    file: PathBuf,
    /// Output file; `-` is standard output.
    #[arg(short, long, value_name = "FLOW")]
    output: PathBuf,
    /// Replace addresses, names, numbers and credentials, so that the flow can be shared.
    #[arg(long)]
    anonymise: bool,
    /// Report the result as JSON on one line.
    #[arg(long)]
    json: bool,
}

impl Command {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self {
            Self::Import(import) => import.run(),
        }
    }
}

impl Import {
    fn run(self) -> Result<(), Failure> {
        let summary = self
            .import()
            .map_err(|fault| Failure::Command(format!("{}: {fault}", self.file.display())))?;
        self.say(&summary);
        Ok(())
    }

    /// Opens the capture. A file of the daemon's traces becomes one first.
    fn opened(&self) -> Result<Box<dyn BufRead>, CaptureFault> {
        Ok(match trace_as_pcap(&self.file)? {
            Some(pcap) => Box::new(Cursor::new(pcap)),
            None => Box::new(BufReader::with_capacity(
                256 * 1024,
                File::open(&self.file)?,
            )),
        })
    }

    fn import(&self) -> Result<Summary, CaptureFault> {
        if self.file.is_dir() {
            return Err(std::io::Error::from(std::io::ErrorKind::IsADirectory).into());
        }

        let input = self.opened()?;
        let anonymiser = self.anonymise.then(anonymiser);
        let source = self.file.file_name().unwrap_or_default().to_string_lossy();
        let source = if self.anonymise {
            "an anonymised capture"
        } else {
            &*source
        };

        if self.output == Path::new("-") {
            let mut output = std::io::stdout().lock();
            let written = write(input, anonymiser, source, &mut output);
            return match written {
                // A closed pipe is no failure of the command.
                Err(CaptureFault::Io(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                    Ok(Summary::default())
                }
                written => written,
            };
        }

        // An existing file stays if the import fails.
        let mut output = WholeFile::create(&self.output, 0o666)?;
        let summary = write(input, anonymiser, source, &mut BufWriter::new(&mut output))?;
        output.finish()?;
        Ok(summary)
    }

    fn say(&self, summary: &Summary) {
        if self.json {
            eprint_or_print(&self.output, &super::output::json(summary));
            return;
        }

        let plural =
            |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let mut text = format!(
            "{} in {}",
            plural(summary.messages, "message"),
            plural(summary.calls, "call"),
        );

        if summary.retransmissions > 0 {
            text.push_str(&format!(
                ", {} left out",
                plural(summary.retransmissions, "retransmission")
            ));
        }

        for note in &summary.notes {
            text.push_str(&format!("\nNote: {note}."));
        }

        eprint_or_print(&self.output, &text);
    }
}

/// Prints to standard error if the flow goes to standard output, so that it never gets into the flow.
fn eprint_or_print(output: &Path, text: &str) {
    if output == Path::new("-") {
        eprintln!("{text}");
    } else {
        super::output::print(text);
    }
}

/// Keeps the reasons that this program writes beside their codes, which are needed to explain a refused call.
fn anonymiser() -> Anonymiser {
    let own = Reason::ALL
        .iter()
        .flat_map(|reason| [reason.code(), reason.sentence()]);
    Anonymiser::keeping(own)
}

fn write(
    input: impl BufRead,
    anonymiser: Option<Anonymiser>,
    source: &str,
    output: &mut impl Write,
) -> Result<Summary, CaptureFault> {
    let mut number = 0;
    let summary = import(input, anonymiser, &mut |call| {
        if number == 0 {
            flow::write_head(output, source)?;
        }
        number += 1;
        flow::write_call(output, number, &call)?;
        Ok(())
    })?;

    output.flush()?;
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use trunkline_capture::flow::{Call, Entry};

    use super::*;

    #[test]
    fn reasons_of_this_program_stay() {
        for reason in Reason::ALL {
            let (code, sentence) = (reason.code(), reason.sentence());
            let said = |code: &str, sentence: &str| {
                format!(
                    "SIP/2.0 480 Temporarily Unavailable\r\nWarning: 399 trunkline \"{sentence}\"\r\nX-Trunkline-Reason: {code}\r\n\r\n"
                )
            };
            let shown = |octets: String| {
                let entry = Entry {
                    octets: octets.into_bytes(),
                    ..Entry::default()
                };
                let mut call = Call {
                    entries: vec![entry],
                    ..Call::default()
                };
                anonymiser().call(&mut call);
                String::from_utf8(call.entries.remove(0).octets).expect("text")
            };

            let kept = shown(said(code, sentence));
            assert!(kept.contains(&format!("\"{sentence}\"")), "{kept}");
            assert!(
                kept.contains(&format!("X-Trunkline-Reason: {code}\r\n")),
                "{kept}"
            );

            let blanked = shown(said("alice", &format!("{sentence}, Alice")));
            assert!(!blanked.to_lowercase().contains("alice"), "{blanked}");
        }
    }
}
