//! Says at the end of a run what it left out. Cargo runs the tests of this crate last.

fn main() {
    match trunkline_testkit::not_run::take() {
        Some(summary) => print!("\n{summary}\n"),
        None => println!("\nNo test was left out for want of a program.\n"),
    }
}
