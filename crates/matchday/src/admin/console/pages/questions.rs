//! Bonus questions: the list, one question with its decision, and the form for a new one.

use maud::{Markup, html};
use time::OffsetDateTime;

use super::{Tone, badge, mark, minute, moment_ago, number, pager, reason, table};
use crate::{
    admin::console::{extract::Identity, rules::Role, service::TournamentRow},
    catalogue::fixtures::document::QuestionKind,
    game::questions::decisions::{QuestionDetails, QuestionSummary, Resolution, Status},
    identity::operators::service::Recorded,
};

/// Number of questions on a page.
pub(in crate::admin::console) const ON_A_PAGE: i64 = 50;

pub(in crate::admin::console) fn list(
    viewer: &Identity,
    questions: &[QuestionSummary],
    page: i64,
    now: OffsetDateTime,
) -> Markup {
    let rows = html! { @for question in questions { tr {
        th scope="row" { a href={ "/console/questions/" (question.id) } { (question.text) } br; span.quiet { (question.tournament) } }
        td { @match question.round { Some(round) => { "round " (round) } None => span.quiet { "none" } } }
        td.n { (question.points) }
        td {
            (status(Status::of_name(&question.status)))
            @if question.opens_at.is_some_and(|opens_at| opens_at > now) { " " (badge(Tone::Busy, "not open yet")) }
            @if !question.is_applied { " " (badge(Tone::Busy, "being applied")) }
        }
        td { (moment_ago(question.locks_at, now)) }
    } } };
    let link = |page: i64| format!("/console/questions?page={page}");
    let is_full = i64::try_from(questions.len()).is_ok_and(|shown| shown == ON_A_PAGE);
    html! {
        h1 { "Questions" }
        p.lead { "Locked questions wait for a resolution and come first." }
        @if viewer.may(Role::Operator) { p { a.button href="/console/questions/new" { "New question" } } }
        (table("Questions", &["Question", "Round", "#Points", "Status", "Locks"], &rows, questions.is_empty(), "No questions yet."))
        (pager((page > 0).then(|| link(page - 1)), is_full.then(|| link(page + 1))))
    }
}

fn status(status: Option<Status>) -> Markup {
    match status {
        Some(Status::Open) => badge(Tone::Good, "open"),
        Some(Status::Locked) => badge(Tone::Busy, "locked"),
        Some(Status::Resolved) => badge(Tone::Quiet, "resolved"),
        Some(Status::Void) | None => badge(Tone::Quiet, "void"),
    }
}

pub(in crate::admin::console) fn show(
    viewer: &Identity,
    question: &QuestionDetails,
    recorded: &[Recorded],
    now: OffsetDateTime,
) -> Markup {
    html! {
        p.trail { a href="/console/questions" { "Questions" } }
        h1 { (question.text) }
        p.lead { (status(Some(question.status))) " " (question.tournament) }
        div.columns {
            section.card {
                h2 { "Details" }
                dl {
                    dt { "Kind" } dd {
                        (question.shape.kind.name())
                        @if let Some(pick) = question.shape.pick { ", " (pick) " options in an answer" }
                        @if question.is_nearest { ", the nearest answers are right" }
                    }
                    dt { "Points" } dd { (question.points) @if question.shape.pick.is_some() { " for each right option" } }
                    dt { "Round" } dd { @match question.round { Some(round) => (round), None => span.quiet { "none" } } }
                    @if let Some(event) = question.event_id { dt { "Match" } dd { a href={ "/console/matches/" (event) } { (event) } } }
                    @if let Some(opens_at) = question.opens_at { dt { "Opens" } dd { (minute(opens_at)) " UTC" } }
                    dt { "Locks" } dd { (minute(question.locks_at)) " UTC " span.quiet { (super::ago(question.locks_at, now)) } }
                    dt { "Id and key" } dd { (question.id) ", " code { (question.key) } }
                    @if let Some(resolution) = &question.resolution { dt { "Right" } dd { (right(question, resolution)) } }
                }
            }
            (tally(question))
            @if viewer.may(Role::Operator) { (decision(viewer, question)) }
        }
        (super::audit::of_one("Operator actions", recorded, now))
    }
}

fn right(question: &QuestionDetails, resolution: &Resolution) -> String {
    match resolution {
        Resolution::Number(number) => number.to_string(),
        Resolution::Keys(keys) => {
            let labels = question.shape.options.iter().filter(|option| keys.contains(&option.key));
            labels.map(|option| option.label.as_str()).collect::<Vec<_>>().join(", ")
        }
        Resolution::Teams(ids) => {
            let names = question.teams.iter().filter(|(id, _)| ids.contains(id));
            names.map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(", ")
        }
    }
}

/// Name of a choice in the tally.
fn choice(question: &QuestionDetails, choice: i64) -> String {
    let option = question.shape.options.iter().find(|option| i64::from(option.number) == choice);
    let team = question.teams.iter().find(|(id, _)| *id == choice);
    option
        .map(|option| option.label.clone())
        .or_else(|| team.map(|(_, name)| name.clone()))
        .unwrap_or_else(|| "Answers".to_owned())
}

fn tally(question: &QuestionDetails) -> Markup {
    let choices: i64 = question.tally.iter().map(|(_, answers)| answers).sum();
    let all = question.shape.answers(choices);
    html! {
        section.card {
            h2 { "Answers" }
            @if all == 0 { p.quiet { "No answers yet." } } @else {
                dl.bars {
                    @for (of, answers) in &question.tally {
                        dt { (choice(question, *of)) }
                        dd { meter min="0" max=(all) value=(answers) {} " " (number(*answers)) }
                    }
                }
                p.quiet { (number(all)) " answers" }
            }
        }
    }
}

/// Form that resolves, annuls or reopens a question.
fn decision(viewer: &Identity, question: &QuestionDetails) -> Markup {
    let is_right = |key: &str, id: i64| match &question.resolution {
        Some(Resolution::Keys(keys)) => keys.iter().any(|of| of == key),
        Some(Resolution::Teams(ids)) => ids.contains(&id),
        _ => false,
    };
    let box_for = |name: &str, label: &str, is_checked: bool| {
        html! { label.check { input type="checkbox" name={ "right_" (name) } value="yes" checked[is_checked]; " " (label) } }
    };
    let resolved = question.resolution.is_some();
    html! {
        section.card {
            h2 { @if resolved { "Correct the resolution" } @else { "Resolve" } }
            form method="post" action={ "/console/questions/" (question.id) "/decision" } {
                (mark(viewer))
                input type="hidden" name="seen" value=(question.revision);
                fieldset {
                    legend { "Right answers" }
                    @match question.shape.kind {
                        QuestionKind::Number => {
                            label for="right" { "Number" }
                            input id="right" name="right" type="number" min="0" max="1000000000"
                                value=[match &question.resolution { Some(Resolution::Number(number)) => Some(*number), _ => None }];
                        },
                        QuestionKind::Team => @for (id, name) in &question.teams { (box_for(&id.to_string(), name, is_right("", *id))) },
                        QuestionKind::Choice | QuestionKind::SeveralOf => {
                            @for option in &question.shape.options { (box_for(&option.key, &option.label, is_right(&option.key, 0))) }
                        },
                    }
                }
                (reason("reason", "Reason"))
                div.actions {
                    button type="submit" name="action" value="resolve" { @if resolved { "Correct" } @else { "Resolve" } }
                    @if resolved || question.status == Status::Void {
                        button type="submit" name="action" value="take_back" { @if resolved { "Take back" } @else { "No longer void" } }
                    }
                    @if question.status != Status::Void { button type="submit" name="action" value="void" { "Make void" } }
                }
            }
            p.quiet { "A resolution closes the question. Points, leaderboards and league tables follow within seconds. A void question gives no points." }
        }
    }
}

pub(in crate::admin::console) fn new(viewer: &Identity, tournaments: &[TournamentRow]) -> Markup {
    html! {
        p.trail { a href="/console/questions" { "Questions" } }
        h1 { "New question" }
        p.lead { "To add many questions at once, import a fixture document." }
        section.card {
            form method="post" action="/console/questions" {
                (mark(viewer))
                label for="tournament" { "Tournament" }
                select id="tournament" name="tournament" required { @for of in tournaments { option value=(of.id) { (of.name) } } }
                label for="key" { "Key" }
                input id="key" name="key" required maxlength="100" aria-describedby="key-help";
                p.quiet id="key-help" { "A short name that is unique in the tournament, as in top-scorer. Fixture documents find the question by it." }
                label for="text" { "Question" }
                input id="text" name="text" required maxlength="300";
                label for="kind" { "Kind" }
                select id="kind" name="kind" {
                    option value="choice" { "One of the options" }
                    option value="several_of" { "Several of the options" }
                    option value="team" { "A team" }
                    option value="number" { "A number" }
                }
                label for="options" { "Options, one on each line, as in: ada Ada Obi" }
                textarea id="options" name="options" rows="6" aria-describedby="options-help" {}
                p.quiet id="options-help" { "The first word is the key (lower-case letters, digits and _), the rest is shown to users. Only for the first two kinds." }
                label for="pick" { "Options in an answer, for several of the options" }
                input id="pick" name="pick" type="number" min="2" max="32";
                label for="scoring" { "Right numbers" }
                select id="scoring" name="scoring" {
                    option value="" { "Not a number" }
                    option value="exact" { "Only the exact one" }
                    option value="nearest" { "The nearest answers" }
                }
                label for="points" { "Points" }
                input id="points" name="points" type="number" min="1" max="1000" required value="10";
                label for="match" { "Key of the match, if the question is about one" }
                input id="match" name="match" maxlength="100";
                label for="round" { "Round, if the question is not about a match" }
                input id="round" name="round" type="number" min="1" max="999";
                label for="opens_at" { "Opens at (UTC); empty: at once" }
                input id="opens_at" name="opens_at" type="datetime-local";
                label for="locks_at" { "Locks at (UTC); empty: with its match" }
                input id="locks_at" name="locks_at" type="datetime-local";
                (reason("reason", "Reason"))
                button type="submit" { "Add question" }
            }
        }
    }
}
