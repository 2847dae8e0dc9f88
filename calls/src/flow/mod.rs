//! The flow of a built-in agent as it runs in one call. Knows nothing of calls.

mod machine;

use std::sync::Arc;

use trunkline_model::settings::Runtime;
use trunkline_sip::moment::Moment;
use trunkline_sip::wheel::TimerId;

pub use machine::Sound;
pub(crate) use machine::{Action, Machine, TransferFailure};

/// The built-in agent of a call.
#[derive(Debug)]
pub(crate) struct Builtin {
    pub(super) machine: Machine,
    /// Timer of what the machine waits for now (`Machine::due`), with the time at which it fires.
    pub(super) timer: Option<(TimerId, Moment)>,
    /// Destination of the hand-off that the flow has requested and that hasn't begun: its name, or `None` for the agent's first.
    pub(super) wanted: Option<Option<Box<str>>>,
}

impl Builtin {
    /// The flow of a runtime; `None` where it has none.
    pub(crate) fn of(runtime: &Arc<Runtime>) -> Option<Self> {
        let start = runtime.flow()?.start.clone();
        Some(Self {
            machine: Machine::new(Arc::clone(runtime), start),
            timer: None,
            wanted: None,
        })
    }

    /// Returns the timer that runs.
    pub(crate) fn timer(&self) -> Option<TimerId> {
        self.timer.map(|(timer, _)| timer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use trunkline_model::builtin::Flow;
    use trunkline_sip::wheel::Wheel;

    use super::*;

    #[test]
    fn a_builtin_agent_runs_the_flow_of_its_runtime() {
        assert!(Builtin::of(&Arc::new(Runtime::Echo)).is_none());

        let flow = json!({"start": "a", "steps": {"a": {"do": "next_runtime"}}, "longest_s": 600});
        let runtime = Runtime::Builtin {
            flow: Box::new(Flow::read(&flow).expect("a flow")),
            fallbacks: Vec::new(),
        };
        let mut builtin = Builtin::of(&Arc::new(runtime)).expect("it has a flow");
        assert_eq!(builtin.timer(), None);
        let now = Moment::from_secs(1);
        let timer = Wheel::new(now).schedule(now, ());
        builtin.timer = Some((timer, now));
        assert_eq!(builtin.timer(), Some(timer));
        builtin.machine.handle_start(now);
        assert_eq!(builtin.machine.poll_action(), Some(Action::NextRuntime));
    }
}
