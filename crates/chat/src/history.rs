//! The prompts of a project, the newest last. Pure; the driver reads and writes the file.

/// How many prompts are stored.
const MAX_PROMPTS: usize = 500;

/// A longer prompt is not stored.
const MAX_LENGTH: usize = 64 * 1024;

/// Past prompts, and where one is in them.
#[derive(Debug, Default)]
pub struct History {
    prompts: Vec<String>,
    /// The prompt that is shown, and the text that was being written before.
    at: Option<(usize, String)>,
}

impl History {
    /// Reads the file: one JSON string in each line. Broken lines are skipped.
    #[must_use]
    pub fn parse(text: &str) -> History {
        let mut prompts: Vec<String> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let extra = prompts.len().saturating_sub(MAX_PROMPTS);
        prompts.drain(..extra);
        History { prompts, at: None }
    }

    /// Returns the file's content.
    #[must_use]
    pub fn print(&self) -> String {
        self.prompts
            .iter()
            .map(|prompt| format!("{}\n", serde_json::Value::from(prompt.as_str())))
            .collect()
    }

    /// Returns the prompts, newest first.
    pub fn newest(&self) -> impl Iterator<Item = &str> {
        self.prompts.iter().rev().map(String::as_str)
    }

    /// Adds a prompt; an older equal one is removed.
    pub fn add(&mut self, prompt: &str) {
        self.at = None;
        if prompt.trim().is_empty() || prompt.len() > MAX_LENGTH {
            return;
        }
        self.prompts.retain(|old| old != prompt);
        self.prompts.push(prompt.to_owned());
        if self.prompts.len() > MAX_PROMPTS {
            self.prompts.remove(0);
        }
    }

    /// Returns the prompt before the one that is shown; `current` is what was written so far.
    pub fn older(&mut self, current: &str) -> Option<&str> {
        let (at, draft) = match self.at.take() {
            None => (self.prompts.len(), current.to_owned()),
            Some((at, draft)) => (at, draft),
        };
        self.at = Some((at.saturating_sub(1), draft));
        (at > 0).then(|| self.prompts.get(at - 1).map(String::as_str)).flatten()
    }

    /// Returns the prompt after the one that is shown; after the last one, what was written before.
    pub fn newer(&mut self) -> Option<String> {
        let (at, draft) = self.at.take()?;
        match self.prompts.get(at + 1) {
            Some(prompt) => {
                self.at = Some((at + 1, draft));
                Some(prompt.clone())
            }
            None => Some(draft),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draft_comes_back_after_the_newest_prompt() {
        let mut history = History::parse("\"one\"\nbroken\n\"two\\nlines\"\n");
        assert_eq!(history.older("draft"), Some("two\nlines"));
        assert_eq!(history.older("two\nlines"), Some("one"));
        assert_eq!(history.older("one"), None);
        assert_eq!(history.newer().as_deref(), Some("two\nlines"));
        assert_eq!(history.newer().as_deref(), Some("draft"));
        assert_eq!(history.newer(), None);
        history.add("one");
        assert_eq!(history.print(), "\"two\\nlines\"\n\"one\"\n");
    }
}
