//! Lines of a file that is too large to be read whole: the file is streamed, and only the shown lines are held in memory.

use std::io::{BufRead, BufReader};

use engine::ports::Output;
use engine::words::{Block, ToolContent, code_block};

use super::MAX_LINE;
use crate::disk::MAX_BYTES;
use crate::error::Error;
use crate::scope::Target;
use crate::seen::Part;
use crate::text::body_of;

const BUFFER: usize = 256 * 1024;
/// The most bytes of a line that are held. A character has at most four.
const MAX_LINE_BYTES: usize = 4 * MAX_LINE;
/// Room for the note below the lines.
const BELOW: usize = 300;

/// Reads these lines, up to `room` bytes. Blocks; `is_cancelled` is asked between blocks of the file.
pub(super) fn read(
    target: &Target,
    part: Part,
    room: usize,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Output, Error> {
    let of = |err| Error::of(target.name(), err);
    let file = target.open_file().map_err(of)?;
    let size = file.metadata().map_err(of)?.len();
    let mut file = BufReader::with_capacity(BUFFER, file);
    if memchr::memchr(0, file.fill_buf().map_err(of)?).is_some() {
        // Not text, or UTF-16, whose lines cannot be found like this.
        let name = target.name().to_owned();
        return Err(Error::TooLarge { name, bytes: size, limit: MAX_BYTES });
    }
    let lines = lines(&mut file, part, room, is_cancelled).map_err(of)?;
    let megabytes = size.div_ceil(1024 * 1024);
    if lines.shown.is_empty() {
        return Err(Error::NoSuchLine {
            name: target.name().to_owned(),
            lines: lines.last,
            line: part.line,
        });
    }
    let first = part.line;
    let (body, problem) = body_of(lines.shown.join(&b'\n'));
    let mut text = String::with_capacity(body.len() + body.len() / 4);
    for (number, line) in (first..).zip(body.split('\n')) {
        let end = line.char_indices().nth(MAX_LINE);
        let (cut, more) = end.map_or((line, ""), |(at, _)| (&line[..at], " …"));
        text.push_str(&format!("{number:>6}\t{cut}{more}\n"));
    }
    let last = lines.last;
    text.push_str(&match lines.is_end {
        true => format!("(lines {first} to {last}, the last; the file has {megabytes} MB)"),
        false => format!(
            "(lines {first} to {last}; the file has {megabytes} MB; use `offset` for more, or search it with `grep`)"
        ),
    });
    if let Some(why) = problem {
        text.push_str(&format!("\n(not a text file: {why}; some bytes are shown as \\xNN)"));
    }
    let content = Some(vec![ToolContent::Block(Block::Text(code_block(&body)))]);
    Ok(Output { text, content, raw: None })
}

/// The lines that were found.
struct Lines {
    /// Without their ends; long ones are cut.
    shown: Vec<Vec<u8>>,
    /// The number of the last one that was read.
    last: u32,
    /// Whether the file ends with it.
    is_end: bool,
}

fn lines(
    file: &mut impl BufRead,
    part: Part,
    room: usize,
    is_cancelled: &dyn Fn() -> bool,
) -> std::io::Result<Lines> {
    let skipped = skip(file, part.line.saturating_sub(1), is_cancelled)?;
    let mut found = Lines { shown: Vec::new(), last: skipped, is_end: false };
    if skipped < part.line.saturating_sub(1) {
        found.is_end = true;
        return Ok(found);
    }
    let mut used = BELOW;
    while found.shown.len() < usize::try_from(part.limit).unwrap_or(usize::MAX) {
        let Some(line) = next_line(file, is_cancelled)? else {
            found.is_end = true;
            break;
        };
        used += line.len() + 8;
        if used > room && !found.shown.is_empty() {
            return Ok(found);
        }
        found.shown.push(line);
        found.last = found.last.saturating_add(1);
    }
    found.is_end = found.is_end || file.fill_buf()?.is_empty();
    Ok(found)
}

/// Skips lines. Returns how many there were.
fn skip(
    file: &mut impl BufRead,
    lines: u32,
    is_cancelled: &dyn Fn() -> bool,
) -> std::io::Result<u32> {
    let mut skipped = 0;
    let mut is_inside = false;
    while skipped < lines {
        check(is_cancelled)?;
        let block = file.fill_buf()?;
        if block.is_empty() {
            return Ok(skipped + u32::from(is_inside));
        }
        let wanted = usize::try_from(lines - skipped).unwrap_or(usize::MAX);
        let mut ends = memchr::memchr_iter(b'\n', block);
        let mut last = None;
        let mut count = 0;
        for end in ends.by_ref().take(wanted) {
            last = Some(end);
            count += 1;
        }
        let used = match last {
            Some(end) if count == wanted => end + 1,
            _ => block.len(),
        };
        is_inside = block.get(used - 1) != Some(&b'\n');
        file.consume(used);
        skipped += u32::try_from(count).unwrap_or(u32::MAX);
    }
    Ok(skipped)
}

/// Returns the next line without its end, cut if it is long; `None` at the end of the file.
fn next_line(
    file: &mut impl BufRead,
    is_cancelled: &dyn Fn() -> bool,
) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let mut is_any = false;
    loop {
        check(is_cancelled)?;
        let block = file.fill_buf()?;
        if block.is_empty() {
            return Ok(is_any.then_some(line));
        }
        is_any = true;
        let end = memchr::memchr(b'\n', block);
        let text = &block[..end.unwrap_or(block.len())];
        let taken = text.len().min(MAX_LINE_BYTES.saturating_sub(line.len()));
        line.extend_from_slice(&text[..taken]);
        let used = end.map_or(block.len(), |end| end + 1);
        file.consume(used);
        if end.is_some() {
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Ok(Some(line));
        }
    }
}

fn check(is_cancelled: &dyn Fn() -> bool) -> std::io::Result<()> {
    match is_cancelled() {
        true => Err(std::io::Error::new(std::io::ErrorKind::Interrupted, "cancelled")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(text: &str, line: u32, limit: u32) -> (Vec<String>, u32, bool) {
        let mut file = BufReader::new(text.as_bytes());
        let found = lines(&mut file, Part { line, limit }, 1 << 20, &|| false).unwrap();
        let shown = found.shown.iter().map(|line| String::from_utf8_lossy(line).into_owned());
        (shown.collect(), found.last, found.is_end)
    }

    #[test]
    fn range_is_found_and_the_end_is_known() {
        let text: String = (1..=100_000).map(|line| format!("line {line}\n")).collect();
        let (shown, last, is_end) = numbers(&text, 99_998, 2);
        assert_eq!(shown, ["line 99998", "line 99999"]);
        assert_eq!((last, is_end), (99_999, false));
        assert_eq!(numbers(&text, 99_999, 10).1, 100_000);
        assert!(numbers(&text, 99_999, 10).2);
        assert_eq!(numbers(&text, 200_000, 10), (Vec::new(), 100_000, true));
        assert_eq!(numbers("a\nb", 3, 1), (Vec::new(), 2, true));
    }

    #[test]
    fn line_without_end_takes_bounded_memory() {
        let text = "x".repeat(3 * BUFFER);
        let (shown, last, is_end) = numbers(&format!("{text}\nnext"), 1, 5);
        assert_eq!(shown[0].len(), MAX_LINE_BYTES);
        assert_eq!((shown[1].as_str(), last, is_end), ("next", 2, true));
        assert_eq!(numbers(&format!("{text}\nnext"), 2, 5).0, ["next"]);
    }

    #[test]
    fn cancel_stops_the_search() {
        let mut endless = BufReader::new(std::io::repeat(b'x'));
        let stopped = lines(&mut endless, Part { line: 9, limit: 1 }, 100, &|| true);
        assert!(stopped.is_err());
    }

    proptest! {
        #[test]
        fn every_range_is_the_same_as_that_of_the_whole_text(text in "([a-c\r]{0,3}\n?){0,9}", line in 1u32..12, limit in 1u32..5) {
            let whole: Vec<&str> = text.split_inclusive('\n').collect();
            let wanted: Vec<String> = whole
                .iter()
                .skip(line as usize - 1)
                .take(limit as usize)
                .map(|line| match line.strip_suffix('\n') {
                    Some(line) => line.strip_suffix('\r').unwrap_or(line).to_owned(),
                    None => (*line).to_owned(),
                })
                .collect();
            prop_assert_eq!(numbers(&text, line, limit).0, wanted);
        }
    }
}
