//! Which colours a terminal gets: none, 16, 256 or all.
//!
//! Pure: the caller reads the environment. A colour that a terminal lacks becomes the nearest one it has.

use crate::style::{Color, Style};

/// How many colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ColorLevel {
    /// Plain text: no escape sequences for style at all.
    #[default]
    None,
    /// The 16 colours of the user's own palette.
    Ansi16,
    /// The palette of 256 colours.
    Ansi256,
    /// 24 bits.
    True,
}

/// What the user asked for with `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ColorChoice {
    /// Colours on a terminal, unless the environment says otherwise.
    #[default]
    Auto,
    /// Colours even without a terminal.
    Always,
    /// No colours.
    Never,
}

/// The environment variables that say which colours are wanted.
#[derive(Debug, Clone, Default)]
pub struct ColorEnvironment {
    /// `NO_COLOR` is set and not empty.
    pub no_color: bool,
    /// `TERM`.
    pub term: Option<String>,
    /// `COLORTERM`.
    pub colorterm: Option<String>,
}

impl ColorLevel {
    /// Decides from the user's choice, the environment, and whether the output is a terminal. `--color` is stronger than
    /// `NO_COLOR`, as <https://no-color.org> says.
    #[must_use]
    pub fn detect(choice: ColorChoice, env: &ColorEnvironment, is_terminal: bool) -> ColorLevel {
        let term = env.term.as_deref().unwrap_or_default();
        match choice {
            ColorChoice::Never => return ColorLevel::None,
            ColorChoice::Auto if env.no_color || !is_terminal || term == "dumb" => {
                return ColorLevel::None;
            }
            ColorChoice::Auto | ColorChoice::Always => {}
        }
        let has_all = matches!(env.colorterm.as_deref(), Some("truecolor" | "24bit"));
        if has_all || term.ends_with("-direct") || matches!(term, "xterm-kitty" | "xterm-ghostty") {
            ColorLevel::True
        } else if term.contains("256color") || matches!(term, "alacritty" | "foot") {
            ColorLevel::Ansi256
        } else {
            ColorLevel::Ansi16
        }
    }
}

/// Returns the escape sequence that switches from no style to this one; nothing without colours.
#[must_use]
pub fn sequence(style: Style, level: ColorLevel) -> String {
    if level == ColorLevel::None || style == Style::default() {
        return String::new();
    }
    let mut codes: Vec<String> = Vec::new();
    let flags = [
        (style.bold, "1"),
        (style.dim, "2"),
        (style.italic, "3"),
        (style.underline, "4"),
        (style.reverse, "7"),
        (style.strike, "9"),
    ];
    codes.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, code)| (*code).to_owned()));
    codes.extend(style.fg.map(|color| code_of(color, level, false)));
    // Backgrounds of the 16 colours differ too much between palettes to put text on them.
    let bg = style.bg.filter(|_| level > ColorLevel::Ansi16);
    codes.extend(bg.map(|color| code_of(color, level, true)));
    if codes.is_empty() { String::new() } else { format!("\u{1b}[{}m", codes.join(";")) }
}

fn code_of(color: Color, level: ColorLevel, is_background: bool) -> String {
    let shift = if is_background { 10 } else { 0 };
    match color {
        Color::Ansi(number @ 0..=7) => (30 + u32::from(number) + shift).to_string(),
        Color::Ansi(number) => (82 + u32::from(number.min(15)) + shift).to_string(),
        Color::Rgb(red, green, blue) => match level {
            ColorLevel::True => format!("{};2;{red};{green};{blue}", 38 + shift),
            ColorLevel::Ansi256 => format!("{};5;{}", 38 + shift, nearest_256(red, green, blue)),
            ColorLevel::Ansi16 | ColorLevel::None => {
                code_of(Color::Ansi(nearest_16(red, green, blue)), level, is_background)
            }
        },
    }
}

/// Returns the nearest colour of the 6×6×6 cube or the grey ramp.
fn nearest_256(red: u8, green: u8, blue: u8) -> u8 {
    const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let step = |value: u8| {
        (0..6u8).min_by_key(|step| STEPS[usize::from(*step)].abs_diff(value)).unwrap_or_default()
    };
    let (r, g, b) = (step(red), step(green), step(blue));
    let distance = |(r, g, b): (u8, u8, u8)| {
        [r.abs_diff(red), g.abs_diff(green), b.abs_diff(blue)]
            .iter()
            .map(|part| u32::from(*part).pow(2))
            .sum::<u32>()
    };
    let cube = (STEPS[usize::from(r)], STEPS[usize::from(g)], STEPS[usize::from(b)]);
    let mean = (u16::from(red) + u16::from(green) + u16::from(blue)) / 3;
    let grey_step = u8::try_from(mean.saturating_sub(3) / 10).unwrap_or(23).min(23);
    let grey = 8 + 10 * grey_step;
    if distance((grey, grey, grey)) < distance(cube) {
        232 + grey_step
    } else {
        16 + 36 * r + 6 * g + b
    }
}

/// Returns the colour of the 16 by hue: which parts are strong, and how bright it is.
fn nearest_16(red: u8, green: u8, blue: u8) -> u8 {
    let most = red.max(green).max(blue);
    let is_strong = |part: u8| u16::from(part) * 4 > u16::from(most) * 3 && most > 40;
    let bits =
        u8::from(is_strong(red)) | u8::from(is_strong(green)) << 1 | u8::from(is_strong(blue)) << 2;
    if most > 200 { bits + 8 } else { bits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_follows_choice_and_environment() {
        let env = |term: &str, colorterm: Option<&str>| ColorEnvironment {
            no_color: false,
            term: Some(term.to_owned()),
            colorterm: colorterm.map(str::to_owned),
        };
        let auto = |env: &ColorEnvironment| ColorLevel::detect(ColorChoice::Auto, env, true);
        assert_eq!(auto(&env("xterm", None)), ColorLevel::Ansi16);
        assert_eq!(auto(&env("tmux-256color", None)), ColorLevel::Ansi256);
        assert_eq!(auto(&env("xterm-256color", Some("truecolor"))), ColorLevel::True);
        assert_eq!(auto(&env("dumb", Some("truecolor"))), ColorLevel::None);
        let quiet = ColorEnvironment { no_color: true, ..env("xterm", None) };
        assert_eq!(auto(&quiet), ColorLevel::None);
        assert_eq!(ColorLevel::detect(ColorChoice::Always, &quiet, false), ColorLevel::Ansi16);
        let piped = ColorLevel::detect(ColorChoice::Auto, &env("xterm", None), false);
        assert_eq!(piped, ColorLevel::None);
        assert_eq!(
            ColorLevel::detect(ColorChoice::Never, &env("xterm", None), true),
            ColorLevel::None
        );
    }

    #[test]
    fn colours_become_the_nearest_that_exist() {
        let red = Style { fg: Some(Color::Rgb(255, 0, 0)), bold: true, ..Style::default() };
        assert_eq!(sequence(red, ColorLevel::True), "\u{1b}[1;38;2;255;0;0m");
        assert_eq!(sequence(red, ColorLevel::Ansi256), "\u{1b}[1;38;5;196m");
        assert_eq!(sequence(red, ColorLevel::Ansi16), "\u{1b}[1;91m");
        assert_eq!(sequence(red, ColorLevel::None), "");
        assert_eq!(nearest_256(128, 128, 128), 244);
        let back = Style { bg: Some(Color::Rgb(0, 60, 0)), ..Style::default() };
        assert_eq!(sequence(back, ColorLevel::Ansi16), "");
    }
}
