//! Tools: how they are described, what they planned, and what they returned.

use std::sync::{Arc, Mutex};

use engine::ports::{
    Adopt, Intent, Offers, Outline, Output, PlanResult, Planned, Schema, Tool, ToolCx, ToolError,
    ToolSpec, Wait,
};
use engine::words::{ModelId, SessionId, ToolKind};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::act::{Operation, RecordedHost, play, recorded};
use crate::error_value::ToolErrorValue;
use crate::tape::Tape;

/// A tool as it is written.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ToolValue {
    spec: SpecValue,
    brief: Option<SpecValue>,
    kind: ToolKind,
    is_parallel: bool,
    is_for_children: bool,
}

#[derive(Clone, Serialize, Deserialize)]
struct SpecValue {
    name: String,
    description: String,
    schema: String,
}

impl ToolValue {
    pub(crate) fn of(tool: &dyn Tool) -> ToolValue {
        let spec = |spec: &ToolSpec| SpecValue {
            name: spec.name.clone(),
            description: spec.description.clone(),
            schema: spec.schema.text().to_owned(),
        };
        ToolValue {
            spec: spec(&tool.spec()),
            brief: tool.brief_spec().as_deref().map(spec),
            kind: tool.kind(),
            is_parallel: tool.is_parallel(),
            is_for_children: tool.is_for_children(),
        }
    }
}

/// Wraps a tool of a session.
pub(crate) fn tool(tape: &Tape, session: &SessionId, inner: &Arc<dyn Tool>) -> Arc<dyn Tool> {
    make(tape, session, ToolValue::of(&**inner), Some(Arc::clone(inner)))
}

/// Makes a tool of a replay.
pub(crate) fn played(tape: &Tape, session: &SessionId, value: ToolValue) -> Arc<dyn Tool> {
    make(tape, session, value, None)
}

fn make(
    tape: &Tape,
    session: &SessionId,
    value: ToolValue,
    inner: Option<Arc<dyn Tool>>,
) -> Arc<dyn Tool> {
    let key = format!("{session} {}", value.spec.name);
    let adopts = inner.as_ref().map(|inner| inner.spec().adopt.clone());
    let spec = |value: SpecValue| {
        let (tape, key, adopts) = (tape.clone(), key.clone(), adopts.clone());
        // A pure function, so its results can be found by what it was given.
        let adopt = Adopt::new(move |name, input| {
            let key = format!("adopt {key} {name} {input}");
            tape.state(&key, || adopts.as_ref().and_then(|adopts| adopts.read(name, input)))
        });
        let schema: Value = serde_json::from_str(&value.schema).unwrap_or_default();
        let SpecValue { name, description, .. } = value;
        Arc::new(ToolSpec { name, description, schema: Schema::from(schema), adopt })
    };
    Arc::new(TapedTool {
        tape: tape.clone(),
        spec: spec(value.spec),
        brief: value.brief.map(spec),
        kind: value.kind,
        is_parallel: value.is_parallel,
        is_for_children: value.is_for_children,
        key,
        inner,
    })
}

struct TapedTool {
    tape: Tape,
    key: String,
    spec: Arc<ToolSpec>,
    brief: Option<Arc<ToolSpec>>,
    kind: ToolKind,
    is_parallel: bool,
    is_for_children: bool,
    inner: Option<Arc<dyn Tool>>,
}

/// What planning a call returned.
type PlanValue = Result<(Intent, Option<Wait>), ToolErrorValue>;
/// What a call returned.
type RunValue = Result<Output, ToolErrorValue>;

impl Tool for TapedTool {
    fn spec(&self) -> Arc<ToolSpec> {
        Arc::clone(&self.spec)
    }

    fn brief_spec(&self) -> Option<Arc<ToolSpec>> {
        self.brief.clone()
    }

    fn kind(&self) -> ToolKind {
        self.kind
    }

    fn is_parallel(&self) -> bool {
        self.is_parallel
    }

    fn is_for_children(&self) -> bool {
        self.is_for_children
    }

    fn suits(&self, model: &ModelId, offers: Offers) -> bool {
        let key = format!("suits {} {model} {offers:?}", self.key);
        self.tape.state(&key, || self.inner.as_ref().is_none_or(|inner| inner.suits(model, offers)))
    }

    fn outline(&self, input: &Value) -> Outline {
        let key = format!("outline {} {input}", self.key);
        self.tape.state(&key, || {
            self.inner.as_ref().map(|inner| inner.outline(input)).unwrap_or_default()
        })
    }

    fn plan<'a>(
        self: Arc<Self>,
        cx: &'a ToolCx<'a>,
        input: &'a Value,
    ) -> BoxFuture<'a, PlanResult> {
        async move {
            let key = format!("{} {}", self.key, cx.id);
            let key = format!("plan {key} {}", self.tape.ordinal(&key));
            let run = key.replacen("plan", "run", 1);
            match (&self.tape, &self.inner) {
                (Tape::Record(recorder), Some(inner)) => {
                    let operation = Operation::new(recorder, &key);
                    let editor = recorded(cx.editor, &operation);
                    let host = RecordedHost { inner: cx.turn, operation: operation.clone() };
                    let within = ToolCx { editor: &editor, turn: &host, ..copy(cx) };
                    let planned = Arc::clone(inner).plan(&within, input).await;
                    let value: PlanValue = match &planned {
                        Ok((intent, planned)) => Ok((intent.clone(), planned.wait())),
                        Err(err) => Err(err.into()),
                    };
                    operation.done(&value);
                    let (intent, planned) = planned?;
                    let (tape, wait) = (self.tape.clone(), planned.wait());
                    let planned = Some(Mutex::new(planned));
                    Ok((
                        intent,
                        Box::new(TapedCall { tape, key: run, planned, wait }) as Box<dyn Planned>,
                    ))
                }
                (Tape::Play(player), _) => {
                    let value: PlanValue = play(player, &key, cx.editor, Some(cx.turn)).await;
                    let tape = self.tape.clone();
                    let (intent, wait) = value?;
                    let call = TapedCall { tape, key: run, planned: None, wait };
                    Ok((intent, Box::new(call) as Box<dyn Planned>))
                }
                (Tape::Record(_), None) => Err(ToolError::Cancelled),
            }
        }
        .boxed()
    }
}

/// Copies a context, to replace parts of it.
fn copy<'a>(cx: &ToolCx<'a>) -> ToolCx<'a> {
    ToolCx {
        id: cx.id,
        cwd: cx.cwd,
        editor: cx.editor,
        cancel: cx.cancel,
        session: cx.session,
        journal: cx.journal,
        turn: cx.turn,
        spans: cx.spans.clone(),
    }
}

struct TapedCall {
    tape: Tape,
    key: String,
    /// The real call; `None` in a replay. The lock is never waited for.
    planned: Option<Mutex<Box<dyn Planned>>>,
    wait: Option<Wait>,
}

impl Planned for TapedCall {
    fn wait(&self) -> Option<Wait> {
        self.wait.clone()
    }

    fn run<'a>(self: Box<Self>, cx: &'a ToolCx<'a>) -> BoxFuture<'a, Result<Output, ToolError>> {
        async move {
            let TapedCall { tape, key, planned, .. } = *self;
            match (tape, planned) {
                (Tape::Record(recorder), Some(planned)) => {
                    let planned = planned.into_inner().unwrap_or_else(|err| err.into_inner());
                    let operation = Operation::new(&recorder, &key);
                    let editor = recorded(cx.editor, &operation);
                    let host = RecordedHost { inner: cx.turn, operation: operation.clone() };
                    let within = ToolCx { editor: &editor, turn: &host, ..copy(cx) };
                    let outcome = planned.run(&within).await;
                    let value: RunValue = match &outcome {
                        Ok(output) => Ok(output.clone()),
                        Err(err) => Err(err.into()),
                    };
                    operation.done(&value);
                    outcome
                }
                (Tape::Play(player), _) => {
                    let value: RunValue = play(&player, &key, cx.editor, Some(cx.turn)).await;
                    Ok(value?)
                }
                (Tape::Record(_), None) => Err(ToolError::Cancelled),
            }
        }
        .boxed()
    }
}
