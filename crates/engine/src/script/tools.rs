//! What scripts need beyond the built-in tools: a terminal of the client, and a page for the user to open.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::event::Event;
use crate::permission::Access;
use crate::ports::{
    AnyTool, Form, FormAnswer, Intent, Output, Page, TerminalCommand, ToolCx, ToolError, ToolSpec,
};
use crate::words::{Block, TerminalId, ToolContent, ToolKind};

/// Returns all of them.
#[must_use]
pub fn all() -> Vec<Arc<dyn AnyTool>> {
    let tools = [ScriptTool::RunCommand, ScriptTool::OpenPage];
    tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn AnyTool>).collect()
}

/// A tool of the scripted model.
#[derive(Debug, Clone, Copy)]
enum ScriptTool {
    RunCommand,
    OpenPage,
}

impl ScriptTool {
    /// Name, description and the one field of the input.
    fn about(self) -> (&'static str, &'static str, &'static str) {
        match self {
            ScriptTool::RunCommand => {
                ("run_command", "Run a shell command in a terminal of the editor", "command")
            }
            ScriptTool::OpenPage => ("open_page", "Send the user to a page", "url"),
        }
    }
}

impl AnyTool for ScriptTool {
    fn spec(&self) -> Arc<ToolSpec> {
        let (name, description, field) = self.about();
        let properties = json!({ field: { "type": "string" } });
        let schema = json!({ "type": "object", "properties": properties, "required": [field] });
        Arc::new(ToolSpec { name: name.to_owned(), description: description.to_owned(), schema })
    }

    fn kind(&self) -> ToolKind {
        match self {
            ScriptTool::RunCommand => ToolKind::Execute,
            ScriptTool::OpenPage => ToolKind::Think,
        }
    }

    fn intent<'a>(
        &'a self,
        _: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<Intent, ToolError>> {
        async move {
            Ok(match self {
                ScriptTool::RunCommand => {
                    let title = text(input, "command")?.to_owned();
                    let always = Some("*".to_owned());
                    let access = vec![Access { always, ..Access::ask("bash", title.clone()) }];
                    Intent { title, access, ..Intent::default() }
                }
                ScriptTool::OpenPage => {
                    Intent { title: format!("Open {}", text(input, "url")?), ..Intent::default() }
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
                ScriptTool::RunCommand => run_command(cx, text(input, "command")?).await,
                ScriptTool::OpenPage => open_page(cx, text(input, "url")?).await,
            }
        }
        .boxed()
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

async fn open_page(cx: &ToolCx<'_>, url: &str) -> Result<Output, ToolError> {
    let page = Page { id: cx.id.to_string(), url: url.to_owned() };
    let form = Form {
        message: "Please open this page".to_owned(),
        call: Some(cx.id.clone()),
        page: Some(page.clone()),
        fields: None,
    };
    Ok(match cx.or_cancelled(cx.editor.elicit(form)).await?? {
        FormAnswer::Text(_) | FormAnswer::Fields(_) => {
            cx.editor.page_done(&page).await;
            show("the user opened the page".to_owned())
        }
        FormAnswer::Declined | FormAnswer::Cancelled => {
            show("the user did not open the page".to_owned())
        }
    })
}
