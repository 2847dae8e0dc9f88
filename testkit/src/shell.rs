//! Runs the built binary in its own folder, without the variables of this process's environment that it would read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::process::trunkline;

#[derive(Debug)]
pub struct Shell {
    folder: TempDir,
    /// Set for every command.
    environment: Vec<(&'static str, &'static str)>,
}

/// Exit code and output of a command.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Shell {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
            environment: Vec::new(),
        }
    }

    /// Sets this variable for every command.
    pub fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), text).expect("the folder can be written");
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(trunkline());
        // A variable of the developer's shell could choose another installation, or a key.
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TRUNKLINE"))
        {
            command.env_remove(name);
        }
        command
            .current_dir(self.folder.path())
            .args(arguments)
            .envs(self.environment.iter().copied())
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        let output = self.command(arguments).output().expect("the binary runs");
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        Ran {
            code: output.status.code(),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
        }
    }

    /// The JSON that a command prints, which must succeed.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(ran.code, Some(0), "{arguments:?}: {ran:?}");
        assert_eq!(
            ran.stdout.lines().count(),
            1,
            "{arguments:?}: {}",
            ran.stdout
        );
        serde_json::from_str(&ran.stdout)
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", ran.stdout))
    }

    /// Every file of the folder with its content.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        collect(self.folder.path(), &mut files);
        files
    }
}

fn collect(folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).expect("a folder can be read") {
        let path = entry.expect("an entry can be read").path();
        if path.is_dir() {
            files.insert(path.clone(), Vec::new());
            collect(&path, files);
        } else {
            files.insert(
                path.clone(),
                std::fs::read(&path).expect("a file can be read"),
            );
        }
    }
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}
