//! Commands printed in the documents are commands of this binary. Each is parsed with `--help` behind it, which refuses unknown verbs, flags and
//! values without running anything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use trunkline_testkit::process::trunkline;

/// Placeholders in the documents, each with a value that parses in its place.
const PLACEHOLDERS: [(&str, &str); 8] = [
    ("ID", "0198c0de-0000-7000-8000-000000000001"),
    ("CALL", "0198c0de-0000-7000-8000-000000000001"),
    ("$AGENT_ID", "0198c0de-0000-7000-8000-000000000001"),
    ("ERASURE_ID", "0198c0de-0000-7000-8000-000000000001"),
    ("NUMBER", "+442071838750"),
    ("ADDRESS", "192.0.2.1"),
    ("FILE", "file.json"),
    ("DIRECTORY", "."),
];

/// Documents for people who use the program.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = std::fs::read_dir(root.join("docs")).expect("the documents");
    let mut all: Vec<_> = pages.map(|page| page.expect("a page").path()).collect();
    all.retain(|page| page.extension().is_some_and(|kind| kind == "md"));
    all.extend(["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root.join(name)));
    all
}

/// Returns the commands in a document's code: whole lines of its blocks, and code inside sentences.
fn commands(document: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (index, part) in document.split("```").enumerate() {
        if index % 2 == 0 {
            let inline = part.split('`').skip(1).step_by(2);
            found.extend(inline.map(|code| code.replace('\n', " ")));
            continue;
        }

        // The first line names the block's language.
        let (_, lines) = part.split_once('\n').unwrap_or_default();
        found.extend(lines.replace("\\\n", " ").lines().map(str::to_owned));
    }

    found.retain_mut(|line| {
        // The last match, since a user may have the program's name: sudo -u trunkline trunkline …
        let mut starts = line.rmatch_indices("trunkline ").map(|(at, _)| at);
        let start = starts.find(|at| is_prefix(&line[..*at]));
        line.drain(..start.unwrap_or_default());
        start.is_some()
    });
    found
}

/// Returns whether a command may follow this text on its line: a prompt, variables, a path, another command.
fn is_prefix(text: &str) -> bool {
    let before = text.trim_start_matches("$ ");
    before.split_whitespace().all(|word| {
        matches!(word, "sudo" | "-u" | "trunkline" | "&&" | "|" | "exec")
            || word.contains('=')
            || word.ends_with('/')
    }) && (before.is_empty() || before.ends_with([' ', '/', '(']))
}

/// Splits a command into words as a shell does, up to a redirection, a pipe, a comment or an ellipsis.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for character in command.chars() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, '>' | '<' | '|' | ';' | '&' | ')' | '…') => break,
            (None, '#') if word.is_none() => break,
            (None, _) if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);

    for word in &mut words {
        let known = PLACEHOLDERS.iter().find(|(name, _)| name == word);
        if let Some((_, value)) = known {
            *word = (*value).to_owned();
        }
    }
    words
}

/// Returns the complaint about a command, if there is one.
fn refusal(words: &[String]) -> Option<String> {
    let output = Command::new(trunkline())
        .args(&words[1..])
        .arg("--help")
        .env("TRUNKLINE_DATA_DIR", "/nonexistent")
        .output()
        .expect("the daemon's binary");
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();

    // Sentences name flags without their values.
    let is_read = output.status.success() || complaint.contains("a value is required for");
    (!is_read).then_some(complaint)
}

#[test]
fn commands_are_found_and_split() {
    let page = "Use `trunkline org list`, not `org list`.\n```sh\n$ sudo -u trunkline trunkline call \\\n  show 'a b' > x\nID=$(trunkline org show Acme | jq .id)\n```\n";
    let found: Vec<_> = commands(page).iter().map(|line| words(line)).collect();
    assert_eq!(
        found,
        [
            vec!["trunkline", "org", "list"],
            vec!["trunkline", "call", "show", "a b"],
            vec!["trunkline", "org", "show", "Acme"],
        ]
    );
    assert!(refusal(&words("trunkline org lisst")).is_some());
    assert!(refusal(&words("trunkline org list --nothing")).is_some());
}

#[test]
fn every_printed_command_is_one_of_the_binary() {
    let mut printed: BTreeMap<Vec<String>, String> = BTreeMap::new();
    for page in documents() {
        let text = std::fs::read_to_string(&page).expect("a document");
        for command in commands(&text) {
            printed.insert(words(&command), page.display().to_string());
        }
    }
    assert!(printed.len() > 80, "{} commands", printed.len());

    let refused: Vec<_> = printed
        .iter()
        .filter_map(|(words, page)| {
            let complaint = refusal(words)?;
            Some(format!("{page}: {}\n{complaint}", words.join(" ")))
        })
        .collect();

    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// The names in the compose file are settings of this binary, which refuses unknown ones, and its values are accepted beside the image's configuration.
#[test]
fn the_compose_files_settings_are_those_of_the_binary() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging");
    let compose = std::fs::read_to_string(packaging.join("compose.yaml")).expect("the file");
    let key = "5e".repeat(32);
    let filled = |value: &str| {
        let (before, rest) = value.split_once("${").unwrap_or((value, "}"));
        let (name, after) = rest.split_once('}').expect("a placeholder's end");
        let name = name.split(':').next().unwrap_or_default();
        let given = match name {
            "" => "",
            "PUBLIC_HOST" => "voice.example.com",
            "POSTGRES_PASSWORD" => "0123456789abcdef",
            "TRUNKLINE_MASTER_KEY" => &key,
            other => panic!("{other} isn't described"),
        };
        format!("{before}{given}{after}")
    };

    let mut command = Command::new(trunkline());
    command
        .arg("--config")
        .arg(packaging.join("container.toml"))
        .args(["config", "check"]);
    let lines = compose
        .lines()
        .filter_map(|line| line.trim().split_once(": "));
    let settings: Vec<_> = lines
        .filter(|(name, _)| name.starts_with("TRUNKLINE__"))
        .map(|(name, value)| (name, filled(value)))
        .collect();
    assert!(settings.len() >= 4, "{settings:?}");

    let output = command.envs(settings).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    for part in ["postgres", "voice.example.com", "127.0.0.1:8080"] {
        assert!(said.contains(part), "{part}: {said}");
    }
}
