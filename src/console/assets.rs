//! Files of the console that browsers cache, each named by a hash of its content, so that no cached file is stale.

use std::borrow::Cow;
use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

const SCRIPT_TYPE: &str = "text/javascript; charset=utf-8";
const STYLE_TYPE: &str = "text/css; charset=utf-8";

/// Octets of the hash in a name.
const HASH_OCTETS: usize = 8;

/// A file.
#[derive(Debug)]
pub(super) struct Asset {
    name: String,
    media_type: &'static str,
    content: Cow<'static, [u8]>,
}

static STYLE: LazyLock<Asset> =
    LazyLock::new(|| text("console", "css", include_str!("console.css")));
static SCRIPT: LazyLock<Asset> =
    LazyLock::new(|| text("console", "js", include_str!("console.js")));

/// Style sheet of the phone.
pub(super) static PHONE_STYLE: LazyLock<Asset> =
    LazyLock::new(|| text("phone", "css", include_str!("phone.css")));
/// Script of the phone.
pub(super) static PHONE_SCRIPT: LazyLock<Asset> =
    LazyLock::new(|| text("phone", "js", include_str!("phone.js")));
/// Audio of the phone, on the browser's audio thread.
pub(super) static PHONE_AUDIO: LazyLock<Asset> =
    LazyLock::new(|| text("phone-audio", "js", include_str!("phone-audio.js")));
/// Sample that the phone plays without a microphone: µ-law, 8 kHz.
pub(super) static PHONE_SAMPLE: LazyLock<Asset> = LazyLock::new(|| {
    let sample = trunkline_net::media::sample();
    Asset::new("sample", "ulaw", "application/octet-stream", sample.into())
});

/// All files.
static ALL: [&LazyLock<Asset>; 6] = [
    &STYLE,
    &SCRIPT,
    &PHONE_STYLE,
    &PHONE_SCRIPT,
    &PHONE_AUDIO,
    &PHONE_SAMPLE,
];

fn text(stem: &str, extension: &str, content: &'static str) -> Asset {
    let media_type = if extension == "css" {
        STYLE_TYPE
    } else {
        SCRIPT_TYPE
    };
    Asset::new(stem, extension, media_type, content.as_bytes().into())
}

impl Asset {
    fn new(
        stem: &str,
        extension: &str,
        media_type: &'static str,
        content: Cow<'static, [u8]>,
    ) -> Self {
        let hash: String = Sha256::digest(&content)[..HASH_OCTETS]
            .iter()
            .map(|octet| format!("{octet:02x}"))
            .collect();
        Self {
            name: format!("{stem}.{hash}.{extension}"),
            media_type,
            content,
        }
    }

    /// Path of the file.
    pub(super) fn path(&self, base: &str) -> String {
        format!("{base}/dashboard/assets/{}", self.name)
    }
}

/// Path of the style sheet.
pub(super) fn style(base: &str) -> String {
    STYLE.path(base)
}

/// Path of the script.
pub(super) fn script(base: &str) -> String {
    SCRIPT.path(base)
}

/// Returns the file of this name; `None` if there is none.
pub(super) fn found(name: &str) -> Option<Response> {
    let asset = ALL.into_iter().find(|asset| asset.name == name)?;
    let headers = [
        (header::CONTENT_TYPE, asset.media_type),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    Some((headers, &*asset.content).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_are_small() {
        let scripts = ALL
            .into_iter()
            .filter(|asset| asset.media_type == SCRIPT_TYPE);
        let (mut lines, mut octets) = (0, 0);
        for script in scripts {
            lines += script.content.split(|octet| *octet == b'\n').count() - 1;
            octets += script.content.len();
        }
        assert!(
            lines <= 500 && octets < 30_000,
            "{lines} lines, {octets} octets"
        );
    }
}
