//! Crops, scales and encodes decoded pixels.

use image::{
    DynamicImage, ExtendedColorType,
    codecs::jpeg::JpegEncoder,
    imageops::{self, FilterType},
};

use crate::{Avatar, Error, LARGE, Picture, SMALL};

/// Larger squares are first reduced to this side by averaging, which takes little memory. The better filter does the rest.
const INTERMEDIATE: u32 = 2 * LARGE;
const QUALITY: u8 = 85;

pub(crate) fn scale(picture: Picture) -> Result<Avatar, Error> {
    let Picture { mut pixels, orientation } = picture;
    // Before scaling, so that invisible colours do not mix with visible ones.
    put_on_white(&mut pixels);
    let mut square = square(&pixels);
    drop(pixels);
    square.apply_orientation(orientation);
    let square = square.into_rgb8();
    let encode = |side| {
        let scaled = imageops::resize(&square, side, side, FilterType::CatmullRom);
        let mut jpeg = Vec::new();
        JpegEncoder::new_with_quality(&mut jpeg, QUALITY)
            .encode(&scaled, side, side, ExtendedColorType::Rgb8)
            .map_err(|_| Error::Damaged)?;
        Ok(jpeg)
    };
    Ok(Avatar { large: encode(LARGE)?, small: encode(SMALL)? })
}

/// Makes all pixels opaque. Afterwards the alpha channel means nothing.
pub(crate) fn put_on_white(pixels: &mut DynamicImage) {
    let blend = |colours: &mut [u8], alpha: u8| {
        for colour in colours {
            let sum = u32::from(*colour) * u32::from(alpha) + 255 * (255 - u32::from(alpha));
            *colour = u8::try_from((sum + 127) / 255).unwrap_or(u8::MAX);
        }
    };
    match pixels {
        DynamicImage::ImageLumaA8(pixels) => pixels.pixels_mut().for_each(|p| {
            let [colours @ .., alpha] = &mut p.0;
            blend(colours, *alpha);
            *alpha = u8::MAX;
        }),
        DynamicImage::ImageRgba8(pixels) => pixels.pixels_mut().for_each(|p| {
            let [colours @ .., alpha] = &mut p.0;
            blend(colours, *alpha);
            *alpha = u8::MAX;
        }),
        _ => {}
    }
}

/// The square in the centre, with sides of at most [`INTERMEDIATE`].
fn square(pixels: &DynamicImage) -> DynamicImage {
    let side = pixels.width().min(pixels.height());
    let (x, y) = ((pixels.width() - side) / 2, (pixels.height() - side) / 2);
    if side <= INTERMEDIATE {
        return pixels.crop_imm(x, y, side, side);
    }
    macro_rules! reduce {
        ($pixels:expr, $variant:ident) => {
            DynamicImage::$variant(imageops::thumbnail(
                &*imageops::crop_imm($pixels, x, y, side, side),
                INTERMEDIATE,
                INTERMEDIATE,
            ))
        };
    }
    match pixels {
        DynamicImage::ImageLuma8(pixels) => reduce!(pixels, ImageLuma8),
        DynamicImage::ImageLumaA8(pixels) => reduce!(pixels, ImageLumaA8),
        DynamicImage::ImageRgb8(pixels) => reduce!(pixels, ImageRgb8),
        DynamicImage::ImageRgba8(pixels) => reduce!(pixels, ImageRgba8),
        _ => pixels.crop_imm(x, y, side, side).thumbnail_exact(INTERMEDIATE, INTERMEDIATE),
    }
}
