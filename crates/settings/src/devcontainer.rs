//! `devcontainer.json` of a project: the container that its commands run in, if the user wants that and trusts the file.
//!
//! Only what needs no more rights than a command has is used; the rest is reported. See docs/guide/workspaces.md.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::ReadText;
use crate::project::Part;
use crate::trust::{self, Trust};

/// Where the file may be.
const PLACES: [&str; 2] = [".devcontainer/devcontainer.json", ".devcontainer.json"];
/// The largest file that is read.
const LARGEST: u64 = 256 * 1024;
/// The commands that run once in a new container, in this order.
const COMMANDS: [&str; 4] =
    ["onCreateCommand", "updateContentCommand", "postCreateCommand", "postStartCommand"];
/// What would give the container more than a command may have, or run on the host.
const UNUSED: [&str; 8] = [
    "runArgs",
    "privileged",
    "capAdd",
    "securityOpt",
    "initializeCommand",
    "dockerComposeFile",
    "workspaceMount",
    "appPort",
];

/// The container that a project describes.
#[derive(Debug, Clone, PartialEq)]
pub struct DevContainer {
    /// The file.
    pub file: PathBuf,
    /// The image, unless it is built.
    pub image: Option<String>,
    /// How the image is built.
    pub build: Option<Build>,
    /// Features in the project's own directories, with their options.
    pub features: Vec<(PathBuf, Vec<(String, String)>)>,
    /// Mounts beside the project.
    pub mounts: Vec<String>,
    /// Variables of commands.
    pub env: BTreeMap<String, String>,
    /// The user inside.
    pub user: Option<String>,
    /// Another name of the project inside.
    pub folder: Option<PathBuf>,
    /// Commands that run once in a new container.
    pub after_create: Vec<Vec<String>>,
    /// What is not used, and why.
    pub problems: Vec<String>,
    /// What the user trusts: the file, with the Dockerfile.
    pub part: Part,
    /// Whether the user trusts it.
    pub trust: Trust,
}

/// How an image is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// A name for the image.
    pub name: String,
    /// The Dockerfile.
    pub dockerfile: PathBuf,
    /// The directory with the files that it can use.
    pub context: PathBuf,
    /// Its arguments.
    pub args: Vec<(String, String)>,
}

impl DevContainer {
    /// Reads the file of a project, if it has one.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn read(
        directory: &Path,
        data: Option<&Path>,
        reader: &dyn ReadText,
    ) -> Result<Option<DevContainer>, String> {
        for place in PLACES {
            let file = directory.join(place);
            let text = reader.read_text(&file, LARGEST).map_err(|why| format!("{place} {why}"))?;
            let Some(text) = text else { continue };
            let options = jsonc_parser::ParseOptions::default();
            let value = jsonc_parser::parse_to_serde_value::<Value>(&text, &options)
                .map_err(|err| format!("{place}: {}", err.kind()))?;
            let Value::Object(members) = value else {
                return Err(format!("{place} must contain an object"));
            };
            let mut found = Reading { directory, file: &file, place, problems: Vec::new() }
                .take(&members, &text, reader)?;
            let parts = std::slice::from_ref(&found.part);
            found.trust = trust::check(data, &file, parts, reader);
            return Ok(Some(found));
        }
        Ok(None)
    }
}

struct Reading<'a> {
    directory: &'a Path,
    file: &'a Path,
    place: &'static str,
    problems: Vec<String>,
}

impl Reading<'_> {
    fn take(
        mut self,
        members: &Map<String, Value>,
        text: &str,
        reader: &dyn ReadText,
    ) -> Result<DevContainer, String> {
        let place = self.place;
        for key in UNUSED.iter().filter(|key| members.contains_key(**key)) {
            self.problems.push(format!("{place}: `{key}` is not used"));
        }
        let text_of =
            |key: &str| members.get(key).and_then(Value::as_str).map(|text| self.expand(text));
        let image = text_of("image");
        let user = text_of("remoteUser").or_else(|| text_of("containerUser"));
        let folder = text_of("workspaceFolder").map(PathBuf::from).filter(|it| it.is_absolute());
        let build = self.build(members)?;
        if image.is_none() && build.is_none() {
            return Err(format!("{place} names neither an `image` nor a `build.dockerfile`"));
        }
        let mut runs = text.to_owned();
        if let Some(build) = &build {
            let dockerfile = reader.read_text(&build.dockerfile, LARGEST);
            let dockerfile = dockerfile.map_err(|why| format!("the Dockerfile {why}"))?;
            let dockerfile = dockerfile.ok_or("the Dockerfile was not found")?;
            runs.push_str(&format!("\n{}:\n{dockerfile}", build.dockerfile.display()));
        }
        let mut env = BTreeMap::new();
        for key in ["containerEnv", "remoteEnv"] {
            for (name, value) in members.get(key).and_then(Value::as_object).into_iter().flatten() {
                env.extend(value.as_str().map(|value| (name.clone(), self.expand(value))));
            }
        }
        let after_create = COMMANDS.iter().filter_map(|key| members.get(*key));
        let after_create = after_create.flat_map(commands_in).collect();
        let features = self.features(members);
        let mounts = self.mounts(members);
        let part = Part { name: place.to_owned(), runs };
        Ok(DevContainer {
            file: self.file.to_owned(),
            image,
            build,
            features,
            mounts,
            env,
            user,
            folder,
            after_create,
            problems: self.problems,
            part,
            trust: Trust::Not("folder not trusted".to_owned()),
        })
    }

    fn build(&mut self, members: &Map<String, Value>) -> Result<Option<Build>, String> {
        let build = members.get("build");
        let text = |key: &str| build.and_then(|build| build.get(key)).and_then(Value::as_str);
        let old = |key: &str| members.get(key).and_then(Value::as_str);
        let Some(dockerfile) = text("dockerfile").or_else(|| old("dockerFile")) else {
            return Ok(None);
        };
        let context = text("context").or_else(|| old("context")).unwrap_or(".");
        if text("target").is_some() {
            self.problems.push(format!("{}: `build.target` is not used", self.place));
        }
        let dockerfile = self.inside(dockerfile)?;
        let context = self.inside(context)?;
        let args = build.and_then(|build| build.get("args")).and_then(Value::as_object);
        let args = args
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.clone(), self.expand(value.as_str()?))));
        let args = args.collect();
        let name = format!("purlin-devcontainer-{}", short_hash(&dockerfile));
        Ok(Some(Build { name, dockerfile, context, args }))
    }

    /// Resolves a path of the file, which must be inside the project.
    fn inside(&self, path: &str) -> Result<PathBuf, String> {
        let from = self.file.parent().unwrap_or(self.directory);
        let real =
            |path: &Path| path.canonicalize().map_err(|err| format!("{}: {err}", path.display()));
        let found = real(&from.join(self.expand(path)))?;
        match found.starts_with(real(self.directory)?) {
            true => Ok(found),
            false => Err(format!("{}: `{path}` is outside the project", self.place)),
        }
    }

    /// Returns the features that are in the project. Others would be downloaded.
    fn features(&mut self, members: &Map<String, Value>) -> Vec<(PathBuf, Vec<(String, String)>)> {
        let mut found = Vec::new();
        for (name, options) in
            members.get("features").and_then(Value::as_object).into_iter().flatten()
        {
            let place = name.starts_with("./").then(|| self.inside(name)).and_then(Result::ok);
            let Some(place) = place.filter(|place| place.join("install.sh").is_file()) else {
                self.problems.push(format!(
                    "{}: the feature `{name}` is not used: only features in the project are",
                    self.place
                ));
                continue;
            };
            let options = options.as_object().into_iter().flatten().map(|(name, value)| {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let plain =
                    |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
                (name.chars().map(plain).collect(), value)
            });
            found.push((place, options.collect()));
        }
        found
    }

    /// Returns volumes, and directories of the project. Nothing else of the host may be visible.
    fn mounts(&mut self, members: &Map<String, Value>) -> Vec<String> {
        let mut found = Vec::new();
        for mount in members.get("mounts").and_then(Value::as_array).into_iter().flatten() {
            let text = match mount {
                Value::String(text) => self.expand(text),
                Value::Object(parts) => {
                    let part = |(name, value): (&String, &Value)| {
                        Some(format!("{name}={}", self.expand(value.as_str()?)))
                    };
                    parts.iter().filter_map(part).collect::<Vec<_>>().join(",")
                }
                _ => continue,
            };
            let value = |names: [&str; 2]| {
                let mut parts = text.split(',').filter_map(|part| part.split_once('='));
                parts.find(|(name, _)| names.contains(name)).map(|(_, value)| value)
            };
            let is_inside =
                || value(["source", "src"]).is_some_and(|path| self.inside(path).is_ok());
            match value(["type", "type"]) {
                Some("volume" | "tmpfs") => found.push(text),
                Some("bind") | None if is_inside() => found.push(text),
                _ => self.problems.push(format!(
                    "{}: the mount `{text}` is not used: it is outside the project",
                    self.place
                )),
            }
        }
        found
    }

    /// Replaces the variables of the format. Variables of the host are empty: they may be secret.
    fn expand(&self, text: &str) -> String {
        let local = self.directory.to_string_lossy();
        let name = self.directory.file_name().unwrap_or_default().to_string_lossy();
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            out.push_str(before);
            let (variable, after) = after.split_once('}').unwrap_or((after, ""));
            match variable {
                "localWorkspaceFolder" | "containerWorkspaceFolder" => out.push_str(&local),
                "localWorkspaceFolderBasename" | "containerWorkspaceFolderBasename" => {
                    out.push_str(&name);
                }
                "devcontainerId" => out.push_str(&short_hash(self.directory)),
                // `localEnv:NAME:default`
                other => out.extend(other.splitn(3, ':').nth(2)),
            }
            rest = after;
        }
        out.push_str(rest);
        out
    }
}

/// Reads a command: a string for the shell, a list of words, or an object of either.
fn commands_in(value: &Value) -> Vec<Vec<String>> {
    match value {
        Value::String(line) => vec![vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()]],
        Value::Array(words) => {
            vec![words.iter().filter_map(Value::as_str).map(str::to_owned).collect()]
        }
        Value::Object(all) => all.values().flat_map(commands_in).collect(),
        _ => Vec::new(),
    }
}

fn short_hash(path: &Path) -> String {
    let hash = Sha256::digest(path.as_os_str().as_encoded_bytes());
    hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DiskReader;

    // R: T7
    #[test]
    fn only_what_needs_no_further_rights_is_used_and_trust_covers_the_dockerfile() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let (project, data) = (top.join("project"), top.join("data"));
        std::fs::create_dir_all(project.join(".devcontainer/tool")).unwrap();
        std::fs::write(project.join(".devcontainer/tool/install.sh"), "").unwrap();
        std::fs::write(project.join(".devcontainer/Dockerfile"), "FROM base\n").unwrap();
        let text = r#"{ // with comments
            "build": { "dockerfile": "Dockerfile", "args": { "A": "1" } },
            "features": { "./tool": { "some-option": true }, "ghcr.io/x/y:1": {} },
            "mounts": ["type=volume,source=cache,target=/cache", "type=bind,source=/etc,target=/host"],
            "containerEnv": { "KEY": "${localEnv:SECRET}", "HERE": "${localWorkspaceFolder}/x" },
            "remoteUser": "dev", "workspaceFolder": "/workspaces/project",
            "postCreateCommand": "make setup", "runArgs": ["--privileged"], "initializeCommand": "evil",
        }"#;
        std::fs::write(project.join(".devcontainer/devcontainer.json"), text).unwrap();
        let read = || DevContainer::read(&project, Some(&data), &DiskReader).unwrap().unwrap();
        let found = read();
        assert_eq!(found.features.len(), 1);
        assert_eq!(found.features[0].1, [("SOME_OPTION".to_owned(), "true".to_owned())]);
        assert_eq!(found.mounts, ["type=volume,source=cache,target=/cache"]);
        assert_eq!(found.env["KEY"], "");
        assert_eq!(found.env["HERE"], format!("{}/x", project.display()));
        assert_eq!(found.after_create, [["/bin/sh", "-c", "make setup"]]);
        assert_eq!(found.problems.len(), 4, "{:?}", found.problems);
        assert_ne!(found.trust, Trust::Trusted);
        trust::add(&data, &found.file, std::slice::from_ref(&found.part)).unwrap();
        assert_eq!(read().trust, Trust::Trusted);
        std::fs::write(project.join(".devcontainer/Dockerfile"), "FROM base\nRUN evil\n").unwrap();
        assert_ne!(read().trust, Trust::Trusted);
    }
}
