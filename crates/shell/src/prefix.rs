//! What a permanent answer covers: every `cargo test` where the first words say what is done, else the exact command.

use std::collections::BTreeSet;

use super::git;
use super::need::Always;
use super::word::{Meaning, Word, normal};

/// Programs with subcommands.
const TWO: &str = "git cargo npm pnpm yarn bun deno go pip pip3 uv poetry bundle gem composer dotnet mvn gradle make just task \
    rustup brew terraform helm mix rake rails django-admin flutter dart swift zig stack cabal lein sbt nx turbo lerna \
    ninja bazel buck meson hatch pdm rye conda mamba pre-commit";
/// Subcommands that need another word to say what they do.
const THREE: &str = "npm/run npm/exec pnpm/run pnpm/exec yarn/run bun/run bun/x deno/task deno/run uv/run uv/pip poetry/run \
    bundle/exec cargo/run cargo/xtask git/stash git/remote git/submodule git/worktree git/config go/run go/tool dotnet/run \
    just/run npm/install npm/i pip/install pip3/install pnpm/add yarn/add cargo/install cargo/add mix/run mise/run \
    conda/run hatch/run pdm/run rye/run";
/// Programs that do the same thing whatever their arguments.
const ONE: &str = "pytest tox nox ruff black isort \
    mypy pyright flake8 pylint tsc eslint prettier biome vitest jest mocha ava karma cypress phpunit phpstan rspec rubocop \
    gofmt golint golangci-lint staticcheck rustfmt clippy-driver clang-format clang-tidy shellcheck shfmt hadolint \
    yamllint markdownlint stylelint mkdir touch cmake ctest javac scalac kotlinc protoc buf oxlint";

/// Programs with subcommands, whose permanent answers still cover only the exact command.
const OTHERS: &str = "docker podman kubectl systemctl gh glab aws gcloud az svn hg";
/// How many words are searched for the subcommand.
const FARTHEST: usize = 50;

fn is_in(list: &str, name: &str) -> bool {
    list.split_whitespace().any(|known| known == name)
}

/// Returns the indices where the subcommand may be, since each option before it may or may not have a value. `None` if it may be
/// too far away; empty for programs without subcommands.
pub(crate) fn commands_at(words: &[Word]) -> Option<Vec<usize>> {
    let name = words.first().and_then(Word::as_text).unwrap_or_default();
    let mut found = Vec::new();
    if !is_in(TWO, name) && !is_in(OTHERS, name) {
        return Some(found);
    }
    let mut open = BTreeSet::from([1]);
    while let Some(at) = open.pop_first() {
        let Some(word) = words.get(at) else { break };
        if at > FARTHEST {
            return None;
        }
        let text = word.as_text().unwrap_or(&word.raw);
        let has_value = text.contains('=');
        if text.starts_with(['-', '+']) && !has_value {
            open.extend([at + 1, at + 2]);
        } else if has_value {
            open.insert(at + 1);
        } else {
            found.push(at);
        }
    }
    Some(found)
}

/// Returns a command without the options before its subcommand, once for each word that may be the subcommand. For rules that
/// forbid.
pub(crate) fn without_options(words: &[Word]) -> Vec<Vec<Word>> {
    let inner = commands_at(words).unwrap_or_default().into_iter().filter(|at| *at > 1);
    inner.map(|at| [&words[..1], &words[at..]].concat()).collect()
}

/// Tells whether the first argument of a program is a subcommand.
pub(crate) fn has_subcommand(program: &str) -> bool {
    TWO.split_whitespace().any(|known| known == program)
}

/// Returns what a permanent answer to a command covers; `None` if that is only known at run time.
pub(crate) fn always(words: &[Word]) -> Option<Always> {
    let texts: Vec<&str> = words
        .iter()
        .map_while(Word::as_text)
        .take_while(|text| !text.starts_with('-'))
        .take(3)
        .collect();
    // A read-only command is asked about only because of an unusual option, so the answer is for that option.
    if words.len() > 1 && words[0].as_text() == Some("git") && git::is_read_only(words) {
        return exact(words);
    }
    let count = match texts.as_slice() {
        [first, second, ..] if is_in(THREE, &format!("{first}/{second}")) => 3,
        [first, ..] if is_in(TWO, first) => 2,
        [first, ..] if is_in(ONE, first) => 1,
        _ => return exact(words),
    };
    if texts.len() < count {
        return exact(words);
    }
    Some(Always::StartingWith(normal(&words[..count])))
}

/// Covers this command only; `None` if it may be another command the next time.
pub(crate) fn exact(words: &[Word]) -> Option<Always> {
    let is_known = |word: &Word| !matches!(word.means, Meaning::Unknown);
    words.iter().all(is_known).then_some(Always::Exact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::word::read;

    #[test]
    fn subcommand_is_found_after_options() {
        let table: [(&str, &[&str]); 10] = [
            ("git push", &[]),
            ("git --no-pager push", &["git push"]),
            ("git -C . push", &["git . push", "git push"]),
            ("git -c a=b --git-dir=x push -f", &["git push -f"]),
            ("git -C . -P push x", &["git . -P push x", "git push x", "git x"]),
            ("npm --prefix x publish", &["npm x publish", "npm publish"]),
            ("cargo +nightly publish", &["cargo publish"]),
            ("docker -H x rm y", &["docker x rm y", "docker rm y"]),
            ("make A=b deploy", &["make deploy"]),
            ("rm -rf x", &[]),
        ];
        for (line, expected) in table {
            let words: Vec<Word> = line.split(' ').map(|raw| read(raw).unwrap()).collect();
            let found: Vec<String> =
                without_options(&words).iter().map(|one| normal(one)).collect();
            assert_eq!(found, expected, "{line}");
        }
        let far: Vec<Word> = "git".split(' ').chain(["-P"; 60]).map(Word::text).collect();
        assert_eq!(commands_at(&far), None);
    }

    #[test]
    fn permanent_answer_covers_a_subcommand_or_the_exact_command() {
        let starting_with = |words: &str| Some(Always::StartingWith(words.to_owned()));
        let table = [
            ("git status -s", Some(Always::Exact)),
            ("git log --output=x", Some(Always::Exact)),
            ("git add -A", starting_with("git add")),
            ("find . -delete", Some(Always::Exact)),
            ("cargo test --workspace", starting_with("cargo test")),
            ("npm run build", starting_with("npm run build")),
            ("npm run", Some(Always::Exact)),
            ("pytest -q tests", starting_with("pytest")),
            ("make", Some(Always::Exact)),
            ("make all", starting_with("make all")),
            ("git -c a=b status", Some(Always::Exact)),
            ("rm -rf *.o", Some(Always::Exact)),
            ("python3 x.py", Some(Always::Exact)),
            ("bash -c id", Some(Always::Exact)),
            ("frobnicate it", Some(Always::Exact)),
        ];
        for (line, expected) in table {
            let words: Vec<Word> = line.split(' ').map(|raw| read(raw).unwrap()).collect();
            assert_eq!(always(&words), expected, "{line}");
        }
        let unknown = Word { raw: "$x".to_owned(), means: Meaning::Unknown };
        assert_eq!(always(&[Word::text("rm"), unknown.clone()]), None);
        let test = [Word::text("cargo"), Word::text("test"), unknown];
        assert_eq!(always(&test), starting_with("cargo test"));
    }
}
