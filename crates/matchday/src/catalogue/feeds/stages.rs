//! Stages of a tournament, under the same names whichever provider reports them; no I/O.

use super::reading;

/// Stages in which one team of each match advances, in their order. Rounds with a number come before them.
const LAST: [&str; 4] = ["quarter_final", "semi_final", "third_place", "final"];

/// Returns the stage that a provider's text names, as in `Quarter-finals`, `LAST_16` or `Group A`. Other texts become
/// slugs. Returns `None` for a round that is only numbered, as in `Matchday 12`.
pub(super) fn stage(text: &str) -> Option<String> {
    let slug = reading::slug(text);
    let words: Vec<&str> = slug.split('_').collect();
    let is = |word: &str| words.iter().any(|other| other.trim_end_matches('s') == word);
    let number = words.iter().find_map(|word| word.trim_end_matches(|c: char| c.is_alphabetic()).parse::<u16>().ok());
    let is_among = |names: &[&str]| words.first().is_some_and(|first| names.contains(first));
    Some(match number {
        Some(number) if is("last") || (is("round") && is("of")) => format!("round_of_{number}"),
        Some(_) if is_among(&["matchday", "round", "week", "spieltag", "jornada"]) && words.len() == 2 => return None,
        _ if is("group") => "group".to_owned(),
        _ if is("third") || is("3rd") => "third_place".to_owned(),
        _ if is("semi") || is("semifinal") => "semi_final".to_owned(),
        _ if is("quarter") || is("quarterfinal") => "quarter_final".to_owned(),
        _ if words == ["final"] || words == ["finals"] => "final".to_owned(),
        _ => slug,
    })
}

/// Whether one of the teams advances in a match of this stage, or wins the tournament.
pub(super) fn is_knockout(stage: &str) -> bool {
    order(stage).is_some()
}

/// Sort key of a knockout stage: a round of 32 comes before a round of 16, and the final comes last.
pub(super) fn order(stage: &str) -> Option<i32> {
    let size = |stage: &str| stage.strip_prefix("round_of_")?.parse::<i32>().ok();
    let last = |stage: &str| LAST.iter().position(|&last| last == stage).and_then(|at| i32::try_from(at).ok());
    last(stage).or_else(|| size(stage).map(|teams| -teams))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_have_one_name_for_all_providers() {
        for (texts, expected) in [
            (&["GROUP_STAGE", "Group A", "Group stage"][..], "group"),
            (&["LAST_16", "Round of 16", "round of 16"], "round_of_16"),
            (&["LAST_32", "Round of 32"], "round_of_32"),
            (&["QUARTER_FINALS", "Quarter-finals", "Quarterfinals", "Quarter-final"], "quarter_final"),
            (&["SEMI_FINALS", "Semi-finals", "Semifinals"], "semi_final"),
            (&["THIRD_PLACE", "Match for third place", "Third-place match"], "third_place"),
            (&["FINAL", "Final"], "final"),
            (&["REGULAR_SEASON"], "regular_season"),
        ] {
            for text in texts {
                assert_eq!(stage(text).as_deref(), Some(expected), "{text}");
            }
        }
        for text in ["Matchday 12", "Round 3", "Week 1", "12. Spieltag", "Spieltag 12"] {
            let found = stage(text);
            assert!(found.is_none() || found.as_deref() == Some("12_spieltag"), "{text}: {found:?}");
        }
    }

    #[test]
    fn knockout_stages_are_in_order() {
        let stages =
            ["round_of_64", "round_of_32", "round_of_16", "quarter_final", "semi_final", "third_place", "final"];
        assert!(stages.iter().all(|stage| is_knockout(stage)));
        assert!(stages.windows(2).all(|pair| order(pair[0]) < order(pair[1])));
        assert!(!is_knockout("group") && !is_knockout("regular_season") && !is_knockout("round_of_x"));
    }
}
