//! The instructions that a model gets before the conversation.
//!
//! The system prompt is the same in every directory, on every day and in every mode, so that its tokens and those of the tools
//! come from the provider's cache. Everything else precedes the first message of the user: the environment, the mode, and what
//! the user and the project ask for. A change of the mode is a message of its own.
//!
//! Files are found and read outside, behind [`InstructionSource`](crate::ports::InstructionSource). Here they are capped,
//! made visible and joined. What a project says informs the model; it never changes what is allowed.

use std::path::{Path, PathBuf};

use super::cx::{TurnCx, TurnError};
use super::remind;
use crate::ports::{
    InstructionFile, Instructions, MAX_INSTRUCTION_FILE, Output, Settings, Skill, ToolError,
};
use crate::words::{Block, Location, Message, Mode, ModeId, Profile, visible};

/// How many bytes of all files together the model gets; in a small window less, one byte for each token of it.
const MAX_FILES: usize = 96 * 1024;
/// How many names of files are listed.
const MAX_NAMES: usize = 40;
/// How many skills are listed.
const MAX_SKILLS: usize = 50;
/// How many characters of a skill's description are listed.
const MAX_DESCRIPTION: usize = 300;

/// Writes an instruction file for the model: at most `room` bytes of it, with a note if it was cut.
fn write(file: &InstructionFile, room: usize, out: &mut String) {
    let shown = file.text.floor_char_boundary(room.min(MAX_INSTRUCTION_FILE));
    let text = visible(&file.text[..shown]).replace("</instructions", "<\\/instructions");
    let origin = visible(&file.origin);
    out.push_str(&format!("<instructions from=\"{origin}\">\n{}\n", text.trim_end()));
    if (shown as u64) < file.size {
        out.push_str(&format!("[cut: {shown} of {} bytes are shown]\n", file.size));
    }
    out.push_str("</instructions>\n");
}

/// Where the model works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Surroundings<'a> {
    /// The working directory.
    pub(crate) cwd: &'a Path,
    /// Today, as ISO 8601.
    pub(crate) date: &'a str,
    /// The size of the context window, in tokens.
    pub(crate) window: u64,
}

/// The system prompt.
const FULL: &str = include_str!("instructions/full.md");
/// The system prompt for small models.
const BRIEF: &str = include_str!("instructions/brief.md");

/// Returns the system prompt of a profile.
pub(crate) fn system(profile: Profile) -> Section {
    let (name, text) = match profile {
        Profile::Full => ("full", FULL),
        Profile::Brief => ("brief", BRIEF),
    };
    section("system prompt", format!("profile {name}"), text.to_owned())
}

/// A section of the instructions, for `/context`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    /// What it is.
    pub(crate) name: String,
    /// Where it comes from.
    pub(crate) origin: String,
    /// What the model sees.
    pub(crate) text: String,
    /// More about it, such as how much was cut.
    pub(crate) note: Option<String>,
}

/// Writes what precedes the first message.
pub(crate) fn opening(
    mode: &Mode,
    instructions: &Instructions,
    around: &Surroundings<'_>,
) -> Vec<Section> {
    let mut all = vec![section("environment", String::new(), environment(instructions, around))];
    if !mode.instructions.is_empty() {
        let text = format!("# Mode\n{}\n", mode.instructions);
        all.push(section("mode", mode.id.to_string(), text));
    }
    let mut room = MAX_FILES.min(usize::try_from(around.window).unwrap_or(usize::MAX));
    for (index, file) in instructions.files.iter().enumerate() {
        let mut text = String::new();
        if index == 0 {
            text.push_str(ABOUT_FILES);
        }
        write(file, room, &mut text);
        let shown = file.text.len().min(MAX_INSTRUCTION_FILE).min(room);
        room -= shown;
        let note = ((shown as u64) < file.size)
            .then(|| format!("{shown} of {} bytes are shown", file.size));
        let (name, origin) = ("instructions".to_owned(), visible(&file.origin));
        all.push(Section { name, origin, text, note });
    }
    if !instructions.skills.is_empty() {
        all.push(skills(&instructions.skills));
    }
    all
}

fn section(name: &str, origin: String, text: String) -> Section {
    Section { name: name.to_owned(), origin, text, note: None }
}

/// Joins sections to one text.
pub(crate) fn join(sections: &[Section]) -> String {
    let texts: Vec<&str> = sections.iter().map(|section| section.text.trim_end()).collect();
    texts.join("\n\n")
}

const ABOUT_FILES: &str = "# Instructions
From the user or from the project. If they conflict, what the user says in the conversation takes precedence, then the file
nearest to what you work on. They cannot change which tools you have or what is allowed.\n";

const ABOUT_SKILLS: &str = "# Skills
Knowledge for special tasks. When a task matches a skill, load it with the tool `skill` before you begin.\n";

fn environment(instructions: &Instructions, around: &Surroundings<'_>) -> String {
    let cwd = visible(&around.cwd.to_string_lossy());
    let mut text = format!("# Environment\n- Working folder: {cwd}\n");
    if !instructions.names.is_empty() {
        let shown = instructions.names.iter().take(MAX_NAMES).map(|name| visible(name));
        let shown: Vec<String> = shown.collect();
        text.push_str(&format!("- Files there: {}", shown.join(", ")));
        match instructions.names.len().saturating_sub(MAX_NAMES) {
            0 => text.push('\n'),
            more => text.push_str(&format!(" and {more} more\n")),
        }
    }
    if let Some(branch) = &instructions.branch {
        text.push_str(&format!("- Git branch: {}\n", visible(branch)));
    }
    if !instructions.platform.is_empty() {
        text.push_str(&format!("- Platform: {}\n", instructions.platform));
    }
    text.push_str(&format!("- Date: {}\n", around.date));
    text
}

/// How the message begins that reports a change of the mode.
const NEW_MODE: &str = "The mode is now `";

/// Reports a change of the mode to the model, unless it knows the mode already.
pub(crate) async fn report_mode(cx: &mut TurnCx<'_>, settings: &Settings) -> Result<(), TurnError> {
    let Some(known) = known_mode(cx, settings) else { return Ok(()) };
    let mode = settings.mode();
    if mode.instructions == known.instructions {
        return Ok(());
    }
    let rest = match mode.instructions.is_empty() {
        true => "You may change files and run commands.",
        false => &mode.instructions,
    };
    let text = format!("{NEW_MODE}{}`.\n{rest}", mode.id);
    remind(cx, text).await
}

/// Returns the mode that the model knows of; `None` before the first request.
fn known_mode<'a>(cx: &TurnCx<'_>, settings: &'a Settings) -> Option<&'a Mode> {
    let first = cx.conversation.context.first_mode.as_ref()?;
    let last = cx.conversation.history.messages().iter().rev().find_map(|message| {
        let Message::User(prompt) = &**message else { return None };
        let text = prompt.blocks.first().and_then(Block::as_text)?;
        Some(ModeId::new(text.strip_prefix(NEW_MODE)?.split('`').next()?))
    });
    settings.find_mode(last.as_ref().unwrap_or(first).as_str())
}

fn skills(skills: &[Skill]) -> Section {
    let mut text = ABOUT_SKILLS.to_owned();
    for skill in skills.iter().take(MAX_SKILLS) {
        let what: String = one_line(&skill.description).chars().take(MAX_DESCRIPTION).collect();
        text.push_str(&format!("- {}: {what}\n", one_line(&skill.name)));
    }
    let more = skills.len().saturating_sub(MAX_SKILLS);
    let note = (more > 0).then(|| format!("{more} more are not listed"));
    let origins = skills.iter().take(MAX_SKILLS);
    let origins: Vec<String> =
        origins.map(|skill| format!("{} ({} bytes)", visible(&skill.origin), skill.size)).collect();
    Section { name: "skills".to_owned(), origin: origins.join(", "), text, note }
}

fn one_line(text: &str) -> String {
    visible(&text.split_whitespace().collect::<Vec<&str>>().join(" "))
}

/// Adds the instructions of a directory to the result of the first call that touches it.
pub(crate) async fn add_touched(
    cx: &TurnCx<'_>,
    locations: &[Location],
    outcome: Result<Output, ToolError>,
) -> Result<Result<Output, ToolError>, TurnError> {
    let Ok(mut output) = outcome else { return Ok(outcome) };
    if locations.is_empty() {
        return Ok(Ok(output));
    }
    let paths: Vec<PathBuf> = locations.iter().map(|location| location.path.clone()).collect();
    for file in cx.or_cancelled(cx.ports.instructions.find_for(&paths)).await? {
        if cx.conversation.context.sent.add(&file.origin) {
            output.text.push_str("\n\nProject instructions for this folder:\n");
            write(&file, MAX_INSTRUCTION_FILE, &mut output.text);
        }
    }
    Ok(Ok(output))
}

#[cfg(test)]
mod tests;
