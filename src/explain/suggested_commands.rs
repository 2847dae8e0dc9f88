//! Commands that turn a near miss into a hit.

use trunkline_routing::{AgentState, NearMiss, NumberDifference};

/// Returns the commands, without repetitions, for the org of this name or id.
pub fn commands(near: &[NearMiss], org: &str) -> Vec<String> {
    let org = quoted(org);
    let mut commands: Vec<String> = Vec::new();
    for command in near.iter().filter_map(|near| command(near, &org)) {
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    commands
}

fn command(near: &NearMiss, org: &str) -> Option<String> {
    match near {
        NearMiss::Number {
            differs: NumberDifference::NationalForm { country },
            ..
        } => Some(format!(
            "trunkline trunk update --org {org} --country {country}"
        )),
        NearMiss::Unassigned { number } => Some(format!(
            "trunkline number assign {number} --org {org} --agent ID"
        )),

        NearMiss::Agent { id, state, .. } => match state {
            AgentState::Disabled => {
                Some(format!("trunkline agent update {id} --org {org} --enabled"))
            }
            AgentState::AtLimit => Some(format!(
                "trunkline agent update {id} --org {org} --max-concurrent-calls N"
            )),
            AgentState::NotInbound | AgentState::Available => None,
        },

        NearMiss::AgentId { .. } | NearMiss::AgentName { .. } => {
            Some(format!("trunkline agent list --org {org}"))
        }
        // Must be fixed at the PBX.
        NearMiss::Number { .. } | NearMiss::To { .. } | NearMiss::Ambiguous { .. } => None,
    }
}

/// Quotes a text for the shell.
pub fn quoted(text: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "-_.:/+@".contains(char);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use trunkline_routing::E164;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn what_can_be_fixed_here_is_a_command() {
        let number = E164::parse("+493012345678").expect("a number");
        let national = NearMiss::Number {
            dialled: "030".to_owned(),
            number,
            differs: NumberDifference::NationalForm {
                country: "DE".to_owned(),
            },
            agent: None,
            agent_name: None,
        };
        let agent = NearMiss::Agent {
            id: Uuid::nil(),
            name: "Sales".into(),
            state: AgentState::Disabled,
        };

        let near = [
            national.clone(),
            agent,
            national,
            NearMiss::Unassigned { number },
        ];
        assert_eq!(
            commands(&near, "It's us"),
            [
                "trunkline trunk update --org 'It'\\''s us' --country DE",
                "trunkline agent update 00000000-0000-0000-0000-000000000000 --org 'It'\\''s us' --enabled",
                "trunkline number assign +493012345678 --org 'It'\\''s us' --agent ID",
            ]
        );
        assert_eq!(quoted("Acme"), "Acme");
    }
}
