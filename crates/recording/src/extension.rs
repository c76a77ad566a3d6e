//! Extensions: their tools, commands and notices, what their hooks decided, and what they showed by themselves.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use engine::ports::{
    Expanded, Extension, ExtensionContext, IsolatedTurn, Tool, Toolbox, TurnOverrides,
};
use engine::words::{Agent, HookOutcome, Moment, Prompt, SessionId, SlashCommand};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::act::{Operation, RecordedEditor, play};
use crate::model::{ChoiceValue, value_of};
use crate::tape::Tape;
use crate::tool::{self, ToolValue};

/// A list of tools, shared as extensions return it.
type Tools = Arc<[Arc<dyn Tool>]>;

/// An extension of a session.
pub(crate) struct TapedExtension {
    tape: Tape,
    session: SessionId,
    key: String,
    agents: Vec<Arc<Agent>>,
    inner: Option<Arc<dyn Extension>>,
    /// The tools that were returned last, wrapped, with what they were made of.
    last: Mutex<Option<(Origin, Tools)>>,
    /// Repeats what the extension showed by itself.
    tasks: Mutex<JoinSet<()>>,
}

/// What wrapped tools were made of.
enum Origin {
    Real(Tools),
    Written(String),
}

/// What becomes of a prompt.
#[derive(Serialize, Deserialize)]
enum ExpandedValue {
    Prompt(Prompt),
    With(Prompt, TurnOverrides),
    Answer(String),
    /// A turn with a model and tools of its own.
    Isolated {
        cwd: PathBuf,
        model: ChoiceValue,
        tools: Vec<ToolValue>,
    },
}

/// Lives as long as the toolbox of an isolated turn: a part of the real one removes its directory at the end.
struct Kept(#[expect(dead_code, reason = "it is only dropped")] Arc<Toolbox>);

impl Extension for Kept {}

impl TapedExtension {
    pub(crate) fn new(
        tape: &Tape,
        session: &SessionId,
        number: usize,
        agents: Vec<Arc<Agent>>,
        inner: Option<Arc<dyn Extension>>,
    ) -> TapedExtension {
        TapedExtension {
            tape: tape.clone(),
            session: session.clone(),
            key: format!("extension {session} {number}"),
            agents,
            inner,
            last: Mutex::default(),
            tasks: Mutex::default(),
        }
    }

    fn recorded_tools(&self, inner: &dyn Extension, before: &[Arc<dyn Tool>]) -> Tools {
        let real = inner.tools(before);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((Origin::Real(known), tools)) = &*last
            && Arc::ptr_eq(known, &real)
        {
            return Arc::clone(tools);
        }
        let values: Vec<ToolValue> = real.iter().map(|tool| ToolValue::of(&**tool)).collect();
        self.tape.state(&format!("{} tools", self.key), || values);
        let wrap = |inner: &Arc<dyn Tool>| tool::tool(&self.tape, &self.session, inner);
        let tools: Tools = real.iter().map(wrap).collect();
        *last = Some((Origin::Real(real), Arc::clone(&tools)));
        tools
    }

    /// Wraps what an isolated turn asks and calls.
    fn recorded(&self, expanded: Expanded) -> Expanded {
        let Expanded::Isolated(IsolatedTurn { cwd, model, toolbox }) = expanded else {
            return expanded;
        };
        let wrap = |inner: &Arc<dyn Tool>| tool::tool(&self.tape, &self.session, inner);
        let tools = toolbox.now().iter().map(wrap).collect();
        let toolbox = Arc::new(Toolbox::new(tools, vec![Arc::new(Kept(toolbox))]));
        Expanded::Isolated(IsolatedTurn { cwd, model: self.tape.model(&model), toolbox })
    }

    fn played_tools(&self) -> Tools {
        let values: Vec<ToolValue> = self.tape.state(&format!("{} tools", self.key), Vec::new);
        let written = serde_json::to_string(&values).unwrap_or_default();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((Origin::Written(known), tools)) = &*last
            && *known == written
        {
            return Arc::clone(tools);
        }
        let make = |value| tool::played(&self.tape, &self.session, value);
        let tools: Tools = values.into_iter().map(make).collect();
        *last = Some((Origin::Written(written), Arc::clone(&tools)));
        tools
    }
}

impl Extension for TapedExtension {
    fn tools(&self, before: &[Arc<dyn Tool>]) -> Tools {
        match &self.inner {
            Some(inner) => self.recorded_tools(&**inner, before),
            None => self.played_tools(),
        }
    }

    fn start(&self, session: &ExtensionContext) {
        let key = format!("{} start", self.key);
        let key = format!("{key} {}", self.tape.ordinal(&key));
        match (&self.tape, &self.inner) {
            (Tape::Record(recorder), Some(inner)) => {
                let operation = Operation::new(recorder, &key);
                let editor = RecordedEditor { inner: Arc::clone(&session.editor), operation };
                let toolbox = session.toolbox.clone();
                inner.start(&ExtensionContext { editor: Arc::new(editor), toolbox });
            }
            (Tape::Play(player), _) => {
                let (player, editor) = (Arc::clone(player), Arc::clone(&session.editor));
                let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
                tasks.spawn(async move { play::<()>(&player, &key, &*editor, None).await });
            }
            (Tape::Record(_), None) => {}
        }
    }

    fn pause(&self) {
        if let Some(inner) = &self.inner {
            inner.pause();
        }
    }

    fn agents(&self) -> Vec<Arc<Agent>> {
        self.agents.clone()
    }

    fn commands(&self) -> Vec<SlashCommand> {
        let read = || self.inner.as_ref().map(|inner| inner.commands()).unwrap_or_default();
        self.tape.state(&format!("{} commands", self.key), read)
    }

    fn take_notices(&self) -> Vec<String> {
        let read = || self.inner.as_ref().map(|inner| inner.take_notices()).unwrap_or_default();
        self.tape.next(&format!("{} notices", self.key), read)
    }

    fn hook<'a>(&'a self, moment: Moment<'a>) -> BoxFuture<'a, HookOutcome> {
        async move {
            let key = format!("{} hook", self.key);
            let work = async {
                match &self.inner {
                    Some(inner) => inner.hook(moment).await,
                    None => HookOutcome::default(),
                }
            };
            self.tape.step(&key, work).await
        }
        .boxed()
    }

    fn expand(&self, prompt: Prompt) -> BoxFuture<'_, Expanded> {
        let key = format!("{} expand", self.key);
        async move {
            let mut real = None;
            let expand = async {
                let expanded = match &self.inner {
                    Some(inner) => inner.expand(prompt).await,
                    None => Expanded::Prompt(prompt),
                };
                let value = ExpandedValue::of(&expanded);
                real = Some(self.recorded(expanded));
                value
            };
            let value = self.tape.step(&key, expand).await;
            match (real, value) {
                (Some(expanded), _) => expanded,
                (None, ExpandedValue::Prompt(prompt)) => Expanded::Prompt(prompt),
                (None, ExpandedValue::With(prompt, more)) => Expanded::With(prompt, more),
                (None, ExpandedValue::Answer(text)) => Expanded::Answer(text),
                (None, ExpandedValue::Isolated { cwd, model, tools }) => {
                    let make = |value| tool::played(&self.tape, &self.session, value);
                    let tools = tools.into_iter().map(make).collect();
                    let toolbox = Arc::new(Toolbox::new(tools, Vec::new()));
                    let model = self.tape.played_model(model);
                    Expanded::Isolated(IsolatedTurn { cwd, model, toolbox })
                }
            }
        }
        .boxed()
    }
}

impl ExpandedValue {
    fn of(expanded: &Expanded) -> ExpandedValue {
        match expanded {
            Expanded::Prompt(prompt) => ExpandedValue::Prompt(prompt.clone()),
            Expanded::With(prompt, overrides) => {
                ExpandedValue::With(prompt.clone(), overrides.clone())
            }
            Expanded::Answer(text) => ExpandedValue::Answer(text.clone()),
            Expanded::Isolated(IsolatedTurn { cwd, model, toolbox }) => ExpandedValue::Isolated {
                cwd: cwd.clone(),
                model: value_of(model),
                tools: toolbox.now().iter().map(|tool| ToolValue::of(&**tool)).collect(),
            },
        }
    }
}
