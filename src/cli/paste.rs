//! `trunkline trunk paste`: lines for a phone system or a test program with the real values of a trunk, each with the
//! version that they were run against.

use std::path::{Path, PathBuf};

use super::Failure;
use crate::explain::pbx::Pbx;
use crate::explain::pbx_settings::{Trunk, settings};

/// Scenario for the `sipp` command.
const SIPP_SCENARIO: &str = include_str!("quickstart/caller.xml");
const SIPP_FILE: &str = "quickstart-caller.xml";

/// `User-Agent` of the call that this scenario places. Anybody can send it, so nothing depends on it but that `doctor` gives no advice on such a call.
pub(super) const TEST_CALL: &str = "trunkline test call";

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
    Kamailio,
    Baresip,
    Sipp,
}

/// Values of a trunk, and the number to call.
#[derive(Copy, Clone, Debug)]
pub(super) struct PastedTrunk<'t> {
    /// Its endpoint is the host and port that callers send to.
    pub(super) trunk: Trunk<'t>,
    pub(super) number: &'t str,
}

impl Program {
    /// Makes the lines, headed by the target that they were run against. Files that they refer to are written into `folder`.
    ///
    /// # Errors
    /// The scenario for sipp can't be written.
    pub(super) fn lines(self, pasted: PastedTrunk<'_>, folder: &Path) -> Result<String, Failure> {
        let PastedTrunk { trunk, number } = pasted;
        let Trunk {
            endpoint: sip,
            username,
            password,
            ..
        } = trunk;

        let lines = match self {
            Self::Asterisk => format!(
                "; Asterisk: call with Dial(PJSIP/{number}@trunkline). Run against Asterisk 22.10.1 and 23.4.1 on 2026-11-26.
; Transfers: set the trunk's transfer way to \"auto\" (trunkline trunk update --transfer-way auto). Asterisk loses the caller when a REFER that it
; has accepted fails.
{}",
                settings(Pbx::Asterisk, trunk)
            ),

            Self::Freeswitch => format!(
                "<!-- FreeSWITCH: call with bridge sofia/gateway/trunkline/{number}. Run against FreeSWITCH 1.11.2 on 2026-11-26. -->
<!-- Transfers: set the trunk's transfer way to \"auto\" (trunkline trunk update, option transfer-way). FreeSWITCH says 200 before anybody
answers, and hangs up. -->
{}",
                settings(Pbx::FreeSwitch, trunk)
            ),

            Self::Freepbx => untested("FreePBX", &settings(Pbx::FreePbx, trunk)),
            Self::ThreeCx => untested("3CX", &settings(Pbx::ThreeCx, trunk)),
            Self::Yeastar => untested("Yeastar", &settings(Pbx::Yeastar, trunk)),
            Self::Grandstream => untested("Grandstream UCM", &settings(Pbx::Grandstream, trunk)),
            Self::Cisco => untested("Cisco CUBE", &settings(Pbx::Cisco, trunk)),
            Self::Kamailio => kamailio(trunk, number),

            Self::Baresip => format!(
                "\
# baresip: calls the agent; the echo agent sends back what you say. Run against baresip 1.0.0 on 2026-11-26.
baresip -e '/uanew <sip:{username}@{sip}>;auth_user={username};auth_pass={password};regint=0' -e '/dial sip:{number}@{sip}'"
            ),

            Self::Sipp => format!(
                "\
# sipp: one call of two seconds. Run against SIPp 3.6.1 on 2026-11-26.
sipp -sf '{}' -m 1 -s '{number}' -au '{username}' -ap '{password}' -auth_uri '{number}@{sip}' {sip}",
                scenario(folder)?.display()
            ),
        };

        Ok(lines.trim_end().to_owned())
    }
}

/// Makes a file that the packaged `kamailio.cfg` includes: it loads what that file doesn't, since Kamailio refuses to load a module twice. The
/// dialog module counts CSeq up for the answer to a challenge, and in every request that follows. `uac` would restore From and To by the
/// `ftag` of Record-Route, which the packaged file turns off, and nothing is replaced here.
fn kamailio(trunk: Trunk<'_>, number: &str) -> String {
    let Trunk {
        endpoint,
        username,
        password,
        realm,
    } = trunk;
    let pattern = number.replace('+', "\\+");
    format!(
        r#"# Kamailio: calls to {number} go to the agent. Run against Kamailio 5.6.3 with its packaged kamailio.cfg on 2026-11-29.
# Save it as trunkline.cfg beside kamailio.cfg. In kamailio.cfg, above request_route: include_file "trunkline.cfg"
# In request_route, below record_route() of new calls: route(TRUNKLINE);
# Leave out a loadmodule that your file has already; tm, sl, rr, pv and siputils are in the packaged one.
# For a range of numbers change the pattern, such as ^\+1202555[0-9]{{4}}$
loadmodule "dialog.so"
loadmodule "uac.so"
modparam("dialog", "track_cseq_updates", 1)
modparam("uac", "restore_mode", "none")
modparam("uac", "credential", "{username}:{realm}:{password}")

route[TRUNKLINE] {{
  if ($rm == "INVITE" && !has_totag() && $rU =~ "^{pattern}$") {{
    dlg_manage();
    $ru = "sip:" + $rU + "@{endpoint}";
    t_on_failure("TRUNKLINE_CHALLENGED");
    t_relay();
    exit;
  }}
}}

failure_route[TRUNKLINE_CHALLENGED] {{
  if (t_is_canceled()) exit;
  if (t_check_status("401|407") && uac_auth()) t_relay();
}}"#
    )
}

fn untested(name: &str, lines: &str) -> String {
    format!("# {name}: untested. Made from its manual.\n{lines}")
}

/// Writes the scenario to the path in the printed command.
fn scenario(folder: &Path) -> Result<PathBuf, Failure> {
    let path = folder.join(SIPP_FILE);
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, SIPP_SCENARIO))
        .map_err(|error| {
            Failure::Command(format!("{} can't be written: {error}", path.display()))
        })?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_call_says_that_it_is_one() {
        let header = format!("User-Agent: {TEST_CALL}\n");
        assert_eq!(SIPP_SCENARIO.matches(&header).count(), 2);
    }
}
