//! Slash commands that are work for the model: `/init` and `/review`. What the user typed becomes what the model is told.

use crate::words::modes::Mode;

const INIT: &str = "\
Look at this project and write `AGENTS.md` at its top: what an agent must know to work here that it would not find out at once.

- Read the manifest, the build and test setup, the README, and enough of the source to know its structure and its ways.
- Say how to build, test and lint, with the exact commands and how to run a single test; how the source is laid out and
  where to start reading; the conventions that the code really follows; and what goes wrong easily.
- Take over what `AGENTS.md`, `CLAUDE.md`, `.cursorrules`, `.cursor/rules/` or `.github/copilot-instructions.md` say and
  still holds. If there is an `AGENTS.md`, improve it; do not lose what people wrote.
- State only what you saw. No advice that holds for every project. At most 150 lines.";

const CANNOT_WRITE: &str = "\
The mode `{mode}` changes nothing: write no file, show what `AGENTS.md` would say, and say that `/mode build` and `/init` \
write it.";

const REVIEW: &str = "\
Review {what}. Change nothing.

- Look at the changes with git, and read the code around them: callers, tests, what the changed lines rely on.
- Look for what is wrong: behaviour that breaks, cases that are forgotten, errors that are dropped, races, holes in security,
  tests that cannot fail. Then for what is needlessly hard to read. Leave out matters of taste and what a linter finds.
- Prove each finding from the code before you report it; say so where you could not.
- Report the worst first, each with `path:line`, what happens, when, and how to mend it. If there is nothing, say so.";

const UNCOMMITTED: &str =
    "the changes that are not committed, new files included; if there are none, the last commit";

/// Returns what the model is told for a command of this name, with what stood behind it; `None` for any other name.
pub(crate) fn expand(name: &str, rest: &str, mode: &Mode) -> Option<String> {
    match name {
        "init" => {
            let mut text = INIT.to_owned();
            if !mode.may_change() {
                text.push_str(&format!("\n\n{}", CANNOT_WRITE.replace("{mode}", &mode.id)));
            }
            if !rest.is_empty() {
                text.push_str(&format!("\n\nIn addition, from the user: {rest}"));
            }
            Some(text)
        }
        "review" => {
            let what = if rest.is_empty() { UNCOMMITTED } else { rest };
            Some(REVIEW.replacen("{what}", what, 1))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::modes::MODES;

    #[test]
    fn what_was_typed_becomes_work() {
        let [build, plan, _] = &MODES;
        let init = expand("init", "mention the {what}", build).unwrap();
        assert!(init.ends_with("In addition, from the user: mention the {what}"), "{init}");
        assert!(!init.contains("changes nothing"), "{init}");
        assert!(expand("init", "", plan).unwrap().contains("The mode `plan` changes nothing"));
        assert!(
            expand("review", "", build).unwrap().starts_with("Review the changes that are not")
        );
        assert!(
            expand("review", "main..{what}", plan).unwrap().starts_with("Review main..{what}.")
        );
        assert_eq!(expand("other", "", build), None);
    }
}
