use std::{fs, path::PathBuf};

use jiff::tz::TimeZoneDatabase;
use proptest::prelude::*;

use super::*;

fn locale(tag: &str) -> Locale {
    Locale::parse(tag).expect("a tag")
}

fn catalogue() -> Catalogue {
    Catalogue::load(&Locale::default(), None).expect("the built-in messages")
}

/// A directory with files, removed when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let path = std::env::temp_dir().join(format!("texts-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("created");
        for (file, text) in files {
            let file = path.join(file);
            fs::create_dir_all(file.parent().expect("a directory")).expect("created");
            fs::write(file, text).expect("written");
        }
        Self(path)
    }

    fn load(&self) -> Result<Catalogue, String> {
        Catalogue::load(&Locale::default(), Some(&self.0))
            .map_err(|error| error.to_string().replace(&format!("{}/", self.0.display()), ""))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn locales_have_the_ids_and_arguments_of_english() {
    let read = |(locale, source): (&str, &str)| Messages::read(locale, source).expect("messages").arguments;
    let english = read(BUILT_IN[0]);
    assert_eq!(BUILT_IN.map(|(locale, _)| locale), ["en", "de", "es", "fr"]);
    for kind in ["reminder", "moved", "result", "correction", "passed", "invitation", "mention", "streak"] {
        for part in ["title", "body"] {
            assert!(english.contains_key(&format!("push-{kind}-{part}")), "{kind}");
        }
    }
    assert!(english.contains_key("sms-login-code") && english.contains_key("sms-verification-code"));
    for other in BUILT_IN {
        assert_eq!(read(other), english, "{}", other.0);
    }
}

/// Formats every message in every locale with all its arguments.
#[test]
fn every_message_can_be_formatted() {
    let catalogue = catalogue();
    let arguments = Messages::read("en", BUILT_IN[0].1).expect("messages").arguments;
    for (tag, _) in BUILT_IN {
        for (id, names) in &arguments {
            for number in [0, 1, 2, 5, 12] {
                let bundle = &catalogue.bundles[tag];
                let pattern = bundle.get_message(id).and_then(|message| message.value()).expect("a message");
                let mut args = Args::new();
                for name in names {
                    args = if ["points", "days", "winners", "count", "weekday", "month"].contains(&name.as_str()) {
                        args.number(name, number)
                    } else {
                        args.text(name, "Ada { $x }")
                    };
                }
                let mut errors = Vec::new();
                let text = bundle.format_pattern(pattern, Some(&args.0), &mut errors);
                assert!(errors.is_empty() && !text.is_empty() && !text.contains('\n'), "{tag} {id}: {text} {errors:?}");
                assert!(!text.contains(['\u{2068}', '\u{2069}']), "{text}");
            }
        }
    }
}

#[test]
fn texts_follow_locale_and_plural() {
    let catalogue = catalogue();
    let body = |tag: &str, points: i64| {
        catalogue.text(&locale(tag), "push-result-body", &Args::new().number("points", points))
    };
    for (tag, points, expected) in [
        ("en", 1, "Your prediction scored 1 point."),
        ("en", 0, "Your prediction scored 0 points."),
        ("en-GB", -12, "Your prediction scored -12 points."),
        ("de", 1, "Dein Tipp bringt 1 Punkt."),
        ("de-AT", 7, "Dein Tipp bringt 7 Punkte."),
        ("es-419", 7, "Tu pronóstico suma 7 puntos."),
        ("fr", 0, "Votre pronostic rapporte 0 point."),
        ("pt-BR", 7, "Your prediction scored 7 points."),
    ] {
        assert_eq!(body(tag, points), expected, "{tag}");
    }
    let moved = |status: &str| {
        let args = Args::new().text("status", status).text("start", "now");
        catalogue.text(&locale("en"), "push-moved-body", &args)
    };
    assert_eq!(moved("moved"), "New kick-off: now.");
    assert_eq!(moved("postponed"), "The match was postponed.");
    assert_eq!(moved("cancelled"), "The match was cancelled.");
}

#[test]
fn times_are_shown_in_the_time_zone() {
    let catalogue = catalogue();
    // 20 November 2026, 15:50 UTC, a Friday.
    let at = 1_795_189_800;
    let zones = TimeZoneDatabase::bundled();
    for (tag, zone, expected) in [
        ("en", None, "Fri 20 Nov, 15:50 UTC"),
        ("en", Some("Europe/London"), "Fri 20 Nov, 15:50"),
        ("de", Some("Europe/Berlin"), "Fr., 20. Nov., 16:50 Uhr"),
        ("es", Some("America/Bogota"), "vie 20 nov, 10:50"),
        ("fr", Some("Pacific/Auckland"), "sam. 21 nov., 04:50"),
    ] {
        let zone = zone.map(|zone| zones.get(zone).expect("a zone"));
        assert_eq!(catalogue.time(&locale(tag), at, zone.as_ref()), expected, "{tag}");
    }
}

#[test]
fn overrides_replace_single_messages() {
    let files = Directory::new(
        "replace",
        &[
            ("de/messages.ftl", "push-passed-body = Jetzt Platz { $rank }"),
            ("de-AT/messages.ftl", "push-mention-body = { $user } braucht di"),
            ("pt-BR/messages.ftl", "push-streak-title = Sua sequência\nbot-goal = Gol!"),
            ("README.md", "ignored"),
            (".git/config", "ignored"),
        ],
    );
    let catalogue = files.load().expect("a catalogue");
    let text = |tag: &str, id: &str| {
        catalogue.text(&locale(tag), id, &Args::new().text("rank", "3").text("user", "Ada").text("room", "R"))
    };
    assert_eq!(text("de-AT", "push-passed-body"), "Jetzt Platz 3", "from the language");
    assert_eq!(text("de-AT", "push-mention-body"), "Ada braucht di");
    assert_eq!(text("de", "push-mention-body"), "Ada hat dich erwähnt.");
    assert_eq!(text("pt-BR", "push-streak-title"), "Sua sequência");
    assert_eq!(text("pt-BR", "push-mention-body"), "Ada mentioned you.");
    assert_eq!(text("pt", "push-streak-title"), "Your daily streak");
    let german = Catalogue::load(&locale("de-CH"), Some(&files.0)).expect("a catalogue");
    assert_eq!(german.text(&locale("pt-BR"), "push-passed-body", &Args::new().text("rank", "3")), "Jetzt Platz 3");
    assert_eq!(german.default_text("bot-no-result", &Args::new()), "kein Ergebnis");
}

#[test]
fn faulty_overrides_are_named() {
    for (name, file, text, expected) in [
        ("syntax", "de/messages.ftl", "# Text\npush-passed-body = { $rank\n", "de/messages.ftl:3: syntax error: "),
        ("junk", "de/messages.ftl", "ok\n", "de/messages.ftl:1: syntax error: "),
        ("id", "de/messages.ftl", "push-goal-body = Tor", "de/messages.ftl: the message `push-goal-body` is unknown"),
        ("term", "de/messages.ftl", "-brand = X", "de/messages.ftl: the message `brand` is unknown"),
        (
            "argument",
            "de/messages.ftl",
            "push-passed-body = { $rank ->\n    [one] eins\n   *[other] { $team }\n}",
            "de/messages.ftl: the message `push-passed-body` uses the argument `$team`, which it does not get",
        ),
        (
            "reference",
            "de/messages.ftl",
            "push-passed-body = { push-mention-body }",
            "de/messages.ftl: the message `push-passed-body` refers to `push-mention-body`; only arguments and NUMBER can be used",
        ),
        (
            "function",
            "de/messages.ftl",
            "push-passed-body = { DATETIME($rank) }",
            "de/messages.ftl: the message `push-passed-body` refers to `DATETIME`; only arguments and NUMBER can be used",
        ),
        (
            "twice",
            "de/messages.ftl",
            "push-passed-body = a\npush-passed-body = b",
            "de/messages.ftl: the message `push-passed-body` is defined twice",
        ),
        (
            "text",
            "de/messages.ftl",
            "push-passed-body =\n    .title = a",
            "de/messages.ftl: the message `push-passed-body` has no text",
        ),
        (
            "directory",
            "german/messages.ftl",
            "",
            "german: the name of the directory is not a language tag such as de or pt-BR",
        ),
        ("missing", "de/other.ftl", "", "de/messages.ftl cannot be read: "),
    ] {
        let error = Directory::new(name, &[(file, text)]).load().expect_err(name);
        assert!(error.starts_with(expected) && !error.contains('\n'), "{error}");
    }
    let unknown = Catalogue::load(&locale("pt"), None).expect_err("no messages");
    assert_eq!(unknown.to_string(), "the default locale `pt` has no messages");
    let absent = Catalogue::load(&Locale::default(), Some(Path::new("/nowhere/texts"))).expect_err("no directory");
    assert!(absent.to_string().starts_with("/nowhere/texts cannot be read: "), "{absent}");
}

#[test]
fn tags_are_validated() {
    for good in ["en", "gsw", "de-AT", "zh-Hant", "zh-Hant-TW", "es-419"] {
        assert_eq!(Locale::parse(good).expect("a tag").as_str(), good);
    }
    for bad in
        ["", "e", "english", "EN", "en_US", "en-us", "en-", "de-AT-x", "zh-hant", "de-A", "es-41", "de-AT-Latn", "dé"]
    {
        assert_eq!(Locale::parse(bad), None, "{bad}");
    }
    assert_eq!(locale("zh-Hant-TW").chain().collect::<Vec<_>>(), ["zh-Hant-TW", "zh-Hant", "zh"]);
}

proptest! {
    #[test]
    fn any_text_is_inserted_as_it_is(tag in "[a-z]{2}(-[A-Z]{2})?", value in "\\PC*") {
        let text = catalogue().text(&locale(&tag), "push-passed-title", &Args::new().text("league", value.as_str()));
        prop_assert_eq!(text, value);
    }

    #[test]
    fn parsers_never_panic(tag in "\\PC*", source in "[a-z$ {}*\\[\\]=.\n-]{0,60}") {
        let _ = Locale::parse(&tag);
        let _ = Messages::read("file", &source);
    }

    #[test]
    fn any_time_is_shown(seconds in -100_000_000_000_i64..100_000_000_000) {
        prop_assert!(!catalogue().time(&Locale::default(), seconds, None).is_empty());
    }
}
