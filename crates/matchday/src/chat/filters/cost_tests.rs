//! Cost of the worst texts that a user can send.

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

use platform::settings::{HostPattern, Setting as _};
use serde_json::json;

use super::{
    message::ChatMessage,
    rules::{Forms, MOST_LETTERS, has_invitation, has_link, has_listed_word},
    text::{normalised, skeleton, texts_of_html},
    words::BUILT_IN,
};

/// Size of an event on the homeserver, without its envelope.
const EVENT_BYTES: usize = 64_000;

/// Plain texts of about this number of bytes.
fn plain_texts(bytes: usize) -> Vec<String> {
    let units = [
        "What a goal that was! ",
        "ab",
        "a",
        "f g ",
        "l i ",
        "faggo ",
        "n1",
        "\u{3316}",
        "\u{fdfa}",
        "\u{301}\u{327}\u{323}",
        "سلام ",
        "س example.org ",
        "на ",
        "a.co,",
        "example.org,",
        "https://",
        "https://matrix.to/#/@a:example.org ",
        "matrix.to/#/!",
        "com(.)",
        "a(.)",
        "t   ",
        "t . ",
        "joinchat ",
    ];
    let mut texts: Vec<String> = units.iter().map(|unit| unit.repeat(bytes / unit.len())).collect();
    texts.push(format!("x-{}", "\u{3316}".repeat(bytes / 3)));
    texts.push(format!("matrix.to/#/@{}", "a.com,".repeat(bytes / 6)));
    texts
}

/// HTML of about this number of bytes.
fn html_texts(bytes: usize) -> Vec<String> {
    let units = [
        "&",
        "&no",
        "&#1",
        "&shy;",
        "<",
        "<a",
        "<a ",
        "<b>",
        "<p>",
        "</p>",
        "<!--",
        "<![CDATA[",
        "<?",
        "<a b=\"",
        "<a href=b>",
        "<mx-reply>",
        "\0",
    ];
    let mut texts: Vec<String> = units.iter().map(|unit| unit.repeat(bytes / unit.len())).collect();
    let attributes: String =
        (0..bytes / 8).flat_map(|number| ["a".to_owned(), number.to_string(), "=b ".to_owned()]).collect();
    texts.push(format!("<a {attributes}>"));
    texts.push(format!("<{}>", "a".repeat(bytes)));
    texts.push(format!("<a title='{}'>", "&no".repeat(bytes / 3)));
    texts.push(format!("<script>{}", "</script".repeat(bytes / 8)));
    texts.push(format!("<option>{}", "&no".repeat(bytes / 3)));
    texts
}

fn shortest(mut work: impl FnMut(), times: u32) -> Duration {
    let measure = |_| {
        let began = busy();
        work();
        busy().saturating_sub(began)
    };
    (0..times).map(measure).min().expect("a measurement")
}

/// Time that this thread has had on a processor, so that other work of the machine does not count. Where the system does not
/// tell it, the time that has passed.
fn busy() -> Duration {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    // Otherwise the kernel brings the number up to date only at its next tick, milliseconds later.
    std::thread::yield_now();
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.and_then(|told| told.split_whitespace().next()?.parse::<u64>().ok());
    nanoseconds.map_or_else(|| BEGAN.elapsed(), Duration::from_nanos)
}

/// Relative, because machines differ. The work of a quadratic search would grow 64 times.
#[test]
fn work_grows_no_faster_than_the_text() {
    let allowed = [HostPattern::parse("example.org").expect("a host")];
    // Before the limit for letters applies.
    let check = |text: &String| {
        let (normalised, is_cut) = (normalised(text), false);
        let forms = Forms { skeleton: skeleton(&normalised), letters: 0, normalised, is_cut };
        BUILT_IN.matches(&forms.skeleton);
        has_invitation(&forms);
        has_link(&forms, &allowed);
    };
    let read = |html: &String| {
        texts_of_html(html);
    };
    let grows = |small: &String, large: &String, work: &dyn Fn(&String)| {
        // Several times, because reading the time costs about as much as a short text.
        let time = |text: &String| shortest(|| (0..5).for_each(|_| work(text)), 3);
        let (before, after) = (time(small), time(large));
        assert!(after < before * 24, "{:?}: {before:?}, eight times as long: {after:?}", &large[..large.len().min(60)]);
    };
    check(&"warm".to_owned());
    for (small, large) in plain_texts(500).iter().zip(plain_texts(4_000)) {
        grows(small, &large, &check);
    }
    for (small, large) in html_texts(500).iter().zip(html_texts(4_000)) {
        grows(small, &large, &read);
    }
}

#[test]
fn checked_letters_are_limited() {
    for text in plain_texts(EVENT_BYTES) {
        let forms = Forms::of(&text, MOST_LETTERS);
        assert!(forms.letters <= MOST_LETTERS && forms.normalised.chars().count() == forms.letters);
        assert!(forms.skeleton.chars().count() <= 4 * MOST_LETTERS);
        assert_eq!(forms.is_cut, normalised(&text).chars().count() > MOST_LETTERS);
    }
}

/// Prints the times of the worst events. `cargo nextest run --release --run-ignored only --no-capture worst_events_are_timed`.
#[test]
#[ignore = "prints times, which depend on the machine"]
#[expect(clippy::print_stdout, reason = "the times are for the reader")]
fn worst_events_are_timed() {
    let allowed = [HostPattern::parse("example.org").expect("a host")];
    let judge = |raw: &str| {
        let mut left = MOST_LETTERS;
        for text in ChatMessage::read(raw).iter().flat_map(ChatMessage::texts) {
            let forms = Forms::of(text, left);
            left -= forms.letters;
            has_listed_word(&forms);
            has_invitation(&forms);
            has_link(&forms, &allowed);
        }
    };
    let event = |content: serde_json::Value| {
        json!({"event_id": "$1", "room_id": "!r:s", "type": "m.room.message", "sender": "@a:s", "content": content})
            .to_string()
    };
    let plain = plain_texts(EVENT_BYTES).into_iter().map(|text| (text.clone(), event(json!({"body": text}))));
    let html = html_texts(EVENT_BYTES)
        .into_iter()
        .map(|html| (html.clone(), event(json!({"body": "x", "formatted_body": html}))));
    judge(&event(json!({"body": "warm"})));
    for (text, raw) in plain.chain(html) {
        let beginning: String = text.chars().take(24).collect();
        println!("{:>8.2} ms  {beginning:?}", shortest(|| judge(&raw), 3).as_secs_f64() * 1e3);
    }
}
