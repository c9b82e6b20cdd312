//! Makes images, also such as no encoder makes.

#![allow(dead_code, reason = "each test suite uses some of it")]

use std::io::Write as _;

use flate2::{Compression, write::ZlibEncoder};
use image::{DynamicImage, ExtendedColorType, ImageFormat, RgbaImage, codecs::webp::WebPEncoder};

/// Lossy WebP images and kinds of JPEG that the encoders of these tests cannot make.
pub(crate) const LOSSY_WEBP: &[u8] = include_bytes!("../images/lossy.webp");
pub(crate) const LOSSY_ALPHA_WEBP: &[u8] = include_bytes!("../images/lossy-alpha.webp");
pub(crate) const ANIMATED_WEBP: &[u8] = include_bytes!("../images/animated.webp");
pub(crate) const PROGRESSIVE_JPEG: &[u8] = include_bytes!("../images/progressive.jpg");
pub(crate) const CMYK_JPEG: &[u8] = include_bytes!("../images/cmyk.jpg");

/// A picture with a red, a green, a blue and a white quarter.
pub(crate) fn quarters(width: u32, height: u32) -> DynamicImage {
    RgbaImage::from_fn(width, height, |x, y| {
        image::Rgba(match (x * 2 < width, y * 2 < height) {
            (true, true) => [255, 0, 0, 255],
            (false, true) => [0, 255, 0, 255],
            (true, false) => [0, 0, 255, 255],
            (false, false) => [255, 255, 255, 255],
        })
    })
    .into()
}

pub(crate) fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    match format {
        ImageFormat::Jpeg => image.to_rgb8().write_to(&mut file, format).expect("encoded"),
        _ => image.write_to(&mut file, format).expect("encoded"),
    }
    file.into_inner()
}

pub(crate) fn lossless_webp(image: &RgbaImage) -> Vec<u8> {
    let mut file = Vec::new();
    let encoder = WebPEncoder::new_lossless(&mut file);
    encoder.encode(image, image.width(), image.height(), ExtendedColorType::Rgba8).expect("encoded");
    file
}

/// Colour in the middle of each quarter of a JPEG, and its side.
pub(crate) fn colours(jpeg: &[u8]) -> ([[u8; 3]; 4], u32) {
    let image = image::load_from_memory_with_format(jpeg, ImageFormat::Jpeg).expect("a JPEG").to_rgb8();
    assert_eq!(image.width(), image.height());
    let (near, far) = (image.width() / 4, image.width() * 3 / 4);
    ([(near, near), (far, near), (near, far), (far, far)].map(|(x, y)| image.get_pixel(x, y).0), image.width())
}

pub(crate) fn is_about(found: [u8; 3], expected: [u8; 3]) -> bool {
    found.iter().zip(expected).all(|(a, b)| a.abs_diff(b) < 24)
}

// PNG

pub(crate) fn chunk(kind: [u8; 4], content: &[u8]) -> Vec<u8> {
    let mut named = kind.to_vec();
    named.extend(content);
    let length = u32::try_from(content.len()).expect("short").to_be_bytes();
    let checksum = crc32fast::hash(&named).to_be_bytes();
    [&length[..], &named, &checksum].concat()
}

pub(crate) fn header(width: u32, height: u32, depth: u8, colour_type: u8, interlaced: bool) -> Vec<u8> {
    let mut content = [width.to_be_bytes(), height.to_be_bytes()].concat();
    content.extend([depth, colour_type, 0, 0, interlaced.into()]);
    chunk(*b"IHDR", &content)
}

pub(crate) fn compressed(bytes: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    for part in bytes {
        encoder.write_all(&part).expect("compressed");
    }
    encoder.finish().expect("compressed")
}

pub(crate) fn png(chunks: &[Vec<u8>]) -> Vec<u8> {
    [b"\x89PNG\r\n\x1a\n".to_vec(), chunks.concat()].concat()
}

/// A PNG of zeros: these many bytes before compression.
pub(crate) fn black_png(header: Vec<u8>, length: usize) -> Vec<u8> {
    const PART: usize = 1 << 20;
    let parts = (0..length.div_ceil(PART)).map(|at| vec![0; PART.min(length - at * PART)]);
    png(&[header, chunk(*b"IDAT", &compressed(parts)), chunk(*b"IEND", b"")])
}

// JPEG

pub(crate) fn segment(marker: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len() + 2).expect("short").to_be_bytes();
    [&[0xFF, marker], &length[..], content].concat()
}

/// Metadata with an orientation and a text.
pub(crate) fn exif(orientation: u16, text: &[u8]) -> Vec<u8> {
    let mut content = b"Exif\0\0II*\0\x08\0\0\0\x02\0".to_vec();
    content.extend(b"\x12\x01\x03\0\x01\0\0\0");
    content.extend(orientation.to_le_bytes());
    content.extend(b"\0\0\x0e\x01\x02\0");
    content.extend(u32::try_from(text.len()).expect("short").to_le_bytes());
    content.extend(38u32.to_le_bytes());
    content.extend([0; 4]);
    content.extend(text);
    content
}

struct BitsOfJpeg(Vec<bool>);

impl BitsOfJpeg {
    fn push(&mut self, value: usize, count: usize) {
        self.0.extend((0..count).rev().map(|bit| value >> bit & 1 == 1));
    }

    fn finish(mut self) -> Vec<u8> {
        while !self.0.len().is_multiple_of(8) {
            self.0.push(true);
        }
        let mut bytes = Vec::new();
        for byte in self.0.chunks(8) {
            let byte = byte.iter().fold(0, |sum, bit| sum << 1 | u8::from(*bit));
            bytes.push(byte);
            if byte == 0xFF {
                bytes.push(0);
            }
        }
        bytes
    }
}

/// A grey progressive JPEG with this many scans, each of which takes a few bytes and runs over the whole image. `sampling`
/// has a byte for each component.
pub(crate) fn progressive_jpeg(width: u16, height: u16, sampling: &[u8], scans: usize) -> Vec<u8> {
    let count = u8::try_from(sampling.len()).expect("few");
    let most = |shift: u8| sampling.iter().map(|s| usize::from(s >> shift & 15)).max().expect("a component");
    let units = usize::from(width).div_ceil(8 * most(4)) * usize::from(height).div_ceil(8 * most(0));
    let per_unit: usize = sampling.iter().map(|s| usize::from(s >> 4) * usize::from(s & 15)).sum();
    let mut file = vec![0xFF, 0xD8];
    file.extend(segment(0xDB, &[vec![0], vec![8; 64]].concat()));
    let mut frame = vec![8];
    frame.extend([height.to_be_bytes(), width.to_be_bytes()].concat());
    frame.push(count);
    frame.extend((1..).zip(sampling).flat_map(|(id, sampling)| [id, *sampling, 0]));
    file.extend(segment(0xC2, &frame));
    // One code each: a difference of zero, and a run of empty blocks.
    let one_code = |class: u8, symbol: u8| [&[class, 1][..], &[0; 15], &[symbol]].concat();
    file.extend(segment(0xC4, &one_code(0x00, 0)));
    file.extend(segment(0xC4, &one_code(0x10, 0xE0)));
    let mut first = vec![count];
    first.extend((1..=count).flat_map(|id| [id, 0]));
    first.extend([0, 0, 0]);
    file.extend(segment(0xDA, &first));
    let mut bits = BitsOfJpeg(Vec::new());
    (0..units * per_unit).for_each(|_| bits.push(0, 1));
    file.extend(bits.finish());
    // Blocks of the first component without the padding of its units.
    let (h, v) = (usize::from(sampling[0] >> 4), usize::from(sampling[0] & 15));
    let blocks = (usize::from(width) * h).div_ceil(8 * most(4)) * (usize::from(height) * v).div_ceil(8 * most(0));
    for _ in 1..scans {
        file.extend(segment(0xDA, &[1, 1, 0, 1, 63, 0]));
        let (mut bits, mut left) = (BitsOfJpeg(Vec::new()), blocks);
        while left > 0 {
            let run = left.clamp(1 << 14, (1 << 15) - 1);
            bits.push(0, 1);
            bits.push(run - (1 << 14), 14);
            left = left.saturating_sub(run);
        }
        file.extend(bits.finish());
    }
    file.extend([0xFF, 0xD9]);
    file
}

/// A black JPEG whose only scan has not all components of its frame.
pub(crate) fn incomplete_jpeg(side: u16, components: u8, scanned: u8) -> Vec<u8> {
    let mut file = vec![0xFF, 0xD8];
    file.extend(segment(0xDB, &[vec![0], vec![8; 64]].concat()));
    let mut frame = vec![8];
    frame.extend([side.to_be_bytes(), side.to_be_bytes()].concat());
    frame.push(components);
    frame.extend((1..=components).flat_map(|id| [id, 0x11, 0]));
    file.extend(segment(0xC0, &frame));
    // One code each: a difference of zero, and the end of a block.
    for class in [0x00, 0x10] {
        file.extend(segment(0xC4, &[&[class, 1][..], &[0; 16]].concat()));
    }
    let mut scan = vec![scanned];
    scan.extend((1..=scanned).flat_map(|id| [id, 0]));
    scan.extend([0, 63, 0]);
    file.extend(segment(0xDA, &scan));
    let blocks = usize::from(side).div_ceil(8).pow(2) * usize::from(scanned);
    let mut bits = BitsOfJpeg(Vec::new());
    (0..blocks).for_each(|_| bits.push(0, 2));
    file.extend(bits.finish());
    file.extend([0xFF, 0xD9]);
    file
}

// WebP

pub(crate) fn riff(chunks: &[(&[u8; 4], &[u8])]) -> Vec<u8> {
    let mut body = b"WEBP".to_vec();
    for (name, content) in chunks {
        body.extend(*name);
        body.extend(u32::try_from(content.len()).expect("short").to_le_bytes());
        body.extend(*content);
        body.extend(vec![0; content.len() % 2]);
    }
    let length = u32::try_from(body.len()).expect("short").to_le_bytes();
    [b"RIFF", &length[..], &body].concat()
}

#[derive(Default)]
pub(crate) struct Bits(Vec<bool>);

impl Bits {
    pub(crate) fn push(&mut self, value: u32, count: u32) -> &mut Self {
        self.0.extend((0..count).map(|bit| value >> bit & 1 == 1));
        self
    }

    pub(crate) fn finish(&self) -> Vec<u8> {
        self.0.chunks(8).map(|byte| byte.iter().rev().fold(0, |sum, bit| sum << 1 | u8::from(*bit))).collect()
    }
}

/// Sizes of the alphabets of a set, with the largest colour cache.
const ALPHABETS: [u32; 5] = [280 + (1 << 11), 256, 256, 256, 40];

/// A lossless WebP image of 16 × 16 pixels that declares this many sets of prefix codes. `push_code` adds a code for an
/// alphabet of this size.
fn webp_with_codes(sets: u32, push_code: impl Fn(&mut Bits, u32)) -> Vec<u8> {
    let mut bits = Bits::default();
    bits.push(0x2F, 8).push(15, 14).push(15, 14).push(0, 1).push(0, 3);
    // No transform, the largest colour cache, an entropy image with blocks of 4 × 4 pixels and no colour cache.
    bits.push(0, 1).push(1, 1).push(11, 4).push(1, 1).push(0, 3).push(0, 1);
    // Each code of the entropy image has one symbol, so all of its pixels name the last set.
    let last = sets - 1;
    for symbol in [last & 0xFF, last >> 8, 0, 0, 0] {
        bits.push(1, 1).push(0, 1).push(1, 1).push(symbol, 8);
    }
    for _ in 0..sets {
        for alphabet in ALPHABETS {
            push_code(&mut bits, alphabet);
        }
    }
    riff(&[(b"VP8L", &bits.finish())])
}

/// A file whose sets have large tables.
pub(crate) fn webp_with_prefix_codes(sets: u32) -> Vec<u8> {
    webp_with_codes(sets, |bits, _| {
        // Lengths 1, 2, … 9, 10, 10: the table has 1,024 entries. The code of the lengths has 16 symbols of four bits: 0, and 1
        // to 15 are in use.
        bits.push(0, 1).push(15, 4);
        for symbol in [17, 18, 0, 1, 2, 3, 4, 5, 16, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15u32] {
            bits.push(if symbol < 16 { 4 } else { 0 }, 3);
        }
        // Eleven lengths follow.
        bits.push(1, 1).push(1, 3).push(9, 4);
        for length in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10u32] {
            // Codes of four bits, the most significant bit first.
            bits.push(length.reverse_bits() >> 28, 4);
        }
    })
}

/// A file whose sets have as many lengths as possible in few bytes: codes of two symbols, and zeros for all others.
pub(crate) fn webp_with_long_prefix_codes(sets: u32) -> Vec<u8> {
    webp_with_codes(sets, |bits, alphabet| {
        // The code of the lengths has two symbols of one bit: the length 1, and 18, which repeats zeros.
        bits.push(0, 1).push(0, 4);
        for length in [0, 1, 0, 1] {
            bits.push(length, 3);
        }
        // The lengths of the whole alphabet follow.
        bits.push(0, 1).push(0, 1).push(0, 1);
        let mut zeros = alphabet - 2;
        while zeros > 0 {
            let run = zeros.min(138);
            bits.push(1, 1).push(run - 11, 7);
            zeros -= run;
        }
    })
}
