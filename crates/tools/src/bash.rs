//! `bash`: runs a command in the sandbox, in the editor's terminal if it has one, else in a shell of ours.
//!
//! This file says what a command needs leave for. `input` is what the model says of it, `run` runs it here, `client` lets
//! the editor run it, `output` keeps what it says; `repositories` finds what git would run, `git_redirects` what points
//! it elsewhere; `extra_permissions` is what a command may have beyond the sandbox, `outside` the folders among that. What the sandbox holds back is in `process::sandbox`.

mod captured_run;
mod client;
mod extra_permissions;
mod git_redirects;
mod input;
mod output;
mod outside;
mod repositories;
mod requirement;
mod run;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use engine::permission::Access;
use engine::ports::{Intent, Outline, Output, Planned, Tool, ToolCx, ToolError, ToolSpec};
use engine::words::visible;
use engine::words::{Block, ToolContent, ToolFailure, ToolKind};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use process::sandbox::{Found, Level, Limits, Network, Profile, Sandbox};
use serde_json::Value;

use git_redirects::GitRedirects;
use input::{Input, spec};
use shell::{NeedKind, Verdict};

pub use captured_run::{CapturedRun, Ran};
pub use extra_permissions::ExtraPermissions;
pub use output::Plain;
pub use requirement::Requirement;
pub(crate) use requirement::folder_rule;

/// What the commands of one session get.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folders of the session: what commands may write to.
    pub folders: Vec<PathBuf>,
    /// Our own configuration and data: hidden, and not to be made where they would lie in the folders.
    pub own: Arc<[PathBuf]>,
    /// Other places that commands must not see.
    pub hidden: Arc<[PathBuf]>,
    /// Where programs are looked for. Parts inside the folders are left out: a project must not replace a program.
    pub search: Arc<[PathBuf]>,
    /// The environment, besides the search path.
    pub environment: Arc<[(String, String)]>,
    /// Where long outputs are kept, if anywhere.
    pub outputs: Option<PathBuf>,
}

/// The tool.
#[derive(Debug)]
pub struct Bash {
    sandbox: Arc<Sandbox>,
    options: Options,
    /// The session's folders, where they really were when it was opened.
    folders: Vec<PathBuf>,
    /// Whether the client announced terminals and answered that it has none.
    has_no_terminals: AtomicBool,
}

/// A planned call: what the user was asked for, and runs at most with that.
struct PlannedCommand {
    bash: Arc<Bash>,
    input: Input,
    level: Level,
    /// The folders outside that the user was asked for.
    outside: Vec<PathBuf>,
    /// The `.git` that the user was asked to let it make.
    new_git: Option<PathBuf>,
}

impl Bash {
    /// Makes the tool of one session.
    #[must_use]
    pub fn new(sandbox: Arc<Sandbox>, options: Options) -> Bash {
        // Once: what a link leads to later is not what the session was opened for.
        let real = |folder: &PathBuf| folder.canonicalize().unwrap_or_else(|_| folder.clone());
        let folders = options.folders.iter().map(real).collect();
        Bash { sandbox, options, folders, has_no_terminals: AtomicBool::default() }
    }

    /// Lets our own shell run every command, for a folder that the client does not have.
    #[must_use]
    pub fn without_terminals(self) -> Bash {
        self.has_no_terminals.store(true, Ordering::Relaxed);
        self
    }

    /// Says what a command needs leave for, in this sandbox.
    ///
    /// # Errors
    /// Says why it cannot be run, whoever agrees.
    pub async fn access_of(&self, cwd: &Path, command: &str) -> Result<Vec<Access>, String> {
        let level = self.sandbox.found().await.level;
        let needed = self.requirements(cwd, command, &ExtraPermissions::default(), level)?;
        Ok(needed.into_iter().map(|one| one.access).collect())
    }

    /// Says what a command needs leave for at a level of the sandbox, and why. Where nothing holds it back, nothing goes
    /// without asking.
    ///
    /// # Errors
    /// Says why it cannot be run, whoever agrees.
    pub fn requirements(
        &self,
        cwd: &Path,
        command: &str,
        extra: &ExtraPermissions,
        level: Level,
    ) -> Result<Vec<Requirement>, String> {
        let outside = self.outside(&extra.write_outside, level)?;
        let mut writable = outside::own_places(level);
        writable.extend_from_slice(&outside);
        let is_sandboxed = level.confines();
        let at = shell::Context {
            cwd,
            roots: &self.options.folders,
            own: &self.options.own,
            home: self.home(),
            is_sandboxed,
            writable: &writable,
            real: &shell::real,
            is_deceptive: engine::words::deceives,
        };
        let mut needs = shell::needs(command, &at);
        if let Some(need) = needs.iter().find(|need| need.default == Verdict::Reject) {
            return Err(format!(
                "it cannot write to {}, which is outside the session's folders: name the folder in `write_outside`, or \
                 use `write`",
                need.subject
            ));
        }
        for (is_requested, kind, why) in [
            (extra.network, NeedKind::Network, "the command is to have the network"),
            (extra.git, NeedKind::Git, "the command is to change .git"),
            (!is_sandboxed, NeedKind::Unsandboxed, "there is no sandbox"),
        ] {
            if is_requested {
                shell::require_extra(&mut needs, command, kind, why);
            }
        }
        let mut needed: Vec<Requirement> = needs.into_iter().map(Requirement::from).collect();
        for folder in outside.iter().map(|folder| folder.to_string_lossy()) {
            let requirement = |access, why: &str| Requirement { access, why: why.to_owned() };
            // Rules that forbid what is outside apply to it, too.
            let around = Access::allow("external_directory", folder.clone());
            needed.push(requirement(around, "it is asked for by itself"));
            let access = Access { is_shown: true, ..Access::ask("write_outside", folder) };
            needed.push(requirement(access, "the command is to write there"));
        }
        Ok(needed)
    }

    fn home(&self) -> Option<&Path> {
        let home = self.options.environment.iter().find(|(name, _)| name == "HOME");
        home.map(|(_, home)| Path::new(home))
    }

    /// The repositories that a command may change.
    fn open_repositories(&self, input: &Input) -> Vec<PathBuf> {
        if !input.extra.git {
            return Vec::new();
        }
        let mut open = self.profile(input).writable;
        open.retain(|place| !self.folders.contains(place) && !input.outside.contains(place));
        open
    }

    /// What a command may touch.
    fn profile(&self, input: &Input) -> Profile {
        let (folders, Options { own, hidden, .. }) = (&self.folders, &self.options);
        let mut protected = own.to_vec();
        // A session in our own folders has none of them.
        let own_real: Vec<PathBuf> = own.iter().filter_map(|own| own.canonicalize().ok()).collect();
        let is_ours = |folder: &PathBuf| own_real.iter().any(|own| folder.starts_with(own));
        let mut writable: Vec<PathBuf> =
            folders.iter().filter(|folder| !is_ours(folder)).cloned().collect();
        writable.extend_from_slice(&input.outside);
        protected.extend(self.program_in(&input.outside));
        let all: Vec<PathBuf> = folders.iter().chain(&input.outside).cloned().collect();
        let top = all.iter().map(|folder| folder.join(".git"));
        // Those outside by themselves: a large one is not to use up how much is looked into.
        let inside = [folders, &input.outside].map(|folders| repositories::inside(folders));
        for git in top.chain(inside.into_iter().flatten()) {
            if input.new_git.as_ref() == Some(&git) {
                continue;
            }
            // A `.git` file stays as it is, and what it names is as good as a folder in its place.
            let real = match repositories::named_by(&git, &all) {
                Some(named) => {
                    protected.push(git);
                    named
                }
                None => git,
            };
            if input.extra.git && real.is_dir() {
                // What runs by itself, or decides what does, stays as it is; mounted by itself, it cannot be moved away with
                // them.
                protected.extend(repositories::deciding(&real));
                writable.push(real.canonicalize().unwrap_or(real));
            } else {
                protected.push(real);
            }
        }
        for git in self.around(input) {
            protected.extend(repositories::deciding(&git));
            writable.push(git.canonicalize().unwrap_or(git));
        }
        Profile {
            protected,
            hidden: hidden.iter().chain(&**own).cloned().collect(),
            network: if input.extra.network { Network::On } else { Network::Off },
            limits: Limits::default(),
            ..Profile::writing_to(writable)
        }
    }

    /// Tells whether the editor runs a command. Where only our own shell can be restricted, ours does.
    fn uses_terminal(&self, cx: &ToolCx<'_>, level: Level) -> bool {
        let is_offered =
            cx.editor.offers().terminal && !self.has_no_terminals.load(Ordering::Relaxed);
        is_offered && (cfg!(target_os = "linux") || !level.confines())
    }

    /// The repositories outside the session's folders that a command may change, if it asks for that.
    fn around(&self, input: &Input) -> Vec<PathBuf> {
        if input.extra.git { repositories::around(&self.options.folders) } else { Vec::new() }
    }

    /// The `.git` of the working folder that a command may make, if it asks for that and there is no repository yet.
    fn new_git(&self, input: &Input) -> Option<PathBuf> {
        let folder = self.folders.first().filter(|_| input.extra.git)?;
        repositories::missing(folder)
    }

    /// Says what a command wants with repositories.
    fn git_words(&self, input: &Input, new: Option<&Path>) -> String {
        let around = self.around(input);
        let change = match around.is_empty() {
            true => "to change .git".to_owned(),
            false => format!("to change {}", extra_permissions::list(&around)),
        };
        let Some(folder) = new.and_then(Path::parent) else { return change };
        let folder = folder.display();
        let make =
            format!("to make a repository in {folder} (.git, with its hooks and configuration)");
        let others = self.folders[1..].iter().any(|folder| folder.join(".git").exists());
        if others || !around.is_empty() || !repositories::inside(&self.folders).is_empty() {
            return format!("{change}, and {make}");
        }
        make
    }
}

impl Tool for Bash {
    fn spec(&self) -> Arc<ToolSpec> {
        // Asked for with every call of any tool, and always the same.
        static SPEC: LazyLock<Arc<ToolSpec>> = LazyLock::new(spec);
        Arc::clone(&SPEC)
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Execute
    }

    /// The first line of the command.
    fn outline(&self, input: &Value) -> Outline {
        let line = input["command"].as_str().and_then(|text| text.lines().next());
        let title = line.map_or("bash".to_owned(), |line| line.chars().take(TITLE_END).collect());
        Outline { title, paths: Vec::new() }
    }

    fn plan<'a>(
        self: Arc<Self>,
        cx: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<(Intent, Box<dyn Planned>), ToolError>> {
        async move {
            let input = Input::read(input)?;
            let offers = cx.editor.offers();
            let level = self.sandbox.found().await.level;
            let needed = self.requirements(cx.cwd, &input.command, &input.extra, level);
            let access: Vec<Access> =
                needed.map_err(not_run)?.into_iter().map(|one| one.access).collect();
            let outside = self.outside(&input.extra.write_outside, level).map_err(not_run)?;
            let mut content = Vec::new();
            if offers.live && !self.uses_terminal(cx, level) {
                content.push(ToolContent::Live { cwd: cx.cwd.to_owned() });
            }
            let reason = input.reason.as_deref();
            let new_git = self.new_git(&input);
            let git = self.git_words(&input, new_git.as_deref());
            let words = input.extra.words(&git, &outside, reason);
            content.extend(words.map(|words| ToolContent::Block(Block::Text(words))));
            let command = visible(&input.command);
            let title = title_of(&command);
            if title != command {
                content.push(ToolContent::Block(Block::Text(command)));
            }
            let planned = PlannedCommand { bash: self, input, level, outside, new_git };
            let intent = Intent { title, content, access, ..Intent::default() };
            Ok((intent, Box::new(planned) as Box<dyn Planned>))
        }
        .boxed()
    }
}

impl PlannedCommand {
    /// Finds the sandbox to run in. It must restrict no less, and the folders outside must be no others, than when the
    /// user was asked.
    async fn find_sandbox(&mut self) -> Result<Arc<Found>, ToolError> {
        let found = self.bash.sandbox.found().await;
        if self.level.confines() && !found.level.confines() {
            return Err(not_run(
                "the sandbox it was to run in is gone. Call it again, and the user is asked",
            ));
        }
        let wanted = &self.input.extra.write_outside;
        let outside = self.bash.outside(wanted, found.level).map_err(not_run)?;
        if outside != self.outside {
            return Err(not_run(
                "a folder of `write_outside` is not where it was when the user was asked",
            ));
        }
        self.input.outside = outside;
        let new_git = self.bash.new_git(&self.input);
        self.input.new_git = new_git.filter(|git| self.new_git.as_ref() == Some(git));
        Ok(found)
    }

    async fn run(mut self, cx: &ToolCx<'_>) -> Result<Output, ToolError> {
        let found = self.find_sandbox().await?;
        let (bash, input) = (&self.bash, &self.input);
        let before = repositories::inside(&bash.options.folders);
        // However the command ends.
        let redirects = GitRedirects::of(bash.open_repositories(input));
        let is_there = bash.uses_terminal(cx, found.level);
        let there = if is_there { bash.run_in_terminal(cx, input, &found).await? } else { None };
        let mut output = match there {
            Some(output) => output,
            // What was to run in a terminal of the client was not announced as live.
            None => {
                let is_live = cx.editor.offers().live && !is_there;
                bash.run_here(cx, input, &found, is_live).await?
            }
        };
        if found.level.confines() && is_held_back(&output.text) {
            output.text.push_str(HELD_BACK);
        }
        let put_back = redirects.restore();
        if !put_back.is_empty() {
            let paths: Vec<String> =
                put_back.iter().map(|path| path.display().to_string()).collect();
            output.text.push_str(&format!(
                "\n(put back as it was, because it leads git to another configuration: {})",
                paths.join(", ")
            ));
        }
        if let Some(made) = repositories::made(&before, &bash.options.folders) {
            output.text.push_str(&made);
        }
        Ok(output)
    }
}

impl Planned for PlannedCommand {
    fn run<'a>(self: Box<Self>, cx: &'a ToolCx<'a>) -> BoxFuture<'a, Result<Output, ToolError>> {
        PlannedCommand::run(*self, cx).boxed()
    }
}

/// Tells whether a program complains that it cannot write, as it does where the sandbox holds it back.
fn is_held_back(text: &str) -> bool {
    let signs = ["Read-only file system", ".git/config: Device or resource busy"];
    signs.iter().any(|sign| text.contains(sign))
}

/// What a model is told then.
const HELD_BACK: &str = "\n(the sandbox lets commands write to the session's folders only; for .git say `git`, with which its \
    hooks and configuration stay as they are, for a folder elsewhere `write_outside`, and give the `reason`)";

/// Says why a command is not run.
fn not_run(why: impl Display) -> ToolError {
    ToolError::Model(format!("the command was not run: {why}"))
}

/// How much of a command is its title, from either end, in characters and lines. The rest would stand out of sight.
const TITLE_END: usize = 200;
const TITLE_LINES: usize = 6;

/// Returns a title of a command that shows how it begins and ends: a long one is left out in the middle.
fn title_of(command: &str) -> String {
    let count = command.chars().count();
    let lines = command.lines().count();
    if count <= 2 * TITLE_END && lines <= 2 * TITLE_LINES {
        return command.to_owned();
    }
    let start: String = command.chars().take(TITLE_END).collect();
    let start = start.lines().take(TITLE_LINES).collect::<Vec<_>>().join("\n");
    let end: String = command.chars().skip(count - TITLE_END.min(count)).collect();
    let last = end.lines().count().saturating_sub(TITLE_LINES);
    let end = end.lines().skip(last).collect::<Vec<_>>().join("\n");
    let left = count - start.chars().count() - end.chars().count();
    format!(
        "{start}\n… {left} of {count} characters are left out here; the whole command is below …\n{end}"
    )
}

/// What the model is told when a command did not end by itself. The user, who saw the output in a terminal, is told only why.
fn took_too_long(input: &Input, output: &str, terminal: Option<ToolContent>) -> ToolError {
    let seconds = input.timeout.as_secs_f64();
    let why = format!(
        "The command was ended after {seconds} seconds (timeout). It has no input and no terminal, so a command that \
         prompts or never ends cannot work; set a longer `timeout` if it only needs more time"
    );
    let text = format!("{why}\n{output}").trim_end().to_owned();
    let content = terminal.map(|terminal| vec![terminal, ToolContent::Block(Block::Text(why))]);
    ToolError::Failed { failure: Some(ToolFailure::TimedOut), text, content }
}

/// Joins a search path for commands in these folders.
fn search_path(search: &[PathBuf], folders: &[PathBuf]) -> String {
    let is_safe = |part: &&PathBuf| {
        let real = part.canonicalize();
        let is_inside = |part: &Path| folders.iter().any(|folder| part.starts_with(folder));
        part.is_absolute() && !is_inside(part) && !real.is_ok_and(|real| is_inside(&real))
    };
    let mut parts: Vec<String> = Vec::new();
    let system = SYSTEM_PATH.split(':').map(PathBuf::from).collect::<Vec<_>>();
    for part in search.iter().filter(is_safe).chain(&system) {
        let Some(part) = part.to_str().filter(|part| !part.contains(':')) else { continue };
        if !parts.iter().any(|known| known == part) {
            parts.push(part.to_owned());
        }
    }
    parts.join(":")
}

/// Where the programs of every system are.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The tool of a session in these folders. Hidden is `secret` in the home folder, our own is `own` in it.
    pub(super) fn bash(top: &Path, folders: &[&Path], home: Option<&Path>) -> Bash {
        let in_home = |name: &str| home.map(|home| home.join(name)).into_iter().collect();
        let home = home.map(|home| ("HOME".to_owned(), home.display().to_string()));
        let options = Options {
            folders: folders.iter().map(|folder| (*folder).to_owned()).collect(),
            own: in_home("own"),
            hidden: in_home("secret"),
            search: Arc::new([]),
            environment: home.into_iter().collect(),
            outputs: None,
        };
        let sandbox = Sandbox::new(top.join("helper"), top.join("scratch"));
        Bash::new(Arc::new(sandbox), options)
    }

    #[test]
    fn a_complaint_about_the_sandbox_is_known() {
        for said in [
            "touch: cannot touch '/usr/x': Read-only file system",
            "error: could not write config file .git/config: Device or resource busy",
        ] {
            assert!(is_held_back(said), "{said}");
        }
        assert!(!is_held_back("rm: cannot remove 'x': Device or resource busy"));
    }

    // R: T7
    // Fault: T23
    #[test]
    fn a_project_cannot_put_itself_on_the_search_path() {
        let folders = [PathBuf::from("/w")];
        let search = ["/w/node_modules/.bin", "bin", ".", "", "/home/u/.cargo/bin", "/usr/bin"];
        let path = search_path(&search.map(PathBuf::from), &folders);
        let expected =
            "/home/u/.cargo/bin:/usr/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin:/bin";
        assert_eq!(path, expected);
    }

    // R: T7
    #[test]
    fn a_repository_beside_its_git_file_is_protected_with_it() {
        let top = std::env::temp_dir().join(format!("bash-beside-{}", std::process::id()));
        std::fs::create_dir_all(top.join("repo")).unwrap();
        std::fs::write(top.join(".git"), "gitdir: repo\n").unwrap();
        let top = top.canonicalize().unwrap();
        let bash = bash(&top, &[&top], None);
        let at = |paths: &[&str]| paths.iter().map(|path| top.join(path)).collect::<Vec<_>>();
        let plain = bash.profile(&Input::plain("ls", Duration::ZERO));
        assert_eq!(plain.protected, at(&[".git", "repo"]));
        let extra = ExtraPermissions { git: true, ..ExtraPermissions::default() };
        let git = bash.profile(&Input { extra, ..Input::plain("ls", Duration::ZERO) });
        assert_eq!(git.protected, at(&[".git", "repo/hooks", "repo/config"]));
        assert!(git.writable.contains(&top.join("repo")));
        std::fs::remove_dir_all(&top).unwrap();
    }

    // R: T2
    #[test]
    fn a_long_command_shows_both_its_ends() {
        for short in ["ls", &"x".repeat(400), &"a\n".repeat(12)] {
            assert_eq!(title_of(short), short);
        }
        let spaces = format!("ls{}; rm -rf x", " ".repeat(5000));
        let title = title_of(&spaces);
        assert!(title.starts_with("ls ") && title.ends_with("; rm -rf x"), "{title}");
        assert!(title.contains("… 4612 of 5012 characters are left out"), "{title}");
        let lines = format!("ls{}rm -rf x", "\n".repeat(50));
        let title = title_of(&lines);
        assert!(title.ends_with("rm -rf x") && title.lines().count() <= 13, "{title}");
        let long_last = format!("ls\n{}; rm -rf x", "é".repeat(1000));
        assert!(title_of(&long_last).ends_with("; rm -rf x"));
    }
}
