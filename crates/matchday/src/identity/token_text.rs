//! Digits and checksum of the tokens of sessions and server keys; no I/O.

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// 256 bits in base 62.
pub(super) const SECRET_LENGTH: usize = 43;
/// 32 bits in base 62.
const CHECKSUM_LENGTH: usize = 6;

/// CRC-32 of a token's text up to the checksum. It rejects typos without a query.
pub(super) fn checksum(start: &str) -> String {
    base62(&crc32fast::hash(start.as_bytes()).to_be_bytes(), CHECKSUM_LENGTH)
}

pub(super) fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(b"0123456789abcdefghijklmnopqrstuvwxyz"[usize::try_from(number % 36).unwrap_or(0)]);
        number /= 36;
        if number == 0 {
            break;
        }
    }
    digits.iter().rev().map(|&digit| char::from(digit)).collect()
}

/// The big-endian number in base 62, padded to `length`.
pub(super) fn base62(bytes: &[u8], length: usize) -> String {
    let mut number = bytes.to_vec();
    let mut digits = vec![b'0'; length];
    for digit in digits.iter_mut().rev() {
        let mut remainder = 0_u32;
        for byte in &mut number {
            let value = (remainder << 8) | u32::from(*byte);
            *byte = u8::try_from(value / 62).unwrap_or(u8::MAX);
            remainder = value % 62;
        }
        *digit = DIGITS[remainder as usize];
    }
    digits.iter().map(|&digit| char::from(digit)).collect()
}
