//! Kinds of phone systems by their User-Agent, and their particular behaviour.

use trunkline_sip::wire::{HeaderName, Message};

/// Octets of a User-Agent that are read.
const LONGEST: usize = 128;

/// A kind of phone system, by its `User-Agent`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Pbx {
    /// Asterisk, and what is built upon it without a name of its own.
    Asterisk,
    /// FreePBX.
    FreePbx,
    /// FreeSWITCH and FusionPBX.
    FreeSwitch,
    /// 3CX.
    ThreeCx,
    /// Yeastar.
    Yeastar,
    /// Cisco CUBE and CUCM.
    Cisco,
    /// Grandstream UCM.
    Grandstream,
}

impl Pbx {
    /// Words in a `User-Agent` that identify a kind; products built on another one come before it.
    const WORDS: [(&'static str, Self); 13] = [
        ("fpbx", Self::FreePbx),
        ("freepbx", Self::FreePbx),
        ("yeastar", Self::Yeastar),
        ("grandstream", Self::Grandstream),
        ("ucm6", Self::Grandstream),
        ("3cx", Self::ThreeCx),
        ("freeswitch", Self::FreeSwitch),
        ("fusionpbx", Self::FreeSwitch),
        ("mod_sofia", Self::FreeSwitch),
        ("cisco", Self::Cisco),
        ("cube", Self::Cisco),
        ("asterisk", Self::Asterisk),
        ("digium", Self::Asterisk),
    ];

    /// Returns the kind that a `User-Agent` names.
    pub fn of_user_agent(user_agent: &str) -> Option<Self> {
        Self::of_octets(user_agent.as_bytes())
    }

    /// Phone system named in the `User-Agent` of a caller's message or, in a response, in `Server`.
    pub(crate) fn of_message(message: &Message<'_>) -> Option<Self> {
        let names = [HeaderName::UserAgent, HeaderName::Server];
        let name = names.into_iter().find_map(|name| message.first(name))?;
        Self::of_octets(name.get(..LONGEST).unwrap_or(name))
    }

    fn of_octets(name: &[u8]) -> Option<Self> {
        let holds = |word: &str| {
            let word = word.as_bytes();
            // A cheap check first: most windows differ in their first letter.
            let begins = |window: &[u8]| window[0] | 0x20 == word[0];
            let mut windows = name.windows(word.len());
            windows.any(|window| begins(window) && window.eq_ignore_ascii_case(word))
        };
        let found = Self::WORDS.iter().find(|(word, _)| holds(word));
        found.map(|(_, pbx)| *pbx)
    }

    /// Returns whether it loses the caller when an accepted REFER fails: by then it has taken the caller into its dialplan.
    pub const fn loses_caller(self) -> bool {
        match self {
            Self::Asterisk | Self::FreePbx | Self::FreeSwitch => true,
            Self::ThreeCx | Self::Yeastar | Self::Cisco | Self::Grandstream => false,
        }
    }

    /// Returns whether the caller is lost where a NOTIFY of it reports a failure. FreeSWITCH reports one only with `confirm-blind-transfer`, and has
    /// given the caller back by then; without that it says 200 at once.
    pub(crate) const fn reports_lost_caller(self) -> bool {
        match self {
            Self::Asterisk | Self::FreePbx => true,
            Self::FreeSwitch | Self::ThreeCx | Self::Yeastar | Self::Cisco | Self::Grandstream => {
                false
            }
        }
    }

    /// Returns whether it changes the media of a call from which it has taken the caller: with `direct_media` Asterisk has the agent's audio come
    /// to itself again when the caller goes into the dialplan.
    pub(crate) const fn offers_without_caller(self) -> bool {
        match self {
            Self::Asterisk | Self::FreePbx => true,
            Self::FreeSwitch | Self::ThreeCx | Self::Yeastar | Self::Cisco | Self::Grandstream => {
                false
            }
        }
    }

    /// Returns whether a NOTIFY with this status says that the transfer never began, so that the caller stays where it was. Asterisk has one status
    /// for each cause that prevents the beginning; a failure of its dialplan is 486 or 503.
    pub(crate) const fn never_began(self, status: u16) -> bool {
        match self {
            Self::Asterisk | Self::FreePbx => matches!(status, 400 | 403 | 404 | 500),
            Self::FreeSwitch | Self::ThreeCx | Self::Yeastar | Self::Cisco | Self::Grandstream => {
                false
            }
        }
    }

    /// Returns whether it may report 200 as soon as it has begun to call the destination: FreeSWITCH without `confirm-blind-transfer`, Asterisk with
    /// `refer_blind_progress=no`. With the other setting both report progress first.
    pub(crate) const fn reports_early(self) -> bool {
        match self {
            Self::Asterisk | Self::FreePbx | Self::FreeSwitch => true,
            Self::ThreeCx | Self::Yeastar | Self::Cisco | Self::Grandstream => false,
        }
    }

    /// Returns whether an INVITE refused with this status and Q.850 cause ran through the dialplan and failed there: a phone that declines or is set
    /// to do-not-disturb is 403 with a cause, one that answers nothing is 408 with one. A refusal by the SIP stack itself, as of an address, has no
    /// cause. A number that the trunk's context lacks is 404 without a cause (Asterisk) or with cause 3 (FreeSWITCH): another context may have it.
    pub(crate) const fn has_run_dialplan(self, status: u16, cause: Option<u8>) -> bool {
        match self {
            Self::Asterisk | Self::FreePbx => {
                matches!((status, cause), (503, _) | (403 | 404 | 408, Some(_)))
            }
            Self::FreeSwitch => {
                matches!(
                    (status, cause),
                    (503, _) | (403 | 408, Some(_)) | (404, Some(1))
                )
            }
            Self::ThreeCx | Self::Yeastar | Self::Cisco | Self::Grandstream => false,
        }
    }

    /// Returns whether its 603 with this Q.850 cause says no more than that its dialplan ended without an answer. Asterisk has a status for
    /// most causes, 403 for a call that was declined, and 603 for the others: 0 where `Dial` ran out of time, 16 after a plain `Hangup()`.
    pub(crate) const fn ends_unanswered_with(self, cause: Option<u8>) -> bool {
        match self {
            Self::Asterisk | Self::FreePbx => matches!(cause, None | Some(0 | 16)),
            Self::FreeSwitch | Self::ThreeCx | Self::Yeastar | Self::Cisco | Self::Grandstream => {
                false
            }
        }
    }

    /// Returns whether it looks up the user of a SIP Refer-To in its own dialplan, whatever the host.
    pub const fn ignores_host_of_refer_to(self) -> bool {
        match self {
            Self::Asterisk | Self::FreePbx => true,
            Self::FreeSwitch | Self::ThreeCx | Self::Yeastar | Self::Cisco | Self::Grandstream => {
                false
            }
        }
    }

    /// Name as its maker writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Asterisk => "Asterisk",
            Self::FreePbx => "FreePBX",
            Self::FreeSwitch => "FreeSWITCH",
            Self::ThreeCx => "3CX",
            Self::Yeastar => "Yeastar",
            Self::Cisco => "Cisco",
            Self::Grandstream => "Grandstream",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phone_systems_are_recognised_by_their_user_agent() {
        for (user_agent, pbx) in [
            ("Asterisk PBX 20.5.0", Some(Pbx::Asterisk)),
            ("FPBX-16.0.40(18.9.0)", Some(Pbx::FreePbx)),
            ("FreeSWITCH-mod_sofia/1.10.11", Some(Pbx::FreeSwitch)),
            ("3CXPhoneSystem 18.0.9", Some(Pbx::ThreeCx)),
            ("Yeastar S50", Some(Pbx::Yeastar)),
            ("Cisco-SIPGateway/IOS-17", Some(Pbx::Cisco)),
            ("Grandstream UCM6304", Some(Pbx::Grandstream)),
            ("baresip v3", None),
        ] {
            assert_eq!(Pbx::of_user_agent(user_agent), pbx, "{user_agent}");
        }
    }
}
