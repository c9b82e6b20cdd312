//! HTTP handlers of the console. GET handlers show a page; POST handlers perform an action and redirect to a page with
//! the outcome.

use std::time::Duration;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use platform::{settings::Setting as _, stream::Stream};
use serde_json::{Value, json};
use time::{Date, OffsetDateTime, macros::format_description};
use url::form_urlencoded::byte_serialize;
use web::ids::{EndpointId, MatchId, QuestionId, RuleSetId, ServerKeyId, TournamentId, UserId};

use super::{
    extract::{
        Acting, Fields, PageError, PathId, Posted, Query,
        authority::{Moderator, Operator, Viewer},
    },
    pages::{self, Page, matches::ListFilter, overview::Overview, queues::Queues, reports::Context},
    rules::Role,
    service::{MatchFilter, PAGE, ReportFilter, ReportState},
    state::ConsoleState,
};
use crate::{
    catalogue::{
        fixtures::{
            document::{QuestionEntry, QuestionKind},
            service::{Correction, Seen},
        },
        matches::rules::Status,
    },
    chat::{
        removals::service::MessageRange,
        reports::service::{Ending, OthersClaim, Scope},
        rooms::RoomAddress,
    },
    delivery::webhooks::service::Dead,
    game::questions::decisions::{Decision, DecisionError, QuestionDetails, Resolution},
    identity::{
        accounts::restrictions::Restriction,
        avatars::Size,
        operators::service::ActionFilter,
        phone::Phone,
        server_keys::{
            scopes::Scope as KeyScope,
            service::{IssuedKey, KeyRequest},
        },
    },
};

type PageResult = Result<Response, PageError>;

/// Number of dead letters on a page. Each takes one request to NATS.
const LETTERS: usize = 25;
/// Number of set-aside chat events on a page.
const ASIDE: i64 = 20;

pub(super) async fn get_style() -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("max-age=60")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (headers, include_str!("style.css")).into_response()
}

/// Redirects after an action: reloading the page must not repeat it.
fn redirect_with_notice(to: &str, notice: &'static str) -> Response {
    redirect(&format!("{to}?notice={notice}"))
}

fn redirect(to: &str) -> Response {
    let to = HeaderValue::try_from(to).unwrap_or(HeaderValue::from_static("/console"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, to), (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))])
        .into_response()
}

/// Logs an unavailable part of a page and returns `None`. The page still shows the other parts.
fn or_unavailable<T, E: std::fmt::Display>(found: Result<T, E>, part: &str) -> Option<T> {
    found.inspect_err(|error| tracing::warn!(%error, part, "part of a console page is unavailable")).ok()
}

pub(super) async fn show_overview(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    Query(query): Query,
) -> PageResult {
    let has_chat = state.has_chat;
    let sync =
        async { if has_chat { or_unavailable(state.membership_sync.status().await, "membership sync") } else { None } };
    let nats = async {
        // Without a connection, each request would wait for its timeout.
        if !state.streams.is_connected() {
            return (None, None);
        }
        (
            or_unavailable(state.streams.queues().await, "queues"),
            or_unavailable(state.streams.held(Stream::Dead).await, "dead letters"),
        )
    };
    let database = async {
        // Run the queries one after another: a page must use only one connection of the pool at a time.
        let waiting = or_unavailable(state.console.waiting().await, "outbox");
        let progress = or_unavailable(state.scores.in_progress().await, "scores");
        let feeds = or_unavailable(state.feeds.status().await, "feeds");
        let closures = or_unavailable(state.codes.closures().await, "closures").map(|closures| closures.len());
        (waiting, progress, feeds, closures, sync.await)
    };
    let (parts, (queues, dead), (waiting, progress, feeds, closures, sync)) =
        tokio::join!(state.checks.recent(), nats, database);
    let is_live = query.get("live").is_some();
    let overview = Overview {
        now: state.clock.now(),
        parts,
        waiting,
        queues,
        dead,
        progress,
        feeds,
        sync,
        closures,
        listeners: state.live.listeners(),
        has_chat,
    };
    let page = Page { refresh: is_live.then_some(15), ..Page::new(&viewer, "/console", "Overview") };
    Ok(page.show(&overview.show(is_live)))
}

pub(super) async fn list_matches(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    Query(query): Query,
) -> PageResult {
    let has_day = query.is_present("day");
    let wanted = ListFilter {
        tournament: query.parsed("tournament"),
        // Defaults to today. An empty day selects all days.
        day: if has_day { query.get("day").and_then(day) } else { Some(state.clock.now().date()) },
        page: page_of(&query),
    };
    let midnight = |day: Date| day.midnight().assume_utc();
    let filter = MatchFilter {
        tournament: wanted.tournament,
        from: wanted.day.map(midnight),
        until: wanted.day.and_then(Date::next_day).map(midnight),
        offset: wanted.page.saturating_mul(PAGE),
    };
    let (matches, tournaments) = state.console.matches(&filter).await?;
    let body = pages::matches::list(&matches, &tournaments, &wanted);
    Ok(Page::new(&viewer, "/console/matches", "Matches").show(&body))
}

fn day(text: &str) -> Option<Date> {
    Date::parse(text, format_description!("[year]-[month]-[day]")).ok()
}

fn page_of(query: &Fields) -> i64 {
    query.parsed::<i64>("page").unwrap_or_default().clamp(0, 10_000)
}

pub(super) async fn show_match(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    PathId(event): PathId<MatchId>,
    Query(query): Query,
) -> PageResult {
    let found = state.console.find_match(event).await?.ok_or(PageError::NotFound("match"))?;
    let recorded = recorded_of(&state, format!("event:{event}")).await?;
    let title = format!("{} – {}", found.row.home, found.row.away);
    let is_scoring = found.row.is_scoring();
    let (notice, is_refreshing) = match query.get("notice") {
        Some("corrected") if is_scoring => (Some("corrected"), true),
        Some("corrected") => (Some("corrected_and_scored"), false),
        notice => (notice, false),
    };
    let body = pages::matches::show(&viewer, &found, &recorded, is_refreshing, state.clock.now());
    let page = Page { refresh: is_refreshing.then_some(3), ..Page::new(&viewer, "/console/matches", &title) };
    Ok(page.notice(notice).show(&body))
}

pub(super) async fn list_rule_sets(State(state): State<ConsoleState>, viewer: Acting<Viewer>) -> PageResult {
    let body = pages::rule_sets::list(&state.console.rule_sets().await?);
    Ok(Page::new(&viewer, "/console/rule-sets", "Rule sets").show(&body))
}

pub(super) async fn show_rule_set(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    PathId(id): PathId<RuleSetId>,
    Query(query): Query,
) -> PageResult {
    let tournament = query.parsed("tournament");
    let found = state.console.find_rule_set(id, tournament).await?;
    let (view, tournaments) = found.ok_or(PageError::NotFound("rule set"))?;
    let body = pages::rule_sets::show(&view, &tournaments, tournament);
    Ok(Page::new(&viewer, "/console/rule-sets", &view.rule_set.name).show(&body))
}

pub(super) async fn list_questions(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    Query(query): Query,
) -> PageResult {
    let (page, most) = (page_of(&query), pages::questions::ON_A_PAGE);
    let questions = state.questions.summaries(page.saturating_mul(most), most).await?;
    let body = pages::questions::list(&viewer, &questions, page, state.clock.now());
    Ok(Page::new(&viewer, "/console/questions", "Questions").notice(query.get("notice")).show(&body))
}

pub(super) async fn new_question(State(state): State<ConsoleState>, viewer: Acting<Operator>) -> PageResult {
    let body = pages::questions::new(&viewer, &state.console.tournaments().await?);
    Ok(Page::new(&viewer, "/console/questions", "New question").show(&body))
}

/// Reads a question from a form, as an entry of a fixture document.
fn question(fields: &Fields) -> Result<QuestionEntry, PageError> {
    let text = |name: &str| fields.get(name).map_or(Value::Null, Value::from);
    let number =
        |name: &str| fields.get(name).map_or(Value::Null, |text| text.parse::<i64>().map_or(json!(text), Value::from));
    // Browsers send the time without seconds and zone.
    let time = |name: &str| fields.get(name).map_or(Value::Null, |text| json!(format!("{text}:00Z")));
    let kind = fields.get("kind").unwrap_or_default();
    let mut entry = json!({
        "key": text("key"), "text": text("text"), "kind": kind, "points": number("points"), "match": text("match"),
        "round": number("round"), "opens_at": time("opens_at"), "locks_at": time("locks_at"), "pick": number("pick"),
        "scoring": text("scoring"),
    });
    if let Some(lines) = fields.get("options") {
        let option = |line: &str| {
            let (key, label) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), line.trim()));
            json!({"key": key, "label": label.trim()})
        };
        entry["options"] = lines.lines().filter(|line| !line.trim().is_empty()).map(option).collect();
    }
    QuestionEntry::read(&entry).map_err(|faults| DecisionError::Invalid(faults).into())
}

pub(super) async fn add_question(State(state): State<ConsoleState>, posted: Posted<Operator>) -> PageResult {
    let (operator, fields) = (posted.operator()?, posted.fields());
    let tournament: Option<TournamentId> = fields.parsed("tournament");
    let tournament = tournament.ok_or_else(|| PageError::Invalid("Choose a tournament.".to_owned()))?;
    let id = state.questions.add(&operator, tournament, &question(fields)?).await?;
    Ok(redirect_with_notice(&format!("/console/questions/{id}"), "question_added"))
}

pub(super) async fn show_question(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    PathId(id): PathId<QuestionId>,
    Query(query): Query,
) -> PageResult {
    let found = state.questions.details(id).await?.ok_or(PageError::NotFound("question"))?;
    let recorded = recorded_of(&state, format!("question:{id}")).await?;
    let body = pages::questions::show(&viewer, &found, &recorded, state.clock.now());
    Ok(Page::new(&viewer, "/console/questions", "Question").notice(query.get("notice")).show(&body))
}

/// Reads the right answers from a form.
fn right_answers(found: &QuestionDetails, fields: &Fields) -> Option<Resolution> {
    let is_checked = |name: &str| fields.is_present(&format!("right_{name}"));
    Some(match found.shape.kind {
        QuestionKind::Number => Resolution::Number(fields.parsed("right")?),
        QuestionKind::Team => {
            let ids = found.teams.iter().map(|(id, _)| *id).filter(|id| is_checked(&id.to_string()));
            Resolution::Teams(ids.collect())
        }
        QuestionKind::Choice | QuestionKind::SeveralOf => {
            let keys = found.shape.options.iter().map(|option| option.key.clone()).filter(|key| is_checked(key));
            Resolution::Keys(keys.collect())
        }
    })
}

pub(super) async fn decide_question(
    State(state): State<ConsoleState>,
    PathId(id): PathId<QuestionId>,
    posted: Posted<Operator>,
) -> PageResult {
    let (operator, fields) = (posted.operator()?, posted.fields());
    let found = state.questions.details(id).await?.ok_or(PageError::NotFound("question"))?;
    let (decision, notice) = match fields.get("action") {
        Some("resolve") => {
            let right = right_answers(&found, fields).ok_or(DecisionError::NotAllowed)?;
            (Decision::Resolve(right), "question_resolved")
        }
        Some("take_back") => (Decision::TakeBack, "question_changed"),
        Some("void") => (Decision::Void, "question_changed"),
        _ => return Err(PageError::Invalid("Choose an action.".to_owned())),
    };
    let seen = fields.parsed("seen").unwrap_or(-1);
    state.questions.decide(&operator, id, seen, &decision).await?;
    Ok(redirect_with_notice(&format!("/console/questions/{id}"), notice))
}

async fn recorded_of(
    state: &ConsoleState,
    target: String,
) -> Result<Vec<crate::identity::operators::service::Recorded>, PageError> {
    let filter = ActionFilter { target: Some(target), ..ActionFilter::default() };
    Ok(state.operators.recorded(&filter, 20).await?)
}

/// Reads the requested status, score and team that advanced from a form.
fn correction(fields: &Fields) -> Result<Correction, PageError> {
    let invalid = |text: &str| PageError::Invalid(text.to_owned());
    let status: Status = fields.parsed("status").ok_or_else(|| invalid("Choose a match status."))?;
    let goals = |name| match fields.get(name) {
        None => Ok(None),
        Some(text) => text.parse::<i32>().map(Some).map_err(|_| invalid("Goals must be whole numbers from 0 to 999.")),
    };
    let scores = match (goals("home")?, goals("away")?) {
        (Some(home), Some(away)) => Some((home, away)),
        (None, None) => None,
        _ => return Err(invalid("Enter both scores or neither.")),
    };
    let advanced = match fields.get("advanced") {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| invalid("Choose which team advanced."))?),
    };
    Correction::new(status, scores, advanced).map_err(|text| PageError::Invalid(format!("Invalid correction: {text}.")))
}

pub(super) async fn preview_correction(
    State(state): State<ConsoleState>,
    viewer: Acting<Operator>,
    PathId(event): PathId<MatchId>,
    Query(query): Query,
) -> PageResult {
    let wanted = correction(&query)?;
    let found = state.console.find_match(event).await?.ok_or(PageError::NotFound("match"))?;
    let (row, wanted_state) = (&found.row, (wanted.status(), wanted.scores(), wanted.advanced()));
    if (row.status, row.scores(), row.advanced()) == wanted_state {
        return Err(PageError::Conflict("The match already has this status and result.".to_owned()));
    }
    let preview = state.console.preview(event, wanted).await?.ok_or(PageError::NotFound("match"))?;
    let body = pages::matches::preview(&viewer, &found, wanted, &preview);
    Ok(Page::new(&viewer, "/console/matches", "Preview correction").show(&body))
}

pub(super) async fn correct_match(
    State(state): State<ConsoleState>,
    PathId(event): PathId<MatchId>,
    posted: Posted<Operator>,
) -> PageResult {
    let (operator, wanted) = (posted.operator()?, correction(posted.fields())?);
    let seen = Seen::said(posted.fields().get("seen").unwrap_or_default());
    state.fixtures.correct(&operator, event, &seen, wanted).await?;
    Ok(redirect_with_notice(&format!("/console/matches/{event}"), "corrected"))
}

pub(super) async fn list_users(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    Query(query): Query,
) -> PageResult {
    let text = query.get("q").filter(|text| text.len() <= 100);
    let users = match text {
        Some(text) => state.console.search_users(text).await?,
        None => state.console.newest_users(query.parsed("below")).await?,
    };
    let body = pages::users::list(&viewer, &users, text, state.clock.now());
    Ok(Page::new(&viewer, "/console/users", "Users").show(&body))
}

/// Uses POST to keep phone numbers out of URLs, which browsers and proxies store.
pub(super) async fn search_users(State(state): State<ConsoleState>, posted: Posted<Viewer>) -> PageResult {
    let text = posted.fields().get("q").unwrap_or_default();
    if !text.starts_with('+') {
        let text: String = byte_serialize(text.as_bytes()).collect();
        return Ok(redirect(&format!("/console/users?q={text}")));
    }
    let phone = Phone::parse(text)
        .ok_or_else(|| PageError::Invalid("Enter a full phone number with its country code.".to_owned()))?;
    let user = state.console.user_of_phone(&phone).await?.ok_or(PageError::NotFound("user"))?;
    Ok(redirect(&format!("/console/users/{user}")))
}

pub(super) async fn show_user(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    PathId(user): PathId<UserId>,
    Query(query): Query,
) -> PageResult {
    let server = state.server_name.as_deref();
    let chat_name = |username: &str| server.map(|server| format!("@{username}:{server}"));
    let found = state.console.find_user(user, chat_name).await?.ok_or(PageError::NotFound("user"))?;
    let recorded = recorded_of(&state, format!("user:{user}")).await?;
    let body = pages::users::show(&viewer, &found, &recorded, state.clock.now());
    Ok(Page::new(&viewer, "/console/users", &found.row.username).notice(query.get("notice")).show(&body))
}

pub(super) async fn get_avatar(
    State(state): State<ConsoleState>,
    PathId(user): PathId<UserId>,
    _: Acting<Viewer>,
) -> PageResult {
    let image = state.avatars.image_of(user, Size::Large).await?.ok_or(PageError::NotFound("avatar"))?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("image/jpeg")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    Ok((headers, image).into_response())
}

pub(super) async fn remove_avatar(
    State(state): State<ConsoleState>,
    PathId(user): PathId<UserId>,
    posted: Posted<Moderator>,
) -> PageResult {
    state.avatars.remove_by_operator(user, &posted.operator()?).await?;
    Ok(redirect_with_notice(&format!("/console/users/{user}"), "avatar_removed"))
}

fn restriction(fields: &Fields) -> Option<Restriction> {
    let all = [Restriction::Ban, Restriction::Unban, Restriction::Mute, Restriction::Unmute];
    all.into_iter().find(|restriction| Some(restriction.name()) == fields.get("action"))
}

pub(super) async fn restrict_user(
    State(state): State<ConsoleState>,
    PathId(user): PathId<UserId>,
    posted: Posted<Moderator>,
) -> PageResult {
    let operator = posted.operator()?;
    let restriction = restriction(posted.fields());
    let restriction = restriction.ok_or_else(|| PageError::Invalid("Choose an action.".to_owned()))?;
    let length = match posted.fields().get("for").filter(|text| !text.is_empty()) {
        Some(text) => Some(Duration::parse(text).ok_or_else(|| PageError::Invalid("Choose a duration.".to_owned()))?),
        None => None,
    };
    state.moderation.restrict_for(user, restriction, length, &operator).await?;
    let back = match posted.fields().parsed::<i64>("report") {
        Some(report) => format!("/console/reports/{report}"),
        None => format!("/console/users/{user}"),
    };
    Ok(redirect_with_notice(&back, restriction.name()))
}

pub(super) async fn list_reports(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    Query(query): Query,
) -> PageResult {
    let midnight = |day: Date| day.midnight().assume_utc();
    let filter = ReportFilter {
        state: match query.get("state") {
            Some("closed") => ReportState::Closed,
            Some("mine") => ReportState::ClaimedBy(viewer.name().to_owned()),
            _ => ReportState::Open,
        },
        text: query.get("q").filter(|text| text.len() <= 100).map(str::to_owned),
        from: query.get("from").and_then(day).map(midnight),
        until: query.get("until").and_then(day).and_then(Date::next_day).map(midnight),
        page: page_of(&query),
    };
    let server = state.server_name.as_deref().unwrap_or_default();
    let reports = state.console.reports(server, &filter).await?;
    let figures = or_unavailable(state.reports.figures().await, "figures of reports");
    let body = pages::reports::list(&viewer, &reports, figures.as_ref(), &filter, state.clock.now());
    Ok(Page::new(&viewer, "/console/reports", "Reports").notice(query.get("notice")).show(&body))
}

pub(super) async fn show_report(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    PathId(id): PathId<i64>,
    Query(query): Query,
) -> PageResult {
    let server = state.server_name.as_deref().unwrap_or_default();
    let found = state.console.find_report(server, id).await?.ok_or(PageError::NotFound("report"))?;
    let recorded = recorded_of(&state, format!("report:{id}")).await?;
    let context = match &found.row.room_id {
        _ if !viewer.may(Role::Moderator) => Context::NotAllowed,
        Some(room) => match state.reports.context(room, &found.row.event_id).await {
            Ok(messages) => Context::Loaded(messages),
            Err(_) => Context::Unavailable,
        },
        None => Context::Unavailable,
    };
    let body = pages::reports::show(&viewer, &found, &context, &recorded, state.clock.now());
    let title = format!("Report {id}");
    Ok(Page::new(&viewer, "/console/reports", &title).notice(query.get("notice")).show(&body))
}

/// Handling of another operator's claim, from a form.
fn others_claim(fields: &Fields) -> OthersClaim {
    if fields.get("take_over").is_some() { OthersClaim::TakeOver } else { OthersClaim::Respect }
}

pub(super) async fn claim_report(
    State(state): State<ConsoleState>,
    PathId(id): PathId<i64>,
    posted: Posted<Moderator>,
) -> PageResult {
    state.reports.claim(id, &posted.operator_without_reason(), others_claim(posted.fields())).await?;
    Ok(redirect_with_notice(&format!("/console/reports/{id}"), "claimed"))
}

pub(super) async fn release_report(
    State(state): State<ConsoleState>,
    PathId(id): PathId<i64>,
    posted: Posted<Moderator>,
) -> PageResult {
    state.reports.release(id, &posted.operator_without_reason()).await?;
    Ok(redirect_with_notice("/console/reports", "released"))
}

pub(super) async fn close_report(
    State(state): State<ConsoleState>,
    PathId(id): PathId<i64>,
    posted: Posted<Moderator>,
) -> PageResult {
    let (operator, fields) = (posted.operator()?, posted.fields());
    let resolution =
        fields.parsed("resolution").ok_or_else(|| PageError::Invalid("Choose a resolution.".to_owned()))?;
    let answer = match fields.get("answer") {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| {
            PageError::Invalid("The answer to the reporter must have at most 1000 characters.".to_owned())
        })?),
    };
    let scope = if fields.get("all").is_some() { Scope::SameMessage } else { Scope::One };
    let ending = Ending { resolution, answer, scope, others_claim: OthersClaim::Respect };
    state.reports.close(id, &operator, &ending).await?;
    let notice = if scope == Scope::SameMessage { "closed_all" } else { "closed" };
    Ok(redirect_with_notice("/console/reports", notice))
}

/// Window in which all messages of a sender are removed, before now.
const REMOVED_SINCE: time::Duration = time::Duration::hours(24);

pub(super) async fn remove_reported_message(
    State(state): State<ConsoleState>,
    PathId(id): PathId<i64>,
    posted: Posted<Moderator>,
) -> PageResult {
    let operator = posted.operator()?;
    let server = state.server_name.as_deref().unwrap_or_default();
    let found = state.console.find_report_to_act(server, id).await?.ok_or(PageError::NotFound("report"))?;
    let room: Option<RoomAddress> = found.row.room_id.as_deref().and_then(|room| room.parse().ok());
    let room = room.ok_or(PageError::NotFound("room"))?;
    state.removals.remove_by_operator(&room, &found.row.event_id, &operator).await?;
    let back = format!("/console/reports/{id}");
    let (Some(sender), Some(_)) = (found.sender, posted.fields().get("all")) else {
        return Ok(redirect_with_notice(&back, "removed"));
    };
    let range = MessageRange { sender: sender.id, since: Some(state.clock.now() - REMOVED_SINCE), until: None };
    state.removals.remove_all(&room, range, &operator).await?;
    Ok(redirect_with_notice(&back, "removed_all"))
}

/// Number of held messages on the page.
const HELD: i64 = 50;

pub(super) async fn list_held_messages(
    State(state): State<ConsoleState>,
    viewer: Acting<Moderator>,
    Query(query): Query,
) -> PageResult {
    let body = pages::held::list(&viewer, &state.filters.held(0, HELD).await?, state.clock.now());
    Ok(Page::new(&viewer, "/console/held", "Held messages").notice(query.get("notice")).show(&body))
}

pub(super) async fn release_held_message(
    State(state): State<ConsoleState>,
    PathId(id): PathId<i64>,
    posted: Posted<Moderator>,
) -> PageResult {
    state.filters.release(id, &posted.operator_without_reason()).await?;
    Ok(redirect_with_notice("/console/held", "held_released"))
}

pub(super) async fn reject_held_message(
    State(state): State<ConsoleState>,
    PathId(id): PathId<i64>,
    posted: Posted<Moderator>,
) -> PageResult {
    state.filters.reject(id, &posted.operator_without_reason()).await?;
    Ok(redirect_with_notice("/console/held", "held_rejected"))
}

pub(super) async fn show_sms(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    Query(query): Query,
) -> PageResult {
    let (sms, closures) = (state.console.sms().await?, state.codes.closures().await?);
    let body = pages::sms::show(&viewer, &sms, &closures, state.clock.now());
    Ok(Page::new(&viewer, "/console/sms", "SMS").notice(query.get("notice")).show(&body))
}

pub(super) async fn open_sms(State(state): State<ConsoleState>, posted: Posted<Operator>) -> PageResult {
    let operator = posted.operator()?;
    if !state.codes.open(posted.fields().get("prefix").unwrap_or_default(), &operator).await? {
        return Err(PageError::Conflict("This destination is no longer limited.".to_owned()));
    }
    Ok(redirect_with_notice("/console/sms", "open"))
}

pub(super) async fn show_queues(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    Query(query): Query,
) -> PageResult {
    let from = query.parsed("from").unwrap_or(1);
    let nats = async {
        if !state.streams.is_connected() {
            return None;
        }
        let queues = or_unavailable(state.streams.queues().await, "queues")?;
        let letters = or_unavailable(state.streams.dead_from(">", from, LETTERS + 1).await, "dead letters")?;
        Some((queues, letters))
    };
    let (outbox, found) = tokio::join!(state.console.outbox(), nats);
    let sync = if state.has_chat {
        Some((state.membership_sync.status().await?, state.membership_sync.set_aside(ASIDE).await?))
    } else {
        None
    };
    let (queues, mut letters) = found.unzip();
    let letters = letters.as_mut().map(std::mem::take).unwrap_or_default();
    let more_from = letters.get(LETTERS).map(|letter| letter.sequence);
    let letters = letters.into_iter().take(LETTERS).collect();
    let queues = Queues { now: state.clock.now(), outbox: outbox?, consumers: queues, letters, more_from, sync };
    Ok(Page::new(&viewer, "/console/queues", "Queues").notice(query.get("notice")).show(&queues.show(&viewer)))
}

pub(super) async fn replay_letters(State(state): State<ConsoleState>, posted: Posted<Operator>) -> PageResult {
    let (operator, fields) = (posted.operator()?, posted.fields());
    let which = match (fields.parsed::<u64>("letter"), fields.parsed::<EndpointId>("endpoint")) {
        (Some(letter), None) => Dead::These(vec![letter]),
        (None, Some(endpoint)) => Dead::Of(endpoint),
        _ => return Err(PageError::Invalid("Choose the dead letters to send again.".to_owned())),
    };
    state.webhooks.replay_by(&state.operators, &operator, &which).await?;
    Ok(redirect_with_notice("/console/queues", "replayed"))
}

pub(super) async fn compare_rooms(State(state): State<ConsoleState>, posted: Posted<Operator>) -> PageResult {
    let operator = posted.operator()?;
    if !state.has_chat {
        return Err(PageError::Conflict("Chat is disabled.".to_owned()));
    }
    state.membership_sync.request_comparison_by(&operator).await?;
    Ok(redirect_with_notice("/console/queues", "compare"))
}

pub(super) async fn show_feeds(State(state): State<ConsoleState>, viewer: Acting<Viewer>) -> PageResult {
    let body = pages::feeds::show(&state.feeds.status().await?, state.clock.now());
    Ok(Page::new(&viewer, "/console/feeds", "Feeds").show(&body))
}

pub(super) async fn show_roles(viewer: Acting<Viewer>) -> PageResult {
    Ok(Page::new(&viewer, "/console/roles", "Roles").show(&pages::roles::show(&viewer)))
}

pub(super) async fn list_server_keys(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    Query(query): Query,
) -> PageResult {
    let body = pages::server_keys::show(&viewer, &state.server_keys.list().await?, state.clock.now());
    Ok(Page::new(&viewer, "/console/keys", "Server keys").notice(query.get("notice")).show(&body))
}

/// Shows the key on the page of the response instead of redirecting, because it is not stored.
pub(super) async fn create_server_key(State(state): State<ConsoleState>, posted: Posted<Operator>) -> PageResult {
    let (operator, fields) = (posted.operator()?, posted.fields());
    let invalid = |text: &str| PageError::Invalid(text.to_owned());
    let name = fields.parsed("name").ok_or_else(|| invalid("Enter a name of 1 to 100 characters."))?;
    let is_chosen = |scope: &&KeyScope| fields.is_present(&format!("scope:{scope}"));
    let scopes: Vec<KeyScope> = KeyScope::ALL.iter().filter(is_chosen).copied().collect();
    let expires_in = match fields.get("expires_in") {
        None => None,
        Some(text) => Some(Duration::parse(text).ok_or_else(|| invalid("Enter a time like 90d."))?),
    };
    let networks = fields.get("allow").unwrap_or_default().split([' ', ',']).filter(|text| !text.is_empty());
    let networks: Result<Vec<_>, _> = networks.map(str::parse).collect();
    let networks = networks.map_err(|_| invalid("Enter networks like 203.0.113.0/24, separated by spaces."))?;
    let issued = state.server_keys.create(&KeyRequest { name, scopes, networks, expires_in }, &operator).await?;
    Ok(show_issued(&issued))
}

pub(super) async fn rotate_server_key(
    State(state): State<ConsoleState>,
    PathId(id): PathId<ServerKeyId>,
    posted: Posted<Operator>,
) -> PageResult {
    let operator = posted.operator()?;
    let grace = Duration::parse(posted.fields().get("grace").unwrap_or("0s"));
    let grace = grace.ok_or_else(|| PageError::Invalid("Enter a time like 1h.".to_owned()))?;
    Ok(show_issued(&state.server_keys.rotate(id, grace, &operator).await?))
}

pub(super) async fn revoke_server_key(
    State(state): State<ConsoleState>,
    PathId(id): PathId<ServerKeyId>,
    posted: Posted<Operator>,
) -> PageResult {
    state.server_keys.revoke(id, &posted.operator()?).await?;
    Ok(redirect_with_notice("/console/keys", "key_revoked"))
}

fn show_issued(issued: &IssuedKey) -> Response {
    pages::response(StatusCode::OK, pages::message_page("Server key", &pages::server_keys::issued(issued)))
}

pub(super) async fn show_audit(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    Query(query): Query,
) -> PageResult {
    let owned = |name| query.get(name).map(str::to_owned);
    let filter = ActionFilter {
        operator: owned("operator"),
        target: owned("target"),
        before: query.parsed("before"),
        ..ActionFilter::default()
    };
    let mut recorded = state.operators.recorded(&filter, PAGE + 1).await?;
    let most = usize::try_from(PAGE).unwrap_or(usize::MAX);
    let has_more = recorded.len() > most;
    recorded.truncate(most);
    let now: OffsetDateTime = state.clock.now();
    let body = pages::audit::show(&recorded, &filter, has_more, now);
    Ok(Page::new(&viewer, "/console/audit", "Audit").show(&body))
}

/// Requires an operator, because other callers must not find out which paths exist.
pub(super) async fn not_found(_: Acting<Viewer>) -> PageError {
    PageError::NotFound("page")
}

pub(super) async fn wrong_method(_: Acting<Viewer>) -> PageError {
    PageError::WrongMethod
}

pub(super) async fn go_to_overview() -> Response {
    redirect("/console")
}
