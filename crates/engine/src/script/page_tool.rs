//! The tool `open_page`, which only sessions with a scripted model have: a script can send the user to a page, as an MCP
//! server does.

use std::sync::{Arc, LazyLock};

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use serde_json::{Value, json};

use crate::ports::{
    Form, FormAnswer, Intent, Output, Page, Planned, Tool, ToolCx, ToolError, ToolSpec, Wait,
};
use crate::words::{Block, ToolContent, ToolKind};

/// Sends the user to a page.
#[derive(Debug, Clone, Copy)]
pub struct OpenPage;

impl Tool for OpenPage {
    fn spec(&self) -> Arc<ToolSpec> {
        // Needed for every call of any tool, and always the same.
        static SPEC: LazyLock<Arc<ToolSpec>> = LazyLock::new(|| {
            let properties = json!({ "url": { "type": "string" } });
            let schema =
                json!({ "type": "object", "properties": properties, "required": ["url"] }).into();
            let description = "Send the user to a page".to_owned();
            Arc::new(ToolSpec::new("open_page".to_owned(), description, schema))
        });
        Arc::clone(&SPEC)
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Think
    }

    fn plan<'a>(
        self: Arc<Self>,
        _: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<(Intent, Box<dyn Planned>), ToolError>> {
        let Some(url) = input["url"].as_str() else {
            let why = "`url` must be a string".to_owned();
            return future::ready(Err(ToolError::Model(why))).boxed();
        };
        let intent = Intent { title: format!("Open {url}"), ..Intent::default() };
        future::ready(Ok((intent, Box::new(OpenUrl(url.to_owned())) as Box<dyn Planned>))).boxed()
    }
}

/// The page that is about to be opened.
struct OpenUrl(String);

impl Planned for OpenUrl {
    fn wait(&self) -> Option<Wait> {
        None
    }

    fn run<'a>(self: Box<Self>, cx: &'a ToolCx<'a>) -> BoxFuture<'a, Result<Output, ToolError>> {
        async move {
            let page = Page { id: cx.id.to_string(), url: self.0 };
            let form = Form {
                message: "Please open this page".to_owned(),
                call: Some(cx.id.clone()),
                page: Some(page.clone()),
                fields: None,
            };
            Ok(match cx.or_cancelled(cx.editor.elicit(form)).await?? {
                FormAnswer::Text(_) | FormAnswer::Fields(_) => {
                    cx.editor.page_done(&page).await;
                    show("The user opened the page")
                }
                FormAnswer::Declined | FormAnswer::Cancelled => {
                    show("The user did not open the page")
                }
            })
        }
        .boxed()
    }
}

fn show(text: &str) -> Output {
    let content = Some(vec![ToolContent::Block(Block::Text(text.to_owned()))]);
    Output { content, text: text.to_owned(), raw: None }
}
