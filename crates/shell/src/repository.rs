//! The repository that git would use in a directory: whether its configuration can make git run programs, and which tracked files
//! usually hold secrets.
//!
//! Reads a few files of `.git` and runs nothing. A repository may have come in an archive, with a configuration that someone else
//! wrote, so every setting that is not known to be harmless needs permission.

use std::path::{Path, PathBuf};

use tree::NotRead;

use crate::secret::is_secret;

/// Settings that name no program and no other file, by section, including sections with a quoted name. `*` stands for all settings
/// of a section.
const HARMLESS: [(&str, &str); 34] = [
    (
        "core",
        "repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode symlinks autocrlf eol \
         safecrlf abbrev quotepath compression loosecompression bigfilethreshold commentchar commentstring whitespace \
         sparsecheckout sparsecheckoutcone untrackedcache preloadindex trustctime checkstat protecthfs protectntfs \
         longpaths fscache multipackindex commitgraph warnambiguousrefs sharedrepository",
    ),
    (
        "remote",
        "url pushurl fetch push tagopt prune prunetags mirror skipfetchall skipdefaultupdate gh-resolved",
    ),
    ("branch", "*"),
    ("user", "*"),
    ("author", "*"),
    ("committer", "*"),
    ("submodule", "url active branch ignore update recurse fetchrecursesubmodules shallow"),
    ("pull", "*"),
    ("push", "*"),
    ("fetch", "*"),
    ("rebase", "*"),
    ("rerere", "*"),
    ("advice", "*"),
    ("color", "*"),
    ("column", "*"),
    ("init", "*"),
    ("commit", "*"),
    ("tag", "*"),
    ("status", "*"),
    ("log", "date decorate follow abbrevcommit"),
    (
        "diff",
        "algorithm renames renamelimit colormoved mnemonicprefix noprefix context interhunkcontext wserrorhighlight \
              indentheuristic ignoresubmodules statgraphwidth",
    ),
    ("merge", "conflictstyle ff renames log stat renamelimit"),
    ("gc", "*"),
    ("maintenance", "*"),
    ("pack", "*"),
    ("index", "*"),
    ("feature", "*"),
    ("extensions", "objectformat refstorage noop worktreeconfig relativeworktrees preciousobjects"),
    ("lfs", "*"),
    ("url", "*"),
    ("http", "*"),
    ("alias", "*"),
    ("gitflow", "*"),
    ("gui", "*"),
];

/// The characters that git removes from the end of a path in a file.
const LINE_END: [char; 2] = ['\n', '\r'];

/// The most nested repositories that are checked, and the largest index.
const MOST: usize = 200;
const LONGEST: u64 = 64 << 20;

/// Checks the repository that git would use in a directory. Returns the tracked files with secrets, whether they exist or not.
///
/// # Errors
/// Returns what could make git run something, or what cannot be parsed.
pub(super) fn tracked_secrets(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let mut secrets = Vec::new();
    let mut open: Vec<Repository> = Repository::around(directory)?.into_iter().collect();
    let mut looked = 0;
    while let Some(repository) = open.pop() {
        looked += 1;
        if looked > MOST {
            return Err("too many nested repositories to check".to_owned());
        }
        let index = repository.look()?;
        secrets.extend(index.secrets.iter().map(|path| repository.top.join(path)));
        for path in index.modules {
            open.extend(Repository::at(&repository.top.join(path))?);
        }
    }
    Ok(secrets)
}

/// Returns why the configuration of a repository may make git run something; `None` if it is known to run nothing. `git` is its
/// `.git` directory or a bare repository, `top` its working tree.
#[must_use]
pub fn config_problem(git: &Path, top: &Path, text: &str) -> Option<String> {
    let (top, git, common) = (top.to_owned(), git.to_owned(), git.to_owned());
    if text.contains('\0') {
        return Some("the repository's configuration is not text".to_owned());
    }
    Repository { top, git, common }.check(text).err()
}

/// Returns the directories of submodules, by the index and `.gitmodules` of the repository in a directory.
#[must_use]
pub fn submodules(top: &Path) -> Vec<PathBuf> {
    let index = Repository::at(top).ok().flatten().and_then(|repository| repository.look().ok());
    let mut found = index.map(|index| index.modules).unwrap_or_default();
    let text = tree::read(top, ".gitmodules", 1 << 20)
        .ok()
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    for line in text.iter().flat_map(|text| text.lines()) {
        if let Some((key, path)) = line.split_once('=')
            && key.trim().eq_ignore_ascii_case("path")
        {
            found.push(PathBuf::from(path.trim().trim_matches('"')));
        }
    }
    let is_below = |path: &PathBuf| {
        path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
    };
    found.retain(is_below);
    found
}

/// A repository: its working tree, the git directory of this tree, and the one that all its trees share.
struct Repository {
    top: PathBuf,
    git: PathBuf,
    common: PathBuf,
}

/// What matters here of git's index.
#[derive(Debug, Default, PartialEq)]
struct Index {
    secrets: Vec<PathBuf>,
    /// Submodules, which git reads as well.
    modules: Vec<PathBuf>,
}

impl Repository {
    /// Finds the repository that a directory belongs to, as git does: by a `.git`, or the directory itself if it is bare.
    fn around(directory: &Path) -> Result<Option<Repository>, String> {
        for top in directory.ancestors() {
            let found = match Repository::at(top)? {
                None => Repository::new(top, top.to_owned())?,
                found => found,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Finds the repository whose `.git` is in this directory.
    fn at(top: &Path) -> Result<Option<Repository>, String> {
        let git = top.join(".git");
        if !git.is_file() {
            return Repository::new(top, git);
        }
        let text = read(&git)?;
        let Some(path) = text.trim_end_matches(LINE_END).strip_prefix("gitdir: ") else {
            return Err("its .git file cannot be parsed".to_owned());
        };
        Repository::new(top, top.join(path))
    }

    /// An incomplete repository is an error: git may accept it or search further up.
    fn new(top: &Path, git: PathBuf) -> Result<Option<Repository>, String> {
        let is_there = |path: &Path| path.symlink_metadata().is_ok();
        let (head, shared) = (git.join("HEAD"), git.join("commondir"));
        if !is_there(&head) {
            return Ok(None);
        }
        let common = match is_there(&shared) {
            true => git.join(read(&shared)?.trim_end_matches(LINE_END)),
            false => git.clone(),
        };
        let (objects, refs) = (common.join("objects"), common.join("refs"));
        // A directory with a file of that name need not be a repository.
        if !is_there(&objects) && !is_there(&refs) {
            return Ok(None);
        }
        let text = read(&head)?;
        let is_name = |text: &str| {
            [40, 64].contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let is_head = text.starts_with("ref: refs/") || is_name(text.trim_end_matches(LINE_END));
        if !is_head || !objects.is_dir() || !refs.is_dir() {
            return Err(format!("{} is not a complete repository", git.display()));
        }
        Ok(Some(Repository { top: top.to_owned(), git, common }))
    }

    fn look(&self) -> Result<Index, String> {
        let mut has_wide_names = false;
        for file in [self.common.join("config"), self.git.join("config.worktree")] {
            if file.symlink_metadata().is_err() {
                continue;
            }
            has_wide_names |= self.check(&read(&file)?)?;
        }
        if self.common.join("hooks/post-index-change").exists() {
            return Err("the repository has a hook that runs when git reads".to_owned());
        }
        match tree::read(&self.git, "index", LONGEST) {
            Err(NotRead::Missing) => Ok(Index::default()),
            Err(NotRead::TooLarge(_)) => Err("it tracks too many files".to_owned()),
            Err(why) => Err(format!("git's index: {why}")),
            Ok(bytes) => parse(&bytes, if has_wide_names { 32 } else { 20 })
                .ok_or_else(|| "git's index cannot be parsed".to_owned()),
        }
    }

    /// Refuses a configuration with a setting that is not known to be harmless. Tells whether object names are SHA-256.
    fn check(&self, text: &str) -> Result<bool, String> {
        let mut has_wide_names = false;
        let mut section = (String::new(), false);
        for line in text.lines() {
            let mut line = line.trim();
            if line.ends_with('\\') {
                return Err("the repository's configuration has a continued line".to_owned());
            }
            if let Some(rest) = line.strip_prefix('[') {
                let Some((head, after)) = rest.split_once(']') else {
                    return Err("the repository's configuration cannot be parsed".to_owned());
                };
                let name = head.split([' ', '.', '"', '\t']).next().unwrap_or_default();
                section = (name.to_ascii_lowercase(), head.len() > name.len());
                line = after.trim();
                // Git accepts settings, and even another section, on the same line.
                if !line.is_empty() && !line.starts_with(['#', ';']) {
                    return Err("the repository's configuration cannot be parsed".to_owned());
                }
            }
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            let key =
                line.split(|c: char| c == '=' || c.is_whitespace()).next().unwrap_or_default();
            let key = key.to_ascii_lowercase();
            let is_own_tree = section.0 == "core" && key == "worktree" && self.is_top(line);
            if !is_own_tree && !is_harmless(&section, &key) {
                let name = &section.0;
                return Err(format!(
                    "the repository's configuration sets `{name}.{key}`, which may make git run something"
                ));
            }
            if key == "objectformat" {
                has_wide_names = match line.split_once('=').map(|(_, value)| value.trim()) {
                    Some("sha1") => false,
                    Some("sha256") => true,
                    _ => return Err("the repository's format is unknown".to_owned()),
                };
            }
        }
        Ok(has_wide_names)
    }

    /// Tells whether a line sets the working tree to where it is, as in a submodule.
    fn is_top(&self, line: &str) -> bool {
        let path = line.split_once('=').map_or("", |(_, path)| path.trim());
        let said = self.git.join(path).canonicalize();
        said.is_ok_and(|said| self.top.canonicalize().is_ok_and(|top| top == said))
    }
}

fn is_harmless((section, has_name): &(String, bool), key: &str) -> bool {
    // With a quoted name these choose programs.
    let is_driver = *has_name && ["diff", "merge"].contains(&section.as_str());
    let known = HARMLESS.iter().find(|(known, _)| known == section);
    !is_driver
        && known
            .is_some_and(|(_, keys)| *keys == "*" || keys.split_whitespace().any(|one| one == key))
}

fn read(path: &Path) -> Result<String, String> {
    let (directory, name) = (path.parent(), path.file_name());
    let bytes =
        directory.zip(name).and_then(|(directory, name)| tree::read(directory, name, 1 << 20).ok());
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    // For git the text ends at a NUL byte.
    text.filter(|text| !text.contains('\0'))
        .ok_or_else(|| format!("{} cannot be read", path.display()))
}

/// Parses git's index. `None` if it is incomplete or split.
fn parse(bytes: &[u8], hash: usize) -> Option<Index> {
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let version = number(4)?;
    if !bytes.starts_with(b"DIRC") || !(2..=4).contains(&version) {
        return None;
    }
    let mut index = Index::default();
    let mut name: Vec<u8> = Vec::new();
    let mut at = 12;
    for _ in 0..number(8)? {
        let mode = number(at + 24)?;
        let flags = u16::from_be_bytes(bytes.get(at + 40 + hash..at + 42 + hash)?.try_into().ok()?);
        let is_extended = flags & 0x4000 != 0;
        let mut start = at + 42 + hash + if is_extended { 2 } else { 0 };
        if version == 4 {
            // Only the difference from the previous name is stored.
            let (less, after) = offset(bytes, start)?;
            name.truncate(name.len().checked_sub(less)?);
            start = after;
        } else {
            name.clear();
        }
        let length = bytes.get(start..)?.iter().position(|byte| *byte == 0)?;
        name.extend_from_slice(&bytes[start..start + length]);
        // The flags store the length of the name; 0xfff means that or longer. Another length means that we misread the entry.
        if usize::from(flags & 0xfff) != name.len().min(0xfff) {
            return None;
        }
        let end = start + length;
        at = if version == 4 { end + 1 } else { at + ((end - at + 8) & !7) };
        let path = PathBuf::from(String::from_utf8(name.clone()).ok()?);
        match mode & 0o170_000 {
            0o160_000 => index.modules.push(path),
            0o040_000 => return None,
            _ if is_secret(&path) => index.secrets.push(path),
            _ => {}
        }
    }
    while at + 8 + hash <= bytes.len() {
        // The rest of the index is in another file.
        if bytes[at..].starts_with(b"link") {
            return None;
        }
        at += 8 + usize::try_from(number(at + 4)?).ok()?;
    }
    Some(index)
}

/// Reads git's variable-length number; returns it and the offset after it.
fn offset(bytes: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut byte = *bytes.get(at)?;
    let mut value = usize::from(byte & 127);
    while byte & 128 != 0 {
        at += 1;
        byte = *bytes.get(at)?;
        value = (value + 1).checked_mul(128)? + usize::from(byte & 127);
    }
    Some((value, at + 1))
}
