//! Tools for the scripted model. They do everything through the client, so a script can show each of its services.

use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::event::Event;
use crate::permission::Access;
use crate::ports::{
    AnyTool, EditorError, Form, FormAnswer, Intent, Output, Page, TerminalCommand, ToolCx,
    ToolError, ToolSpec,
};
use crate::words::{
    Block, Location, PlanEntry, PlanStatus, Priority, TerminalId, ToolContent, ToolKind,
};

/// Returns all of them.
#[must_use]
pub fn all() -> Arc<[Arc<dyn AnyTool>]> {
    let tools = [
        ScriptTool::ReadFile,
        ScriptTool::WriteFile,
        ScriptTool::RunCommand,
        ScriptTool::AskUser,
        ScriptTool::OpenPage,
        ScriptTool::MakePlan,
    ];
    tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn AnyTool>).collect()
}

/// A tool of the scripted model.
#[derive(Debug, Clone, Copy)]
enum ScriptTool {
    ReadFile,
    WriteFile,
    RunCommand,
    AskUser,
    OpenPage,
    MakePlan,
}

impl ScriptTool {
    /// Name, description and the text fields of the input.
    fn about(self) -> (&'static str, &'static str, &'static [&'static str]) {
        match self {
            ScriptTool::ReadFile => ("read_file", "Read a text file through the editor", &["path"]),
            ScriptTool::WriteFile => {
                ("write_file", "Write a text file through the editor", &["path", "content"])
            }
            ScriptTool::RunCommand => {
                ("run_command", "Run a shell command in a terminal of the editor", &["command"])
            }
            ScriptTool::AskUser => ("ask_user", "Ask the user a question", &["question"]),
            ScriptTool::OpenPage => ("open_page", "Send the user to a page", &["url"]),
            ScriptTool::MakePlan => ("make_plan", "Show a plan", &[]),
        }
    }
}

impl AnyTool for ScriptTool {
    fn spec(&self) -> Arc<ToolSpec> {
        let (name, description, fields) = self.about();
        let properties: serde_json::Map<String, Value> =
            fields.iter().map(|field| ((*field).to_owned(), json!({ "type": "string" }))).collect();
        let schema = json!({ "type": "object", "properties": properties, "required": fields });
        Arc::new(ToolSpec { name: name.to_owned(), description: description.to_owned(), schema })
    }

    fn kind(&self) -> ToolKind {
        match self {
            ScriptTool::ReadFile => ToolKind::Read,
            ScriptTool::WriteFile => ToolKind::Edit,
            ScriptTool::RunCommand => ToolKind::Execute,
            ScriptTool::AskUser | ScriptTool::OpenPage | ScriptTool::MakePlan => ToolKind::Think,
        }
    }

    fn intent<'a>(
        &'a self,
        cx: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<Intent, ToolError>> {
        async move {
            Ok(match self {
                ScriptTool::ReadFile => at("Read", path(input)?),
                ScriptTool::WriteFile => {
                    let path = path(input)?;
                    let access = vec![leave("edit", &path.to_string_lossy())];
                    let new = text(input, "content")?.to_owned();
                    let old = read_if_offered(cx, &path).await?;
                    let diff = ToolContent::Diff { path: path.clone(), old, new };
                    Intent { content: vec![diff], access, ..at("Write", path) }
                }
                ScriptTool::RunCommand => {
                    let title = text(input, "command")?.to_owned();
                    let access = vec![leave("bash", &title)];
                    Intent { title, access, ..Intent::default() }
                }
                ScriptTool::AskUser => {
                    Intent { title: text(input, "question")?.to_owned(), ..Intent::default() }
                }
                ScriptTool::OpenPage => {
                    Intent { title: format!("Open {}", text(input, "url")?), ..Intent::default() }
                }
                ScriptTool::MakePlan => {
                    Intent { title: "Make a plan".to_owned(), ..Intent::default() }
                }
            })
        }
        .boxed()
    }

    fn run<'a>(
        &'a self,
        cx: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<Output, ToolError>> {
        async move {
            match self {
                ScriptTool::ReadFile => {
                    let text = cx
                        .or_cancelled(cx.editor.read_text_file(
                            path(input)?,
                            number(input, "line"),
                            number(input, "limit"),
                        ))
                        .await??;
                    Ok(show(text))
                }
                ScriptTool::WriteFile => {
                    let content = text(input, "content")?.to_owned();
                    cx.or_cancelled(cx.editor.write_text_file(path(input)?, content)).await??;
                    Ok(Output { text: "written".to_owned(), content: None })
                }
                ScriptTool::RunCommand => run_command(cx, text(input, "command")?).await,
                ScriptTool::AskUser => ask_user(cx, text(input, "question")?).await,
                ScriptTool::OpenPage => open_page(cx, text(input, "url")?).await,
                ScriptTool::MakePlan => make_plan(cx, input).await,
            }
        }
        .boxed()
    }
}

/// Leave that is asked for once and, if the user wants, given for all of its kind.
fn leave(key: &str, subject: &str) -> Access {
    Access { always: Some("*".to_owned()), ..Access::ask(key, subject) }
}

fn at(verb: &str, path: PathBuf) -> Intent {
    let title = format!("{verb} {}", path.display());
    Intent {
        title,
        locations: vec![Location { path, line: None }],
        content: Vec::new(),
        access: Vec::new(),
    }
}

fn show(text: String) -> Output {
    Output { content: Some(vec![ToolContent::Block(Block::Text(text.clone()))]), text }
}

fn text<'a>(input: &'a Value, field: &str) -> Result<&'a str, ToolError> {
    input[field]
        .as_str()
        .ok_or_else(|| ToolError::Model(format!("the input needs a text `{field}`")))
}

fn number(input: &Value, field: &str) -> Option<u32> {
    input[field].as_u64().and_then(|number| u32::try_from(number).ok())
}

fn path(input: &Value) -> Result<PathBuf, ToolError> {
    let path = PathBuf::from(text(input, "path")?);
    if !path.is_absolute() {
        return Err(ToolError::Model("`path` must be an absolute path".to_owned()));
    }
    Ok(path)
}

/// The old text of a file for its diff; a file that is not there yet has none.
async fn read_if_offered(
    cx: &ToolCx<'_>,
    path: &std::path::Path,
) -> Result<Option<String>, ToolError> {
    match cx.or_cancelled(cx.editor.read_text_file(path.to_owned(), None, None)).await? {
        Ok(text) => Ok(Some(text)),
        Err(
            EditorError::FileNotFound(_) | EditorError::NotOffered(_) | EditorError::Refused(_),
        ) => Ok(None),
        Err(err) => Err(err.into()),
    }
}

async fn run_command(cx: &ToolCx<'_>, command: &str) -> Result<Output, ToolError> {
    let shell = TerminalCommand {
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), command.to_owned()],
        cwd: cx.cwd.to_owned(),
        output_limit: 100 * 1024,
    };
    let terminal = cx.or_cancelled(cx.editor.create_terminal(shell)).await??;
    let content = Some(vec![ToolContent::Terminal(terminal.clone())]);
    let update = crate::words::ToolUpdate { content, ..Default::default() };
    cx.show(Event::ToolUpdate(cx.id.clone(), Box::new(update))).await?;
    let ended = cx.or_cancelled(watch(cx, terminal.clone())).await;
    // Also after a cancel: a terminal that is not given back goes on running.
    cx.editor.release_terminal(terminal).await?;
    ended?
}

async fn watch(cx: &ToolCx<'_>, terminal: TerminalId) -> Result<Output, ToolError> {
    let status = cx.editor.wait_for_exit(terminal.clone()).await?;
    let output = cx.editor.terminal_output(terminal).await?;
    let ended = match (status.code, status.signal) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("ended by {signal}"),
        (None, None) => "ended".to_owned(),
    };
    Ok(Output { text: format!("{}\n({ended})", output.text), content: None })
}

async fn ask_user(cx: &ToolCx<'_>, question: &str) -> Result<Output, ToolError> {
    let form = Form { message: question.to_owned(), call: Some(cx.id.clone()), page: None };
    Ok(match cx.or_cancelled(cx.editor.elicit(form)).await?? {
        FormAnswer::Text(text) => show(text),
        FormAnswer::Declined => show("the user declined to answer".to_owned()),
        FormAnswer::Cancelled => show("the user closed the question".to_owned()),
    })
}

async fn open_page(cx: &ToolCx<'_>, url: &str) -> Result<Output, ToolError> {
    let page = Page { id: cx.id.to_string(), url: url.to_owned() };
    let form = Form {
        message: "Please open this page".to_owned(),
        call: Some(cx.id.clone()),
        page: Some(page.clone()),
    };
    Ok(match cx.or_cancelled(cx.editor.elicit(form)).await?? {
        FormAnswer::Text(_) => {
            cx.editor.page_done(&page).await;
            show("the user opened the page".to_owned())
        }
        FormAnswer::Declined | FormAnswer::Cancelled => {
            show("the user did not open the page".to_owned())
        }
    })
}

async fn make_plan(cx: &ToolCx<'_>, input: &Value) -> Result<Output, ToolError> {
    let Some(entries) = input["entries"].as_array() else {
        return Err(ToolError::Model("the input needs a list `entries`".to_owned()));
    };
    let steps = entries.iter().enumerate().filter_map(|(index, entry)| plan_entry(index, entry));
    cx.show(Event::Plan(steps.collect())).await?;
    Ok(Output { text: "shown".to_owned(), content: Some(Vec::new()) })
}

/// A step is a text, the first of them under way; or an object with `content`, `priority` and `status`.
fn plan_entry(index: usize, entry: &Value) -> Option<PlanEntry> {
    let content = entry.as_str().or_else(|| entry["content"].as_str())?.to_owned();
    let priority = match entry["priority"].as_str() {
        Some("high") => Priority::High,
        Some("low") => Priority::Low,
        _ => Priority::Medium,
    };
    let status = match entry["status"].as_str() {
        Some("completed") => PlanStatus::Completed,
        Some("in_progress") => PlanStatus::InProgress,
        None if index == 0 => PlanStatus::InProgress,
        _ => PlanStatus::Pending,
    };
    Some(PlanEntry { content, priority, status })
}
