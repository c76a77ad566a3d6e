//! A change of an editor's settings file: planned, shown, and written only if the file is still what was shown.
//!
//! A file that is not valid JSON with comments is never written. Links are followed, so that a file that is managed
//! elsewhere stays there; mode and formatting stay as they are.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use engine::words::visible;
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstObject, CstRootNode};
use serde_json::Value;
use settings::config::edit::input;

use super::editors::NAME;

/// The largest settings file that is changed.
const MOST: u64 = 8 * 1024 * 1024;
/// Unchanged lines that are shown around a change.
const AROUND: usize = 3;

/// A change of a file that has been shown or will be.
#[derive(Debug)]
pub(super) struct Change {
    /// The file, links followed.
    file: PathBuf,
    /// What it says, if it exists.
    before: Option<String>,
    /// What it is to say.
    after: String,
}

impl Change {
    /// Plans to set our entry in the object `key` of a file.
    pub(super) fn plan(file: &Path, key: &str, entry: &Value) -> anyhow::Result<Change> {
        let file = real(file)?;
        let before = read(&file)?;
        let text = before.as_deref().filter(|text| !text.trim().is_empty()).unwrap_or("{}\n");
        let name = file.display();
        let root = CstRootNode::parse(text, &ParseOptions::default())
            .with_context(|| format!("{name} is not valid JSON; correct it first"))?;
        let object = root.object_value_or_create();
        let object = object.with_context(|| format!("{name} must contain a JSON object"))?;
        let agents = object
            .object_value_or_create(key)
            .with_context(|| format!("`{key}` in {name} is not an object; correct it first"))?;
        let values: Value =
            jsonc_parser::parse_to_serde_value(text, &ParseOptions::default()).unwrap_or_default();
        set(&agents, &values[key][NAME], entry).with_context(|| name.to_string())?;
        let after = root.to_string();
        Ok(Change { file, before, after })
    }

    /// The file.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Tells whether the file already says it.
    pub(super) fn is_done(&self) -> bool {
        self.before.as_deref() == Some(self.after.as_str())
    }

    /// Describes the change as a unified diff.
    pub(super) fn shown(&self) -> String {
        let file = visible(&self.file.to_string_lossy());
        let old = match self.before {
            Some(_) => file.clone(),
            None => "(new file)".to_owned(),
        };
        let lines = difference(self.before.as_deref().unwrap_or_default(), &self.after);
        format!("--- {old}\n+++ {file}\n{lines}")
    }

    /// Writes the file as a whole, unless it was changed since it was read.
    pub(super) fn write(&self) -> anyhow::Result<()> {
        let name = self.file.display();
        ensure!(
            read(&self.file)? == self.before,
            "{name} was changed in the meantime; run this again"
        );
        let directory = self.file.parent().context("the file has no folder")?;
        std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let mut draft = self.file.clone().into_os_string();
        draft.push(format!(".purlin-{}", std::process::id()));
        let draft = PathBuf::from(draft);
        let written = self.write_to(&draft).and_then(|()| std::fs::rename(&draft, &self.file));
        if written.is_err() {
            drop(std::fs::remove_file(&draft));
        }
        written.with_context(|| format!("{name} cannot be written"))
    }

    fn write_to(&self, draft: &Path) -> std::io::Result<()> {
        let mut out = std::fs::OpenOptions::new().write(true).create_new(true).open(draft)?;
        // Before its content: the settings may hold keys that only the user may read.
        if self.before.is_some() {
            out.set_permissions(std::fs::metadata(&self.file)?.permissions())?;
        }
        out.write_all(self.after.as_bytes())?;
        out.sync_all()
    }
}

/// Sets our entry. What the user added to it, such as variables, stays.
fn set(agents: &CstObject, present: &Value, entry: &Value) -> anyhow::Result<()> {
    let Some(existing) = agents.get(NAME) else {
        agents.append(NAME, input(entry.clone()));
        return Ok(());
    };
    let object = existing.object_value().with_context(|| format!("`{NAME}` is not an object"))?;
    for (key, value) in entry.as_object().into_iter().flatten() {
        match object.get(key) {
            None => drop(object.append(key, input(value.clone()))),
            Some(_) if present.get(key) == Some(value) => {}
            Some(old) => old.set_value(input(value.clone())),
        }
    }
    Ok(())
}

/// Follows links to the file, which need not exist.
fn real(file: &Path) -> anyhow::Result<PathBuf> {
    match file.canonicalize() {
        Ok(file) => Ok(file),
        Err(err) if err.kind() == ErrorKind::NotFound => {
            ensure!(
                file.symlink_metadata().is_err(),
                "{} is a link to a file that does not exist",
                file.display()
            );
            Ok(std::path::absolute(file)?)
        }
        Err(err) => Err(err).with_context(|| file.display().to_string()),
    }
}

fn read(file: &Path) -> anyhow::Result<Option<String>> {
    let name = || file.display().to_string();
    let metadata = match std::fs::metadata(file) {
        Ok(metadata) => metadata,
        Err(err) if err.kind() == ErrorKind::NotFound => return Ok(None),
        Err(err) => return Err(err).with_context(name),
    };
    ensure!(metadata.is_file(), "{} is not a regular file", name());
    ensure!(metadata.len() <= MOST, "{} is too large", name());
    Ok(Some(std::fs::read_to_string(file).with_context(name)?))
}

/// Shows the lines that differ, with some around them. A settings file changes in one place.
fn difference(before: &str, after: &str) -> String {
    let old: Vec<&str> = before.lines().collect();
    let new: Vec<&str> = after.lines().collect();
    let same =
        |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| pairs.take_while(|(a, b)| a == b).count();
    let start = same(&mut old.iter().zip(&new));
    let end = same(&mut old[start..].iter().rev().zip(new[start..].iter().rev()));
    let (old_end, new_end) = (old.len() - end, new.len() - end);
    let from = start.saturating_sub(AROUND);
    let mut text = format!("@@ line {} @@\n", from + 1);
    let mut show = |sign: char, lines: &[&str]| {
        for line in lines {
            text.push_str(&format!("{sign}{}\n", visible(line)));
        }
    };
    show(' ', &old[from..start]);
    show('-', &old[start..old_end]);
    show('+', &new[start..new_end]);
    show(' ', &old[old_end..(old_end + AROUND).min(old.len())]);
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry() -> Value {
        json!({ "type": "custom", "command": "/usr/bin/purlin", "args": ["acp"] })
    }

    fn plan(file: &Path) -> anyhow::Result<Change> {
        Change::plan(file, "agent_servers", &entry())
    }

    fn file_with(text: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("settings.json");
        std::fs::write(&file, text).unwrap();
        (directory, file)
    }

    #[test]
    fn comments_and_formatting_stay_and_a_second_run_changes_nothing() {
        let before = "// mine\n{\n    \"theme\": \"One\", // dark\n    /* others */\n    \"agent_servers\": {\n        \"Other\": { \"command\": \"x\" },\n    },\n}\n";
        let (_directory, file) = file_with(before);
        plan(&file).unwrap().write().unwrap();
        let after = std::fs::read_to_string(&file).unwrap();
        for line in before.lines() {
            assert!(after.contains(line), "{line} is gone from {after}");
        }
        assert!(
            after.contains("        \"Purlin\": {\n            \"type\": \"custom\","),
            "{after}"
        );
        assert!(plan(&file).unwrap().is_done());
    }

    #[test]
    fn entry_is_updated_and_keeps_what_the_user_added() {
        let before = "{ \"agent_servers\": { \"Purlin\": { \"command\": \"/old\", \"args\": [\"acp\"], \"env\": { \"A\": \"1\" } } } }\n";
        let (_directory, file) = file_with(before);
        let change = plan(&file).unwrap();
        assert!(change.shown().contains("-{ \"agent_servers\""), "{}", change.shown());
        change.write().unwrap();
        let after: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let purlin = &after["agent_servers"]["Purlin"];
        assert_eq!(purlin["command"], "/usr/bin/purlin");
        assert_eq!(purlin["env"]["A"], "1");
    }

    #[test]
    fn broken_file_is_refused_and_unchanged() {
        for broken in [
            "{ \"a\": ",
            "[]",
            "{ \"agent_servers\": [] }",
            "{ \"agent_servers\": { \"Purlin\": 1 } }",
        ] {
            let (_directory, file) = file_with(broken);
            let err = format!("{:#}", plan(&file).unwrap_err());
            assert!(err.contains("settings.json"), "{err}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), broken);
        }
    }

    #[test]
    fn missing_and_empty_files_get_the_entry() {
        let (directory, file) = file_with("\n");
        let new = directory.path().join("new/acp.json");
        for file in [file, new] {
            plan(&file).unwrap().write().unwrap();
            let written: Value =
                serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
            assert_eq!(written["agent_servers"]["Purlin"], entry());
        }
    }

    #[test]
    fn file_that_changed_since_it_was_shown_is_not_written() {
        let (_directory, file) = file_with("{}\n");
        let change = plan(&file).unwrap();
        std::fs::write(&file, "{ \"new\": 1 }").unwrap();
        assert!(change.write().unwrap_err().to_string().contains("changed in the meantime"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "{ \"new\": 1 }");
    }

    #[cfg(unix)]
    #[test]
    fn link_and_mode_stay() {
        use std::os::unix::fs::PermissionsExt;
        let (directory, file) = file_with("{}\n");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let link = directory.path().join("link.json");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        plan(&link).unwrap().write().unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(std::fs::read_to_string(&file).unwrap().contains("Purlin"));
        std::fs::remove_file(&file).unwrap();
        assert!(plan(&link).unwrap_err().to_string().contains("does not exist"));
    }

    #[test]
    fn difference_shows_the_changed_lines_and_some_around_them() {
        let before = "1\n2\n3\n4\n5\n6\n";
        assert_eq!(
            difference(before, "1\n2\n3\n4\nnew\n5\n6\n"),
            "@@ line 2 @@\n 2\n 3\n 4\n+new\n 5\n 6\n"
        );
        assert_eq!(difference("", "a\n"), "@@ line 1 @@\n+a\n");
    }
}
