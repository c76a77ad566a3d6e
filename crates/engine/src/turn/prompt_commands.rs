//! Slash commands that the model carries out: `/init` and `/review`. They expand to a prompt.

use crate::words::Mode;

const INIT: &str = "\
Look at this project and write `AGENTS.md` at its root: what an agent needs to know to work here and would not find out at once.

- Read the manifest, the build and test setup, the README, and enough of the source to know its structure and conventions.
- Say how to build, test and lint, with the exact commands and how to run a single test; how the source is organised and
  where to start reading; the conventions that the code really follows; and common mistakes.
- Include what `AGENTS.md`, `CLAUDE.md`, `.cursorrules`, `.cursor/rules/` or `.github/copilot-instructions.md` say if it is
  still true. If `AGENTS.md` exists, improve it; do not lose what people wrote.
- State only what you saw. No advice that applies to every project. At most 150 lines.";

const CANNOT_WRITE: &str = "\
The mode `{mode}` changes nothing: do not write a file. Show what `AGENTS.md` would contain, and say that `/mode build` and \
then `/init` will write it.";

const REVIEW: &str = "\
Review {what}. Change nothing.

- Look at the changes with git, and read the code around them: callers, tests, what the changed lines rely on.
- Look for errors: behaviour that breaks, forgotten cases, dropped errors, races, security problems, tests that cannot
  fail. Then for code that is needlessly hard to read. Skip matters of taste and what a linter finds.
- Prove each finding from the code before you report it; say so if you could not.
- Report the worst first, each with `path:line`, what happens, when, and how to fix it. If you find nothing, say so.";

const UNCOMMITTED: &str =
    "the uncommitted changes, new files included; if there are none, the last commit";

const PULL_REQUEST: &str = "\
pull request #{number} of this repository: read its description, diff, comments and checks with the tool for them, and the code around \
the changes here";

/// Returns the prompt for a command with its arguments; `None` for any other name.
pub(crate) fn expand(name: &str, rest: &str, mode: &Mode) -> Option<String> {
    match name {
        "init" => {
            let mut text = INIT.to_owned();
            if !mode.may_change() {
                text.push_str(&format!("\n\n{}", CANNOT_WRITE.replace("{mode}", &mode.id)));
            }
            if !rest.is_empty() {
                text.push_str(&format!("\n\nAlso, from the user: {rest}"));
            }
            Some(text)
        }
        "review" => {
            let what = match rest.trim_start_matches('#').parse::<u32>() {
                Ok(number) => PULL_REQUEST.replace("{number}", &number.to_string()),
                Err(_) if rest.is_empty() => UNCOMMITTED.to_owned(),
                Err(_) => rest.to_owned(),
            };
            Some(REVIEW.replacen("{what}", &what, 1))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::MODES;

    #[test]
    fn command_becomes_a_prompt() {
        let [build, _, plan, _] = &MODES;
        let init = expand("init", "mention the {what}", build).unwrap();
        assert!(init.ends_with("Also, from the user: mention the {what}"), "{init}");
        assert!(!init.contains("changes nothing"), "{init}");
        assert!(expand("init", "", plan).unwrap().contains("The mode `plan` changes nothing"));
        assert!(expand("review", "", build).unwrap().starts_with("Review the uncommitted changes"));
        assert!(
            expand("review", "main..{what}", plan).unwrap().starts_with("Review main..{what}.")
        );
        let pull = expand("review", "#12", plan).unwrap();
        assert!(pull.starts_with("Review pull request #12 of this repository"), "{pull}");
        assert_eq!(expand("other", "", build), None);
    }
}
