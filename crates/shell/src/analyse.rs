//! Analyses a command: goes through its parts and collects what it needs.

use std::collections::HashSet;
use std::path::Path;

use super::context::Context;
use super::items::{Assignment, Item, Redirect, Simple};
use super::known::Known;
use super::need::{Always, Form, Need, NeedKind, Verdict};
use super::paths::{self, Directories};
use super::recursive_reads::Walk;
use super::resolve::{is_in_git, is_narrow};
use super::secret::is_secret;
use super::word::{Meaning, Word, normal};
use super::{git, opaque, parse, prefix, programs, repository, wrappers};

/// Returns what a command needs permission for, with reasons.
#[must_use]
pub fn needs(command: &str, at: &Context<'_>) -> Vec<Need> {
    let mut analyser = Analyser {
        at,
        directories: Directories::new(at),
        is_lost: false,
        needs: Vec::new(),
        seen: HashSet::new(),
        depth: 0,
    };
    analyser.command(command);
    // The next iteration of a loop begins in the directory where the last one ended.
    let mut places = 1;
    while command.contains("done") && analyser.directories.count() > places {
        places = analyser.directories.count();
        analyser.command(command);
    }
    if analyser.needs.is_empty() && !command.trim().is_empty() {
        analyser.opaque(command, "nothing in it can be analysed");
    }
    analyser.needs
}

/// Commands that can change the shell's working directory.
const MOVING: [&str; 8] = ["cd", "pushd", "popd", "source", ".", "eval", "builtin", "command"];
/// How deeply commands may be nested in the text of other commands.
const DEEPEST: usize = 4;

struct Analyser<'a> {
    at: &'a Context<'a>,
    directories: Directories<'a>,
    /// Whether the working directory is unknown.
    is_lost: bool,
    needs: Vec<Need>,
    seen: HashSet<(NeedKind, Form, String, Verdict, bool)>,
    depth: usize,
}

impl Analyser<'_> {
    fn command(&mut self, command: &str) {
        for item in parse::parse(command, self.at.is_deceptive) {
            match item {
                Item::Simple(simple) => self.simple(&simple),
                Item::Set(assignment) => self.assignment(&assignment),
                Item::Redirect(redirect) => self.redirect(&redirect),
                Item::Opaque(why) => {
                    self.is_lost = true;
                    self.opaque(command, &why);
                }
            }
        }
    }

    fn push(&mut self, need: Need, why: impl Into<String>) {
        let Need { kind, form, subject, default, always, .. } = &need;
        if self.seen.insert((*kind, *form, subject.clone(), *default, always.is_some())) {
            let is_elsewhere = self.directories.has_moved || self.is_lost;
            self.needs.push(Need { why: why.into(), is_elsewhere, ..need });
        }
    }

    /// Asks for the whole text. The answer cannot be saved: it is unknown what else it would allow.
    fn opaque(&mut self, command: &str, why: &str) {
        let need = Need::ask(NeedKind::Run, command.trim()).once();
        self.push(Need { form: Form::Unanalysed, is_opaque: true, ..need }, why);
    }

    fn simple(&mut self, simple: &Simple) {
        let Simple { words, has_input, .. } = simple;
        let Some(name) = words.first().and_then(Word::as_text) else {
            // The parser has reported it; the words still matter to rules that forbid.
            return self
                .push_command(simple, Err("the program is only known at run time".to_owned()));
        };
        let mut plain = words.clone();
        if let Some((_, base)) = name.rsplit_once('/') {
            // A rule that forbids `rm` also forbids `/bin/rm`, but one that allows it does not allow `./rm`.
            plain[0] = Word::text(base);
            let subject = normal(&plain);
            self.push(
                Need::allow(NeedKind::Run, subject).once(),
                "the same program without its path",
            );
            self.inside(&plain, *has_input);
            return self.push_command(simple, Err("the program is given by a path".to_owned()));
        }
        // The parser reports a test as one word, with its whole text.
        let is_test = name == "[" && words.len() == 1 && words[0].raw.starts_with('[');
        if words[0].raw != name && !is_test {
            plain[0] = Word::text(name);
            self.inside(&plain, *has_input);
            return self.push_command(simple, Err("unusual executable path".to_owned()));
        }
        if let Some(inner) = wrappers::unwrap(words) {
            for (name, value) in inner.variables {
                self.assignment(&Assignment { name, value, is_environment: true });
            }
            return self.simple(&Simple { words: inner.words, ..simple.clone() });
        }
        self.inside(words, *has_input);
        let known = programs::analyse(simple, &mut self.directories);
        match known {
            Ok(known) => {
                self.push_command(simple, Ok(()));
                self.places(known);
            }
            Err(why) => {
                self.push_command(simple, Err(why));
                self.unclear(words);
            }
        }
    }

    /// A rule may allow a program that reads, but no rule for its name allows it to read secrets or to run what a repository says.
    fn unclear(&mut self, words: &[Word]) {
        let name = words[0].as_text().unwrap_or_default();
        if programs::reads_files(name) {
            let is_option = |word: &&Word| word.as_text().is_some_and(|text| text.starts_with('-'));
            let value = |word: &Word| Some(Word::text(word.as_text()?.split_once('=')?.1));
            let files = words[1..].iter().filter(|word| !is_option(word)).cloned();
            let values = words[1..].iter().filter(is_option).filter_map(value);
            self.places(Known::reading(files.chain(values)));
        }
        if name == "git"
            && git::is_read_only(words)
            && let Err(why) = repository::tracked_secrets(self.at.cwd)
        {
            self.opaque(&normal(words), &why);
        }
    }

    /// Finds commands in the arguments of programs that run other programs, so that rules that forbid apply to them.
    fn inside(&mut self, words: &[Word], has_input: bool) {
        if let Some(why) = opaque::why(words, has_input) {
            self.opaque(&normal(words), why);
        }
        if self.depth >= DEEPEST {
            return self.opaque(&normal(words), "commands are nested too deeply");
        }
        self.without_options(words);
        self.depth += 1;
        for inner in wrappers::inside(words) {
            match inner {
                // It may not be a command at all, so it needs no permission of its own.
                wrappers::Inside::Words(mut words) => {
                    if let Some((_, base)) =
                        words[0].as_text().and_then(|name| name.rsplit_once('/'))
                    {
                        words[0] = Word::text(base);
                    }
                    // Such as the `/` of `rm -rf /`.
                    if words[0].as_text() == Some("") {
                        continue;
                    }
                    let need = Need::allow(NeedKind::Run, normal(&words)).once();
                    self.push(need, "may run inside another command");
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
            self.push(need, "the same command without options");
        }
    }

    fn push_command(&mut self, simple: &Simple, known: Result<(), String>) {
        let words = &simple.words;
        let subject = normal(words);
        let always = match &known {
            // Its input is not in its words, so a rule for the words would allow any input.
            Err(_) if simple.has_input => None,
            _ if self.at.is_sandboxed => prefix::always(words),
            _ => prefix::exact(words),
        };
        let moves = |name: &str| MOVING.contains(&name);
        self.is_lost |= known.is_err() && words.first().and_then(Word::as_text).is_none_or(moves);
        let (default, why) = match known {
            Ok(()) if self.at.is_sandboxed => (Verdict::Allow, "only reads".to_owned()),
            Ok(()) => (Verdict::Ask, "no sandbox available".to_owned()),
            Err(why) => (Verdict::Ask, why),
        };
        let notes = words.iter().skip(1).flat_map(|word| self.links(word)).collect();
        self.push(Need { default, always, notes, ..Need::ask(NeedKind::Run, subject) }, why);
    }

    /// Returns notes on where links in an argument lead, including option values: `-tout`, `--output=out`, `of=out`.
    fn links(&self, word: &Word) -> Vec<String> {
        let text = word.as_text().unwrap_or_default();
        let value = text.split_once('=').map(|(_, value)| value);
        let after = text.strip_prefix('-').and_then(|letters| letters.get(1..));
        let inside = value.into_iter().chain(after).map(Word::text);
        let mut notes = self.directories.links(word);
        notes.extend(inside.flat_map(|value| self.directories.links(&value)));
        notes
    }

    fn places(&mut self, known: Known) {
        known.walks.iter().for_each(|walk| self.below(walk));
        for path in known.reads {
            match self.directories.find(&path) {
                paths::Destination::Inside(paths) => {
                    for path in paths {
                        let subject = path.to_string_lossy();
                        if is_secret(&path) {
                            self.push(
                                Need::ask(NeedKind::Read, subject),
                                "files of this name usually hold secrets",
                            );
                        } else {
                            let need = Need::allow(NeedKind::Read, subject);
                            self.push(need, "inside the session's folders");
                        }
                    }
                }
                paths::Destination::Outside(path) => self.outside(&path),
                paths::Destination::Device => {}
                paths::Destination::Unknown => {
                    let subject = normal(std::slice::from_ref(&path));
                    self.push(
                        Need::ask(NeedKind::Outside, subject).once(),
                        "the path is only known at run time",
                    );
                }
            }
        }
    }

    /// Checks everything in the directories that a program reads recursively.
    fn below(&mut self, walk: &Walk) {
        let here = [Word::text(".")];
        let words = if walk.tops.is_empty() { &here } else { walk.tops.as_slice() };
        let mut tops = Vec::new();
        for word in words {
            // Other destinations are among the files it reads, and were checked there.
            if let paths::Destination::Inside(paths) = self.directories.find(word) {
                tops.extend(paths);
            }
        }
        let mut next = 0;
        while let Some(top) = tops.get(next).cloned() {
            next += 1;
            for own in self.directories.own_below(&top) {
                self.outside(&own);
            }
            let below = walk.look(&top);
            let links = below.links.iter().filter(|link| is_secret(link));
            for secret in below.secrets.iter().chain(links) {
                let need = Need::ask(NeedKind::Read, secret.to_string_lossy());
                self.push(
                    need,
                    "files of this name usually hold secrets, and the folder is read recursively",
                );
            }
            for link in below.links {
                if !self.directories.is_inside(&link) {
                    self.outside(&link);
                } else if !tops.iter().any(|top| link.starts_with(top)) {
                    tops.push(link);
                }
            }
            if let Some(name) = below.split {
                let need = Need::ask(NeedKind::Read, name.to_string_lossy()).once();
                self.push(
                    need,
                    "its name contains blanks or quotes, and would be split into several",
                );
            }
            if below.is_cut {
                let need = Need::ask(NeedKind::Read, top.to_string_lossy());
                self.push(need, "too many files to check for secrets");
            }
        }
    }

    fn outside(&mut self, path: &Path) {
        // The pattern for the contents of a directory does not match the directory itself.
        let around =
            path.parent().filter(|around| !path.is_dir() && is_narrow(around, self.at.home));
        let always = around.map_or(Always::Exact, |around| Always::Below(around.to_owned()));
        let need = Need::ask(NeedKind::Outside, path.to_string_lossy());
        self.push(Need { always: Some(always), ..need }, "outside the session's folders");
    }

    fn redirect(&mut self, redirect: &Redirect) {
        let raw = &redirect.target.raw;
        match (self.directories.find(&redirect.target), redirect.writes) {
            (paths::Destination::Device, _) => {}
            (paths::Destination::Inside(paths), true) => {
                for path in paths {
                    self.written(&path);
                }
            }
            (paths::Destination::Inside(_), false) => {
                self.places(Known::reading([redirect.target.clone()]));
            }
            (paths::Destination::Outside(path), true)
                if self.is_out_of_reach(&redirect.target, &path) =>
            {
                let need = Need::ask(NeedKind::Write, path.to_string_lossy()).once();
                self.push(
                    Need { default: Verdict::Reject, ..need },
                    "the sandbox does not allow writing there",
                );
            }
            (paths::Destination::Outside(path), false) => self.outside(&path),
            (paths::Destination::Outside(path), true) => {
                let place = path.to_string_lossy();
                let mut around = Need::ask(NeedKind::Outside, place.clone());
                if !self.is_writable(&path) {
                    self.push(Need::ask(NeedKind::WriteOutside, place), "the shell writes there");
                    around.default = Verdict::Allow;
                }
                self.push(around, "outside the session's folders");
                self.written(&path);
            }
            (paths::Destination::Unknown, _) => {
                self.opaque(raw, "the file that is opened is only known at run time");
            }
        }
    }

    /// Tells whether the sandbox certainly refuses writing to a path. From an uncertain working directory it may be another path.
    fn is_out_of_reach(&self, word: &Word, path: &Path) -> bool {
        let is_certain = match &word.means {
            Meaning::Text(text) => {
                text.starts_with('/') || (self.directories.count() == 1 && !self.is_lost)
            }
            Meaning::Home(_) => true,
            Meaning::Names(_) | Meaning::Unknown => false,
        };
        self.at.is_sandboxed && is_certain && !self.is_writable(path)
    }

    /// Tells whether the sandbox allows writing to a path outside.
    fn is_writable(&self, path: &Path) -> bool {
        self.at.writable.iter().any(|directory| path.starts_with(directory))
    }

    fn written(&mut self, path: &Path) {
        let subject = path.to_string_lossy();
        self.push(Need::ask(NeedKind::Write, subject.clone()), "the shell writes to it");
        if is_in_git(path) {
            self.push(Need::ask(NeedKind::Git, subject), "files in .git decide what git runs");
        }
    }

    fn assignment(&mut self, assignment: &Assignment) {
        let is_safe = match &assignment.value.means {
            Meaning::Text(value) if assignment.is_environment => {
                programs::is_safe_variable(&assignment.name, value)
            }
            _ => !assignment.is_environment,
        };
        // Variables that the shell itself uses have upper-case names.
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
