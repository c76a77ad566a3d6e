//! `git`: the commands that only read, with their harmless options.

use std::path::{Path, PathBuf};

use super::known::Known;
use super::options::{Options, Sorted, sort};
use super::paths::Directories;
use super::recursive_reads::Walk;
use super::repository::tracked_secrets;
use super::word::{Meaning, Word};
use crate::resolve::clean;
use crate::secret::is_secret;

/// A git command that only reads.
struct ReadCommand {
    names: &'static str,
    flags: &'static str,
    valued: &'static str,
    long: &'static str,
    /// Whether operands are harmless; for other commands an operand creates something.
    operands: bool,
    /// One of these options is required; without it the command does something else.
    needs: &'static [&'static str],
}

const HISTORY: &str = "stat? shortstat numstat name-only name-status oneline graph decorate? no-decorate all author= \
    since= until= after= before= grep= format= pretty? abbrev-commit no-abbrev-commit no-merges merges first-parent \
    follow reverse date= patch no-patch cached staged color? no-color word-diff? color-words? unified= \
    ignore-space-change ignore-all-space ignore-blank-lines ignore-space-at-eol diff-filter= summary raw check \
    left-right cherry-pick topo-order date-order author-date-order max-count= skip= tags? branches? remotes? exit-code \
    quiet minimal patience histogram no-ext-diff no-textconv find-renames? find-copies? relative? full-index abbrev? \
    no-abbrev compact-summary dirstat? no-renames no-prefix function-context text binary merge-base source \
    no-notes invert-grep regexp-ignore-case extended-regexp fixed-strings perl-regexp boundary \
    simplify-by-decoration full-history ancestry-path cherry cherry-mark no-color-moved color-moved? inter-hunk-context= \
    pickaxe-regex pickaxe-all submodule? no-index shortstat cc combined-all-paths walk-reflogs committer= min-parents= \
    max-parents= encoding= expand-tabs? end-of-options null count objects";

const READ_COMMANDS: &[ReadCommand] = &[
    ReadCommand {
        names: "diff log show whatchanged diff-tree diff-index diff-files rev-list",
        flags: "pusbwzamcrtiEFRW#gqMC",
        valued: "nSGLU",
        long: HISTORY,
        operands: true,
        needs: &[],
    },
    ReadCommand {
        names: "shortlog",
        flags: "snec",
        valued: "",
        long: "summary numbered email committer group= format= since= until= all no-merges merges",
        operands: true,
        needs: &[],
    },
    ReadCommand {
        names: "status",
        flags: "sbuvznoalmr",
        valued: "",
        long: "short branch porcelain? untracked-files? ignored? show-stash long verbose ahead-behind no-ahead-behind null column? no-column find-renames? renames no-renames ignore-submodules?",
        operands: true,
        needs: &[],
    },
    ReadCommand {
        names: "branch",
        flags: "avrlqi",
        valued: "",
        long: "all remotes list verbose show-current contains? no-contains? merged? no-merged? sort= points-at= format= color? no-color column? no-column ignore-case abbrev? no-abbrev",
        operands: false,
        needs: &[],
    },
    ReadCommand {
        names: "tag",
        flags: "ln#i",
        valued: "",
        long: "list contains? no-contains? merged? no-merged? sort= points-at= format= color? column? ignore-case",
        operands: false,
        needs: &[],
    },
    ReadCommand {
        names: "remote",
        flags: "v",
        valued: "",
        long: "verbose",
        operands: false,
        needs: &[],
    },
    ReadCommand {
        names: "rev-parse",
        flags: "q",
        valued: "",
        long: "show-toplevel git-dir is-inside-work-tree is-inside-git-dir is-bare-repository abbrev-ref? short? verify quiet symbolic-full-name symbolic absolute-git-dir git-common-dir show-prefix show-cdup all branches? tags? remotes? revs-only no-revs show-superproject-working-tree git-path=",
        operands: true,
        needs: &[],
    },
    ReadCommand {
        names: "ls-files",
        flags: "cdmostuvzk",
        valued: "x",
        long: "cached deleted modified others stage unmerged killed directory no-empty-directory exclude-standard exclude= error-unmatch full-name abbrev? debug eol deduplicate recurse-submodules",
        operands: true,
        needs: &[],
    },
    ReadCommand {
        names: "ls-tree",
        flags: "drtlz",
        valued: "",
        long: "long name-only name-status full-name full-tree abbrev? object-only format=",
        operands: true,
        needs: &[],
    },
    ReadCommand {
        names: "cat-file",
        flags: "tspe",
        valued: "",
        long: "batch-check? unordered",
        operands: true,
        needs: &["t", "s", "p", "e", "batch-check"],
    },
    ReadCommand {
        names: "blame annotate",
        flags: "lstwepfncbMC",
        valued: "L",
        long: "line-porcelain porcelain show-name show-number show-email root date= reverse color-lines color-by-age score-debug abbrev= ignore-rev= minimal",
        operands: true,
        needs: &[],
    },
    ReadCommand {
        names: "grep",
        flags: "aiIwvhHEGPFnlLocqzpW#",
        valued: "ABCem",
        long: "cached untracked no-index ignore-case word-regexp invert-match full-name extended-regexp basic-regexp perl-regexp fixed-strings line-number column files-with-matches name-only files-without-match only-matching count color? no-color break heading show-function context= after-context= before-context= function-context and or not all-match quiet max-depth= recursive no-recursive text null threads=",
        operands: true,
        needs: &[],
    },
    ReadCommand {
        names: "describe",
        flags: "",
        valued: "",
        long: "tags all always long dirty? abbrev= match= exclude= contains candidates= exact-match first-parent debug broken?",
        operands: true,
        needs: &[],
    },
    ReadCommand {
        names: "merge-base",
        flags: "a",
        valued: "",
        long: "all octopus independent is-ancestor fork-point",
        operands: true,
        needs: &[],
    },
    ReadCommand {
        names: "name-rev",
        flags: "",
        valued: "",
        long: "tags name-only all always refs= exclude= no-undefined",
        operands: true,
        needs: &[],
    },
    ReadCommand {
        names: "for-each-ref",
        flags: "",
        valued: "",
        long: "count= sort= format= points-at= merged? no-merged? contains? no-contains? ignore-case color? exclude=",
        operands: true,
        needs: &[],
    },
    ReadCommand {
        names: "show-ref",
        flags: "hdsq",
        valued: "",
        long: "head dereference hash? verify abbrev? tags heads branches quiet exists",
        operands: true,
        needs: &[],
    },
    ReadCommand {
        names: "show-branch",
        flags: "ar",
        valued: "",
        long: "all remotes current topo-order date-order sparse no-name sha1-name list more= topics color? no-color",
        operands: true,
        needs: &[],
    },
    ReadCommand {
        names: "count-objects",
        flags: "vH",
        valued: "",
        long: "verbose human-readable",
        operands: false,
        needs: &[],
    },
    ReadCommand {
        names: "check-ignore",
        flags: "qvnz",
        valued: "",
        long: "quiet verbose non-matching no-index",
        operands: true,
        needs: &[],
    },
    ReadCommand {
        names: "check-attr",
        flags: "az",
        valued: "",
        long: "all cached",
        operands: true,
        needs: &[],
    },
    ReadCommand {
        names: "config",
        flags: "lz",
        valued: "",
        long: "list get get-all get-regexp get-urlmatch show-origin show-scope name-only local global system null includes bool int path default= type=",
        operands: true,
        needs: &["list", "l", "get", "get-all", "get-regexp", "get-urlmatch"],
    },
    ReadCommand {
        names: "cherry",
        flags: "v",
        valued: "",
        long: "abbrev?",
        operands: true,
        needs: &[],
    },
    ReadCommand {
        names: "range-diff",
        flags: "psw",
        valued: "",
        long: "stat? no-color color? creation-factor= no-dual-color left-only right-only",
        operands: true,
        needs: &[],
    },
    ReadCommand {
        names: "version",
        flags: "",
        valued: "",
        long: "build-options",
        operands: false,
        needs: &[],
    },
];

/// Subcommands of other commands that only read.
const SECOND: [(&str, &str); 6] = [
    ("stash", "list"),
    ("worktree", "list"),
    ("reflog", "show"),
    ("remote", "get-url"),
    ("stash", "show"),
    ("notes", "list"),
];

/// Tells whether this is a git command that only reads, whatever its options.
pub(crate) fn is_read_only(words: &[Word]) -> bool {
    let name = words.get(1).and_then(Word::as_text).unwrap_or_default();
    READ_COMMANDS.iter().any(|look| look.names.split(' ').any(|known| known == name))
}

/// Analyses a call of `git`.
pub(crate) fn analyse(words: &[Word], directories: &Directories<'_>) -> Result<Known, String> {
    const GLOBAL: [&str; 4] = ["--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs"];
    if directories.has_moved {
        // A directory of the project may look like a repository and have a configuration that runs something.
        return Err("the configuration of another folder may make git run programs".to_owned());
    }
    let mut rest = words;
    while let Some((first, after)) = rest.split_first() {
        match first.as_text() {
            Some(text) if GLOBAL.contains(&text) => rest = after,
            Some("--version") if after.is_empty() => return Ok(Known::default()),
            Some(text) if text.starts_with('-') => {
                return Err(format!("the git option `{text}` can make it run programs"));
            }
            Some(_) | None => break,
        }
    }
    let Some((command, arguments)) = rest.split_first() else {
        return Err("git has no subcommand".to_owned());
    };
    let Some(name) = command.as_text() else {
        return Err("the git subcommand is only known at run time".to_owned());
    };
    if name == "reflog" && arguments.is_empty() {
        return tracked_secrets(directories.start()).map(|_| Known::default());
    }
    let second = arguments.first().and_then(Word::as_text).unwrap_or_default();
    if SECOND.contains(&(name, second)) {
        let options = Options { flags: "pnz#u", valued: "", long: HISTORY, others: false };
        let sorted = sort(&arguments[1..], &options)?;
        return known(&Call { name: second, arguments, sorted: &sorted }, directories);
    }
    let Some(look) =
        READ_COMMANDS.iter().find(|look| look.names.split(' ').any(|known| known == name))
    else {
        return Err(format!("`git {name}` may change something"));
    };
    let options =
        Options { flags: look.flags, valued: look.valued, long: look.long, others: false };
    let sorted = sort(arguments, &options)?;
    // Not `-l` of `git branch`: in older versions it creates a branch.
    let lists =
        sorted.has(&["list", "contains", "no-contains", "merged", "no-merged", "points-at"])
            || (name == "tag" && sorted.has(&["l"]));
    if !look.operands && !sorted.operands.is_empty() && !lists {
        return Err(format!("`git {name}` with a name may change something"));
    }
    if !look.needs.is_empty() && !sorted.has(look.needs) {
        return Err(format!("`git {name}` may change something"));
    }
    known(&Call { name, arguments, sorted: &sorted }, directories)
}

/// A call of a command that only reads.
struct Call<'a> {
    name: &'a str,
    arguments: &'a [Word],
    sorted: &'a Sorted<'a>,
}

/// Returns what it reads. Most operands are revisions, so only those are checked that lead out of the directory or name secrets.
fn known(call: &Call<'_>, directories: &Directories<'_>) -> Result<Known, String> {
    let sorted = call.sorted;
    let mut values = sorted.values.iter().map(|(_, value)| value);
    if values.any(|value| value.contains("%G") || value.contains("%(signature")) {
        return Err("checking a signature runs a program from the configuration".to_owned());
    }
    // These options read any file, tracked or not.
    let is_free = sorted.has(&["no-index", "untracked"]);
    let is_read = |word: &&&Word| match &word.means {
        Meaning::Text(text) => is_free || leads_out(text) || is_secret(Path::new(text)),
        Meaning::Names(_) | Meaning::Home(_) | Meaning::Unknown => true,
    };
    let mut reads: Vec<Word> =
        sorted.operands.iter().filter(is_read).map(|word| (*word).clone()).collect();
    // `HEAD:.env` and `-L1,5:.env` print what that file held.
    let texts = sorted.operands.iter().filter_map(|word| word.as_text());
    let texts = texts.chain(sorted.values.iter().map(|(_, value)| value.as_str()));
    let held = texts.filter_map(|text| Some(text.rsplit_once(':')?.1));
    reads.extend(held.filter(|path| is_secret(Path::new(path))).map(Word::text));
    let walks = if is_free { vec![Walk::of_all(&sorted.operands)] } else { Vec::new() };
    let tracked = tracked_secrets(directories.start())?;
    if call.prints() {
        let reach = call.reach(directories.start());
        let is_near = |secret: &PathBuf| {
            reach.as_ref().is_none_or(|reach| reach.iter().any(|near| secret.starts_with(near)))
        };
        reads.extend(
            tracked
                .iter()
                .filter(|secret| is_near(secret))
                .map(|secret| Word::text(&secret.to_string_lossy())),
        );
    }
    Ok(Known { reads, walks })
}

impl Call<'_> {
    /// Tells whether it prints the contents of files, not only their names.
    fn prints(&self) -> bool {
        const PATCH: [&str; 18] = [
            "p",
            "u",
            "patch",
            "U",
            "unified",
            "c",
            "cc",
            "m",
            "W",
            "function-context",
            "L",
            "word-diff",
            "color-words",
            "binary",
            "check",
            "submodule",
            "a",
            "text",
        ];
        const NO_PATCH: [&str; 13] = [
            "stat",
            "shortstat",
            "numstat",
            "name-only",
            "name-status",
            "summary",
            "raw",
            "no-patch",
            "s",
            "quiet",
            "q",
            "dirstat",
            "compact-summary",
        ];
        match self.name {
            "show" if self.arguments.first().and_then(Word::as_text) == Some("show") => {
                // For a stash or a reflog it prints a summary.
                self.sorted.has(&PATCH)
            }
            // These print the contents of a file whatever their options.
            "show" | "grep" | "range-diff" => true,
            "cat-file" => self.sorted.has(&["p"]),
            "status" => self.sorted.has(&["v", "verbose"]),
            "diff" => self.sorted.has(&PATCH) || !self.sorted.has(&NO_PATCH),
            "log" | "whatchanged" | "diff-tree" | "diff-index" | "diff-files" | "list" => {
                self.sorted.has(&PATCH)
            }
            _ => false,
        }
    }

    /// Returns the paths that it is limited to; `None` for all tracked files.
    fn reach(&self, directory: &Path) -> Option<Vec<PathBuf>> {
        if !["diff", "log", "show", "grep", "whatchanged"].contains(&self.name) {
            return None;
        }
        // Wildcards and pathspec magic match more than one name.
        let is_plain = |word: &&Word| {
            word.as_text().is_some_and(|text| !text.contains(['*', '?', '[', '\\', ':', '^', '@']))
        };
        let pattern = usize::from(self.name == "grep" && !self.sorted.has(&["e"]));
        let end = self.arguments.iter().position(|word| word.as_text() == Some("--"));
        let named: Vec<&Word> = match end {
            Some(end) => self.arguments[end + 1..].iter().collect(),
            None => self.sorted.operands.iter().skip(pattern).copied().collect(),
        };
        // An object named by its hash is shown whatever the paths are.
        let is_hash = |word: &Word| {
            word.as_text().is_none_or(|text| {
                text.len() >= 4 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
            })
        };
        if !named.iter().all(is_plain) || self.arguments.iter().any(is_hash) {
            return None;
        }
        // Without `--` git takes a word for a path only if it exists and is not a revision.
        let places =
            named.iter().filter_map(|word| word.as_text()).map(|text| directory.join(text));
        let places = places.filter(|place| end.is_some() || place.symlink_metadata().is_ok());
        let places: Vec<PathBuf> = places.map(|place| clean(&place)).collect();
        (!places.is_empty()).then_some(places)
    }
}

fn leads_out(text: &str) -> bool {
    text.starts_with('/') || text.split('/').any(|part| part == "..")
}
