//! Truncated, damaged and arbitrary files.

mod common;

use avatars::{Error, convert};
use common::{
    ANIMATED_WEBP, CMYK_JPEG, LOSSY_ALPHA_WEBP, LOSSY_WEBP, PROGRESSIVE_JPEG, black_png, chunk, compressed, encoded,
    header, incomplete_jpeg, lossless_webp, png, progressive_jpeg, quarters, riff, webp_with_prefix_codes,
};
use image::{ImageFormat, Rgba, RgbaImage};
use proptest::prelude::*;

fn noise(side: u32) -> RgbaImage {
    RgbaImage::from_fn(side, side, |x, y| {
        Rgba(((x * 7919 + y * 104_729) ^ (x * y)).wrapping_mul(2_654_435_761).to_le_bytes())
    })
}

fn samples() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("jpeg", encoded(&noise(100).into(), ImageFormat::Jpeg)),
        ("progressive jpeg", PROGRESSIVE_JPEG.to_vec()),
        ("cmyk jpeg", CMYK_JPEG.to_vec()),
        ("png", encoded(&noise(60).into(), ImageFormat::Png)),
        ("lossless webp", lossless_webp(&noise(60))),
        ("lossy webp", LOSSY_WEBP.to_vec()),
        ("lossy webp with alpha", LOSSY_ALPHA_WEBP.to_vec()),
        ("animated webp", ANIMATED_WEBP.to_vec()),
    ]
}

#[test]
fn truncated_files_are_refused_at_any_length() {
    for (name, file) in samples() {
        convert(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        let step = (file.len() / 300).max(1);
        for length in (0..file.len()).step_by(step).chain([file.len() - 2, file.len() - 1]) {
            assert!(convert(&file[..length]).is_err(), "{name} of {} bytes, cut to {length}", file.len());
        }
    }
}

/// Without its last rows, but with the chunk that ends the file.
#[test]
fn png_with_missing_pixels_is_refused() {
    let rows = vec![0; 40 * 121];
    let image = |stream: &[u8]| png(&[header(40, 40, 8, 2, false), chunk(*b"IDAT", stream), chunk(*b"IEND", b"")]);
    let whole = compressed([rows.clone()]);
    convert(&image(&whole)).expect("a valid image");
    assert_eq!(convert(&image(&compressed([rows[121..].to_vec()]))), Err(Error::Truncated), "one row less");
    assert_eq!(convert(&image(&compressed([rows, vec![0]]))), Err(Error::Damaged), "one byte more");
    for missing in 1..=6 {
        assert_eq!(convert(&image(&whole[..whole.len() - missing])), Err(Error::Truncated), "{missing} bytes missing");
    }
}

#[test]
fn wrong_checksums_are_refused() {
    let image = encoded(&noise(20).into(), ImageFormat::Png);
    for at in 8..image.len() {
        let mut damaged = image.clone();
        damaged[at] ^= 0x10;
        assert!(convert(&damaged).is_err(), "byte {at}");
    }
    let rows = vec![0; 40 * 121];
    let mut stream = compressed([rows]);
    *stream.last_mut().expect("a checksum") ^= 1;
    let with_wrong_sum = png(&[header(40, 40, 8, 2, false), chunk(*b"IDAT", &stream), chunk(*b"IEND", b"")]);
    assert_eq!(convert(&with_wrong_sum), Err(Error::Damaged), "the checksum of the stream");
    let mut text = chunk(*b"tEXt", b"Comment\0text");
    *text.last_mut().expect("a checksum") ^= 1;
    let (start, rest) = image.split_at(33);
    assert_eq!(convert(&[start, &text, rest].concat()), Err(Error::Damaged), "a chunk that is not decoded");
}

#[test]
fn dimensions_are_read_before_decoding() {
    let end = chunk(*b"IEND", b"");
    for (width, height) in [(65_000, 65_000), (4097, 1), (1, 4097), (u32::MAX, u32::MAX)] {
        let image =
            png(&[header(width, height, 8, 2, false), chunk(*b"IDAT", &compressed([vec![0; 1000]])), end.clone()]);
        assert_eq!(convert(&image), Err(Error::TooLarge), "{width} × {height}");
    }
    assert_eq!(convert(&png(&[header(0, 5, 8, 2, false), end])), Err(Error::Damaged));
    for (width, height) in [(65_500, 65_500), (4104, 8), (8, 4104)] {
        assert_eq!(convert(&progressive_jpeg(width, height, &[0x11], 1)), Err(Error::TooLarge), "{width} × {height}");
    }
    // The header of the container and that of the image inside are both read.
    let lossy = |width: u16, height: u16| {
        [&[0x10, 0, 0, 0x9D, 1, 0x2A][..], &width.to_le_bytes(), &height.to_le_bytes(), &[0; 50]].concat()
    };
    assert_eq!(convert(&riff(&[(b"VP8 ", &lossy(16_383, 16_383))])), Err(Error::TooLarge));
    let small = [0x10, 0, 0, 0, 9, 0, 0, 9, 0, 0];
    assert_eq!(convert(&riff(&[(b"VP8X", &small), (b"VP8 ", &lossy(16_383, 16_383))])), Err(Error::TooLarge));
    let lossless = [&[0x2F, 0xFF, 0xFF, 0xFF, 0x0F][..], &[0; 50]].concat();
    assert_eq!(convert(&riff(&[(b"VP8L", &lossless)])), Err(Error::TooLarge));
    let huge = [0x10, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF];
    assert_eq!(convert(&riff(&[(b"VP8X", &huge), (b"VP8L", &lossless)])), Err(Error::TooLarge));
}

#[test]
fn bombs_are_refused_before_decoding() {
    assert_eq!(
        convert(&black_png(header(1, 1, 8, 2, false), 1 << 28)),
        Err(Error::Damaged),
        "a quarter of a gibibyte for a pixel"
    );
    assert_eq!(
        convert(&progressive_jpeg(4096, 4096, &[0x11; 3], 2)),
        Err(Error::TooMuchMemory),
        "coefficients of 96 MiB"
    );
    assert_eq!(
        convert(&progressive_jpeg(64, 64, &[0x11], 33)),
        Err(Error::Unsupported),
        "more scans than any encoder makes"
    );
    for (components, scanned) in [(3, 2), (3, 1), (4, 3)] {
        let file = incomplete_jpeg(4096, components, scanned);
        assert_eq!(convert(&file), Err(Error::Damaged), "coefficients of {scanned} of {components} components");
    }
    convert(&incomplete_jpeg(64, 3, 3)).expect("a JPEG with all components");
    assert_eq!(convert(&webp_with_prefix_codes(15_000)), Err(Error::TooMuchMemory), "tables of 300 MiB");
    // The same kind of file with few codes is not refused for its memory.
    assert_ne!(convert(&webp_with_prefix_codes(10)), Err(Error::TooMuchMemory));
}

#[test]
fn other_files_are_refused() {
    for file in [
        &b""[..],
        b"hello",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"\x89PNG\r\n\x1a\n",
        b"\xff\xd8\xff\xd9",
        b"\xff\xd8\xff",
        b"RIFF\x04\0\0\0WEBP",
        b"RIFF\xff\xff\xff\xffWEBP",
        b"BM\0\0",
        &[0; 1000],
    ] {
        assert!(convert(file).is_err(), "{file:?}");
    }
    assert_eq!(convert(b"%PDF-1.7"), Err(Error::UnknownFormat));
    // The content decides, so a file inside another one is not found.
    let inner = encoded(&quarters(9, 9), ImageFormat::Png);
    assert_eq!(convert(&[b" ", &inner[..]].concat()), Err(Error::UnknownFormat));
}

const STARTS: [&[u8]; 4] = [b"", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFF\x40\0\0\0WEBPVP8L"];

proptest! {
    #[test]
    fn arbitrary_bytes_give_a_result(start in 0..STARTS.len(), bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        let _ = convert(&[STARTS[start], &bytes[..]].concat());
    }

    /// Most damage to a JPEG or WebP cannot be seen, but none may cause anything else than a result.
    #[test]
    fn damaged_files_give_a_result(
        sample in 0..8usize,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let (_, mut file) = samples().swap_remove(sample);
        for (index, value) in damage {
            let at = index.index(file.len());
            file[at] = value;
        }
        let _ = convert(&file);
    }
}
