//! What a project and the user want the model to know: AGENTS.md or CLAUDE.md, `instructions` of the configuration, skills.
//!
//! Known places are looked up, one by one; no tree is ever walked, so a large repository costs what a small one does. Files
//! of a project are read only where they really lie inside it. What of them the model is told is `engine::primer`'s.

mod patterns;
mod skills;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use engine::ports::AnyTool;
use engine::primer::{Brief, MAX_SOURCE, Primer, Source};
use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use tools::scope::Scope;

use crate::{branch, env, project};

/// The files that hold instructions; of one folder the first that is there counts.
const NAMES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

/// The beginning of a file and how large the whole is; `None` if it cannot be read.
type Beginning = Option<(String, u64)>;

/// Makes the primer of a session in these folders, the working folder first.
pub type OpenPrimer = Arc<dyn Fn(&[PathBuf]) -> Arc<dyn Primer> + Send + Sync>;

/// Makes primers from the user's configuration: `instructions` are paths and patterns.
#[must_use]
pub fn primers(instructions: Vec<String>) -> OpenPrimer {
    let instructions: Arc<[String]> = instructions.into();
    Arc::new(move |folders| Arc::new(ProjectPrimer::new(folders, Arc::clone(&instructions))))
}

/// Makes the tool that loads skills, if there are any for these folders.
pub(crate) fn skill_tool(folders: &[PathBuf]) -> Option<Arc<dyn AnyTool>> {
    let places = Places::new(folders, env::config_folder());
    let has_some = !skills::find(&places).is_empty();
    has_some.then(|| Arc::new(skills::SkillTool::new(places)) as Arc<dyn AnyTool>)
}

/// The primer of one session.
struct ProjectPrimer {
    places: Places,
    instructions: Arc<[String]>,
}

/// Where to look.
#[derive(Debug, Clone)]
struct Places {
    /// The user's configuration folder.
    user: Option<PathBuf>,
    /// The session's folders, as the client spells them.
    given: Vec<PathBuf>,
    /// From the top of each project down to the session's folder, without repetition.
    chain: Vec<PathBuf>,
    /// The tops of the projects; nothing outside them is read for them.
    scope: Scope,
    roots: Vec<PathBuf>,
}

impl Places {
    fn new(folders: &[PathBuf], user: Option<PathBuf>) -> Places {
        let (mut chain, mut roots) = (Vec::new(), Vec::new());
        for folder in folders {
            let folder = folder.canonicalize().unwrap_or_else(|_| folder.clone());
            let top = folder.ancestors().find(|above| above.join(".git").exists());
            let root = top.unwrap_or(&folder).to_owned();
            let mut below: Vec<PathBuf> = folder
                .ancestors()
                .take_while(|above| above.starts_with(&root))
                .map(Path::to_owned)
                .collect();
            below.reverse();
            below.retain(|folder| !chain.contains(folder));
            chain.extend(below);
            roots.push(root);
        }
        let scope = Scope::new(roots.clone()).without(&env::own_folders());
        Places { user, given: folders.to_vec(), chain, scope, roots }
    }

    /// Tells whether a path is a file of a folder whose instructions are known from the beginning, by its words alone.
    fn is_known(&self, path: &Path) -> bool {
        let is_known =
            |folder: &Path| self.given.iter().chain(&self.chain).any(|known| known == folder);
        path.parent().is_some_and(is_known) && !path.is_dir()
    }

    /// Reads a file of a project, if it really lies inside it. A link to a file of another kind is none of its instructions.
    fn read(&self, path: &Path, most: usize) -> Beginning {
        if real(path).extension() != path.extension() {
            return None;
        }
        let (bytes, size) = self.scope.read_start(path, most)?;
        Some((text(bytes), size))
    }
}

/// Reads the beginning of a file of the user's own, links followed: people keep their settings elsewhere.
fn read_own(path: &Path, most: usize) -> Beginning {
    use std::io::Read;
    let size = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?.len();
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(most as u64).read_to_end(&mut bytes).ok()?;
    Some((text(bytes), size))
}

/// Makes text of bytes that may end within a character.
fn text(bytes: Vec<u8>) -> String {
    match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(err) if err.utf8_error().error_len().is_none() => {
            let whole = err.utf8_error().valid_up_to();
            String::from_utf8_lossy(&err.as_bytes()[..whole]).into_owned()
        }
        Err(err) => String::from_utf8_lossy(err.as_bytes()).into_owned(),
    }
}

impl ProjectPrimer {
    fn new(folders: &[PathBuf], instructions: Arc<[String]>) -> ProjectPrimer {
        ProjectPrimer { places: Places::new(folders, env::config_folder()), instructions }
    }
}

impl Primer for ProjectPrimer {
    fn brief(&self) -> BoxFuture<'_, Brief> {
        let (places, instructions) = (self.places.clone(), Arc::clone(&self.instructions));
        async move {
            let cwd = places.chain.last().cloned().unwrap_or_default();
            let branch = branch::find(cwd).await;
            // A disk may be slow, and everything else is on this thread.
            let read = tokio::task::spawn_blocking(move || {
                (sources(&places, &instructions), skills::find(&places))
            });
            let (sources, skills) = read.await.unwrap_or_default();
            let platform = format!("{} {}", std::env::consts::OS, std::env::consts::ARCH);
            Brief { branch, platform, sources, skills }
        }
        .boxed()
    }

    fn touched<'a>(&'a self, paths: &'a [PathBuf]) -> BoxFuture<'a, Vec<Source>> {
        if paths.iter().all(|path| self.places.is_known(path)) {
            return future::ready(Vec::new()).boxed();
        }
        let (places, paths) = (self.places.clone(), paths.to_vec());
        async move {
            let read = tokio::task::spawn_blocking(move || touched(&places, &paths));
            read.await.unwrap_or_default()
        }
        .boxed()
    }
}

fn sources(places: &Places, instructions: &[String]) -> Vec<Source> {
    let user = places.user.iter().filter_map(|folder| first(folder, &read_own));
    let project = places.chain.iter().filter_map(|folder| first(folder, &in_project(places)));
    let mut all: Vec<Source> = user.chain(project).collect();
    let theirs = places.given.first().map(|folder| project::instructions(folder));
    let users = instructions.iter().map(|pattern| (pattern, false));
    for (pattern, is_theirs) in users.chain(theirs.iter().flatten().map(|pattern| (pattern, true)))
    {
        for (path, is_own) in patterns::find(pattern, &places.chain, env::home().as_deref()) {
            if is_theirs && is_private(&path) {
                tracing::warn!("a project names {} as instructions: left out", path.display());
                continue;
            }
            let read =
                if is_own { read_own(&path, MAX_SOURCE) } else { places.read(&path, MAX_SOURCE) };
            let origin = path.to_string_lossy().into_owned();
            if let Some((text, size)) =
                read.filter(|_| all.iter().all(|source| source.origin != origin))
            {
                all.push(Source { origin, text, size });
            }
        }
    }
    all
}

/// Tells whether a project may not have the model told what a file holds: the user would be asked before it is read.
fn is_private(path: &Path) -> bool {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    [path, &real].iter().any(|path| {
        shell::is_secret(path) || path.components().any(|part| part.as_os_str() == ".git")
    })
}

/// Reads the first of the known files that a folder has and that says anything.
fn first(folder: &Path, read: &dyn Fn(&Path, usize) -> Beginning) -> Option<Source> {
    NAMES.iter().find_map(|name| {
        let path = folder.join(name);
        let (text, size) = read(&path, MAX_SOURCE)?;
        let origin = path.to_string_lossy().into_owned();
        (!text.trim().is_empty()).then_some(Source { origin, text, size })
    })
}

fn in_project(places: &Places) -> impl Fn(&Path, usize) -> Beginning {
    |path, most| places.read(path, most)
}

/// Finds the instructions of folders on the way from a project's top to these paths.
fn touched(places: &Places, paths: &[PathBuf]) -> Vec<Source> {
    let mut folders: Vec<&Path> = Vec::new();
    let paths: Vec<PathBuf> = paths.iter().map(|path| real(path)).collect();
    for path in &paths {
        let Some(root) = places.roots.iter().find(|root| path.starts_with(root)) else { continue };
        let below = path.ancestors().take_while(|folder| folder.starts_with(root));
        let known = |folder: &&Path| places.chain.iter().any(|known| known == folder);
        let mut below: Vec<&Path> = below.filter(|folder| !known(folder)).collect();
        below.reverse();
        below.retain(|folder| !folders.contains(folder));
        folders.extend(below);
    }
    folders.into_iter().filter_map(|folder| first(folder, &in_project(places))).collect()
}

/// Follows links; of a file that is not there yet, those of its folder.
fn real(path: &Path) -> PathBuf {
    let parent = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(parent).unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests;
