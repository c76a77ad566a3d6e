//! The line that says what the agent is doing, redrawn in place.

use std::time::{Duration, Instant};

use chat::{Line, one_line, text};

use super::output::write_stderr;

/// How often it is drawn.
pub(super) const TICK: Duration = Duration::from_millis(120);

const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Draws on stderr.
#[derive(Debug)]
pub(super) struct Spinner {
    columns: usize,
    frame: usize,
    activity: String,
    since: Instant,
    is_drawn: bool,
}

impl Spinner {
    pub(super) fn new(columns: usize) -> Spinner {
        Spinner {
            columns,
            frame: 0,
            activity: String::new(),
            since: Instant::now(),
            is_drawn: false,
        }
    }

    /// Draws the next picture.
    pub(super) fn draw(&mut self, activity: &str) {
        if self.activity != activity {
            activity.clone_into(&mut self.activity);
            self.since = Instant::now();
        }
        self.frame = (self.frame + 1) % FRAMES.len();
        let line = picture(FRAMES[self.frame], activity, self.since.elapsed(), self.columns);
        // Back to the start of the line, and erase it.
        write_stderr(&format!("\r\x1b[2K{line}"));
        self.is_drawn = true;
    }

    /// Removes it.
    pub(super) fn clear(&mut self) {
        if self.is_drawn {
            write_stderr("\r\x1b[2K");
            self.is_drawn = false;
        }
    }
}

fn picture(frame: &str, activity: &str, elapsed: Duration, columns: usize) -> String {
    let seconds = elapsed.as_secs();
    let time = if seconds == 0 { String::new() } else { format!(" {seconds} s") };
    // The last column stays free: some terminals wrap a full line.
    let room = columns.saturating_sub(frame.chars().count() + 2 + time.len());
    let label = text::fit(&Line::plain(one_line(activity)), room).text();
    format!("{frame} {label}{time}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picture_fits_the_terminal_and_has_no_control_characters() {
        let at = |activity: &str, seconds| picture("*", activity, Duration::from_secs(seconds), 20);
        assert_eq!(at("Thinking", 0), "* Thinking");
        assert_eq!(at("Thinking", 65), "* Thinking 65 s");
        let long = at("cargo test \u{1b}[2J --all --everything", 3);
        assert!(text::width(&long) < 20 && !long.contains('\u{1b}'), "{long:?}");
    }
}
