//! Makes one picture such as every provider takes it: small enough, and of the format that it says. Pure.
//!
//! What a client or a tool sends is untrusted: the size is read from its head, and what is too large is never decoded. PNG
//! and JPEG are made smaller and become JPEG; GIF and WebP are sent as they are, or not at all.

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

/// The longest side of a picture, in pixels: Anthropic takes no larger one beside many others, and models see no more.
pub(super) const LONGEST_SIDE: u32 = 2_000;
/// The longest side of a picture that we cannot make smaller: no provider takes more.
const LONGEST_UNCHANGED: u32 = 8_000;
/// The largest picture that providers take, in bytes of base64.
pub(super) const MOST_BYTES: usize = 5 * 1024 * 1024;
/// Pictures of more pixels are not decoded.
const MOST_PIXELS: u64 = 50_000_000;
/// No picture that people look at is longer, in pixels; one line of a pixel each takes as long as all the rest.
const MOST_SIDE: u32 = 32_768;
/// How well a smaller picture keeps what it shows, of 100.
const QUALITY: u8 = 85;

/// Some clients leave out the padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Width and height.
type Size = (u32, u32);

/// The formats that providers take.
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

    /// Knows a format by its first bytes.
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

/// Makes a picture such as providers take it; `None` if it is so already.
///
/// # Errors
/// Says what is wrong with it, as the end of a sentence.
pub(super) fn fit(picture: &Media) -> Result<Option<Media>, String> {
    let bytes = LENIENT.decode(picture.data.trim()).map_err(|_| "it is not base64".to_owned())?;
    let Some(format) = Format::of(&bytes) else {
        let is_known = Format::ALL.iter().any(|(_, _, mime)| *mime == picture.mime);
        // What else a provider may take is its own business.
        return if is_known { Err(format!("it is no {}", picture.mime)) } else { Ok(None) };
    };
    let broken = || format!("it is a broken {}", format.name());
    let (width, height) =
        size(format, &bytes).filter(|size| size.0 > 0 && size.1 > 0).ok_or_else(broken)?;
    let longest = width.max(height);
    let is_light = picture.data.len() <= MOST_BYTES;
    if is_light && longest <= LONGEST_SIDE {
        let mime = format.mime().to_owned();
        let is_right = mime == picture.mime;
        return Ok((!is_right).then(|| Media { data: picture.data.clone(), mime }));
    }
    let rows: Rows = match format {
        _ if u64::from(width) * u64::from(height) > MOST_PIXELS || longest > MOST_SIDE => {
            return Err(format!("its {width} × {height} pixels are too many"));
        }
        Format::Png => png_rows,
        Format::Jpeg => jpeg_rows,
        Format::Gif | Format::WebP if is_light && longest <= LONGEST_UNCHANGED => return Ok(None),
        Format::Gif | Format::WebP => {
            return Err(format!(
                "it is a {} of {width} × {height} pixels and {} bytes, which is too large; a PNG or JPEG would be made smaller",
                format.name(),
                bytes.len()
            ));
        }
    };
    let mut side = longest.min(LONGEST_SIDE);
    loop {
        let mut shrink = Shrink::new((width, height), within((width, height), side));
        rows(&bytes, &mut shrink).map_err(|why| format!("{}: {why}", broken()))?;
        let data = STANDARD.encode(shrink.into_jpeg()?);
        if data.len() <= MOST_BYTES {
            return Ok(Some(Media { data, mime: Format::Jpeg.mime().to_owned() }));
        }
        side = side / 4 * 3;
    }
}

/// Decodes a picture row by row.
type Rows = fn(&[u8], &mut Shrink) -> Result<(), String>;

/// Reads the size of a picture from its head.
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
    shrink.turned = decoder.exif().and_then(|exif| turned(exif));
    let width = shrink.from.0 as usize;
    pixels.chunks_exact(width * samples).for_each(|row| shrink.push(row, samples));
    Ok(())
}

/// Reads how a camera was held, of what it wrote: 2 to 8, as Exif counts, if the picture is to be turned.
fn turned(exif: &[u8]) -> Option<u8> {
    const ORIENTATION: u16 = 0x0112;
    let is_little = exif.starts_with(b"II");
    let number = |at: usize| {
        let bytes = exif.get(at..at + 2)?.try_into().ok()?;
        Some(if is_little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) })
    };
    // The place of the first list of entries; its upper half is 0 in what cameras write.
    let list = usize::from(number(if is_little { 4 } else { 6 })?);
    let mut entries = (0..usize::from(number(list)?)).map(|entry| list + 2 + entry * 12);
    let entry = entries.find(|at| number(*at) == Some(ORIENTATION))?;
    u8::try_from(number(entry + 8)?).ok().filter(|turned| (2..=8).contains(turned))
}

fn options() -> DecoderOptions {
    let most = usize::try_from(MOST_PIXELS).unwrap_or(usize::MAX);
    DecoderOptions::new_safe()
        .set_max_width(most)
        .set_max_height(most)
        .jpeg_set_out_colorspace(ColorSpace::RGB)
}

/// The size of a picture whose longest side is this long; its shape stays.
fn within((width, height): Size, longest: u32) -> Size {
    let whole = width.max(height);
    let part = |side: u32| {
        let part = (u64::from(side) * u64::from(longest) + u64::from(whole) / 2) / u64::from(whole);
        u32::try_from(part).unwrap_or(longest).max(1)
    };
    (part(width), part(height))
}

/// Makes a picture smaller as its rows come: each new pixel is the mean of the area that it stands for.
struct Shrink {
    from: (u64, u64),
    to: (u64, u64),
    /// The next row that comes.
    row: u64,
    /// The row that came, at its new width.
    line: Vec<u64>,
    /// What belongs to the new row at hand.
    sums: Vec<u64>,
    /// The new picture, in RGB.
    done: Vec<u8>,
    /// How it is to be turned, as Exif counts.
    turned: Option<u8>,
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
            turned: None,
        }
    }

    /// Takes the next row: grey, grey and alpha, RGB or RGB and alpha.
    fn push(&mut self, row: &[u8], samples: usize) {
        if self.row >= self.from.1 {
            return;
        }
        self.line.fill(0);
        for (at, pixel) in (0..self.from.0).zip(row.chunks_exact(samples)) {
            let colors = on_white(pixel);
            for (to, weight) in shares(at, self.from.0, self.to.0) {
                let cell = self.line.iter_mut().skip(to * 3).zip(colors);
                cell.for_each(|(sum, color)| *sum += u64::from(color) * weight);
            }
        }
        let [(now, weight), (next, rest)] = shares(self.row, self.from.1, self.to.1);
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
        // A picture that broke off is white where nothing came.
        self.done.resize(self.line.len() * self.to.1 as usize, u8::MAX);
        let (width, height) = (u16::try_from(self.to.0), u16::try_from(self.to.1));
        let (Ok(width), Ok(height)) = (width, height) else {
            return Err("it is too large".to_owned());
        };
        let mut jpeg = Vec::new();
        let mut encoder = Encoder::new(&mut jpeg, QUALITY);
        let failed = |err| format!("it cannot be made smaller: {err}");
        if let Some(turned) = self.turned {
            // One entry, and nothing else of what the camera wrote: it may say where that was.
            let exif = [b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", &[turned][..], &[0; 6]];
            encoder.add_exif_metadata(&exif.concat()).map_err(failed)?;
        }
        encoder.encode(&self.done, width, height, ColorType::Rgb).map_err(failed)?;
        Ok(jpeg)
    }
}

/// The colors of a pixel that stands on white.
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

/// In which cells of a shorter scale a cell of a longer one lies, and with how much of it: one or two. Together they
/// weigh as much as the shorter scale is long.
fn shares(at: u64, from: u64, to: u64) -> [(usize, u64); 2] {
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

    /// Half red, half see-through.
    fn two_halves(size: Size) -> Vec<u8> {
        png(size, |x| if x < size.0 / 2 { [255, 0, 0, 255] } else { [0, 0, 255, 0] })
    }

    fn media(bytes: &[u8], mime: &str) -> Media {
        Media { data: STANDARD.encode(bytes), mime: mime.to_owned() }
    }

    fn size_of(picture: &Media) -> Size {
        let bytes = STANDARD.decode(&picture.data).unwrap();
        size(Format::of(&bytes).unwrap(), &bytes).unwrap()
    }

    /// Puts other bytes into the head of a PNG, with the sum that belongs to them.
    fn with_head(mut png: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
        png[at..at + bytes.len()].copy_from_slice(bytes);
        let sum = crc32fast::hash(&png[12..29]);
        png[29..33].copy_from_slice(&sum.to_be_bytes());
        png
    }

    #[test]
    fn a_large_picture_is_made_smaller_and_shows_the_same() {
        let smaller = fit(&media(&two_halves((4000, 200)), "image/png")).unwrap().unwrap();
        assert_eq!((size_of(&smaller), smaller.mime.as_str()), ((2000, 100), "image/jpeg"));
        let mut shown = Shrink::new((2000, 100), (2, 1));
        jpeg_rows(&STANDARD.decode(&smaller.data).unwrap(), &mut shown).unwrap();
        let [red, other, blue, rest @ ..] = &shown.done[..] else { panic!("no pixels") };
        assert!(*red > 240 && *other < 15 && *blue < 15, "{:?}", shown.done);
        assert!(rest.len() == 3 && rest.iter().all(|color| *color > 240), "{:?}", shown.done);
    }

    #[test]
    fn what_fits_stays_as_it_is() {
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
    fn a_picture_of_too_many_bytes_is_written_anew() {
        let mut heavy = two_halves((100, 60));
        heavy.resize(MOST_BYTES, 0);
        let lighter = fit(&media(&heavy, "image/png")).unwrap().unwrap();
        assert_eq!((size_of(&lighter), lighter.data.len() < 10_000), ((100, 60), true));
    }

    #[test]
    fn an_interlaced_picture_is_decoded() {
        let bytes = with_head(png((1, 1), |_| [1, 2, 3, 255]), 28, &[1]);
        let mut shrink = Shrink::new((1, 1), (1, 1));
        png_rows(&bytes, &mut shrink).unwrap();
        assert_eq!(shrink.done, [1, 2, 3]);
    }

    #[test]
    fn a_photo_stays_turned_as_it_was() {
        let mut photo = Shrink::new((4, 2), (4, 2));
        photo.turned = Some(6);
        let mut bytes = photo.into_jpeg().unwrap();
        bytes.resize(MOST_BYTES, 0);
        let smaller = fit(&media(&bytes, "image/jpeg")).unwrap().unwrap();
        let mut again = Shrink::new((4, 2), (4, 2));
        jpeg_rows(&STANDARD.decode(&smaller.data).unwrap(), &mut again).unwrap();
        assert_eq!((size_of(&smaller), again.turned), ((4, 2), Some(6)));
        let little = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x03\0\0\0";
        assert_eq!((turned(little), turned(&little[..18]), turned(b"MM")), (Some(3), None, None));
    }

    #[test]
    fn what_cannot_be_used_is_told() {
        let why = |bytes: &[u8], mime: &str| fit(&media(bytes, mime)).unwrap_err();
        let side = 10_000_u32.to_be_bytes();
        let bomb = with_head(png((1, 1), |_| [0; 4]), 16, &[side, side].concat());
        assert_eq!(why(&bomb, "image/png"), "its 10000 × 10000 pixels are too many");
        let (one, many) = (1_u32.to_be_bytes(), 40_000_u32.to_be_bytes());
        let thread = with_head(png((1, 1), |_| [0; 4]), 16, &[one, many].concat());
        assert_eq!(why(&thread, "image/png"), "its 1 × 40000 pixels are too many");
        assert_eq!(why(b"hello", "image/png"), "it is no image/png");
        assert_eq!(why(b"\x89PNG", "image/png"), "it is a broken PNG");
        assert_eq!(why(b"\xff\xd8\xff\xe0", "image/jpeg"), "it is a broken JPEG");
        let wide = two_halves((4000, 10));
        let cut = why(&wide[..wide.len() / 2], "image/png");
        assert!(cut.starts_with("it is a broken PNG: "), "{cut}");
        let not_base64 = Media { data: "*".to_owned(), mime: "image/png".to_owned() };
        assert_eq!(fit(&not_base64).unwrap_err(), "it is not base64");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn what_is_sent_is_within_the_limits_and_keeps_its_shape(
            long in 1_u32..6000, short in 1_u32..40, is_upright: bool,
        ) {
            let from = if is_upright { (short, long) } else { (long, short) };
            let longest = long.max(short);
            match fit(&media(&two_halves(from), "image/png")).unwrap() {
                None => prop_assert!(longest <= LONGEST_SIDE),
                Some(smaller) => {
                    prop_assert!(longest > LONGEST_SIDE && smaller.data.len() <= MOST_BYTES);
                    let to = size_of(&smaller);
                    prop_assert_eq!(to.0.max(to.1), LONGEST_SIDE);
                    let scale = f64::from(LONGEST_SIDE) / f64::from(longest);
                    for (before, after) in [(from.0, to.0), (from.1, to.1)] {
                        let exact = f64::from(before) * scale;
                        prop_assert!((f64::from(after) - exact).abs() <= 0.5 || after == 1);
                    }
                }
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_fault(
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
                prop_assert!(width.max(height) <= LONGEST_UNCHANGED);
            }
        }
    }
}
