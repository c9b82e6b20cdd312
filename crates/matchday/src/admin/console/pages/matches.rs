//! Matches and their correction.

use maud::{Markup, html};
use scoring::{Multiplier, Side};
use time::{Date, OffsetDateTime};
use web::ids::TournamentId;

use super::{Tone, badge, change, mark, minute, moment, moment_ago, number, pager, percent, reason, score, table};
use crate::{
    admin::console::{
        extract::Identity,
        rules::Role,
        service::{CoinsPreview, Leader, Listed, MatchRow, MatchView, Moved, Preview, TournamentRow},
    },
    catalogue::{
        fixtures::service::{Correction, Seen},
        matches::rules::{PublicStatus, Status},
    },
    identity::operators::service::Recorded,
};

/// Filter of the match list.
pub(in crate::admin::console) struct ListFilter {
    pub(in crate::admin::console) tournament: Option<TournamentId>,
    pub(in crate::admin::console) day: Option<Date>,
    pub(in crate::admin::console) page: i64,
}

impl ListFilter {
    fn page(&self, page: i64) -> String {
        let tournament = self.tournament.map(|id| format!("&tournament={id}")).unwrap_or_default();
        let day = self.day.map_or_else(|| "&day=".to_owned(), |day| format!("&day={day}"));
        format!("/console/matches?page={page}{tournament}{day}")
    }
}

pub(in crate::admin::console) fn list(
    matches: &Listed<MatchRow>,
    tournaments: &[TournamentRow],
    filter: &ListFilter,
) -> Markup {
    let rows = html! { @for row in &matches.rows { tr {
        td { (minute(row.start_time)) }
        th scope="row" { a href={ "/console/matches/" (row.id) } { (row.home) " – " (row.away) } }
        td { (row.tournament) }
        td { (status(row.status)) }
        td.n { (score(row.scores())) }
        td { (in_scores(row)) }
    } } };
    let previous = (filter.page > 0).then(|| filter.page(filter.page - 1));
    let next = matches.has_more.then(|| filter.page(filter.page + 1));
    html! {
        h1 { "Matches" }
        form.filter method="get" action="/console/matches" {
            div { label for="day" { "Day (UTC)" } input type="date" id="day" name="day" value=[filter.day]; }
            div { label for="tournament" { "Tournament" } select id="tournament" name="tournament" {
                option value="" { "All" }
                @for row in tournaments { option value=(row.id) selected[Some(row.id) == filter.tournament] { (row.name) } }
            } }
            button type="submit" { "Show" }
            a.button href="/console/matches?day=" { "All days" }
        }
        (table(&caption(filter), &["Starts (UTC)", "Match", "Tournament", "Status", "#Score", "Scoring"], &rows,
               matches.rows.is_empty(), "No matches found."))
        (pager(previous, next))
    }
}

fn caption(filter: &ListFilter) -> String {
    let page = if filter.page > 0 { format!(", page {}", filter.page + 1) } else { String::new() };
    match filter.day {
        Some(day) => format!("Matches on {day}{page}"),
        None => format!("All matches{page}"),
    }
}

fn status(of: Status) -> Markup {
    let tone = match of.public() {
        PublicStatus::Live => Tone::Busy,
        PublicStatus::Scheduled => Tone::Quiet,
        PublicStatus::Finished => Tone::Good,
    };
    badge(tone, of.name())
}

fn in_scores(row: &MatchRow) -> Markup {
    match row.result_revision {
        0 => html! { span.quiet { "no result yet" } },
        _ if row.is_scoring() => badge(Tone::Busy, "in progress"),
        1 => html! { "applied" },
        revision => html! { "applied, " (revision) " results" },
    }
}

pub(in crate::admin::console) fn show(
    viewer: &Identity,
    found: &MatchView,
    recorded: &[Recorded],
    is_refreshing: bool,
    now: OffsetDateTime,
) -> Markup {
    let row = &found.row;
    let results = html! { @for result in &found.results { tr {
        th scope="row" { (result.revision) }
        td.n { @match result.home_score.zip(result.away_score) {
            Some(scores) => { (score(Some(scores))) @if let Some(side) = &result.advanced { ", " (side) " advanced" } },
            None => span.quiet { "no points awarded" },
        } }
        td { (moment_ago(result.recorded_at, now)) }
        td { @match result.applied_at {
            Some(at) => (moment(at)),
            None => (badge(Tone::Busy, "in progress")),
        } }
    } } };
    let rooms = html! { @for room in &found.rooms { tr {
        th scope="row" { (room.name) @if let Some(id) = &room.matrix_id { br; span.quiet { (id) } } }
        td { @match (room.stand, room.is_private) {
            (Some(stand), _) => { "stand " (stand) },
            (None, true) => "private fan room",
            (None, false) => "fan room",
        } }
        td.n { (number(room.members)) }
        td { @match (room.opened_at, room.last_activity) {
            (None, _) => (badge(Tone::Busy, "being created")),
            (_, Some(at)) => (moment_ago(at, now)),
            (_, None) => span.quiet { "never" },
        } }
        td { @if room.announces { "on" } @else { "off" } }
    } } };
    html! {
        p.trail { a href={ "/console/matches?day=&tournament=" (row.tournament_id) } { (row.tournament) } }
        h1 { (row.home) " – " (row.away) }
        p.lead { (status(row.status)) " " strong.score { (score(row.scores())) } " " (in_scores(row)) }
        @if is_refreshing {
            p { a.button href={ "/console/matches/" (row.id) } { "Stop refreshing" } }
        }
        div.columns {
            section.card {
                h2 { "Details" }
                dl {
                    dt { "Starts" } dd { (minute(row.start_time)) " UTC " span.quiet { (super::ago(row.start_time, now)) } }
                    dt { "Venue" } dd { @if row.venue.is_empty() { span.quiet { "unknown" } } @else { (row.venue) } }
                    dt { "Id and key" } dd { (row.id) ", " code { (row.key) } }
                    dt { "Teams" } dd { (row.home) " (" (row.home_id) "), " (row.away) " (" (row.away_id) ")" }
                    dt { "Round and stage" } dd {
                        @match row.round { Some(round) => { "round " (round) } None => span.quiet { "no round" } }
                        @if let Some(stage) = &row.stage { ", " code { (stage) } }
                    }
                    dt { "Rule set" } dd {
                        a href={ "/console/rule-sets/" (row.rule_set_id) } { (row.rule_set) }
                        @if row.multiplier() != Multiplier::One { ", points × " (row.multiplier()) }
                    }
                    @if row.is_knockout {
                        dt { "Advanced" } dd { (side(row, row.advanced())) }
                    }
                    dt { "Last change" } dd { (moment_ago(row.updated_at, now)) }
                    @if !found.feeds.is_empty() { dt { "Feeds" } dd { (found.feeds.join(", ")) } }
                    @if found.chunks.1 > 0 {
                        dt { "Scoring progress" } dd {
                            progress max=(found.chunks.1) value=(found.chunks.0) {}
                            " " (number(found.chunks.0)) " of " (number(found.chunks.1)) " chunks"
                        }
                    }
                }
            }
            (tally(found))
            @if viewer.may(Role::Operator) { (correction(found)) }
        }
        (table("Results", &["Revision", "#Score", "Recorded", "Applied"], &results, found.results.is_empty(), "No results yet."))
        (table("Rooms", &["Room", "Kind", "#Members", "Last activity", "Announcements"], &rooms, found.rooms.is_empty(), "No rooms."))
        (super::audit::of_one("Operator actions", recorded, now))
    }
}

fn tally(found: &MatchView) -> Markup {
    let tally = found.tally;
    let all = tally.home + tally.draw + tally.away;
    html! {
        section.card {
            h2 { "Predictions" }
            @if all == 0 { p.quiet { "No predictions yet." } } @else {
                dl.bars {
                    @for (name, of) in [(found.row.home.as_str(), tally.home), ("Draw", tally.draw), (found.row.away.as_str(), tally.away)] {
                        dt { (name) }
                        dd { meter min="0" max=(all) value=(of) {} " " (number(of)) " " span.quiet { (percent(of, all)) } }
                    }
                }
                p.quiet { (number(all)) " in total, average confidence " (percent(tally.confidence, all * 100)) }
            }
        }
    }
}

/// Name of one of the teams.
fn side(row: &MatchRow, side: Option<Side>) -> &str {
    match side {
        Some(Side::Home) => &row.home,
        Some(Side::Away) => &row.away,
        None => "not known",
    }
}

fn correction(found: &MatchView) -> Markup {
    let row = &found.row;
    html! {
        section.card {
            h2 { "Correct match" }
            form method="get" action={ "/console/matches/" (row.id) "/correction" } {
                label for="status" { "Status" }
                select id="status" name="status" {
                    @for of in Status::ALL { option value=(of.name()) selected[of == row.status] { (of.name()) } }
                }
                div.pair {
                    div { label for="home" { (row.home) " goals" } input type="number" id="home" name="home" min="0" max="999" value=[row.home_score]; }
                    div { label for="away" { (row.away) " goals" } input type="number" id="away" name="away" min="0" max="999" value=[row.away_score]; }
                }
                @if row.is_knockout {
                    label for="advanced" { "Team that advanced" }
                    select id="advanced" name="advanced" {
                        option value="" selected[row.advanced.is_none()] { "not known" }
                        @for of in Side::ALL { option value=(of.name()) selected[row.advanced() == Some(of)] { (side(row, Some(of))) } }
                    }
                }
                p.quiet { "Leave both fields empty for a match without a score. The next page shows the effect and asks for confirmation." }
                button type="submit" { "Preview correction" }
            }
        }
    }
}

pub(in crate::admin::console) fn preview(
    viewer: &Identity,
    found: &MatchView,
    wanted: Correction,
    preview: &Preview,
) -> Markup {
    let row = &found.row;
    let seen = Seen::of(row.result_revision, row.status, row.scores(), row.start_time);
    let path = format!("/console/matches/{}", row.id);
    html! {
        p.trail { a href=(path) { (row.home) " – " (row.away) } }
        h1 { "Preview correction" }
        p.lead {
            (status(row.status)) " " strong.score { (score(row.scores())) }
            span.arrow { " becomes " }
            (status(wanted.status())) " " strong.score { (score(wanted.scores())) }
            @if row.is_knockout && row.advanced() != wanted.advanced() { ", advanced: " (side(row, wanted.advanced())) }
        }
        p.quiet { "Nothing has changed yet." }
        @if !found.feeds.is_empty() {
            p.banner.busy { "This tournament is updated from " (found.feeds.join(", ")) ". The next update may overwrite this correction." }
        }
        @if preview.changes_result { (effect(preview)) } @else {
            p.banner.good { "The result does not change. No user gains or loses points." }
        }
        section.card {
            h2 { "Confirm correction" }
            form method="post" action={ (path) "/correction" } {
                (mark(viewer))
                input type="hidden" name="seen" value=(seen.as_str());
                input type="hidden" name="status" value=(wanted.status().name());
                @if let Some((home, away)) = wanted.scores() {
                    input type="hidden" name="home" value=(home);
                    input type="hidden" name="away" value=(away);
                }
                @if let Some(advanced) = wanted.advanced() { input type="hidden" name="advanced" value=(advanced.name()); }
                (reason("reason", "Reason (recorded with your name)"))
                div.actions {
                    button.strong type="submit" { "Correct match" }
                    a.button href=(path) { "Cancel" }
                }
            }
        }
    }
}

fn effect(preview: &Preview) -> Markup {
    let effect = preview.effect;
    let row = |name: &str, (before, after): (i64, i64)| {
        html! { tr { th scope="row" { (name) } td.n { (number(before)) } td.n { (number(after)) } td.n { (change(after - before)) } } }
    };
    let rows = html! {
        (row("Total points", effect.points))
        (row("Exact scores", effect.exact))
        (row("Right outcomes", effect.correct))
    };
    html! {
        div.tiles {
            section.tile { h2 { "Predictions counted" } p.value { (number(effect.users)) } p.more {} }
            section.tile { h2 { "Users gaining points" } p.value.up { (number(effect.gaining)) } p.more { (percent(effect.gaining, effect.users)) } }
            section.tile { h2 { "Users losing points" } p.value.down { (number(effect.losing)) } p.more { (percent(effect.losing, effect.users)) } }
            @if let Some(coins) = &preview.coins { (coins_tile(coins)) }
        }
        (table("Effect on scores", &["", "#Now", "#After", "#Change"], &rows, false, ""))
        div.columns {
            (moved("Largest gains", &preview.gainers))
            (moved("Largest losses", &preview.losers))
        }
        (leaders(preview.leaders.as_deref()))
        @if let Some(coins) = &preview.coins { (coins_text(coins)) }
    }
}

fn leaders(leaders: Option<&[Leader]>) -> Markup {
    let Some(leaders) = leaders else {
        return html! { section.card {
            h2 { "Leaders of the tournament" }
            p { "There are too many users to compute the places in a few seconds." }
        } };
    };
    let rows = html! { @for leader in leaders { tr {
        th scope="row" { a href={ "/console/users/" (leader.user) } { (leader.username) } }
        td.n { (number(leader.rank_before)) }
        td.n { (number(leader.rank_after)) }
        td.n { (number(leader.before)) }
        td.n { (number(leader.after)) }
    } } };
    let heads = ["User", "#Place now", "#Place after", "#Points now", "#Points after"];
    table("Leaders of the tournament", &heads, &rows, leaders.is_empty(), "No user has points.")
}

fn coins_tile(coins: &CoinsPreview) -> Markup {
    html! {
        section.tile {
            h2 { "Coins" }
            @match coins.exactly {
                Some(coins) => { p.value { (change(coins.given - coins.taken)) } p.more { "in all wallets" } }
                None => { p.value { "about " (change(coins.at_most)) } p.more { "if no coins were spent" } }
            }
        }
    }
}

fn coins_text(coins: &CoinsPreview) -> Markup {
    html! {
        section.card {
            h2 { "Effect on coins" }
            @match coins.exactly {
                Some(coins) => {
                    p {
                        (number(coins.given)) " coins are paid to " (number(coins.gaining)) " users, and "
                        (number(coins.taken)) " are taken back from the current balances of " (number(coins.losing)) " users."
                    }
                    @if coins.written_off > 0 {
                        p { (number(coins.written_off)) " more cannot be taken back because they were spent. They are written off." }
                    }
                }
                None => p {
                    "There are too many wallets to check in a few seconds. If no coins had been spent, the total change would be "
                    (change(coins.at_most)) "."
                }
            }
        }
    }
}

fn moved(caption: &str, users: &[Moved]) -> Markup {
    let rows = html! { @for moved in users { tr {
        th scope="row" { a href={ "/console/users/" (moved.user) } { (moved.username) } }
        td.n { (number(moved.before)) }
        td.n { (number(moved.after)) }
        td.n { (change(moved.after - moved.before)) }
    } } };
    table(caption, &["User", "#Now", "#After", "#Change"], &rows, users.is_empty(), "None.")
}
