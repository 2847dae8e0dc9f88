//! Files of the console that browsers keep: one style sheet and one script, named by a hash of their text, so that they never go stale.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

const STYLE: &str = include_str!("console.css");
const SCRIPT: &str = include_str!("console.js");

/// Octets of the hash in a name.
const HASH_OCTETS: usize = 8;

static STYLE_NAME: LazyLock<String> = LazyLock::new(|| named("console", STYLE, "css"));
static SCRIPT_NAME: LazyLock<String> = LazyLock::new(|| named("console", SCRIPT, "js"));

fn named(stem: &str, text: &str, extension: &str) -> String {
    let hash: String = Sha256::digest(text)[..HASH_OCTETS]
        .iter()
        .map(|octet| format!("{octet:02x}"))
        .collect();
    format!("{stem}.{hash}.{extension}")
}

/// Path of the style sheet.
pub(super) fn style(base: &str) -> String {
    format!("{base}/dashboard/assets/{}", *STYLE_NAME)
}

/// Path of the script.
pub(super) fn script(base: &str) -> String {
    format!("{base}/dashboard/assets/{}", *SCRIPT_NAME)
}

/// Returns the file of this name; `None` if there is none.
pub(super) fn found(name: &str) -> Option<Response> {
    let (text, media_type) = if name == *STYLE_NAME {
        (STYLE, "text/css; charset=utf-8")
    } else if name == *SCRIPT_NAME {
        (SCRIPT, "text/javascript; charset=utf-8")
    } else {
        return None;
    };

    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CACHE_CONTROL, "public, max-age=31536000, immutable"),
    ];
    Some((headers, text).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_small() {
        let lines = SCRIPT.lines().count();
        assert!(lines <= 500 && SCRIPT.len() < 30_000, "{lines} lines");
    }
}
