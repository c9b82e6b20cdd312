//! Memory of the prefix codes of a lossless WebP image.
//!
//! Each block of the image may have its own set of five codes, up to 65,536 sets, and the decoder makes a table of up to
//! four kibibytes from each code. A code takes about a dozen bytes in the file, so the tables of a file of two mebibytes could
//! take more than half a gibibyte. This module reads the file up to its last code, without decoding the image, and adds up
//! the tables. (Bitstream: RFC 9649, section 3.)

use crate::{Error, MEMORY_LIMIT};

/// Alphabets of the five codes of a set; the first one grows by the size of the colour cache.
const ALPHABETS: [usize; 5] = [256 + 24, 256, 256, 256, 40];
const LENGTH_ORDER: [usize; 19] = [17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
const LONGEST: usize = 15;

/// Bytes that the decoder's tables take. `content` starts after the dimensions.
pub(crate) fn memory(content: &[u8], width: u32, height: u32) -> Result<u64, Error> {
    let mut bits = Bits { bytes: content, at: 0 };
    let mut width = width;
    let mut total = 0;
    let mut seen = [false; 4];
    while bits.read(1)? == 1 {
        let transform = bits.read(2)?;
        if std::mem::replace(&mut seen[transform as usize], true) {
            return Err(Error::Damaged);
        }
        match transform {
            0 | 1 => {
                let size = bits.read(3)? + 2;
                skip_image(&mut bits, width.div_ceil(1 << size), height.div_ceil(1 << size))?;
            }
            2 => {}
            _ => {
                let colours = bits.read(8)? + 1;
                skip_image(&mut bits, colours, 1)?;
                let packed = match colours {
                    ..=2 => 3,
                    3..=4 => 2,
                    5..=16 => 1,
                    _ => 0,
                };
                width = width.div_ceil(1 << packed);
            }
        }
    }
    let cache = cache_size(&mut bits)?;
    let mut sets = 1;
    if bits.read(1)? == 1 {
        let size = bits.read(3)? + 2;
        sets = skip_image(&mut bits, width.div_ceil(1 << size), height.div_ceil(1 << size))? + 1;
    }
    for _ in 0..sets {
        total += SET_MEMORY;
        for code in read_set(&mut bits, cache)? {
            total += code.memory();
        }
        if total > MEMORY_LIMIT {
            return Err(Error::TooMuchMemory);
        }
    }
    Ok(total)
}

/// The decoder's structures for a set, in a vector that may have doubled just before it was full.
const SET_MEMORY: u64 = 5 * 64 * 3;

/// Reads an image of the auxiliary kind, and returns its largest value of the red and green channels, which is the largest
/// number of a set in the entropy image. Copied and cached pixels repeat earlier ones, so only literal ones count.
fn skip_image(bits: &mut Bits, width: u32, height: u32) -> Result<u32, Error> {
    let cache = cache_size(bits)?;
    let [green, red, blue, alpha, distance] = read_set(bits, cache)?;
    let mut largest = 0;
    let mut missing = i64::from(width) * i64::from(height);
    while missing > 0 {
        match green.read(bits)? {
            value @ ..256 => {
                largest = largest.max((red.read(bits)? << 8) | value);
                blue.read(bits)?;
                alpha.read(bits)?;
                missing -= 1;
            }
            length @ ..280 => {
                missing -= i64::from(bits.read_number(length - 256)?);
                let symbol = distance.read(bits)?;
                bits.read_number(symbol)?;
            }
            _ => missing -= 1,
        }
    }
    Ok(largest)
}

fn cache_size(bits: &mut Bits) -> Result<usize, Error> {
    if bits.read(1)? == 0 {
        return Ok(0);
    }
    match bits.read(4)? {
        size @ 1..=11 => Ok(1 << size),
        _ => Err(Error::Damaged),
    }
}

fn read_set(bits: &mut Bits, cache: usize) -> Result<[Code; 5], Error> {
    let mut set = [const { Code { counts: [0; LONGEST + 1], symbols: Vec::new() } }; 5];
    for (index, code) in set.iter_mut().enumerate() {
        *code = read_code(bits, ALPHABETS[index] + if index == 0 { cache } else { 0 })?;
    }
    Ok(set)
}

fn read_code(bits: &mut Bits, alphabet: usize) -> Result<Code, Error> {
    if bits.read(1)? == 1 {
        let two = bits.read(1)? == 1;
        let wide = bits.read(1)?;
        let mut symbols = vec![bits.read(1 + 7 * wide)?];
        if two {
            symbols.push(bits.read(8)?);
        }
        if symbols.iter().any(|symbol| *symbol as usize >= alphabet) {
            return Err(Error::Damaged);
        }
        let mut counts = [0; LONGEST + 1];
        counts[usize::from(two)] = symbols.len();
        return Ok(Code { counts, symbols });
    }
    let mut lengths = [0; LENGTH_ORDER.len()];
    let count = bits.read(4)? as usize + 4;
    for symbol in LENGTH_ORDER.iter().take(count) {
        lengths[*symbol] = bits.read(3)? as usize;
    }
    let code = Code::new(&lengths)?;
    let mut left = alphabet;
    if bits.read(1)? == 1 {
        let width = 2 + 2 * bits.read(3)?;
        left = bits.read(width)? as usize + 2;
    }
    let mut lengths = Vec::with_capacity(alphabet);
    let mut previous = 8;
    while lengths.len() < alphabet && left > 0 {
        left -= 1;
        let (length, times) = match code.read(bits)? {
            16 => (previous, 3 + bits.read(2)?),
            17 => (0, 3 + bits.read(3)?),
            18 => (0, 11 + bits.read(7)?),
            length => (length as usize, 1),
        };
        if length != 0 {
            previous = length;
        }
        lengths.extend(std::iter::repeat_n(length, times as usize));
    }
    if lengths.len() > alphabet {
        return Err(Error::Damaged);
    }
    Code::new(&lengths)
}

/// A canonical prefix code: the number of symbols of each length, and the symbols in the order of their codes.
struct Code {
    counts: [usize; LONGEST + 1],
    symbols: Vec<u32>,
}

impl Code {
    fn new(lengths: &[usize]) -> Result<Self, Error> {
        let mut counts = [0; LONGEST + 1];
        for &length in lengths {
            counts[length] += 1;
        }
        // Symbols without a length have no code.
        counts[0] = 0;
        // Places the symbols in one pass: a file can have a quarter of a million codes, some with thousands of lengths.
        let mut next = [0; LONGEST + 1];
        for length in 1..=LONGEST {
            next[length] = next[length - 1] + counts[length - 1];
        }
        let mut symbols = vec![0; next[LONGEST] + counts[LONGEST]];
        for (symbol, &length) in (0u32..).zip(lengths).filter(|(_, length)| **length > 0) {
            symbols[next[length]] = symbol;
            next[length] += 1;
        }
        match symbols.len() {
            0 => Err(Error::Damaged),
            // The only symbol needs no bits.
            1 => {
                counts = [0; LONGEST + 1];
                counts[0] = 1;
                Ok(Self { counts, symbols })
            }
            _ => {
                let used: usize = (1..=LONGEST).map(|length| counts[length] << (LONGEST - length)).sum();
                if used == 1 << LONGEST { Ok(Self { counts, symbols }) } else { Err(Error::Damaged) }
            }
        }
    }

    fn read(&self, bits: &mut Bits) -> Result<u32, Error> {
        if self.counts[0] == 1 {
            return Ok(self.symbols[0]);
        }
        let (mut code, mut first, mut index) = (0, 0, 0);
        for count in &self.counts[1..] {
            code |= bits.read(1)? as usize;
            if code < first + count {
                return self.symbols.get(index + code - first).copied().ok_or(Error::Damaged);
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        Err(Error::Damaged)
    }

    /// The decoder's table of at most ten bits, and a tree for longer codes.
    fn memory(&self) -> u64 {
        let longest = self.counts.iter().rposition(|count| *count > 0).unwrap_or(0);
        if longest == 0 {
            return 0;
        }
        let long: usize = self.counts[11..].iter().sum();
        // Two nodes for each symbol, in a vector that may have doubled.
        (4 << longest.min(10)) + long as u64 * 2 * 16 * 2
    }
}

/// Reads bits, the least significant ones first.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn read(&mut self, count: u32) -> Result<u32, Error> {
        let mut value = 0;
        for index in 0..count {
            let byte = self.bytes.get(self.at / 8).ok_or(Error::Truncated)?;
            value |= u32::from(byte >> (self.at % 8) & 1) << index;
            self.at += 1;
        }
        Ok(value)
    }

    /// A length or distance: its symbol gives the number of further bits.
    fn read_number(&mut self, symbol: u32) -> Result<u32, Error> {
        if symbol < 4 {
            return Ok(symbol + 1);
        }
        let extra = (symbol - 2) >> 1;
        Ok(((2 + (symbol & 1)) << extra) + self.read(extra)? + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packs values of these numbers of bits, the least significant ones first.
    fn packed(values: &[(u32, u32)]) -> Vec<u8> {
        let bits: Vec<bool> =
            values.iter().flat_map(|&(value, count)| (0..count).map(move |bit| value >> bit & 1 == 1)).collect();
        bits.chunks(8).map(|byte| byte.iter().rev().fold(0, |sum, bit| sum << 1 | u8::from(*bit))).collect()
    }

    /// Reads an entropy image of one pixel, which copies an earlier one at the distance of this symbol.
    fn read_distance(symbol: u32) -> Result<u64, Error> {
        // No transform and no colour cache; an entropy image with blocks of 4 × 4 pixels, without a colour cache.
        let mut values = vec![(0, 1), (0, 1), (1, 1), (0, 3), (0, 1)];
        // The only symbol of the first code is 256, a copy of one pixel. The code of its lengths has two symbols of one bit:
        // the length 1, and 18, which repeats zeros.
        values.extend([(0, 1), (0, 4), (0, 3), (1, 3), (0, 3), (1, 3), (0, 1)]);
        values.extend([(1, 1), (138 - 11, 7), (1, 1), (118 - 11, 7), (0, 1), (1, 1), (23 - 11, 7)]);
        for symbol in [0, 0, 0, symbol] {
            values.extend([(1, 1), (0, 1), (1, 1), (symbol, 8)]);
        }
        memory(&packed(&values), 4, 4)
    }

    #[test]
    fn symbol_outside_its_alphabet_is_refused() {
        assert_eq!(read_distance(39), Err(Error::Truncated), "a distance without its further bits");
        for symbol in [40, 255] {
            assert_eq!(read_distance(symbol), Err(Error::Damaged), "{symbol}");
        }
    }

    #[test]
    fn symbols_are_in_the_order_of_their_codes() {
        let code = Code::new(&[3, 0, 1, 3, 2]).expect("a complete code");
        assert_eq!((code.symbols, &code.counts[..5]), (vec![2, 4, 0, 3], &[0, 1, 1, 2, 0][..]));
        for incomplete in [&[1, 2][..], &[1, 1, 1], &[0, 0], &[]] {
            assert!(Code::new(incomplete).is_err(), "{incomplete:?}");
        }
    }
}
