//! HTTP for the console: look, show; or do, and send the browser on to what came of it.

use std::time::Duration;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use platform::{settings::Setting as _, stream::Stream};
use time::{Date, OffsetDateTime, macros::format_description};
use url::form_urlencoded::byte_serialize;
use web::ids::{EndpointId, EventId, UserId};

use super::{
    extract::{
        Acting, Asked, Fields, Named, PageError, Posted,
        authority::{Moderator, Operator, Viewer},
    },
    pages::{self, Page, matches::Wanted, overview::Overview, queues::Queues},
    service::{MatchFilter, PAGE, ReportFilter},
    state::ConsoleState,
};
use crate::{
    events::rules::Status,
    fixtures::service::{Correction, Seen},
    operators::service::ActionFilter,
    phone::Phone,
    safety::service::{Restriction, SafetyError},
    webhooks::service::Dead,
};

type Shown = Result<Response, PageError>;

/// How many dead letters are shown at once. Each is asked for by itself.
const LETTERS: usize = 25;
/// How many events that were set aside.
const ASIDE: i64 = 20;

pub(super) async fn get_style() -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("max-age=60")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ];
    (headers, include_str!("style.css")).into_response()
}

/// After something was done, the browser is sent on: loading the page again does nothing again.
fn sent_on(to: &str, told: &'static str) -> Response {
    redirect(&format!("{to}?told={told}"))
}

fn redirect(to: &str) -> Response {
    let to = HeaderValue::try_from(to).unwrap_or(HeaderValue::from_static("/console"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, to), (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))])
        .into_response()
}

/// A part that does not answer is shown as such; it keeps nobody from seeing the others.
fn seen<T, E: std::fmt::Display>(found: Result<T, E>, what: &str) -> Option<T> {
    found.inspect_err(|error| tracing::warn!(%error, what, "the overview lacks something")).ok()
}

pub(super) async fn show_overview(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    Asked(asked): Asked,
) -> Shown {
    let has_chat = state.has_chat;
    let mirror = async { if has_chat { seen(state.mirror.status().await, "mirror") } else { None } };
    let nats = async {
        // Whoever asks a server that is away waits for each answer in vain.
        if !state.streams.is_connected() {
            return (None, None);
        }
        (seen(state.streams.queues().await, "queues"), seen(state.streams.held(Stream::Dead).await, "dead letters"))
    };
    let database = async {
        // One after the other, on one connection's worth of the pool.
        let waiting = seen(state.console.waiting().await, "outbox");
        let progress = seen(state.scores.in_progress().await, "scores");
        let feeds = seen(state.feeds.status().await, "feeds");
        let closures = seen(state.codes.closures().await, "closures").map(|closures| closures.len());
        (waiting, progress, feeds, closures, mirror.await)
    };
    let (parts, (queues, dead), (waiting, progress, feeds, closures, mirror)) =
        tokio::join!(state.checks.recent(), nats, database);
    let is_live = asked.get("live").is_some();
    let overview = Overview {
        now: state.clock.now(),
        parts,
        waiting,
        queues,
        dead,
        progress,
        feeds,
        mirror,
        closures,
        listeners: state.live.listeners(),
        has_chat,
    };
    let page = Page { again: is_live.then_some(15), ..Page::new(&viewer, "/console", "Overview") };
    Ok(page.show(&overview.show(is_live)))
}

pub(super) async fn list_matches(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    Asked(asked): Asked,
) -> Shown {
    let day = |text: &str| Date::parse(text, format_description!("[year]-[month]-[day]")).ok();
    let is_asked = asked.was_given("day");
    let wanted = Wanted {
        tournament: asked.parsed("tournament"),
        // Today, unless somebody asks for another day or for any.
        day: if is_asked { asked.get("day").and_then(day) } else { Some(state.clock.now().date()) },
        page: page_of(&asked),
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

fn page_of(asked: &Fields) -> i64 {
    asked.parsed::<i64>("page").unwrap_or_default().clamp(0, 10_000)
}

pub(super) async fn show_match(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    Named(event): Named<EventId>,
    Asked(asked): Asked,
) -> Shown {
    let found = state.console.find_match(event).await?.ok_or(PageError::NotFound("match"))?;
    let recorded = recorded_of(&state, format!("event:{event}")).await?;
    let title = format!("{} – {}", found.row.home, found.row.away);
    let body = pages::matches::show(&viewer, &found, &recorded, state.clock.now());
    Ok(Page::new(&viewer, "/console/matches", &title).told(asked.get("told")).show(&body))
}

async fn recorded_of(
    state: &ConsoleState,
    target: String,
) -> Result<Vec<crate::operators::service::Recorded>, PageError> {
    let filter = ActionFilter { target: Some(target), ..ActionFilter::default() };
    Ok(state.operators.recorded(&filter, 20).await?)
}

/// What a form says a match should be.
fn correction(fields: &Fields) -> Result<Correction, PageError> {
    let invalid = |text: &str| PageError::Invalid(text.to_owned());
    let status: Status = fields.parsed("status").ok_or_else(|| invalid("Choose one of the states of a match."))?;
    let goals = |name| match fields.get(name) {
        None => Ok(None),
        Some(text) => text.parse::<i32>().map(Some).map_err(|_| invalid("Goals are whole numbers from 0 to 999.")),
    };
    let scores = match (goals("home")?, goals("away")?) {
        (Some(home), Some(away)) => Some((home, away)),
        (None, None) => None,
        _ => return Err(invalid("There must be both scores or none.")),
    };
    Correction::new(status, scores).map_err(|text| PageError::Invalid(format!("This cannot be: {text}.")))
}

pub(super) async fn preview_correction(
    State(state): State<ConsoleState>,
    viewer: Acting<Operator>,
    Named(event): Named<EventId>,
    Asked(asked): Asked,
) -> Shown {
    let wanted = correction(&asked)?;
    let found = state.console.find_match(event).await?.ok_or(PageError::NotFound("match"))?;
    if (found.row.status, found.row.scores()) == (wanted.status(), wanted.scores()) {
        return Err(PageError::Conflict("The match is so already.".to_owned()));
    }
    let preview = state.console.preview(event, wanted).await?.ok_or(PageError::NotFound("match"))?;
    let body = pages::matches::preview(&viewer, &found, wanted, &preview);
    Ok(Page::new(&viewer, "/console/matches", "Correct a match").show(&body))
}

pub(super) async fn correct_match(
    State(state): State<ConsoleState>,
    Named(event): Named<EventId>,
    posted: Posted<Operator>,
) -> Shown {
    let (operator, wanted) = (posted.operator()?, correction(posted.fields())?);
    let seen = Seen::said(posted.fields().get("seen").unwrap_or_default());
    state.fixtures.correct(&operator, event, &seen, wanted).await?;
    Ok(sent_on(&format!("/console/matches/{event}"), "corrected"))
}

pub(super) async fn list_users(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    Asked(asked): Asked,
) -> Shown {
    let text = asked.get("q").filter(|text| text.len() <= 100);
    let users = match text {
        Some(text) => state.console.search_users(text).await?,
        None => state.console.newest_users(asked.parsed("below")).await?,
    };
    let body = pages::users::list(&viewer, &users, text, state.clock.now());
    Ok(Page::new(&viewer, "/console/users", "Users").show(&body))
}

/// Posted, so that no phone stands in an address: those are kept by browsers and in the logs of proxies.
pub(super) async fn search_users(State(state): State<ConsoleState>, posted: Posted<Viewer>) -> Shown {
    let text = posted.fields().get("q").unwrap_or_default();
    if !text.starts_with('+') {
        let text: String = byte_serialize(text.as_bytes()).collect();
        return Ok(redirect(&format!("/console/users?q={text}")));
    }
    let phone = Phone::parse(text).ok_or_else(|| PageError::Invalid("This is no whole phone number.".to_owned()))?;
    let user = state.console.user_of_phone(&phone).await?.ok_or(PageError::NotFound("user"))?;
    Ok(redirect(&format!("/console/users/{user}")))
}

pub(super) async fn show_user(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    Named(user): Named<UserId>,
    Asked(asked): Asked,
) -> Shown {
    let server = state.server_name.as_deref();
    let chat_name = |username: &str| server.map(|server| format!("@{username}:{server}"));
    let found = state.console.find_user(user, chat_name).await?.ok_or(PageError::NotFound("user"))?;
    let recorded = recorded_of(&state, format!("user:{user}")).await?;
    let body = pages::users::show(&viewer, &found, &recorded, state.clock.now());
    Ok(Page::new(&viewer, "/console/users", &found.row.username).told(asked.get("told")).show(&body))
}

fn restriction(fields: &Fields) -> Option<Restriction> {
    let all = [Restriction::Ban, Restriction::Unban, Restriction::Mute, Restriction::Unmute];
    all.into_iter().find(|restriction| Some(restriction.name()) == fields.get("action"))
}

pub(super) async fn restrict_user(
    State(state): State<ConsoleState>,
    Named(user): Named<UserId>,
    posted: Posted<Moderator>,
) -> Shown {
    let operator = posted.operator()?;
    let restriction = restriction(posted.fields());
    let restriction = restriction.ok_or_else(|| PageError::Invalid("Choose what is to be done.".to_owned()))?;
    let length = match posted.fields().get("for").filter(|text| !text.is_empty()) {
        Some(text) => Some(Duration::parse(text).ok_or_else(|| PageError::Invalid("Choose a duration.".to_owned()))?),
        None => None,
    };
    state.safety.restrict_for(user, restriction, length, &operator).await?;
    Ok(sent_on(&format!("/console/users/{user}"), restriction.name()))
}

pub(super) async fn list_reports(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    Asked(asked): Asked,
) -> Shown {
    let filter = ReportFilter {
        is_closed: asked.get("state") == Some("closed"),
        text: asked.get("q").filter(|text| text.len() <= 100).map(str::to_owned),
        page: page_of(&asked),
    };
    let server = state.server_name.as_deref().unwrap_or_default();
    let reports = state.console.reports(server, &filter).await?;
    let body = pages::reports::list(&viewer, &reports, &filter, state.clock.now());
    Ok(Page::new(&viewer, "/console/reports", "Reports").told(asked.get("told")).show(&body))
}

pub(super) async fn deal_with_report(
    State(state): State<ConsoleState>,
    Named(id): Named<i64>,
    posted: Posted<Moderator>,
) -> Shown {
    let operator = posted.operator()?;
    let told = match (posted.fields().get("action"), restriction(posted.fields())) {
        (Some("close"), _) => "closed",
        (_, Some(restriction @ (Restriction::Ban | Restriction::Mute))) => {
            let server = state.server_name.as_deref().unwrap_or_default();
            let report = state.console.open_report(server, id).await?.ok_or(PageError::NotFound("open report"))?;
            let sender = report.sender_id.ok_or_else(|| {
                PageError::Conflict(
                    "Who sent the message has no account here, so there is nobody to restrict.".to_owned(),
                )
            })?;
            match state.safety.restrict(sender, restriction, &operator).await {
                // Another report of the same evening: what was wanted is so.
                Err(SafetyError::AlreadySo) => {}
                done => done?,
            }
            "dealt"
        }
        _ => return Err(PageError::Invalid("Choose what is to be done.".to_owned())),
    };
    if !state.safety.close_report(id, &operator).await? {
        return Err(PageError::NotFound("open report"));
    }
    Ok(sent_on("/console/reports", told))
}

pub(super) async fn show_sms(State(state): State<ConsoleState>, viewer: Acting<Viewer>, Asked(asked): Asked) -> Shown {
    let (sms, closures) = (state.console.sms().await?, state.codes.closures().await?);
    let body = pages::sms::show(&viewer, &sms, &closures, state.clock.now());
    Ok(Page::new(&viewer, "/console/sms", "SMS").told(asked.get("told")).show(&body))
}

pub(super) async fn open_sms(State(state): State<ConsoleState>, posted: Posted<Operator>) -> Shown {
    let operator = posted.operator()?;
    if !state.codes.open(posted.fields().get("prefix").unwrap_or_default(), &operator).await? {
        return Err(PageError::Conflict("It is not closed any more.".to_owned()));
    }
    Ok(sent_on("/console/sms", "open"))
}

pub(super) async fn show_queues(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    Asked(asked): Asked,
) -> Shown {
    let from = asked.parsed("from").unwrap_or(1);
    let nats = async {
        if !state.streams.is_connected() {
            return None;
        }
        let queues = seen(state.streams.queues().await, "queues")?;
        let letters = seen(state.streams.dead_from(">", from, LETTERS + 1).await, "dead letters")?;
        Some((queues, letters))
    };
    let (outbox, found) = tokio::join!(state.console.outbox(), nats);
    let mirror =
        if state.has_chat { Some((state.mirror.status().await?, state.mirror.set_aside(ASIDE).await?)) } else { None };
    let (queues, mut letters) = found.unzip();
    let letters = letters.as_mut().map(std::mem::take).unwrap_or_default();
    let more_from = letters.get(LETTERS).map(|letter| letter.sequence);
    let letters = letters.into_iter().take(LETTERS).collect();
    let queues = Queues { now: state.clock.now(), outbox: outbox?, consumers: queues, letters, more_from, mirror };
    Ok(Page::new(&viewer, "/console/queues", "Queues").told(asked.get("told")).show(&queues.show(&viewer)))
}

pub(super) async fn replay_letters(State(state): State<ConsoleState>, posted: Posted<Operator>) -> Shown {
    let (operator, fields) = (posted.operator()?, posted.fields());
    let which = match (fields.parsed::<u64>("letter"), fields.parsed::<EndpointId>("endpoint")) {
        (Some(letter), None) => Dead::These(vec![letter]),
        (None, Some(endpoint)) => Dead::Of(endpoint),
        _ => return Err(PageError::Invalid("Say which letters are to be sent again.".to_owned())),
    };
    state.webhooks.replay_by(&state.operators, &operator, &which).await?;
    Ok(sent_on("/console/queues", "replayed"))
}

pub(super) async fn compare_rooms(State(state): State<ConsoleState>, posted: Posted<Operator>) -> Shown {
    let operator = posted.operator()?;
    if !state.has_chat {
        return Err(PageError::Conflict("There is no chat here.".to_owned()));
    }
    state.mirror.ask_for_comparison_by(&operator).await?;
    Ok(sent_on("/console/queues", "compare"))
}

pub(super) async fn show_feeds(State(state): State<ConsoleState>, viewer: Acting<Viewer>) -> Shown {
    let body = pages::feeds::show(&state.feeds.status().await?, state.clock.now());
    Ok(Page::new(&viewer, "/console/feeds", "Feeds").show(&body))
}

pub(super) async fn show_audit(
    State(state): State<ConsoleState>,
    viewer: Acting<Viewer>,
    Asked(asked): Asked,
) -> Shown {
    let owned = |name| asked.get(name).map(str::to_owned);
    let filter = ActionFilter { operator: owned("operator"), target: owned("target"), before: asked.parsed("before") };
    let mut recorded = state.operators.recorded(&filter, PAGE + 1).await?;
    let most = usize::try_from(PAGE).unwrap_or(usize::MAX);
    let has_more = recorded.len() > most;
    recorded.truncate(most);
    let now: OffsetDateTime = state.clock.now();
    let body = pages::audit::show(&recorded, &filter, has_more, now);
    Ok(Page::new(&viewer, "/console/audit", "Audit").show(&body))
}

/// Only operators learn which paths exist.
pub(super) async fn not_found(_: Acting<Viewer>) -> PageError {
    PageError::NotFound("page")
}

pub(super) async fn wrong_method(_: Acting<Viewer>) -> PageError {
    PageError::WrongMethod
}

pub(super) async fn go_to_overview() -> Response {
    redirect("/console")
}
