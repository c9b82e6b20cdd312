//! What becomes of the pixels and the metadata.

mod common;

use avatars::{Avatar, Error, LARGE, SMALL, convert};
use common::{
    ANIMATED_WEBP, CMYK_JPEG, LOSSY_ALPHA_WEBP, LOSSY_WEBP, PROGRESSIVE_JPEG, chunk, colours, compressed, encoded,
    exif, header, is_about, lossless_webp, png, quarters, riff, segment,
};
use image::{ImageFormat, Rgba, RgbaImage};
use proptest::prelude::*;

const RED: [u8; 3] = [255, 0, 0];
const GREEN: [u8; 3] = [0, 255, 0];
const BLUE: [u8; 3] = [0, 0, 255];
const WHITE: [u8; 3] = [255; 3];
const SECRET: &[u8] = b"GPS-51.5074-0.1278-secret";

#[track_caller]
fn shows(avatar: &Avatar, expected: [[u8; 3]; 4]) {
    for (jpeg, side) in [(&avatar.large, LARGE), (&avatar.small, SMALL)] {
        let (found, found_side) = colours(jpeg);
        assert_eq!(found_side, side);
        assert!(found.iter().zip(expected).all(|(found, expected)| is_about(*found, expected)), "{found:?}");
        assert!(has_no_metadata(jpeg), "metadata at {side}");
    }
}

/// Walks the segments of a JPEG up to its scan.
fn has_no_metadata(jpeg: &[u8]) -> bool {
    assert!(jpeg.starts_with(&[0xFF, 0xD8]) && jpeg.ends_with(&[0xFF, 0xD9]));
    let mut at = 2;
    loop {
        assert_eq!(jpeg[at], 0xFF, "a marker");
        match jpeg[at + 1] {
            0xDA => return !jpeg.windows(6).any(|window| window == b"secret"),
            0xE1..=0xED | 0xEF | 0xFE => return false,
            _ => at += 2 + usize::from(u16::from_be_bytes([jpeg[at + 2], jpeg[at + 3]])),
        }
    }
}

#[test]
fn all_formats_and_sizes_are_converted() {
    for (width, height) in [(1, 1), (40, 40), (512, 512), (1500, 1500)] {
        for format in [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP] {
            let avatar = convert(&encoded(&quarters(width, height), format));
            let avatar = avatar.unwrap_or_else(|error| panic!("{width} {format:?}: {error}"));
            if width > 1 {
                shows(&avatar, [RED, GREEN, BLUE, WHITE]);
            }
        }
    }
}

#[test]
fn centre_is_cropped_to_a_square() {
    // The square in the centre of a wide or tall picture still has its four quarters.
    for (width, height) in [(300, 100), (100, 300), (4096, 600), (601, 4096)] {
        shows(
            &convert(&encoded(&quarters(width, height), ImageFormat::Png)).expect("converted"),
            [RED, GREEN, BLUE, WHITE],
        );
    }
    // Pixels outside of it are gone.
    let flag = RgbaImage::from_fn(300, 100, |x, _| {
        Rgba(if (100..200).contains(&x) { [0, 0, 255, 255] } else { [255, 0, 0, 255] })
    });
    shows(&convert(&encoded(&flag.into(), ImageFormat::Png)).expect("converted"), [BLUE; 4]);
}

#[test]
fn transparent_pixels_become_white() {
    let half = RgbaImage::from_fn(64, 64, |x, _| if x < 32 { Rgba([255, 0, 0, 0]) } else { Rgba([0, 0, 255, 255]) });
    for file in [encoded(&half.clone().into(), ImageFormat::Png), lossless_webp(&half)] {
        shows(&convert(&file).expect("converted"), [WHITE, BLUE, WHITE, BLUE]);
    }
    let (found, _) = colours(&convert(LOSSY_ALPHA_WEBP).expect("converted").large);
    assert!(is_about(found[0], WHITE) && !is_about(found[1], WHITE), "{found:?}");
    let half_transparent = RgbaImage::from_pixel(8, 8, Rgba([255, 0, 0, 128]));
    let (found, _) = colours(&convert(&encoded(&half_transparent.into(), ImageFormat::Png)).expect("converted").large);
    assert!(is_about(found[0], [255, 127, 127]), "{found:?}");
}

/// Where EXIF puts the first row and column, for each orientation.
fn turned(orientation: u16) -> [[u8; 3]; 4] {
    match orientation {
        2 => [GREEN, RED, WHITE, BLUE],
        3 => [WHITE, BLUE, GREEN, RED],
        4 => [BLUE, WHITE, RED, GREEN],
        5 => [RED, BLUE, GREEN, WHITE],
        6 => [BLUE, RED, WHITE, GREEN],
        7 => [WHITE, GREEN, BLUE, RED],
        8 => [GREEN, WHITE, RED, BLUE],
        _ => [RED, GREEN, BLUE, WHITE],
    }
}

fn jpeg_with(segments: &[Vec<u8>]) -> Vec<u8> {
    let plain = encoded(&quarters(64, 64), ImageFormat::Jpeg);
    [&plain[..2], &segments.concat(), &plain[2..]].concat()
}

#[test]
fn orientation_is_applied_and_metadata_dropped() {
    for orientation in 0..=9 {
        let metadata = exif(orientation, SECRET);
        let jpeg = jpeg_with(&[
            segment(0xE1, &metadata),
            segment(0xFE, SECRET),
            segment(0xE2, b"ICC_PROFILE\0\x01\x01secret"),
        ]);
        shows(&convert(&jpeg).expect("converted"), turned(orientation));
        let whole = encoded(&quarters(64, 64), ImageFormat::Png);
        let (start, rest) = whole.split_at(33);
        let png = [start, &chunk(*b"eXIf", &metadata[6..]), &chunk(*b"tEXt", SECRET), rest].concat();
        shows(&convert(&png).expect("converted"), turned(orientation));
        let still = lossless_webp(&quarters(64, 64).to_rgba8());
        let mut extended = [0x08, 0, 0, 0, 63, 0, 0, 63, 0, 0];
        extended[0] |= 0x10;
        let webp = riff(&[(b"VP8X", &extended), (b"VP8L", &still[20..]), (b"EXIF", &metadata[6..])]);
        shows(&convert(&webp).expect("converted"), turned(orientation));
    }
}

#[test]
fn less_usual_encodings_are_converted() {
    shows(&convert(PROGRESSIVE_JPEG).expect("converted"), [BLUE; 4]);
    convert(CMYK_JPEG).expect("converted");
    convert(LOSSY_WEBP).expect("converted");
    // Grey, palette and 16 bits, some of them interlaced.
    for (depth, colour_type, bits) in
        [(1, 0, 1), (16, 0, 16), (8, 2, 24), (16, 2, 48), (8, 4, 16), (16, 4, 32), (8, 6, 32), (16, 6, 64), (4, 3, 4)]
    {
        let rows = 9 * (1 + (13_usize * bits).div_ceil(8));
        let palette = chunk(*b"PLTE", &[255, 0, 0]);
        let palette = if colour_type == 3 { palette } else { Vec::new() };
        let image = png(&[
            header(13, 9, depth, colour_type, false),
            palette,
            chunk(*b"IDAT", &compressed([vec![0; rows]])),
            chunk(*b"IEND", b""),
        ]);
        convert(&image).unwrap_or_else(|error| panic!("{depth} {colour_type}: {error}"));
    }
}

#[test]
fn first_frame_of_an_animation_is_taken() {
    shows(&convert(ANIMATED_WEBP).expect("converted"), [BLUE; 4]);
    // A smaller first frame is put on a white canvas.
    let blue = lossless_webp(&RgbaImage::from_pixel(32, 32, Rgba([0, 0, 255, 255])));
    let frame = [&[16, 0, 0, 16, 0, 0, 31, 0, 0, 31, 0, 0, 100, 0, 0, 0][..], &blue[12..]].concat();
    let webp = riff(&[(b"VP8X", &[0x02, 0, 0, 0, 63, 0, 0, 63, 0, 0]), (b"ANIM", &[0; 6]), (b"ANMF", &frame)]);
    shows(&convert(&webp).expect("converted"), [WHITE, WHITE, WHITE, BLUE]);
    // In an animated PNG, the frame in IDAT is the first.
    let whole = encoded(&quarters(64, 64), ImageFormat::Png);
    let (start, rest) = whole.split_at(33);
    let (pixels, end) = rest.split_at(rest.len() - 12);
    let control =
        |number: u8| chunk(*b"fcTL", &[&[0, 0, 0, number][..], &[0, 0, 0, 64, 0, 0, 0, 64], &[0; 14]].concat());
    let animated = [
        start,
        &chunk(*b"acTL", &[0, 0, 0, 2, 0, 0, 0, 0]),
        &control(0),
        pixels,
        &control(1),
        &chunk(*b"fdAT", b"\0\0\0\x02junk"),
        end,
    ]
    .concat();
    shows(&convert(&animated).expect("converted"), [RED, GREEN, BLUE, WHITE]);
    let gif = b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";
    assert_eq!(convert(gif), Err(Error::UnknownFormat));
}

#[test]
fn nothing_of_a_polyglot_is_in_the_output() {
    let payload = b"PK\x03\x04 <script>secret</script> %PDF-1.7";
    let whole = encoded(&quarters(64, 64), ImageFormat::Png);
    let mut webp = lossless_webp(&quarters(64, 64).to_rgba8());
    webp.extend(payload);
    for file in [[&jpeg_with(&[segment(0xE5, payload)]), &payload[..]].concat(), [&whole, &payload[..]].concat(), webp]
    {
        let avatar = convert(&file).expect("converted");
        for image in [&avatar.large, &avatar.small] {
            assert!(!image.windows(8).any(|window| payload.windows(8).any(|part| part == window)));
        }
    }
}

#[test]
fn same_upload_gives_same_output() {
    let file = encoded(&quarters(700, 300), ImageFormat::Jpeg);
    assert_eq!(convert(&file), convert(&file));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn any_dimensions_are_converted(width in 1u32..300, height in 1u32..300, format in 0..3usize) {
        let format = [ImageFormat::Jpeg, ImageFormat::Png, ImageFormat::WebP][format];
        let avatar = convert(&encoded(&quarters(width, height), format)).expect("converted");
        prop_assert_eq!(colours(&avatar.large).1, LARGE);
        prop_assert_eq!(colours(&avatar.small).1, SMALL);
    }
}
