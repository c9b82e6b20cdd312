//! Charts as SVG for light and dark pages.

use std::fmt::Write as _;

use super::{readable, thousands};
use crate::outcome::{Goal, Outcome};

const STYLE: &str = "
  <style>
    text { font: 13px system-ui, sans-serif; fill: #1f2328; }
    .title { font-size: 16px; font-weight: 600; }
    .small { font-size: 11px; fill: #59636e; }
    .grid { stroke: #d1d9e0; stroke-width: 1; }
    .even { stroke: #59636e; stroke-width: 1.5; }
    .ours { fill: #2b6cb0; } .bare { fill: #a0aec0; } .missed { fill: #c05621; }
    .spread { stroke: #1f2328; stroke-width: 1.5; } .goal { stroke: #2f855a; stroke-width: 2; stroke-dasharray: 4 3; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; } .small { fill: #9198a1; } .grid { stroke: #3d444d; } .even { stroke: #9198a1; }
      .ours { fill: #63b3ed; } .bare { fill: #4a5568; } .missed { fill: #ed8936; } .spread { stroke: #e6edf3; }
      .goal { stroke: #68d391; }
    }
  </style>
";

/// Horizontal position of ratio 1, and width of a factor of ten.
const EVEN: f64 = 420.0;
const DECADE: f64 = 210.0;

/// A bar for each ratio, from 1 to the left or right. The scale is logarithmic, so that twice and half have the same
/// length.
pub(crate) fn ratios(outcomes: &[&Outcome]) -> String {
    let height = 90 + 34 * outcomes.len();
    let mut svg = String::new();
    let title = "Matchday compared with the bare engine";
    let _ = write!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" width="760" height="{height}" role="img" aria-label="{title}">{STYLE}"#
    );
    let _ = writeln!(svg, r#"  <text class="title" x="16" y="26">{title}</text>"#);
    let bottom = height - 34;
    for (mark, class) in [
        (0.1, "grid"),
        (0.2, "grid"),
        (0.5, "grid"),
        (1.0, "even"),
        (2.0, "grid"),
        (5.0, "grid"),
        (10.0, "grid"),
        (20.0, "grid"),
    ] {
        let x = place(mark);
        let _ = writeln!(svg, r#"  <line class="{class}" x1="{x:.1}" x2="{x:.1}" y1="42" y2="{bottom}"/>"#);
        let _ = writeln!(
            svg,
            r#"  <text class="small" x="{x:.1}" y="{}" text-anchor="middle">{mark}×</text>"#,
            bottom + 16
        );
    }
    for (index, outcome) in outcomes.iter().enumerate() {
        let y = 52 + 34 * index;
        let at = place(outcome.ratio);
        let missed = outcome.goal.is_some_and(|goal| !goal.is_met(outcome.ratio));
        let class = if missed { "missed" } else { "ours" };
        let less = outcome.unit == "ms" || outcome.unit.starts_with("KB ");
        let note = if less { " (less is better)" } else { "" };
        let _ = writeln!(
            svg,
            r#"  <text x="16" y="{}">{}<tspan class="small">{note}</tspan></text>"#,
            y + 15,
            outcome.scenario
        );
        let (left, width) = (at.min(EVEN), (at - EVEN).abs().max(1.0));
        let _ =
            writeln!(svg, r#"  <rect class="{class}" x="{left:.1}" y="{y}" width="{width:.1}" height="20" rx="2"/>"#);
        let (low, high, middle) = (place(outcome.spread[0]), place(outcome.spread[1]), y + 10);
        let _ = writeln!(svg, r#"  <line class="spread" x1="{low:.1}" x2="{high:.1}" y1="{middle}" y2="{middle}"/>"#);
        if let Some(Goal::AtLeast(goal) | Goal::AtMost(goal)) = outcome.goal {
            let x = place(goal);
            let _ = writeln!(svg, r#"  <line class="goal" x1="{x:.1}" x2="{x:.1}" y1="{}" y2="{}"/>"#, y - 4, y + 24);
        }
        let _ = writeln!(
            svg,
            r#"  <text x="{:.1}" y="{}">{:.2}×</text>"#,
            at.max(high).max(EVEN) + 8.0,
            y + 15,
            outcome.ratio
        );
    }
    let _ = writeln!(
        svg,
        r#"  <text class="small" x="16" y="{}">bars: median of the rounds; lines: lowest and highest round; dashed lines: the goal</text>"#,
        height - 4
    );
    svg.push_str("</svg>\n");
    svg
}

fn place(ratio: f64) -> f64 {
    (EVEN + DECADE * 0.8 * ratio.max(0.05).log10()).clamp(190.0, 690.0)
}

/// Microseconds per score, by the number of predictions for the match.
pub(crate) fn sizes(outcomes: &[&Outcome]) -> String {
    let title = "Microseconds per score, by number of predictions for the match";
    let most = outcomes.iter().flat_map(|outcome| [1e6 / outcome.ours, 1e6 / outcome.bare]).fold(0.0, f64::max);
    let mut svg = String::new();
    let _ = write!(
        svg,
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 320" width="760" height="320" role="img" aria-label="{title}">{STYLE}"#
    );
    let _ = writeln!(svg, r#"  <text class="title" x="16" y="26">{title}</text>"#);
    let scale = 200.0 / most.max(1e-9);
    for quarter in 0..=4_i32 {
        let (value, y) = (most * f64::from(quarter) / 4.0, 262.0 - 50.0 * f64::from(quarter));
        let _ = writeln!(svg, r#"  <line class="grid" x1="60" x2="740" y1="{y}" y2="{y}"/>"#);
        let _ = writeln!(
            svg,
            r#"  <text class="small" x="52" y="{}" text-anchor="end">{}</text>"#,
            y + 4.0,
            readable(value)
        );
    }
    for (outcome, x) in outcomes.iter().zip([90_i32, 310, 530]) {
        for (name, rate, class, x) in [("ours", outcome.ours, "ours", x), ("bare update", outcome.bare, "bare", x + 90)]
        {
            let (time, height) = (1e6 / rate, scale * 1e6 / rate);
            let y = 262.0 - height;
            let _ =
                writeln!(svg, r#"  <rect class="{class}" x="{x}" y="{y:.1}" width="80" height="{height:.1}" rx="2"/>"#);
            let middle = x + 40;
            let _ = writeln!(
                svg,
                r#"  <text x="{middle}" y="{:.1}" text-anchor="middle">{}</text>"#,
                y - 6.0,
                readable(time)
            );
            let _ = writeln!(svg, r#"  <text class="small" x="{middle}" y="278" text-anchor="middle">{name}</text>"#);
        }
        let size = thousands(outcome.size.unwrap_or_default());
        let _ = writeln!(svg, r#"  <text x="{}" y="302" text-anchor="middle">{size} predictions</text>"#, x + 85);
    }
    svg.push_str("</svg>\n");
    svg
}
