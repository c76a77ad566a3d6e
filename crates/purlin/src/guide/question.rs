//! What the guide understands: a sentence in, a question out. Pure, and deaf to what it does not know.

/// What the user wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Question {
    /// What the guide can do.
    Abilities,
    /// How a model is connected.
    Connect,
    /// What this project is.
    Project,
    /// How the project is built, tested and run.
    Build,
    /// What is in a folder.
    Folder(Option<String>),
    /// What a file says, or some lines of it.
    Show(String, Option<(u32, u32)>),
    /// What a file is made of.
    Outline(String),
    /// Where something is defined and used.
    Where(String),
    /// Where a text stands.
    Find(String),
    /// How things stand in git.
    Git(Git),
    /// What is noted as not done.
    Todos,
    /// Something that only a model can do: to change or explain.
    Work,
    /// Something else.
    Unknown,
}

/// A question about git.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Git {
    /// Branch, changes and the last commits.
    State,
    /// The last commits.
    Log,
    /// What changed since the last commit.
    Changes,
}

/// Longer questions are for a model.
const LONGEST: usize = 1000;

/// Reads a question.
pub(super) fn read(text: &str) -> Question {
    let text = text.trim();
    if text.is_empty() {
        return Question::Abilities;
    }
    if text.len() > LONGEST {
        return Question::Unknown;
    }
    let said = Said::new(text);
    None.or_else(|| said.greeting())
        .or_else(|| said.connect())
        .or_else(|| said.search())
        .or_else(|| said.git())
        .or_else(|| said.build())
        .or_else(|| said.todos())
        .or_else(|| said.file())
        .or_else(|| said.project())
        .or_else(|| said.folder())
        .or_else(|| said.work())
        .or_else(|| said.name())
        .unwrap_or(Question::Unknown)
}

/// A sentence, taken apart.
struct Said {
    /// Its words as they were written, without what is only polite.
    words: Vec<String>,
    /// The same in small letters.
    small: Vec<String>,
    /// What stands in quotes.
    quoted: Option<String>,
}

impl Said {
    fn new(text: &str) -> Said {
        let quoted = quoted(text);
        let mut words: Vec<String> = text
            .split_whitespace()
            .map(|word| word.trim_matches(is_mark).to_owned())
            .filter(|word| !word.is_empty())
            .collect();
        while let Some(count) = polite(&words) {
            words.drain(..count);
        }
        let small = words.iter().map(|word| small(word)).collect();
        Said { words, small, quoted }
    }

    fn has(&self, any: &str) -> bool {
        self.small.iter().any(|word| is_one_of(word, any))
    }

    /// Tells whether the words stand next to each other.
    fn says(&self, phrase: &str) -> bool {
        format!(" {} ", self.small.join(" ")).contains(&format!(" {phrase} "))
    }

    fn begins(&self, any: &str) -> bool {
        self.small.first().is_some_and(|word| is_one_of(word, any))
    }

    /// Returns what looks like a path.
    fn path(&self) -> Option<String> {
        let quoted = self.quoted.iter().filter(|quoted| !quoted.contains(' '));
        quoted.chain(&self.words).find(|word| is_path(word)).cloned()
    }

    /// Returns what looks like a name in code: `snake_case`, `CamelCase`, `a::b`, `call()`.
    fn identifier(&self) -> Option<String> {
        let found = self.quoted.clone().or_else(|| {
            let first_capital = |word: &str| word.chars().next().is_some_and(char::is_uppercase);
            let is_name = |at: usize, word: &str| {
                let word = word.trim_end_matches("()");
                if is_one_of(&word.to_lowercase(), FILLERS) {
                    return false;
                }
                let inner = word.chars().skip(1).any(char::is_uppercase)
                    && word.chars().any(char::is_lowercase);
                word.contains('_')
                    || word.contains("::")
                    || inner
                    || (at > 0 && first_capital(word))
            };
            let named = self.words.iter().enumerate().find(|(at, word)| is_name(*at, word));
            named.map(|(_, word)| word.clone())
        })?;
        Some(found.trim_end_matches("()").to_owned())
    }

    /// Returns what is left without the words that only make a sentence.
    fn rest(&self) -> Option<String> {
        if let Some(quoted) = &self.quoted {
            return Some(quoted.clone());
        }
        let is_filler = |word: &str| is_one_of(word, FILLERS);
        let kept: Vec<&str> = self
            .words
            .iter()
            .zip(&self.small)
            .filter(|(_, small)| !is_filler(small))
            .map(|(word, _)| word.trim_end_matches("()"))
            .collect();
        (!kept.is_empty()).then(|| kept.join(" "))
    }

    fn greeting(&self) -> Option<Question> {
        const ALONE: &str = "help hello hi hey hallo thanks thank start test ?";
        let is_short = self.words.len() <= 3 && self.path().is_none() && self.quoted.is_none();
        let is_about_you = ["what can you", "who are you", "what are you", "what do you do"]
            .iter()
            .any(|phrase| self.says(phrase))
            || self.says("can i ask")
            || self.says("how do you work")
            || self.says("are you a")
            || self.says("do you have");
        let greets = self.words.is_empty() || (is_short && self.begins(ALONE));
        (greets || is_about_you).then_some(Question::Abilities)
    }

    fn connect(&self) -> Option<Question> {
        const WAYS: &str =
            "connect configure login log set setup use add choose which change switch need";
        const WHAT: &str = "model models key llm claude gpt openai anthropic ollama gemini openrouter provider ai api";
        let is_question = self.begins("how which can what where connect configure i login use");
        (is_question
            && self.path().is_none()
            && self.has(WAYS)
            && self.has(WHAT)
            && !self.has("code defined implemented"))
        .then_some(Question::Connect)
    }

    fn search(&self) -> Option<Question> {
        let is_where = self.begins("where locate whence")
            || (self.begins("who") && !self.says("who wrote"))
            || ["which file", "which files", "what file", "what files"].iter().any(|phrase| {
                self.says(phrase)
                    && self.has("has have define defines contain contains use uses mention mentions call calls implements")
            });
        if is_where {
            return self.rest().map(Question::Where);
        }
        let is_find = self.begins("find search grep look rg")
            || self.says("occurrences of")
            || self.says("usages of")
            || self.says("uses of");
        if is_find && self.says("definition of") {
            return self.rest().map(Question::Where);
        }
        if is_find && !self.has("todo todos bug bugs problem problems") {
            return self.rest().map(Question::Find);
        }
        None
    }

    fn git(&self) -> Option<Question> {
        let is_git = self
            .has("git commit commits committed uncommitted branch staged unstaged diff")
            || self.says("what changed")
            || self.says("what has changed")
            || self.says("what have i changed")
            || self.says("what did i change")
            || self.says("changed files")
            || self.says("modified files")
            || self.says("who wrote");
        // "Commit this" is work.
        if !is_git || (self.begins("commit branch") && self.words.len() > 1) {
            return None;
        }
        Some(Question::Git(if self.has("log commits history last recent latest wrote") {
            Git::Log
        } else if self.has("diff changed change changes modified uncommitted") {
            Git::Changes
        } else {
            Git::State
        }))
    }

    fn build(&self) -> Option<Question> {
        let asks_how = self.begins("how what") || self.says("commands to");
        if self.says("get started") || self.says("getting started") {
            return Some(Question::Build);
        }
        let is_build = self.has("build compile run test tests install start lint try");
        let is_this = self.has("this it project the tests repo");
        (asks_how && is_build && is_this && self.path().is_none() && self.identifier().is_none())
            .then_some(Question::Build)
    }

    fn todos(&self) -> Option<Question> {
        let noted = self.has("todo todos fixme fixmes unfinished");
        let left = self.says("left to do") || self.says("to be done") || self.says("still open");
        (noted || left).then_some(Question::Todos)
    }

    fn file(&self) -> Option<Question> {
        let path = self.path()?;
        const PARTS: &str = "outline functions function symbols structure classes types methods summarize summarise explain describe overview about";
        if path.ends_with('/') {
            return Some(Question::Folder(Some(path)));
        }
        if self.has(PARTS) || (self.says("what does") && self.has("do")) {
            return Some(Question::Outline(path));
        }
        const LOOK: &str = "show read open cat print display view see what whats head";
        if self.words.len() == 1 || self.begins(LOOK) {
            return Some(Question::Show(path, self.lines()));
        }
        if self.begins("list ls tree") {
            return Some(Question::Folder(Some(path)));
        }
        None
    }

    /// Returns the lines that are asked for, as in `lines 10-20` or `line 7`.
    fn lines(&self) -> Option<(u32, u32)> {
        let at = self.small.iter().position(|word| word == "line" || word == "lines")?;
        let (first, rest) = (self.small.get(at + 1)?, &self.small[at + 2..]);
        let (first, last) = match first.split_once(['-', '–']) {
            Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
            None => {
                let first: u32 = first.parse().ok()?;
                let last = rest.iter().find_map(|word| word.parse().ok());
                (first, last.unwrap_or(first))
            }
        };
        (first > 0 && last >= first).then_some((first, last))
    }

    fn project(&self) -> Option<Question> {
        const IT: &str = "project repo repository codebase package crate library program app application workspace readme here software product";
        const ABOUT: &str = "what whats describe explain summarize summarise summary overview about introduce tell which purpose who give";
        let is_list = self.has("file files folder folders directory directories list tree");
        let is_it = self.has(IT) && self.has(ABOUT) && !is_list;
        let is_this = [
            "what is this",
            "what this",
            "what does this do",
            "what is it",
            "what am i looking at",
        ]
        .contains(&self.small.join(" ").as_str());
        let is_bare = self.words.len() <= 2 && self.begins("overview summary about readme");
        let is_kind =
            self.has("language languages framework licence license") && self.begins("what which");
        (is_it || is_this || is_bare || is_kind).then_some(Question::Project)
    }

    fn folder(&self) -> Option<Question> {
        let names =
            self.has("files folders folder directory directories tree structure layout contents");
        let asks = self.begins("list ls show what which tree dir files how print give");
        let is_bare = self.begins("ls tree dir files") && self.words.len() <= 2;
        if !(is_bare || (names && asks)) {
            return None;
        }
        let known = ["in", "of", "under", "inside", "below"];
        let named = self.small.iter().position(|word| known.contains(&word.as_str()));
        let named = named.and_then(|at| {
            self.words[at + 1..].iter().find(|word| !is_one_of(&word.to_lowercase(), FILLERS))
        });
        let bare = self.words.get(1).filter(|_| is_bare);
        Some(Question::Folder(self.quoted.clone().or_else(|| named.or(bare).cloned())))
    }

    fn work(&self) -> Option<Question> {
        const VERBS: &str = "add fix write implement refactor change rename delete remove create update make improve optimize optimise migrate generate review debug commit push format convert replace move insert document translate upgrade run install deploy test why should solve";
        self.begins(VERBS).then_some(Question::Work)
    }

    /// A question that names one thing is about where it is.
    fn name(&self) -> Option<Question> {
        if let Some(name) = self.identifier() {
            return Some(Question::Where(name));
        }
        let rest = self.rest()?;
        let is_one = !rest.contains(' ');
        (is_one && (self.words.len() == 1 || self.begins("what whats show which explain how")))
            .then_some(Question::Where(rest))
    }
}

/// Tells whether a word is among these, which stand with spaces between.
fn is_one_of(word: &str, words: &str) -> bool {
    words.split(' ').any(|one| one == word)
}

/// A word in small letters; what's shortened is told by its front.
fn small(word: &str) -> String {
    let small = word.to_lowercase().replace('’', "'");
    small.strip_suffix("'s").map_or(small.clone(), str::to_owned)
}

/// What stands at the ends of words and does not belong to them.
fn is_mark(character: char) -> bool {
    matches!(
        character,
        ',' | '?'
            | '!'
            | ';'
            | '"'
            | '\''
            | '`'
            | '('
            | '['
            | '{'
            | '}'
            | ']'
            | '“'
            | '”'
            | '„'
            | '<'
            | '>'
    ) || character == ':'
}

/// Returns how many words at the beginning are only polite. A whole sentence never is.
fn polite(words: &[String]) -> Option<usize> {
    const OPENINGS: [&str; 15] = [
        "please",
        "can you",
        "could you",
        "would you",
        "will you",
        "tell me",
        "do you know",
        "i want to know",
        "i want to",
        "i would like to",
        "i'd like to",
        "let me",
        "ok",
        "so",
        "now",
    ];
    let counts = OPENINGS.iter().map(|opening| (opening, opening.split(' ').count()));
    let mut fitting = counts.filter(|(opening, count)| {
        words.len() > *count
            && opening.split(' ').zip(words).all(|(one, other)| other.eq_ignore_ascii_case(one))
    });
    fitting.next().map(|(_, count)| count)
}

/// Returns what stands in the first pair of quotes.
fn quoted(text: &str) -> Option<String> {
    let pairs = [('`', '`'), ('"', '"'), ('“', '”'), ('\'', '\'')];
    pairs.into_iter().find_map(|(open, close)| {
        let begin = text.find(open)?;
        // An apostrophe inside a word is no quote.
        if open == '\'' && text[..begin].ends_with(char::is_alphanumeric) {
            return None;
        }
        let rest = &text[begin + open.len_utf8()..];
        let inner = &rest[..rest.find(close)?];
        (!inner.trim().is_empty()).then(|| inner.trim().to_owned())
    })
}

/// Tells whether a word looks like a path: with a slash inside, or with an ending, or one of the usual names.
fn is_path(word: &str) -> bool {
    const NAMES: &str = "makefile dockerfile readme license licence changelog justfile gemfile";
    if word.contains("://") || word.starts_with('-') {
        return false;
    }
    let small = word.to_lowercase();
    let name = word.rsplit('/').next().unwrap_or(word);
    let has_ending = name.rsplit_once('.').is_some_and(|(front, ending)| {
        let is_word =
            !ending.is_empty() && ending.len() <= 10 && ending.chars().all(char::is_alphanumeric);
        is_word && ending.chars().any(char::is_alphabetic) && !front.ends_with('.')
    });
    let has_slash = word.len() > 1 && word.contains('/') && !word.contains(' ');
    has_slash
        || (has_ending && !small.ends_with("etc.") && small != "e.g")
        || is_one_of(&small, NAMES)
}

/// Words that only make a sentence.
const FILLERS: &str = "the a an is are was be being where what which who how do does did we i you me my our your in on of at to for \
                       from by with this that these it its all any find search grep rg look locate defined declared definition \
                       implemented implementation handled used uses use usages occurrences called calls call located found mentioned \
                       mentions mention contains contain file files function struct class method type variable code project repo \
                       repository codebase there text word string please and defines define has have anywhere anything show explain handle handles work works loaded";

#[cfg(test)]
mod tests;
