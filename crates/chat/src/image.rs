//! Images on the screen: the sequence that shows one, by the protocol of Kitty, of iTerm2, or Sixel. Pure.
//!
//! Nothing of an image reaches the terminal as it came: its bytes are decoded and encoded again, and its kind is found in them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

/// A larger image is shown as a line.
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// The most rows and columns that an image takes.
const MAX_ROWS: usize = 20;
const MAX_COLUMNS: usize = 80;

/// What a cell of a terminal measures, about. Only its ratio matters, except for Sixel.
const CELL: (usize, usize) = (10, 20);

/// The longest chunk of the protocol of Kitty.
const KITTY_CHUNK: usize = 4096;

/// How a terminal shows images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ImageProtocol {
    /// Not at all.
    #[default]
    None,
    /// The protocol of Kitty, for PNG.
    Kitty,
    /// The protocol of iTerm2.
    ITerm,
    /// Sixel, for PNG.
    Sixel,
}

/// An image that is ready for the terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// The sequence that shows it. The cursor is at its top left corner before, and anywhere after.
    pub sequence: String,
    /// How many rows it takes.
    pub rows: usize,
}

/// The variables that name a terminal.
#[derive(Debug, Default)]
pub struct ImageEnvironment {
    /// `TERM`.
    pub term: Option<String>,
    /// `TERM_PROGRAM`, or `LC_TERMINAL`, which also reaches other machines.
    pub program: Option<String>,
    /// `TMUX` is set: it does not pass on the sequences of other terminals.
    pub is_tmux: bool,
}

impl ImageProtocol {
    /// Decides from the name of the terminal. One with Sixel says so itself when it is asked.
    #[must_use]
    pub fn detect(env: &ImageEnvironment) -> ImageProtocol {
        let term = env.term.as_deref().unwrap_or_default();
        match env.program.as_deref().unwrap_or_default() {
            _ if env.is_tmux => ImageProtocol::None,
            _ if matches!(term, "xterm-kitty" | "xterm-ghostty") => ImageProtocol::Kitty,
            "ghostty" | "kitty" => ImageProtocol::Kitty,
            "iTerm.app" | "iTerm2" | "WezTerm" => ImageProtocol::ITerm,
            _ => ImageProtocol::None,
        }
    }

    /// Returns how to show an image; `None` if this terminal cannot.
    #[must_use]
    pub fn picture(self, base64: &str, columns: usize) -> Option<Picture> {
        if self == ImageProtocol::None || base64.len() > MAX_BYTES / 3 * 4 {
            return None;
        }
        let bytes = BASE64.decode(base64).ok()?;
        let (width, height) = size_of(&bytes)?;
        let (columns, rows) = cells(width, height, columns);
        let is_png = bytes.starts_with(PNG);
        let sequence = match self {
            ImageProtocol::Kitty if is_png => kitty(&bytes, columns, rows),
            ImageProtocol::Sixel if is_png => sixel(&bytes, columns * CELL.0, rows * CELL.1)?,
            ImageProtocol::ITerm => format!(
                "\u{1b}]1337;File=inline=1;size={};width={columns};height={rows};preserveAspectRatio=1:{}\u{7}",
                bytes.len(),
                BASE64.encode(&bytes)
            ),
            _ => return None,
        };
        Some(Picture { sequence, rows })
    }
}

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Returns width and height of a PNG, GIF or JPEG.
fn size_of(bytes: &[u8]) -> Option<(usize, usize)> {
    let at = |from: usize, length: usize, is_big: bool| {
        let part = bytes.get(from..from + length)?.iter();
        let add = |sum: usize, byte: &u8| sum << 8 | usize::from(*byte);
        Some(if is_big { part.fold(0, add) } else { part.rev().fold(0, add) })
    };
    let size = if bytes.starts_with(PNG) {
        (at(16, 4, true)?, at(20, 4, true)?)
    } else if bytes.starts_with(b"GIF8") {
        (at(6, 2, false)?, at(8, 2, false)?)
    } else if bytes.starts_with(b"\xff\xd8") {
        let mut next = 2;
        loop {
            let (mark, kind) = (*bytes.get(next)?, *bytes.get(next + 1)?);
            if mark != 0xff {
                return None;
            }
            // The frames, without the marks of tables that have numbers between theirs.
            if (0xc0..=0xcf).contains(&kind) && ![0xc4, 0xc8, 0xcc].contains(&kind) {
                break (at(next + 7, 2, true)?, at(next + 5, 2, true)?);
            }
            next += 2 + at(next + 2, 2, true)?;
        }
    } else {
        return None;
    };
    (size.0 > 0 && size.1 > 0 && size.0 < 65_536 && size.1 < 65_536).then_some(size)
}

/// Returns the columns and rows of an image, within the limits and in its ratio.
fn cells(width: usize, height: usize, columns: usize) -> (usize, usize) {
    let most = columns.clamp(1, MAX_COLUMNS);
    let rows_of = |columns: usize| (columns * CELL.0 * height).div_ceil(width * CELL.1).max(1);
    let wanted = width.div_ceil(CELL.0).clamp(1, most);
    match rows_of(wanted) {
        rows if rows <= MAX_ROWS => (wanted, rows),
        _ => ((MAX_ROWS * CELL.1 * width / (height * CELL.0)).clamp(1, most), MAX_ROWS),
    }
}

fn kitty(bytes: &[u8], columns: usize, rows: usize) -> String {
    let data = BASE64.encode(bytes);
    let mut sequence = String::new();
    let count = data.len().div_ceil(KITTY_CHUNK);
    for (at, chunk) in data.as_bytes().chunks(KITTY_CHUNK).enumerate() {
        let more = u8::from(at + 1 < count);
        sequence.push_str("\u{1b}_G");
        if at == 0 {
            // Shown at once, without an answer, and the cursor stays.
            sequence.push_str(&format!("a=T,f=100,q=2,C=1,c={columns},r={rows},"));
        }
        sequence.push_str(&format!("m={more};{}\u{1b}\\", String::from_utf8_lossy(chunk)));
    }
    sequence
}

/// Returns a PNG as Sixel, scaled to so many pixels, with the 216 colours that all terminals have.
fn sixel(bytes: &[u8], width: usize, height: usize) -> Option<String> {
    let pixels = Pixels::decode(bytes)?;
    let mut sequence = format!("\u{1b}P0;1q\"1;1;{width};{height}");
    for color in 0..216 {
        let part = |step: usize| step % 6 * 20;
        let (red, green, blue) = (part(color / 36), part(color / 6), part(color));
        sequence.push_str(&format!("#{color};2;{red};{green};{blue}"));
    }
    for top in (0..height).step_by(6) {
        let rows = (height - top).min(6);
        let color = |column: usize, row: usize| pixels.color(column, top + row, width, height);
        let band: Vec<[Option<u8>; 6]> = (0..width)
            .map(|column| {
                std::array::from_fn(|row| if row < rows { color(column, row) } else { None })
            })
            .collect();
        let mut used: Vec<u8> = band.iter().flatten().flatten().copied().collect();
        used.sort_unstable();
        used.dedup();
        for color in used {
            sequence.push_str(&format!("#{color}"));
            let mut cells = band.iter().map(|column| {
                let bit = |row: usize| u8::from(column[row] == Some(color)) << row;
                char::from(63 + (0..6).map(bit).sum::<u8>())
            });
            let mut last = cells.next();
            let mut count = 1;
            for cell in cells.map(Some).chain([None]) {
                if cell == last {
                    count += 1;
                    continue;
                }
                if let Some(last) = last {
                    match count {
                        1 => sequence.push(last),
                        _ => sequence.push_str(&format!("!{count}{last}")),
                    }
                }
                (last, count) = (cell, 1);
            }
            sequence.push('$');
        }
        sequence.push('-');
    }
    sequence.push_str("\u{1b}\\");
    Some(sequence)
}

/// The pixels of a PNG.
struct Pixels {
    data: Vec<u8>,
    width: usize,
    height: usize,
    channels: usize,
}

impl Pixels {
    fn decode(bytes: &[u8]) -> Option<Pixels> {
        let limits = png::Limits { bytes: 64 * 1024 * 1024 };
        let mut decoder = png::Decoder::new_with_limits(std::io::Cursor::new(bytes), limits);
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let mut reader = decoder.read_info().ok()?;
        let size = reader.output_buffer_size().filter(|size| *size <= 64 * 1024 * 1024)?;
        let mut data = vec![0; size];
        let info = reader.next_frame(&mut data).ok()?;
        Some(Pixels {
            data,
            width: usize::try_from(info.width).ok()?,
            height: usize::try_from(info.height).ok()?,
            channels: info.color_type.samples(),
        })
    }

    /// Returns the colour of a pixel of the scaled image; `None` where it is transparent.
    fn color(&self, column: usize, row: usize, width: usize, height: usize) -> Option<u8> {
        let (x, y) = (column * self.width / width, row * self.height / height);
        let at = (y * self.width + x) * self.channels;
        let pixel = self.data.get(at..at + self.channels)?;
        let (red, green, blue, alpha) = match *pixel {
            [gray] => (gray, gray, gray, 255),
            [gray, alpha] => (gray, gray, gray, alpha),
            [red, green, blue] => (red, green, blue, 255),
            [red, green, blue, alpha] => (red, green, blue, alpha),
            _ => return None,
        };
        let step = |value: u8| u8::try_from((u16::from(value) + 25) / 51).unwrap_or(5);
        (alpha >= 128).then(|| step(red) * 36 + step(green) * 6 + step(blue))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32) -> String {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(png::ColorType::Rgb);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(&[255, 0, 0].repeat((width * height) as usize)).unwrap();
        drop(writer);
        BASE64.encode(bytes)
    }

    // R: C1
    #[test]
    fn image_is_scaled_to_the_terminal() {
        assert_eq!(cells(100, 100, 80), (10, 5));
        assert_eq!(cells(4000, 1000, 60), (60, 8));
        assert_eq!(cells(100, 4000, 80), (1, 20));
        assert_eq!(cells(1, 1, 80), (1, 1));
    }

    #[test]
    fn each_protocol_has_its_sequence() {
        let image = png(40, 40);
        let kitty = ImageProtocol::Kitty.picture(&image, 80).unwrap();
        assert_eq!(kitty.rows, 2);
        assert!(kitty.sequence.starts_with("\u{1b}_Ga=T,f=100,q=2,C=1,c=4,r=2,m=0;iVBOR"));
        let iterm = ImageProtocol::ITerm.picture(&image, 80).unwrap();
        assert!(iterm.sequence.starts_with("\u{1b}]1337;File=inline=1;size="));
        let sixel = ImageProtocol::Sixel.picture(&image, 80).unwrap().sequence;
        // 40 pixels of red, in each of the bands.
        assert_eq!(sixel.matches("#180!40~$").count(), 6, "{sixel}");
        assert_eq!(sixel.matches("#180!40N$").count(), 1, "{sixel}");
        assert!(sixel.ends_with("\u{1b}\\"));
        assert_eq!(ImageProtocol::None.picture(&image, 80), None);
    }

    #[test]
    fn what_is_no_image_is_not_shown() {
        for data in ["", "AAAA", "not base64 \u{1b}[2J", &BASE64.encode("\u{1b}[2J")] {
            assert_eq!(ImageProtocol::ITerm.picture(data, 80), None, "{data}");
        }
        let cut = &png(40, 40)[..60];
        assert_eq!(ImageProtocol::Sixel.picture(cut, 80), None);
        // Claims a size that nobody could show.
        let mut bytes = PNG.to_vec();
        bytes.extend([0, 0, 0, 13, b'I', b'H', b'D', b'R', 255, 255, 255, 255, 0, 0, 0, 1]);
        assert_eq!(ImageProtocol::ITerm.picture(&BASE64.encode(bytes), 80), None);
    }

    #[test]
    fn sizes_of_other_formats_are_read() {
        assert_eq!(size_of(b"GIF89a\x10\x00\x20\x00"), Some((16, 32)));
        let jpeg = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x20\x00\x10";
        assert_eq!(size_of(jpeg), Some((16, 32)));
    }
}
