//! The messages of `fixtures/messages`, those of RFC 4475 and RFC 5118, and ours for the same cases, each with its expected results from
//! the tables of `fixtures/messages/README.md`.

use crate::not_run;
use std::fs;
use std::path::{Path, PathBuf};

use crate::rfc_messages;

/// One message and its row.
#[derive(Debug, Clone)]
pub struct Case {
    /// `own`; `rfc4475` or `rfc5118`; `built4475` or `built5118` for our messages of the same cases.
    pub set: &'static str,
    pub name: String,
    pub octets: Vec<u8>,
    /// The lexer's result for the message as a datagram.
    pub lexer: Lexed,
    /// Outcome of `rsip` for the INVITE: `read`, `parts`, `differs`, or `-` for any other message.
    pub rsip: String,
    /// The daemon's answers over UDP: one status for each message inside, none for silence.
    pub udp: Vec<u16>,
    /// The same over TCP, and the connection's state afterwards.
    pub tcp: (Vec<u16>, StreamState),
}

/// The lexer's result for a message.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Lexed {
    Valid,
    /// Refused, with an answer of this status.
    Answered(u16),
    /// Refused without an answer.
    Dropped,
}

/// State of a connection after a message has come on it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum StreamState {
    /// It serves the next message.
    Open,
    /// It waits for octets that don't come.
    Waits,
    /// It is closed.
    Closed,
}

/// The sets of the RFCs, each with the set of our messages for its cases.
pub const RFC_SETS: [(&str, &str); 2] = [("rfc4475", "built4475"), ("rfc5118", "built5118")];

/// Returns the messages of all sets, in the order of the tables. Only the RFCs' own messages may be missing.
pub fn cases() -> Vec<Case> {
    let tables = fs::read_to_string(own().join("README.md")).expect("the tables are readable");
    let mut found = from_folder("own", &own(), &rows(&tables, "own"));
    for (set, built) in RFC_SETS {
        let rows = rows(&tables, set);
        found.extend(built_for(set, built, &rows, &tables));
        if let Some(folder) = folder(set) {
            found.extend(from_folder(set, &folder, &rows));
        }
    }
    found
}

/// Returns our messages for a set's cases. The table `built` has rows for some of them; the row of the RFC's message applies to the others.
fn built_for(set: &str, built: &'static str, rows: &[Vec<&str>], tables: &str) -> Vec<Case> {
    let others = self::rows(tables, "built");
    let messages = rfc_messages::messages(set).into_iter();
    let judged = messages.map(|(name, octets)| {
        let mut candidates = others.iter().chain(rows);
        let row = candidates.find(|row| row[0] == name);
        let row = row.unwrap_or_else(|| panic!("{set}: {name} has no row"));
        case(built, octets, row)
    });
    judged.collect()
}

fn from_folder(set: &'static str, folder: &Path, rows: &[Vec<&str>]) -> Vec<Case> {
    assert!(!rows.is_empty(), "no table for {set}");
    for name in names_in(folder) {
        let is_named = rows.iter().any(|row| row[0] == name);
        assert!(is_named, "{set}: {name} has no row");
    }
    let octets = |name: &str| match set {
        "own" => written_out(&read(&folder.join(format!("{name}.sip")))),
        _ => read(&folder.join(format!("{name}.dat"))),
    };
    let cases = rows.iter().map(|row| case(set, octets(row[0]), row));
    cases.collect()
}

fn workspace() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the package is in the workspace")
}

fn own() -> PathBuf {
    workspace().join("fixtures/messages")
}

/// Returns the folder of an RFC's messages, which may not be shipped: in `TRUNKLINE_TORTURE`, else beside the workspace, else missing.
fn folder(set: &str) -> Option<PathBuf> {
    let beside = std::env::var_os("TRUNKLINE_TORTURE")
        .map_or_else(|| workspace().join("../shared/torture"), PathBuf::from);
    let folder = beside.join(set);
    if folder.is_dir() {
        return Some(folder);
    }

    not_run::note(&format!("the messages of {set}: no {}", folder.display()));
    None
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder is readable");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let messages = paths.filter(|path| {
        path.extension()
            .is_some_and(|end| end == "sip" || end == "dat")
    });
    messages
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect()
}

/// The cells of the rows below a set's heading.
fn rows<'t>(tables: &'t str, set: &str) -> Vec<Vec<&'t str>> {
    let below = tables
        .lines()
        .skip_while(|line| *line != format!("## {set}"))
        .skip(1);
    let table = below
        .take_while(|line| !line.starts_with("## "))
        .filter(|line| line.starts_with('|'));
    // The first two lines are the table's head.
    table
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

fn case(set: &'static str, octets: Vec<u8>, row: &[&str]) -> Case {
    let [name, lexer, rsip, udp, tcp, _why] = row else {
        panic!("{set}: not six cells: {row:?}");
    };

    let udp: Vec<u16> = statuses(udp);
    let tcp = match *tcp {
        "same" => (udp.clone(), StreamState::Open),
        other => (statuses(other), end_of(other)),
    };

    Case {
        set,
        name: (*name).to_owned(),
        octets,
        lexer: lexed(lexer),
        rsip: (*rsip).to_owned(),
        udp,
        tcp,
    }
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn lexed(cell: &str) -> Lexed {
    match cell {
        "valid" => Lexed::Valid,
        "dropped" => Lexed::Dropped,
        status => Lexed::Answered(status.parse().expect("a status")),
    }
}

/// `401`, `405, 401`, `401, closed`; `silence` is none.
fn statuses(cell: &str) -> Vec<u16> {
    let words = cell.split(", ");
    words
        .filter(|word| !["silence", "closed", "waits"].contains(word))
        .map(|word| word.parse().expect("a status"))
        .collect()
}

fn end_of(cell: &str) -> StreamState {
    match cell.rsplit(", ").next() {
        Some("closed") => StreamState::Closed,
        Some("waits") => StreamState::Waits,
        _ => StreamState::Open,
    }
}

/// Decodes a message in the notation of RFC 4475 §2.1: each line ends in CRLF, `<hex>` holds octets in
/// hexadecimal, `<repeat count=n>` text that is repeated n times.
fn written_out(text: &[u8]) -> Vec<u8> {
    let mut text = std::str::from_utf8(text).expect("the notation is text");
    let mut octets = Vec::new();

    while let Some(at) = text
        .find("<hex>")
        .into_iter()
        .chain(text.find("<repeat count="))
        .min()
    {
        octets.extend(lines(&text[..at]));
        text = &text[at..];

        if let Some((hex, behind)) = inside(text, "<hex>", "</hex>") {
            octets.extend(
                hex.split_whitespace()
                    .map(|octet| u8::from_str_radix(octet, 16).expect("hexadecimal")),
            );
            text = behind;
        } else {
            let (inner, behind) =
                inside(text, "<repeat count=", "</repeat>").expect("a closed tag");
            let (count, once) = inner.split_once('>').expect("a count");
            octets.extend(lines(once).repeat(count.parse().expect("a count")));
            text = behind;
        }
    }

    octets.extend(lines(text));
    octets
}

fn inside<'t>(text: &'t str, open: &str, close: &str) -> Option<(&'t str, &'t str)> {
    text.strip_prefix(open)?.split_once(close)
}

fn lines(text: &str) -> Vec<u8> {
    text.replace('\n', "\r\n").into_bytes()
}
