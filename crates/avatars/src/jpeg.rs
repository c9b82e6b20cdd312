//! JPEG: every segment up to the end-of-image marker is checked, and the decoder gets frame, tables and scans only.

use image::{DynamicImage, GrayImage, RgbImage};
use zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};
use zune_jpeg::JpegDecoder;

use crate::{Error, Picture, check_memory, check_sides, orientation, slice};

/// A scan of a progressive image takes a few bytes and runs over all of its blocks, so many scans are a way to use up
/// CPU time. Encoders make about ten.
const MAX_SCANS: usize = 32;
/// Tables and other segments; cameras write fewer than a hundred.
const MAX_SEGMENTS: usize = 1000;

pub(crate) fn decode(upload: &[u8]) -> Result<Picture, Error> {
    let parts = read(upload)?;
    check_memory(parts.frame.memory(parts.scans))?;
    let (width, height) = (parts.frame.width, parts.frame.height);
    let grey = parts.frame.components.len() == 1;
    let colours = if grey { ColorSpace::Luma } else { ColorSpace::RGB };
    // Without the strict mode, the decoder fills missing and damaged parts with grey.
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(width as usize)
        .set_max_height(height as usize)
        .jpeg_set_max_scans(MAX_SCANS)
        .jpeg_set_out_colorspace(colours);
    let pixels =
        JpegDecoder::new_with_options(ZCursor::new(&parts.file), options).decode().map_err(|_| Error::Damaged)?;
    let pixels = if grey {
        GrayImage::from_raw(width, height, pixels).map(DynamicImage::ImageLuma8)
    } else {
        RgbImage::from_raw(width, height, pixels).map(DynamicImage::ImageRgb8)
    };
    Ok(Picture { pixels: pixels.ok_or(Error::Damaged)?, orientation: orientation(parts.exif) })
}

struct Parts<'a> {
    frame: Frame,
    scans: usize,
    /// The parts of the upload that determine its pixels, as a JPEG.
    file: Vec<u8>,
    exif: Option<&'a [u8]>,
}

struct Frame {
    width: u32,
    height: u32,
    progressive: bool,
    /// Horizontal and vertical sampling of each component.
    components: Vec<(u32, u32)>,
}

impl Frame {
    fn read(marker: u8, segment: &[u8]) -> Result<Self, Error> {
        let [8, high, low, wide, narrow, count, components @ ..] = segment else {
            return Err(if segment.len() < 6 { Error::Damaged } else { Error::Unsupported });
        };
        if !matches!(count, 1 | 3 | 4) {
            return Err(Error::Unsupported);
        }
        if components.len() != usize::from(*count) * 3 {
            return Err(Error::Damaged);
        }
        let components: Vec<_> =
            components.chunks_exact(3).map(|c| (u32::from(c[1] >> 4), u32::from(c[1] & 15))).collect();
        if components.iter().any(|(h, v)| !(1..=4).contains(h) || !(1..=4).contains(v)) {
            return Err(Error::Damaged);
        }
        Ok(Self {
            width: u32::from(u16::from_be_bytes([*wide, *narrow])),
            height: u32::from(u16::from_be_bytes([*high, *low])),
            progressive: marker == 0xC2,
            components,
        })
    }

    /// Upper bound of the decoder's memory: the pixels, and the coefficients of the whole image if they come in several
    /// scans, or else those of a few rows.
    fn memory(&self, scans: usize) -> u64 {
        let across = self.components.iter().map(|c| c.0).max().unwrap_or(1);
        let down = self.components.iter().map(|c| c.1).max().unwrap_or(1);
        let units = u64::from(self.width.div_ceil(8 * across)) * u64::from(self.height.div_ceil(8 * down));
        let per_unit: u64 = self.components.iter().map(|(h, v)| u64::from(h * v) * 64 * 2).sum();
        let channels = if self.components.len() == 1 { 1 } else { 3 };
        let pixels = u64::from(self.width) * u64::from(self.height) * channels;
        let rows = u64::from(self.width) * 1024;
        pixels + rows + if self.progressive || scans > 1 { units * per_unit } else { 0 }
    }
}

fn read(upload: &[u8]) -> Result<Parts<'_>, Error> {
    let mut file = vec![0xFF, 0xD8];
    let mut frame = None;
    let mut exif = None;
    let (mut scans, mut segments) = (0, 0);
    let mut scanned_first = None;
    let mut at = 2;
    loop {
        // Other decoders skip bytes between segments, so this one does.
        at += upload[at..].iter().position(|byte| *byte == 0xFF).ok_or(Error::Truncated)?;
        let marker = loop {
            at += 1;
            match upload.get(at) {
                None => return Err(Error::Truncated),
                Some(0xFF) => {}
                Some(marker) => break *marker,
            }
        };
        at += 1;
        match marker {
            0x00 | 0x01 | 0xD0..=0xD7 => continue,
            0xD8 => return Err(Error::Damaged),
            0xD9 => break,
            _ => {}
        }
        segments += 1;
        if segments > MAX_SEGMENTS {
            return Err(Error::Unsupported);
        }
        let length = slice(upload, at, 2)?;
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        let segment = slice(upload, at, length)?.get(2..).ok_or(Error::Damaged)?;
        let start = at - 2;
        at += length;
        let mut end = at;
        match marker {
            0xC0..=0xC2 => {
                if frame.is_some() {
                    return Err(Error::Damaged);
                }
                let read = Frame::read(marker, segment)?;
                check_sides(read.width, read.height)?;
                frame = Some(read);
            }
            // Arithmetic coding, lossless and hierarchical images.
            0xC3 | 0xC5..=0xCF => return Err(Error::Unsupported),
            0xDA => {
                if frame.is_none() {
                    return Err(Error::Damaged);
                }
                scanned_first = scanned_first.or(segment.first().map(|count| usize::from(*count)));
                scans += 1;
                if scans > MAX_SCANS {
                    return Err(Error::Unsupported);
                }
                end += scan_length(&upload[at..])?;
                at = end;
            }
            // Tables, the restart interval, and Adobe's segment with the colour model.
            0xC4 | 0xDB | 0xDD | 0xEE => {}
            0xE1 if exif.is_none() && segment.starts_with(b"Exif\0\0") => {
                exif = Some(segment);
                continue;
            }
            _ => continue,
        }
        file.extend([0xFF, marker]);
        file.extend(&upload[start + 2..end]);
    }
    let frame = frame.ok_or(Error::Damaged)?;
    // If the first scan has not all components, the decoder keeps the coefficients of the whole image for further ones.
    if scans == 0 || scans == 1 && scanned_first != Some(frame.components.len()) {
        return Err(Error::Damaged);
    }
    file.extend([0xFF, 0xD9]);
    Ok(Parts { frame, scans, file, exif })
}

/// Length of the compressed data at the start of `bytes`: up to the next marker that is not a restart marker.
fn scan_length(bytes: &[u8]) -> Result<usize, Error> {
    let mut at = 0;
    loop {
        at += bytes[at..].iter().position(|byte| *byte == 0xFF).ok_or(Error::Truncated)?;
        match bytes.get(at + 1) {
            None => return Err(Error::Truncated),
            Some(0x00 | 0xD0..=0xD7) => at += 2,
            Some(0xFF) => at += 1,
            Some(_) => return Ok(at),
        }
    }
}
