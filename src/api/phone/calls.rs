//! `/phone/calls`: what is stored, with the calls that are up now laid over it.
//!
//! A call is listed from memory from its INVITE on, and from the store once its facts are projected; while both know it,
//! memory is ahead unless the store has seen its end.

use std::collections::HashMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_routing::{Decision, E164};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::of_call::OfCall;
use super::transfers::TransferView;
use crate::api::body::Body;
use crate::api::caller::Caller;
use crate::api::page::{Page, Paging};
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::shape::{Choice, id};
use crate::api::time::{self, written};
use crate::api::{Api, ApiError};
use crate::calls::live::LiveCall;
use crate::calls::record::{Direction, HangupBy, Status};
use crate::explain::call::Explanation;
use crate::explain::log_in::{self, FailureView};
use crate::store::{Call, CallFilter, Explained, Kind, Position};

/// The scope that all reading needs.
pub(super) const SCOPE: &str = "calls:read";

/// A call as the API shows it.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CallView {
    id: Uuid,
    session_id: Uuid,
    agent_id: Option<Uuid>,
    contact_id: Option<Uuid>,
    direction: Direction,
    status: Status,
    from_number: String,
    to_number: String,
    from_e164: Option<E164>,
    to_e164: Option<E164>,
    started_at: String,
    ringing_at: Option<String>,
    answered_at: Option<String>,
    ended_at: Option<String>,
    sip_code: Option<u16>,
    reason: Option<String>,
    hangup_by: Option<HangupBy>,
    caller_call_id: String,
    runtime_call_id: Option<String>,
    /// The last one.
    transfer: Option<TransferView>,
    /// The cause by Q.850 that a gateway named.
    q850_cause: Option<u16>,
    /// As it was ordered with.
    metadata: Option<serde_json::Value>,
    /// Whether both sides are held by `hold`; `null` while the call is up on another node, which alone knows.
    held: Option<bool>,
}

impl CallView {
    /// With what this node alone knows of a call that is up.
    pub(super) fn now(api: &Api, call: Call) -> Self {
        let mut view = Self::from(call);
        view.look(api);
        view
    }

    fn look(&mut self, api: &Api) {
        if self.ended_at.is_none() {
            self.held = api.live().is_held(self.id);
        }
    }
}

impl From<Call> for CallView {
    fn from(call: Call) -> Self {
        Self {
            id: call.id,
            session_id: call.session_id,
            agent_id: call.agent_id,
            contact_id: call.contact_id,
            direction: call.direction,
            status: call.status,
            from_number: call.from_number,
            to_number: call.to_number,
            from_e164: call.from_e164,
            to_e164: call.to_e164,
            started_at: written(call.started_at),
            ringing_at: call.ringing_at.map(written),
            answered_at: call.answered_at.map(written),
            ended_at: call.ended_at.map(written),
            sip_code: call.sip_code,
            reason: call.reason,
            hangup_by: call.hangup_by,
            caller_call_id: call.caller_call_id,
            // The built-in echo agent has no leg of its own.
            runtime_call_id: call.runtime_call_id.filter(|id| !id.is_empty()),
            transfer: call.transfer.map(TransferView::from),
            q850_cause: call.q850_cause,
            metadata: call
                .metadata
                .and_then(|json| serde_json::from_str(&json).ok()),
            held: call.ended_at.map(|_| false),
        }
    }
}

/// What a list is narrowed by. The cursor carries it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Filters {
    agent_id: Option<Uuid>,
    direction: Option<Direction>,
    status: Option<Status>,
    number: Option<String>,
    start_date: Option<Moment>,
    end_date: Option<Moment>,
}

/// `GET /phone/calls?agent_id&direction&status&number&start_date&end_date&limit&cursor`
pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    mut query: Query,
) -> Result<Json<Page<CallView>>, ApiError> {
    caller.needs(SCOPE)?;
    let given = Filters::read(&mut query);
    let paging = Paging::read(&mut query, "calls", given);
    query.finish()?;
    // Memory first: a call that ends in between is then found in the store.
    let live = api.live().of_org(caller.org);
    let filter = paging.filters.for_store();
    let calls = api.store().calls();
    let stored = calls
        .list(caller.org, &filter, paging.after, paging.limit)
        .await?;
    let mut page = merge(stored, live, &paging);
    page.items.iter_mut().for_each(|call| call.look(&api));
    Ok(Json(page))
}

/// `GET /phone/calls/{call_id}`
pub(crate) async fn one(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Json<CallView>, ApiError> {
    caller.needs(SCOPE)?;
    let id = named.id("call_id", Kind::Call)?;
    let call = find(&api, caller.org, id).await?;
    query.finish()?;
    Ok(Json(CallView::now(&api, call)))
}

/// `POST /phone/calls/{call_id}/hangup`: ends a call on both sides. 200 with the call once its end is recorded, 202 if that takes
/// longer than a second; 409 if it is over, or up on another node.
pub(crate) async fn hang_up(
    State(api): State<Api>,
    caller: OfCall,
    named: Named,
    body: Body,
) -> Result<(StatusCode, Json<CallView>), ApiError> {
    let id = named.id("call_id", Kind::Call)?;
    let call = find(&api, caller.org, id).await?;
    body.empty()?;
    let was_up = match api.engine() {
        Some(engine) if call.ended_at.is_none() => engine.hang_up(id).await,
        Some(_) | None => Ok(false),
    };
    if !was_up.map_err(|fault| ApiError::Broke(Box::new(fault)))? {
        return Err(not_up(&api, &call));
    }
    for _ in 0..LOOKS {
        let stored = api.store().calls().by_id(caller.org, id).await;
        if let Some(ended) = stored.ok().filter(|call| call.ended_at.is_some()) {
            return Ok((StatusCode::OK, Json(ended.into())));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok((StatusCode::ACCEPTED, Json(CallView::now(&api, call))))
}

/// How often it is looked whether the end of a call that was hung up is recorded.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: u32 = 50;

/// Why a call can't be hung up here.
pub(super) fn not_up(api: &Api, call: &Call) -> ApiError {
    let here = api.live().one(call.org_id, call.id).is_some();
    ApiError::Conflict(if here || call.ended_at.is_some() {
        "The call is over".to_owned()
    } else {
        "The call is not up on this node".to_owned()
    })
}

/// A call as it is now. One that is up is shown even while the store doesn't answer.
pub(crate) async fn find(api: &Api, org: Uuid, id: Uuid) -> Result<Call, ApiError> {
    let live = api.live().one(org, id);
    Ok(match (api.store().calls().by_id(org, id).await, live) {
        (Ok(call), Some(live)) if call.ended_at.is_none() => from_memory(live),
        (Ok(call), _) => call,
        (Err(_), Some(live)) => from_memory(live),
        (Err(error), None) => return Err(error.into()),
    })
}

/// `GET /phone/calls/{call_id}/routing`: the stored decision, how the caller proved who it is, and all of it in sentences.
pub(crate) async fn routing(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Json<Explanation>, ApiError> {
    caller.needs(SCOPE)?;
    let id = named.id("call_id", Kind::Call)?;
    let call = find(&api, caller.org, id).await?;
    query.finish()?;
    Ok(Json(explained(&api, &call).await?))
}

/// Why a call went where it went. While the database is away a call that is up is explained all the same.
pub(crate) async fn explained(api: &Api, call: &Call) -> Result<Explanation, ApiError> {
    let known = match api.live().one(call.org_id, call.id) {
        Some(live) => Explained {
            decision: live.started.decision.as_deref().cloned(),
            asked: live.started.asked.as_deref().cloned(),
        },
        None => api.store().calls().explained(call.org_id, call.id).await?,
    };
    let failures = api.store().calls();
    let failures = failures.log_ins_failed(call.org_id, &call.caller_call_id);
    let failures = failures.await.unwrap_or_default();
    let failures = failures.into_iter().map(|failure| FailureView {
        at: written(failure.at),
        explanation: log_in::sentence(&failure.part),
        part: failure.part,
    });
    Ok(Explanation::new(
        known.decision,
        known.asked.as_ref(),
        call.reason.as_deref(),
        failures.collect(),
    ))
}

/// The decision of a call, from memory while it is up.
pub(super) async fn decision(api: &Api, org: Uuid, id: Uuid) -> Result<Option<Decision>, ApiError> {
    Ok(match api.live().one(org, id) {
        Some(live) => live.started.decision.as_deref().cloned(),
        None => api.store().calls().decision(org, id).await?,
    })
}

impl Filters {
    fn read(query: &mut Query) -> Self {
        let filters = Self {
            agent_id: query.read("agent_id", |text| {
                id(text).ok_or_else(|| "expected an agent's id".to_owned())
            }),
            direction: query.read("direction", |text| DIRECTION.meaning(text)),
            status: query.read("status", |text| STATUS.meaning(text)),
            number: query.read("number", number),
            start_date: query.read("start_date", time::start),
            end_date: query.read("end_date", time::end),
        };
        if filters
            .start_date
            .zip(filters.end_date)
            .is_some_and(|(start, end)| start > end)
        {
            query.refuse("start_date: lies after end_date");
        }
        filters
    }

    fn for_store(&self) -> CallFilter {
        CallFilter {
            agent: self.agent_id,
            direction: self.direction,
            status: self.status,
            number: self.number.clone(),
            from: self.start_date,
            to: self.end_date,
        }
    }

    fn matches(&self, call: &Call) -> bool {
        let is_number = |number: &str| {
            [
                Some(&*call.from_number),
                Some(&*call.to_number),
                call.from_e164.as_ref().map(E164::as_str),
                call.to_e164.as_ref().map(E164::as_str),
            ]
            .contains(&Some(number))
        };
        self.agent_id
            .is_none_or(|agent| call.agent_id == Some(agent))
            && self
                .direction
                .is_none_or(|direction| call.direction == direction)
            && self.status.is_none_or(|status| call.status == status)
            && self.number.as_deref().is_none_or(is_number)
            && self.start_date.is_none_or(|start| call.started_at >= start)
            && self.end_date.is_none_or(|end| call.started_at <= end)
    }
}

/// A number as sent or as E.164. A `+` that a client forgot to escape arrives as a blank.
fn number(text: &str) -> Result<String, String> {
    match text.strip_prefix(' ') {
        Some(digits) if !digits.is_empty() => Ok(format!("+{digits}")),
        None if !text.is_empty() => Ok(text.to_owned()),
        Some(_) | None => Err("must not be empty".to_owned()),
    }
}

const DIRECTION: Choice<Direction> = Choice(&[
    ("inbound", Direction::Inbound),
    ("outbound", Direction::Outbound),
]);
const STATUS: Choice<Status> = Choice(&[
    ("queued", Status::Queued),
    ("ringing", Status::Ringing),
    ("in_progress", Status::InProgress),
    ("completed", Status::Completed),
    ("busy", Status::Busy),
    ("no_answer", Status::NoAnswer),
    ("failed", Status::Failed),
    ("canceled", Status::Canceled),
    ("refused", Status::Refused),
    ("transferred", Status::Transferred),
    ("lost", Status::Lost),
]);

fn place(call: &Call) -> (Moment, Uuid) {
    (call.started_at, call.id)
}

/// Lays the live calls over a stored page. `total` counts what is stored, and what is on this page without being stored yet.
fn merge(
    stored: crate::store::Page<Call>,
    live: Vec<LiveCall>,
    paging: &Paging<Filters>,
) -> Page<CallView> {
    let filters = &paging.filters;
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
    for live in live {
        let id = live.started.call;
        match calls.remove(&id) {
            Some(call) if call.ended_at.is_some() => drop(calls.insert(id, call)),
            Some(_) => drop(calls.insert(id, from_memory(live))),
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
    let last = if cut { calls.last().map(place) } else { end };
    let next = last.map(|(at, id)| paging.next(Position { at, id }));
    Page {
        items: calls.into_iter().map(CallView::from).collect(),
        next,
        total: stored.total + not_stored,
    }
}

/// Memory knows everything about a call that is up.
pub(crate) fn from_memory(live: LiveCall) -> Call {
    let started = live.started;
    Call {
        id: started.call,
        org_id: started.org,
        session_id: started.session,
        agent_id: started.agent,
        contact_id: live.contact,
        direction: started.direction,
        status: live.status,
        from_number: started.from.to_string(),
        to_number: started.to.to_string(),
        from_e164: started.from_e164,
        to_e164: started.to_e164,
        started_at: started.at,
        ringing_at: live.ringing_at,
        answered_at: live.answered_at,
        ended_at: None,
        sip_code: None,
        reason: None,
        hangup_by: None,
        caller_call_id: started.caller_call_id.to_string(),
        runtime_call_id: live.runtime_call_id.map(String::from),
        transfer: live.transfer.as_deref().map(Into::into),
        q850_cause: None,
        metadata: started.metadata.as_deref().map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::calls::record::Started;

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
            asked: None,
        };
        LiveCall {
            started: Arc::new(started),
            status: Status::InProgress,
            contact: None,
            ringing_at: None,
            answered_at: None,
            runtime_call_id: None,
            over: false,
            transfer: None,
            hold: crate::calls::hold::Standing::default(),
        }
    }

    /// A page of the store as it gives it: with the place of its last item if there is more.
    fn page(items: Vec<Call>, more: bool, total: u64) -> crate::store::Page<Call> {
        let next = items.last().filter(|_| more).map(|call| Position {
            at: call.started_at,
            id: call.id,
        });
        crate::store::Page { items, next, total }
    }

    fn shown(page: &Page<CallView>) -> Vec<(u128, Status)> {
        page.items
            .iter()
            .map(|call| (call.id.as_u128(), call.status))
            .collect()
    }

    fn paging(filters: Filters, after: Option<Position>, limit: u32) -> Paging<Filters> {
        Paging {
            list: "calls",
            filters,
            after,
            limit,
        }
    }

    #[test]
    fn words_are_those_of_the_json() {
        let Choice(directions) = DIRECTION;
        assert!(
            directions
                .iter()
                .all(|(word, meaning)| *word == meaning.as_str())
        );
        let Choice(statuses) = STATUS;
        assert!(
            statuses
                .iter()
                .all(|(word, meaning)| *word == meaning.as_str())
        );
        let schema = schemars::schema_for!(Status).to_value();
        let all = schema["oneOf"].as_array().map_or(0, Vec::len);
        assert_eq!(statuses.len(), all, "{schema}");
    }

    #[test]
    fn live_calls_are_laid_over_a_stored_page() {
        use Status::{Completed, InProgress, Ringing};
        type Case = (
            &'static str,
            crate::store::Page<Call>,
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
            let paging = paging(Filters::default(), None, limit);
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
            &paging(Filters::default(), Some(after), 3),
        );
        assert_eq!(shown(&page), [(4, Status::InProgress)]);
    }

    #[test]
    fn a_live_call_is_judged_by_what_it_is_now() {
        let ringing = Filters {
            status: Some(Status::Ringing),
            ..Filters::default()
        };
        let merged = merge(
            page(vec![stored(5, 50, Status::Ringing)], false, 1),
            vec![live(5, 50)],
            &paging(ringing, None, 3),
        );
        assert_eq!(shown(&merged), []);
    }

    #[test]
    fn filters_look_at_every_field() {
        let call = stored(5, 50, Status::Completed);
        let at = |secs| Some(Moment::from_secs(secs));
        let none = Filters::default;
        for (name, filters, matches) in [
            ("none", none(), true),
            (
                "agent",
                Filters {
                    agent_id: Some(Uuid::from_u128(3)),
                    ..none()
                },
                true,
            ),
            (
                "other agent",
                Filters {
                    agent_id: Some(Uuid::from_u128(4)),
                    ..none()
                },
                false,
            ),
            (
                "direction",
                Filters {
                    direction: Some(Direction::Outbound),
                    ..none()
                },
                false,
            ),
            (
                "status",
                Filters {
                    status: Some(Status::Busy),
                    ..none()
                },
                false,
            ),
            (
                "number as sent",
                Filters {
                    number: Some("100".into()),
                    ..none()
                },
                true,
            ),
            (
                "number as E.164",
                Filters {
                    number: Some("+442071838750".into()),
                    ..none()
                },
                true,
            ),
            (
                "other number",
                Filters {
                    number: Some("+4420".into()),
                    ..none()
                },
                false,
            ),
            (
                "window holds it",
                Filters {
                    start_date: at(50),
                    end_date: at(50),
                    ..none()
                },
                true,
            ),
            (
                "started before",
                Filters {
                    start_date: at(51),
                    ..none()
                },
                false,
            ),
            (
                "started after",
                Filters {
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
