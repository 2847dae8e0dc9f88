//! `trunkline trunk paste`: lines for a phone system or a test program with the real values of a trunk, each with the
//! version that they were run against.

use std::path::PathBuf;

use super::Failure;
use crate::config::Config;
use crate::explain::pbx::Pbx;
use crate::explain::pbx_settings::{Trunk, settings};

/// Scenario for the `sipp` command, written into the data directory.
const SIPP_SCENARIO: &str = include_str!("quickstart/caller.xml");
const SIPP_FILE: &str = "quickstart-caller.xml";

/// Phone systems and programs.
#[derive(Copy, Clone, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(super) enum Program {
    Asterisk,
    Freeswitch,
    Freepbx,
    #[value(name = "3cx")]
    ThreeCx,
    Yeastar,
    Grandstream,
    Cisco,
    Baresip,
    Sipp,
}

/// Values of a trunk.
#[derive(Copy, Clone, Debug)]
pub(super) struct PastedTrunk<'t> {
    /// Host and port that callers send to.
    pub(super) sip: &'t str,
    pub(super) username: &'t str,
    pub(super) password: &'t str,
    pub(super) realm: &'t str,
    /// Number to call.
    pub(super) number: &'t str,
}

impl Program {
    /// Makes the lines, headed by what they were run against.
    ///
    /// # Errors
    /// The scenario for sipp can't be written.
    pub(super) fn lines(self, trunk: PastedTrunk<'_>, config: &Config) -> Result<String, Failure> {
        let number = trunk.number;
        let lines = match self {
            Self::Asterisk => format!(
                "; Asterisk: call with Dial(PJSIP/{number}@trunkline). Run against Asterisk 22.10 on 2026-11-23.
; Transfers: set the trunk's transfer way to \"auto\" (trunkline trunk update --transfer-way auto). Asterisk loses the caller when a REFER that it
; has accepted fails.
{}",
                trunk.settings(Pbx::Asterisk)
            ),
            Self::Freeswitch => format!(
                "<!-- FreeSWITCH: call with bridge sofia/gateway/trunkline/{number}. Run against FreeSWITCH 1.10.12 on 2026-11-23. -->
<!-- Transfers: set the trunk's transfer way to \"auto\" (trunkline trunk update, option transfer-way). FreeSWITCH says 200 before anybody
answers, and hangs up. -->
{}",
                trunk.settings(Pbx::FreeSwitch)
            ),
            Self::Freepbx => untested("FreePBX", &trunk.settings(Pbx::FreePbx)),
            Self::ThreeCx => untested("3CX", &trunk.settings(Pbx::ThreeCx)),
            Self::Yeastar => untested("Yeastar", &trunk.settings(Pbx::Yeastar)),
            Self::Grandstream => untested("Grandstream UCM", &trunk.settings(Pbx::Grandstream)),
            Self::Cisco => untested("Cisco CUBE", &trunk.settings(Pbx::Cisco)),
            Self::Baresip => baresip(trunk),
            Self::Sipp => sipp(trunk, &scenario(config)?),
        };
        Ok(lines.trim_end().to_owned())
    }
}

impl PastedTrunk<'_> {
    fn settings(&self, pbx: Pbx) -> String {
        settings(
            pbx,
            Trunk {
                endpoint: self.sip,
                username: self.username,
                password: self.password,
                realm: self.realm,
            },
        )
    }
}

fn untested(name: &str, lines: &str) -> String {
    format!("# {name}: untested. Made from its manual.\n{lines}")
}

fn baresip(trunk: PastedTrunk<'_>) -> String {
    let PastedTrunk {
        sip,
        username,
        password,
        number,
        ..
    } = trunk;
    format!(
        "\
# baresip: calls the agent; the echo agent sends back what you say. Run against baresip 1.0.0 on 2026-11-26.
baresip -e '/uanew <sip:{username}@{sip}>;auth_user={username};auth_pass={password};regint=0' -e '/dial sip:{number}@{sip}'"
    )
}

fn sipp(trunk: PastedTrunk<'_>, scenario: &std::path::Path) -> String {
    let PastedTrunk {
        sip,
        username,
        password,
        number,
        ..
    } = trunk;
    format!(
        "\
# sipp: one call of two seconds. Run against SIPp 3.6.1 on 2026-11-26.
sipp -sf '{}' -m 1 -s '{number}' -au '{username}' -ap '{password}' -auth_uri '{number}@{sip}' {sip}",
        scenario.display()
    )
}

/// Writes the scenario to the path in the printed command.
fn scenario(config: &Config) -> Result<PathBuf, Failure> {
    let path = config.data_dir.join(SIPP_FILE);
    std::fs::create_dir_all(&config.data_dir)
        .and_then(|()| std::fs::write(&path, SIPP_SCENARIO))
        .map_err(|error| {
            Failure::Command(format!("{} can't be written: {error}", path.display()))
        })?;
    Ok(path)
}
