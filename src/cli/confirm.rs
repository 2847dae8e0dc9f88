//! Question before something is destroyed.

use std::io::{IsTerminal as _, Write as _};

use super::Failure;

/// Asks before something is destroyed, unless `--yes` was given.
///
/// # Errors
/// The answer is no, or there is no terminal to ask on.
pub(super) fn confirmed(is_given: bool, summary: &str) -> Result<(), Failure> {
    if is_given {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::Startup(
            "this can't be undone: confirm it with --yes".to_owned(),
        ));
    }

    // A terminal that has gone gives no answer, which means no.
    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "{summary}: are you sure? [y/N] ");
    let _ = stderr.flush();
    let mut answer = String::new();
    let _ = std::io::stdin().read_line(&mut answer);
    match matches!(answer.trim(), "y" | "Y" | "yes") {
        true => Ok(()),
        false => Err(Failure::Command("nothing was done".to_owned())),
    }
}
