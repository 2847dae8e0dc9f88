//! Text of `quickstart`, on one screen: a link to the dashboard, credentials of the trunk, commands to go on with, and one
//! that places a call. A terminal that is wide enough shows the SIP URI as a QR code beside it.

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

    let plain = match config.http.is_plain_beyond_loopback() {
        true => PLAIN,
        false => "",
    };
    let short = format!("{}\n\n{NEXT}{plain}", facts(made));
    let lines: Vec<&str> = short.lines().collect();
    let uri = format!("sip:{}@{}", made.phone_number.as_str(), made.sip);
    let beside = width.and_then(|width| beside(&lines, &uri, width));
    let sections = [
        format!("{}\n{}", dashboard(made, config), beside.unwrap_or(short)),
        Program::Sipp.lines(trunk, &config.data_dir)?,
    ];
    Ok(sections.join("\n\n"))
}

/// Commands for a second terminal.
const NEXT: &str = "\
Next, in a second terminal and this folder, with the same flags and variables:

  trunkline trunk paste PROGRAM   lines for a PBX, baresip or sipp
  trunkline trace                 calls as they happen, to their messages
  trunkline number verify NUMBER  for numbers that you add (docs/api.md)
  trunkline key create            a key for the API";

/// The way to the console from other machines, where they reach the API over plain HTTP.
const PLAIN: &str = "

Over plain HTTP the console is for this machine alone. From others: set
http.tls_certificate, or http.allow_plain_console = true on a LAN you trust.";

/// Lines above the QR code: the link is longer than a line beside it may be.
fn dashboard(made: &QuickstartResult, config: &Config) -> String {
    format!(
        "\
Trunkline is set up in {data_dir}.

  dashboard      {link}
                 works once, within 15 minutes; trunkline console prints another",
        data_dir = config.data_dir.display(),
        link = made.login_link,
    )
}

fn facts(made: &QuickstartResult) -> String {
    let QuickstartResult {
        agent_id,
        phone_number,
        trunk,
        http,
        sip,
        ..
    } = made;
    format!(
        "  API            {http}/docs describes it
  agent          {agent_id}
  phone number   {number}
  SIP            {endpoint} (callers send to {sip})
  user name      {username}
  password       {password}",
        number = phone_number.as_str(),
        endpoint = trunk.sip_endpoint,
        username = trunk.auth_username,
        password = trunk.auth_password,
    )
}
