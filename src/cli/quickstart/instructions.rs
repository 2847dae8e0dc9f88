//! Text to paste after `quickstart`: credentials, settings for Asterisk and FreeSWITCH, and two commands that place a
//! call.

use std::path::PathBuf;

use super::super::Failure;
use super::result::QuickstartResult;
use crate::config::Config;
use crate::explain::pbx::Pbx;
use crate::explain::pbx_settings::{Trunk, settings};

/// Scenario for the `sipp` command, written into the data directory.
const SIPP_SCENARIO: &str = include_str!("caller.xml");
const SIPP_FILE: &str = "quickstart-caller.xml";

/// Makes the whole text.
pub(super) fn text(made: &QuickstartResult, config: &Config) -> Result<String, Failure> {
    let sections = [
        credentials(made, config),
        asterisk(made, config),
        freeswitch(made, config),
        baresip(made),
        sipp(made, &scenario(config)?),
    ];
    Ok(sections.join("\n\n"))
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

fn credentials(made: &QuickstartResult, config: &Config) -> String {
    let QuickstartResult {
        org_id,
        api_key,
        partner_id,
        partner_key,
        agent_id,
        phone_number,
        trunk,
        http,
        sip,
    } = made;
    format!(
        "\
Trunkline is set up in {data_dir}.

  org            {org_id}
  API key        {api_key}
  partner        {partner_id}
  partner key    {partner_key}
  agent          {agent_id}
  phone number   {number}
  SIP            {endpoint} (callers send to {sip})
  user name      {username}
  password       {password}
  HTTP           {http}

  curl -H 'Authorization: Bearer {api_key}' {http}/phone/calls

Numbers that are added need to be verified: trunkline number verify NUMBER --org {org_id}. An org verifies its own by a code
that a call to the number speaks, once phone.verification_trunk is configured (docs/api.md).",
        data_dir = config.data_dir.display(),
        number = phone_number.as_str(),
        endpoint = trunk.sip_endpoint,
        username = trunk.auth_username,
        password = trunk.auth_password,
    )
}

/// Settings of the trunk with its password, which the text shows above as well.
fn trunk<'t>(made: &'t QuickstartResult, realm: &'t str) -> Trunk<'t> {
    Trunk {
        endpoint: &made.sip,
        username: &made.trunk.auth_username,
        password: &made.trunk.auth_password,
        realm,
    }
}

fn asterisk(made: &QuickstartResult, config: &Config) -> String {
    let number = made.phone_number.as_str();
    let realm = config.sip.realm();
    let settings = settings(Pbx::Asterisk, trunk(made, &realm));
    format!(
        "; Asterisk: call with Dial(PJSIP/{number}@trunkline)
; Transfers: set the trunk's transfer_way to \"auto\". Asterisk loses the caller when a REFER that it has accepted fails.
{}",
        settings.trim_end()
    )
}

fn freeswitch(made: &QuickstartResult, config: &Config) -> String {
    let number = made.phone_number.as_str();
    let realm = config.sip.realm();
    let settings = settings(Pbx::FreeSwitch, trunk(made, &realm));
    format!(
        "<!-- FreeSWITCH: call with bridge sofia/gateway/trunkline/{number} -->
<!-- Transfers: set the trunk's transfer_way to \"auto\". FreeSWITCH says 200 before anybody answers, and hangs up. -->
{}",
        settings.trim_end()
    )
}

fn baresip(made: &QuickstartResult) -> String {
    let (sip, trunk) = (&made.sip, &made.trunk);
    let (user, password) = (&trunk.auth_username, &trunk.auth_password);
    format!(
        "\
# baresip: calls the agent; what you say comes back
baresip -e '/uanew <sip:{user}@{sip}>;auth_user={user};auth_pass={password};regint=0' -e '/dial sip:{number}@{sip}'",
        number = made.phone_number.as_str(),
    )
}

fn sipp(made: &QuickstartResult, scenario: &std::path::Path) -> String {
    let trunk = &made.trunk;
    format!(
        "\
# sipp: one call of two seconds
sipp -sf '{scenario}' -m 1 -s '{number}' -au '{user}' -ap '{password}' -auth_uri '{number}@{sip}' {sip}",
        scenario = scenario.display(),
        number = made.phone_number.as_str(),
        user = trunk.auth_username,
        password = trunk.auth_password,
        sip = made.sip,
    )
}
