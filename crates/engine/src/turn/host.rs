//! What a turn does for the tools that run in it.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::cx::TurnCx;
use super::{child, context, dispatch};
use crate::ports::{
    ChildTask, Denied, Event, Form, FormAnswer, Output, Severity, ToolCx, ToolError, ToolHost,
};
use crate::words::{Access, Answer, Decision, PermissionKey, Question, ToolCall, ToolKind};

impl ToolHost for TurnCx<'_> {
    fn result_limit(&self) -> usize {
        context::result_limit(self)
    }

    fn sees_pictures(&self) -> bool {
        self.settings().choice().is_none_or(|choice| choice.model.sees_pictures())
    }

    fn denied(&self, key: &PermissionKey) -> Arc<dyn Denied> {
        Arc::new(self.ports.policy.denied(key, &self.modes()))
    }

    fn allows(&self, access: &[Access]) -> bool {
        let judgement = self.ports.policy.judge_within(access, ToolKind::Read, &self.modes());
        judgement.decision == Decision::Allow
    }

    fn show(&self, event: Event) -> BoxFuture<'_, Result<(), ToolError>> {
        async move { Ok(self.emit(event).await?) }.boxed()
    }

    fn warn<'a>(
        &'a self,
        title: &'a str,
        description: Option<String>,
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        async move { Ok(self.notify(Severity::Warning, title, description).await?) }.boxed()
    }

    fn elicit(&self, form: Form) -> BoxFuture<'_, Result<FormAnswer, ToolError>> {
        async move {
            let _asking = self.or_cancelled(self.conversation.asking.lock()).await?;
            let form = match self.turn.parent {
                Some(parent) => parent.present_form(form).await?,
                None => form,
            };
            Ok(self.or_cancelled(self.ports.editor.elicit(form)).await??)
        }
        .boxed()
    }

    fn require<'a>(
        &'a self,
        call: ToolCall,
        access: &'a [Access],
    ) -> BoxFuture<'a, Result<(), ToolError>> {
        async move {
            match dispatch::permit(self, &self.turn.spans, &call, access, None).await? {
                Some(refusal) => Err(refusal),
                None => Ok(()),
            }
        }
        .boxed()
    }

    fn confirm(&self, question: Question) -> BoxFuture<'_, Result<Answer, ToolError>> {
        async move {
            let _asking = self.or_cancelled(self.conversation.asking.lock()).await?;
            Ok(self.or_cancelled(self.ports.editor.ask_permission(question)).await??)
        }
        .boxed()
    }

    fn set_mode<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, ToolError>> {
        async move {
            let mode = self.conversation.settings.borrow().find_mode(id).cloned();
            let Some(mode) = mode else { return Ok(false) };
            TurnCx::set_mode(self, &mode).await?;
            Ok(true)
        }
        .boxed()
    }

    fn run_child<'a>(
        &'a self,
        cx: &'a ToolCx<'a>,
        task: ChildTask,
    ) -> BoxFuture<'a, Result<Output, ToolError>> {
        child::run(self, cx, task).boxed()
    }
}
