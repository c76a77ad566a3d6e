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
struct Directory(
    PathBuf,
    #[expect(dead_code, reason = "removes the directory when dropped")] TempDir,
);

impl Directory {
    fn new() -> Directory {
        let directory = tempfile::tempdir().unwrap();
        Directory(directory.path().canonicalize().unwrap(), directory)
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
    let directory = Directory::new();
    directory.write("user/AGENTS.md", "mine");
    directory.write("AGENTS.md", "above the project");
    directory.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    directory.write("repo/AGENTS.md", "top");
    directory.write("repo/CLAUDE.md", "not read beside AGENTS.md");
    directory.write("repo/src/CLAUDE.md", "source");
    directory.write("repo/src/deep/AGENTS.md", "deep");
    directory.write("repo/docs/style.md", "style");
    directory.write("repo/docs/more.md", "more");
    directory.write("repo/src/own/rules.md", "rules");
    directory.write("outside.md", "not the project's");
    // A file that needs permission to read is not given to a model because a project names it.
    directory.write("repo/src/.env", "SECRET=1");
    directory.write("repo/.git/config", "[remote]");
    std::os::unix::fs::symlink(".env", directory.0.join("repo/src/own/link.md")).unwrap();
    let named =
        r#"{ "instructions": ["own/*.md", "../../outside.md", "~/x.md", ".e*", ".git/config"] }"#;
    directory.write("repo/src/purlin.json", named);
    let directories = Directories::default();
    let project =
        crate::Project::read(&directory.0.join("repo/src"), &directories, &crate::DiskReader);
    let (places, files) = directory.places("repo/src");
    let user = ["docs/s*.md".to_owned(), "**/more.md".to_owned(), "none/*".to_owned()].to_vec();
    let patterns = Patterns { user, project: project.instructions() };
    let all = sources(&places, &files, &patterns);
    assert_eq!(
        directory.origins(&all),
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
    let touch =
        |path: &str| directory.origins(&touched(&places, &files, &[directory.0.join(path)]));
    assert_eq!(touch("repo/src/deep/er/file.rs"), ["repo/src/deep/AGENTS.md"]);
    assert_eq!(touch("repo/src/main.rs"), [""; 0]);
    assert_eq!(touch("elsewhere/file"), [""; 0]);
}

// R: W19
#[test]
fn link_out_of_the_project_is_not_followed() {
    let directory = Directory::new();
    let secret = directory.write("secret/AGENTS.md", "a secret");
    directory.write("repo/.git/HEAD", "");
    directory.write("repo/real.md", "inside");
    std::os::unix::fs::symlink(&secret, directory.0.join("repo/AGENTS.md")).unwrap();
    std::os::unix::fs::symlink("real.md", directory.0.join("repo/CLAUDE.md")).unwrap();
    std::fs::create_dir_all(directory.0.join("repo/.purlin/skills")).unwrap();
    let skill = directory.write("secret/skill/SKILL.md", "---\nname: stolen\n---\n");
    let link = directory.0.join("repo/.purlin/skills/stolen");
    std::os::unix::fs::symlink(skill.parent().unwrap(), link).unwrap();
    let (places, files) = directory.places("repo");
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
    let directory = Directory::new();
    directory.write("repo/.git/HEAD", "");
    directory.write("repo/.env", "KEY=secret");
    directory.write("repo/notes.txt", "of others");
    std::os::unix::fs::symlink(".env", directory.0.join("repo/AGENTS.md")).unwrap();
    directory.write("repo/.purlin/skills/x/SKILL.md", "---\nname: x\n---\nDo it.");
    directory.write("repo/.purlin/skills/x/more.txt", "more");
    let link = directory.0.join("repo/.purlin/skills/x/e.txt");
    std::os::unix::fs::symlink("../../../notes.txt", link).unwrap();
    let (places, files) = directory.places("repo");
    assert_eq!(sources(&places, &files, &Patterns::default()), []);
    let load = |file: &str| skills::load(&places, &files, "x", file);
    assert!(load("more.txt").unwrap().starts_with("more"));
    let refused = load("e.txt").unwrap_err();
    assert_eq!(refused, "`e.txt` is not in the skill's folder");
}

#[test]
fn nearest_skill_of_a_name_is_listed() {
    let directory = Directory::new();
    directory.write("user/skills/mine/SKILL.md", "---\ndescription: Of the user\n---\nDo it.");
    directory.write("user/skills/both/SKILL.md", "---\nname: both\ndescription: far\n---\n");
    directory.write("repo/.claude/skills/b/SKILL.md", "---\nname: both\ndescription: near\n---\n");
    directory.write("repo/.opencode/skill/none/README.md", "no skill");
    let (places, files) = directory.places("repo");
    let all = skills::find(&places, &files);
    let listed: Vec<(&str, &str)> =
        all.iter().map(|skill| (skill.name.as_str(), skill.description.as_str())).collect();
    assert_eq!(listed, [("mine", "Of the user"), ("both", "near")]);
}

/// A project's file imports what lies in the project and is no secret; a user's file imports anything.
// R: W19
#[test]
fn claude_files_import_others_and_no_secrets() {
    let directory = Directory::new();
    directory.write("user/CLAUDE.md", "Mine. @more.md");
    directory.write("user/more.md", "more of mine");
    directory.write("repo/.git/HEAD", "ref: refs/heads/main\n");
    let text = "@docs/a.md @.env @../user/more.md @~/.ssh/id_rsa @id_rsa.pem `@docs/no.md`";
    directory.write("repo/CLAUDE.md", text);
    directory.write("repo/docs/a.md", "a @b.md");
    directory.write("repo/docs/b.md", "b @a.md");
    directory.write("repo/docs/no.md", "no");
    directory.write("repo/.env", "SECRET=1");
    directory.write("repo/id_rsa.pem", "secret");
    directory.write("repo/CLAUDE.local.md", "local");
    directory.write("repo/.claude/rules/all.md", "for all");
    directory.write("repo/.claude/rules/deep/ts.md", "---\npaths: src/**/*.ts\n---\nfor ts");
    let (places, files) = directory.places("repo");
    let found = sources(&places, &files, &Patterns::default());
    assert_eq!(
        directory.origins(&found),
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
    let ts = directory.write("repo/src/a.ts", "");
    let found = touched(&places, &files, std::slice::from_ref(&ts));
    assert_eq!(directory.origins(&found), ["repo/.claude/rules/deep/ts.md"]);
    assert_eq!(found[0].text, "for ts");
    let rs = directory.write("repo/src/a.rs", "");
    assert!(touched(&places, &files, std::slice::from_ref(&rs)).is_empty());
}
