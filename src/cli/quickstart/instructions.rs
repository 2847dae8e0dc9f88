//! Text to paste after `quickstart`: credentials, settings for Asterisk and FreeSWITCH, and two commands that place a
//! call.

use super::super::Failure;
use super::super::paste::{PastedTrunk, Program};
use super::result::QuickstartResult;
use crate::config::Config;

/// Makes the whole text.
pub(super) fn text(made: &QuickstartResult, config: &Config) -> Result<String, Failure> {
    let realm = config.sip.realm();
    let trunk = PastedTrunk {
        sip: &made.sip,
        username: &made.trunk.auth_username,
        password: &made.trunk.auth_password,
        realm: &realm,
        number: made.phone_number.as_str(),
    };
    let programs = [
        Program::Asterisk,
        Program::Freeswitch,
        Program::Baresip,
        Program::Sipp,
    ];
    let mut sections = vec![credentials(made, config)];
    for program in programs {
        sections.push(program.lines(trunk, config)?);
    }
    Ok(sections.join("\n\n"))
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
