//! A session's tools, and the extensions that add to them.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};

use serde::{Deserialize, Serialize};

use super::editor::Editor;
use super::settings::ModelChoice;
use super::tool::Tool;
use crate::words::{
    Agent, HookOutcome, ModeId, ModelId, Moment, Prompt, Restrictions, Rule, SlashCommand,
};

/// One thing that adds tools, slash commands, agents, hooks or notices to a session, such as its MCP servers.
///
/// Every method has a neutral default, and [`Toolbox`] asks every extension.
pub trait Extension: Send + Sync {
    /// Returns its tools as they are now. `before` are the tools that come before them: their names are taken.
    fn tools(&self, _before: &[Arc<dyn Tool>]) -> Arc<[Arc<dyn Tool>]> {
        Arc::new([])
    }

    /// Starts what must not delay the opening of a session. Called when the client knows the session, and again when the
    /// session wakes up; from here on the client may be shown things.
    fn start(&self, _session: &ExtensionContext) {}

    /// Stops what [`Extension::start`] started, until it is called again: the session is not in use.
    fn pause(&self) {}

    /// Returns the agents it defines. Asked when the session is opened.
    fn agents(&self) -> Vec<Arc<Agent>> {
        Vec::new()
    }

    /// Returns its slash commands.
    fn commands(&self) -> Vec<SlashCommand> {
        Vec::new()
    }

    /// Takes the messages that the user has not seen yet. Asked when a turn begins, for clients that show no notices.
    fn take_notices(&self) -> Vec<String> {
        Vec::new()
    }

    /// Runs the user's hooks.
    fn hook<'a>(&'a self, _moment: Moment<'a>) -> BoxFuture<'a, HookOutcome> {
        future::ready(HookOutcome::default()).boxed()
    }

    /// Turns a prompt into what the model should see, or answers it: slash commands, things to attach.
    fn expand(&self, prompt: Prompt) -> BoxFuture<'_, Expanded> {
        future::ready(Expanded::Prompt(prompt)).boxed()
    }
}

/// How an extension reaches the session that it is part of.
#[derive(Clone)]
pub struct ExtensionContext {
    /// The session's client.
    pub editor: Arc<dyn Editor>,
    /// All tools and extensions of the session.
    pub toolbox: Weak<Toolbox>,
}

/// What becomes of a prompt before the model sees it.
pub enum Expanded {
    /// The model gets this prompt.
    Prompt(Prompt),
    /// The model gets this prompt, and the turn runs with other settings.
    With(Prompt, TurnOverrides),
    /// The turn is not part of the conversation.
    Isolated(IsolatedTurn),
    /// This is the answer; the model is not asked.
    Answer(String),
}

/// Settings for one turn, instead of the session's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TurnOverrides {
    /// The mode.
    pub mode: Option<ModeId>,
    /// The model.
    pub model: Option<ModelId>,
    /// Rules that allow something, for this turn only. Rules that deny still win.
    pub grants: Vec<Rule>,
}

/// What a turn runs with that is not part of the conversation. The session's model never sees it.
pub struct IsolatedTurn {
    /// The directory it works in. The client does not know it, so the tools must not use the client's files and terminals.
    pub cwd: PathBuf,
    /// The model that is asked.
    pub model: ModelChoice,
    /// The tools it can call. Dropped when the turn is over.
    pub toolbox: Arc<Toolbox>,
}

/// The fixed tools of a toolbox, its extensions, and its restrictions by name.
type ToolboxParts = (Vec<Arc<dyn Tool>>, Vec<Arc<dyn Extension>>, Restrictions);

/// A session's tools and its extensions.
#[derive(Default)]
pub struct Toolbox {
    tools: Vec<Arc<dyn Tool>>,
    extensions: Vec<Arc<dyn Extension>>,
    /// Which of all these tools the session has.
    restrictions: Restrictions,
}

impl Toolbox {
    /// Makes a toolbox. Extensions are asked in this order, and their tools come behind the fixed ones.
    #[must_use]
    pub fn new(tools: Vec<Arc<dyn Tool>>, extensions: Vec<Arc<dyn Extension>>) -> Toolbox {
        Toolbox { tools, extensions, restrictions: Restrictions::default() }
    }

    /// Returns the fixed tools, the extensions, and the restrictions by name.
    #[must_use]
    pub fn into_parts(self) -> ToolboxParts {
        (self.tools, self.extensions, self.restrictions)
    }

    /// Removes tools by their names: patterns, each with whether the session has such tools.
    #[must_use]
    pub fn restricted_to(mut self, tools: Vec<(String, bool)>) -> Toolbox {
        self.restrictions.tools = tools;
        self
    }

    /// Puts an extension before the others.
    #[must_use]
    pub(crate) fn with_first(mut self, extension: Arc<dyn Extension>) -> Toolbox {
        self.extensions.insert(0, extension);
        self
    }

    /// Returns the tools as they are now. MCP servers may join and leave.
    #[must_use]
    pub fn now(&self) -> Vec<Arc<dyn Tool>> {
        let mut tools = self.tools.clone();
        for extension in &self.extensions {
            let more = extension.tools(&tools);
            tools.extend(more.iter().cloned());
        }
        if !self.restrictions.tools.is_empty() {
            tools.retain(|tool| self.restrictions.has_tool(&tool.spec().name));
        }
        tools
    }

    /// Starts the extensions.
    pub fn start(self: &Arc<Toolbox>, editor: &Arc<dyn Editor>) {
        let session =
            ExtensionContext { editor: Arc::clone(editor), toolbox: Arc::downgrade(self) };
        self.extensions.iter().for_each(|extension| extension.start(&session));
    }

    /// Stops the extensions until they are started again.
    pub fn pause(&self) {
        self.extensions.iter().for_each(|extension| extension.pause());
    }

    /// Returns the agents that were defined for the session.
    #[must_use]
    pub fn agents(&self) -> Vec<Arc<Agent>> {
        self.extensions.iter().flat_map(|extension| extension.agents()).collect()
    }

    /// Returns all slash commands.
    #[must_use]
    pub fn commands(&self) -> Vec<SlashCommand> {
        self.extensions.iter().flat_map(|extension| extension.commands()).collect()
    }

    /// Takes the messages that the user has not seen yet.
    #[must_use]
    pub fn take_notices(&self) -> Vec<String> {
        self.extensions.iter().flat_map(|extension| extension.take_notices()).collect()
    }

    /// Runs all hooks and merges what they decide.
    pub async fn hook(&self, moment: Moment<'_>) -> HookOutcome {
        let mut outcome = HookOutcome::default();
        for extension in &self.extensions {
            outcome.merge(extension.hook(moment).await);
        }
        outcome
    }

    /// Lets every extension expand a prompt in turn, until one answers it.
    pub async fn expand(&self, mut prompt: Prompt) -> Expanded {
        let mut overrides: Option<TurnOverrides> = None;
        for extension in &self.extensions {
            match extension.expand(prompt).await {
                Expanded::Prompt(expanded) => prompt = expanded,
                Expanded::With(expanded, more) => {
                    prompt = expanded;
                    overrides = Some(more);
                }
                done @ (Expanded::Isolated(_) | Expanded::Answer(_)) => return done,
            }
        }
        match overrides {
            Some(overrides) => Expanded::With(prompt, overrides),
            None => Expanded::Prompt(prompt),
        }
    }
}

impl std::fmt::Debug for Toolbox {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Toolbox({} tools, {} extensions)", self.tools.len(), self.extensions.len())
    }
}
