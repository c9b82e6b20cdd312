//! PNG: every chunk and the whole compressed stream are checked, and the decoder gets header, palette and pixels only.

use std::io::Cursor;

use flate2::{Decompress, FlushDecompress, Status};
use image::{DynamicImage, GrayAlphaImage, GrayImage, RgbImage, RgbaImage};
use png::{ColorType, DecodeOptions, Limits, Transformations};

use crate::{Error, Picture, check_memory, check_sides, orientation, slice};

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// Chunks besides the pixels; programs write fewer than a hundred.
const MAX_CHUNKS: usize = 10_000;

pub(crate) fn decode(upload: &[u8]) -> Result<Picture, Error> {
    let parts = read(upload)?;
    let header = parts.header;
    // The decoder reduces 16 bits to 8, so a pixel has at most four bytes.
    let pixels = u64::from(header.width) * u64::from(header.height) * header.output_channels(parts.has_transparency);
    let rows = u64::from(header.width) * 64;
    check_memory(pixels + rows)?;
    check_stream(&parts.compressed, header.stream_length())?;

    let mut options = DecodeOptions::default();
    options.set_ignore_checksums(false);
    let mut decoder = png::Decoder::new_with_options(Cursor::new(&parts.file), options);
    decoder.set_limits(Limits { bytes: usize::try_from(crate::MEMORY_LIMIT).unwrap_or(usize::MAX) });
    decoder.set_transformations(Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(|_| Error::Damaged)?;
    let mut pixels = vec![0; reader.output_buffer_size().ok_or(Error::Damaged)?];
    let output = reader.next_frame(&mut pixels).map_err(|_| Error::Damaged)?;
    let (width, height) = (header.width, header.height);
    let pixels = match output.color_type {
        ColorType::Grayscale => GrayImage::from_raw(width, height, pixels).map(DynamicImage::ImageLuma8),
        ColorType::GrayscaleAlpha => GrayAlphaImage::from_raw(width, height, pixels).map(DynamicImage::ImageLumaA8),
        ColorType::Rgb => RgbImage::from_raw(width, height, pixels).map(DynamicImage::ImageRgb8),
        ColorType::Rgba => RgbaImage::from_raw(width, height, pixels).map(DynamicImage::ImageRgba8),
        ColorType::Indexed => None,
    };
    Ok(Picture { pixels: pixels.ok_or(Error::Damaged)?, orientation: orientation(parts.exif) })
}

struct Parts<'a> {
    header: Header,
    has_transparency: bool,
    /// The content of all `IDAT` chunks.
    compressed: Vec<u8>,
    /// The parts of the upload that determine its pixels, as a PNG.
    file: Vec<u8>,
    exif: Option<&'a [u8]>,
}

#[derive(Clone, Copy)]
struct Header {
    width: u32,
    height: u32,
    bits_per_pixel: u64,
    colour_type: u8,
    interlaced: bool,
}

impl Header {
    fn read(content: &[u8]) -> Result<Self, Error> {
        let [w0, w1, w2, w3, h0, h1, h2, h3, depth, colour_type, 0, 0, interlaced @ (0 | 1)] = *content else {
            return Err(Error::Damaged);
        };
        let channels = match (colour_type, depth) {
            (0, 1 | 2 | 4 | 8 | 16) | (3, 1 | 2 | 4 | 8) => 1,
            (2, 8 | 16) => 3,
            (4, 8 | 16) => 2,
            (6, 8 | 16) => 4,
            _ => return Err(Error::Damaged),
        };
        Ok(Self {
            width: u32::from_be_bytes([w0, w1, w2, w3]),
            height: u32::from_be_bytes([h0, h1, h2, h3]),
            bits_per_pixel: channels * u64::from(depth),
            colour_type,
            interlaced: interlaced == 1,
        })
    }

    fn output_channels(&self, has_transparency: bool) -> u64 {
        let colours = if matches!(self.colour_type, 0 | 4) { 1 } else { 3 };
        colours + u64::from(has_transparency || matches!(self.colour_type, 4 | 6))
    }

    /// Length of the stream before compression: each row has one byte for its filter.
    fn stream_length(&self) -> u64 {
        let pass = |x: u32, y: u32, dx: u32, dy: u32| {
            let (width, height) = ((self.width + dx - 1 - x) / dx, (self.height + dy - 1 - y) / dy);
            if width == 0 || height == 0 {
                return 0;
            }
            u64::from(height) * (1 + (u64::from(width) * self.bits_per_pixel).div_ceil(8))
        };
        if !self.interlaced {
            return pass(0, 0, 1, 1);
        }
        [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
            .into_iter()
            .map(|(x, y, dx, dy)| pass(x, y, dx, dy))
            .sum()
    }
}

fn read(upload: &[u8]) -> Result<Parts<'_>, Error> {
    let mut file = SIGNATURE.to_vec();
    let mut compressed = Vec::new();
    let mut header = None;
    let mut exif = None;
    let (mut has_palette, mut has_transparency) = (false, false);
    let mut previous = *b"    ";
    let mut chunks = 0;
    let mut at = SIGNATURE.len();
    loop {
        let start = slice(upload, at, 8)?;
        let length = u32::from_be_bytes([start[0], start[1], start[2], start[3]]) as usize;
        let kind = [start[4], start[5], start[6], start[7]];
        let chunk = slice(upload, at, length.checked_add(12).ok_or(Error::Truncated)?)?;
        let (content, checksum) = (&chunk[8..8 + length], &chunk[8 + length..]);
        if crc32fast::hash(&chunk[4..8 + length]).to_be_bytes() != *checksum {
            return Err(Error::Damaged);
        }
        chunks += usize::from(kind != *b"IDAT");
        if chunks > MAX_CHUNKS || header.is_none() != (kind == *b"IHDR") {
            return Err(Error::Damaged);
        }
        match &kind {
            b"IHDR" => {
                let read = Header::read(content)?;
                check_sides(read.width, read.height)?;
                header = Some(read);
                file.extend(chunk);
            }
            b"PLTE" | b"tRNS" => {
                let (seen, limit) =
                    if kind == *b"PLTE" { (&mut has_palette, 768) } else { (&mut has_transparency, 256) };
                if *seen || length > limit || !compressed.is_empty() {
                    return Err(Error::Damaged);
                }
                *seen = true;
                file.extend(chunk);
            }
            b"IDAT" => {
                if !compressed.is_empty() && previous != *b"IDAT" {
                    return Err(Error::Damaged);
                }
                compressed.extend(content);
                file.extend(chunk);
            }
            b"IEND" => {
                file.extend(chunk);
                break;
            }
            b"eXIf" if exif.is_none() => exif = Some(content),
            // A lower-case first letter marks chunks that a decoder may ignore.
            kind if kind[0].is_ascii_lowercase() => {}
            _ => return Err(Error::Damaged),
        }
        previous = kind;
        at += chunk.len();
    }
    let header = header.ok_or(Error::Damaged)?;
    if header.colour_type == 3 && !has_palette {
        return Err(Error::Damaged);
    }
    Ok(Parts { header, has_transparency, compressed, file, exif })
}

/// Checks that the stream is complete, has this length and ends with the right checksum. The decoder stops after the last
/// pixel and would not notice. A longer stream is refused, so that a small image cannot hide a large one.
fn check_stream(compressed: &[u8], length: u64) -> Result<(), Error> {
    let mut inflater = Decompress::new(true);
    let mut sink = vec![0; 64 * 1024];
    loop {
        let (read, written) = (inflater.total_in(), inflater.total_out());
        let rest = &compressed[usize::try_from(read).unwrap_or(usize::MAX).min(compressed.len())..];
        let status = inflater.decompress(rest, &mut sink, FlushDecompress::None).map_err(|_| Error::Damaged)?;
        if inflater.total_out() > length {
            return Err(Error::Damaged);
        }
        match status {
            Status::StreamEnd if inflater.total_out() == length => return Ok(()),
            Status::StreamEnd => return Err(Error::Truncated),
            _ if inflater.total_in() == read && inflater.total_out() == written => return Err(Error::Truncated),
            _ => {}
        }
    }
}
