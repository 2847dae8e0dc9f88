//! `trunkline completion` and `trunkline man`: what a package installs beside the binary, made from the definitions of the commands.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap_complete::Shell;

use super::Failure;

/// Prints the completion script of a shell.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trunkline completion bash > /etc/bash_completion.d/trunkline\n  trunkline completion zsh > ~/.zfunc/_trunkline\n  trunkline completion fish > ~/.config/fish/completions/trunkline.fish"
)]
pub(super) struct Completion {
    /// The shell.
    shell: Shell,
}

/// Writes the man pages, one for each command.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  trunkline man /usr/local/share/man/man1")]
pub(super) struct Man {
    /// The directory; created if it doesn't exist.
    directory: PathBuf,
}

impl Completion {
    /// Prints the script for the whole `command`.
    pub(super) fn run(self, mut command: clap::Command) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "trunkline", &mut script);
        std::io::stdout()
            .write_all(&script)
            .map_err(|error| Failure::Command(format!("the script can't be written: {error}")))
    }
}

impl Man {
    /// Writes the pages of the whole `command`.
    pub(super) fn run(self, command: clap::Command) -> Result<(), Failure> {
        let Self { directory } = self;
        write_pages(command, &directory).map_err(|error| {
            Failure::Command(format!(
                "the pages can't be written to {}: {error}",
                directory.display()
            ))
        })
    }
}

fn write_pages(command: clap::Command, directory: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(command, directory)
}
