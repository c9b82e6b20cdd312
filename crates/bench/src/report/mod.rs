//! Generates `docs/performance.md` and `docs/reliability.md` from the results of real runs.

mod chart;
pub(crate) mod machine;
pub(crate) mod performance;
pub(crate) mod reliability;

/// Formats a number with two or three significant digits and thousands separators.
fn readable(number: f64) -> String {
    if !number.is_finite() {
        return "–".to_owned();
    }
    let size = number.abs();
    if size < 0.995 {
        return format!("{number:.2}");
    }
    if size < 99.5 {
        return format!("{number:.1}");
    }
    // More digits would suggest a precision that the noise does not allow.
    let step = 10_f64.powf((size.log10().floor() - 2.0).max(0.0));
    #[expect(clippy::cast_possible_truncation, reason = "no figure here is that large")]
    let rounded = ((number / step).round() * step) as i64;
    thousands(rounded.unsigned_abs())
}

/// Formats a whole number with thousands separators.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_two_or_three_significant_digits() {
        for (number, text) in
            [(0.123, "0.12"), (2.345, "2.3"), (33_447.0, "33,400"), (1_234_567.0, "1,230,000"), (100.4, "100")]
        {
            assert_eq!(readable(number), text);
        }
    }
}
