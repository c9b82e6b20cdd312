//! Matches, and correcting them.

use maud::{Markup, html};
use time::{Date, OffsetDateTime};
use web::ids::TournamentId;

use super::{Tone, badge, change, mark, minute, moment, moment_ago, number, pager, percent, reason, score, table};
use crate::{
    admin::console::{
        extract::Identity,
        rules::Role,
        service::{CoinsPreview, Listed, MatchRow, MatchView, Moved, PAGE, Preview, TournamentRow},
    },
    catalogue::{
        fixtures::service::{Correction, Seen},
        matches::rules::{PublicStatus, Status},
    },
    identity::operators::service::Recorded,
};

/// Which matches are listed.
pub(in crate::admin::console) struct Wanted {
    pub(in crate::admin::console) tournament: Option<TournamentId>,
    pub(in crate::admin::console) day: Option<Date>,
    pub(in crate::admin::console) page: i64,
}

impl Wanted {
    fn page(&self, page: i64) -> String {
        let tournament = self.tournament.map(|id| format!("&tournament={id}")).unwrap_or_default();
        let day = self.day.map_or_else(|| "&day=".to_owned(), |day| format!("&day={day}"));
        format!("/console/matches?page={page}{tournament}{day}")
    }
}

pub(in crate::admin::console) fn list(
    matches: &Listed<MatchRow>,
    tournaments: &[TournamentRow],
    wanted: &Wanted,
) -> Markup {
    let rows = html! { @for row in &matches.rows { tr {
        td { (minute(row.start_time)) }
        th scope="row" { a href={ "/console/matches/" (row.id) } { (row.home) " – " (row.away) } }
        td { (row.tournament) }
        td { (status(row.status)) }
        td.n { (score(row.scores())) }
        td { (in_scores(row)) }
    } } };
    let earlier = (wanted.page > 0).then(|| wanted.page(wanted.page - 1));
    let further = matches.has_more.then(|| wanted.page(wanted.page + 1));
    html! {
        h1 { "Matches" }
        form.filter method="get" action="/console/matches" {
            div { label for="day" { "Day (UTC)" } input type="date" id="day" name="day" value=[wanted.day]; }
            div { label for="tournament" { "Tournament" } select id="tournament" name="tournament" {
                option value="" { "All" }
                @for row in tournaments { option value=(row.id) selected[Some(row.id) == wanted.tournament] { (row.name) } }
            } }
            button type="submit" { "Show" }
            a.button href="/console/matches?day=" { "Any day" }
        }
        (table(&caption(wanted), &["Starts (UTC)", "Match", "Tournament", "Status", "#Score", "Scores"], &rows,
               matches.rows.is_empty(), "No match starts then."))
        (pager(earlier, further))
    }
}

fn caption(wanted: &Wanted) -> String {
    let page = if wanted.page > 0 { format!(", from number {} on", wanted.page * PAGE + 1) } else { String::new() };
    match wanted.day {
        Some(day) => format!("Matches of {day}{page}"),
        None => format!("Matches of any day{page}"),
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
    match (row.result_revision, row.is_applied) {
        (0, _) => html! { span.quiet { "no result yet" } },
        (1, true) => html! { "in all scores" },
        (revision, true) => html! { "in all scores, " (revision) " results" },
        (_, false) => badge(Tone::Busy, "on its way"),
    }
}

pub(in crate::admin::console) fn show(
    viewer: &Identity,
    found: &MatchView,
    recorded: &[Recorded],
    now: OffsetDateTime,
) -> Markup {
    let row = &found.row;
    let results = html! { @for result in &found.results { tr {
        th scope="row" { (result.revision) }
        td.n { @match result.home_score.zip(result.away_score) {
            Some(scores) => (score(Some(scores))),
            None => span.quiet { "nobody gains or loses" },
        } }
        td { (moment_ago(result.recorded_at, now)) }
        td { @match result.applied_at {
            Some(at) => (moment(at)),
            None => (badge(Tone::Busy, "on its way")),
        } }
    } } };
    let rooms = html! { @for room in &found.rooms { tr {
        th scope="row" { (room.name) @if let Some(id) = &room.matrix_id { br; span.quiet { (id) } } }
        td { @match (room.stand, room.is_private) {
            (Some(stand), _) => { "stand " (stand) },
            (None, true) => "private",
            (None, false) => "opened by a fan",
        } }
        td.n { (number(room.members)) }
        td { @match (room.opened_at, room.last_activity) {
            (None, _) => (badge(Tone::Busy, "being made")),
            (_, Some(at)) => (moment_ago(at, now)),
            (_, None) => span.quiet { "never" },
        } }
        td { @if room.announces { "on" } @else { "off" } }
    } } };
    html! {
        p.trail { a href={ "/console/matches?day=&tournament=" (row.tournament_id) } { (row.tournament) } }
        h1 { (row.home) " – " (row.away) }
        p.lead { (status(row.status)) " " strong.score { (score(row.scores())) } " " (in_scores(row)) }
        div.columns {
            section.card {
                h2 { "The match" }
                dl {
                    dt { "Starts" } dd { (minute(row.start_time)) " UTC " span.quiet { (super::ago(row.start_time, now)) } }
                    dt { "Venue" } dd { @if row.venue.is_empty() { span.quiet { "not known" } } @else { (row.venue) } }
                    dt { "Id and key" } dd { (row.id) ", " code { (row.key) } }
                    dt { "Teams" } dd { (row.home) " (" (row.home_id) "), " (row.away) " (" (row.away_id) ")" }
                    dt { "Rules" } dd { "version " (row.rules_version) }
                    dt { "Changed" } dd { (moment_ago(row.updated_at, now)) }
                    @if !found.feeds.is_empty() { dt { "Comes from" } dd { (found.feeds.join(", ")) } }
                    @if found.chunks.1 > 0 {
                        dt { "Chunks" } dd {
                            progress max=(found.chunks.1) value=(found.chunks.0) {}
                            " " (number(found.chunks.0)) " of " (number(found.chunks.1))
                        }
                    }
                }
            }
            (tally(found))
            @if viewer.may(Role::Operator) { (correction(found)) }
        }
        (table("Results", &["Revision", "#Score", "Recorded", "In all scores"], &results, found.results.is_empty(), "It has had no result."))
        (table("Rooms", &["Room", "Kind", "#Members", "Last activity", "Announcements"], &rooms, found.rooms.is_empty(), "It has no rooms."))
        (super::audit::of_one("What operators did to it", recorded, now))
    }
}

fn tally(found: &MatchView) -> Markup {
    let tally = found.tally;
    let all = tally.home + tally.draw + tally.away;
    html! {
        section.card {
            h2 { "Predictions" }
            @if all == 0 { p.quiet { "Nobody has predicted it." } } @else {
                dl.bars {
                    @for (name, of) in [(found.row.home.as_str(), tally.home), ("Draw", tally.draw), (found.row.away.as_str(), tally.away)] {
                        dt { (name) }
                        dd { meter min="0" max=(all) value=(of) {} " " (number(of)) " " span.quiet { (percent(of, all)) } }
                    }
                }
                p.quiet { (number(all)) " in all, " (percent(tally.confidence, all * 100)) " sure on average" }
            }
        }
    }
}

fn correction(found: &MatchView) -> Markup {
    let row = &found.row;
    html! {
        section.card {
            h2 { "Correct it" }
            form method="get" action={ "/console/matches/" (row.id) "/correction" } {
                label for="status" { "Status" }
                select id="status" name="status" {
                    @for of in Status::ALL { option value=(of.name()) selected[of == row.status] { (of.name()) } }
                }
                div.pair {
                    div { label for="home" { (row.home) } input type="number" id="home" name="home" min="0" max="999" value=[row.home_score]; }
                    div { label for="away" { (row.away) } input type="number" id="away" name="away" min="0" max="999" value=[row.away_score]; }
                }
                p.quiet { "Goals of each; leave both empty where there is no score. The next page shows who would gain and who would lose, and does nothing yet." }
                button type="submit" { "See what it would do" }
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
        h1 { "What this correction would do" }
        p.lead {
            (status(row.status)) " " strong.score { (score(row.scores())) }
            span.arrow { " becomes " }
            (status(wanted.status())) " " strong.score { (score(wanted.scores())) }
        }
        p.quiet { "Nothing is done yet." }
        @if !found.feeds.is_empty() {
            p.banner.busy { "This tournament comes from " (found.feeds.join(", ")) ". The next document that changes there may say otherwise, and then it counts." }
        }
        @if preview.changes_result { (effect(preview)) } @else {
            p.banner.good { "Its result stays what it is: nobody gains or loses points." }
        }
        section.card {
            h2 { "Do it" }
            form method="post" action={ (path) "/correction" } {
                (mark(viewer))
                input type="hidden" name="seen" value=(seen.as_str());
                input type="hidden" name="status" value=(wanted.status().name());
                @if let Some((home, away)) = wanted.scores() {
                    input type="hidden" name="home" value=(home);
                    input type="hidden" name="away" value=(away);
                }
                (reason("reason", "Why; it is kept with your name"))
                div.actions {
                    button.strong type="submit" { "Correct the match" }
                    a.button href=(path) { "Leave it as it is" }
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
        (row("Points of everybody together", effect.points))
        (row("Scores right to the goal", effect.exact))
        (row("Right outcomes", effect.correct))
    };
    html! {
        div.tiles {
            section.tile { h2 { "predictions counted" } p.value { (number(effect.users)) } p.more {} }
            section.tile { h2 { "gain points" } p.value.up { (number(effect.gaining)) } p.more { (percent(effect.gaining, effect.users)) } }
            section.tile { h2 { "lose points" } p.value.down { (number(effect.losing)) } p.more { (percent(effect.losing, effect.users)) } }
            @if let Some(coins) = &preview.coins { (coins_tile(coins)) }
        }
        (table("What it does to scores", &["", "#Now", "#After", "#Change"], &rows, false, ""))
        div.columns {
            (moved("Who gains most", &preview.gainers))
            (moved("Who loses most", &preview.losers))
        }
        @if let Some(coins) = &preview.coins { (coins_words(coins)) }
    }
}

fn coins_tile(coins: &CoinsPreview) -> Markup {
    html! {
        section.tile {
            h2 { "coins" }
            @match coins.exactly {
                Some(coins) => { p.value { (change(coins.given - coins.taken)) } p.more { "in wallets" } }
                None => { p.value { "about " (change(coins.at_most)) } p.more { "if nobody spent any" } }
            }
        }
    }
}

fn coins_words(coins: &CoinsPreview) -> Markup {
    html! {
        section.card {
            h2 { "What it does to coins" }
            @match coins.exactly {
                Some(coins) => {
                    p {
                        (number(coins.given)) " coins go to " (number(coins.gaining)) " users, and "
                        (number(coins.taken)) " are taken back from " (number(coins.losing)) ", from what they hold now."
                    }
                    @if coins.written_off > 0 {
                        p { (number(coins.written_off)) " more should be taken back, but were spent already; nobody is asked for them again." }
                    }
                }
                None => p {
                    "There are too many wallets to look at in a few seconds. If nobody had spent any, it would be "
                    (change(coins.at_most)) " in all."
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
    table(caption, &["User", "#Now", "#After", "#Change"], &rows, users.is_empty(), "Nobody.")
}
