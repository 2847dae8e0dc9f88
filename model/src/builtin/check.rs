//! Soundness of a flow as a whole: steps that are named and don't exist, that exist and aren't reached, and loops that don't wait.

use std::collections::{BTreeMap, BTreeSet};

use super::fault::FlowFault;
use super::{Flow, Step};

/// Notes what is wrong with the flow as a whole. `unread` holds steps that exist and could not be read.
pub(super) fn check(flow: &Flow, unread: &BTreeSet<Box<str>>, faults: &mut Vec<FlowFault>) {
    let exists = |name: &str| flow.steps.contains_key(name) || unread.contains(name);
    if !exists(&flow.start) {
        faults.push(undefined(".start".to_owned(), &flow.start));
    }
    for (name, step) in &flow.steps {
        for (field, next) in step.nexts() {
            if !exists(next) {
                faults.push(undefined(format!(".steps.{name}.{field}"), next));
            }
        }
    }

    // The steps that follow an unreadable step are unknown. So it can't be said which steps are reached, or which form a loop.
    if !unread.is_empty() || !exists(&flow.start) {
        return;
    }
    let reached = reached(flow);
    for name in flow.steps.keys() {
        if !reached.contains(&**name) {
            faults.push(FlowFault::new(
                format!(".steps.{name}"),
                "is a step that no other leads to",
            ));
        }
    }

    if let Some(turning) = loop_without_waiting(flow) {
        faults.push(FlowFault::new(
            format!(".steps.{}", turning[0]),
            format!(
                "turns in a loop that waits for no digit: {}",
                turning.join(" → ")
            ),
        ));
    }
}

fn undefined(path: String, name: &str) -> FlowFault {
    FlowFault::new(path, format!("{name:?} is no step of this flow"))
}

fn reached(flow: &Flow) -> BTreeSet<&str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![&*flow.start];
    while let Some(name) = open.pop() {
        if reached.insert(name)
            && let Some(step) = flow.step(name)
        {
            open.extend(step.nexts().map(|(_, next)| next));
        }
    }
    reached
}

/// Returns the steps of a loop in which none waits for the caller, the first one again at its end.
///
/// A depth-first search without recursion: `path` holds each entered step, with those of its successors that haven't been followed yet.
fn loop_without_waiting(flow: &Flow) -> Option<Vec<&str>> {
    /// Progress of the search with a step.
    #[derive(PartialEq)]
    enum Mark {
        OnPath,
        Done,
    }

    let mut marks: BTreeMap<&str, Mark> = BTreeMap::new();
    for start in flow.steps.keys() {
        let mut path: Vec<(&str, Vec<&str>)> = Vec::new();
        let mut enter = Some(&**start);
        loop {
            if let Some(name) = enter.take() {
                match marks.get(name) {
                    Some(Mark::Done) => {}
                    Some(Mark::OnPath) => {
                        let from = path.iter().position(|(on, _)| *on == name)?;
                        let turning = path[from..].iter().map(|(on, _)| *on);
                        return Some(turning.chain([name]).collect());
                    }
                    None => {
                        // A step that waits has no successors here: a loop through it doesn't turn by itself.
                        let step = flow.step(name).filter(|step| !step.waits());
                        let nexts = step.map(|step| step.nexts().map(|(_, next)| next).collect());
                        marks.insert(name, Mark::OnPath);
                        path.push((name, nexts.unwrap_or_default()));
                    }
                }
            }

            let Some((name, nexts)) = path.last_mut() else {
                break;
            };
            match nexts.pop() {
                Some(next) => enter = Some(next),
                None => {
                    marks.insert(name, Mark::Done);
                    path.pop();
                }
            }
        }
    }
    None
}

impl Step {
    /// Returns whether the step takes time in every case. A prompt doesn't: one that can't be played ends at once. Nor does a transfer, which
    /// may be impossible.
    const fn waits(&self) -> bool {
        matches!(self, Self::Menu { .. } | Self::Echo { .. })
    }

    /// Returns the steps that may follow, each with the field that names it.
    fn nexts(&self) -> impl Iterator<Item = (String, &str)> {
        let (choices, next) = match self {
            Self::Play { next, .. } | Self::SayDigits { next } => (None, Some(("next", next))),
            Self::Menu {
                choices, otherwise, ..
            } => (Some(choices), Some(("otherwise", otherwise))),
            Self::Echo { choices, next, .. } => (Some(choices), Some(("next", next))),
            Self::Transfer { otherwise, .. } => (None, Some(("otherwise", otherwise))),
            Self::NextRuntime | Self::HangUp => (None, None),
        };
        let chosen = choices.into_iter().flat_map(|choices| &choices.0);
        let chosen = chosen.map(|(digit, next)| (format!("choices/{digit}"), &**next));
        let next = next.map(|(field, next)| (field.to_owned(), &**next));
        chosen.chain(next)
    }
}
