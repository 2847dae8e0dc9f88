//! `GET /phone/calls`: a page of stored calls, merged with the calls that are up.
//!
//! A call is listed from memory from its INVITE on, and from the store once its facts are rows. While both have it,
//! memory is more recent, unless the store has seen the call's end.

use std::collections::HashMap;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use trunkline_calls::core::live::LiveCall;
use trunkline_model::record::{Direction, Status};
use trunkline_sip::moment::Moment;
use trunkline_store::{Call, Position};
use uuid::Uuid;

use super::OF_CALLS;
use super::call_export::CallExport;
use super::call_filters::{CallFilters, OLD_NUMBER, OLD_NUMBER_NOTICE};
use super::calls::{CallView, from_memory, kept};
use crate::api::caller::Caller;
use crate::api::export::{self, ExportFormat, ExportRows as _};
use crate::api::feed_page::FeedPaging;
use crate::api::operations::Operations;
use crate::api::page::{Page, Paging};
use crate::api::query::{Query, date_schema};
use crate::api::{Api, ApiError, accept};

/// Note on the list of calls.
const EXPORT: &str = "As `text/csv` and `application/x-ndjson` the answer has every call that is over, or `limit` of them, in the order in which \
                      their ends were recorded. Each line has a `cursor`; the lines after it are those of calls whose ends were recorded later. \
                      None is ever skipped.";

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Calls", OF_CALLS);
    of.get("/phone/calls", list, "listCalls", "Calls, live ones included, newest first; by `Accept`, ended calls as CSV or JSON lines", |op| {
            op.note(EXPORT).query(
                "agent_id",
                json!({"type": "string", "format": "uuid"}),
                "Only calls of this agent.",
            )
            .query(
                "trunk_id",
                json!({"type": "string", "format": "uuid"}),
                "Only calls through this inbound or outbound trunk.",
            )
            .query_of::<Direction>("direction", "Only calls of this direction.")
            .query_of::<Status>("status", "Only calls in this state.")
            .query(
                "phone_number",
                // One blank is refused: an unescaped `+` without a number is decoded to that.
                json!({
                    "type": "string",
                    "minLength": 1,
                    "pattern": r"^([^ \u0000-\u001F\u007F-\u009F]| [^\u0000-\u001F\u007F-\u009F])[^\u0000-\u001F\u007F-\u009F]*$",
                }),
                "Only calls from or to this number, as sent or as E.164.",
            )
            .query(
                "start_date",
                date_schema(),
                "The earliest start; a date without a time is its beginning, UTC.",
            )
            .query(
                "end_date",
                date_schema(),
                "The latest start, inclusive; a date without a time is its end, UTC.",
            )
            .lists::<CallView>()
            .also_as("text/csv")
            .also_as("application/x-ndjson")
        });
}

/// `GET /phone/calls?agent_id&trunk_id&direction&status&phone_number&start_date&end_date&limit&cursor`
pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, ApiError> {
    let notice = query.has(OLD_NUMBER).then_some(OLD_NUMBER_NOTICE);
    let given = CallFilters::read(&mut query);
    if let Some(format) = ExportFormat::wanted(&headers) {
        let paging = FeedPaging::read(&mut query, CallExport::LIST, given);
        query.finish()?;
        let answer = export::answer(CallExport::new(api, caller.org, paging), format);
        return Ok((notice, answer.await?).into_response());
    }

    let paging = Paging::read(&mut query, "calls", given);
    query.finish()?;
    // Memory first: a call that ends in between is then found in the store.
    let live = api.live().of_org(caller.org);

    // True if the filters match only calls that are up, all of which are in memory.
    let only_live = paging.filters.is_of_live_calls();
    // An ended call isn't on a page of live calls, so its row needn't be waited for.
    let shown = live.iter().filter(|live| !(only_live && live.is_over()));
    kept(&api, caller.org, shown).await;

    let filter = paging.filters.for_store();
    let stored = api
        .read_of(caller.org, move |tx| {
            trunkline_store::calls::list(tx, caller.org, &filter, paging.after, paging.limit)
        })
        .await;

    let stored = match stored {
        Ok(stored) => stored,
        // Memory has all calls that such filters match, so the database may be away.
        Err(trunkline_store::Error::Broke(broke))
            if broke.is_away() && paging.filters.is_of_live_calls() =>
        {
            trunkline_store::Page {
                items: Vec::new(),
                next: None,
                total: 0,
                total_is_bounded: false,
            }
        }
        Err(error) => return Err(error.into()),
    };

    let page = merge(stored, live, &paging);
    Ok((notice, [accept::VARIES], page).into_response())
}

/// Place of a call in the list, which is newest first.
fn place(call: &Call) -> (Moment, Uuid) {
    (call.started_at, call.id)
}

/// Merges the live calls into a stored page. `total` counts stored calls, plus calls of this page that aren't stored
/// yet, less those that no longer match.
fn merge(
    stored: trunkline_store::Page<Call>,
    live: Vec<LiveCall>,
    paging: &Paging<CallFilters>,
) -> Page<CallView> {
    let filters = &paging.filters;
    // A live call belongs to this page if it lies between the cursor and the last stored call of the page.
    let end = stored.next.map(|next| (next.at, next.id));
    let in_reach = |call: &Call| {
        paging
            .after
            .is_none_or(|after| place(call) < (after.at, after.id))
            && end.is_none_or(|end| place(call) >= end)
    };

    let mut calls: HashMap<Uuid, Call> = stored
        .items
        .into_iter()
        .map(|call| (call.id, call))
        .collect();

    let mut not_stored = 0;
    let mut no_more = 0;
    for live in live {
        let id = live.started.call;
        match calls.remove(&id) {
            Some(call) if call.ended_at.is_some() => drop(calls.insert(id, call)),

            Some(_) => {
                let call = from_memory(live);
                if filters.matches(&call) {
                    calls.insert(id, call);
                } else {
                    no_more += 1;
                }
            }

            // Not stored yet, or stored in a state that the filters don't match, while its present one does. Either
            // way the store hasn't counted it.
            None => {
                let call = from_memory(live);
                if in_reach(&call) && filters.matches(&call) {
                    not_stored += 1;
                    calls.insert(id, call);
                }
            }
        }
    }

    let mut calls: Vec<Call> = calls
        .into_values()
        .filter(|call| filters.matches(call))
        .collect();
    calls.sort_unstable_by_key(|call| std::cmp::Reverse(place(call)));

    let limit = paging.limit as usize;
    let cut = calls.len() > limit;
    calls.truncate(limit);
    // Live calls may have pushed stored ones off this page: the next page begins with them.
    let last = if cut { calls.last().map(place) } else { end };
    let next = last.map(|(at, id)| paging.next(Position { at, id }));

    Page {
        items: calls.into_iter().map(CallView::from).collect(),
        next,
        total: match stored.total_is_bounded {
            true => stored.total,
            false => (stored.total + not_stored).saturating_sub(no_more),
        },
        total_is_bounded: stored.total_is_bounded,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use trunkline_model::record::{Direction, Started, Status};
    use trunkline_routing::E164;

    use super::*;

    fn stored(id: u128, at: u64, status: Status) -> Call {
        let ended_at = (status != Status::Ringing).then_some(Moment::from_secs(at + 9));
        Call {
            status,
            ended_at,
            ..from_memory(live(id, at))
        }
    }

    fn live(id: u128, at: u64) -> LiveCall {
        let started = Started {
            call: Uuid::from_u128(id),
            org: Uuid::from_u128(1),
            session: Uuid::from_u128(2),
            agent: Some(Uuid::from_u128(3)),
            trunk: Some(Uuid::from_u128(9)),
            direction: Direction::Inbound,
            from: "100".into(),
            to: "+442071838750".into(),
            from_e164: None,
            to_e164: E164::parse("+442071838750").ok(),
            caller_call_id: "x".into(),
            at: Moment::from_secs(at),
            decision: None,
            headers: Vec::new(),
            metadata: None,
            invite_facts: None,
            clock_offset: 0,
        };

        LiveCall {
            started: Arc::new(started),
            status: Status::InProgress,
            contact: None,
            ringing_at: None,
            answered_at: None,
            runtime_call_id: None,
            ended: None,
            unsynced: 0,
            transfer: None,
            held: false,
            hold: trunkline_calls::core::live::HoldStatus::default(),
            attempts: Vec::new(),
            media_key: None,
            media: None,
            has_bot: false,
            wall: trunkline_calls::parts::wall_clock::WallOffset::default(),
        }
    }

    /// Makes a page as the store returns it, with the position of its last item if there is more.
    fn page(items: Vec<Call>, more: bool, total: u64) -> trunkline_store::Page<Call> {
        let next = items.last().filter(|_| more).map(|call| Position {
            at: call.started_at,
            id: call.id,
        });
        trunkline_store::Page {
            items,
            next,
            total,
            total_is_bounded: false,
        }
    }

    fn shown(page: &Page<CallView>) -> Vec<(u128, Status)> {
        page.items
            .iter()
            .map(|call| (call.id.as_u128(), call.status))
            .collect()
    }

    fn paging(filters: CallFilters, after: Option<Position>, limit: u32) -> Paging<CallFilters> {
        Paging {
            list: "calls",
            filters,
            after,
            limit,
        }
    }

    #[test]
    fn live_calls_are_laid_over_a_stored_page() {
        use Status::{Completed, InProgress, Ringing};

        type Case = (
            &'static str,
            trunkline_store::Page<Call>,
            Vec<LiveCall>,
            u32,
            &'static [(u128, Status)],
            Option<u128>,
            u64,
        );

        let cases: [Case; 6] = [
            (
                "nothing live",
                page(vec![stored(5, 50, Completed)], false, 1),
                vec![],
                3,
                &[(5, Completed)],
                None,
                1,
            ),
            (
                "memory is ahead",
                page(vec![stored(5, 50, Ringing)], false, 1),
                vec![live(5, 50)],
                3,
                &[(5, InProgress)],
                None,
                1,
            ),
            (
                "the store saw the end",
                page(vec![stored(5, 50, Completed)], false, 1),
                vec![live(5, 50)],
                3,
                &[(5, Completed)],
                None,
                1,
            ),
            (
                "not stored yet",
                page(vec![stored(5, 50, Completed)], false, 1),
                vec![live(6, 60), live(7, 60)],
                3,
                &[(7, InProgress), (6, InProgress), (5, Completed)],
                None,
                3,
            ),
            (
                "pushed onto the next page",
                page(
                    vec![stored(5, 50, Completed), stored(4, 40, Completed)],
                    true,
                    9,
                ),
                vec![live(6, 60)],
                2,
                &[(6, InProgress), (5, Completed)],
                Some(5),
                10,
            ),
            (
                "beyond this page",
                page(vec![stored(5, 50, Completed)], true, 9),
                vec![live(3, 30)],
                1,
                &[(5, Completed)],
                Some(5),
                9,
            ),
        ];

        for (name, stored, live, limit, items, follows, total) in cases {
            let paging = paging(CallFilters::default(), None, limit);
            let page = merge(stored, live, &paging);
            let next = follows.map(|id: u128| {
                let at = Moment::from_secs(10 * u64::try_from(id).unwrap());
                let id = Uuid::from_u128(id);
                paging.next(Position { at, id })
            });
            assert_eq!(shown(&page), items, "{name}");
            assert_eq!((page.next, page.total), (next, total), "{name}");
        }
    }

    #[test]
    fn a_later_page_leaves_out_what_was_on_an_earlier_one() {
        let after = Position {
            at: Moment::from_secs(50),
            id: Uuid::from_u128(5),
        };
        let page = merge(
            page(vec![], false, 1),
            vec![live(6, 60), live(5, 50), live(4, 50)],
            &paging(CallFilters::default(), Some(after), 3),
        );
        assert_eq!(shown(&page), [(4, Status::InProgress)]);
    }

    #[test]
    fn a_live_call_is_judged_by_what_it_is_now() {
        let ringing = CallFilters {
            status: Some(Status::Ringing),
            ..CallFilters::default()
        };
        let merged = merge(
            page(vec![stored(5, 50, Status::Ringing)], false, 1),
            vec![live(5, 50)],
            &paging(ringing, None, 3),
        );
        assert_eq!((shown(&merged), merged.total), (vec![], 0));
    }

    #[test]
    fn a_call_is_over_before_its_row_says_so() {
        let ended = trunkline_model::record::Ended {
            call: Uuid::from_u128(5),
            org: Uuid::from_u128(1),
            at: Moment::from_secs(59),
            status: Status::Completed,
            sip_code: 200,
            reason: None,
            reason_detail: None,
            hangup_by: trunkline_model::record::HangupBy::Caller,
            cause: Some(16),
        };
        let over = LiveCall {
            ended: Some(Box::new(ended)),
            ..live(5, 50)
        };

        for row in [vec![stored(5, 50, Status::Ringing)], vec![]] {
            let paging = paging(CallFilters::default(), None, 3);
            let count = row.len() as u64;
            let merged = merge(page(row, false, count), vec![over.clone()], &paging);
            assert_eq!(shown(&merged), [(5, Status::Completed)]);
            let call = serde_json::to_value(&merged.items[0]).unwrap();
            assert_eq!(
                (&call["q850_cause"], &call["hangup_by"]),
                (&serde_json::json!(16), &serde_json::json!("caller"))
            );
        }
    }

    #[test]
    fn filters_look_at_every_field() {
        let call = stored(5, 50, Status::Completed);
        let at = |secs| Some(Moment::from_secs(secs));
        let none = CallFilters::default;

        for (name, filters, matches) in [
            ("none", none(), true),
            (
                "agent",
                CallFilters {
                    agent_id: Some(Uuid::from_u128(3)),
                    ..none()
                },
                true,
            ),
            (
                "other agent",
                CallFilters {
                    agent_id: Some(Uuid::from_u128(4)),
                    ..none()
                },
                false,
            ),
            (
                "trunk",
                CallFilters {
                    trunk_id: Some(Uuid::from_u128(9)),
                    ..none()
                },
                true,
            ),
            (
                "other trunk",
                CallFilters {
                    trunk_id: Some(Uuid::from_u128(3)),
                    ..none()
                },
                false,
            ),
            (
                "direction",
                CallFilters {
                    direction: Some(Direction::Outbound),
                    ..none()
                },
                false,
            ),
            (
                "status",
                CallFilters {
                    status: Some(Status::Busy),
                    ..none()
                },
                false,
            ),
            (
                "number as sent",
                CallFilters {
                    number: Some("100".into()),
                    ..none()
                },
                true,
            ),
            (
                "number as E.164",
                CallFilters {
                    number: Some("+442071838750".into()),
                    ..none()
                },
                true,
            ),
            (
                "other number",
                CallFilters {
                    number: Some("+4420".into()),
                    ..none()
                },
                false,
            ),
            (
                "window holds it",
                CallFilters {
                    start_date: at(50),
                    end_date: at(50),
                    ..none()
                },
                true,
            ),
            (
                "started before",
                CallFilters {
                    start_date: at(51),
                    ..none()
                },
                false,
            ),
            (
                "started after",
                CallFilters {
                    end_date: at(49),
                    ..none()
                },
                false,
            ),
        ] {
            assert_eq!(filters.matches(&call), matches, "{name}");
        }
    }
}
