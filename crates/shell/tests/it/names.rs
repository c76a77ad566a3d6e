//! Patterns, braces and links in a real directory: the expected expansions are compared with a real bash, and programs that read
//! recursively are asked about secrets.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use shell::{Context, Verdict, needs, real};
use tempfile::TempDir;

/// A project with secrets, hidden files and links, next to a directory outside of it.
struct Project {
    top: PathBuf,
    _removed_on_drop: TempDir,
}

impl Project {
    fn new() -> Project {
        let removed_on_drop = tempfile::tempdir().unwrap();
        let top = removed_on_drop.path().to_owned();
        for directory in ["w/src/deep", "w/sub/a", "w/.hidden", "w/clean/more", "w/tests", "out"] {
            std::fs::create_dir_all(top.join(directory)).unwrap();
        }
        let top = top.canonicalize().unwrap();
        for file in [
            "out/outer.txt",
            "w/.env",
            "w/.env.example",
            "w/.hidden/id_rsa",
            "w/a",
            "w/ab.txt",
            "w/a b",
            "w/new\nline",
            "w/-r",
            "w/src/lib.rs",
            "w/src/deep/.env",
            "w/sub/a/x",
            "w/clean/one.rs",
            "w/clean/more/two.txt",
            "w/tests/tls.pem",
            "w/[x]",
            "w/b{1}",
        ] {
            std::fs::write(top.join(file), "token = 1\n").unwrap();
        }
        let project = Project { top, _removed_on_drop: removed_on_drop };
        for (link, to) in [
            ("li", "../out/outer.txt"),
            ("l", "../out"),
            ("a[xyz]q", "../out/outer.txt"),
            ("c{,}d", "../out/outer.txt"),
            ("ä", "../out/outer.txt"),
            ("env.link", ".env"),
            ("sub/a/a", "../../../out"),
            ("sub/x", "../../out/outer.txt"),
            ("clean/inner", "more"),
        ] {
            symlink(to, project.work().join(link)).unwrap();
        }
        project
    }

    fn work(&self) -> PathBuf {
        self.top.join("w")
    }

    fn runs(&self, command: &str) -> bool {
        self.asked(command).is_empty()
    }

    /// Returns what is not allowed without a question.
    fn asked(&self, command: &str) -> Vec<String> {
        let roots = [self.work()];
        let home = self.top.join("home");
        let at = Context {
            cwd: &roots[0],
            roots: &roots,
            own: &[self.top.join("w/clean/ours")],
            home: Some(&home),
            is_sandboxed: true,
            writable: &[],
            real: &real,
            is_deceptive: engine::words::deceives,
        };
        needs(command, &at)
            .into_iter()
            .filter(|need| need.default != Verdict::Allow)
            .map(|need| format!("{:?}: {}", need.kind, need.subject))
            .collect()
    }

    /// Asks a real bash what words expand to. They contain nothing that could run.
    #[expect(
        clippy::disallowed_methods,
        reason = "a real shell is what the rules are compared with"
    )]
    fn expanded(&self, words: &[String], language: &str) -> Vec<Vec<String>> {
        // An error in one of them ends only its own subshell.
        let script: String = words
            .iter()
            .map(|word| {
                format!(
                    "(eval {} 2>&-)\nprintf '\\1\\0'\n",
                    quote(&format!("printf '%s\\0' {word}"))
                )
            })
            .collect();
        let file = self.top.join("script");
        std::fs::write(&file, script).unwrap();
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc"]).arg(file).current_dir(self.work()).env_clear();
        command.env("LC_ALL", language).env("HOME", self.top.join("home")).stdin(Stdio::null());
        let output = command.output().unwrap().stdout;
        let said = String::from_utf8_lossy(&output).into_owned();
        let mut all: Vec<Vec<String>> = said
            .split("\u{1}\0")
            .map(|one| one.split_terminator('\0').map(str::to_owned).collect())
            .collect();
        all.truncate(words.len());
        assert_eq!(all.len(), words.len());
        all
    }
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Words that expand to other words.
const WORDS: &[&str] = &[
    "*",
    "?",
    "??",
    "*.txt",
    "a*",
    "a?b",
    ".e*",
    ".*",
    ".?*",
    ".[!.]*",
    ".[[:alpha:]]nv",
    ".en[v]",
    ".en[!x]",
    "[[:alpha:]]i",
    "[l]i",
    "[!a]i",
    "[^a]i",
    "[]l]i",
    "[l-l]i",
    "[k-m]*",
    "l[i]",
    "l[!x]",
    "l*",
    "l*/*",
    "*/secret*",
    "l/secret.???",
    "?/*",
    "./l?",
    "./*",
    "sub/*",
    "sub/*/*",
    "sub/?",
    "*/*/*",
    "**",
    "**/x",
    "src/**/.e*",
    "src/deep/.*",
    "src/*/.env",
    ".hidden/*",
    ".h*/*",
    ".hidden/id_*",
    r"a\[xyz]?",
    "a'[xyz]'?",
    r#"a"[xyz]q""#,
    "a[[]xyz]q",
    r"a\[*",
    "a?xyz?q",
    "*q",
    "?i",
    "??v*",
    ".e??",
    ".E*",
    ".en?",
    "env*",
    "*.link",
    "a' 'b",
    r"a\ *",
    "'a b'",
    "new*",
    "new?line",
    "-*",
    "*-r",
    "[-]r",
    "ä",
    "?",
    "[!x]",
    "'ä'*",
    "{a,ab.txt}",
    "{a,../out/outer.txt}",
    "a{,.bak}",
    "{l,a}i",
    ".{env,x}",
    "{.,x}env",
    "{a..c}",
    "{1..3}",
    "{a,{b,../out/outer.txt}}",
    "{li,a",
    "li}",
    "{li}",
    "{a},li}",
    "{},li}",
    "{}li,a}",
    "{l'i',a}",
    r"{a\,li}",
    "c{,}d",
    "'c{,}d'",
    r"c\{,}d",
    "c{,\\}d",
    "{,l}i",
    "l{i,}",
    "{l..l}i",
    "b{1}",
    "~",
    "~/x",
    "~+/li",
    "~-",
    "~root/x",
    "'~'/x",
    "[x]",
    r"\[x\]",
    "[x",
    "x]",
    "[]",
    "[!]",
    "[^]",
    "nothing*",
    "no[thing]",
    "no{thing}",
    "no*/../li",
    "*/../li",
    "l/..",
    "sub/../*",
    "./../*",
    "../*",
    "/*",
    "/etc/pass*",
    "/et[c]/passwd",
    "@(li|a)",
    "+(l)i",
    "!(a)",
    "$'li'",
    "$'l\\x69'",
    r#"$"li""#,
    "l\\i",
    "\\li",
    "l''i",
    "l\"\"*",
    "''*",
    "*''",
    "\"*\"",
    "'*'*",
    r"\**",
    "li*",
    "li?",
    "l[",
    "l[*",
    "[*",
    "[a/../l]i",
    "[[:alpha:]",
    "[[.l.]]i",
    "[[=l=]]i",
    "[\\l]i",
    "['l']i",
    "[\"l\"]i",
    "[!'a']i",
    "[a\\]l]i",
    "?[!.]*",
    "a=*",
    "--x=l*",
    "--include=*",
];

// R: T2
#[test]
fn word_is_allowed_only_if_every_expansion_in_bash_is() {
    let project = Project::new();
    let mut words: Vec<String> = WORDS.iter().map(|word| (*word).to_owned()).collect();
    // Fragments that mean something to the shell or in this directory, in any order.
    let pieces = prop::sample::select(vec![
        "*",
        "?",
        "[",
        "]",
        "{",
        "}",
        ",",
        "..",
        ".",
        "/",
        "l",
        "i",
        "a",
        "b",
        "x",
        "env",
        "sub",
        "out",
        "q",
        "!",
        "^",
        "-",
        "'",
        "\"",
        "\\",
        "xyz",
        "ä",
        "~",
        "outer.txt",
        "src",
        "deep",
        ":alpha:",
        "=",
        " ",
        "d",
        "c",
        "1",
    ]);
    let some = prop::collection::vec(pieces, 1..9);
    let mut runner = TestRunner::deterministic();
    for _ in 0..6000 {
        words.push(some.new_tree(&mut runner).unwrap().current().concat());
    }
    let before = words.len();
    words.retain(|word| project.runs(&format!("cat {word}")));
    let unasked = words.len();
    let mut wrong = Vec::new();
    let mut many = 0;
    for language in ["C", "C.UTF-8"] {
        for (word, became) in words.iter().zip(project.expanded(&words, language)) {
            many += usize::from(became.len() != 1 || became[0] != *word);
            for one in became {
                if !one.is_empty() && !project.runs(&format!("cat -- {}", quote(&one))) {
                    wrong.push(format!("{word} becomes {one:?} ({language})"));
                }
            }
        }
    }
    eprintln!(
        "{before} words, {unasked} run unasked, {many} times bash makes something else of one"
    );
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(unasked > 500 && many > 100, "{unasked} {many}");
}

/// Commands in this directory, with the expected verdict for each.
const COMMANDS: &[(bool, &str)] = &[
    // Names from expansions.
    (false, "rm {a,../b}"),
    (false, "cp a{,.bak}"),
    (false, "echo > li*"),
    (false, "echo x >> l?"),
    (false, "cat < li*"),
    (false, "cat *"),
    (false, "cat .e*"),
    (false, "cat < .en?"),
    (false, "head -n1 .env*"),
    (false, "cat l*"),
    (false, "cat a[[]xyz]q"),
    (false, "cat .[[:alpha:]]nv"),
    (false, "cat .*/outer.txt"),
    (false, "sort l?"),
    (false, "grep x -- *"),
    (false, "wc -l env.*"),
    (false, "echo ../*"),
    (false, "echo /etc/*"),
    (false, "echo ~/*"),
    (false, "ls -d {/etc,/usr}/*"),
    (true, "cat ab*"),
    (true, "cat a?b"),
    (true, "ls src/*"),
    (true, "cat clean/*.rs"),
    (true, "cat clean/*/*"),
    (true, "echo *"),
    (true, "echo {1..3}"),
    (true, "ls clean/[mo]*"),
    (true, "cat nothing*"),
    // Directories that are read recursively.
    (false, "grep -r token ."),
    (false, "grep -rn token"),
    (false, "grep -R token src"),
    (false, "grep --recursive token src/deep"),
    (false, "grep -d recurse token ."),
    (false, "grep --directories=recurse token ."),
    (false, "egrep -r token ."),
    (false, "grep -r --include=.env token ."),
    (false, "grep -r --include '.e*' token ."),
    (false, "grep -r --include='*' token ."),
    (false, "cd src && grep -r token"),
    (false, "rg --hidden token"),
    (false, "rg -. token ."),
    (false, "rg -uu token"),
    (false, "rg -uuu token src"),
    (false, "rg --hidden -g '.env' token"),
    (false, "rg token"),
    (false, "rg token tests"),
    (false, "diff -r src clean"),
    (false, "diff --recursive . clean"),
    (false, "git grep --no-index token"),
    (false, "git grep --untracked token"),
    (false, "git diff --no-index /dev/null .env"),
    (false, "git diff --no-index clean src"),
    (false, "git diff --no-index clean .e*"),
    (false, "git diff --no-index /dev/null {/etc/passwd,x}"),
    (false, "git diff --no-index a l/outer.txt"),
    (false, "git diff --no-index a l/s*"),
    (false, "git grep token -- .env"),
    (false, "find . -type f | xargs cat"),
    (false, "find . -name .env | xargs cat"),
    (false, "find . -name '.en*' -print0 | xargs -0 head"),
    (false, "find . -name x -o -type f | xargs cat"),
    (false, "find . ! -name '*.rs' | xargs cat"),
    (false, "find . -type l | xargs cat"),
    (false, "find sub -type l | xargs head -n1"),
    (false, "git ls-files | xargs cat"),
    (false, "git ls-files -co | xargs cat"),
    (false, "fd -H . | xargs cat"),
    (false, "rg --files --hidden | xargs cat"),
    (false, "rg -uul token | xargs cat"),
    (false, "grep -R token sub"),
    (false, "grep -r --exclude=.env --include=.env token ."),
    (false, "grep -r --exclude=a --include='*.rs' token ."),
    (false, "grep -r --exclude-dir=.env --exclude='*.pem' --exclude-dir=.hidden token ."),
    (false, "grep -r --exclude=src token ."),
    (false, "grep -r --exclude='.[x]nv' token ."),
    (false, "grep -r --include='.[e]nv' token ."),
    (false, "grep -r --include=*.{rs,pem} token ."),
    (false, "grep -r --include=* token ."),
    (false, "find . -name src | xargs grep -r token"),
    (false, "find . -name '*.rs' | xargs cat .env"),
    (false, "rg --hidden -g '!.env' --iglob '.env' token"),
    (false, "rg --glob-case-insensitive -g '.ENV' --hidden token"),
    (false, "rg --ignore-file=a token clean src"),
    (false, "git show HEAD:.env"),
    (false, "git log -L1,5:.env"),
    (false, "git cat-file -p HEAD:src/deep/.env"),
    (true, "git show HEAD:src/lib.rs"),
    (true, "grep -r token clean"),
    (true, "grep -R token clean"),
    (true, "grep -rn token src/lib.rs"),
    (true, "grep -rn --include='*.rs' token ."),
    (true, "grep -rn --include=*.rs token ."),
    (true, "grep -rn --include=*.{rs,toml} token ."),
    (true, "grep -rn --include '*.rs' --include '*.toml' token ."),
    (true, "grep -rn --exclude=.env --exclude=*.pem --exclude-dir=.hidden token ."),
    (true, "grep token a"),
    (true, "rg token src"),
    (true, "rg token -g '*.rs'"),
    (true, "rg -t rust token"),
    (true, "rg --hidden token clean"),
    (true, "rg --files --hidden"),
    (true, "cat ab.txt | rg token"),
    (true, "diff -r clean clean/more"),
    (true, "find . -name '*.rs' | xargs grep token"),
    (true, "find clean -type f | xargs grep token"),
    (true, "find . -name '*.rs' -o -name '*.toml' | xargs wc -l"),
    (true, "rg -l token src | xargs wc -l"),
    (true, "grep -rl token clean | xargs head -n1"),
    (true, "find . -name .env"),
    (true, "ls -laR"),
    // Files that options name.
    (false, "grep -f .env a"),
    (false, "grep -of.env a"),
    (false, "grep --file=.env a"),
    (false, "wc --files0-from=a"),
    (false, "du --files0=a"),
    (false, "strings @a"),
    (false, "grep --recurs token ."),
    (false, "grep --deref token ."),
    (false, "grep --direc=recurse token ."),
    (false, "grep --regex=token .env"),
    (false, "grep --fil=a .env"),
    (false, "jq 'import \"a\" as $a; $a' a"),
    (false, "jq -n -f .env"),
    (false, "jq -n --rawfile a .env '$a'"),
    (false, "yq -n 'load_str(\".env\")'"),
    (false, "rg -f .env a"),
    // Directories that a loop has entered.
    (false, "for i in 1 2; do cat x; cd sub; done"),
    (false, "for i in 1 2 3; do cd sub/a; cd a; done; cat outer.txt"),
    (false, "while true; do cd sub; cd a; cat outer.txt; done"),
    (false, "cd sub && cat x"),
    (true, "for i in 1 2; do cat a; cd clean; done"),
    (true, "for i in 1 2; do (cd src && ls); done"),
];

// R: T2
#[test]
fn every_command_in_a_real_directory_gets_its_expected_verdict() {
    let project = Project::new();
    let mut wrong = Vec::new();
    for (runs, command) in COMMANDS {
        let asked = project.asked(command);
        if asked.is_empty() != *runs {
            wrong.push(format!("{command:?}: {asked:?}"));
        }
    }
    eprintln!("attempts: {}", COMMANDS.len());
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// `xargs` makes several names of one that contains blanks or quotes, and a program would read the parts.
// R: T2
#[test]
fn names_that_xargs_splits_need_permission() {
    let lists = ["find clean -name '*.rs'", "rg -l token clean", "grep -rl token clean"];
    for (name, splits) in [
        ("x .env y.rs", true),
        ("x\t.env.rs", true),
        ("x\n.env\n.rs", true),
        ("'x'.rs", true),
        ("\"x.rs", true),
        ("\\x.rs", true),
        ("x-y_z.rs", false),
    ] {
        let project = Project::new();
        std::fs::write(project.work().join("clean").join(name), "token").unwrap();
        for list in lists {
            assert_eq!(project.runs(&format!("{list} | xargs cat")), !splits, "{list}: {name:?}");
        }
        assert!(project.runs("find clean -name '*.rs' -print0 | xargs -0 cat"), "{name:?}");
    }
}

/// So that a rule of the user about the file applies when its directory is read.
#[test]
fn recursive_read_asks_for_each_secret_by_name() {
    let project = Project::new();
    let secret = project.work().join("src/deep/.env");
    assert_eq!(project.asked("grep -r token src"), [format!("Read: {}", secret.display())]);
}

/// Our own keys and rules belong to no session, even inside its directories.
// R: T7
#[test]
fn our_own_directory_is_asked_for_like_one_outside() {
    let project = Project::new();
    let ours = project.work().join("clean/ours");
    assert_eq!(project.asked("grep -r token clean"), [""; 0]);
    std::fs::create_dir(&ours).unwrap();
    std::fs::write(ours.join("auth.json"), "token").unwrap();
    for command in
        ["cat clean/ours/auth.json", "grep -r token clean", "cd clean/ours && cat auth.json"]
    {
        let asked = project.asked(command);
        assert!(asked.iter().any(|asked| asked.contains("clean/ours")), "{command}: {asked:?}");
    }
}
