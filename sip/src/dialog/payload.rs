//! Payload types of RTP and what they mean: G.711 by its static or a dynamic number, and telephone events (RFC 3551 §6, RFC 4733).

/// A law of G.711, at 8 kHz and with one channel.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Codec {
    /// µ-law.
    Pcmu,
    /// A-law.
    Pcma,
}

impl Codec {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Pcmu => "PCMU",
            Self::Pcma => "PCMA",
        }
    }
}

/// Payload of audio in RTP.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct AudioPayload {
    /// The payload type in RTP headers: the codec's static one, or a dynamic one that an `a=rtpmap` gives it.
    pub number: u8,
    /// The codec.
    pub codec: Codec,
}

impl AudioPayload {
    /// µ-law with its static number (RFC 3551 §6).
    pub const PCMU: Self = Self {
        number: 0,
        codec: Codec::Pcmu,
    };
    /// A-law with its static number (RFC 3551 §6).
    pub const PCMA: Self = Self {
        number: 8,
        codec: Codec::Pcma,
    };

    /// The static payload of this number.
    pub(super) const fn of_static(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::PCMU),
            8 => Some(Self::PCMA),
            _ => None,
        }
    }
}

/// Meaning of a payload type.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Format {
    /// Audio of this codec.
    Audio(Codec),
    /// Telephone events.
    TelephoneEvent,
}

/// Payload types of the packets that a peer may send, by their meaning: those of our SDP and of its own.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct PayloadTypes {
    // A bit for each of the 128 numbers, so that a packet's is looked up without a search.
    pcmu: u128,
    pcma: u128,
    telephone_event: u128,
}

impl PayloadTypes {
    /// Types of this audio and of telephone events.
    pub const fn of(audio: AudioPayload, telephone_event: Option<u8>) -> Self {
        let types = Self {
            pcmu: 0,
            pcma: 0,
            telephone_event: 0,
        };
        let types = types.with(audio.number, Format::Audio(audio.codec));
        match telephone_event {
            Some(number) => types.with(number, Format::TelephoneEvent),
            None => types,
        }
    }

    /// Adds a number, unless it has a meaning.
    #[must_use]
    pub const fn with(mut self, number: u8, format: Format) -> Self {
        if self.format(number).is_some() {
            return self;
        }
        let bit = bit(number);
        match format {
            Format::Audio(Codec::Pcmu) => self.pcmu |= bit,
            Format::Audio(Codec::Pcma) => self.pcma |= bit,
            Format::TelephoneEvent => self.telephone_event |= bit,
        }
        self
    }

    /// Returns the meaning of a packet's payload type; `None` if no packet may have it.
    pub const fn format(&self, number: u8) -> Option<Format> {
        let bit = bit(number);
        if self.pcmu & bit != 0 {
            Some(Format::Audio(Codec::Pcmu))
        } else if self.pcma & bit != 0 {
            Some(Format::Audio(Codec::Pcma))
        } else if self.telephone_event & bit != 0 {
            Some(Format::TelephoneEvent)
        } else {
            None
        }
    }
}

/// Returns the bit of a payload type; 0 for a number beyond seven bits.
const fn bit(number: u8) -> u128 {
    match 1_u128.checked_shl(number as u32) {
        Some(bit) => bit,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_meaning_of_a_number_counts() {
        let types = PayloadTypes::of(AudioPayload::PCMU, Some(101))
            .with(8, Format::Audio(Codec::Pcma))
            .with(127, Format::Audio(Codec::Pcma))
            .with(101, Format::Audio(Codec::Pcmu))
            .with(128, Format::TelephoneEvent);
        for (number, format) in [
            (0, Some(Format::Audio(Codec::Pcmu))),
            (8, Some(Format::Audio(Codec::Pcma))),
            (127, Some(Format::Audio(Codec::Pcma))),
            (101, Some(Format::TelephoneEvent)),
            (13, None),
            (128, None),
            (255, None),
        ] {
            assert_eq!(types.format(number), format, "{number}");
        }
    }
}
