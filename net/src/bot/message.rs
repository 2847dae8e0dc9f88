//! Messages of a bot, read leniently: the events that both formats share under the same names.

use std::borrow::Cow;

use serde::Deserialize;

/// Message of a bot.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum BotMessage<'m> {
    /// Audio, in base64.
    Media(Cow<'m, str>),
    /// A mark to be returned once all audio before it has been played.
    Mark(Cow<'m, str>),
    /// Discards the audio that hasn't been played.
    Clear,
    /// Keys to be sent to the caller.
    Dtmf(Cow<'m, str>),
    /// An event that has no meaning here.
    Unknown,
}

#[derive(Deserialize)]
struct Envelope<'m> {
    #[serde(borrow)]
    event: Cow<'m, str>,
    #[serde(borrow, default)]
    media: Option<Media<'m>>,
    #[serde(borrow, default)]
    mark: Option<Mark<'m>>,
    #[serde(borrow, default)]
    dtmf: Option<Dtmf<'m>>,
}

#[derive(Deserialize)]
struct Media<'m> {
    #[serde(borrow)]
    payload: Cow<'m, str>,
}

#[derive(Deserialize)]
struct Mark<'m> {
    #[serde(borrow)]
    name: Cow<'m, str>,
}

#[derive(Deserialize)]
struct Dtmf<'m> {
    #[serde(borrow, alias = "digits")]
    digit: Cow<'m, str>,
}

/// Parses a message; `None` if it isn't one. Fields that aren't read may be of any type: some bots send a null `streamSid`.
pub(crate) fn read(text: &[u8]) -> Option<BotMessage<'_>> {
    let envelope: Envelope<'_> = serde_json::from_slice(text).ok()?;
    Some(match &*envelope.event {
        "media" => BotMessage::Media(envelope.media?.payload),
        "mark" => BotMessage::Mark(envelope.mark?.name),
        "clear" => BotMessage::Clear,
        "dtmf" => BotMessage::Dtmf(envelope.dtmf?.digit),
        _ => BotMessage::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_leniently() {
        let media = |payload: &'static str| Some(BotMessage::Media(payload.into()));
        let mark = |name: &'static str| Some(BotMessage::Mark(name.into()));
        let cases = [
            (
                r#"{"event":"media","streamSid":"MZ1","media":{"payload":"//8="}}"#,
                media("//8="),
            ),
            (
                r#"{"event":"media","streamSid":null,"media":{"payload":"\/\/8="}}"#,
                media("//8="),
            ),
            (
                r#"{"media":{"track":7,"payload":""},"event":"media"}"#,
                media(""),
            ),
            (r#"{"event":"media"}"#, None),
            (r#"{"event":"media","media":{"payload":7}}"#, None),
            (
                r#"{"event":"mark","mark":{"name":"a \u00e4"}}"#,
                mark("a ä"),
            ),
            (r#"{"event":"mark","mark":{}}"#, None),
            (
                r#"{"event":"clear","stream_id":"x"}"#,
                Some(BotMessage::Clear),
            ),
            (
                r#"{"event":"dtmf","dtmf":{"digit":"5"}}"#,
                Some(BotMessage::Dtmf("5".into())),
            ),
            (
                r#"{"event":"dtmf","dtmf":{"digits":"5#"}}"#,
                Some(BotMessage::Dtmf("5#".into())),
            ),
            // What isn't understood is counted as junk by the leg.
            (r#"{"event":"coffee"}"#, Some(BotMessage::Unknown)),
            (r#"{"event":7}"#, None),
            ("[]", None),
            ("", None),
            ("{\"event\":\"\u{0}", None),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn audio_is_not_copied() {
        let text = br#"{"event":"media","media":{"payload":"//8="}}"#;
        assert!(matches!(
            read(text),
            Some(BotMessage::Media(Cow::Borrowed(_)))
        ));
    }
}
