//! What a shell command needs leave for: every simple command, every file it opens, every variable it sets.
//!
//! Runs nothing and changes nothing. The text is parsed with the grammar of bash; each program that is known to read
//! only is known with its options, and whatever is not known, or not understood, is asked for. For who decides see
//! `engine::permission`, for what the kernel enforces see `process`.

mod awk;
mod git;
mod items;
mod need;
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
mod wildcard;
mod word;
mod wrappers;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use items::{Assignment, Item, Redirect, Simple};
use paths::Folders;
use programs::Known;
use recursive_reads::Walk;
use word::{Meaning, Word};

pub use need::{Always, Form, Need, NeedKind, Verdict, require_extra};
pub use resolve::{clean, is_in_git, is_narrow, real};
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
    /// Tells whether a character cannot be seen or deceives the eye, so that the text may not be what it looks like.
    pub is_deceptive: fn(char) -> bool,
}

/// Returns what a command needs leave for, with reasons.
#[must_use]
pub fn needs(command: &str, at: &Place<'_>) -> Vec<Need> {
    let mut judge = Judge {
        at,
        folders: Folders::new(at),
        is_lost: false,
        needs: Vec::new(),
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
    if judge.needs.is_empty() && !command.trim().is_empty() {
        judge.unclear(command, "nothing in it is understood");
    }
    judge.needs
}

/// What can take the shell to another folder.
const MOVING: [&str; 8] = ["cd", "pushd", "popd", "source", ".", "eval", "builtin", "command"];
/// How deep a command may stand inside the text of another.
const DEEPEST: usize = 4;

struct Judge<'a> {
    at: &'a Place<'a>,
    folders: Folders<'a>,
    /// Whether it may be in a folder that nobody can tell.
    is_lost: bool,
    needs: Vec<Need>,
    seen: HashSet<(NeedKind, Form, String, Verdict, bool)>,
    depth: usize,
}

impl Judge<'_> {
    fn command(&mut self, command: &str) {
        for item in parse::parse(command, self.at.is_deceptive) {
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

    fn push(&mut self, need: Need, why: impl Into<String>) {
        let Need { kind, form, subject, default, always, .. } = &need;
        if self.seen.insert((*kind, *form, subject.clone(), *default, always.is_some())) {
            let is_elsewhere = self.folders.has_moved || self.is_lost;
            self.needs.push(Need { why: why.into(), is_elsewhere, ..need });
        }
    }

    /// Asks for the whole text. The answer cannot be kept: nobody knows what else it would fit.
    fn unclear(&mut self, command: &str, why: &str) {
        let need = Need::ask(NeedKind::Run, command.trim()).once();
        self.push(Need { form: Form::Unanalysed, is_opaque: true, ..need }, why);
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
            self.push(Need::allow(NeedKind::Run, subject).once(), "the same program");
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
                    let need = Need::allow(NeedKind::Run, normal(&words)).once();
                    self.push(need, "it may stand inside another command");
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
            let need = Need::allow(NeedKind::Run, normal(&plain)).once();
            self.push(need, "the same without options");
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
            Ok(()) if self.at.is_sandboxed => (Verdict::Allow, "it only reads".to_owned()),
            Ok(()) => (Verdict::Ask, "there is no sandbox".to_owned()),
            Err(why) => (Verdict::Ask, why),
        };
        let notes = words.iter().skip(1).flat_map(|word| self.links(word)).collect();
        self.push(Need { default, always, notes, ..Need::ask(NeedKind::Run, subject) }, why);
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
                            self.push(
                                Need::ask(NeedKind::Read, subject),
                                "it usually holds secrets",
                            );
                        } else {
                            let need = Need::allow(NeedKind::Read, subject);
                            self.push(need, "it is inside the session's folders");
                        }
                    }
                }
                paths::Found::Outside(path) => self.outside(&path),
                paths::Found::Device => {}
                paths::Found::Unknown => {
                    let subject = normal(std::slice::from_ref(&path));
                    self.push(
                        Need::ask(NeedKind::Outside, subject).once(),
                        "nobody can tell where it is",
                    );
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
                let need = Need::ask(NeedKind::Read, secret.to_string_lossy());
                self.push(need, "it usually holds secrets, and is read with the folder");
            }
            for link in below.links {
                if !self.folders.is_inside(&link) {
                    self.outside(&link);
                } else if !tops.iter().any(|top| link.starts_with(top)) {
                    tops.push(link);
                }
            }
            if below.is_cut {
                let need = Need::ask(NeedKind::Read, top.to_string_lossy());
                self.push(need, "it has more files than can be looked at for secrets");
            }
        }
    }

    fn outside(&mut self, path: &Path) {
        // A folder is not among what is in it, so the answer for it is saved for its own path.
        let around = path.parent().filter(|around| !path.is_dir() && is_narrow(around));
        let always = around.map_or(Always::Exact, |around| Always::Below(around.to_owned()));
        let need = Need::ask(NeedKind::Outside, path.to_string_lossy());
        self.push(Need { always: Some(always), ..need }, "it is outside the session's folders");
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
                let need = Need::ask(NeedKind::Write, path.to_string_lossy()).once();
                self.push(
                    Need { default: Verdict::Reject, ..need },
                    "the sandbox lets no command write there",
                );
            }
            (paths::Found::Outside(path), false) => self.outside(&path),
            (paths::Found::Outside(path), true) => {
                let place = path.to_string_lossy();
                let mut around = Need::ask(NeedKind::Outside, place.clone());
                if !self.is_writable(&path) {
                    self.push(Need::ask(NeedKind::WriteOutside, place), "the shell writes there");
                    around.default = Verdict::Allow;
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
        self.push(Need::ask(NeedKind::Write, subject.clone()), "the shell writes to it");
        if is_in_git(path) {
            self.push(Need::ask(NeedKind::Git, subject), "what is there decides what git runs");
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
        let is_opaque = opaque::holds_command(&assignment.name, &assignment.value.normal());
        let need = Need::ask(NeedKind::Run, subject).once();
        self.push(Need { is_opaque, ..need }, "a variable can change what programs do");
    }
}

/// Writes a simple command in its normal form: one space between words, one spelling for each.
fn normal(words: &[Word]) -> String {
    words.iter().map(Word::normal).collect::<Vec<_>>().join(" ")
}
