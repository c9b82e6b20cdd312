//! Rule sets, and what one would have done to a tournament.

use maud::{Markup, html};
use scoring::RuleSet;
use web::ids::TournamentId;

use super::{change, minute, number, table};
use crate::{
    admin::console::service::{RuleSetEffect, RuleSetUse, RuleSetView, TournamentRow},
    catalogue::rule_sets::rules::StoredRuleSet,
};

pub(in crate::admin::console) fn list(rule_sets: &[RuleSetUse]) -> Markup {
    let rows = html! { @for RuleSetUse { rule_set, matches, open } in rule_sets {
        @let rules = rule_set.values.rules;
        tr {
            th scope="row" { a href={ "/console/rule-sets/" (rule_set.id) } { (rule_set.slug) } br; span.quiet { (rule_set.name) } }
            td.n { (rules.outcome) " / " (rules.difference) " / " (rules.exact) }
            td.n { (rules.stake) }
            td.n { (rules.advances) }
            td.n { (rule_set.values.jokers) }
            td.n { (number(*matches)) @if *open > 0 { br; span.quiet { (number(*open)) " not started" } } }
            td { (minute(rule_set.created_at)) " UTC" }
        }
    } };
    html! {
        h1 { "Rule sets" }
        p.lead { "A rule set never changes, and a match keeps its rule set. To change the rules, import a document with a new one: it applies to matches that are created afterwards." }
        (table("Rule sets", &["Rule set", "#Outcome, difference, exact", "#Stake", "#Advances", "#Jokers", "#Matches", "Created"], &rows, false, ""))
    }
}

pub(in crate::admin::console) fn show(
    view: &RuleSetView,
    tournaments: &[TournamentRow],
    chosen: Option<TournamentId>,
) -> Markup {
    let rule_set = &view.rule_set;
    html! {
        p.trail { a href="/console/rule-sets" { "Rule sets" } }
        h1 { (rule_set.name) }
        p.lead { code { (rule_set.slug) } ", created " (minute(rule_set.created_at)) " UTC" }
        div.columns {
            (values(rule_set))
            section.card {
                h2 { "Try it on a tournament" }
                p.quiet { "Shows the points that all results so far would have given under this rule set. Nothing changes." }
                form method="get" {
                    label for="tournament" { "Tournament" }
                    select id="tournament" name="tournament" {
                        @for of in tournaments { option value=(of.id) selected[Some(of.id) == chosen] { (of.name) } }
                    }
                    button type="submit" { "Show effect" }
                }
            }
        }
        @if chosen.is_some() {
            @match &view.effect {
                Some(shown) => (effect(shown)),
                None => p.banner.busy { "This tournament has too many predictions to compute the effect in a few seconds." },
            }
        }
    }
}

fn values(rule_set: &StoredRuleSet) -> Markup {
    let RuleSet { outcome, difference, exact, margin, stake, advances } = rule_set.values.rules;
    html! {
        section.card {
            h2 { "Values" }
            dl {
                dt { "Right outcome" } dd { (outcome) }
                dt { "Right difference" } dd { (difference) }
                dt { "Exact score" } dd { (exact) }
                @if let Some(margin) = margin { dt { "Margin" } dd { (margin.points) " up to " (margin.within) " off" } }
                dt { "Stake" } dd { "±" (stake) }
                dt { "Team that advances" } dd { (advances) }
                dt { "Jokers" } dd { (rule_set.values.jokers) " for each user and tournament" }
                @if !rule_set.values.multipliers.is_empty() {
                    dt { "Multipliers" } dd { @for (stage, multiplier) in &rule_set.values.multipliers { code { (stage) } " × " (multiplier) br; } }
                }
            }
        }
    }
}

fn effect(effect: &RuleSetEffect) -> Markup {
    let rows = html! { @for row in &effect.top { tr {
        td.n { (row.rank) }
        th scope="row" { a href={ "/console/users/" (row.user) } { (row.username) } }
        td.n { (number(row.after)) }
        td.n { (number(row.before)) " (rank " (number(row.rank_before)) ")" }
        td.n { (change(row.after - row.before)) }
    } } };
    html! {
        div.tiles {
            section.tile { h2 { "Users with points" } p.value { (number(effect.users)) } p.more {} }
            section.tile { h2 { "Other rank" } p.value { (number(effect.moved)) } p.more { "users" } }
            section.tile { h2 { "All points" } p.value { (number(effect.points.1)) } p.more { (change(effect.points.1 - effect.points.0)) } }
        }
        (table("Top of the leaderboard under this rule set", &["#Rank", "User", "#Points", "#Now", "#Change"], &rows, effect.top.is_empty(), "No prediction of this tournament has points yet."))
    }
}
