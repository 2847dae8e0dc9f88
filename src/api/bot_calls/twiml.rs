//! Instruction in a TwiML document: `<Dial>`, `<Refer>` or `<Hangup/>`, exactly one, inside `<Response>`. Attributes are ignored.

/// Instruction in a document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Instruction {
    /// End the call.
    HangUp,
    /// Transfer the caller to this number, URI or name.
    Transfer(String),
}

/// Reason why a document is no instruction.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum NoTwiml {
    /// It isn't the XML of a response with one verb.
    #[error("Twiml must be <Response> with one <Dial>, <Refer> or <Hangup/>")]
    Malformed,
    /// Its verb isn't supported.
    #[error("<{0}> is not supported: use <Dial>, <Refer> or <Hangup/>")]
    Verb(String),
}

/// Longest document in octets; a longer one counts as malformed.
const LONGEST: usize = 4_000;
/// Longest name of an element that an error repeats.
const LONGEST_NAME: usize = 32;

/// Reads a document.
pub(super) fn read(text: &str) -> Result<Instruction, NoTwiml> {
    if text.len() > LONGEST {
        return Err(NoTwiml::Malformed);
    }

    let mut rest = text.trim();
    if let Some(declared) = rest.strip_prefix("<?xml") {
        let (_, behind) = declared.split_once("?>").ok_or(NoTwiml::Malformed)?;
        rest = behind.trim_start();
    }

    let (response, behind) = element(rest).ok_or(NoTwiml::Malformed)?;
    if response.name != "Response" || !behind.trim().is_empty() {
        return Err(NoTwiml::Malformed);
    }

    let (verb, behind) = element(response.content.trim()).ok_or(NoTwiml::Malformed)?;
    if !matches!(verb.name, "Dial" | "Refer" | "Hangup") {
        let name = verb.name.chars().take(LONGEST_NAME).collect();
        return Err(NoTwiml::Verb(name));
    }
    if !behind.trim().is_empty() {
        return Err(NoTwiml::Malformed);
    }
    if verb.name == "Hangup" {
        return Ok(Instruction::HangUp);
    }

    // The destination is the verb's text, or the text of a noun: <Number>, <Sip>.
    let content = verb.content.trim();
    let named = match element(content) {
        Some((noun, behind)) if matches!(noun.name, "Number" | "Sip") => {
            if !behind.trim().is_empty() {
                return Err(NoTwiml::Malformed);
            }
            noun.content.trim()
        }
        Some((noun, _)) => {
            let name = noun.name.chars().take(LONGEST_NAME).collect();
            return Err(NoTwiml::Verb(name));
        }
        None => content,
    };

    if named.is_empty() || named.contains(['<', '>']) {
        return Err(NoTwiml::Malformed);
    }
    unescaped(named).map(Instruction::Transfer)
}

/// An element without its attributes.
struct Element<'t> {
    name: &'t str,
    content: &'t str,
}

/// Reads the element at the beginning of a text; returns it with the text behind it. No supported element contains another one of its name.
fn element(text: &str) -> Option<(Element<'_>, &str)> {
    let inner = text.strip_prefix('<')?;
    let end = inner.find(|char: char| !char.is_ascii_alphanumeric())?;
    let (name, mut rest) = inner.split_at(end);
    if name.is_empty() {
        return None;
    }

    // An attribute's value may contain `>`.
    let mut quote = None;
    let close = rest.find(|char: char| match quote {
        Some(open) if char == open => {
            quote = None;
            false
        }
        Some(_) => false,
        None if char == '"' || char == '\'' => {
            quote = Some(char);
            false
        }
        None => char == '>',
    })?;

    let attributes = &rest[..close];
    rest = &rest[close + 1..];
    if attributes.contains('<') {
        return None;
    }
    if attributes.ends_with('/') {
        return Some((Element { name, content: "" }, rest));
    }

    let ending = format!("</{name}>");
    let (content, behind) = rest.split_once(&ending)?;
    Some((Element { name, content }, behind))
}

/// Replaces the five entities of XML.
fn unescaped(text: &str) -> Result<String, NoTwiml> {
    let mut read = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        read.push_str(before);
        let (entity, behind) = behind.split_once(';').ok_or(NoTwiml::Malformed)?;
        read.push(match entity {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            // A document can't declare others: `element` refuses a DOCTYPE, so no entity expands to more than one
            // character.
            _ => return Err(NoTwiml::Malformed),
        });
        rest = behind;
    }

    read.push_str(rest);
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_verb_is_read() {
        let to = |text: &str| Ok(Instruction::Transfer(text.to_owned()));
        let verb = |name: &str| Err(NoTwiml::Verb(name.to_owned()));
        for (text, expected) in [
            ("<Response><Hangup/></Response>", Ok(Instruction::HangUp)),
            (
                "<Response><Hangup></Hangup></Response>",
                Ok(Instruction::HangUp),
            ),
            (
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response>\n  <Dial>+442071838750</Dial>\n</Response>\n",
                to("+442071838750"),
            ),
            (
                "<Response><Dial callerId=\"a>b\" timeout='3'><Number>+44207</Number></Dial></Response>",
                to("+44207"),
            ),
            (
                "<Response><Dial><Sip>sip:a@b?x=1&amp;y=2</Sip></Dial></Response>",
                to("sip:a@b?x=1&y=2"),
            ),
            (
                "<Response><Refer><Sip>sip:a@b</Sip></Refer></Response>",
                to("sip:a@b"),
            ),
            (
                "<Response><Dial>Sales &amp; more</Dial></Response>",
                to("Sales & more"),
            ),
            ("<Response><Say>Hi</Say></Response>", verb("Say")),
            (
                "<Response><Dial><Client>a</Client></Dial></Response>",
                verb("Client"),
            ),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }

        let long = format!("<Response><Dial>{}</Dial></Response>", "1".repeat(LONGEST));
        for text in [
            "",
            "Hangup",
            "<Hangup/>",
            "<Response></Response>",
            "<Response/>",
            "<Response><Dial></Dial></Response>",
            "<Response><Dial>+44</Dial><Hangup/></Response>",
            "<Response><Hangup/></Response><Response/>",
            "<Response><Dial>+44</Response>",
            "<Response><Dial>a&nbsp;b</Dial></Response>",
            "<Response><Dial><Number>1</Number><Number>2</Number></Dial></Response>",
            "<!DOCTYPE x [<!ENTITY a \"b\">]><Response><Dial>&a;</Dial></Response>",
            &long,
        ] {
            assert_eq!(read(text), Err(NoTwiml::Malformed), "{text}");
        }
    }
}
