//! The host: serves the calls that an agent makes to its client.
//!
//! Files, terminals, permission, elicitation. The task that reads the agent's output owns the host: [`Host::serve`]
//! returns at once, and the work is done by the future that it returns. Asking a person is left to the owner of the
//! connection, through [`Permission::Ask`].

mod files;
mod plain;
mod roots;
mod terminals;
mod writes;

use std::future::{Future, ready};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use process::TerminalSize;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use wire::acp::schema;
use wire::{Code, RpcError};

use roots::Roots;
pub use terminals::TerminalOutput;
use terminals::Terminals;
use writes::Writes;

/// The future that serves one call.
pub type HostReply = Pin<Box<dyn Future<Output = Result<Box<RawValue>, RpcError>> + Send>>;

/// What the host offers, and who decides about permission.
#[derive(Debug)]
pub struct HostOptions {
    /// Whether the host reads and writes files for the agent.
    pub files: bool,
    /// Whether the host runs commands for the agent.
    pub terminals: bool,
    /// The working directory of commands that do not name one.
    pub cwd: PathBuf,
    /// Who answers when the agent asks for permission.
    pub permission: Permission,
}

/// Who answers when the agent asks for permission.
#[derive(Debug, Clone)]
pub enum Permission {
    /// Every request is allowed, once each.
    AllowOnce,
    /// Every request is rejected.
    Reject,
    /// The receiver of this channel decides. When the channel is full, the agent waits.
    Ask(mpsc::Sender<PermissionQuestion>),
}

/// A permission request of the agent. Dropping it answers that the turn was cancelled.
#[derive(Debug)]
pub struct PermissionQuestion {
    /// What the agent wants to do, and the options to choose from.
    pub request: schema::RequestPermissionRequest,
    /// Receives the answer.
    pub answer: oneshot::Sender<schema::RequestPermissionOutcome>,
}

/// A question of the agent to the user that is not about permission. Dropping it answers that it was cancelled.
#[derive(Debug)]
pub struct FormQuestion {
    /// What is asked.
    pub request: schema::CreateElicitationRequest,
    /// Receives the answer.
    pub answer: oneshot::Sender<schema::CreateElicitationResponse>,
}

/// Serves the calls of one agent. Dropping it kills the commands in its terminals.
#[derive(Debug)]
pub struct Host {
    options: HostOptions,
    terminals: Terminals,
    forms: Option<mpsc::Sender<FormQuestion>>,
    roots: Option<Arc<Roots>>,
    /// The files that a tool call was allowed to change, if other writes are asked for.
    writes: Option<Writes>,
    has_login: bool,
    meta: Option<schema::Meta>,
}

impl Host {
    /// Creates a host. Needs a tokio runtime once a terminal is created.
    #[must_use]
    pub fn new(options: HostOptions) -> Host {
        let terminals = Terminals::new(options.cwd.clone());
        Host {
            options,
            terminals,
            forms: None,
            roots: None,
            writes: None,
            has_login: false,
            meta: None,
        }
    }

    /// Passes the agent's questions to the receiver of this channel. When the channel is full, the agent waits.
    #[must_use]
    pub fn with_forms(mut self, forms: mpsc::Sender<FormQuestion>) -> Host {
        self.forms = Some(forms);
        self
    }

    /// Serves only files below these directories without a question. For others, and for files that usually hold secrets, the
    /// user is asked; without a user, they are refused.
    #[must_use]
    pub fn with_roots(mut self, roots: Vec<PathBuf>) -> Host {
        self.roots = Some(Arc::new(Roots::new(roots)));
        self
    }

    /// Asks for each write, as an editor does for an edit. A write to a file that a tool call names has the permission that was
    /// just given to that call.
    #[must_use]
    pub fn with_asked_writes(mut self) -> Host {
        self.writes = Some(Writes::default());
        self
    }

    /// Sends what the commands in our terminals write to this channel, too, to show it.
    #[must_use]
    pub fn with_terminal_output(mut self, output: mpsc::Sender<TerminalOutput>) -> Host {
        self.terminals.echo = Some(output);
        self
    }

    /// Runs commands in pseudo terminals of this size instead of pipes.
    #[must_use]
    pub fn with_terminal_size(mut self, size: TerminalSize) -> Host {
        self.terminals.size = Some(size);
        self
    }

    /// Announces that the user can log in by running the agent in a terminal.
    #[must_use]
    pub fn with_terminal_login(mut self) -> Host {
        self.has_login = true;
        self
    }

    /// Announces that the output of running commands is shown when it comes in `_meta.terminal_output`.
    #[must_use]
    pub fn with_live_output(mut self) -> Host {
        self.meta.get_or_insert_default().insert("terminal_output".to_owned(), true.into());
        self
    }

    /// Creates a host that offers nothing and rejects every permission request.
    #[must_use]
    pub fn none() -> Host {
        Host::new(HostOptions {
            files: false,
            terminals: false,
            cwd: PathBuf::from("/"),
            permission: Permission::Reject,
        })
    }

    /// Returns the capabilities to send in `initialize`.
    #[must_use]
    pub fn capabilities(&self) -> schema::ClientCapabilities {
        let files = schema::FileSystemCapabilities::new()
            .read_text_file(self.options.files)
            .write_text_file(self.options.files);
        let session =
            schema::ClientSessionCapabilities::new().notices(schema::NoticeCapabilities::new());
        let capabilities = schema::ClientCapabilities::new()
            .fs(files)
            .terminal(self.options.terminals)
            .session(session)
            .meta(self.meta.clone());
        let capabilities = match self.has_login {
            true => capabilities.auth(schema::AuthCapabilities::new().terminal(true)),
            false => capabilities,
        };
        match self.forms {
            None => capabilities,
            Some(_) => capabilities.elicitation(
                schema::ElicitationCapabilities::new()
                    .form(schema::ElicitationFormCapabilities::new())
                    .url(schema::ElicitationUrlCapabilities::new()),
            ),
        }
    }

    /// Starts to serve a call. The future owns everything it needs; dropping it abandons the call.
    pub fn serve(&mut self, method: &str, params: Option<&RawValue>) -> HostReply {
        let started = match method {
            "fs/read_text_file" if self.options.files => {
                read(params).map(|request: schema::ReadTextFileRequest| {
                    let gate = self.gate(&request.session_id, &request.path, "Read");
                    answer(async move {
                        gate.await?;
                        files::read_text_file(request).await
                    })
                })
            }
            "fs/write_text_file" if self.options.files => {
                read(params).map(|request: schema::WriteTextFileRequest| {
                    let gate = self.gate(&request.session_id, &request.path, "Write");
                    let (permission, writes) =
                        (self.options.permission.clone(), self.writes.clone());
                    answer(async move {
                        gate.await?;
                        if let Some(writes) = writes {
                            writes::permit(&request, &permission, &writes).await?;
                        }
                        files::write_text_file(request).await
                    })
                })
            }
            method if method.starts_with("terminal/") && self.options.terminals => {
                self.terminals.serve(method, params)
            }
            "session/request_permission" => read(params).map(|request| self.permit(request)),
            "elicitation/create" => read(params).map(|request| self.elicit(request)),
            _ => Err(RpcError::of(Code::METHOD_NOT_FOUND)),
        };
        started.unwrap_or_else(|error| Box::pin(ready(Err(error))))
    }

    fn elicit(&self, request: schema::CreateElicitationRequest) -> HostReply {
        let response = schema::CreateElicitationResponse::new;
        let Some(forms) = self.forms.clone() else {
            return immediate(response(schema::ElicitationAction::Decline));
        };
        answer(async move {
            let (answer, answered) = oneshot::channel();
            // Both failures mean that no code is left to decide.
            if forms.send(FormQuestion { request, answer }).await.is_err() {
                return Ok(response(schema::ElicitationAction::Cancel));
            }
            Ok(answered.await.unwrap_or_else(|_| response(schema::ElicitationAction::Cancel)))
        })
    }

    /// Waits until the user has allowed a file that is not served without a question.
    fn gate(
        &self,
        session: &schema::SessionId,
        path: &Path,
        verb: &'static str,
    ) -> impl Future<Output = Result<(), RpcError>> + Send + use<> {
        let questions = match &self.options.permission {
            Permission::Ask(questions) => Some(questions.clone()),
            Permission::AllowOnce | Permission::Reject => None,
        };
        let (roots, session, path) = (self.roots.clone(), session.clone(), path.to_owned());
        async move {
            let Some(roots) = roots else { return Ok(()) };
            let Some(reason) = roots.reason_to_ask(&path) else { return Ok(()) };
            let denied = || {
                let details = format!("The user did not allow this: {reason}");
                RpcError::of(Code::FILE_DENIED)
                    .details(details)
                    .with("path", path.display().to_string().into())
            };
            let Some(questions) = questions else { return Err(denied()) };
            let request = roots::question(session, &path, verb, reason);
            match ask(&questions, request).await {
                schema::RequestPermissionOutcome::Selected(selected)
                    if *selected.option_id.0 == *roots::ALLOW =>
                {
                    Ok(())
                }
                _ => Err(denied()),
            }
        }
    }

    fn permit(&self, request: schema::RequestPermissionRequest) -> HostReply {
        let (permission, writes) = (self.options.permission.clone(), self.writes.clone());
        answer(async move {
            let named = writes::named_files(&request);
            let (outcome, is_allowed) = decide(&permission, request).await;
            if let Some(writes) = writes.filter(|_| is_allowed) {
                writes.allow(named);
            }
            Ok(schema::RequestPermissionResponse::new(outcome))
        })
    }
}

/// Decides about a request. Also returns whether it was allowed.
async fn decide(
    permission: &Permission,
    request: schema::RequestPermissionRequest,
) -> (schema::RequestPermissionOutcome, bool) {
    use schema::PermissionOptionKind::{AllowAlways, AllowOnce};
    let options = request.options.clone();
    let outcome = match permission {
        Permission::AllowOnce => allow_once(&request),
        Permission::Reject => reject(&request),
        Permission::Ask(questions) => ask(questions, request).await,
    };
    let schema::RequestPermissionOutcome::Selected(selected) = &outcome else {
        return (outcome, false);
    };
    let chosen = options.iter().find(|option| option.option_id == selected.option_id);
    let is_allowed = chosen.is_some_and(|option| matches!(option.kind, AllowOnce | AllowAlways));
    (outcome, is_allowed)
}

/// Chooses the option that allows the request once. Rejects the request without such an option.
#[must_use]
pub fn allow_once(request: &schema::RequestPermissionRequest) -> schema::RequestPermissionOutcome {
    choose(request, schema::PermissionOptionKind::AllowOnce).unwrap_or_else(|| reject(request))
}

/// Chooses the mildest option that rejects the request. Answers "cancelled" without such an option.
#[must_use]
pub fn reject(request: &schema::RequestPermissionRequest) -> schema::RequestPermissionOutcome {
    choose(request, schema::PermissionOptionKind::RejectOnce)
        .or_else(|| choose(request, schema::PermissionOptionKind::RejectAlways))
        .unwrap_or(schema::RequestPermissionOutcome::Cancelled)
}

fn choose(
    request: &schema::RequestPermissionRequest,
    kind: schema::PermissionOptionKind,
) -> Option<schema::RequestPermissionOutcome> {
    let option = request.options.iter().find(|option| option.kind == kind)?;
    let selected = schema::SelectedPermissionOutcome::new(option.option_id.clone());
    Some(schema::RequestPermissionOutcome::Selected(selected))
}

async fn ask(
    questions: &mpsc::Sender<PermissionQuestion>,
    request: schema::RequestPermissionRequest,
) -> schema::RequestPermissionOutcome {
    let (answer, answered) = oneshot::channel();
    // Both failures mean that no code is left to decide.
    if questions.send(PermissionQuestion { request, answer }).await.is_err() {
        return schema::RequestPermissionOutcome::Cancelled;
    }
    answered.await.unwrap_or(schema::RequestPermissionOutcome::Cancelled)
}

fn read<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, RpcError> {
    // Not `wire::acp::read`, which rejects null characters: a file may contain some.
    let text = params.map_or("{}", RawValue::get);
    serde_json::from_str(text)
        .map_err(|err| RpcError::of(Code::INVALID_PARAMS).details(err.to_string()))
}

fn answer<T: Serialize>(
    work: impl Future<Output = Result<T, RpcError>> + Send + 'static,
) -> HostReply {
    Box::pin(async move { work.await.and_then(|result| print(&result)) })
}

fn immediate<T: Serialize>(result: T) -> HostReply {
    Box::pin(ready(print(&result)))
}

fn print<T: Serialize>(result: &T) -> Result<Box<RawValue>, RpcError> {
    serde_json::value::to_raw_value(result)
        .map_err(|err| RpcError::of(Code::INTERNAL_ERROR).details(err.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn host(permission: Permission) -> Host {
        Host::new(HostOptions {
            files: true,
            terminals: true,
            cwd: tempfile::env::temp_dir(),
            permission,
        })
    }

    async fn serve(host: &mut Host, method: &str, params: Value) -> Result<Value, i32> {
        let params = serde_json::value::to_raw_value(&params).unwrap();
        match host.serve(method, Some(&params)).await {
            Ok(result) => Ok(serde_json::from_str(result.get()).unwrap()),
            Err(error) => Err(error.code.0),
        }
    }

    fn permission() -> Value {
        json!({
            "sessionId": "s",
            "toolCall": { "toolCallId": "t" },
            "options": [
                { "optionId": "always", "name": "Always", "kind": "allow_always" },
                { "optionId": "yes", "name": "Yes", "kind": "allow_once" },
                { "optionId": "no", "name": "No", "kind": "reject_once" },
            ],
        })
    }

    #[tokio::test]
    async fn permission_follows_the_policy() {
        let method = "session/request_permission";
        let outcome = serve(&mut host(Permission::AllowOnce), method, permission()).await.unwrap();
        assert_eq!(outcome["outcome"]["optionId"], "yes");
        let outcome = serve(&mut host(Permission::Reject), method, permission()).await.unwrap();
        assert_eq!(outcome["outcome"]["optionId"], "no");

        let (tx, mut rx) = mpsc::channel(1);
        let mut host = host(Permission::Ask(tx));
        let (outcome, ()) = tokio::join!(serve(&mut host, method, permission()), async {
            drop(rx.recv().await);
        });
        assert_eq!(outcome.unwrap()["outcome"]["outcome"], "cancelled");
    }

    #[tokio::test]
    async fn methods_that_are_not_offered_are_not_found() {
        let mut none = Host::none();
        for method in ["fs/read_text_file", "terminal/create", "nope"] {
            assert_eq!(serve(&mut none, method, json!({})).await, Err(-32601), "{method}");
        }
        let elicitation = json!({
            "sessionId": "s", "mode": "form", "message": "who?",
            "requestedSchema": { "type": "object", "properties": {} },
        });
        let answer = serve(&mut none, "elicitation/create", elicitation).await;
        assert_eq!(answer, Ok(json!({ "action": "decline" })));
    }

    #[tokio::test]
    async fn invalid_params_are_rejected() {
        let mut host = host(Permission::Reject);
        for method in ["fs/read_text_file", "terminal/output", "session/request_permission"] {
            assert_eq!(serve(&mut host, method, json!({})).await, Err(-32602), "{method}");
        }
    }
}
