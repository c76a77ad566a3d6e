//! What a shell command needs leave for: every simple command, every file it opens, every variable it sets.
//!
//! Runs nothing and changes nothing. The text is parsed with the grammar of bash; each program that is known to read
//! only is known with its options, and whatever is not known, or not understood, is asked for. For who decides see
//! `engine::permission`, for what the kernel enforces see `process`.

mod awk;
mod git;
mod items;
mod opaque;
mod options;
mod parse;
mod paths;
mod prefix;
mod programs;
mod recursive_reads;
mod repository;
mod resolve;
mod secret;
mod sed;
mod word;
mod wrappers;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use engine::permission::{Access, Decision};

use items::{Assignment, Item, Redirect, Simple};
use paths::Folders;
use programs::Known;
use recursive_reads::Walk;
use word::{Meaning, Word};

pub use resolve::{clean, folder_rule, is_in_git, real};
pub use secret::is_secret;

/// Where a command would run.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The folder it starts in.
    pub cwd: &'a Path,
    /// The folders of the session.
    pub roots: &'a [PathBuf],
    /// Our own configuration and data, which belong to no session, wherever they lie.
    pub own: &'a [PathBuf],
    /// The user's home folder.
    pub home: Option<&'a Path>,
    /// Whether it runs in the sandbox. Where there is none every command is asked for.
    pub is_sandboxed: bool,
    /// The real places outside those folders that the sandbox lets it write to.
    pub writable: &'a [PathBuf],
    /// Follows the links of a path, also of one whose end does not exist yet; `None` where that cannot be told.
    pub real: &'a dyn Fn(&Path) -> Option<PathBuf>,
}

/// One thing that a command needs leave for, and why it is or is not asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// What it needs.
    pub access: Access,
    /// The reason of its default, in words.
    pub why: String,
    /// Whether it is done in another folder than the command starts in, or perhaps.
    pub is_elsewhere: bool,
}

/// Returns what a command needs leave for.
#[must_use]
pub fn access(command: &str, at: &Place<'_>) -> Vec<Access> {
    parts(command, at).into_iter().map(|part| part.access).collect()
}

/// Adds the leave that a command needs for something beyond the sandbox: for each simple command in it the same as to run
/// that. What only reads needs none beside others that are asked for; alone it does: no wish is granted by itself.
pub fn wish(parts: &mut Vec<Part>, command: &str, key: &str, why: &str) {
    let commands = parts.iter().filter(|part| part.access.key == "bash");
    let mut wished: Vec<Part> = commands.cloned().collect();
    if wished.is_empty() {
        let access = Access { always: None, ..Access::ask("bash", command) };
        wished.push(Part { access, why: String::new(), is_elsewhere: false });
    }
    // A rule for commits is about the repository here; elsewhere git may find one that came with the project, and its hooks.
    if key == "git" && wished.iter().any(|part| part.is_elsewhere) {
        let subject = format!("{ELSEWHERE}{}", command.trim());
        let access = Access { always: None, ..Access::ask("bash", subject) };
        wished.push(Part { access, why: String::new(), is_elsewhere: true });
    }
    let asks = |part: &Part| part.access.default != Decision::Allow;
    let is_asked = wished.iter().any(asks);
    for part in &mut wished {
        key.clone_into(&mut part.access.key);
        if !is_asked {
            part.access.default = Decision::Ask;
        }
        if asks(part) {
            why.clone_into(&mut part.why);
        }
    }
    parts.extend(wished);
}

/// What stands before a command that changes `.git` from another folder, so that no rule for a program fits it.
const ELSEWHERE: &str = "(in another folder) ";

/// Returns what a command needs leave for, with reasons.
#[must_use]
pub fn parts(command: &str, at: &Place<'_>) -> Vec<Part> {
    let mut judge = Judge {
        at,
        folders: Folders::new(at),
        is_lost: false,
        parts: Vec::new(),
        seen: HashSet::new(),
        depth: 0,
    };
    judge.command(command);
    // The next round of a loop begins where the last one ended.
    let mut places = 1;
    while command.contains("done") && judge.folders.count() > places {
        places = judge.folders.count();
        judge.command(command);
    }
    if judge.parts.is_empty() && !command.trim().is_empty() {
        judge.unclear(command, "nothing in it is understood");
    }
    judge.parts
}

/// What stands before the text of a command that is not understood, so that no rule for a program fits it.
const UNCLEAR: &str = "(not understood) ";
/// What can take the shell to another folder.
const MOVING: [&str; 8] = ["cd", "pushd", "popd", "source", ".", "eval", "builtin", "command"];
/// How deep a command may stand inside the text of another.
const DEEPEST: usize = 4;

struct Judge<'a> {
    at: &'a Place<'a>,
    folders: Folders<'a>,
    /// Whether it may be in a folder that nobody can tell.
    is_lost: bool,
    parts: Vec<Part>,
    seen: HashSet<(String, String, Decision, bool)>,
    depth: usize,
}

impl Judge<'_> {
    fn command(&mut self, command: &str) {
        for item in parse::parse(command) {
            match item {
                Item::Simple(simple) => self.simple(&simple),
                Item::Set(assignment) => self.assignment(&assignment),
                Item::Redirect(redirect) => self.redirect(&redirect),
                Item::Unclear(why) => {
                    self.is_lost = true;
                    self.unclear(command, &why);
                }
            }
        }
    }

    fn push(&mut self, access: Access, why: impl Into<String>) {
        let Access { key, subject, default, always, .. } = &access;
        let key = (key.clone(), subject.clone(), *default, always.is_some());
        if self.seen.insert(key) {
            let is_elsewhere = self.folders.has_moved || self.is_lost;
            self.parts.push(Part { access, why: why.into(), is_elsewhere });
        }
    }

    /// Asks for the whole text. The answer cannot be kept: nobody knows what else it would fit.
    fn unclear(&mut self, command: &str, why: &str) {
        let subject = format!("{UNCLEAR}{}", command.trim());
        let access = Access { always: None, is_unclear: true, ..Access::ask("bash", subject) };
        self.push(access, why);
    }

    fn simple(&mut self, simple: &Simple) {
        let Simple { words, is_fed, .. } = simple;
        let Some(name) = words.first().and_then(Word::as_text) else {
            // The parser said so already; the words still count for rules that forbid.
            return self.push_command(simple, Err("the program is not known".to_owned()));
        };
        let mut plain = words.clone();
        if let Some((_, base)) = name.rsplit_once('/') {
            // A rule that forbids `rm` also forbids `/bin/rm`, but one that allows it does not allow `./rm`.
            plain[0] = Word::text(base);
            let subject = normal(&plain);
            self.push(
                Access { always: None, ..Access::allow("bash", subject) },
                "the same program",
            );
            self.inside(&plain, *is_fed);
            return self.push_command(simple, Err("the program is named by a path".to_owned()));
        }
        // A test that the parser took apart stands here with its whole text.
        let is_test = name == "[" && words.len() == 1 && words[0].raw.starts_with('[');
        if words[0].raw != name && !is_test {
            plain[0] = Word::text(name);
            self.inside(&plain, *is_fed);
            return self
                .push_command(simple, Err("the program's name is written oddly".to_owned()));
        }
        if let Some(inner) = wrappers::unwrap(words) {
            for (name, value) in inner.variables {
                self.assignment(&Assignment { name, value, is_environment: true });
            }
            return self.simple(&Simple { words: inner.words, ..simple.clone() });
        }
        self.inside(words, *is_fed);
        let known = programs::judge(simple, &mut self.folders);
        match known {
            Ok(known) => {
                self.push_command(simple, Ok(()));
                self.places(known);
            }
            Err(why) => self.push_command(simple, Err(why)),
        }
    }

    /// Finds commands in the arguments of programs that run them, so that what is forbidden stays so in there.
    fn inside(&mut self, words: &[Word], is_fed: bool) {
        if let Some(why) = opaque::why(words, is_fed) {
            self.unclear(&normal(words), why);
        }
        if self.depth >= DEEPEST {
            return self.unclear(&normal(words), "commands stand inside commands too deep");
        }
        self.without_options(words);
        self.depth += 1;
        for inner in wrappers::inside(words) {
            match inner {
                // Whether it really is one is not known, so nothing is asked for it.
                wrappers::Inside::Words(mut words) => {
                    if let Some((_, base)) =
                        words[0].as_text().and_then(|name| name.rsplit_once('/'))
                    {
                        words[0] = Word::text(base);
                    }
                    let access = Access { always: None, ..Access::allow("bash", normal(&words)) };
                    self.push(access, "it may stand inside another command");
                    self.without_options(&words);
                }
                wrappers::Inside::Script(script) => self.command(&script),
            }
        }
        self.depth -= 1;
    }

    /// A rule that forbids `git push` also forbids `git -C . push`.
    fn without_options(&mut self, words: &[Word]) {
        for plain in prefix::without_options(words) {
            let access = Access { always: None, ..Access::allow("bash", normal(&plain)) };
            self.push(access, "the same without options");
        }
    }

    fn push_command(&mut self, simple: &Simple, known: Result<(), String>) {
        let words = &simple.words;
        let subject = normal(words);
        let always = match &known {
            // What it is given is not in its words, so nobody can tell what else a rule for them would fit.
            Err(_) if simple.is_fed => None,
            _ if self.at.is_sandboxed => prefix::always(words),
            _ => prefix::exact(words),
        };
        let moves = |name: &str| MOVING.contains(&name);
        self.is_lost |= known.is_err() && words.first().and_then(Word::as_text).is_none_or(moves);
        let (default, why) = match known {
            Ok(()) if self.at.is_sandboxed => (Decision::Allow, "it only reads".to_owned()),
            Ok(()) => (Decision::Ask, "there is no sandbox".to_owned()),
            Err(why) => (Decision::Ask, why),
        };
        let notes = words.iter().skip(1).flat_map(|word| self.links(word)).collect();
        self.push(Access { default, always, notes, ..Access::ask("bash", subject) }, why);
    }

    /// Says where links in an argument lead, also in the value of an option: `-tout`, `--output=out`, `of=out`.
    fn links(&self, word: &Word) -> Vec<String> {
        let text = word.as_text().unwrap_or_default();
        let value = text.split_once('=').map(|(_, value)| value);
        let behind = text.strip_prefix('-').and_then(|letters| letters.get(1..));
        let inside = value.into_iter().chain(behind).map(Word::text);
        let mut told = self.folders.links(word);
        told.extend(inside.flat_map(|value| self.folders.links(&value)));
        told
    }

    fn places(&mut self, known: Known) {
        known.walks.iter().for_each(|walk| self.below(walk));
        for path in known.reads {
            match self.folders.find(&path) {
                paths::Found::Inside(paths) => {
                    for path in paths {
                        let subject = path.to_string_lossy();
                        if is_secret(&path) {
                            self.push(Access::ask("read", subject), "it usually holds secrets");
                        } else {
                            let access = Access::allow("read", subject);
                            self.push(access, "it is inside the session's folders");
                        }
                    }
                }
                paths::Found::Outside(path) => self.outside(&path),
                paths::Found::Device => {}
                paths::Found::Unknown => {
                    let subject = normal(std::slice::from_ref(&path));
                    let access =
                        Access { always: None, ..Access::ask("external_directory", subject) };
                    self.push(access, "nobody can tell where it is");
                }
            }
        }
    }

    /// What lies below the folders that a program reads as a whole.
    fn below(&mut self, walk: &Walk) {
        let here = [Word::text(".")];
        let words = if walk.tops.is_empty() { &here } else { walk.tops.as_slice() };
        let mut tops = Vec::new();
        for word in words {
            // Where else it leads to was asked for already.
            if let paths::Found::Inside(paths) = self.folders.find(word) {
                tops.extend(paths);
            }
        }
        let mut next = 0;
        while let Some(top) = tops.get(next).cloned() {
            next += 1;
            for own in self.folders.own_below(&top) {
                self.outside(&own);
            }
            let below = walk.look(&top);
            let links = below.links.iter().filter(|link| is_secret(link));
            for secret in below.secrets.iter().chain(links) {
                let access = Access::ask("read", secret.to_string_lossy());
                self.push(access, "it usually holds secrets, and is read with the folder");
            }
            for link in below.links {
                if !self.folders.is_inside(&link) {
                    self.outside(&link);
                } else if !tops.iter().any(|top| link.starts_with(top)) {
                    tops.push(link);
                }
            }
            if below.is_cut {
                let access = Access::ask("read", top.to_string_lossy());
                self.push(access, "it has more files than can be looked at for secrets");
            }
        }
    }

    fn outside(&mut self, path: &Path) {
        let ask = Access::ask("external_directory", path.to_string_lossy());
        // A folder does not fit the pattern for what is in it, so its own place is kept.
        let always = if path.is_dir() { None } else { path.parent().and_then(folder_rule) };
        let access = Access { always: always.or(ask.always), ..ask };
        self.push(access, "it is outside the session's folders");
    }

    fn redirect(&mut self, redirect: &Redirect) {
        let raw = &redirect.target.raw;
        match (self.folders.find(&redirect.target), redirect.writes) {
            (paths::Found::Device, _) => {}
            (paths::Found::Inside(paths), true) => {
                for path in paths {
                    self.written(&path);
                }
            }
            (paths::Found::Inside(_), false) => {
                self.places(Known::reading([redirect.target.clone()]));
            }
            (paths::Found::Outside(path), true)
                if self.is_out_of_reach(&redirect.target, &path) =>
            {
                let access = Access {
                    default: Decision::Reject,
                    always: None,
                    ..Access::ask("edit", path.to_string_lossy())
                };
                self.push(access, "the sandbox lets no command write there");
            }
            (paths::Found::Outside(path), false) => self.outside(&path),
            (paths::Found::Outside(path), true) => {
                let place = path.to_string_lossy();
                let mut around = Access::ask("external_directory", place.clone());
                if !self.is_writable(&path) {
                    self.push(Access::ask("write_outside", place), "the shell writes there");
                    around.default = Decision::Allow;
                }
                self.push(around, "it is outside the session's folders");
                self.written(&path);
            }
            (paths::Found::Unknown, _) => {
                self.unclear(raw, "nobody can tell which file is opened");
            }
        }
    }

    /// Tells whether the sandbox certainly refuses to write where a word leads. From a folder that is not certain it may
    /// lead elsewhere.
    fn is_out_of_reach(&self, word: &Word, path: &Path) -> bool {
        let is_certain = match &word.means {
            Meaning::Text(text) => {
                text.starts_with('/') || (self.folders.count() == 1 && !self.is_lost)
            }
            Meaning::Home(_) => true,
            Meaning::Names(_) | Meaning::Unknown => false,
        };
        self.at.is_sandboxed && is_certain && !self.is_writable(path)
    }

    /// Tells whether the sandbox lets a command write to a place outside.
    fn is_writable(&self, path: &Path) -> bool {
        self.at.writable.iter().any(|folder| path.starts_with(folder))
    }

    fn written(&mut self, path: &Path) {
        let subject = path.to_string_lossy();
        self.push(Access::ask("edit", subject.clone()), "the shell writes to it");
        if is_in_git(path) {
            self.push(Access::ask("git", subject), "what is there decides what git runs");
        }
    }

    fn assignment(&mut self, assignment: &Assignment) {
        let is_safe = match &assignment.value.means {
            Meaning::Text(value) if assignment.is_environment => {
                programs::is_safe_variable(&assignment.name, value)
            }
            _ => !assignment.is_environment,
        };
        // What the shell itself looks at is written in capitals.
        let is_own = assignment.name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && !assignment.name.contains(|c: char| c.is_ascii_uppercase())
            && !assignment.name.ends_with("_proxy");
        if is_safe && (assignment.is_environment || is_own) {
            return;
        }
        let subject = format!("{}={}", assignment.name, assignment.value.normal());
        let is_unclear = opaque::holds_command(&assignment.name, &assignment.value.normal());
        let access = Access { always: None, is_unclear, ..Access::ask("bash", subject) };
        self.push(access, "a variable can change what programs do");
    }
}

/// Writes a simple command in its normal form: one space between words, one spelling for each.
fn normal(words: &[Word]) -> String {
    words.iter().map(Word::normal).collect::<Vec<_>>().join(" ")
}
