//! `devcontainer.json` of a project: the container that its commands run in, if the user wants that and trusts the file.
//!
//! Only what needs no more rights than a command has is used; the rest is reported. See docs/guide/workspaces.md.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

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
    /// A name for the image with the features, which is this project's alone.
    pub features_image: String,
    /// Features in the project's own directories, with their options.
    pub features: Vec<(PathBuf, Vec<(String, String)>)>,
    /// Volumes and temporary file systems, in the form of `--mount`.
    pub mounts: Vec<String>,
    /// Directories of the project that have another name inside, too.
    pub folders: Vec<Folder>,
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

/// A directory of the project with another name inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// The directory, without links.
    pub path: PathBuf,
    /// Its other name.
    pub inside: PathBuf,
    /// Whether it is only read by that name.
    pub is_read_only: bool,
}

/// How an image is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// A name for the image.
    pub name: String,
    /// The text of the Dockerfile, as the user trusts it.
    pub text: String,
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
        let build = self.build(members, reader)?;
        if let Some(image) = image.as_ref().filter(|image| !is_image(image)) {
            return Err(format!("{place}: `{image}` is not the name of an image"));
        }
        if image.is_none() && build.is_none() {
            return Err(format!("{place} names neither an `image` nor a `build.dockerfile`"));
        }
        let mut runs = text.to_owned();
        if let Some((file, build)) = &build {
            runs.push_str(&format!("\n{}:\n{}", file.display(), build.text));
        }
        let build = build.map(|(_, build)| build);
        let env = self.env(members);
        let after_create = COMMANDS.iter().filter_map(|key| members.get(*key));
        let after_create = after_create.flat_map(commands_in).collect();
        let features = self.features(members);
        let (mounts, folders) = self.mounts(members);
        let part = Part { name: place.to_owned(), runs };
        Ok(DevContainer {
            file: self.file.to_owned(),
            image,
            build,
            features_image: format!("purlin-features-{}", short_hash(self.file)),
            features,
            mounts,
            folders,
            env,
            user,
            folder,
            after_create,
            problems: self.problems,
            part,
            trust: Trust::Not("folder not trusted".to_owned()),
        })
    }

    fn env(&self, members: &Map<String, Value>) -> BTreeMap<String, String> {
        let of = |key: &str| members.get(key).and_then(Value::as_object).into_iter().flatten();
        let all = of("containerEnv").chain(of("remoteEnv"));
        let is_name = |name: &str| !name.is_empty() && !name.contains(['=', '\0', '\n']);
        all.filter(|(name, _)| is_name(name))
            .filter_map(|(name, value)| Some((name.clone(), self.expand(value.as_str()?))))
            .collect()
    }

    /// Returns how the image is built, and the Dockerfile.
    fn build(
        &mut self,
        members: &Map<String, Value>,
        reader: &dyn ReadText,
    ) -> Result<Option<(PathBuf, Build)>, String> {
        let build = members.get("build");
        let member = |key: &str| build.and_then(|build| build.get(key)).and_then(Value::as_str);
        let old = |key: &str| members.get(key).and_then(Value::as_str);
        let Some(dockerfile) = member("dockerfile").or_else(|| old("dockerFile")) else {
            return Ok(None);
        };
        let context = member("context").or_else(|| old("context")).unwrap_or(".");
        if member("target").is_some() {
            self.problems.push(format!("{}: `build.target` is not used", self.place));
        }
        let file = self.inside(dockerfile)?;
        let context = self.inside(context)?;
        let text = reader.read_text(&file, LARGEST);
        let text = text.map_err(|why| format!("the Dockerfile {why}"))?;
        let text = text.ok_or("the Dockerfile was not found")?;
        let args = build.and_then(|build| build.get("args")).and_then(Value::as_object);
        let args = args
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.clone(), self.expand(value.as_str()?))));
        let args = args.collect();
        let name = format!("purlin-devcontainer-{}", short_hash(&file));
        Ok(Some((file, Build { name, text, context, args })))
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
    fn mounts(&mut self, members: &Map<String, Value>) -> (Vec<String>, Vec<Folder>) {
        let (mut mounts, mut folders) = (Vec::new(), Vec::new());
        for mount in members.get("mounts").and_then(Value::as_array).into_iter().flatten() {
            match Mount::read(&self.parts_of(mount)) {
                Some(Mount::Folder { source, inside, is_read_only }) => match self.inside(&source) {
                    Ok(path) => folders.push(Folder { path, inside, is_read_only }),
                    Err(_) => self.problems.push(format!(
                        "{}: the mount of `{source}` is not used: it is outside the project",
                        self.place
                    )),
                },
                Some(Mount::Other(text)) => mounts.push(text),
                None => self.problems.push(format!(
                    "{}: the mount `{mount}` is not used: only plain mounts of volumes, of temporary file systems and of folders in the project are",
                    self.place
                )),
            }
        }
        (mounts, folders)
    }

    fn parts_of(&self, mount: &Value) -> Vec<(String, String)> {
        let part = |(name, value): (&str, &str)| (name.to_owned(), self.expand(value));
        match mount {
            Value::String(text) => text
                .split(',')
                .map(|text| part(text.split_once('=').unwrap_or((text, "true"))))
                .collect(),
            Value::Object(parts) => {
                let word = |value: &Value| match value {
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                parts.iter().map(|(name, value)| part((name, &word(value)))).collect()
            }
            _ => Vec::new(),
        }
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

/// A mount that is used.
enum Mount {
    Folder {
        source: String,
        inside: PathBuf,
        is_read_only: bool,
    },
    /// In the form of `--mount`.
    Other(String),
}

impl Mount {
    /// Reads a mount. `None` if any part of it is not known, or is given twice: engines have options that mount the host's directories
    /// under any type, and the last one of two applies.
    fn read(parts: &[(String, String)]) -> Option<Mount> {
        let (mut kind, mut source, mut target, mut is_read_only) = (None, None, None, None);
        for (name, value) in parts {
            let is_set = match name.as_str() {
                "type" => kind.replace(value.as_str()).is_some(),
                "source" | "src" => source.replace(value.clone()).is_some(),
                "target" | "destination" | "dst" => target.replace(value.clone()).is_some(),
                "readonly" | "ro" => {
                    is_read_only.replace(matches!(value.as_str(), "true" | "1")).is_some()
                }
                // Does nothing on Linux.
                "consistency" => false,
                _ => return None,
            };
            let is_plain = !value.contains([',', '"']) && !value.contains(char::is_control);
            if is_set || !is_plain {
                return None;
            }
        }
        let inside = PathBuf::from(target?);
        let is_normal = |part| matches!(part, Component::RootDir | Component::Normal(_));
        if !inside.is_absolute() || !inside.components().all(is_normal) {
            return None;
        }
        let is_read_only = is_read_only.unwrap_or(false);
        let end = if is_read_only { ",readonly" } else { "" };
        match (kind.unwrap_or("bind"), source) {
            ("bind", Some(source)) => Some(Mount::Folder { source, inside, is_read_only }),
            ("volume", Some(source)) if is_volume(&source) => Some(Mount::Other(format!(
                "type=volume,source={source},target={}{end}",
                inside.display()
            ))),
            (kind @ ("volume" | "tmpfs"), None) => {
                Some(Mount::Other(format!("type={kind},target={}{end}", inside.display())))
            }
            _ => None,
        }
    }
}

/// Tells whether a volume may be used: by its name, and not one of ours, which have sessions and keys.
fn is_volume(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(is_allowed)
        && !name.starts_with("purlin")
}

/// Tells whether this can be the name of an image, and not an option of the engine.
fn is_image(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-:/@".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_allowed)
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
        assert_eq!(read().build.unwrap().text, "FROM base\n");
        std::fs::write(project.join(".devcontainer/Dockerfile"), "FROM base\nRUN evil\n").unwrap();
        assert_ne!(read().trust, Trust::Trusted);
    }

    fn read_text(project: &Path, text: &str) -> Result<DevContainer, String> {
        std::fs::write(project.join(".devcontainer.json"), text).unwrap();
        DevContainer::read(project, None, &DiskReader).map(Option::unwrap)
    }

    // R: T7
    #[test]
    fn no_mount_reaches_the_host_whatever_its_form() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path().canonicalize().unwrap();
        let project = top.join("project");
        std::fs::create_dir_all(project.join("sub")).unwrap();
        std::os::unix::fs::symlink("/etc", project.join("link")).unwrap();
        let refused = [
            r#""type=volume,source=x,target=/x,volume-driver=local,volume-opt=type=none,volume-opt=o=bind,volume-opt=device=/etc""#,
            r#""type=bind,source=${localWorkspaceFolder}/sub,source=/etc,target=/x""#,
            r#""type=bind,source=${localWorkspaceFolder}/sub,src=/etc,target=/x""#,
            r#""type=volume,type=bind,source=/etc,target=/x""#,
            r#""type=volume,source=/etc,target=/x""#,
            r#""source=/etc,target=/x""#,
            r#""type=bind,source=${localWorkspaceFolder}/link,target=/x""#,
            r#""type=bind,source=${localWorkspaceFolder}/../..,target=/x""#,
            r#""type=bind,source=${localWorkspaceFolder}/sub,target=/x,bind-propagation=rshared""#,
            r#""type=volume,source=purlin-state,target=/x""#,
            r#""type=tmpfs,target=/../x""#,
            r#""type=image,source=x,target=/x""#,
            r#""type=npipe,source=x,target=/x""#,
            r#"{ "type": "volume", "source": "x,type=bind,source=/etc", "target": "/x" }"#,
            r#"{ "type": "volume", "source": "x", "target": "/x,volume-opt=device=/etc" }"#,
            r#""type=volume,source=x\ny,target=/x""#,
            "7",
        ];
        for mount in refused {
            let text = format!(r#"{{ "image": "i", "mounts": [{mount}] }}"#);
            let found = read_text(&project, &text).unwrap();
            assert!(found.mounts.is_empty() && found.folders.is_empty(), "{mount}: {found:?}");
            assert_eq!(found.problems.len(), 1, "{mount}");
        }
        let text = r#"{ "image": "i", "mounts": [
            "source=${localWorkspaceFolder}/sub,target=/x,readonly",
            { "type": "volume", "source": "cache", "target": "/cache" },
            "type=tmpfs,destination=/t" ] }"#;
        let found = read_text(&project, text).unwrap();
        let folder = Folder { path: project.join("sub"), inside: "/x".into(), is_read_only: true };
        assert_eq!(found.folders, [folder]);
        let mounts = ["type=volume,source=cache,target=/cache", "type=tmpfs,target=/t"];
        assert_eq!(found.mounts, mounts);
        assert_eq!(found.problems, Vec::<String>::new());
        eprintln!("attempts: {}", refused.len());
    }

    // R: T7
    #[test]
    fn name_of_an_image_is_no_option_and_no_second_line() {
        let directory = tempfile::tempdir().unwrap();
        for image in ["--privileged", "-v/:/host", "x\\nRUN evil", "x y", "", "/x"] {
            let text = format!(r#"{{ "image": "{image}" }}"#);
            assert!(read_text(directory.path(), &text).is_err(), "{image}");
        }
        let image = "host.example:5000/a/b-c:1.2@sha256:00";
        let text = format!(r#"{{ "image": "{image}" }}"#);
        assert_eq!(read_text(directory.path(), &text).unwrap().image.as_deref(), Some(image));
    }
}
