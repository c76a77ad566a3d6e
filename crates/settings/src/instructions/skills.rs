//! Skills: folders with a SKILL.md, listed to the model by name and description, loaded when it asks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::permission::Access;
use engine::ports::{AnyTool, Intent, Output, ToolCx, ToolError, ToolSpec};
use engine::primer::Skill;
use engine::visible::visible;
use engine::words::ToolKind;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::{Places, read_own, real};
use crate::custom::front_matter;

/// Where a project keeps skills.
const FOLDERS: [&str; 4] =
    [".purlin/skills", ".claude/skills", ".opencode/skill", ".opencode/skills"];
/// How much of a SKILL.md is read to list it.
const HEAD: usize = 4 * 1024;
/// How much of a skill's file the model is told.
const MAX_FILE: usize = 64 * 1024;
/// How many entries of a folder of skills are looked at, and how many files of a skill are named.
const MOST_ENTRIES: usize = 200;

/// Lists the skills there are; of two with one name the one nearest to the session's folder counts.
pub(super) fn find(places: &Places) -> Vec<Skill> {
    let mut all: Vec<Skill> = Vec::new();
    for (folder, is_own) in folders(places) {
        for place in entries(&folder) {
            let path = place.join("SKILL.md");
            let head = if is_own { read_own(&path, HEAD) } else { places.read(&path, HEAD) };
            let Some((head, size)) = head else { continue };
            let (values, _) = front_matter::split(&head);
            let value = |key: &str| {
                let value =
                    values.get(key).and_then(Value::as_str).map(|value| value.trim().to_owned());
                value.filter(|value| !value.is_empty())
            };
            let of_folder = || place.file_name().map(|name| name.to_string_lossy().into_owned());
            let Some(name) = value("name").or_else(of_folder) else { continue };
            let description = value("description").unwrap_or_default();
            let origin = path.to_string_lossy().into_owned();
            all.retain(|known| known.name != name);
            all.push(Skill { name, description, origin, size });
        }
    }
    all
}

/// Folders that may hold skills, and whether each is the user's own.
fn folders(places: &Places) -> impl Iterator<Item = (PathBuf, bool)> {
    let user = places.user.iter().map(|folder| (folder.join("skills"), true));
    let project = places.chain.iter();
    let project = project.flat_map(|folder| FOLDERS.map(|name| (folder.join(name), false)));
    user.chain(project)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> =
        entries.flatten().take(MOST_ENTRIES).map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// `skill`: loads a skill, or another file of its folder. Reads only.
pub(super) struct SkillTool {
    places: Places,
    spec: Arc<ToolSpec>,
}

impl SkillTool {
    pub(super) fn new(places: Places) -> SkillTool {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "description": "The skill" },
                "file": { "type": "string", "description": "A file of its folder, instead of SKILL.md" },
            },
            "required": ["name"],
        });
        let description = "Loads a skill: what it says of a special task. The skills there are were listed to you.";
        let (name, description) = ("skill".to_owned(), description.to_owned());
        let spec = ToolSpec { name, description, schema: schema.into() };
        SkillTool { places, spec: Arc::new(spec) }
    }

    /// Finds the file that is meant: one that really lies in the skill's folder.
    fn locate(&self, name: &str, file: &str) -> Result<(PathBuf, PathBuf), String> {
        let all = find(&self.places);
        let Some(skill) = all.iter().find(|skill| skill.name == name) else {
            let names: Vec<&str> = all.iter().map(|skill| skill.name.as_str()).collect();
            return Err(format!("there is no skill `{name}`; there are {}", names.join(", ")));
        };
        let path = PathBuf::from(&skill.origin);
        let Some(folder) = path.parent() else { return Err("the skill has no folder".to_owned()) };
        let is_below = Path::new(file)
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
        let path = folder.join(file);
        if !is_below || !real(&path).starts_with(real(folder)) {
            return Err(format!("`{file}` is not a file of the skill's folder"));
        }
        Ok((folder.to_owned(), path))
    }

    pub(super) fn load(&self, name: &str, file: &str) -> Result<String, String> {
        let (folder, path) = self.locate(name, file)?;
        let is_own = self.places.user.as_ref().is_some_and(|user| folder.starts_with(user));
        let read =
            if is_own { read_own(&path, MAX_FILE) } else { self.places.read(&path, MAX_FILE) };
        let Some((text, size)) = read else {
            return Err(format!("`{file}` of the skill `{name}` cannot be read"));
        };
        let body = if file == "SKILL.md" { front_matter::split(&text).1 } else { text.as_str() };
        let mut told = visible(body.trim());
        if (text.len() as u64) < size {
            told.push_str(&format!("\n[cut: {} of {size} bytes are shown]", text.len()));
        }
        let others: Vec<String> = entries(&folder)
            .iter()
            .filter_map(|path| Some(visible(&path.file_name()?.to_string_lossy())))
            .filter(|name| name != file)
            .collect();
        if !others.is_empty() {
            told.push_str(&format!(
                "\n\nIn its folder {}: {}",
                visible(&folder.to_string_lossy()),
                others.join(", ")
            ));
        }
        Ok(told)
    }
}

impl AnyTool for SkillTool {
    fn spec(&self) -> Arc<ToolSpec> {
        Arc::clone(&self.spec)
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Read
    }

    fn intent<'a>(
        &'a self,
        _: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<Intent, ToolError>> {
        let intent = match input["name"].as_str() {
            Some(name) => {
                let mut access = vec![Access::allow("skill", name)];
                if let Ok((_, path)) = self.locate(name, file_of(input)) {
                    access.push(Access::allow("read", real(&path).to_string_lossy()));
                }
                Ok(Intent { title: format!("Load the skill {name}"), access, ..Intent::default() })
            }
            None => Err(ToolError::Model("the input of `skill` needs a `name`".to_owned())),
        };
        async { intent }.boxed()
    }

    fn run<'a>(
        &'a self,
        _: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<Output, ToolError>> {
        let name = input["name"].as_str().unwrap_or_default();
        let loaded = self.load(name, file_of(input));
        async {
            let text = loaded.map_err(ToolError::Model)?;
            Ok(Output { text, content: Some(Vec::new()), raw: None })
        }
        .boxed()
    }
}

fn file_of(input: &Value) -> &str {
    input["file"].as_str().unwrap_or("SKILL.md")
}
