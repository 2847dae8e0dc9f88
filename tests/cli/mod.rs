//! The command line from outside: setting up from the shell, and starts that must fail without leaving a trace.

mod as_key;
mod audit;
mod calls;
mod contexts;
mod explained;
mod keys;
mod operators;
mod outset;
mod paste;
mod printed;
mod prompts;
mod quickstart;
mod resources;
mod setup;
mod trace;

/// Returns true if the tool is installed. Without it a run under CI panics; any other prints that the test is skipped.
fn has(tool: &str) -> bool {
    let found = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(tool).exists()));
    assert!(
        found || std::env::var_os("CI").is_none(),
        "{tool} is missing"
    );
    if !found {
        eprintln!("SKIPPED: {tool} is missing");
    }
    found
}
