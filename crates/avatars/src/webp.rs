//! WebP: every chunk is checked, and the decoder gets the first frame only, as an image of its own.

use std::io::Cursor;

use image::{DynamicImage, Rgb, RgbImage, RgbaImage};
use image_webp::WebPDecoder;

use crate::{Error, Picture, check_memory, check_sides, orientation, prefix_codes, slice};

/// Chunks of the file and of the first frame.
const MAX_CHUNKS: usize = 10_000;

pub(crate) fn decode(upload: &[u8]) -> Result<Picture, Error> {
    let parts = read(upload)?;
    let frame = parts.frame;
    let covers_canvas = (frame.width, frame.height) == (parts.width, parts.height);
    let canvas = u64::from(parts.width) * u64::from(parts.height) * 3;
    check_memory(frame.memory()? + if covers_canvas { 0 } else { canvas })?;

    let mut decoder = WebPDecoder::new(Cursor::new(frame.file())).map_err(|_| Error::Damaged)?;
    let mut pixels = vec![0; decoder.output_buffer_size().ok_or(Error::Damaged)?];
    decoder.read_image(&mut pixels).map_err(|_| Error::Damaged)?;
    let mut pixels = if decoder.has_alpha() {
        RgbaImage::from_raw(frame.width, frame.height, pixels).map(DynamicImage::ImageRgba8)
    } else {
        RgbImage::from_raw(frame.width, frame.height, pixels).map(DynamicImage::ImageRgb8)
    }
    .ok_or(Error::Damaged)?;
    if !frame.has_alpha()
        && let DynamicImage::ImageRgba8(pixels) = &mut pixels
    {
        pixels.pixels_mut().for_each(|pixel| pixel.0[3] = u8::MAX);
    }
    if !covers_canvas {
        crate::scale::put_on_white(&mut pixels);
        let mut canvas = RgbImage::from_pixel(parts.width, parts.height, Rgb([u8::MAX; 3]));
        for (x, y, pixel) in canvas.enumerate_pixels_mut() {
            if let (Some(x), Some(y)) = (x.checked_sub(frame.x), y.checked_sub(frame.y))
                && x < frame.width
                && y < frame.height
            {
                *pixel = image::GenericImageView::get_pixel(&pixels, x, y).to_rgb();
            }
        }
        pixels = DynamicImage::ImageRgb8(canvas);
    }
    Ok(Picture { pixels, orientation: orientation(parts.exif) })
}

use image::Pixel as _;

struct Parts<'a> {
    width: u32,
    height: u32,
    frame: Frame<'a>,
    exif: Option<&'a [u8]>,
}

/// The still image, or the first frame of an animation.
#[derive(Clone, Copy)]
struct Frame<'a> {
    x: u32,
    y: u32,
    width: u32,
    height: u32,
    alpha: Option<&'a [u8]>,
    pixels: Pixels<'a>,
}

#[derive(Clone, Copy)]
enum Pixels<'a> {
    Lossy(&'a [u8]),
    Lossless { content: &'a [u8], has_alpha: bool },
}

impl Frame<'_> {
    fn has_alpha(&self) -> bool {
        match self.pixels {
            Pixels::Lossy(_) => self.alpha.is_some(),
            Pixels::Lossless { has_alpha, .. } => has_alpha,
        }
    }

    /// Upper bound of the decoder's memory.
    fn memory(&self) -> Result<u64, Error> {
        let pixels = u64::from(self.width) * u64::from(self.height);
        let lossless = |content| {
            let tables = prefix_codes::memory(content, self.width, self.height)?;
            // Besides the pixels: the data of two transforms and of the entropy image, for blocks of 4 × 4 pixels or more.
            let blocks = u64::from(self.width.div_ceil(4)) * u64::from(self.height.div_ceil(4));
            Ok(pixels * 4 + blocks * 14 + tables)
        };
        match (self.pixels, self.alpha) {
            (Pixels::Lossless { content, .. }, _) => lossless(content.get(5..).ok_or(Error::Truncated)?),
            (Pixels::Lossy(content), alpha) => {
                let blocks = u64::from(self.width.div_ceil(16)) * u64::from(self.height.div_ceil(16));
                let planes = blocks * 512 + content.len() as u64;
                let alpha = match alpha {
                    None => pixels * 3,
                    Some([header, content @ ..]) if header & 3 == 1 => pixels * 5 + lossless(content)?,
                    Some(_) => pixels * 5,
                };
                Ok(planes + alpha)
            }
        }
    }

    /// A file with this frame only. Lossless frames are marked as transparent, because the decoder would otherwise
    /// allocate the pixels twice.
    fn file(&self) -> Vec<u8> {
        let mut chunks = Vec::new();
        let mut add = |name: &[u8; 4], content: &[u8]| {
            chunks.extend(name);
            chunks.extend(u32::try_from(content.len()).unwrap_or(u32::MAX).to_le_bytes());
            chunks.extend(content);
            chunks.extend(vec![0; content.len() % 2]);
        };
        let mut extended = [0; 10];
        extended[0] = 0x10;
        extended[4..7].copy_from_slice(&(self.width - 1).to_le_bytes()[..3]);
        extended[7..10].copy_from_slice(&(self.height - 1).to_le_bytes()[..3]);
        match (self.pixels, self.alpha) {
            (Pixels::Lossless { content, .. }, _) => {
                add(b"VP8X", &extended);
                add(b"VP8L", content);
            }
            (Pixels::Lossy(content), Some(alpha)) => {
                add(b"VP8X", &extended);
                add(b"ALPH", alpha);
                add(b"VP8 ", content);
            }
            (Pixels::Lossy(content), None) => add(b"VP8 ", content),
        }
        let mut file = b"RIFF".to_vec();
        file.extend(u32::try_from(chunks.len() + 4).unwrap_or(u32::MAX).to_le_bytes());
        file.extend(b"WEBP");
        file.extend(chunks);
        file
    }
}

fn read(upload: &[u8]) -> Result<Parts<'_>, Error> {
    let size = little(slice(upload, 4, 4)?) as usize;
    let body = slice(upload, 8, size)?.get(4..).ok_or(Error::Truncated)?;
    let (name, first) = chunks(body).next().ok_or(Error::Truncated)??;
    let (width, height) = match name {
        b"VP8X" => {
            let [_, _, _, _, w0, w1, w2, h0, h1, h2, ..] = *first else { return Err(Error::Damaged) };
            (little(&[w0, w1, w2]) + 1, little(&[h0, h1, h2]) + 1)
        }
        b"VP8 " | b"VP8L" => still(body)?.map(|frame| (frame.width, frame.height)).ok_or(Error::Damaged)?,
        _ => return Err(Error::Damaged),
    };
    check_sides(width, height)?;
    let (mut frame, mut exif) = (still(body)?, None);
    // The rest of the file is read too, because a truncated file must not pass.
    for (index, chunk) in chunks(body).enumerate() {
        match chunk? {
            _ if index > MAX_CHUNKS => return Err(Error::Damaged),
            (b"ANMF", content) if frame.is_none() => {
                let ([x0, x1, x2, y0, y1, y2, w0, w1, w2, h0, h1, h2, _, _, _, _], inner) =
                    content.split_first_chunk().ok_or(Error::Damaged)?;
                let (x, y) = (little(&[*x0, *x1, *x2]) * 2, little(&[*y0, *y1, *y2]) * 2);
                let sides = (little(&[*w0, *w1, *w2]) + 1, little(&[*h0, *h1, *h2]) + 1);
                let inner = still(inner)?.ok_or(Error::Damaged)?;
                if (inner.width, inner.height) != sides || x + sides.0 > width || y + sides.1 > height {
                    return Err(Error::Damaged);
                }
                frame = Some(Frame { x, y, ..inner });
            }
            (b"EXIF", content) if exif.is_none() => exif = Some(content),
            _ => {}
        }
    }
    let frame = frame.ok_or(Error::Damaged)?;
    check_sides(frame.width, frame.height)?;
    let inside = frame.x + frame.width <= width && frame.y + frame.height <= height;
    if inside { Ok(Parts { width, height, frame, exif }) } else { Err(Error::Damaged) }
}

/// The image among these chunks, if one of them is an image.
fn still(body: &[u8]) -> Result<Option<Frame<'_>>, Error> {
    let mut alpha = None;
    for chunk in chunks(body).take(MAX_CHUNKS) {
        let (width, height, pixels) = match chunk? {
            (b"ALPH", content) => {
                alpha = Some(content);
                continue;
            }
            (b"VP8 ", content) => {
                let [tag, _, _, 0x9D, 0x01, 0x2A, w0, w1, h0, h1, ..] = *content else { return Err(Error::Damaged) };
                if tag & 1 != 0 {
                    return Err(Error::Damaged);
                }
                (little(&[w0, w1]) & 0x3FFF, little(&[h0, h1]) & 0x3FFF, Pixels::Lossy(content))
            }
            (b"VP8L", content) => {
                let [0x2F, b0, b1, b2, b3, ..] = *content else { return Err(Error::Damaged) };
                let bits = little(&[b0, b1, b2, b3]);
                let pixels = Pixels::Lossless { content, has_alpha: (bits >> 28) & 1 == 1 };
                ((bits & 0x3FFF) + 1, ((bits >> 14) & 0x3FFF) + 1, pixels)
            }
            _ => continue,
        };
        check_sides(width, height)?;
        return Ok(Some(Frame { x: 0, y: 0, width, height, alpha, pixels }));
    }
    Ok(None)
}

/// The chunks of a RIFF body; ends with an error if the last one is incomplete.
fn chunks(mut body: &[u8]) -> impl Iterator<Item = Result<(&[u8; 4], &[u8]), Error>> {
    std::iter::from_fn(move || {
        if body.is_empty() {
            return None;
        }
        let chunk = (|| {
            let (name, rest) = body.split_first_chunk::<4>().ok_or(Error::Truncated)?;
            let (size, rest) = rest.split_first_chunk::<4>().ok_or(Error::Truncated)?;
            let size = u32::from_le_bytes(*size) as usize;
            let content = slice(rest, 0, size)?;
            Ok((name, content, rest.get(size + size % 2..).unwrap_or_default()))
        })();
        match chunk {
            Ok((name, content, rest)) => {
                body = rest;
                Some(Ok((name, content)))
            }
            Err(error) => {
                body = &[];
                Some(Err(error))
            }
        }
    })
}

fn little(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |sum, byte| (sum << 8) | u32::from(*byte))
}
