//! Text of `quickstart`, on one screen: credentials, commands to go on with, and one that places a call. A terminal that is
//! wide enough shows the SIP URI as a QR code beside it.

use super::super::Failure;
use super::super::paste::{PastedTrunk, Program};
use super::qr::beside;
use super::result::QuickstartResult;
use crate::config::Config;
use crate::explain::pbx_settings::Trunk;

/// Makes the whole text. `width` is that of the terminal, if there is one.
pub(super) fn text(
    made: &QuickstartResult,
    config: &Config,
    width: Option<usize>,
) -> Result<String, Failure> {
    let realm = config.sip.realm();
    let trunk = PastedTrunk {
        trunk: Trunk {
            endpoint: &made.sip,
            username: &made.trunk.auth_username,
            password: &made.trunk.auth_password,
            realm: &realm,
        },
        number: made.phone_number.as_str(),
    };

    let short = format!("{}\n\n{NEXT}", facts(made, config));
    let lines: Vec<&str> = short.lines().collect();
    let uri = format!("sip:{}@{}", made.phone_number.as_str(), made.sip);
    let beside = width.and_then(|width| beside(&lines, &uri, width));
    let sections = [
        beside.unwrap_or(short),
        keys(made),
        Program::Sipp.lines(trunk, config)?,
    ];
    Ok(sections.join("\n\n"))
}

/// Commands for a second terminal.
const NEXT: &str = "\
Next, in a second terminal and this folder, with the same flags and variables:

  trunkline trunk paste PROGRAM   lines for a PBX, baresip or sipp
  trunkline console               a link that logs in to the dashboard
  trunkline trace                 calls as they happen, to their messages
  trunkline number verify NUMBER  for numbers that you add (docs/api.md)";

fn facts(made: &QuickstartResult, config: &Config) -> String {
    let QuickstartResult {
        org_id,
        partner_id,
        agent_id,
        phone_number,
        trunk,
        http,
        sip,
        ..
    } = made;
    format!(
        "\
Trunkline is set up in {data_dir}.

  org            {org_id}
  partner        {partner_id}
  agent          {agent_id}
  phone number   {number}
  SIP            {endpoint} (callers send to {sip})
  user name      {username}
  password       {password}
  HTTP           {http} (its description: {http}/docs)",
        data_dir = config.data_dir.display(),
        number = phone_number.as_str(),
        endpoint = trunk.sip_endpoint,
        username = trunk.auth_username,
        password = trunk.auth_password,
    )
}

/// Lines that are longer than most terminals.
fn keys(made: &QuickstartResult) -> String {
    let QuickstartResult {
        api_key,
        partner_key,
        http,
        ..
    } = made;
    format!(
        "\
  API key        {api_key}
  partner key    {partner_key}
  curl -H \"Authorization: Bearer $TRUNKLINE_API_KEY\" {http}/phone/calls"
    )
}
