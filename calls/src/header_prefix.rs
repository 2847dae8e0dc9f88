//! Prefix of the context headers, such as `X-PLATFORM`, and the names that it begins.

use std::ops::Deref;
use std::sync::Arc;

/// The operator's prefix. Read as text it is the prefix alone; each call needs the same few names, so they are made once. Clones share them.
#[derive(Clone, Debug)]
pub struct HeaderPrefix(Arc<ContextNames>);

/// Names of the headers that give a call's context to its runtime.
#[derive(Debug)]
pub(crate) struct ContextNames {
    prefix: Box<str>,
    pub(crate) session_id: Box<str>,
    pub(crate) agent_id: Box<str>,
    pub(crate) contact_id: Box<str>,
    pub(crate) session_token: Box<str>,
    pub(crate) krisp_enabled: Box<str>,
}

impl HeaderPrefix {
    pub(crate) fn names(&self) -> &ContextNames {
        &self.0
    }
}

impl From<&str> for HeaderPrefix {
    fn from(prefix: &str) -> Self {
        let name = |end: &str| [prefix, "-", end].concat().into();
        Self(Arc::new(ContextNames {
            session_id: name("SESSION-ID"),
            agent_id: name("AGENT-ID"),
            contact_id: name("CONTACT-ID"),
            session_token: name("SESSION-TOKEN"),
            krisp_enabled: name("KRISP-ENABLED"),
            prefix: prefix.into(),
        }))
    }
}

impl Deref for HeaderPrefix {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.prefix
    }
}
