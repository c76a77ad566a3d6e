//! Resizes one image so that every provider accepts it, and corrects its MIME type. Pure.
//!
//! Images from clients and tools are untrusted: the size is read from the header, and an image that is too large is never
//! decoded. PNG and JPEG are resized and become JPEG; GIF and WebP are sent unchanged or rejected.

use std::io::Cursor;

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, general_purpose::STANDARD};
use engine::words::Media;
use jpeg_encoder::{ColorType, Encoder};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// The longest side after resizing, in pixels: Anthropic's limit for requests with many images.
pub(super) const MAX_RESIZED_SIDE: u32 = 2_000;
/// The longest side of an image that is sent unchanged: no provider accepts more.
const MAX_UNCHANGED_SIDE: u32 = 8_000;
/// The largest image that providers accept, in bytes of base64.
pub(super) const MAX_BYTES: usize = 5 * 1024 * 1024;
/// Images with more pixels are not decoded.
const MAX_PIXELS: u64 = 50_000_000;
/// Images with a longer side are not decoded: very narrow images are slow to decode and never useful.
const MAX_SIDE: u32 = 32_768;
/// The JPEG quality, of 100.
const QUALITY: u8 = 85;

/// Accepts base64 without padding, which some clients send.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Width and height.
type Size = (u32, u32);

/// The formats that providers accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Png,
    Jpeg,
    Gif,
    WebP,
}

impl Format {
    const ALL: [(Format, &'static str, &'static str); 4] = [
        (Format::Png, "PNG", "image/png"),
        (Format::Jpeg, "JPEG", "image/jpeg"),
        (Format::Gif, "GIF", "image/gif"),
        (Format::WebP, "WebP", "image/webp"),
    ];

    /// Recognises a format by its first bytes.
    fn of(bytes: &[u8]) -> Option<Format> {
        match bytes {
            [0x89, b'P', b'N', b'G', ..] => Some(Format::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Format::Jpeg),
            [b'G', b'I', b'F', b'8', ..] => Some(Format::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Format::WebP),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        Format::ALL.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }

    fn mime(self) -> &'static str {
        Format::ALL.iter().find(|row| row.0 == self).map_or("", |row| row.2)
    }
}

/// Resizes an image or corrects its MIME type; `None` if it can be sent unchanged.
///
/// # Errors
/// Describes what is wrong, to be appended to a sentence.
pub(super) fn fit(image: &Media) -> Result<Option<Media>, String> {
    let bytes = LENIENT.decode(image.data.trim()).map_err(|_| "it is not base64".to_owned())?;
    let Some(format) = Format::of(&bytes) else {
        let is_known = Format::ALL.iter().any(|(_, _, mime)| *mime == image.mime);
        // Other formats are left to the provider.
        return if is_known { Err(format!("it is not {}", image.mime)) } else { Ok(None) };
    };
    let damaged = || format!("it is a damaged {}", format.name());
    let (width, height) =
        size(format, &bytes).filter(|size| size.0 > 0 && size.1 > 0).ok_or_else(damaged)?;
    let longest = width.max(height);
    let is_small = image.data.len() <= MAX_BYTES;
    if is_small && longest <= MAX_RESIZED_SIDE {
        let mime = format.mime().to_owned();
        let is_correct = mime == image.mime;
        return Ok((!is_correct).then(|| Media { data: image.data.clone(), mime }));
    }
    let rows: Rows = match format {
        _ if u64::from(width) * u64::from(height) > MAX_PIXELS || longest > MAX_SIDE => {
            return Err(format!("it is too large ({width} × {height} pixels)"));
        }
        Format::Png => png_rows,
        Format::Jpeg => jpeg_rows,
        Format::Gif | Format::WebP if is_small && longest <= MAX_UNCHANGED_SIDE => return Ok(None),
        Format::Gif | Format::WebP => {
            return Err(format!(
                "it is a {} that is too large ({width} × {height} pixels, {} bytes). Only PNG and JPEG are resized",
                format.name(),
                bytes.len()
            ));
        }
    };
    let mut side = longest.min(MAX_RESIZED_SIDE);
    loop {
        let mut shrink = Shrink::new((width, height), scaled_to((width, height), side));
        rows(&bytes, &mut shrink).map_err(|why| format!("{}: {why}", damaged()))?;
        let data = STANDARD.encode(shrink.into_jpeg()?);
        if data.len() <= MAX_BYTES {
            return Ok(Some(Media { data, mime: Format::Jpeg.mime().to_owned() }));
        }
        side = side / 4 * 3;
    }
}

/// Decodes an image row by row.
type Rows = fn(&[u8], &mut Shrink) -> Result<(), String>;

/// Reads the size of an image from its header.
fn size(format: Format, bytes: &[u8]) -> Option<Size> {
    let big = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let little = |at: usize, length: usize| {
        let bytes = bytes.get(at..at + length)?.iter().rev();
        Some(bytes.fold(0, |number, byte| number << 8 | u32::from(*byte)))
    };
    match format {
        Format::Png => Some((big(16)?, big(20)?)),
        Format::Gif => Some((little(6, 2)?, little(8, 2)?)),
        Format::Jpeg => {
            let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options());
            decoder.decode_headers().ok()?;
            let (width, height) = decoder.dimensions()?;
            Some((u32::try_from(width).ok()?, u32::try_from(height).ok()?))
        }
        Format::WebP => match bytes.get(12..16)? {
            b"VP8X" => Some((little(24, 3)? + 1, little(27, 3)? + 1)),
            b"VP8L" => {
                let bits = little(21, 4)?;
                Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
            }
            b"VP8 " => Some((little(26, 2)? & 0x3fff, little(28, 2)? & 0x3fff)),
            _ => None,
        },
    }
}

fn png_rows(bytes: &[u8], shrink: &mut Shrink) -> Result<(), String> {
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let mut reader = decoder.read_info().map_err(|err| err.to_string())?;
    let samples = reader.output_color_type().0.samples();
    if !reader.info().interlaced {
        while let Some(row) = reader.next_row().map_err(|err| err.to_string())? {
            shrink.push(row.data(), samples);
        }
        return Ok(());
    }
    let mut buffer = vec![0; reader.output_buffer_size().ok_or("it is too large")?];
    let frame = reader.next_frame(&mut buffer).map_err(|err| err.to_string())?;
    buffer.chunks_exact(frame.line_size).for_each(|row| shrink.push(row, samples));
    Ok(())
}

fn jpeg_rows(bytes: &[u8], shrink: &mut Shrink) -> Result<(), String> {
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options());
    let pixels = decoder.decode().map_err(|err| format!("{err:?}"))?;
    let samples = decoder.output_colorspace().map_or(3, |colors| colors.num_components());
    shrink.orientation = decoder.exif().and_then(|exif| orientation(exif));
    let width = shrink.from.0 as usize;
    pixels.chunks_exact(width * samples).for_each(|row| shrink.push(row, samples));
    Ok(())
}

/// Reads the orientation from Exif data: 2 to 8 if the image must be rotated or mirrored.
fn orientation(exif: &[u8]) -> Option<u8> {
    const ORIENTATION: u16 = 0x0112;
    let is_little = exif.starts_with(b"II");
    let number = |at: usize| {
        let bytes = exif.get(at..at + 2)?.try_into().ok()?;
        Some(if is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    // The offset of the first directory. Only its lower half is read: cameras write small offsets.
    let list = usize::from(number(if is_little { 4 } else { 6 })?);
    let mut entries = (0..usize::from(number(list)?)).map(|entry| list + 2 + entry * 12);
    let entry = entries.find(|at| number(*at) == Some(ORIENTATION))?;
    u8::try_from(number(entry + 8)?).ok().filter(|orientation| (2..=8).contains(orientation))
}

fn options() -> DecoderOptions {
    let most = usize::try_from(MAX_PIXELS).unwrap_or(usize::MAX);
    DecoderOptions::new_safe()
        .set_max_width(most)
        .set_max_height(most)
        .jpeg_set_out_colorspace(ColorSpace::RGB)
}

/// Scales a size to this longest side, with the same aspect ratio.
fn scaled_to((width, height): Size, longest: u32) -> Size {
    let whole = width.max(height);
    let part = |side: u32| {
        let part = (u64::from(side) * u64::from(longest) + u64::from(whole) / 2) / u64::from(whole);
        u32::try_from(part).unwrap_or(longest).max(1)
    };
    (part(width), part(height))
}

/// Resizes an image row by row: each new pixel is the mean of the area it covers.
struct Shrink {
    from: (u64, u64),
    to: (u64, u64),
    /// The number of the next source row.
    row: u64,
    /// The current source row, scaled to the new width.
    line: Vec<u64>,
    /// The weighted sums of the current new row.
    sums: Vec<u64>,
    /// The new image, in RGB.
    done: Vec<u8>,
    /// The Exif orientation, if the image must be rotated or mirrored.
    orientation: Option<u8>,
}

impl Shrink {
    fn new(from: Size, to: Size) -> Shrink {
        let wide = to.0 as usize * 3;
        let wide_numbers = |(width, height): Size| (u64::from(width), u64::from(height));
        Shrink {
            from: wide_numbers(from),
            to: wide_numbers(to),
            row: 0,
            line: vec![0; wide],
            sums: vec![0; wide],
            done: Vec::with_capacity(wide * to.1 as usize),
            orientation: None,
        }
    }

    /// Adds the next row: grey, grey with alpha, RGB, or RGB with alpha.
    fn push(&mut self, row: &[u8], samples: usize) {
        if self.row >= self.from.1 {
            return;
        }
        self.line.fill(0);
        for (at, pixel) in (0..self.from.0).zip(row.chunks_exact(samples)) {
            let colors = on_white(pixel);
            for (to, weight) in overlaps(at, self.from.0, self.to.0) {
                let cell = self.line.iter_mut().skip(to * 3).zip(colors);
                cell.for_each(|(sum, color)| *sum += u64::from(color) * weight);
            }
        }
        let [(now, weight), (next, rest)] = overlaps(self.row, self.from.1, self.to.1);
        self.add(weight);
        self.row += 1;
        if now != next || (self.row * self.to.1).is_multiple_of(self.from.1) {
            let area = self.from.0 * self.from.1;
            let color = |sum: &u64| u8::try_from((sum + area / 2) / area).unwrap_or(u8::MAX);
            self.done.extend(self.sums.iter().map(color));
            self.sums.fill(0);
            self.add(rest);
        }
    }

    fn add(&mut self, weight: u64) {
        self.sums.iter_mut().zip(&self.line).for_each(|(sum, cell)| *sum += cell * weight);
    }

    fn into_jpeg(mut self) -> Result<Vec<u8>, String> {
        // The missing rows of a truncated image are white.
        self.done.resize(self.line.len() * self.to.1 as usize, u8::MAX);
        let (width, height) = (u16::try_from(self.to.0), u16::try_from(self.to.1));
        let (Ok(width), Ok(height)) = (width, height) else {
            return Err("it is too large".to_owned());
        };
        let mut jpeg = Vec::new();
        let mut encoder = Encoder::new(&mut jpeg, QUALITY);
        let failed = |err| format!("it cannot be resized: {err}");
        if let Some(orientation) = self.orientation {
            // Only the orientation: other Exif data may reveal the location.
            let exif =
                [b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", &[orientation][..], &[0; 6]];
            encoder.add_exif_metadata(&exif.concat()).map_err(failed)?;
        }
        encoder.encode(&self.done, width, height, ColorType::Rgb).map_err(failed)?;
        Ok(jpeg)
    }
}

/// The color of a pixel on a white background.
fn on_white(pixel: &[u8]) -> [u8; 3] {
    let (colors, alpha) = match *pixel {
        [grey] => ([grey; 3], u8::MAX),
        [grey, alpha] => ([grey; 3], alpha),
        [red, green, blue] => ([red, green, blue], u8::MAX),
        [red, green, blue, alpha, ..] => ([red, green, blue], alpha),
        [] => ([u8::MAX; 3], u8::MAX),
    };
    let alpha = u32::from(alpha);
    colors.map(|color| {
        let mixed = (u32::from(color) * alpha + 255 * (255 - alpha)) / 255;
        u8::try_from(mixed).unwrap_or(u8::MAX)
    })
}

/// Returns the one or two cells of a shorter scale that a cell of a longer scale overlaps, with the weights of the
/// overlaps. The weights add up to the length of the shorter scale.
fn overlaps(at: u64, from: u64, to: u64) -> [(usize, u64); 2] {
    let (start, end) = (at * to, (at + 1) * to);
    let first = start / from;
    let border = (first + 1) * from;
    let inside = end.min(border) - start;
    let (now, next) = (first as usize, if end > border { first + 1 } else { first } as usize);
    [(now, inside), (next, to - inside)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn png(size: Size, pixel: impl Fn(u32) -> [u8; 4]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, size.0, size.1);
        encoder.set_color(png::ColorType::Rgba);
        let mut writer = encoder.write_header().unwrap();
        let row: Vec<u8> = (0..size.0).flat_map(pixel).collect();
        writer.write_image_data(&row.repeat(size.1 as usize)).unwrap();
        writer.finish().unwrap();
        bytes
    }

    /// Half red, half transparent.
    fn two_halves(size: Size) -> Vec<u8> {
        png(size, |x| if x < size.0 / 2 { [255, 0, 0, 255] } else { [0, 0, 255, 0] })
    }

    fn media(bytes: &[u8], mime: &str) -> Media {
        Media { data: STANDARD.encode(bytes), mime: mime.to_owned() }
    }

    fn size_of(image: &Media) -> Size {
        let bytes = STANDARD.decode(&image.data).unwrap();
        size(Format::of(&bytes).unwrap(), &bytes).unwrap()
    }

    /// Replaces bytes in the header of a PNG, and its checksum.
    fn with_header(mut png: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
        png[at..at + bytes.len()].copy_from_slice(bytes);
        let sum = crc32fast::hash(&png[12..29]);
        png[29..33].copy_from_slice(&sum.to_be_bytes());
        png
    }

    #[test]
    fn large_image_is_resized_and_shows_the_same() {
        let smaller = fit(&media(&two_halves((4000, 200)), "image/png")).unwrap().unwrap();
        assert_eq!((size_of(&smaller), smaller.mime.as_str()), ((2000, 100), "image/jpeg"));
        let mut shown = Shrink::new((2000, 100), (2, 1));
        jpeg_rows(&STANDARD.decode(&smaller.data).unwrap(), &mut shown).unwrap();
        let [red, other, blue, rest @ ..] = &shown.done[..] else { panic!("no pixels") };
        assert!(*red > 240 && *other < 15 && *blue < 15, "{:?}", shown.done);
        assert!(rest.len() == 3 && rest.iter().all(|color| *color > 240), "{:?}", shown.done);
    }

    #[test]
    fn image_within_the_limits_is_unchanged() {
        let small = media(&two_halves((20, 10)), "image/png");
        assert_eq!(fit(&small), Ok(None));
        let misnamed = Media { mime: "image/webp".to_owned(), ..small.clone() };
        assert_eq!(fit(&misnamed), Ok(Some(small)));
        assert_eq!(fit(&media(b"<svg/>", "image/svg+xml")), Ok(None));
        let gif = |width: u16| [b"GIF89a", &width.to_le_bytes()[..], &[1, 0]].concat();
        assert_eq!(fit(&media(&gif(3000), "image/gif")), Ok(None));
        assert!(fit(&media(&gif(9000), "image/gif")).unwrap_err().contains("9000 × 1 pixels"));
    }

    #[test]
    fn image_with_too_many_bytes_is_reencoded() {
        let mut heavy = two_halves((100, 60));
        heavy.resize(MAX_BYTES, 0);
        let lighter = fit(&media(&heavy, "image/png")).unwrap().unwrap();
        assert_eq!((size_of(&lighter), lighter.data.len() < 10_000), ((100, 60), true));
    }

    #[test]
    fn interlaced_image_is_decoded() {
        let bytes = with_header(png((1, 1), |_| [1, 2, 3, 255]), 28, &[1]);
        let mut shrink = Shrink::new((1, 1), (1, 1));
        png_rows(&bytes, &mut shrink).unwrap();
        assert_eq!(shrink.done, [1, 2, 3]);
    }

    #[test]
    fn orientation_of_a_photo_is_preserved() {
        let mut photo = Shrink::new((4, 2), (4, 2));
        photo.orientation = Some(6);
        let mut bytes = photo.into_jpeg().unwrap();
        bytes.resize(MAX_BYTES, 0);
        let smaller = fit(&media(&bytes, "image/jpeg")).unwrap().unwrap();
        let mut again = Shrink::new((4, 2), (4, 2));
        jpeg_rows(&STANDARD.decode(&smaller.data).unwrap(), &mut again).unwrap();
        assert_eq!((size_of(&smaller), again.orientation), ((4, 2), Some(6)));
        let little = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x03\0\0\0";
        assert_eq!(
            (orientation(little), orientation(&little[..18]), orientation(b"MM")),
            (Some(3), None, None)
        );
    }

    #[test]
    fn unusable_image_is_described() {
        let why = |bytes: &[u8], mime: &str| fit(&media(bytes, mime)).unwrap_err();
        let side = 10_000_u32.to_be_bytes();
        let bomb = with_header(png((1, 1), |_| [0; 4]), 16, &[side, side].concat());
        assert_eq!(why(&bomb, "image/png"), "it is too large (10000 × 10000 pixels)");
        let (one, many) = (1_u32.to_be_bytes(), 40_000_u32.to_be_bytes());
        let thread = with_header(png((1, 1), |_| [0; 4]), 16, &[one, many].concat());
        assert_eq!(why(&thread, "image/png"), "it is too large (1 × 40000 pixels)");
        assert_eq!(why(b"hello", "image/png"), "it is not image/png");
        assert_eq!(why(b"\x89PNG", "image/png"), "it is a damaged PNG");
        assert_eq!(why(b"\xff\xd8\xff\xe0", "image/jpeg"), "it is a damaged JPEG");
        let wide = two_halves((4000, 10));
        let cut = why(&wide[..wide.len() / 2], "image/png");
        assert!(cut.starts_with("it is a damaged PNG: "), "{cut}");
        let not_base64 = Media { data: "*".to_owned(), mime: "image/png".to_owned() };
        assert_eq!(fit(&not_base64).unwrap_err(), "it is not base64");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn resized_image_is_within_the_limits_and_keeps_its_aspect_ratio(
            long in 1_u32..6000, short in 1_u32..40, is_upright: bool,
        ) {
            let from = if is_upright { (short, long) } else { (long, short) };
            let longest = long.max(short);
            match fit(&media(&two_halves(from), "image/png")).unwrap() {
                None => prop_assert!(longest <= MAX_RESIZED_SIDE),
                Some(smaller) => {
                    prop_assert!(longest > MAX_RESIZED_SIDE && smaller.data.len() <= MAX_BYTES);
                    let to = size_of(&smaller);
                    prop_assert_eq!(to.0.max(to.1), MAX_RESIZED_SIDE);
                    let scale = f64::from(MAX_RESIZED_SIDE) / f64::from(longest);
                    for (before, after) in [(from.0, to.0), (from.1, to.1)] {
                        let exact = f64::from(before) * scale;
                        prop_assert!((f64::from(after) - exact).abs() <= 0.5 || after == 1);
                    }
                }
            }
        }

        #[test]
        fn arbitrary_bytes_cause_no_panic(
            format in 0_usize..4, noise in proptest::collection::vec(any::<u8>(), 0..300), at in 0_usize..4000,
        ) {
            let mut wide = Shrink::new((2100, 4), (2100, 4));
            png_rows(&two_halves((2100, 4)), &mut wide).unwrap();
            let whole = match format {
                0 => two_halves((2100, 4)),
                1 => wide.into_jpeg().unwrap(),
                2 => b"GIF89a".to_vec(),
                _ => b"RIFF\0\0\0\0WEBPVP8X".to_vec(),
            };
            let at = at % whole.len();
            let hurt = [&whole[..at], &noise[..], whole.get(at + noise.len()..).unwrap_or(&[])].concat();
            if let Ok(Some(smaller)) = fit(&media(&hurt, "image/png")) {
                let (width, height) = size_of(&smaller);
                prop_assert!(width.max(height) <= MAX_UNCHANGED_SIDE);
            }
        }
    }
}
