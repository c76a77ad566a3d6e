//! Runs the parser of bash's grammar, within bounds.
//!
//! After some syntax errors, such as `| |`, it merges its versions of a pipe of n commands in 2^n steps (`stack_node_add_link`), all between two
//! reports of its progress: it cannot be stopped then, only before. A text that is given up asks. No other construct with such a
//! cost is known; one would not be stopped. A correct text with so many pipes may be given up, too, as the parser also tries errors in it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tree_sitter::{ParseOptions, ParseState, Parser, Point, Tree};

/// How often the parser may report progress. It does so every hundred steps.
const MOST_REPORTS: usize = 2_000;
/// After some syntax errors a pipe of n commands takes the parser 2^n, in a single step. With more pipes than these it may go on for
/// `MOST_AFTER_ERROR` reports after an error.
const MANY_PIPES: usize = 20;
const MOST_AFTER_ERROR: usize = 3;

/// Parses a text. One that takes the grammar too long is given up.
pub(crate) fn tree_of(text: &[u8]) -> Option<Tree> {
    // A run of two is `||`.
    let pipes = text.split(|byte| *byte != b'|').filter(|run| run.len() % 2 == 1).count();
    let has_many_pipes = pipes > MANY_PIPES;
    let most_after_error = if has_many_pipes { MOST_AFTER_ERROR } else { MOST_REPORTS };
    let mut parser = Parser::new();
    parser.set_language(&tree_sitter_bash::LANGUAGE.into()).ok()?;
    let has_error = Arc::new(AtomicBool::new(false));
    let found = Arc::clone(&has_error);
    // The parser resumes a version when its best one has failed. The state that comes with a report tells of an error too late.
    parser.set_logger(Some(Box::new(move |_, message| {
        if message.starts_with("resume version") {
            found.store(true, Ordering::Relaxed);
        }
    })));
    let (mut reports, mut after_error) = (0, 0);
    let mut progress = |_: &ParseState| {
        reports += 1;
        after_error += usize::from(has_error.load(Ordering::Relaxed));
        let goes_on = reports < MOST_REPORTS && after_error < most_after_error;
        if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let options = ParseOptions::new().progress_callback(&mut progress);
    let mut rest = |at: usize, _: Point| text.get(at..).unwrap_or_default();
    parser.parse_with_options(&mut rest, None, Some(options))
}

/// Parses a text that was given up once more, without its pipes: rules that forbid a command still see those in it.
pub(crate) fn tree_without_pipes(text: &[u8]) -> Option<Tree> {
    let lines: Vec<u8> =
        text.iter().map(|byte| if *byte == b'|' { b'\n' } else { *byte }).collect();
    tree_of(&lines)
}
