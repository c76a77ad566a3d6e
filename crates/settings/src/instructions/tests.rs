//! Tests of which instruction files are found.

use tempfile::TempDir;
use tools::scope::Scope;

use super::*;

/// Reads files inside the projects.
struct InScope(Scope);

impl ProjectFiles for InScope {
    fn read_start(&self, path: &Path, most: usize) -> Option<(Vec<u8>, u64)> {
        self.0.read_start(path, most)
    }

    fn is_secret(&self, path: &Path) -> bool {
        shell::is_secret(path)
    }
}

/// A temporary directory; the path has no links in it.
struct Folder(PathBuf, #[expect(dead_code, reason = "removes the directory when dropped")] TempDir);

impl Folder {
    fn new() -> Folder {
        let directory = tempfile::tempdir().unwrap();
        Folder(directory.path().canonicalize().unwrap(), directory)
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    fn places(&self, cwd: &str) -> (Places, InScope) {
        let config = Some(self.0.join("user"));
        let directories = Directories { config, ..Directories::default() };
        let places = Places::new(&[self.0.join(cwd)], &directories);
        let files = InScope(Scope::new(places.roots().to_vec()));
        (places, files)
    }

    fn origins(&self, sources: &[InstructionFile]) -> Vec<String> {
        let below = |source: &InstructionFile| {
            Path::new(&source.origin).strip_prefix(&self.0).unwrap().to_string_lossy().into_owned()
        };
        sources.iter().map(below).collect()
    }
}

#[test]
fn instructions_are_found_from_the_top_down_and_in_touched_directories() {
    let folder = Folder::new();
    folder.write("user/AGENTS.md", "mine");
    folder.write("AGENTS.md", "above the project");
    folder.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    folder.write("repo/AGENTS.md", "top");
    folder.write("repo/CLAUDE.md", "not read beside AGENTS.md");
    folder.write("repo/src/CLAUDE.md", "source");
    folder.write("repo/src/deep/AGENTS.md", "deep");
    folder.write("repo/docs/style.md", "style");
    folder.write("repo/docs/more.md", "more");
    folder.write("repo/src/own/rules.md", "rules");
    folder.write("outside.md", "not the project's");
    // A file that needs permission to read is not given to a model because a project names it.
    folder.write("repo/src/.env", "SECRET=1");
    folder.write("repo/.git/config", "[remote]");
    std::os::unix::fs::symlink(".env", folder.0.join("repo/src/own/link.md")).unwrap();
    let named =
        r#"{ "instructions": ["own/*.md", "../../outside.md", "~/x.md", ".e*", ".git/config"] }"#;
    folder.write("repo/src/purlin.json", named);
    let directories = Directories::default();
    let project =
        crate::Project::read(&folder.0.join("repo/src"), &directories, &crate::DiskReader);
    let (places, files) = folder.places("repo/src");
    let user = ["docs/s*.md".to_owned(), "**/more.md".to_owned(), "none/*".to_owned()].to_vec();
    let patterns = Patterns { user, project: project.instructions() };
    let all = sources(&places, &files, &patterns);
    assert_eq!(
        folder.origins(&all),
        [
            "user/AGENTS.md",
            "repo/AGENTS.md",
            "repo/src/CLAUDE.md",
            "repo/docs/style.md",
            "repo/docs/more.md",
            "repo/src/own/rules.md"
        ]
    );
    assert_eq!((all[0].text.as_str(), all[0].size), ("mine", 4));
    let touch = |path: &str| folder.origins(&touched(&places, &files, &[folder.0.join(path)]));
    assert_eq!(touch("repo/src/deep/er/file.rs"), ["repo/src/deep/AGENTS.md"]);
    assert_eq!(touch("repo/src/main.rs"), [""; 0]);
    assert_eq!(touch("elsewhere/file"), [""; 0]);
}

// R: W19
#[test]
fn link_out_of_the_project_is_not_followed() {
    let folder = Folder::new();
    let secret = folder.write("secret/AGENTS.md", "a secret");
    folder.write("repo/.git/HEAD", "");
    folder.write("repo/real.md", "inside");
    std::os::unix::fs::symlink(&secret, folder.0.join("repo/AGENTS.md")).unwrap();
    std::os::unix::fs::symlink("real.md", folder.0.join("repo/CLAUDE.md")).unwrap();
    std::fs::create_dir_all(folder.0.join("repo/.purlin/skills")).unwrap();
    let skill = folder.write("secret/skill/SKILL.md", "---\nname: stolen\n---\n");
    let link = folder.0.join("repo/.purlin/skills/stolen");
    std::os::unix::fs::symlink(skill.parent().unwrap(), link).unwrap();
    let (places, files) = folder.places("repo");
    let user = vec!["AGENTS.md".to_owned(), secret.to_string_lossy().into_owned()];
    let all = sources(&places, &files, &Patterns { user, project: Vec::new() });
    let texts: Vec<&str> = all.iter().map(|source| source.text.as_str()).collect();
    // A full path in the user's configuration is the user's choice.
    assert_eq!(texts, ["inside", "a secret"]);
    assert_eq!(skills::find(&places, &files), []);
}

/// A project may be a whole home directory: a link inside it is followed only to a file of the same kind, and a skill's
/// files must lie in its directory.
// R: W19
#[test]
fn link_inside_the_project_opens_no_other_kind_of_file() {
    let folder = Folder::new();
    folder.write("repo/.git/HEAD", "");
    folder.write("repo/.env", "KEY=secret");
    folder.write("repo/notes.txt", "of others");
    std::os::unix::fs::symlink(".env", folder.0.join("repo/AGENTS.md")).unwrap();
    folder.write("repo/.purlin/skills/x/SKILL.md", "---\nname: x\n---\nDo it.");
    folder.write("repo/.purlin/skills/x/more.txt", "more");
    let link = folder.0.join("repo/.purlin/skills/x/e.txt");
    std::os::unix::fs::symlink("../../../notes.txt", link).unwrap();
    let (places, files) = folder.places("repo");
    assert_eq!(sources(&places, &files, &Patterns::default()), []);
    let load = |file: &str| skills::load(&places, &files, "x", file);
    assert!(load("more.txt").unwrap().starts_with("more"));
    let refused = load("e.txt").unwrap_err();
    assert_eq!(refused, "`e.txt` is not in the skill's folder");
}

#[test]
fn nearest_skill_of_a_name_is_listed() {
    let folder = Folder::new();
    folder.write("user/skills/mine/SKILL.md", "---\ndescription: Of the user\n---\nDo it.");
    folder.write("user/skills/both/SKILL.md", "---\nname: both\ndescription: far\n---\n");
    folder.write("repo/.claude/skills/b/SKILL.md", "---\nname: both\ndescription: near\n---\n");
    folder.write("repo/.opencode/skill/none/README.md", "no skill");
    let (places, files) = folder.places("repo");
    let all = skills::find(&places, &files);
    let listed: Vec<(&str, &str)> =
        all.iter().map(|skill| (skill.name.as_str(), skill.description.as_str())).collect();
    assert_eq!(listed, [("mine", "Of the user"), ("both", "near")]);
}

/// A project's file imports what lies in the project and is no secret; a user's file imports anything.
// R: W19
#[test]
fn claude_files_import_others_and_no_secrets() {
    let folder = Folder::new();
    folder.write("user/CLAUDE.md", "Mine. @more.md");
    folder.write("user/more.md", "more of mine");
    folder.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    let text = "@docs/a.md @.env @../user/more.md @~/.ssh/id_rsa @id_rsa.pem `@docs/no.md`";
    folder.write("repo/CLAUDE.md", text);
    folder.write("repo/docs/a.md", "a @b.md");
    folder.write("repo/docs/b.md", "b @a.md");
    folder.write("repo/docs/no.md", "no");
    folder.write("repo/.env", "SECRET=1");
    folder.write("repo/id_rsa.pem", "secret");
    folder.write("repo/CLAUDE.local.md", "local");
    folder.write("repo/.claude/rules/all.md", "for all");
    folder.write("repo/.claude/rules/deep/ts.md", "---\npaths: src/**/*.ts\n---\nfor ts");
    let (places, files) = folder.places("repo");
    let found = sources(&places, &files, &Patterns::default());
    assert_eq!(
        folder.origins(&found),
        [
            "user/CLAUDE.md",
            "user/more.md",
            "repo/CLAUDE.md",
            "repo/docs/a.md",
            "repo/docs/b.md",
            "repo/CLAUDE.local.md",
            "repo/.claude/rules/all.md",
        ]
    );
    let ts = folder.write("repo/src/a.ts", "");
    let found = touched(&places, &files, std::slice::from_ref(&ts));
    assert_eq!(folder.origins(&found), ["repo/.claude/rules/deep/ts.md"]);
    assert_eq!(found[0].text, "for ts");
    let rs = folder.write("repo/src/a.rs", "");
    assert!(touched(&places, &files, std::slice::from_ref(&rs)).is_empty());
}
