//! Converts an uploaded image into two square JPEGs.
//!
//! Uploads come from anybody, so the crate trusts nothing in them:
//!
//! 1. A strict parser of the container (`jpeg`, `png`, `webp`) reads the dimensions, finds truncated and damaged
//!    files, and computes how much memory the decoder would need. Nothing is decoded before these checks.
//! 2. The parser copies the few parts that determine the pixels into a new file, and only this file reaches the decoder.
//!    Metadata, further frames and appended data never do.
//! 3. The pixels are cropped, scaled and encoded again (`scale`), so no byte of the upload is in the output.
//!
//! Decoding is CPU-bound: callers run [`convert`] on a blocking thread and limit how many run at the same time.

mod jpeg;
mod png;
mod prefix_codes;
mod scale;
mod webp;

use std::panic::catch_unwind;

use image::{DynamicImage, metadata::Orientation};

/// Longest side of an upload, in pixels.
pub const MAX_SIDE: u32 = 4096;
/// Memory that decoding one upload may use, without the upload itself.
pub const MEMORY_LIMIT: u64 = 128 * 1024 * 1024;
/// Sides of the two pictures, in pixels.
pub const LARGE: u32 = 512;
pub const SMALL: u32 = 128;

/// The two JPEGs of an avatar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Avatar {
    /// 512 × 512 pixels.
    pub large: Vec<u8>,
    /// 128 × 128 pixels.
    pub small: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the file is not a JPEG, PNG or WebP image")]
    UnknownFormat,
    #[error("the image is incomplete")]
    Truncated,
    #[error("the image is damaged")]
    Damaged,
    #[error("the image uses a variant of its format that is not supported")]
    Unsupported,
    #[error("the image is larger than {MAX_SIDE} × {MAX_SIDE} pixels")]
    TooLarge,
    #[error("decoding the image needs too much memory")]
    TooMuchMemory,
}

/// Converts a JPEG, PNG or WebP image; its content decides which of them it is.
///
/// Takes the first frame, applies the EXIF orientation, crops the centre to a square, and puts transparent pixels on white.
pub fn convert(upload: &[u8]) -> Result<Avatar, Error> {
    // The decoders are written in safe Rust, so a fault of theirs is a panic. It must not look like a fault of the service.
    catch_unwind(|| {
        let picture = match upload {
            [0xFF, 0xD8, 0xFF, ..] => jpeg::decode(upload),
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => png::decode(upload),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => webp::decode(upload),
            _ => Err(Error::UnknownFormat),
        }?;
        scale::scale(picture)
    })
    .unwrap_or(Err(Error::Damaged))
}

/// A decoded image, not yet turned as its metadata says.
struct Picture {
    /// 8 bits per channel: grey or RGB, with or without alpha.
    pixels: DynamicImage,
    orientation: Orientation,
}

fn check_sides(width: u32, height: u32) -> Result<(), Error> {
    match (width, height) {
        (0, _) | (_, 0) => Err(Error::Damaged),
        (width, height) if width > MAX_SIDE || height > MAX_SIDE => Err(Error::TooLarge),
        _ => Ok(()),
    }
}

fn check_memory(bytes: u64) -> Result<(), Error> {
    if bytes > MEMORY_LIMIT { Err(Error::TooMuchMemory) } else { Ok(()) }
}

/// The orientation in EXIF metadata; anything unreadable counts as none.
fn orientation(exif: Option<&[u8]>) -> Orientation {
    exif.map(|exif| exif.strip_prefix(b"Exif\0\0").unwrap_or(exif))
        .and_then(Orientation::from_exif_chunk)
        .unwrap_or(Orientation::NoTransforms)
}

/// The bytes `at..at + length`, if the file has them.
fn slice(bytes: &[u8], at: usize, length: usize) -> Result<&[u8], Error> {
    at.checked_add(length).and_then(|end| bytes.get(at..end)).ok_or(Error::Truncated)
}
