//! Text of `quickstart`, on one screen: credentials, commands to go on with, and one that places a call.

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
    let sections = [
        credentials(made, config),
        NEXT.to_owned(),
        Program::Sipp.lines(trunk, config)?,
    ];
    Ok(sections.join("\n\n"))
}

/// Commands for a second terminal.
const NEXT: &str = "\
Next, in a second terminal and this folder, with the same flags and variables:

  trunkline trunk paste PROGRAM   settings for asterisk, freeswitch, freepbx, 3cx, yeastar, grandstream or cisco; a call by baresip or sipp
  trunkline console               a link that logs in to the dashboard
  trunkline trace                 calls as they happen
  trunkline number verify NUMBER  for numbers that you add. An org can verify its own (docs/api.md)";

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
  HTTP           {http} (its description: {http}/docs)

  curl -H 'Authorization: Bearer {api_key}' {http}/phone/calls",
        data_dir = config.data_dir.display(),
        number = phone_number.as_str(),
        endpoint = trunk.sip_endpoint,
        username = trunk.auth_username,
        password = trunk.auth_password,
    )
}
