//! `skill`: loads a skill, or another file of its directory. Reads only.

use std::sync::Arc;

use engine::permission::{Access, PermissionKey};
use engine::ports::{Intent, Output, Planned, Tool, ToolCx, ToolError, ToolSpec};
use engine::words::ToolKind;
use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use serde_json::{Value, json};
use settings::instructions::{Places, ProjectFiles, skills};

/// The tool.
pub(crate) struct SkillTool {
    places: Places,
    files: Arc<dyn ProjectFiles>,
    spec: Arc<ToolSpec>,
}

impl SkillTool {
    /// Makes the tool, if there are skills.
    pub(crate) fn find(places: &Places, files: &Arc<dyn ProjectFiles>) -> Option<SkillTool> {
        if skills::find(places, &**files).is_empty() {
            return None;
        }
        let schema = json!({
            "type": "object",
            "properties": {
                "name": { "type": "string", "description": "Name of the skill" },
                "file": { "type": "string", "description": "Another file of the skill, instead of SKILL.md" },
            },
            "required": ["name"],
        });
        let description = "Loads a skill: instructions for a special task. The available skills are listed in your instructions.";
        let (name, description) = ("skill".to_owned(), description.to_owned());
        let spec = ToolSpec::new(name, description, schema.into());
        let (places, files) = (places.clone(), Arc::clone(files));
        Some(SkillTool { places, files, spec: Arc::new(spec) })
    }
}

impl Tool for SkillTool {
    fn spec(&self) -> Arc<ToolSpec> {
        Arc::clone(&self.spec)
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Read
    }

    fn plan<'a>(
        self: Arc<Self>,
        _: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<(Intent, Box<dyn Planned>), ToolError>> {
        let Some(name) = input["name"].as_str() else {
            let why = "`name` is required".to_owned();
            return future::ready(Err(ToolError::Model(why))).boxed();
        };
        let mut access = vec![Access::allow(PermissionKey::Skill, name)];
        let path = skills::path_of(&self.places, &*self.files, name, file_of(input));
        if let Some(path) = path {
            access.push(Access::allow(PermissionKey::Read, path.to_string_lossy()));
        }
        let title = format!("Load skill {name}");
        let intent = Intent { title, access, ..Intent::default() };
        let (name, file) = (name.to_owned(), file_of(input).to_owned());
        let load = Load { tool: self, name, file };
        future::ready(Ok((intent, Box::new(load) as Box<dyn Planned>))).boxed()
    }
}

/// A skill that is about to be loaded.
struct Load {
    tool: Arc<SkillTool>,
    name: String,
    file: String,
}

impl Planned for Load {
    fn run<'a>(self: Box<Self>, _: &'a ToolCx<'a>) -> BoxFuture<'a, Result<Output, ToolError>> {
        let SkillTool { places, files, .. } = &*self.tool;
        let loaded = skills::load(places, &**files, &self.name, &self.file);
        let loaded = loaded.map_err(ToolError::Model);
        future::ready(loaded.map(|text| Output { text, content: Some(Vec::new()), raw: None }))
            .boxed()
    }
}

fn file_of(input: &Value) -> &str {
    input["file"].as_str().unwrap_or("SKILL.md")
}
