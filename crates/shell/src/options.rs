//! Splits arguments into known options, their values, and operands.

use super::word::{Meaning, Word};

/// The options of a program that neither change nor run anything.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Letters without a value; `#` stands for digits, as in `-5`.
    pub(crate) flags: &'static str,
    /// Letters with a value.
    pub(crate) valued: &'static str,
    /// Long names, separated by spaces: `name` without a value, `name=` with one, `name?` with one only after `=`.
    pub(crate) long: &'static str,
    /// Whether all other options are harmless, too.
    pub(crate) others: bool,
}

/// The arguments of a command, sorted.
#[derive(Debug, Default)]
pub(crate) struct Sorted<'w> {
    /// Words that are neither options nor values of options.
    pub(crate) operands: Vec<&'w Word>,
    /// The given options: letters one by one, long ones by name.
    pub(crate) given: Vec<String>,
    /// The values of options, each with the option's name.
    pub(crate) values: Vec<(String, String)>,
}

impl Sorted<'_> {
    /// Tells whether one of these options was given.
    pub(crate) fn has(&self, names: &[&str]) -> bool {
        self.given.iter().any(|given| names.contains(&given.as_str()))
    }

    /// Returns the values of these options.
    pub(crate) fn values_of(&self, names: &[&str]) -> impl Iterator<Item = &str> {
        let values = self.values.iter().filter(|(name, _)| names.contains(&name.as_str()));
        values.map(|(_, value)| value.as_str())
    }
}

/// Sorts arguments. Fails if an option is unknown, or a word may turn into one.
pub(crate) fn sort<'w>(words: &'w [Word], options: &Options) -> Result<Sorted<'w>, String> {
    let mut sorted = Sorted::default();
    let mut rest = words.iter();
    let mut is_over = false;
    while let Some(word) = rest.next() {
        let text = match &word.means {
            Meaning::Unknown => return Err("an argument is only known at run time".to_owned()),
            // If no file matches, the program gets the pattern itself.
            Meaning::Names(names)
                if options.others
                    && ["--include=", "--exclude"]
                        .iter()
                        .any(|option| names.starts_with(option)) =>
            {
                read_long(&names[2..], options, &mut sorted, &mut rest)?;
                continue;
            }
            Meaning::Names(names) => {
                let may_be_option = names.starts_with(['*', '?', '[', '{', '-']);
                if may_be_option && !is_over && !options.others {
                    return Err(format!(
                        "a file that matches `{names}` may be taken for an option"
                    ));
                }
                sorted.operands.push(word);
                continue;
            }
            Meaning::Home(_) => {
                sorted.operands.push(word);
                continue;
            }
            Meaning::Text(text) => text.as_str(),
        };
        if is_over || text == "-" || !text.starts_with('-') {
            sorted.operands.push(word);
        } else if text == "--" {
            is_over = true;
        } else if let Some(long) = text.strip_prefix("--") {
            read_long(long, options, &mut sorted, &mut rest)?;
        } else {
            read_letters(&text[1..], options, &mut sorted, &mut rest)?;
        }
    }
    Ok(sorted)
}

fn value<'w>(rest: &mut impl Iterator<Item = &'w Word>, option: &str) -> Result<String, String> {
    match rest.next().and_then(Word::as_text) {
        // If it is not the value after all, an option would pass unchecked.
        Some(text) if text.starts_with('-') => Err(format!("`{text}` may be an option or a value")),
        Some(text) => Ok(text.to_owned()),
        None => Err(format!("the value of `{option}` is only known at run time")),
    }
}

fn read_long<'w>(
    long: &str,
    options: &Options,
    sorted: &mut Sorted<'w>,
    rest: &mut impl Iterator<Item = &'w Word>,
) -> Result<(), String> {
    let (name, given) = match long.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (long, None),
    };
    let known = known_long(name, options);
    // Programs accept abbreviated names.
    let name = known.map_or(name, |known| known.trim_end_matches(['=', '?']));
    match known {
        Some(known) if known.ends_with('=') => {
            let value = given.map_or_else(|| value(rest, long), Ok)?;
            sorted.values.push((name.to_owned(), value));
        }
        Some(known) if known.ends_with('?') => push_value(sorted, name, given),
        Some(_) if given.is_none() => {}
        None if options.others => push_value(sorted, name, given),
        Some(_) | None => return Err(format!("the option `--{name}` is not known to be harmless")),
    }
    sorted.given.push(name.to_owned());
    Ok(())
}

/// Finds a long option. Where all options are harmless, an abbreviated name is enough, as for the program.
fn known_long<'o>(name: &str, options: &Options) -> Option<&'o str> {
    let bare = |known: &str| known.trim_end_matches(['=', '?']).to_owned();
    let mut all = options.long.split_whitespace();
    all.clone()
        .find(|known| bare(known) == name)
        .or_else(|| all.find(|known| options.others && known.starts_with(name)))
}

fn push_value(sorted: &mut Sorted<'_>, name: &str, value: Option<String>) {
    sorted.values.extend(value.map(|value| (name.to_owned(), value)));
}

fn read_letters<'w>(
    letters: &str,
    options: &Options,
    sorted: &mut Sorted<'w>,
    rest: &mut impl Iterator<Item = &'w Word>,
) -> Result<(), String> {
    let is_number = letters.chars().all(|letter| letter.is_ascii_digit());
    if is_number && options.flags.contains('#') {
        return Ok(());
    }
    let all = letters;
    for (index, letter) in letters.char_indices() {
        sorted.given.push(letter.to_string());
        if options.valued.contains(letter) {
            let inside = &all[index + letter.len_utf8()..];
            let value = match inside {
                "" => value(rest, &format!("-{letter}"))?,
                inside => inside.to_owned(),
            };
            sorted.values.push((letter.to_string(), value));
            return Ok(());
        }
        let is_known = options.flags.contains(letter) && letter != '#';
        if !is_known && !options.others {
            return Err(format!("the option `-{letter}` is not known to be harmless"));
        }
    }
    if options.others && all.contains('/') {
        sorted.values.push((all[..1].to_owned(), all[1..].to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::read;

    const SORT: Options =
        Options { flags: "nru#", valued: "kt", long: "key= reverse color?", others: false };

    type Texts = Vec<String>;

    fn sorted(line: &str) -> Result<(Texts, Texts, Texts), String> {
        let words: Vec<Word> = line.split(' ').map(|raw| read(raw).unwrap()).collect();
        let sorted = sort(&words, &SORT)?;
        let operands = sorted.operands.iter().map(|word| word.raw.clone()).collect();
        let values = sorted.values.into_iter().map(|(_, value)| value).collect();
        Ok((operands, sorted.given, values))
    }

    #[test]
    fn known_options_are_told_from_operands() {
        let texts =
            |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let (operands, given, values) =
            sorted("-nk2 a -t , --key=3 --reverse --color=auto -5 - -- -o").unwrap();
        assert_eq!(operands, texts(&["a", "-", "-o"]));
        assert_eq!(given, texts(&["n", "k", "t", "key", "reverse", "color"]));
        assert_eq!(values, texts(&["2", ",", "3", "auto"]));
    }

    #[test]
    fn unknown_options_are_refused() {
        for line in ["-o x", "-nro", "--output=x", "--rev", "--reverse=x", "-k", "*", "--", "a*"] {
            let is_known = ["--", "a*"].contains(&line);
            assert_eq!(sorted(line).is_ok(), is_known, "{line}");
        }
    }
}
