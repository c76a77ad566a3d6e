//! Programs that only read, each with its harmless options.
//!
//! A program or an option that is not listed here, and a word that may expand to such an option, need permission.

use std::path::Path;

use super::items::Simple;
use super::known::Known;
use super::options::{Options, Sorted, sort};
use super::paths::Directories;
use super::recursive_reads::Walk;
use super::small_programs::{is_old_list, pager, read};
use super::word::{Meaning, Word};
use super::{awk, git, sed};
use crate::secret::is_secret;

/// What the operands of a program are.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Operands {
    /// Text that names no file.
    Text,
    /// Files.
    Paths,
    /// A pattern, then files.
    PatternThenPaths,
    /// At most one file: a second one would be written.
    OnePath,
    /// None: an operand would change something.
    None,
    /// Formats that begin with `+`; anything else would set the clock.
    Formats,
}

/// A program that only reads.
struct Row {
    names: &'static str,
    options: Options,
    operands: Operands,
    /// One of these options is required; without it the program does something else.
    needs: &'static [&'static str],
}

/// A program all of whose options are harmless.
const fn any(names: &'static str, valued: &'static str, operands: Operands) -> Row {
    let options = Options { flags: "", valued, long: "", others: true };
    Row { names, options, operands, needs: &[] }
}

/// A program with only these harmless options.
const fn only(
    names: &'static str,
    flags: &'static str,
    valued: &'static str,
    long: &'static str,
    operands: Operands,
) -> Row {
    Row { names, options: Options { flags, valued, long, others: false }, operands, needs: &[] }
}

use Operands::{Formats, OnePath, Paths, PatternThenPaths, Text};

const ROWS: &[Row] = &[
    any("echo true false : seq sleep basename dirname expr", "", Text),
    any(
        "whoami id groups uname arch nproc uptime free pwd tty logname locale printenv getconf",
        "",
        Text,
    ),
    any("which type ps pgrep pidof exit break continue", "", Text),
    // Its options take names of variables, which may contain commands.
    only("wait", "", "", "", Text),
    any("tr numfmt yes cal lscpu help", "", Text),
    Row {
        needs: &["c", "stdout", "to-stdout"],
        ..only(
            "gunzip gzip",
            "cdkqv",
            "",
            "stdout to-stdout decompress uncompress keep quiet verbose",
            Paths,
        )
    },
    Row {
        options: Options { flags: "", valued: "", long: "files0-from=", others: true },
        ..any("wc", "", Paths)
    },
    any("cat tac rev realpath readlink cksum sum comm expand unexpand", "", Paths),
    any("ls", "IwT", Paths),
    any("nl", "bdfhilnsvw", Paths),
    any("md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum", "", Paths),
    any("head tail", "ncs", Paths),
    any("cut", "dfcb", Paths),
    any("paste fold fmt", "dwpg", Paths),
    any("column", "scoNRHO", Paths),
    any("cmp", "in", Paths),
    any("join", "tjeoav12", Paths),
    any("stat", "c", Paths),
    Row {
        options: Options { flags: "", valued: "dtBX", long: "files0-from=", others: true },
        ..any("du", "", Paths)
    },
    any("df", "tBx", Paths),
    any("od", "ANjtSw", Paths),
    any("strings", "nte", Paths),
    any("base64 base32", "w", Paths),
    Row {
        options: Options { flags: "", valued: "ABCDdmef", long: GREP, others: true },
        ..any("grep egrep fgrep", "", PatternThenPaths)
    },
    any("jq", "fL", PatternThenPaths),
    only("hexdump hd", "bcCdovx", "ns", "canonical length= skip=", Paths),
    only("xxd", "abeEpuiCd", "cglosn", "", OnePath),
    only(
        "uniq",
        "cdDiuz",
        "fsw",
        "count repeated unique ignore-case skip-fields= skip-chars= check-chars= all-repeated? group?",
        OnePath,
    ),
    only(
        "sort",
        "bdfghiMnRrVcCmsuz",
        "kt",
        "reverse numeric-sort unique key= field-separator= ignore-case human-numeric-sort version-sort general-numeric-sort check? stable zero-terminated month-sort dictionary-order ignore-leading-blanks parallel= merge",
        Paths,
    ),
    only("shuf", "ez", "in", "echo input-range= head-count= repeat zero-terminated", Paths),
    only("date", "uRI", "d", "utc universal date= iso-8601? rfc-3339= rfc-email", Formats),
    only("hostname", "fsiIdA", "", "fqdn short ip-address all-ip-addresses domain", Operands::None),
    only("env", "", "", "", Operands::None),
    only(
        "tree",
        "adfipshugDCQNqrtcUvnFAS",
        "LIP",
        "noreport dirsfirst filesfirst filelimit= gitignore prune matchdirs ignore-case charset= inodes du si",
        Paths,
    ),
    only(
        "file",
        "bhikLNnprsv0",
        "F",
        "brief mime mime-type mime-encoding dereference no-dereference separator= keep-going no-pad raw print0",
        Paths,
    ),
    only(
        "diff",
        "abBdefiNpqrstTuwyZcnE",
        "CIUWxXF",
        "unified? context? brief recursive side-by-side suppress-common-lines ignore-all-space ignore-space-change ignore-blank-lines ignore-case ignore-trailing-space ignore-tab-expansion color? new-file text report-identical-files strip-trailing-cr width= label= exclude= minimal no-dereference ignore-matching-lines= left-column normal",
        Paths,
    ),
    only("iconv", "lc", "ft", "from-code= to-code= list", Paths),
    only(
        "yq",
        "rCMPNej",
        "op",
        "raw-output output-format= input-format= prettyPrint no-doc colors no-colors exit-status unwrapScalar? tojson",
        PatternThenPaths,
    ),
    only("rg ripgrep", "aciFhHlnNopPqsSuUvVwx0I.", "ABCEdegmMrtTjf", RIPGREP, PatternThenPaths),
    only(
        "fd fdfind",
        "HIagpusiF1q0",
        "deEtScoj",
        "hidden no-ignore no-ignore-vcs absolute-path glob regex extension= type= exclude= max-depth= min-depth= exact-depth= full-path print0 ignore-case case-sensitive fixed-strings size= changed-within= changed-before= color= max-results= relative-path? strip-cwd-prefix? and=",
        PatternThenPaths,
    ),
    only("tokei", "fsC", "et", "files sort= exclude= types= compact hidden no-ignore", Paths),
    only("zcat", "", "", "", Paths),
    Row {
        needs: &["t", "list"],
        ..only("tar", "tvzjJ", "f", "list verbose file= gzip bzip2 xz zstd", Paths)
    },
    Row { needs: &["l", "Z", "v"], ..only("unzip", "lvZ1", "", "", OnePath) },
    Row { needs: &["v", "V"], ..only("command", "vV", "", "", Text) },
];

/// Options with a value; the others are harmless as well.
const GREP: &str = "recursive dereference-recursive include= exclude= exclude-dir= exclude-from= after-context= before-context= context= max-count= regexp= \
    file= directories= devices= binary-files= label=";

const RIPGREP: &str = "after-context= before-context= context= count count-matches ignore-case smart-case \
    case-sensitive fixed-strings files files-with-matches files-without-match glob= iglob= heading no-heading hidden \
    no-hidden line-number no-line-number max-count= max-depth= max-columns= multiline multiline-dotall no-ignore \
    no-ignore-vcs no-ignore-parent no-messages null only-matching passthru pcre2 pretty quiet regexp= file= replace= sort= \
    sortr= stats text trim type= type-not= type-list unrestricted invert-match vimgrep word-regexp line-regexp color= \
    colors= column no-column no-filename with-filename json line-buffered max-filesize= threads= version crlf encoding= \
    engine= no-config one-file-system path-separator= context-separator= field-match-separator= max-columns-preview \
    no-unicode glob-case-insensitive ignore-file= byte-offset debug no-require-git include-zero null-data";

/// Programs that are often run only to print their version.
const VERSIONS: [(&str, &[&str]); 20] = [
    ("node", &["--version", "-v"]),
    ("python", &["--version", "-V"]),
    ("python3", &["--version", "-V"]),
    ("gcc", &["--version"]),
    ("g++", &["--version"]),
    ("cc", &["--version"]),
    ("clang", &["--version"]),
    ("make", &["--version"]),
    ("cmake", &["--version"]),
    ("ninja", &["--version"]),
    ("bash", &["--version"]),
    ("java", &["--version", "-version"]),
    ("javac", &["--version", "-version"]),
    ("sed", &["--version"]),
    ("awk", &["--version"]),
    ("find", &["--version"]),
    ("curl", &["--version", "-V"]),
    ("docker", &["--version"]),
    ("perl", &["--version", "-v"]),
    ("xargs", &["--version"]),
];

/// Tells whether a program only prints its version.
pub(crate) fn asks_version(name: &str, words: &[Word]) -> bool {
    let [word] = words else { return false };
    let text = word.as_text().unwrap_or_default();
    VERSIONS.iter().any(|(known, options)| *known == name && options.contains(&text))
}

/// Analyses a simple command: returns what it reads if it only reads, else why it needs permission.
pub(crate) fn analyse(simple: &Simple, directories: &mut Directories<'_>) -> Result<Known, String> {
    let Some((first, words)) = simple.words.split_first() else {
        return Err("no program to run".to_owned());
    };
    let name = first.as_text().unwrap_or_default();
    if asks_version(name, words) {
        return Ok(Known::default());
    }
    match name {
        "[" if words.is_empty() => Ok(Known::default()),
        "test" => test(words),
        "cd" => match words {
            [directory] => directories.enter(directory).map(|()| Known::default()),
            _ => Err("the folder is only known at run time".to_owned()),
        },
        "set" => set(words),
        "printf" => match words.first().and_then(Word::as_text) {
            Some(format) if !format.starts_with('-') && !sets_variable(format) => {
                Ok(Known::default())
            }
            _ => Err("it may set a variable".to_owned()),
        },
        "git" => git::analyse(words, directories),
        "sed" => sed::analyse(words),
        "awk" | "gawk" | "mawk" => awk::analyse(words),
        "find" => find(words),
        "xargs" => xargs(words, simple.piped_from.as_deref()),
        "less" | "more" | "bat" | "batcat" => pager(words),
        "read" => read(words),
        "history" => match words {
            [] => Ok(Known::default()),
            _ => Err("it may change the history".to_owned()),
        },
        "tar" => match words.split_first() {
            // The old form: letters without a dash, of which the last takes the archive.
            Some((first, rest)) if is_old_list(first) => {
                let letters = format!("-{}", first.as_text().unwrap_or_default());
                let words: Vec<Word> =
                    std::iter::once(Word::text(&letters)).chain(rest.iter().cloned()).collect();
                row("tar", &words, simple)
            }
            _ => row("tar", words, simple),
        },
        _ => row(name, words, simple),
    }
}

/// Tells whether a program reads the files that its words name.
pub(crate) fn reads_files(name: &str) -> bool {
    let others = ["sed", "awk", "gawk", "mawk", "less", "more", "bat", "batcat"];
    let is_named = |row: &&Row| row.names.split(' ').any(|known| known == name);
    let reads = |row: &Row| matches!(row.operands, Paths | PatternThenPaths | OnePath);
    others.contains(&name) || ROWS.iter().find(is_named).is_some_and(reads)
}

/// Analyses a program by its row of the table.
fn row(name: &str, words: &[Word], simple: &Simple) -> Result<Known, String> {
    match ROWS.iter().find(|row| row.names.split(' ').any(|known| known == name)) {
        Some(row) => row.analyse(name, words, simple.piped_from.is_some()),
        None => Err("not known to be read-only".to_owned()),
    }
}

impl Row {
    fn analyse(&self, name: &str, words: &[Word], has_input: bool) -> Result<Known, String> {
        if self.operands == Text && self.options.others {
            return Ok(Known::reading(words.iter().filter(|word| lists(word)).cloned()));
        }
        let sorted = sort(words, &self.options)?;
        if !self.needs.is_empty() && !sorted.has(self.needs) {
            return Err("without a required option it may change something".to_owned());
        }
        let operands = &sorted.operands;
        let is_list = |word: &&&Word| word.as_text().is_none_or(|text| text.starts_with('@'));
        let has_list = name == "strings" && operands.iter().any(|word| is_list(&word));
        if has_list || sorted.has(&["files0-from"]) {
            return Err("a file may name the files that it reads".to_owned());
        }
        let files: &[&Word] = match self.operands {
            Text => &[],
            Paths => operands,
            // A pattern may match two names.
            OnePath if operands.len() <= 1 && !operands.iter().any(|word| is_names(word)) => {
                operands
            }
            Operands::None if operands.is_empty() => operands,
            OnePath | Operands::None => {
                return Err("it writes to its second argument".to_owned());
            }
            Formats => {
                let is_format =
                    |word: &&Word| word.as_text().is_some_and(|text| text.starts_with('+'));
                if !operands.iter().all(is_format) {
                    return Err("it may set the clock".to_owned());
                }
                &[]
            }
            PatternThenPaths => {
                let has_pattern =
                    sorted.has(&["e", "regexp", "f", "file", "files", "from-file", "type-list"]);
                let program = operands.first().and_then(|word| word.as_text()).unwrap_or_default();
                let loads = |word: &&str| program.contains(word);
                if matches!(name, "jq" | "yq") && ["load", "import", "include"].iter().any(loads) {
                    return Err("its filter may read other files".to_owned());
                }
                operands.get(usize::from(!has_pattern)..).unwrap_or_default()
            }
        };
        if sorted.values.iter().any(|(_, value)| value.contains(':')) && name == "tar" {
            return Err("the archive may be on another machine".to_owned());
        }
        let mut reads: Vec<Word> = files.iter().map(|word| (*word).clone()).collect();
        reads.extend(values_that_are_read(&sorted));
        let walk = match name {
            "grep" | "egrep" | "fgrep" | "diff" => Walk::of_grep(name, &sorted, files),
            // Without a file it reads its input.
            "rg" | "ripgrep" if !sorted.has(&["files", "type-list"]) => {
                (!has_input || !files.is_empty()).then(|| Walk::of_ripgrep(&sorted, files))
            }
            _ => None,
        };
        Ok(Known { reads, walks: walk.into_iter().collect() })
    }
}

/// Tells whether a pattern lists the names in a directory that may be outside.
fn lists(word: &Word) -> bool {
    match &word.means {
        Meaning::Names(names) => {
            let may_lead_out = names.starts_with('/') || names.contains("../");
            let is_pattern = names.contains(['*', '?', '[']);
            is_pattern && (may_lead_out || names.contains('{') && names.contains('/'))
        }
        Meaning::Unknown => word.raw.starts_with('~'),
        Meaning::Text(_) | Meaning::Home(_) => false,
    }
}

fn is_names(word: &Word) -> bool {
    matches!(word.means, Meaning::Names(_))
}

/// Returns option values that would lead out of the directory or to secrets, if they are paths at all.
fn values_that_are_read(sorted: &Sorted<'_>) -> Vec<Word> {
    // Patterns are not files.
    let is_file = |name: &str| !["include", "exclude", "g"].iter().any(|one| name.starts_with(one));
    let values = sorted.values.iter().filter(|(name, _)| is_file(name)).map(|(_, value)| value);
    let is_read = |value: &&String| {
        let is_path = value.starts_with('/') && value.len() > 1;
        is_path
            || value.starts_with("~/")
            || value.split('/').any(|part| part == "..")
            || is_secret(Path::new(value))
    };
    let word = |value: &String| match value.strip_prefix('~') {
        Some(rest) => Word { raw: value.clone(), means: Meaning::Home(rest.to_owned()) },
        None => Word::text(value),
    };
    values.filter(is_read).map(word).collect()
}

/// Tells whether a format has `%n`, which sets a variable.
fn sets_variable(format: &str) -> bool {
    format.replace("%%", "").split('%').skip(1).any(|directive| {
        let name = directive
            .trim_start_matches(|c: char| !c.is_ascii_alphabetic() || "hlLjzt".contains(c));
        name.starts_with('n')
    })
}

/// Analyses `set`: `set -e` and the like are harmless; `set -x` expands `PS4`, which may run commands.
fn set(words: &[Word]) -> Result<Known, String> {
    let texts: Vec<&str> = words.iter().filter_map(Word::as_text).collect();
    let is_known = |text: &&str| {
        matches!(*text, "-e" | "-u" | "-eu" | "-ue" | "-o" | "-euo" | "-eo" | "-uo" | "pipefail")
    };
    let is_harmless = texts.len() == words.len() && !texts.is_empty() && texts.iter().all(is_known);
    if is_harmless {
        Ok(Known::default())
    } else {
        Err("it changes how the shell works".to_owned())
    }
}

/// Analyses `test`: arithmetic evaluates its operands, which may contain commands, so only plain numbers pass.
fn test(words: &[Word]) -> Result<Known, String> {
    let computes = |word: &Word| {
        matches!(word.as_text(), Some("-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge" | "-v" | "-R"))
    };
    let is_plain = |word: &Word| {
        let raw = word.raw.trim_matches('"');
        matches!(raw, "$?" | "$#")
            || raw.parse::<i64>().is_ok()
            || (computes(word) && raw != "-v" && raw != "-R")
    };
    if words.iter().any(computes) && !words.iter().all(is_plain) {
        return Err("a test contains arithmetic with more than plain numbers".to_owned());
    }
    let is_one = |word: &Word| word.as_text().is_some() || word.is_quoted();
    let are_unknown = |pair: &[Word]| pair.iter().all(|word| word.as_text().is_none());
    if !words.iter().all(is_one) || words.windows(2).any(are_unknown) {
        return Err("the value of a variable may become part of the test".to_owned());
    }
    Ok(Known::default())
}

/// Analyses `find`: only tests, and actions that print.
fn find(words: &[Word]) -> Result<Known, String> {
    const ALONE: &str = "-print -print0 -prune -empty -readable -writable -executable -a -and -o -or -not ! ( ) , -true \
        -false -depth -mount -xdev -nouser -nogroup -quit -ls -noleaf -daystart -warn -nowarn";
    const WITH_VALUE: &str = "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -xtype \
        -size -mtime -ctime -atime -mmin -cmin -amin -newer -anewer -cnewer -maxdepth -mindepth -perm -user -group -uid \
        -gid -links -inum -lname -ilname -samefile -fstype -used -printf -newermt -newerct -newerat";
    let mut reads = Vec::new();
    let mut rest = words.iter();
    let mut has_begun = false;
    while let Some(word) = rest.next() {
        let text = match &word.means {
            Meaning::Text(text) => text.as_str(),
            Meaning::Home(_) if !has_begun => {
                reads.push(word.clone());
                continue;
            }
            Meaning::Names(names)
                if !has_begun && !names.starts_with(['*', '?', '[', '{', '-']) =>
            {
                reads.push(word.clone());
                continue;
            }
            Meaning::Names(_) | Meaning::Home(_) | Meaning::Unknown => {
                return Err("an argument is only known at run time".to_owned());
            }
        };
        if matches!(text, "-H" | "-P") && !has_begun {
            continue;
        }
        let is_expression = text.starts_with('-') || matches!(text, "(" | ")" | "!" | ",");
        has_begun |= is_expression;
        if !has_begun {
            reads.push(word.clone());
        } else if WITH_VALUE.split_whitespace().any(|known| known == text) {
            if rest.next().and_then(Word::as_text).is_none() {
                return Err(format!("the value of `{text}` is only known at run time"));
            }
        } else if !ALONE.split_whitespace().any(|known| known == text) {
            return Err(format!("`{text}` of find may change or run something"));
        }
    }
    Ok(Known::reading(reads))
}

/// Analyses `xargs`: harmless with a program that its arguments cannot change, and file names as input.
fn xargs(words: &[Word], piped_from: Option<&[Word]>) -> Result<Known, String> {
    const OPTIONS: Options = Options {
        flags: "0rtx",
        valued: "nLPdIs",
        long: "null no-run-if-empty max-args= max-procs= delimiter= verbose",
        others: false,
    };
    let Some(start) = xargs_program(words) else {
        return Err("it runs its input".to_owned());
    };
    sort(&words[..start], &OPTIONS)?;
    let name = words[start].as_text().unwrap_or_default();
    let row = ROWS.iter().find(|row| row.names.split(' ').any(|known| known == name));
    if !row.is_some_and(|row| row.options.others && row.operands != Text) {
        return Err("its input may be taken for options".to_owned());
    }
    if !piped_from.is_some_and(names_files) {
        return Err("its input may be anything".to_owned());
    }
    let Some((row, piped_from)) = row.zip(piped_from) else {
        return Err("not known to be read-only".to_owned());
    };
    let mut known = row.analyse(name, &words[start + 1..], true)?;
    // A recursive program reads more than the names it gets.
    let goes_on = !known.walks.is_empty();
    let is_whole = |word: &Word| matches!(word.as_text(), Some("-0" | "--null" | "-0r" | "-r0"));
    let splits = !words[..start].iter().any(is_whole);
    let walk = Walk::of_names(piped_from, goes_on);
    // Programs that read the files themselves print names, which are split all the same.
    let walk = walk.or_else(|| splits.then(|| Walk::of_printed(searched(piped_from))));
    known.walks.extend(walk.map(|walk| walk.splitting(splits)));
    Ok(known)
}

/// Returns where `grep` or `rg` searches; empty for the working directory.
fn searched(words: &[Word]) -> Vec<Word> {
    let name = words.first().and_then(Word::as_text).unwrap_or_default();
    let row = ROWS.iter().find(|row| row.names.split(' ').any(|known| known == name));
    let Some(Ok(sorted)) = row.map(|row| sort(&words[1..], &row.options)) else {
        return Vec::new();
    };
    let patterns = usize::from(!sorted.has(&["e", "f", "regexp", "file"]));
    sorted.operands.iter().skip(patterns).map(|word| (*word).clone()).collect()
}

/// Returns the index of the program that `xargs` runs, among the words after it.
pub(crate) fn xargs_program(words: &[Word]) -> Option<usize> {
    let is_option_value = |index: usize| {
        index > 0
            && words[index - 1].as_text().is_some_and(|text| {
                matches!(text, "-n" | "-L" | "-P" | "-d" | "-I" | "-s" | "-a" | "-E")
            })
    };
    (0..words.len()).find(|index| {
        !is_option_value(*index)
            && words[*index].as_text().is_none_or(|text| !text.starts_with('-'))
    })
}

/// Tells whether a command prints only names of files in the given directories.
fn names_files(words: &[Word]) -> bool {
    let texts: Vec<&str> = words.iter().filter_map(Word::as_text).collect();
    let has = |options: &[&str]| texts.iter().any(|text| options.contains(text));
    match texts.first() {
        Some(&"find") => !has(&["-printf", "-ls"]),
        Some(&("fd" | "fdfind")) => true,
        Some(&"git") => texts.get(1) == Some(&"ls-files"),
        Some(&"rg") => has(&["-l", "--files", "--files-with-matches", "-il", "-li", "-lw"]),
        Some(&"grep") => has(&[
            "-l",
            "-rl",
            "-lr",
            "-ril",
            "-rli",
            "-Rl",
            "-rlE",
            "-rlF",
            "-rnl",
            "--files-with-matches",
        ]),
        _ => false,
    }
}

/// Tells whether a program may get a variable with this value without doing anything else.
pub(crate) fn is_safe_variable(name: &str, value: &str) -> bool {
    const PLAIN: [&str; 17] = [
        "LANG",
        "LANGUAGE",
        "TZ",
        "NO_COLOR",
        "FORCE_COLOR",
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "COLUMNS",
        "LINES",
        "CI",
        "RUST_BACKTRACE",
        "CARGO_TERM_COLOR",
        "PYTHONUNBUFFERED",
        "PYTHONDONTWRITEBYTECODE",
        "DEBIAN_FRONTEND",
        "TERM",
        "GIT_OPTIONAL_LOCKS",
    ];
    let is_plain_value = value.chars().all(|c| c.is_ascii_alphanumeric() || "_.-@:,+".contains(c));
    match name {
        "PAGER" | "GIT_PAGER" | "MANPAGER" => matches!(value, "cat" | ""),
        _ => (PLAIN.contains(&name) || name.starts_with("LC_")) && is_plain_value,
    }
}
