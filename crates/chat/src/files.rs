//! The project as the client sees it: its files for completion, its branch, and the files and images that a prompt names.

use std::path::{Path, PathBuf};

use base64::Engine;
use wire::acp::schema;

/// How many files are listed.
const MAX_FILES: usize = 200_000;

/// A larger image is not sent.
const MAX_IMAGE: u64 = 8 * 1024 * 1024;

/// How many files of a prompt are sent along.
const MAX_ATTACHED: usize = 32;

/// Lists the files of a project, relative to it, as git sees them. Blocks.
#[must_use]
pub fn find(cwd: &Path) -> Vec<String> {
    let options = tree::WalkOptions { skips_hidden: false, ..tree::WalkOptions::default() };
    let (walk, _) = tree::walk(cwd, options, |entry| entry.file_name() != ".git");
    let files =
        walk.build().flatten().filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    let relative = files.filter_map(|entry| {
        let path = entry.path().strip_prefix(cwd).ok()?.to_str()?.to_owned();
        // A name with control characters or white space cannot be written after an `@`.
        (!path.chars().any(|char| char.is_control() || char.is_whitespace())).then_some(path)
    });
    relative.take(MAX_FILES).collect()
}

/// Returns the branch that is checked out.
#[must_use]
pub fn branch(cwd: &Path) -> Option<String> {
    let git = cwd.ancestors().map(|directory| directory.join(".git")).find(|git| git.exists())?;
    let git = if git.is_file() {
        let link = tree::read_linked(&git, 4096).ok()?;
        let target = String::from_utf8(link).ok()?;
        git.parent()?.join(target.trim().strip_prefix("gitdir: ")?)
    } else {
        git
    };
    let head = String::from_utf8(tree::read_linked(&git.join("HEAD"), 4096).ok()?).ok()?;
    let head = head.trim();
    let name =
        head.strip_prefix("ref: refs/heads/").unwrap_or_else(|| head.get(..7).unwrap_or(head));
    Some(crate::clean::one_line(name))
}

/// Returns the blocks of a prompt: its text, and the files that it names with `@`. Images are sent themselves if the agent
/// takes them, and so are images whose path was dropped into the prompt. Blocks.
#[must_use]
pub fn blocks_of(text: &str, cwd: &Path, takes_images: bool) -> Vec<schema::ContentBlock> {
    let mut blocks = vec![schema::ContentBlock::from(text)];
    let words = text.split_whitespace();
    let mut seen: Vec<PathBuf> = Vec::new();
    for word in words {
        let name = word
            .strip_prefix('@')
            .or_else(|| word.starts_with('(').then(|| word.trim_start_matches(['(', '@'])));
        let is_marked = name.is_some() && word.contains('@');
        let name = name.unwrap_or(word).trim_matches(['\'', '"', ',', ')', ';']);
        let kind = image_kind(name);
        if !is_marked && (kind.is_none() || !name.starts_with('/')) {
            continue;
        }
        let path = cwd.join(name);
        if seen.contains(&path) || seen.len() >= MAX_ATTACHED || !path.is_file() {
            continue;
        }
        match kind.filter(|_| takes_images).and_then(|kind| image(&path, kind)) {
            Some(block) => blocks.push(block),
            None => blocks.push(schema::ContentBlock::ResourceLink(schema::ResourceLink::new(
                name,
                wire::acp::file_uri::encode(&path.to_string_lossy()),
            ))),
        }
        seen.push(path);
    }
    blocks
}

fn image_kind(name: &str) -> Option<&'static str> {
    let (_, ending) = name.rsplit_once('.')?;
    match ending.to_ascii_lowercase().as_str() {
        "png" => Some("image/png"),
        "jpg" | "jpeg" => Some("image/jpeg"),
        "gif" => Some("image/gif"),
        "webp" => Some("image/webp"),
        _ => None,
    }
}

fn image(path: &Path, kind: &str) -> Option<schema::ContentBlock> {
    let bytes = tree::read_linked(path, MAX_IMAGE).ok()?;
    let data = base64::engine::general_purpose::STANDARD.encode(bytes);
    Some(schema::ContentBlock::Image(schema::ImageContent::new(data, kind)))
}
