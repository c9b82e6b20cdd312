//! Peak memory and time of the largest uploads. A separate suite with one test at a time, because the allocator counts the
//! memory of the whole process.

mod common;

use std::time::{Duration, Instant};

use avatars::{Avatar, Error, MEMORY_LIMIT, convert};
use common::{
    black_png, encoded, header, incomplete_jpeg, lossless_webp, progressive_jpeg, quarters,
    webp_with_long_prefix_codes, webp_with_prefix_codes,
};
use image::{ImageFormat, Rgba, RgbaImage};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Far above the times of a release build, because machines that run tests are busy.
const LONGEST: Duration = Duration::from_secs(20);

struct Measured {
    name: &'static str,
    upload: usize,
    /// Memory in addition to the upload.
    peak: usize,
    time: Duration,
    outcome: Result<Avatar, Error>,
}

fn noise(side: u32) -> RgbaImage {
    RgbaImage::from_fn(side, side, |x, y| {
        Rgba(((x * 7919 + y * 104_729) ^ (x * y)).wrapping_mul(2_654_435_761).to_le_bytes())
    })
}

/// The name of a case, and its image, which is made only when its turn comes.
type Case = (&'static str, fn() -> Vec<u8>);

fn cases() -> Vec<Case> {
    const SIDE: usize = 4096;
    vec![
        ("JPEG, 4096 × 4096", || encoded(&quarters(4096, 4096), ImageFormat::Jpeg)),
        ("JPEG of noise, 1000 × 1000", || encoded(&noise(1000).into(), ImageFormat::Jpeg)),
        ("progressive JPEG, grey, 32 scans, 4096 × 4096", || progressive_jpeg(4096, 4096, &[0x11], 32)),
        ("progressive JPEG, 4:2:0, 32 scans, 4096 × 4096", || progressive_jpeg(4096, 4096, &[0x22, 0x11, 0x11], 32)),
        ("progressive JPEG, 4:4:4, 32 scans, 3600 × 3600", || progressive_jpeg(3600, 3600, &[0x11; 3], 32)),
        ("progressive JPEG, 4:4:4, 4096 × 4096", || progressive_jpeg(4096, 4096, &[0x11; 3], 2)),
        ("JPEG, two of three components, 4096 × 4096", || incomplete_jpeg(4096, 3, 2)),
        ("progressive JPEG, 50,000 scans", || progressive_jpeg(64, 64, &[0x11], 50_000)),
        ("PNG, RGBA, 4096 × 4096", || black_png(header(4096, 4096, 8, 6, false), SIDE * (1 + SIDE * 4))),
        ("PNG, RGBA of 16 bits, 4096 × 4096", || black_png(header(4096, 4096, 16, 6, false), SIDE * (1 + SIDE * 8))),
        ("PNG, one pixel, 1 GiB compressed", || black_png(header(1, 1, 8, 2, false), 1 << 30)),
        ("PNG, 65,000 × 65,000", || black_png(header(65_000, 65_000, 8, 2, false), 1 << 20)),
        ("lossless WebP, 4096 × 4096", || lossless_webp(&quarters(4096, 4096).to_rgba8())),
        ("lossless WebP of noise, 700 × 700", || lossless_webp(&noise(700))),
        ("lossless WebP, 5,000 sets of prefix codes", || webp_with_prefix_codes(5_000)),
        ("lossless WebP, 30,000 sets of prefix codes", || webp_with_prefix_codes(30_000)),
        ("lossless WebP, 57,000 sets of 3,136 code lengths", || webp_with_long_prefix_codes(57_000)),
    ]
}

fn measure((name, make): (&'static str, fn() -> Vec<u8>)) -> Measured {
    let upload = make();
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let began = Instant::now();
    let outcome = convert(&upload);
    let time = began.elapsed();
    Measured { name, upload: upload.len(), peak: ALLOCATOR.peak_usage().saturating_sub(before), time, outcome }
}

#[test]
fn memory_and_time_are_bounded() {
    let limit = usize::try_from(MEMORY_LIMIT).expect("a size");
    for case in cases() {
        let Measured { name, upload, peak, time, .. } = measure(case);
        // The parts for the decoder are at most a second and a third copy of the upload.
        assert!(peak <= limit + 2 * upload, "{name}: {peak} bytes");
        assert!(time < LONGEST, "{name}: {time:?}");
    }
}

/// `cargo test --release -p avatars --test limits -- --ignored --nocapture` prints the figures of `SECURITY.md`.
#[test]
#[ignore = "prints figures"]
#[expect(clippy::print_stdout, reason = "the figures are its purpose")]
fn figures() {
    for case in cases() {
        let Measured { name, upload, peak, time, outcome } = measure(case);
        let outcome = outcome.map_or_else(|error| error.to_string(), |_| "converted".to_owned());
        let (kib, mib, ms) = (upload / 1024, peak / (1 << 20), time.as_millis());
        println!("| {name} | {kib} KiB | {mib} MiB | {ms} ms | {outcome} |");
    }
}
