//! Login codes and SMS messages by country and provider.

use maud::{Markup, html};
use time::OffsetDateTime;

use super::{Tone, badge, mark, moment_ago, number, percent, reason, table};
use crate::{
    admin::console::{
        extract::Identity,
        rules::Role,
        service::{CountryRow, SmsView},
    },
    identity::codes::service::Closure,
};

pub(in crate::admin::console) fn show(
    viewer: &Identity,
    sms: &SmsView,
    closures: &[Closure],
    now: OffsetDateTime,
) -> Markup {
    let is_closed = |country: &str| closures.iter().any(|closure| closure.prefix == country);
    let countries = html! { @for row in &sms.countries { tr {
        th scope="row" { (row.country) @if is_closed(&row.country) { " " (badge(Tone::Bad, "limited")) } }
        td.n { (number(row.codes_hour)) } td.n { (number(row.verified_hour)) " of " (number(row.phones_hour)) }
        td.n { (percent(row.verified_hour, row.phones_hour)) } td.n { (number(row.messages_hour)) }
        td.n { (number(row.codes_day)) } td.n { (number(row.verified_day)) " of " (number(row.phones_day)) }
        td.n { (percent(row.verified_day, row.phones_day)) } td.n { (number(row.messages_day)) }
    } } };
    let providers = html! { @for row in &sms.providers { tr {
        th scope="row" { (row.provider) }
        td.n { (number(row.sent_hour)) } td.n { (number(row.failed_hour)) } td.n { (number(row.delivered_hour)) }
        td.n { (number(row.sent_day)) } td.n { (number(row.failed_day)) } td.n { (number(row.delivered_day)) }
    } } };
    let all = |read: fn(&CountryRow) -> i64| sms.countries.iter().map(read).sum::<i64>();
    html! {
        h1 { "SMS" }
        div.tiles {
            section.tile { h2 { "Codes, last hour" } p.value { (number(all(|row| row.codes_hour))) }
                p.more { (percent(all(|row| row.verified_hour), all(|row| row.phones_hour))) " verified" } }
            section.tile { h2 { "Codes, last day" } p.value { (number(all(|row| row.codes_day))) }
                p.more { (percent(all(|row| row.verified_day), all(|row| row.phones_day))) " verified" } }
            section.tile { h2 { "Messages, last day" } p.value { (number(all(|row| row.messages_day))) }
                p.more { "billed by your provider" } }
            section.tile { h2 { "Limited destinations" } p.value { (closures.len()) } p.more { "networks, number blocks and countries" } }
        }
        @for closure in closures { (closed(viewer, closure, now)) }
        (table("By country", &["Country", "#Codes (hour)", "#Phones verified", "#Share", "#Messages", "#Codes (day)", "#Phones verified", "#Share", "#Messages"],
               &countries, sms.countries.is_empty(), "No codes were sent in the last day."))
        (table("By provider", &["Provider", "#Sent (hour)", "#Failed", "#Delivered", "#Sent (day)", "#Failed", "#Delivered"],
               &providers, sms.providers.is_empty(), "No messages were sent in the last day."))
    }
}

fn closed(viewer: &Identity, closure: &Closure, now: OffsetDateTime) -> Markup {
    html! {
        section.card {
            h2 { (closure.prefix) " is limited" }
            p {
                (number(closure.verified)) " of " (number(closure.phones)) " phones verified a code. New phones get at most " (number(closure.hourly.into()))
                " codes per hour until " (moment_ago(closure.closed_until, now)) ". Phones that verified a code before are not limited."
            }
            @if viewer.may(Role::Operator) {
                form method="post" action="/console/sms/open" {
                    (mark(viewer))
                    input type="hidden" name="prefix" value=(closure.prefix);
                    (reason(&format!("reason-{}", closure.prefix.trim_start_matches('+')), "Reason (why this is not fraud)"))
                    button type="submit" { "Remove limit" }
                }
            }
        }
    }
}
