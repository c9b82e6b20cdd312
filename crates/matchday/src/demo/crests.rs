//! Crests for teams without a logo, drawn deterministically from the team's slug; no I/O.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// Colour combinations: field, charge, and letters on the charge.
const COLOURS: [(&str, &str, &str); 8] = [
    ("#0b3d5c", "#f2c14e", "#0b3d5c"),
    ("#7a1f2b", "#f4ede4", "#7a1f2b"),
    ("#1d5c3a", "#e9e3d0", "#1d5c3a"),
    ("#2b2d42", "#ef8354", "#2b2d42"),
    ("#4b2e83", "#d9c5f0", "#4b2e83"),
    ("#0f6e6e", "#ffd9a0", "#0f6e6e"),
    ("#8a4b08", "#fff3d6", "#8a4b08"),
    ("#1b3a8a", "#c9e4ff", "#1b3a8a"),
];

/// Draws a crest as SVG; `None` if the text is not a valid slug.
pub fn crest(slug: &str) -> Option<String> {
    let is_slug = (1..=63).contains(&slug.len())
        && slug.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if !is_slug {
        return None;
    }
    let digest = Sha256::digest(slug);
    let (field, charge, letters) = COLOURS[usize::from(digest[8]) % COLOURS.len()];
    let initials: String = slug
        .split('_')
        .filter_map(|word| word.chars().next())
        .take(3)
        .map(|letter| letter.to_ascii_uppercase())
        .collect();
    let mut svg = String::from(r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 120" role="img">"#);
    let _ = write!(svg, "<title>{initials}</title>");
    svg.push_str(r#"<clipPath id="s"><path d="M6 6h88v58c0 26-22 42-44 50C28 106 6 90 6 64z"/></clipPath>"#);
    let _ = write!(svg, r#"<g clip-path="url(#s)"><rect width="100" height="120" fill="{field}"/>"#);
    let shape = match digest[1] % 5 {
        0 => r#"<path d="M0 84 100 22v26L0 110z""#,
        1 => r#"<path d="M36 0h28v120H36z""#,
        2 => r#"<path d="M50 10 96 60 50 112 4 60z""#,
        3 => r#"<path d="M0 74l50-34 50 34v26L50 66 0 100z""#,
        _ => r#"<circle cx="50" cy="58" r="34""#,
    };
    let _ = write!(svg, r#"{shape} fill="{charge}"/></g>"#);
    let _ = write!(
        svg,
        r#"<path d="M6 6h88v58c0 26-22 42-44 50C28 106 6 90 6 64z" fill="none" stroke="{letters}" stroke-width="5"/>"#
    );
    let _ = write!(
        svg,
        r#"<text x="50" y="70" font-family="Georgia,serif" font-size="34" font-weight="700" text-anchor="middle"
            fill="{letters}" stroke="{charge}" stroke-width="6" paint-order="stroke">{initials}</text></svg>"#
    );
    Some(svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crest_is_deterministic_and_differs_between_teams() {
        let (first, second) = (crest("harbour_united").expect("a crest"), crest("mill_lane").expect("a crest"));
        assert_eq!(crest("harbour_united"), Some(first.clone()));
        assert_ne!(first, second);
        assert!(first.contains("<title>HU</title>") && first.starts_with("<svg") && first.ends_with("</svg>"));
    }

    #[test]
    fn invalid_slug_has_no_crest() {
        for other in ["", "Harbour", "a\"><script>", "ä", &"a".repeat(64)] {
            assert_eq!(crest(other), None, "{other}");
        }
    }
}
