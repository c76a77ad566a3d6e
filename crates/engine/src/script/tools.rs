//! What scripts need beyond the built-in tools: a page for the user to open.

use std::sync::{Arc, LazyLock};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use crate::ports::{AnyTool, Form, FormAnswer, Intent, Output, Page, ToolCx, ToolError, ToolSpec};
use crate::words::{Block, ToolContent, ToolKind};

/// Sends the user to a page.
#[derive(Debug, Clone, Copy)]
pub struct OpenPage;

impl AnyTool for OpenPage {
    fn spec(&self) -> Arc<ToolSpec> {
        // Asked for with every call of any tool, and always the same.
        static SPEC: LazyLock<Arc<ToolSpec>> = LazyLock::new(|| {
            let properties = json!({ "url": { "type": "string" } });
            let schema =
                json!({ "type": "object", "properties": properties, "required": ["url"] }).into();
            let description = "Send the user to a page".to_owned();
            Arc::new(ToolSpec { name: "open_page".to_owned(), description, schema })
        });
        Arc::clone(&SPEC)
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Think
    }

    fn intent<'a>(
        &'a self,
        _: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<Intent, ToolError>> {
        async move { Ok(Intent { title: format!("Open {}", url(input)?), ..Intent::default() }) }
            .boxed()
    }

    fn run<'a>(
        &'a self,
        cx: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, Result<Output, ToolError>> {
        async move {
            let page = Page { id: cx.id.to_string(), url: url(input)?.to_owned() };
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
        .boxed()
    }
}

fn show(text: String) -> Output {
    Output { content: Some(vec![ToolContent::Block(Block::Text(text.clone()))]), text, raw: None }
}

fn url(input: &Value) -> Result<&str, ToolError> {
    let missing = || ToolError::Model("the input needs a text `url`".to_owned());
    input["url"].as_str().ok_or_else(missing)
}
