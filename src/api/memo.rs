//! Answers that are given again while nothing has been written: over SQLite, whose writers are in this process, so that a read that changes
//! nothing need not wait for the database's thread. What another process writes is seen within a second.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::{Api, ApiError};

/// How long an answer is given again at most.
const FRESH: Duration = Duration::from_millis(500);
/// Octets of all answers together, and of one.
const ROOM: usize = 4 << 20;
const MOST: usize = 64 << 10;
/// What an answer costs beside its octets.
const OVERHEAD: usize = 256;

struct Answer {
    /// The commits that the database had seen before it was read.
    commits: u64,
    at: Moment,
    body: Bytes,
}

#[derive(Default)]
struct Answers {
    by_question: HashMap<(Uuid, Uri), Answer>,
    size: usize,
}

/// The answers.
#[derive(Default)]
pub(super) struct Memo(Mutex<Answers>);

impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memo").finish_non_exhaustive()
    }
}

impl Memo {
    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, question: &(Uuid, Uri), commits: u64, now: Moment) -> Option<Bytes> {
        let answers = self.answers();
        let answer = answers.by_question.get(question)?;
        let is_good = answer.commits == commits && now.since(answer.at) < FRESH;
        is_good.then(|| answer.body.clone())
    }

    fn keep(&self, question: (Uuid, Uri), answer: Answer) {
        let asked = question.1.path().len() + question.1.query().map_or(0, str::len);
        let size_with = |body: &Bytes| asked + body.len() + OVERHEAD;
        let size = size_with(&answer.body);
        if size > MOST {
            return;
        }
        let mut answers = self.answers();
        if answers.size + size > ROOM {
            *answers = Answers::default();
        }
        answers.size += size;
        if let Some(before) = answers.by_question.insert(question, answer) {
            answers.size -= size_with(&before.body);
        }
    }
}

impl Api {
    /// What an org is answered to this address: as it was a moment ago if nothing has been written since, or as `read` finds it.
    ///
    /// # Errors
    /// Those of `read`, which are not kept.
    pub(super) async fn answer<T: Serialize>(
        &self,
        org: Uuid,
        uri: Uri,
        read: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<Response, ApiError> {
        // Before the read: what is committed while it goes on makes its answer old.
        let commits = self.store().commits();
        let now = self.now();
        let question = (org, uri);
        if let Some(commits) = commits
            && let Some(body) = self.0.memo.find(&question, commits, now)
        {
            return Ok(json(body));
        }
        let view = read.await?;
        let body = serde_json::to_vec(&view).map_err(|fault| ApiError::Broke(fault.into()))?;
        let body = Bytes::from(body);
        if let Some(commits) = commits {
            let answer = Answer {
                commits,
                at: now,
                body: body.clone(),
            };
            self.0.memo.keep(question, answer);
        }
        Ok(json(body))
    }
}

fn json(body: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(commits: u64, second: u64, octets: usize) -> Answer {
        Answer {
            commits,
            at: Moment::from_secs(second),
            body: vec![b'x'; octets].into(),
        }
    }

    #[test]
    fn an_answer_is_good_until_something_is_written_and_for_a_moment() {
        let memo = Memo::default();
        let org = Uuid::from_u128(1);
        let question = || (org, Uri::from_static("/phone/1"));
        memo.keep(question(), answer(7, 10, 5));
        let at = Moment::from_secs;
        assert_eq!(
            memo.find(&question(), 7, at(10)).map(|body| body.len()),
            Some(5)
        );
        assert_eq!(memo.find(&question(), 8, at(10)), None);
        assert_eq!(memo.find(&question(), 7, at(11)), None);
        let foreign = (Uuid::from_u128(2), question().1);
        assert_eq!(memo.find(&foreign, 7, at(10)), None);
        let other = (org, Uri::from_static("/phone/1?a"));
        assert_eq!(memo.find(&other, 7, at(10)), None);
    }

    #[test]
    fn its_room_is_bounded() {
        let memo = Memo::default();
        let question = |number: u32| {
            let uri = format!("/phone/{number}").parse().unwrap();
            (Uuid::from_u128(1), uri)
        };
        for number in 0..1_000 {
            memo.keep(question(number), answer(1, 1, 60_000));
            memo.keep(question(number), answer(1, 1, 50_000));
            assert!(memo.answers().size <= ROOM);
        }
        let kept = memo.answers();
        let sizes = kept
            .by_question
            .iter()
            .map(|((_, uri), answer)| uri.path().len() + answer.body.len() + OVERHEAD);
        assert_eq!(sizes.sum::<usize>(), kept.size);
        drop(kept);
        memo.keep(question(5_000), answer(1, 1, MOST));
        assert_eq!(memo.find(&question(5_000), 1, Moment::from_secs(1)), None);
    }
}
