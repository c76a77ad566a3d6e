//! Skills: directories with a SKILL.md. The model sees their names and descriptions, and loads one when it needs it.

use std::path::{Path, PathBuf};

use engine::ports::Skill;
use engine::words::visible;
use serde_json::Value;

use super::{Places, ProjectFiles, read_own, read_project, real};
use crate::custom::front_matter;

/// Where a project has skills.
const DIRECTORIES: [&str; 4] =
    [".purlin/skills", ".claude/skills", ".opencode/skill", ".opencode/skills"];
/// How much of a SKILL.md is read to list it.
const HEAD: usize = 4 * 1024;
/// How much of a skill's file the model gets.
const MAX_FILE: usize = 64 * 1024;
/// The most entries of a directory of skills, and the most files of a skill that are listed.
const MOST_ENTRIES: usize = 200;

/// Lists the skills. Of two with the same name, the one nearest to the session's directory is used.
#[must_use]
pub fn find(places: &Places, files: &dyn ProjectFiles) -> Vec<Skill> {
    let mut all: Vec<Skill> = Vec::new();
    for (directory, is_own) in directories(places) {
        for place in entries(&directory) {
            let path = place.join("SKILL.md");
            let head =
                if is_own { read_own(&path, HEAD) } else { read_project(files, &path, HEAD) };
            let Some((head, size)) = head else { continue };
            let (values, _) = front_matter::split(&head);
            let value = |key: &str| {
                let value =
                    values.get(key).and_then(Value::as_str).map(|value| value.trim().to_owned());
                value.filter(|value| !value.is_empty())
            };
            let of_directory = || place.file_name().map(|name| name.to_string_lossy().into_owned());
            let Some(name) = value("name").or_else(of_directory) else { continue };
            let description = value("description").unwrap_or_default();
            let origin = path.to_string_lossy().into_owned();
            all.retain(|known| known.name != name);
            all.push(Skill { name, description, origin, size });
        }
    }
    all
}

/// Returns the directories of skills, and whether each is the user's.
fn directories(places: &Places) -> impl Iterator<Item = (PathBuf, bool)> {
    let user = places.user.iter().rev();
    let user =
        user.flat_map(|directory| ["skill", "skills"].map(|name| (directory.join(name), true)));
    let project = places.chain.iter();
    let project =
        project.flat_map(|directory| DIRECTORIES.map(|name| (directory.join(name), false)));
    user.chain(project)
}

/// Returns the main files of the skills in a user's directory; of two with the same name the first is used.
pub(crate) fn files_in(directory: &Path) -> Vec<PathBuf> {
    let all = ["skills", "skill"].map(|name| entries(&directory.join(name)));
    let files = all.concat().into_iter().map(|skill| skill.join("SKILL.md"));
    files.filter(|file| file.is_file()).collect()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<PathBuf> =
        entries.flatten().take(MOST_ENTRIES).map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Returns the path of a file of a skill, with links followed.
#[must_use]
pub fn path_of(
    places: &Places,
    files: &dyn ProjectFiles,
    name: &str,
    file: &str,
) -> Option<PathBuf> {
    locate(places, files, name, file).ok().map(|(_, path)| real(&path))
}

/// Finds a file of a skill, which must really lie in the skill's directory.
fn locate(
    places: &Places,
    files: &dyn ProjectFiles,
    name: &str,
    file: &str,
) -> Result<(PathBuf, PathBuf), String> {
    let all = find(places, files);
    let Some(skill) = all.iter().find(|skill| skill.name == name) else {
        let names: Vec<&str> = all.iter().map(|skill| skill.name.as_str()).collect();
        return Err(format!("unknown skill `{name}`; available: {}", names.join(", ")));
    };
    let path = PathBuf::from(&skill.origin);
    let Some(directory) = path.parent() else {
        return Err("the skill has no directory".to_owned());
    };
    let is_below =
        Path::new(file).components().all(|part| matches!(part, std::path::Component::Normal(_)));
    let path = directory.join(file);
    if !is_below || !real(&path).starts_with(real(directory)) {
        return Err(format!("`{file}` is not in the skill's folder"));
    }
    Ok((directory.to_owned(), path))
}

/// Loads a file of a skill, for the model.
///
/// # Errors
/// Says what is wrong with the skill or the file, for the model.
pub fn load(
    places: &Places,
    files: &dyn ProjectFiles,
    name: &str,
    file: &str,
) -> Result<String, String> {
    let (directory, path) = locate(places, files, name, file)?;
    let is_own = places.user.iter().any(|user| directory.starts_with(user));
    let read =
        if is_own { read_own(&path, MAX_FILE) } else { read_project(files, &path, MAX_FILE) };
    let Some((text, size)) = read else {
        return Err(format!("cannot read `{file}` of the skill `{name}`"));
    };
    let body = if file == "SKILL.md" { front_matter::split(&text).1 } else { text.as_str() };
    let mut shown = visible(body.trim());
    if (text.len() as u64) < size {
        shown.push_str(&format!("\n[truncated: {} of {size} bytes]", text.len()));
    }
    let others: Vec<String> = entries(&directory)
        .iter()
        .filter_map(|path| Some(visible(&path.file_name()?.to_string_lossy())))
        .filter(|name| name != file)
        .collect();
    if !others.is_empty() {
        shown.push_str(&format!(
            "\n\nOther files in {}: {}",
            visible(&directory.to_string_lossy()),
            others.join(", ")
        ));
    }
    Ok(shown)
}
