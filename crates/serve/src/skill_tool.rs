//! `skill`: loads a skill, or another file of its directory. Reads only.

use std::sync::Arc;

use engine::permission::Access;
use engine::ports::{AnyTool, Intent, Output, ToolCx, ToolError, ToolSpec};
use engine::words::ToolKind;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
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
                "name": { "type": "string", "description": "The skill" },
                "file": { "type": "string", "description": "A file of its folder, instead of SKILL.md" },
            },
            "required": ["name"],
        });
        let description = "Loads a skill: what it says of a special task. The skills there are were listed to you.";
        let (name, description) = ("skill".to_owned(), description.to_owned());
        let spec = ToolSpec { name, description, schema: schema.into() };
        let (places, files) = (places.clone(), Arc::clone(files));
        Some(SkillTool { places, files, spec: Arc::new(spec) })
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
                let path = skills::path_of(&self.places, &*self.files, name, file_of(input));
                if let Some(path) = path {
                    access.push(Access::allow("read", path.to_string_lossy()));
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
        let loaded = skills::load(&self.places, &*self.files, name, file_of(input));
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
