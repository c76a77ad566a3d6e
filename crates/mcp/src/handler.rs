//! What a server asks and tells us: its questions to the user, its progress, its changed lists.
//!
//! Nothing of this can change what is allowed. Sampling is refused: a server gets no use of the user's model.

#![expect(deprecated, reason = "servers of today still ask for roots and send log messages")]

use std::sync::Arc;

use engine::ports::{Form, FormAnswer, Page};
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationCapability, FormElicitationCapability, Implementation, ListRootsResult,
    LoggingMessageNotificationParam, ProgressNotificationParam, ProtocolVersion, Root,
    RootsCapabilities, UrlElicitationCapability,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use rmcp::{ClientHandler, ErrorData};
use serde_json::Value;

use crate::clean::{clean, clean_line};
use crate::server::Server;

/// Answers for one server.
pub(crate) struct Handler {
    pub(crate) server: Arc<Server>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        if !self.server.roots.is_empty() {
            capabilities.roots = Some(RootsCapabilities::default());
        }
        if let Some(editor) = self.server.editor() {
            let offers = editor.offers();
            let mut elicitation = ElicitationCapability::new();
            if offers.form {
                elicitation = elicitation.with_form(FormElicitationCapability::default());
            }
            if offers.page {
                elicitation = elicitation.with_url(UrlElicitationCapability::default());
            }
            capabilities.elicitation = (offers.form || offers.page).then_some(elicitation);
        }
        let name = Implementation::new("purlin", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(capabilities, name).with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        let root = |path: &std::path::PathBuf| {
            let uri = wire::acp::file_uri::encode(&path.to_string_lossy());
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let mut root = Root::new(uri);
            root.name = name;
            root
        };
        Ok(ListRootsResult::new(self.server.roots.iter().map(root).collect()))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let Some(editor) = self.server.editor() else {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        };
        // One at a time: a second question is turned down at once.
        let Ok(_turn) = self.server.questions.try_acquire() else {
            return Ok(ElicitResult::new(ElicitationAction::Cancel));
        };
        let asked = |message: &str| {
            format!("The MCP server `{}` asks: {}", self.server.name(), clean(message, 2000))
        };
        let (form, page) = match request {
            ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
                let fields = serde_json::to_value(requested_schema).ok();
                (Form { message: asked(&message), call: None, page: None, fields }, None)
            }
            ElicitRequestParams::UrlElicitationParams { message, url, elicitation_id, .. } => {
                if !url.starts_with("https://") && !url.starts_with("http://") {
                    return Ok(ElicitResult::new(ElicitationAction::Decline));
                }
                let page = Page { id: elicitation_id, url: clean_line(&url, 2000) };
                let form = Form {
                    message: asked(&message),
                    call: None,
                    page: Some(page.clone()),
                    fields: None,
                };
                (form, Some(page))
            }
            _ => return Ok(ElicitResult::new(ElicitationAction::Decline)),
        };
        let answer = tokio::select! {
            answer = editor.elicit(form) => answer,
            () = context.ct.cancelled() => return Ok(ElicitResult::new(ElicitationAction::Cancel)),
        };
        Ok(match answer {
            Ok(FormAnswer::Fields(fields)) => {
                ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(fields))
            }
            Ok(FormAnswer::Text(_)) if page.is_some() => {
                ElicitResult::new(ElicitationAction::Accept)
            }
            Ok(FormAnswer::Text(_) | FormAnswer::Declined) => {
                ElicitResult::new(ElicitationAction::Decline)
            }
            Ok(FormAnswer::Cancelled) | Err(_) => ElicitResult::new(ElicitationAction::Cancel),
        })
    }

    async fn on_progress(
        &self,
        news: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let mut text = match news.total {
            Some(total) if total > 0.0 => format!("{:.0} %", news.progress / total * 100.0),
            _ => format!("{}", news.progress),
        };
        if let Some(message) = &news.message {
            text = format!("{text} · {}", clean_line(message, 200));
        }
        self.server.tell_progress(&news.progress_token, text);
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.server.relist.notify_one();
    }

    async fn on_prompt_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.server.relist.notify_one();
    }

    async fn on_resource_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.server.relist.notify_one();
    }

    async fn on_logging_message(
        &self,
        message: LoggingMessageNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let text = match &message.data {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.server.log(format!("{}\n", clean_line(&text, 1000)).as_bytes());
    }
}
