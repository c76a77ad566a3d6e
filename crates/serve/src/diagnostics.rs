//! The extension that adds diagnostics to the results of edits, if the user or a trusted project configured any.

use engine::ports::Extension;
use engine::words::{HookOutcome, Moment};
use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use serde_json::Value;
use tools::diagnostics::{Checker, Diagnostics, LanguageServer};

/// The most files of one patch that are checked.
const MOST_FILES: usize = 8;

/// The diagnostics of a session.
pub(crate) struct DiagnosticsExtension(pub(crate) Diagnostics);

impl Extension for DiagnosticsExtension {
    fn pause(&self) {
        self.0.pause();
    }

    fn hook<'a>(&'a self, moment: Moment<'a>) -> BoxFuture<'a, HookOutcome> {
        let Moment::AfterTool { tool, input, failed: false, .. } = moment else {
            return future::ready(HookOutcome::default()).boxed();
        };
        let files = changed(tool, input);
        async move {
            let mut outcome = HookOutcome::default();
            for file in files {
                outcome.context.extend(self.0.after_edit(&file).await);
            }
            outcome.problems = self.0.take_warnings();
            outcome
        }
        .boxed()
    }
}

/// Returns the files that a call has changed, as the model wrote their paths.
fn changed(tool: &str, input: &Value) -> Vec<String> {
    let field = |names: &[&str]| names.iter().find_map(|name| input[name].as_str());
    match tool {
        "write" | "edit" => {
            let path = field(&["filePath", "file_path", "path", "file"]);
            path.map(str::to_owned).into_iter().collect()
        }
        "apply_patch" => {
            let patch = field(&["patchText", "patch", "input"]).unwrap_or_default();
            let heads = ["*** Add File: ", "*** Update File: ", "*** Move to: "];
            let lines = patch.lines().flat_map(|line| {
                heads.iter().filter_map(move |head| Some(line.strip_prefix(head)?.trim()))
            });
            lines.take(MOST_FILES).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

/// Converts what is configured.
pub(crate) fn options_of(
    found: settings::diagnostics::Diagnostics,
) -> (Vec<Checker>, Vec<LanguageServer>) {
    let checkers = found.checkers.into_iter().map(|checker| Checker {
        pattern: checker.pattern,
        command: checker.command,
        timeout: checker.timeout,
        must_be_confined: checker.is_project,
    });
    let servers = found.servers.into_iter().map(|server| LanguageServer {
        name: server.name,
        command: server.command,
        extensions: server.extensions,
        environment: server.environment,
        initialization: server.initialization,
        timeout: server.timeout,
        must_be_confined: server.is_project,
    });
    (checkers.collect(), servers.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changed_files_are_read_from_the_input() {
        assert_eq!(changed("edit", &json!({ "file_path": "a.rs" })), ["a.rs"]);
        let patch = "*** Begin Patch\n*** Update File: a\n*** Move to: b\n*** Delete File: c\n*** End Patch";
        assert_eq!(changed("apply_patch", &json!({ "patchText": patch })), ["a", "b"]);
        assert!(changed("bash", &json!({ "path": "a" })).is_empty());
    }
}
